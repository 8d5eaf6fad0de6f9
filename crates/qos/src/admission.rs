//! Admission: the decision whether an SLO can be promised beside the present promises (paper,
//! sections 3.2.2 and 4.3).
//!
//! The strictest latency sets the device's tokens per second; the rates of all admitted tenants
//! must fit into them. This module deliberately leaves out the tenants themselves
//! ([`Registry`](crate::Registry)).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

use contract::{IoKind, REQUEST_BYTES_MAX, Slo, TenantId};

use crate::headroom::WindowRates;
use crate::{CostModel, DeviceModel, Percentile};

/// A latency-critical tenant's SLO, priced for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PricedSlo {
    /// Tail read latency in microseconds.
    pub latency_us: u32,
    /// The percentile of the read latency that `latency_us` bounds.
    pub percentile: Percentile,
    /// Units a second that the device makes if this is the strictest promise.
    pub limit: u64,
    /// Units a second of the device at this latency that `limit` leaves out, so that the SLO holds
    /// in windows.
    pub headroom: u64,
    /// Units a second up to which best effort fills the device.
    pub fill: u64,
    /// Units a second that the SLO needs.
    pub rate: u64,
}

/// The reason that an SLO is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The SLO is invalid, for this reason.
    Invalid(&'static str),
    /// The table of tenants is full.
    TableFull,
    /// No tenant is registered under the given number.
    NoTenant,
    /// The device's model has no rate at this latency.
    TooTight {
        /// The requested latency in microseconds.
        latency_us: u32,
        /// The shortest latency for which the device's model has a rate, in microseconds.
        tightest_us: u32,
        /// The percentile of both latencies.
        percentile: Percentile,
    },
    /// The rates of the new SLO and of the present promises exceed the device's rate.
    TooMuch(Shortage),
}

/// The rates of an SLO that does not fit, and the tenant with the strictest latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Units a second that the SLO needs.
    pub needed: u64,
    /// Units a second that the present promises leave.
    pub available: u64,
    /// Units a second that may be promised at the strictest latency.
    pub device: u64,
    /// Units a second that the device makes beyond them, which are kept back for
    /// windows.
    pub headroom: u64,
    /// The strictest latency, in microseconds.
    pub latency_us: u32,
    /// The percentile of the read latency that `latency_us` bounds.
    pub percentile: Percentile,
    /// The tenant to which the strictest latency is promised; `None` if it is the latency of the
    /// refused SLO itself.
    pub limited_by: Option<TenantId>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Invalid(what) => write!(f, "the SLO makes no sense: {what}"),
            Refusal::TableFull => f.write_str("the table of tenants is full"),
            Refusal::NoTenant => f.write_str("there is no such tenant"),
            Refusal::TooTight { latency_us, tightest_us, percentile } => write!(
                f,
                "{percentile} ≤ {latency_us} µs is below the lowest latency of the device's model, \
                 {tightest_us} µs"
            ),
            Refusal::TooMuch(shortage) => {
                let Shortage { latency_us, percentile, limited_by, .. } = shortage;
                let tokens = |units: u64| units / 100;
                let (needed, available) = (tokens(shortage.needed), tokens(shortage.available));
                let device = tokens(shortage.device);
                write!(
                    f,
                    "needs {needed} tokens/s of {available} available; \
                     the device makes {device} at {percentile} ≤ {latency_us} µs, the bound of "
                )?;
                match limited_by {
                    Some(tenant) => write!(f, "tenant {}", tenant.0),
                    None => f.write_str("this SLO itself"),
                }?;
                match tokens(shortage.headroom) {
                    0 => Ok(()),
                    kept => write!(f, ", without {kept} of headroom for windows"),
                }
            }
        }
    }
}

/// Changes that would make room for a refused SLO; each of them is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Requests a second that would be admitted at the requested latency and mix; `None` if none
    /// would.
    pub iops: Option<u32>,
    /// The tightest latency in microseconds at which the requested rate would be admitted; `None`
    /// if it would be at none.
    pub latency_us: Option<u32>,
    /// A small set of tenants without whose promises the SLO would be admitted; empty if no set is
    /// enough.
    pub leave: Vec<TenantId>,
}

/// The answer to the question whether an SLO would be admitted now. Nothing is admitted by asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The SLO would be admitted.
    Admitted {
        /// Units a second that the SLO needs.
        needed: u64,
        /// Units a second that would be left for best effort.
        left: u64,
        /// Units a second beyond these that would be kept back, so that SLOs hold in windows.
        headroom: u64,
    },
    /// The SLO would be refused.
    Refused {
        /// The reason of the refusal.
        refusal: Refusal,
        /// Changes that would make room for the SLO.
        ways: Ways,
    },
}

