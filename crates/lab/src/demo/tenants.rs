//! The four tenants of Figure 5 of the paper (section 5.4), on a device that may be slowed down.

use std::time::Duration;

use client::load::Tally;

use crate::crowd::Member;

/// Tokens of a 4 KiB write on device A; a read in a mixed load is one.
pub(super) const WRITE_TOKENS: f64 = 10.0;

/// Tokens a second that device A serves at a p95 of reads of 500 µs.
pub(super) const DEVICE_TOKENS: f64 = 420e3;

/// Bytes of every request.
pub(super) const REQUEST_BYTES: usize = 4096;

/// A tenant as the paper has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenant {
    pub(super) name: &'static str,
    pub(super) read_percent: u8,
    /// The promised SLO; `None` for best effort.
    pub(super) slo: Option<Slo>,
}

/// A service level objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slo {
    pub(super) iops: f64,
    /// 95th percentile of the latency of reads.
    pub(super) p95: Duration,
}

const fn promised(iops: f64) -> Option<Slo> {
    Some(Slo { iops, p95: Duration::from_micros(500) })
}

/// The tenants.
pub(super) const TENANTS: [Tenant; 4] = [
    Tenant { name: "A", read_percent: 100, slo: promised(120e3) },
    Tenant { name: "B", read_percent: 80, slo: promised(70e3) },
    Tenant { name: "C", read_percent: 95, slo: None },
    Tenant { name: "D", read_percent: 25, slo: None },
];

/// The share of its promised 70 K requests that B sends in the second scenario.
pub(super) const B_SENDS_LESS: f64 = 45e3 / 70e3;

impl Tenant {
    /// Returns the tenant's SLO on a device that is slower by this factor.
    pub(super) fn slo(&self, slow: u32) -> Option<Slo> {
        let slo = self.slo?;
        Some(Slo { iops: slo.iops / f64::from(slow), p95: slo.p95 * slow })
    }

    /// Returns the tenant's client, which sends this share of the promised rate. Without a promise
    /// the client sends as fast as it can.
    pub(super) fn member(&self, slow: u32, share: f64) -> Member {
        let rate = self.slo(slow).map(|slo| slo.iops * share);
        Member {
            tenant: self.name.to_owned(),
            read_percent: self.read_percent,
            request_bytes: REQUEST_BYTES,
            connections: 4,
            // A latency-critical client does not stop sending because replies are late.
            queue_depth: if rate.is_some() { 512 } else { 32 },
            rate,
        }
    }

    /// Tokens of a request of its mix.
    pub(super) fn tokens(&self) -> f64 {
        let reads = f64::from(self.read_percent) / 100.0;
        reads + (1.0 - reads) * WRITE_TOKENS
    }
}

/// The results of a tenant over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Got {
    pub(super) iops: f64,
    /// 95th percentile of its reads, in nanoseconds.
    pub(super) p95_nanos: f64,
    pub(super) tokens: f64,
}

impl Got {
    pub(super) fn of(tally: &Tally, seconds: f64) -> Got {
        let (reads, writes) = (tally.read.count as f64, tally.write.count as f64);
        Got {
            iops: (reads + writes) / seconds,
            p95_nanos: tally.read.latency.value_at_quantile(0.95) as f64,
            tokens: (reads + writes * WRITE_TOKENS) / seconds,
        }
    }

    /// Returns true if the results keep the promise to a tenant that sends this share of its rate.
    pub(super) fn meets(&self, slo: Slo, share: f64) -> bool {
        self.p95_nanos <= slo.p95.as_nanos() as f64 && self.iops >= IOPS_LEAST * share * slo.iops
    }
}

/// The share of the requests that were sent that must have been served.
const IOPS_LEAST: f64 = 0.99;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_arithmetic() {
        let tokens = |name| {
            let tenant = TENANTS.iter().find(|tenant| tenant.name == name).unwrap();
            tenant.slo.unwrap().iops * tenant.tokens()
        };
        assert!((tokens("A") - 120e3).abs() < 1.0);
        assert!((tokens("B") - 196e3).abs() < 1.0);
        let left = DEVICE_TOKENS - tokens("A") - tokens("B");
        assert!((left / 2.0 - 52e3).abs() < 1.0, "C and D get 52 K each: {left}");
    }

    #[test]
    fn a_slower_device_keeps_the_proportions() {
        let slo = TENANTS[0].slo(4).unwrap();
        assert_eq!((slo.iops, slo.p95), (30e3, Duration::from_millis(2)));
        let got = Got { iops: 29.8e3, p95_nanos: 1.9e6, tokens: 0.0 };
        assert!(got.meets(slo, 1.0));
        assert!(!Got { iops: 29.6e3, ..got }.meets(slo, 1.0));
        assert!(!Got { p95_nanos: 2.1e6, ..got }.meets(slo, 1.0));
    }
}
