//! The time per stage of requests: histograms of sampled requests.

use core::sync::atomic::{AtomicU32, Ordering};

use zerocopy::FromZeros;

use crate::Kind;
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
pub type Coarse<T> = [T; COARSE_BUCKETS];

/// Histograms of the times that sampled requests spent in each [`Stage`]: first for reads, then for
/// all other requests.
pub type Staged<T> = [[Coarse<T>; Stage::ALL.len()]; 2];

/// Histograms of times with one worker as their single writer. The counters wrap.
#[derive(Debug, Default, FromZeros)]
pub struct StageMeter(Staged<AtomicU32>);

impl StageMeter {
    /// Worker: records the time that a sampled request spent in a stage.
    #[inline]
    pub fn sample(&self, kind: Kind, stage: Stage, time: CoarseBucket) {
        bump(&self.0[usize::from(kind != Kind::Read)][stage as usize][time.index()], 1);
    }

    /// Adds the counters to `reading`.
    pub fn add_to(&self, reading: &mut Staged<u32>) {
        let from = self.0.as_flattened().as_flattened();
        for (to, from) in reading.as_flattened_mut().as_flattened_mut().iter_mut().zip(from) {
            *to = to.wrapping_add(from.load(Ordering::Relaxed));
        }
    }
}

/// Returns the counts that were added between the readings `then` and `now`.
pub(crate) fn since(now: &Staged<u32>, then: &Staged<u32>) -> Staged<u32> {
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
        meter.sample(Kind::Read, Stage::Device, long);
        let mut before = Staged::default();
        meter.add_to(&mut before);
        meter.sample(Kind::Write, Stage::Scheduler, short);
        meter.sample(Kind::Exchange, Stage::Scheduler, short);
        let mut after = Staged::default();
        meter.add_to(&mut after);
        let between = since(&after, &before);
        assert_eq!(before[0][Stage::Device as usize][long.index()], 1);
        assert_eq!(between[1][Stage::Scheduler as usize][short.index()], 2);
        let sum = |of: &Staged<u32>| of.as_flattened().as_flattened().iter().sum::<u32>();
        assert_eq!((sum(&before), sum(&between)), (1, 2));
        assert_eq!(since(&before, &after)[1][0][0], u32::MAX - 1, "it wraps");
    }
}
