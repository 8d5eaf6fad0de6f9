//! A scheduler that is chosen when the server starts: a closed set, dispatched statically.

use alloc::vec::Vec;
use core::time::Duration;

use contract::{Feedback, Instant, IoKind, QueueFull, Scheduler, Slot, TenantId, Tokens};

use crate::{PassThrough, TokenScheduler};

/// The scheduler of one worker's queue to a device.
#[allow(clippy::large_enum_variant, reason = "there are as many as queues, and none is moved")]
#[derive(Debug)]
pub enum AnyScheduler {
    /// First come, first served, without promises.
    PassThrough(PassThrough),
    /// The paper's token scheduler.
    Tokens(TokenScheduler),
}

contract::variants!(each, AnyScheduler: PassThrough, Tokens);

impl Scheduler for AnyScheduler {
    fn enqueue(
        &mut self,
        tenant: TenantId,
        kind: IoKind,
        bytes: usize,
        slot: Slot,
    ) -> Result<(), QueueFull> {
        each!(self, scheduler => scheduler.enqueue(tenant, kind, bytes, slot))
    }

    fn begin_round(&mut self, now: Instant) {
        each!(self, scheduler => scheduler.begin_round(now));
    }

    fn next(&mut self) -> Option<Slot> {
        each!(self, scheduler => scheduler.next())
    }

    fn refund(&mut self, kind: IoKind, bytes: usize) {
        each!(self, scheduler => scheduler.refund(kind, bytes));
    }

    fn discard(&mut self) -> Option<Slot> {
        each!(self, scheduler => scheduler.discard())
    }

    fn withdraw(
        &mut self,
        tenant: TenantId,
        wanted: &mut impl FnMut(Slot) -> bool,
        taken: &mut Vec<Slot>,
    ) {
        each!(self, scheduler => scheduler.withdraw(tenant, wanted, taken));
    }

    fn queued(&self) -> usize {
        each!(self, scheduler => scheduler.queued())
    }

    fn wake_at(&self, now: Instant) -> Option<Instant> {
        each!(self, scheduler => scheduler.wake_at(now))
    }
}

impl Feedback for AnyScheduler {
    fn measures(&self) -> bool {
        each!(self, scheduler => scheduler.measures())
    }

    fn ended(&mut self, kind: IoKind, delay: Duration) {
        each!(self, scheduler => scheduler.ended(kind, delay));
    }

    fn began_large(&mut self, kind: IoKind, bytes: usize) {
        each!(self, scheduler => scheduler.began_large(kind, bytes));
    }

    fn ended_large(&mut self, kind: IoKind, bytes: usize) {
        each!(self, scheduler => scheduler.ended_large(kind, bytes));
    }

    fn depth_max(&self) -> usize {
        each!(self, scheduler => scheduler.depth_max())
    }

    fn yields(&self, tenant: TenantId) -> bool {
        each!(self, scheduler => scheduler.yields(tenant))
    }

    fn tokens(&self) -> Tokens {
        each!(self, scheduler => scheduler.tokens())
    }
}
