//! A volume that is a map of pages, with a cache that a power cut takes back, and with faults.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range as Span;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use contigfs::{Image, Pages};
use contract::{
    BLOCK_BYTES, COMMIT_PAGE_BYTES, ChoreCounters, ChoreRate, Completion, Geometry, Status,
    Submission,
};

use super::super::*;

/// Pages of the volume: 1 024 chunks.
pub(super) const VOLUME_PAGES: u64 = 1 << 20;

/// Pages of the largest commit.
pub(super) const COMMIT_PAGES_MAX: u16 = 64;

/// The content of a volume. Pages that are not there are zero.
#[derive(Clone, Default)]
pub(super) struct Memory {
    pub(super) pages: Rc<RefCell<BTreeMap<u64, Image>>>,
    /// Discards of a mount. A commit before the next flush loses them.
    pub(super) discards: Vec<Span<u64>>,
}

impl Memory {
    pub(super) fn read(&self, page: u64, into: &mut [u8]) {
        match self.pages.borrow().get(&page) {
            Some(image) => into.copy_from_slice(&image[..]),
            None => into.fill(0),
        }
    }

    /// Returns another volume with the same content.
    pub(super) fn copy(&self) -> Memory {
        Memory { pages: Rc::new(RefCell::new(self.pages.borrow().clone())), ..Memory::default() }
    }

    pub(super) fn has(&self, mut pages: Span<u64>) -> bool {
        pages.all(|page| self.pages.borrow().contains_key(&page))
    }

    pub(super) fn write(&self, page: u64, from: &[u8]) {
        let image = Box::new(<[u8; PAGE_BYTES]>::try_from(from).expect("a page"));
        self.pages.borrow_mut().insert(page, image);
    }
}

