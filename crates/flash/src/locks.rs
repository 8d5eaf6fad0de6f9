//! Locks on ranges of blocks, shared by all queues of a volume.
//!
//! No call blocks: a request that does not get a lock holds a ticket and asks again. Each stripe is
//! strictly first come, first served, with readers side by side. A waiting request costs its worker
//! only the repeated asking.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use contract::{BLOCK_BYTES, REQUEST_BYTES_MAX, Range};

/// Blocks of the largest request.
const REQUEST_BLOCKS: u64 = (REQUEST_BYTES_MAX / BLOCK_BYTES) as u64;
/// Blocks of a region where small writes wait: 16 KiB.
const FRAME_REGION_BLOCKS: u64 = 32;
/// Number of stripe words in a cache line.
const LINE_STRIPES: usize = 8;
/// Number of cache lines of a volume's locks.
const LINES: usize = 1024;

/// The locks on ranges of one volume's blocks. The volume is divided into regions of equal size, a
/// power of two of blocks. Region `n` belongs to stripe `n % stripes`.
///
/// A stripe is a readers-writer ticket lock in one word. Each claim draws a ticket. A shared holder
/// admits the next ticket at once, a lone holder when it leaves.
///
/// On a medium that keeps blocks whole, regions are large, and only requests that must be atomic
/// beyond a block claim a range alone. On a medium that tears blocks
/// ([`for_tearing`](RangeLocks::for_tearing)), every write claims its range alone, so regions are
/// small.
#[derive(Debug)]
pub struct RangeLocks {
    lines: Box<[CacheLine]>,
    /// Size of a region in blocks, as a power of two.
    region_shift: u32,
    /// Distance of stripes as a power of two: stripes are `1 << spread` words apart.
    spread: u32,
    /// The mode in which a plain write claims its range.
    pub(crate) plain_writes: Mode,
    /// Number of claims in mode `Alone` that were begun and not released.
    alone: AtomicUsize,
}

/// A cache line of stripes, so that workers in different lines do not slow each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CacheLine([Stripe; LINE_STRIPES]);

#[derive(Debug, Default)]
struct Stripe(AtomicU64);

/// The mode of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Together with other shared holders.
    Shared,
    /// Alone, without any other holder.
    Alone,
}

/// A request for the stripes of a range, or the right to them once all are held. Stripes are taken
/// in ascending order, so claims never deadlock.
///
/// `held ≤ count`. After its first `advance`, a claim must be advanced until it is held, then
/// released.
#[derive(Debug)]
pub(crate) struct Claim {
    mode: Mode,
    /// The stripe of the first region.
    first: u16,
    /// Number of stripes wanted.
    count: u16,
    /// Number of stripes held: the first in ascending order.
    held: u16,
    /// The ticket for the next stripe, once drawn.
    ticket: Option<u64>,
}

impl Claim {
    /// The empty claim, which is always held.
    pub(crate) const NOTHING: Claim =
        Claim { mode: Mode::Shared, first: 0, count: 0, held: 0, ticket: None };
}

impl Default for RangeLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl RangeLocks {
    /// Returns unclaimed locks of 64 KiB of memory, whatever the volume's size. Regions are as
    /// large as the largest request, so that a request touches at most two regions, each on its own
    /// cache line.
    pub fn new() -> Self {
        let spread = LINE_STRIPES.ilog2();
        RangeLocks::of(REQUEST_BLOCKS, spread, Mode::Shared)
    }

    /// Returns locks for a device whose small writes wait for others of their page, and hold their
    /// region alone meanwhile. Regions are small, so that few requests end such a wait.
    pub fn for_frames() -> Self {
        let spread = LINE_STRIPES.ilog2();
        RangeLocks::of(FRAME_REGION_BLOCKS, spread, Mode::Shared)
    }

