//! Corrects a device's rate and the price of its writes by the delays that it shows (the idea is
//! Gimbal's, SIGCOMM 2021): a device that has aged, or collects garbage, serves less than it was
//! calibrated for.
//!
//! A pure controller: a window of measurements in, an adjustment out. The controller only ever
//! makes the device slower and its writes dearer than the model says, never the other way round, so
//! it promises nothing that the model does not. The equations are in docs/explanation/scheduler.md,
//! "Online correction".
//!
//! This module deliberately leaves out measuring ([`Delays`](crate::Delays)) and installing
//! ([`Registry`](crate::Registry)).

/// Length of a window, in nanoseconds: 40 000 reads at 400 K a second, enough for a 99th
/// percentile.
pub const CORRECTION_NANOS: u64 = 100_000_000;

/// The number of reads that a window needs for a meaningful tail.
pub const CORRECTION_READS_MIN: u64 = 200;

/// The lowest corrected rate, in thousandths of the model's rate. `WRITE_MAX` is the highest
/// corrected price of writes, in thousandths of the model's price.
const RATE_MIN: u32 = 250;
const WRITE_MAX: u32 = 4_000;

/// Number of late windows in a row with which the rate is cut, or the price of writes raised.
const LATE: u32 = 2;

/// Calm windows in a row before a cut is partly undone, and, while the device is hardly used,
/// between two such steps.
const CALM: u32 = 10;

/// The number of windows after a step back towards the model within which a late window shows that
/// the step was too large.
const TRIAL: u32 = 5;

/// Minimum and maximum number of calm windows after which a level that was too much is tried again:
/// 2.5 s and 320 s. The number starts at the minimum and doubles with each failed attempt.
const PATIENCE_MIN: u32 = 25;
const PATIENCE_MAX: u32 = 3_200;

/// A window of measurements of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The length of the window, in nanoseconds.
    pub nanos: u64,
    /// The tail read latency that the device must keep, in microseconds; `None` without
    /// latency-critical tenants.
    pub bound_us: Option<u32>,
    /// The tail of the delays of the window's reads at the percentile of `bound_us`, in
    /// nanoseconds; `None` with fewer than [`CORRECTION_READS_MIN`].
    pub tail_nanos: Option<u64>,
    /// The number of reads submitted in the window.
    pub reads: u64,
    /// The number of writes, flushes and the like submitted in the window.
    pub writes: u64,
    /// Units spent, at the corrected prices.
    pub spent: u64,
    /// Units a second that the corrected device makes.
    pub rate: u64,
    /// The corrected price of a 4 KiB write in units.
    pub write: u32,
}

/// Factors that the model is multiplied with, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjustment {
    /// Factor of the model's rate, from 250 to 1 000.
    pub rate_permille: u32,
    /// Factor of the model's price of writes, from 1 000 to 4 000.
    pub write_permille: u32,
}

impl Adjustment {
    /// No adjustment: the model as it was measured.
    pub const NONE: Adjustment = Adjustment { rate_permille: 1_000, write_permille: 1_000 };

    /// Returns a number that compares adjustments: the higher, the closer the device is to its
    /// model. It grows with each step back towards the model and falls with each cut.
    fn level(self) -> u32 {
        self.rate_permille * 4_000 / self.write_permille
    }
}

/// The controller that corrects one device's rate and its price of writes.
#[derive(Clone, Debug)]
pub struct Correction {
    adjustment: Adjustment,
    late: u32,
    calm: u32,
    /// Windows since the last step back towards the model; `u32::MAX` if there was none, or a late
    /// window has shown it to be too large.
    since_gift: u32,
    /// The [`level`](Adjustment::level) at which a window was late right after a step back towards
    /// the model; `None` if there is none to avoid.
    too_much: Option<u32>,
    /// Calm windows just below `too_much` so far; after `patience` of them that level is tried
    /// again.
    waited: u32,
    patience: u32,
}

impl Default for Correction {
    fn default() -> Self {
        Correction::new()
    }
}

impl Correction {
    /// Creates a controller without a correction.
    pub fn new() -> Correction {
        Correction {
            adjustment: Adjustment::NONE,
            late: 0,
            calm: 0,
            since_gift: u32::MAX,
            too_much: None,
            waited: 0,
            patience: PATIENCE_MIN,
        }
    }

    /// Returns the present adjustment.
    pub fn adjustment(&self) -> Adjustment {
        self.adjustment
    }

