//! The devices that a spec can name, opened: a closed set behind one type, for the server and for
//! local measurements alike.

mod disk;
mod gate;
pub(crate) mod hand_over;
mod shared;
mod translated;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use contract::{BLOCK_BYTES, Buf, Chores, Device, Geometry, Instant, SizeClass, TurnOutcome};
use flash::sim_flash::{SimQueue, SimVolume};
use flash::{
    DecoratedDevice, Decorations, ExclusiveQueue, MemQueue, MemVolume, Null, RangeLocks, Source,
    Spec,
};
use ftl::layout::PAGE_BYTES;
use io::device::{FileOptions, FileQueue, FileVolume, ThreadedQueue};
use io::{Owner, Ring, Waker, carve};

use crate::files::{self, DeviceFiles};
pub(crate) use translated::IdleVolumeReader;
pub use translated::TranslatedQueue;
use translated::TranslatedVolume;
pub use translated::{
    FileMedia, ONE_WORKER, explain, member_options, open_member, open_volume, shape,
};

/// Scratch buffers of a queue: the number of compare-and-writes and of requests finer than the
/// device's granularity that run at the same time on one worker.
const SCRATCH: usize = 4;

/// An opened device, from which each worker gets a queue.
#[derive(Debug)]
pub struct Volume {
    storage: Storage,
    locks: Arc<RangeLocks>,
    spec: Spec,
    files: DeviceFiles,
}

#[derive(Debug)]
enum Storage {
    Null { blocks: u64 },
    Mem(MemVolume),
    File(FileVolume),
    Sim { volume: SimVolume, blocks: u64 },
    Ftl(TranslatedVolume),
}

/// Returns a queue to no device, for the place of a removed device.
pub fn nothing() -> DecoratedDevice<AnyDevice> {
    Decorations::default().wrap(AnyDevice::Null(Null::new(0)), 0)
}

/// A worker's queue to a device.
pub enum AnyDevice {
    /// A device that discards writes and reads zeroes.
    Null(Null),
    /// A device whose blocks are in memory of this process.
    Mem(ExclusiveQueue<MemQueue>),
    /// A file or block device, through the worker's ring.
    File(ExclusiveQueue<FileQueue>),
    /// A file or block device, through a pool of threads.
    Threaded(ExclusiveQueue<ThreadedQueue>),
    /// A device of flash that is simulated in this process.
    Sim(ExclusiveQueue<SimQueue>),
    /// A volume of flash translation.
    Ftl(Box<ExclusiveQueue<TranslatedQueue>>),
}

/// The kernel interface that a queue to a file uses.
pub enum FileBackend<'a> {
    /// Through the worker's io_uring.
    Ring(&'a Ring),
    /// Through a pool of threads, which wake the worker.
    Threads(Waker),
}

impl Volume {
    /// The block count that stands for an unknown size: the largest possible size of a namespace.
    pub const UNKNOWN_BLOCKS: u64 = (1 << 60) - 1;

    /// Opens the device that the spec names.
    pub fn open(spec: &Spec) -> Result<Volume, String> {
        let storage = match &spec.source {
            Source::Null { bytes } => Storage::Null { blocks: bytes / BLOCK_BYTES as u64 },
            Source::Mem { bytes } => Storage::Mem(MemVolume::new(bytes / BLOCK_BYTES as u64)),
            Source::Sim { preset, bytes, age, slow } => {
                let (blocks, seed) = (bytes / BLOCK_BYTES as u64, spec.decorations.seed);
                let model = preset.model().slowed(*slow);
                Storage::Sim { volume: SimVolume::new(model, blocks, *age, seed), blocks }
            }
            Source::File { path, bytes, .. } => {
                let volume = FileVolume::open(Path::new(path), *bytes, FileOptions::default())
                    .map_err(|error| error.to_string())?;
                for note in volume.notes() {
                    tracing::warn!("{note}");
                }
                Storage::File(volume)
            }
            Source::Ftl { member, wishes } => {
                Storage::Ftl(TranslatedVolume::open(member, wishes, &spec.decorations)?)
            }
        };
        let mut volume = Volume::of(storage, spec);
        volume.check_asked_disk()?;
        let found = files::look(spec, volume.still()?);
        volume.files = found;
        Ok(volume)
    }

