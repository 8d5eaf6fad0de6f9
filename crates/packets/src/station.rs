//! The addresses that packets come from and go to.

use core::net::{IpAddr, SocketAddr};

use contract::{Mac, Peer};

/// The address of a peer, as a lane sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Station {
    /// An IP address and a UDP port.
    Internet(SocketAddr),
    /// A port behind a network card of the local segment.
    Ethernet {
        /// The Ethernet address of the card.
        mac: Mac,
        /// The number of the port, by which processes are told apart.
        port: u16,
    },
}

impl Station {
    /// Returns `true` if the station has a loopback address, so that it is on this machine for
    /// certain.
    pub(crate) fn is_loopback(&self) -> bool {
        matches!(self, Station::Internet(address) if address.ip().to_canonical().is_loopback())
    }

    /// Returns the peer at the station.
    pub(crate) fn peer(&self) -> Peer {
        match *self {
            Station::Internet(address) => Peer::Packets(address),
            Station::Ethernet { mac, port } => Peer::Ethernet { mac, port },
        }
    }

    /// Returns a number for the address without its port. All addresses of one IPv6 /64 network
    /// have one number, since a host may use as many of them as it likes.
    pub(crate) fn network(&self) -> u64 {
        // The prefixes are those of multicast, so no IPv6 station has them.
        match self {
            Station::Internet(address) => match address.ip().to_canonical() {
                IpAddr::V4(v4) => 0xffff_0000 << 32 | u64::from(v4.to_bits()),
                IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
            },
            Station::Ethernet { mac, .. } => {
                mac.0.iter().fold(0xfffe, |number, byte| number << 8 | u64::from(*byte))
            }
        }
    }

    /// Returns the address in a canonical form: equal bytes mean equal addresses.
    pub(crate) fn encode(&self) -> [u8; 28] {
        let mut bytes = [0; 28];
        match self {
            Station::Internet(SocketAddr::V4(v4)) => {
                bytes[0] = 4;
                bytes[1..5].copy_from_slice(&v4.ip().octets());
                bytes[17..19].copy_from_slice(&v4.port().to_le_bytes());
            }
            Station::Internet(SocketAddr::V6(v6)) => {
                bytes[0] = 6;
                bytes[1..17].copy_from_slice(&v6.ip().octets());
                bytes[17..19].copy_from_slice(&v6.port().to_le_bytes());
                bytes[19..23].copy_from_slice(&v6.scope_id().to_le_bytes());
            }
            Station::Ethernet { mac, port } => {
                bytes[0] = 1;
                bytes[1..7].copy_from_slice(&mac.0);
                bytes[7..9].copy_from_slice(&port.to_le_bytes());
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Station {
        Station::Internet(address.parse().unwrap())
    }

    #[test]
    fn ports_and_hosts_of_an_ipv6_network_count_as_one() {
        let network = |address| at(address).network();
        assert_eq!(network("10.0.0.1:1"), network("10.0.0.1:2"));
        assert_eq!(network("10.0.0.1:1"), network("[::ffff:10.0.0.1]:1"));
        assert_eq!(network("[2001:db8::1]:1"), network("[2001:db8::2]:1"));
        let cards =
            [1, 2].map(|byte| Station::Ethernet { mac: Mac([2, 0, 0, 0, 0, byte]), port: 1 });
        let all = [at("10.0.0.1:1"), at("10.0.0.2:1"), at("[2001:db8::1]:1"), cards[0], cards[1]];
        for (n, one) in all.iter().enumerate() {
            assert!(all[n + 1..].iter().all(|other| other.network() != one.network()), "{one:?}");
        }
        assert!(at("127.0.0.9:1").is_loopback() && at("[::1]:1").is_loopback());
        assert!(!all.iter().any(Station::is_loopback));
    }
}
