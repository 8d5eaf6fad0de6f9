//! Reading all metadata, with every fault in words.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use wire::superblock::{MissingSuperblock, Search, SuperblockPage};

use crate::buddy::{Buddy, FileSpace};
use crate::entries;
use crate::error::Error;
use crate::layout::{
    CONTENT_BYTES, Geometry, INODES_PER_PAGE, InodeRecord, InodeSlot, PAGE_BYTES, PageUse,
    Superblock, TABLE_START, inodes_mut, is_sound_pool, pool_head,
};
use crate::media::Pages;
use crate::names::Names;
use crate::operations::are_records;
use crate::pool::{BLOB_PAGES_MAX, Pool, content};
use crate::table::Table;
use crate::words::{
    Image, Ino, LINK_MAX, ROOT, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG,
    S_IFSOCK,
};

/// Pages that are read at once.
const RUN_PAGES: u64 = 64;

/// Maximum number of faults that are kept in words. All are counted.
const FAULTS_MAX: usize = 1000;

/// The faults that a check has found in a file system, described in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The number of faults.
    pub count: u64,
    /// Descriptions of the first thousand faults.
    pub first: Vec<String>,
}

impl Faults {
    fn push(&mut self, fault: String) {
        self.count += 1;
        if self.first.len() < FAULTS_MAX {
            self.first.push(fault);
        }
    }
}

/// The metadata of a file system as read from its volume.
pub(crate) struct LoadedMetadata {
    pub(crate) uuid: [u8; 16],
    pub(crate) geometry: Geometry,
    pub(crate) table: Table,
    pub(crate) pool: Pool,
    pub(crate) names: Names,
    pub(crate) space: Buddy,
    pub(crate) faults: Faults,
    /// The number of names that each inode has.
    links: BTreeMap<Ino, Links>,
}

/// The names of an inode.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    names: u32,
    /// The directory of the last name.
    parent: Ino,
    /// Names of directories in this directory.
    subdirectories: u32,
    /// Pages of the pool.
    pool_pages: u32,
}

/// Returns `true` if a page is a copy of the superblock of a file system, of any version, sound or
/// damaged. The copies are the first two pages of a volume.
pub fn is_superblock(page: &[u8]) -> bool {
    !matches!(Superblock::decode(page), SuperblockPage::Nothing)
}

/// Finds the superblock of a volume.
///
/// # Errors
/// When the volume has none that this version can read.
pub(crate) fn superblock<P: Pages>(pages: &mut P) -> Result<Superblock, Error> {
    let mut bytes = vec![0; 2 * PAGE_BYTES];
    pages.read(0, &mut bytes)?;
    let (first, second) = bytes.split_at(PAGE_BYTES);
    let mut search = Search::new();
    for copy in [first, second] {
        // The copies are equal, and never change.
        search.take(Superblock::decode(copy), |_, _| false);
    }
    search.end().map_err(|missing| match missing {
        MissingSuperblock::Version(version) => Error::Version(version),
        MissingSuperblock::Damaged => Error::Damaged,
        MissingSuperblock::Nothing => Error::Nothing,
    })
}

/// Reads all metadata of a volume. Nothing is written.
///
/// # Errors
/// When there is no superblock to start from, or the volume fails.
pub(crate) fn load<P: Pages>(pages: &mut P, seed: u64) -> Result<LoadedMetadata, Error> {
    let block = superblock(pages)?;
    let geometry = Geometry::of(&block).ok_or(Error::Damaged)?;
    if pages.pages() < geometry.pages {
        return Err(Error::Shrunk(pages.pages(), geometry.pages));
    }
    let mut loaded = LoadedMetadata {
        uuid: block.uuid,
        geometry,
        table: Table::new(geometry.inodes),
        pool: Pool::new(geometry.pool_pages),
        names: Names::new(seed),
        space: Buddy::rebuild(geometry.chunks(), &[]).expect("nothing overlaps"),
        faults: Faults::default(),
        links: BTreeMap::new(),
    };
    let table_pages = u64::from(geometry.inodes / INODES_PER_PAGE);
    each_page(pages, TABLE_START, table_pages, |page, image| loaded.take_inodes(page, image))?;
    let (start, count) = (geometry.pool_start(), u64::from(geometry.pool_pages));
    let mut blobs = Blobs::new();
    each_page(pages, start, count, |page, image| {
        loaded.take_pool(page as u32, image, &mut blobs);
    })?;
    loaded.take_blobs(blobs);
    loaded.count_names();
    loaded.check_links();
    loaded.check_reach();
    loaded.take_places();
    Ok(loaded)
}