    fn of(storage: Storage, spec: &Spec) -> Volume {
        let locks = match &storage {
            Storage::File(file) if file.tears_blocks() => {
                RangeLocks::for_tearing(file.granularity_bytes())
            }
            Storage::Ftl(volume) if volume.lingers() => RangeLocks::for_frames(),
            _ => RangeLocks::new(),
        };
        let files = DeviceFiles::foreseen(spec);
        Volume { storage, locks: Arc::new(locks), spec: spec.clone(), files }
    }

    /// Opens the device of a spec that another process has open, through the files that it passes
    /// on.
    pub fn adopt(spec: &Spec, files: Vec<OwnedFd>) -> Result<Volume, String> {
        if let Source::Ftl { wishes, .. } = &spec.source
            && let Some(path) = spec.source.path()
        {
            let storage = Storage::Ftl(TranslatedVolume::adopt(path, wishes, files)?);
            return Ok(Volume::of(storage, spec));
        }
        let Source::File { path, bytes, .. } = &spec.source else { return Volume::open(spec) };
        let options = FileOptions::default();
        let volume = FileVolume::adopt(Path::new(path), *bytes, options, files);
        let storage = Storage::File(volume.map_err(|error| error.to_string())?);
        let volume = Volume::of(storage, spec);
        volume.check_asked_disk()?;
        Ok(volume)
    }

    /// Returns the file descriptors that another process needs to [adopt](Volume::adopt) the
    /// device.
    ///
    /// # Errors
    /// The device is in a state that only a restart can resolve.
    pub fn files(&self) -> Result<Vec<BorrowedFd<'_>>, String> {
        match &self.storage {
            Storage::File(volume) => volume.files().map_err(|error| error.to_string()),
            Storage::Ftl(_) if matches!(self.files, DeviceFiles::Read(_)) => {
                Err("namespaces are files of its file system".to_owned())
            }
            Storage::Ftl(volume) => volume.files(),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns a text that identifies the device in every process of this machine, or `None` for a
    /// device in memory of this process.
    pub fn identity(spec: &Spec) -> Option<String> {
        match &spec.source {
            Source::File { path, .. } => Some(format!("file:{path}")),
            Source::Null { bytes } => Some(format!("null:{bytes}")),
            Source::Mem { .. } | Source::Sim { .. } => None,
            Source::Ftl { .. } => spec.source.path().map(|path| format!("ftl:file:{path}")),
        }
    }

    /// Returns `true` if only a single worker can serve the device.
    pub fn is_of_one_worker(spec: &Spec) -> bool {
        matches!(spec.source, Source::Ftl { .. })
    }

    /// Returns the background work of the device, such as garbage collection, with its statistics;
    /// `None` if the device does none.
    pub fn chores(&self) -> Option<Arc<dyn Chores>> {
        match &self.storage {
            Storage::Ftl(volume) => Some(volume.chores()),
            _ => None,
        }
    }

    /// Closes a device cleanly, so that its next start needs no recovery. No worker may have a
    /// queue to the device.
    pub fn close(&self) {
        if let Storage::Ftl(volume) = &self.storage {
            volume.close();
        }
    }

    /// Returns the specification from which the device was opened.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Returns the files of the device.
    pub fn files_on_it(&self) -> &DeviceFiles {
        &self.files
    }

    /// Returns the device with a record of the file system that was found on it.
    pub(crate) fn with_files(self, files: DeviceFiles) -> Volume {
        Volume { files, ..self }
    }

    /// Returns access to the pages of a volume of flash translation, which no worker may serve;
    /// `None` for other devices.
    ///
    /// # Errors
    /// There is no memory for a buffer.
    pub(crate) fn still(&self) -> Result<Option<IdleVolumeReader<'_>>, String> {
        match &self.storage {
            Storage::Ftl(volume) => volume.still().map(Some),
            _ => Ok(None),
        }
    }

    /// Returns true if any request holds a range exclusively, or waits for one.
    pub fn is_claimed_alone(&self) -> bool {
        self.locks.is_claimed_alone()
    }

