//! Tests of hand-overs under load, between two volumes of one process as between two processes: all
//! requests that were submitted end well, wherever they wait.

use std::collections::HashMap;
use std::time::Duration;

use contract::{BLOCK_BYTES, Buf, Command, Completion, Device, Range, Status, Submission};
use flash::{FtlOptions, Rng};
use ftl::layout::PAGE_BYTES;
use io::{Clock, Reactor, Ring};

use super::*;
use crate::volumes::{FileBackend, FileMedia, member_options, open_member};

/// Pages of the member: 64 MiB in small segments, so that requests soon wait for space.
const MEMBER_PAGES: u64 = 16_384;

/// Requests in flight.
const DEPTH: usize = 48;

/// Makes a volume on a file, and returns its spec. With `absorb`, small writes wait in frames.
fn made(folder: &tempfile::TempDir, absorb: bool) -> Spec {
    let path = folder.path().join("volume").display().to_string();
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(MEMBER_PAGES * PAGE_BYTES as u64).unwrap();
    let mut media = FileMedia::of(&open_member(&path, member_options(false)).unwrap()).unwrap();
    let wishes = FtlOptions { segment_bytes: Some(256 << 10), ..FtlOptions::default() };
    ftl::create(&mut media, &crate::volumes::shape(&wishes, MEMBER_PAGES)).unwrap();
    let options = if absorb { "?ftl.absorb=10ms" } else { "" };
    format!("ftl:file:{path}{options}").parse().unwrap()
}

/// A volume with its queue, and the load on it. No block has two requests at a time.
struct VolumeFixture {
    volume: Volume,
    queue: DecoratedDevice<AnyDevice>,
    ring: Ring,
    clock: Clock,
    chance: Rng,
    /// The requests in flight, by their slots, with the value that they write; zero for others.
    flying: HashMap<u32, (Range, u64)>,
    /// The value of each block.
    values: Vec<u64>,
    bufs: Vec<Buf>,
    next: u64,
    ended: usize,
    /// Pages that volumes which were handed over have read to collect.
    collected: u64,
    /// The place of the queue at the ring.
    place: usize,
}

impl VolumeFixture {
    fn new(spec: &Spec, seed: u64) -> VolumeFixture {
        let (volume, ring) = (Volume::open(spec).unwrap(), Ring::new().unwrap());
        let queue = volume.open_queue(&FileBackend::Ring(&ring), 0, 0).unwrap();
        let values = vec![0; volume.blocks() as usize];
        let arena = io::carve(&[contract::SizeClass { bytes: 8 * PAGE_BYTES, count: DEPTH }]);
        let (bufs, clock, chance) = (arena.unwrap().bufs, Clock::start(), Rng::new(seed));
        let flying = HashMap::new();
        let (next, ended, collected, place) = (1, 0, 0, 0);
        VolumeFixture {
            volume,
            queue,
            ring,
            clock,
            chance,
            flying,
            values,
            bufs,
            next,
            ended,
            collected,
            place,
        }
    }

    /// Submits a request as long as the device has room for one.
    fn submit(&mut self) {
        while self.queue.room() > 0
            && let Some(mut buf) = self.bufs.pop()
        {
            let blocks = match self.chance.below(4) {
                0 => self.chance.within(1..=7) as u32,
                1 => 1,
                _ => 8 * self.chance.within(1..=4) as u32,
            };
            let lba = self.chance.within(0..=self.values.len() as u64 - u64::from(blocks));
            let lba = if blocks < 8 { lba } else { lba / 8 * 8 };
            let range = Range::new(lba, blocks);
            let meets = |other: &(Range, u64)| {
                lba < other.0.lba + u64::from(other.0.blocks)
                    && other.0.lba < lba + u64::from(blocks)
            };
            if self.flying.values().any(meets) {
                self.bufs.push(buf);
                return;
            }
            let value = if self.chance.one_in(4) { 0 } else { self.next };
            let command = match (value, self.chance.below(10)) {
                (0, _) => Command::Read(range),
                (_, 0) => Command::WriteAtomic(range),
                (_, one) => Command::Write { range, fua: one == 1 },
            };
            for block in buf.prefix_mut(range.bytes()).chunks_mut(BLOCK_BYTES) {
                block[..8].copy_from_slice(&value.to_le_bytes());
            }
            let slot = contract::Slot::from_bits(self.next as u32);
            self.next += 1;
            self.flying.insert(slot.to_bits(), (range, value));
            let now = self.clock.now();
            self.queue.submit(now, Submission { slot, command, buf: Some(buf) });
        }
    }