/// Reads a range of pages, and calls the visitor for each page that is not all zeroes.
fn each_page<P: Pages>(
    pages: &mut P,
    start: u64,
    count: u64,
    mut visit: impl FnMut(u64, Image),
) -> Result<(), Error> {
    let mut bytes = vec![0; RUN_PAGES as usize * PAGE_BYTES];
    let mut at = 0;
    while at < count {
        let run = RUN_PAGES.min(count - at);
        let part = &mut bytes[..run as usize * PAGE_BYTES];
        pages.read(start + at, part)?;
        for (page, content) in (at..).zip(part.chunks_exact(PAGE_BYTES)) {
            if content.iter().any(|byte| *byte != 0) {
                let mut image = Box::new([0; PAGE_BYTES]);
                image.copy_from_slice(content);
                visit(page, image);
            }
        }
        at += run;
    }
    Ok(())
}

/// The pool pages of extended attributes and link targets: by inode and use, then by index, the
/// page numbers.
type Blobs = BTreeMap<(Ino, PageUse), BTreeMap<u32, u32>>;

impl LoadedMetadata {
    /// Takes a page of the table. Damaged records are faults, and count as free.
    fn take_inodes(&mut self, page: u64, mut image: Image) {
        let first = page as u32 * INODES_PER_PAGE;
        for (ino, record) in (first..).zip(inodes_mut(&mut image)) {
            let fault = match record.judge() {
                InodeSlot::Fresh | InodeSlot::Free => None,
                InodeSlot::Damaged => Some("its checksum is wrong"),
                InodeSlot::Used if ino == 0 => Some("there is no inode 0"),
                InodeSlot::Used => fault_of(record),
            };
            if let Some(fault) = fault {
                self.faults.push(format!("inode {ino}: {fault}"));
                *record = InodeRecord::empty();
            }
        }
        self.table.load(page as usize, image);
    }

    /// Adds a page of the metadata pool, if the inode that the page names as its owner exists.
    fn take_pool(&mut self, page: u32, image: Image, blobs: &mut Blobs) {
        let head = pool_head(&image);
        let (ino, index) = (head.owner.get(), head.index.get());
        let (kind, fault) = self.judge_pool(&image);
        let fault = fault.or_else(|| match kind {
            Some(PageUse::Directory) if self.names.has_page(ino, index) => {
                Some("its number is taken")
            }
            Some(PageUse::Directory) => entries::verify(content(&image)).err(),
            Some(what) => match blobs.entry((ino, what)).or_default().entry(index) {
                Entry::Occupied(_) => Some("its number is taken"),
                Entry::Vacant(free) => {
                    free.insert(page);
                    None
                }
            },
            None => None,
        });
        if let Some(fault) = fault {
            self.faults.push(format!("page {page} of the pool, of inode {ino}: {fault}"));
            return;
        }
        self.links.entry(ino).or_default().pool_pages += 1;
        self.pool.load(page, image);
        if kind == Some(PageUse::Directory) {
            self.names.load(&self.pool, ino, index, page);
        }
    }

    /// Judges the head of a page of the pool.
    fn judge_pool(&self, image: &Image) -> (Option<PageUse>, Option<&'static str>) {
        let head = pool_head(image);
        let kind = PageUse::of(head.kind);
        if !is_sound_pool(image) {
            return (kind, Some("its checksum is wrong"));
        }
        let Some(record) = self.table.get(head.owner.get()) else {
            return (kind, Some("there is no such inode"));
        };
        if record.generation.get() != head.generation.get() {
            return (kind, Some("it belongs to an earlier inode of this number"));
        }
        let is = record.mode.get() & S_IFMT;
        let (fits, most) = match kind {
            None => return (kind, Some("its use is unknown")),
            Some(PageUse::Directory) => (is == S_IFDIR, record.size.get() / PAGE_BYTES as u64),
            Some(PageUse::Target) => (is == S_IFLNK, BLOB_PAGES_MAX as u64),
            Some(PageUse::Xattrs) => (true, BLOB_PAGES_MAX as u64),
        };
        let fault = match () {
            () if !fits => Some("the inode is of another type"),
            () if u64::from(head.index.get()) >= most => Some("its number is too large"),
            () if usize::from(head.bytes.get()) > CONTENT_BYTES => Some("its length is impossible"),
            () => None,
        };
        (kind, fault)
    }