    /// Returns the size in blocks that the device would have, without opening it. Returns
    /// [`UNKNOWN_BLOCKS`](Volume::UNKNOWN_BLOCKS) if only opening it shows the size, as for a block
    /// device.
    ///
    /// # Errors
    /// The device cannot be opened, as far as that shows without opening it.
    pub fn foresee_blocks(spec: &Spec) -> Result<u64, String> {
        let bytes = match &spec.source {
            Source::Null { bytes } | Source::Mem { bytes } | Source::Sim { bytes, .. } => *bytes,
            Source::File { path, bytes, .. } => {
                let foreseen = FileVolume::foresee(path, *bytes).map_err(|e| e.to_string())?;
                match foreseen {
                    Some(bytes) => bytes,
                    None => return Ok(Volume::UNKNOWN_BLOCKS),
                }
            }
            Source::Ftl { .. } => return Ok(Volume::UNKNOWN_BLOCKS),
        };
        Ok(bytes / BLOCK_BYTES as u64)
    }

    /// Returns the device's size in blocks.
    pub fn blocks(&self) -> u64 {
        match &self.storage {
            Storage::Null { blocks } | Storage::Sim { blocks, .. } => *blocks,
            Storage::Mem(_) => match self.spec.source {
                Source::Mem { bytes } => bytes / BLOCK_BYTES as u64,
                _ => unreachable!("memory was opened from a memory spec"),
            },
            Storage::File(volume) => volume.geometry().blocks,
            Storage::Ftl(volume) => volume.geometry().blocks,
        }
    }

    /// Returns true if the device can be enlarged.
    pub fn can_grow(&self) -> bool {
        matches!(&self.storage, Storage::File(volume) if volume.can_grow())
    }

    /// Enlarges the device to so many blocks, if it has fewer.
    pub fn grow(&self, blocks: u64) -> Result<(), String> {
        match &self.storage {
            _ if blocks <= self.blocks() => Ok(()),
            Storage::File(volume) => {
                let granule = (volume.granularity_bytes() / BLOCK_BYTES) as u64;
                let blocks = blocks.next_multiple_of(granule);
                volume.grow(blocks).map_err(|error| error.to_string())
            }
            _ => Err("only a device that is a file can be made larger".to_owned()),
        }
    }

    /// Shrinks a device that was enlarged back to so many blocks. The cut blocks must be unused.
    pub fn cut(&self, blocks: u64) -> Result<(), String> {
        match &self.storage {
            _ if blocks >= self.blocks() => Ok(()),
            Storage::File(volume) => volume.cut(blocks).map_err(|error| error.to_string()),
            _ => Err("only a device that is a file can be made smaller".to_owned()),
        }
    }

    /// Zeroes a range in which no request is in flight.
    pub fn blank(&self, first: u64, blocks: u64) -> Result<(), String> {
        match &self.storage {
            Storage::File(volume) => volume.blank(first, blocks).map_err(|error| error.to_string()),
            Storage::Null { .. } => Ok(()),
            Storage::Mem(_) | Storage::Sim { .. } | Storage::Ftl(_) => {
                Err("only a device that is a file has room that is known to be blank".to_owned())
            }
        }
    }

    /// Checks that the device can [give space back](Volume::give_back).
    ///
    /// # Errors
    /// Says why it cannot.
    pub fn check_gives_back(&self) -> Result<(), String> {
        match &self.storage {
            Storage::File(_) | Storage::Mem(_) | Storage::Null { .. } => Ok(()),
            Storage::Ftl(_) => Err("an ftl: device takes discards from clients and hosts alone: \
                                    discard the namespace by one, and then remove it"
                .to_owned()),
            Storage::Sim { .. } => Err("a simulated device has no space to give back".to_owned()),
        }
    }

