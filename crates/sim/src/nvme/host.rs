//! A well-behaved host. It keeps one controller as Linux does, with an admin queue and some I/O
//! queues, and tells the model everything.
//!
//! After the loss of a connection it repeats the commands that were sent on it. It repeats writes
//! only once the server has noticed the loss of the controller, however recently. The specification
//! makes hosts wait until that is sure (TP4129), because they cannot know; this host looks, so it
//! waits no longer than it must. Otherwise it gives its writes up, as lost with their connection.
//! It always gives up compares, which would do something else the second time.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use contract::{
    BLOCK_BYTES, BufPool, Command, ConnId, Dial, Instant, NetEvent, Range, Status, Streams,
};
use flash::Rng;
use proto::nvme::Nqn;
use proto::nvme_tcp::{Digests, HostEvent, ReadyToTransfer, TransferSizes};
use wire::nvme::{
    AdminOpcode, CONNECT_CNTLID_DYNAMIC, CONNECT_DISABLE_FLOW_CONTROL, Completion, ConnectCommand,
    ConnectData, Feature, Property, PropertyCommand, Status as NvmeStatus, Submission,
};
use zerocopy::{FromZeros, IntoBytes};

use super::controllers::{Controllers, QUEUE_ENTRIES_MAX, SUBSYSTEM, host_nqn};
use super::line::{Association, CommandPurpose, ConnectionStage, NvmeConnection};
use super::work::{HostRequest, discarding, status_of};
use crate::agenda::Agenda;
use crate::layout::{self, COMPARED, HOT};
use crate::ledger::{Lane, Ledger};
use crate::marks::{Mark, Marks};
use crate::port::Port;
use crate::stamp::{self, Content};
use crate::steady::{PROBE_PAUSE, PROBES};

/// The time for which a dozing host sends nothing.
const DOZE: Duration = Duration::from_millis(3_500);

/// The shares of bursts after which a host fails its controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lapses {
    /// The share after which the host falls silent for so long that the keep-alive expires.
    pub(crate) dozes: f64,
    /// The share after which the host cuts a connection in the middle of the output.
    pub(crate) cuts: f64,
    /// The share after which the host closes the connections before all answers can have arrived.
    pub(crate) hangs_up: f64,
}

/// The behaviour of a host.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    pub(crate) queues: usize,
    /// The entries of each I/O queue.
    pub(crate) entries: u16,
    pub(crate) in_flight_max: usize,
    pub(crate) digests: Digests,
    pub(crate) flow_control: bool,
    /// The keep-alive timeout; zero for none.
    pub(crate) keep_alive: Duration,
    pub(crate) lapses: Lapses,
    /// The share of write payloads that travel in capsules, from 0 to 1.
    pub(crate) in_capsule: f64,
    /// The time that the controller may stay silent while it owes an answer.
    pub(crate) silence_max: Duration,
    pub(crate) backoff: RangeInclusive<u64>,
    pub(crate) reissues_max: u32,
    pub(crate) quota: u32,
    pub(crate) reads: f64,
    pub(crate) hot_blocks: u64,
    /// Nanoseconds between bursts of requests.
    pub(crate) think: RangeInclusive<u64>,
    pub(crate) seed: u64,
}

/// A well-behaved NVMe host with one controller of the server.
pub(crate) struct NvmeHost {
    number: usize,
    port: Port,
    habits: Habits,
    ledger: Rc<RefCell<Ledger>>,
    controllers: Rc<RefCell<Controllers>>,
    bufs: BufPool,
    chance: Rng,
    association: Association,
    /// The requests; [`CommandPurpose::Work`] and `ready` name them by their index.
    works: Vec<Option<HostRequest>>,
    /// The indices in `works` of the requests to send, in order.
    ready: VecDeque<usize>,
    agenda: Agenda,
    /// The content last seen in the blocks that are compared and written.
    seen: HashMap<u64, Content>,
    events: Vec<NetEvent>,
    marks: Marks,
    pub(crate) ended: u64,
}

