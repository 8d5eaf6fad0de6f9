//! The progress bar, on a terminal.

use std::collections::VecDeque;
use std::time::Duration;

use client::load::{Side, Tally};
use contract::Instant;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use io::Clock;

use crate::report::{number_text, time_text};

/// The number of latest reports, one each 200 ms, that the displayed rate and latency cover.
const WINDOW: usize = 5;

/// The progress bar of a measurement, with the rate and the p95 latency of the last second.
pub(super) struct BenchProgress {
    bar: ProgressBar,
    clock: Clock,
    started: Instant,
    warmup: Duration,
    /// The latest counts of ended requests, and the time of each report.
    counts: VecDeque<(Instant, u64)>,
    /// The latencies of reads and writes together, one histogram for each entry of `counts`.
    latencies: VecDeque<Histogram<u64>>,
}

impl BenchProgress {
    pub(super) fn new(warmup: Duration, seconds: Duration) -> BenchProgress {
        let bar = ProgressBar::new((warmup + seconds).as_millis() as u64);
        let style = ProgressStyle::with_template("{bar:30.cyan/dim} {msg}");
        bar.set_style(style.expect("the template is sound"));
        let clock = Clock::start();
        BenchProgress {
            bar,
            clock,
            started: clock.now(),
            warmup,
            counts: VecDeque::new(),
            latencies: VecDeque::new(),
        }
    }

    /// Prints a note for the user beside the bar.
    pub(super) fn note(&self, text: &str) {
        self.bar.suspend(|| errln!("note: {text}"));
    }

    /// Moves the bar to the present time, and displays the rate and the p95 latency of the latest
    /// reports. `latest` holds the measurements since the last call.
    pub(super) fn show(&mut self, latest: &Tally) {
        let now = self.clock.now();
        let elapsed = now.since(self.started);
        self.bar.set_position(elapsed.as_millis() as u64);
        if self.bar.is_hidden() {
            return;
        }
        if elapsed < self.warmup {
            self.bar.set_message("warming up");
            return;
        }
        let since = self.counts.front().map_or(now, |&(at, _)| at);
        self.counts.push_back((now, latest.count()));
        self.latencies.push_back(merged(&latest.read, &latest.write));
        while self.counts.len() > WINDOW {
            self.counts.pop_front();
            self.latencies.pop_front();
        }
        let seconds = now.since(since).as_secs_f64();
        if self.counts.len() < 2 {
            return; // A rate needs a beginning and an end.
        }
        let count: u64 = self.counts.iter().skip(1).map(|&(_, count)| count).sum();
        let mut latency = self.latencies[0].clone();
        for later in self.latencies.iter().skip(1) {
            latency.add(later).expect("the bounds are the same");
        }
        self.bar.set_message(format!(
            "{} IOPS · p95 {}",
            number_text(count as f64 / seconds),
            time_text(latency.value_at_quantile(0.95) as f64)
        ));
    }

    /// Removes the progress bar from the terminal.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn merged(read: &Side, write: &Side) -> Histogram<u64> {
    let mut sum = read.latency.clone();
    sum.add(&write.latency).expect("the bounds are the same");
    sum
}
