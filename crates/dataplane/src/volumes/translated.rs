//! Volumes of flash translation: how they are created, opened and closed on their member, and the
//! queue of the one worker that serves them.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::{
    BLOCK_BYTES, BufPool, ChoreCounters, ChoreRate, Chores, Command, Completion, Device, Geometry,
    Instant, SizeClass, Status, Submission,
};
use flash::sim_flash::{SimQueue, SimVolume};
use flash::{
    DecoratedDevice, Decorations, ExclusiveQueue, FtlOptions, MemQueue, MemVolume,
    SmallWriteCounters, Source,
};
use ftl::layout::PAGE_BYTES;
use ftl::{DeviceMedia, Media, OpeningReport, Policy, Settings, Shape};
use io::device::{BlockingVolume, FileOptions, FileQueue, FileVolume, ThreadedQueue};
use io::{Owner, carve};

use super::FileBackend;
use super::gate::{DesiredState, VolumeSwitch};
use super::shared::{MapDescriptors, adopted, shared};

/// The default spare space of a volume, in thousandths.
const SPARE_PER_MILLE: u32 = 100;

/// The default minimum number of segments of a volume, as far as the limits of their size permit
/// it.
const SEGMENTS: u64 = 512;

/// Maximum number of pages whose small writes are gathered at a time.
const FRAMES: usize = 64;

/// The message by which a second queue to an `ftl:` device is refused.
pub const ONE_WORKER: &str =
    "an `ftl:` device is served by one worker; start the server with `--workers 1`";

/// The message of a refusal to open a queue, since the volume was lost with its last queue.
const LOST: &str = "the last queue to the `ftl:` device ended with requests under way, so the volume has \
                    to be recovered; start the server anew";

/// The interval at which a worker looks after a volume that comes to rest, or arrives.
pub(super) const ATTEND_PERIOD: Duration = Duration::from_micros(200);

/// The volume while no worker serves it, or the reason why it is not here.
enum VolumeLocation {
    Here(Box<ftl::Volume>),
    /// A worker's queue has the volume.
    Away,
    /// Another process has the volume, and will hand it over with the memory of its map.
    Awaited(Box<ftl::AwaitedVolume>, Option<ftl::MapMemory>),
    /// The volume was lost with a queue that ended while requests were under way.
    Lost,
}

/// A volume of flash translation over one member.
pub(super) struct TranslatedVolume {
    member: MemberDevice,
    geometry: Geometry,
    home: Arc<Mutex<VolumeLocation>>,
    chores: Arc<CombinedChores>,
    /// The time for which small writes wait for others of their page.
    absorb: Duration,
    gate: Arc<VolumeSwitch>,
    /// The memory of the map, by which another process takes the volume over; `None` if the map
    /// is in memory of this process alone.
    shared: Option<MapDescriptors>,
}

/// The work of a volume with that of the frames above it.
#[derive(Debug)]
struct CombinedChores {
    volume: Arc<dyn Chores>,
    absorption: Arc<SmallWriteCounters>,
}

/// The device on which a volume of flash translation stores its pages.
enum MemberDevice {
    Mem(MemVolume),
    Sim(SimVolume),
    File(FileVolume),
}

/// A worker's queue to a member.
pub(super) enum MemberQueue {
    /// A device whose blocks are in memory of this process.
    Mem(MemQueue),
    /// A device of flash that is simulated in this process.
    Sim(SimQueue),
    /// A file or block device, through the worker's ring.
    File(FileQueue),
    /// A file or block device, through a pool of threads.
    Threaded(ThreadedQueue),
}

/// The queue of the worker that serves a volume. Dropping it returns the volume.
pub struct TranslatedQueue {
    /// The queue; `None` until another process has handed the volume over, and when it is dropped.
    queue: Option<ftl::Queue<DecoratedDevice<MemberQueue>>>,
    /// The parts of the queue until the volume is there.
    parts: Option<(DecoratedDevice<MemberQueue>, BufPool)>,
    geometry: Geometry,
    home: Arc<Mutex<VolumeLocation>>,
    gate: Arc<VolumeSwitch>,
    /// The state that the worker has seen at the gate. It changes only between the calls by which
    /// requests are submitted, as the room of a device does.
    seen: DesiredState,
    /// `true` until the layers around the queue have asked for its depth.
    is_new: bool,
    /// `true` from when the volume is brought to rest until it goes on.
    rests: bool,
    /// Requests that came after the volume was given to another process.
    refused: Vec<Completion>,
}

