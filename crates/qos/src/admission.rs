//! Whether an SLO can be promised beside those that are promised already (paper, sections 3.2.2 and
//! 4.3).
//!
//! The strictest latency sets how many tokens a second the device makes; the rates of all admitted
//! tenants must fit in. What is deliberately not here: the tenants themselves
//! ([`Registry`](crate::Registry)).

use alloc::vec::Vec;
use core::fmt;

use contract::{Kind, REQUEST_BYTES_MAX, Slo, TenantId};

use crate::{CostModel, DeviceModel, Load, PAGE_BYTES};

/// A latency-critical tenant's promise, in the device's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Tail read latency in microseconds.
    pub latency_us: u32,
    /// Units a second that its SLO needs.
    pub rate: u64,
}

/// Why an SLO is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It makes no sense; what.
    Invalid(&'static str),
    /// The table of tenants is full.
    TableFull,
    /// There is no such tenant.
    NoTenant,
    /// The device is not known to serve anything at this latency.
    TooTight {
        /// What was asked, in microseconds.
        latency_us: u32,
        /// The tightest that the device's model knows.
        tightest_us: u32,
    },
    /// The rates do not fit.
    TooMuch(Shortage),
}

/// By how much the rates do not fit, and whose latency is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Units a second that the SLO needs.
    pub needed: u64,
    /// Units a second that the others leave.
    pub available: u64,
    /// Units a second that the device makes at the strictest latency.
    pub device: u64,
    /// The strictest latency, in microseconds.
    pub latency_us: u32,
    /// Whose latency that is; `None` for the one that asks.
    pub limited_by: Option<TenantId>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Invalid(what) => write!(f, "the SLO makes no sense: {what}"),
            Refusal::TableFull => f.write_str("the table of tenants is full"),
            Refusal::NoTenant => f.write_str("there is no such tenant"),
            Refusal::TooTight { latency_us, tightest_us } => write!(
                f,
                "p95 ≤ {latency_us} µs is tighter than the {tightest_us} µs that the device is known for"
            ),
            Refusal::TooMuch(Shortage { needed, available, device, latency_us, limited_by }) => {
                let (needed, available, device) = (needed / 100, available / 100, device / 100);
                write!(
                    f,
                    "needs {needed} tokens/s of {available} available; \
                     the device makes {device} at p95 ≤ {latency_us} µs, the bound of "
                )?;
                match limited_by {
                    Some(tenant) => write!(f, "tenant {}", tenant.0),
                    None => f.write_str("this SLO itself"),
                }
            }
        }
    }
}

/// What would have to give for a refused SLO: each way on its own is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Requests a second that would be admitted at the asked latency and mix; `None` when not one.
    pub iops: Option<u32>,
    /// The tightest latency in microseconds at which the asked rate would be admitted.
    pub latency_us: Option<u32>,
    /// Tenants that would have to go, few of them; empty when even that is not enough.
    pub leave: Vec<TenantId>,
}

/// What [`Registry::check`](crate::Registry::check) finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It would be admitted.
    Admitted {
        /// Units a second that it needs.
        needed: u64,
        /// Units a second that would be left for best effort.
        left: u64,
    },
    /// It would be refused.
    Refused {
        /// Why.
        refusal: Refusal,
        /// What would have to give.
        ways: Ways,
    },
}

/// The promise that an SLO asks for; `Ok(None)` for best effort. A read is priced as under a mixed
/// load, because the load may become mixed at any time.
pub fn promise(slo: &Slo, cost: &CostModel) -> Result<Option<Promise>, Refusal> {
    if slo.latency_us == 0 {
        return Ok(None);
    }
    if slo.iops == 0 {
        return Err(Refusal::Invalid("a latency is promised to a rate, and the rate is zero"));
    }
    if slo.read_percent > 100 {
        return Err(Refusal::Invalid("more than 100 % reads"));
    }
    if !matches!(slo.percentile_tenths, 0 | 950) {
        return Err(Refusal::Invalid("only the 95th percentile can be promised"));
    }
    if slo.request_bytes as usize > REQUEST_BYTES_MAX {
        return Err(Refusal::Invalid("requests larger than the largest"));
    }
    Ok(Some(Promise { latency_us: slo.latency_us, rate: needed(slo, slo.iops, cost) }))
}

/// Units a second of `iops` requests of the SLO's size and mix, rounded up.
fn needed(slo: &Slo, iops: u32, cost: &CostModel) -> u64 {
    let bytes = if slo.request_bytes == 0 { PAGE_BYTES } else { slo.request_bytes as usize };
    let price = |kind| u64::from(cost.cost(kind, bytes).mixed);
    let reads = u64::from(slo.read_percent);
    let hundred = reads * price(Kind::Read) + (100 - reads) * price(Kind::Write);
    (u64::from(iops) * hundred).div_ceil(100)
}

/// Units a second that the device makes with these promises.
pub fn device_rate(promises: impl Iterator<Item = Promise>, model: &DeviceModel) -> Option<u64> {
    match promises.map(|promise| promise.latency_us).min() {
        None => Some(model.rate_max()),
        Some(strictest) => model.rate(strictest, Load::Mixed),
    }
}