    /// Zeroes a range in which no request is in flight, and frees the space: of the file, the disk
    /// or memory.
    ///
    /// # Errors
    /// The file system or the disk refuses, or the device has no such space.
    pub fn give_back(&self, first: u64, blocks: u64) -> Result<(), String> {
        self.check_gives_back()?;
        match &self.storage {
            Storage::File(volume) => volume.free(first, blocks).map_err(|error| error.to_string()),
            Storage::Mem(volume) => {
                volume.zero_now(first, blocks);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns the properties of the device that requests can observe.
    pub fn geometry(&self) -> Geometry {
        match &self.storage {
            Storage::Null { blocks } => Null::new(*blocks).geometry(),
            Storage::Mem(volume) => volume.open_queue().geometry(),
            Storage::Sim { volume, .. } => volume.open_queue().geometry(),
            Storage::Ftl(volume) => volume.geometry(),
            Storage::File(volume) => {
                let geometry = volume.geometry();
                let granularity = volume.granularity_bytes() as u32;
                let physical_block_bytes = geometry.physical_block_bytes.max(granularity);
                Geometry { physical_block_bytes, ..geometry }
            }
        }
    }

    /// Returns the device's size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks() * BLOCK_BYTES as u64
    }

    /// Returns `true` if queues transfer directly between the device and a worker's buffers, so
    /// that registering the buffers pays.
    pub fn is_direct(&self) -> bool {
        match &self.storage {
            Storage::File(_) => true,
            Storage::Ftl(volume) => volume.is_direct(),
            Storage::Null { .. } | Storage::Mem(_) | Storage::Sim { .. } => false,
        }
    }

    /// Opens the queue of worker number `worker`. `n` is the device's index at the worker.
    pub fn open_queue(
        &self,
        through: &FileBackend<'_>,
        n: usize,
        worker: usize,
    ) -> Result<DecoratedDevice<AnyDevice>, String> {
        let locks = self.locks.clone();
        let queue = match &self.storage {
            Storage::Null { blocks } => AnyDevice::Null(Null::new(*blocks)),
            Storage::Mem(volume) => {
                let scratch = scratch(BLOCK_BYTES)?;
                AnyDevice::Mem(ExclusiveQueue::new(volume.open_queue(), locks, scratch))
            }
            Storage::Sim { volume, .. } => {
                let scratch = scratch(BLOCK_BYTES)?;
                AnyDevice::Sim(ExclusiveQueue::new(volume.open_queue(), locks, scratch))
            }
            Storage::Ftl(volume) => {
                let queue = volume.open_queue(through, n, &self.spec.decorations)?;
                let scratch = scratch(PAGE_BYTES)?;
                let queue = ExclusiveQueue::with_granularity(queue, locks, scratch, PAGE_BYTES);
                let mut queue = volume.with_frames(queue)?;
                queue.inner_at_rest().into_iter().for_each(TranslatedQueue::settle);
                // The spec's decorations are around the member.
                return Ok(Decorations::default().wrap(AnyDevice::Ftl(Box::new(queue)), 0));
            }
            Storage::File(volume) => {
                let granularity = volume.granularity_bytes();
                let scratch = scratch(granularity)?;
                match through {
                    FileBackend::Ring(ring) => {
                        let queue = FileQueue::open(volume, ring, Owner::device(n));
                        let queue =
                            ExclusiveQueue::with_granularity(queue, locks, scratch, granularity);
                        AnyDevice::File(queue)
                    }
                    FileBackend::Threads(waker) => {
                        let queue =
                            ThreadedQueue::open(volume, ThreadedQueue::THREADS, waker.clone())
                                .map_err(|error| error.to_string())?;
                        let queue =
                            ExclusiveQueue::with_granularity(queue, locks, scratch, granularity);
                        AnyDevice::Threaded(queue)
                    }
                }
            }
        };
        Ok(self.spec.decorations.wrap(queue, worker as u64))
    }
}

/// Lets queues without requests finish their background operations, and starts no new ones. Returns
/// `None` once the queues can be dropped, and otherwise the time of the next call.
pub(crate) fn rest<'a>(
    queues: impl Iterator<Item = &'a mut DecoratedDevice<AnyDevice>>,
    now: Instant,
) -> Option<TurnOutcome> {
    let (mut is_over, mut wake_at) = (true, None);
    for queue in queues {
        // The spec's decorations are around the member of such a device.
        let DecoratedDevice::Plain(AnyDevice::Ftl(outer)) = queue else { continue };
        if outer.inner_at_rest().is_none_or(|inner| inner.quiesce(now)) {
            continue;
        }
        is_over = false;
        wake_at = [wake_at, outer.wake_at()].into_iter().flatten().min();
    }
    (!is_over).then_some(TurnOutcome { progressed: false, wake_at })
}

fn scratch(granularity: usize) -> Result<Vec<Buf>, String> {
    let bytes = ExclusiveQueue::<Null>::scratch_bytes(granularity);
    let arena = carve(&[SizeClass { bytes, count: SCRATCH }]).map_err(|e| e.to_string())?;
    Ok(arena.bufs)
}

contract::variants!(each, AnyDevice: Null, Mem, File, Threaded, Sim, Ftl);

impl Device for AnyDevice {
    contract::device_by!(each);
}