/// The pages of a volume that no worker serves, read by calls that wait. The volume does nothing of
/// its own accord meanwhile.
pub(crate) struct IdleVolumeReader<'a> {
    home: MutexGuard<'a, VolumeLocation>,
    /// `None` for memory, which has no file from an earlier time.
    media: Option<FileMedia>,
    pages: u64,
}

impl std::fmt::Debug for TranslatedVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Translated").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

/// Returns the options of a member that is a file. Batches need no journal: recovery takes each
/// whole or ignores it.
pub fn member_options(read_only: bool) -> FileOptions {
    FileOptions { read_only, journal: false, ..FileOptions::default() }
}

/// Opens the file of a member that exists.
///
/// # Errors
/// Says what is wrong with the path, and what to do.
pub fn open_member(path: &str, options: FileOptions) -> Result<FileVolume, String> {
    if !Path::new(path).exists() {
        return Err(format!(
            "there is no file {path}; make a volume on it with `nearflash ftl create \
             \"ftl:file:{path}?size=SIZE\"`"
        ));
    }
    let file = FileVolume::open(path, None, options).map_err(|error| error.to_string())?;
    if file.granularity_bytes() > PAGE_BYTES {
        return Err(format!(
            "{path} takes requests of {} bytes at least, and an `ftl:` device writes pages of \
             {PAGE_BYTES}; use another device",
            file.granularity_bytes()
        ));
    }
    Ok(file)
}

/// Returns the shape of a new volume, by the wishes of a spec, on a member of so many pages.
pub fn shape(wishes: &FtlOptions, pages: u64) -> Shape {
    let segment = wishes.segment_bytes.map(|bytes| bytes / PAGE_BYTES as u64);
    let largest = (pages / SEGMENTS).max(1);
    let segment_pages = segment.unwrap_or(1 << largest.ilog2()).clamp(8, 32_768);
    let segment_pages =
        if segment.is_none() { segment_pages.clamp(64, 16_384) } else { segment_pages };
    Shape {
        uuid: io::random_uuid(),
        segment_pages: segment_pages as u32,
        spare_per_mille: wishes.spare_per_mille.unwrap_or(SPARE_PER_MILLE),
        policy: Policy::of_streams(wishes.streams.unwrap_or(3)),
        virtual_pages: wishes.virtual_bytes.map(|bytes| bytes / PAGE_BYTES as u64),
    }
}

/// Explains an error of the volume on a file, in terms of the file.
pub fn explain(path: &str, error: ftl::Error) -> String {
    match error {
        ftl::Error::NoVolume(_) => format!(
            "{path} holds no volume of flash translation; check the path, or make one with \
             `nearflash ftl create \"ftl:file:{path}\"`"
        ),
        other => format!("{path}: {other}"),
    }
}

/// Returns an error if the options of a spec differ from the existing volume.
fn check_options(wishes: &FtlOptions, geometry: &ftl::Geometry) -> Result<(), String> {
    let wished = shape(wishes, geometry.member_pages);
    let segment = u64::from(geometry.segment_pages) * PAGE_BYTES as u64;
    if wishes.segment_bytes.is_some_and(|bytes| bytes != segment) {
        return Err(format!("the volume has segments of {segment} bytes; leave `ftl.segment` out"));
    }
    if wishes.streams.is_some_and(|streams| streams != geometry.streams) {
        let streams = geometry.streams;
        return Err(format!("the volume has {streams} streams; leave `ftl.streams` out"));
    }
    let size = u64::from(geometry.pages);
    if wished.virtual_pages.is_some_and(|pages| !geometry.thin || pages != size) {
        let (kind, bytes) = (if geometry.thin { "" } else { "not " }, size * PAGE_BYTES as u64);
        return Err(format!(
            "the volume is {kind}thin and has {bytes} bytes; leave `ftl.virtual` out"
        ));
    }
    if wishes.spare_per_mille.is_some() {
        let virtual_pages = geometry.thin.then_some(size);
        let wished = Shape { segment_pages: geometry.segment_pages, virtual_pages, ..wished };
        let planned = ftl::Geometry::plan(&wished, &[geometry.member_pages]);
        if planned.is_ok_and(|planned| planned.capacity != geometry.capacity) {
            return Err("the volume has another spare space; leave `ftl.spare` out".to_owned());
        }
    }
    Ok(())
}

