//! The log of violations: which promises were broken, when, for how long and by how much.
//!
//! A violation begins with a window in which a tenant's reads exceeded the bound although the
//! tenant kept to its rate ([`Standing::Late`](crate::Standing::Late)). Further such windows belong
//! to it until there has been none for [`REST`].
//!
//! This module deliberately leaves out causes: `admin::why` finds them while a violation goes on.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use contract::{Instant, Slo, TenantId};

use crate::info::time;

/// The time without a late window after which a violation is over.
pub(crate) const REST: Duration = Duration::from_secs(10);

/// Number of ended violations that are kept.
pub(crate) const KEPT_MAX: usize = 500;

/// Number of violations that are logged as they begin or end, in one window.
const LINES_MAX: usize = 8;

/// A period in which a promise to a tenant was broken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Violation {
    pub(crate) tenant: String,
    /// Name of the device of the promise.
    pub(crate) device: String,
    /// The promise that was broken.
    pub(crate) slo: Slo,
    /// The highest latency of a window, at the percentile of the promise, in microseconds.
    pub(crate) worst_us: f64,
    /// Number of windows, of a second each, in which the tenant was late.
    pub(crate) windows: u32,
    /// Number of late windows in which workers waited for processors.
    pub(crate) starved: u32,
    /// The ends of the first and of the last late window.
    pub(crate) began_at: Instant,
    pub(crate) late_at: Instant,
}

/// The SLO violations in progress, and those that ended most recently.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    open: BTreeMap<TenantId, Violation>,
    /// Violations that have ended, the oldest first, at most [`KEPT_MAX`].
    ended: VecDeque<Violation>,
}

impl Violations {
    /// Records that a tenant was late in the window that ends `now`.
    pub(crate) fn add(&mut self, tenant: TenantId, late: LateTenant<'_>, now: Instant) {
        let same = |open: &&mut Violation| {
            (open.tenant.as_str(), open.device.as_str(), open.slo)
                == (late.tenant, late.device, late.slo)
        };
        if let Some(open) = self.open.get_mut(&tenant).filter(same) {
            open.worst_us = open.worst_us.max(late.us);
            open.windows += 1;
            open.late_at = now;
            return;
        }
        let begun = Violation {
            tenant: late.tenant.to_owned(),
            device: late.device.to_owned(),
            slo: late.slo,
            worst_us: late.us,
            windows: 1,
            starved: 0,
            began_at: now,
            late_at: now,
        };
        if let Some(before) = self.open.insert(tenant, begun) {
            self.keep(before);
        }
    }

    /// Ends the window: logs the violations that began, and ends those that are over. `starved` is
    /// `true` if workers waited for processors in it.
    pub(crate) fn end_window(&mut self, starved: bool, now: Instant) {
        for open in self.open.values_mut().filter(|open| open.late_at == now) {
            open.starved += u32::from(starved);
        }
        let begun = self.open.values().filter(|open| open.began_at == now && open.windows == 1);
        let mut lines = 0;
        for Violation { tenant, device, slo, worst_us, .. } in begun {
            lines += 1;
            if lines <= LINES_MAX {
                let (found, promised) = (time(worst_us.round() as u32), time(slo.latency_us));
                let percentile = f64::from(slo.percentile_tenths) / 10.0;
                tracing::warn!(
                    %tenant, %device, starved,
                    "promise broken: p{percentile} of reads is {found}, at most {promised} is promised"
                );
            }
        }
        if lines > LINES_MAX {
            tracing::warn!("promises broken of {} more tenants", lines - LINES_MAX);
        }
        self.end_those_over(now);
    }

    fn end_those_over(&mut self, now: Instant) {
        let over = self.open.extract_if(.., |_, open| now.since(open.late_at) >= REST);
        let over: Vec<Violation> = over.map(|(_, violation)| violation).collect();
        for Violation { tenant, device, windows, worst_us, starved, .. } in
            over.iter().take(LINES_MAX)
        {
            let worst = time(worst_us.round() as u32);
            tracing::warn!(
                %tenant, %device, starved,
                "promise kept again: late in {windows} seconds, at worst {worst}"
            );
        }
        over.into_iter().for_each(|violation| self.keep(violation));
    }

