//! The connections whose end a server has noticed, as its clients name them.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use contract::ConnId;

/// A client's end of a connection: its host and its identifier there.
pub(crate) type Near = (usize, ConnId);

/// The connections whose end a worker has been told; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partings {
    noticed: Rc<RefCell<HashSet<Near>>>,
}

impl Partings {
    /// Records that a worker has been told of the connection's end.
    pub(crate) fn notice(&self, near: Near) {
        self.noticed.borrow_mut().insert(near);
    }

    /// Returns `true` if a worker has been told of the connection's end.
    pub(crate) fn has(&self, near: Near) -> bool {
        self.noticed.borrow().contains(&near)
    }
}
