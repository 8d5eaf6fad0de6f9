//! Commands beyond plain reads and writes: compare, compare-and-write, writes that readers see
//! whole or not at all, and requests finer than the device's granularity.

mod frames;
mod op;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use contract::{
    BLOCK_BYTES, Buf, Command, Completion, Device, Geometry, Instant, REQUEST_BYTES_MAX, Slot,
    SlotTable, Status, Submission,
};

use crate::inbox::assert_valid;
use crate::locks::RangeLocks;
use frames::Frames;
pub use frames::SmallWriteCounters;
use op::{Op, OpStep, RequestSizes};

/// Period after which waiting requests are retried: long enough for the worker to sleep meanwhile.
const RETRY_PERIOD: Duration = Duration::from_micros(100);

/// A queue that shares its volume's [`RangeLocks`] with all other queues to the volume.
///
/// Reads and plain writes hold the range's stripes in shared mode. An atomic write, a
/// compare-and-write and a write that ends inside a granule hold the stripes alone. Where the
/// medium tears blocks ([`RangeLocks::for_tearing`]), every other write holds them alone too. So
/// does a read that the inner device may carry out in parts, if it [leaves plain writes
/// whole](Geometry::writes_whole). A commit holds all stripes from its first page to its last as a
/// plain write does, so that no write that ends inside a granule puts back what the commit
/// replaced.
///
/// A request that does not get its stripes waits here in order. `kick` and `poll` retry waiting
/// requests. `wake_at` asks for a poll after 100 µs, since the holder of the stripes may need this
/// core to go on.
///
/// Atomicity towards a crash is the inner device's ([`Geometry::atomic_blocks_max`]). This type
/// adds atomicity towards all other requests. A compare-and-write is as durable as a plain write.
///
/// A queue must be at rest when it is dropped, or the stripes of its requests stay held.
#[derive(Debug)]
pub struct ExclusiveQueue<D> {
    inner: D,
    locks: Arc<RangeLocks>,
    /// Blocks of a granule: the inner device only receives multiples of it.
    granule: u64,
    ops: SlotTable<Op>,
    /// Requests that wait for stripes or a scratch buffer, oldest first. Each request has a slot of
    /// the inner device reserved.
    waiting: VecDeque<Slot>,
    /// Requests that are refused, or ended in a frame; reported at the next poll.
    refused: Vec<Completion>,
    scratch: Vec<Buf>,
    /// Total number of scratch buffers.
    scratch_max: usize,
    /// Pages in memory for small writes.
    frames: Frames,
    inner_done: Vec<Completion>,
    /// Time of the last retry of waiting requests.
    tried: Instant,
}

impl<D: Device> ExclusiveQueue<D> {
    /// Returns a queue around `inner`, which must be at rest. Without `scratch` buffers, compare
    /// and compare-and-write are unsupported. Otherwise each buffer must hold
    /// [`scratch_bytes`](Self::scratch_bytes) of 512.
    pub fn new(inner: D, locks: Arc<RangeLocks>, scratch: Vec<Buf>) -> Self {
        Self::with_granularity(inner, locks, scratch, BLOCK_BYTES)
    }

    /// Returns a queue around a device that takes only multiples of `granularity_bytes`.
    ///
    /// `granularity_bytes` is a power of two of at least 512, and the device's size is a multiple
    /// of it. Finer requests read and write whole granules, so a granularity above 512 requires
    /// scratch buffers.
    pub fn with_granularity(
        inner: D,
        locks: Arc<RangeLocks>,
        scratch: Vec<Buf>,
        granularity_bytes: usize,
    ) -> Self {
        assert!(granularity_bytes.is_power_of_two() && granularity_bytes >= BLOCK_BYTES);
        let granule = (granularity_bytes / BLOCK_BYTES) as u64;
        assert!(granule == 1 || !scratch.is_empty(), "finer requests need scratch buffers");
        assert!(
            inner.geometry().blocks.is_multiple_of(granule),
            "a device is made of whole granules"
        );
        assert!(locks.region_blocks() >= granule, "a granule is under one lock");
        let least = Self::scratch_bytes(granularity_bytes);
        assert!(scratch.iter().all(|buf| buf.capacity() >= least), "scratch below {least} bytes");
        let depth = inner.room();
        ExclusiveQueue {
            inner,
            locks,
            granule,
            ops: SlotTable::new(depth),
            waiting: VecDeque::with_capacity(depth),
            refused: Vec::with_capacity(depth),
            scratch_max: scratch.len(),
            scratch,
            frames: Frames::none(),
            inner_done: Vec::with_capacity(depth),
            tried: Instant::ZERO,
        }
    }

