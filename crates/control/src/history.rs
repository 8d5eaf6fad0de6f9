//! The figures of the last five minutes, second by second, so that a newly opened page has a past.
//!
//! This module deliberately leaves out single tenants, of which there may be thousands.

use std::collections::VecDeque;

use contract::{Instant, LATENCY_BUCKETS, Reading, fine_edge};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flows::{DeviceFlow, TokenFlow};
use crate::info::DeviceInfo;
use crate::measured::Measured;
use crate::standing::Standing;

/// Number of windows that are kept.
pub(crate) const WINDOWS_MAX: usize = 300;

/// Number of narrow latency buckets in a bucket of this module, which so is at most a quarter of
/// its value wide.
const TOGETHER: usize = 4;

/// Number of latency buckets: one for latencies below 2 µs, 76, and one for latencies above 1 s.
pub(crate) const HEAT_BUCKETS: usize = 2 + (LATENCY_BUCKETS - 2) / TOGETHER;

/// Returns the upper edge of a bucket in microseconds; `None` for the last bucket, which has none.
pub(crate) fn heat_edge_us(bucket: usize) -> Option<f64> {
    (bucket < HEAT_BUCKETS - 1).then(|| fine_edge(1 + TOGETHER * bucket) as f64 / 1e3)
}

/// The activity of all tenants in a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    /// Number of the window, from 1.
    pub(crate) number: u64,
    pub(crate) ended_at: Instant,
    /// Requests per second, then bytes read and bytes written per second.
    pub(crate) requests: f64,
    pub(crate) bytes: [f64; 2],
    /// Failed requests per second, without those that were told to try again.
    pub(crate) failures: f64,
    /// Number of tenants by [`Standing`].
    pub(crate) standings: [u32; Standing::ALL.len()],
    /// Reads by latency.
    pub(crate) reads: [u32; HEAT_BUCKETS],
    pub(crate) devices: Vec<SecondOfDevice>,
}

impl Default for Window {
    fn default() -> Window {
        Window {
            number: 0,
            ended_at: Instant::ZERO,
            requests: 0.0,
            bytes: [0.0; 2],
            failures: 0.0,
            standings: [0; Standing::ALL.len()],
            reads: [0; HEAT_BUCKETS],
            devices: Vec::new(),
        }
    }
}

impl Window {
    /// Adds the rates of a tenant.
    pub(crate) fn add_measured(&mut self, measured: &Measured) {
        self.requests += measured.iops;
        self.bytes[0] += measured.read_bytes;
        self.bytes[1] += measured.written_bytes;
        self.failures += measured.failures;
    }

    /// Adds the reads of a tenant.
    pub(crate) fn add_reads(&mut self, between: &Reading) {
        for (n, count) in between.reads.iter().enumerate().filter(|(_, count)| **count > 0) {
            let bucket = n.div_ceil(TOGETHER).min(HEAT_BUCKETS - 1);
            self.reads[bucket] = self.reads[bucket].saturating_add(*count);
        }
    }
}

/// A device's figures of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecondOfDevice {
    /// Tokens per second that the device delivers; `null` without a model.
    pub made: Option<u64>,
    /// Tokens per second that are reserved for SLOs.
    pub promised: u64,
    /// The flow of the device's tokens.
    pub tokens: TokenFlow,
    /// The strictest latency bound in microseconds.
    pub bound_us: Option<u32>,
    /// p95 of sampled reads at the device in microseconds, as in `/v1/flows`.
    pub p95_us: Option<f64>,
}

impl SecondOfDevice {
    pub(crate) fn new(info: &DeviceInfo, flow: &DeviceFlow) -> SecondOfDevice {
        SecondOfDevice {
            made: info.tokens,
            promised: info.tokens_promised,
            tokens: flow.token_rates,
            bound_us: info.latency_us,
            p95_us: flow.recent_percentile_us(950),
        }
    }
}

/// The last windows.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The windows, oldest first, at most [`WINDOWS_MAX`].
    windows: VecDeque<Window>,
    ended: u64,
}

impl History {
    /// Appends an ended window, and drops the oldest.
    pub(crate) fn push(&mut self, window: Window) {
        if self.windows.len() == WINDOWS_MAX {
            self.windows.pop_front();
        }
        self.ended += 1;
        self.windows.push_back(Window { number: self.ended, ..window });
    }

    /// Returns the windows after the one of this number. A number beyond the last window belongs to
    /// an earlier run of the server; then all windows are returned.
    pub(crate) fn after(&self, number: u64) -> impl Iterator<Item = &Window> {
        let after = if number > self.ended { 0 } else { number };
        self.windows.iter().filter(move |window| window.number > after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_minutes_are_kept() {
        let mut history = History::default();
        (0..310).for_each(|_| history.push(Window::default()));
        let numbers = |after| history.after(after).map(|window| window.number).collect::<Vec<_>>();
        assert_eq!((numbers(0).len(), numbers(0)[0]), (WINDOWS_MAX, 11));
        assert_eq!((numbers(308), numbers(310)), (vec![309, 310], vec![]));
        assert_eq!(numbers(311).len(), WINDOWS_MAX, "of another run");
    }

    #[test]
    fn a_read_is_in_the_bucket_that_its_edges_say() {
        let edges: Vec<f64> = (0..).map_while(heat_edge_us).collect();
        assert_eq!((edges.len(), edges[0], edges[4]), (HEAT_BUCKETS - 1, 2.048, 4.096));
        for n in 0..LATENCY_BUCKETS {
            let mut between = Reading::default();
            between.reads[n] = 3;
            let mut window = Window::default();
            window.add_reads(&between);
            let bucket = window.reads.iter().position(|count| *count == 3).unwrap();
            let (from, to) = (fine_edge(n) as f64 / 1e3, fine_edge(n + 1) as f64 / 1e3);
            assert!(bucket == 0 || edges[bucket - 1] <= from, "{n}: {from} in {bucket}");
            let is_last = bucket == HEAT_BUCKETS - 1;
            assert!(is_last || to <= edges[bucket], "{n}: {to} in {bucket}");
        }
    }
}
