//! The connections of which a server has noticed the end, by the names that the clients use for
//! them.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use contract::ConnId;

/// A client's end of a connection: its host and its identifier there.
pub(crate) type ClientEnd = (usize, ConnId);

/// The set of connections of which a worker has noticed the end. Clones share the set.
#[derive(Clone, Debug, Default)]
pub(crate) struct NoticedEnds {
    noticed: Rc<RefCell<HashSet<ClientEnd>>>,
}

impl NoticedEnds {
    /// Records that a worker has learned of the connection's end.
    pub(crate) fn notice(&self, near: ClientEnd) {
        self.noticed.borrow_mut().insert(near);
    }

    /// Returns `true` if a worker has learned of the connection's end.
    pub(crate) fn has(&self, near: ClientEnd) -> bool {
        self.noticed.borrow().contains(&near)
    }
}
