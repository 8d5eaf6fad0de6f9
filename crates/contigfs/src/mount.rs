//! Making, mounting and checking a file system.
//!
//! A mount reads all metadata. It then completes what the last owner left: files without names are
//! taken apart, and data beyond the sizes of files are discarded. Each step leaves a file system
//! that can be mounted, so a crash in it is a crash before it.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use wire::superblock::SuperblockPage;
use zerocopy::FromZeros;

use crate::error::Error;
use crate::layout::{
    Geometry, INODES_PER_PAGE, MAGIC, ORDER_MAX, PAGE_BYTES, Superblock, VERSION, inodes_mut,
    seal_inodes,
};
use crate::ledger::OPERATION_PAGES_MAX;
use crate::load::{Faults, load};
use crate::media::Pages;
use crate::operations::data;
use crate::state::State;
use crate::system::FileSystem;
use crate::words::{ChoreWork, Image, ROOT, S_IFDIR, Time};

/// Pages that are discarded at once when a file system is made.
const DISCARD_PAGES: u64 = 1 << 20;

/// Bytes of physical space for which there is one inode.
const BYTES_PER_INODE: u64 = 64 << 10;

/// The order of the largest place that a new file gets: 1 GiB.
const NEW_ORDER_MAX: u8 = 8;

/// The sizes of a file system to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The file system's identity.
    pub uuid: [u8; 16],
    /// Numbers of inodes, a multiple of 32. The file system has one inode fewer.
    pub inodes: u32,
    /// Pages for directories, extended attributes and targets of symbolic links.
    pub pool_pages: u32,
    /// The order of a new file's place: 4 MiB · 2^order.
    pub order: u8,
}

impl Shape {
    /// Returns sizes for a volume: an inode for each 64 KiB of physical space, a page of metadata
    /// for each eight inodes, and new places of half the virtual space that there is for a file.
    pub fn of(uuid: [u8; 16], virtual_pages: u64, physical_pages: u64) -> Shape {
        let chunks = virtual_pages / crate::layout::CHUNK_PAGES;
        let inodes = physical_pages * PAGE_BYTES as u64 / BYTES_PER_INODE;
        let inodes = inodes.clamp(64, 1 << 24).min((chunks / 2).max(64));
        let inodes = (inodes as u32).next_multiple_of(INODES_PER_PAGE);
        let share = chunks / (2 * u64::from(inodes));
        let order = share.checked_ilog2().unwrap_or(0).min(u32::from(NEW_ORDER_MAX)) as u8;
        Shape { uuid, inodes, pool_pages: (inodes / 8).max(64), order }
    }
}

/// The choices of a mount.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Maximum number of pages of a commit.
    pub commit_pages_max: usize,
    /// A number that users of the file system cannot guess, for the hash of names.
    pub seed: u64,
    /// `true` if nothing may be written.
    pub read_only: bool,
}

/// Makes a file system on a volume. The whole virtual space is discarded.
///
/// # Errors
/// When the volume has a file system, the sizes are impossible, or the volume fails.
pub fn create<P: Pages>(
    pages: &mut P,
    shape: &Shape,
    now: Time,
    (uid, gid): (u32, u32),
) -> Result<(), Error> {
    let geometry = Geometry {
        pages: pages.pages(),
        inodes: shape.inodes,
        pool_pages: shape.pool_pages,
        order: shape.order.min(ORDER_MAX),
    };
    if !geometry.is_sound() {
        return Err(Error::Shape);
    }
    let mut bytes = vec![0; 2 * PAGE_BYTES];
    pages.read(0, &mut bytes)?;
    let is_ours = |page: &[u8]| !matches!(Superblock::decode(page), SuperblockPage::Nothing);
    if bytes.chunks(PAGE_BYTES).any(is_ours) {
        return Err(Error::InUse);
    }
    let mut at = 0;
    while at < geometry.pages {
        let run = DISCARD_PAGES.min(geometry.pages - at);
        pages.discard(at, run)?;
        at += run;
    }
    pages.flush()?;
    let mut block = Superblock::new_zeroed();
    block.magic = MAGIC;
    block.version = VERSION.into();
    block.uuid = shape.uuid;
    block.pages = geometry.pages.into();
    block.inodes = geometry.inodes.into();
    block.pool_pages = geometry.pool_pages.into();
    block.order = geometry.order;
    let mut first = Box::new([0; PAGE_BYTES]);
    block.encode(&mut first[..]);
    let mut table: Image = Box::new([0; PAGE_BYTES]);
    let (page, place) = geometry.inode(ROOT);
    let root = &mut inodes_mut(&mut table)[place];
    root.generation = 1.into();
    root.mode = (S_IFDIR | 0o755).into();
    (root.uid, root.gid) = (uid.into(), gid.into());
    root.nlink = 2.into();
    root.parent = ROOT.into();
    (root.times.atime, root.times.mtime) = (now.into(), now.into());
    (root.times.ctime, root.times.birth) = (now.into(), now.into());
    seal_inodes(&mut table);
    pages.commit(&[(0, first.clone()), (1, first), (page, table)])?;
    Ok(())
}

