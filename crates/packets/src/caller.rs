//! The dialling side of a transport: the routes to its server, and its associations there.

use alloc::collections::VecDeque;

use crate::event::AssociationId;
use crate::routes::Routes;

/// The dialling side of a transport.
#[derive(Default)]
pub(crate) struct Caller {
    pub routes: Routes,
    /// The association of the next dial.
    pub association: Option<AssociationId>,
    pub is_up: bool,
    /// The other associations among which dials are divided, in the order of their next turns.
    /// Empty unless dials are divided.
    others: VecDeque<Option<UnusedAssociation>>,
    /// The error with which the network refused the association.
    pub refusal: Option<i32>,
    /// The places of dialled connections that have no channel yet, oldest first.
    pub waiting: VecDeque<u32>,
    /// The number of dials that never became a connection; it identifies each of them.
    pub failed: u32,
}

/// An association that the next dial does not use.
struct UnusedAssociation {
    id: AssociationId,
    is_up: bool,
    is_over: bool,
}

impl Caller {
    /// Divides further dials among `count` associations.
    pub(crate) fn divide(&mut self, count: usize) {
        self.others = (1..count).map(|_| None).collect();
    }

    /// Returns `true` if dials are divided among several associations.
    pub(crate) fn is_divided(&self) -> bool {
        !self.others.is_empty()
    }

    /// Returns `true` if there are associations that the next dial does not use.
    pub(crate) fn has_others(&self) -> bool {
        self.others.iter().any(Option::is_some)
    }

    /// Chooses the association of the next dial: a new association while there are fewer than the
    /// limit (one may have ended), and otherwise the next in turn.
    pub(crate) fn choose(&mut self) {
        if self.association.is_none() {
            return;
        }
        let free = self.others.iter().position(Option::is_none).unwrap_or(0);
        let Some(next) = self.others.remove(free) else { return };
        let is_up = self.is_up;
        self.others.push_back(self.association.map(|id| UnusedAssociation {
            id,
            is_up,
            is_over: false,
        }));
        self.refusal = None;
        self.is_up = next.as_ref().is_some_and(|next| next.is_up);
        self.association = next.map(|next| next.id);
    }

    /// Notes that an association has begun. Returns `true` if it is that of the next dial.
    pub(crate) fn up(&mut self, association: AssociationId) -> bool {
        let is_next = self.association == Some(association);
        self.is_up |= is_next;
        for other in self.others.iter_mut().flatten().filter(|other| other.id == association) {
            other.is_up = true;
        }
        is_next
    }

    /// Forgets an association that the next dial does not use.
    pub(crate) fn forget(&mut self, association: AssociationId) {
        for other in &mut self.others {
            other.take_if(|other| other.id == association);
        }
    }

    /// Returns an association that has not begun and is over, since the network refused it; `None`
    /// if there is none. Returns each of the others once.
    pub(crate) fn unanswered(&mut self, errno: i32) -> Option<AssociationId> {
        if self.refusal.is_none()
            && let Some(association) = self.association.filter(|_| !self.is_up)
        {
            self.refusal = Some(errno);
            return Some(association);
        }
        let mut others = self.others.iter_mut().flatten();
        let other = others.find(|other| !other.is_up && !other.is_over)?;
        other.is_over = true;
        Some(other.id)
    }
}
