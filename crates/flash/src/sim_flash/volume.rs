//! A simulated device behind the `Device` port, shared by the queues of several workers.

use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use contract::{
    BLOCK_BYTES, Command, Completion, Device, Geometry, Instant, REQUEST_BYTES_MAX, Range, Status,
    Submission,
};
use spin::Mutex;

use super::engine::{Counters, Engine};
use super::model::Model;
use crate::MemVolume;
use crate::inbox::{Inbox, assert_valid};

/// Bytes of a page, which flash senses and programs as a unit.
const PAGE_BYTES: usize = 4096;
const PAGE_BLOCKS: u64 = (PAGE_BYTES / BLOCK_BYTES) as u64;

/// A simulated device with its data. A clone is another handle to the same device.
///
/// The clock is the `now` of the calls, virtual or real. The behaviour depends only on the seed and
/// on the order and times of the requests. A late call only delays the caller's knowledge.
#[derive(Clone, Debug)]
pub struct SimVolume {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: Mutex<Engine>,
    /// The data; `None` on a device that keeps no data.
    data: Option<MemVolume>,
    blocks: u64,
}

impl SimVolume {
    /// Returns a device of `blocks` blocks of 512 bytes, all of them in use (as after
    /// preconditioning) and zero. `age` is 1 for a new device; programs and erases take `age` times
    /// as long.
    pub fn new(model: Model, blocks: u64, age: f64, seed: u64) -> Self {
        Self::with_data(model, blocks, age, seed, Some(MemVolume::new(blocks)))
    }

    /// Returns a device without data, for runs that only measure times. Reads return zeroes, and
    /// the buffers of writes come back zeroed.
    pub fn forgetful(model: Model, blocks: u64, age: f64, seed: u64) -> Self {
        Self::with_data(model, blocks, age, seed, None)
    }

    fn with_data(model: Model, blocks: u64, age: f64, seed: u64, data: Option<MemVolume>) -> Self {
        let pages = blocks.div_ceil(PAGE_BLOCKS);
        let engine = Mutex::new(Engine::new(model, pages, age, seed));
        SimVolume { shared: Arc::new(Shared { engine, data, blocks }) }
    }

    /// Opens a queue of [`SimQueue::DEPTH`] requests to the device.
    pub fn open_queue(&self) -> SimQueue {
        self.open_queue_of(SimQueue::DEPTH)
    }

    /// Opens a queue of `depth` requests to the device.
    pub fn open_queue_of(&self, depth: usize) -> SimQueue {
        let owner = self.shared.engine.lock().add_owner(depth);
        SimQueue {
            shared: self.shared.clone(),
            owner,
            inbox: Inbox::new(depth),
            places: (0..depth).map(|_| None).collect(),
            free: (0..depth as u32).rev().collect(),
            due: BinaryHeap::with_capacity(depth),
            sequence: 0,
            blocked: 0,
        }
    }

    /// Sets the age of the device: programs and erases take `age` times as long as on a new one.
    pub fn set_age(&self, age: f64) {
        self.shared.engine.lock().set_age(age);
    }

    /// Returns the device's counters.
    pub fn counters(&self) -> Counters {
        self.shared.engine.lock().counters()
    }
}

/// A worker's queue to a [`SimVolume`]. Requests arrive at the device with the kick; their data
/// moves with the completion.
///
/// `inbox + occupied places ≤ depth`; every occupied place is in `due` or is one of the `blocked`.
#[derive(Debug)]
pub struct SimQueue {
    shared: Arc<Shared>,
    owner: usize,
    inbox: Inbox,
    /// Submissions that the device works on, by place.
    places: Vec<Option<Submission>>,
    free: Vec<u32>,
    due: BinaryHeap<Reverse<DueCompletion>>,
    /// Number of requests that ever became due, which breaks ties.
    sequence: u64,
    /// Writes that wait for room in the device's buffer.
    blocked: usize,
}

/// The completion time of the request in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DueCompletion {
    at: u64,
    sequence: u64,
    place: u32,
}

impl SimQueue {
    /// The default number of requests in flight.
    pub const DEPTH: usize = 1024;

    fn push_due(&mut self, at: u64, place: u32) {
        self.due.push(Reverse(DueCompletion { at, sequence: self.sequence, place }));
        self.sequence += 1;
    }

