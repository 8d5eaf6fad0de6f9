//! A request from the moment it was parsed until its reply is handed to the transport.

use std::sync::Arc;

use contract::{Buf, Command, ConnId, Fence, Instant, NamespaceId, Status, Tag, TenantId};

use crate::chain::{Chained, Links};

/// A request in flight. Who ends each of its waits:
/// - for its payload: the connection's next bytes, or its end;
/// - behind a barrier: the end of the requests before it;
/// - in the scheduler: the scheduler's rounds;
/// - behind its fence: the ends of requests that a gone connection of its client has at the device;
/// - for another process of the server: that has nothing at its devices any more;
/// - in the device: the device's completion.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Whose reply it is. The connection may be gone when the request ends.
    pub(crate) conn: ConnId,
    pub(crate) tag: Tag,
    pub(crate) stream: u8,
    pub(crate) tenant: TenantId,
    /// As the peer named it.
    pub(crate) command: Command,
    pub(crate) namespace: NamespaceId,
    /// Not good once a change of the namespace forbids it: it goes to no device any more.
    pub(crate) verdict: Status,
    /// Which device, and the first block there.
    pub(crate) device: u8,
    pub(crate) lba: u64,
    /// The payload, as far as it has arrived; `None` for requests without one and while the device
    /// has it.
    pub(crate) buf: Option<Buf>,
    /// The size of its payload's buffer, by the pool's number.
    pub(crate) payload_class: Option<usize>,
    /// `filled ≤ command.payload_bytes()`
    pub(crate) filled: usize,
    /// Its payload was asked for and has not all come.
    pub(crate) is_awaited: bool,
    /// Counted in its connection's fence, as of an epoch, while the device has it.
    pub(crate) fence: Option<(Arc<Fence>, u32)>,
    /// When its last byte had arrived.
    pub(crate) received_at: Instant,
    /// When the device got it.
    pub(crate) submitted_at: Option<Instant>,
    /// Its neighbours among those whose payload its connection awaits, later among those held behind
    /// the same barrier.
    pub(crate) links: Links,
}

impl Chained for InFlight {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}