    /// Adds extended attributes and link targets of which all pages were found.
    fn take_blobs(&mut self, blobs: Blobs) {
        for ((ino, what), pages) in blobs {
            if pages.keys().zip(0..).any(|(has, should)| *has != should) {
                self.faults.push(format!("inode {ino}: a page of its {} is missing", noun(what)));
            }
            self.pool.set_blob(ino, what, pages.into_values().collect());
            let bytes = self.pool.read_blob(ino, what);
            if what == PageUse::Xattrs && !are_records(&bytes) {
                self.faults.push(format!("inode {ino}: its attributes are damaged"));
            }
        }
        let mut faults = Vec::new();
        for (ino, record) in self.table.iter() {
            let is_link = record.mode.get() & S_IFMT == S_IFLNK;
            let bytes = if is_link { self.pool.read_blob(ino, PageUse::Target).len() } else { 0 };
            if is_link && bytes as u64 != record.size.get() {
                faults.push(format!("inode {ino}: its target has another length than its size"));
            }
            let has = self.links.get(&ino).map_or(0, |links| links.pool_pages);
            if has != record.pool_pages.get() {
                let says = record.pool_pages.get();
                faults
                    .push(format!("inode {ino}: it has {has} pages of the pool, and says {says}"));
            }
        }
        faults.into_iter().for_each(|fault| self.faults.push(fault));
    }

    /// Counts the directory entries of each inode, and checks the inodes that they name.
    fn count_names(&mut self) {
        let directories: Vec<Ino> = self.directories().collect();
        for parent in directories {
            let mut faults = Vec::new();
            let mut names = 0;
            for (place, entry) in self.names.entries_from(&self.pool, parent, 0) {
                names += 1;
                let fault = match self.names.find(&self.pool, parent, entry.name) {
                    Some(found) if found.place == place => self.fault_of_entry(&entry),
                    _ => Some("the name stands there twice"),
                };
                let name = String::from_utf8_lossy(entry.name);
                if let Some(fault) = fault {
                    faults.push(format!("directory {parent}, name {name:?}: {fault}"));
                    continue;
                }
                let links = self.links.entry(entry.ino).or_default();
                links.names += 1;
                links.parent = parent;
                let is_directory = entry.kind == S_IFDIR;
                self.links.entry(parent).or_default().subdirectories += u32::from(is_directory);
            }
            let record = self.table.get(parent).expect("the directory is in the table");
            if record.nlink.get() == 0 && names > 0 {
                faults.push(format!("directory {parent}: it was removed, and has {names} names"));
            }
            let pages = self.names.pages(parent) as u64 * PAGE_BYTES as u64;
            if record.size.get() != pages {
                let size = record.size.get();
                faults.push(format!("directory {parent}: it has {pages} bytes, and says {size}"));
            }
            faults.into_iter().for_each(|fault| self.faults.push(fault));
        }
    }

