//! The host of an attacking tenant: many connections that take resources and stop making progress.
//! Connections that end, by the server or by themselves, are replaced at once.

use std::ops::RangeInclusive;
use std::time::Duration;

use contract::{
    BLOCK_BYTES, BufPool, ConnId, Dial, Frame, FrameHead, Instant, NetEvent, Streams, Transport,
};
use flash::Rng;

use super::plan::{AttackerPlan, LARGE_BLOCKS, VOLUME_BLOCKS};
use crate::marks::{Mark, Marks};
use crate::port::Port;

/// The behaviour of one attacking connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttackKind {
    /// Sends the head of a large write and a part of the payload, then nothing.
    Half,
    /// Requests large data and reads none of it.
    Unread,
    /// Requests small data and reads none of it.
    UnreadSmall,
    /// Sends requests whose replies have no data, and reads none of the replies.
    Deaf,
    /// Requests data and reads a little of it now and then.
    Slow,
    /// Sends the payload of a large write a little at a time.
    Drip,
    /// Sends large requests without end, and reads the replies.
    Greedy,
}

impl AttackKind {
    pub(super) const ALL: [AttackKind; 7] = [
        AttackKind::Half,
        AttackKind::Unread,
        AttackKind::UnreadSmall,
        AttackKind::Deaf,
        AttackKind::Slow,
        AttackKind::Drip,
        AttackKind::Greedy,
    ];

    /// Returns `true` if the attacker does not read from the connection after its opening.
    /// [`AttackKind::Slow`] reads a little later.
    fn is_deaf(self) -> bool {
        matches!(
            self,
            AttackKind::Unread | AttackKind::UnreadSmall | AttackKind::Deaf | AttackKind::Slow
        )
    }

    /// Returns the nanoseconds between two actions of a connection; `None` if it acts once.
    fn pause(self) -> Option<RangeInclusive<u64>> {
        match self {
            AttackKind::Half | AttackKind::Unread | AttackKind::UnreadSmall | AttackKind::Deaf => {
                None
            }
            AttackKind::Slow => Some(20_000_000..=300_000_000),
            AttackKind::Drip => Some(5_000_000..=50_000_000),
            AttackKind::Greedy => Some(10_000_000..=40_000_000),
        }
    }
}

/// A place for one connection of the attacker, which is dialled anew after each end.
struct AttackConnection {
    attack: AttackKind,
    version: u8,
    conn: Option<ConnId>,
    is_open: bool,
    /// The time of the next act, a dial or a send; `None` if the place waits for an event.
    at: Option<Instant>,
    leaves_at: Option<Instant>,
    opened_at: Instant,
    has_begun: bool,
}

/// The host of an attacking tenant.
pub(super) struct Attacker {
    port: Port,
    plan: AttackerPlan,
    chance: Rng,
    lines: Vec<AttackConnection>,
    bufs: BufPool,
    marks: Marks,
    /// `true` once no more connections are made.
    retired: bool,
}

impl Attacker {
    pub(super) fn new(
        port: Port,
        plan: AttackerPlan,
        seed: u64,
        bufs: BufPool,
        marks: Marks,
    ) -> Self {
        let mut chance = Rng::new(seed);
        let lines = (0..plan.connections).map(|_| {
            let at = plan.begins + Duration::from_nanos(chance.within(0..=20_000_000));
            AttackConnection {
                attack: AttackKind::Half,
                version: 2,
                conn: None,
                is_open: false,
                at: Some(Instant::ZERO + at),
                leaves_at: None,
                opened_at: Instant::ZERO,
                has_begun: false,
            }
        });
        let lines = lines.collect();
        Attacker { port, plan, chance, lines, bufs, marks, retired: false }
    }

    pub(super) fn port(&self) -> &Port {
        &self.port
    }

    pub(super) fn retire(&mut self) {
        self.retired = true;
    }

    /// Takes the buffers of a raider whose connections are gone.
    pub(super) fn into_pool(self) -> BufPool {
        assert!(self.bufs.is_whole(), "a raider's buffer did not come back");
        self.bufs
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let times = self.lines.iter().flat_map(|line| [line.at, line.leaves_at]);
        let own = times.flatten().min().filter(|_| !self.retired);
        [self.port.wake_at(), own].into_iter().flatten().min()
    }

