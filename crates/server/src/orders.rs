//! Orders to all workers of a server, in one word that each worker reads once a turn: stop, pause
//! accepting, take new or handed-over listeners, refuse connections at some listeners, close
//! others.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use contract::{Instant, ListenerId};
use io::{Listener, Waker};

use crate::listen::NUMBER_MAX;
use crate::volumes::Volume;

/// Drain, and end.
const STOP: u32 = 1;
/// Accept nothing.
const HOLD: u32 = 2;
/// Take the listeners that lie ready.
const LISTEN: u32 = 4;
/// Added when something of a listener changes: so each such change is another word.
const CHANGE: u32 = 8;

/// A bit for each listener that there can be.
#[derive(Debug)]
pub(crate) struct Marks(Box<[AtomicU64]>);

impl Marks {
    const WORDS: usize = (NUMBER_MAX as usize).div_ceil(u64::BITS as usize);

    fn new() -> Marks {
        Marks((0..Marks::WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn set(&self, id: ListenerId, is_set: bool) {
        let (word, bit) = (&self.0[usize::from(id.0) / 64], 1 << (id.0 % 64));
        match is_set {
            true => word.fetch_or(bit, Ordering::AcqRel),
            false => word.fetch_and(!bit, Ordering::AcqRel),
        };
    }

    /// Returns true if the listener's mark is set.
    pub(crate) fn has(&self, id: ListenerId) -> bool {
        self.0[usize::from(id.0) / 64].load(Ordering::Acquire) >> (id.0 % 64) & 1 == 1
    }

    /// Returns the listeners whose mark differs from `seen`, with the new mark, and updates `seen`.
    pub(crate) fn changed(&self, seen: &mut Seen) -> Vec<(ListenerId, bool)> {
        let mut changed = Vec::new();
        for (n, (word, seen)) in self.0.iter().zip(&mut seen.0).enumerate() {
            let now = word.load(Ordering::Acquire);
            let other = now ^ std::mem::replace(seen, now);
            for bit in (0..u64::BITS).filter(|bit| other >> bit & 1 == 1) {
                let id = ListenerId((n as u32 * u64::BITS + bit) as u16);
                changed.push((id, now >> bit & 1 == 1));
            }
        }
        changed
    }
}

/// Marks as a worker has seen them.
#[derive(Debug)]
pub(crate) struct Seen(Vec<u64>);

impl Default for Seen {
    fn default() -> Seen {
        Seen(vec![0; Marks::WORDS])
    }
}

/// Time that an ended server waits for the answer to its drain to leave.
const ANSWER_TIME: std::time::Duration = std::time::Duration::from_millis(200);

/// An operator ordered the drain over the API, which answers.
static IS_ANSWERED: AtomicBool = AtomicBool::new(false);

/// Waits, at the end of a drain that an operator ordered, until the answer has left: idle workers
/// end sooner than the API answers.
pub(crate) fn let_answer_leave() {
    if IS_ANSWERED.load(Ordering::Acquire) {
        std::thread::sleep(ANSWER_TIME);
    }
}

/// The orders to all workers, and the workers' progress with them.
#[derive(Debug)]
pub(crate) struct Orders {
    word: AtomicU32,
    /// The latest end of a drain, in nanoseconds of the workers' clock. The largest number leaves
    /// the end to the workers' limits.
    stop_by: AtomicU64,
    /// The listeners that turn away whoever comes.
    turning: Marks,
    /// The listeners that were closed.
    closed: Marks,
    /// For each worker, the last word that it has carried out.
    done: Vec<AtomicU32>,
    /// For each worker, true if it drains and has nothing in flight.
    quiet: Vec<AtomicBool>,
    /// Workers that have drained.
    drained: AtomicUsize,
    /// Another process has everything.
    given: AtomicBool,
    /// The listeners for the worker that listens.
    listeners: Mutex<Vec<(ListenerId, Listener)>>,
    /// Listeners at which the worker that listens cannot, and why.
    deaf: Mutex<Vec<(ListenerId, String)>>,
    /// For each worker, the devices to open or close, oldest first; at most one order for each
    /// place.
    disks: Vec<Mutex<Vec<DiskOrder>>>,
    /// Places of devices that a worker cannot open, and why.
    unopened: Mutex<Vec<(usize, String)>>,
}

/// A device that a worker is to have a queue to, or none any more.
#[derive(Clone, Debug)]
pub(crate) struct DiskOrder {
    pub(crate) place: usize,
    /// `None`: it is to be closed when nothing is at it any more.
    pub(crate) volume: Option<Arc<Volume>>,
}

impl Orders {
    /// Creates the orders for this many workers.
    pub(crate) fn new(workers: usize) -> Orders {
        Orders {
            word: AtomicU32::new(0),
            stop_by: AtomicU64::new(u64::MAX),
            turning: Marks::new(),
            closed: Marks::new(),
            done: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            quiet: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            drained: AtomicUsize::new(0),
            given: AtomicBool::new(false),
            listeners: Mutex::default(),
            deaf: Mutex::default(),
            disks: (0..workers).map(|_| Mutex::default()).collect(),
            unopened: Mutex::default(),
        }
    }

    /// The word, as workers look at it.
    pub(crate) fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// Tells all to drain; whether they had been told before.
    pub(crate) fn stop(&self, wakers: &[Waker]) -> bool {
        self.tell(STOP, true, wakers) & STOP != 0
    }

    /// Orders the end like [`stop_by`](Orders::stop_by) for an operator, who reads the answer to that.
    pub(crate) fn end_by(&self, until: Instant, wakers: &[Waker]) {
        IS_ANSWERED.store(true, Ordering::Release);
        self.stop_by(until, wakers);
    }

    /// Tells all to drain, which is to be over by then; said again, the time is another.
    pub(crate) fn stop_by(&self, until: Instant, wakers: &[Waker]) {
        self.stop_by.store(until.as_nanos(), Ordering::Release);
        self.word.fetch_or(STOP, Ordering::AcqRel);
        self.change(wakers);
    }

    /// Orders the workers to stop by `until`, unless they have to stop earlier already.
    pub(crate) fn stop_soon(&self, until: Instant, wakers: &[Waker]) {
        let known = self.stops_by().filter(|known| *known < until && self.word().stops());
        self.stop_by(known.unwrap_or(until), wakers);
    }

    /// Returns the time at which a drain ends, if one was set.
    pub(crate) fn stops_by(&self) -> Option<Instant> {
        let nanos = self.stop_by.load(Ordering::Acquire);
        (nanos != u64::MAX).then(|| Instant::from_nanos(nanos))
    }

    /// Tells all to accept nothing, or again.
    pub(crate) fn hold(&self, is_held: bool, wakers: &[Waker]) {
        self.tell(HOLD, is_held, wakers);
    }

    /// Provides the listeners that the listening worker takes when it starts.
    pub(crate) fn lay_ready(&self, listeners: Vec<(ListenerId, Listener)>) {
        self.listeners.lock().expect("no holder panics").extend(listeners);
    }

    /// Gives the worker that listens something to listen at.
    pub(crate) fn listen(&self, listeners: Vec<(ListenerId, Listener)>, wakers: &[Waker]) {
        self.lay_ready(listeners);
        self.word.fetch_or(LISTEN, Ordering::AcqRel);
        self.change(wakers);
    }

    /// Orders a listener to refuse connections, or to accept them again.
    pub(crate) fn turn_away(&self, listener: ListenerId, turns: bool, wakers: &[Waker]) {
        self.turning.set(listener, turns);
        self.change(wakers);
    }

    /// Orders a listener to be closed for good.
    pub(crate) fn close(&self, listener: ListenerId, wakers: &[Waker]) {
        self.closed.set(listener, true);
        self.change(wakers);
    }

    /// Orders all workers to open or close a device. An older order for its place that was not
    /// carried out is dropped.
    pub(crate) fn disk(&self, order: &DiskOrder, wakers: &[Waker]) {
        for own in &self.disks {
            let mut own = own.lock().expect("no holder panics");
            own.retain(|other| other.place != order.place);
            own.push(order.clone());
        }
        self.change(wakers);
    }

    /// Cancels an order to close a device: workers that have not closed it yet keep it.
    pub(crate) fn keep_disk(&self, order: &DiskOrder, wakers: &[Waker]) {
        for own in &self.disks {
            let mut own = own.lock().expect("no holder panics");
            match own.iter().position(|other| other.place == order.place) {
                Some(at) => drop(own.remove(at)),
                None => own.push(order.clone()),
            }
        }
        self.change(wakers);
    }

    /// The next of these orders that a worker can carry out, if `can` says so; whether there are others.
    pub(crate) fn take_disk(
        &self,
        worker: usize,
        can: impl Fn(&DiskOrder) -> bool,
    ) -> (Option<DiskOrder>, bool) {
        let mut own = self.disks[worker].lock().expect("no holder panics");
        let found = own.iter().position(can).map(|at| own.remove(at));
        (found, !own.is_empty())
    }

    /// A worker cannot open the device of a place.
    pub(crate) fn cannot_open(&self, place: usize, why: String) {
        self.unopened.lock().expect("no holder panics").push((place, why));
    }

    /// Why a worker could not open the device of a place, if that was so. What was said of another, by
    /// a worker that was waited for in vain, is not taken for it.
    pub(crate) fn take_unopened(&self, place: usize) -> Option<String> {
        let mut unopened = self.unopened.lock().expect("no holder panics");
        let found = unopened.iter().find(|(other, _)| *other == place).map(|(_, why)| why.clone());
        unopened.retain(|(other, _)| *other != place);
        found
    }

    fn change(&self, wakers: &[Waker]) {
        self.word.fetch_add(CHANGE, Ordering::AcqRel);
        wakers.iter().for_each(Waker::wake);
    }

    /// The listeners that turn people away.
    pub(crate) fn turning(&self) -> &Marks {
        &self.turning
    }

    /// The listeners that were closed.
    pub(crate) fn closed(&self) -> &Marks {
        &self.closed
    }

    /// The worker that listens cannot do so there.
    pub(crate) fn cannot_listen(&self, id: ListenerId, why: String) {
        self.deaf.lock().expect("no holder panics").push((id, why));
    }

    /// Why it cannot, if that is so.
    pub(crate) fn take_complaint(&self, id: ListenerId) -> Option<String> {
        let mut deaf = self.deaf.lock().expect("no holder panics");
        let found = deaf.iter().position(|(one, _)| *one == id)?;
        Some(deaf.swap_remove(found).1)
    }

    /// Takes the listeners that were provided.
    pub(crate) fn take_listeners(&self) -> Vec<(ListenerId, Listener)> {
        std::mem::take(&mut self.listeners.lock().expect("no holder panics"))
    }

    fn tell(&self, bit: u32, is_set: bool, wakers: &[Waker]) -> u32 {
        let before = match is_set {
            true => self.word.fetch_or(bit, Ordering::AcqRel),
            false => self.word.fetch_and(!bit, Ordering::AcqRel),
        };
        wakers.iter().for_each(Waker::wake);
        before
    }

    /// A worker has done what a word says.
    pub(crate) fn done(&self, worker: usize, word: Word) {
        self.done[worker].store(word.0, Ordering::Release);
    }

    /// Returns true if all workers have carried out the current word.
    pub(crate) fn are_done(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        self.done.iter().all(|done| done.load(Ordering::Acquire) == word)
    }

    /// A worker drains and has nothing in flight: nothing of it will be at a device again.
    pub(crate) fn quiet(&self, worker: usize) {
        self.quiet[worker].store(true, Ordering::Release);
    }

    /// Returns true if all workers are quiet.
    pub(crate) fn are_quiet(&self) -> bool {
        self.quiet.iter().all(|quiet| quiet.load(Ordering::Acquire))
    }

    /// Another process has everything.
    pub(crate) fn give(&self) {
        self.given.store(true, Ordering::Release);
    }

    /// Returns true if another process has taken over everything.
    pub(crate) fn are_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Counts one more drained worker.
    pub(crate) fn drained(&self) {
        self.drained.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if all workers have drained.
    pub(crate) fn are_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed) >= self.done.len()
    }
}

/// A word of orders, with one bit for each order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word(u32);

impl Word {
    /// To drain.
    pub(crate) fn stops(self) -> bool {
        self.0 & STOP != 0
    }

    /// To accept nothing.
    pub(crate) fn holds(self) -> bool {
        self.0 & HOLD != 0
    }

    /// Returns true if there are listeners to take.
    pub(crate) fn listens(self) -> bool {
        self.0 & LISTEN != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_done_when_all_have_done_it() {
        let orders = Orders::new(2);
        assert!(orders.are_done() && orders.word() == Word::default());
        orders.hold(true, &[]);
        assert!(!orders.are_done() && orders.word().holds());
        (0..2).for_each(|worker| orders.done(worker, orders.word()));
        assert!(orders.are_done());
        assert!(!orders.stop(&[]) && orders.stop(&[]), "the second time it was told before");
        assert!(orders.word().stops() && orders.word().holds() && !orders.word().listens());
        orders.hold(false, &[]);
        assert!(!orders.word().holds() && !orders.are_quiet() && !orders.are_drained());
        (0..2).for_each(|worker| {
            orders.quiet(worker);
            orders.drained();
        });
        assert!(orders.are_quiet() && orders.are_drained());
    }

    /// It may come when nobody waits for it any more.
    #[test]
    fn what_a_worker_says_of_a_device_is_taken_for_no_other() {
        let orders = Orders::new(2);
        orders.cannot_open(3, "late".to_owned());
        assert_eq!(orders.take_unopened(4), None);
        orders.cannot_open(4, "why".to_owned());
        orders.cannot_open(4, "why not".to_owned());
        assert_eq!(orders.take_unopened(4), Some("why".to_owned()));
        assert_eq!((orders.take_unopened(4), orders.take_unopened(3)), (None, Some("late".into())));
    }

    #[test]
    fn each_order_to_drain_is_another_word_and_has_its_time() {
        let (orders, at) = (Orders::new(1), Instant::from_nanos);
        assert_eq!(orders.stops_by(), None);
        orders.stop_by(at(70), &[]);
        let before = orders.word();
        assert!(before.stops() && orders.stops_by() == Some(at(70)));
        orders.stop_soon(at(90), &[]);
        assert_eq!(orders.stops_by(), Some(at(70)), "it is over before");
        orders.stop_soon(at(50), &[]);
        assert_eq!(orders.stops_by(), Some(at(50)));
        orders.stop_by(at(90), &[]);
        assert!(orders.stops_by() == Some(at(90)) && orders.word() != before);
    }

    #[test]
    fn each_change_of_a_listener_is_another_word_and_is_seen_once() {
        let (orders, mut seen) = (Orders::new(1), Seen::default());
        let (first, last) = (ListenerId(0), ListenerId(NUMBER_MAX - 1));
        let before = orders.word();
        orders.turn_away(last, true, &[]);
        assert!(orders.word() != before && !orders.are_done());
        assert!(orders.turning().has(last) && !orders.turning().has(first));
        assert_eq!(orders.turning().changed(&mut seen), [(last, true)]);
        orders.turn_away(first, true, &[]);
        orders.turn_away(last, false, &[]);
        assert_eq!(orders.turning().changed(&mut seen), [(first, true), (last, false)]);
        assert_eq!(orders.turning().changed(&mut seen), []);
        for _ in 0..2 {
            let before = orders.word();
            orders.listen(Vec::new(), &[]);
            assert!(orders.word() != before && orders.word().listens());
        }
        orders.close(last, &[]);
        assert!(orders.closed().has(last) && !orders.closed().has(first));
        orders.cannot_listen(first, "why".to_owned());
        assert_eq!(orders.take_complaint(last), None);
        assert_eq!(orders.take_complaint(first), Some("why".to_owned()));
        assert_eq!(orders.take_complaint(first), None);
    }
}