    fn keep(&mut self, ended: Violation) {
        if self.ended.len() == KEPT_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }

    /// Returns the violations, the latest first, each with `true` while it goes on. At most
    /// [`KEPT_MAX`].
    pub(crate) fn latest(&self) -> Vec<(Violation, bool)> {
        let open = self.open.values().map(|open| (open, true));
        let mut all: Vec<_> = open.chain(self.ended.iter().map(|ended| (ended, false))).collect();
        all.sort_by_key(|(violation, _)| std::cmp::Reverse(violation.began_at));
        all.into_iter()
            .take(KEPT_MAX)
            .map(|(violation, goes_on)| (violation.clone(), goes_on))
            .collect()
    }
}

/// The figures of a tenant that was late in a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateTenant<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) device: &'a str,
    pub(crate) slo: Slo,
    /// The tenant's read latency in the window, at the percentile of its SLO, in microseconds.
    pub(crate) us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLD: TenantId = TenantId(1);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn late(us: f64) -> LateTenant<'static> {
        LateTenant { tenant: "gold", device: "drive", slo: Slo::new(500, 1_000, 100), us }
    }

    /// Plays windows of a second; each is late by a latency, or in time.
    fn played(windows: &[Option<f64>]) -> (Violations, Instant) {
        let (mut violations, mut now) = (Violations::default(), Instant::ZERO);
        for window in windows {
            now = now + Duration::from_secs(1);
            if let Some(us) = window {
                violations.add(GOLD, late(*us), now);
            }
            violations.end_window(false, now);
        }
        (violations, now)
    }

    #[test]
    fn late_windows_close_together_are_one_violation() {
        let (violations, _) = played(&[None, Some(600.0), None, Some(900.0), Some(700.0)]);
        let all = violations.latest();
        let [(violation, true)] = &all[..] else { panic!("{all:?}") };
        assert_eq!((violation.windows, violation.worst_us), (3, 900.0));
        assert_eq!((violation.began_at, violation.late_at), (at(2), at(5)));
    }

    #[test]
    fn a_violation_is_over_after_a_rest_and_the_next_one_is_another() {
        let mut windows = vec![Some(600.0)];
        windows.extend([None; 9]);
        assert!(played(&windows).0.latest()[0].1, "nine seconds are no rest");
        windows.push(None);
        assert!(!played(&windows).0.latest()[0].1);
        windows.push(Some(800.0));
        let all = played(&windows).0.latest();
        assert_eq!(
            all.iter().map(|(v, on)| (v.worst_us, *on)).collect::<Vec<_>>(),
            [(800.0, true), (600.0, false)]
        );
    }

    #[test]
    fn another_promise_is_another_violation() {
        let (mut violations, now) = played(&[Some(600.0)]);
        let stricter = LateTenant { slo: Slo::new(400, 1_000, 100), ..late(600.0) };
        violations.add(GOLD, stricter, now + Duration::from_secs(1));
        assert_eq!(violations.latest().len(), 2);
    }

    #[test]
    fn starved_windows_are_counted() {
        let mut violations = Violations::default();
        for (n, starved) in [(1, true), (2, false), (3, true)] {
            violations.add(GOLD, late(600.0), at(n));
            violations.end_window(starved, at(n));
        }
        assert_eq!((violations.latest()[0].0.windows, violations.latest()[0].0.starved), (3, 2));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut violations = Violations::default();
        for n in 0..=KEPT_MAX as u64 {
            violations.add(TenantId(n as u32), late(n as f64), at(1 + n * 20));
            violations.end_window(false, at(1 + n * 20 + 11));
        }
        let all = violations.latest();
        assert_eq!((all.len(), violations.ended.len()), (KEPT_MAX, KEPT_MAX));
        assert_eq!(all.last().unwrap().0.worst_us, 1.0);
    }
}
