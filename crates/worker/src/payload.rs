//! Payloads arrive in the buffers of their requests. A request starts when its payload is complete.

use contract::{ConnId, Device, Scheduler, Session, Slot, Status, Transport};

use crate::connections::PayloadDestination;
use crate::engine::Engine;

/// The position of received bytes in an awaited payload: the request and the offset. `None` means
/// the next bytes of the connection's last request.
pub(crate) type PlaceInPayload = Option<(Slot, usize)>;

impl<T: Transport, D: Device, S: Scheduler, P: Session> Engine<T, D, S, P> {
    /// Copies received bytes into their payload's buffer. The last bytes come with `end`: the
    /// status, which is an error if the payload is invalid.
    pub(crate) fn payload(
        &mut self,
        id: ConnId,
        place: PlaceInPayload,
        bytes: &[u8],
        end: Option<Status>,
    ) {
        let receiving = &mut self.front.conns.get(id).intake.receiving;
        let slot = match (place, &*receiving) {
            (Some((slot, _)), _) => slot,
            (None, PayloadDestination::Into(slot)) => *slot,
            (None, _) => {
                if end.is_some() {
                    *receiving = PayloadDestination::Nothing;
                }
                return;
            }
        };
        let entry = self.front.requests.get(slot);
        let at = place.map_or(entry.payload.filled, |(_, at)| at);
        let is_asked = place.is_some();
        assert!(
            entry.conn == id && entry.payload.is_awaited == is_asked,
            "{slot:?} does not wait here"
        );
        let total = entry.command.payload_bytes();
        let buf = entry.buf.as_mut().expect("a request with a payload has a buffer");
        buf.prefix_mut(total)[at..at + bytes.len()].copy_from_slice(bytes);
        self.payload_came(id, slot, bytes.len(), end);
    }

    /// Counts payload bytes that are in their buffer. With the last bytes the request starts, or is
    /// answered if its payload is invalid.
    #[inline]
    pub(crate) fn payload_came(
        &mut self,
        id: ConnId,
        slot: Slot,
        bytes: usize,
        end: Option<Status>,
    ) {
        let entry = self.front.requests.get(slot);
        let conn = self.front.conns.get(id);
        entry.payload.filled += bytes;
        let is_awaited = entry.payload.is_awaited;
        if is_awaited {
            conn.progress.messages = conn.progress.messages.wrapping_add(1);
        }
        let Some(status) = end else { return };
        if is_awaited {
            return self.awaited_came(id, slot, status);
        }
        conn.intake.receiving = PayloadDestination::Nothing;
        let is_whole = entry.payload.filled == entry.command.payload_bytes();
        assert!(is_whole || !status.is_ok(), "the session counted the payload");
        entry.received_at = self.front.now;
        self.whole(id, slot, status);
    }

    /// Ends a request's wait for its awaited payload: starts the request, or answers it if `status`
    /// says that the payload is invalid.
    pub(crate) fn awaited_came(&mut self, id: ConnId, slot: Slot, status: Status) {
        let requests = &mut self.front.requests;
        let outstanding = &mut self.front.conns.get(id).outstanding;
        outstanding.awaited -= 1;
        outstanding.asked.remove(requests.table(), slot);
        let entry = requests.get(slot);
        entry.payload.is_awaited = false;
        entry.payload.filled = entry.command.payload_bytes();
        entry.received_at = self.front.now;
        requests.end_awaiting(slot);
        self.whole(id, slot, status);
    }

    /// Starts a request whose payload has just arrived if `status` is Ok, or answers the request
    /// with the status otherwise.
    fn whole(&mut self, id: ConnId, slot: Slot, status: Status) {
        match status.is_ok() {
            true => self.start(id, slot),
            false => self.front.answer_unstarted(slot, status),
        }
    }
}
