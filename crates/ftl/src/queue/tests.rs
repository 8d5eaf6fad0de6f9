//! Tests of a volume over memory as a device: the conformance suite, with and without faults of the
//! member.

use alloc::rc::Rc;
use alloc::vec;
use core::cell::RefCell;

use super::*;
use crate::command::Settings;
use crate::geometry::Shape;
use crate::hand_over::AwaitedVolume;
use crate::media::{DeviceMedia, close};
use crate::open::{Media, create, open};
use crate::policy::Policy;
use crate::table::{LentMemory, MapMemory};
use flash::conformance::{self, HeapBench, leak_buf};
use flash::{ExclusiveQueue, MemQueue, MemVolume, RangeLocks};

const POLICY: Policy = Policy::HEAT3;

/// Returns a shape, and a member's number of pages for which the volume has exactly `pages` pages.
fn shape_of(pages: u32) -> (Shape, u64) {
    let shape = Shape::small(250, POLICY);
    let fits = |member: &u64| Geometry::plan(&shape, &[*member]).is_ok_and(|g| g.pages == pages);
    let member = (u64::from(pages)..2 * u64::from(pages)).find(fits);
    (shape, member.expect("a member of this size exists"))
}

fn pool(geometry: &Geometry) -> BufPool {
    let classes = Queue::<MemQueue>::classes(geometry);
    let bufs = classes.iter().flat_map(|class| (0..class.count).map(|_| class.bytes));
    BufPool::new(bufs.enumerate().map(|(index, bytes)| leak_buf(bytes, index as u32)))
}

/// A member in memory with a volume, which can be opened again and again.
struct VolumeFixture {
    memory: MemVolume,
}

impl VolumeFixture {
    fn new(pages: u32) -> VolumeFixture {
        let (shape, member) = shape_of(pages);
        let bed = VolumeFixture { memory: MemVolume::new(member * PAGE_BLOCKS) };
        create(&mut bed.media(), &shape).expect("the member is empty");
        bed
    }

    /// Creates a thin volume of `pages` pages on a member of `member` pages.
    fn thin(pages: u64, member: u64) -> VolumeFixture {
        let virtual_pages = Some(pages);
        let shape = Shape { virtual_pages, ..shape_of(4096).0 };
        let bed = VolumeFixture { memory: MemVolume::new(member * PAGE_BLOCKS) };
        create(&mut bed.media(), &shape).expect("the member is empty");
        bed
    }

    fn media(&self) -> DeviceMedia<MemQueue> {
        DeviceMedia::new(vec![self.memory.open_queue_of(1)], leak_buf(1 << 16, 0))
    }

    fn open(&self) -> (Volume, bool) {
        let (volume, opened) =
            open(&mut self.media(), Settings::new(POLICY)).expect("the volume is sound");
        (volume, opened.clean)
    }

    fn queue(&self, depth: usize) -> Queue<MemQueue> {
        let (volume, _) = self.open();
        let pool = pool(&volume.geometry());
        Queue::new(volume, vec![self.memory.open_queue_of(depth)], pool)
    }
}

/// A queue, and the completions that wait for each of its two users.
struct Shared<D> {
    queue: D,
    sides: Vec<(Slot, usize)>,
    ended: [Vec<Completion>; 2],
}

/// A handle of one of a queue's two users, which are in one thread.
struct SharedQueue<D> {
    shared: Rc<RefCell<Shared<D>>>,
    side: usize,
}

fn shared_queues<D: Device>(queue: D) -> [SharedQueue<D>; 2] {
    let shared = Shared { queue, sides: Vec::new(), ended: [Vec::new(), Vec::new()] };
    let shared = Rc::new(RefCell::new(shared));
    [0, 1].map(|side| SharedQueue { shared: shared.clone(), side })
}

impl<D: Device> Device for SharedQueue<D> {
    fn geometry(&self) -> Seen {
        self.shared.borrow().queue.geometry()
    }

    fn room(&self) -> usize {
        self.shared.borrow().queue.room()
    }

    fn submit(&mut self, now: Instant, submission: Submission) {
        let mut shared = self.shared.borrow_mut();
        shared.sides.push((submission.slot, self.side));
        shared.queue.submit(now, submission);
    }

