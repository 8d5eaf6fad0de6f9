//! The drift of a device from its model: the rate that it served, compared with the model's rate at
//! the measured tail latency of reads (docs/explanation/recalibration.md, "Drift").
//!
//! A pure function of measurements: windows in, a [`Drift`] out. This module deliberately leaves
//! out who opens windows ([`Registry`](crate::Registry)), and the reaction to a drift.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use contract::Instant;

use crate::units::TOKEN;
use crate::waits::is_starved;
use crate::{DelayWindow, DeviceModel, Load};

/// The length of a window in which a device's rate and tail latency are measured.
pub const DRIFT_WINDOW: Duration = Duration::from_millis(500);

/// The time from the beginning of one window to that of the next. Between windows, requests do not
/// pay for the measurement.
pub const DRIFT_PERIOD: Duration = Duration::from_secs(2);

/// The percentile that is compared, in tenths of a percent.
const TAIL: u16 = 950;

/// The number of reads that a window needs for a meaningful tail.
const READS_MIN: u64 = 500;

/// The maximum number of windows whose median counts, and the number that a verdict needs.
const WINDOWS_MAX: usize = 8;
const WINDOWS_MIN: usize = 5;

/// The time for which a window counts towards the median.
const FRESH: Duration = Duration::from_secs(60);

/// The ratios of the served rate to the model's rate beyond which the device has drifted: below
/// `SLOWER` or above `FASTER`. The fit of a calibration may itself be off by 15 %.
const SLOWER: f64 = 0.80;
const FASTER: f64 = 1.25;

/// The lowest and the highest ratio with which a device that has drifted fits its model again.
/// Between these and the ratios of a drift, the verdict stays.
const FITS: (f64, f64) = (0.87, 1.15);

/// The smallest load, as a share of the first row's rate, at which the verdict may be that a device
/// fits its model. Any device keeps the latency at less load.
const LOAD_MIN: f64 = 0.5;

/// The largest factor by which the requests of a window may cost more than as many requests of one
/// page. Beyond it, the window says nothing: larger reads take longer by themselves, and the
/// model's rows are of reads of one page.
pub(crate) const SIZE_MAX: f64 = 1.5;

/// The reason that a device's fit to its model is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriftUncertainty {
    /// The device has not been watched for long enough.
    TooSoon,
    /// Too few reads come for a meaningful tail.
    FewReads,
    /// The load is too small to judge the device: any device would keep the latency.
    LittleLoad,
    /// Most requests are larger than 4 KiB, and the model's rows describe only 4 KiB requests.
    LargeRequests,
    /// A thread of the server had to wait for a processor, so the delays are not only the device's.
    Starved,
}

impl fmt::Display for DriftUncertainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DriftUncertainty::TooSoon => "it has not been watched for long enough",
            DriftUncertainty::FewReads => "too few reads to tell their tail",
            DriftUncertainty::LittleLoad => "the load is too small to tell",
            DriftUncertainty::LargeRequests => {
                "its requests are of many pages, and the model's rates of one"
            }
            DriftUncertainty::Starved => {
                "the machine is overcommitted: workers wait for processors"
            }
        })
    }
}

/// A device compared with its model. A `ratio` is the rate that the device serves, divided by the
/// model's rate at the measured tail latency of reads: the median of the last five to eight
/// windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Drift {
    /// The ratio is not known, for this reason.
    Unknown(DriftUncertainty),
    /// The device serves the model's rate.
    Fits {
        /// Delivered rate over the model's rate. Windows whose tail is within the model's tightest
        /// latency count as 1, or as the share of the model that a correction leaves.
        ratio: f64,
    },
    /// The device serves less than the model's rate (`ratio` below 1), or more.
    Drifted {
        /// Delivered rate over the model's rate.
        ratio: f64,
        /// The time at which the drift was found.
        since: Instant,
    },
}

/// The counts of a window, and the prices that applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowReading<'a> {
    pub(crate) since: &'a DelayWindow,
    pub(crate) length: Duration,
    /// The longest time in the window for which a worker waited for a processor.
    pub(crate) waited: Duration,
    /// The price of a 4 KiB write in units.
    pub(crate) write: u32,
    /// The share of the model that a correction leaves: the factor of the rate, divided by the
    /// factor of the price of writes; 1 without a correction.
    pub(crate) corrected: f64,
}

/// The recent measurements of one device, and the verdict whether it has drifted from its model.
#[derive(Clone, Debug)]
pub(crate) struct DriftWatch {
    /// The ends of the windows that had enough reads, with their ratios; the oldest first.
    marks: Vec<(Instant, f64)>,
    state: Drift,
}

