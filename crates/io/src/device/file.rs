//! Opening the file behind a volume.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use contract::{BLOCK_BYTES, Geometry, REQUEST_BYTES_MAX};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::align::{self, Alignment};
use super::journal::{self, BlockingFile, Journal};
use super::medium;
use super::missing;
use crate::{Error, is_same_file};

/// Options for opening a file.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Refuse writes; several servers may then share the file.
    pub read_only: bool,
    /// Go past the page cache where the file system can.
    pub direct: bool,
    /// Keep a journal in `PATH.journal`, so that a crash never tears an atomic write. Regular files
    /// only.
    pub journal: bool,
    /// Take no requests finer than this (a power of two), even where the device would.
    pub granularity_bytes_min: usize,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions {
            read_only: false,
            direct: true,
            journal: true,
            granularity_bytes_min: BLOCK_BYTES,
        }
    }
}

/// An open and locked file or block device; clones share it. Each worker opens a queue to it:
/// [`FileQueue`](super::FileQueue) or [`ThreadedQueue`](super::ThreadedQueue).
#[derive(Clone, Debug)]
pub struct FileVolume {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) file: OwnedFd,
    pub(super) geometry: Geometry,
    /// Present size of the file in blocks; `geometry` has the size at its opening.
    pub(super) blocks: AtomicU64,
    pub(super) alignment: Alignment,
    pub(super) is_block_device: bool,
    /// `true` if the file is memory, to which the kernel copies while its caller waits.
    pub(super) is_in_memory: bool,
    tears_blocks: bool,
    notes: Vec<String>,
    pub(super) journal: Option<Journal>,
    /// The methods of zeroing that the file refused, as a set of bits, so that each is tried once.
    pub(super) refused_zeroing: AtomicU8,
    /// `true` if the file has refused writes with `RWF_DSYNC`, so that each durable write needs an
    /// `fdatasync` of its own.
    pub(super) refused_dsync: AtomicBool,
}

impl Shared {
    /// Returns the present size of the file in blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }
}

/// An open file before its examination.
struct UnexaminedFile {
    file: OwnedFd,
    alignment: Alignment,
    /// `true` if the file was just created.
    missing: bool,
    /// The journal that another process has passed on: `Some(None)` if its volume has none, and
    /// `None` if no process passed the file on.
    journal: Option<Option<OwnedFd>>,
}

impl FileVolume {
    /// Opens the file or block device at `path`. A missing or empty file gets `size` bytes (sparse;
    /// missing directories are created). A file that is larger than `size` is used whole.
    ///
    /// # Errors
    /// Fails if the file is missing or empty and has no `size`, smaller than `size`, no file, in
    /// use by another server, mounted, or not writable. The error says which, and what to do.
    pub fn open(
        path: impl AsRef<Path>,
        size: Option<u64>,
        options: FileOptions,
    ) -> Result<FileVolume, Error> {
        let path = path.as_ref();
        let mut notes = Vec::new();
        let is_missing = !path.exists();
        if is_missing {
            missing::prepare(path, size, options)?;
        }
        let (file, alignment) = open_aligned(path, options, &mut notes)?;
        lock(&file, path, options)?;
        let opened = UnexaminedFile { file, alignment, missing: is_missing, journal: None };
        FileVolume::of(path, size, options, opened, notes)
    }

    /// Opens a file that another process passes on with its lock: the descriptors of the file and
    /// of its journal, if it has one, as [`files`](FileVolume::files) returned them. That process's
    /// atomic writes must have ended before this one's begin.
    ///
    /// # Errors
    /// Fails as [`open`](FileVolume::open) does, and if `path` names another file by now.
    pub fn adopt(
        path: impl AsRef<Path>,
        size: Option<u64>,
        options: FileOptions,
        files: Vec<OwnedFd>,
    ) -> Result<FileVolume, Error> {
        let path = path.as_ref();
        let mut files = files.into_iter();
        let file = files.next().ok_or_else(|| Error::new("no file was passed"))?;
        let is_same = is_same_file(&file, path)
            .map_err(|e| Error::system(format!("cannot look at {}", path.display()), e))?;
        if !is_same {
            return Err(Error::new(format!(
                "{} is another file than the one that is served",
                path.display()
            )));
        }
        let flags = rustix::fs::fcntl_getfl(&file).map_err(|e| failed("ask about", path, e))?;
        let direct = flags.contains(OFlags::DIRECT).then(|| align::of(&file)).flatten();
        let alignment = direct.unwrap_or(align::BUFFERED);
        let offset = alignment.offset.max(options.granularity_bytes_min);
        let alignment = Alignment { offset, ..alignment };
        let opened =
            UnexaminedFile { file, alignment, missing: false, journal: Some(files.next()) };
        FileVolume::of(path, size, options, opened, Vec::new())
    }

