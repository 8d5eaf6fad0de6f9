//! The measurements of a device for the online correction, the limit of its queue depth, the
//! detection of drift, and an outside reader of the delays.
//!
//! This module deliberately leaves out the use of the results (`registry.rs`).

use core::time::Duration;

use contract::Instant;

use crate::admission::PricedSlo;
use crate::correction::{Adjustment, CORRECTION_READS_MIN, Correction, Window};
use crate::cost_model::CostModel;
use crate::delays::{Delays, DelaysCursor};
use crate::depth::DepthBound;
use crate::device_model::DeviceModel;
use crate::drift::{DRIFT_PERIOD, DRIFT_WINDOW, Drift, DriftWatch, WindowReading};
use crate::waits::Waits;

/// The measurements for the online correction and for the limit of the queue depth.
#[derive(Debug)]
struct Measurement {
    correction: Option<Correction>,
    depth: Option<DepthBound>,
    seen: DelaysCursor,
    looked_at: Instant,
}

/// The periodic check whether the device matches its model.
#[derive(Debug)]
struct Watch {
    judge: DriftWatch,
    seen: DelaysCursor,
    /// The start of the current measurement window; `None` between windows. The next one opens at
    /// `next_at`.
    open_since: Option<Instant>,
    next_at: Instant,
    /// The longest wait of a worker in each reading of the current window, added up.
    waited: Duration,
}

/// The registry's model and settings of the device, by which measurements are judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) model: &'a DeviceModel,
    pub(super) delays: &'a Delays,
    /// The corrected prices.
    pub(super) cost: &'a CostModel,
    pub(super) adjustment: Adjustment,
    /// Units of work a second that the device sustains at the strictest promised latency, after the
    /// correction.
    pub(super) rate: u64,
    /// The promise whose latency sets the device's rate; `None` without promises.
    pub(super) strictest: Option<PricedSlo>,
}

/// The conclusions from a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// The new bound of the number of requests at the device, where an inner `None` is no bound;
    /// `None` while depths are not bounded.
    pub(super) depth: Option<Option<u32>>,
    pub(super) adjustment: Adjustment,
}

/// The measurements of one device.
#[derive(Debug, Default)]
pub(super) struct Probe {
    measurement: Option<Measurement>,
    watch: Option<Watch>,
    /// `true` while a recalibration reads the recorded delays.
    is_read: bool,
    /// The workers' waits for processors.
    waits: Waits,
}

impl Probe {
    /// Returns `true` if workers are to record delays.
    pub(super) fn is_needed(&self) -> bool {
        let is_watched = self.watch.as_ref().is_some_and(|watch| watch.open_since.is_some());
        self.measurement.is_some() || is_watched || self.is_read
    }

    /// Returns `true` if the online correction is on.
    pub(super) fn is_correcting(&self) -> bool {
        self.measurement.as_ref().is_some_and(|measurement| measurement.correction.is_some())
    }

    /// Returns the drift of the device from its model; `None` if it is not watched.
    pub(super) fn drift(&self) -> Option<Drift> {
        self.watch.as_ref().map(|watch| watch.judge.state())
    }

    /// Starts or stops the measurements of the online correction.
    pub(super) fn correct(&mut self, on: bool, delays: &Delays, now: Instant) {
        self.measure(delays, now, |measurement| measurement.correction = on.then(Correction::new));
    }

    /// Starts or stops the measurements for the bound of the depth.
    pub(super) fn bound_depth(&mut self, on: bool, delays: &Delays, now: Instant) {
        self.measure(delays, now, |measurement| measurement.depth = on.then(DepthBound::new));
    }

    /// Starts or stops the watch of the drift; its first window is due at once.
    pub(super) fn watch(&mut self, on: bool, now: Instant) {
        self.watch = on.then(|| Watch {
            judge: DriftWatch::new(),
            seen: DelaysCursor::nothing(),
            open_since: None,
            next_at: now,
            waited: Duration::ZERO,
        });
    }

    /// Notes that a recalibration has begun or stopped reading the delays.
    pub(super) fn read(&mut self, on: bool) {
        self.is_read = on;
    }

    fn measure(&mut self, delays: &Delays, now: Instant, set: impl FnOnce(&mut Measurement)) {
        set(self.measurement.get_or_insert_with(|| {
            let mut seen = DelaysCursor::nothing();
            seen.look(delays);
            Measurement { correction: None, depth: None, seen, looked_at: now }
        }));
        let is_idle = |m: &mut Measurement| m.correction.is_none() && m.depth.is_none();
        self.measurement.take_if(is_idle);
    }

    /// Restarts the correction and the verdict on the drift, since the device has another model.
    pub(super) fn restart(&mut self) {
        if let Some(measurement) = &mut self.measurement {
            measurement.correction = measurement.correction.as_ref().map(|_| Correction::new());
        }
        if let Some(watch) = &mut self.watch {
            watch.judge = DriftWatch::new();
        }
    }

    /// Opens and ends windows of the drift. `waited` is the longest time since the last call for
    /// which a worker waited for a processor.
    pub(super) fn look(&mut self, view: &View<'_>, waited: Duration, now: Instant) {
        self.waits.look(waited);
        let Some(watch) = &mut self.watch else { return };
        watch.waited += waited;
        match watch.open_since {
            None if now >= watch.next_at => {
                watch.seen.look(view.delays);
                // Delays of a wait that has just been counted may come in this window.
                watch.waited = self.waits.last();
                (watch.open_since, watch.next_at) = (Some(now), now + DRIFT_PERIOD);
            }
            Some(begun) if now.since(begun) >= DRIFT_WINDOW => {
                let since = watch.seen.look(view.delays);
                let Adjustment { rate_permille, write_permille } = view.adjustment;
                let reading = WindowReading {
                    since: &since,
                    length: now.since(begun),
                    waited: watch.waited,
                    write: view.cost.write(),
                    corrected: f64::from(rate_permille) / f64::from(write_permille),
                };
                watch.judge.end(view.model, reading, now);
                watch.open_since = None;
            }
            _ => {}
        }
    }

    /// Ends a window of the correction and of the depth, and returns the result; `None` while both
    /// are off, and if workers waited for processors for too much of the window.
    pub(super) fn end_window(&mut self, view: &View<'_>, now: Instant) -> Option<Observation> {
        let measurement = self.measurement.as_mut()?;
        let since = measurement.seen.look(view.delays);
        let nanos = now.since(measurement.looked_at).as_nanos() as u64;
        measurement.looked_at = now;
        let tenths = view.strictest.map_or(950, |promise| promise.percentile.tenths());
        if self.waits.spoil(Duration::from_nanos(nanos), tenths) {
            return None;
        }
        let tail = view.strictest.filter(|_| since.ended() >= CORRECTION_READS_MIN);
        let window = Window {
            nanos,
            bound_us: view.strictest.map(|promise| promise.latency_us),
            tail_nanos: tail.map(|promise| since.tail_nanos(promise.percentile.tenths())),
            reads: since.reads,
            writes: since.writes,
            spent: since.spent,
            rate: view.rate,
            write: view.cost.write(),
        };
        let depth = measurement.depth.as_mut().map(|depth| depth.observe(&window));
        let correction = measurement.correction.as_mut();
        let adjustment = correction.map_or(view.adjustment, |by| by.observe(&window));
        Some(Observation { depth, adjustment })
    }
}
