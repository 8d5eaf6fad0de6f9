//! The conformance suite, interleavings from a seed, and real threads.

mod frames;

use std::boxed::Box;
use std::sync::Mutex;
use std::vec;

use super::*;
use crate::conformance::{self, HeapBench, leak_buf};
use crate::{MemQueue, MemVolume, Rng};
use contract::Range;

/// A device that carries out requests piece by piece, in a random order. The device accepts whole
/// granules only, so that mistakes of the layer above show.
struct Shredder {
    bytes: Arc<Mutex<Box<[u8]>>>,
    granule: u64,
    /// Bytes of a piece: a block, or less on a medium that tears blocks.
    piece: usize,
    /// Requests, each with the number of its pieces that are done.
    entries: Vec<(Submission, u32)>,
    chance: Rng,
    /// The chance that a request fails before its next piece.
    failing: f64,
}

impl Shredder {
    fn queues<const N: usize>(blocks: u64, granule: u64, seed: u64) -> [Shredder; N] {
        let bytes = vec![0; blocks as usize * BLOCK_BYTES].into_boxed_slice();
        let bytes = Arc::new(Mutex::new(bytes));
        let queue = |place: usize| Shredder {
            bytes: bytes.clone(),
            granule,
            piece: BLOCK_BYTES,
            entries: Vec::new(),
            chance: Rng::new(seed + place as u64),
            failing: 0.0,
        };
        core::array::from_fn(queue)
    }

    /// Sets the piece to half a block.
    fn tearing(self) -> Shredder {
        Shredder { piece: BLOCK_BYTES / 2, ..self }
    }

    /// Returns the number of pieces of a request.
    fn pieces(&self, submission: &Submission) -> u32 {
        submission.command.range().map_or(0, |range| (range.bytes() / self.piece) as u32)
    }

    fn carry_out(&mut self, place: usize) {
        let (submission, progress) = &mut self.entries[place];
        let Some(range) = submission.command.range() else { return };
        let start = *progress as usize * self.piece;
        let within = start..start + self.piece;
        let at = range.lba as usize * BLOCK_BYTES + start;
        let block = &mut self.bytes.lock().unwrap()[at..at + self.piece];
        match (submission.command, &mut submission.buf) {
            (Command::Read(_), Some(buf)) => {
                buf.prefix_mut(within.end)[within].copy_from_slice(block);
            }
            (Command::Write { .. } | Command::WriteAtomic(_), Some(buf)) => {
                block.copy_from_slice(&buf.bytes()[within]);
            }
            _ => block.fill(0),
        }
        *progress += 1;
    }
}

impl Device for Shredder {
    fn geometry(&self) -> Geometry {
        Geometry {
            atomic_blocks_max: 2048,
            ..Geometry::new((self.bytes.lock().unwrap().len() / BLOCK_BYTES) as u64, 512)
        }
    }

    fn room(&self) -> usize {
        64 - self.entries.len()
    }

    fn submit(&mut self, _now: Instant, submission: Submission) {
        assert!(self.room() > 0);
        if let Some(range) = submission.command.range() {
            assert_eq!((range.lba | u64::from(range.blocks)) % self.granule, 0, "{submission:?}");
        }
        self.entries.push((submission, 0));
    }

    fn kick(&mut self, _now: Instant) {}

