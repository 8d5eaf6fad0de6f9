//! Who has failed to prove who they are, how often: a table of bounded size.
//!
//! Each failure of an address counts for [`FORGET`]; with [`FAILURES_MAX`] of them nothing more is
//! asked of it, not even whether its token is right, until some are forgotten. So an address can try a
//! few tokens at once and six a minute after that, and costs a look at the table.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// Failures of an address that are looked over.
const FAILURES_MAX: u32 = 10;

/// How long it takes until one is forgotten.
const FORGET: Duration = Duration::from_secs(10);

/// Addresses that are remembered; of more, those are forgotten that failed least.
const ADDRESSES_MAX: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Failures(Mutex<Vec<Entry>>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: IpAddr,
    /// Failures that were not forgotten at `since`.
    count: u32,
    since: Instant,
}

impl Entry {
    /// Forgets what is old.
    fn age(&mut self, now: Instant) {
        let periods = now.duration_since(self.since).as_secs() / FORGET.as_secs();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        if periods >= self.count {
            (self.count, self.since) = (0, now);
        } else {
            self.count -= periods;
            self.since += FORGET * periods;
        }
    }
}

/// Whoever has one address of IPv6 has its network of 64 bits.
fn place(address: &SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Failures {
    pub(super) fn new() -> Failures {
        Failures(Mutex::new(Vec::with_capacity(ADDRESSES_MAX)))
    }

    /// For how long nothing is asked of an address; `None`: it may try.
    pub(super) fn wait(&self, address: &SocketAddr, now: Instant) -> Option<Duration> {
        let mut entries = self.0.lock().expect("no holder panics");
        let entry = entries.iter_mut().find(|entry| entry.place == place(address))?;
        entry.age(now);
        (entry.count >= FAILURES_MAX).then(|| (entry.since + FORGET).saturating_duration_since(now))
    }

    /// An address has failed.
    pub(super) fn add(&self, address: &SocketAddr, now: Instant) {
        let mut entries = self.0.lock().expect("no holder panics");
        let place = place(address);
        if let Some(entry) = entries.iter_mut().find(|entry| entry.place == place) {
            entry.age(now);
            entry.count = (entry.count + 1).min(FAILURES_MAX);
            return;
        }
        let new = Entry { place, count: 1, since: now };
        if entries.len() < ADDRESSES_MAX {
            entries.push(new);
            return;
        }
        entries.iter_mut().for_each(|entry| entry.age(now));
        let least = entries.iter_mut().min_by_key(|entry| (entry.count, entry.since));
        *least.expect("it is full") = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 9)
    }

    #[test]
    fn an_address_that_fails_has_to_wait_and_others_not() {
        let (failures, start) = (Failures::new(), Instant::now());
        let (bad, good) = (address("10.0.0.1"), address("10.0.0.2"));
        for _ in 0..FAILURES_MAX {
            assert_eq!(failures.wait(&bad, start), None);
            failures.add(&bad, start);
        }
        let half = FORGET / 2;
        assert_eq!(failures.wait(&bad, start + half), Some(half));
        assert_eq!(failures.wait(&good, start), None);
        // One is forgotten, so one more may fail.
        assert_eq!(failures.wait(&bad, start + FORGET), None);
        failures.add(&bad, start + FORGET);
        assert_eq!(failures.wait(&bad, start + FORGET), Some(FORGET));
        assert_eq!(failures.wait(&bad, start + FORGET * 100), None);
    }

    #[test]
    fn a_network_is_one_place_and_the_table_is_bounded() {
        let (failures, start) = (Failures::new(), Instant::now());
        for host in 1..=FAILURES_MAX {
            failures.add(&address(&format!("2001:db8::{host:x}")), start);
        }
        assert!(failures.wait(&address("2001:db8::ffff"), start).is_some());
        assert!(failures.wait(&address("2001:db8:0:1::1"), start).is_none());
        for n in 0..2_000_u32 {
            failures.add(&SocketAddr::new(IpAddr::V4(n.into()), 1), start);
        }
        assert_eq!(failures.0.lock().unwrap().len(), ADDRESSES_MAX);
        assert!(failures.wait(&address("2001:db8::1"), start).is_some(), "the worst stays");
    }
}