    fn kick(&mut self, now: Instant) {
        self.shared.borrow_mut().queue.kick(now);
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        let shared = &mut *self.shared.borrow_mut();
        let mut landed = Vec::new();
        shared.queue.poll(now, &mut landed);
        for completion in landed {
            let at = shared.sides.iter().position(|(slot, _)| *slot == completion.slot);
            let (_, side) = shared.sides.swap_remove(at.expect("it was submitted"));
            shared.ended[side].push(completion);
        }
        done.append(&mut shared.ended[self.side]);
    }

    fn wake_at(&self) -> Option<Instant> {
        let shared = self.shared.borrow();
        let waits = !shared.ended[self.side].is_empty();
        waits.then_some(Instant::ZERO).into_iter().chain(shared.queue.wake_at()).min()
    }
}

fn exclusive<D: Device>(queue: D) -> ExclusiveQueue<D> {
    let bytes = ExclusiveQueue::<D>::scratch_bytes(PAGE_BYTES);
    let scratch = (0..4).map(|index| leak_buf(bytes, index)).collect();
    ExclusiveQueue::with_granularity(queue, RangeLocks::new().into(), scratch, PAGE_BYTES)
}

/// Runs the conformance suite on two users of the volume in a bed, whose member takes `depth`
/// commands at a time.
fn conforms(bed: impl Fn(u64) -> VolumeFixture, depth: usize) {
    let open = |blocks| shared_queues(exclusive(bed(blocks / PAGE_BLOCKS).queue(depth)));
    conformance::run(&mut HeapBench::new(open));
}

#[test]
fn a_volume_over_memory_conforms() {
    conforms(|pages| VolumeFixture::new(pages as u32), 64);
}

#[test]
fn a_volume_over_a_member_with_little_room_conforms() {
    conforms(|pages| VolumeFixture::new(pages as u32), 2);
}

#[test]
fn a_thin_volume_over_memory_conforms() {
    conforms(|pages| VolumeFixture::thin(pages, 2 * pages), 64);
}

#[test]
fn a_full_thin_device_refuses_new_pages_and_goes_on() {
    let bed = VolumeFixture::thin(1 << 20, 6144);
    let mut queue = bed.queue(64);
    let capacity = u64::from(queue.volume.geometry().capacity);
    let range = |page: u64, pages: u32| Range::new(page * PAGE_BLOCKS, pages * PAGE_BLOCKS as u32);
    let write = |page: u64| Asked::Write { range: range(page, 1), fua: false };
    let data = |mark: u8| vec![mark; PAGE_BYTES];
    for page in 0..capacity {
        assert_eq!(run(&mut queue, write(page), &data(1)).0, Status::Ok, "page {page}");
    }
    let far = 1 << 19;
    assert_eq!(run(&mut queue, write(far), &data(2)).0, Status::NoSpace);
    let list = [3_u64, far].map(u64::to_le_bytes).concat();
    let mut payload = data(0);
    payload[..list.len()].copy_from_slice(&list);
    let payload = [payload, data(2), data(2)].concat();
    let commit = Asked::Commit { pages: 2 };
    assert_eq!(run(&mut queue, commit, &payload).0, Status::NoSpace);
    assert_eq!(run(&mut queue, Asked::Read(range(3, 1)), &[]), (Status::Ok, data(1)));
    for round in 0..3 * capacity {
        assert_eq!(run(&mut queue, write(round * 7 % capacity), &data(3)).0, Status::Ok);
    }
    assert_eq!(run(&mut queue, Asked::Discard(range(0, 1)), &[]).0, Status::Ok);
    let payload = [payload[..PAGE_BYTES].to_vec(), data(4), data(5)].concat();
    assert_eq!(run(&mut queue, commit, &payload).0, Status::Ok, "after a flush of its own");
    assert_eq!(run(&mut queue, Asked::Read(range(far, 1)), &[]), (Status::Ok, data(5)));
    assert_eq!(run(&mut queue, write(far + 1), &data(2)).0, Status::NoSpace);
    let all = (1 << 20) * PAGE_BLOCKS as u32;
    assert_eq!(run(&mut queue, Asked::Discard(Range::new(0, all)), &[]).0, Status::Ok);
    assert_eq!(run(&mut queue, write(far + 1), &data(2)).0, Status::Ok);
    assert_eq!(queue.volume.used_pages(), 1);
}

/// A member that fails every 53rd write of a batch.
struct Failing {
    inner: MemQueue,
    /// First block of the member where batches may lie.
    begin: u64,
    writes: u64,
    failed: Rc<RefCell<u64>>,
    held: Vec<Completion>,
}

