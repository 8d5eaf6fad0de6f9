//! The devices that a spec can name, opened: a closed set behind one type.

use std::sync::Arc;

use contract::{BLOCK_BYTES, Buf, Completion, Device, Geometry, Instant, SizeClass, Submission};
use flash::{Decorated, Exclusive, MemQueue, MemVolume, Null, RangeLocks, Source, Spec};
use io::carve;

/// Scratch buffers of a queue: compare-and-writes that run at the same time on one worker.
const SCRATCH: usize = 4;

/// An opened device, from which each worker gets a queue.
pub(crate) struct Volume {
    storage: Storage,
    locks: Arc<RangeLocks>,
    spec: Spec,
}

enum Storage {
    Null,
    Mem(MemVolume),
}

/// One worker's queue to a device.
pub(crate) enum AnyDevice {
    Null(Null),
    Mem(Exclusive<MemQueue>),
}

impl Volume {
    /// Opens what the spec names.
    pub(crate) fn open(spec: &Spec) -> Result<Volume, String> {
        let storage = match &spec.source {
            Source::Null { .. } => Storage::Null,
            Source::Mem { bytes } => Storage::Mem(MemVolume::new(bytes / BLOCK_BYTES as u64)),
            Source::File { .. } => return Err("not yet".to_owned()),
        };
        Ok(Volume { storage, locks: Arc::new(RangeLocks::new()), spec: spec.clone() })
    }

    /// Its size in blocks.
    pub(crate) fn blocks(&self) -> u64 {
        match &self.spec.source {
            Source::Null { bytes } | Source::Mem { bytes } => bytes / BLOCK_BYTES as u64,
            Source::File { .. } => 0,
        }
    }

    /// The queue of worker number `worker`, for the calling thread.
    pub(crate) fn open_queue(&self, worker: usize) -> Result<Decorated<AnyDevice>, String> {
        let queue = match &self.storage {
            Storage::Null => AnyDevice::Null(Null::new(self.blocks())),
            Storage::Mem(volume) => {
                AnyDevice::Mem(Exclusive::new(volume.open_queue(), self.locks.clone(), scratch()?))
            }
        };
        Ok(self.spec.decorations.wrap(queue, worker as u64))
    }
}

fn scratch() -> Result<Vec<Buf>, String> {
    let bytes = Exclusive::<Null>::scratch_bytes(4096);
    let arena = carve(&[SizeClass { bytes, count: SCRATCH }]).map_err(|e| e.to_string())?;
    Ok(arena.bufs)
}

macro_rules! each {
    ($self:expr, $device:ident => $call:expr) => {
        match $self {
            AnyDevice::Null($device) => $call,
            AnyDevice::Mem($device) => $call,
        }
    };
}

impl Device for AnyDevice {
    fn geometry(&self) -> Geometry {
        each!(self, device => device.geometry())
    }

    fn room(&self) -> usize {
        each!(self, device => device.room())
    }

    fn submit(&mut self, now: Instant, submission: Submission) {
        each!(self, device => device.submit(now, submission));
    }

    fn kick(&mut self, now: Instant) {
        each!(self, device => device.kick(now));
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        each!(self, device => device.poll(now, done));
    }

    fn wake_at(&self) -> Option<Instant> {
        each!(self, device => device.wake_at())
    }
}
