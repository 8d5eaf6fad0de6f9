//! A queue of an attached volume: a user of the block device, and the process that serves it, which
//! dies and has successors.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use client::block::{BlockError, BlockOperation, BlockRequest, Engine, News, Terms};
use client::{Durability, Initiator, Loss, Options};
use contract::{BufPool, Command, Instant, Range, Status};
use flash::Rng;

use super::kernel::{CompletedRequest, Kernel, KernelEnd};
use crate::agenda::Agenda;
use crate::layout::{HOT, HUGE};
use crate::ledger::{Lane, Ledger};
use crate::marks::{Mark, Marks};
use crate::port::Port;
use crate::stamp;
use crate::steady::{PROBE_PAUSE, PROBES};

/// The pause between two checks whether the other queues of the process have connections.
const LOOK: Duration = Duration::from_micros(200);

/// The time for which a device waits for its server unless told otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// The behaviour of a queue and of its users.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    /// The options of the initiator; `in_flight_max` is the depth of the queue.
    pub(crate) options: Options,
    /// The time for which requests wait for an absent server.
    pub(crate) fail_after: Duration,
    /// The number of requests before the users have finished.
    pub(crate) quota: u32,
    /// The share of reads among the requests, from 0 to 1.
    pub(crate) reads: f64,
    /// The share of large requests, of up to 1 MiB, from 0 to 1.
    pub(crate) big: f64,
    pub(crate) hot_blocks: u64,
    /// Nanoseconds between bursts of requests.
    pub(crate) think: RangeInclusive<u64>,
    pub(crate) seed: u64,
}

/// The plan of an attached volume: its queues, and the deaths of its processes.
#[derive(Clone, Debug)]
pub(crate) struct Attachment {
    pub(crate) queues: Vec<Habits>,
    /// For each process, the time of its death and the time at which its successor starts, counted
    /// from the start of the world.
    pub(crate) deaths: Vec<(Duration, Duration)>,
}

/// The processes of a device, one after the other, as their queues know them.
#[derive(Debug)]
pub(crate) struct SuccessiveProcesses {
    /// For each process, the time of its death and the time at which its successor starts.
    deaths: Vec<(Instant, Instant)>,
    /// The number of processes that were killed, as far as at least one queue has processed the
    /// kill.
    died: usize,
    /// For each queue, the number of the last process in which the queue had a connection; `None`
    /// if it had none.
    connected: Vec<Option<usize>>,
    /// `true` if a successor process uses another identity than its predecessor (an injected
    /// fault).
    forgets: bool,
}

impl SuccessiveProcesses {
    pub(crate) fn new(attachment: &Attachment, forgets: bool) -> Rc<RefCell<SuccessiveProcesses>> {
        let at = |&(death, successor)| (Instant::ZERO + death, Instant::ZERO + successor);
        Rc::new(RefCell::new(SuccessiveProcesses {
            deaths: attachment.deaths.iter().map(at).collect(),
            died: 0,
            connected: vec![None; attachment.queues.len()],
            forgets,
        }))
    }

    /// Returns `true` if every queue of this process has had a connection.
    fn is_whole(&self, process: usize) -> bool {
        self.connected.iter().all(|last| *last >= Some(process))
    }
}

/// A queue of an attached volume.
pub(crate) struct AttachedQueue {
    number: usize,
    queue: usize,
    port: Port,
    habits: Habits,
    crew: Rc<RefCell<SuccessiveProcesses>>,
    kernel: Rc<RefCell<Kernel>>,
    /// The queue's engine in the present process; `None` from the process's death to its successor.
    engine: Option<Engine<Port, KernelEnd>>,
    /// The buffers of the process, while no process is there.
    bufs: Option<BufPool>,
    /// The number of the present process, or of the next one while there is none.
    process: usize,
    /// The time of the engine's next turn.
    engine_at: Option<Instant>,
    /// By tag: the model's number of the request, its command, and `true` if it is a probe.
    works: Vec<(u32, Command, bool)>,
    ledger: Rc<RefCell<Ledger>>,
    chance: Rng,
    agenda: Agenda,
    marks: Marks,
    pub(crate) ended: u64,
}

