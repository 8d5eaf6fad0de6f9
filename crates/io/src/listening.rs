//! The addresses at which a process listens, and the interfaces that lead to them, from the
//! kernel's tables in `/proc`. Deliberately not here: reading the tables.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a TCP socket that listens.
const LISTENS: &str = "0A";

/// The state of a UDP socket without a peer.
const UNCONNECTED: &str = "07";

/// The place at which a socket listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListeningAddress {
    /// An address of TCP or UDP; the word is `tcp` or `udp`.
    Address(&'static str, SocketAddr),
    /// The packets of the interface of this index.
    Packets(u64),
}

/// Returns the places at which a process listens for other machines. `links` are the targets of the
/// links in its folder `fd`, and `table` returns a file of its folder `net`, empty if it cannot be
/// read.
pub fn listening(links: &[String], table: impl Fn(&str) -> String) -> BTreeSet<ListeningAddress> {
    let inode = |link: &String| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    let inodes: BTreeSet<String> = links.iter().filter_map(inode).collect();
    let mut places = BTreeSet::new();
    for (file, protocol, state) in [
        ("tcp", "tcp", LISTENS),
        ("tcp6", "tcp", LISTENS),
        ("udp", "udp", UNCONNECTED),
        ("udp6", "udp", UNCONNECTED),
    ] {
        for columns in rows(&table(file)) {
            let [_, local, _, is, _, _, _, _, _, inode, ..] = &columns[..] else { continue };
            let address = parse_address(local).filter(|address| !address.ip().is_loopback());
            if is == state && inodes.contains(inode) {
                places.extend(address.map(|address| ListeningAddress::Address(protocol, address)));
            }
        }
    }
    for columns in rows(&table("packet")) {
        let [_, _, _, _, index, _, _, _, inode, ..] = &columns[..] else { continue };
        if inodes.contains(inode) {
            places.extend(index.parse().ok().map(ListeningAddress::Packets));
        }
    }
    places
}

/// Returns the columns of each row of a table, without its head.
fn rows(table: &str) -> Vec<Vec<String>> {
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    table.lines().skip(1).map(columns).collect()
}

/// Parses `ADDRESS:PORT` of a table: hexadecimal words in the order of this machine.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(address.get(8 * at..8 * at + 8)?, 16).ok();
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for (at, piece) in bytes.chunks_mut(4).enumerate() {
                piece.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Returns the interface whose subnet has a local address, by the table `route`: that of the
/// longest route without a gateway.
pub fn interface_to(address: Ipv4Addr, routes: &str) -> Option<String> {
    let number = |text: &String| u32::from_str_radix(text, 16).ok();
    let address = u32::from_ne_bytes(address.octets());
    let route = |columns: Vec<String>| {
        let [interface, to, gateway, _, _, _, _, mask, ..] = &columns[..] else { return None };
        let (to, mask) = (number(to)?, number(mask)?);
        let is_its = number(gateway)? == 0 && address & mask == to;
        is_its.then(|| (mask.count_ones(), interface.clone()))
    };
    rows(routes).into_iter().filter_map(route).max().map(|(_, name)| name)
}

/// Returns the interfaces that have a local address, by the table `if_inet6`.
pub fn interfaces_with(address: Ipv6Addr, table: &str) -> Vec<String> {
    let wanted: String = address.octets().iter().map(|byte| format!("{byte:02x}")).collect();
    let own = table.lines().filter(|line| line.starts_with(&wanted));
    own.filter_map(|line| line.split_whitespace().last().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_kinds_are_read() {
        let read = |text: &str| parse_address(text).map(|address| address.to_string());
        assert_eq!(read("0100000A:1144").as_deref(), Some("10.0.0.1:4420"));
        let six = "000000FD000000000000000002000000:1144";
        #[cfg(target_endian = "little")]
        assert_eq!(read(six).as_deref(), Some("[fd00::2]:4420"));
        for wrong in ["", "0100000A", "01:1", "0100000A:x", "0100000G:1144"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_longest_route_without_a_gateway_leads_to_an_address() {
        let routes = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                      eth1 00000000 0100000B 3 0 0 0 00000000 0 0 0\n\
                      eth2 0000000A 00000000 1 0 0 0 000000FF 0 0 0\n\
                      eth0 0000000A 00000000 1 0 0 0 00FFFFFF 0 0 0\n";
        let to = |text: &str| interface_to(text.parse().unwrap(), routes);
        #[cfg(target_endian = "little")]
        assert_eq!(
            ["10.0.0.1", "10.1.0.1", "192.168.0.1"].map(to),
            [Some("eth0".to_owned()), Some("eth2".to_owned()), None]
        );
        assert_eq!(interface_to(Ipv4Addr::LOCALHOST, "head\nshort row\n"), None);
    }
}
