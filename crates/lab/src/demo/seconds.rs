//! The seconds of a live measurement, each judged separately. A second in which a promise was
//! broken while the machine ran other work says nothing about the scheduler, and is not judged.

use std::time::Duration;

use client::load::Tally;
use contract::Instant;
use figures::four::TENANTS;

use super::part::Part;
use crate::four::TenantResult;
use crate::stalls::StallTime;

/// The shortest period that gets a verdict. A period ends with the first frame after this time.
const SECOND: Duration = Duration::from_secs(1);

/// The stall time, in a second and the previous one, that explains a late p95. A twentieth of a
/// second's requests arrive in twice this time, and the drive needs the other half of the latency.
const EXPLAINS: Duration = Duration::from_millis(25);

/// The judgement of a second of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every promised latency was kept.
    Kept,
    /// A promised latency was broken without a stall of the machine.
    Broken,
    /// A promised latency was broken while the machine kept the server or its clients from running.
    NotJudged,
}

/// A measured period of a second or slightly more.
#[derive(Clone, Debug)]
struct Second {
    seconds: f64,
    tallies: Vec<Tally>,
    /// The stall time of the machine in this second and the previous one.
    taken: Duration,
}

impl Second {
    fn verdict(&self, part: Part) -> Verdict {
        let is_kept = TENANTS.iter().zip(&self.tallies).all(|(tenant, tally)| {
            let p95 = Duration::from_nanos(tally.read.latency.value_at_quantile(0.95));
            tenant.slo(part.drive).is_none_or(|slo| p95 <= slo.p95)
        });
        match is_kept {
            true => Verdict::Kept,
            false if self.taken >= EXPLAINS => Verdict::NotJudged,
            false => Verdict::Broken,
        }
    }
}

/// The completed seconds of a measurement, and the measurements of the present one.
#[derive(Debug)]
pub(super) struct Seconds {
    part: Part,
    over: Vec<Second>,
    /// The start of the present second, and the machine's stall times until then; `None` before the
    /// first second.
    started: Option<(Instant, StallTime)>,
    /// The stall time of the latest completed second alone.
    taken: Duration,
    tallies: Vec<Tally>,
}

impl Seconds {
    /// Creates a list without seconds for a part of the demonstration.
    pub(super) fn new(part: Part) -> Seconds {
        let tallies = vec![Tally::new(); TENANTS.len()];
        let (over, started, taken) = (Vec::new(), None, Duration::ZERO);
        Seconds { part, over, started, taken, tallies }
    }

    /// Adds the measurements `latest`, taken until `now`, and ends the present second if it is
    /// over. The first second begins when every tenant has had a request answered; earlier
    /// measurements are dropped.
    pub(super) fn add(
        &mut self,
        latest: &[Tally],
        now: Instant,
        kept_until_now: impl Fn() -> StallTime,
    ) {
        let Some((started_at, before)) = self.started else {
            if latest.iter().all(|tally| tally.count() > 0) {
                self.started = Some((now, kept_until_now()));
            }
            return;
        };
        for (tally, latest) in self.tallies.iter_mut().zip(latest) {
            tally.add(latest);
        }
        let took = now.since(started_at);
        if took < SECOND {
            return;
        }
        let kept = kept_until_now();
        let taken = kept.since(&before).sum();
        let fresh = vec![Tally::new(); TENANTS.len()];
        self.over.push(Second {
            seconds: took.as_secs_f64(),
            tallies: std::mem::replace(&mut self.tallies, fresh),
            taken: taken + self.taken,
        });
        (self.started, self.taken) = (Some((now, kept)), taken);
    }

    /// Returns the number of completed seconds.
    pub(super) fn count(&self) -> usize {
        self.over.len()
    }

    /// Returns the verdict on each completed second, in order.
    pub(super) fn verdicts(&self) -> Vec<Verdict> {
        self.over.iter().map(|second| second.verdict(self.part)).collect()
    }

