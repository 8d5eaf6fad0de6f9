//! A queue of the kernel's block device driver (ublk), whose requests are translated into those of
//! `client::block`.
//!
//! A thread with one ring serves the sockets and the block device, in one system call a turn.

use std::sync::mpsc::Sender;

use client::block::{Arrival, BlockError, BlockOperation, BlockRequest, Driver, Need};
use contract::Buf;
use io::ublk::{self, BlockQueue};
use wire::ublk::{IoDescriptor, Operation};

use crate::device_threads::DeviceMessage;

/// A queue of the kernel's ublk driver, as the driver of an engine.
pub(crate) struct KernelQueue {
    queue: BlockQueue,
    arrivals: Vec<ublk::BlockArrival>,
    /// The channel for the news that the kernel has cancelled commands; `None` once the news was
    /// sent.
    cut: Option<Sender<DeviceMessage>>,
}

impl KernelQueue {
    /// Creates a queue with `depth` requests. The queue notifies `sender` if the driver cancels
    /// some of its commands.
    pub(crate) fn new(queue: BlockQueue, depth: u16, sender: Sender<DeviceMessage>) -> KernelQueue {
        KernelQueue { queue, arrivals: Vec::with_capacity(usize::from(depth)), cut: Some(sender) }
    }
}

impl Driver for KernelQueue {
    fn poll(&mut self, arrivals: &mut Vec<Arrival>, freed: &mut Vec<Buf>) {
        self.queue.poll(&mut self.arrivals, freed);
        let arrived = |ublk::BlockArrival { tag, descriptor, need }| {
            let need = match need {
                ublk::RequestNeed::Memory => Need::Memory,
                ublk::RequestNeed::Service(buf) => Need::Service(buf),
            };
            Arrival { tag, request: translated(&descriptor), need }
        };
        arrivals.extend(self.arrivals.drain(..).map(arrived));
        if self.queue.is_cut()
            && let Some(sender) = self.cut.take()
        {
            // The crew's end is the process's end.
            let _ = sender.send(DeviceMessage::Cut);
        }
    }

    fn ask(&mut self, tag: u16, buf: Buf) {
        self.queue.ask(tag, buf);
    }

    fn complete(&mut self, tag: u16, result: i32, buf: Option<Buf>) {
        self.queue.complete(tag, result, buf);
    }

    fn has_ended(&self) -> bool {
        self.queue.has_ended()
    }

    fn failure(&self) -> Option<i32> {
        self.queue.failure()
    }
}

/// Returns the kernel's request as a request of `client::block`.
fn translated(descriptor: &IoDescriptor) -> Result<BlockRequest, BlockError> {
    let operation = match descriptor.operation() {
        Operation::READ => BlockOperation::Read,
        Operation::WRITE => BlockOperation::Write,
        Operation::FLUSH => BlockOperation::Flush,
        Operation::DISCARD => BlockOperation::Discard,
        Operation::WRITE_ZEROES => BlockOperation::WriteZeroes,
        _ => return Err(BlockError::Unsupported),
    };
    Ok(BlockRequest {
        operation,
        sector: descriptor.sector.get(),
        sectors: descriptor.sectors.get(),
        is_durable: descriptor.is_durable(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_requests_have_our_words() {
        let descriptor = |operation: u32| IoDescriptor {
            operation_and_flags: operation.into(),
            sectors: 8.into(),
            sector: 16.into(),
            address: 0.into(),
        };
        let request = translated(&descriptor(1 | 1 << 13)).unwrap();
        let wanted = BlockRequest {
            operation: BlockOperation::Write,
            sector: 16,
            sectors: 8,
            is_durable: true,
        };
        assert_eq!(request, wanted);
        assert_eq!(translated(&descriptor(13)), Err(BlockError::Unsupported), "of zoned devices");
    }
}
