//! The device under test: fresh volumes, buffers and time for the checks.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use contract::{Buf, BufPool, Device, Instant};

/// Size in blocks of the volumes that `run` asks for: 16 MiB.
pub const BLOCKS: u64 = 32_768;

/// The device under test, and the facts that the suite needs about the device.
pub trait Bench {
    /// The type of the device's queues.
    type Queue: Device;

    /// Returns two queues to a fresh volume of `blocks` blocks, none of which was ever written.
    fn fresh(&mut self, blocks: u64) -> [Self::Queue; 2];

    /// Returns a queue to a volume of `blocks` blocks that refuses writes, or `None` if the device
    /// has no such mode.
    fn read_only(&mut self, _blocks: u64) -> Option<Self::Queue> {
        None
    }

    /// Returns the pool of buffers. The pool must hold some buffers of at least 2 MiB.
    fn pool(&mut self) -> &mut BufPool;

    /// Advances the world: enters the ring, or moves a clock on. Returns the time afterwards.
    ///
    /// `wake_at` is the earliest wake-up time of the queues. The returned time may be long before
    /// `wake_at`.
    fn pass(&mut self, wake_at: Option<Instant>) -> Instant;

    /// Returns `true` if reads return the data that was written.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Returns the number of turns without a completion after which the device counts as stuck.
    fn turns_max(&self) -> usize {
        200_000
    }
}

/// The [`Bench`] of devices that need only memory: a pool on the heap, and a clock that jumps.
#[derive(Debug)]
pub struct HeapBench<F> {
    open: F,
    pool: BufPool,
    now: Instant,
    /// `true` if reads return the data that was written (the default).
    pub keeps_data: bool,
}

impl<F> HeapBench<F> {
    /// Returns a bench whose volumes come from `open`, which takes their number of blocks.
    pub fn new<D: Device>(open: F) -> Self
    where
        F: FnMut(u64) -> [D; 2],
    {
        let sizes = [(4 << 10, 2048), (64 << 10, 64), (2 << 20, 8)];
        let mut index = 0;
        let mut bufs = Vec::new();
        for (bytes, count) in sizes {
            for _ in 0..count {
                bufs.push(leak_buf(bytes, index));
                index += 1;
            }
        }
        HeapBench { open, pool: BufPool::new(bufs), now: Instant::ZERO, keeps_data: true }
    }
}

impl<D: Device, F: FnMut(u64) -> [D; 2]> Bench for HeapBench<F> {
    type Queue = D;

    fn fresh(&mut self, blocks: u64) -> [D; 2] {
        (self.open)(blocks)
    }

    fn pool(&mut self) -> &mut BufPool {
        &mut self.pool
    }

    fn pass(&mut self, wake_at: Option<Instant>) -> Instant {
        self.now = self.now + Duration::from_nanos(100);
        self.now = self.now.max(wake_at.unwrap_or(self.now));
        self.now
    }

    fn keeps_data(&self) -> bool {
        self.keeps_data
    }
}

/// Returns a zeroed buffer of this size and with this index. It lives until the process ends, so it
/// is for tests and simulations.
pub fn leak_buf(bytes: usize, index: u32) -> Buf {
    Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), index)
}