/// Returns the rate that an SLO needs on a device, and the rate of the device at the SLO's latency.
/// Returns an error if the SLO is invalid, or the model has no rate at that latency. A read is
/// priced as under a mixed load, because the load may become mixed at any time. `cost` is the
/// device's present price list.
pub fn claim(slo: &Slo, model: &DeviceModel, cost: &CostModel) -> Result<PricedSlo, Refusal> {
    if slo.iops == 0 {
        return Err(Refusal::Invalid("a latency is promised to a rate, and the rate is zero"));
    }
    if slo.read_percent > 100 {
        return Err(Refusal::Invalid("more than 100 % reads"));
    }
    if slo.request_bytes as usize > REQUEST_BYTES_MAX {
        return Err(Refusal::Invalid("requests larger than the largest"));
    }
    let Some(percentile) = Percentile::from_tenths(slo.percentile_tenths) else {
        return Err(Refusal::Invalid("only the 95th and the 99th percentile can be promised"));
    };
    let Some(first) = model.points_at(percentile).first() else {
        return Err(Refusal::Invalid("the device's 99th percentile was not measured"));
    };
    let (latency_us, tightest_us) = (slo.latency_us, first.latency_us);
    let Some(WindowRates { most, promised, filled }) = model.rates_for(percentile, slo) else {
        return Err(Refusal::TooTight { latency_us, tightest_us, percentile });
    };
    let (limit, headroom, rate) = (promised, most - promised, needed(slo, slo.iops, cost));
    Ok(PricedSlo { latency_us, percentile, limit, headroom, fill: filled, rate })
}

/// Returns the units a second of `iops` requests of the SLO's size and mix, rounded up.
pub(crate) fn needed(slo: &Slo, iops: u32, cost: &CostModel) -> u64 {
    let price = |kind| u64::from(cost.cost(kind, slo.request_bytes as usize).mixed);
    let reads = u64::from(slo.read_percent);
    let hundred = reads * price(IoKind::Read) + (100 - reads) * price(IoKind::Write);
    u64::from(iops).saturating_mul(hundred).div_ceil(100)
}

/// The promises of a device, sorted by rate limit and by latency: admission finds the strictest one
/// in logarithmic time.
#[derive(Clone, Debug, Default)]
pub struct AdmittedPromises {
    /// The promises by the rate limit that each sets: the latency of the first one sets the
    /// device's rate.
    by_limit: BTreeMap<(u64, TenantId), PricedSlo>,
    by_latency: BTreeSet<(u32, TenantId)>,
    promised: u64,
}

impl AdmittedPromises {
    /// Adds a tenant's promise.
    pub fn insert(&mut self, tenant: TenantId, promise: PricedSlo) {
        self.by_limit.insert((promise.limit, tenant), promise);
        self.by_latency.insert((promise.latency_us, tenant));
        self.promised += promise.rate;
    }

    /// Removes a tenant's promise, which must equal the one that was inserted.
    pub fn remove(&mut self, tenant: TenantId, promise: PricedSlo) {
        let was = self.by_limit.remove(&(promise.limit, tenant));
        assert!(was == Some(promise), "tenant {} was promised something else", tenant.0);
        self.by_latency.remove(&(promise.latency_us, tenant));
        self.promised -= promise.rate;
    }

    /// Returns the units a second of all promises.
    pub fn promised(&self) -> u64 {
        self.promised
    }

    /// Returns the tenant and the promise whose latency sets the device's rate; `None` without
    /// promises.
    pub fn strictest(&self) -> Option<(TenantId, PricedSlo)> {
        self.by_limit.first_key_value().map(|((_, tenant), promise)| (*tenant, *promise))
    }

    /// Returns the shortest promised latency, in microseconds; `None` without promises.
    pub fn latency_us_min(&self) -> Option<u32> {
        self.by_latency.first().map(|(latency_us, _)| *latency_us)
    }

    /// Returns the units a second that the device makes at the strictest of these promises, or its
    /// highest rate without promises. No correction is applied.
    pub fn device_rate(&self, model: &DeviceModel) -> u64 {
        self.strictest().map_or(model.rate_max(), |(_, promise)| promise.limit)
    }

    /// Returns the units a second up to which best effort fills the device beside these promises.
    /// No correction is applied.
    pub fn filled_rate(&self, model: &DeviceModel) -> u64 {
        self.strictest().map_or(model.rate_max(), |(_, promise)| promise.fill)
    }