impl Device for Failing {
    fn geometry(&self) -> Seen {
        self.inner.geometry()
    }

    fn room(&self) -> usize {
        self.inner.room()
    }

    fn submit(&mut self, now: Instant, submission: Submission) {
        let Submission { slot, command, buf } = submission;
        let is_batch = matches!(command, Asked::Write { range, .. } if range.lba >= self.begin);
        self.writes += u64::from(is_batch);
        if is_batch && self.writes.is_multiple_of(53) {
            *self.failed.borrow_mut() += 1;
            self.held.push(Completion { slot, status: Status::MediaError, buf });
        } else {
            self.inner.submit(now, Submission { slot, command, buf });
        }
    }

    fn kick(&mut self, now: Instant) {
        self.inner.kick(now);
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        done.append(&mut self.held);
        self.inner.poll(now, done);
    }

    fn wake_at(&self) -> Option<Instant> {
        if self.held.is_empty() { self.inner.wake_at() } else { Some(Instant::ZERO) }
    }
}

#[test]
fn a_volume_over_a_member_that_fails_some_writes_conforms() {
    let failed = Rc::new(RefCell::new(0));
    let mut bench = HeapBench::new(|blocks| {
        let bed = VolumeFixture::new((blocks / PAGE_BLOCKS) as u32);
        let (volume, _) = bed.open();
        let (inner, begin) =
            (bed.memory.open_queue_of(64), volume.geometry().data_at() * PAGE_BLOCKS);
        let (failed, held) = (failed.clone(), Vec::new());
        let member = Failing { inner, begin, writes: 0, failed, held };
        let pool = pool(&volume.geometry());
        shared_queues(exclusive(Queue::new(volume, vec![member], pool)))
    });
    conformance::run(&mut bench);
    let failed = *failed.borrow();
    assert!(failed > 20, "only {failed} writes failed");
}

/// Runs one command to its end. Returns its status, and the data if it was a read.
fn run<D: Device>(queue: &mut D, command: Asked, data: &[u8]) -> (Status, Vec<u8>) {
    let mut slots = SlotTable::new(1);
    let slot = slots.insert(()).unwrap();
    let buf = (command.buffer_bytes() > 0).then(|| {
        let mut buf = leak_buf(command.buffer_bytes(), 0);
        buf.prefix_mut(data.len()).copy_from_slice(data);
        buf
    });
    queue.submit(Instant::ZERO, Submission { slot, command, buf });
    let mut done = Vec::new();
    for _ in 0..10_000 {
        queue.kick(Instant::ZERO);
        queue.poll(Instant::ZERO, &mut done);
        if let Some(Completion { status, buf, .. }) = done.pop() {
            let read = buf.map_or(Vec::new(), |buf| buf.bytes()[..command.reply_bytes()].to_vec());
            return (status, read);
        }
    }
    panic!("{command:?} never ended");
}

#[test]
fn a_volume_that_was_closed_is_found_in_order_and_whole() {
    let bed = VolumeFixture::new(4096);
    let page = |mark: u8| vec![mark; PAGE_BYTES];
    let range = |page: u64| Range::new(page * PAGE_BLOCKS, PAGE_BLOCKS as u32);
    let write = |at: u64| Asked::Write { range: range(at), fua: false };
    let mut queue = bed.queue(64);
    for at in 0..300 {
        assert_eq!(run(&mut queue, write(at), &page(at as u8)).0, Status::Ok);
    }
    assert_eq!(run(&mut queue, Asked::Discard(range(7)), &[]).0, Status::Ok);
    // Killed here: nothing was closed.
    drop(queue);
    let (volume, is_clean) = bed.open();
    assert!(!is_clean);
    let checked = crate::check(&mut bed.media(), &volume).unwrap();
    assert_eq!((checked.whole, checked.is_sound()), (299, true));
    let member = bed.memory.open_queue_of(64);
    let pool = pool(&volume.geometry());
    let mut queue = Queue::new(volume, vec![member], pool);
    assert_eq!(run(&mut queue, Asked::Read(range(7)), &[]), (Status::Ok, page(0)));
    let volume = queue.into_volume().expect("nothing is in flight");
    assert_eq!(close(&mut bed.media(), volume), Ok(true));
    let described = crate::describe(&mut bed.media()).unwrap();
    assert!(described.clean && described.geometry.pages == 4096);
    let mut untouched = bed.media();
    let (volume, opened) =
        open(&mut crate::ReadOnlyMedia(&mut untouched), Settings::new(POLICY)).unwrap();
    assert!(opened.clean);
    let place = volume.geometry().locate(volume.store.map.place(9)).1;
    let mut damaged = page(9);
    damaged[77] ^= 1;
    untouched.write(0, place, &damaged).unwrap();
    let checked = crate::check(&mut untouched, &volume).unwrap();
    assert_eq!((checked.whole, checked.damaged, checked.unproved), (298, 1, 0));
    assert!(crate::describe(&mut bed.media()).unwrap().clean, "nothing was written");
}

