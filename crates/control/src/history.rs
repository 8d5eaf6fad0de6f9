//! The figures of the last five minutes, second by second, and of the last day, minute by minute,
//! so that a newly opened page has a past.
//!
//! This module deliberately leaves out single tenants, of which there may be thousands.

use std::collections::VecDeque;

use contract::{Instant, LATENCY_BUCKETS, TenantReading, fine_edge};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flows::{DeviceFlow, TokenFlow};
use crate::info::DeviceInfo;
use crate::measured::Measured;
use crate::standing::Standing;

/// Number of windows, of a second each, that are kept.
pub(crate) const WINDOWS_MAX: usize = 300;

/// Number of windows in a minute, and of minutes that are kept.
const OF_MINUTE: u32 = 60;
pub(crate) const MINUTES_MAX: usize = 24 * 60;

/// Number of latency buckets of a meter that are merged into one bucket of the history, whose width
/// is at most a quarter of its value.
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
    /// Failed requests per second, without requests that the client was told to repeat (`Retry`).
    pub(crate) failures: f64,
    /// Number of tenants by [`Standing`].
    pub(crate) standings: [u32; Standing::ALL.len()],
    /// Number of reads by bucket of latency, see [`heat_edge_us`].
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
    /// Adds a tenant's rates of requests, bytes and failures to those of the window.
    pub(crate) fn add_measured(&mut self, measured: &Measured) {
        self.requests += measured.iops;
        self.bytes[0] += measured.read_bytes;
        self.bytes[1] += measured.written_bytes;
        self.failures += measured.failures;
    }

    /// Adds a later window, the `n`-th of a minute, counted from one. Rates become means and reads
    /// add up; of standings and latencies the worst ones stay, of devices' rates and promises the
    /// last ones.
    fn absorb(&mut self, later: &Window, n: u32) {
        let mean = |mean: &mut f64, new: f64| *mean += (new - *mean) / f64::from(n);
        self.ended_at = later.ended_at;
        mean(&mut self.requests, later.requests);
        mean(&mut self.bytes[0], later.bytes[0]);
        mean(&mut self.bytes[1], later.bytes[1]);
        mean(&mut self.failures, later.failures);
        // The counts are in the order of an operator's interest.
        self.standings = self.standings.max(later.standings);
        let reads = self.reads.iter_mut().zip(later.reads);
        reads.for_each(|(sum, count)| *sum = sum.saturating_add(count));
        if self.devices.len() != later.devices.len() {
            self.devices.clone_from(&later.devices);
            return;
        }
        for (device, new) in self.devices.iter_mut().zip(&later.devices) {
            let (tokens, later) = (device.tokens, new.tokens);
            let mean = |mean: f64, new: f64| mean + (new - mean) / f64::from(n);
            *device = SecondOfDevice {
                tokens: TokenFlow {
                    generated: mean(tokens.generated, later.generated),
                    spent: mean(tokens.spent, later.spent),
                    taxed: mean(tokens.taxed, later.taxed),
                    donated: mean(tokens.donated, later.donated),
                    borrowed: mean(tokens.borrowed, later.borrowed),
                    expired: mean(tokens.expired, later.expired),
                },
                p95_us: device.p95_us.into_iter().chain(new.p95_us).reduce(f64::max),
                bound_us: device.bound_us.into_iter().chain(new.bound_us).min(),
                ..*new
            };
        }
    }

    /// Adds a tenant's reads between two readings to the window's counts by latency.
    pub(crate) fn add_reads(&mut self, between: &TenantReading) {
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

/// The windows of the last five minutes, and the minutes of the last day.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The windows of a second, oldest first, at most [`WINDOWS_MAX`].
    windows: VecDeque<Window>,
    ended: u64,
    /// The windows of a minute, oldest first, at most [`MINUTES_MAX`].
    minutes: VecDeque<Window>,
    minutes_ended: u64,
    /// The minute in progress, and the number of one-second windows that were added to it.
    minute: (Window, u32),
}

/// The length of the windows of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    /// Seconds, of the last five minutes.
    #[default]
    Second,
    /// Minutes, of the last day.
    Minute,
}

impl History {
    /// Appends an ended window, and drops the oldest.
    pub(crate) fn push(&mut self, window: Window) {
        if self.windows.len() == WINDOWS_MAX {
            self.windows.pop_front();
        }
        self.ended += 1;
        self.add_to_minute(&window);
        self.windows.push_back(Window { number: self.ended, ..window });
    }