    /// Returns every tenant's promise.
    pub fn iter(&self) -> impl Iterator<Item = (TenantId, PricedSlo)> {
        self.by_limit.iter().map(|((_, tenant), promise)| (*tenant, *promise))
    }
}

/// The corrected rate of a device in thousandths of its model's rate (see
/// [`Correction`](crate::Correction)).
pub type Permille = u32;

/// Checks whether a promise fits beside the present ones (`others`), and returns the units a second
/// that would remain for best effort, or the reason for a refusal. Adds no promise. `permille` is
/// the corrected rate in thousandths of the model's.
pub fn admit(
    asked: PricedSlo,
    others: &AdmittedPromises,
    permille: Permille,
) -> Result<u64, Refusal> {
    let (limited_by, strictest) = strictest(asked, others);
    let device = scaled(strictest.limit, permille);
    let available = device.saturating_sub(others.promised());
    available.checked_sub(asked.rate).ok_or(Refusal::TooMuch(Shortage {
        needed: asked.rate,
        available,
        device,
        headroom: scaled(strictest.headroom, permille),
        latency_us: strictest.latency_us,
        percentile: strictest.percentile,
        limited_by,
    }))
}

/// Returns the verdict on a promise that leaves `left` units a second beside the present ones
/// (`others`).
pub(crate) fn admitted(
    asked: PricedSlo,
    left: u64,
    others: &AdmittedPromises,
    permille: Permille,
) -> Verdict {
    let headroom = scaled(strictest(asked, others).1.headroom, permille);
    Verdict::Admitted { needed: asked.rate, left, headroom }
}

/// Returns the verdict on best effort beside the present promises (`others`).
pub(crate) fn admitted_best_effort(
    others: &AdmittedPromises,
    model: &DeviceModel,
    permille: Permille,
) -> Verdict {
    let left = scaled(others.device_rate(model), permille).saturating_sub(others.promised());
    let kept = others.strictest().map_or(0, |(_, promise)| promise.headroom);
    Verdict::Admitted { needed: 0, left, headroom: scaled(kept, permille) }
}

/// Returns the strictest of the present promises (`others`) and another one, and its tenant; `None`
/// if it is the other one.
fn strictest(asked: PricedSlo, others: &AdmittedPromises) -> (Option<TenantId>, PricedSlo) {
    match others.strictest() {
        Some((tenant, promise)) if promise.limit <= asked.limit => (Some(tenant), promise),
        _ => (None, asked),
    }
}

/// Returns `permille` thousandths of a rate.
pub(crate) fn scaled(rate: u64, permille: Permille) -> u64 {
    rate * u64::from(permille) / 1_000
}

/// Returns the tenants that would have to go for these SLOs to fit into a device of this model;
/// none if all fit.
pub(crate) fn displaced(
    tenants: impl Iterator<Item = (TenantId, Slo)>,
    model: &DeviceModel,
) -> Vec<TenantId> {
    let mut standing = AdmittedPromises::default();
    let mut displaced = Vec::new();
    for (tenant, slo) in tenants {
        match claim(&slo, model, model.cost()) {
            Ok(promise) => standing.insert(tenant, promise),
            _ => displaced.push(tenant),
        }
    }
    displaced.extend(excess(&standing, model));
    displaced
}

/// Returns the tenants that would have to go for these promises to fit into a device of this model;
/// none if all fit.
fn excess(standing: &AdmittedPromises, model: &DeviceModel) -> Vec<TenantId> {
    if standing.promised() <= standing.device_rate(model) {
        return Vec::new();
    }
    // Room for the least that can be promised, at whoever's latency.
    let limit = model.rate_max();
    let percentile = Percentile::P95;
    let least =
        PricedSlo { latency_us: u32::MAX, percentile, limit, headroom: 0, fill: limit, rate: 1 };
    leave(least, standing, model, 1_000)
}

/// Finds changes that would make room for a promise that is refused beside the `others`. `cost` is
/// the device's present price list.
pub fn ways(
    slo: &Slo,
    asked: PricedSlo,
    others: &AdmittedPromises,
    model: &DeviceModel,
    cost: &CostModel,
    permille: Permille,
) -> Ways {
    let fits = |asked: PricedSlo| admit(asked, others, permille).is_ok();
    let fits_as = |slo: Slo| claim(&slo, model, cost).is_ok_and(fits);
    let with_latency = |latency_us| fits_as(Slo { latency_us, ..*slo });
    let iops = most(slo.iops, |iops| fits_as(Slo { iops, ..*slo }));
    let last = model.points_at(asked.percentile).last();
    let laxest = last.expect("a promise was made from these rows").latency_us;
    let latency_us = with_latency(laxest).then(|| {
        let tight = most(laxest, |latency_us| !with_latency(latency_us));
        tight.unwrap_or(0) + 1
    });
    Ways { iops, latency_us, leave: leave(asked, others, model, permille) }
}