    /// Returns the descriptors that another process needs to [adopt](FileVolume::adopt) the volume:
    /// of the file and of its journal, if it has one.
    ///
    /// # Errors
    /// Fails if a record of the journal could not be cleared. The first start that finds the record
    /// would write it over later data. Only a restart now can deal with it.
    pub fn files(&self) -> Result<Vec<BorrowedFd<'_>>, Error> {
        if self.shared.is_broken() {
            return Err(Error::new("a record of its journal could not be cleared"));
        }
        let journal = self.shared.journal.iter().map(|journal| journal.file.as_fd());
        Ok(std::iter::once(self.shared.file.as_fd()).chain(journal).collect())
    }

    fn of(
        path: &Path,
        size: Option<u64>,
        options: FileOptions,
        opened: UnexaminedFile,
        mut notes: Vec<String>,
    ) -> Result<FileVolume, Error> {
        let UnexaminedFile { file, alignment, missing, journal: adopted } = opened;
        let status = rustix::fs::fstat(&file).map_err(|e| failed("ask about", path, e))?;
        let block_device = is_block_device(path, status.st_mode, &mut notes)?;
        let bytes = settle_size(&file, path, size, options, missing)?;
        let physical = if block_device {
            rustix::fs::ioctl_blkpbszget(&file).unwrap_or(4096)
        } else {
            (status.st_blksize as u32).clamp(512, 65_536).next_power_of_two()
        };
        let blocks = usable_blocks(bytes, alignment, path, &mut notes)?;
        let data = BlockingFile { file: &file, path };
        let journal = match adopted {
            Some(journal) => journal.map(|file| Journal::adopt(file, status.st_ino)).transpose()?,
            None if block_device => None,
            None => open_journal(&data, status.st_ino, blocks, alignment, options, &mut notes)?,
        };
        if missing {
            sync_directory(path)?;
        }
        // With a journal, a range of the largest request has its granules whole wherever it starts.
        let atomic_bytes = match journal {
            Some(_) => REQUEST_BYTES_MAX + 2 * (alignment.offset - BLOCK_BYTES),
            None => alignment.offset,
        };
        let geometry = Geometry {
            atomic_blocks_max: (atomic_bytes / BLOCK_BYTES) as u32,
            volatile_cache: true,
            read_only: options.read_only,
            ..Geometry::new(blocks, physical.max(alignment.offset as u32))
        };
        let flags = rustix::fs::fcntl_getfl(&file).map_err(|e| failed("ask about", path, e))?;
        let tears_blocks =
            medium::tears_blocks(&file, flags.contains(OFlags::DIRECT), block_device);
        let is_in_memory = medium::is_file_in_memory(&file);
        let shared = Shared {
            file,
            geometry,
            blocks: AtomicU64::new(blocks),
            alignment,
            is_block_device: block_device,
            is_in_memory,
            tears_blocks,
            notes,
            journal,
            refused_zeroing: AtomicU8::new(0),
            refused_dsync: AtomicBool::new(false),
        };
        Ok(FileVolume { shared: Arc::new(shared) })
    }

    /// Returns the volume's geometry, with its present size.
    pub fn geometry(&self) -> Geometry {
        Geometry { blocks: self.shared.blocks(), ..self.shared.geometry }
    }

    /// Returns the granularity in bytes, of which offsets and lengths must be multiples.
    /// `flash::ExclusiveQueue::with_granularity` serves finer requests.
    pub fn granularity_bytes(&self) -> usize {
        self.shared.alignment.offset
    }

    /// Returns whether a read beside a write of the same block may find a part of the block old and
    /// a part new, so that queues need the locks of `flash::RangeLocks::for_tearing`. True for
    /// unknown media, and with the page cache.
    pub fn tears_blocks(&self) -> bool {
        self.shared.tears_blocks
    }

    /// Returns notes for the operator, for example that the page cache cannot be bypassed.
    pub fn notes(&self) -> &[String] {
        &self.shared.notes
    }
}

