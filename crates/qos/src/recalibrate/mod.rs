//! Recalibration: the measurement of a device beside its tenants, by probes that are offered step
//! by step (docs/explanation/recalibration.md has the method).
//!
//! Probes are requests of a best-effort tenant, so they get what the tenants leave, at the prices
//! of the old model. The workers measure the total load and the tail of all reads. So a device that
//! serves less than its model says shows that long before its tokens are used up.
//!
//! A [`Recalibration`] requests steps ([`next_step`](Recalibration::next_step)), takes the
//! measurements ([`take`](Recalibration::take)), and in the end fits a model
//! ([`findings`](Recalibration::findings)). This module deliberately leaves out making the probes,
//! and the clock.

mod curve;
mod findings;
mod plan;

pub use curve::Curve;
pub use findings::{Findings, RecalibrationError, Row};
pub use plan::{Plan, Step, StepReading};

use crate::search::Curves;

/// The mixes of the probes, in per cent of reads, if they may write; reads alone come first.
pub const READ_PERCENTS: [u8; 3] = [90, 75, 50];

/// A recalibration in progress.
#[derive(Clone, Debug)]
pub struct Recalibration {
    plan: Plan,
    curves: Curves<Curve>,
    /// The largest [`StepReading::size`] so far.
    size: f64,
}

impl Recalibration {
    /// Creates a recalibration, which begins with the curve of reads alone.
    pub fn new(plan: Plan) -> Recalibration {
        let first = Curve::new(100, &plan);
        Recalibration { plan, curves: Curves::new(first), size: 1.0 }
    }

    /// Returns the plan of the recalibration, with the latency as
    /// [tightened](Recalibration::tighten).
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Takes the strictest latency that is promised now, in microseconds. A latency stricter than
    /// the plan's applies to all further steps, including the present one. A promise that has ended
    /// does not change earlier measurements.
    pub fn tighten(&mut self, bound_us: Option<u32>) {
        let Some(now) = bound_us else { return };
        if self.plan.bound_us.is_none_or(|known| now < known) {
            self.plan.bound_us = Some(now);
            let ceiling_us = self.plan.ceiling_us();
            self.curves.last_mut().lower(ceiling_us);
        }
    }

    /// Returns the next probes to offer; `None` when the measurement is complete.
    pub fn next_step(&mut self) -> Option<Step> {
        let plan = &self.plan;
        let begin = |curves: &[Curve]| {
            // Where the tenants alone are too much, no mix finds room.
            let is_hopeless = curves.last().is_some_and(Curve::is_hopeless);
            let read_percent = READ_PERCENTS.get(curves.len() - 1)?;
            (plan.writes && !is_hopeless).then(|| Curve::new(*read_percent, plan))
        };
        self.curves.next_step(|curve| curve.next_step(plan), begin)
    }

    /// Returns `true` if a tail, in microseconds, exceeds the strictest promise, so that the step
    /// is to be ended at once.
    pub fn is_too_late(&self, tail_us: f64) -> bool {
        self.plan.bound_us.is_some_and(|bound| tail_us > f64::from(bound))
    }

    /// Takes the measurement of the last requested step. `is_cut` means that the step was ended
    /// early, because the tail was [too late](Recalibration::is_too_late).
    pub fn take(&mut self, step: Step, reading: StepReading, is_cut: bool) {
        if step.iops > 0.0 && reading.ended > 0 {
            self.size = self.size.max(reading.size);
        }
        self.curves.last_mut().take(&self.plan, step, reading, is_cut);
    }

    /// Returns the curves so far, reads alone first.
    pub fn curves(&self) -> &[Curve] {
        self.curves.all()
    }

    /// Returns the estimated progress, from 0 to 1.
    pub fn progress(&self) -> f64 {
        let all = if self.plan.writes { 1 + READ_PERCENTS.len() } else { 1 };
        self.curves.progress(all, self.curves.last().points().len(), 4)
    }

    /// Returns the model that follows from the measurements.
    ///
    /// # Errors
    /// No model follows, for the reason returned.
    pub fn findings(&self) -> Result<Findings, RecalibrationError> {
        findings::find(&self.plan, self.curves.all(), self.size)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
