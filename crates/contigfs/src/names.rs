//! The directories in memory: the pages of each, and an index of all names.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::entries::{self, Entry};
use crate::layout::{CONTENT_BYTES, InodeRecord, PageUse};
use crate::pool::{Pool, content};
use crate::words::Ino;

/// Places of entries in a page.
const PLACES_PER_PAGE: u32 = (CONTENT_BYTES as u32).next_power_of_two() / 8;

/// The position of a directory entry: the index of the entry's page in the directory and the offset
/// there, in units of 8 bytes.
pub(crate) type EntryPosition = u32;

/// A directory's pages.
#[derive(Debug, Default)]
struct Directory {
    /// Pages of the pool; `None` for a page without entries.
    pages: Vec<Option<u32>>,
    /// The largest hole of each page in bytes.
    rooms: Vec<u16>,
    entries: u32,
}

/// A name that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundName {
    /// The position of the directory entry that has the name.
    pub(crate) place: EntryPosition,
    /// Number of the inode that the directory entry names.
    pub(crate) ino: Ino,
}

/// The pages of the pool that a change touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TouchedPages {
    /// Number of the changed page in the metadata pool.
    pub(crate) page: u32,
    /// `true` if the page was allocated for this change, and holds its first entry.
    pub(crate) is_new: bool,
    /// `true` if the page lost its last entry and was cleared.
    pub(crate) is_cleared: bool,
}

/// All directories of the file system, with an index of all names.
#[derive(Debug)]
pub(crate) struct Names {
    directories: BTreeMap<Ino, Directory>,
    /// Directory, hash of the name, place. Finds a name among millions without moving any.
    index: BTreeSet<(Ino, u32, EntryPosition)>,
    seed: u64,
}

fn split(place: EntryPosition) -> (usize, usize) {
    ((place / PLACES_PER_PAGE) as usize, (place % PLACES_PER_PAGE) as usize * 8)
}

fn join(page: usize, offset: usize) -> EntryPosition {
    page as u32 * PLACES_PER_PAGE + offset as u32 / 8
}

/// Returns the hash of a name under a seed that callers do not know, so that they cannot choose
/// names of the same hash.
fn hash(seed: u64, name: &[u8]) -> u32 {
    let mut state = seed ^ (name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for part in name.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        let mixed = u128::from(state ^ u64::from_le_bytes(word)) * 0xd6e8_feb8_6659_fd93_u128;
        state = (mixed as u64 ^ (mixed >> 64) as u64).wrapping_add(seed.rotate_left(23));
    }
    (state ^ state >> 32) as u32
}

impl Names {
    /// Returns no directories. Names are hashed with the seed.
    pub(crate) fn new(seed: u64) -> Names {
        Names { directories: BTreeMap::new(), index: BTreeSet::new(), seed }
    }

    /// Adds a directory's page that was read from the device and verified.
    pub(crate) fn load(&mut self, pool: &Pool, ino: Ino, index: u32, page: u32) {
        let directory = self.directories.entry(ino).or_default();
        let index = index as usize;
        if directory.pages.len() <= index {
            directory.pages.resize(index + 1, None);
            directory.rooms.resize(index + 1, CONTENT_BYTES as u16);
        }
        let content = content(pool.page(page));
        directory.pages[index] = Some(page);
        directory.rooms[index] = entries::room(content) as u16;
        for entry in entries::entries(content) {
            directory.entries += 1;
            self.index.insert((ino, hash(self.seed, entry.name), join(index, entry.offset)));
        }
    }

    /// Returns `true` if the directory already has a page with this number.
    pub(crate) fn has_page(&self, ino: Ino, index: u32) -> bool {
        let pages = self.directories.get(&ino).map(|directory| &directory.pages);
        pages.and_then(|pages| pages.get(index as usize)).is_some_and(Option::is_some)
    }

    /// Returns the number of a directory's entries.
    pub(crate) fn count(&self, ino: Ino) -> u32 {
        self.directories.get(&ino).map_or(0, |directory| directory.entries)
    }

    /// Returns the number of a directory's pages, without the empty ones at its end.
    pub(crate) fn pages(&self, ino: Ino) -> usize {
        self.directories.get(&ino).map_or(0, |directory| directory.pages.len())
    }