    /// Returns each tenant's results over all seconds that could be judged, or over all completed
    /// seconds if none could.
    pub(super) fn got(&self) -> Vec<TenantResult> {
        let is_judged = |second: &&Second| second.verdict(self.part) != Verdict::NotJudged;
        let mut judged: Vec<&Second> = self.over.iter().filter(is_judged).collect();
        if judged.is_empty() {
            judged = self.over.iter().collect();
        }
        let seconds: f64 = judged.iter().map(|second| second.seconds).sum();
        let sum = |n: usize| {
            let mut sum = Tally::new();
            judged.iter().for_each(|second| sum.add(&second.tallies[n]));
            TenantResult::of(&sum, seconds)
        };
        (0..TENANTS.len()).map(sum).collect()
    }

    /// Returns each tenant's results of the latest completed second; `None` before the end of the
    /// first.
    pub(super) fn latest(&self) -> Option<Vec<TenantResult>> {
        let second = self.over.last()?;
        Some(second.tallies.iter().map(|tally| TenantResult::of(tally, second.seconds)).collect())
    }

    /// Returns the total stall time of the completed seconds.
    pub(super) fn taken(&self) -> Duration {
        // Each has the time of the one before it, too.
        let mut before = Duration::ZERO;
        let own = self.over.iter().map(|second| {
            before = second.taken - before;
            before
        });
        own.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::four::SMALL;

    const PART: Part =
        Part { title: "", is_scheduled: true, drive: SMALL, b_share: 1.0, sent: 1.0 };

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Returns tallies of clients that each had `count` reads, all with a latency of `micros` µs.
    fn measured(micros: u64, count: u64) -> Vec<Tally> {
        let mut tallies = vec![Tally::new(); TENANTS.len()];
        for tally in &mut tallies {
            tally.read.count = count;
            tally.read.latency.record(micros * 1_000).unwrap();
        }
        tallies
    }

    /// Plays seconds given as pairs: the latency of reads in µs, and the stall time of the machine
    /// in ms.
    fn played(seconds: &[(u64, u64)]) -> Seconds {
        let mut list = Seconds::new(PART);
        list.add(&measured(1, 1), at(1_000), StallTime::default);
        let mut kept = Duration::ZERO;
        for (n, &(micros, taken)) in (2..).zip(seconds) {
            kept += Duration::from_millis(taken);
            let kept = || StallTime { server: kept, ..StallTime::default() };
            list.add(&measured(micros, 6_000), at(1_000 * n), kept);
        }
        list
    }

    #[test]
    fn late_seconds_are_judged_unless_the_machine_explains_them() {
        use Verdict::{Broken, Kept, NotJudged};
        let list = played(&[(900, 0), (5_000, 30), (5_000, 0), (5_000, 5), (900, 80)]);
        // The machine explains the second after the one that it took away from, too.
        assert_eq!(list.verdicts(), [Kept, NotJudged, NotJudged, Broken, Kept]);
        assert_eq!(list.taken(), Duration::from_millis(115));
    }

    #[test]
    fn seconds_that_are_not_judged_count_for_nobody() {
        let got = played(&[(900, 0), (50_000, 30)]).got();
        assert!(got[0].iops == 6_000.0 && got[0].p95_nanos < 1e6, "{got:?}");
        let got = played(&[(50_000, 30)]).got();
        assert!(got[0].p95_nanos > 2e6, "there is nothing else to show: {got:?}");
    }

    #[test]
    fn only_whole_seconds_count() {
        let mut list = Seconds::new(PART);
        list.add(&vec![Tally::new(); TENANTS.len()], at(500), StallTime::default);
        assert!(list.latest().is_none());
        for frame in 0..11 {
            list.add(&measured(900, 250), at(1_000 + 250 * frame), StallTime::default);
        }
        let iops = list
            .over
            .iter()
            .map(|second| TenantResult::of(&second.tallies[0], second.seconds).iops);
        assert_eq!(iops.map(f64::round).collect::<Vec<_>>(), [1_000.0, 1_000.0]);
        assert_eq!(list.latest().unwrap()[3].iops, 1_000.0);
    }
}
