//! A well-behaved NBD client. It keeps its connections to one export and reports every event to the
//! model.
//!
//! An NBD client has no identity, so requests in progress on a lost connection are not sent again:
//! they end as lost with their connection, and a later read shows their effect.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use contract::{
    BLOCK_BYTES, BufPool, Command, ConnId, Dial, Instant, NetEvent, REQUEST_BYTES_MAX, Range,
    Status, Streams,
};
use flash::Rng;
use proto::nbd::{ClientEvent, NbdRefusal};
use wire::nbd::OptionReply;

use super::line::{ConnectionSlot, ConnectionStage, SentRequest};
use crate::agenda::Agenda;
use crate::layout::{self, HOT, HUGE};
use crate::ledger::{Lane, Ledger};
use crate::marks::{Mark, Marks};
use crate::port::Port;
use crate::stamp;
use crate::steady::{PROBE_PAUSE, PROBES};

/// The most blocks of a command of a device. Larger requests are cut.
const COMMAND_BLOCKS_MAX: u32 = (REQUEST_BYTES_MAX / BLOCK_BYTES) as u32;

/// The probabilities with which an NBD client ends its connection after a burst of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lapses {
    /// The share after which the connection is cut in the middle of the output.
    pub(crate) cuts: f64,
    /// The share after which the connection is closed before all answers can have arrived.
    pub(crate) hangs_up: f64,
    /// The share after which the client says that no more requests come.
    pub(crate) goodbyes: f64,
}

/// The behaviour of a client.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    pub(crate) connections: usize,
    /// The most requests in progress on a connection.
    pub(crate) depth: usize,
    /// The number of requests before the client has finished.
    pub(crate) quota: u32,
    /// The share of reads among the requests, from 0 to 1.
    pub(crate) reads: f64,
    /// The share of requests that are larger than a command, from 0 to 1.
    pub(crate) big: f64,
    pub(crate) hot_blocks: u64,
    /// Nanoseconds between bursts of requests.
    pub(crate) think: RangeInclusive<u64>,
    pub(crate) lapses: Lapses,
    /// The time that the server may stay silent while it owes an answer.
    pub(crate) silence_max: Duration,
    /// Nanoseconds from the loss of a connection to the next dial.
    pub(crate) backoff: RangeInclusive<u64>,
    pub(crate) seed: u64,
}

/// A well-behaved NBD client with some connections to one export.
pub(crate) struct NbdPeer {
    number: usize,
    port: Port,
    habits: Habits,
    ledger: Rc<RefCell<Ledger>>,
    bufs: BufPool,
    chance: Rng,
    lines: Vec<ConnectionSlot>,
    agenda: Agenda,
    events: Vec<NetEvent>,
    marks: Marks,
    pub(crate) ended: u64,
}

impl NbdPeer {
    pub(crate) fn new(
        number: usize,
        port: Port,
        habits: Habits,
        ledger: Rc<RefCell<Ledger>>,
        bufs: BufPool,
        marks: Marks,
    ) -> Self {
        NbdPeer {
            number,
            port,
            ledger,
            bufs,
            chance: Rng::new(habits.seed),
            lines: (0..habits.connections).map(|_| ConnectionSlot::new(habits.depth)).collect(),
            agenda: Agenda::new(habits.quota),
            events: Vec::new(),
            marks,
            ended: 0,
            habits,
        }
    }