    /// Returns locks for a medium that copies memory: a read beside a write may find part of a
    /// block old and part new. Every write excludes other requests from its regions.
    ///
    /// A region has 4 KiB or a granule, whichever is larger. Adjacent regions share a cache line,
    /// so that a large request touches few lines.
    pub fn for_tearing(granularity_bytes: usize) -> Self {
        let region_bytes = granularity_bytes.max(4096);
        assert!(region_bytes.is_power_of_two() && region_bytes <= REQUEST_BYTES_MAX);
        RangeLocks::of((region_bytes / BLOCK_BYTES) as u64, 0, Mode::Alone)
    }

    fn of(region_blocks: u64, spread: u32, plain_writes: Mode) -> Self {
        let lines = (0..LINES).map(|_| CacheLine::default()).collect();
        let region_shift = region_blocks.ilog2();
        RangeLocks { lines, region_shift, spread, plain_writes, alone: AtomicUsize::new(0) }
    }

    /// Returns the size of a region in blocks. An aligned range of at most this size has one
    /// stripe.
    pub(crate) fn region_blocks(&self) -> u64 {
        1 << self.region_shift
    }

    fn stripes(&self) -> u64 {
        ((LINES * LINE_STRIPES) >> self.spread) as u64
    }

    pub(crate) fn claim(&self, range: Range, mode: Mode) -> Claim {
        let last = range.lba + u64::from(range.blocks.max(1)) - 1;
        self.claim_between((range.lba, last), mode)
    }

    /// Returns a claim to the blocks from `first` to `last`.
    pub(crate) fn claim_between(&self, (first, last): (u64, u64), mode: Mode) -> Claim {
        let (first, last) = (first >> self.region_shift, last >> self.region_shift);
        let stripes = self.stripes();
        let count = (last - first + 1).min(stripes) as u16;
        Claim { mode, first: (first & (stripes - 1)) as u16, count, held: 0, ticket: None }
    }

    /// Returns the number of the claim's stripe at position `nth` in ascending order. Stripes after
    /// the wrap-around come first.
    fn place(&self, claim: &Claim, nth: u16) -> usize {
        let wrapped = (claim.first + claim.count).saturating_sub(self.stripes() as u16);
        usize::from(if nth < wrapped { nth } else { claim.first + (nth - wrapped) })
    }

    fn stripe(&self, claim: &Claim, nth: u16) -> &Stripe {
        let word = self.place(claim, nth) << self.spread;
        &self.lines[word / LINE_STRIPES].0[word % LINE_STRIPES]
    }

    /// Returns `true` while some request holds a range alone, or waits for one.
    pub fn is_claimed_alone(&self) -> bool {
        self.alone.load(Ordering::SeqCst) > 0
    }

    /// Takes as many stripes as possible; returns `true` once the claim holds all of them.
    pub(crate) fn advance(&self, claim: &mut Claim) -> bool {
        if claim.mode == Mode::Alone && claim.held == 0 && claim.ticket.is_none() {
            self.alone.fetch_add(usize::from(claim.count > 0), Ordering::SeqCst);
        }
        while claim.held < claim.count {
            let stripe = self.stripe(claim, claim.held);
            let entered = match claim.ticket {
                None => {
                    let (ticket, entered) = stripe.draw(claim.mode);
                    claim.ticket = Some(ticket);
                    entered
                }
                Some(ticket) => stripe.enter(ticket, claim.mode),
            };
            if !entered {
                return false;
            }
            claim.ticket = None;
            claim.held += 1;
        }
        true
    }

    /// Releases all stripes that a claim holds. The claim must hold every stripe of its range.
    pub(crate) fn release(&self, claim: &Claim) {
        assert!(claim.held == claim.count, "a claim is released once it is held");
        for nth in 0..claim.count {
            self.stripe(claim, nth).leave(claim.mode);
        }
        if claim.mode == Mode::Alone {
            self.alone.fetch_sub(usize::from(claim.count > 0), Ordering::SeqCst);
        }
    }
}

