//! The even distribution of new connections over workers, and the path of sockets that move between
//! workers.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use contract::{CompletedPrelude, ListenerId, ServerEvent, Ticket};

use crate::Waker;
use crate::socket_table::{SocketTable, WaitingSocket};
use crate::tls::TlsState;

/// Maximum number of sockets that a worker has given away and that are still on the socket table.
const GIVEN_MAX: usize = 256;

/// Number of sockets on the socket table from which on no more are taken over from other processes.
const LANDING_MAX: usize = 4096;

/// The distribution of new connections: each goes to the worker that has the fewest, whichever
/// worker accepted it. (The kernel's hash, `SO_REUSEPORT`, would distribute them at random.)
#[derive(Debug)]
pub struct ConnectionBalancer {
    workers: Vec<WorkerEntry>,
    /// The queue of the hand-over thread, which takes the sockets of connections that leave for
    /// another process.
    hand_over: WorkerEntry,
    /// The workers that get new connections: bit `n` stands for worker `n`.
    open_to: AtomicU64,
    /// Number of connections of all workers and of the hand-over thread (`total`), and the number
    /// up to which new ones are let in (`connections_max`).
    total: AtomicUsize,
    connections_max: AtomicUsize,
    /// The sockets of connections that are moving between two workers or processes, by ticket.
    socket_table: SocketTable,
}

/// The part of a worker's state that other threads may access.
#[derive(Debug, Default)]
struct WorkerEntry {
    connections: AtomicUsize,
    /// `true` if connections have arrived. Saves the worker a look at the queue in every turn.
    has_arrivals: AtomicBool,
    /// The sending end of the queue of new connections for the worker, and the worker's waker;
    /// empty until the worker's thread runs.
    reach: OnceLock<(Sender<AcceptedConnection>, Waker)>,
}

/// A connection that was accepted and is on its way to the worker that will serve it.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) socket: OwnedFd,
    pub(crate) listener: ListenerId,
    /// The keys of a TLS connection; `None` without TLS.
    pub(crate) secured: Option<Box<TlsState>>,
    /// The outcome of the protocol's prelude; `None` without a prelude.
    pub(crate) opening: Option<Box<CompletedPrelude>>,
}

impl AcceptedConnection {
    /// Returns a connection on which no bytes were exchanged yet.
    pub(crate) fn new(socket: OwnedFd, listener: ListenerId) -> AcceptedConnection {
        AcceptedConnection { socket, listener, secured: None, opening: None }
    }
}

/// Logs that a connection is closed because the maximum is reached.
pub(crate) fn turned_away() {
    ServerEvent::RefusedFull.count();
    tracing::warn!("connection refused: this server has its maximum of connections");
}

impl ConnectionBalancer {
    /// Returns a distribution over `workers` workers, at most 64.
    pub fn new(workers: usize) -> Arc<Self> {
        assert!((1..=64).contains(&workers), "a bit for each worker");
        Arc::new(ConnectionBalancer {
            workers: (0..workers).map(|_| WorkerEntry::default()).collect(),
            hand_over: WorkerEntry::default(),
            open_to: AtomicU64::new(u64::MAX),
            total: AtomicUsize::new(0),
            connections_max: AtomicUsize::new(usize::MAX),
            socket_table: SocketTable::new(LANDING_MAX + workers * GIVEN_MAX),
        })
    }

    /// Restricts new connections to the workers whose bits are set, or to all if none is set.
    pub fn open_to(&self, workers: u64) {
        self.open_to.store(workers, Ordering::Relaxed);
    }

    /// Sets the maximum number of connections over all workers.
    pub fn bound(&self, connections_max: usize) {
        self.connections_max.store(connections_max, Ordering::Relaxed);
    }

    /// Returns the number of connections of each worker, including those on their way to it.
    pub fn connections(&self) -> Vec<usize> {
        self.workers.iter().map(|desk| desk.connections.load(Ordering::Relaxed)).collect()
    }

    /// Makes `worker` reachable, and returns the queue of connections that other workers accept for
    /// it. Called once by the worker's thread, before its first turn.
    pub(crate) fn register(&self, worker: usize, waker: Waker) -> Receiver<AcceptedConnection> {
        let (arrivals, inbox) = channel();
        let reach = self.workers[worker].reach.set((arrivals, waker));
        reach.expect("a worker registers once");
        inbox
    }

