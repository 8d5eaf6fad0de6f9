//! The time per stage of requests: histograms of sampled requests.

use core::sync::atomic::{AtomicU32, Ordering};

use zerocopy::FromZeros;

use crate::IoKind;
use crate::counter::bump;
use crate::latency::{COARSE_BUCKETS, CoarseBucket};

/// A stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From its last byte received to its submission to the device: mostly in the scheduler.
    Scheduler,
    /// The time from a request's submission to its device until its completion by the device.
    Device,
    /// The time from handing a reply to the socket until the network has transmitted the whole
    /// reply. For reads only.
    Reply,
}

impl Stage {
    /// All stages of a request, in the order in which it goes through them.
    pub const ALL: [Stage; 3] = [Stage::Scheduler, Stage::Device, Stage::Reply];
}

/// A count of times for each coarse bucket of [`CoarseBucket`].
pub type CoarseHistogram<T> = [T; COARSE_BUCKETS];

/// Histograms of the times that sampled requests spent in each [`Stage`]: first for reads, then for
/// all other requests.
pub type StageHistograms<T> = [[CoarseHistogram<T>; Stage::ALL.len()]; 2];

/// Histograms of times with one worker as their single writer. The counters wrap.
#[derive(Debug, Default, FromZeros)]
pub struct StageMeter(StageHistograms<AtomicU32>);

impl StageMeter {
    /// Worker: records the time that a sampled request spent in a stage.
    #[inline]
    pub fn sample(&self, kind: IoKind, stage: Stage, time: CoarseBucket) {
        bump(&self.0[usize::from(kind != IoKind::Read)][stage as usize][time.index()], 1);
    }

    /// Adds the counters to `reading`.
    pub fn add_to(&self, reading: &mut StageHistograms<u32>) {
        let from = self.0.as_flattened().as_flattened();
        for (to, from) in reading.as_flattened_mut().as_flattened_mut().iter_mut().zip(from) {
            *to = to.wrapping_add(from.load(Ordering::Relaxed));
        }
    }
}

/// Returns the counts that were added between the readings `then` and `now`.
pub(crate) fn since(
    now: &StageHistograms<u32>,
    then: &StageHistograms<u32>,
) -> StageHistograms<u32> {
    let mut since = *now;
    let then = then.as_flattened().as_flattened();
    for (now, then) in since.as_flattened_mut().as_flattened_mut().iter_mut().zip(then) {
        *now = now.wrapping_sub(*then);
    }
    since
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_apart_by_kind_and_stage() {
        let meter = StageMeter::default();
        let (short, long) = (CoarseBucket::of(1), CoarseBucket::of(100_000));
        meter.sample(IoKind::Read, Stage::Device, long);
        let mut before = StageHistograms::default();
        meter.add_to(&mut before);
        meter.sample(IoKind::Write, Stage::Scheduler, short);
        meter.sample(IoKind::Exchange, Stage::Scheduler, short);
        let mut after = StageHistograms::default();
        meter.add_to(&mut after);
        let between = since(&after, &before);
        assert_eq!(before[0][Stage::Device as usize][long.index()], 1);
        assert_eq!(between[1][Stage::Scheduler as usize][short.index()], 2);
        let sum = |of: &StageHistograms<u32>| of.as_flattened().as_flattened().iter().sum::<u32>();
        assert_eq!((sum(&before), sum(&between)), (1, 2));
        assert_eq!(since(&before, &after)[1][0][0], u32::MAX - 1, "it wraps");
    }
}