/// Hands the volume of a queue without requests over to a new queue, and returns it. Fails unless
/// the volume comes to rest by itself once its member has ended everything.
fn succeed(bed: &VolumeFixture, mut queue: Queue<MemQueue>, settings: Settings) -> Queue<MemQueue> {
    let geometry = queue.volume.geometry();
    while queue.come_to_rest(Instant::ZERO) != RestProgress::Reached {
        assert!(queue.wake_at().is_some(), "asleep: {:?}", queue.volume.report());
    }
    let state = queue.hand_over();
    let (places, heat) = queue.volume.store.map.tables();
    let memory = MapMemory {
        places: LentMemory::new(places.to_vec().leak(), |_| ()),
        heat: LentMemory::new(heat.to_vec().leak(), |_| ()),
    };
    let volume = AwaitedVolume::new(geometry, settings).receive(&state, memory);
    let volume = volume.expect("the state is the volume's");
    Queue::new(volume, vec![bed.memory.open_queue_of(64)], pool(&geometry))
}

/// Serves writes to a volume whose member takes no discards, as a file does, and hands the volume
/// over again and again, or almost. All requests come at once then. Once they are submitted, the
/// queue is called only when it asks for it.
#[test]
fn requests_that_come_after_a_hand_over_are_not_left_waiting() {
    for seed in 0..2 {
        let shape = Shape { spare_per_mille: 200, ..shape_of(4096).0 };
        let bed = VolumeFixture { memory: MemVolume::new(8192 * PAGE_BLOCKS) };
        create(&mut bed.media(), &shape).unwrap();
        let settings = Settings { discards: false, ..Settings::new(POLICY) };
        let (volume, _) = open(&mut bed.media(), settings).unwrap();
        let buffers = pool(&volume.geometry());
        let mut queue = Queue::new(volume, vec![bed.memory.open_queue_of(64)], buffers);
        let pages = queue.geometry().blocks / PAGE_BLOCKS;
        let mut chance = flash::Rng::new(seed);
        let mut bufs: Vec<_> = (0..32).map(|index| leak_buf(PAGE_BYTES, index)).collect();
        let (mut slots, mut done) = (SlotTable::new(32), Vec::new());
        for _ in 0..150 {
            for _ in 0..chance.within(1..=8) * 32 {
                while slots.room() > 0 {
                    let range = range(chance.within(0..=pages - 1), 1);
                    let fua = chance.one_in(20);
                    let (command, buf) = (Asked::Write { range, fua }, bufs.pop());
                    let slot = slots.insert(()).unwrap();
                    queue.submit(Instant::ZERO, Submission { slot, command, buf });
                }
                queue.kick(Instant::ZERO);
                drain(&mut queue, &mut slots, &mut bufs, &mut done, 1);
            }
            drain(&mut queue, &mut slots, &mut bufs, &mut done, 32);
            queue = match chance.one_in(4) {
                true => {
                    queue.come_to_rest(Instant::ZERO);
                    queue.go_on();
                    queue
                }
                false => succeed(&bed, queue, settings),
            };
        }
    }
}

/// Polls a queue, but only when it asks for it, until it has so many free slots.
fn drain(
    queue: &mut Queue<MemQueue>,
    slots: &mut SlotTable<()>,
    bufs: &mut Vec<Buf>,
    done: &mut Vec<Completion>,
    room: usize,
) {
    while slots.room() < room {
        let (left, report) = (slots.len(), queue.volume.report());
        assert!(queue.wake_at().is_some(), "asleep with {left} requests: {report:?}");
        queue.poll(Instant::ZERO, done);
        take_back(done, slots, bufs);
    }
}

