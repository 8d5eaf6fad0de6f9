//! What a worker's thread does of what all workers are told, between two turns.

use std::sync::Arc;
use std::time::Duration;

use contract::{Instant, Turn};

use super::ServerWorker;
use crate::interface::Way;
use crate::orders::{Orders, Seen, Word};

/// How often a worker that has drained looks whether the others have.
const DRAINED_PERIOD: Duration = Duration::from_millis(2);

/// What one worker has done.
pub(super) struct Duty {
    orders: Arc<Orders>,
    worker: usize,
    /// The last word that it has begun to carry out, and the last that is carried out.
    begun: Word,
    done: Word,
    /// The listeners that turn away whoever comes, and those that were closed, as far as it has seen.
    turning: Seen,
    closed: Seen,
    is_quiet: bool,
    is_drained: bool,
}

impl Duty {
    pub(super) fn new(orders: Arc<Orders>, worker: usize) -> Duty {
        let (begun, done) = (Word::default(), Word::default());
        let (turning, closed) = (Seen::default(), Seen::default());
        Duty { orders, worker, begun, done, turning, closed, is_quiet: false, is_drained: false }
    }

    /// Does what is new, before a turn.
    pub(super) fn attend<N: Way>(&mut self, worker: &mut ServerWorker<N>, now: Instant) {
        let word = self.orders.word();
        if word == self.begun {
            return;
        }
        let before = std::mem::replace(&mut self.begun, word);
        let sockets = worker.ports().0;
        if word.holds() != before.holds() {
            sockets.hold(word.holds());
        }
        for (listener, turns) in self.orders.turning().changed(&mut self.turning) {
            sockets.refuse(listener, turns);
        }
        if self.worker == 0 && word.listens() {
            for (id, listener) in self.orders.take_listeners() {
                if let Err(error) = sockets.listen(id, listener) {
                    tracing::error!(%error, "nobody can connect there");
                    self.orders.cannot_listen(id, error.to_string());
                }
            }
        }
        for (listener, _) in self.orders.closed().changed(&mut self.closed) {
            sockets.unlisten(listener);
        }
        if word.stops() && !before.stops() {
            let (worker_number, connections) = (self.worker, worker.connections());
            tracing::info!(worker = worker_number, connections, "draining");
            worker.drain(now);
        }
    }

    /// What a turn comes to; `None`: it was the last.
    pub(super) fn after<N: Way>(
        &mut self,
        worker: &mut ServerWorker<N>,
        now: Instant,
        turn: Turn,
    ) -> Option<Turn> {
        if self.begun != self.done && !(self.begun.holds() && worker.ports().0.accepts()) {
            self.done = self.begun;
            self.orders.done(self.worker, self.done);
        }
        if !self.begun.stops() {
            return Some(turn);
        }
        if !self.is_quiet && worker.is_inert() {
            self.is_quiet = true;
            self.orders.quiet(self.worker);
        }
        if !worker.is_drained() {
            return Some(turn);
        }
        if !std::mem::replace(&mut self.is_drained, true) {
            self.orders.drained();
        }
        // A connection may be on its way here, and has to be sent back.
        let wake_at = Some(now + DRAINED_PERIOD);
        (!self.orders.are_drained()).then_some(Turn { wake_at, ..turn })
    }
}
