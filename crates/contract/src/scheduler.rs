//! The port to the request scheduler.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::{Instant, IoKind, Slot, Tokens};

/// The number of a tenant on the whole server: small, dense, reused only after all its requests
/// have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub u32);

impl TenantId {
    /// The default tenant, for connections that name none: best effort.
    pub const DEFAULT: TenantId = TenantId(0);
}

/// The error of a full queue: the tenant's queue accepts no more requests now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tenant's queue is full")
    }
}

/// A worker's scheduler for one device, which decides on the order and the time of submissions.
pub trait Scheduler: Feedback {
    /// Queues a request of `tenant` with `bytes` bytes of data. The round that submits the request
    /// determines its price, at the device's read ratio of that moment.
    fn enqueue(
        &mut self,
        tenant: TenantId,
        kind: IoKind,
        bytes: usize,
        slot: Slot,
    ) -> Result<(), QueueFull>;

    /// Starts a round: generates tokens once, for the time since the last round.
    fn begin_round(&mut self, now: Instant);

    /// Returns the next request that may be submitted in this round; `None` if there is none. Its
    /// tokens are spent: the caller submits it, now or as soon as the device has room.
    fn next(&mut self) -> Option<Slot>;

    /// Refunds a released request that was not submitted after all, because nobody waits for its
    /// answer any more. Its tokens go to the common bucket.
    fn refund(&mut self, kind: IoKind, bytes: usize) {
        let _unused = (kind, bytes);
    }

    /// Removes and returns a waiting request of any tenant without charging for it; `None` if no
    /// request waits. For a server that stops, whose clients wait for no answer any more.
    fn discard(&mut self) -> Option<Slot>;

    /// Removes the waiting requests of `tenant` that have not been paid for and that are `wanted`,
    /// at no price. Appends them to `taken` in order of arrival.
    fn withdraw(
        &mut self,
        tenant: TenantId,
        wanted: &mut impl FnMut(Slot) -> bool,
        taken: &mut Vec<Slot>,
    ) {
        let _all_stay = (tenant, wanted, taken);
    }

    /// Returns the number of waiting requests.
    fn queued(&self) -> usize;

    /// Returns the time of the next round if no request comes before; `None` if no round is needed.
    fn wake_at(&self, now: Instant) -> Option<Instant>;
}

/// The feedback between a device and its scheduler. A scheduler that measures nothing and bounds
/// nothing implements none of the methods.
pub trait Feedback {
    /// Returns `true` if the scheduler measures the device, and so needs a call of
    /// [`ended`](Feedback::ended) for each ended request.
    fn measures(&self) -> bool {
        false
    }

    /// Records that a released request has ended at the device, `delay` after its submission.
    fn ended(&mut self, kind: IoKind, delay: Duration) {
        let _unused = (kind, delay);
    }

    /// Records that a [large](crate::LARGE_REQUEST_BYTES) request of a tenant that
    /// [yields](Feedback::yields) goes to the device.
    fn began_large(&mut self, kind: IoKind, bytes: usize) {
        let _unused = (kind, bytes);
    }

    /// Records that a request of which [`began_large`](Feedback::began_large) was told has ended at
    /// the device.
    fn ended_large(&mut self, kind: IoKind, bytes: usize) {
        let _unused = (kind, bytes);
    }

    /// Returns the total flow of tokens on this worker; zeroes if there are none.
    fn tokens(&self) -> Tokens {
        Tokens::default()
    }

    /// Returns `true` if the tenant is best effort while other tenants have promises, so that the
    /// tenant must not use resources that are reserved for promises.
    fn yields(&self, tenant: TenantId) -> bool {
        let _nobody_has_a_promise = tenant;
        false
    }

    /// Returns the maximum number of requests that may be at the device at once, so that their
    /// latency stays low. Without a limit, this is `usize::MAX`.
    fn depth_max(&self) -> usize {
        usize::MAX
    }
}
