//! The four tenants of Figure 5 of the paper (section 5.4), and the drives that they share.

use std::time::Duration;

use client::load::Tally;

use crate::crowd::Member;
use crate::stage::Promise;

/// The price of a 4 KiB write on device A, in tokens; a 4 KiB read in a mixed load costs one.
const WRITE_TOKENS: f64 = 10.0;

/// Bytes of every request.
const REQUEST_BYTES: usize = 4096;

/// The smallest share of the sent requests that must be answered for a promise to be kept.
const SERVED_LEAST: f64 = 0.99;

/// A tenant of Figure 5: its name, its share of reads, and its promised rate on device A.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaperTenant {
    pub(crate) name: &'static str,
    pub(crate) read_percent: u8,
    /// The promised requests a second; `None` for best effort.
    pub(crate) iops: Option<f64>,
}

/// The four tenants of Figure 5.
pub(crate) const TENANTS: [PaperTenant; 4] = [
    PaperTenant { name: "A", read_percent: 100, iops: Some(120e3) },
    PaperTenant { name: "B", read_percent: 80, iops: Some(70e3) },
    PaperTenant { name: "C", read_percent: 95, iops: None },
    PaperTenant { name: "D", read_percent: 25, iops: None },
];

/// The share of its promised 70 K requests a second that B sends in the second scenario.
pub(crate) const B_SENDS_LESS: f64 = 45e3 / 70e3;

/// A drive for the tenants of Figure 5, with what is promised on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drive {
    /// The promised 95th percentile of the latency of reads.
    pub(crate) p95: Duration,
    /// The promised rates on this drive, as a share of the paper's rates.
    pub(crate) share: f64,
    /// Tokens a second that the drive serves at the promised latency.
    pub(crate) tokens: f64,
}

/// Device A of the paper.
pub(crate) const PAPER: Drive =
    Drive { p95: Duration::from_micros(500), share: 1.0, tokens: 420e3 };

/// The simulated drive `sim:small`, which a machine with two processors keeps up with.
pub(crate) const SMALL: Drive = Drive { p95: Duration::from_millis(1), share: 0.05, tokens: 23e3 };

/// The spec of the small drive, as `--device` takes it.
pub(crate) const SMALL_SPEC: &str = "sim:small?size=256MiB";

/// Bytes of the small drive, whose data is in memory.
pub(crate) const SMALL_BYTES: u64 = 256 << 20;

/// A tenant's service level objective on a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slo {
    pub(crate) iops: f64,
    /// The bound of the 95th percentile of the latency of reads.
    pub(crate) p95: Duration,
}

impl PaperTenant {
    /// Returns the tenant's SLO on a drive; `None` if it is best effort.
    pub(crate) fn slo(&self, drive: Drive) -> Option<Slo> {
        Some(Slo { iops: self.iops? * drive.share, p95: drive.p95 })
    }

    /// Returns the tenant's entry in the configuration of a server.
    pub(crate) fn promise(&self, drive: Drive) -> Promise<'static> {
        let slo = self.slo(drive).map(|slo| (slo.p95, slo.iops));
        Promise { name: self.name, read_percent: self.read_percent, slo }
    }

    /// Returns the tenant's client, which sends `share` times the promised rate. Without a promise
    /// the client sends as fast as it can.
    pub(crate) fn member(&self, drive: Drive, share: f64) -> Member {
        let rate = self.slo(drive).map(|slo| slo.iops * share);
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

    /// Returns the mean tokens of a request in the tenant's mix of reads and writes.
    pub(crate) fn tokens(&self) -> f64 {
        let reads = f64::from(self.read_percent) / 100.0;
        reads + (1.0 - reads) * WRITE_TOKENS
    }
}

/// The rates a second and the read latency of a tenant over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Got {
    pub(crate) iops: f64,
    /// 95th percentile of the tenant's read latency, in nanoseconds.
    pub(crate) p95_nanos: f64,
    pub(crate) tokens: f64,
}

impl Got {
    /// Returns the results of a client that measured `tally` in `seconds` seconds.
    pub(crate) fn of(tally: &Tally, seconds: f64) -> Got {
        let (reads, writes) = (tally.read.count as f64, tally.write.count as f64);
        Got {
            iops: (reads + writes) / seconds,
            p95_nanos: tally.read.latency.value_at_quantile(0.95) as f64,
            tokens: (reads + writes * WRITE_TOKENS) / seconds,
        }
    }

    /// Returns `true` if the results keep `slo` for a tenant that sends `share` times its promised
    /// rate.
    pub(crate) fn meets(&self, slo: Slo, share: f64) -> bool {
        self.p95_nanos <= slo.p95.as_nanos() as f64 && self.iops >= SERVED_LEAST * share * slo.iops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_arithmetic() {
        let tokens = |n: usize| TENANTS[n].iops.unwrap() * TENANTS[n].tokens();
        assert!((tokens(0) - 120e3).abs() < 1.0);
        assert!((tokens(1) - 196e3).abs() < 1.0);
        let left = PAPER.tokens - tokens(0) - tokens(1);
        assert!((left / 2.0 - 52e3).abs() < 1.0, "C and D get 52 K each: {left}");
    }

    #[test]
    fn a_smaller_drive_promises_less() {
        let slo = TENANTS[0].slo(SMALL).unwrap();
        assert_eq!((slo.iops, slo.p95), (6_000.0, Duration::from_millis(1)));
        let got = Got { iops: 5_960.0, p95_nanos: 0.9e6, tokens: 0.0 };
        assert!(got.meets(slo, 1.0));
        assert!(!Got { iops: 5_920.0, ..got }.meets(slo, 1.0));
        assert!(!Got { p95_nanos: 1.1e6, ..got }.meets(slo, 1.0));
    }

    #[test]
    fn the_server_can_promise_it() {
        let model = qos::DeviceModel::small();
        let most = model.rate(SMALL.p95.as_micros() as u32, qos::Load::Mixed).unwrap();
        assert_eq!(most as f64 / 100.0, SMALL.tokens);
        let sold: f64 = TENANTS
            .iter()
            .filter_map(|tenant| Some(tenant.slo(SMALL)?.iops * tenant.tokens()))
            .sum();
        assert!(sold < 0.75 * SMALL.tokens, "C and D have something to share: {sold}");
    }
}
