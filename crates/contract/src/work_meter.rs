//! A worker's counters of a part of its requests: those of a namespace, or of a protocol. Only the
//! worker writes, and a reader takes differences of two readings.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use zerocopy::FromZeros;

use crate::IoKind;
use crate::counter::{bump, bump_u64};
use crate::stages::{self, StageHistograms, StageMeter};

/// Largest number of a namespace. Its form on the wire has 16 bits.
pub const NAMESPACES_MAX: usize = 65_000;

/// A worker's counters of the requests of one namespace, or of the sampled requests of one
/// protocol.
#[derive(Debug, Default, FromZeros)]
pub struct WorkMeter {
    reads: AtomicU32,
    writes: AtomicU32,
    others: AtomicU32,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    /// Times per stage of the sampled requests.
    pub stages: StageMeter,
}

/// The counters of [`WorkMeter`]s, summed. All of them wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkReading {
    /// Successful requests: reads, writes and others.
    pub requests: [u32; 3],
    /// Bytes of reads and of writes.
    pub bytes: [u64; 2],
    /// Times per stage of the sampled requests.
    pub samples: StageHistograms<u32>,
}

impl WorkMeter {
    /// Worker: records a successful request of `bytes` bytes.
    #[inline]
    pub fn record(&self, kind: IoKind, bytes: usize) {
        match kind {
            IoKind::Read => self.record_reads(1, bytes as u64),
            IoKind::Write | IoKind::Exchange => {
                bump(&self.writes, 1);
                bump_u64(&self.written_bytes, bytes as u64);
            }
            IoKind::Other => bump(&self.others, 1),
        }
    }

    /// Worker: records `reads` successful reads of `bytes` bytes in total.
    #[inline]
    pub fn record_reads(&self, reads: u32, bytes: u64) {
        bump(&self.reads, reads);
        bump_u64(&self.read_bytes, bytes);
    }

    /// Returns `true` if any request was recorded.
    pub fn is_used(&self) -> bool {
        [&self.reads, &self.writes, &self.others]
            .into_iter()
            .any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Returns the present values of the counters.
    pub fn read(&self) -> WorkReading {
        let requests = [&self.reads, &self.writes, &self.others];
        let mut reading = WorkReading {
            requests: requests.map(|count| count.load(Ordering::Relaxed)),
            bytes: [&self.read_bytes, &self.written_bytes].map(|sum| sum.load(Ordering::Relaxed)),
            samples: StageHistograms::default(),
        };
        self.stages.add_to(&mut reading.samples);
        reading
    }
}

impl WorkReading {
    /// Adds the counters of `other`, read from another worker's meter.
    pub fn add(&mut self, other: &WorkReading) {
        let add = |to: &mut u32, from: &u32| *to = to.wrapping_add(*from);
        self.requests.iter_mut().zip(&other.requests).for_each(|(to, from)| add(to, from));
        let bytes = self.bytes.iter_mut().zip(other.bytes);
        bytes.for_each(|(to, from)| *to = to.wrapping_add(from));
        let to = self.samples.as_flattened_mut().as_flattened_mut().iter_mut();
        to.zip(other.samples.as_flattened().as_flattened()).for_each(|(to, from)| add(to, from));
    }

    /// Returns the difference to an `earlier` reading.
    pub fn since(&self, earlier: &WorkReading) -> WorkReading {
        let requests = |n: usize| self.requests[n].wrapping_sub(earlier.requests[n]);
        let bytes = |n: usize| self.bytes[n].wrapping_sub(earlier.bytes[n]);
        WorkReading {
            requests: core::array::from_fn(requests),
            bytes: core::array::from_fn(bytes),
            samples: stages::since(&self.samples, &earlier.samples),
        }
    }
}

/// A worker's counters of one namespace.
#[derive(Debug, Default, FromZeros)]
pub struct NamespaceMeter {
    /// The counters of the successful requests to the namespace.
    pub work: WorkMeter,
    /// The number of the namespace's device.
    device: AtomicU32,
}

impl NamespaceMeter {
    /// Worker: sets the device of the namespace.
    pub fn set_device(&self, device: usize) {
        self.device.store(device as u32, Ordering::Relaxed);
    }

    /// Returns the number of the namespace's device.
    pub fn device(&self) -> usize {
        self.device.load(Ordering::Relaxed) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CoarseBucket, Stage};

    #[test]
    fn readings_add_up_and_wrap() {
        let meters = [WorkMeter::default(), WorkMeter::default()];
        assert!(!meters[0].is_used());
        meters[0].record_reads(u32::MAX, 4_096);
        meters[1].record(IoKind::Exchange, 512);
        meters[1].record(IoKind::Other, 0);
        meters[1].stages.sample(IoKind::Read, Stage::Reply, CoarseBucket::of(0));
        assert!(meters[0].is_used() && meters[1].is_used());
        let read = || {
            let mut sum = meters[0].read();
            sum.add(&meters[1].read());
            sum
        };
        let before = read();
        assert_eq!((before.requests, before.bytes), ([u32::MAX, 1, 1], [4_096, 512]));
        meters[1].record(IoKind::Read, 512);
        meters[0].record(IoKind::Read, 512);
        meters[0].stages.sample(IoKind::Read, Stage::Reply, CoarseBucket::of(0));
        let since = read().since(&before);
        assert_eq!((read().requests[0], since.requests, since.bytes[0]), (1, [2, 0, 0], 1_024));
        assert_eq!((read().samples[0][2][0], since.samples[0][2][0]), (2, 1));
    }
}