/// The media of a member that is a file.
pub struct FileMedia(BlockingVolume);

impl FileMedia {
    /// Returns media over a file.
    ///
    /// # Errors
    /// Fails if the system has no memory for a buffer.
    pub fn of(file: &FileVolume) -> Result<FileMedia, String> {
        BlockingVolume::new(file).map(FileMedia).map_err(|error| error.to_string())
    }
}

impl Media for FileMedia {
    fn members(&self) -> usize {
        1
    }

    fn pages(&self, _member: usize) -> u64 {
        self.0.volume().geometry().blocks * BLOCK_BYTES as u64 / PAGE_BYTES as u64
    }

    fn read(&mut self, _member: usize, at: u64, into: &mut [u8]) -> Result<(), Status> {
        self.0.read(at * PAGE_BYTES as u64, into)
    }

    fn write(&mut self, _member: usize, at: u64, from: &[u8]) -> Result<(), Status> {
        self.0.write(at * PAGE_BYTES as u64, from)
    }

    fn flush(&mut self, _member: usize) -> Result<(), Status> {
        self.0.sync()
    }
}

/// Returns media over a device that completes by itself as time passes.
fn media<D: Device>(device: D) -> Result<DeviceMedia<D>, String> {
    let class = SizeClass { bytes: 1 << 20, count: 1 };
    let arena = carve(&[class]).map_err(|error| error.to_string())?;
    let buf = arena.bufs.into_iter().next().expect("one was asked for");
    Ok(DeviceMedia::new(vec![device], buf))
}

/// Opens the volume on the media. With `discards`, freed segments are discarded on the member.
///
/// # Errors
/// The members are not the members of a volume, or are damaged, or fail.
pub fn open_volume<M: Media>(
    media: &mut M,
    discards: bool,
) -> Result<(ftl::Volume, OpeningReport), ftl::Error> {
    let geometry = ftl::describe(media)?.geometry;
    ftl::open(media, settings(&geometry, discards))
}

fn settings(geometry: &ftl::Geometry, discards: bool) -> Settings {
    Settings { discards, ..Settings::new(Policy::of_streams(geometry.streams)) }
}

/// Returns the properties of a volume's device that requests can observe.
fn seen(volume: &ftl::Geometry, volatile_cache: bool) -> Geometry {
    let physical = PAGE_BYTES as u32;
    Geometry {
        blocks: u64::from(volume.pages) * (PAGE_BYTES / BLOCK_BYTES) as u64,
        physical_block_bytes: physical,
        atomic_blocks_max: volume.batch_pages_max() * (physical / BLOCK_BYTES as u32),
        commit_pages_max: volume.commit_pages_max(),
        writes_whole: true,
        volatile_cache,
        read_only: false,
    }
}

/// Logs the result of opening a volume.
fn tell(name: &str, opened: &OpeningReport) {
    if !opened.clean {
        let (batches, torn) = (opened.batches, opened.torn_pages);
        tracing::info!(device = name, batches, torn, "recovered after an unclean stop");
    }
    if opened.damaged_copies > 0 {
        tracing::warn!(device = name, "a damaged copy of the superblock was written anew");
    }
}

