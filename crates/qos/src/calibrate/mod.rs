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

pub use course::{Calibration, Course};
pub use fit::{Crossing, Fit, Misfit, Point, fit};
pub use load::{Goal, Mix, Offer, Outcome};
pub use search::{Effort, Measured, Search};

pub use crate::Percentile;

#[cfg(test)]
mod tests;
