//! Receives of large payloads straight into their requests' buffers
//! (docs/adr/0010-direct-receives.md).

use contract::{
    Buf, ConnId, Device, EndCause, ExpectedPayload, ProtocolError, Scheduler, Session,
    SessionEvent, Slot, Status, Transport,
};

use crate::connections::{ConnectionStage, PayloadDestination, ReceiveState};
use crate::engine::Engine;
use crate::frontend::Frontend;

/// The payloads of a worker that may be received directly into their buffers.
#[derive(Debug)]
pub(crate) struct DirectReceives {
    /// Connections whose next bytes may be the payload of a request.
    fillable: Vec<ConnId>,
}

/// The payload that a session found in directly received bytes.
#[derive(Clone, Copy, Debug)]
struct DirectPayload {
    bytes: usize,
    end: Option<Status>,
}

impl DirectReceives {
    /// Creates a list without connections.
    pub(crate) fn new() -> Self {
        DirectReceives { fillable: Vec::with_capacity(64) }
    }

    /// Notes a connection if its session expects so much of a payload next that it may be received
    /// directly. The connection must have no unparsed bytes.
    #[inline]
    pub(crate) fn look_for_payload<T: Transport, P: Session>(
        &mut self,
        front: &mut Frontend<T, P>,
        id: ConnId,
    ) {
        let least = front.limits.direct_min;
        if let Some(conn) = front.conns.find(id)
            && conn.session.expects().is_some_and(|expected| expected.bytes >= least)
        {
            self.fillable.push(id);
        }
    }

    /// Lends the transport the buffers of payloads whose remaining bytes come next on their
    /// connections.
    #[inline]
    pub(crate) fn lend<T: Transport, P: Session>(&mut self, front: &mut Frontend<T, P>) {
        if !self.fillable.is_empty() {
            self.lend_all(front);
        }
    }

    fn lend_all<T: Transport, P: Session>(&mut self, front: &mut Frontend<T, P>) {
        for id in self.fillable.drain(..) {
            let is_behind = front.conns.inbox.iter().any(|chunk| chunk.conn == id);
            let Some((slot, at, bytes)) = place_for(front, id).filter(|_| !is_behind) else {
                continue;
            };
            let entry = front.requests.get(slot);
            let Some(buf) = entry.buf.take() else { continue };
            match front.net.receive_into(id, buf, at, at + bytes) {
                Ok(()) => front.conns.get(id).intake.filling = Some(slot),
                Err(buf) => entry.buf = Some(buf),
            }
        }
    }

    /// Takes back a buffer that was lent to the transport for a direct receive. The transport has
    /// written `len` bytes into the buffer at offset `at`, which count as received payload.
    pub(crate) fn filled<T: Transport, D: Device, S: Scheduler, P: Session>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
        id: ConnId,
        buf: Buf,
        (at, len): (usize, usize),
    ) {
        let front = &mut engine.front;
        let filling = front.conns.find(id).and_then(|conn| conn.intake.filling.take());
        let entry = filling.and_then(|slot| front.requests.find(slot));
        let is_there = entry.is_some_and(|entry| entry.conn == id);
        let Some(slot) = filling.filter(|_| is_there) else {
            return front.give_back(Some(buf)); // the request was forgotten meanwhile
        };
        let conn = front.conns.get(id);
        let passed = match conn.life.is_broken() || len == 0 {
            true => Ok(None),
            false => pass(&mut conn.session, &buf.bytes()[at..at + len]).map(Some),
        };
        front.requests.get(slot).buf = Some(buf);
        match passed {
            Ok(None) => {}
            Ok(Some(DirectPayload { bytes, end })) => {
                assert!(bytes == len, "what was expected is what came");
                engine.payload_came(id, slot, bytes, end);
            }
            Err(fatal) => return front.disconnect(id, EndCause::Protocol, &fatal.to_string()),
        }
        // However little is left of it: a stretch of such payloads goes on.
        self.fillable.push(id);
    }
}

/// Returns where the transport may write a connection's next bytes directly, if they are payload of
/// a single request: the request, the offset in its payload, and the number of bytes.
fn place_for<T: Transport, P: Session>(
    front: &mut Frontend<T, P>,
    id: ConnId,
) -> Option<(Slot, usize, usize)> {
    let conn = front.conns.find(id)?;
    let is_taken = matches!(conn.life, ConnectionStage::Open | ConnectionStage::Settling);
    let ReceiveState { receiving, filling, stalled, .. } = &conn.intake;
    if !is_taken || stalled.is_some() || filling.is_some() {
        return None;
    }
    let ExpectedPayload { place, bytes } = conn.session.expects()?;
    let (slot, at) = match (place, receiving) {
        (_, PayloadDestination::Waiting(_)) => return None,
        (Some(place), _) => place,
        (None, PayloadDestination::Into(slot)) => (*slot, front.requests.get(*slot).payload.filled),
        (None, PayloadDestination::Nothing | PayloadDestination::Discard) => return None,
    };
    Some((slot, at, bytes))
}

/// Passes directly received bytes to the session, which expected them.
fn pass<P: Session>(session: &mut P, mut bytes: &[u8]) -> Result<DirectPayload, ProtocolError> {
    let mut passed = DirectPayload { bytes: 0, end: None };
    while !bytes.is_empty() {
        let (piece, end) = match session.next_event(&mut bytes)? {
            Some(SessionEvent::Payload { bytes, end } | SessionEvent::Piece { bytes, end, .. }) => {
                (bytes.len(), end)
            }
            other => unreachable!("nothing but payload was expected, not {other:?}"),
        };
        passed.bytes += piece;
        passed.end = passed.end.or(end);
    }
    Ok(passed)
}