    /// Hands a command to the device; returns the time of its completion in ns, or `None` for a
    /// write that is blocked.
    fn start(&self, engine: &mut Engine, now: u64, command: Command, place: u32) -> Option<u64> {
        match command {
            Command::Read(range) => {
                let (first, count) = touched(range);
                Some(engine.read(now, first, count))
            }
            Command::Write { range, .. } | Command::WriteAtomic(range) => {
                let (first, count) = touched(range);
                engine.write(now, first, count, self.owner, place)
            }
            Command::Discard(range) | Command::WriteZeroes { range, .. } => {
                let (first, count) = covered(range);
                Some(engine.discard(now, first, count))
            }
            Command::Flush
            | Command::Barrier
            | Command::Compare(_)
            | Command::CompareAndWrite(_)
            | Command::Commit { .. } => Some(engine.manage(now)),
        }
    }
}

/// Returns the first page that a range touches, and the number of pages.
fn touched(range: Range) -> (u64, u64) {
    let end = range.lba + u64::from(range.blocks);
    let first = range.lba / PAGE_BLOCKS;
    (first, end.div_ceil(PAGE_BLOCKS) - first)
}

/// Returns the first page that a range covers whole, and the number of such pages.
fn covered(range: Range) -> (u64, u64) {
    let end = (range.lba + u64::from(range.blocks)) / PAGE_BLOCKS;
    let first = range.lba.div_ceil(PAGE_BLOCKS);
    (first, end.saturating_sub(first))
}

impl Device for SimQueue {
    fn geometry(&self) -> Geometry {
        Geometry {
            atomic_blocks_max: (REQUEST_BYTES_MAX / BLOCK_BYTES) as u32,
            ..Geometry::new(self.shared.blocks, PAGE_BYTES as u32)
        }
    }

    fn room(&self) -> usize {
        let waiting = self.places.len() - self.inbox.room();
        self.free.len() - waiting
    }

    fn submit(&mut self, _now: Instant, submission: Submission) {
        assert_valid(&submission, self.shared.blocks);
        assert!(self.room() > 0, "more submissions than the device has room for");
        self.inbox.push(submission);
    }

