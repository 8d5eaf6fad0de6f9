//! Spreading new connections evenly over workers.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use contract::ListenerId;

use crate::Waker;

/// Gives each new connection to the worker that has the fewest, whichever accepted it. (Leaving it
/// to the kernel's hash, `SO_REUSEPORT`, would leave it to chance.)
#[derive(Debug)]
pub struct Spread {
    workers: Vec<Desk>,
}

/// What other threads may touch of a worker.
#[derive(Debug, Default)]
struct Desk {
    connections: AtomicUsize,
    arrivals: Mutex<Vec<Arrival>>,
    /// There are arrivals: spares the worker the lock in every turn.
    has_arrivals: AtomicBool,
    waker: OnceLock<Waker>,
}

/// A connection on its way to its worker.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) socket: OwnedFd,
    pub(crate) listener: ListenerId,
}

impl Spread {
    /// For this many workers.
    pub fn new(workers: usize) -> Arc<Self> {
        assert!(workers > 0, "at least one worker");
        Arc::new(Spread { workers: (0..workers).map(|_| Desk::default()).collect() })
    }

    /// Connections of each worker, arrivals included.
    pub fn connections(&self) -> Vec<usize> {
        self.workers.iter().map(|desk| desk.connections.load(Ordering::Relaxed)).collect()
    }

    /// Makes `worker` reachable. Called once by the worker's thread.
    pub(crate) fn register(&self, worker: usize, waker: Waker) {
        self.workers[worker].waker.set(waker).expect("a worker registers once");
    }

    /// Counts the connection to the least loaded worker and returns it.
    pub(crate) fn place(&self) -> usize {
        let load = |desk: &Desk| desk.connections.load(Ordering::Relaxed);
        let (worker, desk) = self
            .workers
            .iter()
            .enumerate()
            .min_by_key(|(_, desk)| load(desk))
            .expect("at least one worker");
        desk.connections.fetch_add(1, Ordering::Relaxed);
        worker
    }

    /// Hands a connection, placed on `worker`, over to it.
    pub(crate) fn hand_over(&self, worker: usize, arrival: Arrival) {
        let desk = &self.workers[worker];
        desk.arrivals.lock().expect("no holder of this lock panics").push(arrival);
        desk.has_arrivals.store(true, Ordering::Release);
        // A worker that has not started yet looks at its desk when it does.
        if let Some(waker) = desk.waker.get() {
            waker.wake();
        }
    }

    /// The connections that others accepted for `worker`.
    pub(crate) fn take_arrivals(&self, worker: usize) -> Vec<Arrival> {
        let desk = &self.workers[worker];
        if !desk.has_arrivals.load(Ordering::Acquire) {
            return Vec::new();
        }
        desk.has_arrivals.store(false, Ordering::Release);
        std::mem::take(&mut *desk.arrivals.lock().expect("no holder of this lock panics"))
    }

    /// A connection of `worker` is gone.
    pub(crate) fn gone(&self, worker: usize) {
        self.workers[worker].connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_go_where_there_are_fewest() {
        let spread = Spread::new(3);
        let placed: Vec<usize> = (0..7).map(|_| spread.place()).collect();
        assert_eq!(placed, [0, 1, 2, 0, 1, 2, 0]);
        spread.gone(1);
        spread.gone(1);
        assert_eq!([spread.place(), spread.place()], [1, 1]);
        assert_eq!(spread.connections(), [3, 2, 2]);
    }
}
