//! The suite that every device passes, whatever it is made of.
//!
//! A [`Bench`] makes fresh volumes with two queues each and lets time pass; [`run`] does the rest
//! and panics with what the device did wrong. Where volumes are shared by real threads, a [`Side`] on each
//! shows whether blocks stay whole. What is deliberately not here: speed, faults of the
//! medium and power failures, which differ between devices.

mod beside;
mod checks;
mod rig;

use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

use contract::{Buf, BufPool, Device, Instant};

pub use beside::{Seen, Side};

/// What the suite needs to know about a device, and how to make one.
pub trait Bench {
    /// The device's queues.
    type Queue: Device;

    /// Two queues to a fresh volume of `blocks` blocks of which none was ever written.
    fn fresh(&mut self, blocks: u64) -> [Self::Queue; 2];

    /// A queue to a volume of `blocks` blocks that refuses writes, where there is such a thing.
    fn read_only(&mut self, _blocks: u64) -> Option<Self::Queue> {
        None
    }

    /// Where buffers come from. It must hold some of at least 2 MiB.
    fn pool(&mut self) -> &mut BufPool;

    /// Lets the world turn: enters the ring, or moves a clock on. Returns the time afterwards.
    /// `wake_at` is the earliest of what the queues said; it may return long before.
    fn pass(&mut self, wake_at: Option<Instant>) -> Instant;

    /// Whether what was written can be read.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Turns without a completion after which the device counts as stuck.
    fn turns_max(&self) -> usize {
        200_000
    }
}

/// Blocks of the volumes that [`run`] asks for: 16 MiB.
pub const BLOCKS: u64 = 32_768;

/// Runs every check; panics at the first that fails.
pub fn run<B: Bench>(bench: &mut B) {
    for (name, check) in checks::all::<B>() {
        let mut rig = rig::Rig::new(bench, BLOCKS, name);
        check(&mut rig);
        rig.come_to_rest();
    }
    if let Some(queue) = bench.read_only(BLOCKS) {
        checks::refuses_writes(bench, queue);
    }
}

/// The [`Bench`] of devices that need nothing but memory: a pool on the heap, a clock that jumps.
#[derive(Debug)]
pub struct Heap<F> {
    open: F,
    pool: BufPool,
    now: Instant,
    /// Whether what was written can be read; true unless told otherwise.
    pub keeps_data: bool,
}

impl<F> Heap<F> {
    /// A bench whose volumes come from `open`, which takes their number of blocks.
    pub fn new<D: Device>(open: F) -> Self
    where
        F: FnMut(u64) -> [D; 2],
    {
        let sizes = [(4 << 10, 2048), (64 << 10, 64), (2 << 20, 8)];
        let mut index = 0;
        let mut bufs = alloc::vec::Vec::new();
        for (bytes, count) in sizes {
            for _ in 0..count {
                bufs.push(leak_buf(bytes, index));
                index += 1;
            }
        }
        Heap { open, pool: BufPool::new(bufs), now: Instant::ZERO, keeps_data: true }
    }
}

impl<D: Device, F: FnMut(u64) -> [D; 2]> Bench for Heap<F> {
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

/// A zeroed buffer that lives until the process ends, for tests and simulations.
pub fn leak_buf(bytes: usize, index: u32) -> Buf {
    Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), index)
}

#[cfg(test)]
mod tests;
