//! The measurements of a tenant: differences between two readings of the workers' counters.

use contract::{Instant, Slo, Status, TenantReading};
use qos::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compliance::{Compliance, ComplianceMinute, WindowMeasurements};
use crate::totals::TenantTotals;

/// The measurements of a tenant in the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Requests answered per second.
    pub iops: f64,
    /// Share of reads in percent; `null` without requests.
    pub read_percent: Option<f64>,
    /// Tokens spent per second, on all devices.
    pub tokens: f64,
    /// Tokens per second that the tenant put into the devices' buckets because it had more than it
    /// could use.
    #[serde(default)]
    pub donated: f64,
    /// Tokens per second that the tenant took out of the devices' buckets.
    #[serde(default)]
    pub borrowed: f64,
    /// p95 of reads in microseconds, from the last byte of the request to the reply handed to the
    /// socket; `null` without reads.
    pub p95_us: Option<f64>,
    /// Latency of reads in microseconds at the percentile of the SLO; `null` without reads.
    pub slo_percentile_us: Option<f64>,
    /// Share of the second in which its requests waited for tokens, 0 to 1.
    pub throttled: f64,
    /// Number of rounds below the deficit limit since the tenant was added.
    pub deficits: u64,
    /// Number of successful requests since the tenant was added.
    pub requests_total: u64,
    /// Bytes read per second.
    #[serde(default)]
    pub read_bytes: f64,
    /// Bytes written per second.
    #[serde(default)]
    pub written_bytes: f64,
    /// Failed requests per second, without those that were refused as busy.
    #[serde(default)]
    pub failures: f64,
    /// Requests per second that were refused as busy.
    #[serde(default)]
    pub retries: f64,
    /// Compliance with the SLO.
    #[serde(default)]
    pub compliance: Compliance,
}

/// An SLO by which a window is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JudgedSlo {
    pub(crate) slo: Slo,
    /// Tokens per second that the SLO needs.
    pub(crate) tokens: u64,
}

/// The measurement window of a tenant, with the readings at its start.
#[derive(Debug)]
pub(crate) struct Window {
    reading: TenantReading,
    usage: Usage,
    started_at: Instant,
    /// The measurements of the last window.
    pub(crate) measured: Measured,
    /// The sums of the tenant's requests, bytes and tokens since its registration.
    pub(crate) totals: TenantTotals,
    /// The last minute of the SLO; `None` without one.
    minute: Option<Box<ComplianceMinute>>,
}

impl Window {
    /// Returns a window that starts now. Earlier counts belong to an earlier tenant of the number.
    pub(crate) fn start(reading: TenantReading, now: Instant) -> Window {
        Window {
            reading,
            usage: Usage::default(),
            started_at: now,
            measured: Measured::default(),
            totals: TenantTotals::default(),
            minute: None,
        }
    }

    /// Ends the window and starts the next one. `workers` is the number of workers that have
    /// connections of the tenant. Returns the counts of the window.
    pub(crate) fn end(
        &mut self,
        reading: TenantReading,
        usage: Usage,
        workers: usize,
        now: Instant,
        promised: Option<JudgedSlo>,
    ) -> TenantReading {
        let seconds = now.since(self.started_at).as_secs_f64().max(1e-9);
        let before = self.usage;
        let between = self.count(reading, usage);
        let reads = between.reads_total();
        let all = reads + u64::from(between.writes) + u64::from(between.others);
        let tenths = promised.map_or(950, |promised| promised.slo.percentile_tenths);
        let throttled = usage.throttled_nanos.saturating_sub(before.throttled_nanos);
        let tokens = (usage.spent.saturating_sub(before.spent)) as f64 / 100.0 / seconds;
        let flow = |after: u64, before: u64| {
            crate::totals::tokens(after.wrapping_sub(before)).max(0.0) / seconds
        };
        let retries = between.failures[usize::from(Status::Retry.code())];
        let failures = between.failures.iter().sum::<u32>() - retries;
        self.measured = Measured {
            iops: all as f64 / seconds,
            read_percent: (all > 0).then(|| reads as f64 * 100.0 / all as f64),
            tokens,
            donated: flow(usage.donated, before.donated),
            borrowed: flow(usage.borrowed, before.borrowed),
            p95_us: between.percentile_us(950),
            slo_percentile_us: between.percentile_us(tenths),
            throttled: (throttled as f64 / 1e9 / seconds / workers.max(1) as f64).min(1.0),
            deficits: usage.deficits,
            requests_total: self.measured.requests_total + all,
            read_bytes: between.read_bytes as f64 / seconds,
            written_bytes: between.written_bytes as f64 / seconds,
            failures: f64::from(failures) / seconds,
            retries: f64::from(retries) / seconds,
            compliance: self.judge(&between, tokens, promised),
        };
        self.started_at = now;
        between
    }

    /// Adds the counts since the last call to the sums, and returns them. Called alone when the
    /// tenant leaves, since no window ends any more.
    pub(crate) fn count(&mut self, reading: TenantReading, usage: Usage) -> TenantReading {
        let between = reading.since(&self.reading);
        self.totals.add(&between, &self.usage, &usage);
        self.reading = reading;
        self.usage = usage;
        between
    }

    fn judge(
        &mut self,
        between: &TenantReading,
        tokens: f64,
        promised: Option<JudgedSlo>,
    ) -> Compliance {
        let Some(JudgedSlo { slo, tokens: promised }) = promised else {
            self.minute = None;
            return Compliance::default();
        };
        self.minute.get_or_insert_default().end(&WindowMeasurements {
            reads: between.reads_total(),
            within: between.reads_within(slo.latency_us),
            tokens,
            promised: promised as f64,
            wanted: f64::from(slo.percentile_tenths) / 1_000.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + std::time::Duration::from_millis(millis)
    }

    #[test]
    fn a_window_is_as_long_as_the_tenant_was_there_and_its_workers_share_it() {
        let mut window = Window::start(TenantReading::default(), at(750));
        let reading = TenantReading { writes: 60, others: 40, ..TenantReading::default() };
        let (spent, throttled_nanos) = (20_000, 250_000_000);
        let (donated, borrowed) = (5_000_000_000_000, 10_000_000_000_000);
        let usage = Usage { spent, throttled_nanos, donated, borrowed, ..Usage::default() };
        window.end(reading.clone(), usage, 2, at(1_000), None);
        let first = &window.measured;
        assert_eq!((first.iops, first.tokens, first.throttled), (400.0, 800.0, 0.5));
        assert_eq!((first.donated, first.borrowed), (200.0, 400.0));
        window.end(reading, usage, 2, at(2_000), None);
        assert_eq!((window.measured.donated, window.measured.borrowed), (0.0, 0.0));
        assert_eq!((window.measured.iops, window.measured.throttled), (0.0, 0.0));
        assert_eq!(window.measured.requests_total, 100);
    }
}
