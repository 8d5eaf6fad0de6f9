//! The discovery log (Base 5.16.1.23).

use zerocopy::little_endian::{U16, U64};

/// Size in bytes of a field with an NVMe qualified name; a name has at most 223 bytes (Base 4.5).
pub const NQN_BYTES: usize = 256;

open_enum! {
    /// The type of a transport.
    pub struct TransportKind {
        /// NVMe over RDMA: InfiniBand, RoCE or iWARP.
        RDMA = 1,
        /// NVMe over Fibre Channel.
        FIBRE_CHANNEL = 2,
        /// NVMe over TCP.
        TCP = 3,
        /// A transport within the host, without a network.
        LOCAL = 254,
    }
}

open_enum! {
    /// The address family of a transport address.
    pub struct AddressFamily {
        /// An IPv4 address.
        IPV4 = 1,
        /// An IPv6 address.
        IPV6 = 2,
        /// A transport within the host, without a network.
        LOCAL = 254,
    }
}

open_enum! {
    /// The type of subsystem that an entry of the discovery log refers to.
    pub struct SubsystemKind {
        /// Another discovery subsystem.
        REFERRAL = 1,
        /// A subsystem with namespaces.
        NVM = 2,
        /// The discovery subsystem that serves this log.
        DISCOVERY = 3,
    }
}

open_enum! {
    /// The security of a TCP transport: the first byte of its specific address.
    pub struct SecureChannel {
        /// No security: connections are plain TCP.
        NONE = 0,
        /// Connections use TLS 1.3.
        TLS_1_3 = 2,
    }
}

layout! {
    /// The beginning of the discovery log; [`DiscoveryEntry`]s follow.
    pub struct DiscoveryHeader: 1024 {
        /// Generation counter, which changes whenever the log does.
        [0] generation: U64,
        /// Number of [`DiscoveryEntry`]s that follow.
        [8] entries: U64,
        /// Format of the entries: zero, the only one.
        [16] format: U16,
        /// Reserved bytes, which are zero.
        [18] reserved: [u8; 1006],
    }
}

layout! {
    /// An entry of the discovery log: a subsystem and an address at which it can be reached.
    pub struct DiscoveryEntry: 1024 {
        /// Type of the transport.
        [0] transport: TransportKind,
        /// Address family of the address.
        [1] family: AddressFamily,
        /// Type of the subsystem.
        [2] kind: SubsystemKind,
        /// Bits 1:0 secure channel (1 required, 2 possible); bit 2 flow control of submission
        /// queues can be switched off.
        [3] requirements: u8,
        /// Identifier of the subsystem's port, which is no TCP port.
        [4] port: U16,
        /// The controller's identifier; ffffh if Connect creates the controller.
        [6] cntlid: U16,
        /// Maximum number of entries of an admin queue.
        [8] admin_queue_max: U16,
        /// Bit 0: other entries have the same information. Bit 1: a host may ask this discovery
        /// subsystem for a persistent connection.
        [10] flags: U16,
        /// Reserved bytes, which are zero.
        [12] reserved_12: [u8; 20],
        /// Service of the transport address, for TCP the port, ASCII padded with spaces.
        [32] service: [u8; 32],
        /// Reserved bytes, which are zero.
        [64] reserved_64: [u8; 192],
        /// The subsystem's name, zero-terminated.
        [256] nqn: [u8; NQN_BYTES],
        /// Address of the transport, for TCP an IP address, ASCII padded with spaces.
        [512] address: [u8; 256],
        /// Data that depends on the transport: for TCP a [`SecureChannel`] in the first byte.
        [768] specific: [u8; 256],
    }
}