    /// Takes a turn, as a worker does: the device is kicked only if there was a submission.
    fn turn(&mut self, submits: bool) {
        let now = self.clock.now();
        let before = self.next;
        if submits {
            self.submit();
        }
        if self.next > before {
            self.queue.kick(now);
        }
        let mut done: Vec<Completion> = Vec::new();
        self.queue.poll(now, &mut done);
        let has_progressed = !done.is_empty() || self.next > before;
        for Completion { slot, status, buf } in done {
            assert_eq!(status, Status::Ok);
            let (range, value) = self.flying.remove(&slot.to_bits()).expect("answered once");
            let buf = buf.expect("a buffer comes back");
            let values = &mut self.values[range.lba as usize..][..range.blocks as usize];
            for (block, own) in buf.bytes().chunks(BLOCK_BYTES).zip(values) {
                let read = u64::from_le_bytes(block[..8].try_into().unwrap());
                if value == 0 { assert_eq!(read, *own, "at {range:?}") } else { *own = value }
            }
            self.bufs.push(buf);
            self.ended += 1;
        }
        let turn = TurnOutcome { progressed: has_progressed, wake_at: self.queue.wake_at() };
        let turn = attend([&mut self.queue].into_iter(), now, turn);
        let wait = turn.wake_at.map_or(Duration::from_secs(10), |at| at.since(now));
        self.ring.enter((!has_progressed && !wait.is_zero()).then_some(Some(wait)));
    }

    /// Turns until a condition holds.
    fn turn_until(&mut self, submits: bool, mut holds: impl FnMut(&VolumeFixture) -> bool) {
        let began = self.clock.now();
        while !holds(self) {
            let left = self.flying.len();
            assert!(self.clock.now().since(began) < Duration::from_secs(60), "{left} hang");
            self.turn(submits);
        }
    }

    /// Brings the volume to rest under load, and hands it over, or takes it back.
    fn hand_over(&mut self, spec: &Spec) {
        self.volume.come_to_rest();
        let mut state = None;
        self.turn_until(true, |bed| {
            state = bed.volume.hand_over().expect("it can rest");
            state.is_some()
        });
        assert!(self.flying.is_empty(), "all that was submitted has ended");
        assert_eq!(self.queue.room(), 0, "it takes no requests");
        let state = state.expect("it was awaited");
        if self.chance.one_in(3) {
            return self.volume.go_on();
        }
        let files = self.volume.files().unwrap();
        let files = files.into_iter().map(|file| file.try_clone_to_owned().unwrap()).collect();
        let next = Volume::adopt(spec, files).unwrap();
        self.place = 1 - self.place;
        let queue = next.open_queue(&FileBackend::Ring(&self.ring), self.place, 0).unwrap();
        assert_eq!(queue.room(), 0, "it has not come");
        next.receive(&state).unwrap();
        assert!(next.receive(&state).is_err(), "it comes once");
        self.volume.give();
        next.go_on();
        self.collected += self.volume.chores().map_or(0, |chores| chores.done().read_pages);
        // The older one ends without a trace.
        (self.queue, self.volume) = (queue, next);
    }
}

fn run(absorb: bool, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let spec = made(&folder, absorb);
    let mut bed = VolumeFixture::new(&spec, seed);
    for _ in 0..40 {
        let enough = bed.ended + 20 + bed.chance.below(400);
        bed.turn_until(true, |bed| bed.ended >= enough);
        bed.hand_over(&spec);
        let enough = bed.ended + DEPTH;
        bed.turn_until(true, |bed| bed.ended >= enough);
        // Nobody kicks those that wait.
        bed.turn_until(false, |bed| bed.flying.is_empty());
        bed.hand_over(&spec);
    }
    assert!(bed.collected > 0, "it collects");
}

#[test]
fn requests_that_wait_when_a_volume_pauses_end_well() {
    run(false, 1);
}

#[test]
fn small_writes_that_wait_in_frames_when_a_volume_pauses_end_well() {
    run(true, 2);
}