impl NvmeHost {
    pub(crate) fn new(
        number: usize,
        port: Port,
        habits: Habits,
        ledger: Rc<RefCell<Ledger>>,
        controllers: Rc<RefCell<Controllers>>,
        bufs: BufPool,
        marks: Marks,
    ) -> Self {
        NvmeHost {
            number,
            port,
            ledger,
            controllers,
            bufs,
            chance: Rng::new(habits.seed),
            association: Association::default(),
            works: vec![None; habits.in_flight_max],
            ready: VecDeque::new(),
            agenda: Agenda::new(habits.quota),
            seen: HashMap::new(),
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
        progressed |= self.tend(now);
        self.agenda.back_off(now, PROBE_PAUSE);
        if self.agenda.rests_until <= now && self.wants_more() {
            self.burst(now);
            let think = self.chance.within(self.habits.think.clone());
            self.agenda.rests_until =
                self.agenda.rests_until.max(now + Duration::from_nanos(think));
            progressed = true;
        }
        self.issue(now);
        for line in &mut self.association.lines {
            progressed |= line.flush(now, &mut self.port, &mut self.bufs);
        }
        self.port.kick(now);
        progressed
    }

    fn in_flight(&self) -> usize {
        self.works.iter().flatten().count()
    }

    fn wants_more(&self) -> bool {
        !self.agenda.is_empty() && self.in_flight() < self.habits.in_flight_max
    }

    pub(crate) fn calm_down(&mut self) {
        self.agenda.calm_down(PROBES);
    }

    pub(crate) fn is_content(&self) -> bool {
        self.agenda.is_empty() && self.in_flight() == 0
    }

    pub(crate) fn has_sent(&self) -> bool {
        self.agenda.has_sent()
    }

    pub(crate) fn port(&mut self) -> &mut Port {
        &mut self.port
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let think = self.wants_more().then_some(self.agenda.rests_until);
        let dial = self.association.lines.is_empty().then_some(self.association.rested_at);
        let silent = self.association.silent_since();
        let silent = silent.map(|since| since + self.habits.silence_max);
        let keep_alive = self.keeps_alive().then_some(self.association.keep_alive_at);
        [think, dial, silent, keep_alive, self.association.cut].into_iter().flatten().min()
    }

    pub(crate) fn describe(&self) -> String {
        let stages: Vec<_> = self.association.lines.iter().map(|line| line.stage).collect();
        format!(
            "host {}: {:?}, {} to send, {} probes left, {} ready, wakes {:?}\n  {:?}\n  {:?}",
            self.number,
            stages,
            self.agenda.quota(),
            self.agenda.probes(),
            self.ready.len(),
            self.wake_at(),
            self.works.iter().flatten().map(|work| (work.op, work.command)).collect::<Vec<_>>(),
            self.habits,
        )
    }

    /// Takes the buffers of a host that has finished.
    pub(crate) fn into_pool(self) -> BufPool {
        assert!(self.in_flight() == 0, "a request never ended");
        assert!(self.bufs.is_whole(), "a host's buffer did not come back");
        self.bufs
    }

    /// Returns `true` if the host sends keep-alives.
    fn keeps_alive(&self) -> bool {
        let is_up =
            self.association.lines.first().is_some_and(|admin| admin.stage == ConnectionStage::Up);
        is_up && !self.habits.keep_alive.is_zero() && self.habits.lapses.dozes == 0.0
    }

    /// Does the timed work that is due. Returns `true` if there was any.
    fn tend(&mut self, now: Instant) -> bool {
        if self.association.lines.is_empty() {
            let dials = self.association.rested_at <= now;
            if dials {
                self.dial(now);
            }
            return dials;
        }
        let is_silent = |line: &NvmeConnection| {
            line.silent_since().is_some_and(|since| since + self.habits.silence_max <= now)
        };
        if self.association.cut.is_some_and(|at| at <= now)
            || self.association.lines.iter().any(is_silent)
        {
            self.lose(now);
            return true;
        }
        let may_say = self.association.cut.is_none() && self.association.lines[0].has_room(1);
        if self.keeps_alive() && self.association.keep_alive_at <= now && may_say {
            self.association.keep_alive_at = now + self.habits.keep_alive / 2;
            let name = self.association.lines[0].name(CommandPurpose::KeepAlive, now);
            let entry = Submission::new(AdminOpcode::KEEP_ALIVE.0, name, 0);
            self.association.lines[0].command(&entry, TransferSizes::default(), &[]);
            return true;
        }
        false
    }

    fn dial(&mut self, now: Instant) {
        let conn = self.port.dial(now);
        let commands = if self.association.lines.is_empty() { 32 } else { self.habits.entries - 1 };
        self.association.lines.push(NvmeConnection::new(conn, self.habits.digests, commands, now));
    }

    /// Gives up all connections, and takes back the requests that were sent on them.
    fn lose(&mut self, now: Instant) {
        let mut sent: Vec<usize> =
            self.association.lines.iter().flat_map(NvmeConnection::works).collect();
        for line in std::mem::take(&mut self.association.lines) {
            self.port.close(line.conn);
        }
        self.association.cut = None;
        self.association.rested_at =
            now + Duration::from_nanos(self.chance.within(self.habits.backoff.clone()));
        // Both halves of a request have the same place.
        sent.sort_unstable();
        sent.dedup();
        let again = |place: &usize| self.works[*place].as_ref().expect("it was sent").op;
        sent.sort_unstable_by_key(|place| std::cmp::Reverse(again(place)));
        for place in sent {
            let work = self.works[place].as_mut().expect("it was sent");
            let compares = matches!(work.command, Command::CompareAndWrite(_));
            let may = !compares && work.reissues < self.habits.reissues_max;
            if may {
                work.reissues += 1;
                work.data.clear();
                self.ready.push_front(place);
            } else {
                self.finish(place, Status::ConnectionLost);
            }
        }
    }

    fn handle(&mut self, now: Instant, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, .. } => {
                if let Some(n) = self.association.line_of(conn) {
                    self.association.lines[n].stage = ConnectionStage::Greeting;
                    self.association.lines[n].hear(now);
                    self.association.lines[n].greet();
                }
            }
            NetEvent::Received { conn, buf, len } => {
                // A connection to be cut sends nothing more, so the host need not read from it.
                if self.association.cut.is_none() {
                    self.receive(now, conn, &buf.bytes()[..len]);
                }
                self.port.give(buf);
            }
            NetEvent::Sent { buf, .. } => self.bufs.give(buf),
            NetEvent::Filled { .. } => unreachable!("nobody asked for it"),
            NetEvent::Closed { conn, .. } => {
                if self.association.line_of(conn).is_some() {
                    if self.agenda.rests_until > now + PROBE_PAUSE && self.habits.lapses.dozes > 0.0
                    {
                        self.marks.hit(Mark::NvmeDozed);
                    }
                    self.lose(now);
                }
            }
        }
    }

    fn receive(&mut self, now: Instant, conn: ConnId, mut input: &[u8]) {
        while let Some(n) = self.association.line_of(conn) {
            let line = &mut self.association.lines[n];
            line.hear(now);
            match line.session.next_event(&mut input) {
                Ok(None) => return,
                Ok(Some(HostEvent::Open)) => self.connect(now, n),
                Ok(Some(HostEvent::Data { cid, offset, bytes })) => {
                    let CommandPurpose::Work(place) = line.find(cid) else {
                        panic!("data nobody asked for")
                    };
                    let data = &mut self.works[place].as_mut().expect("it is in progress").data;
                    assert!(data.len() == offset, "data comes in order");
                    data.extend_from_slice(bytes);
                }
                Ok(Some(HostEvent::Ready(ready))) => self.invited(n, &ready),
                Ok(Some(HostEvent::Ended { completion, data })) => {
                    assert!(data.is_ok(), "host {}: damaged data", self.number);
                    self.completed(now, n, &completion);
                }
                Err(fatal) => {
                    panic!("host {}: the server broke the protocol: {fatal}", self.number)
                }
            }
        }
    }

    /// Sends the Connect after the controller has accepted the connection.
    fn connect(&mut self, now: Instant, n: usize) {
        let name = self.association.lines[n].name(CommandPurpose::Connect, now);
        let (size, cntlid) = match n {
            0 => (32, CONNECT_CNTLID_DYNAMIC),
            _ => (self.habits.entries, self.association.cntlid),
        };
        let millis = self.habits.keep_alive.as_millis();
        let command = ConnectCommand {
            cid: name.into(),
            attributes: if self.habits.flow_control { 0 } else { CONNECT_DISABLE_FLOW_CONTROL },
            keep_alive_ms: (if n == 0 { millis as u32 } else { 0 }).into(),
            ..ConnectCommand::new(n as u16, size)
        };
        let data = ConnectData {
            host_id: [self.number as u8 + 1; 16],
            cntlid: cntlid.into(),
            subsystem_nqn: Nqn::new(SUBSYSTEM).expect("a good name").to_field(),
            host_nqn: host_nqn(self.number).to_field(),
            ..ConnectData::new_zeroed()
        };
        self.association.lines[n].command(
            command.entry(),
            TransferSizes::default(),
            data.as_bytes(),
        );
    }

    /// Handles the end of a command.
    fn completed(&mut self, now: Instant, n: usize, completion: &Completion) {
        let status = completion.status();
        let line = &mut self.association.lines[n];
        match line.release(completion.cid.get()) {
            CommandPurpose::Work(place) => return self.answered(place, status),
            // The server has no room for another controller, or ends this one: start over.
            _ if !status.is_ok() => return self.lose(now),
            CommandPurpose::Connect if n == 0 => {
                self.association.cntlid = completion.result.get() as u16;
                let command = PropertyCommand {
                    cid: line.name(CommandPurpose::Enable, now).into(),
                    ..PropertyCommand::set(Property::CONFIGURATION, 0x46_0001)
                };
                line.command(command.entry(), TransferSizes::default(), &[]);
            }
            CommandPurpose::Enable => {
                let name = line.name(CommandPurpose::Queues, now);
                let mut entry = Submission::new(AdminOpcode::SET_FEATURES.0, name, 0);
                entry.dword10.set(u32::from(Feature::QUEUES.0));
                let queues = self.habits.queues as u32 - 1;
                entry.dword11.set(queues << 16 | queues);
                line.command(&entry, TransferSizes::default(), &[]);
            }
            CommandPurpose::Queues => {
                line.stage = ConnectionStage::Up;
                let name = line.name(CommandPurpose::Event, now);
                let entry = Submission::new(AdminOpcode::ASYNC_EVENT_REQUEST.0, name, 0);
                line.command(&entry, TransferSizes::default(), &[]);
                self.association.keep_alive_at = now + self.habits.keep_alive / 2;
                (0..self.habits.queues).for_each(|_| self.dial(now));
            }
            CommandPurpose::Connect => {
                line.stage = ConnectionStage::Up;
                self.marks.hit(Mark::NvmeConnected);
                if n == self.habits.queues {
                    self.association.count += 1;
                    if self.association.count > 1 {
                        self.marks.hit(Mark::NvmeReconnected);
                    }
                }
            }
            CommandPurpose::KeepAlive => self.marks.hit(Mark::NvmeKeptAlive),
            CommandPurpose::Event => {
                panic!("host {}: an event, where nothing changes", self.number)
            }
        }
        self.association.lines[n].hear(now);
    }

    /// Sends a payload that the controller has requested.
    fn invited(&mut self, n: usize, ready: &ReadyToTransfer) {
        self.marks.hit(Mark::NvmeInvited);
        let line = &mut self.association.lines[n];
        let CommandPurpose::Work(place) = line.find(ready.cid) else {
            panic!("only requests have payloads")
        };
        let work = self.works[place].as_ref().expect("it is in progress");
        // The identifiers of a pair were taken in order, but have no order themselves.
        let is_second = work.names.get(1) == Some(&ready.cid);
        line.data(ready, work.payload_of(is_second));
    }

    fn burst(&mut self, now: Instant) {
        for _ in 0..self.chance.within(1..=8) {
            if !self.wants_more() {
                break;
            }
            let is_probe = self.agenda.take();
            self.submit(is_probe);
        }
        if self.agenda.is_calm() || self.association.lines.is_empty() {
            return;
        }
        if self.chance.happens(self.habits.lapses.dozes) {
            self.agenda.rests_until = now + DOZE;
        }
        let is_whole = self.association.is_whole(self.habits.queues);
        if is_whole
            && self.association.cut.is_none()
            && self.chance.happens(self.habits.lapses.hangs_up)
        {
            self.issue(now);
            self.association.cut =
                Some(now + Duration::from_nanos(self.chance.within(0..=5_000_000)));
        }
        if self.association.cut.is_none() && self.chance.happens(self.habits.lapses.cuts) {
            self.issue(now);
            let n = self.chance.within(0..=self.association.lines.len() as u64 - 1) as usize;
            let line = &mut self.association.lines[n];
            if line.unsent() > 1 {
                self.marks.hit(Mark::NvmeCut);
                let left = self.chance.within(1..=line.unsent() as u64 - 1) as usize;
                line.truncate(left);
                let soon = Duration::from_nanos(self.chance.within(0..=1_000_000));
                self.association.cut = Some(now + soon);
            }
        }
    }

    /// Creates a request, which waits to be sent.
    fn submit(&mut self, is_probe: bool) {
        let compares = !is_probe && self.chance.happens(0.06);
        let command = match is_probe {
            true => self.probe(),
            false if compares => {
                Command::Read(Range::new(layout::compared(&mut self.chance).lba, 1))
            }
            false => self.choose(),
        };
        let queue = self.chance.within(1..=self.habits.queues as u64) as usize;
        let mut ledger = self.ledger.borrow_mut();
        let op = ledger.next();
        let mut payload = vec![0; command.payload_bytes()];
        match command {
            Command::Write { range, .. } => stamp::fill(op, range.lba, &mut payload),
            Command::CompareAndWrite(range) => {
                let expected = *self.seen.get(&range.lba).unwrap_or(&Content::Zero);
                let (compared, new) = payload.split_at_mut(range.bytes());
                fill(expected, range.lba, compared);
                stamp::fill(op, range.lba, new);
                ledger.compare(range.lba, expected);
            }
            Command::Read(range) if compares => {
                payload = vec![0; range.bytes()];
                let expected = *self.seen.get(&range.lba).unwrap_or(&Content::Zero);
                fill(expected, range.lba, &mut payload);
            }
            Command::Discard(range) => payload = discarding(range),
            _ => {}
        }
        ledger.submit(Lane { client: self.number, link: queue, stream: 0 }, command);
        drop(ledger);
        let in_capsule = self.chance.happens(self.habits.in_capsule);
        let place = self.works.iter().position(Option::is_none).expect("it wants more");
        self.works[place] = Some(HostRequest {
            op,
            command,
            is_probe,
            queue,
            compares,
            in_capsule,
            payload,
            data: Vec::new(),
            names: Vec::new(),
            left: 0,
            status: Status::Ok,
            reissues: 0,
        });
        self.ready.push_back(place);
    }

    fn probe(&mut self) -> Command {
        let range = Range::new(self.chance.within(HOT.lba..=HOT.lba + 3), 1);
        if self.agenda.probes().is_multiple_of(2) {
            Command::Write { range, fua: false }
        } else {
            Command::Read(range)
        }
    }

    fn choose(&mut self) -> Command {
        let lba = self.chance.within(0..=self.habits.hot_blocks - 1);
        let most = 32.min(u64::from(HOT.blocks) - lba);
        let blocks = if self.chance.happens(0.5) { 1 } else { self.chance.within(1..=most) };
        let range = Range::new(HOT.lba + lba, blocks as u32);
        let fua = self.chance.happens(0.2);
        if self.chance.happens(self.habits.reads) {
            return match self.chance.within(0..=9) {
                0..=7 => Command::Read(range),
                _ => Command::Read(layout::compared(&mut self.chance)),
            };
        }
        match self.chance.within(0..=99) {
            0..=64 => Command::Write { range, fua },
            65..=71 => Command::WriteZeroes { range, fua },
            72..=77 => Command::Discard(range),
            78..=82 => Command::Flush,
            83..=97 => Command::CompareAndWrite(layout::compared(&mut self.chance)),
            _ => Command::Read(Range::new(layout::BLOCKS - 1, 2)),
        }
    }

    /// Sends waiting requests as far as the queues have room; a full queue holds up the others.
    fn issue(&mut self, now: Instant) {
        if self.association.cut.is_some() {
            return;
        }
        while let Some(&place) = self.ready.front() {
            let work = self.works[place].as_mut().expect("it waits");
            let line = self.association.lines.get_mut(work.queue);
            let Some(line) = line.filter(|line| line.stage == ConnectionStage::Up) else { return };
            if !line.has_room(work.commands()) {
                return;
            }
            self.ready.pop_front();
            if work.rewrites()
                && has_others(&self.controllers, self.number, self.association.cntlid)
            {
                self.marks.hit(Mark::NvmeNotRewritten);
                self.finish(place, Status::ConnectionLost);
                continue;
            }
            work.left = work.commands();
            work.status = Status::Ok;
            work.names =
                (0..work.left).map(|_| line.name(CommandPurpose::Work(place), now)).collect();
            for sent in work.encode() {
                if sent.capsule > 0 {
                    self.marks.hit(Mark::NvmeInCapsule);
                }
                let payload = work.payload_of(sent.is_second);
                line.command(&sent.entry, sent.carried, &payload[..sent.capsule]);
            }
        }
    }

    /// Handles the end of one command of a request.
    fn answered(&mut self, place: usize, status: NvmeStatus) {
        let work = self.works[place].as_mut().expect("it is in progress");
        let is_pair = work.commands() == 2;
        let status = match status_of(status) {
            Ok(status) => status,
            // The status of the other half gives the reason.
            Err(status) if is_pair && status.plain() == NvmeStatus::FAILED_FUSED => work.status,
            Err(status) => panic!("host {}: {:?} ended as {status:?}", self.number, work.command),
        };
        work.left -= 1;
        if work.status.is_ok() {
            work.status = status;
        }
        if work.left == 0 {
            let status = work.status;
            self.finish(place, status);
        }
    }

    /// Handles the end of a request.
    fn finish(&mut self, place: usize, status: Status) {
        let work = self.works[place].take().expect("it was sent");
        let HostRequest { op, command, is_probe, compares, .. } = work;
        let status = if work.rewrites() { status.of_repeated_change() } else { status };
        self.ended += 1;
        assert!(may_end(command, compares, status), "host {}: {command:?}: {status}", self.number);
        self.count(&work, status);
        // A compare that fails tells nothing that the model knows.
        let known = if compares { &work.payload } else { &work.data };
        let data = match command {
            Command::Read(range) if status.is_ok() => {
                assert!(known.len() == range.bytes(), "host {}: data is missing", self.number);
                Some(&known[..])
            }
            _ => None,
        };
        if let (Some(data), Some(range)) = (data, command.range())
            && range.overlaps(COMPARED)
            && let Ok(content) = stamp::read(range.lba, &data[..BLOCK_BYTES])
        {
            self.seen.insert(range.lba, content);
        }
        self.ledger.borrow_mut().done(op, status, data);
        if is_probe && !status.is_ok() {
            self.agenda.repeat_probe();
        }
    }

    fn count(&self, work: &HostRequest, status: Status) {
        if work.reissues > 0 && status.is_ok() {
            let rewritten = [Mark::NvmeReissued, Mark::NvmeRewritten];
            self.marks.hit(rewritten[usize::from(work.rewrites())]);
        }
        let mark = match (status, work.command) {
            (Status::Ok, Command::CompareAndWrite(_)) => Mark::NvmeFusedWon,
            (Status::CompareFailed, Command::CompareAndWrite(_)) => Mark::NvmeFusedLost,
            (Status::Ok | Status::CompareFailed, _) if work.compares => Mark::NvmeCompared,
            (Status::Ok, Command::Discard(_)) => Mark::NvmeDiscarded,
            (Status::Ok, Command::WriteZeroes { .. }) => Mark::NvmeZeroed,
            (Status::Ok, Command::Flush) => Mark::NvmeFlushed,
            (Status::Ok, _) if self.habits.digests.header || self.habits.digests.data => {
                Mark::NvmeDigested
            }
            _ => return,
        };
        self.marks.hit(mark);
    }
}

/// Returns `true` if the server believes that the host has another controller besides this one.
fn has_others(controllers: &RefCell<Controllers>, number: usize, cntlid: u16) -> bool {
    let (own, name) = (controllers.borrow().fabric.controllers(), host_nqn(number));
    own.iter().any(|other| other.host == name && other.cntlid != cntlid)
}

fn fill(content: Content, lba: u64, block: &mut [u8]) {
    match content {
        Content::Zero => block.fill(0),
        Content::By(op) => stamp::fill(op, lba, block),
    }
}

/// Returns `true` if a host's request may end with this status.
fn may_end(command: Command, compares: bool, status: Status) -> bool {
    let out = command.range().is_some_and(|range| !range.fits(layout::BLOCKS));
    match status {
        Status::Ok => !out,
        Status::OutOfRange => out,
        Status::CompareFailed => compares || matches!(command, Command::CompareAndWrite(_)),
        Status::MediaError | Status::NoSpace | Status::Retry | Status::ConnectionLost => true,
        _ => false,
    }
}

/// The possible numbers of entries of a host's queues; the largest is the server's.
pub(crate) const ENTRIES: [u16; 3] = [4, 16, QUEUE_ENTRIES_MAX];