    /// Returns the minimum size of a scratch buffer in bytes: the largest request, plus the rest of
    /// its first and last granule.
    pub const fn scratch_bytes(granularity_bytes: usize) -> usize {
        REQUEST_BYTES_MAX + 2 * (granularity_bytes - BLOCK_BYTES)
    }

    /// Returns the inner device and the scratch buffers of a queue at rest.
    pub fn into_parts(self) -> (D, Vec<Buf>) {
        assert!(self.ops.is_empty(), "requests are in flight");
        (self.inner, self.scratch)
    }

    /// Returns the inner device, to look at.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the inner device if no request is in flight. Requests that are submitted to it
    /// directly are not excluded from any range.
    pub fn inner_at_rest(&mut self) -> Option<&mut D> {
        self.ops.is_empty().then_some(&mut self.inner)
    }

    /// Returns the largest number of blocks whose granules the inner device writes atomically,
    /// wherever the range starts. With `m` granules that is `(m − 1) · granule + 1`: the worst
    /// start is the last block of a granule.
    fn atomic_blocks_max(&self) -> u32 {
        let granule = self.granule as u32;
        match self.inner.geometry().atomic_blocks_max / granule {
            0 => 0,
            granules => {
                ((granules - 1) * granule + 1).min((REQUEST_BYTES_MAX / BLOCK_BYTES) as u32)
            }
        }
    }

    /// Returns the sizes by which the inner device takes requests.
    fn grain(&self) -> RequestSizes {
        let inner = self.inner.geometry();
        let reads_max = if inner.writes_whole { inner.atomic_blocks_max.into() } else { u64::MAX };
        RequestSizes { granule: self.granule, blocks: inner.blocks, reads_max }
    }

    /// Returns the status with which a command is refused; `None` if the command is valid for this
    /// device.
    fn refusal(&self, command: Command) -> Option<Status> {
        let geometry = self.inner.geometry();
        match command {
            Command::CompareAndWrite(_) if geometry.read_only => Some(Status::ReadOnly),
            Command::Compare(_) | Command::CompareAndWrite(_) if self.scratch_max == 0 => {
                Some(Status::Unsupported)
            }
            Command::WriteAtomic(range) => {
                let blocks = op::cover(range, self.granule).blocks;
                (blocks > geometry.atomic_blocks_max).then_some(Status::AtomicTooLarge)
            }
            Command::Commit { .. } if geometry.commit_pages_max == 0 => Some(Status::Unsupported),
            Command::Commit { pages } if pages > geometry.commit_pages_max => {
                Some(Status::AtomicTooLarge)
            }
            _ => None,
        }
    }

    /// Starts the next step of a request; returns `false` if the request must wait.
    fn start(&mut self, now: Instant, slot: Slot) -> bool {
        let op = self.ops.get(slot);
        if matches!(op.step, OpStep::Framed) {
            return self.join(now, slot, false);
        }
        if !self.locks.advance(&mut op.claim) {
            return false;
        }
        let (command, buf) = match op.step {
            OpStep::Whole(command) => (command, op.buf.take()),
            OpStep::Patch(part) => {
                let Some(scratch) = self.scratch.pop() else { return false };
                (Command::Read(op::cover(part, self.granule)), Some(scratch))
            }
            OpStep::WriteBack | OpStep::Framed => unreachable!("{:?} does not wait", op.step),
        };
        self.inner.submit(now, Submission { slot, command, buf });
        true
    }

    /// Retries all waiting requests in order; returns `true` if one has started.
    fn retry(&mut self, now: Instant) -> bool {
        self.tried = now;
        let mut started = false;
        for _ in 0..self.waiting.len() {
            let slot = self.waiting.pop_front().expect("it was just counted");
            if self.start(now, slot) {
                started = true;
            } else {
                self.waiting.push_back(slot);
            }
        }
        started
    }

