//! The port to the request scheduler.

use core::fmt;

use crate::{Instant, Slot};

/// Names a tenant on the whole server: small, dense, reused only after all its requests have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub u32);

impl TenantId {
    /// The tenant of whoever named none: best effort.
    pub const DEFAULT: TenantId = TenantId(0);
}

/// The cost of a request: 100 units are one 4 KiB read (the paper's token, §3.2.1, with two decimal
/// places so that fractions survive).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tokens(pub i64);

impl Tokens {
    /// The paper's token: the cost of one random 4 KiB read.
    pub const ONE: Tokens = Tokens(100);
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
    /// Queues a request of `tenant` whose cost at the device's present read ratio is `cost`.
    fn enqueue(&mut self, tenant: TenantId, cost: Tokens, slot: Slot) -> Result<(), QueueFull>;

    /// Starts a round: tokens are generated once, for the time since the last one.
    fn begin_round(&mut self, now: Instant);

    /// The next request that may be submitted in this round.
    fn next(&mut self) -> Option<Slot>;

    /// Forgets a queued request of a connection that is gone. Returns whether it was queued.
    fn cancel(&mut self, slot: Slot) -> bool;

    /// How many requests wait.
    fn queued(&self) -> usize;

    /// When the next round is worth while without a new request.
    fn wake_at(&self, now: Instant) -> Option<Instant>;
}