/// Returns whether a path names a block device, and notes a regular file below `/dev`, except in
/// `/dev/shm`.
///
/// # Errors
/// Fails if it is neither a file nor a block device.
fn is_block_device(path: &Path, mode: u32, notes: &mut Vec<String>) -> Result<bool, Error> {
    let shown = path.display();
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => {
            if missing::is_of_a_disk(path) {
                notes.push(format!(
                    "{shown} is a file in memory where a disk was expected: what is written to it is \
                     lost when the machine starts again; name a disk by what `ls /dev/disk/by-id` \
                     shows"
                ));
            }
            Ok(false)
        }
        FileType::BlockDevice => Ok(true),
        _ => Err(Error::new(format!("{shown} is neither a file nor a block device"))),
    }
}

/// Returns the number of blocks in the file's whole granules, and notes a rest, which is not used.
/// Fails if not one granule is whole.
fn usable_blocks(
    bytes: u64,
    alignment: Alignment,
    path: &Path,
    notes: &mut Vec<String>,
) -> Result<u64, Error> {
    let path = path.display();
    let tail = bytes % alignment.offset as u64;
    if tail == bytes {
        return Err(Error::new(format!("{path} holds {bytes} bytes: less than one block")));
    }
    if tail > 0 {
        notes.push(format!("{path}: the last {tail} bytes are not used"));
    }
    Ok((bytes - tail) / BLOCK_BYTES as u64)
}

/// Opens the journal beside a file and finishes the atomic writes that a crash has left in it.
/// Returns `None` if the file shall have or can have no journal.
fn open_journal(
    data: &BlockingFile<'_>,
    inode: u64,
    blocks: u64,
    alignment: Alignment,
    options: FileOptions,
    notes: &mut Vec<String>,
) -> Result<Option<Journal>, Error> {
    let path = journal::path_of(data.path);
    let possible = alignment.offset <= journal::GRANULE_BYTES_MAX;
    if options.read_only || !options.journal || !possible {
        if journal::has_records(&path) {
            return Err(Error::new(format!(
                "{} was not closed in order: {} holds writes to finish; open it once for writing, \
                 with its journal",
                data.path.display(),
                path.display()
            )));
        }
        return Ok(None);
    }
    let existed = path.exists();
    let file = match make_journal(&path, options) {
        Ok(file) => file,
        Err(error) if existed => return Err(error),
        Err(error) => {
            let _ = fs::remove_file(&path);
            notes.push(format!("{error}; only single blocks are written atomically"));
            return Ok(None);
        }
    };
    let (journal, finished) = journal::recover(file, &path, data, inode, blocks)?;
    if finished > 0 {
        let path = data.path.display();
        notes.push(format!("{path}: finished {finished} atomic writes that a crash interrupted"));
    }
    Ok(Some(journal))
}

fn make_journal(path: &Path, options: FileOptions) -> Result<OwnedFd, Error> {
    let fine = FileOptions { granularity_bytes_min: BLOCK_BYTES, ..options };
    let (mut file, needed) = open_aligned(path, fine, &mut Vec::new())?;
    if needed.offset > journal::HEADER_BYTES {
        // Its headers are finer than direct I/O takes here.
        let cached = FileOptions { direct: false, ..fine };
        file = open_aligned(path, cached, &mut Vec::new())?.0;
    }
    journal::reserve(&file).map_err(|errno| failed("make the journal", path, errno))?;
    Ok(file)
}

fn failed(what: &str, path: &Path, errno: Errno) -> Error {
    Error::system(format!("cannot {what} {}", path.display()), errno)
}

