//! The tenants of Figure 5 on the small simulated drive: their server, clients and results.

use std::time::Duration;

use client::load::Tally;
use figures::four::{Drive, PaperTenant, Slo, WRITE_TOKENS};

use crate::crowd::Member;
use crate::stage::ConfiguredTenant;

/// Bytes of every request.
const REQUEST_BYTES: usize = 4096;

/// The smallest share of the sent requests that must be answered for a promise to be kept.
const SERVED_LEAST: f64 = 0.99;

/// The simulated drive `sim:small`, which a machine with two processors keeps up with.
pub(crate) const SMALL: Drive = Drive { p95: Duration::from_millis(1), share: 0.05, tokens: 23e3 };

/// The spec of the small drive, as `--device` takes it.
pub(crate) const SMALL_SPEC: &str = "sim:small?size=256MiB";

/// Bytes of the small drive, whose data is in memory.
pub(crate) const SMALL_BYTES: u64 = 256 << 20;

/// Returns a tenant's entry in the configuration of a server.
pub(crate) fn promise(tenant: &PaperTenant, drive: Drive) -> ConfiguredTenant<'static> {
    let slo = tenant.slo(drive).map(|slo| (slo.p95, slo.iops));
    ConfiguredTenant { name: tenant.name, read_percent: tenant.read_percent, slo }
}

/// Returns a tenant's client, which sends `share` times the promised rate. Without a promise
/// the client sends as fast as it can.
pub(crate) fn member(tenant: &PaperTenant, drive: Drive, share: f64) -> Member {
    let rate = tenant.slo(drive).map(|slo| slo.iops * share);
    Member {
        tenant: tenant.name.to_owned(),
        read_percent: tenant.read_percent,
        request_bytes: REQUEST_BYTES,
        connections: 4,
        // A latency-critical client does not stop sending because replies are late.
        queue_depth: if rate.is_some() { 512 } else { 32 },
        rate,
    }
}

/// The rates a second and the read latency of a tenant over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TenantResult {
    pub(crate) iops: f64,
    /// 95th percentile of the tenant's read latency, in nanoseconds.
    pub(crate) p95_nanos: f64,
    pub(crate) tokens: f64,
}

impl TenantResult {
    /// Returns the results of a client that measured `tally` in `seconds` seconds.
    pub(crate) fn of(tally: &Tally, seconds: f64) -> TenantResult {
        let (reads, writes) = (tally.read.count as f64, tally.write.count as f64);
        TenantResult {
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
    use figures::four::TENANTS;

    use super::*;

    #[test]
    fn a_smaller_drive_promises_less() {
        let slo = TENANTS[0].slo(SMALL).unwrap();
        assert_eq!((slo.iops, slo.p95), (6_000.0, Duration::from_millis(1)));
        let got = TenantResult { iops: 5_960.0, p95_nanos: 0.9e6, tokens: 0.0 };
        assert!(got.meets(slo, 1.0));
        assert!(!TenantResult { iops: 5_920.0, ..got }.meets(slo, 1.0));
        assert!(!TenantResult { p95_nanos: 1.1e6, ..got }.meets(slo, 1.0));
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
