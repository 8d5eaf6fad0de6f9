//! The pace of collection: how many pages the collector may read for each page that hosts write.
//!
//! Without a pace, all pages that one more segment costs are read and written at full speed as soon
//! as it is opened, and reads of hosts wait behind that burst.

use crate::field_codec::FieldCodec;

/// The share by which the collector is faster than hosts. So it catches up, and rests for a while.
const SURPLUS: f32 = 0.25;

/// Number of pages that the collector may read, for each page that hosts write, beyond those of
/// ordinary victims: enough for the page itself and its header, if it was a lone write.
const LONE_PAGES: f32 = 2.0;

/// Maximum number of pages by which the collector may be ahead of hosts, or behind: two reads of
/// live pages.
const AHEAD_MAX: f32 = 64.0;

/// The account of pages that the collector may read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Number of pages that may be read; below zero after a larger read.
    credit: f32,
    /// `true` while a request waits for a free segment. The state ends when free segments suffice.
    hurries: bool,
}

impl Pace {
    /// Notes that hosts wrote `pages` pages, and that collection moves `moves` pages for each page
    /// of space that it yields.
    pub(crate) fn earn(&mut self, pages: u32, moves: f32) {
        let for_each = (1.0 + SURPLUS) * (moves + 1.0) + LONE_PAGES;
        self.credit = (self.credit + pages as f32 * for_each).min(AHEAD_MAX);
    }

    /// Notes that a request waits for a free segment: collection goes at full speed.
    pub(crate) fn hurry(&mut self) {
        self.hurries = true;
    }

    /// Writes or reads the account.
    pub(crate) fn hand_over(&mut self, scribe: &mut FieldCodec<'_>) {
        scribe.f32(&mut self.credit);
        scribe.bool(&mut self.hurries);
        scribe.check(self.credit.is_finite());
    }

    /// Notes that free segments suffice.
    pub(crate) fn rest(&mut self) {
        self.hurries = false;
    }

    /// Returns `true` if the collector may read `pages` pages now, and counts them. With `is_short`
    /// it always may, as free segments are too few.
    pub(crate) fn spend(&mut self, pages: u32, is_short: bool) -> bool {
        let may = self.credit > 0.0 || self.hurries || is_short;
        if may {
            self.credit = (self.credit - pages as f32).max(-AHEAD_MAX);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Returns the number of reads of 32 pages that the collector may make at once.
    fn reads(pace: &mut Pace) -> usize {
        (0..100).take_while(|_| pace.spend(32, false)).count()
    }

    #[test]
    fn collection_follows_the_writes_of_hosts() {
        let mut pace = Pace::default();
        assert_eq!(reads(&mut pace), 0);
        let counts: Vec<usize> = (0..320)
            .map(|_| {
                pace.earn(1, 7.0);
                reads(&mut pace)
            })
            .collect();
        assert_eq!(counts.iter().sum::<usize>(), 320 * 12 / 32, "twelve pages for each");
        assert!(counts.iter().all(|reads| *reads <= 1), "one at a time");
    }

    #[test]
    fn a_pause_of_the_collector_makes_no_burst() {
        let mut pace = Pace::default();
        pace.earn(1_000, 7.0);
        assert_eq!(reads(&mut pace), 2);
    }

    #[test]
    fn a_volume_that_is_short_collects_at_full_speed() {
        let mut pace = Pace::default();
        assert!(pace.spend(32, true) && !pace.spend(32, false));
        pace.hurry();
        assert_eq!(reads(&mut pace), 100);
        pace.rest();
        assert_eq!(reads(&mut pace), 0);
        pace.earn(20, 7.0);
        assert!(reads(&mut pace) > 0, "the debt is bounded");
    }
}
