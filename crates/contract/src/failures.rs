//! Failed authentications by address, in a table of bounded size.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use crate::{Credential, Instant};

/// Maximum number of addresses in the table. A new address replaces the one with the fewest
/// failures.
const ADDRESSES_MAX: usize = 256;

/// Delay before the next credential is checked from an address that has failed too often.
const DELAY: Duration = Duration::from_secs(1);

/// Additional delay for each credential of the address that is waiting already.
const DELAY_STEP: Duration = Duration::from_millis(100);

/// Longest delay before a credential is checked.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// Failed authentications by address, which are forgotten one after another. An IPv6 address stands
/// for its network of 64 bits, which one host may have to itself.
///
/// An address with the tolerated number of failures can be refused until one failure is forgotten
/// ([`wait`](AuthFailures::wait)), or checked late ([`delay`](AuthFailures::delay)). A delay admits
/// every peer with the secret, even if others behind the same address guess. It limits guesses to
/// ten per second and address for up to ninety waiting connections, and to one more per second for
/// each ten beyond.
#[derive(Debug)]
pub struct AuthFailures {
    /// The type of credential that the failures belong to.
    of: Credential,
    entries: Vec<Entry>,
    most: u32,
    forget: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: IpAddr,
    /// Failures that were not forgotten at `since`; at most `most`.
    count: u32,
    since: Instant,
}

impl Entry {
    /// Forgets one failure of the address for each period `forget` since `since`.
    fn age(&mut self, now: Instant, forget: Duration) {
        let periods = now.since(self.since).as_nanos() / forget.as_nanos();
        match u32::try_from(periods) {
            Ok(periods) if periods < self.count => {
                self.count -= periods;
                self.since = self.since + forget * periods;
            }
            _ => (self.count, self.since) = (0, now),
        }
    }
}

impl AuthFailures {
    /// Returns a table for this type of credential. `most` failures are tolerated, and one failure
    /// is forgotten every `forget`, which must not be zero.
    pub fn new(of: Credential, most: u32, forget: Duration) -> AuthFailures {
        assert!(!forget.is_zero(), "what is never there cannot be forgotten");
        AuthFailures { of, entries: Vec::with_capacity(ADDRESSES_MAX), most, forget }
    }

    /// Returns the time until the next failure of an address is forgotten; `None` if the address
    /// has fewer failures than are tolerated, so that it may try now.
    pub fn wait(&mut self, address: IpAddr, now: Instant) -> Option<Duration> {
        let (most, forget) = (self.most, self.forget);
        let place = AuthFailures::place(address);
        let entry = self.entries.iter_mut().find(|entry| entry.place == place)?;
        entry.age(now, forget);
        (entry.count >= most).then(|| (entry.since + forget).since(now))
    }

    /// Returns the delay before a credential from this address is checked, if `waiting` of its
    /// connections wait already. Zero, unless the address has failed too often.
    pub fn delay(&mut self, address: IpAddr, waiting: usize, now: Instant) -> Duration {
        if self.wait(address, now).is_none() {
            return Duration::ZERO;
        }
        self.count_delay();
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        DELAY.saturating_add(DELAY_STEP.saturating_mul(waiting)).min(DELAY_MAX)
    }

    /// Counts a credential that is delayed, or refused for now.
    pub fn count_delay(&self) {
        self.of.delayed().count();
    }

    /// Returns the key of an address in the table: the address for IPv4, its network of 64 bits for
    /// IPv6.
    pub fn place(address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
            v4 @ IpAddr::V4(_) => v4,
        }
    }

    /// Counts a failed authentication of an address.
    pub fn add(&mut self, address: IpAddr, now: Instant) {
        self.of.failed().count();
        let (place, most, forget) = (AuthFailures::place(address), self.most, self.forget);
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.place == place) {
            entry.age(now, forget);
            entry.count = (entry.count + 1).min(most);
            return;
        }
        let new = Entry { place, count: 1, since: now };
        if self.entries.len() < ADDRESSES_MAX {
            self.entries.push(new);
            return;
        }
        self.entries.iter_mut().for_each(|entry| entry.age(now, forget));
        let least = self.entries.iter_mut().min_by_key(|entry| (entry.count, entry.since));
        *least.expect("it is full") = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u32 = 10;
    const FORGET: Duration = Duration::from_secs(10);

    fn table() -> (AuthFailures, Instant) {
        (AuthFailures::new(Credential::Token, MOST, FORGET), Instant::from_nanos(77))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_that_fails_has_to_wait_and_others_not() {
        let (mut failures, start) = table();
        let (bad, good) = (address("10.0.0.1"), address("10.0.0.2"));
        for _ in 0..MOST {
            assert_eq!(failures.wait(bad, start), None);
            failures.add(bad, start);
        }
        let half = FORGET / 2;
        assert_eq!(failures.wait(bad, start + half), Some(half));
        assert_eq!(failures.wait(good, start), None);
        // A failure is forgotten, so that one more is tolerated.
        assert_eq!(failures.wait(bad, start + FORGET), None);
        failures.add(bad, start + FORGET);
        assert_eq!(failures.wait(bad, start + FORGET), Some(FORGET));
        assert_eq!(failures.wait(bad, start + FORGET * 100), None);
    }

    #[test]
    fn who_guesses_is_looked_at_late_and_never_later_than_ten_seconds() {
        let (mut failures, start) = table();
        let (bad, good) = (address("10.0.0.1"), address("10.0.0.2"));
        for _ in 0..MOST {
            assert_eq!(failures.delay(bad, 1_000, start), Duration::ZERO);
            failures.add(bad, start);
        }
        assert_eq!(failures.delay(good, 1_000, start), Duration::ZERO);
        assert_eq!(failures.delay(bad, 0, start), DELAY);
        assert_eq!(failures.delay(bad, 10, start), 2 * DELAY);
        assert_eq!(failures.delay(bad, usize::MAX, start), DELAY_MAX);
        // Up to ninety waiting connections of an address have at most ten credentials checked per
        // second.
        let mut looked_at =
            |held: usize| held as f64 / failures.delay(bad, held, start).as_secs_f64();
        assert!((1..=90).all(|held| looked_at(held) <= 10.0));
        assert!(looked_at(1_000) <= 100.0);
        assert_eq!(failures.delay(bad, 0, start + FORGET), Duration::ZERO, "one is forgotten");
    }

    #[test]
    fn a_network_is_one_place_and_the_table_is_bounded() {
        let (mut failures, start) = table();
        for host in 1..=u128::from(MOST) {
            let network = 0x2001_0db8_u128 << 96;
            failures.add(IpAddr::V6((network | host).into()), start);
        }
        assert!(failures.wait(address("2001:db8::ffff"), start).is_some());
        assert!(failures.wait(address("2001:db8:0:1::1"), start).is_none());
        for n in 0..2_000_u32 {
            failures.add(IpAddr::V4(n.into()), start);
        }
        assert_eq!(failures.entries.len(), ADDRESSES_MAX);
        assert!(failures.wait(address("2001:db8::1"), start).is_some(), "the worst stays");
    }
}
