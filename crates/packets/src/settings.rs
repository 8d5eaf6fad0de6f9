//! The settings of a new endpoint: the sizes of its tables, its secret, and its rules.

use core::fmt;

use crate::control::Policy;
use crate::key::PacketKey;
use crate::peer_address::PeerAddress;

/// Maximum number of lanes of an endpoint.
pub const LANES_MAX: usize = contract::PacketReading::LANES_MAX;

/// The settings of an endpoint. They fix the size of every table.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Random bytes that no other party knows. Cookies and tokens are derived from them.
    pub secret: [u8; 32],
    /// The number of the worker, which peers write into byte 7 of their packets.
    pub worker: u8,
    /// The number of workers that share the packets to one address.
    pub workers: u8,
    /// `true` if the endpoint answers hellos.
    pub accepts: bool,
    /// The largest packet that the lanes carry both ways, in bytes.
    pub packet_bytes: usize,
    /// The rule for the windows of paths to other machines.
    pub control: Policy,
    /// The rule for the windows of paths to loopback addresses.
    pub local: Policy,
    /// Maximum number of associations.
    pub associations_max: usize,
    /// Maximum number of paths, of all associations together.
    pub paths_max: usize,
    /// Maximum number of paths with packets in flight. Each has a sent window of 3 KiB.
    pub windows_max: usize,
    /// Maximum number of channels, of all associations together.
    pub channels_max: usize,
    /// Maximum number of outgoing messages whose bodies have not returned.
    pub messages_max: usize,
    /// Maximum number of pieces of messages that are not acknowledged.
    pub pieces_max: usize,
    /// Maximum number of received pieces that wait for their delivery.
    pub holds_max: usize,
    /// Maximum number of chunks with pieces that the user has not given back, which is the number
    /// of the lanes' receive buffers.
    pub chunks_max: usize,
    /// The key with which all packets are sealed; `None` if none is.
    pub sealed: Option<SealSettings>,
}

/// The settings of an endpoint that seals its packets.
#[derive(Clone)]
pub struct SealSettings {
    /// The key that both ends of an association have.
    pub key: PacketKey,
    /// Random bytes that no other party knows and no other endpoint has. The key pairs of
    /// handshakes are derived from them.
    pub chance: [u8; 32],
    /// Number of packets after which a key of an association is replaced.
    pub packets_max: u32,
}

impl SealSettings {
    /// The usual number of packets that one key seals. With packets of 64 KiB, an eavesdropper can
    /// tell them from random bytes with a probability of at most 2⁻⁶⁰
    /// (docs/explanation/packets.md).
    pub const PACKETS_MAX: u32 = 1 << 22;
}

impl fmt::Debug for SealSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealSettings").finish_non_exhaustive()
    }
}

impl Settings {
    /// The lower bound of `packet_bytes`: the size of a hello.
    pub const PACKET_BYTES_MIN: usize = wire::packets::HELLO_BYTES;

    /// The sizes of a worker's endpoint, without a secret.
    pub const WORKER: Settings = Settings {
        secret: [0; 32],
        worker: 0,
        workers: 1,
        accepts: true,
        packet_bytes: 1400,
        control: Policy::Delay,
        local: Policy::Fixed(64),
        associations_max: 4096,
        paths_max: 8192,
        windows_max: 1024,
        channels_max: 16_384,
        messages_max: 16_384,
        pieces_max: 16_384,
        holds_max: 16_384,
        chunks_max: 4096,
        sealed: None,
    };

    /// The sizes of the endpoint of a client that has one server, without a secret.
    pub const CLIENT: Settings = Settings {
        accepts: false,
        associations_max: 8,
        paths_max: 64,
        windows_max: 64,
        channels_max: 8192,
        messages_max: 8192,
        pieces_max: 8192,
        holds_max: 4096,
        chunks_max: 1024,
        ..Settings::WORKER
    };

    /// Returns the rule for the window of a path to an address.
    pub(crate) fn policy(&self, to: &PeerAddress) -> Policy {
        if to.is_loopback() { self.local } else { self.control }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_decides_about_the_window_not_the_address_of_ours() {
        let policy =
            |peer: &str| Settings::WORKER.policy(&PeerAddress::Internet(peer.parse().unwrap()));
        assert_eq!(policy("127.0.0.1:9"), Policy::Fixed(64));
        assert_eq!(policy("[::ffff:127.0.0.1]:9"), Policy::Fixed(64));
        assert_eq!(policy("10.0.0.1:9"), Policy::Delay);
    }
}
