//! The search that calibration and recalibration share: curves are measured one after the other,
//! and on each curve the load at which a latency is reached.
//!
//! A load that meets the latency and a higher load that misses it are a [`Bracket`], which each
//! step narrows. This module deliberately leaves out the choice of curves, and knowledge of their
//! shape (`calibrate`, `recalibrate`).

use alloc::vec::Vec;

/// Curves that are measured one after another. The last curve of the list is in progress.
#[derive(Clone, Debug)]
pub(crate) struct Curves<C> {
    all: Vec<C>,
}

impl<C> Curves<C> {
    /// Creates the list with its first curve, which is in progress.
    pub(crate) fn new(first: C) -> Curves<C> {
        Curves { all: alloc::vec![first] }
    }

    /// Returns all curves measured so far, including the one in progress.
    pub(crate) fn all(&self) -> &[C] {
        &self.all
    }

    /// Returns the curve in progress.
    pub(crate) fn last(&self) -> &C {
        self.all.last().expect("there is a first curve")
    }

    /// Returns the curve in progress for changes.
    pub(crate) fn last_mut(&mut self) -> &mut C {
        self.all.last_mut().expect("there is a first curve")
    }

    /// Returns the next step of the curve in progress. When that curve is finished, `begin` creates
    /// the next one from the earlier ones; `None` if there is no further curve.
    pub(crate) fn next_step<S>(
        &mut self,
        step: impl Fn(&C) -> Option<S>,
        begin: impl Fn(&[C]) -> Option<C>,
    ) -> Option<S> {
        loop {
            if let Some(step) = step(self.last()) {
                return Some(step);
            }
            self.all.push(begin(&self.all)?);
        }
    }

    /// Returns the estimated progress from 0 to 1: `count` curves are to be measured, and the
    /// present curve has `done` runs behind it and `left` runs to go.
    pub(crate) fn progress(&self, count: usize, done: usize, left: usize) -> f64 {
        let within = done as f64 / ((done + left) as f64).max(1.0);
        ((self.all.len() as f64 - 1.0 + within) / count as f64).min(1.0)
    }
}

/// Two loads between which a latency is reached: `low` meets it, `high` misses it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bracket {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Bracket {
    /// Returns `true` if the higher load is less than `ratio` times the lower one.
    pub(crate) fn is_within(self, ratio: f64) -> bool {
        self.low * ratio > self.high
    }

    /// Returns the geometric mean of the loads, since beyond its knee a curve is very steep.
    pub(crate) fn middle(self) -> f64 {
        libm::sqrt(self.low * self.high)
    }

    /// Returns the load at this position between `low` (0) and `high` (1), on a logarithmic scale.
    pub(crate) fn along(self, share: f64) -> f64 {
        let (low, high) = (libm::log(self.low), libm::log(self.high));
        libm::exp(low + share * (high - low))
    }

    /// Limits a load to an inner part of the interval, at this distance from both ends on a
    /// logarithmic scale.
    pub(crate) fn keep_inside(self, load: f64, margin: f64) -> f64 {
        let margin = libm::pow(self.high / self.low, margin);
        load.clamp(self.low * margin, self.high / margin)
    }
}

/// Inserts a point into points that ascend by `load`, before those of equal load.
pub(crate) fn insert_by<P>(points: &mut Vec<P>, point: P, load: impl Fn(&P) -> f64) {
    let at = load(&point);
    let behind = points.partition_point(|other| load(other) < at);
    points.insert(behind, point);
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_bracket_narrows_to_where_a_curve_crosses() {
        let mut bracket = Bracket { low: 500.0, high: 1e6 };
        let mut steps = 0;
        while !bracket.is_within(1.02) {
            let middle = bracket.middle();
            assert!((middle / bracket.along(0.5) - 1.0).abs() < 1e-9);
            match middle < 123_456.0 {
                true => bracket.low = middle,
                false => bracket.high = middle,
            }
            steps += 1;
        }
        assert!(bracket.low < 123_456.0 && bracket.high >= 123_456.0 && steps == 9, "{steps}");
    }

    #[test]
    fn a_load_is_kept_inside_a_bracket() {
        let bracket = Bracket { low: 100.0, high: 1_600.0 };
        let inside = [1.0, 300.0, 1e9].map(|load| bracket.keep_inside(load, 0.25));
        assert_eq!(inside, [200.0, 300.0, 800.0]);
    }

    #[test]
    fn curves_follow_one_another_until_none_begins() {
        // A curve is how many steps it has left.
        let mut curves = Curves::new(1_u32);
        let begin = |all: &[u32]| (all.len() < 3).then_some(0);
        let step = |left: &u32| left.checked_sub(1);
        assert_eq!(curves.next_step(step, begin), Some(0));
        assert_eq!((curves.progress(3, 1, 1), curves.all().len()), (0.5 / 3.0, 1));
        *curves.last_mut() = 0;
        assert_eq!(curves.next_step(step, begin), None);
        assert_eq!(curves.all(), [0, 0, 0]);
    }

    #[test]
    fn points_ascend() {
        let mut points = vec![];
        [3.0, 1.0, 2.0].into_iter().for_each(|load| insert_by(&mut points, load, |load| *load));
        assert_eq!(points, [1.0, 2.0, 3.0]);
    }
}
