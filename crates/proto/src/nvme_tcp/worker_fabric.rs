//! The access of one worker's NVMe/TCP sessions to the fabric that all workers share.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::IpAddr;

use contract::{ConnId, Instant, PskMark};
use wire::nvme::{Completion, Submission};

use crate::nvme::{Action, Fabric, HeldCommands, LockBusy, Origin, PortId, Queue, QueueAddress};

/// A worker's access to the fabric, which distributes the fabric's actions to the worker's
/// sessions.
#[derive(Debug)]
pub struct WorkerFabric {
    fabric: Arc<Fabric>,
    worker: u16,
    inbox: RefCell<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// Actions that no session has taken yet, by connection, oldest first.
    mail: BTreeMap<ConnId, VecDeque<Action>>,
    /// Connections that [`WorkerFabric::news`] has yet to return: those with new actions, and those
    /// that asked for a call.
    unnamed: VecDeque<ConnId>,
    /// Connections that wait until fewer commands are held back than `held` says.
    later: Vec<ConnId>,
    held: HeldCommands,
    /// Connections for which the fabric was busy. `lost` has the numbers of queues that could not
    /// be ended for this reason.
    blocked: Vec<ConnId>,
    lost: Vec<u64>,
    /// `true` if the worker has already retried in this turn the operations that had found the
    /// fabric locked.
    has_retried: bool,
    /// Buffer for the fabric's actions; empty between calls.
    arrived: Vec<Action>,
}

impl WorkerFabric {
    /// Creates a worker's access to the fabric.
    pub fn new(fabric: Arc<Fabric>, worker: u16) -> WorkerFabric {
        WorkerFabric { fabric, worker, inbox: RefCell::default() }
    }

    /// Returns the next connection that has new actions or has asked for a call; `None` if there is
    /// none, which ends a turn's calls.
    pub fn news(&self, now: Instant) -> Option<ConnId> {
        let mut inbox = self.inbox.borrow_mut();
        let inbox = &mut *inbox;
        if inbox.unnamed.is_empty() {
            // A connection that was returned and took nothing is gone.
            inbox.mail.clear();
            self.retry(inbox);
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
        let named = inbox.unnamed.pop_front();
        // `None` ends the turn's questions.
        inbox.has_retried &= named.is_some();
        named
    }

    /// Repeats the work for which the fabric was busy, once a turn and not before the thread inside
    /// has left.
    fn retry(&self, inbox: &mut Inbox) {
        let has_blocked = !inbox.blocked.is_empty() || !inbox.lost.is_empty();
        if !has_blocked || inbox.has_retried || self.fabric.is_waiting(self.worker) {
            return;
        }
        inbox.has_retried = true;
        inbox.unnamed.extend(inbox.blocked.drain(..));
        let lost = &mut inbox.lost;
        lost.retain(|number| self.fabric.try_drop_queue(*number, self.worker).is_err());
    }

    /// Makes [`WorkerFabric::news`] return this connection once the fabric is free.
    pub(super) fn call_when_free(&self, conn: ConnId) {
        let blocked = &mut self.inbox.borrow_mut().blocked;
        if !blocked.contains(&conn) {
            blocked.push(conn);
        }
    }

    /// Makes [`WorkerFabric::news`] return this connection, although the fabric has no action for
    /// it.
    pub(super) fn call(&self, conn: ConnId) {
        self.inbox.borrow_mut().unnamed.push_back(conn);
    }

    /// Returns which commands sessions hold back now.
    pub(super) fn held(&self) -> HeldCommands {
        self.fabric.held()
    }

    /// Makes [`WorkerFabric::news`] return this connection once fewer commands than `held` are held
    /// back.
    pub(super) fn call_later(&self, conn: ConnId, held: HeldCommands) {
        let mut inbox = self.inbox.borrow_mut();
        inbox.held = inbox.held.max(held);
        if !inbox.later.contains(&conn) {
            inbox.later.push(conn);
        }
    }

    /// Returns the time at which to call [`WorkerFabric::news`] even if nobody wakes the worker:
    /// [`Instant::ZERO`] for at once, `None` for never.
    pub fn wake_at(&self) -> Option<Instant> {
        let inbox = self.inbox.borrow();
        let has_less = !inbox.later.is_empty() && self.fabric.held() < inbox.held;
        let is_blocked = !inbox.blocked.is_empty() || !inbox.lost.is_empty();
        let is_free = is_blocked && !self.fabric.is_waiting(self.worker);
        if !inbox.unnamed.is_empty() || has_less || is_free {
            return Some(Instant::ZERO);
        }
        self.fabric.wake_at(self.worker)
    }

    /// Returns `true` if an action waits for this connection.
    pub(super) fn has_mail(&self, conn: ConnId) -> bool {
        self.inbox.borrow().mail.contains_key(&conn)
    }

    /// Returns `true` if the fabric has a worker of this number.
    pub(super) fn has_worker(&self, worker: u16) -> bool {
        self.fabric.has_worker(worker)
    }

    /// Takes the moving queue with this number; `None` if there is no such queue.
    ///
    /// # Errors
    /// Returns [`LockBusy`] if another thread changes the fabric.
    pub(super) fn claim(&self, number: u64) -> Result<Option<Queue>, LockBusy> {
        self.fabric.claim(number, self.worker)
    }

    /// Ends the moving queue with this number, now or when the fabric is free.
    pub(super) fn drop_queue(&self, number: u64) {
        if self.fabric.try_drop_queue(number, self.worker).is_err() {
            self.inbox.borrow_mut().lost.push(number);
        }
    }

    /// Takes the oldest action that waits for this connection; `None` if there is none.
    pub(super) fn take(&self, conn: ConnId) -> Option<Action> {
        let mut inbox = self.inbox.borrow_mut();
        let own = inbox.mail.get_mut(&conn)?;
        let action = own.pop_front();
        if own.is_empty() {
            inbox.mail.remove(&conn);
        }
        action
    }

    /// Creates the queue of a connection; see [`Fabric::connect`].
    pub(super) fn connect(
        &self,
        (port, proven): (PortId, Option<PskMark>),
        (conn, address): (ConnId, Option<IpAddr>),
        entry: &Submission,
        payload: &[u8],
        now: Instant,
    ) -> Result<Result<(Queue, Completion), Completion>, LockBusy> {
        let place = QueueAddress { worker: self.worker, conn, address };
        self.fabric.connect(Origin { port, place, proven }, entry, payload, now)
    }
}
