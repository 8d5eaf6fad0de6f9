//! The endpoint at which a server listens, as a client's address names it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::EtherAddress;

/// The lanes of an endpoint that receives packets over UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketHosts {
    /// `HOST:PORT` of each lane that the address names, one or several; the first is dialled first.
    pub lanes: Vec<String>,
    /// Packets in flight by each path, whatever the delay; `None` for a window that follows the delay.
    pub window: Option<u16>,
}

/// The endpoint at which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEndpoint {
    /// A network endpoint, `HOST:PORT`; an IPv6 address is in brackets.
    Network(String),
    /// A network endpoint that receives packets over UDP.
    Packets(PacketHosts),
    /// The path of a Unix socket.
    Unix(String),
    /// A port at a network card of the local segment, `INTERFACE/MAC`.
    Ethernet(EtherAddress),
}

impl ServerEndpoint {
    /// Returns `true` if connections to the server are made of packets, and not streams.
    pub fn is_of_packets(&self) -> bool {
        matches!(self, ServerEndpoint::Packets(_) | ServerEndpoint::Ethernet(_))
    }
}

impl fmt::Display for ServerEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerEndpoint::Network(host_and_port) => write!(f, "reflex://{host_and_port}"),
            ServerEndpoint::Packets(hosts) => write!(f, "reflex+udp://{}", hosts.lanes[0]),
            ServerEndpoint::Unix(path) => write!(f, "reflex+unix:{path}"),
            ServerEndpoint::Ethernet(at) => write!(f, "reflex+eth://{}", at.first()),
        }
    }
}