/// Takes the slots and buffers of requests that have ended, all of them well. Returns their number.
fn take_back(done: &mut Vec<Completion>, slots: &mut SlotTable<()>, bufs: &mut Vec<Buf>) -> u64 {
    let ended = done.len() as u64;
    for Completion { slot, status, buf } in done.drain(..) {
        assert_eq!(status, Status::Ok);
        slots.remove(slot);
        bufs.extend(buf);
    }
    ended
}

#[test]
fn a_queue_that_is_called_only_when_it_asks_for_it_never_falls_asleep() {
    for (seed, discards) in [(1, false), (2, true), (3, true)] {
        let shape = Shape::small(200, POLICY);
        let bed = VolumeFixture { memory: MemVolume::new(8192 * PAGE_BLOCKS) };
        create(&mut bed.media(), &shape).unwrap();
        let mut queue = bed.queue(64);
        let pages = queue.geometry().blocks / PAGE_BLOCKS;
        let mut chance = flash::Rng::new(seed);
        let (mut slots, mut done, mut ended) = (SlotTable::new(32), Vec::new(), 0);
        let mut bufs: Vec<_> = (0..32).map(|index| leak_buf(PAGE_BYTES, index)).collect();
        let mut turns = 0;
        while ended < 60_000 {
            turns += 1;
            assert!(turns < 2_000_000, "seed {seed}: no progress: {:?}", queue.volume.report());
            let mut submitted = false;
            while slots.room() > 0 {
                let range =
                    Range::new(chance.within(0..=pages - 1) * PAGE_BLOCKS, PAGE_BLOCKS as u32);
                let discard = discards && chance.within(0..=9) == 0;
                let (command, buf) = match discard {
                    true => (Asked::Discard(range), None),
                    false => (Asked::Write { range, fua: false }, bufs.pop()),
                };
                let slot = slots.insert(()).unwrap();
                queue.submit(Instant::ZERO, Submission { slot, command, buf });
                submitted = true;
            }
            if submitted {
                queue.kick(Instant::ZERO);
            }
            let left = slots.len();
            assert!(
                queue.wake_at().is_some(),
                "seed {seed}: asleep with {left} requests after {ended}"
            );
            queue.poll(Instant::ZERO, &mut done);
            ended += take_back(&mut done, &mut slots, &mut bufs);
        }
    }
}

/// Hosts' writes that joined the collector's batches once used up the free segments that collection
/// needs, so that the volume took no more writes.
#[test]
fn deep_writes_leave_the_reserve_to_the_collector() {
    for policy in [Policy::of_streams(1), Policy::HEAT3] {
        let shape = Shape::small(100, policy);
        let bed = VolumeFixture { memory: MemVolume::new(20_000 * PAGE_BLOCKS) };
        create(&mut bed.media(), &shape).unwrap();
        let (volume, _) = open(&mut bed.media(), Settings::new(policy)).unwrap();
        let pool = pool(&volume.geometry());
        let mut queue = Queue::new(volume, vec![bed.memory.open_queue()], pool);
        let pages = queue.geometry().blocks / PAGE_BLOCKS;
        let mut chance = flash::Rng::new(1);
        let (mut slots, mut done) = (SlotTable::new(128), Vec::new());
        let mut bufs: Vec<_> = (0..128).map(|index| leak_buf(PAGE_BYTES, index)).collect();
        let (mut begun, mut ended, mut turns) = (0, 0, 0);
        while ended < 3 * pages {
            turns += 1;
            assert!(turns < 200_000, "{policy:?}: no progress: {:?}", queue.volume.report());
            while slots.room() > 0 {
                // All pages once, and then any.
                let page = if begun < pages { begun } else { chance.within(0..=pages - 1) };
                begun += 1;
                let range = Range::new(page * PAGE_BLOCKS, PAGE_BLOCKS as u32);
                let (command, buf) = (Asked::Write { range, fua: false }, bufs.pop());
                let slot = slots.insert(()).unwrap();
                queue.submit(Instant::ZERO, Submission { slot, command, buf });
            }
            queue.kick(Instant::ZERO);
            queue.poll(Instant::ZERO, &mut done);
            ended += take_back(&mut done, &mut slots, &mut bufs);
        }
    }
}

