//! A hostile client: writes arbitrary bytes, reads when it likes, and leaves without notice.

use std::time::Duration;

use contract::{
    ConnId, Dial, Frame, FrameHead, HEAD_BYTES_MAX, Instant, NetEvent, Streams, Transport,
};
use flash::Rng;

use crate::layout::HOSTILE_BLOCKS;
use crate::marks::{Mark, Marks};
use crate::port::Port;

/// The behaviour of a hostile client on its present connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostileBehaviour {
    /// The client connects and sends nothing.
    Silence,
    /// The client sends random bytes instead of messages.
    Noise,
    /// Sends half of a message, then nothing.
    Half,
    /// Sends valid requests of version 1 or 2 without end, and reads no reply.
    Flood { version: u8 },
    /// Alternates valid and invalid requests, and reads the replies.
    Odd { version: u8 },
    /// Sends one byte now and then.
    Drip,
    /// The client sends valid writes to its own namespace, and closes the connection in the middle
    /// of a payload.
    Cut,
}

/// A hostile client of the server, with at most one connection at a time.
pub(crate) struct HostileClient {
    port: Port,
    chance: Rng,
    conn: Option<ConnId>,
    is_open: bool,
    mischief: HostileBehaviour,
    /// The bytes that are left to send.
    outbox: Vec<u8>,
    /// The number of further messages or pieces that the client sends on the present connection.
    moves: u64,
    next_at: Instant,
    /// `true` once the client makes no more connections.
    retired: bool,
    /// The time at which the present connection opened.
    since: Instant,
    marks: Marks,
}

impl HostileClient {
    pub(crate) fn new(port: Port, seed: u64, marks: Marks) -> Self {
        HostileClient {
            port,
            chance: Rng::new(seed),
            conn: None,
            is_open: false,
            mischief: HostileBehaviour::Silence,
            outbox: Vec::new(),
            moves: 0,
            next_at: Instant::ZERO,
            retired: false,
            since: Instant::ZERO,
            marks,
        }
    }

    pub(crate) fn port(&self) -> &Port {
        &self.port
    }

