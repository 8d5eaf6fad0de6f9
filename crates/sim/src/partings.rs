//! The connections of which a server has noticed the end, by the names that the clients use for
//! them.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use contract::ConnId;

/// A client's end of a connection: its host and its identifier there.
pub(crate) type Near = (usize, ConnId);

/// The set of connections of which a worker has noticed the end. Clones share the set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partings {
    noticed: Rc<RefCell<HashSet<Near>>>,
}

impl Partings {
    /// Records that a worker has learned of the connection's end.
    pub(crate) fn notice(&self, near: Near) {
        self.noticed.borrow_mut().insert(near);
    }

    /// Returns `true` if a worker has learned of the connection's end.
    pub(crate) fn has(&self, near: Near) -> bool {
        self.noticed.borrow().contains(&near)
    }
}
