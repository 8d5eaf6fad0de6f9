//! The cost of garbage collection: the share of live pages in a block at its collection.

use alloc::boxed::Box;

const STEPS: usize = 1024;

/// The live share of collected blocks, by the share of physical space in use.
///
/// Blocks are collected in the order in which they were written, under uniformly random writes. A
/// page of a block that waited until the device was written over `1/u` times is still live with
/// probability `v = exp(-(1 - v)/u)` (Robinson 1996; Desnoyers 2012), so that `u = (v - 1)/ln v`.
#[derive(Debug)]
pub(super) struct Garbage {
    live: Box<[f64]>,
}

impl Garbage {
    pub(super) fn new() -> Self {
        Garbage { live: (0..=STEPS).map(|step| live_share(step as f64 / STEPS as f64)).collect() }
    }

    /// Returns the number of pages copied for each page that the host writes. `used` is the share
    /// of physical space in use.
    pub(super) fn copies(&self, used: f64) -> f64 {
        let step = (used.clamp(0.0, 1.0) * STEPS as f64) as usize;
        let live = self.live[step].min(LIVE_MAX);
        live / (1.0 - live)
    }
}

/// Maximum live share: a device never copies more than 49 pages for one.
const LIVE_MAX: f64 = 0.98;

fn live_share(used: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let live = (low + high) / 2.0;
        if live > 0.0 && (live - 1.0) / libm::log(live) > used {
            high = live;
        } else {
            low = live;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_shares_solve_their_equation() {
        for used in [0.3, 0.5, 0.7, 0.8, 0.9] {
            let live = live_share(used);
            assert!((libm::exp(-(1.0 - live) / used) - live).abs() < 1e-6, "{used}: {live}");
        }
    }

    #[test]
    fn fuller_devices_copy_more() {
        let garbage = Garbage::new();
        let copies = [0.0, 0.4, 0.6, 0.8, 0.87, 0.95, 1.0].map(|used| garbage.copies(used));
        assert!(copies.is_sorted(), "{copies:?}");
        assert!(copies[0] < 0.01 && copies[6] > 10.0, "{copies:?}");
        assert!((2.5..3.5).contains(&copies[4]), "write amplification about 4: {copies:?}");
    }
}