    /// Returns the entry at a place.
    pub(crate) fn entry<'a>(
        &self,
        pool: &'a Pool,
        ino: Ino,
        place: EntryPosition,
    ) -> Option<Entry<'a>> {
        let (page, offset) = split(place);
        let page = (*self.directories.get(&ino)?.pages.get(page)?)?;
        entries::entry_at(content(pool.page(page)), offset)
    }

    /// Looks a name up in a directory; returns `None` if the directory has no such name.
    pub(crate) fn find(&self, pool: &Pool, ino: Ino, name: &[u8]) -> Option<FoundName> {
        let hash = hash(self.seed, name);
        let places = self.index.range((ino, hash, 0)..=(ino, hash, EntryPosition::MAX));
        places.filter_map(|(_, _, place)| Some((*place, self.entry(pool, ino, *place)?))).find_map(
            |(place, entry)| (entry.name == name).then_some(FoundName { place, ino: entry.ino }),
        )
    }

    /// Returns the entries of a directory, from the position `from` on.
    pub(crate) fn entries_from<'a>(
        &'a self,
        pool: &'a Pool,
        ino: Ino,
        from: EntryPosition,
    ) -> impl Iterator<Item = (EntryPosition, Entry<'a>)> {
        let pages = self.directories.get(&ino).map_or(&[][..], |directory| &directory.pages);
        let (first, _) = split(from);
        let pages =
            pages.iter().enumerate().skip(first).filter_map(|(n, page)| Some((n, (*page)?)));
        pages
            .flat_map(|(n, page)| {
                let all = entries::entries(content(pool.page(page)));
                all.map(move |entry| (join(n, entry.offset), entry))
            })
            .filter(move |(place, _)| *place >= from)
    }

    /// Returns `true` if a name has room without a new page.
    pub(crate) fn has_room(&self, ino: Ino, name: &[u8]) -> bool {
        let Some(directory) = self.directories.get(&ino) else { return false };
        let need = entries::record_bytes(name);
        let mut pages = directory.pages.iter().zip(&directory.rooms);
        pages.any(|(page, room)| page.is_some() && usize::from(*room) >= need)
    }

    /// Adds a name. The caller has looked that the name has room or the pool a page.
    pub(crate) fn insert(
        &mut self,
        pool: &mut Pool,
        (ino, record): (Ino, &InodeRecord),
        name: &[u8],
        (of, of_record): (Ino, &InodeRecord),
    ) -> TouchedPages {
        let directory = self.directories.entry(ino).or_default();
        let need = entries::record_bytes(name);
        let room = |room: &u16| usize::from(*room) >= need;
        let has = (directory.pages.iter().zip(&directory.rooms))
            .position(|(page, hole)| page.is_some() && room(hole));
        let at = has.or_else(|| directory.rooms.iter().position(room)).unwrap_or_else(|| {
            directory.pages.push(None);
            directory.rooms.push(CONTENT_BYTES as u16);
            directory.pages.len() - 1
        });
        let (page, is_new) = match directory.pages[at] {
            Some(page) => (page, false),
            None => {
                let page = pool.take(ino, record, PageUse::Directory, at as u32);
                entries::clear(pool.content_mut(page));
                directory.pages[at] = Some(page);
                (page, true)
            }
        };
        let content = pool.content_mut(page);
        let (generation, kind) = (of_record.generation.get(), of_record.mode.get());
        let offset = entries::insert(content, name, of, generation, kind & crate::words::S_IFMT);
        directory.rooms[at] = entries::room(content) as u16;
        directory.entries += 1;
        self.index.insert((ino, hash(self.seed, name), join(at, offset)));
        TouchedPages { page, is_new, is_cleared: false }
    }

    /// Removes the entry at a place.
    pub(crate) fn remove(
        &mut self,
        pool: &mut Pool,
        ino: Ino,
        place: EntryPosition,
    ) -> TouchedPages {
        let entry = self.entry(pool, ino, place).expect("the place has an entry");
        let was = self.index.remove(&(ino, hash(self.seed, entry.name), place));
        assert!(was, "the index has all entries");
        let directory = self.directories.get_mut(&ino).expect("the directory has entries");
        directory.entries -= 1;
        let (at, offset) = split(place);
        let page = directory.pages[at].expect("the page has an entry");
        let content = pool.content_mut(page);
        let is_cleared = entries::remove(content, offset);
        directory.rooms[at] = entries::room(content) as u16;
        if is_cleared {
            pool.clear(page);
            directory.pages[at] = None;
            while directory.pages.last().is_some_and(Option::is_none) {
                directory.pages.pop();
                directory.rooms.pop();
            }
            if directory.pages.is_empty() {
                self.directories.remove(&ino);
            }
        }
        TouchedPages { page, is_new: false, is_cleared }
    }

    /// Makes an existing directory entry name another inode.
    pub(crate) fn replace(
        &mut self,
        pool: &mut Pool,
        ino: Ino,
        place: EntryPosition,
        (of, record): (Ino, &InodeRecord),
    ) -> TouchedPages {
        let (at, offset) = split(place);
        let page = self.directories[&ino].pages[at].expect("the page has an entry");
        let kind = record.mode.get() & crate::words::S_IFMT;
        let generation = record.generation.get();
        entries::set_inode(pool.content_mut(page), offset, of, generation, kind);
        TouchedPages { page, is_new: false, is_cleared: false }
    }
}