    fn poll(&mut self, _now: Instant, done: &mut Vec<Completion>) {
        let total: u32 = self.entries.iter().map(|(s, _)| self.pieces(s)).sum();
        for _ in 0..=self.chance.within(0..=u64::from(total / 2 + 2)) {
            if self.entries.is_empty() {
                return;
            }
            let place = self.chance.within(0..=self.entries.len() as u64 - 1) as usize;
            if self.failing > 0.0 && self.chance.happens(self.failing) {
                let (Submission { slot, buf, .. }, _) = self.entries.swap_remove(place);
                done.push(Completion { slot, status: Status::MediaError, buf });
                continue;
            }
            self.carry_out(place);
            let (submission, progress) = &self.entries[place];
            if *progress >= self.pieces(submission) {
                let (Submission { slot, buf, .. }, _) = self.entries.swap_remove(place);
                done.push(Completion { slot, status: Status::Ok, buf });
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        (!self.entries.is_empty()).then_some(Instant::ZERO)
    }
}

fn scratch(count: usize, granularity_bytes: usize) -> Vec<Buf> {
    let bytes = ExclusiveQueue::<MemQueue>::scratch_bytes(granularity_bytes);
    (0..count).map(|place| leak_buf(bytes, 9000 + place as u32)).collect()
}

#[test]
fn conforms_around_memory() {
    conformance::run(&mut HeapBench::new(|blocks| {
        let (volume, locks) = (MemVolume::new(blocks), Arc::new(RangeLocks::new()));
        let queue = || ExclusiveQueue::new(volume.open_queue(), locks.clone(), scratch(1, 512));
        [queue(), queue()]
    }));
}

#[test]
fn conforms_around_a_device_that_tears_and_takes_whole_granules() {
    for (seed, granularity) in [(1, 512), (2, 4096), (3, 1 << 14)] {
        let granule = granularity as u64 / 512;
        conformance::run(&mut HeapBench::new(|blocks| {
            let locks = Arc::new(RangeLocks::new());
            Shredder::queues::<2>(blocks, granule, seed).map(|inner| {
                let scratch = scratch(2, granularity);
                ExclusiveQueue::with_granularity(inner, locks.clone(), scratch, granularity)
            })
        }));
    }
}

#[test]
fn conforms_around_a_device_that_tears_blocks() {
    for (seed, granularity) in [(4, 512), (5, 1 << 14)] {
        conformance::run(&mut HeapBench::new(|blocks| {
            let locks = Arc::new(RangeLocks::for_tearing(granularity));
            Shredder::queues::<2>(blocks, granularity as u64 / 512, seed).map(|inner| {
                let scratch = scratch(2, granularity);
                ExclusiveQueue::with_granularity(
                    inner.tearing(),
                    locks.clone(),
                    scratch,
                    granularity,
                )
            })
        }));
    }
}

/// Writes and reads the same blocks from two queues; returns how many blocks were torn in a read.
fn torn_blocks(locks: RangeLocks, seed: u64) -> usize {
    const BLOCKS: u64 = 40;
    let locks = Arc::new(locks);
    let mut queues = Shredder::queues::<2>(BLOCKS, 1, seed)
        .map(|inner| ExclusiveQueue::new(inner.tearing(), locks.clone(), scratch(1, 512)));
    let mut chance = Rng::new(seed);
    let mut slots = SlotTable::new(32);
    let mut bufs: Vec<Buf> = (0..16).map(|place| leak_buf(8192, place)).collect();
    let (mut generation, mut torn, mut turns) = (0, 0, 0);
    while turns < 3000 || !slots.is_empty() {
        turns += 1;
        assert!(turns < 100_000, "somebody waits for ever");
        let queue = &mut queues[turns % 2];
        if turns < 3000
            && let Some(mut buf) = bufs.pop()
        {
            let blocks = chance.within(1..=12);
            let range = Range::new(chance.within(0..=BLOCKS - blocks), blocks as u32);
            let command = match chance.within(0..=4) {
                0 | 1 => Command::Read(range),
                2 => Command::WriteAtomic(range),
                _ => Command::Write { range, fua: false },
            };
            generation += 1;
            fill(buf.bytes_mut(), generation);
            let slot = slots.insert(command).unwrap();
            queue.submit(Instant::ZERO, Submission { slot, command, buf: Some(buf) });
        }
        let mut done = Vec::new();
        queue.kick(Instant::ZERO);
        queue.poll(Instant::ZERO, &mut done);
        for Completion { slot, status, buf } in done {
            assert_eq!(status, Status::Ok);
            let (command, buf) = (slots.remove(slot), buf.unwrap());
            if let Command::Read(range) = command {
                let data = buf.bytes()[..range.bytes()].chunks(BLOCK_BYTES);
                torn += data.filter(|block| block[..8] != block[BLOCK_BYTES - 8..]).count();
            }
            bufs.push(buf);
        }
    }
    torn
}

#[test]
fn blocks_stay_whole_on_a_medium_that_tears_them() {
    for seed in 0..40 {
        assert_eq!(torn_blocks(RangeLocks::for_tearing(512), seed), 0, "seed {seed}");
    }
    let torn: usize = (0..40).map(|seed| torn_blocks(RangeLocks::new(), seed)).sum();
    assert!(torn > 500, "the queues hardly met: {torn} torn blocks");
}

/// Blocks of a group: the unit that the readers below must always see whole.
const GROUP: u32 = 6;
const GROUPS: u64 = 5;

struct Client {
    device: ExclusiveQueue<Shredder>,
    slots: SlotTable<Command>,
    bufs: Vec<Buf>,
    /// The value that the last read saw in each group.
    seen: [u64; GROUPS as usize],
    swaps: [u64; GROUPS as usize],
    lost: u64,
}

impl Client {
    /// Reads a group, or raises its counter by one with a compare-and-write.
    fn act(&mut self, chance: &mut Rng) {
        if self.device.room() == 0 {
            return;
        }
        let Some(mut buf) = self.bufs.pop() else { return };
        let group = chance.within(0..=GROUPS - 1);
        // Groups lie across stripes and granules on purpose.
        let range = Range::new(2045 + group * u64::from(GROUP), GROUP);
        let command = match chance.within(0..=4) {
            0 | 1 => Command::CompareAndWrite(range),
            _ => Command::Read(range),
        };
        if let Command::CompareAndWrite(_) = command {
            let seen = self.seen[group as usize];
            let (old, new) = buf.prefix_mut(2 * range.bytes()).split_at_mut(range.bytes());
            fill(old, seen);
            fill(new, seen + 1);
        }
        let slot = self.slots.insert(command).unwrap();
        self.device.submit(Instant::ZERO, Submission { slot, command, buf: Some(buf) });
    }

    fn poll(&mut self) {
        self.device.kick(Instant::ZERO);
        let mut done = Vec::new();
        self.device.poll(Instant::ZERO, &mut done);
        for Completion { slot, status, buf } in done {
            let command = self.slots.remove(slot);
            let range = command.range().unwrap();
            let group = ((range.lba - 2045) / u64::from(GROUP)) as usize;
            let buf = buf.unwrap();
            match (command, status) {
                (Command::Read(_), Status::Ok) => {
                    let seen = value(&buf.bytes()[..range.bytes()]);
                    assert!(seen >= self.seen[group], "the counter went back");
                    self.seen[group] = seen;
                }
                (_, Status::Ok) => self.swaps[group] += 1,
                (_, Status::CompareFailed) => self.lost += 1,
                (_, status) => panic!("{command:?}: {status}"),
            }
            self.bufs.push(buf);
        }
    }
}

fn fill(data: &mut [u8], value: u64) {
    data.chunks_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
}

/// Returns the value of all words, which must be equal.
fn value(data: &[u8]) -> u64 {
    let first = u64::from_le_bytes(data[..8].try_into().unwrap());
    assert!(data.chunks(8).all(|word| word == first.to_le_bytes()), "a torn group");
    first
}

/// Tests that every successful increment counts once, whatever the interleaving: compare-and-write
/// is linearizable, and no read sees half of a write.
#[test]
fn counters_survive_any_interleaving() {
    let (mut won, mut lost) = (0, 0);
    for seed in 0..60 {
        let granularity = [512, 4096][seed as usize % 2];
        let locks = Arc::new(RangeLocks::new());
        let inner = Shredder::queues::<3>(4096, granularity as u64 / 512, seed * 10);
        let mut clients = inner.map(|inner| Client {
            device: {
                let scratch = scratch(1, granularity);
                ExclusiveQueue::with_granularity(inner, locks.clone(), scratch, granularity)
            },
            slots: SlotTable::new(16),
            bufs: (0..4).map(|place| leak_buf(8192, place)).collect(),
            seen: [0; GROUPS as usize],
            swaps: [0; GROUPS as usize],
            lost: 0,
        });
        let mut chance = Rng::new(seed);
        for _ in 0..1500 {
            let client = &mut clients[chance.within(0..=2) as usize];
            if chance.happens(0.6) {
                client.act(&mut chance);
            } else {
                client.poll();
            }
        }
        let mut turns = 0;
        while clients.iter().any(|client| !client.slots.is_empty()) {
            clients.iter_mut().for_each(Client::poll);
            turns += 1;
            assert!(turns < 100_000, "seed {seed}: somebody waits for ever");
        }
        lost += clients.iter().map(|client| client.lost).sum::<u64>();
        let bytes = clients[0].device.inner.bytes.lock().unwrap().clone();
        for group in 0..GROUPS as usize {
            let at = (2045 + group * GROUP as usize) * BLOCK_BYTES;
            let counter = value(&bytes[at..at + GROUP as usize * BLOCK_BYTES]);
            let swaps: u64 = clients.iter().map(|client| client.swaps[group]).sum();
            assert_eq!(counter, swaps, "seed {seed}, group {group}");
            won += swaps;
        }
    }
    assert!(won > 500 && lost > 500, "the clients hardly met: {won} won, {lost} lost");
}

#[test]
fn a_lone_request_is_not_starved_by_readers() {
    let locks = Arc::new(RangeLocks::new());
    let volume = MemVolume::new(64);
    let mut queues =
        [0, 1].map(|_| ExclusiveQueue::new(volume.open_queue(), locks.clone(), scratch(1, 512)));
    let mut slots = SlotTable::new(8);
    let mut read = |queue: &mut ExclusiveQueue<MemQueue>| {
        let slot = slots.insert(()).unwrap();
        let command = Command::Read(Range::new(0, 1));
        let buf = Some(leak_buf(512, 0));
        queue.submit(Instant::ZERO, Submission { slot, command, buf });
        queue.kick(Instant::ZERO);
        slot
    };
    let reader = read(&mut queues[0]);
    let writer = {
        let mut slots: SlotTable<()> = SlotTable::new(1);
        let slot = slots.insert(()).unwrap();
        let command = Command::WriteAtomic(Range::new(0, 1));
        let buf = Some(leak_buf(512, 1));
        queues[1].submit(Instant::ZERO, Submission { slot, command, buf });
        slot
    };
    let late = read(&mut queues[0]);
    assert_eq!(queues[1].wake_at(), Some(Instant::ZERO + RETRY_PERIOD));
    let mut done = Vec::new();
    queues[1].poll(Instant::ZERO, &mut done);
    assert!(done.is_empty(), "the reader is inside");
    queues[0].poll(Instant::ZERO, &mut done);
    assert_eq!(done.pop().unwrap().slot, reader);
    queues[0].kick(Instant::ZERO);
    queues[0].poll(Instant::ZERO, &mut done);
    assert!(done.is_empty(), "the late reader stays behind the writer");
    queues[1].kick(Instant::ZERO);
    queues[1].poll(Instant::ZERO, &mut done);
    assert_eq!(done.pop().unwrap().slot, writer);
    queues[0].kick(Instant::ZERO);
    queues[0].poll(Instant::ZERO, &mut done);
    assert_eq!(done.pop().unwrap().slot, late);
}

#[test]
fn without_scratch_there_is_no_compare() {
    let locks = Arc::new(RangeLocks::new());
    let inner = MemVolume::new(64).open_queue();
    let mut device = ExclusiveQueue::new(inner, locks.clone(), Vec::new());
    let slot = SlotTable::new(1).insert(()).unwrap();
    let command = Command::CompareAndWrite(Range::new(0, 1));
    device.submit(Instant::ZERO, Submission { slot, command, buf: Some(leak_buf(1024, 3)) });
    let mut done = Vec::new();
    device.poll(Instant::ZERO, &mut done);
    assert_eq!(done[0].status, Status::Unsupported, "there is no scratch buffer");
    assert!(done[0].buf.is_some());
}

/// Tests that no increment of two real threads, each with its own queue, is lost.
#[test]
fn threads_count_together() {
    let volume = MemVolume::new(4096);
    let locks = Arc::new(RangeLocks::new());
    let range = Range::new(2044, 8);
    let count = |queue: &mut ExclusiveQueue<MemQueue>, rounds: u32| {
        let mut slots: SlotTable<()> = SlotTable::new(4);
        let mut buf = Some(leak_buf(8192, 0));
        let mut run = |command: Command, fill_with: Option<(u64, u64)>| {
            let mut lent = buf.take().unwrap();
            if let Some((old, new)) = fill_with {
                fill(lent.prefix_mut(4096), old);
                fill(&mut lent.prefix_mut(8192)[4096..], new);
            }
            let slot = slots.insert(()).unwrap();
            let lent = Some(lent);
            queue.submit(Instant::ZERO, Submission { slot, command, buf: lent });
            let mut done = Vec::new();
            while done.is_empty() {
                queue.kick(Instant::ZERO);
                queue.poll(Instant::ZERO, &mut done);
                std::thread::yield_now();
            }
            let completion = done.pop().unwrap();
            slots.remove(completion.slot);
            buf = completion.buf;
            (completion.status, value_or_zero(command, buf.as_ref().unwrap()))
        };
        let mut won = 0;
        while won < rounds {
            let (_, seen) = run(Command::Read(range), None);
            let swap = Some((seen, seen + 1));
            won += u32::from(run(Command::CompareAndWrite(range), swap).0.is_ok());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut queue =
                ExclusiveQueue::new(volume.open_queue(), locks.clone(), scratch(1, 512));
            scope.spawn(move || count(&mut queue, 500));
        }
    });
    let mut data = vec![0; range.bytes()];
    volume.read_now(range, &mut data);
    assert_eq!(value(&data), 1000);
}

/// Tests that a real thread reads whole blocks while another thread writes them.
#[test]
fn threads_see_whole_blocks() {
    use crate::conformance::TestQueue;
    use std::sync::atomic::AtomicBool;
    let volume = MemVolume::new(4096);
    let locks = Arc::new(RangeLocks::new());
    let is_over = AtomicBool::new(false);
    let on_a_thread = |act: &mut dyn FnMut(&mut TestQueue<'_, ExclusiveQueue<MemQueue>, _>)| {
        let queue = ExclusiveQueue::new(volume.open_queue(), locks.clone(), scratch(1, 512));
        let mut pool = contract::BufPool::new((0..8).map(|n| leak_buf(64 << 10, n)));
        let pass = |_| {
            std::thread::yield_now();
            Instant::ZERO
        };
        act(&mut TestQueue { queue, pool: &mut pool, pass });
    };
    let mut seen = conformance::ReaderCounts::default();
    std::thread::scope(|scope| {
        scope.spawn(|| on_a_thread(&mut |side| side.write_generations(2000, &is_over)));
        on_a_thread(&mut |side| seen = side.read_generations(&is_over));
    });
    assert_eq!(seen.torn, 0, "{seen:?}");
}

fn value_or_zero(command: Command, buf: &Buf) -> u64 {
    match command {
        Command::Read(range) => value(&buf.bytes()[..range.bytes()]),
        _ => 0,
    }
}
