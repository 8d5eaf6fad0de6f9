//! A well-behaved client: a real initiator with a workload, which reports every event to the model.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use client::{Done, Initiator, Loss, Op, Options, Report, Ticket, Version};
use contract::{
    BLOCK_BYTES, Buf, BufPool, Command, ControlRequest, Instant, NamespaceId, Notice, Range,
    Status, TenantRegistration, TenantReply,
};
use flash::Rng;

use crate::layout::{self, ATOMIC, COMPARED, HOT, HUGE};
use crate::ledger::{Lane, Ledger};
use crate::marks::{Mark, Marks};
use crate::port::Port;
use crate::stamp::{self, Content};
use crate::tenants::{self, HOSTILE};

/// The number of requests after the last fault that must succeed.
pub(crate) const PROBES: u32 = 4;
/// The pause before a probe is tried again.
pub(crate) const PROBE_PAUSE: Duration = Duration::from_millis(10);

/// The behaviour of a client.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    pub(crate) options: Options,
    /// The number of requests before the client has finished.
    pub(crate) quota: u32,
    /// The share of reads among the requests, from 0 to 1.
    pub(crate) reads: f64,
    /// `true` if the client also sends requests of up to 1 MiB.
    pub(crate) huge: bool,
    /// The number of blocks that plain requests touch; the fewer, the more they race.
    pub(crate) hot_blocks: u64,
    /// Nanoseconds between bursts of requests.
    pub(crate) think: RangeInclusive<u64>,
}

/// A request in flight of the client, as far as the model must know of it.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Data {
        op: u32,
        is_probe: bool,
    },
    Control,
    /// A register, on this connection.
    Register {
        link: usize,
    },
    /// An unregister, which has given up the connection's handle.
    Unregister,
}

/// A well-behaved client of protocol `reflex`.
pub(crate) struct SteadyClient {
    number: usize,
    initiator: Initiator<Port>,
    habits: Habits,
    ledger: Rc<RefCell<Ledger>>,
    bufs: BufPool,
    chance: Rng,
    /// The requests in flight, by the ticket's index.
    pending: Vec<Option<Pending>>,
    quota: u32,
    probes: u32,
    /// The content last seen in the blocks that are compared and written.
    seen: HashMap<u64, Content>,
    /// The time until which the client pauses.
    rests_until: Instant,
    backs_off: bool,
    /// `true` if there is no buffer for the next request; the end of a request ends this.
    lacks_buffers: bool,
    done: Vec<Done>,
    marks: Marks,
    pub(crate) ended: u64,
}

impl SteadyClient {
    pub(crate) fn new(
        number: usize,
        port: Port,
        habits: Habits,
        ledger: Rc<RefCell<Ledger>>,
        bufs: BufPool,
        marks: Marks,
    ) -> Self {
        let seed = habits.options.seed ^ 0x57ea_d1e5;
        let options = habits.options.clone();
        SteadyClient {
            number,
            pending: vec![None; options.in_flight_max],
            initiator: Initiator::new(port, options),
            quota: habits.quota,
            probes: 0,
            habits,
            ledger,
            bufs,
            chance: Rng::new(seed),
            seen: HashMap::new(),
            rests_until: Instant::ZERO,
            backs_off: false,
            lacks_buffers: false,
            done: Vec::new(),
            marks,
            ended: 0,
        }
    }

