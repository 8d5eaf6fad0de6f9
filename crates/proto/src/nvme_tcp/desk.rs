//! Where the sessions of one worker meet their fabric.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;

use contract::{ConnId, Instant};
use wire::nvme::{Completion, Submission};

use crate::nvme::{Action, Fabric, Place, PortId, Queue};

/// One worker's place at the fabric: hands out its mail to the sessions that it is for.
#[derive(Debug)]
pub struct Desk {
    fabric: Arc<Fabric>,
    worker: u16,
    inbox: RefCell<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// What came, oldest first, and has not been taken.
    actions: Vec<Action>,
    /// `told ≤ actions.len()`: of these, [`Desk::news`] has spoken.
    told: usize,
}

impl Desk {
    /// The desk of this worker.
    pub fn new(fabric: Arc<Fabric>, worker: u16) -> Desk {
        Desk { fabric, worker, inbox: RefCell::default() }
    }

    /// A connection that has mail and was not named since that came.
    pub fn news(&self, now: Instant) -> Option<ConnId> {
        let mut inbox = self.inbox.borrow_mut();
        let inbox = &mut *inbox;
        if inbox.told == inbox.actions.len() {
            // Who was told and took nothing is gone.
            inbox.actions.clear();
            inbox.told = 0;
            self.fabric.poll(self.worker, now, &mut inbox.actions);
        }
        let action = inbox.actions.get(inbox.told)?;
        inbox.told += 1;
        Some(conn_of(action))
    }

    /// When to look for news without having been woken.
    pub fn wake_at(&self) -> Option<Instant> {
        self.fabric.wake_at(self.worker)
    }

    /// The next mail of this connection.
    pub(super) fn take(&self, conn: ConnId) -> Option<Action> {
        let mut inbox = self.inbox.borrow_mut();
        let at = inbox.actions.iter().position(|action| conn_of(action) == conn)?;
        if at < inbox.told {
            inbox.told -= 1;
        }
        Some(inbox.actions.remove(at))
    }

    /// Makes the queue that a connection is; see [`Fabric::connect`].
    pub(super) fn connect(
        &self,
        port: PortId,
        conn: ConnId,
        entry: &Submission,
        payload: &[u8],
        now: Instant,
    ) -> Result<(Queue, Completion), Completion> {
        let place = Place { worker: self.worker, conn };
        self.fabric.connect(port, place, entry, payload, now)
    }
}

fn conn_of(action: &Action) -> ConnId {
    match action {
        Action::Complete { conn, .. } | Action::Close { conn, .. } => *conn,
    }
}
