//! A request from its admission until its reply is handed to the transport.

use std::sync::Arc;

use contract::{
    Buf, Command, ConnId, Fence, Instant, MigratingPayload, MigratingRequest, NamespaceId, Request,
    Status, Tag, TenantId,
};

use super::chain::{ListEntry, ListLinks};

/// A request in flight. Each of its waits is ended:
/// - for the payload: by the connection's next bytes, or its end;
/// - for a buffer: by a buffer that comes back, from a reply that was sent or a connection that
///   ends;
/// - behind a barrier: by the end of the requests before it;
/// - in the scheduler: by the scheduler's rounds;
/// - behind the fence: by the ends of requests that a gone connection of its client has at the
///   device;
/// - for another process of the server: by the end of what that process has at the devices;
/// - in the device: by the device's completion.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    /// The connection that waits for the reply, and may be gone when the request ends.
    pub(crate) conn: ConnId,
    pub(crate) tag: Tag,
    pub(crate) stream: u8,
    pub(crate) tenant: TenantId,
    /// The command with the blocks of its namespace. Once parts of it have ended, what is left of
    /// it.
    pub(crate) command: Command,
    pub(crate) namespace: NamespaceId,
    /// The status of the request's check. A change of the namespace that forbids the request makes
    /// it an error, and the request then goes to no device.
    pub(crate) verdict: Status,
    /// The number of the device that the request goes to.
    pub(crate) device: u8,
    /// The number of the request's first block on the device.
    pub(crate) lba: u64,
    /// The payload's buffer; `None` for requests without a payload and while the device or the
    /// transport has the buffer. A read has one here if it waited for a buffer before it paid.
    pub(crate) buf: Option<Buf>,
    pub(crate) payload: PayloadProgress,
    pub(crate) payment: Payment,
    /// The fence that counts the request while the device has it, and the fence's epoch.
    pub(crate) fence: Option<(Arc<Fence>, u32)>,
    /// The time at which the request's last byte arrived.
    pub(crate) received_at: Instant,
    /// The time at which the device got the request; `None` before.
    pub(crate) submitted_at: Option<Instant>,
    /// The neighbours in a list of requests: first of those with awaited payloads, later of those
    /// behind one barrier.
    pub(crate) links: ListLinks,
}

/// The payment for a request that the scheduler has released; of no meaning before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payment {
    /// The tenant has paid.
    Paid,
    /// The request waits for a buffer, and its tenant has its tokens back.
    Refunded,
    /// The tenant has paid, and the scheduler counts the request at the device as a large one of
    /// best effort.
    Large,
}

/// The progress of a payload's arrival in its buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadProgress {
    /// The size class of the payload's buffer in the pool; `None` without a payload.
    pub(crate) class: Option<u32>,
    /// Bytes of the payload that have arrived: at most `command.payload_bytes()`.
    pub(crate) filled: usize,
    /// `true` if the peer was asked for the payload and has not sent all of it.
    pub(crate) is_awaited: bool,
}

/// The tenant that a request is charged to, and the blocks that it concerns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestPlacement {
    pub(crate) namespace: NamespaceId,
    pub(crate) device: u8,
    /// The number of the request's first block on the device.
    pub(crate) lba: u64,
    /// The tenant that is charged.
    pub(crate) tenant: TenantId,
}

impl InFlightRequest {
    /// Makes the entry of a request that has just been parsed, with a buffer for its payload.
    // Entries are large: they are made where they stay.
    #[inline(always)]
    pub(crate) fn new(
        conn: ConnId,
        request: &Request,
        placed: RequestPlacement,
        buf: Option<Buf>,
        is_awaited: bool,
        now: Instant,
    ) -> InFlightRequest {
        let RequestPlacement { namespace, device, lba, tenant } = placed;
        InFlightRequest {
            conn,
            tag: request.tag,
            stream: request.stream,
            tenant,
            command: request.command,
            namespace,
            verdict: Status::Ok,
            device,
            lba,
            payload: PayloadProgress { class: buf.as_ref().map(Buf::class), filled: 0, is_awaited },
            buf,
            payment: Payment::Paid,
            fence: None,
            received_at: now,
            submitted_at: None,
            links: ListLinks::default(),
        }
    }

    /// Creates the entry of a request that came along with a connection from another worker.
    pub(crate) fn of_parcel(
        conn: ConnId,
        parcel: &MigratingRequest,
        mut buf: Option<Buf>,
    ) -> InFlightRequest {
        let MigratingRequest { namespace, device, lba, tenant, .. } = *parcel;
        let (MigratingPayload::Whole(bytes) | MigratingPayload::Begun(bytes)) = &parcel.payload;
        if let Some(buf) = &mut buf {
            buf.prefix_mut(bytes.len()).copy_from_slice(bytes);
        }
        let request = Request {
            tag: parcel.tag,
            stream: parcel.stream,
            namespace: Some(namespace),
            tenant: 0,
            command: parcel.command,
            payload_bytes: parcel.command.payload_bytes(),
            verdict: Status::Ok,
        };
        let placed = RequestPlacement { namespace, device, lba, tenant };
        let mut entry =
            InFlightRequest::new(conn, &request, placed, buf, false, parcel.received_at);
        entry.payload.filled = bytes.len();
        entry
    }

    /// Converts the request for another worker, and returns it with its buffer. `is_whole` says
    /// that the payload has arrived and was checked. Otherwise the request takes the bytes along
    /// that have arrived.
    pub(crate) fn into_parcel(self, is_whole: bool) -> (MigratingRequest, Option<Buf>) {
        let bytes = self.buf.as_ref().map_or(&[][..], Buf::bytes);
        let payload = match is_whole {
            true => MigratingPayload::Whole(bytes[..self.command.payload_bytes()].to_vec()),
            false => MigratingPayload::Begun(bytes[..self.payload.filled].to_vec()),
        };
        let parcel = MigratingRequest {
            tag: self.tag,
            stream: self.stream,
            tenant: self.tenant,
            command: self.command,
            namespace: self.namespace,
            device: self.device,
            lba: self.lba,
            payload,
            received_at: self.received_at,
        };
        (parcel, self.buf)
    }
}

impl ListEntry for InFlightRequest {
    fn links(&mut self) -> &mut ListLinks {
        &mut self.links
    }
}
