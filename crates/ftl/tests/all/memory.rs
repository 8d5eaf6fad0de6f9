//! The memory of a volume: it is what is stated, 1.3 GiB for a TiB at most, and nothing is
//! allocated after the start.

use contract::Submission;
use contract::{BLOCK_BYTES, BufPool, Command, Completion, Device, Instant, Range, SlotTable};
use flash::conformance::leak_buf;
use flash::{MemQueue, MemVolume, Rng};
use nearflash_ftl::layout::PAGE_BYTES;
use nearflash_ftl::{DeviceMedia, Geometry, Policy, Queue, Settings, Shape, create, open};

const PAGE_BLOCKS: u64 = (PAGE_BYTES / BLOCK_BYTES) as u64;
const TIB_PAGES: u64 = (1 << 40) / PAGE_BYTES as u64;
/// 1.3 GiB.
const PER_TIB_MAX: u64 = 13 * (1 << 30) / 10;

/// Returns the shape that `nearflash ftl create` gives a volume.
fn shape(segment_pages: u32) -> Shape {
    let policy = Policy::HEAT3;
    Shape { uuid: [7; 16], segment_pages, spare_per_mille: 100, policy, virtual_pages: None }
}

/// Opens the volume on a member in memory, after creating it. Returns also the member.
fn queue(shape: &Shape, pages: u64) -> (Queue<MemQueue>, MemVolume) {
    let memory = MemVolume::new(pages * PAGE_BLOCKS);
    let mut media = DeviceMedia::new(vec![memory.open_queue_of(1)], leak_buf(1 << 16, 0));
    create(&mut media, shape).expect("the member is empty");
    let settings = Settings { discards: false, ..Settings::new(shape.policy) };
    let (volume, _) = open(&mut media, settings).expect("it was created");
    let classes = Queue::<MemQueue>::classes(&volume.geometry());
    let sizes = classes.iter().flat_map(|class| (0..class.count).map(|_| class.bytes));
    let pool = BufPool::new((0..).zip(sizes).map(|(index, bytes)| leak_buf(bytes, index)));
    (Queue::new(volume, vec![memory.open_queue()], pool), memory)
}

#[test]
fn a_volume_of_a_tib_takes_at_most_1_3_gib_of_memory() {
    // The least spare space has the most logical pages.
    for spare_per_mille in [20, 100] {
        let shape = Shape { spare_per_mille, ..shape(512) };
        let geometry = Geometry::plan(&shape, &[TIB_PAGES]).expect("a possible volume");
        let bytes = geometry.memory_bytes();
        println!(
            "{spare_per_mille} ‰ of spare space: {:.3} GiB",
            bytes as f64 / f64::from(1 << 30)
        );
        assert!(bytes <= PER_TIB_MAX, "{bytes} bytes, {spare_per_mille} ‰ of spare space");
    }
}

/// The stated memory is a bound of what is allocated: a larger volume takes no more than the larger
/// statement says.
#[test]
fn a_volume_allocates_what_it_states() {
    let shape = shape(512);
    let [small, large] = [1 << 20, 3 << 20].map(|pages: u64| {
        let mut opened = None;
        let used = allocation_counter::measure(|| opened = Some(queue(&shape, pages)));
        let (queue, member) = opened.expect("it was opened");
        let allocated = used.bytes_current - member.resident_bytes() as i64;
        (allocated, queue.volume().geometry().memory_bytes() as i64)
    });
    let (allocated, stated) = (large.0 - small.0, large.1 - small.1);
    // The lists of the member, which are none of the volume's.
    let lists = 64 << 10;
    assert!(allocated <= stated + lists, "{allocated} bytes, {stated} stated");
    assert!(allocated >= stated * 9 / 10, "{allocated} bytes, {stated} stated");
}

/// A load that overwrites pages, reads them and flushes, at random.
struct Load {
    chance: Rng,
    pages: u64,
    slots: SlotTable<()>,
    bufs: Vec<contract::Buf>,
    done: Vec<Completion>,
}

impl Load {
    fn run(&mut self, queue: &mut Queue<MemQueue>, requests: u64) {
        let mut ended = 0;
        while ended < requests {
            while self.slots.room() > 0 {
                let page = self.chance.within(0..=self.pages - 1);
                let range = Range::new(page * PAGE_BLOCKS, PAGE_BLOCKS as u32);
                let slot = self.slots.insert(()).expect("there is room");
                let (command, buf) = match self.chance.below(100) {
                    0 => (Command::Flush, None),
                    1..20 => (Command::Read(range), self.bufs.pop()),
                    _ => (Command::Write { range, fua: false }, self.bufs.pop()),
                };
                queue.submit(Instant::ZERO, Submission { slot, command, buf });
            }
            queue.kick(Instant::ZERO);
            queue.poll(Instant::ZERO, &mut self.done);
            ended += self.done.len() as u64;
            for Completion { slot, status, buf } in self.done.drain(..) {
                assert!(status.is_ok(), "{status}");
                self.slots.remove(slot);
                self.bufs.extend(buf);
            }
        }
    }
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let (mut queue, _member) = queue(&shape(64), 20_000);
    let pages = queue.geometry().blocks / PAGE_BLOCKS;
    let mut load = Load {
        chance: Rng::new(1),
        pages,
        slots: SlotTable::new(64),
        bufs: (0..64).map(|index| leak_buf(PAGE_BYTES, index)).collect(),
        done: Vec::with_capacity(1024),
    };
    // All memory of the member is in use after some overwrites.
    load.run(&mut queue, 3 * pages);
    let before = queue.volume().report();
    let used = allocation_counter::measure(|| load.run(&mut queue, 3 * pages));
    let report = queue.volume().report().since(&before);
    assert_eq!(used.count_total, 0);
    let worked = [report.moved_pages, report.checkpoints, report.flushes];
    assert!(worked.iter().all(|count| *count > 1), "it worked all the while: {report:?}");
}