    pub(super) fn turn(&mut self, now: Instant) -> bool {
        let mut events = Vec::new();
        self.port.poll(now, &mut events, usize::MAX);
        let mut progressed = !events.is_empty();
        for event in events {
            self.handle(now, event);
        }
        for n in 0..self.lines.len() {
            if self.retired {
                break;
            }
            if self.lines[n].leaves_at.is_some_and(|at| at <= now) {
                self.lines[n].leaves_at = None;
                self.leave(n);
                progressed = true;
            }
            if self.lines[n].at.is_some_and(|at| at <= now) {
                self.lines[n].at = None;
                self.act(now, n);
                progressed = true;
            }
        }
        self.port.kick(now);
        progressed
    }

    fn line_of(&mut self, conn: ConnId) -> Option<usize> {
        self.lines.iter().position(|line| line.conn == Some(conn))
    }

    fn handle(&mut self, now: Instant, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, .. } => {
                let Some(n) = self.line_of(conn) else { return };
                let line = &mut self.lines[n];
                (line.is_open, line.opened_at) = (true, now);
                line.at = Some(now);
                if line.attack.is_deaf() {
                    self.port.pause(conn);
                }
            }
            NetEvent::Received { conn, buf, .. } => {
                self.port.give(buf);
                let n = self.line_of(conn);
                if n.is_some_and(|n| self.lines[n].attack == AttackKind::Slow) {
                    self.port.pause(conn);
                }
            }
            NetEvent::Sent { buf, .. } => self.bufs.give(buf),
            NetEvent::Filled { .. } => unreachable!("nobody asked for it"),
            NetEvent::Closed { conn, .. } => {
                let Some(n) = self.line_of(conn) else { return };
                let line = &mut self.lines[n];
                if line.is_open && now.since(line.opened_at) >= Duration::from_secs(2) {
                    self.marks.hit(Mark::RaiderCut);
                }
                (line.conn, line.is_open, line.leaves_at) = (None, false, None);
                let pause = self.chance.within(100_000..=5_000_000);
                self.lines[n].at = Some(now + Duration::from_nanos(pause));
                self.marks.hit(Mark::RaiderReplaced);
            }
        }
    }

    fn leave(&mut self, n: usize) {
        if let Some(conn) = self.lines[n].conn {
            self.port.close(conn);
        }
    }

    fn act(&mut self, now: Instant, n: usize) {
        let Some(conn) = self.lines[n].conn else { return self.dial(now, n) };
        if !self.lines[n].is_open {
            return;
        }
        let line = &mut self.lines[n];
        let begins = !std::mem::replace(&mut line.has_begun, true);
        let (attack, version) = (line.attack, line.version);
        if begins && version == 2 {
            self.hello(now, conn);
        }
        match attack {
            AttackKind::Half => self.write(now, conn, version, true),
            AttackKind::Drip if begins => self.write(now, conn, version, true),
            AttackKind::Drip => self.drip(now, conn),
            AttackKind::Slow if !begins => self.port.resume(conn),
            AttackKind::Greedy if self.port.unsent(conn) == 0 => {
                (0..4).for_each(|_| self.read(now, conn, version, LARGE_BLOCKS));
                self.write(now, conn, version, false);
            }
            AttackKind::Greedy => {}
            AttackKind::Unread | AttackKind::Slow => {
                (0..100).for_each(|_| self.read(now, conn, version, LARGE_BLOCKS));
            }
            AttackKind::UnreadSmall => (0..200).for_each(|_| self.read(now, conn, version, 1)),
            // Beyond the end of the device: the answer has no data.
            AttackKind::Deaf => {
                (0..400).for_each(|_| self.request(now, conn, 2, (0, u64::MAX / 2, 1), 0))
            }
        }
        let pause = attack.pause().map(|pause| self.chance.within(pause));
        self.lines[n].at = pause.map(|pause| now + Duration::from_nanos(pause));
    }

    fn dial(&mut self, now: Instant, n: usize) {
        let weights = self.plan.weights;
        let mut roll = self.chance.within(0..=weights.iter().sum::<u64>() - 1);
        let attack = AttackKind::ALL.into_iter().zip(weights).find(|(_, weight)| {
            let is_it = roll < *weight;
            roll = roll.saturating_sub(*weight);
            is_it
        });
        let (attack, _) = attack.expect("the roll is below the sum");
        let is_old = attack != AttackKind::Deaf && self.chance.happens(0.5);
        let lasts = Duration::from_nanos(self.chance.within(5_000_000..=2_000_000_000));
        let leaves = self.chance.happens(self.plan.leaves);
        self.marks.hit(match attack {
            AttackKind::Half => Mark::RaiderHalf,
            AttackKind::Unread | AttackKind::UnreadSmall => Mark::RaiderUnread,
            AttackKind::Deaf => Mark::RaiderDeaf,
            AttackKind::Slow => Mark::RaiderSlow,
            AttackKind::Drip => Mark::RaiderDrip,
            AttackKind::Greedy => Mark::RaiderGreedy,
        });
        let conn = self.port.dial(now);
        self.lines[n] = AttackConnection {
            attack,
            version: if is_old { 1 } else { 2 },
            conn: Some(conn),
            is_open: false,
            at: None,
            leaves_at: leaves.then_some(now + lasts),
            opened_at: now,
            has_begun: false,
        };
    }

    fn hello(&mut self, now: Instant, conn: ConnId) {
        let mut bytes = [0; 48];
        bytes[..8].copy_from_slice(b"NFR2\x02\x00\x02\x00");
        self.send(now, conn, &bytes, 0);
    }

    fn read(&mut self, now: Instant, conn: ConnId, version: u8, blocks: u32) {
        let lba = self.chance.within(0..=VOLUME_BLOCKS - u64::from(blocks));
        self.request(now, conn, version, (0, lba, blocks), 0);
    }

    /// Sends a large write, or the head of one and a part of its payload.
    fn write(&mut self, now: Instant, conn: ConnId, version: u8, cut: bool) {
        let whole = LARGE_BLOCKS as usize * BLOCK_BYTES;
        let lba = self.chance.within(0..=VOLUME_BLOCKS - u64::from(LARGE_BLOCKS));
        let cut_at = self.chance.within(1..=whole as u64 - 1) as usize;
        let sent = if cut { cut_at } else { whole };
        self.request(now, conn, version, (1, lba, LARGE_BLOCKS), sent);
    }

    /// Sends a few more bytes of a payload.
    fn drip(&mut self, now: Instant, conn: ConnId) {
        let bytes = [0; 64];
        let length = self.chance.within(1..=64) as usize;
        self.send(now, conn, &bytes[..length], 0);
    }

    /// Sends the head of a read (opcode 0) or of a write (1), and so many bytes of its payload.
    fn request(
        &mut self,
        now: Instant,
        conn: ConnId,
        version: u8,
        (opcode, lba, blocks): (u8, u64, u32),
        payload: usize,
    ) {
        let tag = self.chance.number() >> 1 | 1;
        let mut bytes = Vec::with_capacity(40);
        if version == 1 {
            bytes.extend([24, 0, opcode, 0]);
            bytes.extend(tag.to_le_bytes());
            bytes.extend(lba.to_le_bytes());
            bytes.extend(blocks.to_le_bytes());
        } else {
            let whole = u32::from(opcode) * blocks * BLOCK_BYTES as u32;
            bytes.extend([opcode + 1, 0, 0, 0]);
            bytes.extend(whole.to_le_bytes());
            bytes.extend(tag.to_le_bytes());
            bytes.extend(lba.to_le_bytes());
            bytes.extend(blocks.to_le_bytes());
            bytes.extend([1, 0, 0, 0]);
            bytes.extend([0; 8]);
        }
        self.send(now, conn, &bytes, payload);
    }

    fn send(&mut self, now: Instant, conn: ConnId, head: &[u8], payload: usize) {
        if self.port.room() == 0 {
            return;
        }
        let body = (payload > 0).then(|| self.bufs.take(payload)).flatten();
        let body_len = if body.is_some() { payload } else { 0 };
        self.port.send(now, conn, Frame { head: FrameHead::new(head), body, body_len });
    }
}
