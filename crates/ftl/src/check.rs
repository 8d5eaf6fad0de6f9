//! A check of all live pages of a volume that is open and does not serve.

use alloc::vec;
use contract::Status;

use crate::error::Error;
use crate::layout::{BatchHead, PAGE_BYTES, page_sum};
use crate::map::POISONED;
use crate::open::Media;
use crate::volume::Volume;

/// The findings of a check, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Mapped pages whose data matches its checksum.
    pub whole: u64,
    /// Mapped pages whose data does not match its checksum.
    pub damaged: u64,
    /// Mapped pages for which no sound batch header has a checksum.
    pub unproved: u64,
    /// Pages known to be lost: reads of them end with a media error.
    pub poisoned: u64,
}

impl CheckReport {
    /// Returns `true` if no page is lost or in doubt.
    pub fn is_sound(&self) -> bool {
        self.damaged == 0 && self.unproved == 0 && self.poisoned == 0
    }
}

/// Media that ignore writes, so that opening a volume changes nothing.
pub struct ReadOnlyMedia<'a, M>(pub &'a mut M);

impl<M: Media> Media for ReadOnlyMedia<'_, M> {
    fn members(&self) -> usize {
        self.0.members()
    }

    fn pages(&self, member: usize) -> u64 {
        self.0.pages(member)
    }

    fn read(&mut self, member: usize, at: u64, into: &mut [u8]) -> Result<(), Status> {
        self.0.read(member, at, into)
    }

    fn write(&mut self, _member: usize, _at: u64, _from: &[u8]) -> Result<(), Status> {
        Ok(())
    }

    fn flush(&mut self, _member: usize) -> Result<(), Status> {
        Ok(())
    }
}

/// Reads all mapped pages of a volume, and compares them with their checksums. Nothing is written.
///
/// # Errors
/// Fails if a member cannot be read.
pub fn check<M: Media>(media: &mut M, volume: &Volume) -> Result<CheckReport, Error> {
    let store = &volume.store;
    let geometry = store.geometry;
    let mut found = CheckReport::default();
    for (_, place) in store.map.all() {
        found.poisoned += u64::from(place == POISONED);
        found.unproved += u64::from(place != POISONED);
    }
    let mut bytes = vec![0; geometry.segment_pages as usize * PAGE_BYTES];
    for segment in 0..geometry.segments() {
        let entry = *store.segments.at(segment);
        if entry.valid == 0 {
            continue;
        }
        let (member, at) = geometry.locate(geometry.place(segment, 0));
        let written = entry.fill.min(geometry.segment_pages) as usize * PAGE_BYTES;
        let read = media.read(usize::from(member), at, &mut bytes[..written]);
        read.map_err(|status| Error::Failed(usize::from(member), status))?;
        let mut offset = 0;
        while offset < entry.fill {
            let rest = &bytes[offset as usize * PAGE_BYTES..written];
            let Some((head, entries)) = BatchHead::decode(&rest[..rest.len().min(2 * PAGE_BYTES)])
            else {
                break;
            };
            let is_it = head.life.get() == entry.life && head.offset.get() == offset;
            if !is_it || head.pages() > entry.fill - offset {
                break;
            }
            let data = usize::from(head.data.get());
            let first = head.pages() as usize - data;
            let pages = rest[first * PAGE_BYTES..].chunks_exact(PAGE_BYTES);
            let places = geometry.place(segment, offset + first as u32)..;
            for ((place, page), entry) in places.zip(pages).zip(&entries[..data]) {
                let logical = entry.page.get();
                if logical >= geometry.pages || store.map.place(logical) != place {
                    continue;
                }
                found.unproved -= 1;
                match page_sum(page) == entry.check.get() {
                    true => found.whole += 1,
                    false => found.damaged += 1,
                }
            }
            offset += head.pages();
        }
    }
    Ok(found)
}
