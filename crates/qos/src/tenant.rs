//! The state of a tenant that all workers share.
//!
//! Class, rate and the number of workers that hold the tenant are one word, so a change of one
//! reads the others atomically. A tenant that no worker holds is in one of the idle pools. Holding
//! the tenant takes it out, and the last release puts it back (see docs/explanation/scheduler.md,
//! "Tenants without demand").

use core::num::NonZeroU64;

use crate::balance::Balance;
use crate::sync::{AcqRel, Acquire, AtomicI64, AtomicU64, Relaxed, Release};
use crate::units::{NANO, NEG_LIMIT, RATE_MAX, STALL_NANOS_MAX, generated, nano};

/// The class of a tenant, by its promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The cell has no tenant.
    Vacant,
    /// A tenant with a share of the unpromised rate.
    BestEffort,
    /// A tenant with an SLO: a tail latency and a rate.
    LatencyCritical,
    /// An unregistered tenant: its queued requests are served as best effort, more are refused.
    Leaving,
}

impl Class {
    /// Returns `true` if tenants of this class may queue more requests.
    pub(crate) fn takes_requests(self) -> bool {
        matches!(self, Class::BestEffort | Class::LatencyCritical)
    }
}

/// A tenant's class, holders and rate: the fields of its shared word. Bits 0–1 class, 2–7 holders,
/// 8–40 rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) class: Class,
    /// Workers that hold the tenant, at most 32.
    pub(crate) holders: u32,
    /// Units a second of a latency-critical tenant; the weight of a best-effort one.
    pub(crate) rate: u64,
}

impl Terms {
    fn unpack(word: u64) -> Terms {
        let class = match word & 3 {
            0 => Class::Vacant,
            1 => Class::BestEffort,
            2 => Class::LatencyCritical,
            _ => Class::Leaving,
        };
        Terms { class, holders: (word >> 2 & 0x3f) as u32, rate: word >> 8 }
    }

    fn pack(self) -> u64 {
        assert!(self.holders < 0x40, "more holders than workers");
        let class = match self.class {
            Class::Vacant => 0,
            Class::BestEffort => 1,
            Class::LatencyCritical => 2,
            Class::Leaving => 3,
        };
        self.rate << 8 | u64::from(self.holders) << 2 | class
    }
}

/// The activity of a tenant, as counted by the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The units that the tenant's requests cost.
    pub spent: u64,
    /// Number of reads that the tenant has submitted.
    pub reads: u64,
    /// Writes, flushes and the like submitted.
    pub writes: u64,
    /// Rounds in which the tenant was below the deficit limit (Algorithm 1, line 7).
    pub deficits: u64,
    /// Nanoseconds of rounds at whose end the tenant had requests that it could not pay, summed
    /// over workers: the time for which it wanted more than its promise. Of latency-critical
    /// tenants only.
    pub throttled_nanos: u64,
    /// Nano-units that the tenant has donated to the bucket; wraps. Donations of an idle pool on
    /// its behalf are not counted.
    pub donated: u64,
    /// Nano-units that the tenant has borrowed from the bucket; wraps.
    pub borrowed: u64,
}

/// A tenant's cell in the shared table.
#[derive(Debug)]
pub(crate) struct Tenant {
    word: AtomicU64,
    pub(crate) balance: Balance,
    /// The maximum rate of a best-effort tenant in units a second; zero for no maximum.
    cap: AtomicU64,
    /// The latency in nanoseconds of a latency-critical tenant.
    latency: AtomicU64,
    /// The balance, in nano-units, above which a latency-critical tenant may submit.
    limit: AtomicI64,
    /// While no worker holds the tenant: the time, in nanoseconds, until which its rate is spent
    /// already.
    spent_to: AtomicU64,
    /// Nano-units that the tenant was promised, did not use, and may claim later: a permission, not
    /// tokens.
    pub(crate) arrears: Balance,
    /// Nano-units that the tenant may spend under its cap.
    pub(crate) allowance: Balance,
    spent: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    deficits: AtomicU64,
    throttled_nanos: AtomicU64,
    donated: AtomicU64,
    borrowed: AtomicU64,
}

impl Tenant {
    pub(crate) fn vacant() -> Tenant {
        Tenant {
            word: AtomicU64::new(0),
            balance: Balance::new(),
            cap: AtomicU64::new(0),
            latency: AtomicU64::new(0),
            limit: AtomicI64::new(NEG_LIMIT),
            spent_to: AtomicU64::new(0),
            arrears: Balance::new(),
            allowance: Balance::new(),
            spent: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            deficits: AtomicU64::new(0),
            throttled_nanos: AtomicU64::new(0),
            donated: AtomicU64::new(0),
            borrowed: AtomicU64::new(0),
        }
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms::unpack(self.word.load(Acquire))
    }