/// Writes the pages from `first` on, each with its number.
fn write_pages(queue: &mut Queue<MemQueue>, first: u64, pages: u64) {
    let mut buf = leak_buf(pages as usize * PAGE_BYTES, 0);
    for (page, bytes) in
        (first..).zip(buf.prefix_mut(pages as usize * PAGE_BYTES).chunks_mut(PAGE_BYTES))
    {
        bytes.fill(page as u8);
    }
    let command = Asked::Write { range: range(first, pages as u32), fua: false };
    queue.submit(Instant::ZERO, Submission { slot: Slot::from_bits(1), command, buf: Some(buf) });
    let mut done = Vec::new();
    while done.is_empty() {
        queue.kick(Instant::ZERO);
        queue.poll(Instant::ZERO, &mut done);
    }
    assert_eq!(done[0].status, Status::Ok);
}

fn read_pages(queue: &mut Queue<MemQueue>, slot: u32, first: u64, pages: u32) {
    let buf = Some(leak_buf(pages as usize * PAGE_BYTES, 0));
    let command = Asked::Read(range(first, pages));
    queue.submit(Instant::ZERO, Submission { slot: Slot::from_bits(slot), command, buf });
}

/// Pages that lie side by side are read by one submission with the request's buffer; until it ends,
/// their segment is not written again. Other reads go through the volume.
#[test]
fn a_read_of_pages_that_lie_side_by_side_goes_to_the_member_at_once() {
    let mut queue = VolumeFixture::new(4096).queue(64);
    write_pages(&mut queue, 10, 4);
    write_pages(&mut queue, 12, 1);
    let segment = |queue: &Queue<MemQueue>, page| queue.volume.store.map.place(page) / 64;
    for (slot, first, pages, passes) in [
        (1, 10, 2, true),
        (2, 12, 1, true),
        (3, 11, 2, false),
        (4, 13, 2, false),
        (5, 20, 1, false),
    ] {
        let before = queue.passed();
        read_pages(&mut queue, slot, first, pages);
        assert_eq!(queue.passed() > before, passes, "{first}, {pages} pages");
    }
    let (of_first, room) = (segment(&queue, 10), queue.room());
    assert_eq!(queue.volume.store.segments.at(of_first).reads, 2, "two runs are read");
    assert_eq!(room, DEPTH - 5);
    let mut done = Vec::new();
    while done.len() < 5 {
        queue.kick(Instant::ZERO);
        queue.poll(Instant::ZERO, &mut done);
    }
    assert_eq!((queue.room(), queue.volume.store.segments.at(of_first).reads), (DEPTH, 0));
    assert!(queue.is_at_rest());
    done.sort_by_key(|completion| completion.slot.to_bits());
    for (Completion { status, buf, .. }, pages) in
        done.into_iter().zip([&[10, 11][..], &[12], &[11, 12], &[13, 0], &[0]])
    {
        assert_eq!(status, Status::Ok);
        let buf = buf.expect("a read brings its buffer back");
        let read: Vec<u8> = buf.bytes().chunks(PAGE_BYTES).map(|page| page[100]).collect();
        assert_eq!(read, pages);
    }
}

/// Fills a volume evenly, so that its free segments are few, and returns its media closed in order.
fn filled_evenly() -> VolumeFixture {
    let shape = Shape { spare_per_mille: 100, ..shape_of(4096).0 };
    let bed = VolumeFixture { memory: MemVolume::new(20_000 * PAGE_BLOCKS) };
    create(&mut bed.media(), &shape).unwrap();
    let mut queue = bed.queue(64);
    let pages = queue.geometry().blocks / PAGE_BLOCKS;
    let mut chance = flash::Rng::new(1);
    for page in 0..3 * pages {
        let page = if page < pages { page } else { chance.within(0..=pages - 1) };
        let write = Asked::Write { range: range(page, 1), fua: false };
        assert_eq!(run(&mut queue, write, &[page as u8; PAGE_BYTES]).0, Status::Ok);
    }
    settle(&mut queue);
    assert_eq!(close(&mut bed.media(), queue.into_volume().unwrap()), Ok(true));
    bed
}

/// Ends what is at the members. Returns the number of times that the queue had to be asked.
fn settle<D: Device>(queue: &mut Queue<D>) -> usize {
    (1..1000).find(|_| queue.quiesce(Instant::ZERO)).expect("members end what they have")
}

