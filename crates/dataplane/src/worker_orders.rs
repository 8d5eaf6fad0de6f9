//! The orders to one worker, as its thread carries them out between two turns.

use std::sync::Arc;
use std::time::Duration;

use contract::{Instant, TurnOutcome};
use control::WorkerMailbox;
use flash::DecoratedDevice;
use qos::AnyScheduler;
use worker::{DeviceLane, Worker};

use crate::interface::SocketBackend;
use crate::orders::{DeviceOrder, OrderInbox, WorkerOrder, WorkerOrders};
use crate::sessions::{AnySession, ListenerSessionFactory};
use crate::volumes::{AnyDevice, Volume};

/// The interval at which a drained worker checks whether the others have drained.
const DRAINED_PERIOD: Duration = Duration::from_millis(2);

/// The interval at which a worker checks whether a device to be closed is idle.
const CLOSING_PERIOD: Duration = Duration::from_millis(1);

/// A device of a worker, with its scheduler.
pub(crate) type ServerDevice = DeviceLane<DecoratedDevice<AnyDevice>, AnyScheduler>;

/// A worker of a server over one kind of sockets.
pub(crate) type ServerWorker<N> = Worker<
    N,
    DecoratedDevice<AnyDevice>,
    AnyScheduler,
    AnySession,
    WorkerMailbox,
    ListenerSessionFactory,
>;

/// A worker's progress with its orders.
pub(crate) struct OrderProgress {
    orders: Arc<WorkerOrders>,
    worker: usize,
    inbox: OrderInbox,
    /// The number of orders that the worker has reported as done.
    done: u64,
    /// `true` while the worker accepts no connections.
    holds: bool,
    /// Devices to open or to close, oldest first; at most one order for each place. A device to be
    /// closed waits until it is idle.
    disks: Vec<DeviceOrder>,
    drain: DrainProgress,
}

/// The progress of a worker's drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DrainProgress {
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

impl OrderProgress {
    pub(crate) fn new(
        orders: Arc<WorkerOrders>,
        worker: usize,
        inbox: OrderInbox,
    ) -> OrderProgress {
        let (done, holds, disks, drain) = (0, false, Vec::new(), DrainProgress::Off);
        OrderProgress { orders, worker, inbox, done, holds, disks, drain }
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

    fn take<N: SocketBackend>(
        &mut self,
        worker: &mut ServerWorker<N>,
        now: Instant,
        order: WorkerOrder,
    ) {
        let sockets = worker.ports().0;
        match order {
            WorkerOrder::Stop => self.stop(worker, now),
            WorkerOrder::Hold(holds) => {
                self.holds = holds;
                sockets.hold(holds);
            }
            WorkerOrder::Listen(id, listener) => {
                if let Err(error) = sockets.listen(id, listener) {
                    tracing::error!(%error, "the listener cannot accept connections");
                    self.orders.cannot_listen(id, error.to_string());
                }
            }
            WorkerOrder::Refuse(listener, turns) => sockets.refuse(listener, turns),
            WorkerOrder::Close(listener) => sockets.unlisten(listener),
            WorkerOrder::Answer => self.orders.answer(self.worker),
            WorkerOrder::Disk(order) => {
                self.disks.retain(|other| other.place != order.place);
                self.disks.push(order);
            }
            WorkerOrder::KeepDisk(order) => {
                match self.disks.iter().position(|other| other.place == order.place) {
                    Some(at) => drop(self.disks.remove(at)),
                    None => self.disks.push(order),
                }
            }
        }
    }

    fn stop<N: SocketBackend>(&mut self, worker: &mut ServerWorker<N>, now: Instant) {
        if self.drain == DrainProgress::Off {
            self.drain = DrainProgress::Begun;
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
            let can = |order: &DeviceOrder| {
                order.place == worker.device_places() || worker.is_idle_at(order.place)
            };
            let Some(next) = self.disks.iter().position(can) else { return };
            let DeviceOrder { place, volume } = self.disks.remove(next);
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
        turn: TurnOutcome,
    ) -> Option<TurnOutcome> {
        let waits = !self.disks.is_empty();
        let lasts = waits || self.holds && worker.ports().0.accepts();
        if self.inbox.taken() != self.done && !lasts {
            self.done = self.inbox.taken();
            self.orders.done(self.worker, self.done);
        }
        if self.drain == DrainProgress::Off {
            let soon = waits.then(|| now + CLOSING_PERIOD);
            let wake_at = [turn.wake_at, soon].into_iter().flatten().min();
            return Some(TurnOutcome { wake_at, ..turn });
        }
        if self.drain == DrainProgress::Begun && worker.is_inert() {
            self.drain = DrainProgress::Quiet;
            self.orders.quiet(self.worker);
        }
        if !worker.is_drained() {
            return Some(turn);
        }
        // Nothing is in flight where nothing is left.
        if self.drain < DrainProgress::Over {
            self.drain = DrainProgress::Over;
            self.orders.drained();
        }
        // A connection may be on its way here, and has to be sent back.
        let wake_at = Some(now + DRAINED_PERIOD);
        (!self.orders.are_drained()).then_some(TurnOutcome { wake_at, ..turn })
    }
}
