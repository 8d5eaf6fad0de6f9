//! The kinds of sockets that a lane may lie over.

use crate::ether::EtherPort;

/// The kind of a lane's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketKind {
    /// A UDP socket: connected to its only peer, or not.
    Udp { is_connected: bool },
    /// A packet socket of the Ethernet card with this number, for frames to a port.
    Ethernet { index: i32, port: u16 },
}

impl SocketKind {
    /// Returns the kind of the packet sockets for a port at a card (`ether_port`).
    pub(crate) fn at(ether_port: &EtherPort) -> SocketKind {
        SocketKind::Ethernet { index: ether_port.card.index, port: ether_port.port }
    }
}
