//! The map from logical pages to places, and the heat of each page.

use alloc::boxed::Box;
use alloc::vec;

/// The place of a page that was never written, or was discarded: it reads as zeroes.
pub(crate) const UNMAPPED: u32 = u32::MAX;

/// The place of a page whose data is lost: reading it is an error.
pub(crate) const POISONED: u32 = u32::MAX - 1;

/// The warmth that a host's write adds to a page's heat.
const WARMTH: u8 = 16;

/// Four bytes of place and one of heat for each logical page.
pub(crate) struct Map {
    places: Box<[u32]>,
    heat: Box<[u8]>,
    /// The next page that cools: `hand < pages`.
    hand: u32,
}

impl Map {
    pub(crate) fn new(pages: u32) -> Map {
        let pages = pages as usize;
        Map { places: vec![UNMAPPED; pages].into(), heat: vec![0; pages].into(), hand: 0 }
    }

    #[inline]
    pub(crate) fn place(&self, page: u32) -> u32 {
        self.places[page as usize]
    }

    /// Sets the place of a page and returns the place before.
    #[inline]
    pub(crate) fn set(&mut self, page: u32, place: u32) -> u32 {
        core::mem::replace(&mut self.places[page as usize], place)
    }

    #[inline]
    pub(crate) fn heat(&self, page: u32) -> u8 {
        self.heat[page as usize]
    }

    pub(crate) fn set_heat(&mut self, page: u32, heat: u8) {
        self.heat[page as usize] = heat;
    }

    /// Warms a page that a host writes, and cools one page: each page halves once in as many writes
    /// as the volume has pages. A page's first write leaves it cold.
    pub(crate) fn warm(&mut self, page: u32) -> u8 {
        let cooled = &mut self.heat[self.hand as usize];
        *cooled -= cooled.div_ceil(2);
        self.hand = (self.hand + 1) % self.heat.len() as u32;
        self.heat[page as usize] = self.next_heat(page);
        self.heat[page as usize]
    }

    /// Returns the heat that a host's write would give a page.
    pub(crate) fn next_heat(&self, page: u32) -> u8 {
        if self.place(page) == UNMAPPED { 0 } else { self.heat(page).saturating_add(WARMTH) }
    }

    pub(crate) fn places(&self) -> &[u32] {
        &self.places
    }

    pub(crate) fn heats(&self) -> &[u8] {
        &self.heat
    }
}