impl Pages for Memory {
    fn pages(&self) -> u64 {
        VOLUME_PAGES
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Status> {
        for (page, part) in (at..).zip(into.chunks_mut(PAGE_BYTES)) {
            Memory::read(self, page, part);
        }
        Ok(())
    }

    fn commit(&mut self, pages: &[(u64, Image)]) -> Result<(), Status> {
        self.discards.clear();
        pages.iter().for_each(|(page, image)| self.write(*page, &image[..]));
        Ok(())
    }

    fn discard(&mut self, at: u64, pages: u64) -> Result<(), Status> {
        self.discards.push(at..at + pages);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Status> {
        for range in self.discards.drain(..) {
            self.pages.borrow_mut().retain(|page, _| !range.contains(page));
        }
        Ok(())
    }
}

/// A device over a memory. Each command is carried out by the second poll after it, in the order of
/// a seed.
pub(super) struct SlowDevice {
    pub(super) memory: Memory,
    pub(super) cache: Rc<RefCell<Cache>>,
    /// Commands, each with the number of changes that the device had carried out before it came.
    pub(super) waiting: Vec<(u64, Submission)>,
    pub(super) ready: Vec<(u64, Submission)>,
    pub(super) chance: u64,
    /// The largest number of discards at a time.
    pub(super) discards_most: usize,
    pub(super) faults: Rc<RefCell<Faults>>,
}

/// The changes of pages that a power cut may take back.
#[derive(Default)]
pub(super) struct Cache {
    /// Number of all changes.
    pub(super) count: u64,
    /// For each change that is not durable its number, its page, and what the page was before.
    pub(super) changes: Vec<(u64, u64, Option<Image>)>,
    /// The commit that is under way: its number of pages, and its payload.
    pub(super) flying: Option<(u16, Vec<u8>)>,
    /// Number of commits that were carried out.
    pub(super) commits: u64,
}

impl Cache {
    pub(super) fn note(&mut self, memory: &Memory, page: u64) {
        self.count += 1;
        self.changes.push((self.count, page, memory.pages.borrow().get(&page).cloned()));
    }

    /// Makes the first changes durable.
    pub(super) fn flush(&mut self, first: u64) {
        self.changes.retain(|(number, ..)| *number > first);
    }

    /// Writes the pages of a commit, and makes the first changes of other pages durable.
    pub(super) fn commit(&mut self, memory: &Memory, pages: u16, payload: &[u8], first: u64) {
        self.flush(first);
        let (numbers, images) = payload.split_at(COMMIT_PAGE_BYTES);
        let numbers = numbers.chunks(8).take(usize::from(pages));
        for (number, image) in numbers.zip(images.chunks(COMMIT_PAGE_BYTES)) {
            let page = u64::from_le_bytes(number.try_into().unwrap());
            self.changes.retain(|(_, other, _)| *other != page);
            memory.write(page, image);
        }
    }

    /// Takes the changes of all pages back that `is_lost` names.
    pub(super) fn cut(&mut self, memory: &Memory, mut is_lost: impl FnMut(u64) -> bool) {
        let mut lost = BTreeMap::new();
        for (_, page, before) in self.changes.drain(..).rev() {
            if *lost.entry(page).or_insert_with(|| is_lost(page)) {
                match before {
                    Some(image) => memory.pages.borrow_mut().insert(page, image),
                    None => memory.pages.borrow_mut().remove(&page),
                };
            }
        }
    }
}

/// The faults of a device.
#[derive(Default)]
pub(super) struct Faults {
    /// `true` if writes fail.
    pub(super) writes: bool,
    /// `true` if flushes fail.
    pub(super) flushes: bool,
    /// `true` if writes do not end.
    pub(super) stuck: bool,
    /// `true` if pages without data have no space.
    pub(super) full: bool,
    /// A page that cannot be read.
    pub(super) unreadable: Option<u64>,
}

impl SlowDevice {
    pub(super) fn carry_out(&mut self, before: u64, submission: Submission) -> Completion {
        let mut cache = self.cache.borrow_mut();
        let Submission { slot, command, mut buf } = submission;
        let per_page = (PAGE_BYTES / BLOCK_BYTES) as u64;
        let first = command.range().map_or(0, |range| {
            assert!(range.lba.is_multiple_of(per_page), "whole pages: {command:?}");
            assert!(u64::from(range.blocks).is_multiple_of(per_page), "whole pages: {command:?}");
            range.lba / per_page
        });
        let mut status = Status::Ok;
        let faults = self.faults.borrow();
        match command {
            Command::Read(range)
                if faults.unreadable.is_some_and(|page| {
                    (first..first + u64::from(range.blocks) / per_page).contains(&page)
                }) =>
            {
                status = Status::MediaError;
            }
            Command::Read(range) => {
                let into = buf.as_mut().unwrap().prefix_mut(range.bytes());
                for (page, part) in (first..).zip(into.chunks_mut(PAGE_BYTES)) {
                    self.memory.read(page, part);
                }
            }
            Command::Write { .. } | Command::Commit { .. } if faults.writes => {
                status = Status::MediaError;
            }
            Command::Write { range, .. }
                if faults.full
                    && !self.memory.has(first..first + u64::from(range.blocks) / per_page) =>
            {
                status = Status::NoSpace;
            }
            Command::Commit { .. } if faults.full => status = Status::NoSpace,
            Command::Write { range, .. } => {
                let from = &buf.as_ref().unwrap().bytes()[..range.bytes()];
                for (page, part) in (first..).zip(from.chunks(PAGE_BYTES)) {
                    cache.note(&self.memory, page);
                    self.memory.write(page, part);
                }
            }
            Command::Commit { pages } => {
                assert!(pages <= COMMIT_PAGES_MAX);
                cache.flying = None;
                cache.commits += 1;
                cache.commit(&self.memory, pages, buf.as_ref().unwrap().bytes(), before);
            }
            Command::Discard(range) => {
                let pages = u64::from(range.blocks) / per_page;
                let there: Vec<u64> = self.memory.pages.borrow().keys().copied().collect();
                for page in there.into_iter().filter(|page| (first..first + pages).contains(page)) {
                    cache.note(&self.memory, page);
                }
                Pages::discard(&mut self.memory, first, pages).unwrap();
                Pages::flush(&mut self.memory).unwrap();
            }
            Command::Flush if faults.flushes => status = Status::MediaError,
            Command::Flush => cache.flush(before),
            other => panic!("a file system does not ask for {other:?}"),
        }
        Completion { slot, status, buf }
    }
}

impl Device for SlowDevice {
    fn geometry(&self) -> Geometry {
        Geometry {
            blocks: VOLUME_PAGES * (PAGE_BYTES / BLOCK_BYTES) as u64,
            physical_block_bytes: PAGE_BYTES as u32,
            atomic_blocks_max: 0,
            commit_pages_max: COMMIT_PAGES_MAX,
            writes_whole: false,
            volatile_cache: true,
            read_only: false,
        }
    }

    fn room(&self) -> usize {
        64 - self.waiting.len() - self.ready.len()
    }

    fn submit(&mut self, _now: Instant, submission: Submission) {
        if let (Command::Commit { pages }, Some(buf)) = (submission.command, &submission.buf) {
            self.cache.borrow_mut().flying = Some((pages, buf.bytes().to_vec()));
        }
        self.waiting.push((self.cache.borrow().count, submission));
        let all = self.waiting.iter().chain(&self.ready);
        let discards = all.filter(|other| matches!(other.1.command, Command::Discard(_))).count();
        self.discards_most = self.discards_most.max(discards);
    }

    fn kick(&mut self, _now: Instant) {}

    fn poll(&mut self, _now: Instant, done: &mut Vec<Completion>) {
        let is_stuck = |(_, submission): &mut (u64, Submission)| {
            self.faults.borrow().stuck && matches!(submission.command, Command::Write { .. })
        };
        let mut stuck: Vec<_> = self.ready.extract_if(.., is_stuck).collect();
        while !self.ready.is_empty() {
            let at = random(&mut self.chance) as usize % self.ready.len();
            let (before, submission) = self.ready.swap_remove(at);
            done.push(self.carry_out(before, submission));
        }
        self.ready.append(&mut self.waiting);
        self.ready.append(&mut stuck);
    }

    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

/// The free pages of a volume.
#[derive(Debug)]
pub(super) struct FreePages(pub(super) AtomicU64);

impl Chores for FreePages {
    fn done(&self) -> ChoreCounters {
        ChoreCounters::default()
    }

    fn uniform(&self) -> ChoreRate {
        ChoreRate::default()
    }

    fn pages(&self) -> u64 {
        VOLUME_PAGES
    }

    fn room(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

pub(super) fn random(chance: &mut u64) -> u64 {
    *chance =
        chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *chance >> 33
}