    fn fault_of_entry(&self, entry: &entries::Entry) -> Option<&'static str> {
        let Some(record) = self.table.get(entry.ino) else { return Some("there is no such inode") };
        if record.generation.get() != entry.generation {
            return Some("it names an earlier inode of this number");
        }
        let is_kind = record.mode.get() & S_IFMT == entry.kind;
        (!is_kind).then_some("the inode is of another type")
    }

    fn directories(&self) -> impl Iterator<Item = Ino> {
        let is = |record: &InodeRecord| record.mode.get() & S_IFMT == S_IFDIR;
        self.table.iter().filter(move |(_, record)| is(record)).map(|(ino, _)| ino)
    }

    /// Compares the counts of names with the inodes.
    fn check_links(&mut self) {
        let mut faults = Vec::new();
        for (ino, record) in self.table.iter() {
            let links = self.links.get(&ino).copied().unwrap_or_default();
            let nlink = record.nlink.get();
            let is_directory = record.mode.get() & S_IFMT == S_IFDIR;
            let expected = match is_directory {
                false => links.names,
                true if links.names == 0 && ino != ROOT => 0,
                true => 2 + links.subdirectories,
            };
            if nlink != expected {
                faults
                    .push(format!("inode {ino}: {expected} links lead to it, and it says {nlink}"));
            }
            if is_directory && links.names > u32::from(ino != ROOT) {
                faults.push(format!("directory {ino}: it has {} names", links.names));
            }
            let parent = if ino == ROOT { ROOT } else { links.parent };
            if is_directory && nlink > 0 && record.parent.get() != parent {
                let says = record.parent.get();
                faults.push(format!("directory {ino}: it lies in {parent}, and says {says}"));
            }
        }
        if self.table.get(ROOT).is_none_or(|record| record.mode.get() & S_IFMT != S_IFDIR) {
            faults.push(String::from("inode 1: there is no root directory"));
        }
        faults.into_iter().for_each(|fault| self.faults.push(fault));
    }

    /// Finds directories that the root does not lead to: they are in a circle.
    fn check_reach(&mut self) {
        let mut reached: BTreeMap<Ino, bool> = self.directories().map(|ino| (ino, false)).collect();
        let mut next = vec![ROOT];
        while let Some(ino) = next.pop() {
            match reached.get_mut(&ino) {
                Some(seen) if !*seen => *seen = true,
                _ => continue,
            }
            let entries = self.names.entries_from(&self.pool, ino, 0);
            next.extend(entries.filter(|(_, e)| e.kind == S_IFDIR).map(|(_, entry)| entry.ino));
        }
        for (ino, _) in reached.into_iter().filter(|(_, seen)| !seen) {
            if self.table.get(ino).is_some_and(|record| record.nlink.get() > 0) {
                self.faults.push(format!("directory {ino}: the root does not lead to it"));
            }
        }
    }

    /// Builds the allocator out of the places of all inodes.
    fn take_places(&mut self) {
        let chunks = self.geometry.chunks();
        let mut used: Vec<(FileSpace, Ino)> = Vec::new();
        let mut faults = Vec::new();
        for (ino, record) in self.table.iter() {
            let places = [FileSpace::of(record.place), FileSpace::of(record.other)];
            for place in places.into_iter().flatten() {
                match place.is_sound(chunks) {
                    true => used.push((place, ino)),
                    false => faults.push(format!("inode {ino}: its place is impossible")),
                }
            }
            let bytes =
                places[0].filter(|place| place.is_sound(chunks)).map_or(0, FileSpace::bytes);
            let is_file = record.mode.get() & S_IFMT == S_IFREG;
            if is_file && record.size.get() > bytes {
                faults.push(format!("inode {ino}: its size is beyond its place"));
            }
        }
        used.sort_unstable();
        while let Err(index) = {
            let places: Vec<FileSpace> = used.iter().map(|(place, _)| *place).collect();
            Buddy::rebuild(chunks, &places).map(|space| self.space = space)
        } {
            let (_, ino) = used.remove(index);
            let before = used[index - 1].1;
            faults.push(format!("inode {ino}: its place overlaps that of inode {before}"));
        }
        faults.into_iter().for_each(|fault| self.faults.push(fault));
    }
}

/// Returns the fault of an inode record in use that shows in the record alone; `None` if there is
/// none.
fn fault_of(record: &InodeRecord) -> Option<&'static str> {
    let kind = record.mode.get() & S_IFMT;
    let known = [S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK];
    let is_file = kind == S_IFREG;
    match () {
        () if !known.contains(&kind) || record.mode.get() & !(S_IFMT | 0o7777) != 0 => {
            Some("its type is unknown")
        }
        () if record.generation.get() == 0 => Some("it has no generation"),
        () if is_file && record.place.order_next == 0 => Some("it has no place"),
        () if !is_file && (record.place.order_next | record.other.order_next) != 0 => {
            Some("it has a place, and is no regular file")
        }
        () if kind != S_IFDIR && record.nlink.get() > LINK_MAX => Some("it has too many names"),
        () => None,
    }
}

fn noun(what: PageUse) -> &'static str {
    match what {
        PageUse::Directory => "entries",
        PageUse::Xattrs => "attributes",
        PageUse::Target => "target",
    }
}