/// Returns the largest number from 1 to `max` for which `holds` is true; `None` if there is none.
/// `holds` must be monotone: false for all numbers above one for which it is false.
fn most(max: u32, holds: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (0, max);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) { low = middle } else { high = middle - 1 }
    }
    (low > 0).then_some(low)
}

/// Returns tenants without which the promise fits, chosen greedily: each time the tenant whose
/// removal makes most room. That is either the largest promise or the only strictest one. The list
/// is empty if the promise does not even fit alone.
fn leave(
    asked: PricedSlo,
    others: &AdmittedPromises,
    model: &DeviceModel,
    permille: Permille,
) -> Vec<TenantId> {
    let mut stay = others.clone();
    let by_rate = |(tenant, promise): (TenantId, PricedSlo)| ((promise.rate, tenant), promise);
    let mut greatest: BTreeMap<(u64, TenantId), PricedSlo> = stay.iter().map(by_rate).collect();
    let mut gone = Vec::new();
    while admit(asked, &stay, permille).is_err() {
        let Some(((_, most), promise)) = greatest.last_key_value() else { return Vec::new() };
        let most = (*most, *promise);
        let strictest = stay.strictest().expect("as many as in the other order");
        let room_without = |(tenant, promise): (TenantId, PricedSlo)| {
            let mut first = stay.by_limit.values().take(2);
            let rest = if strictest.0 == tenant { first.nth(1) } else { first.next() };
            let limit = rest.map_or(model.rate_max(), |promise| promise.limit);
            let promised = stay.promised() - promise.rate;
            scaled(limit.min(asked.limit), permille) as i64 - promised as i64
        };
        let best = if room_without(strictest) > room_without(most) { strictest } else { most };
        stay.remove(best.0, best.1);
        greatest.remove(&(best.1.rate, best.0));
        gone.push(best.0);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn slo(latency_us: u32, iops: u32, read_percent: u8) -> Slo {
        Slo::new(latency_us, iops, read_percent)
    }

    fn asked(slo: &Slo) -> PricedSlo {
        let model = DeviceModel::device_a();
        claim(slo, &model, model.cost()).unwrap()
    }

    fn standing(promises: &[(u32, PricedSlo)]) -> AdmittedPromises {
        let mut standing = AdmittedPromises::default();
        promises.iter().for_each(|(n, promise)| standing.insert(TenantId(*n), *promise));
        standing
    }

    fn found(slo: &Slo, others: &AdmittedPromises) -> Ways {
        let model = DeviceModel::device_a();
        ways(slo, asked(slo), others, &model, model.cost(), 1_000)
    }

    #[test]
    fn the_papers_needs() {
        let tokens = |slo| asked(&slo).rate / 100;
        assert_eq!(tokens(slo(500, 100_000, 80)), 280_000);
        assert_eq!(tokens(slo(500, 120_000, 100)), 120_000);
        assert_eq!(tokens(slo(500, 70_000, 80)), 196_000);
        assert_eq!(tokens(slo(2_000, 20_000, 90)), 38_000);
        let large = Slo { request_bytes: 32 << 10, ..slo(500, 1_000, 100) };
        assert_eq!(tokens(large), 8_000);
    }

    #[test]
    fn the_strictest_latency_sets_the_rate() {
        let others = standing(&[(3, asked(&slo(500, 120_000, 100)))]);
        // 570 K tokens a second at 2 ms, but 420 K at the other's 500 µs.
        let late = asked(&slo(2_000, 400_000, 100));
        let refusal = admit(late, &others, 1_000).unwrap_err();
        let Refusal::TooMuch(shortage) = refusal else { panic!("{refusal:?}") };
        assert_eq!(shortage.limited_by, Some(TenantId(3)));
        assert_eq!((shortage.needed, shortage.available), (40_000_000, 30_000_000));
        assert!(admit(late, &AdmittedPromises::default(), 1_000).is_ok());
        assert_eq!(
            refusal.to_string(),
            "needs 400000 tokens/s of 300000 available; \
             the device makes 420000 at p95 ≤ 500 µs, the bound of tenant 3"
        );
        assert_eq!(admit(asked(&slo(500, 300_000, 100)), &others, 1_000), Ok(0));
        // A device that makes half of what its model says: 210 K.
        assert!(admit(asked(&slo(500, 90_001, 100)), &others, 500).is_err());
        assert_eq!(admit(asked(&slo(500, 90_000, 100)), &others, 500), Ok(0));
        let model = DeviceModel::device_a();
        let tight = claim(&slo(499, 1, 100), &model, model.cost());
        assert_eq!(
            tight,
            Err(Refusal::TooTight {
                latency_us: 499,
                tightest_us: 500,
                percentile: Percentile::P95
            })
        );
    }

    #[test]
    fn a_99th_percentile_needs_rates_of_its_own() {
        let model = DeviceModel::device_a();
        let strict = Slo { percentile_tenths: 990, ..slo(1_000, 1_000, 100) };
        let unknown = claim(&strict, &model, model.cost()).unwrap_err();
        assert!(unknown.to_string().contains("99th percentile was not measured"));
        let row = |latency_us, mixed| crate::RatePoint { latency_us, mixed, read_only: mixed };
        let model = model.with_p99(vec![row(1_000, 30_000_000)]).unwrap();
        let strict = claim(&strict, &model, model.cost()).unwrap();
        assert_eq!((strict.limit, strict.percentile.tenths()), (30_000_000, 990));
        // Its millisecond is stricter than the other's half.
        let others = standing(&[(1, strict)]);
        let much = admit(asked(&slo(500, 299_001, 100)), &others, 1_000).unwrap_err();
        assert!(
            much.to_string().contains("300000 at p99 ≤ 1000 µs, the bound of tenant 1"),
            "{much}"
        );
        assert_eq!(admit(asked(&slo(500, 299_000, 100)), &others, 1_000), Ok(0));
    }

    #[test]
    fn says_what_would_have_to_give() {
        let others =
            standing(&[(1, asked(&slo(2_000, 20_000, 90))), (2, asked(&slo(2_000, 400_000, 100)))]);
        let wish = slo(500, 50_000, 100);
        let give = found(&wish, &others);
        assert_eq!(give.leave, [TenantId(2)]);
        // 438 K tokens a second are promised: at 500 µs, with 420 K, not one request fits.
        assert_eq!(give.iops, None);
        let latency_us = give.latency_us.unwrap();
        let at = |latency_us| admit(asked(&Slo { latency_us, ..wish }), &others, 1_000);
        assert!(at(latency_us).is_ok() && at(latency_us - 1).is_err());
        let wish = slo(2_000, 200_000, 100);
        let give = found(&wish, &others);
        assert_eq!((give.iops, give.latency_us), (Some(132_000), None));
        assert_eq!(found(&wish, &AdmittedPromises::default()).leave, vec![]);
    }

    #[test]
    fn whoever_is_strictest_alone_may_make_most_room() {
        let others = standing(&[
            (1, asked(&slo(500, 1_000, 100))),
            (2, asked(&slo(2_000, 300_000, 100))),
            (3, asked(&slo(2_000, 100_000, 100))),
        ]);
        // At 2 ms, 570 K: 150 K are missing, which the strict one's latency costs.
        let give = found(&slo(2_000, 170_000, 100), &others);
        assert_eq!(give.leave, [TenantId(2)]);
        let others = standing(&[
            (1, asked(&slo(500, 1_000, 100))),
            (2, asked(&slo(2_000, 100_000, 100))),
            (3, asked(&slo(2_000, 100_000, 100))),
        ]);
        assert_eq!(found(&slo(2_000, 370_000, 100), &others).leave, [TenantId(1)]);
        // Two are as strict: neither alone makes room.
        let mut others = others;
        others.insert(TenantId(4), asked(&slo(500, 2_000, 100)));
        let all = found(&slo(2_000, 370_000, 100), &others).leave;
        assert!(all.len() == 2 || all.len() == 3, "{all:?}");
    }

    #[test]
    fn senseless_slos_are_refused() {
        let model = DeviceModel::device_a();
        let promised = |slo: Slo| claim(&slo, &model, model.cost());
        let refused = |slo: Slo| matches!(promised(slo), Err(Refusal::Invalid(_)));
        assert!(refused(slo(500, 0, 100)));
        assert!(refused(slo(500, 1, 101)));
        assert!(refused(Slo { percentile_tenths: 999, ..slo(500, 1, 100) }));
        assert!(refused(Slo { request_bytes: (1 << 20) + 1, ..slo(500, 1, 100) }));
    }
}
