//! The orders to one worker, as its thread carries them out between two turns.

use std::sync::Arc;
use std::time::Duration;

use contract::{Instant, Turn};
use control::WorkerMailbox;
use flash::Decorated;
use qos::AnyScheduler;
use worker::{Attached, Worker};

use crate::interface::SocketBackend;
use crate::orders::{DiskOrder, Inbox, Order, Orders};
use crate::sessions::{AnySession, ByListener};
use crate::volumes::{AnyDevice, Volume};

/// The interval at which a drained worker checks whether the others have drained.
const DRAINED_PERIOD: Duration = Duration::from_millis(2);

/// The interval at which a worker checks whether a device to be closed is idle.
const CLOSING_PERIOD: Duration = Duration::from_millis(1);

/// A device of a worker, with its scheduler.
pub(crate) type ServerDevice = Attached<Decorated<AnyDevice>, AnyScheduler>;

/// A worker of a server over one kind of sockets.
pub(crate) type ServerWorker<N> =
    Worker<N, Decorated<AnyDevice>, AnyScheduler, AnySession, WorkerMailbox, ByListener>;

/// A worker's progress with its orders.
pub(crate) struct Duty {
    orders: Arc<Orders>,
    worker: usize,
    inbox: Inbox,
    /// The number of orders that the worker has reported as done.
    done: u64,
    /// `true` while the worker accepts no connections.
    holds: bool,
    /// Devices to open or to close, oldest first; at most one order for each place. A device to be
    /// closed waits until it is idle.
    disks: Vec<DiskOrder>,
    drain: Drain,
}

/// The progress of a worker's drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Drain {
    /// No drain was ordered to the worker.
    Off,
    /// Requests are in flight. Their ends end this phase.
    Begun,
    /// No request is in flight, but connections are open. The phase ends when all connections have
    /// ended.
    Quiet,
    /// No connection is open. The phase ends when all other workers have drained.
    Over,
}

impl Duty {
    pub(crate) fn new(orders: Arc<Orders>, worker: usize, inbox: Inbox) -> Duty {
        let (done, holds, disks, drain) = (0, false, Vec::new(), Drain::Off);
        Duty { orders, worker, inbox, done, holds, disks, drain }
    }

    /// Carries out new orders before a turn. `attach` opens a queue to a device, or makes an empty
    /// one if it gets `None`.
    pub(crate) fn attend<N: SocketBackend>(
        &mut self,
        worker: &mut ServerWorker<N>,
        now: Instant,
        attach: impl Fn(usize, Option<&Volume>) -> Result<ServerDevice, String>,
    ) {
        while let Some(order) = self.inbox.next(&self.orders, self.worker) {
            self.take(worker, now, order);
        }
        if !self.disks.is_empty() {
            self.exchange_disks(worker, attach);
        }
    }

    fn take<N: SocketBackend>(&mut self, worker: &mut ServerWorker<N>, now: Instant, order: Order) {
        let sockets = worker.ports().0;
        match order {
            Order::Stop => self.stop(worker, now),
            Order::Hold(holds) => {
                self.holds = holds;
                sockets.hold(holds);
            }
            Order::Listen(id, listener) => {
                if let Err(error) = sockets.listen(id, listener) {
                    tracing::error!(%error, "the listener cannot accept connections");
                    self.orders.cannot_listen(id, error.to_string());
                }
            }
            Order::Refuse(listener, turns) => sockets.refuse(listener, turns),
            Order::Close(listener) => sockets.unlisten(listener),
            Order::Answer => self.orders.answer(self.worker),
            Order::Disk(order) => {
                self.disks.retain(|other| other.place != order.place);
                self.disks.push(order);
            }
            Order::KeepDisk(order) => {
                match self.disks.iter().position(|other| other.place == order.place) {
                    Some(at) => drop(self.disks.remove(at)),
                    None => self.disks.push(order),
                }
            }
        }
    }

    fn stop<N: SocketBackend>(&mut self, worker: &mut ServerWorker<N>, now: Instant) {
        if self.drain == Drain::Off {
            self.drain = Drain::Begun;
            let (worker_number, connections) = (self.worker, worker.connections());
            tracing::info!(worker = worker_number, connections, "draining");
        }
        match self.orders.stops_by() {
            Some(until) => worker.drain_by(now, until),
            None => worker.drain(now),
        }
    }

    /// Carries out the orders to open and close devices where no request of this worker is at the
    /// old device.
    fn exchange_disks<N: SocketBackend>(
        &mut self,
        worker: &mut ServerWorker<N>,
        attach: impl Fn(usize, Option<&Volume>) -> Result<ServerDevice, String>,
    ) {
        loop {
            let can = |order: &DiskOrder| {
                order.place == worker.device_places() || worker.is_idle_at(order.place)
            };
            let Some(next) = self.disks.iter().position(can) else { return };
            let DiskOrder { place, volume } = self.disks.remove(next);
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

    /// Reports the orders that are carried out after a turn, and continues a drain. Returns when
    /// the next turn is due, or `None` after the last turn.
    pub(crate) fn after<N: SocketBackend>(
        &mut self,
        worker: &mut ServerWorker<N>,
        now: Instant,
        turn: Turn,
    ) -> Option<Turn> {
        let waits = !self.disks.is_empty();
        let lasts = waits || self.holds && worker.ports().0.accepts();
        if self.inbox.taken() != self.done && !lasts {
            self.done = self.inbox.taken();
            self.orders.done(self.worker, self.done);
        }
        if self.drain == Drain::Off {
            let soon = waits.then(|| now + CLOSING_PERIOD);
            let wake_at = [turn.wake_at, soon].into_iter().flatten().min();
            return Some(Turn { wake_at, ..turn });
        }
        if self.drain == Drain::Begun && worker.is_inert() {
            self.drain = Drain::Quiet;
            self.orders.quiet(self.worker);
        }
        if !worker.is_drained() {
            return Some(turn);
        }
        // Nothing is in flight where nothing is left.
        if self.drain < Drain::Over {
            self.drain = Drain::Over;
            self.orders.drained();
        }
        // A connection may be on its way here, and has to be sent back.
        let wake_at = Some(now + DRAINED_PERIOD);
        (!self.orders.are_drained()).then_some(Turn { wake_at, ..turn })
    }
}
