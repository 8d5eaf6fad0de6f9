//! The discovery log (Base 5.16.1.23).

use zerocopy::little_endian::{U16, U64};

/// Bytes of the field of an NVMe qualified name; the name has at most 223 of them (Base 4.5).
pub const NQN_BYTES: usize = 256;

open_enum! {
    /// Transport.
    pub struct TransportKind {
        /// RDMA.
        RDMA = 1,
        /// Fibre Channel.
        FIBRE_CHANNEL = 2,
        /// TCP.
        TCP = 3,
        /// Within the host.
        LOCAL = 254,
    }
}

open_enum! {
    /// Form of a transport address.
    pub struct AddressFamily {
        /// IPv4.
        IPV4 = 1,
        /// IPv6.
        IPV6 = 2,
        /// Within the host.
        LOCAL = 254,
    }
}

open_enum! {
    /// What an entry of the discovery log leads to.
    pub struct SubsystemKind {
        /// Another discovery subsystem.
        REFERRAL = 1,
        /// A subsystem with namespaces.
        NVM = 2,
        /// The discovery subsystem that was asked.
        DISCOVERY = 3,
    }
}

open_enum! {
    /// What protects a TCP transport: the first byte of its specific address.
    pub struct SecureChannel {
        /// Nothing.
        NONE = 0,
        /// TLS 1.3.
        TLS_1_3 = 2,
    }
}

layout! {
    /// The beginning of the discovery log.
    pub struct DiscoveryHeader: 1024 {
        /// Changes with the log.
        [0] generation: U64,
        /// Entries.
        [8] entries: U64,
        /// Zero.
        [16] format: U16,
        /// Zero.
        [18] reserved: [u8; 1006],
    }
}

layout! {
    /// An entry of the discovery log.
    pub struct DiscoveryEntry: 1024 {
        /// How to get there.
        [0] transport: TransportKind,
        /// Form of the address.
        [1] family: AddressFamily,
        /// What is there.
        [2] kind: SubsystemKind,
        /// Bits 1:0 secure channel (1 required, 2 possible), bit 2 flow control of submission
        /// queues may be switched off.
        [3] requirements: u8,
        /// The port.
        [4] port: U16,
        /// The controller, or ffffh for one that is made.
        [6] cntlid: U16,
        /// The most entries of an admin queue.
        [8] admin_queue_max: U16,
        /// Bit 0 other entries have the same information, bit 1 a persistent connection to this
        /// discovery subsystem may be asked for.
        [10] flags: U16,
        /// Zero.
        [12] reserved_12: [u8; 20],
        /// Port of the transport, ASCII padded with spaces.
        [32] service: [u8; 32],
        /// Zero.
        [64] reserved_64: [u8; 192],
        /// The subsystem, zero-terminated.
        [256] nqn: [u8; NQN_BYTES],
        /// Address of the transport, ASCII padded with spaces.
        [512] address: [u8; 256],
        /// Transport specific: for TCP a [`SecureChannel`].
        [768] specific: [u8; 256],
    }
}