impl TranslatedVolume {
    /// Opens the volume on a member. On memory, which starts empty, it is created first.
    pub(super) fn open(
        member: &Source,
        wishes: &FtlOptions,
        decorations: &Decorations,
    ) -> Result<TranslatedVolume, String> {
        let (member, volume) = match member {
            Source::File { path, .. } => {
                let file = open_member(path, member_options(false))?;
                file.notes().iter().for_each(|note| tracing::warn!("{note}"));
                let mut media = FileMedia::of(&file)?;
                let described = ftl::describe(&mut media).map_err(|error| explain(path, error))?;
                check_options(wishes, &described.geometry)
                    .map_err(|why| format!("{path}: {why}"))?;
                // A hole in a file costs more than it gives.
                let discards = !file.can_grow();
                let (mut volume, opened) =
                    open_volume(&mut media, discards).map_err(|error| explain(path, error))?;
                tell(path, &opened);
                let shared = shared(&mut volume);
                let shared = shared.inspect_err(|error| tracing::warn!(%error, "no take-over"));
                return Ok(TranslatedVolume::of(
                    MemberDevice::File(file),
                    volume,
                    shared.ok(),
                    wishes,
                ));
            }
            Source::Mem { bytes } => {
                let memory = MemVolume::new(bytes / BLOCK_BYTES as u64);
                let volume = fresh(memory.open_queue(), wishes)?;
                (MemberDevice::Mem(memory), volume)
            }
            Source::Sim { preset, bytes, age, slow } => {
                let model = preset.model().slowed(*slow);
                let blocks = bytes / BLOCK_BYTES as u64;
                let flash = SimVolume::new(model, blocks, *age, decorations.seed);
                let volume = fresh(flash.open_queue(), wishes)?;
                (MemberDevice::Sim(flash), volume)
            }
            Source::Null { .. } | Source::Ftl { .. } => {
                return Err("an `ftl:` device needs a member that keeps data".to_owned());
            }
        };
        Ok(TranslatedVolume::of(member, volume, None, wishes))
    }

    fn of(
        member: MemberDevice,
        volume: ftl::Volume,
        shared: Option<MapDescriptors>,
        wishes: &FtlOptions,
    ) -> TranslatedVolume {
        TranslatedVolume {
            geometry: seen(&volume.geometry(), matches!(member, MemberDevice::File(_))),
            member,
            chores: CombinedChores::of(volume.chores()),
            home: Arc::new(Mutex::new(VolumeLocation::Here(Box::new(volume)))),
            absorb: wishes.absorb.unwrap_or_default(),
            gate: Arc::new(VolumeSwitch::new(DesiredState::Service)),
            shared,
        }
    }

    /// Opens the member of a volume that another process serves and will hand over, through the
    /// files that it passes on. Nothing is written, and the map is not read.
    pub(super) fn adopt(
        path: &str,
        wishes: &FtlOptions,
        mut files: Vec<OwnedFd>,
    ) -> Result<TranslatedVolume, String> {
        let memory = files.split_off(files.len().saturating_sub(2));
        let options = member_options(false);
        let file = FileVolume::adopt(path, None, options, files).map_err(|e| e.to_string())?;
        let mut media = FileMedia::of(&file)?;
        let described = ftl::describe(&mut media).map_err(|error| explain(path, error))?;
        check_options(wishes, &described.geometry).map_err(|why| format!("{path}: {why}"))?;
        let settings = settings(&described.geometry, !file.can_grow());
        let awaited = Box::new(ftl::AwaitedVolume::new(described.geometry, settings));
        let (memory, shared) = adopted(memory)?;
        Ok(TranslatedVolume {
            member: MemberDevice::File(file),
            geometry: seen(&described.geometry, true),
            chores: CombinedChores::of(awaited.chores()),
            home: Arc::new(Mutex::new(VolumeLocation::Awaited(awaited, Some(memory)))),
            absorb: wishes.absorb.unwrap_or_default(),
            gate: Arc::new(VolumeSwitch::new(DesiredState::Arrival)),
            shared: Some(shared),
        })
    }