impl DriftWatch {
    pub(crate) fn new() -> DriftWatch {
        DriftWatch {
            marks: Vec::with_capacity(WINDOWS_MAX + 1),
            state: Drift::Unknown(DriftUncertainty::TooSoon),
        }
    }

    pub(crate) fn state(&self) -> Drift {
        self.state
    }

    /// Takes a window that has just ended into account.
    pub(crate) fn end(&mut self, model: &DeviceModel, reading: WindowReading<'_>, now: Instant) {
        self.marks.retain(|(at, _)| now.since(*at) <= FRESH);
        let unsure = match ratio(model, &reading) {
            Ok(ratio) => {
                self.marks.push((now, ratio));
                if self.marks.len() > WINDOWS_MAX {
                    self.marks.remove(0);
                }
                DriftUncertainty::TooSoon
            }
            Err(unsure) => unsure,
        };
        self.state = match (self.median(), self.state) {
            // What was found stays found while nothing speaks against it.
            (None, Drift::Drifted { .. }) => self.state,
            (None, _) => Drift::Unknown(unsure),
            (Some(ratio), before) => settle(ratio, before, now),
        };
    }

    fn median(&self) -> Option<f64> {
        if self.marks.len() < WINDOWS_MIN {
            return None;
        }
        let mut ratios: Vec<f64> = self.marks.iter().map(|(_, ratio)| *ratio).collect();
        ratios.sort_by(f64::total_cmp);
        Some(ratios[ratios.len() / 2])
    }
}

fn settle(ratio: f64, before: Drift, now: Instant) -> Drift {
    let is_far = !(SLOWER..=FASTER).contains(&ratio);
    let is_near = (FITS.0..=FITS.1).contains(&ratio);
    match before {
        Drift::Drifted { since, .. } if !is_near => Drift::Drifted { ratio, since },
        _ if is_far => Drift::Drifted { ratio, since: now },
        _ => Drift::Fits { ratio },
    }
}

/// Returns the rate that the device served, as a share of the model's rate at the measured tail.
fn ratio(model: &DeviceModel, reading: &WindowReading<'_>) -> Result<f64, DriftUncertainty> {
    let WindowReading { since, length, waited, write, corrected } = *reading;
    if since.ended() < READS_MIN {
        return Err(DriftUncertainty::FewReads);
    }
    if is_starved(waited, length, TAIL) {
        return Err(DriftUncertainty::Starved);
    }
    let load = ServedLoad::of(model, since, write);
    if load.size > SIZE_MAX {
        return Err(DriftUncertainty::LargeRequests);
    }
    let rate = load.units / length.as_secs_f64();
    let tail_us = since.tail_nanos(TAIL) / 1_000;
    let tightest_us = model.latency_us_min();
    let at = u32::try_from(tail_us).unwrap_or(u32::MAX).max(tightest_us);
    let says = model.rate(at, Load::Mixed).expect("a latency of the first row or above") as f64;
    let ratio = rate / says;
    match tail_us <= u64::from(tightest_us) {
        true if ratio > FASTER => Ok(ratio),
        true if ratio < LOAD_MIN && corrected >= SLOWER => Err(DriftUncertainty::LittleLoad),
        true => Ok(corrected.min(1.0)),
        false => Ok(if ratio < 1.0 { ratio.min(corrected) } else { ratio }),
    }
}

/// The requests that were submitted in a window, at the model's prices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedLoad {
    /// The units that the requests cost, with writes at the model's price.
    pub(crate) units: f64,
    /// The price of the requests, divided by the price of as many reads and writes of one page.
    pub(crate) size: f64,
}

