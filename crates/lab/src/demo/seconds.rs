//! The results of tenants in each second, beside the time for which the machine kept them from
//! running. Each second that broke a promise is reported with its reason.

use std::time::Duration;

use client::load::Tally;
use contract::Instant;

use super::tenants::{Got, TENANTS};
use crate::stalls::Kept;

/// The period that is judged as a whole, which is some frames.
const SECOND: Duration = Duration::from_secs(1);

/// A second, more or less.
#[derive(Clone, Debug)]
pub(super) struct Second {
    /// The results of each tenant.
    pub(super) got: Vec<Got>,
    pub(super) kept: Kept,
}

/// Seconds that are over, and the one that goes on.
#[derive(Debug)]
pub(super) struct Seconds {
    pub(super) over: Vec<Second>,
    started_at: Instant,
    /// The stall times at the start of the current second; `None` before the first.
    before: Option<Kept>,
    tallies: Vec<Tally>,
}

impl Seconds {
    /// Creates an empty list whose first second begins at `started_at`.
    pub(super) fn from(started_at: Instant) -> Seconds {
        let tallies = vec![Tally::new(); TENANTS.len()];
        Seconds { over: Vec::new(), started_at, before: None, tallies }
    }

    /// Adds what was measured until `now`. What is left when all have `finished` is a second too, so
    /// that nothing is left out.
    pub(super) fn add(
        &mut self,
        latest: &[Tally],
        now: Instant,
        finished: bool,
        kept_until_now: impl Fn() -> Kept,
    ) {
        for (tally, latest) in self.tallies.iter_mut().zip(latest) {
            tally.add(latest);
        }
        if now < self.started_at {
            return;
        }
        let Some(before) = self.before else {
            self.before = Some(kept_until_now());
            return;
        };
        let took = now.since(self.started_at);
        let is_empty = self.tallies.iter().all(|tally| tally.count() == 0);
        if is_empty || took < SECOND && !finished {
            return;
        }
        let kept = kept_until_now();
        let got = self.tallies.iter().map(|tally| Got::of(tally, took.as_secs_f64())).collect();
        self.over.push(Second { got, kept: kept.since(&before) });
        self.tallies.iter_mut().for_each(Tally::reset);
        (self.started_at, self.before) = (now, Some(kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn each_second_has_what_was_measured_and_waited_in_it() {
        let mut seconds = Seconds::from(at(1_000));
        let waited =
            |millis| move || Kept { server: Duration::from_millis(millis), ..Kept::default() };
        let mut latest = vec![Tally::new(); TENANTS.len()];
        latest[0].read.count = 250;
        seconds.add(&latest, at(900), false, waited(5));
        for frame in 0..10 {
            seconds.add(&latest, at(1_000 + 250 * frame), false, waited(7 + frame));
        }
        seconds.add(&latest, at(3_500), true, waited(30));
        seconds.add(&vec![Tally::new(); TENANTS.len()], at(3_500), true, waited(30));
        let told = seconds
            .over
            .iter()
            .map(|second| (second.got[0].iops.round(), second.kept.server.as_millis()));
        // The first has what came before it by the clock of whoever looks.
        assert_eq!(told.collect::<Vec<_>>(), [(1_500.0, 4), (1_000.0, 4), (1_000.0, 15)]);
    }
}
