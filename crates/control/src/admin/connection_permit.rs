//! The seat of a connection to the API: the limited resources that the connection holds until it
//! and its requests have ended.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use contract::AuthFailures;
use tokio::sync::OwnedSemaphorePermit;

/// Maximum number of connections of one address at a network endpoint; for IPv6, of one network of
/// 64 bits.
const CONNECTIONS_OF_ADDRESS_MAX: usize = 8;

/// The addresses of the open connections at a network endpoint, once for each connection. One
/// address cannot take all connections, nor can a host that has an IPv6 network to itself.
#[derive(Debug, Default)]
pub(super) struct AddressSlots(Mutex<Vec<IpAddr>>);

/// A connection's entry among the [`AddressSlots`], removed when this value is dropped.
pub(super) struct AddressSlot {
    of: Arc<AddressSlots>,
    address: IpAddr,
}

impl AddressSlots {
    pub(super) fn take(of: &Arc<AddressSlots>, address: IpAddr) -> Option<AddressSlot> {
        let address = AuthFailures::place(address);
        let mut taken = of.0.lock().expect("no holder panics");
        if taken.iter().filter(|one| **one == address).count() >= CONNECTIONS_OF_ADDRESS_MAX {
            return None;
        }
        taken.push(address);
        Some(AddressSlot { of: of.clone(), address })
    }
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        let mut taken = self.of.0.lock().expect("no holder panics");
        if let Some(n) = taken.iter().position(|one| *one == self.address) {
            taken.swap_remove(n);
        }
    }
}

/// A connection's share of limited resources (a place among all connections, and among those of its
/// address). It is returned when the connection and its requests have ended.
#[derive(Clone)]
pub(super) struct ConnectionPermit {
    _held: Arc<(OwnedSemaphorePermit, Option<AddressSlot>)>,
}

impl ConnectionPermit {
    pub(super) fn of(permit: OwnedSemaphorePermit, slot: Option<AddressSlot>) -> ConnectionPermit {
        ConnectionPermit { _held: Arc::new((permit, slot)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_has_the_places_of_one_address() {
        let slots = Arc::new(AddressSlots::default());
        let take = |text: &str| AddressSlots::take(&slots, text.parse().unwrap());
        let held: Vec<Option<AddressSlot>> =
            (0..9).map(|n| take(&format!("2001:db8::{n}:1"))).collect();
        assert_eq!(held.iter().flatten().count(), CONNECTIONS_OF_ADDRESS_MAX);
        assert!(take("2001:db8:0:1::1").is_some() && take("10.0.0.1").is_some());
        drop(held);
        let held: Vec<Option<AddressSlot>> = (0..8).map(|_| take("::ffff:10.0.0.1")).collect();
        assert!(held.iter().all(Option::is_some) && take("10.0.0.1").is_none());
        assert!(take("10.0.0.2").is_some());
    }
}
