//! The transports that a load goes over: the URLs of their servers and clients.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::bench::link::Link;

/// A transport between the server and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
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
pub(super) struct LinkAddresses {
    address: &'static str,
    interfaces: [&'static str; 2],
    mac: String,
    key: PathBuf,
}

impl LinkAddresses {
    /// Returns the places of a link. `key` is the file of the key for sealed packets.
    pub(super) fn new(link: &Link, key: PathBuf) -> Result<LinkAddresses, String> {
        let (address, interfaces) = (link.server_address(), link.interfaces());
        Ok(LinkAddresses { address, interfaces, mac: link.server_mac()?, key })
    }

    /// Returns the server's internet address.
    pub(super) fn internet(&self) -> IpAddr {
        self.address.parse().expect("links have internet addresses")
    }
}

impl Transport {
    /// Returns the URL at which the server listens on `port`.
    pub(super) fn server_url(self, places: &LinkAddresses, port: u16) -> String {
        match self {
            Transport::Tcp => format!("reflex://{}:{port}", places.address),
            Transport::XdpFixed => {
                format!("reflex+eth://{}?via=xdp&window=64&port={port}", places.interfaces[0])
            }
            _ => self.client_url(places, port),
        }
    }

    /// Returns the URL that a client uses for the server on `port`.
    pub(super) fn client_url(self, places: &LinkAddresses, port: u16) -> String {
        let LinkAddresses { address, interfaces, mac, key } = places;
        match self {
            Transport::Tcp => format!("reflex://{address}:{port}?v=2"),
            Transport::Udp => format!("reflex+udp://{address}:{port}"),
            Transport::UdpFixed => format!("reflex+udp://{address}:{port}?window=64"),
            Transport::XdpFixed => {
                let client = interfaces[1];
                format!("reflex+eth://{client}/{mac}?via=xdp&window=64&port={port}")
            }
            Transport::SealedFixed => {
                format!("reflex+udp://{address}:{port}?window=64&key={}", key.display())
            }
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
            Transport::UdpFixed => "UDP, `window=64`",
            Transport::XdpFixed => "AF_XDP, `window=64`",
            Transport::SealedFixed => "UDP, sealed, `window=64`",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_clients_agree_about_the_port() {
        let (mac, key) = ("02:00:00:00:00:01".to_owned(), PathBuf::from("/k"));
        let places = LinkAddresses { address: "10.0.0.1", interfaces: ["a", "b"], mac, key };
        let urls = |transport: Transport| {
            (transport.server_url(&places, 81), transport.client_url(&places, 81))
        };
        let (server, client) = urls(Transport::Tcp);
        assert_eq!(server, "reflex://10.0.0.1:81");
        assert_eq!(client, "reflex://10.0.0.1:81?v=2");
        let (server, client) = urls(Transport::SealedFixed);
        assert_eq!(server, client);
        assert_eq!(client, "reflex+udp://10.0.0.1:81?window=64&key=/k");
        let (server, client) = urls(Transport::XdpFixed);
        assert_eq!(server, "reflex+eth://a?via=xdp&window=64&port=81");
        assert_eq!(client, "reflex+eth://b/02:00:00:00:00:01?via=xdp&window=64&port=81");
    }
}