/// A volume that was written evenly is short of free segments when it is opened, so it collects
/// from the first turn on. Its one reader gives it back without waiting for the end of that, and
/// the next queue, the close and the check find everything.
#[test]
fn a_volume_that_collects_is_given_back_and_goes_on() {
    let bed = filled_evenly();
    let mut queue = bed.queue(64);
    let before = queue.volume.report();
    let mut tries = 0;
    while queue.is_at_rest() {
        tries += 1;
        assert!(tries < 1000, "nothing is collected: {:?}", queue.volume.report());
        assert_eq!(run(&mut queue, Asked::Read(range(tries, 1)), &[]).0, Status::Ok);
    }
    assert!(settle(&mut queue) > 1 || queue.is_at_rest());
    let unsent = queue.volume.store.commands.len();
    let volume = queue.into_volume().expect("nothing is at a member");
    let member = bed.memory.open_queue_of(64);
    let pool = pool(&volume.geometry());
    let mut queue = Queue::new(volume, vec![member], pool);
    let pages = queue.geometry().blocks / PAGE_BLOCKS;
    for page in 0..pages {
        let write = Asked::Write { range: range(page, 1), fua: false };
        assert_eq!(run(&mut queue, write, &[page as u8; PAGE_BYTES]).0, Status::Ok, "{unsent}");
    }
    assert!(queue.volume.report().moved_pages > before.moved_pages, "it collects again");
    settle(&mut queue);
    let volume = queue.into_volume().expect("nothing is at a member");
    let mut page = vec![0; 3 * PAGE_BYTES];
    crate::read(&mut bed.media(), &volume, pages - 3, &mut page).unwrap();
    let marks: Vec<u8> = page.chunks(PAGE_BYTES).map(|page| page[77]).collect();
    assert_eq!(marks, [3, 2, 1].map(|behind| (pages - behind) as u8));
    let beyond = crate::read(&mut bed.media(), &volume, pages - 2, &mut page);
    assert_eq!(beyond, Err(Status::OutOfRange));
    assert!(crate::check(&mut bed.media(), &volume).unwrap().is_sound());
    assert_eq!(close(&mut bed.media(), volume), Ok(true));
    assert!(bed.open().1, "it was closed in order");
}

#[test]
fn pages_of_a_volume_at_rest_are_read_wherever_they_lie() {
    let bed = VolumeFixture::new(4096);
    let mut queue = bed.queue(64);
    write_pages(&mut queue, 10, 4);
    write_pages(&mut queue, 12, 1);
    settle(&mut queue);
    let volume = queue.into_volume().unwrap();
    let mut bytes = vec![9; 6 * PAGE_BYTES];
    crate::read(&mut bed.media(), &volume, 9, &mut bytes).unwrap();
    let read: Vec<u8> = bytes.chunks(PAGE_BYTES).map(|page| page[100]).collect();
    assert_eq!(read, [0, 10, 11, 12, 13, 0]);
}

/// A request of many pages may not fit into a batch that moved pages have nearly filled, and no
/// other request need come.
#[test]
fn lone_requests_of_many_pages_are_not_left_waiting() {
    let policy = Policy::of_streams(3);
    let shape = Shape { spare_per_mille: 100, policy, ..shape_of(4096).0 };
    let bed = VolumeFixture { memory: MemVolume::new(16_384 * PAGE_BLOCKS) };
    create(&mut bed.media(), &shape).unwrap();
    let (volume, _) = open(&mut bed.media(), Settings::new(policy)).unwrap();
    let pool = pool(&volume.geometry());
    let mut queue = Queue::new(volume, vec![bed.memory.open_queue()], pool);
    let pages = queue.geometry().blocks / PAGE_BLOCKS;
    let (mut chance, mut buf) = (flash::Rng::new(1), Some(leak_buf(16 * PAGE_BYTES, 0)));
    let mut done = Vec::new();
    for n in 0..4 * pages / 16 {
        // All pages once, and then any.
        let first = if n < pages / 16 { 16 * n } else { chance.within(0..=pages - 16) };
        let command = Asked::Write { range: range(first, 16), fua: false };
        let submission = Submission { slot: Slot::from_bits(1), command, buf: buf.take() };
        queue.submit(Instant::ZERO, submission);
        let mut turns = 0;
        while done.is_empty() {
            queue.kick(Instant::ZERO);
            queue.poll(Instant::ZERO, &mut done);
            turns += 1;
            assert!(turns < 100_000, "request {n}: no progress: {:?}", queue.volume.report());
        }
        let Completion { status, buf: back, .. } = done.remove(0);
        assert_eq!(status, Status::Ok);
        buf = back;
    }
}