/// Admits a promise beside the `others`, or says why not. The rate that is left for best effort.
pub fn admit(
    asked: Promise,
    others: &[(TenantId, Promise)],
    model: &DeviceModel,
) -> Result<u64, Refusal> {
    let strictest = others.iter().min_by_key(|(_, promise)| promise.latency_us);
    let (limited_by, latency_us) = match strictest {
        Some((tenant, promise)) if promise.latency_us <= asked.latency_us => {
            (Some(*tenant), promise.latency_us)
        }
        _ => (None, asked.latency_us),
    };
    let Some(device) = model.rate(latency_us, Load::Mixed) else {
        return Err(Refusal::TooTight { latency_us, tightest_us: model.latency_us_min() });
    };
    let promised: u64 = others.iter().map(|(_, promise)| promise.rate).sum();
    let available = device.saturating_sub(promised);
    available.checked_sub(asked.rate).ok_or(Refusal::TooMuch(Shortage {
        needed: asked.rate,
        available,
        device,
        latency_us,
        limited_by,
    }))
}

/// What would have to give for a promise that is refused beside the `others`.
pub fn ways(
    slo: &Slo,
    asked: Promise,
    others: &[(TenantId, Promise)],
    model: &DeviceModel,
) -> Ways {
    let fits = |asked: Promise, others: &[(TenantId, Promise)]| admit(asked, others, model).is_ok();
    let with_iops = |iops| Promise { rate: needed(slo, iops, model.cost()), ..asked };
    let with_latency = |latency_us| Promise { latency_us, ..asked };
    let iops = most(slo.iops, |iops| fits(with_iops(iops), others));
    let laxest = model.points().last().expect("a model has rows").latency_us;
    let latency_us = fits(with_latency(laxest), others).then(|| {
        let tight = most(laxest, |latency_us| !fits(with_latency(latency_us), others));
        tight.unwrap_or(0) + 1
    });
    Ways { iops, latency_us, leave: leave(asked, others, model) }
}

/// The largest number from 1 to `max` that `holds`, where it holds for none above one that it does
/// not hold for.
fn most(max: u32, holds: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (0, max);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) { low = middle } else { high = middle - 1 }
    }
    (low > 0).then_some(low)
}

/// Tenants without whom the promise fits, taken greedily: each time the one that makes most room.
fn leave(asked: Promise, others: &[(TenantId, Promise)], model: &DeviceModel) -> Vec<TenantId> {
    let mut stay = others.to_vec();
    let mut gone = Vec::new();
    while admit(asked, &stay, model).is_err() {
        let room_without = |n: &usize| {
            let rest = || (0..stay.len()).filter(|m| m != n).map(|m| stay[m].1);
            let device = device_rate(rest().chain([asked]), model).unwrap_or(0);
            device as i64 - rest().map(|promise| promise.rate as i64).sum::<i64>()
        };
        let Some(best) = (0..stay.len()).max_by_key(room_without) else { return Vec::new() };
        gone.push(stay.remove(best).0);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    pub(crate) fn slo(latency_us: u32, iops: u32, read_percent: u8) -> Slo {
        Slo { latency_us, iops, read_percent, ..Slo::default() }
    }

    fn asked(slo: &Slo) -> Promise {
        promise(slo, DeviceModel::device_a().cost()).unwrap().unwrap()
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
        let model = DeviceModel::device_a();
        let others = [(TenantId(3), asked(&slo(500, 120_000, 100)))];
        // 570 K tokens a second at 2 ms, but 420 K at the other's 500 µs.
        let late = asked(&slo(2_000, 400_000, 100));
        let refusal = admit(late, &others, &model).unwrap_err();
        let Refusal::TooMuch(shortage) = refusal else { panic!("{refusal:?}") };
        assert_eq!(shortage.limited_by, Some(TenantId(3)));
        assert_eq!((shortage.needed, shortage.available), (40_000_000, 30_000_000));
        assert!(admit(late, &[], &model).is_ok());
        assert_eq!(
            refusal.to_string(),
            "needs 400000 tokens/s of 300000 available; \
             the device makes 420000 at p95 ≤ 500 µs, the bound of tenant 3"
        );
        assert_eq!(admit(asked(&slo(500, 300_000, 100)), &others, &model), Ok(0));
        let tight = admit(asked(&slo(499, 1, 100)), &[], &model);
        assert_eq!(tight, Err(Refusal::TooTight { latency_us: 499, tightest_us: 500 }));
    }

    #[test]
    fn says_what_would_have_to_give() {
        let model = DeviceModel::device_a();
        let others = [
            (TenantId(1), asked(&slo(2_000, 20_000, 90))),
            (TenantId(2), asked(&slo(2_000, 400_000, 100))),
        ];
        let wish = slo(500, 50_000, 100);
        let found = ways(&wish, asked(&wish), &others, &model);
        assert_eq!(found.leave, [TenantId(2)]);
        // 438 K tokens a second are promised: at 500 µs, with 420 K, not one request fits.
        assert_eq!(found.iops, None);
        let latency_us = found.latency_us.unwrap();
        let at = |latency_us| admit(asked(&Slo { latency_us, ..wish }), &others, &model);
        assert!(at(latency_us).is_ok() && at(latency_us - 1).is_err());
        let wish = slo(2_000, 200_000, 100);
        let found = ways(&wish, asked(&wish), &others, &model);
        assert_eq!((found.iops, found.latency_us), (Some(132_000), None));
        assert_eq!(ways(&wish, asked(&wish), &[], &model).leave, vec![]);
    }

    #[test]
    fn senseless_slos_are_refused() {
        let cost = DeviceModel::device_a();
        let refused = |slo: Slo| matches!(promise(&slo, cost.cost()), Err(Refusal::Invalid(_)));
        assert!(refused(slo(500, 0, 100)));
        assert!(refused(slo(500, 1, 101)));
        assert!(refused(Slo { percentile_tenths: 990, ..slo(500, 1, 100) }));
        assert!(refused(Slo { request_bytes: (1 << 20) + 1, ..slo(500, 1, 100) }));
        assert_eq!(promise(&slo(0, 9, 0), cost.cost()), Ok(None));
    }
}
