//! The conformance suite that every device passes, whatever its medium.
//!
//! A [`Bench`] makes fresh volumes with two queues each and advances time. [`run`] does the rest,
//! and panics with the device's fault. For volumes that real threads share, a [`TestQueue`] on each
//! thread shows whether blocks stay whole.
//!
//! The suite deliberately leaves out speed, faults of the medium and power failures, which differ
//! between devices.

mod bench;
mod beside;
mod checks;
mod rig;

pub use bench::{BLOCKS, Bench, HeapBench, leak_buf};
pub use beside::{ReaderCounts, TestQueue};

/// Runs every check; panics at the first failure.
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

#[cfg(test)]
mod tests;