    /// Returns the maximum rate of a best-effort tenant in units a second; `None` for no maximum.
    pub(crate) fn cap(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.cap.load(Acquire))
    }

    pub(crate) fn set_cap(&self, cap: Option<u64>) {
        self.cap.store(cap.unwrap_or(0), Release);
    }

    /// Returns the latency in nanoseconds of a latency-critical tenant.
    pub(crate) fn latency_nanos(&self) -> u64 {
        self.latency.load(Relaxed)
    }

    pub(crate) fn set_latency_nanos(&self, nanos: u64) {
        self.latency.store(nanos, Relaxed);
    }

    /// Returns the balance, in nano-units, above which a latency-critical tenant may submit.
    #[inline]
    pub(crate) fn limit(&self) -> i64 {
        self.limit.load(Relaxed)
    }

    /// Sets the [limit](Tenant::limit) of a tenant whose dearest promised request costs `dearest`
    /// units: the tenant submits while it owes less than one of them, or than [`NEG_LIMIT`] if that
    /// is more.
    pub(crate) fn owe_at_most(&self, dearest: u64) {
        self.limit.store(NEG_LIMIT.min(-nano(dearest)), Relaxed);
    }

    /// Spends `units` of the rate of an idle tenant (`rate` is in units a second), if the tenant is
    /// then ahead of its rate by at most `most` units. The idle pool generates the tokens of that
    /// rate. Returns `false` if nothing is spent, for example because another worker spends at the
    /// same time.
    pub(crate) fn spend_ahead(&self, now: u64, units: u64, rate: u64, most: u64) -> bool {
        let spent_to = self.spent_to.load(Acquire);
        let Some(time) = (units * NANO as u64).checked_div(rate) else { return false };
        let ahead = spent_to.saturating_sub(now).saturating_add(time);
        let goes = ahead.saturating_mul(rate) <= most * NANO as u64
            && self.move_spent_to(spent_to, now.saturating_add(ahead + 1));
        if goes {
            self.remember_idle(now.saturating_sub(spent_to), rate);
        }
        goes
    }

    /// Spends `units` of the rate of an idle tenant (`rate` is in units a second), if the rate has
    /// generated them since the last spending, within the last `longest` nanoseconds. Returns
    /// `false` if nothing is spent, for example because another worker spends at the same time.
    pub(crate) fn spend_behind(&self, now: u64, units: u64, rate: u64, longest: u64) -> bool {
        let spent_to = self.spent_to.load(Acquire);
        let since = now.saturating_sub(spent_to).min(longest);
        since.saturating_mul(rate) >= units * NANO as u64 && self.move_spent_to(spent_to, now)
    }

    fn move_spent_to(&self, from: u64, to: u64) -> bool {
        self.spent_to.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }

    /// Returns the nano-units that the tenant has spent ahead of its rate, at most `most` units.
    pub(crate) fn debt(&self, now: u64, rate: u64, most: u64) -> i64 {
        let ahead = self.spent_to.load(Acquire).saturating_sub(now);
        generated(rate, ahead).min(nano(most))
    }

    /// Takes over the debt in nano-units that the tenant has from spending ahead of its rate, at
    /// most `most` units. A worker whose clock is behind sees more.
    pub(crate) fn take_debt(&self, now: u64, rate: u64, most: u64) -> i64 {
        if self.spent_to.load(Acquire) <= now {
            return 0;
        }
        let ahead = self.spent_to.swap(now, AcqRel).saturating_sub(now);
        generated(rate, ahead).min(nano(most))
    }

    /// Begins an idle time at `now`, from which on the idle pool makes the tenant's tokens.
    pub(crate) fn begin_idle(&self, now: u64) {
        self.spent_to.fetch_max(now, AcqRel);
    }

    /// Clears the debt from spending ahead, and the arrears.
    pub(crate) fn clear_debt(&self, now: u64) {
        self.spent_to.store(now, Release);
        self.arrears.take(|tokens| tokens);
    }

    /// Ends the terms that the tenant had until `now`. Its arrears are measured by the old promise,
    /// and limited by the new one.
    pub(crate) fn change_promise(&self, old: Terms, class: Class, rate: u64, now: u64) {
        if old.class == Class::LatencyCritical && old.holders == 0 {
            self.remember_until(now, old.rate);
        }
        self.spent_to.fetch_max(now, AcqRel);
        let most = match class {
            Class::LatencyCritical => of_a_stall(rate, STALL_NANOS_MAX),
            Class::BestEffort | Class::Leaving | Class::Vacant => 0,
        };
        self.arrears.take(|tokens| tokens - most);
    }

    /// Adds the tokens of `rate` that a tenant without a worker did not use until `now` to its
    /// arrears.
    pub(crate) fn remember_until(&self, now: u64, rate: u64) {
        self.remember_idle(now.saturating_sub(self.spent_to.load(Acquire)), rate);
    }

    fn remember_idle(&self, nanos: u64, rate: u64) {
        self.remember(of_a_stall(rate, nanos), rate);
    }

    /// Adds unused tokens to the arrears, up to the tokens that `rate` generates in the longest
    /// stall.
    pub(crate) fn remember(&self, tokens: i64, rate: u64) {
        if tokens > 0 {
            self.arrears.fill(tokens, of_a_stall(rate, STALL_NANOS_MAX));
        }
    }

    /// Changes class and rate, and returns the former terms.
    pub(crate) fn change(&self, class: Class, rate: u64) -> Terms {
        self.update(|old| Some(Terms { class, rate, ..old })).expect("a change is never refused")
    }

    /// Holds the tenant for one more worker, and returns the former terms.
    pub(crate) fn hold(&self) -> Terms {
        self.update(|old| Some(Terms { holders: old.holders + 1, ..old }))
            .expect("a hold is never refused")
    }

    /// Releases the tenant for one worker, and returns the former terms.
    pub(crate) fn release(&self) -> Terms {
        self.update(|old| {
            let holders = old.holders.checked_sub(1).expect("a worker lets go of what it holds");
            Some(Terms { holders, ..old })
        })
        .expect("a release is never refused")
    }

    /// Marks the tenant as no longer held by this worker, if another worker still holds it. Returns
    /// `false` if no other worker does.
    pub(crate) fn release_to_others(&self) -> bool {
        self.update(|old| (old.holders > 1).then(|| Terms { holders: old.holders - 1, ..old }))
            .is_some()
    }

    /// Adds submitted requests, and the units spent on them, to the tenant's counts.
    pub(crate) fn count(&self, spent: u64, reads: u64, writes: u64) {
        self.spent.fetch_add(spent, Relaxed);
        if reads > 0 {
            self.reads.fetch_add(reads, Relaxed);
        }
        if writes > 0 {
            self.writes.fetch_add(writes, Relaxed);
        }
    }

    pub(crate) fn count_deficit(&self) {
        self.deficits.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_throttled(&self, nanos: u64) {
        self.throttled_nanos.fetch_add(nanos, Relaxed);
    }

    pub(crate) fn count_donated(&self, nano_units: i64) {
        self.donated.fetch_add(nano_units as u64, Relaxed);
    }

    pub(crate) fn count_borrowed(&self, nano_units: i64) {
        self.borrowed.fetch_add(nano_units as u64, Relaxed);
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            spent: self.spent.load(Relaxed),
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            deficits: self.deficits.load(Relaxed),
            throttled_nanos: self.throttled_nanos.load(Relaxed),
            donated: self.donated.load(Relaxed),
            borrowed: self.borrowed.load(Relaxed),
        }
    }

    /// Clears the counts of an earlier tenant of this cell.
    pub(crate) fn clear_usage(&self) {
        let Tenant { spent, reads, writes, deficits, throttled_nanos, donated, borrowed, .. } =
            self;
        for counter in [spent, reads, writes, deficits, throttled_nanos, donated, borrowed] {
            counter.store(0, Relaxed);
        }
    }

    fn update(&self, change: impl Fn(Terms) -> Option<Terms>) -> Option<Terms> {
        let mut word = self.word.load(Acquire);
        loop {
            let old = Terms::unpack(word);
            let next = change(old)?;
            match self.word.compare_exchange_weak(word, next.pack(), AcqRel, Acquire) {
                Ok(_) => return Some(old),
                Err(other) => word = other,
            }
        }
    }
}

