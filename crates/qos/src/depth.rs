//! The bound of the number of requests at the device, for the strictest latency (the idea is K2's,
//! RTSS 2019): a request that waits in the scheduler can still be overtaken, one in the device
//! cannot.
//!
//! A pure controller over the same windows as [`Correction`](crate::Correction). The bound starts
//! at the number that Little's law gives, `rate × latency`, and goes down while the device is late.
//! The equations are in docs/explanation/scheduler.md, "Depth".

use crate::Window;
use crate::units::TOKEN;

/// The lowest bound that is set on the number of requests at the device: with fewer requests, the
/// device idles between rounds.
pub const DEPTH_MIN: u32 = 16;

/// Late windows in a row before the bound goes down.
const LATE: u32 = 2;

/// The controller that bounds the number of requests at one device.
#[derive(Clone, Debug, Default)]
pub struct DepthBound {
    /// The bound; `None` before the first window with a latency to keep.
    depth: Option<u32>,
    late: u32,
}

impl DepthBound {
    /// Creates a controller without a bound.
    pub fn new() -> DepthBound {
        DepthBound::default()
    }

    /// Returns the bound of Little's law: the tokens that the device makes within the latency.
    fn ceiling(window: &Window, bound_us: u32) -> u32 {
        let units = u128::from(window.rate) * u128::from(bound_us) / 1_000_000;
        let tokens = units.div_ceil(u128::from(TOKEN));
        u32::try_from(tokens).unwrap_or(u32::MAX).max(DEPTH_MIN)
    }

    /// Takes a window into account, and returns the bound of requests at the device; `None` for no
    /// bound.
    ///
    /// From the second late window in a row on, each one lowers the bound by an eighth. Each window
    /// below 80 % of the latency raises it by a sixteenth of its maximum.
    pub fn observe(&mut self, window: &Window) -> Option<u32> {
        let Some(bound_us) = window.bound_us else {
            *self = DepthBound::new();
            return None;
        };
        let ceiling = DepthBound::ceiling(window, bound_us);
        let mut depth = self.depth.unwrap_or(ceiling).min(ceiling);
        if let Some(tail) = window.tail_nanos {
            let bound = u64::from(bound_us) * 1_000;
            self.late = if tail > bound { self.late + 1 } else { 0 };
            if self.late >= LATE {
                depth = (depth - depth / 8).max(DEPTH_MIN);
            } else if tail * 10 < bound * 8 {
                depth = depth.saturating_add(ceiling / 16 + 1).min(ceiling);
            }
        }
        self.depth = Some(depth);
        self.depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CORRECTION_NANOS;

    const CALM: Window = Window {
        nanos: CORRECTION_NANOS,
        bound_us: Some(500),
        tail_nanos: Some(300_000),
        reads: 40_000,
        writes: 0,
        spent: 4_000_000,
        rate: 42_000_000,
        write: 1_000,
    };

    #[test]
    fn goes_down_while_late_and_up_to_littles_law() {
        let mut bound = DepthBound::new();
        // 420 K tokens a second for 500 µs.
        assert_eq!(bound.observe(&CALM), Some(210));
        let late = Window { tail_nanos: Some(900_000), ..CALM };
        assert_eq!([bound.observe(&late), bound.observe(&late)], [Some(210), Some(184)]);
        for _ in 0..100 {
            bound.observe(&late);
        }
        assert_eq!(bound.observe(&late), Some(DEPTH_MIN));
        let within = Window { tail_nanos: Some(450_000), ..CALM };
        assert_eq!(bound.observe(&within), Some(DEPTH_MIN));
        assert_eq!(bound.observe(&CALM), Some(30));
        for _ in 0..20 {
            bound.observe(&CALM);
        }
        assert_eq!(bound.observe(&CALM), Some(210));
        // A device that makes less, and one whose reads nobody saw.
        let half = Window { rate: 21_000_000, tail_nanos: None, ..CALM };
        assert_eq!(bound.observe(&half), Some(105));
        // Nobody is latency-critical.
        assert_eq!(bound.observe(&Window { bound_us: None, ..CALM }), None);
        assert_eq!(bound.observe(&CALM), Some(210));
    }
}
