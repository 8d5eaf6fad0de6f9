//! Delays the check of tokens from addresses that have presented many wrong ones, so that tokens
//! cannot be guessed by trial. A right token gets in after the delay, so guesses of others behind
//! the same address do not lock anybody out.
//!
//! The check itself is delayed, and not its answer: a client that does not wait has learnt nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use contract::{AuthFailures, ConnId, Credential, Hello, Instant};

/// Wrong tokens of an address that each worker tolerates without delay.
const WRONG_MAX: u32 = 32;

/// The time in which one wrong token of an address is forgotten.
const FORGET: Duration = Duration::from_secs(1);

/// Maximum number of hellos of a worker whose token check is delayed at the same time.
const WAITING_MAX: usize = 1024;

/// The counts of wrong tokens by address, and the hellos whose token check is delayed.
#[derive(Debug)]
pub(crate) struct Throttle {
    failures: AuthFailures,
    /// The delayed hellos, by the time of their check; at most [`WAITING_MAX`].
    waiting: BTreeMap<(Instant, ConnId), (IpAddr, Hello)>,
}

impl Throttle {
    /// Creates a throttle without wrong tokens.
    pub(crate) fn new() -> Throttle {
        Throttle {
            failures: AuthFailures::new(Credential::Token, WRONG_MAX, FORGET),
            waiting: BTreeMap::new(),
        }
    }

    /// Returns the number of delayed hellos.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether no more hellos can be delayed.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    /// Returns the time at which the delay of the next hello is over; `None` if no hello is
    /// delayed.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((due, _), _)| *due)
    }

    /// Returns the delay for the token check of a hello from this address; zero for none.
    pub(crate) fn delay(&mut self, address: IpAddr, now: Instant) -> Duration {
        if self.failures.wait(address, now).is_none() {
            return Duration::ZERO;
        }
        let place = AuthFailures::place(address);
        let own = self.waiting.values().filter(|(from, _)| *from == place).count();
        self.failures.delay(address, own, now)
    }

    /// Delays the check of a hello's token.
    pub(crate) fn put_off(&mut self, due: Instant, conn: ConnId, address: IpAddr, hello: Hello) {
        self.waiting.insert((due, conn), (AuthFailures::place(address), hello));
    }

    /// Takes the next hello whose delay is over, with its connection and its address; `None` if
    /// there is none.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<(ConnId, IpAddr, Hello)> {
        let entry = self.waiting.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((_, conn), (address, hello)) = entry.remove_entry();
        Some((conn, address, hello))
    }

    /// Counts a wrong token of this address.
    pub(crate) fn add(&mut self, address: IpAddr, now: Instant) {
        self.failures.add(address, now);
    }

    /// Forgets the hello of a connection that is gone.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|(_, own), _| *own != conn);
    }
}
