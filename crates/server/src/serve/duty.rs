//! The orders for all workers, as one worker's thread carries them out between two turns.

use std::sync::Arc;
use std::time::Duration;

use contract::{Instant, Turn};

use super::{ServerDevice, ServerWorker};
use crate::interface::Way;
use crate::orders::{DiskOrder, Orders, Seen, Word};
use crate::volumes::Volume;

/// The interval at which a drained worker checks whether the others have drained.
const DRAINED_PERIOD: Duration = Duration::from_millis(2);

/// The interval at which a worker checks whether a device to be closed is idle.
const CLOSING_PERIOD: Duration = Duration::from_millis(1);

/// The progress of one worker with its orders.
pub(super) struct Duty {
    orders: Arc<Orders>,
    worker: usize,
    /// The last word that it has begun to carry out, and the last that is carried out.
    begun: Word,
    done: Word,
    /// The listeners that turn away whoever comes, and those that were closed, as far as it has seen.
    turning: Seen,
    closed: Seen,
    /// A device waits to be closed until nothing is at it.
    waits: bool,
    is_quiet: bool,
    is_drained: bool,
}

impl Duty {
    pub(super) fn new(orders: Arc<Orders>, worker: usize) -> Duty {
        let (begun, done) = (Word::default(), Word::default());
        let (turning, closed) = (Seen::default(), Seen::default());
        let (waits, is_quiet, is_drained) = (false, false, false);
        Duty { orders, worker, begun, done, turning, closed, waits, is_quiet, is_drained }
    }

    /// Does what is new, before a turn. `attach` makes a queue to a device.
    pub(super) fn attend<N: Way>(
        &mut self,
        worker: &mut ServerWorker<N>,
        now: Instant,
        attach: impl Fn(usize, Option<&Volume>) -> Result<ServerDevice, String>,
    ) {
        let word = self.orders.word();
        if word == self.begun && !self.waits {
            return;
        }
        self.exchange_disks(worker, attach);
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
                    tracing::error!(%error, "the listener cannot accept connections");
                    self.orders.cannot_listen(id, error.to_string());
                }
            }
        }
        for (listener, _) in self.orders.closed().changed(&mut self.closed) {
            sockets.unlisten(listener);
        }
        if word.stops() {
            if !before.stops() {
                let (worker_number, connections) = (self.worker, worker.connections());
                tracing::info!(worker = worker_number, connections, "draining");
            }
            match self.orders.stops_by() {
                Some(until) => worker.drain_by(now, until),
                None => worker.drain(now),
            }
        }
    }

    /// Opens and closes devices, as far as can be.
    fn exchange_disks<N: Way>(
        &mut self,
        worker: &mut ServerWorker<N>,
        attach: impl Fn(usize, Option<&Volume>) -> Result<ServerDevice, String>,
    ) {
        loop {
            let can = |order: &DiskOrder| {
                order.place == worker.device_places() || worker.is_idle_at(order.place)
            };
            let (order, more) = self.orders.take_disk(self.worker, can);
            self.waits = more;
            let Some(DiskOrder { place, volume }) = order else { return };
            match attach(place, volume.as_deref()) {
                Ok(attached) => worker.attach_device(place, attached),
                Err(why) => {
                    self.orders.cannot_open(place, why);
                    // Places are counted alike by all workers.
                    if place == worker.device_places() {
                        let nothing = attach(place, None).expect("nothing is opened");
                        worker.attach_device(place, nothing);
                    }
                }
            }
        }
    }

    /// Carries out orders after a turn. Returns the turn's result, or `None` after the last turn.
    pub(super) fn after<N: Way>(
        &mut self,
        worker: &mut ServerWorker<N>,
        now: Instant,
        turn: Turn,
    ) -> Option<Turn> {
        let lasts = self.waits || self.begun.holds() && worker.ports().0.accepts();
        if self.begun != self.done && !lasts {
            self.done = self.begun;
            self.orders.done(self.worker, self.done);
        }
        if !self.begun.stops() {
            let soon = self.waits.then(|| now + CLOSING_PERIOD);
            let wake_at = [turn.wake_at, soon].into_iter().flatten().min();
            return Some(Turn { wake_at, ..turn });
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