    /// Processes one completion of the inner device; returns `true` if the request continues there.
    fn proceed(&mut self, now: Instant, inner: Completion, done: &mut Vec<Completion>) -> bool {
        let Completion { slot, mut status, buf } = inner;
        let op = self.ops.get(slot);
        match op.step {
            OpStep::Framed => {
                self.land(now, slot, status, buf);
                return false;
            }
            OpStep::Whole(_) => op.buf = buf,
            OpStep::Patch(part) => {
                let mut scratch = buf.expect("a read brings its buffer back");
                if status.is_ok() {
                    match op.patch(part, self.granule, &mut scratch) {
                        Ok(Some(command)) => {
                            op.step = OpStep::WriteBack;
                            let buf = Some(scratch);
                            self.inner.submit(now, Submission { slot, command, buf });
                            return true;
                        }
                        Ok(None) => {}
                        Err(refusal) => status = refusal,
                    }
                }
                self.scratch.push(scratch);
            }
            OpStep::WriteBack => {
                self.scratch.push(buf.expect("a write brings its buffer back"));
            }
        }
        if status.is_ok() && op.next_step(self.granule) {
            if self.start(now, slot) {
                return true;
            }
            self.waiting.push_back(slot);
            return false;
        }
        let op = self.ops.remove(slot);
        self.locks.release(&op.claim);
        done.push(Completion { slot: op.slot, status, buf: op.buf });
        false
    }
}

impl<D: Device> Device for ExclusiveQueue<D> {
    fn geometry(&self) -> Geometry {
        let inner = self.inner.geometry();
        let granule_bytes = (self.granule as usize * BLOCK_BYTES) as u32;
        let physical_block_bytes = inner.physical_block_bytes.max(granule_bytes);
        Geometry { physical_block_bytes, atomic_blocks_max: self.atomic_blocks_max(), ..inner }
    }

    fn room(&self) -> usize {
        let kept = self.waiting.len() + self.frames.idle();
        let inner = self.inner.room().saturating_sub(kept);
        inner.min(self.ops.room()).saturating_sub(self.refused.len())
    }

    fn excludes(&self, command: Command) -> bool {
        op::is_alone(command, self.grain(), &self.locks)
    }

    fn submit(&mut self, now: Instant, submission: Submission) {
        assert_valid(&submission, self.inner.geometry().blocks);
        assert!(self.room() > 0, "more submissions than the device has room for");
        let Submission { slot, command, buf } = submission;
        if let Some(status) = self.refusal(command) {
            self.refused.push(Completion { slot, status, buf });
            return;
        }
        let is_small = self.frames.take(command, self.granule);
        let op = match is_small {
            true => Op::framed(slot, command, buf),
            false => Op::new(slot, command, buf, self.grain(), &self.locks),
        };
        let slot = self.ops.insert(op).expect("room was checked");
        let started = if is_small { self.join(now, slot, true) } else { self.start(now, slot) };
        if !started {
            self.waiting.push_back(slot);
        }
    }

    fn kick(&mut self, now: Instant) {
        self.retry(now);
        self.tend(now);
        self.inner.kick(now);
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        let mut inner_done = core::mem::take(&mut self.inner_done);
        self.inner.poll(now, &mut inner_done);
        let mut submitted = false;
        for completion in inner_done.drain(..) {
            submitted |= self.proceed(now, completion, done);
        }
        self.inner_done = inner_done;
        submitted |= self.retry(now);
        submitted |= self.tend(now);
        if submitted {
            self.inner.kick(now);
        }
        done.append(&mut self.refused);
    }

    fn wake_at(&self) -> Option<Instant> {
        let own = match (self.refused.is_empty(), self.waiting.is_empty()) {
            (false, _) => Some(Instant::ZERO),
            (true, false) => Some(self.tried + RETRY_PERIOD),
            (true, true) => None,
        };
        let frames = self.frames.wake_at(self.tried + RETRY_PERIOD);
        own.into_iter().chain(frames).chain(self.inner.wake_at()).min()
    }
}

#[cfg(test)]
mod tests;
