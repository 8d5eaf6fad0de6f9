//! Orders to the workers of a server: drain, pause accepting, listen, refuse connections at a
//! listener, close a listener, open or close a device.
//!
//! Each worker has a queue of orders, which its thread reads between two turns. A counter shows
//! whether there are any, so no thread waits for another (docs/adr/0023-one-try-lock.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use contract::{Instant, ListenerId};
use io::{Listener, Waker};

use crate::complaints::{OrderErrors, OrderSubject};
use crate::volumes::Volume;

/// A set of listeners: one bit for each place that a listener's identifier can have.
#[derive(Debug)]
pub struct ListenerSet(Box<[AtomicU64]>);

impl ListenerSet {
    const WORDS: usize = (spec::Listener::NUMBER_MAX as usize).div_ceil(u64::BITS as usize);

    fn new() -> ListenerSet {
        ListenerSet((0..ListenerSet::WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn set(&self, id: ListenerId, is_set: bool) {
        let (word, bit) = (&self.0[usize::from(id.place()) / 64], 1 << (id.place() % 64));
        match is_set {
            true => word.fetch_or(bit, Ordering::AcqRel),
            false => word.fetch_and(!bit, Ordering::AcqRel),
        };
    }

    /// Returns `true` if the listener is in the set.
    pub fn has(&self, id: ListenerId) -> bool {
        let word = self.0[usize::from(id.place()) / 64].load(Ordering::Acquire);
        word >> (id.place() % 64) & 1 == 1
    }
}

/// An order to a worker.
#[derive(Debug)]
pub enum WorkerOrder {
    /// Drain until [`WorkerOrders::stops_by`], then end. A second order changes the time.
    Stop,
    /// Stop accepting connections (`true`), or accept them again (`false`).
    Hold(bool),
    /// Listen at a new listener.
    Listen(ListenerId, Listener),
    /// Refuse new connections at a listener (`true`), or accept them again (`false`).
    Refuse(ListenerId, bool),
    /// Close a listener for good.
    Close(ListenerId),
    /// Open or close a device; replaces an older order for the same place.
    Disk(DeviceOrder),
    /// Keep a device open that an earlier order was to close, or open the device again if it is
    /// closed already.
    KeepDisk(DeviceOrder),
    /// Show that the worker's thread runs.
    Answer,
}

/// The orders to all workers, and the record of which orders each worker has carried out.
#[derive(Debug)]
pub struct WorkerOrders {
    workers: Vec<OrderQueue>,
    stops: AtomicBool,
    /// The deadline of a drain, in nanoseconds of the workers' clock. The largest number means that
    /// the workers' limits apply.
    stop_by: AtomicU64,
    /// The listeners that refuse connections.
    turning: ListenerSet,
    /// The number of workers that have drained.
    drained: AtomicUsize,
    /// `true` if another process has taken over the listeners and the connections.
    given: AtomicBool,
    complaints: OrderErrors,
}

/// The order queue of one worker.
#[derive(Debug)]
struct OrderQueue {
    sender: Sender<WorkerOrder>,
    /// The number of orders that were given.
    told: AtomicU64,
    /// The number of orders that the worker has carried out.
    done: AtomicU64,
    /// `true` if the worker drains and has nothing in flight.
    quiet: AtomicBool,
    /// `true` if the worker was asked to show that its thread runs, and has not yet.
    asked: AtomicBool,
}

/// The worker's end of its order queue.
#[derive(Debug)]
pub struct OrderInbox {
    receiver: Receiver<WorkerOrder>,
    /// The number of orders that the worker has read.
    taken: u64,
}

impl OrderInbox {
    /// Takes the worker's next order; `None` if there is none.
    pub fn next(&mut self, orders: &WorkerOrders, worker: usize) -> Option<WorkerOrder> {
        if orders.workers[worker].told.load(Ordering::Acquire) == self.taken {
            return None;
        }
        let order = self.receiver.try_recv().ok()?;
        self.taken += 1;
        Some(order)
    }

    /// Returns the number of orders that the worker has read.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}

/// An order to open or close a worker's queue to a device.
#[derive(Clone, Debug)]
pub struct DeviceOrder {
    /// The index of the device.
    pub place: usize,
    /// The device to open; `None` to close the device at this index when it is idle.
    pub volume: Option<Arc<Volume>>,
}

impl WorkerOrders {
    /// Creates the orders for this many workers, and the workers' ends of the queues.
    pub fn new(workers: usize) -> (WorkerOrders, Vec<OrderInbox>) {
        let line = |_| {
            let (sender, receiver) = channel();
            let (told, done) = (AtomicU64::new(0), AtomicU64::new(0));
            let (quiet, asked) = (AtomicBool::new(false), AtomicBool::new(false));
            let line = OrderQueue { sender, told, done, quiet, asked };
            (line, OrderInbox { receiver, taken: 0 })
        };
        let (workers, inboxes) = (0..workers).map(line).unzip();
        let orders = WorkerOrders {
            workers,
            stops: AtomicBool::new(false),
            stop_by: AtomicU64::new(u64::MAX),
            turning: ListenerSet::new(),
            drained: AtomicUsize::new(0),
            given: AtomicBool::new(false),
            complaints: OrderErrors::default(),
        };
        (orders, inboxes)
    }

    /// Appends an order to the queue of each worker, and wakes the workers.
    fn tell(&self, wakers: &[Waker], order: impl Fn() -> WorkerOrder) {
        self.workers.iter().for_each(|worker| _ = worker.tell(order()));
        wakers.iter().for_each(Waker::wake);
    }

    /// Returns `true` if the workers were ordered to drain.
    pub fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// Orders all workers to drain. Returns `true` if they were ordered to before.
    pub fn stop(&self, wakers: &[Waker]) -> bool {
        let before = self.stops.swap(true, Ordering::AcqRel);
        self.tell(wakers, || WorkerOrder::Stop);
        before
    }

    /// Orders all workers to drain by this time. A second order changes the time.
    pub fn stop_by(&self, until: Instant, wakers: &[Waker]) {
        self.stop_by.store(until.as_nanos(), Ordering::Release);
        self.stop(wakers);
    }

    /// Orders the workers to drain by `until`, unless an earlier deadline was already ordered.
    pub fn stop_soon(&self, until: Instant, wakers: &[Waker]) {
        let known = self.stops_by().filter(|known| *known < until && self.stops());
        self.stop_by(known.unwrap_or(until), wakers);
    }

    /// Returns the deadline of the drain; `None` if none was set.
    pub fn stops_by(&self) -> Option<Instant> {
        let nanos = self.stop_by.load(Ordering::Acquire);
        (nanos != u64::MAX).then(|| Instant::from_nanos(nanos))
    }

    /// Orders all workers to stop accepting connections if `is_held`, or to accept them again
    /// otherwise.
    pub fn hold(&self, is_held: bool, wakers: &[Waker]) {
        self.tell(wakers, || WorkerOrder::Hold(is_held));
    }

    /// Orders the accepting worker to listen at a new listener, or all workers if it receives
    /// packets.
    pub fn listen(&self, listeners: Vec<(ListenerId, Listener)>, wakers: &[Waker]) {
        for (id, listener) in listeners {
            match listener.divide(self.workers.len()) {
                Ok(parts) => self
                    .workers
                    .iter()
                    .zip(parts)
                    .for_each(|(worker, part)| _ = worker.tell(WorkerOrder::Listen(id, part))),
                Err(error) => {
                    tracing::error!(%error, "the listener cannot accept connections");
                    self.cannot_listen(id, error.to_string());
                }
            }
        }
        wakers.iter().for_each(Waker::wake);
    }

    /// Orders the workers to refuse new connections at a listener if `turns`, or to accept them
    /// again otherwise.
    pub fn turn_away(&self, listener: ListenerId, turns: bool, wakers: &[Waker]) {
        self.turning.set(listener, turns);
        self.tell(wakers, || WorkerOrder::Refuse(listener, turns));
    }

    /// Orders a listener to be closed for good.
    pub fn close(&self, listener: ListenerId, wakers: &[Waker]) {
        self.turning.set(listener, false);
        self.tell(wakers, || WorkerOrder::Close(listener));
    }

    /// Orders all workers to open or close a device.
    pub fn disk(&self, order: &DeviceOrder, wakers: &[Waker]) {
        self.tell(wakers, || WorkerOrder::Disk(order.clone()));
    }

    /// Cancels an order to close a device: workers that have not closed it yet keep it.
    pub fn keep_disk(&self, order: &DeviceOrder, wakers: &[Waker]) {
        self.tell(wakers, || WorkerOrder::KeepDisk(order.clone()));
    }

    /// Reports that a worker cannot open the device with this index.
    pub fn cannot_open(&self, place: usize, why: String) {
        self.complaints.add(OrderSubject::Device(place), why);
    }

    /// Takes the report that a worker could not open the device with this index; `None` if there is
    /// none.
    pub fn take_unopened(&self, place: usize) -> Option<String> {
        self.complaints.take(OrderSubject::Device(place))
    }

    /// Returns the listeners that refuse connections.
    pub fn turning(&self) -> &ListenerSet {
        &self.turning
    }

    /// Reports that the accepting worker cannot listen at a listener.
    pub fn cannot_listen(&self, id: ListenerId, why: String) {
        self.complaints.add(OrderSubject::Listener(id), why);
    }

    /// Takes the report that the accepting worker cannot listen at a listener; `None` if there is
    /// none.
    pub fn take_complaint(&self, id: ListenerId) -> Option<String> {
        self.complaints.take(OrderSubject::Listener(id))
    }

    /// Sets the number of orders that a worker has carried out so far.
    pub fn done(&self, worker: usize, orders: u64) {
        self.workers[worker].done.store(orders, Ordering::Release);
    }

    /// Returns true if all workers have carried out all orders.
    pub fn are_done(&self) -> bool {
        let is_done = |worker: &OrderQueue| {
            worker.told.load(Ordering::Acquire) == worker.done.load(Ordering::Acquire)
        };
        self.workers.iter().all(is_done)
    }

    /// Asks all workers to show that their threads run. A worker that has ended need not.
    pub fn ask(&self, wakers: &[Waker]) {
        for worker in &self.workers {
            worker.asked.store(true, Ordering::Release);
            if !worker.tell(WorkerOrder::Answer) {
                worker.asked.store(false, Ordering::Release);
            }
        }
        wakers.iter().for_each(Waker::wake);
    }

    /// Records that a worker has shown that its thread runs.
    pub fn answer(&self, worker: usize) {
        self.workers[worker].asked.store(false, Ordering::Release);
    }

    /// Returns true if all workers that were asked have answered.
    pub fn have_answered(&self) -> bool {
        self.workers.iter().all(|worker| !worker.asked.load(Ordering::Acquire))
    }

    /// Records that a worker drains and has no request in flight, so that the worker sends no more
    /// requests to devices.
    pub fn quiet(&self, worker: usize) {
        self.workers[worker].quiet.store(true, Ordering::Release);
    }

    /// Returns `true` if all workers drain and have no request in flight.
    pub fn are_quiet(&self) -> bool {
        self.workers.iter().all(|worker| worker.quiet.load(Ordering::Acquire))
    }

    /// Records that another process has taken over the listeners and the connections.
    pub fn give(&self) {
        self.given.store(true, Ordering::Release);
    }

    /// Returns `true` if another process has taken over the listeners and the connections.
    pub fn are_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Counts one more drained worker.
    pub fn drained(&self) {
        self.drained.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if all workers have drained.
    pub fn are_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed) >= self.workers.len()
    }
}

impl OrderQueue {
    /// Adds an order to the queue of one worker. Returns `false` if the worker has ended.
    fn tell(&self, order: WorkerOrder) -> bool {
        // Before the order, so that a worker that has done another one is not taken for done.
        // Whoever sees the count first finds the order in a later turn: the sender wakes the
        // worker.
        self.told.fetch_add(1, Ordering::AcqRel);
        self.sender.send(order).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_were_asked_answer_unless_they_have_ended() {
        let (orders, mut inboxes) = WorkerOrders::new(2);
        assert!(orders.have_answered(), "nobody was asked");
        orders.ask(&[]);
        for (worker, inbox) in inboxes.iter_mut().enumerate() {
            assert!(!orders.have_answered());
            assert!(matches!(inbox.next(&orders, worker), Some(WorkerOrder::Answer)));
            orders.answer(worker);
        }
        assert!(orders.have_answered());
        orders.ask(&[]);
        orders.answer(0);
        drop(inboxes.pop());
        assert!(!orders.have_answered(), "it ended while it was asked");
        orders.ask(&[]);
        assert!(!orders.have_answered());
        orders.answer(0);
        assert!(orders.have_answered(), "the other one has ended");
    }

    #[test]
    fn orders_are_done_when_all_have_done_them() {
        let (orders, mut inboxes) = WorkerOrders::new(2);
        assert!(orders.are_done());
        orders.hold(true, &[]);
        for (worker, inbox) in inboxes.iter_mut().enumerate() {
            assert!(!orders.are_done());
            assert!(matches!(inbox.next(&orders, worker), Some(WorkerOrder::Hold(true))));
            assert!(inbox.next(&orders, worker).is_none());
            orders.done(worker, inbox.taken());
        }
        assert!(orders.are_done() && !orders.stops());
        assert!(!orders.stop(&[]) && orders.stop(&[]), "the second time it was told before");
        assert!(orders.stops() && !orders.are_quiet() && !orders.are_drained());
        (0..2).for_each(|worker| {
            orders.quiet(worker);
            orders.drained();
        });
        assert!(orders.are_quiet() && orders.are_drained());
    }

    #[test]
    fn each_order_to_drain_is_told_and_has_its_time() {
        let ((orders, mut inboxes), at) = (WorkerOrders::new(1), Instant::from_nanos);
        assert_eq!(orders.stops_by(), None);
        orders.stop_by(at(70), &[]);
        assert!(orders.stops() && orders.stops_by() == Some(at(70)));
        orders.stop_soon(at(90), &[]);
        assert_eq!(orders.stops_by(), Some(at(70)), "it is over before");
        orders.stop_soon(at(50), &[]);
        assert_eq!(orders.stops_by(), Some(at(50)));
        orders.stop_by(at(90), &[]);
        assert_eq!(orders.stops_by(), Some(at(90)));
        let told = std::iter::from_fn(|| inboxes[0].next(&orders, 0));
        assert_eq!(told.filter(|order| matches!(order, WorkerOrder::Stop)).count(), 4);
    }

    #[test]
    fn each_change_of_a_listener_is_told_in_order() {
        let (orders, mut inboxes) = WorkerOrders::new(1);
        let (first, last) = (ListenerId(0), ListenerId::new(spec::Listener::NUMBER_MAX - 1, 0));
        orders.turn_away(last, true, &[]);
        assert!(orders.turning().has(last) && !orders.turning().has(first));
        orders.turn_away(first, true, &[]);
        orders.turn_away(last, false, &[]);
        orders.close(last, &[]);
        orders.close(first, &[]);
        let told = std::iter::from_fn(|| inboxes[0].next(&orders, 0));
        let told: Vec<String> = told.map(|order| format!("{order:?}")).collect();
        let all =
            ["Refuse(L, true)", "Refuse(F, true)", "Refuse(L, false)", "Close(L)", "Close(F)"];
        let all = all.map(|one| one.replace('L', &format!("{last:?}")));
        let all = all.map(|one| one.replace('F', &format!("{first:?}")));
        assert_eq!(told, all);
        assert!(!orders.turning().has(last) && !orders.are_done());
        assert!(!orders.turning().has(first), "its place is for another listener");
    }
}