/// A stripe's word: three counters of 21 bits that wrap around. The counters are: tickets drawn,
/// the ticket whose turn it is to share, and the ticket whose turn it is alone (all earlier tickets
/// have left). `alone ≤ share ≤ drawn`, up to the wrap-around. Fewer than 2²¹ requests are at a
/// stripe at once.
#[derive(Clone, Copy)]
struct Word {
    drawn: u64,
    share: u64,
    alone: u64,
}

const FIELD_BITS: u32 = 21;
const FIELD: u64 = (1 << FIELD_BITS) - 1;

impl Word {
    fn unpack(bits: u64) -> Word {
        Word {
            drawn: bits >> (2 * FIELD_BITS) & FIELD,
            share: bits >> FIELD_BITS & FIELD,
            alone: bits & FIELD,
        }
    }

    fn pack(self) -> u64 {
        (self.drawn & FIELD) << (2 * FIELD_BITS)
            | (self.share & FIELD) << FIELD_BITS
            | (self.alone & FIELD)
    }

    /// Returns `true` if this ticket is the next one at the stripe, so that its claim gets the
    /// stripe. A shared claim also lets the following ticket enter.
    fn enter(&mut self, ticket: u64, mode: Mode) -> bool {
        match mode {
            Mode::Shared if self.share == ticket => {
                self.share += 1;
                true
            }
            Mode::Shared => false,
            Mode::Alone => self.alone == ticket,
        }
    }
}

impl Stripe {
    fn change<T>(&self, mut change: impl FnMut(&mut Word) -> T) -> T {
        let mut bits = self.0.load(Ordering::Relaxed);
        loop {
            let mut word = Word::unpack(bits);
            let result = change(&mut word);
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            match self.0.compare_exchange_weak(bits, word.pack(), success, failure) {
                Ok(_) => return result,
                Err(now) => bits = now,
            }
        }
    }

    fn draw(&self, mode: Mode) -> (u64, bool) {
        self.change(|word| {
            let ticket = word.drawn;
            word.drawn += 1;
            (ticket, word.enter(ticket, mode))
        })
    }

    fn enter(&self, ticket: u64, mode: Mode) -> bool {
        let mut word = Word::unpack(self.0.load(Ordering::Relaxed));
        word.enter(ticket, mode) && self.change(|word| word.enter(ticket, mode))
    }