    /// Counts a new connection for the least loaded worker, and returns that worker's number;
    /// `None` if the maximum of connections is reached.
    pub(crate) fn let_in(&self) -> Option<usize> {
        if self.total.fetch_add(1, Ordering::Relaxed)
            >= self.connections_max.load(Ordering::Relaxed)
        {
            self.total.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(self.least_loaded())
    }

    /// Counts a connection that another process passes on, and returns the number of the worker
    /// that gets the connection.
    fn place(&self) -> usize {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.least_loaded()
    }

    /// Counts a connection for the worker that has the fewest, and returns that worker's number.
    /// Running workers come first, of them those that are open to new connections.
    fn least_loaded(&self) -> usize {
        let starts = |desk: &WorkerEntry| desk.reach.get().is_none();
        let load = |desk: &WorkerEntry| desk.connections.load(Ordering::Relaxed);
        let open_to = self.open_to.load(Ordering::Relaxed);
        let (worker, desk) = self
            .workers
            .iter()
            .enumerate()
            .min_by_key(|(worker, desk)| (starts(desk), open_to >> worker & 1 == 0, load(desk)))
            .expect("at least one worker");
        desk.connections.fetch_add(1, Ordering::Relaxed);
        worker
    }

    /// Sends a connection to `worker`. The connection must already be included in that worker's
    /// number of connections.
    pub(crate) fn hand_over(&self, worker: usize, arrival: AcceptedConnection) {
        let desk = &self.workers[worker];
        let (arrivals, waker) =
            desk.reach.get().expect("whoever hands over runs, and so do others");
        if arrivals.send(arrival).is_err() {
            // The worker has ended, and its process is about to.
            return self.gone(worker);
        }
        desk.has_arrivals.store(true, Ordering::Release);
        waker.wake();
    }

    /// Returns whether the queue of `worker` has got connections since the last call.
    pub(crate) fn has_arrivals(&self, worker: usize) -> bool {
        let has = &self.workers[worker].has_arrivals;
        has.load(Ordering::Acquire) && has.swap(false, Ordering::AcqRel)
    }

    /// Puts the socket of a connection that moves from worker `from` to worker `to` onto the socket
    /// table. Returns the ticket with which `to` takes it.
    pub(crate) fn shelve(
        &self,
        socket: OwnedFd,
        secured: Option<Box<TlsState>>,
        from: usize,
        to: usize,
    ) -> Ticket {
        let ticket = self.socket_table.ticket();
        self.recount(from, to);
        self.socket_table.put(ticket, WaitingSocket { socket, secured, counted: to });
        ticket
    }

    /// Returns the number of the hand-over thread, which is that behind the last worker.
    pub fn hand_over_number(&self) -> usize {
        self.workers.len()
    }

    /// Keeps the socket of a connection from another process for the worker with the fewest
    /// connections. Returns its ticket and that worker.
    ///
    /// # Errors
    /// Returns the socket if too many are on the socket table; the workers take them soon.
    pub fn land(&self, socket: OwnedFd) -> Result<(Ticket, usize), OwnedFd> {
        if self.socket_table.taken() >= LANDING_MAX {
            return Err(socket);
        }
        let (worker, ticket) = (self.place(), self.socket_table.ticket());
        self.socket_table.put(ticket, WaitingSocket { socket, secured: None, counted: worker });
        Ok((ticket, worker))
    }

    /// Closes this process's descriptor of a connection that now belongs to another process.
    pub fn let_go(&self, shelved: WaitingSocket) {
        drop(shelved);
        self.gone(self.hand_over_number());
    }

    /// Removes the socket with this ticket from the socket table and closes it, because no worker
    /// has room for the connection.
    pub fn discard(&self, ticket: Ticket) {
        if let Some(shelved) = self.socket_table.take(ticket) {
            self.gone(shelved.counted);
        }
    }

    /// Takes a socket from the socket table for a worker, or for the hand-over thread.
    ///
    /// # Panics
    /// Panics if the ticket's socket is not on the socket table.
    pub fn fetch(&self, ticket: Ticket, worker: usize) -> WaitingSocket {
        let shelved = self.socket_table.take(ticket).expect("a ticket is used once");
        self.recount(shelved.counted, worker);
        WaitingSocket { counted: worker, ..shelved }
    }

    /// Puts a socket back onto the socket table for which a worker or the hand-over thread had no
    /// room.
    pub fn shelve_again(&self, ticket: Ticket, shelved: WaitingSocket) {
        self.socket_table.put(ticket, shelved);
    }

    /// Moves the count of a connection to another worker. The connection counts there first, so
    /// that [`has_any`](ConnectionBalancer::has_any) never misses it.
    fn recount(&self, from: usize, to: usize) {
        self.desk(to).connections.fetch_add(1, Ordering::SeqCst);
        self.desk(from).connections.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns `true` if a worker has a connection, or one is on its way from a worker to the
    /// hand-over thread.
    pub fn has_any(&self) -> bool {
        // The hand-over thread last: what leaves a worker meanwhile is found with it.
        let mut desks = self.workers.iter().chain([&self.hand_over]);
        desks.any(|desk| desk.connections.load(Ordering::SeqCst) > 0)
    }

    /// Returns the desk of a worker, or of the hand-over thread.
    fn desk(&self, number: usize) -> &WorkerEntry {
        self.workers.get(number).unwrap_or(&self.hand_over)
    }

    /// Subtracts a closed connection from the counts of `worker` and of all.
    pub(crate) fn gone(&self, worker: usize) {
        self.desk(worker).connections.fetch_sub(1, Ordering::Relaxed);
        self.total.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_connections_pass_by_workers_that_are_closed() {
        let spread = ConnectionBalancer::new(3);
        spread.open_to(0b101);
        assert_eq!([spread.place(), spread.place(), spread.place()], [0, 2, 0]);
        spread.open_to(0);
        assert_eq!(spread.place(), 1);
    }

    #[test]
    fn a_socket_on_its_way_is_counted_once() {
        let spread = ConnectionBalancer::new(2);
        assert_eq!(spread.place(), 0);
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let ticket = spread.shelve(socket.into(), None, 0, 1);
        assert_eq!(spread.connections(), [0, 1]);
        let shelved = spread.fetch(ticket, 0);
        assert_eq!(spread.connections(), [1, 0]);
        spread.shelve_again(ticket, shelved);
        assert_eq!(spread.fetch(ticket, 1).counted, 1);
        assert_eq!(spread.connections(), [0, 1]);
    }

    #[test]
    fn sockets_leave_for_another_process_and_come_from_it() {
        let (here, there) = (ConnectionBalancer::new(1), ConnectionBalancer::new(2));
        assert_eq!((here.place(), there.place()), (0, 0));
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let ticket = here.shelve(socket.into(), None, 0, here.hand_over_number());
        assert!(here.connections() == [0] && here.has_any());
        let shelved = here.fetch(ticket, here.hand_over_number());
        let passed = shelved.socket().try_clone_to_owned().unwrap();
        here.let_go(shelved);
        assert!(here.connections() == [0] && !here.has_any() && there.has_any());
        let (ticket, worker) = there.land(passed).unwrap();
        assert_eq!((worker, there.connections()), (1, vec![1, 1]));
        there.discard(ticket);
        assert_eq!(there.connections(), [1, 0]);
    }

    #[test]
    fn there_are_as_many_as_may_be_whoever_has_them() {
        let spread = ConnectionBalancer::new(2);
        spread.bound(3);
        let placed: Vec<Option<usize>> = (0..4).map(|_| spread.let_in()).collect();
        assert_eq!(placed, [Some(0), Some(1), Some(0), None]);
        // On its way to the other worker, and there.
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let ticket = spread.shelve(socket.into(), None, 0, 1);
        assert_eq!(spread.let_in(), None);
        let _shelved = spread.fetch(ticket, 1);
        assert_eq!((spread.let_in(), spread.connections()), (None, vec![1, 2]));
        spread.gone(1);
        assert_eq!([spread.let_in(), spread.let_in()], [Some(0), None]);
    }

    #[test]
    fn connections_go_where_there_are_fewest() {
        let spread = ConnectionBalancer::new(3);
        let placed: Vec<usize> = (0..7).map(|_| spread.place()).collect();
        assert_eq!(placed, [0, 1, 2, 0, 1, 2, 0]);
        spread.gone(1);
        spread.gone(1);
        assert_eq!([spread.place(), spread.place()], [1, 1]);
        assert_eq!(spread.connections(), [3, 2, 2]);
    }
}