    fn add_to_minute(&mut self, window: &Window) {
        let (minute, windows) = &mut self.minute;
        let before = self.windows.back().map_or(0, |before| before.devices.len());
        if before != window.devices.len() {
            // Figures of devices are told by place, which now may be another device's.
            self.minutes.iter_mut().for_each(|minute| minute.devices.clear());
        }
        *windows += 1;
        minute.absorb(window, *windows);
        if *windows < OF_MINUTE {
            return;
        }
        if self.minutes.len() == MINUTES_MAX {
            self.minutes.pop_front();
        }
        self.minutes_ended += 1;
        let ended = std::mem::take(minute);
        *windows = 0;
        self.minutes.push_back(Window { number: self.minutes_ended, ..ended });
    }

    /// Returns the windows of length `step` that follow the window with this number. A number
    /// beyond the last window belongs to an earlier run of the server; then all windows are
    /// returned.
    pub(crate) fn after(&self, step: Step, number: u64) -> impl Iterator<Item = &Window> {
        let (windows, ended) = match step {
            Step::Second => (&self.windows, self.ended),
            Step::Minute => (&self.minutes, self.minutes_ended),
        };
        let after = if number > ended { 0 } else { number };
        windows.iter().filter(move |window| window.number > after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_minutes_are_kept() {
        let mut history = History::default();
        (0..310).for_each(|_| history.push(Window::default()));
        let windows = |after| history.after(Step::Second, after);
        let numbers = |after| windows(after).map(|window| window.number).collect::<Vec<_>>();
        assert_eq!((numbers(0).len(), numbers(0)[0]), (WINDOWS_MAX, 11));
        assert_eq!((numbers(308), numbers(310)), (vec![309, 310], vec![]));
        assert_eq!(numbers(311).len(), WINDOWS_MAX, "of another run");
    }

    /// Returns a window with so many requests and reads, late tenants, and a device.
    fn window(requests: u32, late: u32) -> Window {
        let mut window = Window { requests: requests.into(), ..Window::default() };
        (window.reads[3], window.standings[0]) = (requests, late);
        let tokens = TokenFlow { spent: requests.into(), ..TokenFlow::default() };
        let p95_us = Some(f64::from(requests));
        let made = Some(requests.into());
        window.devices = vec![SecondOfDevice { made, tokens, p95_us, ..Default::default() }];
        window
    }

    #[test]
    fn a_minute_has_means_sums_and_the_worst() {
        let mut history = History::default();
        (1..=60).for_each(|n| history.push(window(n, u32::from(n == 7))));
        (0..59).for_each(|_| history.push(window(5, 0)));
        let minutes: Vec<&Window> = history.after(Step::Minute, 0).collect();
        let [minute] = minutes[..] else { panic!("{} minutes", minutes.len()) };
        let near = |value: f64| (value - 30.5).abs() < 1e-9;
        assert!(near(minute.requests) && near(minute.devices[0].tokens.spent), "{minute:?}");
        assert_eq!((minute.reads[3], minute.standings[0]), (1_830, 1));
        assert_eq!((minute.devices[0].p95_us, minute.devices[0].made), (Some(60.0), Some(60)));
        history.push(window(5, 0));
        let second = history.after(Step::Minute, 1).next().expect("it has ended");
        assert_eq!((second.number, second.requests, second.reads[3]), (2, 5.0, 300));
        assert_eq!(second.devices[0].p95_us, Some(5.0), "of its own seconds");
    }

    #[test]
    fn a_day_is_kept_and_devices_that_changed_are_left_out_of_it() {
        let mut history = History::default();
        (0..60 * (MINUTES_MAX + 2)).for_each(|_| history.push(window(1, 0)));
        let minutes = || history.after(Step::Minute, 0);
        let first = minutes().next().map(|minute| minute.number);
        assert_eq!((minutes().count(), first), (MINUTES_MAX, Some(3)));
        history.push(Window { devices: Vec::new(), ..window(1, 0) });
        assert!(history.after(Step::Minute, 0).all(|minute| minute.devices.is_empty()));
    }

    #[test]
    fn a_read_is_in_the_bucket_that_its_edges_say() {
        let edges: Vec<f64> = (0..).map_while(heat_edge_us).collect();
        assert_eq!((edges.len(), edges[0], edges[4]), (HEAT_BUCKETS - 1, 2.048, 4.096));
        for n in 0..LATENCY_BUCKETS {
            let mut between = TenantReading::default();
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
