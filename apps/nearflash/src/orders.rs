//! What all workers of a server are told at once, in one word that each looks at once a turn: to stop,
//! to accept nothing for now, to accept from listeners that another process has passed on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use contract::ListenerId;
use io::{Listener, Waker};

/// Drain, and end.
const STOP: u32 = 1;
/// Accept nothing.
const HOLD: u32 = 2;
/// Take the listeners that lie ready.
const LISTEN: u32 = 4;
/// Added when other listeners turn away whoever comes: so each such change is another word.
const TURN: u32 = 8;

/// Listeners that can be told to turn away whoever comes: a bit for each.
pub(crate) const TURNING_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Orders {
    word: AtomicU32,
    /// The listeners that turn away whoever comes.
    turning: AtomicU64,
    /// By worker: the last word that it has carried out.
    done: Vec<AtomicU32>,
    /// By worker: it drains, and nothing of it is in flight.
    quiet: Vec<AtomicBool>,
    /// Workers that have drained.
    drained: AtomicUsize,
    /// Another process has everything.
    given: AtomicBool,
    /// For the worker that listens.
    listeners: Mutex<Vec<(ListenerId, Listener)>>,
}

impl Orders {
    /// For so many workers.
    pub(crate) fn new(workers: usize) -> Orders {
        Orders {
            word: AtomicU32::new(0),
            turning: AtomicU64::new(0),
            done: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            quiet: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            drained: AtomicUsize::new(0),
            given: AtomicBool::new(false),
            listeners: Mutex::default(),
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

    /// Tells all to accept nothing, or again.
    pub(crate) fn hold(&self, is_held: bool, wakers: &[Waker]) {
        self.tell(HOLD, is_held, wakers);
    }

    /// What the worker that listens finds when it starts.
    pub(crate) fn lay_ready(&self, listeners: Vec<(ListenerId, Listener)>) {
        self.listeners.lock().expect("no holder panics").extend(listeners);
    }

    /// Gives the worker that listens something to listen at, once.
    pub(crate) fn listen(&self, listeners: Vec<(ListenerId, Listener)>, wakers: &[Waker]) {
        self.lay_ready(listeners);
        self.tell(LISTEN, true, wakers);
    }

    /// Has a listener, below [`TURNING_MAX`], turn away whoever comes, or let them in again.
    pub(crate) fn turn_away(&self, listener: usize, turns: bool, wakers: &[Waker]) {
        let bit = 1 << listener;
        match turns {
            true => self.turning.fetch_or(bit, Ordering::AcqRel),
            false => self.turning.fetch_and(!bit, Ordering::AcqRel),
        };
        self.word.fetch_add(TURN, Ordering::AcqRel);
        wakers.iter().for_each(Waker::wake);
    }

    /// The listeners that do, a bit for each.
    pub(crate) fn turning(&self) -> u64 {
        self.turning.load(Ordering::Acquire)
    }

    /// What lies ready.
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

    /// Whether all have done what the word says.
    pub(crate) fn are_done(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        self.done.iter().all(|done| done.load(Ordering::Acquire) == word)
    }

    /// A worker drains and has nothing in flight: nothing of it will be at a device again.
    pub(crate) fn quiet(&self, worker: usize) {
        self.quiet[worker].store(true, Ordering::Release);
    }

    /// Whether all are so.
    pub(crate) fn are_quiet(&self) -> bool {
        self.quiet.iter().all(|quiet| quiet.load(Ordering::Acquire))
    }

    /// Another process has everything.
    pub(crate) fn give(&self) {
        self.given.store(true, Ordering::Release);
    }

    /// Whether that is so.
    pub(crate) fn are_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// One more has drained.
    pub(crate) fn drained(&self) {
        self.drained.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all have.
    pub(crate) fn are_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed) >= self.done.len()
    }
}

/// What the workers are told.
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

    /// That there are listeners to take.
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
}
