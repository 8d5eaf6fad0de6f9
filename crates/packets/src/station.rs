//! The addresses that packets come from and go to.

use core::net::SocketAddr;

/// The address of a peer on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Station {
    /// A UDP port.
    Internet(SocketAddr),
    /// A network card on the same segment, and the queue behind it.
    Ethernet {
        /// The address of the card.
        mac: [u8; 6],
        /// The number of the queue.
        queue: u16,
    },
}

impl Station {
    /// Writes the address in a form that is the same for the same address only.
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
            Station::Ethernet { mac, queue } => {
                bytes[0] = 1;
                bytes[1..7].copy_from_slice(mac);
                bytes[7..9].copy_from_slice(&queue.to_le_bytes());
            }
        }
        bytes
    }
}