impl AttachedQueue {
    pub(crate) fn new(
        (number, queue): (usize, usize),
        port: Port,
        habits: Habits,
        crew: Rc<RefCell<SuccessiveProcesses>>,
        ledger: Rc<RefCell<Ledger>>,
        bufs: BufPool,
        marks: Marks,
    ) -> Self {
        let depth = habits.options.in_flight_max;
        AttachedQueue {
            number,
            queue,
            port,
            crew,
            kernel: Rc::new(RefCell::new(Kernel::new(depth as u16))),
            engine: None,
            bufs: Some(bufs),
            process: 0,
            engine_at: None,
            works: vec![(0, Command::Flush, false); depth],
            ledger,
            chance: Rng::new(habits.seed),
            agenda: Agenda::new(habits.quota),
            marks,
            ended: 0,
            habits,
        }
    }

    /// Lets the users and the process act. Returns `true` if anything happened.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        let mut progressed = self.live_and_die(now);
        self.agenda.back_off(now, PROBE_PAUSE);
        if self.agenda.rests_until <= now && self.wants_more() {
            self.burst();
            let think = Duration::from_nanos(self.chance.within(self.habits.think.clone()));
            self.agenda.rests_until = self.agenda.rests_until.max(now + think);
            progressed = true;
        }
        progressed |= self.serve(now);
        if self.engine.is_some() && self.is_doomed(now) && self.kernel.borrow().has_answers() {
            self.die(now);
        }
        let ended = self.kernel.borrow_mut().hear();
        progressed |= !ended.is_empty();
        ended.into_iter().for_each(|ended| self.finish(ended));
        progressed
    }

    fn wants_more(&self) -> bool {
        !self.agenda.is_empty() && self.kernel.borrow().free_tag().is_some()
    }

    /// Announces the end of all faults: the present process lives on.
    pub(crate) fn calm_down(&mut self) {
        self.agenda.calm_down(PROBES);
        let mut crew = self.crew.borrow_mut();
        let died = crew.died;
        crew.deaths.truncate(died);
    }

    pub(crate) fn is_content(&self) -> bool {
        self.agenda.is_empty() && self.kernel.borrow().in_flight() == 0
    }

    pub(crate) fn has_sent(&self) -> bool {
        self.agenda.has_sent()
    }

    pub(crate) fn port(&mut self) -> &mut Port {
        &mut self.port
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let think = self.wants_more().then_some(self.agenda.rests_until);
        let of_process = match &self.engine {
            Some(_) if self.kernel.borrow().has_events() => Some(Instant::ZERO),
            Some(_) => [self.death(), self.engine_at].into_iter().flatten().min(),
            None => Some(self.birth()),
        };
        [think, of_process].into_iter().flatten().min()
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "queue {} of client {}: process {} {}, {} to send, {} probes left, wakes {:?}\n  {:?}\n \
             {:?}\n  {:?}",
            self.queue,
            self.number,
            self.process,
            if self.engine.is_some() { "lives" } else { "is awaited" },
            self.agenda.quota(),
            self.agenda.probes(),
            self.wake_at(),
            self.crew.borrow(),
            self.kernel.borrow(),
            self.habits,
        )
    }

    /// Takes the buffers of a queue that has finished.
    pub(crate) fn into_pool(mut self) -> BufPool {
        assert!(self.kernel.borrow().in_flight() == 0, "a request never ended");
        if self.engine.is_some() {
            self.end_process();
        }
        self.bufs.expect("there is no process")
    }

    /// Returns the time at which the process dies at the latest. Every second one dies at the time
    /// of its death; the others die in the first turn after it that completes a request.
    fn death(&self) -> Option<Instant> {
        let crew = self.crew.borrow();
        let (death, successor) = *crew.deaths.get(self.process)?;
        Some(if self.process.is_multiple_of(2) { death } else { successor })
    }

    /// Returns `true` if the planned time of the process's death has passed.
    fn is_doomed(&self, now: Instant) -> bool {
        self.crew.borrow().deaths.get(self.process).is_some_and(|(death, _)| *death <= now)
    }

    /// Returns the time at which the process with the number `process` starts.
    fn birth(&self) -> Instant {
        let before = self.process.checked_sub(1);
        before.map_or(Instant::ZERO, |before| self.crew.borrow().deaths[before].1)
    }

    /// Ends the process or begins the next one, if the time for that has come. Returns `true` if it
    /// has.
    fn live_and_die(&mut self, now: Instant) -> bool {
        if self.engine.is_some() {
            let dies = self.death().is_some_and(|death| death <= now);
            if dies {
                self.die(now);
            }
            return dies;
        }
        let begins = self.birth() <= now;
        if begins {
            if self.process > 0 {
                // As the record of a device keeps it for the successor.
                let epoch = self.habits.options.durability.settled_epoch();
                let known = epoch.map(Durability::after).unwrap_or_default();
                self.habits.options.durability = Arc::new(known);
            }
            let mut options = self.habits.options.clone();
            options.seed ^= self.process as u64;
            if self.crew.borrow().forgets {
                options.client ^= (self.process as u128) << 64;
            }
            let terms =
                Terms { namespace: None, is_read_only: false, fail_after: self.habits.fail_after };
            let initiator = Initiator::new(self.port.clone(), options);
            let bufs = self.bufs.take().expect("there is no process");
            let depth = self.works.len() as u16;
            let driver = KernelEnd(self.kernel.clone());
            self.engine = Some(Engine::new(depth, terms, driver, initiator, bufs));
        }
        begins
    }

    /// Kills the process. Messages that it has sent in the turn still leave; completions of the
    /// turn do not reach the kernel.
    fn die(&mut self, now: Instant) {
        self.marks.hit(Mark::AttachKilled);
        self.port.kill(now);
        self.end_process();
        self.process += 1;
        let mut crew = self.crew.borrow_mut();
        crew.died = crew.died.max(self.process);
    }

    /// Ends the engine of a dead process, and takes its buffers for the successor.
    fn end_process(&mut self) {
        let engine = self.engine.take().expect("there is a process");
        let (mut initiator, mut pool) = engine.into_parts();
        initiator.close();
        let (mut done, mut turns) = (Vec::new(), 0);
        while !initiator.is_closed() || initiator.in_flight() > 0 {
            initiator.turn(self.port.now(), &mut done);
            done.drain(..).filter_map(|done| done.buf).for_each(|buf| pool.give(buf));
            turns += 1;
            assert!(turns < 100, "a process that was killed does not end");
        }
        let (bufs, forgotten) = self.kernel.borrow_mut().bury();
        bufs.into_iter().for_each(|buf| pool.give(buf));
        assert!(pool.is_whole(), "a process's buffer did not come back");
        self.marks.add(Mark::AttachUnheard, forgotten);
        self.bufs = Some(pool);
    }

    /// Lets the process take a turn. Returns `true` if it did something.
    fn serve(&mut self, now: Instant) -> bool {
        let Some(engine) = &mut self.engine else { return false };
        let turn = engine.turn(now).expect("nobody stops the device");
        let mut crew = self.crew.borrow_mut();
        for news in engine.news() {
            match news {
                News::Connected => crew.connected[self.queue] = Some(self.process),
                News::Lost(Loss::Protocol(fatal)) => {
                    panic!("client {}: the server broke the protocol: {fatal}", self.number)
                }
                News::Lost(_) => {}
                News::WritesLost => panic!("client {}: no write was lost", self.number),
            }
        }
        let mut kernel = self.kernel.borrow_mut();
        kernel.gives = crew.is_whole(self.process);
        let look = (!kernel.gives).then_some(now + LOOK);
        self.engine_at = [turn.wake_at, look].into_iter().flatten().min();
        turn.progressed
    }

    fn burst(&mut self) {
        for _ in 0..self.chance.within(1..=8) {
            let tag = self.kernel.borrow().free_tag();
            let Some(tag) = tag.filter(|_| !self.agenda.is_empty()) else { return };
            let is_probe = self.agenda.take();
            self.submit(tag, is_probe);
        }
    }

    /// Makes a random request of the users under a free tag, or a probe.
    fn submit(&mut self, tag: u16, is_probe: bool) {
        let request = if is_probe { self.probe() } else { self.choose() };
        let command = request.command(false).expect("the device takes it");
        let mut data = vec![0; request.data_bytes()];
        let mut ledger = self.ledger.borrow_mut();
        let op = ledger.submit(Lane { client: self.number, link: 0, stream: 0 }, command);
        if request.operation == BlockOperation::Write {
            stamp::fill(op, request.sector, &mut data);
        }
        self.works[usize::from(tag)] = (op, command, is_probe);
        self.kernel.borrow_mut().add(tag, request, data);
    }

    fn probe(&mut self) -> BlockRequest {
        let sector = self.chance.within(HOT.lba..=HOT.lba + 3);
        let operation = match self.agenda.probes().is_multiple_of(2) {
            true => BlockOperation::Write,
            false => BlockOperation::Read,
        };
        BlockRequest { operation, sector, sectors: 1, is_durable: false }
    }

    fn choose(&mut self) -> BlockRequest {
        let range = self.range();
        let is_durable = self.chance.happens(0.2);
        let operation = match self.chance.within(0..=99) {
            _ if self.chance.happens(self.habits.reads) => BlockOperation::Read,
            0..=74 => BlockOperation::Write,
            75..=84 => BlockOperation::WriteZeroes,
            85..=91 => BlockOperation::Discard,
            _ => BlockOperation::Flush,
        };
        BlockRequest { operation, sector: range.lba, sectors: range.blocks, is_durable }
    }

    fn range(&mut self) -> Range {
        if self.chance.happens(self.habits.big) {
            let blocks = self.chance.within(200..=2048) as u32;
            let lba = HUGE.lba + self.chance.within(0..=u64::from(HUGE.blocks - blocks));
            return Range::new(lba, blocks);
        }
        let lba = self.chance.within(0..=self.habits.hot_blocks - 1);
        let most = 32.min(u64::from(HOT.blocks) - lba);
        let blocks = if self.chance.happens(0.5) { 1 } else { self.chance.within(1..=most) };
        Range::new(HOT.lba + lba, blocks as u32)
    }

    /// Checks a completed request against the model, and counts it.
    fn finish(&mut self, (tag, held, result): CompletedRequest) {
        let (op, command, is_probe) = self.works[usize::from(tag)];
        self.ended += 1;
        let status = self.meaning(&held.request, result);
        if held.given > 1 && status.is_ok() {
            self.marks.hit(Mark::AttachInherited);
        }
        let is_read = held.request.operation == BlockOperation::Read && status.is_ok();
        self.ledger.borrow_mut().done(op, status, is_read.then_some(&held.data[..]));
        match (status, command) {
            (Status::Ok, Command::Flush) => self.marks.hit(Mark::AttachFlushed),
            (Status::ConnectionLost, _) => self.marks.hit(Mark::AttachFailed),
            _ => {}
        }
        if is_probe && !status.is_ok() {
            self.agenda.repeat_probe();
        }
    }

    /// Returns the status of `contract` that a result of the block device stands for.
    fn meaning(&self, request: &BlockRequest, result: i32) -> Status {
        const IO: i32 = -BlockError::Io.errno();
        const NO_SPACE: i32 = -BlockError::NoSpace.errno();
        match result {
            bytes if bytes >= 0 => {
                assert!(bytes as usize == request.data_bytes(), "{request:?}: {bytes} bytes");
                Status::Ok
            }
            // Who waits for the server longer than a world lasts has had an answer of a device.
            IO if self.habits.fail_after == PATIENCE => {
                let device = self.ledger.borrow().has_media_errors();
                assert!(device, "client {}: {request:?} failed, and no device did", self.number);
                Status::MediaError
            }
            IO => Status::ConnectionLost,
            NO_SPACE => Status::NoSpace,
            other => panic!("client {}: {request:?} failed with {other}", self.number),
        }
    }
}
