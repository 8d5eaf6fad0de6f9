//! The program that `cargo xtask cost` runs under an instruction counter for volumes: requests of
//! 4 KiB at a volume, or at its member alone.
//!
//! ```text
//! volume_cost volume|member|data reads|writes IN_FLIGHT REQUESTS
//! ```
//!
//! With `member`, the requests go to the member itself. With `data`, none is made: each request
//! stands for what a write's data cost a volume, a checksum, a copy into the batch and the copy of
//! the batch with its header. The member keeps nothing, so that only the software counts. Pages are overwritten or read in a scattered order,
//! and free segments suffice, so the collector rests.
//!
//! Only the instructions inside of `counted` are counted.

use std::hint::black_box;

use contract::{
    BLOCK_BYTES, Buf, BufPool, Command, Completion, Device, Instant, Range, SlotTable, Submission,
};
use flash::{MemVolume, Null};
use nearflash_ftl::layout::{PAGE_BYTES, page_sum};
use nearflash_ftl::{DeviceMedia, Geometry, Policy, Queue, Settings, Shape, create, open};

const PAGE_BLOCKS: u64 = (PAGE_BYTES / BLOCK_BYTES) as u64;
/// Number of pages of the member: 1 GiB.
const MEMBER_PAGES: u64 = 1 << 18;
/// Number of pages that are written before, and that requests touch: 128 MiB.
const PAGES: u64 = 1 << 15;
/// The step from page to page, which visits all of them.
const STRIDE: u64 = 20_011;

fn buf(bytes: usize, index: usize) -> Buf {
    Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), index as u32)
}

/// Returns a volume on a member in memory, whose commands go to a member that keeps nothing.
fn volume() -> Queue<Null> {
    let policy = Policy::HEAT3;
    let shape = Shape {
        uuid: *b"the cost of ftl:",
        segment_pages: 512,
        spare_per_mille: 100,
        policy,
        virtual_pages: None,
    };
    let memory = MemVolume::new(MEMBER_PAGES * PAGE_BLOCKS);
    let mut media = DeviceMedia::new(vec![memory.open_queue()], buf(1 << 16, 0));
    create(&mut media, &shape).expect("the member is empty");
    let (volume, _) = open(&mut media, Settings::new(policy)).expect("it was created");
    let pool = pool(&volume.geometry());
    Queue::new(volume, vec![member()], pool)
}

fn pool(geometry: &Geometry) -> BufPool {
    let classes = Queue::<Null>::classes(geometry);
    let sizes = classes.iter().flat_map(|class| (0..class.count).map(|_| class.bytes));
    BufPool::new(sizes.enumerate().map(|(index, bytes)| buf(bytes, index)))
}

fn member() -> Null {
    Null::new(MEMBER_PAGES * PAGE_BLOCKS)
}

/// A load of requests of a page.
struct Load {
    slots: SlotTable<()>,
    bufs: Vec<Buf>,
    done: Vec<Completion>,
    page: u64,
}

impl Load {
    fn new(in_flight: usize) -> Load {
        let bufs = (0..in_flight).map(|index| buf(PAGE_BYTES, index)).collect();
        Load { slots: SlotTable::new(in_flight), bufs, done: Vec::with_capacity(1024), page: 0 }
    }

    /// Submits as many requests as may be in flight, and takes the completions. Returns their
    /// number.
    fn turn<D: Device>(&mut self, device: &mut D, writes: bool) -> u64 {
        while let Some(buf) = self.bufs.pop() {
            self.page = (self.page + STRIDE) % PAGES;
            let range = Range::new(self.page * PAGE_BLOCKS, PAGE_BLOCKS as u32);
            let command =
                if writes { Command::Write { range, fua: false } } else { Command::Read(range) };
            let slot = self.slots.insert(()).expect("a slot for each buffer");
            device.submit(Instant::ZERO, Submission { slot, command, buf: Some(buf) });
        }
        device.kick(Instant::ZERO);
        device.poll(Instant::ZERO, &mut self.done);
        let ended = self.done.len() as u64;
        for Completion { slot, status, buf } in self.done.drain(..) {
            assert!(status.is_ok(), "a request fails: {status}");
            self.slots.remove(slot);
            self.bufs.extend(buf);
        }
        ended
    }
}

/// Runs turns until `requests` requests have ended. The instruction counter measures this function.
#[inline(never)]
fn counted<D: Device>(load: &mut Load, device: &mut D, writes: bool, requests: u64) {
    let mut ended = 0;
    while ended < requests {
        ended += load.turn(device, writes);
    }
}

/// Computes the checksums of `requests` pages, and copies each into a batch of `in_flight` pages.
/// Copies each batch and a header.
#[inline(never)]
fn counted_data(in_flight: usize, requests: u64) {
    let page = vec![1; PAGE_BYTES];
    let mut batch = vec![0; (in_flight + 1) * PAGE_BYTES];
    let mut copy = batch.clone();
    for _ in 0..requests / in_flight as u64 {
        for place in batch.chunks_exact_mut(PAGE_BYTES).skip(1) {
            black_box(page_sum(black_box(&page)));
            black_box(place).copy_from_slice(black_box(&page));
        }
        black_box(&mut copy).copy_from_slice(black_box(&batch));
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let usage = "volume_cost volume|member|data reads|writes IN_FLIGHT REQUESTS";
    let [what, kind, in_flight, requests] = words[..] else { panic!("{usage}") };
    let number = |word: &str| word.parse::<u64>().expect(usage);
    let (in_flight, requests) = (number(in_flight) as usize, number(requests));
    let mut load = Load::new(in_flight);
    let writes = kind == "writes";
    match what {
        "data" => counted_data(in_flight, requests),
        "member" => counted(&mut load, &mut member(), writes, requests),
        _ => {
            let mut volume = volume();
            let mut ended = 0;
            while ended < PAGES {
                ended += load.turn(&mut volume, true);
            }
            counted(&mut load, &mut volume, writes, requests);
            let report = volume.volume().report();
            assert!(report.victims == 0 && !report.read_only, "the collector rests: {report:?}");
        }
    }
}
