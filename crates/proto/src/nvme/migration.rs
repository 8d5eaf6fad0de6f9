//! Queues whose connections move from one worker to another (docs/adr/0007-moving-connections.md),
//! and controllers that move from one process to another
//! (docs/adr/0015-moving-controllers.md).
//!
//! The controller is not affected while a queue moves: it keeps the queue's record, and with it
//! events, keep-alive and fence. During the move the record's place is [`moving_place`], where the
//! queue's actions are kept. If the controller ends during the move, the queue is fenced off at
//! once, and finds its close action when it arrives.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use contract::ConnId;

use super::binding::{DeviceRequest, QueueAddress};
use super::controller::Controller;
use super::exported::ExportedController;
use super::mail::NO_WORKER;
use super::record::QueueParameters;

/// The parts from which a queue is rebuilt when its connection arrives.
#[derive(Debug)]
pub(super) struct DetachedQueue {
    pub(super) made: QueueParameters,
    /// The head of the submission queue, as last reported to the host.
    pub(super) head: u16,
    /// A fused compare that waits for its write.
    pub(super) first: Option<DeviceRequest>,
    /// The host's source address, by which failed authentications are counted; `None` for not
    /// counting.
    pub(super) address: Option<IpAddr>,
}

/// A controller that belongs to no fabric at the moment, and its queues by number.
pub(super) type DetachedController = (Controller, BTreeMap<u64, DetachedQueue>);

/// Queues between two workers, and controllers between two processes.
#[derive(Debug, Default)]
pub(super) struct Migrations {
    /// The queues that are moving, each with a number that is never reused.
    queues: BTreeMap<u64, DetachedQueue>,
    /// The last number that was given to a moving queue.
    begun: u64,
    /// Controllers that were given to another process, with their queues, kept until that process
    /// confirms or the hand-over is cancelled. The key is the controller identifier.
    handed_over: BTreeMap<u16, DetachedController>,
    /// Controllers that may arrive, each with the numbers of its queues.
    expected: BTreeMap<u16, (ExportedController, Vec<u64>)>,
}

impl Migrations {
    /// Returns a number for a moving queue, which is never reused.
    pub(super) fn next(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// Returns the queue that moves under this number; `None` if there is none.
    pub(super) fn find(&self, number: u64) -> Option<&DetachedQueue> {
        self.queues.get(&number)
    }

    /// Adds a queue that moves under this number.
    pub(super) fn put(&mut self, number: u64, queue: DetachedQueue) {
        self.queues.insert(number, queue);
    }

    /// Removes the queue that moves under this number, and returns it; `None` if there is none.
    pub(super) fn remove(&mut self, number: u64) -> Option<DetachedQueue> {
        self.queues.remove(&number)
    }

    /// Keeps a controller that was handed over, with its queues of these numbers.
    pub(super) fn hand_over(&mut self, controller: Controller, numbers: &[u64]) {
        let queues = numbers
            .iter()
            .map(|number| (*number, self.queues.remove(number).expect("the caller looked")))
            .collect();
        self.handed_over.insert(controller.cntlid(), (controller, queues));
    }

    /// Forgets a controller that was handed over.
    pub(super) fn forget_exported(&mut self, cntlid: u16) {
        self.handed_over.remove(&cntlid);
    }

    /// Takes back a controller that was handed over, with its moving queues, which keep their
    /// numbers. Returns `None` if there is none.
    pub(super) fn take_back(&mut self, cntlid: u16) -> Option<Controller> {
        let (controller, queues) = self.handed_over.remove(&cntlid)?;
        self.queues.extend(queues);
        Some(controller)
    }

    /// Returns `true` if a controller of this identifier may arrive.
    pub(super) fn expects(&self, cntlid: u16) -> bool {
        self.expected.contains_key(&cntlid)
    }

    /// Returns how many controllers of other identifiers may arrive.
    pub(super) fn expected_besides(&self, cntlid: u16) -> usize {
        self.expected.keys().filter(|expected| **expected != cntlid).count()
    }

    /// Registers a controller as expected to arrive, and returns the numbers of its queues by queue
    /// identifier.
    pub(super) fn prepare_import(&mut self, exported: ExportedController) -> BTreeMap<u16, u64> {
        let numbers: Vec<u64> = exported.queues.iter().map(|_| self.next()).collect();
        let by_id = exported.queues.iter().map(|queue| queue.id).zip(numbers.iter().copied());
        let by_id = by_id.collect();
        self.expected.insert(exported.cntlid, (exported, numbers));
        by_id
    }

    /// Takes an expected controller, with the numbers of its queues; `None` if none of this
    /// identifier is expected.
    pub(super) fn take_expected(&mut self, cntlid: u16) -> Option<(ExportedController, Vec<u64>)> {
        self.expected.remove(&cntlid)
    }
}

/// Returns the address under which actions for a moving queue are stored until the queue arrives at
/// a worker.
pub(super) fn moving_place(number: u64, address: Option<IpAddr>) -> QueueAddress {
    let conn = ConnId { index: number as u32, generation: (number >> 32) as u32 };
    QueueAddress { worker: NO_WORKER, conn, address }
}
