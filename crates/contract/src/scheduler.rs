//! The port to the request scheduler.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::{Instant, Kind, Slot, Tokens};

/// Names a tenant on the whole server: small, dense, reused only after all its requests have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub u32);

impl TenantId {
    /// The tenant of whoever named none: best effort.
    pub const DEFAULT: TenantId = TenantId(0);
}

/// A tenant's queue takes no more now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tenant's queue is full")
    }
}

/// One worker's scheduler for one device: it decides which request is submitted next, and when.
pub trait Scheduler {
    /// Queues a request of `tenant` that carries `bytes` of data. It is priced in the round that
    /// submits it, at the device's read ratio of that moment.
    fn enqueue(
        &mut self,
        tenant: TenantId,
        kind: Kind,
        bytes: usize,
        slot: Slot,
    ) -> Result<(), QueueFull>;

    /// Starts a round: tokens are generated once, for the time since the last one.
    fn begin_round(&mut self, now: Instant);

    /// The next request that may be submitted in this round. Its tokens are spent: whoever takes it
    /// submits it, now or as soon as the device has room.
    fn next(&mut self) -> Option<Slot>;

    /// A request that was let go was not submitted after all, because nobody waits for its answer
    /// any more: what it cost is anybody's.
    fn refund(&mut self, kind: Kind, bytes: usize) {
        let _unused = (kind, bytes);
    }

    /// Takes out a request that waits, whoever's and at no price: for a server that stops, when
    /// nobody waits for the answers any more.
    fn discard(&mut self) -> Option<Slot>;

    /// Takes out those requests of `tenant` that wait, have not been paid for, and are `wanted`, at
    /// no price; they are added to `taken` in the order in which they came.
    fn withdraw(
        &mut self,
        tenant: TenantId,
        wanted: &mut dyn FnMut(Slot) -> bool,
        taken: &mut Vec<Slot>,
    ) {
        let _all_stay = (tenant, wanted, taken);
    }

    /// How many requests wait.
    fn queued(&self) -> usize;

    /// When the next round is worth while without a new request.
    fn wake_at(&self, now: Instant) -> Option<Instant>;

    /// Whether it measures the device: wants to be told of each request that [has
    /// ended](Scheduler::ended).
    fn measures(&self) -> bool {
        false
    }

    /// A request that was let go has ended at the device, so long after it was submitted.
    fn ended(&mut self, kind: Kind, delay: Duration) {
        let _unused = (kind, delay);
    }

    /// What became of tokens on this worker, in all; zeroes where there are none.
    fn tokens(&self) -> Tokens {
        Tokens::default()
    }

    /// The most requests that should be at the device at a time, for the sake of their latency.
    fn depth_max(&self) -> usize {
        usize::MAX
    }
}
