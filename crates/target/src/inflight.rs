//! A request from the moment it was parsed until its reply is handed to the transport.

use std::sync::Arc;

use contract::{Buf, Command, ConnId, Instant, Slot, Tag, TenantId};

use crate::fence::Fence;

/// A request in flight. Who ends each of its waits:
/// - for its payload: the connection's next bytes, or its end;
/// - behind a barrier: the end of the requests before it;
/// - in the scheduler: the scheduler's rounds;
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
    /// Counted in its connection's fence while the device has it.
    pub(crate) fence: Option<Arc<Fence>>,
    /// When its last byte had arrived.
    pub(crate) received_at: Instant,
    /// When the device got it.
    pub(crate) submitted_at: Instant,
    /// The next one held behind the same barrier.
    pub(crate) next: Option<Slot>,
}

/// Requests held behind a barrier, oldest first: a list threaded through [`InFlight::next`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    head: Option<Slot>,
    tail: Option<Slot>,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    pub(crate) fn front(&self) -> Option<Slot> {
        self.head
    }

    pub(crate) fn push(&mut self, table: &mut contract::SlotTable<InFlight>, slot: Slot) {
        match self.tail {
            Some(tail) => table.get(tail).next = Some(slot),
            None => self.head = Some(slot),
        }
        self.tail = Some(slot);
    }

    pub(crate) fn pop(&mut self, table: &mut contract::SlotTable<InFlight>) -> Option<Slot> {
        let slot = self.head?;
        self.head = table.get(slot).next.take();
        if self.head.is_none() {
            self.tail = None;
        }
        Some(slot)
    }
}
