//! Frames beside a model: every block that is read, also after the process was killed, has a value
//! that some order of the requests explains.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::frames::Sabotage;
use super::*;

const PAGE: usize = 4096;
const PAGE_BLOCKS: u64 = 8;
const PAGES: u64 = 4;
const BLOCKS: u64 = PAGES * PAGE_BLOCKS;
const LINGER: Duration = Duration::from_micros(50);

/// A write of a block, as its client saw it. Times are numbers of events.
#[derive(Clone, Copy, Debug)]
struct TrackedWrite {
    /// The number of the request.
    id: u64,
    value: u64,
    begun: u64,
    /// `u64::MAX` until it was answered.
    ended: u64,
}

/// The writes of each block since the last kill.
struct Model {
    blocks: Vec<Vec<TrackedWrite>>,
    clock: u64,
}

impl Model {
    fn new() -> Model {
        let first = TrackedWrite { id: 0, value: 0, begun: 0, ended: 0 };
        Model { blocks: vec![vec![first]; BLOCKS as usize], clock: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn of(&mut self, range: Range) -> impl Iterator<Item = &mut Vec<TrackedWrite>> {
        self.blocks.iter_mut().skip(range.lba as usize).take(range.blocks as usize)
    }

    fn begin(&mut self, range: Range, id: u64, value: u64) {
        let begun = self.tick();
        self.of(range)
            .for_each(|block| block.push(TrackedWrite { id, value, begun, ended: u64::MAX }));
    }

    fn end(&mut self, range: Range, id: u64) {
        let ended = self.tick();
        for written in self.of(range).flat_map(|block| block.iter_mut()) {
            if written.id == id {
                written.ended = ended;
            }
        }
    }

    /// Removes a write that has changed nothing.
    fn drop(&mut self, range: Range, id: u64) {
        self.of(range).for_each(|block| block.retain(|written| written.id != id));
    }

    /// Asserts that a read that began at `from` may have found a value in a block.
    fn check(&self, block: u64, value: u64, from: u64) {
        let all = &self.blocks[block as usize];
        let is_covered = |by: u64| all.iter().any(|other| other.begun > by && other.ended < from);
        let is_possible = |w: &&TrackedWrite| w.value == value && !is_covered(w.ended);
        assert!(all.iter().any(|w| is_possible(&w)), "block {block} has {value}: {all:?}");
    }

    /// Checks all blocks after a kill, and begins anew with what they have.
    fn survive(&mut self, bytes: &[u8]) {
        let now = self.tick();
        for (block, data) in bytes.chunks(BLOCK_BYTES).enumerate() {
            let value = value(data);
            self.check(block as u64, value, now);
            self.blocks[block] = vec![TrackedWrite { id: 0, value, begun: now, ended: now }];
        }
    }
}

/// A request in flight: its command, its number, and when it began.
struct PendingRequest {
    command: Command,
    id: u64,
    begun: u64,
}

struct FramesFixture {
    device: ExclusiveQueue<Shredder>,
    absorption: Arc<SmallWriteCounters>,
    slots: SlotTable<PendingRequest>,
    model: Model,
    chance: Rng,
    now: Instant,
    values: u64,
    swaps: (u64, u64),
    /// Number of requests that failed at the device.
    failed: u64,
    sabotage: Option<Sabotage>,
}

fn framed(
    inner: Shredder,
    frames: usize,
    absorption: &Arc<SmallWriteCounters>,
) -> ExclusiveQueue<Shredder> {
    let device =
        ExclusiveQueue::with_granularity(inner, RangeLocks::new().into(), scratch(1, PAGE), PAGE);
    let bufs = (0..frames).map(|n| leak_buf(PAGE, 500 + n as u32)).collect();
    device.with_frames(bufs, LINGER, absorption.clone())
}

impl FramesFixture {
    fn new(seed: u64, sabotage: Option<Sabotage>) -> FramesFixture {
        let [mut inner] = Shredder::queues::<1>(BLOCKS, PAGE_BLOCKS, seed);
        inner.failing = if seed.is_multiple_of(2) { 0.0 } else { 0.01 };
        let absorption = Arc::new(SmallWriteCounters::default());
        let mut device = framed(inner, 1 + seed as usize % 3, &absorption);
        device.frames.sabotage = sabotage;
        FramesFixture {
            device,
            absorption,
            slots: SlotTable::new(64),
            model: Model::new(),
            chance: Rng::new(seed),
            now: Instant::ZERO,
            values: 0,
            swaps: (0, 0),
            failed: 0,
            sabotage,
        }
    }

    fn choose(&mut self) -> Command {
        let page = self.chance.within(0..=PAGES - 1) * PAGE_BLOCKS;
        let blocks = self.chance.within(1..=4);
        let at = page + self.chance.within(0..=PAGE_BLOCKS - blocks);
        let small = Range::new(at, blocks as u32);
        let fua = self.chance.happens(0.1);
        match self.chance.within(0..=19) {
            0..=9 => Command::Write { range: small, fua },
            10 => Command::WriteAtomic(small),
            11 | 12 => Command::CompareAndWrite(Range::new(at, 1)),
            13 => Command::Write { range: Range::new(page, PAGE_BLOCKS as u32), fua },
            14 => Command::Write { range: Range::new(5, 14), fua },
            15 => Command::WriteZeroes { range: small, fua },
            16 => Command::Read(Range::new(0, BLOCKS as u32)),
            _ => Command::Read(small),
        }
    }

    fn ask(&mut self) {
        if self.device.room() == 0 || self.slots.room() == 0 {
            return;
        }
        let command = self.choose();
        let range = command.range().unwrap();
        self.values += 1;
        let value = if matches!(command, Command::WriteZeroes { .. }) { 0 } else { self.values };
        let mut buf = (command.buffer_bytes() > 0).then(|| leak_buf(command.buffer_bytes(), 0));
        if let Some(buf) = &mut buf {
            fill(buf.prefix_mut(command.payload_bytes()), value);
        }
        if let (Command::CompareAndWrite(_), Some(buf)) = (command, &mut buf) {
            // Any value that the block may have.
            let known = &self.model.blocks[range.lba as usize];
            let guess = known[self.chance.within(0..=known.len() as u64 - 1) as usize].value;
            fill(buf.prefix_mut(range.bytes()), guess);
        }
        let begun = self.model.tick();
        if !matches!(command, Command::Read(_)) {
            self.model.begin(range, self.values, value);
        }
        let slot =
            self.slots.insert(PendingRequest { command, id: self.values, begun }).ok().unwrap();
        self.device.submit(self.now, Submission { slot, command, buf });
    }

    fn turn(&mut self) {
        self.now = self.now + Duration::from_micros(self.chance.within(0..=20));
        self.device.kick(self.now);
        let mut done = Vec::new();
        self.device.poll(self.now, &mut done);
        for Completion { slot, status, buf } in done {
            let PendingRequest { command, id, begun } = self.slots.remove(slot);
            let range = command.range().unwrap();
            match (command, status) {
                (Command::Read(_), Status::Ok) => {
                    let buf = buf.unwrap();
                    let data = buf.bytes()[..range.bytes()].chunks(BLOCK_BYTES);
                    for (block, data) in (range.lba..).zip(data) {
                        self.model.check(block, value(data), begun);
                    }
                }
                (Command::CompareAndWrite(_), Status::CompareFailed) => {
                    self.swaps.1 += 1;
                    self.model.drop(range, id);
                }
                (_, Status::Ok) => {
                    self.swaps.0 += u64::from(matches!(command, Command::CompareAndWrite(_)));
                    self.model.end(range, id);
                }
                // What it wrote may be there, or not.
                (_, Status::MediaError) if self.device.inner.failing > 0.0 => self.failed += 1,
                (_, status) => panic!("{command:?}: {status}"),
            }
        }
    }

    /// Ends the process: what is under way is never heard of again.
    fn kill(&mut self) {
        let bytes = self.device.inner.bytes.clone();
        let inner = Shredder {
            bytes: bytes.clone(),
            granule: PAGE_BLOCKS,
            piece: BLOCK_BYTES,
            entries: Vec::new(),
            chance: Rng::new(self.values),
            failing: self.device.inner.failing,
        };
        self.device = framed(inner, 2, &self.absorption);
        self.device.frames.sabotage = self.sabotage;
        self.slots = SlotTable::new(64);
        self.model.survive(&bytes.lock().unwrap());
    }

    fn rest(&mut self) {
        let mut turns = 0;
        while !self.slots.is_empty() {
            self.turn();
            turns += 1;
            assert!(turns < 100_000, "somebody waits for ever");
        }
        assert!(self.device.frames.idle() == 0 && self.device.wake_at().is_none());
        assert!(!self.device.locks.is_claimed_alone(), "a frame has kept its stripe");
    }
}

/// Runs requests and kills from a seed, half of them over a device that now and then fails. Returns
/// the bed with its counts.
fn trial(seed: u64, sabotage: Option<Sabotage>) -> FramesFixture {
    let mut bed = FramesFixture::new(seed, sabotage);
    for _ in 0..6 {
        for _ in 0..bed.chance.within(1..=150) {
            if bed.chance.happens(0.6) { bed.ask() } else { bed.turn() }
        }
        if bed.chance.happens(0.3) {
            bed.rest();
        }
        bed.kill();
    }
    bed
}

#[test]
fn frames_lose_and_mix_nothing_whatever_the_order_and_the_kill() {
    let (mut writes, mut pages, mut won, mut lost, mut failed) = (0, 0, 0, 0, 0);
    for seed in 0..400 {
        let bed = trial(seed, None);
        writes += bed.absorption.writes();
        pages += bed.absorption.pages();
        won += bed.swaps.0;
        lost += bed.swaps.1;
        failed += bed.failed;
    }
    assert!(pages > 5_000 && writes > pages * 3 / 2, "{writes} writes in {pages} pages");
    assert!(failed > 1_000, "{failed} requests failed at the device");
    assert!(won > 200 && lost > 200, "{won} swaps succeeded, {lost} failed");
}

#[test]
fn every_fault_of_frames_is_found() {
    let faults = [Sabotage::EarlyAnswers, Sabotage::NoClaim, Sabotage::LateJoins];
    for fault in faults {
        let is_found = |seed| catch_unwind(AssertUnwindSafe(|| trial(seed, Some(fault)))).is_err();
        assert!((0..50).any(is_found), "{fault:?} is not found");
    }
}

/// Submits writes of one block each to the first page; the request's number is its value.
fn submit_all(
    device: &mut ExclusiveQueue<Shredder>,
    slots: &mut SlotTable<()>,
    now: Instant,
    n: u64,
) {
    for number in 0..n {
        let range = Range::new(number % PAGE_BLOCKS, 1);
        let mut buf = leak_buf(BLOCK_BYTES, number as u32);
        fill(buf.bytes_mut(), number);
        let slot = slots.insert(()).unwrap();
        let command = Command::Write { range, fua: false };
        device.submit(now, Submission { slot, command, buf: Some(buf) });
    }
}

#[test]
fn writes_of_a_page_wait_for_others_and_become_one() {
    let [inner] = Shredder::queues::<1>(BLOCKS, PAGE_BLOCKS, 1);
    let absorption = Arc::new(SmallWriteCounters::default());
    let mut device = framed(inner, 1, &absorption);
    let mut slots = SlotTable::new(64);
    let (now, mut done) = (Instant::ZERO, Vec::new());
    submit_all(&mut device, &mut slots, now, 32);
    for _ in 0..100 {
        device.kick(now);
        device.poll(now, &mut done);
    }
    assert!(done.is_empty(), "the frame waits for more");
    assert_eq!(device.wake_at(), Some(now + LINGER));
    for _ in 0..100 {
        device.kick(now + LINGER);
        device.poll(now + LINGER, &mut done);
    }
    assert_eq!((done.len(), absorption.writes(), absorption.pages()), (32, 32, 1));
    let bytes = device.inner.bytes.lock().unwrap().clone();
    for block in 0..PAGE_BLOCKS as usize {
        assert_eq!(value(&bytes[block * BLOCK_BYTES..][..BLOCK_BYTES]), 24 + block as u64);
    }
}

#[test]
fn a_read_of_the_page_ends_the_wait_and_sees_the_writes() {
    let [inner] = Shredder::queues::<1>(BLOCKS, PAGE_BLOCKS, 1);
    let mut device = framed(inner, 1, &Arc::default());
    let mut slots = SlotTable::new(64);
    let (now, mut done) = (Instant::ZERO, Vec::new());
    submit_all(&mut device, &mut slots, now, 8);
    let read = slots.insert(()).unwrap();
    let command = Command::Read(Range::new(0, 8));
    device.submit(now, Submission { slot: read, command, buf: Some(leak_buf(PAGE, 0)) });
    for _ in 0..200 {
        device.kick(now);
        device.poll(now, &mut done);
    }
    assert_eq!(done.len(), 9, "nobody waits for the time to pass");
    let last = done.pop().unwrap();
    assert_eq!(last.slot, read);
    let data = last.buf.unwrap();
    let seen = data.bytes()[..PAGE].chunks(BLOCK_BYTES).map(value);
    assert_eq!(seen.collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
}

#[test]
fn conforms_in_frames() {
    for (seed, linger) in [(1, Duration::ZERO), (2, LINGER)] {
        conformance::run(&mut HeapBench::new(|blocks| {
            let locks = Arc::new(RangeLocks::new());
            Shredder::queues::<2>(blocks, PAGE_BLOCKS, seed).map(|inner| {
                let scratch = scratch(2, PAGE);
                let device = ExclusiveQueue::with_granularity(inner, locks.clone(), scratch, PAGE);
                let bufs = (0..2).map(|n| leak_buf(PAGE, 500 + n)).collect();
                device.with_frames(bufs, linger, Arc::default())
            })
        }));
    }
}

/// Submits a write of one block.
fn submit_one(
    device: &mut ExclusiveQueue<Shredder>,
    slots: &mut SlotTable<u64>,
    now: Instant,
    lba: u64,
) {
    let slot = slots.insert(lba).unwrap();
    let command = Command::Write { range: Range::new(lba, 1), fua: false };
    device.submit(now, Submission { slot, command, buf: Some(leak_buf(BLOCK_BYTES, 0)) });
}

/// Tests that a frame whose page gets writes without end is given up for a frame that waits for
/// the same stripe.
#[test]
fn a_page_that_is_written_without_end_does_not_keep_another_of_its_region_waiting() {
    let [inner] = Shredder::queues::<1>(BLOCKS, PAGE_BLOCKS, 1);
    let mut device = framed(inner, 2, &Arc::default());
    let (mut slots, now, mut done) = (SlotTable::new(64), Instant::ZERO, Vec::new());
    submit_one(&mut device, &mut slots, now, 0);
    submit_one(&mut device, &mut slots, now, PAGE_BLOCKS);
    for _ in 0..2_000 {
        // One comes whatever the frame of the first page does.
        if device.room() > 0 && slots.room() > 0 {
            submit_one(&mut device, &mut slots, now, 0);
        }
        device.kick(now + LINGER);
        device.poll(now + LINGER, &mut done);
        if done.drain(..).any(|completion| slots.remove(completion.slot) == PAGE_BLOCKS) {
            return;
        }
    }
    panic!("the write to the other page waits for ever");
}

#[test]
fn writes_to_pages_of_different_regions_do_not_end_the_wait_of_each_other() {
    let [inner] = Shredder::queues::<1>(16 * BLOCKS, PAGE_BLOCKS, 1);
    let absorption = Arc::new(SmallWriteCounters::default());
    let locks = Arc::new(RangeLocks::for_frames());
    let device = ExclusiveQueue::with_granularity(inner, locks, scratch(1, PAGE), PAGE);
    let bufs = (0..4).map(|n| leak_buf(PAGE, 500 + n)).collect();
    let mut device = device.with_frames(bufs, LINGER, absorption.clone());
    let (mut slots, now, mut done) = (SlotTable::new(64), Instant::ZERO, Vec::new());
    for write in 0..16 {
        let (region, block) = (write % 4, write / 4);
        submit_one(&mut device, &mut slots, now, region * 2 * BLOCKS + block);
        for _ in 0..50 {
            device.kick(now);
            device.poll(now, &mut done);
        }
    }
    assert!(done.is_empty(), "all four frames wait for more");
    for _ in 0..200 {
        device.kick(now + LINGER);
        device.poll(now + LINGER, &mut done);
    }
    assert_eq!((done.len(), absorption.writes(), absorption.pages()), (16, 16, 4));
}

#[test]
fn what_changes_no_page_is_not_counted() {
    let [inner] = Shredder::queues::<1>(BLOCKS, PAGE_BLOCKS, 1);
    let absorption = Arc::new(SmallWriteCounters::default());
    let mut device = framed(inner, 1, &absorption);
    let (mut slots, now, mut done) = (SlotTable::new(64), Instant::ZERO, Vec::new());
    let swap = |device: &mut ExclusiveQueue<Shredder>, slots: &mut SlotTable<u64>, expected| {
        let command = Command::CompareAndWrite(Range::new(0, 1));
        let mut buf = leak_buf(command.buffer_bytes(), 0);
        fill(buf.prefix_mut(2 * BLOCK_BYTES), 7);
        fill(buf.prefix_mut(BLOCK_BYTES), expected);
        let slot = slots.insert(0).unwrap();
        device.submit(now, Submission { slot, command, buf: Some(buf) });
    };
    let mut end = |device: &mut ExclusiveQueue<Shredder>| {
        (0..200).for_each(|_| {
            device.kick(now + LINGER);
            device.poll(now + LINGER, &mut done);
        });
        done.drain(..).map(|completion| completion.status).collect::<Vec<_>>()
    };
    (1..=3).for_each(|wrong| swap(&mut device, &mut slots, wrong));
    assert_eq!(end(&mut device), [Status::CompareFailed; 3]);
    assert_eq!((absorption.writes(), absorption.pages()), (0, 0));
    // The first of these changes the block, so the second fails.
    (0..2).for_each(|_| swap(&mut device, &mut slots, 0));
    assert_eq!(end(&mut device), [Status::Ok, Status::CompareFailed]);
    assert_eq!((absorption.writes(), absorption.pages()), (1, 1));
    // Nor does what the device refuses.
    device.inner.failing = 1.0;
    submit_one(&mut device, &mut slots, now, 3);
    assert_eq!(end(&mut device), [Status::MediaError]);
    assert_eq!((absorption.writes(), absorption.pages()), (1, 1));
}
