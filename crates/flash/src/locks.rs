//! Locks on ranges of blocks, shared by all queues of a volume.
//!
//! Nobody ever waits in here: whoever does not get a lock holds a ticket and asks again. That makes
//! them fair (strictly first come, first served on each stripe, readers side by side), and a
//! request that waits costs its worker nothing but the asking.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use contract::{BLOCK_BYTES, REQUEST_BYTES_MAX, Range};

/// Stripes of a volume; a power of two.
const STRIPES: u64 = 1024;
/// Blocks that share a stripe: as many as the largest request, so that data touches at most two.
const REGION_BLOCKS: u64 = (REQUEST_BYTES_MAX / BLOCK_BYTES) as u64;

/// The locks of one volume. Region `n` (1 MiB) is under stripe `n % 1024`.
///
/// A stripe is a readers-writer ticket lock in one word: everybody draws a ticket; a shared holder
/// lets the next one in at once, a lone holder when it leaves.
#[derive(Debug)]
pub struct RangeLocks {
    stripes: Box<[Stripe]>,
    /// Claims to be alone that were begun and not released.
    alone: AtomicUsize,
}

/// On a cache line of its own, so that workers in different regions do not slow each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

/// How a range is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Beside other shared holders.
    Shared,
    /// Alone.
    Alone,
}

/// A request for the stripes of a range, or the right to them once all are held. They are taken in
/// ascending order, so claims cannot wait for each other in a circle.
///
/// `held ≤ count`. A claim that was begun must be asked for until it is held, then released.
#[derive(Debug)]
pub(crate) struct Claim {
    mode: Mode,
    /// The first region's stripe.
    first: u16,
    /// Stripes wanted.
    count: u16,
    /// Stripes held: the first so many in ascending order.
    held: u16,
    /// The ticket for the next stripe, once drawn.
    ticket: Option<u64>,
}

impl Claim {
    /// The claim that is held from the start.
    pub(crate) const NOTHING: Claim =
        Claim { mode: Mode::Shared, first: 0, count: 0, held: 0, ticket: None };

    pub(crate) fn new(range: Range, mode: Mode) -> Self {
        let first = range.lba / REGION_BLOCKS;
        let last = (range.lba + u64::from(range.blocks.max(1)) - 1) / REGION_BLOCKS;
        let count = (last - first + 1).min(STRIPES) as u16;
        Claim { mode, first: (first % STRIPES) as u16, count, held: 0, ticket: None }
    }

    /// The stripe in place `nth` of the claim's stripes in ascending order: first those behind the
    /// wrap-around, then the others.
    fn stripe(&self, nth: u16) -> usize {
        let wrapped = (self.first + self.count).saturating_sub(STRIPES as u16);
        usize::from(if nth < wrapped { nth } else { self.first + (nth - wrapped) })
    }
}

impl Default for RangeLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl RangeLocks {
    /// Locks that nobody holds: 64 KiB of memory, whatever the volume's size.
    pub fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Stripe::default()).collect();
        RangeLocks { stripes, alone: AtomicUsize::new(0) }
    }

    /// Whether anybody has a range alone, or waits for one.
    pub fn is_claimed_alone(&self) -> bool {
        self.alone.load(Ordering::SeqCst) > 0
    }

    /// Takes what can be taken now; true once everything is held.
    pub(crate) fn advance(&self, claim: &mut Claim) -> bool {
        if claim.mode == Mode::Alone && claim.held == 0 && claim.ticket.is_none() {
            self.alone.fetch_add(usize::from(claim.count > 0), Ordering::SeqCst);
        }
        while claim.held < claim.count {
            let stripe = &self.stripes[claim.stripe(claim.held)];
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

    /// Gives back what a wholly held claim holds.
    pub(crate) fn release(&self, claim: &Claim) {
        assert!(claim.held == claim.count, "a claim is released once it is held");
        for nth in 0..claim.count {
            self.stripes[claim.stripe(nth)].leave(claim.mode);
        }
        if claim.mode == Mode::Alone {
            self.alone.fetch_sub(usize::from(claim.count > 0), Ordering::SeqCst);
        }
    }
}

/// A stripe's word: three counters of 21 bits that wrap around. Tickets drawn, the ticket whose
/// turn it is to share, and the ticket whose turn it is alone (everybody before it has left).
/// `alone ≤ share ≤ drawn`, up to the wrap-around; fewer than 2²¹ requests are at a stripe at once.
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

    /// Whether the ticket's turn has come; a shared holder passes the turn on.
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

    fn region(number: u64) -> Range {
        Range::new(number * REGION_BLOCKS, 8)
    }

    fn claim(locks: &RangeLocks, range: Range, mode: Mode) -> (Claim, bool) {
        let mut claim = Claim::new(range, mode);
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
        for (first, blocks) in [(1023, 4096_u32), (0, u32::MAX), (1000, 100 * 2048), (7, 1)] {
            let claim = Claim::new(Range::new(first * REGION_BLOCKS, blocks), Mode::Shared);
            let stripes: Vec<usize> = (0..claim.count).map(|nth| claim.stripe(nth)).collect();
            assert!(stripes.is_sorted_by(|a, b| a < b), "{stripes:?}");
            assert!(stripes.contains(&(first as usize % 1024)));
            assert!(stripes.iter().all(|&stripe| stripe < 1024));
        }
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
                        let mut claim = Claim::new(Range::new(lba, 8), mode);
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
