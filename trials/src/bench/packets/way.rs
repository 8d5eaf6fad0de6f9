//! The transports that a load goes over: the URLs of their servers and clients.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::bench::link::Link;

/// A transport between the server and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Tcp,
    /// UDP with the window that the end finds by delays.
    Udp,
    /// UDP with a window of 64 packets.
    UdpFixed,
    /// AF_XDP with a window of 64 packets.
    XdpFixed,
    /// Sealed packets over UDP, with a window of 64 packets.
    SealedFixed,
}

/// The names and addresses in the URLs of a link.
pub(super) struct Places {
    address: &'static str,
    interfaces: [&'static str; 2],
    mac: String,
    key: PathBuf,
}

impl Places {
    /// Returns the places of a link. `key` is the file of the key for sealed packets.
    pub(super) fn new(link: &Link, key: PathBuf) -> Result<Places, String> {
        let (address, interfaces) = (link.server_address(), link.interfaces());
        Ok(Places { address, interfaces, mac: link.server_mac()?, key })
    }

    /// Returns the server's internet address.
    pub(super) fn internet(&self) -> IpAddr {
        self.address.parse().expect("links have internet addresses")
    }
}

impl Way {
    /// Returns the URL at which the server listens on `port`.
    pub(super) fn server_url(self, places: &Places, port: u16) -> String {
        match self {
            Way::Tcp => format!("reflex://{}:{port}", places.address),
            Way::XdpFixed => {
                format!("reflex+eth://{}?via=xdp&window=64&port={port}", places.interfaces[0])
            }
            _ => self.client_url(places, port),
        }
    }

    /// Returns the URL that a client uses for the server on `port`.
    pub(super) fn client_url(self, places: &Places, port: u16) -> String {
        let Places { address, interfaces, mac, key } = places;
        match self {
            Way::Tcp => format!("reflex://{address}:{port}?v=2"),
            Way::Udp => format!("reflex+udp://{address}:{port}"),
            Way::UdpFixed => format!("reflex+udp://{address}:{port}?window=64"),
            Way::XdpFixed => {
                let client = interfaces[1];
                format!("reflex+eth://{client}/{mac}?via=xdp&window=64&port={port}")
            }
            Way::SealedFixed => {
                format!("reflex+udp://{address}:{port}?window=64&key={}", key.display())
            }
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Tcp => "TCP",
            Way::Udp => "UDP",
            Way::UdpFixed => "UDP, `window=64`",
            Way::XdpFixed => "AF_XDP, `window=64`",
            Way::SealedFixed => "UDP, sealed, `window=64`",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_clients_agree_about_the_port() {
        let (mac, key) = ("02:00:00:00:00:01".to_owned(), PathBuf::from("/k"));
        let places = Places { address: "10.0.0.1", interfaces: ["a", "b"], mac, key };
        let urls = |way: Way| (way.server_url(&places, 81), way.client_url(&places, 81));
        let (server, client) = urls(Way::Tcp);
        assert_eq!(server, "reflex://10.0.0.1:81");
        assert_eq!(client, "reflex://10.0.0.1:81?v=2");
        let (server, client) = urls(Way::SealedFixed);
        assert_eq!(server, client);
        assert_eq!(client, "reflex+udp://10.0.0.1:81?window=64&key=/k");
        let (server, client) = urls(Way::XdpFixed);
        assert_eq!(server, "reflex+eth://a?via=xdp&window=64&port=81");
        assert_eq!(client, "reflex+eth://b/02:00:00:00:00:01?via=xdp&window=64&port=81");
    }
}
