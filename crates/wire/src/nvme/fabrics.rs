//! Fabrics commands (Base 6) and the data of Connect.

use zerocopy::little_endian::{U16, U32, U64};

use super::{CommandId, NQN_BYTES, SglDescriptor, Submission};

/// In a connect's data: the controller chooses its identifier (Base 6.3).
pub const CONNECT_CNTLID_DYNAMIC: u16 = 0xffff;

/// In a connect's attributes: the host wants no flow control of the submission queue.
pub const CONNECT_DISABLE_FLOW_CONTROL: u8 = 1 << 2;

/// The name by which every discovery subsystem is found (Base 3.1.2.3, "Discovery Controller").
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

open_enum! {
    /// Which Fabrics command it is; the low two bits are the direction of its data (Base 3.3.2).
    pub struct FabricsKind {
        /// Write a property.
        PROPERTY_SET = 0x00,
        /// Make a queue.
        CONNECT = 0x01,
        /// Read a property.
        PROPERTY_GET = 0x04,
        /// A message of authentication from the host.
        AUTHENTICATION_SEND = 0x05,
        /// A message of authentication to the host.
        AUTHENTICATION_RECEIVE = 0x06,
        /// End an I/O queue.
        DISCONNECT = 0x08,
    }
}

layout! {
    /// What all Fabrics commands have in common.
    pub struct FabricsCommand: 64 {
        /// [`FABRICS_OPCODE`](super::FABRICS_OPCODE).
        [0] opcode: u8,
        /// As of any submission.
        [1] flags: u8,
        /// The host's name for the command.
        [2] cid: U16,
        /// Which command.
        [4] kind: FabricsKind,
        /// Zero.
        [5] reserved: [u8; 19],
        /// Where the data is.
        [24] data: SglDescriptor,
        /// Command specific.
        [40] specific: [u8; 24],
    }
}

layout! {
    /// Connect (Base 6.3).
    pub struct ConnectCommand: 64 {
        /// [`FABRICS_OPCODE`](super::FABRICS_OPCODE).
        [0] opcode: u8,
        /// As of any submission.
        [1] flags: u8,
        /// The host's name for the command.
        [2] cid: U16,
        /// [`FabricsKind::CONNECT`].
        [4] kind: FabricsKind,
        /// Zero.
        [5] reserved: [u8; 19],
        /// Where the data is.
        [24] data: SglDescriptor,
        /// Format of command and data: zero.
        [40] format: U16,
        /// Zero for the admin queue.
        [42] queue: U16,
        /// Entries of the queue, zero-based.
        [44] queue_size: U16,
        /// Attributes: [`CONNECT_DISABLE_FLOW_CONTROL`], priority in bits 1:0.
        [46] attributes: u8,
        /// Zero.
        [47] reserved_attributes: u8,
        /// Keep-alive timeout in milliseconds; zero for none. Of the admin queue only.
        [48] keep_alive_ms: U32,
        /// Zero.
        [52] reserved_tail: [u8; 12],
    }
}

layout! {
    /// The data of Connect (Base 6.3, figure "Connect Command – Data").
    pub struct ConnectData: 1024 {
        /// Names the host across its interfaces.
        [0] host_id: [u8; 16],
        /// The controller; [`CONNECT_CNTLID_DYNAMIC`] for an admin queue.
        [16] cntlid: U16,
        /// Zero.
        [18] reserved: [u8; 238],
        /// The subsystem, zero-terminated.
        [256] subsystem_nqn: [u8; NQN_BYTES],
        /// The host, zero-terminated.
        [512] host_nqn: [u8; NQN_BYTES],
        /// Zero.
        [768] reserved_tail: [u8; 256],
    }
}

layout! {
    /// Property Get and Property Set (Base 6.5 and 6.6).
    pub struct PropertyCommand: 64 {
        /// [`FABRICS_OPCODE`](super::FABRICS_OPCODE).
        [0] opcode: u8,
        /// As of any submission.
        [1] flags: u8,
        /// The host's name for the command.
        [2] cid: U16,
        /// Which of the two.
        [4] kind: FabricsKind,
        /// Zero.
        [5] reserved: [u8; 35],
        /// Bits 2:0 size of the property: 0 for 4 bytes, 1 for 8.
        [40] attributes: u8,
        /// Zero.
        [41] reserved_attributes: [u8; 3],
        /// Which property ([`Property`](super::Property)).
        [44] offset: U32,
        /// The value to set.
        [48] value: U64,
        /// Zero.
        [56] reserved_tail: [u8; 8],
    }
}

layout! {
    /// Authentication Send and Authentication Receive (Base 6.2 and 6.1).
    pub struct AuthCommand: 64 {
        /// [`FABRICS_OPCODE`](super::FABRICS_OPCODE).
        [0] opcode: u8,
        /// As of any submission.
        [1] flags: u8,
        /// The host's name for the command.
        [2] cid: U16,
        /// Which of the two.
        [4] kind: FabricsKind,
        /// Zero.
        [5] reserved: [u8; 19],
        /// Where the data is.
        [24] data: SglDescriptor,
        /// Zero.
        [40] reserved_specific: u8,
        /// 01h.
        [41] protocol_specific_0: u8,
        /// 01h.
        [42] protocol_specific_1: u8,
        /// Security protocol: E9h.
        [43] protocol: u8,
        /// Bytes sent, or the most that may be received.
        [44] length: U32,
        /// Zero.
        [48] reserved_tail: [u8; 16],
    }
}

/// The same 64 bytes, seen as another command.
macro_rules! views {
    ($($name:ident),+) => { $(
        impl $name {
            /// The entry, seen as this command.
            pub fn of(entry: &Submission) -> &$name {
                zerocopy::transmute_ref!(entry)
            }

            /// The entry that it is.
            pub fn entry(&self) -> &Submission {
                zerocopy::transmute_ref!(self)
            }

            /// The host's name for the command.
            pub fn cid(&self) -> CommandId {
                self.cid.get()
            }
        }
    )+ };
}

views!(FabricsCommand, ConnectCommand, PropertyCommand, AuthCommand);