    /// Takes a window into account, and returns the adjustment that applies from now on.
    ///
    /// A window above the bound is *late*; from the second late window in a row on, each one cuts
    /// the rate or raises prices. A window below 80 % of the bound is *calm*; from the tenth calm
    /// window in a row on, each one undoes a part of the cut, or only every tenth while less than
    /// half of the rate is used, since such windows are weak evidence. In between nothing changes.
    ///
    /// A late window right after a step back undoes more than that step, and its level is avoided
    /// for a while, longer each time.
    pub fn observe(&mut self, window: &Window) -> Adjustment {
        let (Some(bound_us), Some(tail)) = (window.bound_us, window.tail_nanos) else {
            return self.adjustment;
        };
        let bound = u64::from(bound_us) * 1_000;
        self.since_gift = self.since_gift.saturating_add(1);
        if tail > bound {
            self.calm = 0;
            self.late += 1;
            let on_trial = self.since_gift <= TRIAL;
            if on_trial {
                self.too_much = Some(self.adjustment.level());
                self.patience = (2 * self.patience).min(PATIENCE_MAX);
                (self.waited, self.since_gift) = (0, u32::MAX);
            }
            if on_trial || self.late >= LATE {
                self.cut(window, bound, tail);
            }
        } else if tail * 10 < bound * 8 {
            self.late = 0;
            self.calm += 1;
            let made = u128::from(window.rate) * u128::from(window.nanos) / 1_000_000_000;
            let busy = u128::from(window.spent) * 2 >= made;
            if self.calm >= CALM && (busy || self.calm.is_multiple_of(CALM)) {
                self.try_more();
            }
        } else {
            self.late = 0;
            self.calm = 0;
        }
        self.adjustment
    }

    /// Raises the price of writes if writes are at least a third of the paid load, else lowers the
    /// rate. The rate is also lowered once the price is at its maximum. The step grows with the
    /// distance of the tail from the bound, from 3 to 15 per cent.
    fn cut(&mut self, window: &Window, bound: u64, tail: u64) {
        let excess = (tail - bound) * 250 / bound;
        let keep = 1_000 - excess.clamp(30, 150) as u32;
        let written = window.writes * u64::from(window.write);
        let writes_weigh = written * 2 >= window.reads * 100;
        let Adjustment { rate_permille, write_permille } = &mut self.adjustment;
        if writes_weigh && *write_permille < WRITE_MAX {
            *write_permille = (*write_permille * 1_000).div_ceil(keep).min(WRITE_MAX);
        } else {
            *rate_permille = (*rate_permille * keep / 1_000).max(RATE_MIN);
        }
    }

    /// Partly restores a reduced rate or a raised price, unless the resulting level recently caused
    /// too long delays.
    fn try_more(&mut self) {
        if self.adjustment == Adjustment::NONE {
            (self.too_much, self.patience) = (None, PATIENCE_MIN);
            return;
        }
        if let Some(level) = self.too_much
            && self.adjustment.level() * 103 / 100 >= level * 97 / 100
        {
            self.waited += 1;
            if self.waited < self.patience {
                return;
            }
            self.too_much = None;
        }
        self.since_gift = 0;
        self.give();
    }