/// Returns the nano-units that a rate generates in `nanos` nanoseconds, limited to the length of
/// the longest stall.
fn of_a_stall(rate: u64, nanos: u64) -> i64 {
    const { assert!(RATE_MAX < i64::MAX as u64 / STALL_NANOS_MAX) };
    debug_assert!(rate <= RATE_MAX, "no device is as fast as that");
    (rate * nanos.min(STALL_NANOS_MAX)) as i64
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn terms_round_trip() {
        for class in [Class::Vacant, Class::BestEffort, Class::LatencyCritical, Class::Leaving] {
            for (holders, rate) in [(0, 0), (32, RATE_MAX), (1, 7)] {
                let terms = Terms { class, holders, rate };
                assert_eq!(Terms::unpack(terms.pack()), terms);
            }
        }
    }

    #[test]
    fn the_last_holder_knows_it_is_the_last() {
        let tenant = Tenant::vacant();
        tenant.change(Class::LatencyCritical, 5);
        assert_eq!(tenant.hold().holders, 0);
        assert!(!tenant.release_to_others());
        assert_eq!(tenant.hold().holders, 1);
        assert!(tenant.release_to_others());
        let last = tenant.release();
        assert_eq!((last.holders, last.rate, last.class), (1, 5, Class::LatencyCritical));
    }
}
