//! Large payloads are received straight into their requests' buffers
//! (docs/adr/0010-direct-receives.md).

use contract::{
    Buf, ConnId, Device, End, Event, Expected, Mailbox, Scheduler, Session, Slot, Status, Transport,
};

use crate::connection::{Intake, Life, Receiving};
use crate::worker::Worker;

/// What a session made of bytes that are where they belong.
#[derive(Clone, Copy, Debug)]
struct Passed {
    bytes: usize,
    end: Option<Status>,
    is_piece: bool,
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// All bytes of a connection have been taken: perhaps what comes next has a place.
    #[inline]
    pub(crate) fn look_for_payload(&mut self, id: ConnId) {
        let least = self.limits.direct_min;
        if let Some(conn) = self.find(id)
            && conn.session.expects().is_some_and(|expected| expected.bytes >= least)
        {
            self.fillable.push(id);
        }
    }

    /// Lends the transport the buffers of payloads whose rest comes next. What has been received
    /// already and not been taken comes before.
    pub(crate) fn receive_directly(&mut self) {
        for n in 0..self.fillable.len() {
            let id = self.fillable[n];
            let is_behind = self.inbox.iter().any(|chunk| chunk.conn == id);
            let Some((slot, at, bytes)) = self.place_for(id).filter(|_| !is_behind) else {
                continue;
            };
            let entry = self.in_flight.get(slot);
            let Some(buf) = entry.buf.take() else { continue };
            match self.transport.receive_into(id, buf, at, at + bytes) {
                Ok(()) => {
                    self.find(id).expect("its place was found").intake.filling = Some(slot);
                }
                Err(buf) => self.in_flight.get(slot).buf = Some(buf),
            }
        }
        self.fillable.clear();
    }

    /// Where the next bytes of a connection belong, if they are payload of one request and may be
    /// received now: the request, the place in its payload, and how many bytes.
    fn place_for(&mut self, id: ConnId) -> Option<(Slot, usize, usize)> {
        let conn = self.find(id)?;
        let takes = matches!(conn.life, Life::Open | Life::Settling);
        let Intake { receiving, filling, stalled, .. } = &conn.intake;
        if !takes || stalled.is_some() || filling.is_some() {
            return None;
        }
        let Expected { place, bytes } = conn.session.expects()?;
        let (slot, at) = match (place, *receiving) {
            (_, Receiving::Waiting(_)) => return None,
            (Some(place), _) => place,
            (None, Receiving::Into(slot)) => (slot, self.in_flight.get(slot).filled),
            (None, Receiving::Nothing | Receiving::Discard) => return None,
        };
        Some((slot, at, bytes))
    }

    /// A buffer comes back that the transport was to fill.
    pub(crate) fn filled(&mut self, id: ConnId, buf: Buf, at: usize, len: usize) {
        let conn = self.conns.get_mut(id.index as usize).and_then(Option::as_deref_mut);
        let conn = conn.filter(|conn| conn.id == id);
        let Some(slot) = conn.and_then(|conn| conn.intake.filling.take()) else {
            return self.give_back(Some(buf));
        };
        let Some(entry) = self.in_flight.find(slot).filter(|entry| entry.conn == id) else {
            return self.give_back(Some(buf)); // the request was forgotten meanwhile
        };
        let conn = self.conns[id.index as usize].as_mut().expect("looked at above");
        let passed = match conn.life.is_broken() || len == 0 {
            true => Ok(None),
            false => pass(&mut conn.session, &buf.bytes()[at..at + len]).map(Some),
        };
        entry.buf = Some(buf);
        match passed {
            Ok(None) => {}
            Ok(Some(Passed { bytes, end, is_piece: true })) => {
                assert!(bytes == len, "what was expected is what came");
                self.piece_came(id);
                if let Some(status) = end {
                    self.piece_was_last(id, slot, status);
                }
            }
            Ok(Some(Passed { bytes, end, is_piece: false })) => {
                assert!(bytes == len, "what was expected is what came");
                if end.is_some() {
                    conn.intake.receiving = Receiving::Nothing;
                }
                self.payload_came(id, slot, bytes, end);
            }
            Err(fatal) => return self.disconnect(id, End::Protocol, &fatal.to_string()),
        }
        // However little is left of it: a stretch of such payloads goes on.
        self.fillable.push(id);
    }
}

/// Shows a session the bytes that it expected, where they belong.
fn pass<P: Session>(session: &mut P, mut bytes: &[u8]) -> Result<Passed, contract::Fatal> {
    let mut passed = Passed { bytes: 0, end: None, is_piece: false };
    while !bytes.is_empty() {
        let (piece, end) = match session.next_event(&mut bytes)? {
            Some(Event::Payload { bytes, end }) => (bytes.len(), end),
            Some(Event::Piece { bytes, end, .. }) => {
                passed.is_piece = true;
                (bytes.len(), end)
            }
            other => unreachable!("nothing but payload was expected, not {other:?}"),
        };
        passed.bytes += piece;
        passed.end = passed.end.or(end);
    }
    Ok(passed)
}
