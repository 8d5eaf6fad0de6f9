//! Reads of hosts: a read becomes one command for each run of adjacent places, and ends when the
//! last of them has ended. A read of a single run needs no more than a [`PinnedPages`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use contract::{Slot, Status};

use crate::command::{
    CommandToken, MemberOperation, REQUESTS_MAX, ReadDestination, Reply, VolumeBusy,
};
use crate::map::{POISONED, UNMAPPED};
use crate::store::{COMMANDS_MAX, Store};

/// A read of a host, with the number of its commands in flight.
#[derive(Clone, Copy, Debug)]
struct Read {
    slot: Slot,
    parts: u32,
    status: Status,
}

/// The table of reads in progress.
pub(crate) struct Reads {
    table: Box<[Option<Read>]>,
    free: Vec<u16>,
}

impl Reads {
    pub(crate) fn new() -> Reads {
        Reads {
            table: (0..REQUESTS_MAX).map(|_| None).collect(),
            free: (0..REQUESTS_MAX as u16).rev().collect(),
        }
    }

    /// Begins a read of `pages` pages from `page` on. Fails if there is no room for it.
    pub(crate) fn begin(
        &mut self,
        store: &mut Store,
        slot: Slot,
        (page, pages): (u32, u32),
    ) -> Result<(), VolumeBusy> {
        let room = store.commands.len() + pages as usize <= COMMANDS_MAX;
        let Some(&index) = self.free.last().filter(|_| room) else { return Err(VolumeBusy) };
        if (page..page + pages).any(|page| store.map.place(page) == POISONED) {
            return store.answer(slot, Status::MediaError);
        }
        let mut parts = 0;
        let mut first = 0;
        while first < pages {
            let place = store.map.place(page + first);
            let mut run = 1;
            while first + run < pages && follows(store, place, run, page + first + run) {
                run += 1;
            }
            let (token, member, op) = if place == UNMAPPED {
                (CommandToken::Collect, 0, MemberOperation::Zero { slot, first, pages: run })
            } else {
                let (member, at) = store.locate(place);
                store.segments.at_mut(place / store.geometry.segment_pages).reads += run;
                parts += 1;
                let read = MemberOperation::Read {
                    at,
                    pages: run,
                    into: ReadDestination::Host(slot, first),
                };
                (CommandToken::Read(index, place, run), member, read)
            };
            store.send(token, member, op);
            first += run;
        }
        if parts == 0 {
            return store.answer(slot, Status::Ok);
        }
        self.free.pop();
        self.table[usize::from(index)] = Some(Read { slot, parts, status: Status::Ok });
        Ok(())
    }

    /// Takes the completion of one command of the read at `index`, and answers the read after its
    /// last.
    pub(crate) fn end(
        &mut self,
        store: &mut Store,
        index: u16,
        (place, pages): (u32, u32),
        status: Status,
    ) {
        let segment = place / store.geometry.segment_pages;
        store.segments.at_mut(segment).reads -= pages;
        let entry = &mut self.table[usize::from(index)];
        let read = entry.as_mut().expect("the read is in flight");
        read.parts -= 1;
        if !status.is_ok() {
            read.status = status;
        }
        if read.parts == 0 {
            store.replies.push_back(Reply { slot: read.slot, status: read.status });
            *entry = None;
            self.free.push(index);
        }
    }
}

/// A read of pages that lie side by side on a member: one command without an entry in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRun {
    pub(crate) member: u16,
    /// First page on the member.
    pub(crate) at: u64,
    pub(crate) pin: PinnedPages,
}

/// A segment that is being read, so that it is not written again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PinnedPages {
    segment: u32,
}

impl ReadRun {
    /// Begins a read of `pages` pages from `page` on; returns `None` if they do not lie side by
    /// side in one segment.
    #[inline]
    pub(crate) fn begin(store: &mut Store, page: u32, pages: u32) -> Option<ReadRun> {
        let is_inside = page.checked_add(pages).is_some_and(|end| end <= store.geometry.pages);
        if pages == 0 || !is_inside {
            return None;
        }
        let place = store.map.place(page);
        let (segment, offset) = store.geometry.split(place);
        let is_run =
            || pages == 1 || (1..pages).all(|more| store.map.place(page + more) == place + more);
        if place >= POISONED || pages > store.geometry.segment_pages - offset || !is_run() {
            return None;
        }
        let (member, at) = store.locate_in((segment, offset));
        store.segments.at_mut(segment).reads += 1;
        Some(ReadRun { member, at, pin: PinnedPages { segment } })
    }
}

impl PinnedPages {
    /// Notes that the read has ended.
    #[inline]
    pub(crate) fn end(self, store: &mut Store) {
        store.segments.at_mut(self.segment).reads -= 1;
    }
}

/// Returns `true` if the logical page `next` can be read together with the `run` pages from
/// `place`: it follows them in one segment, or all of them are unmapped.
pub(crate) fn follows(store: &Store, place: u32, run: u32, next: u32) -> bool {
    let after = store.map.place(next);
    match place {
        UNMAPPED => after == UNMAPPED,
        _ => {
            let segment = store.geometry.segment_pages;
            after == place + run && after / segment == place / segment
        }
    }
}