    /// Processes events and sends due requests. Returns `true` if anything happened.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.port.poll(now, &mut events, usize::MAX);
        let mut progressed = !events.is_empty();
        for event in events.drain(..) {
            self.handle(now, event);
        }
        self.events = events;
        for n in 0..self.lines.len() {
            progressed |= self.tend(now, n);
        }
        self.agenda.back_off(now, PROBE_PAUSE);
        if self.agenda.rests_until <= now && self.wants_more() {
            self.burst(now);
            let think = Duration::from_nanos(self.chance.within(self.habits.think.clone()));
            self.agenda.rests_until = self.agenda.rests_until.max(now + think);
            progressed = true;
        }
        for line in &mut self.lines {
            progressed |= line.flush(now, &mut self.port, &mut self.bufs);
        }
        self.port.kick(now);
        progressed
    }

    fn in_flight(&self) -> usize {
        self.lines.iter().map(ConnectionSlot::in_flight).sum()
    }

    fn wants_more(&self) -> bool {
        !self.agenda.is_empty() && self.lines.iter().any(ConnectionSlot::has_room)
    }

    pub(crate) fn calm_down(&mut self) {
        self.agenda.calm_down(PROBES);
    }

    pub(crate) fn is_content(&self) -> bool {
        self.agenda.is_empty() && self.in_flight() == 0 && self.bufs.is_whole()
    }

    pub(crate) fn has_sent(&self) -> bool {
        self.agenda.has_sent()
    }

    pub(crate) fn port(&mut self) -> &mut Port {
        &mut self.port
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let due = |line: &ConnectionSlot| {
            let dial = match line.stage {
                ConnectionStage::Resting(until) => Some(until),
                _ => None,
            };
            let silent = line.silent_since().map(|since| since + self.habits.silence_max);
            [dial, silent, line.cut].into_iter().flatten().min()
        };
        let think = self.wants_more().then_some(self.agenda.rests_until);
        self.lines.iter().filter_map(due).chain(think).min()
    }

    pub(crate) fn describe(&self) -> String {
        let lines: Vec<_> = self.lines.iter().map(|line| (line.stage, line.unsent())).collect();
        let works = self.lines.iter().flat_map(|line| line.works.iter().flatten());
        format!(
            "NBD client {}: {lines:?}, {} to send, {} probes left, wakes {:?}\n  {:?}\n  {:?}",
            self.number,
            self.agenda.quota(),
            self.agenda.probes(),
            self.wake_at(),
            works.map(|work| (work.op, work.command)).collect::<Vec<_>>(),
            self.habits,
        )
    }

    /// Takes the buffers of a client that has finished.
    pub(crate) fn into_pool(self) -> BufPool {
        assert!(self.in_flight() == 0, "a request never ended");
        assert!(self.bufs.is_whole(), "a client's buffer did not come back");
        self.bufs
    }

    /// Does the timed work that is due. Returns `true` if there was any.
    fn tend(&mut self, now: Instant, n: usize) -> bool {
        let line = &mut self.lines[n];
        let is_silent = line.silent_since().is_some_and(|at| at + self.habits.silence_max <= now);
        if is_silent || line.cut.is_some_and(|at| at <= now) {
            self.lose(now, n);
            return true;
        }
        let is_due = matches!(line.stage, ConnectionStage::Resting(until) if until <= now);
        if is_due {
            let conn = self.port.dial(now);
            line.dial(now, conn);
        }
        is_due
    }

    /// Gives up connection `n` and the requests in progress on it.
    fn lose(&mut self, now: Instant, n: usize) {
        if let Some(conn) = self.lines[n].conn() {
            self.port.close(conn);
        }
        let pause = Duration::from_nanos(self.chance.within(self.habits.backoff.clone()));
        for work in self.lines[n].lose(now + pause) {
            self.finish(work, Status::ConnectionLost);
        }
    }

    fn line_of(&self, conn: ConnId) -> Option<usize> {
        self.lines.iter().position(|line| line.conn() == Some(conn))
    }

    fn handle(&mut self, now: Instant, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, .. } => {
                if let Some(n) = self.line_of(conn) {
                    self.lines[n].stage = ConnectionStage::Open(conn);
                    self.lines[n].hear(now);
                }
            }
            NetEvent::Received { conn, buf, len } => {
                self.receive(now, conn, &buf.bytes()[..len]);
                self.port.give(buf);
            }
            NetEvent::Sent { buf, .. } => self.bufs.give(buf),
            NetEvent::Filled { .. } => unreachable!("nobody asked for it"),
            NetEvent::Closed { conn, .. } => {
                if let Some(n) = self.line_of(conn) {
                    let is_leaving = matches!(self.lines[n].stage, ConnectionStage::Leaving(_));
                    if is_leaving && self.lines[n].in_flight() == 0 {
                        self.marks.hit(Mark::NbdLeft);
                    }
                    self.lose(now, n);
                }
            }
        }
    }

    fn receive(&mut self, now: Instant, conn: ConnId, mut input: &[u8]) {
        // A connection to be cut sends nothing more, so the client need not read from it.
        while let Some(n) = self.line_of(conn).filter(|&n| self.lines[n].cut.is_none()) {
            let line = &mut self.lines[n];
            line.hear(now);
            match line.session.next_event(&mut input) {
                Ok(None) => return,
                Ok(Some(ClientEvent::Up)) => {
                    let found = line.session.found();
                    assert!(found.is_writable, "the export is not read-only");
                    assert!(found.bytes == layout::BLOCKS * BLOCK_BYTES as u64, "{found:?}");
                    self.marks.hit(Mark::NbdConnected);
                }
                Ok(Some(ClientEvent::Data { cookie, at, bytes })) => {
                    let work = line.works[cookie as usize].as_mut().expect("it is in progress");
                    work.data[at..at + bytes.len()].copy_from_slice(bytes);
                }
                Ok(Some(ClientEvent::Hole { .. })) => panic!("the server knows no holes"),
                Ok(Some(ClientEvent::Ended { cookie, status })) => {
                    let work = line.works[cookie as usize].take().expect("it is in progress");
                    self.finish(work, status);
                }
                // The server is about to drain.
                Err(NbdRefusal::Export(OptionReply::SHUTDOWN)) => return self.lose(now, n),
                Err(refusal) => panic!("NBD client {}: {refusal}", self.number),
            }
        }
    }

    fn burst(&mut self, now: Instant) {
        for _ in 0..self.chance.within(1..=8) {
            let ready: Vec<usize> =
                (0..self.lines.len()).filter(|&n| self.lines[n].has_room()).collect();
            if ready.is_empty() || self.agenda.is_empty() {
                break;
            }
            let n = ready[self.chance.within(0..=ready.len() as u64 - 1) as usize];
            let is_probe = self.agenda.take();
            self.submit(now, n, is_probe);
        }
        if self.agenda.is_calm() {
            return;
        }
        let n = self.chance.within(0..=self.lines.len() as u64 - 1) as usize;
        let line = &mut self.lines[n];
        let Lapses { cuts, hangs_up, goodbyes } = self.habits.lapses;
        if !line.is_up() {
            return;
        }
        if self.chance.happens(goodbyes) {
            line.say_goodbye(now);
        } else if self.chance.happens(hangs_up) {
            self.marks.hit(Mark::NbdHungUp);
            line.cut = Some(now + Duration::from_nanos(self.chance.within(0..=2_000_000)));
        } else if line.unsent() > 1 && self.chance.happens(cuts) {
            self.marks.hit(Mark::NbdCut);
            let left = self.chance.within(1..=line.unsent() as u64 - 1) as usize;
            line.truncate(left);
            line.cut = Some(now + Duration::from_nanos(self.chance.within(0..=1_000_000)));
        }
    }

    /// Sends a request on a connection that has room for it.
    fn submit(&mut self, now: Instant, n: usize, is_probe: bool) {
        let command = if is_probe { self.probe() } else { self.choose() };
        let near = self.lines[n].conn().map(|conn| (self.port.host(), conn));
        let mut ledger = self.ledger.borrow_mut();
        let op = ledger.next();
        let mut payload = vec![0; command.payload_bytes()];
        if let Command::Write { range, .. } = command {
            stamp::fill(op, range.lba, &mut payload);
        }
        ledger.submit(Lane { client: self.number, link: n, stream: 0 }, command);
        ledger.tie(op, near.expect("it has room"));
        drop(ledger);
        let data = vec![0; command.reply_bytes()];
        self.lines[n].send(now, SentRequest { op, command, is_probe, data }, &payload);
    }

    fn probe(&mut self) -> Command {
        let range = Range::new(self.chance.within(HOT.lba..=HOT.lba + 3), 1);
        match self.agenda.probes().is_multiple_of(2) {
            true => Command::Write { range, fua: false },
            false => Command::Read(range),
        }
    }

    fn choose(&mut self) -> Command {
        let (range, is_big) = self.range();
        let fua = self.chance.happens(0.2);
        if self.chance.happens(self.habits.reads) {
            return match self.chance.within(0..=49) {
                0 => Command::Read(Range::new(layout::BLOCKS - 1, 2)),
                _ => Command::Read(range),
            };
        }
        match self.chance.within(0..=99) {
            0..=69 => Command::Write { range, fua },
            70..=79 => Command::WriteZeroes { range, fua },
            80..=87 => Command::Discard(range),
            _ if is_big => Command::Write { range, fua },
            _ => Command::Flush,
        }
    }

    /// Returns a random range, and `true` if it is larger than any single command.
    fn range(&mut self) -> (Range, bool) {
        if self.chance.happens(self.habits.big) {
            let least = u64::from(COMMAND_BLOCKS_MAX) + 1;
            let blocks = self.chance.within(least..=u64::from(HUGE.blocks));
            let lba = HUGE.lba + self.chance.within(0..=u64::from(HUGE.blocks) - blocks);
            return (Range::new(lba, blocks as u32), true);
        }
        let lba = self.chance.within(0..=self.habits.hot_blocks - 1);
        let most = 32.min(u64::from(HOT.blocks) - lba);
        let blocks = if self.chance.happens(0.5) { 1 } else { self.chance.within(1..=most) };
        (Range::new(HOT.lba + lba, blocks as u32), false)
    }

    /// Tells the model the outcome of a request, and counts it.
    fn finish(&mut self, work: SentRequest, status: Status) {
        let SentRequest { op, command, is_probe, data } = work;
        self.ended += 1;
        let status = meant(command, status);
        assert!(may_end(command, status), "NBD client {}: {command:?}: {status}", self.number);
        self.count(command, status);
        let read = matches!(command, Command::Read(_)) && status.is_ok();
        self.ledger.borrow_mut().done(op, status, read.then_some(&data[..]));
        if is_probe && !status.is_ok() {
            self.agenda.repeat_probe();
        }
    }

    fn count(&self, command: Command, status: Status) {
        let mark = match (status, command) {
            (Status::ConnectionLost, _) => Mark::NbdLost,
            (Status::Ok, _) if is_cut(command) => Mark::NbdBig,
            (Status::Ok, Command::Flush) => Mark::NbdFlushed,
            (Status::Ok, Command::Discard(_)) => Mark::NbdTrimmed,
            (Status::Ok, Command::WriteZeroes { .. }) => Mark::NbdZeroed,
            (Status::Ok, Command::Write { fua: true, .. }) => Mark::NbdForced,
            _ => return,
        };
        self.marks.hit(mark);
    }
}

fn is_cut(command: Command) -> bool {
    command.range().is_some_and(|range| range.blocks > COMMAND_BLOCKS_MAX)
}

/// Returns the status with which the model judges a command that ended with `status` over NBD.
fn meant(command: Command, status: Status) -> Status {
    let out = command.range().is_some_and(|range| !range.fits(layout::BLOCKS));
    match status {
        // The protocol has no error of its own for it.
        Status::Invalid if out => Status::OutOfRange,
        // Pieces that came before the refused one were carried out.
        Status::Retry | Status::NoResources if is_cut(command) => Status::MediaError,
        status => status,
    }
}

/// Returns `true` if a request may end with this status.
fn may_end(command: Command, status: Status) -> bool {
    let out = command.range().is_some_and(|range| !range.fits(layout::BLOCKS));
    match status {
        Status::Ok => !out,
        Status::OutOfRange => out,
        Status::MediaError | Status::NoSpace | Status::Retry | Status::ConnectionLost => true,
        _ => false,
    }
}