    fn kick(&mut self, now: Instant) {
        self.inbox.kick();
        if !self.inbox.has_started() {
            return;
        }
        let shared = self.shared.clone();
        let mut engine = shared.engine.lock();
        while let Some(submission) = self.inbox.pop() {
            let place = self.free.pop().expect("room counts the places");
            match self.start(&mut engine, now.as_nanos(), submission.command, place) {
                Some(at) => self.push_due(at, place),
                None => self.blocked += 1,
            }
            self.places[place as usize] = Some(submission);
        }
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        let now = now.as_nanos();
        if self.blocked > 0 {
            let shared = self.shared.clone();
            shared.engine.lock().take_admitted(now, self.owner, |(at, place)| {
                self.blocked -= 1;
                self.push_due(at, place);
            });
        }
        while self.due.peek().is_some_and(|Reverse(due)| due.at <= now) {
            let Reverse(DueCompletion { place, .. }) = self.due.pop().expect("it was just seen");
            let submission = self.places[place as usize].take();
            let Submission { slot, command, mut buf } = submission.expect("what is due is there");
            self.free.push(place);
            let status = match (&self.shared.data, &mut buf, command) {
                (Some(data), buf, _) => data.carry_out(command, buf.as_mut()),
                (
                    None,
                    _,
                    Command::Compare(_) | Command::CompareAndWrite(_) | Command::Commit { .. },
                ) => Status::Unsupported,
                (None, buf, _) => {
                    if let Some(buf) = buf {
                        buf.zero_prefix(command.buffer_bytes());
                    }
                    Status::Ok
                }
            };
            done.push(Completion { slot, status, buf });
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let due = self.due.peek().map(|Reverse(due)| due.at);
        let event = match self.blocked {
            0 => None,
            _ => self.shared.engine.lock().next_for(self.owner),
        };
        due.into_iter().chain(event).min().map(Instant::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, HeapBench, leak_buf};
    use crate::sim_flash::BufferModel;
    use contract::{Slot, SlotTable};

    #[test]
    fn conforms() {
        conformance::run(&mut HeapBench::new(|blocks| {
            let volume = SimVolume::new(Model::A, blocks, 1.0, 1);
            [volume.open_queue(), volume.open_queue()]
        }));
    }

    #[test]
    fn conforms_without_data() {
        let mut bench = HeapBench::new(|blocks| {
            let volume = SimVolume::forgetful(Model::B, blocks, 2.0, 1);
            [volume.open_queue(), volume.open_queue()]
        });
        bench.keeps_data = false;
        conformance::run(&mut bench);
    }

    #[test]
    fn conforms_with_a_buffer_that_is_always_full() {
        let model = Model { buffer: BufferModel { pages: 272, ..Model::A.buffer }, ..Model::A };
        conformance::run(&mut HeapBench::new(|blocks| {
            let volume = SimVolume::new(model.clone(), blocks, 1.0, 1);
            [volume.open_queue_of(64), volume.open_queue_of(64)]
        }));
    }

    /// A queue and its requests in flight.
    struct Rig {
        queue: SimQueue,
        slots: SlotTable<u64>,
        done: Vec<Completion>,
        index: u32,
    }

    impl Rig {
        fn new(volume: &SimVolume) -> Self {
            let queue = volume.open_queue();
            Rig { queue, slots: SlotTable::new(1024), done: Vec::new(), index: 0 }
        }

        fn submit(&mut self, at: u64, command: Command) -> Slot {
            let slot = self.slots.insert(at).expect("a free slot");
            let bytes = command.buffer_bytes();
            self.index += 1;
            let buf = (bytes > 0).then(|| leak_buf(bytes, self.index));
            self.queue.submit(Instant::from_nanos(at), Submission { slot, command, buf });
            slot
        }

        fn kick(&mut self, at: u64) {
            self.queue.kick(Instant::from_nanos(at));
        }

        /// Polls whenever the queue asks for it; returns the completion time of each request.
        fn run(&mut self) -> Vec<(Slot, u64)> {
            let mut ends = Vec::new();
            while let Some(at) = self.queue.wake_at() {
                self.queue.poll(at, &mut self.done);
                ends.extend(self.done.drain(..).map(|c| (c.slot, at.as_nanos())));
            }
            for (slot, _) in &ends {
                self.slots.remove(*slot);
            }
            ends
        }
    }

    fn read(page: u64) -> Command {
        Command::Read(Range::new(page * PAGE_BLOCKS, PAGE_BLOCKS as u32))
    }

    fn write(page: u64, pages: u32) -> Command {
        let range = Range::new(page * PAGE_BLOCKS, pages * PAGE_BLOCKS as u32);
        Command::Write { range, fua: false }
    }

    const BLOCKS: u64 = 1 << 24;

    #[test]
    fn a_late_poll_changes_no_times() {
        let drive = |lateness: u64| {
            let volume = SimVolume::new(Model::A, BLOCKS, 1.0, 3);
            let mut rig = Rig::new(&volume);
            let mut first = Vec::new();
            for step in 0..300 {
                let at = step * 40_000;
                rig.submit(at, if step % 3 == 0 { write(step, 4) } else { read(step * 7) });
                rig.kick(at);
                if lateness == 0 {
                    rig.queue.poll(Instant::from_nanos(at), &mut first);
                }
            }
            rig.queue.poll(Instant::from_nanos(300 * 40_000 + lateness), &mut first);
            let at = 300 * 40_000 + 50_000_000;
            let slot = rig.submit(at, read(5));
            rig.kick(at);
            (rig.run().into_iter().find(|end| end.0 == slot).map(|end| end.1), volume.counters())
        };
        assert_eq!(drive(0).0, drive(20_000_000).0);
        assert_eq!(drive(0).1, drive(20_000_000).1);
    }

    #[test]
    fn queues_of_several_workers_share_one_device() {
        let drive = |queues: usize| {
            let volume = SimVolume::forgetful(Model::A, BLOCKS, 1.0, 3);
            let mut rigs: Vec<Rig> = (0..queues).map(|_| Rig::new(&volume)).collect();
            for step in 0..600_u64 {
                let rig = &mut rigs[step as usize % queues];
                let at = step * 5_000;
                rig.submit(at, if step % 3 == 0 { write(step, 2) } else { read(step * 7) });
                rig.kick(at);
            }
            let mut ends: Vec<u64> = Vec::new();
            for rig in &mut rigs {
                ends.extend(rig.run().iter().map(|end| end.1));
            }
            ends.sort_unstable();
            (ends, volume.counters())
        };
        assert_eq!(drive(1), drive(4));
    }

    #[test]
    fn a_full_buffer_blocks_writes_and_lets_them_in_in_turn() {
        let volume = SimVolume::new(Model::A, BLOCKS, 1.0, 3);
        let (mut rig, mut other) = (Rig::new(&volume), Rig::new(&volume));
        let room = Model::A.buffer.pages as u64 / 256;
        for n in 0..room * 3 {
            rig.submit(0, write(n * 256, 256));
        }
        rig.kick(0);
        other.submit(0, write(0, 1));
        other.kick(0);
        assert_eq!(volume.counters().writes_blocked, room * 2 + 1);
        let ends = rig.run();
        assert_eq!(ends.len() as u64, room * 3);
        assert!(ends.is_sorted_by_key(|end| end.0.index()), "first come, first served");
        let in_buffer = ends[room as usize - 1].1;
        assert!(in_buffer < 5_000_000, "the buffer takes what fits, as fast as it comes");
        let last = ends.last().expect("all end").1;
        assert!((50_000_000..500_000_000).contains(&last), "at the rate of programs: {last} ns");
        assert!(other.run()[0].1 > last - 20_000, "other queues wait in the same line");
    }

    #[test]
    fn reads_wait_for_programs_that_go_on_after_the_acknowledgement() {
        let volume = SimVolume::new(Model::A, BLOCKS, 1.0, 3);
        let mut rig = Rig::new(&volume);
        let slowest = |rig: &mut Rig, at: u64| {
            for n in 0..500 {
                rig.submit(at, read(n * 31));
            }
            rig.kick(at);
            rig.run().iter().map(|end| end.1 - at).max().expect("reads end")
        };
        let quiet = slowest(&mut rig, 0);
        let at = 10_000_000;
        for n in 0..16 {
            rig.submit(at, write(n * 64, 64));
        }
        rig.kick(at);
        let ends = rig.run();
        assert!(ends.iter().all(|end| end.1 - at < 1_500_000), "acknowledged from the buffer");
        let busy = slowest(&mut rig, at + 2_000_000);
        assert!(busy > quiet * 3 / 2, "{busy} ns behind programs, {quiet} ns without");
        let rest = slowest(&mut rig, at + 1_000_000_000);
        let slots = rest.abs_diff(quiet) / Model::A.transfer_ns;
        assert!(slots <= 2, "when all is programmed, reads are as fast as before: {rest} ns");
    }

    #[test]
    fn discarded_pages_cost_no_flash_and_less_garbage() {
        let volume = SimVolume::new(Model::A, BLOCKS, 1.0, 3);
        let mut rig = Rig::new(&volume);
        let copied = |rig: &mut Rig, at: u64| {
            let before = volume.counters().pages_copied;
            for n in 0..64 {
                rig.submit(at, write(n * 64, 8));
            }
            rig.kick(at);
            rig.run();
            volume.counters().pages_copied - before
        };
        let full = copied(&mut rig, 0);
        rig.submit(100_000_000, Command::Discard(Range::new(0, (BLOCKS / 2) as u32)));
        rig.kick(100_000_000);
        rig.run();
        let slot = rig.submit(200_000_000, read(3));
        rig.kick(200_000_000);
        let ends = rig.run();
        assert_eq!(ends[0].0, slot);
        assert!(ends[0].1 - 200_000_000 < 20_000, "nothing is sensed where nothing is");
        let half = copied(&mut rig, 300_000_000);
        assert!(half * 4 < full, "{half} pages copied when half empty, {full} when full");
    }

    #[test]
    fn a_clock_that_stands_goes_back_or_leaps_does_no_harm() {
        let volume = SimVolume::new(Model::A, BLOCKS, 1.0, 3);
        let mut rig = Rig::new(&volume);
        for at in [1_000_000, 1_000_000, 5_000, 3_600_000_000_000, 7, 3_600_000_000_001] {
            rig.submit(at, write(at % 977, 3));
            rig.submit(at, read(at % 977));
            rig.kick(at);
        }
        assert_eq!(rig.run().len(), 12);
        assert!(rig.slots.is_empty());
    }
}
