//! The checks that the conformance suite makes of a device, in the order in which they run.

use alloc::vec::Vec;

use contract::{
    BLOCK_BYTES, Command, Device, Instant, REQUEST_BYTES_MAX, Range, Slot, SlotTable, Status,
    Submission,
};

use super::bench::{BLOCKS, Bench};
use super::rig::{Rig, page_range};
use crate::Rng;

type Check<B> = fn(&mut Rig<'_, B>);

/// The largest request, in blocks.
const LARGEST: u32 = (REQUEST_BYTES_MAX / BLOCK_BYTES) as u32;

pub(super) fn all<B: Bench>() -> [(&'static str, Check<B>); 15] {
    [
        ("geometry", geometry),
        ("unwritten blocks", unwritten_blocks),
        ("read after write", read_after_write),
        ("largest request", largest_request),
        ("two queues", two_queues),
        ("durability", durability),
        ("discard and zeroes", discard_and_zeroes),
        ("neighbours in a block", neighbours_in_a_block),
        ("readers of a shared block", readers_of_a_shared_block),
        ("random commands", random_commands),
        ("random disjoint commands at once", random_disjoint_commands_at_once),
        ("room", room),
        ("atomic write", atomic_write),
        ("compare and write", compare_and_write),
        ("commit", commit),
    ]
}

fn write(lba: u64, blocks: u32) -> Command {
    Command::Write { range: Range::new(lba, blocks), fua: false }
}

fn zeroes(lba: u64, blocks: u32) -> Command {
    Command::WriteZeroes { range: Range::new(lba, blocks), fua: false }
}

fn geometry<B: Bench>(rig: &mut Rig<'_, B>) {
    let geometry = rig.geometry();
    assert_eq!(geometry.blocks, BLOCKS);
    assert!(geometry.physical_block_bytes.is_power_of_two());
    assert!(geometry.physical_block_bytes as usize >= BLOCK_BYTES);
    assert!(!geometry.read_only);
    assert!(rig.room(0) > 0 && rig.room(1) > 0);
}

fn unwritten_blocks<B: Bench>(rig: &mut Rig<'_, B>) {
    for (lba, blocks) in [(0, 1), (0, 8), (3, 7), (BLOCKS - 1, 1), (BLOCKS - 17, 17), (5, 2000)] {
        rig.expect(0, Range::new(lba, blocks));
    }
    rig.do_ok(0, write(100, 1), 1);
    rig.expect(0, Range::new(0, 256));
}

fn read_after_write<B: Bench>(rig: &mut Rig<'_, B>) {
    for (mark, blocks) in (1..).zip([1, 2, 7, 8, 9, 64, 200, 1024]) {
        for (step, lba) in [0, 1, 7, 8, 2040, 2047, BLOCKS - u64::from(blocks)].iter().enumerate() {
            rig.do_ok(0, write(*lba, blocks), mark * 10 + step as u64);
            rig.expect(0, Range::new(*lba, blocks));
        }
    }
    for lba in (0..BLOCKS).step_by(LARGEST as usize) {
        rig.expect(0, Range::new(lba, LARGEST));
    }
}

fn largest_request<B: Bench>(rig: &mut Rig<'_, B>) {
    for (mark, lba) in (1..).zip([0, 2048, 1, 2047, 4093, BLOCKS - u64::from(LARGEST)]) {
        rig.do_ok(0, write(lba, LARGEST), mark);
        rig.expect(1, Range::new(lba, LARGEST));
    }
    rig.expect(0, Range::new(0, LARGEST));
}

fn two_queues<B: Bench>(rig: &mut Rig<'_, B>) {
    for mark in 1..40 {
        let writer = mark as usize % 2;
        rig.do_ok(writer, write(mark % 3, 13), mark);
        rig.expect(1 - writer, Range::new(0, 32));
    }
}

fn durability<B: Bench>(rig: &mut Rig<'_, B>) {
    let flush = rig.submit(0, Command::Flush, 0);
    rig.wait_ok(flush);
    rig.do_ok(0, Command::Write { range: Range::new(8, 8), fua: true }, 1);
    rig.do_ok(1, Command::Write { range: Range::new(9, 1), fua: true }, 2);
    rig.do_ok(0, Command::WriteZeroes { range: Range::new(10, 1), fua: true }, 0);
    rig.do_ok(1, Command::Flush, 0);
    rig.expect(0, Range::new(0, 24));
}

fn discard_and_zeroes<B: Bench>(rig: &mut Rig<'_, B>) {
    rig.do_ok(0, write(0, LARGEST), 1);
    for (lba, blocks) in [(8, 8), (17, 1), (33, 5), (70, 100), (200, 8), (255, 2), (1023, 1000)] {
        rig.do_ok(0, Command::Discard(Range::new(lba, blocks)), 0);
        rig.expect(1, Range::new(0, LARGEST));
    }
    rig.do_ok(0, write(0, LARGEST), 2);
    for (lba, blocks) in [(0, 1), (9, 8), (512, 512), (2047, 1), (1500, 333)] {
        rig.do_ok(1, zeroes(lba, blocks), 0);
        rig.expect(0, Range::new(0, LARGEST));
    }
    rig.do_ok(0, write(BLOCKS - 9, 9), 3);
    rig.do_ok(0, Command::Discard(Range::new(3, (BLOCKS - 4) as u32)), 0);
    rig.expect(0, Range::new(0, 64));
    rig.expect(0, Range::new(BLOCKS - 64, 64));
    rig.do_ok(0, zeroes(0, BLOCKS as u32), 0);
    rig.expect(0, Range::new(BLOCKS - 64, 64));
}

fn neighbours_in_a_block<B: Bench>(rig: &mut Rig<'_, B>) {
    rig.do_ok(0, write(0, 64), 1);
    for round in 0..24 {
        let base = 8 + round % 4;
        let slots: Vec<Slot> = (0..16)
            .map(|lba| rig.submit(lba as usize % 2, write(base + lba, 1), 100 + round * 16 + lba))
            .collect();
        for slot in slots {
            rig.wait_ok(slot);
        }
        rig.expect(round as usize % 2, Range::new(0, 64));
    }
}

fn readers_of_a_shared_block<B: Bench>(rig: &mut Rig<'_, B>) {
    rig.do_ok(0, write(0, 16), 1);
    for mark in 2..20 {
        let writes = [rig.submit(0, write(1, 2), mark), rig.submit(1, write(5, 6), mark)];
        rig.expect(0, Range::new(0, 1));
        rig.expect(1, Range::new(3, 2));
        rig.expect(1, Range::new(11, 4));
        for slot in writes {
            rig.wait_ok(slot);
        }
        rig.expect(1, Range::new(0, 16));
    }
}

fn random_range(chance: &mut Rng, first: u64, end: u64) -> Range {
    let longest = match chance.within(0..=7) {
        0 => u64::from(LARGEST),
        1 | 2 => 64,
        _ => 12,
    };
    let blocks = chance.within(1..=longest.min(end - first));
    Range::new(chance.within(first..=end - blocks), blocks as u32)
}

fn random_command(chance: &mut Rng, range: Range) -> Command {
    let fua = chance.happens(0.1);
    match chance.within(0..=9) {
        0 => Command::Discard(range),
        1 => Command::WriteZeroes { range, fua },
        2..=4 => Command::Read(range),
        _ => Command::Write { range, fua },
    }
}

fn random_commands<B: Bench>(rig: &mut Rig<'_, B>) {
    let mut chance = Rng::new(11);
    for mark in 1..400 {
        let range = random_range(&mut chance, 0, 4096);
        let queue = (chance.number() % 2) as usize;
        match random_command(&mut chance, range) {
            Command::Read(range) => rig.expect(queue, range),
            command => rig.do_ok(queue, command, mark),
        }
    }
    rig.expect(0, Range::new(0, 2048));
    rig.expect(1, Range::new(2048, 2048));
}

fn random_disjoint_commands_at_once<B: Bench>(rig: &mut Rig<'_, B>) {
    let mut chance = Rng::new(12);
    for round in 1..40 {
        let width = chance.within(3..=61);
        let slots: Vec<Slot> = (0..24)
            .map(|lane| {
                let range = random_range(&mut chance, lane * width, (lane + 1) * width);
                let command = random_command(&mut chance, range);
                rig.submit(lane as usize % 2, command, round * 100 + lane)
            })
            .collect();
        for slot in slots {
            rig.wait_ok(slot);
        }
        rig.expect(round as usize % 2, Range::new(0, 1536));
    }
}

fn room<B: Bench>(rig: &mut Rig<'_, B>) {
    for queue in 0..2 {
        let room = rig.room(queue).min(2000);
        for place in 0..room as u64 {
            let before = rig.room(queue);
            assert!(before > 0, "room shrank faster than requests came");
            rig.submit(queue, Command::Read(Range::new(place * 8 % BLOCKS, 8)), 0);
            assert!(rig.room(queue) < before, "a request takes room");
        }
    }
}

fn atomic_write<B: Bench>(rig: &mut Rig<'_, B>) {
    let max = rig.geometry().atomic_blocks_max;
    assert!(max <= LARGEST, "no request is that large");
    rig.do_ok(0, write(0, 64), 1);
    if max < LARGEST {
        let slot = rig.submit(0, Command::WriteAtomic(Range::new(0, max + 1)), 2);
        let status = rig.wait(slot).status;
        // A device may do more than it promises, for a well placed range.
        let answers = [Status::AtomicTooLarge, Status::Unsupported, Status::Ok];
        assert!(answers.contains(&status), "too large an atomic write: {status}");
        rig.expect(1, Range::new(0, 64));
    }
    let mut mark = 3;
    for (lba, blocks) in [(0, 1), (3, 8), (2040, 16), (1, LARGEST)] {
        if blocks > max {
            continue;
        }
        let range = Range::new(lba, blocks);
        rig.do_ok(0, Command::WriteAtomic(range), mark);
        rig.expect(1, range);
        let racing = [
            rig.submit(0, Command::WriteAtomic(range), mark + 1),
            rig.submit(1, Command::WriteAtomic(range), mark + 2),
        ];
        let reads: Vec<Slot> =
            (0..6).map(|queue| rig.submit(queue % 2, Command::Read(range), 0)).collect();
        for slot in reads {
            assert_one_mark(&rig.wait_ok(slot), range);
        }
        for slot in racing {
            rig.wait_ok(slot);
        }
        let slot = rig.submit(0, Command::Read(range), 0);
        assert_one_mark(&rig.wait_ok(slot), range);
        rig.do_ok(1, Command::WriteAtomic(range), mark + 3);
        rig.expect(0, range);
        mark += 4;
    }
}

/// Asserts that all blocks carry the same mark: their first words differ only by their addresses.
fn assert_one_mark(data: &[u8], range: Range) {
    let marks = data.chunks(BLOCK_BYTES).zip(range.lba..).map(|(block, lba)| {
        let word: [u8; 8] = block[..8].try_into().expect("a block has eight bytes");
        match u64::from_le_bytes(word) {
            0 => 0,
            word => word ^ lba << 32,
        }
    });
    let marks: Vec<u64> = marks.collect();
    assert!(marks.iter().all(|mark| *mark == marks[0]), "a torn atomic write of {range:?}");
}

fn compare_and_write<B: Bench>(rig: &mut Rig<'_, B>) {
    let probe = rig.swap(0, Range::new(8, 1), 0, 0);
    match rig.wait(probe).status {
        Status::Unsupported => return,
        status => assert_eq!(status, Status::Ok, "a compare with unwritten blocks"),
    }
    let mut mark = 1;
    for (lba, blocks) in [(8, 1), (13, 8), (2046, 4), (9, LARGEST)] {
        let range = Range::new(lba, blocks);
        rig.do_ok(0, zeroes(lba, blocks), 0);
        let wrong = rig.swap(1, range, mark + 7, mark + 8);
        assert_eq!(rig.wait(wrong).status, Status::CompareFailed);
        rig.expect(0, range);
        let right = rig.swap(0, range, 0, mark);
        rig.wait_ok(right);
        rig.expect(1, range);
        let plain = [rig.compare(0, range, mark), rig.compare(1, range, mark + 7)];
        let found = plain.map(|slot| rig.wait(slot).status);
        let same = if rig.keeps_data() { Status::Ok } else { Status::CompareFailed };
        assert_eq!(found, [same, Status::CompareFailed]);
        if rig.keeps_data() {
            let racing = [rig.swap(0, range, mark, mark + 1), rig.swap(1, range, mark, mark + 2)];
            let won = racing.map(|slot| rig.wait(slot).status);
            let expected = [Status::Ok, Status::CompareFailed];
            assert!(won == expected || [won[1], won[0]] == expected, "one of two wins: {won:?}");
            rig.expect(1, range);
        }
        rig.expect(1, Range::new(lba + u64::from(blocks), 1));
        mark += 10;
    }
}

fn commit<B: Bench>(rig: &mut Rig<'_, B>) {
    let most = u64::from(rig.geometry().commit_pages_max);
    let all = BLOCKS / u64::from(page_range(0).blocks);
    rig.do_ok(0, write(0, 64), 1);
    if most == 0 {
        let slot = rig.commit(0, &[3], 2);
        assert_eq!(rig.wait(slot).status, Status::Unsupported);
        return rig.expect(1, Range::new(0, 64));
    }
    for (pages, status) in [
        (Vec::new(), Status::BadLength),
        ((0..=most).collect(), Status::AtomicTooLarge),
        (Vec::from([1, all]), Status::OutOfRange),
        (Vec::from([u64::MAX, 1]), Status::OutOfRange),
        (Vec::from([4, 2, 4]), Status::Invalid),
    ] {
        let slot = rig.commit(0, &pages, 2);
        assert_eq!(rig.wait(slot).status, status, "a commit of {pages:?}");
        rig.expect(1, Range::new(0, 64));
    }
    let scattered = (0..most).map(|number| (most - number) * 13 % all);
    for (mark, pages) in (3..).step_by(3).zip([
        Vec::from([5]),
        Vec::from([all - 1, 0, 700]),
        scattered.take(200).collect(),
    ]) {
        let slot = rig.commit(0, &pages, mark);
        rig.wait_ok(slot);
        pages.iter().for_each(|page| rig.expect(1, page_range(*page)));
        commit_beside_finer_writes(rig, &pages, mark + 1);
    }
}

/// Commits pages while the other queue writes one block of every eighth page. Checks that the other
/// blocks of all pages hold the committed data.
fn commit_beside_finer_writes<B: Bench>(rig: &mut Rig<'_, B>, pages: &[u64], mark: u64) {
    let finer = |page: &u64| write(page_range(*page).lba + 1, 1);
    let mut slots: Vec<Slot> =
        pages.iter().step_by(8).map(|page| rig.submit(1, finer(page), mark)).collect();
    slots.insert(1, rig.commit(0, pages, mark + 1));
    slots.extend(pages.iter().step_by(8).map(|page| rig.submit(1, finer(page), mark)));
    for slot in slots {
        rig.wait_ok(slot);
    }
    for page in pages {
        let Range { lba, blocks } = page_range(*page);
        rig.do_ok(0, finer(page), mark);
        rig.expect(1, Range::new(lba, blocks));
    }
}

pub(super) fn refuses_writes<B: Bench>(bench: &mut B, mut queue: B::Queue) {
    assert!(queue.geometry().read_only);
    let range = Range::new(8, 8);
    let mut slots = SlotTable::new(8);
    let commands = [
        (Command::Write { range, fua: false }, Status::ReadOnly),
        (Command::Write { range, fua: true }, Status::ReadOnly),
        (Command::Discard(range), Status::ReadOnly),
        (Command::WriteZeroes { range, fua: false }, Status::ReadOnly),
        (Command::Flush, Status::Ok),
        (Command::Read(range), Status::Ok),
    ];
    let mut now = bench.pass(Some(Instant::ZERO));
    for (command, expected) in commands {
        let bytes = command.buffer_bytes();
        let buf = (bytes > 0).then(|| bench.pool().take(bytes).expect("a buffer"));
        let slot = slots.insert(()).expect("one at a time");
        queue.submit(now, Submission { slot, command, buf });
        let mut done = Vec::new();
        while done.is_empty() {
            queue.kick(now);
            now = bench.pass(queue.wake_at());
            queue.poll(now, &mut done);
        }
        for completion in done {
            slots.remove(completion.slot);
            assert_eq!(completion.status, expected, "{command:?} on a read-only device");
            if let Some(buf) = completion.buf {
                bench.pool().give(buf);
            }
        }
    }
}
