//! Tests of files as devices: the conformance suite on every way to reach them, and the errors of
//! opening.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use contract::{BufPool, Device, Instant, Range, SlotTable, Status, Submission};
use flash::conformance::{self, Bench, ReaderCounts, TestQueue};
use flash::{ExclusiveQueue, RangeLocks};
use nearflash_io::device::{FileOptions, FileQueue, FileVolume, ThreadedQueue};
use nearflash_io::{Clock, Network, Owner, Reactor, Ring, Sockets, SocketsConfig, carve};

/// A directory that is removed when this value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory on the file system of the build, or on one in memory.
    fn new(name: &str, in_memory: bool) -> Scratch {
        let root = if in_memory { "/dev/shm" } else { env!("CARGO_TARGET_TMPDIR") };
        let path = Path::new(root).join(format!("nearflash-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The mode in which the bench opens its files.
#[derive(Clone, Copy)]
struct OpenMode {
    in_memory: bool,
    direct: bool,
    registered: bool,
    granularity_bytes_min: usize,
    /// `true` if the volume is a block device of 4 KiB sectors, with the file behind it.
    block_device: bool,
}

const PLAIN: OpenMode = OpenMode {
    in_memory: false,
    direct: true,
    registered: true,
    granularity_bytes_min: 512,
    block_device: false,
};

/// A block device with 4 KiB sectors whose data is in a file. It is removed when this value is
/// dropped.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn new(file: &Path) -> Result<LoopDevice, String> {
        let arguments = ["--find", "--show", "--sector-size", "4096"];
        let output = Command::new("losetup").args(arguments).arg(file).output();
        let output = output.map_err(|e| format!("losetup cannot run: {e}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(LoopDevice(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A bench whose volumes are files; `open` makes the queue.
struct Files<F> {
    scratch: Scratch,
    mode: OpenMode,
    ring: Ring,
    clock: Clock,
    pool: BufPool,
    made: usize,
    open: F,
    loop_device: Option<LoopDevice>,
}

fn locks_of(volume: &FileVolume) -> Arc<RangeLocks> {
    Arc::new(match volume.tears_blocks() {
        true => RangeLocks::for_tearing(volume.granularity_bytes()),
        false => RangeLocks::new(),
    })
}

/// Returns the queue in the layer that the server puts around every device of files.
fn surround<D: Device>(
    inner: D,
    volume: &FileVolume,
    locks: &Arc<RangeLocks>,
) -> ExclusiveQueue<D> {
    let granule = volume.granularity_bytes();
    let class =
        contract::SizeClass { bytes: ExclusiveQueue::<D>::scratch_bytes(granule), count: 2 };
    let scratch = carve(&[class]).unwrap().bufs;
    ExclusiveQueue::with_granularity(inner, locks.clone(), scratch, granule)
}

/// Enters the kernel once, and waits there until `wake_at` or for 10 ms. Returns the time
/// afterwards.
fn turn(ring: &Ring, clock: &Clock, wake_at: Option<Instant>) -> Instant {
    let now = clock.now();
    let wait = match wake_at {
        Some(at) => at.since(now).min(Duration::from_millis(10)),
        None => Duration::from_millis(10),
    };
    ring.enter((!wait.is_zero()).then_some(Some(wait)));
    clock.now()
}

impl<D: Device, F: FnMut(&FileVolume, &Ring, usize) -> D> Files<F> {
    fn new(name: &str, mode: OpenMode, open: F) -> Self {
        let ring = Ring::new().unwrap();
        let arena = carve(&BufPool::CLASSES).unwrap();
        if mode.registered {
            ring.register_buffers(&arena).unwrap();
        }
        Files {
            scratch: Scratch::new(name, mode.in_memory),
            mode,
            ring,
            clock: Clock::start(),
            pool: BufPool::new(arena.bufs),
            made: 0,
            open,
            loop_device: None,
        }
    }

    fn queue(
        &mut self,
        volume: &FileVolume,
        locks: &Arc<RangeLocks>,
        number: usize,
    ) -> ExclusiveQueue<D> {
        surround((self.open)(volume, &self.ring, number), volume, locks)
    }

    fn volume(&mut self, blocks: u64, read_only: bool) -> FileVolume {
        self.made += 1;
        let mut path = self.scratch.file(&self.made.to_string());
        let OpenMode { direct, granularity_bytes_min, block_device, .. } = self.mode;
        if block_device {
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(blocks * 512).unwrap();
            let device = LoopDevice::new(&path).unwrap();
            path = device.0.clone();
            self.loop_device = Some(device);
        }
        let options = FileOptions { direct, granularity_bytes_min, ..FileOptions::default() };
        let volume = FileVolume::open(&path, Some(blocks * 512), options).unwrap();
        if !read_only {
            return volume;
        }
        drop(volume);
        FileVolume::open(&path, None, FileOptions { read_only, ..options }).unwrap()
    }
}

impl<D: Device, F: FnMut(&FileVolume, &Ring, usize) -> D> Bench for Files<F> {
    type Queue = ExclusiveQueue<D>;

    fn fresh(&mut self, blocks: u64) -> [Self::Queue; 2] {
        let volume = self.volume(blocks, false);
        let locks = locks_of(&volume);
        [0, 1].map(|number| self.queue(&volume, &locks, number))
    }

    fn read_only(&mut self, blocks: u64) -> Option<Self::Queue> {
        let volume = self.volume(blocks, true);
        let locks = locks_of(&volume);
        Some(self.queue(&volume, &locks, 0))
    }

    fn pool(&mut self) -> &mut BufPool {
        &mut self.pool
    }

    /// Returns a number that suffices as a turn may be as short as a microsecond, and a sync as
    /// long as a second.
    fn turns_max(&self) -> usize {
        30_000_000
    }

    fn pass(&mut self, wake_at: Option<Instant>) -> Instant {
        turn(&self.ring, &self.clock, wake_at)
    }
}

fn through_the_ring(volume: &FileVolume, ring: &Ring, number: usize) -> FileQueue {
    FileQueue::open(volume, ring, Owner::device(number))
}

fn through_threads(volume: &FileVolume, ring: &Ring, _number: usize) -> ThreadedQueue {
    ThreadedQueue::open(volume, 3, ring.waker()).unwrap()
}

#[test]
fn a_file_conforms() {
    conformance::run(&mut Files::new("plain", PLAIN, through_the_ring));
}

#[test]
fn a_file_conforms_beside_sockets_and_is_released_with_its_queue() {
    let mut files = Files::new("sockets", PLAIN, through_the_ring);
    let _sockets = Sockets::new(&files.ring, SocketsConfig::default()).unwrap();
    conformance::run(&mut files);
    let path = files.scratch.file(&files.made.to_string());
    FileVolume::open(&path, None, FileOptions::default()).expect("nobody holds the file any more");
}

#[test]
fn a_file_conforms_without_registered_buffers_and_through_the_page_cache() {
    let mode = OpenMode { registered: false, direct: false, ..PLAIN };
    conformance::run(&mut Files::new("cached", mode, through_the_ring));
}

#[test]
fn a_file_of_large_granules_conforms() {
    let mode = OpenMode { granularity_bytes_min: 4096, ..PLAIN };
    conformance::run(&mut Files::new("granules", mode, through_the_ring));
}

#[test]
fn a_file_in_memory_conforms() {
    let mode = OpenMode { in_memory: true, ..PLAIN };
    conformance::run(&mut Files::new("memory", mode, through_the_ring));
}

#[test]
fn a_file_behind_threads_conforms() {
    conformance::run(&mut Files::new("threads", PLAIN, through_threads));
}

#[test]
fn a_file_of_large_granules_behind_threads_conforms() {
    let mode = OpenMode { granularity_bytes_min: 4096, in_memory: true, ..PLAIN };
    conformance::run(&mut Files::new("threads-granules", mode, through_threads));
}

/// A function that makes one pass of a thread, waits until the time if that is later, and returns
/// the time.
type Pass<'a> = dyn FnMut(Option<Instant>) -> Instant + 'a;
/// A thread's queue to a file, with its buffers and its passes.
type FileSide<'a, D> = TestQueue<'a, ExclusiveQueue<D>, &'a mut Pass<'a>>;

/// Writes blocks of one file in a thread and reads them in another, each with a queue of its own.
/// Returns whether the volume says that it tears blocks, and what the reader saw.
fn read_beside_writes<D: Device>(
    in_memory: bool,
    direct: bool,
    open: impl Fn(&FileVolume, &Ring, usize) -> D + Sync,
) -> (bool, ReaderCounts) {
    let scratch = Scratch::new(&format!("beside-{in_memory}-{direct}"), in_memory);
    let options = FileOptions { direct, ..FileOptions::default() };
    let volume = FileVolume::open(scratch.file("volume"), Some(1 << 20), options).unwrap();
    let (locks, clock, is_over) = (locks_of(&volume), Clock::start(), AtomicBool::new(false));
    let on_a_thread = |act: &mut dyn FnMut(&mut FileSide<'_, D>)| {
        let ring = Ring::new().unwrap();
        let class = contract::SizeClass { bytes: 64 << 10, count: 8 };
        let mut pool = BufPool::new(carve(&[class]).unwrap().bufs);
        let queue = surround(open(&volume, &ring, 0), &volume, &locks);
        let pass: &mut Pass<'_> = &mut |wake_at| turn(&ring, &clock, wake_at);
        act(&mut TestQueue { queue, pool: &mut pool, pass });
    };
    let mut seen = ReaderCounts::default();
    std::thread::scope(|scope| {
        scope.spawn(|| on_a_thread(&mut |side| side.write_generations(1500, &is_over)));
        on_a_thread(&mut |side| seen = side.read_generations(&is_over));
    });
    println!("in memory: {in_memory}, direct: {direct}: {seen:?}");
    assert!(seen.changes > 0, "the threads never met");
    (volume.tears_blocks(), seen)
}

#[test]
fn blocks_stay_whole_beside_writes_of_another_thread() {
    for (in_memory, direct) in [(true, true), (true, false), (false, false), (false, true)] {
        let (tears, seen) = read_beside_writes(in_memory, direct, through_the_ring);
        assert!(tears || direct && !in_memory, "the page cache tears");
        assert_eq!(seen.torn, 0, "through rings");
        let (_, seen) = read_beside_writes(in_memory, direct, through_threads);
        assert_eq!(seen.torn, 0, "through threads");
    }
}

#[test]
fn a_block_device_conforms() {
    let scratch = Scratch::new("loop", false);
    std::fs::write(scratch.file("probe"), [0; 8192]).unwrap();
    if let Err(reason) = LoopDevice::new(&scratch.file("probe")) {
        println!("SKIPPED: no loop devices here: {reason}");
        return;
    }
    let mode = OpenMode { block_device: true, ..PLAIN };
    let mut files = Files::new("block", mode, through_the_ring);
    conformance::run(&mut files);
    let device = files.loop_device.as_ref().unwrap().0.clone();
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let volume = FileVolume::open(&device, None, options).unwrap();
    assert_eq!(volume.granularity_bytes(), 4096, "sectors are granules");
    assert!(complaint(&device, Some(1 << 40), options).contains("fewer than"));
}

/// A file system of 1 MiB. It is unmounted when this value is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a file system at a folder; `None`, and says so, where that cannot be.
    fn new(at: PathBuf) -> Option<SmallDisk> {
        std::fs::create_dir_all(&at).unwrap();
        let arguments = ["-t", "tmpfs", "-o", "size=1M", "tmpfs"];
        let reason = match Command::new("mount").args(arguments).arg(&at).output() {
            Ok(output) if output.status.success() => return Some(SmallDisk(at)),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => format!("mount cannot run: {error}"),
        };
        println!("SKIPPED: no small file system here: {reason}");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_no_space_and_what_was_there_stays() {
    let scratch = Scratch::new("full", true);
    let Some(disk) = SmallDisk::new(scratch.file("disk")) else { return };
    let options = FileOptions::default();
    let volume = FileVolume::open(disk.0.join("volume"), Some(4 << 20), options).unwrap();
    let note = volume.notes().last().expect("the journal does not fit");
    assert!(note.contains("only single blocks are written atomically"), "{note}");
    assert_eq!(volume.geometry().atomic_blocks_max, volume.granularity_bytes() as u32 / 512);
    let ring = Ring::new().unwrap();
    let mut threaded = ThreadedQueue::open(&volume, 1, ring.waker()).unwrap();
    let mut ringed = FileQueue::open(&volume, &ring, Owner::device(0));
    assert_eq!(write(&mut ringed, &ring, Range::new(0, 1024)), Status::Ok);
    assert_eq!(write(&mut ringed, &ring, Range::new(2048, 2048)), Status::NoSpace);
    assert_eq!(write(&mut threaded, &ring, Range::new(4096, 2048)), Status::NoSpace);
    assert_eq!(write(&mut threaded, &ring, Range::new(8, 1000)), Status::Ok, "in place");
}

/// Checks that errors of the kernel's block layer reach the clients of a disk, as what they are,
/// and that its other blocks are served on. The disk is a loop device over a sparse file: first the
/// file's file system is full, and then the file is cut.
#[test]
fn errors_of_a_block_device_are_told_and_its_other_blocks_served() {
    let scratch = Scratch::new("failing", true);
    let Some(disk) = SmallDisk::new(scratch.file("disk")) else { return };
    let path = disk.0.join("backing");
    let backing = std::fs::File::create(&path).unwrap();
    backing.set_len(4 << 20).unwrap();
    let device = match LoopDevice::new(&path) {
        Ok(device) => device,
        Err(reason) => return println!("SKIPPED: no loop devices here: {reason}"),
    };
    let volume = FileVolume::open(&device.0, None, FileOptions::default()).unwrap();
    let ring = Ring::new().unwrap();
    let mut threaded = ThreadedQueue::open(&volume, 1, ring.waker()).unwrap();
    let mut ringed = FileQueue::open(&volume, &ring, Owner::device(0));
    let (inside, outside) = (Range::new(0, 64), Range::new(4096, 64));
    assert_eq!(write(&mut ringed, &ring, inside), Status::Ok);
    // The file system has room for the first of these, or nearly.
    write(&mut ringed, &ring, Range::new(2048, 2048));
    assert_eq!(write(&mut ringed, &ring, Range::new(4096, 2048)), Status::NoSpace);
    assert_eq!(write(&mut threaded, &ring, Range::new(6144, 2048)), Status::NoSpace);
    backing.set_len(1 << 20).unwrap();
    for _ in 0..2 {
        assert_eq!(read(&mut ringed, &ring, outside).0, Status::MediaError);
        assert_eq!(read(&mut threaded, &ring, outside).0, Status::MediaError);
    }
    for (status, bytes) in [read(&mut ringed, &ring, inside), read(&mut threaded, &ring, inside)] {
        assert!(status == Status::Ok && bytes == vec![7; inside.bytes()], "{status}");
    }
    assert_eq!(write(&mut ringed, &ring, inside), Status::Ok);
    assert_eq!(write(&mut threaded, &ring, inside), Status::Ok);
}

fn write(queue: &mut impl Device, ring: &Ring, range: Range) -> Status {
    perform(queue, ring, contract::Command::Write { range, fua: false }, range).0
}

fn read(queue: &mut impl Device, ring: &Ring, range: Range) -> (Status, Vec<u8>) {
    perform(queue, ring, contract::Command::Read(range), range)
}

/// Carries out a command on the blocks of `range`, with a buffer of sevens for a write and of
/// zeroes for a read. Returns its status, and the buffer's bytes afterwards.
fn perform(
    queue: &mut impl Device,
    ring: &Ring,
    command: contract::Command,
    range: Range,
) -> (Status, Vec<u8>) {
    let class = contract::SizeClass { bytes: range.bytes(), count: 1 };
    let mut buf = carve(&[class]).unwrap().bufs.pop().unwrap();
    let is_write = matches!(command, contract::Command::Write { .. });
    buf.bytes_mut().fill(if is_write { 7 } else { 0 });
    let slot = SlotTable::new(1).insert(()).unwrap();
    queue.submit(Instant::ZERO, Submission { slot, command, buf: Some(buf) });
    queue.kick(Instant::ZERO);
    let mut done = Vec::new();
    while done.is_empty() {
        ring.enter(Some(Some(Duration::from_millis(10))));
        queue.poll(Instant::ZERO, &mut done);
    }
    let done = done.pop().expect("one has ended");
    let buf = done.buf.expect("the buffer comes back");
    (done.status, buf.bytes()[..range.bytes()].to_vec())
}

fn complaint(path: &Path, size: Option<u64>, options: FileOptions) -> String {
    FileVolume::open(path, size, options).expect_err("it must not open").to_string()
}

#[test]
fn opening_says_what_is_wrong() {
    let scratch = Scratch::new("complaints", false);
    let options = FileOptions::default();
    let read_only = FileOptions { read_only: true, ..options };
    let missing = scratch.file("missing");
    assert!(complaint(&missing, None, options).contains("does not exist; name its size"));
    assert!(complaint(&missing, Some(4096), read_only).contains("does not exist"));
    assert!(!missing.exists());

    let small = scratch.file("small");
    std::fs::write(&small, [1; 4096]).unwrap();
    let text = complaint(&small, Some(8192), options);
    assert!(text.contains("holds 4096 bytes, fewer than the 8192"), "{text}");
    assert_eq!(std::fs::read(&small).unwrap(), [1; 4096], "it is left as it was");

    let empty = scratch.file("empty");
    std::fs::write(&empty, []).unwrap();
    assert!(complaint(&empty, None, options).contains("less than one block"));
    assert!(complaint(&scratch.0, None, options).contains("is a directory"));
    let null = complaint(Path::new("/dev/null"), None, options);
    assert!(null.contains("neither a file nor a block device"), "{null}");
    let below = complaint(&small.join("volume"), Some(4096), options);
    assert!(below.contains("cannot make the directory"), "{below}");
}

#[test]
fn a_new_file_gets_its_directories_and_an_old_one_keeps_its_size() {
    let scratch = Scratch::new("sizes", false);
    let path = scratch.file("a/b/volume");
    let options = FileOptions::default();
    let volume = FileVolume::open(&path, Some(1 << 20), options).unwrap();
    assert_eq!(volume.geometry().blocks, 2048);
    drop(volume);
    for size in [None, Some(4096), Some(1 << 20)] {
        let volume = FileVolume::open(&path, size, options).unwrap();
        assert_eq!(volume.geometry().blocks, 2048);
    }
}

#[test]
fn a_tail_that_is_no_granule_is_named_and_left_alone() {
    let scratch = Scratch::new("tail", false);
    let path = scratch.file("volume");
    std::fs::write(&path, [7; 8192 + 100]).unwrap();
    let options = FileOptions { granularity_bytes_min: 4096, ..FileOptions::default() };
    let volume = FileVolume::open(&path, None, options).unwrap();
    assert_eq!((volume.geometry().blocks, volume.granularity_bytes()), (16, 4096));
    assert!(volume.notes()[0].contains("the last 100 bytes are not used"));
}

#[test]
fn two_servers_do_not_share_a_file_unless_both_only_read() {
    let scratch = Scratch::new("lock", false);
    let path = scratch.file("volume");
    let options = FileOptions::default();
    let read_only = FileOptions { read_only: true, ..options };
    let writer = FileVolume::open(&path, Some(4096), options).unwrap();
    assert!(complaint(&path, None, options).contains("is in use by another server"));
    assert!(complaint(&path, None, read_only).contains("is in use by another server"));
    drop(writer);
    let _reader = FileVolume::open(&path, None, read_only).unwrap();
    let _another = FileVolume::open(&path, None, read_only).unwrap();
    assert!(complaint(&path, None, options).contains("is in use by another server"));
}

#[test]
fn a_file_that_is_passed_on_stays_locked_and_keeps_its_journal() {
    let scratch = Scratch::new("adopt", false);
    let path = scratch.file("volume");
    let options = FileOptions::default();
    let old = FileVolume::open(&path, Some(1 << 20), options).unwrap();
    let files: Vec<_> =
        old.files().unwrap().iter().map(|f| f.try_clone_to_owned().unwrap()).collect();
    assert_eq!(files.len(), 2, "the file and its journal");
    let new = FileVolume::adopt(&path, None, options, files).unwrap();
    assert_eq!(new.geometry(), old.geometry());
    assert_eq!(new.granularity_bytes(), old.granularity_bytes());
    drop(old);
    assert!(complaint(&path, None, options).contains("is in use by another server"));
    let other = scratch.file("other");
    std::fs::write(&other, [0; 4096]).unwrap();
    let files: Vec<_> =
        new.files().unwrap().iter().map(|f| f.try_clone_to_owned().unwrap()).collect();
    let error = FileVolume::adopt(&other, None, options, files).unwrap_err().to_string();
    assert!(error.contains("another file"), "{error}");
}
