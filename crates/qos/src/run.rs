//! Requests that come one behind the other and are alike: of one tenant, one kind and one size.
//!
//! A connection's requests often are. The first two of a queue are queued like any others; those behind
//! them are only linked, and counted, priced and checked against bounds all at once, when the run ends: before
//! anybody looks at a queue. What is deliberately not here: the queues (`requests.rs`).

use contract::Slot;

use crate::cost_model::Line;
use crate::requests::Requests;

/// The run that goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) tenant: u32,
    /// What each of them is, as far as prices depend on it.
    pub(crate) line: Line,
    /// The place of the last one.
    pub(crate) tail: u32,
    /// How many more may follow the first, of those that might.
    room: u32,
    most: u32,
}

impl Run {
    /// Nothing follows.
    pub(crate) const OVER: Run = Run { tenant: 0, line: Line::FLUSH, tail: 0, room: 0, most: 0 };

    /// A run whose first request was just queued; so many may follow.
    pub(crate) fn new(tenant: u32, line: Line, first: Slot, most: u32) -> Run {
        Run { tenant, line, tail: first.index() as u32, room: most, most }
    }

    /// Whether more may have followed.
    pub(crate) fn is_open(&self) -> bool {
        self.most > 0
    }

    /// How many have followed the first.
    pub(crate) fn len(&self) -> u32 {
        self.most - self.room
    }

    /// Whether the request belongs to the run, and now is the last of it.
    #[inline]
    pub(crate) fn extend(
        &mut self,
        requests: &mut Requests,
        tenant: u32,
        line: Line,
        slot: Slot,
    ) -> bool {
        if self.tenant != tenant || self.line != line || !requests.has_place(slot) {
            return false;
        }
        let Some(room) = self.room.checked_sub(1) else { return false };
        requests.link(self.tail, slot, line);
        self.tail = slot.index() as u32;
        self.room = room;
        true
    }
}