/// Returns the error for a file that is smaller than requested.
pub(super) fn fewer(path: &Path, bytes: u64, size: u64) -> Error {
    Error::new(format!(
        "{} holds {bytes} bytes, fewer than the {size} that were asked for; remove it, or leave the size \
         away to use it as it is",
        path.display()
    ))
}

/// Opens the file with direct I/O, or through the page cache if necessary. Returns its descriptor
/// and the alignment that I/O needs.
fn open_aligned(
    path: &Path,
    options: FileOptions,
    notes: &mut Vec<String>,
) -> Result<(OwnedFd, Alignment), Error> {
    let aligned = |alignment: Alignment| {
        let offset = alignment.offset.max(options.granularity_bytes_min);
        Alignment { offset, ..alignment }
    };
    if options.direct {
        match open_with(path, options, OFlags::DIRECT) {
            Ok(file) => {
                if let Some(alignment) = align::of(&file) {
                    return Ok((file, aligned(alignment)));
                }
            }
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(explain_open(path, options, errno)),
        }
        notes.push(format!(
            "{}: its file system has no direct I/O; the page cache stands between",
            path.display()
        ));
    }
    let file =
        open_with(path, options, OFlags::empty()).map_err(|e| explain_open(path, options, e))?;
    Ok((file, aligned(align::BUFFERED)))
}

fn open_with(path: &Path, options: FileOptions, direct: OFlags) -> Result<OwnedFd, Errno> {
    let is_device = fs::metadata(path).is_ok_and(|status| {
        use std::os::unix::fs::FileTypeExt;
        status.file_type().is_block_device()
    });
    let access = match (options.read_only, is_device) {
        (true, _) => OFlags::RDONLY,
        // On a block device this refuses one that is mounted or otherwise held.
        (false, true) => OFlags::RDWR | OFlags::EXCL,
        (false, false) => OFlags::RDWR | OFlags::CREATE,
    };
    rustix::fs::open(path, access | direct | OFlags::CLOEXEC, Mode::from_raw_mode(0o600))
}

fn explain_open(path: &Path, options: FileOptions, errno: Errno) -> Error {
    let shown = path.display();
    let what = match errno {
        Errno::BUSY => format!("{shown} is mounted or held by something else"),
        Errno::ISDIR => format!("{shown} is a directory; name a file in it"),
        Errno::ROFS | Errno::ACCESS | Errno::PERM => {
            let purpose = if options.read_only { "reading" } else { "writing" };
            format!("{shown} cannot be opened for {purpose} (does its owner run this?)")
        }
        _ => format!("cannot open {shown}"),
    };
    Error::system(what, errno)
}

/// Maximum number of attempts to lock a file, `LOCK_PAUSE` apart: the time that an ending server
/// may take.
const LOCK_TRIES: u32 = 150;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Maximum number of attempts to lock a file whose holder has ended already. The kernel takes some
/// seconds to free a killed server's ring and its operations in flight.
const LOCK_TRIES_OF_THE_DEAD: u32 = 1500;

/// Maximum number of times in a row that `/proc/locks` may show no holder of a lock that was
/// refused a moment before.
const UNSEEN_MAX: u32 = 50;