    /// Returns the descriptors by which another process [adopts](TranslatedVolume::adopt) the
    /// volume.
    pub(super) fn files(&self) -> Result<Vec<BorrowedFd<'_>>, String> {
        match (&self.member, &self.shared) {
            (MemberDevice::File(file), Some(shared)) => {
                let mut files = file.files().map_err(|error| error.to_string())?;
                files.extend(shared.files());
                Ok(files)
            }
            _ => Err("its map is memory of the process that runs alone".to_owned()),
        }
    }

    /// Returns the switch by which another thread brings the volume to rest.
    pub(super) fn gate(&self) -> &VolumeSwitch {
        &self.gate
    }

    /// Takes the state of the volume that another process hands over. It is not served yet.
    ///
    /// # Errors
    /// The state makes no sense here, or there is one already.
    pub(super) fn receive(&self, state: &[u8]) -> Result<(), String> {
        let mut home = lock(&self.home);
        let VolumeLocation::Awaited(awaited, memory) = &mut *home else {
            return Err("a volume came that nobody waits for".to_owned());
        };
        let volume = memory.take().and_then(|memory| awaited.receive(state, memory));
        let volume = volume.ok_or("the state of a volume makes no sense")?;
        *home = VolumeLocation::Here(Box::new(volume));
        Ok(())
    }

    /// Returns `true` if the volume has not come yet.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(&*lock(&self.home), VolumeLocation::Awaited(..))
    }

    /// Returns the background work of the volume, such as garbage collection, with its statistics.
    pub(super) fn chores(&self) -> Arc<dyn Chores> {
        self.chores.clone()
    }

    /// Returns `true` if small writes wait for others of their page.
    pub(super) fn lingers(&self) -> bool {
        !self.absorb.is_zero()
    }

    /// Returns the queue with frames for small writes.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn with_frames(
        &self,
        queue: ExclusiveQueue<TranslatedQueue>,
    ) -> Result<ExclusiveQueue<TranslatedQueue>, String> {
        let class = SizeClass { bytes: PAGE_BYTES, count: FRAMES };
        let arena = carve(&[class]).map_err(|error| error.to_string())?;
        Ok(queue.with_frames(arena.bufs, self.absorb, self.chores.absorption.clone()))
    }

    /// Returns the properties of the device that requests can observe.
    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns true if queues transfer directly between the member and a worker's buffers.
    pub(super) fn is_direct(&self) -> bool {
        matches!(self.member, MemberDevice::File(_))
    }

    /// Takes the volume out of the place where it is while no worker serves it; `None` if it is not
    /// there.
    fn take(&self) -> Option<Box<ftl::Volume>> {
        let mut home = lock(&self.home);
        match std::mem::replace(&mut *home, VolumeLocation::Away) {
            VolumeLocation::Here(volume) => Some(volume),
            other => {
                *home = other;
                None
            }
        }
    }

    /// Returns access to the pages of the volume, which no worker may serve.
    ///
    /// # Errors
    /// There is no memory for a buffer.
    pub(super) fn still(&self) -> Result<IdleVolumeReader<'_>, String> {
        if self.gate.wanted() == DesiredState::Arrival {
            return Err(
                "a volume whose files are namespaces is not taken over; restart the server instead"
                    .to_owned(),
            );
        }
        let media = match &self.member {
            MemberDevice::File(file) => Some(FileMedia::of(file)?),
            MemberDevice::Mem(_) | MemberDevice::Sim(_) => None,
        };
        let pages = self.geometry.blocks * BLOCK_BYTES as u64 / PAGE_BYTES as u64;
        Ok(IdleVolumeReader { home: lock(&self.home), media, pages })
    }

    /// Opens the queue of the worker that serves the volume.
    ///
    /// # Errors
    /// A worker serves the volume already, or there is no memory.
    pub(super) fn open_queue(
        &self,
        through: &FileBackend<'_>,
        n: usize,
        decorations: &Decorations,
    ) -> Result<TranslatedQueue, String> {
        let arrives = self.gate.wanted() == DesiredState::Arrival;
        let volume = match arrives {
            true => None,
            false => Some(*self.take().ok_or_else(|| match &*lock(&self.home) {
                VolumeLocation::Lost => LOST,
                _ => ONE_WORKER,
            })?),
        };
        let queue = match &self.member {
            MemberDevice::Mem(memory) => MemberQueue::Mem(memory.open_queue()),
            MemberDevice::Sim(flash) => MemberQueue::Sim(flash.open_queue()),
            MemberDevice::File(file) => match through {
                FileBackend::Ring(ring) => {
                    MemberQueue::File(FileQueue::open(file, ring, Owner::device(n)))
                }
                FileBackend::Threads(waker) => {
                    let threads = ThreadedQueue::open(file, ThreadedQueue::THREADS, waker.clone());
                    MemberQueue::Threaded(threads.map_err(|error| error.to_string())?)
                }
            },
        };
        let member = decorations.wrap(queue, 0);
        let geometry = match (&volume, &*lock(&self.home)) {
            (Some(volume), _) => volume.geometry(),
            (None, VolumeLocation::Awaited(awaited, _)) => awaited.geometry(),
            _ => return Err(ONE_WORKER.to_owned()),
        };
        let classes = ftl::Queue::<DecoratedDevice<MemberQueue>>::classes(&geometry);
        let arena = carve(&classes).map_err(|error| error.to_string())?;
        let mut queue = TranslatedQueue {
            queue: None,
            parts: Some((member, BufPool::new(arena.bufs))),
            geometry: self.geometry,
            home: self.home.clone(),
            gate: self.gate.clone(),
            seen: self.gate.wanted(),
            is_new: true,
            rests: false,
            refused: Vec::with_capacity(ftl::Queue::<DecoratedDevice<MemberQueue>>::DEPTH),
        };
        if let Some(volume) = volume {
            queue.begin(volume);
        }
        Ok(queue)
    }

    /// Closes the volume cleanly if no worker serves it, so that its next start needs no recovery.
    pub(super) fn close(&self) {
        if self.gate.wanted() != DesiredState::Service {
            return;
        }
        let (MemberDevice::File(file), Some(volume)) = (&self.member, self.take()) else { return };
        let closed = FileMedia::of(file).and_then(|mut media| {
            let closed = ftl::close(&mut media, *volume).map_err(|error| error.to_string())?;
            closed.then_some(()).ok_or_else(|| "it is read-only".to_owned())
        });
        if let Err(error) = closed {
            tracing::warn!(
                error,
                "an `ftl:` device is not closed in order; the next start recovers it"
            );
        }
    }
}