/// Mounts the file system of a volume: reads all metadata, and completes what was left unfinished.
///
/// # Errors
/// When the volume has no file system, its metadata are damaged, or the volume fails.
pub fn mount<P: Pages>(pages: &mut P, settings: &Settings) -> Result<FileSystem, Error> {
    if settings.commit_pages_max < OPERATION_PAGES_MAX {
        return Err(Error::Commits(settings.commit_pages_max, OPERATION_PAGES_MAX));
    }
    let loaded = load(pages, settings.seed)?;
    if let Some(first) = loaded.faults.first.into_iter().next() {
        return Err(Error::Inconsistent(loaded.faults.count, first));
    }
    let parts = (loaded.table, loaded.pool, loaded.names);
    let mut state = State::new(loaded.geometry, parts, loaded.space, settings.commit_pages_max);
    if settings.read_only {
        state.ledger.fail();
        return Ok(FileSystem::new(state, loaded.uuid));
    }
    for ino in state.unfinished() {
        data::recover(&mut state, ino);
    }
    let mut system = FileSystem::new(state, loaded.uuid);
    settle(&mut system, pages)?;
    Ok(system)
}

/// Carries out all commits and chores of a file system, until none is left.
///
/// # Errors
/// When the volume fails; the file system is read-only then.
pub fn settle<P: Pages>(system: &mut FileSystem, pages: &mut P) -> Result<(), Error> {
    while !system.is_idle() {
        carry_out(system, pages)?;
        match system.take_commit() {
            Some(commit) => {
                let done = pages.commit(&commit.pages);
                system.commit_ended(commit.number, done.is_ok());
                done?;
            }
            None => system.flush_attributes(),
        }
    }
    Ok(())
}

/// Carries out all chores that there are. They end together, once they are durable.
fn carry_out<P: Pages>(system: &mut FileSystem, pages: &mut P) -> Result<(), Error> {
    let chores: Vec<_> = core::iter::from_fn(|| system.take_chore()).collect();
    if chores.is_empty() {
        return Ok(());
    }
    let done = chores.iter().try_for_each(|chore| work(pages, chore.work));
    let done = done.and_then(|()| pages.flush());
    chores.iter().for_each(|chore| system.chore_ended(chore.number, done.is_ok()));
    Ok(done?)
}

/// Carries out the work of a chore.
fn work<P: Pages>(pages: &mut P, work: ChoreWork) -> Result<(), contract::Status> {
    match work {
        ChoreWork::Discard { page, pages: count } => pages.discard(page, count),
        ChoreWork::Zero { at, bytes } => {
            let page = at / PAGE_BYTES as u64;
            let from = (at % PAGE_BYTES as u64) as usize;
            let mut image = Box::new([0; PAGE_BYTES]);
            pages.read(page, &mut image[..])?;
            let part = &mut image[from..from + bytes as usize];
            if part.iter().all(|byte| *byte == 0) {
                return Ok(());
            }
            part.fill(0);
            pages.commit(&[(page, image)])
        }
    }
}

/// The findings of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// Number of inodes in use.
    pub inodes: u64,
    /// Inodes without names, which the next mount takes apart.
    pub nameless: u64,
    /// Number of directory entries.
    pub names: u64,
    /// Pages of the pool in use.
    pub pool_pages: u64,
    /// Sum of the sizes of all regular files, in bytes.
    pub bytes: u64,
    /// The faults that the check has found.
    pub faults: Faults,
}

/// Reads all metadata of a volume, and reports every fault. Nothing is written.
///
/// # Errors
/// When there is no superblock to start from, or the volume fails.
pub fn check<P: Pages>(pages: &mut P) -> Result<CheckReport, Error> {
    let loaded = load(pages, 0)?;
    let inodes: Vec<_> = loaded.table.iter().collect();
    let files = inodes.iter().filter(|(_, record)| record.place.order_next != 0);
    Ok(CheckReport {
        inodes: inodes.len() as u64,
        nameless: inodes.iter().filter(|(_, record)| record.nlink.get() == 0).count() as u64,
        names: inodes.iter().map(|(ino, _)| u64::from(loaded.names.count(*ino))).sum(),
        pool_pages: u64::from(loaded.pool.pages() - loaded.pool.pages_free()),
        bytes: files.map(|(_, record)| record.size.get()).sum(),
        faults: loaded.faults,
    })
}
