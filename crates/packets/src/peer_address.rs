//! The addresses that packets come from and go to.

use core::net::{IpAddr, SocketAddr};

use contract::{Mac, Peer};
use wire::packets::{ADDRESS_ETHERNET, ADDRESS_IPV4, ADDRESS_IPV6, AddressBody};

/// The address of a peer, as a lane sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerAddress {
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

impl PeerAddress {
    /// Returns `true` if the address has a loopback address, so that it is on this machine for
    /// certain.
    pub(crate) fn is_loopback(&self) -> bool {
        matches!(self, PeerAddress::Internet(address) if address.ip().to_canonical().is_loopback())
    }

    /// Returns `true` if the address has an address of a private network or of this machine (RFC
    /// 1918, RFC 4193).
    fn is_private(&self) -> bool {
        let PeerAddress::Internet(address) = self else { return false };
        self.is_loopback()
            || match address.ip().to_canonical() {
                IpAddr::V4(v4) => v4.is_private(),
                IpAddr::V6(v6) => v6.is_unique_local(),
            }
    }

    /// Returns the peer at the address.
    pub(crate) fn peer(&self) -> Peer {
        match *self {
            PeerAddress::Internet(address) => Peer::Packets(address),
            PeerAddress::Ethernet { mac, port } => Peer::Ethernet { mac, port },
        }
    }

    /// Returns a number for the address without its port. All addresses of one IPv6 /64 network
    /// have one number, since a host may use as many of them as it likes.
    pub(crate) fn network(&self) -> u64 {
        // The prefixes are those of multicast, so no IPv6 address has them.
        match self {
            PeerAddress::Internet(address) => match address.ip().to_canonical() {
                IpAddr::V4(v4) => 0xffff_0000 << 32 | u64::from(v4.to_bits()),
                IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
            },
            PeerAddress::Ethernet { mac, .. } => {
                mac.0.iter().fold(0xfffe, |number, byte| number << 8 | u64::from(*byte))
            }
        }
    }

    /// Returns the address as peers are told of it.
    pub(crate) fn body(&self) -> AddressBody {
        let (kind, port) = match self {
            PeerAddress::Internet(SocketAddr::V4(v4)) => (ADDRESS_IPV4, v4.port()),
            PeerAddress::Internet(SocketAddr::V6(v6)) => (ADDRESS_IPV6, v6.port()),
            PeerAddress::Ethernet { port, .. } => (ADDRESS_ETHERNET, *port),
        };
        let mut address = [0; 16];
        match self {
            PeerAddress::Internet(SocketAddr::V4(v4)) => {
                address[..4].copy_from_slice(&v4.ip().octets());
            }
            PeerAddress::Internet(SocketAddr::V6(v6)) => address = v6.ip().octets(),
            PeerAddress::Ethernet { mac, .. } => address[..6].copy_from_slice(&mac.0),
        }
        AddressBody { kind, reserved: 0, port: port.into(), zero: 0.into(), address }
    }

    /// Returns the address that a peer told; `None` if its kind is unknown.
    pub(crate) fn of_body(body: &AddressBody) -> Option<PeerAddress> {
        let (port, address) = (body.port.get(), &body.address);
        match body.kind {
            ADDRESS_IPV4 => {
                let octets: [u8; 4] = address[..4].try_into().ok()?;
                Some(PeerAddress::Internet((octets, port).into()))
            }
            ADDRESS_IPV6 => Some(PeerAddress::Internet((*address, port).into())),
            ADDRESS_ETHERNET => {
                let mac = Mac(address[..6].try_into().ok()?);
                Some(PeerAddress::Ethernet { mac, port })
            }
            _ => None,
        }
    }

    /// Returns `true` if a peer that was dialled at `dialled` may have this address, too: a single
    /// host's, of the same kind, and of a network that is no less private. So a server elsewhere
    /// cannot direct probes into the client's network, or to services of the machine itself.
    pub(crate) fn may_accompany(&self, dialled: &PeerAddress) -> bool {
        match (self, dialled) {
            (PeerAddress::Internet(told), PeerAddress::Internet(_)) => {
                let is_of_one = match told.ip().to_canonical() {
                    IpAddr::V4(v4) => {
                        let is_vague = v4.octets()[0] == 0 || v4.is_link_local();
                        !v4.is_multicast() && !v4.is_broadcast() && !is_vague
                    }
                    // A link's own addresses mean nothing without the link.
                    IpAddr::V6(v6) => {
                        !v6.is_multicast() && !v6.is_unspecified() && !v6.is_unicast_link_local()
                    }
                };
                let is_near = self.is_loopback() && !dialled.is_loopback()
                    || self.is_private() && !dialled.is_private();
                is_of_one && !is_near && told.port() != 0
            }
            (PeerAddress::Ethernet { mac, port }, PeerAddress::Ethernet { .. }) => {
                !mac.is_of_many() && *port != 0
            }
            _ => false,
        }
    }

