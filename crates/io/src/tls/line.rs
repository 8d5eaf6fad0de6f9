//! The line of connections that wait for a handshake, with limits for each address.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use contract::Instant;

/// The address to which places are charged: an IPv4 address, or an IPv6 network of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SourceNetwork([u8; 8], bool);

impl SourceNetwork {
    pub(super) fn of(address: IpAddr) -> SourceNetwork {
        let mut bytes = [0; 8];
        match address.to_canonical() {
            IpAddr::V4(four) => bytes[..4].copy_from_slice(&four.octets()),
            IpAddr::V6(six) => {
                bytes.copy_from_slice(&six.octets()[..8]);
                return SourceNetwork(bytes, true);
            }
        }
        SourceNetwork(bytes, false)
    }
}

/// The limits of each address.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddressLimits {
    /// Maximum number of simultaneous handshakes.
    pub(super) places: usize,
    /// Maximum number of waiting connections.
    pub(super) waiting: usize,
}

/// The counts of one address's connections.
#[derive(Default)]
struct AddressCounts {
    places: usize,
    waiting: usize,
}

/// A connection that waits for its TLS handshake to begin, or that has just left the waiting line.
pub(super) struct WaitingHandshake<T> {
    /// The address to which the connection is charged; `None` if it is not limited.
    pub(super) origin: Option<SourceNetwork>,
    pub(super) until: Instant,
    pub(super) what: T,
}

/// The connections that wait for a handshake, in order of arrival, and the counts of each address.
pub(super) struct HandshakeQueue<T> {
    bounds: AddressLimits,
    waiting: VecDeque<WaitingHandshake<T>>,
    counts: HashMap<SourceNetwork, AddressCounts>,
}

impl<T> HandshakeQueue<T> {
    pub(super) fn new(bounds: AddressLimits) -> HandshakeQueue<T> {
        HandshakeQueue { bounds, waiting: VecDeque::new(), counts: HashMap::new() }
    }

    /// Puts a connection at the end of the line.
    ///
    /// # Errors
    /// Returns the connection if its address has its maximum of waiting connections.
    pub(super) fn push(&mut self, one: WaitingHandshake<T>) -> Result<(), WaitingHandshake<T>> {
        if let Some(origin) = one.origin {
            let counts = self.counts.entry(origin).or_default();
            if counts.waiting == self.bounds.waiting {
                return Err(one);
            }
            counts.waiting += 1;
        }
        self.waiting.push_back(one);
        Ok(())
    }

    /// Removes the first connection whose address has a free place, and charges the place to the
    /// address; `None` if there is no such connection.
    pub(super) fn next(&mut self) -> Option<WaitingHandshake<T>> {
        let (bounds, counts) = (self.bounds, &self.counts);
        let has_place = |one: &WaitingHandshake<T>| {
            one.origin.is_none_or(|origin| counts[&origin].places < bounds.places)
        };
        let first = self.waiting.iter().position(has_place)?;
        let one = self.waiting.remove(first).expect("it was just found");
        if let Some(origin) = one.origin {
            let counts = self.counts.get_mut(&origin).expect("it is counted");
            counts.waiting -= 1;
            counts.places += 1;
        }
        Some(one)
    }

    /// Removes and returns the first connection if its time is over.
    pub(super) fn late(&mut self, now: Instant) -> Option<T> {
        let one = self.waiting.pop_front_if(|one| one.until <= now)?;
        self.uncount(one.origin, |counts| &mut counts.waiting);
        Some(one.what)
    }

    /// Frees a place that was charged to an address.
    pub(super) fn leave(&mut self, origin: Option<SourceNetwork>) {
        self.uncount(origin, |counts| &mut counts.places);
    }

    /// Returns the first connection of the line; `None` if the line is empty.
    pub(super) fn first(&self) -> Option<&WaitingHandshake<T>> {
        self.waiting.front()
    }

    fn uncount(
        &mut self,
        origin: Option<SourceNetwork>,
        of: impl FnOnce(&mut AddressCounts) -> &mut usize,
    ) {
        let Some(origin) = origin else { return };
        let counts = self.counts.get_mut(&origin).expect("it is counted");
        *of(counts) -= 1;
        if counts.places + counts.waiting == 0 {
            self.counts.remove(&origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(address: &str, what: u8) -> WaitingHandshake<u8> {
        let origin = Some(SourceNetwork::of(address.parse().unwrap()));
        WaitingHandshake { origin, until: Instant::from_nanos(u64::from(what)), what }
    }

    #[test]
    fn an_address_has_its_places_and_others_pass_by() {
        let mut line = HandshakeQueue::new(AddressLimits { places: 2, waiting: 3 });
        for what in 1..=3 {
            assert!(line.push(one("10.0.0.1", what)).is_ok());
        }
        assert!(line.push(one("::ffff:10.0.0.1", 4)).is_err(), "too many of one address");
        assert!(line.push(one("10.0.0.2", 5)).is_ok());
        let mut next = || line.next().map(|one| one.what);
        assert_eq!([next(), next(), next(), next()], [Some(1), Some(2), Some(5), None]);
        line.leave(one("10.0.0.1", 1).origin);
        assert_eq!(line.next().map(|one| one.what), Some(3));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address_and_who_waited_too_long_leaves() {
        let mut line = HandshakeQueue::new(AddressLimits { places: 1, waiting: 9 });
        for (address, what) in [("2001:db8::1", 1), ("2001:db8::2", 2), ("2001:db8:0:1::1", 3)] {
            assert!(line.push(one(address, what)).is_ok());
        }
        assert_eq!([line.next().unwrap().what, line.next().unwrap().what], [1, 3]);
        assert_eq!(line.late(Instant::from_nanos(1)), None);
        assert_eq!(line.late(Instant::from_nanos(2)), Some(2));
        for origin in [one("2001:db8::7", 0).origin, one("2001:db8:0:1::1", 0).origin] {
            line.leave(origin);
        }
        assert!(line.counts.is_empty() && line.first().is_none());
    }
}
