//! The socket table: places for sockets on their way between two workers, or two processes.
//!
//! A ticket determines the place where the search for its socket begins. A thread that has claimed
//! a place has exclusive access to it, so no thread waits for another. A ticket is valid for one
//! socket at a time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use contract::{Ticket, TryLock};

use crate::tls::TlsState;

/// A socket that is between two workers, or two processes.
#[derive(Debug)]
pub struct WaitingSocket {
    pub(crate) socket: OwnedFd,
    /// The keys of a TLS connection, which cannot be passed to another process.
    pub(crate) secured: Option<Box<TlsState>>,
    /// The number of the worker in whose number of connections this connection is included.
    pub(crate) counted: usize,
}

impl WaitingSocket {
    /// Returns the connection's socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns `true` if the connection cannot move to another process, because it uses TLS.
    pub fn is_bound(&self) -> bool {
        self.secured.is_some()
    }
}

/// A table of sockets that are on their way between workers or processes, found by ticket.
#[derive(Debug)]
pub(crate) struct SocketTable {
    places: Box<[SocketEntry]>,
    /// The number of tickets issued so far.
    tickets: AtomicU64,
    /// The number of occupied places.
    taken: AtomicUsize,
}

#[derive(Debug, Default)]
struct SocketEntry {
    /// [`FREE`], [`BUSY`], or the ticket plus [`FIRST`].
    state: AtomicU64,
    shelved: TryLock<Option<WaitingSocket>>,
}

/// Value of a place's state while the place is empty.
const FREE: u64 = 0;
/// State of a place that a thread fills or empties.
const BUSY: u64 = 1;
const FIRST: u64 = 2;

impl SocketTable {
    /// Creates a table of `places` empty places.
    pub(crate) fn new(places: usize) -> SocketTable {
        let places = (0..places).map(|_| SocketEntry::default()).collect();
        SocketTable { places, tickets: AtomicU64::new(0), taken: AtomicUsize::new(0) }
    }

    /// Returns a ticket that was not issued before.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number of occupied places.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Puts a socket into the first free place from its ticket's place on.
    ///
    /// # Panics
    /// Panics if all places are taken.
    pub(crate) fn put(&self, ticket: Ticket, shelved: WaitingSocket) {
        let place = self.claim(ticket, FREE).expect("there are as many places as may be under way");
        place.exchange(Some(shelved));
        place.state.store(ticket.0 + FIRST, Ordering::Release);
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the socket of a ticket off the socket table; `None` if it is not there.
    pub(crate) fn take(&self, ticket: Ticket) -> Option<WaitingSocket> {
        let place = self.claim(ticket, ticket.0 + FIRST)?;
        let shelved = place.exchange(None);
        place.state.store(FREE, Ordering::Release);
        self.taken.fetch_sub(1, Ordering::Relaxed);
        shelved
    }

    /// Claims a place in this state for the calling thread, beginning the search at the ticket's
    /// place; `None` if no place is in this state.
    fn claim(&self, ticket: Ticket, state: u64) -> Option<&SocketEntry> {
        let first = (ticket.0 % self.places.len() as u64) as usize;
        let (before, behind) = self.places.split_at(first);
        behind.iter().chain(before).find(|place| {
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            place.state.load(Ordering::Relaxed) == state
                && place.state.compare_exchange(state, BUSY, success, failure).is_ok()
        })
    }
}

impl SocketEntry {
    /// Stores `shelved` in the place and returns the previous content. Only the thread that has
    /// claimed the place may call this function.
    fn exchange(&self, shelved: Option<WaitingSocket>) -> Option<WaitingSocket> {
        let before = self.shelved.try_with(|here| std::mem::replace(here, shelved));
        before.expect("a claimed place is one thread's")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn shelved(counted: usize) -> WaitingSocket {
        WaitingSocket { socket: UnixStream::pair().unwrap().0.into(), secured: None, counted }
    }

    #[test]
    fn a_ticket_finds_its_socket_once_wherever_it_is() {
        let socket_table = SocketTable::new(3);
        let tickets: Vec<Ticket> = (0..6).map(|_| socket_table.ticket()).collect();
        // All look for the first place.
        socket_table.put(tickets[0], shelved(0));
        socket_table.put(tickets[3], shelved(3));
        assert_eq!(socket_table.taken(), 2);
        assert_eq!(socket_table.take(tickets[0]).unwrap().counted, 0);
        assert!(socket_table.take(tickets[0]).is_none(), "it is gone");
        let back = socket_table.take(tickets[3]).unwrap();
        socket_table.put(tickets[3], back);
        assert_eq!(socket_table.take(tickets[3]).unwrap().counted, 3);
        assert!(socket_table.taken() == 0 && socket_table.take(tickets[1]).is_none());
    }

    #[test]
    fn threads_get_the_sockets_of_their_tickets() {
        let socket_table = SocketTable::new(8);
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let socket_table = &socket_table;
                threads.spawn(move || {
                    for n in 0..200 {
                        let ticket = socket_table.ticket();
                        socket_table.put(ticket, shelved(thread * 1_000 + n));
                        assert_eq!(socket_table.take(ticket).unwrap().counted, thread * 1_000 + n);
                    }
                });
            }
        });
        assert_eq!(socket_table.taken(), 0);
    }
}