    /// Processes ended requests and sends due ones. Returns `true` if anything happened.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        let mut done = std::mem::take(&mut self.done);
        let mut progressed = self.initiator.turn(now, &mut done);
        let reports: Vec<Report> = self.initiator.reports().collect();
        for report in reports {
            self.take_report(report);
        }
        for end in done.drain(..) {
            self.take_done(end);
        }
        self.done = done;
        if std::mem::take(&mut self.backs_off) {
            self.rests_until = now + PROBE_PAUSE;
        }
        if self.rests_until <= now && self.wants_more() {
            progressed |= self.burst(now);
            let think = self.chance.within(self.habits.think.clone());
            self.rests_until = now + Duration::from_nanos(think);
        }
        self.initiator.flush(now);
        progressed
    }

    fn wants_more(&self) -> bool {
        let wants = self.quota > 0 || self.probes > 0;
        wants && self.initiator.room() > 0 && !self.lacks_buffers
    }

    /// Announces the end of all faults: requests from now on must succeed.
    pub(crate) fn calm_down(&mut self) {
        self.quota = 0;
        self.probes = PROBES;
    }

    /// Returns `true` if the client has finished its work.
    pub(crate) fn is_content(&self) -> bool {
        self.quota == 0 && self.probes == 0 && self.initiator.in_flight() == 0
    }

    /// Returns `true` if the client has sent all requests of its workload.
    pub(crate) fn has_sent(&self) -> bool {
        self.quota == 0
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let think = self.wants_more().then_some(self.rests_until);
        [self.initiator.wake_at(), think].into_iter().flatten().min()
    }

    pub(crate) fn port(&mut self) -> &mut Port {
        self.initiator.transport()
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "client {}: {} in flight, {} to send, {} probes left, {:?}, wakes {:?}\n  {:?}",
            self.number,
            self.initiator.in_flight(),
            self.quota,
            self.probes,
            self.habits.options.version,
            self.wake_at(),
            self.pending.iter().flatten().collect::<Vec<_>>(),
        )
    }

    /// Takes the buffers of a client that has finished.
    pub(crate) fn into_pool(self) -> BufPool {
        assert!(self.pending.iter().all(Option::is_none), "a request never ended");
        assert!(self.bufs.is_whole(), "a client's buffer did not come back");
        self.bufs
    }

    fn burst(&mut self, now: Instant) -> bool {
        let mut sent = false;
        for _ in 0..self.chance.within(1..=8) {
            if !self.wants_more() {
                break;
            }
            let is_probe = self.quota == 0;
            if !is_probe && self.chance.happens(0.03) && self.send_control(now) {
                self.quota -= 1;
                continue;
            }
            let command = if is_probe { self.probe() } else { self.choose() };
            if !self.send(now, command, is_probe) {
                self.lacks_buffers = true;
                break;
            }
            sent = true;
            if is_probe {
                self.probes -= 1;
            } else {
                self.quota -= 1;
            }
        }
        sent
    }

    fn probe(&mut self) -> Command {
        let range = Range::new(self.chance.within(HOT.lba..=HOT.lba + 3), 1);
        if self.probes.is_multiple_of(2) {
            Command::Write { range, fua: false }
        } else {
            Command::Read(range)
        }
    }

    fn hot(&mut self) -> Range {
        let lba = self.chance.within(0..=self.habits.hot_blocks - 1);
        let most = 16.min(u64::from(HOT.blocks) - lba);
        let blocks = if self.chance.happens(0.5) { 1 } else { self.chance.within(1..=most) };
        Range::new(HOT.lba + lba, blocks as u32)
    }

    fn choose(&mut self) -> Command {
        let fua = self.habits.options.version == Version::Two && self.chance.happens(0.2);
        if self.habits.huge && self.chance.happens(0.02) {
            let blocks = self.chance.within(500..=2048) as u32;
            let lba = HUGE.lba + self.chance.within(0..=u64::from(HUGE.blocks - blocks));
            let range = Range::new(lba, blocks);
            self.marks.hit(Mark::HugeRequest);
            let reads = self.chance.happens(0.5);
            return if reads { Command::Read(range) } else { Command::Write { range, fua } };
        }
        let range = self.hot();
        if self.habits.options.version == Version::One {
            let reads = self.chance.happens(self.habits.reads);
            return if reads { Command::Read(range) } else { Command::Write { range, fua: false } };
        }
        if self.chance.happens(self.habits.reads) {
            return match self.chance.within(0..=9) {
                0..=6 => Command::Read(range),
                7 => Command::Read(ATOMIC[self.chance.within(0..=1) as usize]),
                _ => Command::Read(layout::compared(&mut self.chance)),
            };
        }
        match self.chance.within(0..=99) {
            0..=54 => Command::Write { range, fua },
            55..=60 => Command::WriteZeroes { range, fua },
            61..=65 => Command::Discard(range),
            66..=69 => Command::Flush,
            70..=81 => Command::Barrier,
            82..=88 => Command::WriteAtomic(ATOMIC[self.chance.within(0..=1) as usize]),
            89..=97 => Command::CompareAndWrite(layout::compared(&mut self.chance)),
            _ => Command::Read(Range::new(layout::BLOCKS - 1, 2)),
        }
    }

    /// Sends a request. Returns `false` if there is no buffer for it now.
    fn send(&mut self, now: Instant, command: Command, is_probe: bool) -> bool {
        let mut buf = match command.buffer_bytes() {
            0 => None,
            bytes => match self.bufs.take(bytes) {
                None => return false,
                some => some,
            },
        };
        let links = self.habits.options.connections as u64;
        let link = self.chance.within(0..=links - 1) as usize;
        let streams = if self.habits.options.version == Version::One { 1 } else { 3 };
        let stream = self.chance.within(0..=streams - 1) as u8;
        let namespace = (streams > 1 && self.chance.happens(0.3)).then_some(NamespaceId(1));
        let mut ledger = self.ledger.borrow_mut();
        if let (Some(range), Some(buf)) = (command.range(), &mut buf) {
            let (op, payload) = (ledger.next(), buf.prefix_mut(command.payload_bytes()));
            match command {
                Command::Write { .. } | Command::WriteAtomic(_) => {
                    stamp::fill(op, range.lba, payload);
                }
                Command::CompareAndWrite(_) => {
                    let expected = *self.seen.get(&range.lba).unwrap_or(&Content::Zero);
                    let (compared, new) = payload.split_at_mut(range.bytes());
                    match expected {
                        Content::Zero => compared.fill(0),
                        Content::By(op) => stamp::fill(op, range.lba, compared),
                    }
                    stamp::fill(op, range.lba, new);
                    ledger.compare(range.lba, expected);
                }
                _ => {}
            }
        }
        let op = ledger.submit(Lane { client: self.number, link, stream }, command);
        drop(ledger);
        let request = Op { link: Some(link), stream, namespace, command, buf };
        let ticket = self.initiator.submit(now, request).expect("it had room");
        self.remember(ticket, Pending::Data { op, is_probe });
        true
    }

    fn send_control(&mut self, now: Instant) -> bool {
        let links = self.habits.options.connections as u64;
        let link = self.chance.within(0..=links - 1) as usize;
        let tenant = self.chance.within(0..=2) as u16;
        let (control, pending) = match self.chance.within(0..=6) {
            0 => (ControlRequest::Ping { tag: 0 }, Pending::Control),
            1 => (ControlRequest::Info { tag: 0, namespace: None }, Pending::Control),
            2 => (ControlRequest::Unregister { tag: 0, tenant }, Pending::Unregister),
            3 => (ControlRequest::Renegotiate(self.wish(tenant)), Pending::Control),
            _ => (ControlRequest::Register(self.wish(0)), Pending::Register { link }),
        };
        let Ok(ticket) = self.initiator.control(now, Some(link), control) else { return false };
        self.remember(ticket, pending);
        true
    }

    /// Returns a random registration: clients share names, and also try the operator's and the
    /// hostile one.
    fn wish(&mut self, tenant: u16) -> TenantRegistration {
        let names = ["a", "b", "c", "operator's 1", HOSTILE];
        let name = names[self.chance.within(0..=4) as usize].into();
        TenantRegistration { tag: 0, tenant, name, slo: tenants::slo(&mut self.chance, 10_000) }
    }

    fn remember(&mut self, ticket: Ticket, pending: Pending) {
        let before = self.pending[ticket.index()].replace(pending);
        assert!(before.is_none(), "{ticket:?} names two requests");
    }

    fn forget(&mut self, ticket: Ticket) -> Pending {
        self.ended += 1;
        self.pending[ticket.index()].take().unwrap_or_else(|| panic!("{ticket:?} ended twice"))
    }

    fn take_report(&mut self, report: Report) {
        match report {
            Report::Info(ticket, _) | Report::Pong(ticket, _) => {
                let pending = self.forget(ticket);
                assert!(matches!(pending, Pending::Control), "{ticket:?} asked for something else");
            }
            Report::Tenant(ticket, status, reply) => self.take_tenant(ticket, status, reply),
            Report::Connected { link, .. } => self.initiator.charge(link, 0),
            Report::Notice { notice: Notice::Renegotiate { .. }, .. } => {
                self.marks.hit(Mark::NoticeRenegotiate);
            }
            Report::Lost { why: Loss::Protocol(fatal), .. } => {
                panic!("client {}: the server broke the protocol: {fatal}", self.number);
            }
            Report::Lost { why: Loss::Silent, .. } => self.marks.hit(Mark::ServerSilent),
            Report::Notice { notice: Notice::Draining, .. } => {
                self.marks.hit(Mark::NoticeDraining);
            }
            Report::Lost { .. } => {}
        }
    }

    /// Handles the answer to a register, renegotiate or unregister. After an unregister the client
    /// keeps charging the handle, so that the server has to answer that it is unknown.
    fn take_tenant(&mut self, ticket: Ticket, status: Status, reply: TenantReply) {
        let pending = self.forget(ticket);
        match (pending, status) {
            (Pending::Register { link }, Status::Ok) => self.initiator.charge(link, reply.tenant),
            (Pending::Register { .. }, Status::Denied) => self.marks.hit(Mark::TenantDenied),
            (Pending::Register { .. }, Status::NoResources) => {
                self.marks.hit(Mark::TenantRefused);
            }
            (Pending::Data { .. }, _) => panic!("{ticket:?} asked for data"),
            _ => {}
        }
    }

    fn take_done(&mut self, end: Done) {
        let Done { ticket, command, status, buf } = end;
        let Pending::Data { op, is_probe } = self.forget(ticket) else {
            panic!("{ticket:?} asked for no data");
        };
        if status == Status::NoTenant {
            let links = 0..self.habits.options.connections;
            links.for_each(|link| self.initiator.charge(link, 0));
        }
        assert!(self.may_end(command, status), "client {}: {command:?}: {status}", self.number);
        self.count(command, status);
        let asked = self.ledger.borrow().records[op as usize].command;
        let link = self.ledger.borrow().records[op as usize].lane.link;
        if status.is_ok() && self.initiator.charged(link) != 0 {
            self.marks.hit(Mark::TenantCharged);
        }
        assert!(asked == command, "request {op} asked {asked:?} and ended as {command:?}");
        let data = match (&buf, command) {
            (Some(buf), Command::Read(range)) if status.is_ok() => {
                Some(&buf.bytes()[..range.bytes()])
            }
            _ => None,
        };
        if let (Some(data), Command::Read(range)) = (data, command) {
            self.look(range, data);
        }
        self.ledger.borrow_mut().done(op, status, data);
        if is_probe && !status.is_ok() {
            // A probe failed by chance or because of an earlier fault; try again after a pause.
            self.probes += 1;
            self.backs_off = true;
        }
        self.put_away(buf);
    }

    fn put_away(&mut self, buf: Option<Buf>) {
        self.lacks_buffers = false;
        if let Some(buf) = buf {
            self.bufs.give(buf);
        }
    }

    /// Records the content of a compared block that a read returned, and checks that a read of an
    /// atomic group returned all of one write.
    fn look(&mut self, range: Range, data: &[u8]) {
        if range.overlaps(COMPARED)
            && range.fits(layout::BLOCKS)
            && let Ok(content) = stamp::read(range.lba, &data[..BLOCK_BYTES])
        {
            self.seen.insert(range.lba, content);
        }
        if ATOMIC.contains(&range) {
            self.marks.hit(Mark::AtomicRead);
            let blocks = data.chunks_exact(BLOCK_BYTES).enumerate();
            let contents: Vec<Content> = blocks
                .map(|(n, block)| {
                    let content = stamp::read(range.lba + n as u64, block);
                    content.unwrap_or_else(|what| panic!("{what}"))
                })
                .collect();
            let whole = contents.iter().all(|content| *content == contents[0]);
            assert!(whole, "the atomic group at {} is torn: {contents:?}", range.lba);
        }
    }

    /// Returns `true` if a request of this client may end with this status.
    fn may_end(&self, command: Command, status: Status) -> bool {
        let out = command.range().is_some_and(|range| !range.fits(layout::BLOCKS));
        match status {
            Status::Ok => !out,
            Status::OutOfRange => out,
            Status::CompareFailed => matches!(command, Command::CompareAndWrite(_)),
            Status::MediaError | Status::NoSpace => command != Command::Barrier,
            Status::Retry | Status::ConnectionLost => true,
            Status::NoTenant => self.habits.options.version == Version::Two,
            _ => false,
        }
    }

    fn count(&self, command: Command, status: Status) {
        let mark = match (status, command) {
            (Status::Ok, Command::CompareAndWrite(_)) => Mark::CompareWon,
            (Status::Ok, _) if self.habits.options.version == Version::One => Mark::VersionOne,
            (Status::CompareFailed, _) => Mark::CompareLost,
            (Status::MediaError, _) => Mark::AnsweredError,
            (Status::OutOfRange, _) => Mark::AnsweredRange,
            (Status::Retry, _) => Mark::AnsweredRetry,
            (Status::NoTenant, _) => Mark::AnsweredNoTenant,
            (Status::ConnectionLost, _) => Mark::LostConnection,
            _ => return,
        };
        self.marks.hit(mark);
    }
}