    fn leave(&self, mode: Mode) {
        self.change(|word| {
            word.alone += 1;
            if mode == Mode::Alone {
                word.share += 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::vec::Vec;

    const REGION_BLOCKS: u64 = REQUEST_BLOCKS;

    fn region(number: u64) -> Range {
        Range::new(number * REGION_BLOCKS, 8)
    }

    fn claim(locks: &RangeLocks, range: Range, mode: Mode) -> (Claim, bool) {
        let mut claim = locks.claim(range, mode);
        let held = locks.advance(&mut claim);
        (claim, held)
    }

    #[test]
    fn whoever_is_alone_or_wants_to_be_is_counted() {
        let locks = RangeLocks::new();
        let (shared, held) = claim(&locks, region(1), Mode::Shared);
        assert!(held && !locks.is_claimed_alone());
        let (mut alone, held) = claim(&locks, region(1), Mode::Alone);
        assert!(!held && locks.is_claimed_alone());
        locks.release(&shared);
        assert!(locks.advance(&mut alone) && locks.is_claimed_alone());
        locks.release(&alone);
        assert!(!locks.is_claimed_alone());
    }

    #[test]
    fn first_come_first_served() {
        let locks = RangeLocks::new();
        let (first, held) = claim(&locks, region(5), Mode::Shared);
        assert!(held);
        let (beside, held) = claim(&locks, region(5), Mode::Shared);
        assert!(held);
        let (mut alone, held) = claim(&locks, region(5), Mode::Alone);
        assert!(!held);
        let (mut late, held) = claim(&locks, region(5), Mode::Shared);
        assert!(!held, "a newcomer does not overtake who waits to be alone");
        assert!(claim(&locks, region(6), Mode::Alone).1, "other regions do not care");
        locks.release(&first);
        assert!(!locks.advance(&mut alone));
        locks.release(&beside);
        assert!(!locks.advance(&mut late));
        assert!(locks.advance(&mut alone));
        assert!(!locks.advance(&mut late));
        locks.release(&alone);
        assert!(locks.advance(&mut late));
    }

    #[test]
    fn a_lone_holder_follows_a_lone_holder() {
        let locks = RangeLocks::new();
        let (first, _) = claim(&locks, region(1), Mode::Alone);
        let (mut second, held) = claim(&locks, region(1), Mode::Alone);
        assert!(!held);
        locks.release(&first);
        assert!(locks.advance(&mut second));
    }

    #[test]
    fn counters_wrap_around() {
        let locks = RangeLocks::new();
        for _ in 0..=FIELD + 3 {
            let (holder, held) = claim(&locks, region(0), Mode::Shared);
            assert!(held);
            locks.release(&holder);
        }
        let (_holder, held) = claim(&locks, region(0), Mode::Alone);
        assert!(held);
        assert!(!claim(&locks, region(0), Mode::Shared).1);
    }

    #[test]
    fn stripes_of_a_claim_ascend_and_differ() {
        for locks in [RangeLocks::new(), RangeLocks::for_tearing(512)] {
            let (region, stripes) = (locks.region_blocks(), locks.stripes());
            let some = u32::try_from(100 * region).unwrap();
            let ranges =
                [(stripes - 1, 2 * region as u32), (0, u32::MAX), (stripes - 24, some), (7, 1)];
            for (first, blocks) in ranges {
                let claim = locks.claim(Range::new(first * region, blocks), Mode::Shared);
                let places: Vec<usize> =
                    (0..claim.count).map(|nth| locks.place(&claim, nth)).collect();
                assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
                assert!(places.contains(&((first % stripes) as usize)));
                assert!(places.iter().all(|&place| (place as u64) < stripes));
                let words: std::collections::HashSet<*const Stripe> = (0..claim.count)
                    .map(|nth| core::ptr::from_ref(locks.stripe(&claim, nth)))
                    .collect();
                assert_eq!(words.len(), places.len(), "each has a word of its own");
            }
        }
    }

    #[test]
    fn regions_of_a_tearing_medium_are_small_and_hold_whole_granules() {
        let locks = RangeLocks::for_tearing(512);
        let (write, held) = claim(&locks, Range::new(8, 8), Mode::Alone);
        assert!(held && !claim(&locks, Range::new(15, 1), Mode::Shared).1);
        assert!(claim(&locks, Range::new(0, 8), Mode::Shared).1, "a neighbour does not wait");
        assert!(claim(&locks, Range::new(16, 2000), Mode::Shared).1);
        locks.release(&write);
        assert_eq!(RangeLocks::for_tearing(16 << 10).region_blocks(), 32);
    }

    #[test]
    fn threads_exclude_each_other() {
        let locks = RangeLocks::new();
        let (readers, writers) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (locks, readers, writers) = (&locks, &readers, &writers);
                scope.spawn(move || {
                    for turn in 0..5000 {
                        let mode =
                            if (turn + thread) % 3 == 0 { Mode::Alone } else { Mode::Shared };
                        // Two stripes, in either order of addresses.
                        let lba = (1023 + thread % 2) * REGION_BLOCKS - 4;
                        let mut claim = locks.claim(Range::new(lba, 8), mode);
                        while !locks.advance(&mut claim) {
                            std::thread::yield_now();
                        }
                        // Both kinds of claim share stripe 1023.
                        match mode {
                            Mode::Alone => {
                                assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0);
                                assert_eq!(readers.load(Ordering::SeqCst), 0);
                                writers.fetch_sub(1, Ordering::SeqCst);
                            }
                            Mode::Shared => {
                                readers.fetch_add(1, Ordering::SeqCst);
                                assert_eq!(writers.load(Ordering::SeqCst), 0);
                                readers.fetch_sub(1, Ordering::SeqCst);
                            }
                        }
                        locks.release(&claim);
                    }
                });
            }
        });
    }
}