    /// Returns the address in a canonical form: equal bytes mean equal addresses.
    pub(crate) fn encode(&self) -> [u8; 28] {
        let mut bytes = [0; 28];
        match self {
            PeerAddress::Internet(SocketAddr::V4(v4)) => {
                bytes[0] = 4;
                bytes[1..5].copy_from_slice(&v4.ip().octets());
                bytes[17..19].copy_from_slice(&v4.port().to_le_bytes());
            }
            PeerAddress::Internet(SocketAddr::V6(v6)) => {
                bytes[0] = 6;
                bytes[1..17].copy_from_slice(&v6.ip().octets());
                bytes[17..19].copy_from_slice(&v6.port().to_le_bytes());
                bytes[19..23].copy_from_slice(&v6.scope_id().to_le_bytes());
            }
            PeerAddress::Ethernet { mac, port } => {
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

    fn at(address: &str) -> PeerAddress {
        PeerAddress::Internet(address.parse().unwrap())
    }

    #[test]
    fn peers_may_have_stations_of_single_hosts_of_their_kind() {
        let dialled = at("10.0.0.1:7420");
        for good in ["10.0.1.1:7420", "192.0.2.9:1", "[2001:db8::9]:7"] {
            assert!(at(good).may_accompany(&dialled), "{good}");
        }
        for bad in [
            "127.0.0.1:22",
            "[::1]:22",
            "[::ffff:127.0.0.1]:22",
            "0.0.0.0:7420",
            "0.1.2.3:7420",
            "[::]:7",
            "224.0.0.1:7",
            "255.255.255.255:7",
            "[ff02::1]:7",
            "[fe80::1]:7",
            "10.0.1.1:0",
            "169.254.169.254:80",
        ] {
            assert!(!at(bad).may_accompany(&dialled), "{bad}");
        }
        assert!(at("127.0.0.2:7").may_accompany(&at("127.0.0.1:7")));
        for private in ["10.0.0.1:7", "172.16.0.1:7", "192.168.1.1:7", "[fd00::1]:7"] {
            assert!(!at(private).may_accompany(&at("192.0.2.9:7")), "{private}");
            assert!(at("192.0.2.9:7").may_accompany(&at(private)), "{private}");
        }
        let card = |last| PeerAddress::Ethernet { mac: Mac([2, 0, 0, 0, 0, last]), port: 7420 };
        let group = PeerAddress::Ethernet { mac: Mac([3, 0, 0, 0, 0, 1]), port: 7420 };
        assert!(card(2).may_accompany(&card(1)) && !group.may_accompany(&card(1)));
        assert!(!card(2).may_accompany(&dialled) && !dialled.may_accompany(&card(1)));
        let unknown = AddressBody { kind: 9, ..dialled.body() };
        assert_eq!(PeerAddress::of_body(&unknown), None);
    }

    #[test]
    fn ports_and_hosts_of_an_ipv6_network_count_as_one() {
        let network = |address| at(address).network();
        assert_eq!(network("10.0.0.1:1"), network("10.0.0.1:2"));
        assert_eq!(network("10.0.0.1:1"), network("[::ffff:10.0.0.1]:1"));
        assert_eq!(network("[2001:db8::1]:1"), network("[2001:db8::2]:1"));
        let cards =
            [1, 2].map(|byte| PeerAddress::Ethernet { mac: Mac([2, 0, 0, 0, 0, byte]), port: 1 });
        let all = [at("10.0.0.1:1"), at("10.0.0.2:1"), at("[2001:db8::1]:1"), cards[0], cards[1]];
        for (n, one) in all.iter().enumerate() {
            assert!(all[n + 1..].iter().all(|other| other.network() != one.network()), "{one:?}");
        }
        for one in all {
            assert_eq!(PeerAddress::of_body(&one.body()), Some(one));
        }
        assert!(at("127.0.0.9:1").is_loopback() && at("[::1]:1").is_loopback());
        assert!(!all.iter().any(PeerAddress::is_loopback));
    }
}