impl ServedLoad {
    /// Sums up a window in which a 4 KiB write was priced at `write` units.
    pub(crate) fn of(model: &DeviceModel, since: &DelayWindow, write: u32) -> ServedLoad {
        let (reads, writes) = (since.reads as f64, since.writes as f64);
        let cost = model.cost();
        // As the read ratio does: a load with hardly a write may have been priced as of reads
        // alone.
        let is_read_only = writes * 1_000.0 <= reads + writes;
        let read = if is_read_only { cost.read_only_read().min(TOKEN) } else { TOKEN };
        let pages = reads * f64::from(read) + writes * f64::from(write);
        let dearer = f64::from(write) - f64::from(cost.write());
        let units = (since.spent as f64 - writes * dearer).max(0.0);
        ServedLoad { units, size: since.spent as f64 / pages.max(1.0) }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::{Delays, DelaysCursor};

    /// A drift watch of device A, and the delays of which a test makes its windows.
    struct Bench {
        watch: DriftWatch,
        now: Instant,
        delays: Delays,
        seen: DelaysCursor,
    }

    impl Bench {
        fn new() -> Bench {
            let delays = Delays::new();
            Bench {
                watch: DriftWatch::new(),
                now: Instant::ZERO,
                delays,
                seen: DelaysCursor::nothing(),
            }
        }

        fn window(&mut self, share: f64, tail_us: u64) -> Drift {
            self.window_with(share, tail_us, Duration::ZERO)
        }

        /// Ends a window of half a second in which `share` of device A's rate at 500 µs was spent
        /// on reads and a tenth of writes, and a worker waited for a processor. Returns the state
        /// after it.
        fn window_with(&mut self, share: f64, tail_us: u64, waited: Duration) -> Drift {
            let model = DeviceModel::device_a();
            // Ten requests, one of them a write, cost 1 900 units.
            let tens = (42e6 * share / 2.0 / 1_900.0) as u64;
            (0..tens.min(1_000) * 9)
                .for_each(|_| self.delays.record(0, Duration::from_micros(tail_us)));
            self.delays.count(0, tens * 9, tens, tens * 1_900);
            let since = self.seen.look(&self.delays);
            self.now = self.now + DRIFT_PERIOD;
            let length = DRIFT_WINDOW;
            let reading =
                WindowReading { since: &since, length, waited, write: 1_000, corrected: 1.0 };
            self.watch.end(&model, reading, self.now);
            self.watch.state()
        }
    }

    #[test]
    fn a_device_that_serves_less_at_its_latency_has_drifted() {
        let mut bench = Bench::new();
        for _ in 0..WINDOWS_MIN - 1 {
            assert_eq!(bench.window(0.9, 450), Drift::Unknown(DriftUncertainty::TooSoon));
        }
        assert_eq!(bench.window(0.9, 450), Drift::Fits { ratio: 1.0 });
        // At 2 ms it is said to serve 570 K; it serves 210 K.
        let drifted = (0..WINDOWS_MIN).map(|_| bench.window(0.5, 2_000)).last().unwrap();
        let Drift::Drifted { ratio, since } = drifted else { panic!("{drifted:?}") };
        assert!((0.35..0.39).contains(&ratio), "{ratio}");
        // A load that says nothing does not clear it, and time neither.
        for _ in 0..40 {
            bench.window(0.1, 90);
        }
        assert_eq!(bench.watch.state(), Drift::Drifted { ratio, since });
        let fits = (0..WINDOWS_MAX).map(|_| bench.window(0.9, 450)).last().unwrap();
        assert_eq!(fits, Drift::Fits { ratio: 1.0 });
    }

    #[test]
    fn a_few_bad_windows_are_none() {
        let mut bench = Bench::new();
        (0..WINDOWS_MAX).for_each(|_| {
            bench.window(0.9, 450);
        });
        (0..3).for_each(|_| {
            bench.window(0.5, 5_000);
        });
        assert_eq!(bench.window(0.9, 450), Drift::Fits { ratio: 1.0 });
    }

    #[test]
    fn what_cannot_be_known_is_said() {
        let mut bench = Bench::new();
        assert_eq!(bench.window(0.0001, 450), Drift::Unknown(DriftUncertainty::FewReads));
        assert_eq!(bench.window(0.2, 450), Drift::Unknown(DriftUncertainty::LittleLoad));
        bench.delays.count(0, 0, 0, 1 << 40);
        assert_eq!(bench.window(0.2, 450), Drift::Unknown(DriftUncertainty::LargeRequests));
    }

    #[test]
    fn a_wait_for_a_processor_is_not_a_drift_of_the_device() {
        let (mut bench, waited) = (Bench::new(), Duration::from_millis(60));
        for _ in 0..WINDOWS_MAX {
            let state = bench.window_with(0.5, 5_000, waited);
            assert_eq!(state, Drift::Unknown(DriftUncertainty::Starved));
        }
        (0..WINDOWS_MIN).for_each(|_| {
            bench.window(0.9, 450);
        });
        for _ in 0..WINDOWS_MAX {
            let state = bench.window_with(0.5, 5_000, waited);
            assert_eq!(state, Drift::Fits { ratio: 1.0 }, "what is known stays known");
        }
        let short = Duration::from_millis(12);
        let slow = (0..WINDOWS_MAX).map(|_| bench.window_with(0.5, 5_000, short)).last().unwrap();
        assert!(matches!(slow, Drift::Drifted { .. }), "too short to make a tail: {slow:?}");
    }

    #[test]
    fn a_faster_device_shows_by_serving_more() {
        let mut bench = Bench::new();
        let drift = (0..WINDOWS_MIN).map(|_| bench.window(1.5, 400)).last().unwrap();
        assert!(matches!(drift, Drift::Drifted { ratio, .. } if ratio > 1.4), "{drift:?}");
    }
}