/// Takes the advisory lock that keeps two servers from writing to one file; a shared one if
/// `read_only`. Waits for a holder that ends or has ended.
fn lock(file: &OwnedFd, path: &Path, options: FileOptions) -> Result<(), Error> {
    let operation = match options.read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    // Looks in a row that found no holder: the kernel let go between the attempt and the look.
    let mut unseen = 0;
    for tries in 1.. {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if tries < LOCK_TRIES => {}
            Err(Errno::WOULDBLOCK) if tries < LOCK_TRIES_OF_THE_DEAD => {
                match holder_is_gone(file) {
                    Some(true) => unseen = 0,
                    None if unseen < UNSEEN_MAX => unseen += 1,
                    _ => break,
                }
                if tries == LOCK_TRIES {
                    tracing::warn!(path = %path.display(),
                        "waiting for the kernel to let go of what a killed server had open");
                }
            }
            Err(Errno::WOULDBLOCK) => break,
            Err(errno) => return Err(failed("lock", path, errno)),
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Err(Error::new(format!("{} is in use by another server", path.display())))
}

/// Returns whether the process that locked the file has ended, as far as `/proc/locks` shows;
/// `None` if no lock is there. An ended process includes one that has replaced its program
/// (`execve(2)`), since its files are closed as after a kill.
fn holder_is_gone(file: &OwnedFd) -> Option<bool> {
    let (Ok(stat), Ok(locks)) = (rustix::fs::fstat(file), fs::read_to_string("/proc/locks")) else {
        return Some(false);
    };
    let (inode, own) = (format!(":{}", stat.st_ino), std::process::id().to_string());
    let is_gone = |pid: &str| match pid == own {
        true => descriptors_of(stat.st_dev, stat.st_ino) <= 1,
        false => !Path::new("/proc").join(pid).exists(),
    };
    let holders = locks.lines().filter_map(|line| {
        // "1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF"
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields.get(5).is_some_and(|place| place.ends_with(&inode));
        if is_ours { fields.get(4).map(|pid| is_gone(pid)) } else { None }
    });
    holders.reduce(|any, is_gone| any || is_gone)
}

/// Returns the number of descriptors by which this process has the file of this device and inode
/// open, or `usize::MAX` if they cannot be listed.
fn descriptors_of(device: u64, inode: u64) -> usize {
    let Ok(own) = fs::read_dir("/proc/self/fd") else { return usize::MAX };
    let files = own.flatten().filter_map(|entry| fs::metadata(entry.path()).ok());
    files.filter(|file| (file.dev(), file.ino()) == (device, inode)).count()
}

/// Syncs the directory of `path`, so that the names of new files in it are durable.
fn sync_directory(path: &Path) -> Result<(), Error> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    fs::File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(|e| Error::system(format!("cannot sync the directory {}", parent.display()), e))
}

/// Returns the file's size in bytes, after enlarging an empty file to the requested size. Fails if
/// the file is smaller.
fn settle_size(
    file: &OwnedFd,
    path: &Path,
    size: Option<u64>,
    options: FileOptions,
    created: bool,
) -> Result<u64, Error> {
    let bytes = rustix::fs::seek(file, SeekFrom::End(0)).map_err(|e| failed("size", path, e))?;
    match size {
        Some(size) if bytes == 0 && !options.read_only => {
            // What an earlier file of this name has left must not be written into the new one.
            match fs::remove_file(journal::path_of(path)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    let journal = journal::path_of(path);
                    let what = format!("cannot remove the old journal {}", journal.display());
                    return Err(Error::system(what, e));
                }
                _ => {}
            }
            rustix::fs::ftruncate(file, size).and_then(|()| rustix::fs::fsync(file)).map_err(
                |errno| {
                    if created {
                        let _ = fs::remove_file(path);
                    }
                    failed(&format!("make {size} bytes of"), path, errno)
                },
            )?;
            Ok(size)
        }
        Some(size) if bytes < size => Err(fewer(path, bytes, size)),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A child keeps the locked file open after this process has closed it, as the kernel does for
    /// a while with the files of a ring.
    #[test]
    fn a_lock_that_this_process_has_left_is_not_that_of_another_server() {
        let path = std::env::temp_dir().join(format!("nearflash-lock-{}", std::process::id()));
        let open = || fs::File::options().create(true).append(true).open(&path).unwrap();
        let (locked, asks) = (open(), OwnedFd::from(open()));
        let lock = FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&locked, lock).unwrap();
        assert_eq!(holder_is_gone(&asks), Some(false), "it is this process");
        let (reader, writer) = std::io::pipe().unwrap();
        // The command has the file until it is dropped.
        let child = || Command::new("cat").stdin(reader).stdout(Stdio::from(locked)).spawn();
        let mut child = child().unwrap();
        assert_eq!(rustix::fs::flock(&asks, lock), Err(Errno::WOULDBLOCK));
        assert_eq!(holder_is_gone(&asks), Some(true));
        drop(writer);
        child.wait().unwrap();
        assert_eq!(holder_is_gone(&asks), None, "the lock is gone, too");
        rustix::fs::flock(&asks, lock).unwrap();
        fs::remove_file(&path).unwrap();
    }
}