impl Drop for TranslatedVolume {
    fn drop(&mut self) {
        self.close();
    }
}

/// Creates a volume of flash translation on an empty device, and opens the volume.
fn fresh<D: Device>(device: D, wishes: &FtlOptions) -> Result<ftl::Volume, String> {
    let mut media = media(device)?;
    let shape = shape(wishes, media.pages(0));
    let created = ftl::create(&mut media, &shape);
    let opened = created.and_then(|_| open_volume(&mut media, true));
    opened.map(|(volume, _)| volume).map_err(|error| format!("`ftl:` on memory: {error}"))
}

impl CombinedChores {
    /// Returns the work of a volume with no small writes yet.
    fn of(volume: Arc<dyn Chores>) -> Arc<CombinedChores> {
        Arc::new(CombinedChores { volume, absorption: Arc::default() })
    }
}

impl Chores for CombinedChores {
    fn done(&self) -> ChoreCounters {
        ChoreCounters {
            small_writes: self.absorption.writes(),
            small_write_pages: self.absorption.pages(),
            ..self.volume.done()
        }
    }

    fn uniform(&self) -> ChoreRate {
        self.volume.uniform()
    }

    fn pages(&self) -> u64 {
        self.volume.pages()
    }

    fn room(&self) -> u64 {
        self.volume.room()
    }
}

contract::variants!(each, MemberQueue: Mem, Sim, File, Threaded);

impl Device for MemberQueue {
    contract::device_by!(each);
}

impl TranslatedQueue {
    fn begin(&mut self, volume: ftl::Volume) {
        let (member, pool) = self.parts.take().expect("a queue begins once");
        self.queue = Some(ftl::Queue::new(volume, vec![member], pool));
    }

    /// Says that the layers around the queue are built. From now on requests come when the volume
    /// can take them.
    pub(super) fn settle(&mut self) {
        self.is_new = false;
    }

    /// Returns `true` if the volume is to come to rest.
    pub(super) fn is_to_rest(&self) -> bool {
        self.gate.wanted() == DesiredState::Rest
    }

    /// Does what another thread wants of a volume without requests. Returns the time of the next
    /// call; `None` if nothing is to be done.
    pub(super) fn attend(&mut self, now: Instant) -> Option<Instant> {
        self.seen = self.gate.wanted();
        match self.seen {
            DesiredState::Service if self.parts.is_some() => {
                self.arrive();
                Some(now)
            }
            DesiredState::Service if self.rests => {
                self.rests = false;
                if let Some(queue) = &mut self.queue {
                    queue.go_on();
                    queue.kick(now);
                }
                Some(now)
            }
            DesiredState::Service | DesiredState::Nothing => None,
            DesiredState::Arrival => Some(now + ATTEND_PERIOD),
            DesiredState::Rest => {
                self.rests = true;
                let queue = self.queue.as_mut()?;
                if !self.gate.is_over() {
                    match queue.come_to_rest(now) {
                        ftl::RestProgress::Awaited => {}
                        ftl::RestProgress::Reached => self.gate.rests(queue.hand_over()),
                        ftl::RestProgress::Never => self.gate.never_rests(),
                    }
                }
                Some(now + ATTEND_PERIOD)
            }
        }
    }