    /// Steps three per cent back towards the model: first with the rate, then with the price of
    /// writes.
    fn give(&mut self) {
        let Adjustment { rate_permille, write_permille } = &mut self.adjustment;
        if *rate_permille < 1_000 {
            *rate_permille = (*rate_permille * 103 / 100 + 1).min(1_000);
        } else {
            *write_permille = (*write_permille * 100 / 103).max(1_000);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND_US: u32 = 500;

    /// A device whose tail latency grows with the load: at its true rate the tail is at the bound.
    struct AgedDevice {
        /// Units a second that it truly makes, and what a write truly costs.
        rate: u64,
        write: u64,
    }

    impl AgedDevice {
        /// Makes a window in which best effort takes all that it may, with so many writes in a
        /// hundred.
        fn window(&self, adjustment: Adjustment, writes: u64) -> Window {
            let rate = 42_000_000 * u64::from(adjustment.rate_permille) / 1_000;
            let write = 1_000 * adjustment.write_permille / 1_000;
            let price = (100 - writes) * 100 + writes * u64::from(write);
            let hundreds = rate / 10 / price;
            let truth = (100 - writes) * 100 + writes * self.write;
            let load = hundreds * truth * 10;
            // Half of the bound below 80 % of the rate, the bound at it, four times it at twice.
            let percent = load * 100 / self.rate;
            let tail_percent = match percent {
                0..80 => 50,
                80..=100 => 50 + (percent - 80) * 5 / 2,
                _ => 100 + (percent - 100) * 3,
            };
            Window {
                nanos: CORRECTION_NANOS,
                bound_us: Some(BOUND_US),
                tail_nanos: Some(u64::from(BOUND_US) * 10 * tail_percent),
                reads: hundreds * (100 - writes),
                writes: hundreds * writes,
                spent: rate / 10,
                rate,
                write,
            }
        }

        /// Returns the number of windows until the tail stays within the bound for ten windows.
        /// Panics if that takes more than `most` windows.
        fn settle(&self, correction: &mut Correction, writes: u64, most: usize) -> usize {
            let mut kept = 0;
            for n in 0..most {
                let window = self.window(correction.adjustment(), writes);
                let late = window.tail_nanos.unwrap() > u64::from(BOUND_US) * 1_000;
                kept = if late { 0 } else { kept + 1 };
                if kept == 10 {
                    return n - 9;
                }
                correction.observe(&window);
            }
            panic!("not kept after {most} windows: {:?}", correction.adjustment());
        }
    }

    const FRESH: AgedDevice = AgedDevice { rate: 42_000_000, write: 1_000 };

    #[test]
    fn a_fresh_device_is_left_alone() {
        for writes in [0, 5, 25, 75] {
            let mut correction = Correction::new();
            for _ in 0..1_000 {
                correction.observe(&FRESH.window(correction.adjustment(), writes));
            }
            assert_eq!(correction.adjustment(), Adjustment::NONE);
        }
    }

    #[test]
    fn ageing_is_corrected_in_time_and_given_back() {
        let dearer = AgedDevice { rate: 42_000_000, write: 2_000 };
        let slower = AgedDevice { rate: 21_000_000, write: 1_000 };
        let both = AgedDevice { rate: 21_000_000, write: 2_000 };
        for (device, mixes) in [(dearer, &[1, 5, 25, 75][..]), (slower, &[0, 5, 75]), (both, &[25])]
        {
            for writes in mixes {
                let mut correction = Correction::new();
                let windows = device.settle(&mut correction, *writes, 100);
                // Five seconds are fifty windows.
                assert!(windows <= 30, "{windows} windows at {writes} % writes");
                let adjusted = correction.adjustment();
                assert!(adjusted.rate_permille <= 1_000 && adjusted.write_permille >= 1_000);
                // Not much more than needed: at least 70 % of what the device truly makes is sold.
                let window = device.window(adjusted, *writes);
                let truth = window.reads * 100 + window.writes * device.write;
                assert!(truth * 10 * 10 >= device.rate * 7, "{adjusted:?} at {writes} % writes");
                for _ in 0..150 {
                    correction.observe(&FRESH.window(correction.adjustment(), *writes));
                }
                let window = FRESH.window(correction.adjustment(), *writes);
                let sold = window.reads * 100 + window.writes * 1_000;
                assert!(sold * 10 * 100 >= 42_000_000 * 80, "{:?}", correction.adjustment());
            }
        }
    }

    #[test]
    fn it_has_bounds_and_does_not_flap() {
        let mut correction = Correction::new();
        let hopeless = Window {
            nanos: CORRECTION_NANOS,
            bound_us: Some(500),
            tail_nanos: Some(u64::from(u32::MAX) * 1_000),
            reads: 1,
            ..Window::default()
        };
        for _ in 0..1_000 {
            correction.observe(&hopeless);
            correction.observe(&Window { writes: 1, write: 1_000, ..hopeless });
        }
        let worst = Adjustment { rate_permille: RATE_MIN, write_permille: WRITE_MAX };
        assert_eq!(correction.adjustment(), worst);
        // Between 80 % of the bound and the bound nothing changes, and a single late window is
        // chance.
        for tail in [400_000, 500_000, 500_001, 450_000].repeat(50) {
            let window = Window { tail_nanos: Some(tail), ..hopeless };
            assert_eq!(correction.observe(&window), worst);
        }
        // Nothing is known.
        for window in
            [Window { tail_nanos: None, ..hopeless }, Window { bound_us: None, ..hopeless }]
        {
            assert_eq!(correction.observe(&window), worst);
        }
    }

    #[test]
    fn an_idle_device_is_tried_slowly() {
        let mut correction = Correction::new();
        let late = Window {
            nanos: CORRECTION_NANOS,
            bound_us: Some(500),
            tail_nanos: Some(550_000),
            reads: 10_000,
            rate: 42_000_000,
            ..Window::default()
        };
        correction.observe(&late);
        assert_eq!(correction.observe(&late).rate_permille, 970);
        let idle = Window { tail_nanos: Some(90_000), spent: 1_000, ..late };
        for _ in 0..9 {
            assert_eq!(correction.observe(&idle).rate_permille, 970);
        }
        assert_eq!(correction.observe(&idle).rate_permille, 1_000);
    }
}
