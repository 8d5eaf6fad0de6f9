//! Actions for connections of controllers, such as answers and closes, that are queued until the
//! connections' workers fetch them.

use alloc::vec::Vec;

use contract::ConnId;

use super::binding::{Action, CloseReason, CommandResult, QueueAddress};

/// The worker number of a place whose queue moves between workers.
pub(super) const NO_WORKER: u16 = u16::MAX;

/// The actions of all controllers that workers have not fetched yet.
#[derive(Debug)]
pub(super) struct PendingActions {
    boxes: Vec<Vec<Action>>,
    /// Actions for connections that are moving between workers.
    kept: Vec<Action>,
    /// Workers to wake once no thread is inside the fabric.
    woken: Vec<u16>,
}

impl PendingActions {
    /// Creates the empty mail of this many workers.
    pub(super) fn new(workers: u16) -> PendingActions {
        PendingActions {
            boxes: (0..workers).map(|_| Vec::new()).collect(),
            kept: Vec::new(),
            woken: Vec::new(),
        }
    }

    /// Returns the actions that wait for a worker, or, for [`NO_WORKER`], for connections that are
    /// moving.
    fn at(&mut self, worker: u16) -> &mut Vec<Action> {
        match worker {
            NO_WORKER => &mut self.kept,
            _ => &mut self.boxes[usize::from(worker)],
        }
    }

    fn post(&mut self, worker: u16, action: Action) {
        self.at(worker).push(action);
        if worker != NO_WORKER && !self.woken.contains(&worker) {
            self.woken.push(worker);
        }
    }

    /// Adds the action to close a connection.
    pub(super) fn close(&mut self, place: QueueAddress, reason: CloseReason) {
        self.post(place.worker, Action::Close { conn: place.conn, reason });
    }

    /// Adds the action to complete a command that has waited.
    pub(super) fn complete(&mut self, place: QueueAddress, answer: CommandResult, data: Vec<u8>) {
        self.post(place.worker, Action::Complete { conn: place.conn, answer, data });
    }

    /// Moves the waiting actions for a worker to `out`. The worker then need not be woken for them.
    pub(super) fn take(&mut self, worker: u16, out: &mut Vec<Action>) {
        self.woken.retain(|woken| *woken != worker);
        out.append(&mut self.boxes[usize::from(worker)]);
    }

    /// Takes the workers to wake, which got actions since the last call.
    pub(super) fn take_woken(&mut self) -> Vec<u16> {
        core::mem::take(&mut self.woken)
    }

    /// Drops the actions for a closed connection.
    pub(super) fn forget(&mut self, place: QueueAddress) {
        self.at(place.worker).retain(|action| action.conn() != place.conn);
    }

    /// Returns `true` if an action waits for a connection that is moving.
    pub(super) fn is_kept(&self, conn: ConnId) -> bool {
        self.kept.iter().any(|action| action.conn() == conn)
    }

    /// Redirects the actions that wait for the connection at place `from` to the one at `to`.
    pub(super) fn redirect(&mut self, from: QueueAddress, to: QueueAddress) {
        let all = self.at(from.worker);
        let moved: Vec<Action> = all.extract_if(.., |action| action.conn() == from.conn).collect();
        for mut action in moved {
            match &mut action {
                Action::Complete { conn, .. } | Action::Close { conn, .. } => *conn = to.conn,
            }
            self.post(to.worker, action);
        }
    }
}
