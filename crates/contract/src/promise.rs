//! The promise to a tenant: a latency at a rate (an SLO), or a share of the rate that SLOs leave.

use alloc::format;
use alloc::string::String;

use crate::Slo;

/// A best-effort tenant's share of the tokens that SLOs leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Weight relative to the other tenants, from 1 to [`Share::WEIGHT_MAX`]; 1 by default.
    pub weight: u32,
    /// Maximum tokens per second, whatever others leave; `None` for no maximum.
    pub cap_tokens: Option<u64>,
}

impl Share {
    /// The largest weight of a best-effort tenant.
    pub const WEIGHT_MAX: u32 = 1_000;

    /// The largest cap in tokens per second.
    pub const CAP_TOKENS_MAX: u64 = 1_000_000_000;

    /// Checks that the weight and the cap are in their ranges.
    ///
    /// # Errors
    /// Fails with the name of an invalid field and its range.
    pub fn check(self) -> Result<(), String> {
        let Share { weight, cap_tokens } = self;
        if !(1..=Share::WEIGHT_MAX).contains(&weight) {
            let most = Share::WEIGHT_MAX;
            return Err(format!("weight is {weight}; expected a number from 1 to {most}"));
        }
        match cap_tokens {
            Some(cap) if !(1..=Share::CAP_TOKENS_MAX).contains(&cap) => {
                let most = Share::CAP_TOKENS_MAX;
                Err(format!("cap_tokens is {cap}; expected a number from 1 to {most}"))
            }
            _ => Ok(()),
        }
    }
}

impl Default for Share {
    /// Returns a share of weight 1 without a cap.
    fn default() -> Share {
        Share { weight: 1, cap_tokens: None }
    }
}

/// The promise to a tenant. A change of a promise is a `Promise<Option<Share>>`: without a share,
/// the tenant keeps the one that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise<S = Share> {
    /// A tail latency at a rate.
    LatencyCritical(Slo),
    /// A share of the rate that other tenants' SLOs leave.
    BestEffort(S),
}

impl<S> Promise<S> {
    /// Returns the SLO of a latency-critical tenant; `None` for best effort.
    pub fn slo(&self) -> Option<Slo> {
        match self {
            Promise::LatencyCritical(slo) => Some(*slo),
            Promise::BestEffort(_) => None,
        }
    }
}

impl Promise {
    /// Returns the share of a best-effort tenant, and the default share of a latency-critical one.
    pub fn share(&self) -> Share {
        match self {
            Promise::LatencyCritical(_) => Share::default(),
            Promise::BestEffort(share) => *share,
        }
    }
}

impl Promise<Option<Share>> {
    /// Creates a promise from an optional SLO and an optional share, as messages and files have
    /// them.
    ///
    /// # Errors
    /// Fails if both are present.
    pub fn of(slo: Option<Slo>, share: Option<Share>) -> Result<Self, &'static str> {
        match (slo, share) {
            (Some(_), Some(_)) => Err(
                "weight and cap_tokens are of best effort, and the tenant is promised a latency",
            ),
            (Some(slo), None) => Ok(Promise::LatencyCritical(slo)),
            (None, share) => Ok(Promise::BestEffort(share)),
        }
    }

    /// Returns the promise that results from applying this change to a tenant. A change without a
    /// share keeps the tenant's share `known`.
    pub fn over(self, known: Share) -> Promise {
        match self {
            Promise::LatencyCritical(slo) => Promise::LatencyCritical(slo),
            Promise::BestEffort(share) => Promise::BestEffort(share.unwrap_or(known)),
        }
    }
}

impl Default for Promise {
    /// Returns best effort with the default share.
    fn default() -> Promise {
        Promise::BestEffort(Share::default())
    }
}

impl<S: Default> From<Option<Slo>> for Promise<S> {
    /// Creates a promise from an SLO; `None` is best effort.
    fn from(slo: Option<Slo>) -> Promise<S> {
        slo.map_or_else(|| Promise::BestEffort(S::default()), Promise::LatencyCritical)
    }
}

impl From<Promise> for Promise<Option<Share>> {
    fn from(promise: Promise) -> Promise<Option<Share>> {
        match promise {
            Promise::LatencyCritical(slo) => Promise::LatencyCritical(slo),
            Promise::BestEffort(share) => Promise::BestEffort(Some(share)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_a_latency_or_a_share() {
        let (slo, share) = (Slo::new(500, 10, 100), Share { weight: 3, cap_tokens: Some(9) });
        assert!(Promise::of(Some(slo), Some(share)).is_err());
        let strict = Promise::of(Some(slo), None).unwrap().over(share);
        assert_eq!((strict.slo(), strict.share()), (Some(slo), Share::default()));
        let kept = Promise::of(None, None).unwrap().over(share);
        assert_eq!((kept, kept.share()), (Promise::BestEffort(share), share));
        assert_eq!(Promise::from(kept).over(Share::default()), kept);
        assert_eq!(Promise::default(), Promise::from(None));
    }

    #[test]
    fn a_share_has_a_range() {
        let share = |weight, cap_tokens| Share { weight, cap_tokens }.check();
        assert_eq!((share(1, None), share(1_000, Some(1_000_000_000))), (Ok(()), Ok(())));
        assert!(share(0, None).unwrap_err().starts_with("weight is 0; expected"));
        assert!(share(1_001, None).is_err() && share(1, Some(1_000_000_001)).is_err());
        assert!(share(1, Some(0)).unwrap_err().starts_with("cap_tokens is 0; expected"));
    }
}