    /// Takes the volume that another process has handed over.
    fn arrive(&mut self) {
        let mut home = lock(&self.home);
        match std::mem::replace(&mut *home, VolumeLocation::Away) {
            VolumeLocation::Here(volume) => {
                drop(home);
                self.begin(*volume);
            }
            other => *home = other,
        }
    }

    /// Processes completions of the device below the volume, and starts no new operations. Returns
    /// `true` once the queue can be dropped: see [`ftl::Queue::quiesce`].
    pub(super) fn quiesce(&mut self, now: Instant) -> bool {
        self.queue.as_mut().is_none_or(|queue| queue.quiesce(now))
    }
}

/// Locks a volume's home. No holder leaves it halfway.
fn lock(home: &Mutex<VolumeLocation>) -> MutexGuard<'_, VolumeLocation> {
    home.lock().unwrap_or_else(PoisonError::into_inner)
}

impl contigfs::Pages for IdleVolumeReader<'_> {
    fn pages(&self) -> u64 {
        self.pages
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Status> {
        match (&mut self.media, &*self.home) {
            (Some(media), VolumeLocation::Here(volume)) => ftl::read(media, volume, at, into),
            (None, VolumeLocation::Here(_)) => {
                into.fill(0);
                Ok(())
            }
            _ => Err(Status::Internal),
        }
    }

    fn commit(&mut self, _pages: &[(u64, contigfs::Image)]) -> Result<(), Status> {
        Err(Status::ReadOnly)
    }

    fn discard(&mut self, _at: u64, _pages: u64) -> Result<(), Status> {
        Err(Status::ReadOnly)
    }

    fn flush(&mut self) -> Result<(), Status> {
        Err(Status::ReadOnly)
    }
}

impl Drop for TranslatedQueue {
    fn drop(&mut self) {
        if self.parts.is_some() || self.gate.wanted() == DesiredState::Nothing {
            return;
        }
        let volume = self.queue.take().and_then(ftl::Queue::into_volume);
        if volume.is_none() {
            tracing::warn!(
                "a queue to an `ftl:` device ended with requests under way; the next start recovers it"
            );
        }
        *lock(&self.home) =
            volume.map_or(VolumeLocation::Lost, |volume| VolumeLocation::Here(Box::new(volume)));
    }
}

impl Device for TranslatedQueue {
    fn geometry(&self) -> Geometry {
        self.queue.as_ref().map_or(self.geometry, Device::geometry)
    }

    fn room(&self) -> usize {
        let refusable = self.refused.capacity() - self.refused.len();
        match (self.seen, &self.queue) {
            _ if self.is_new => self.refused.capacity(),
            (DesiredState::Nothing, _) => refusable,
            (DesiredState::Service, Some(queue)) if !self.rests => queue.room(),
            _ => 0,
        }
    }

    fn excludes(&self, command: Command) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.excludes(command))
    }

    fn submit(&mut self, now: Instant, submission: Submission) {
        match &mut self.queue {
            Some(queue) if self.seen != DesiredState::Nothing => queue.submit(now, submission),
            _ => {
                let Submission { slot, buf, .. } = submission;
                self.refused.push(Completion { slot, status: Status::Retry, buf });
            }
        }
    }

    fn kick(&mut self, now: Instant) {
        if self.seen != DesiredState::Nothing {
            self.queue.iter_mut().for_each(|queue| queue.kick(now));
        }
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        self.seen = self.gate.wanted();
        done.append(&mut self.refused);
        if self.seen != DesiredState::Nothing {
            self.queue.iter_mut().for_each(|queue| queue.poll(now, done));
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let refused = (!self.refused.is_empty()).then_some(Instant::ZERO);
        refused.or_else(|| self.queue.as_ref().and_then(Device::wake_at))
    }
}
