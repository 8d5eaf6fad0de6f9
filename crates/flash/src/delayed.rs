//! A decorator that delays completions.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};

use contract::{Command, Completion, Device, Geometry, Instant, Submission};

use crate::{Delay, Rng};

/// A device whose completions are delayed, counted from the inner device's completion. The clock is
/// `now`, real or virtual.
#[derive(Debug)]
pub struct DelayedDevice<D> {
    inner: D,
    delay: Delay,
    chance: Rng,
    /// Completions of the inner device that are not yet due, earliest first.
    held: BinaryHeap<Reverse<DelayedCompletion>>,
    /// Number of completions held so far. The number breaks ties, so that equal delays keep the
    /// order.
    sequence: u64,
    depth: usize,
    outstanding: usize,
    inner_done: Vec<Completion>,
}

#[derive(Debug)]
struct DelayedCompletion {
    due: Instant,
    sequence: u64,
    completion: Completion,
}

impl DelayedCompletion {
    fn key(&self) -> (Instant, u64) {
        (self.due, self.sequence)
    }
}

impl PartialEq for DelayedCompletion {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for DelayedCompletion {}

impl PartialOrd for DelayedCompletion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DelayedCompletion {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<D: Device> DelayedDevice<D> {
    /// Returns a queue around `inner`, which must be at rest. `seed` selects the delays between the
    /// shortest and the longest.
    pub fn new(inner: D, delay: Delay, seed: u64) -> Self {
        let depth = inner.room();
        DelayedDevice {
            inner,
            delay,
            chance: Rng::new(seed),
            held: BinaryHeap::with_capacity(depth),
            sequence: 0,
            depth,
            outstanding: 0,
            inner_done: Vec::with_capacity(depth),
        }
    }

    fn draw(&mut self) -> core::time::Duration {
        let nanos = |duration: core::time::Duration| duration.as_nanos() as u64;
        let (min, max) = (nanos(self.delay.min), nanos(self.delay.max));
        core::time::Duration::from_nanos(self.chance.within(min..=max))
    }
}

impl<D: Device> Device for DelayedDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn room(&self) -> usize {
        self.inner.room().min(self.depth - self.outstanding)
    }

    fn excludes(&self, command: Command) -> bool {
        self.inner.excludes(command)
    }

    fn submit(&mut self, now: Instant, submission: Submission) {
        self.outstanding += 1;
        self.inner.submit(now, submission);
    }

    fn kick(&mut self, now: Instant) {
        self.inner.kick(now);
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        let mut inner_done = core::mem::take(&mut self.inner_done);
        self.inner.poll(now, &mut inner_done);
        for completion in inner_done.drain(..) {
            let due = now + self.draw();
            self.held.push(Reverse(DelayedCompletion { due, sequence: self.sequence, completion }));
            self.sequence += 1;
        }
        self.inner_done = inner_done;
        while self.held.peek().is_some_and(|Reverse(held)| held.due <= now) {
            let Reverse(held) = self.held.pop().expect("it was just seen");
            done.push(held.completion);
            self.outstanding -= 1;
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let held = self.held.peek().map(|Reverse(held)| held.due);
        held.into_iter().chain(self.inner.wake_at()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, HeapBench};
    use crate::{MemVolume, Null};
    use contract::{Command, SlotTable};
    use core::time::Duration;

    #[test]
    fn conforms() {
        let delay = Delay { min: Duration::from_micros(1), max: Duration::from_micros(9) };
        conformance::run(&mut HeapBench::new(|blocks| {
            let volume = MemVolume::new(blocks);
            [1, 2].map(|seed| DelayedDevice::new(volume.open_queue(), delay, seed))
        }));
    }

    #[test]
    fn completes_when_the_delay_is_over_and_says_when() {
        let delay = Delay::fixed(Duration::from_nanos(100));
        let mut device = DelayedDevice::new(Null::new(8), delay, 0);
        let slot = SlotTable::new(1).insert(()).unwrap();
        let at = Instant::from_nanos;
        device.submit(at(5), Submission { slot, command: Command::Flush, buf: None });
        device.kick(at(5));
        let mut done = Vec::new();
        device.poll(at(10), &mut done);
        assert_eq!((done.len(), device.wake_at()), (0, Some(at(110))));
        device.poll(at(109), &mut done);
        assert!(done.is_empty());
        device.poll(at(110), &mut done);
        assert_eq!((done.len(), device.wake_at()), (1, None));
    }
}
