//! Sums since the start of a tenant: the accumulated differences of windows, wide enough never to
//! wrap. Metrics show them as counters.

use contract::{COARSE_BUCKETS, CoarseHistogram, Stage, Status, TenantReading, coarse_edge};
use qos::Usage;

/// Number of units in a token: 100.
pub(crate) const TOKEN: u64 = qos::units::TOKEN as u64;

/// The sums of a tenant's work since its registration, as far as windows have ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantTotals {
    /// Successful requests: reads, writes, others.
    pub requests: [u64; 3],
    /// Bytes of reads and of writes.
    pub bytes: [u64; 2],
    /// Failed requests of the tenant; the index is the status's number.
    pub failures: [u64; Status::ALL.len()],
    /// Successful reads by the coarse bucket of their latency.
    pub latency: CoarseHistogram<u64>,
    /// Sampled times of reads and of other requests, by [`Stage`].
    pub samples: [[CoarseHistogram<u64>; Stage::ALL.len()]; 2],
    /// Tokens that the tenant put into the buckets of devices.
    pub donated: f64,
    /// Tokens that the tenant took out of the buckets of devices.
    pub borrowed: f64,
    /// Units spent on requests, on all devices.
    pub spent: u64,
    /// Nanoseconds in which requests waited for tokens, summed over workers.
    pub throttled_nanos: u64,
    /// Number of schedulers' rounds in which the tenant was below the deficit limit.
    pub deficits: u64,
}

impl Default for TenantTotals {
    fn default() -> TenantTotals {
        TenantTotals {
            requests: [0; 3],
            bytes: [0; 2],
            failures: [0; Status::ALL.len()],
            latency: [0; COARSE_BUCKETS],
            samples: [[[0; COARSE_BUCKETS]; Stage::ALL.len()]; 2],
            donated: 0.0,
            borrowed: 0.0,
            spent: 0,
            throttled_nanos: 0,
            deficits: 0,
        }
    }
}

impl TenantTotals {
    /// Adds the counts between two readings of workers, and between two readings of schedulers. A
    /// smaller value than before comes from a device that no longer knows the tenant, and adds
    /// nothing.
    pub(crate) fn add(&mut self, between: &TenantReading, before: &Usage, after: &Usage) {
        let requests = [between.reads_total(), between.writes.into(), between.others.into()];
        add_all(&mut self.requests, requests);
        add_all(&mut self.bytes, [between.read_bytes, between.written_bytes]);
        add_all(&mut self.failures, between.failures.map(u64::from));
        add_all(&mut self.latency, between.reads_coarse());
        let samples = between.samples.as_flattened().as_flattened().iter();
        add_all(
            self.samples.as_flattened_mut().as_flattened_mut(),
            samples.copied().map(u64::from),
        );
        self.donated += tokens(after.donated.wrapping_sub(before.donated)).max(0.0);
        self.borrowed += tokens(after.borrowed.wrapping_sub(before.borrowed)).max(0.0);
        self.spent += after.spent.saturating_sub(before.spent);
        self.throttled_nanos += after.throttled_nanos.saturating_sub(before.throttled_nanos);
        self.deficits += after.deficits.saturating_sub(before.deficits);
    }

    /// Adds the sums of another tenant to the sums of this one.
    pub(crate) fn add_totals(&mut self, other: &TenantTotals) {
        add_all(&mut self.requests, other.requests);
        add_all(&mut self.bytes, other.bytes);
        add_all(&mut self.failures, other.failures);
        add_all(&mut self.latency, other.latency);
        let samples = other.samples.as_flattened().as_flattened().iter();
        add_all(self.samples.as_flattened_mut().as_flattened_mut(), samples.copied());
        self.donated += other.donated;
        self.borrowed += other.borrowed;
        self.spent += other.spent;
        self.throttled_nanos += other.throttled_nanos;
        self.deficits += other.deficits;
    }
}

fn add_all(to: &mut [u64], from: impl IntoIterator<Item = u64>) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

/// Converts nano-units to tokens. A difference that seems huge went below zero: refunds are
/// subtracted.
pub(crate) fn tokens(nano_units: u64) -> f64 {
    nano_units as i64 as f64 / 1e9 / TOKEN as f64
}

/// Returns the approximate total time of a histogram's requests in seconds. Each request counts
/// with the middle of its bucket.
pub fn seconds_of(histogram: &CoarseHistogram<u64>) -> f64 {
    let middle = |n: usize| {
        let to = coarse_edge(n).or_else(|| coarse_edge(n - 1).map(|edge| 2 * edge));
        let to = to.expect("the last bucket has one before it") as f64;
        if n == 0 { to / 2.0 } else { to * 0.75 }
    };
    let each = histogram.iter().enumerate();
    each.map(|(n, count)| *count as f64 * middle(n) / 1e9).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_do_not_wrap_with_what_they_are_made_of() {
        let mut totals = TenantTotals::default();
        let mut between =
            TenantReading { writes: u32::MAX, read_bytes: 4_096, ..TenantReading::default() };
        between.reads[40] = u32::MAX;
        let before = Usage { donated: u64::MAX, ..Usage::default() };
        let after = Usage { donated: 249_999_999_999, ..Usage::default() };
        for _ in 0..2 {
            totals.add(&between, &before, &after);
        }
        let twice = 2 * u64::from(u32::MAX);
        assert_eq!((totals.requests, totals.bytes), ([twice, twice, 0], [8_192, 0]));
        assert_eq!((totals.latency.iter().sum::<u64>(), totals.donated), (twice, 5.0));
    }

    #[test]
    fn times_are_about_what_they_were() {
        let mut histogram = [0; COARSE_BUCKETS];
        histogram[0] = 1_000;
        histogram[6] = 10;
        // 0 to 4 µs, and 131 to 262 µs.
        assert!((seconds_of(&histogram) - 0.002_048 - 10.0 * 196.6e-6).abs() < 1e-5);
    }
}