    pub(crate) fn retire(&mut self) {
        self.retired = true;
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let own = (!self.retired).then_some(self.next_at);
        [self.port.wake_at(), own].into_iter().flatten().min()
    }

    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        let mut events = Vec::new();
        self.port.poll(now, &mut events, usize::MAX);
        let mut progressed = !events.is_empty();
        for event in events {
            self.handle(now, event);
        }
        if self.next_at <= now && !self.retired {
            progressed = true;
            self.act(now);
            let pause = match self.chance.within(0..=9) {
                0 => self.chance.within(0..=2_000_000_000),
                1..=3 => self.chance.within(0..=10_000_000),
                _ => self.chance.within(1_000..=100_000),
            };
            self.next_at = now + Duration::from_nanos(pause);
        }
        self.port.kick(now);
        progressed
    }

    fn handle(&mut self, now: Instant, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, .. } => {
                self.is_open = Some(conn) == self.conn;
                self.since = now;
                if let HostileBehaviour::Flood { .. } | HostileBehaviour::Silence = self.mischief {
                    self.port.pause(conn); // it reads no reply
                }
            }
            NetEvent::Received { buf, .. } => self.port.give(buf),
            NetEvent::Sent { .. } => unreachable!("it sends no bodies"),
            NetEvent::Filled { .. } => unreachable!("nobody asked for it"),
            NetEvent::Closed { conn, .. } => {
                if self.conn == Some(conn) {
                    if self.is_open {
                        self.marks.hit(Mark::HostileEnded);
                        if now.since(self.since) >= Duration::from_secs(2) {
                            self.marks.hit(Mark::HostileStuck);
                        }
                    }
                    self.conn = None;
                    self.is_open = false;
                }
            }
        }
    }

    fn act(&mut self, now: Instant) {
        let Some(conn) = self.conn else { return self.dial(now) };
        if !self.is_open {
            return;
        }
        if self.moves == 0 {
            if self.chance.happens(0.3) {
                self.port.close(conn);
            }
            return;
        }
        self.moves -= 1;
        if self.outbox.is_empty() {
            self.compose();
        }
        let floods = matches!(self.mischief, HostileBehaviour::Flood { .. });
        if floods && self.port.unsent(conn) > 0 {
            self.marks.hit(Mark::HostileFlood);
        }
        let most = if self.mischief == HostileBehaviour::Drip { 1 } else { usize::MAX };
        let count = self.outbox.len().min(most);
        let bytes: Vec<u8> = self.outbox.drain(..count).collect();
        for piece in bytes.chunks(HEAD_BYTES_MAX) {
            if self.port.room() == 0 {
                break;
            }
            self.port.send(now, conn, Frame::bare(FrameHead::new(piece)));
        }
    }

    fn dial(&mut self, now: Instant) {
        let version = self.chance.within(1..=2) as u8;
        (self.mischief, self.moves) = match self.chance.within(0..=9) {
            0 => (HostileBehaviour::Silence, 0),
            1 => (HostileBehaviour::Noise, 3),
            2 => (HostileBehaviour::Half, 1),
            3..=5 => (HostileBehaviour::Flood { version }, 200),
            6..=7 => (HostileBehaviour::Odd { version }, 20),
            8 => (HostileBehaviour::Drip, 60),
            _ => (HostileBehaviour::Cut, 1),
        };
        self.outbox.clear();
        self.conn = Some(self.port.dial(now));
        self.is_open = false;
        match self.mischief {
            HostileBehaviour::Flood { version: 2 } | HostileBehaviour::Odd { version: 2 } => {
                self.hello()
            }
            _ => {}
        }
    }

    /// Composes the bytes that the client sends next, by its present behaviour.
    fn compose(&mut self) {
        match self.mischief {
            HostileBehaviour::Silence => {}
            HostileBehaviour::Noise => {
                for _ in 0..self.chance.within(1..=300) {
                    let byte = self.chance.number() as u8;
                    self.outbox.push(byte);
                }
            }
            HostileBehaviour::Half => self.half(),
            HostileBehaviour::Flood { version } => {
                for _ in 0..16 {
                    let blocks = self.chance.within(1..=64) as u32;
                    self.request(version, 0, blocks);
                }
            }
            HostileBehaviour::Odd { version } => self.odd(version),
            HostileBehaviour::Drip => {
                self.hello();
                for _ in 0..4 {
                    self.request(2, 0, 1);
                }
            }
            HostileBehaviour::Cut => {
                self.marks.hit(Mark::HostileWrote);
                self.hello();
                for _ in 0..3 {
                    self.request(2, 1, 16);
                    self.outbox.extend([0xa5; 16 * 512]);
                }
                let left = self.chance.within(49..=self.outbox.len() as u64) as usize;
                self.outbox.truncate(left);
            }
        }
    }

    /// Composes the beginning of a message.
    fn half(&mut self) {
        self.marks.hit(Mark::HostileHalf);
        match self.chance.within(0..=3) {
            0 => self.request(1, 0, 8),
            1 => self.hello(),
            2 => {
                self.hello();
                self.request(2, 1, 16);
                self.outbox.extend([0x5a; 4096]);
                return;
            }
            _ => {
                self.request(1, 1, 16);
                self.outbox.extend([0x5a; 4096]);
                return;
            }
        }
        let left = self.chance.within(1..=self.outbox.len() as u64 - 1) as usize;
        self.outbox.truncate(left);
    }

    /// Composes an unusual request, or a valid one.
    fn odd(&mut self, version: u8) {
        let first = self.outbox.len();
        let opcode = if self.chance.happens(0.7) { 0 } else { 1 };
        self.request(version, opcode, 4);
        if opcode == 1 {
            self.outbox.extend([0x11; 4 * 512]);
        }
        let head = &mut self.outbox[first..];
        let (lba, blocks) = if version == 1 { (12, 20) } else { (16, 24) };
        match self.chance.within(0..=7) {
            0 => head[lba..lba + 8].fill(0xff),
            1 => head[blocks..blocks + 4].fill(0xff),
            2 => head[blocks..blocks + 4].fill(0),
            3 => head[if version == 1 { 2 } else { 0 }] = self.chance.number() as u8,
            4 => {
                let place = self.chance.within(0..=head.len() as u64 - 1) as usize;
                head[place] ^= 1 << self.chance.within(0..=7);
            }
            5 if version == 2 => head[2] = 9, // a stream that does not exist
            _ => {}
        }
    }

    fn hello(&mut self) {
        let bytes = &mut self.outbox;
        bytes.extend(*b"NFR2");
        bytes.extend([2, 0, 2, 0]);
        bytes.extend(7_u64.to_le_bytes());
        bytes.extend(0_u128.to_le_bytes());
        bytes.extend([0; 16]);
    }

    /// Composes a read (opcode 0) or the head of a write (1). In version 2 it goes to the hostile
    /// namespace, which is the second; in version 1 to the good clients' namespace, where reads
    /// only are permitted.
    fn request(&mut self, version: u8, opcode: u8, blocks: u32) {
        let lba = self.chance.within(0..=HOSTILE_BLOCKS - u64::from(blocks));
        let tag = self.chance.number() >> 1 | 1;
        let bytes = &mut self.outbox;
        if version == 1 {
            bytes.extend([24, 0, opcode, 0]);
            bytes.extend(tag.to_le_bytes());
            bytes.extend(lba.to_le_bytes());
            bytes.extend(blocks.to_le_bytes());
        } else {
            let payload = if opcode == 1 { blocks * 512 } else { 0 };
            bytes.extend([opcode + 1, 0, 0, 0]);
            bytes.extend(payload.to_le_bytes());
            bytes.extend(tag.to_le_bytes());
            bytes.extend(lba.to_le_bytes());
            bytes.extend(blocks.to_le_bytes());
            bytes.extend([2, 0, 0, 0]);
            bytes.extend([0; 8]);
        }
    }
}
