//! Calibration: the measurement of a device at one load after the other (paper, section 3.2.1;
//! docs/explanation/calibration.md has the method).
//!
//! A [`Calibration`] requests loads ([`next_offer`](Calibration::next_offer)), takes their results
//! ([`take`](Calibration::take)), and in the end fits prices and rates
//! ([`findings`](Calibration::findings)). This module deliberately leaves out making load, and the
//! clock.

mod course;
mod fit;
mod load;
mod search;

pub use course::{Calibration, CalibrationPlan};
pub use fit::{Crossing, Fit, FitError, Point, fit};
pub use load::{LatencyGoal, LoadResult, Mix, OfferedLoad};
pub use search::{MeasuredLoad, RunLengths, Search};

pub use crate::Percentile;

#[cfg(test)]
mod tests;
