//! The check for addresses at which a server would listen twice.

use std::net::{IpAddr, SocketAddr};

use contract::EtherCard;
use control::admin::AdminAddress;
use io::{Endpoint, UnixPath};

use crate::admin::{AdminAddresses, tls_place};
use crate::config::{Config, ConfigLocation, Mistakes};
use crate::listen::ListenAt;

/// Adds a mistake for each configured address that cannot be bound, because another listener has
/// the address or it is invalid.
pub(super) fn check(
    config: &Config,
    listen: &[ListenAt],
    metrics: Option<SocketAddr>,
    mistakes: &mut Mistakes,
) {
    let of_clients = listen.iter().map(|at| {
        let place = config.place_of_listener(at.number);
        (at.endpoint.clone(), format!("listener {}", at.number), place)
    });
    let mut all: Vec<(Endpoint, String, Option<ConfigLocation>)> = of_clients.collect();
    let of_admin = Some(ConfigLocation::In("admin", "listen"));
    if let Some(AdminAddresses::At(each)) = &config.admin.listen {
        for address in each {
            let endpoint = match address {
                AdminAddress::Unix(path) => {
                    UnixPath::new(path).map(Endpoint::from).map_err(|error| error.to_string())
                }
                AdminAddress::Tcp(at) => Ok((*at).into()),
                AdminAddress::Tls { .. } => tls_place(address).map(Endpoint::from),
            };
            let endpoint = endpoint.map_err(|error| format!("the admin API at {address}: {error}"));
            if let Some(endpoint) = mistakes.take(of_admin, endpoint) {
                all.push((endpoint, "the admin API".to_owned(), of_admin));
            }
        }
    }
    if let Some(address) = metrics {
        all.push((address.into(), "--metrics".to_owned(), None));
    }
    let dual = is_dual();
    for (n, (endpoint, what, place)) in all.iter().enumerate() {
        if let Some((_, other, _)) = all[..n].iter().find(|one| clash(&one.0, endpoint, dual)) {
            let said =
                format!("{what}: {endpoint} is where {other} listens; expected a place of its own");
            mistakes.add(*place, said);
        }
    }
}

/// Returns true if the unspecified IPv6 address includes IPv4 (`bindv6only` of ip-sysctl is 0).
fn is_dual() -> bool {
    let only = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
    only.is_ok_and(|only| only.trim() == "0")
}

/// Returns true if two listeners cannot be open at these addresses at the same time.
fn clash(one: &Endpoint, other: &Endpoint, dual: bool) -> bool {
    if let (Endpoint::Ethernet(one), Endpoint::Ethernet(other)) = (one, other) {
        let has = |card: &EtherCard| {
            other.cards().iter().any(|other| other.interface() == card.interface())
        };
        return one.port == other.port && one.cards().iter().any(has);
    }
    let (one, other) = match (one, other) {
        (Endpoint::Internet(one), Endpoint::Internet(other)) => (one, other),
        // A server has one listener of packets.
        (Endpoint::Packets(one), Endpoint::Packets(other)) => (&one.first(), &other.first()),
        _ => return one == other,
    };
    let covers = |wide: IpAddr, narrow: IpAddr| {
        wide.is_unspecified() && (wide.is_ipv4() == narrow.is_ipv4() || wide.is_ipv6() && dual)
    };
    let (a, b) = (one.ip(), other.ip());
    one.port() == other.port() && one.port() != 0 && (a == b || covers(a, b) || covers(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Tests that the check finds the clashes of addresses that the kernel finds.
    #[test]
    fn places_clash_where_the_kernel_says_so() {
        let places = ["127.0.0.1", "127.0.0.2", "0.0.0.0", "[::1]", "[::]"];
        for first in places {
            let Ok(held) = TcpListener::bind(format!("{first}:0")) else { continue };
            let address = held.local_addr().unwrap();
            for second in places {
                let second = format!("{second}:{}", address.port()).parse::<SocketAddr>().unwrap();
                let refused = match TcpListener::bind(second) {
                    Ok(_) => false,
                    Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => true,
                    Err(_) => continue,
                };
                let foreseen = clash(&address.into(), &second.into(), is_dual());
                assert_eq!(foreseen, refused, "{address} and {second}");
            }
        }
        let any_port: Endpoint = "127.0.0.1:0".parse::<SocketAddr>().unwrap().into();
        assert!(!clash(&any_port, &any_port, true));
    }
}
