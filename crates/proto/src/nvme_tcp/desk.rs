//! Where the sessions of one worker meet their fabric.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::IpAddr;

use contract::{ConnId, Instant};
use wire::nvme::{Completion, Submission};

use crate::nvme::{Action, Fabric, Held, Place, PortId, Queue};

/// One worker's place at the fabric: hands out its mail to the sessions that it is for.
#[derive(Debug)]
pub struct Desk {
    fabric: Arc<Fabric>,
    worker: u16,
    inbox: RefCell<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// What came and has not been taken, by connection, the oldest first.
    mail: BTreeMap<ConnId, VecDeque<Action>>,
    /// Connections of those that [`Desk::news`] has not named, and of those who called.
    unnamed: VecDeque<ConnId>,
    /// Connections that wait until less is held, and what was when it was last looked.
    later: Vec<ConnId>,
    held: Held,
    /// What the fabric hands over; empty in between.
    arrived: Vec<Action>,
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
        if inbox.unnamed.is_empty() {
            // Who was named and took nothing is gone.
            inbox.mail.clear();
            let held = self.fabric.held();
            if held < core::mem::replace(&mut inbox.held, held) {
                inbox.unnamed.extend(inbox.later.drain(..));
            }
            self.fabric.poll(self.worker, now, &mut inbox.arrived);
            for action in inbox.arrived.drain(..) {
                let conn = action.conn();
                let own = inbox.mail.entry(conn).or_default();
                if own.is_empty() {
                    inbox.unnamed.push_back(conn);
                }
                own.push_back(action);
            }
        }
        inbox.unnamed.pop_front()
    }

    /// Names this connection among the next news, though no mail came for it.
    pub(super) fn call(&self, conn: ConnId) {
        self.inbox.borrow_mut().unnamed.push_back(conn);
    }

    /// What waits in sessions now.
    pub(super) fn held(&self) -> Held {
        self.fabric.held()
    }

    /// Names this connection among the next news when less is held than that.
    pub(super) fn call_later(&self, conn: ConnId, held: Held) {
        let mut inbox = self.inbox.borrow_mut();
        inbox.held = inbox.held.max(held);
        if !inbox.later.contains(&conn) {
            inbox.later.push(conn);
        }
    }

    /// When to look for news without having been woken.
    pub fn wake_at(&self) -> Option<Instant> {
        let inbox = self.inbox.borrow();
        let has_less = !inbox.later.is_empty() && self.fabric.held() < inbox.held;
        if !inbox.unnamed.is_empty() || has_less {
            return Some(Instant::ZERO);
        }
        self.fabric.wake_at(self.worker)
    }

    /// Whether there is mail of this connection that it has not taken.
    pub(super) fn has_mail(&self, conn: ConnId) -> bool {
        self.inbox.borrow().mail.contains_key(&conn)
    }

    /// Whether there is a worker of this number at the fabric.
    pub(super) fn has_worker(&self, worker: u16) -> bool {
        self.fabric.has_worker(worker)
    }

    /// The queue that departed under this number is this connection from now on.
    pub(super) fn land(&self, number: u64, conn: ConnId) -> Option<Queue> {
        self.fabric.land(number, self.worker, conn)
    }

    /// The queue that departed under this number is lost.
    pub(super) fn lose(&self, number: u64) {
        self.fabric.lose(number);
    }

    /// The next mail of this connection.
    pub(super) fn take(&self, conn: ConnId) -> Option<Action> {
        let mut inbox = self.inbox.borrow_mut();
        let own = inbox.mail.get_mut(&conn)?;
        let action = own.pop_front();
        if own.is_empty() {
            inbox.mail.remove(&conn);
        }
        action
    }

    /// Makes the queue that a connection is; see [`Fabric::connect`].
    pub(super) fn connect(
        &self,
        port: PortId,
        (conn, address): (ConnId, Option<IpAddr>),
        entry: &Submission,
        payload: &[u8],
        now: Instant,
    ) -> Result<(Queue, Completion), Completion> {
        let place = Place { worker: self.worker, conn, address };
        self.fabric.connect(port, place, entry, payload, now)
    }
}
