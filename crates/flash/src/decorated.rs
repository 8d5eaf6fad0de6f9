//! The decorators around a device that a spec asks for.

use alloc::vec::Vec;

use contract::Device;

use crate::{Decorations, DelayedDevice, Faults, FaultyDevice};

/// A device in the decorators that its spec names. Other decorators cost nothing.
#[derive(Debug)]
pub enum DecoratedDevice<D> {
    /// The device without a decorator.
    Plain(D),
    /// The device with delays alone (option `delay=`).
    Delayed(DelayedDevice<D>),
    /// `fail_reads=` or `fail_writes=` without a delay.
    Faulty(FaultyDevice<D>),
    /// Failures and a delay: failures are reported at once, successes after the delay.
    Both(FaultyDevice<DelayedDevice<D>>),
}

impl Decorations {
    /// Wraps one worker's queue. `queue` is the worker's number, so that queues do not fail in
    /// step.
    pub fn wrap<D: Device>(&self, device: D, queue: u64) -> DecoratedDevice<D> {
        let seed = self.seed ^ queue << 32;
        let fails = self.fail_reads > 0.0 || self.fail_writes > 0.0;
        let faults = Faults {
            fail_reads: self.fail_reads,
            fail_writes: self.fail_writes,
            seed,
            ..Faults::default()
        };
        match self.delay {
            None if !fails => DecoratedDevice::Plain(device),
            None => DecoratedDevice::Faulty(FaultyDevice::new(device, faults)),
            Some(delay) if !fails => {
                DecoratedDevice::Delayed(DelayedDevice::new(device, delay, seed))
            }
            Some(delay) => DecoratedDevice::Both(FaultyDevice::new(
                DelayedDevice::new(device, delay, seed),
                faults,
            )),
        }
    }
}

contract::variants!(inside, DecoratedDevice: Plain, Delayed, Faulty, Both);

impl<D: Device> Device for DecoratedDevice<D> {
    contract::device_by!(inside);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, HeapBench};
    use crate::{MemVolume, Spec};
    use alloc::sync::Arc;

    #[test]
    fn a_spec_wraps_what_it_names() {
        for (query, expected) in [
            ("", "Plain"),
            ("?seed=4", "Plain"),
            ("?delay=1us", "Delayed"),
            ("?fail_reads=0.1", "Faulty"),
            ("?delay=1us&fail_writes=0.1", "Both"),
        ] {
            let spec: Spec = alloc::format!("mem:1M{query}").parse().unwrap();
            let wrapped = spec.decorations.wrap(MemVolume::new(2048).open_queue(), 0);
            let wrapped = match wrapped {
                DecoratedDevice::Plain(_) => "Plain",
                DecoratedDevice::Delayed(_) => "Delayed",
                DecoratedDevice::Faulty(_) => "Faulty",
                DecoratedDevice::Both(_) => "Both",
            };
            assert_eq!(wrapped, expected, "{query}");
        }
    }

    #[test]
    fn the_whole_stack_conforms() {
        let spec: Spec = "mem:16MiB?delay=1us..3us&fail_reads=0.0000000001".parse().unwrap();
        conformance::run(&mut HeapBench::new(|blocks| {
            let (volume, locks) = (MemVolume::new(blocks), Arc::new(crate::RangeLocks::new()));
            [0, 1].map(|queue| {
                let inner = spec.decorations.wrap(volume.open_queue(), queue);
                let scratch = alloc::vec![conformance::leak_buf(1 << 20, 7000)];
                crate::ExclusiveQueue::new(inner, locks.clone(), scratch)
            })
        }));
    }
}
