//! Fabrics commands (Base 6) and the data of Connect.

use core::mem::size_of;

use zerocopy::FromZeros;
use zerocopy::little_endian::{U16, U32, U64};

use super::{
    AUTH_PROTOCOL, CommandId, FABRICS_OPCODE, NQN_BYTES, Property, SglDescriptor, Submission,
};

/// The controller identifier in the data of Connect by which the host lets the controller choose
/// (Base 6.3).
pub const CONNECT_CNTLID_DYNAMIC: u16 = 0xffff;

/// Bit of the attributes of Connect: the host does without flow control of the submission queue.
pub const CONNECT_DISABLE_FLOW_CONTROL: u8 = 1 << 2;

/// The well-known name of discovery subsystems (Base 3.1.2.3, "Discovery Controller").
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

open_enum! {
    /// The type of a Fabrics command; its low two bits are the direction of the data (Base 3.3.2).
    pub struct FabricsKind {
        /// Writes a property of the controller.
        PROPERTY_SET = 0x00,
        /// Creates a queue; for the admin queue also an association with a controller.
        CONNECT = 0x01,
        /// Reads a property of the controller.
        PROPERTY_GET = 0x04,
        /// Sends an authentication message from the host to the controller.
        AUTHENTICATION_SEND = 0x05,
        /// Receives an authentication message from the controller.
        AUTHENTICATION_RECEIVE = 0x06,
        /// Disconnects an I/O queue.
        DISCONNECT = 0x08,
    }
}

layout! {
    /// The fields that all Fabrics commands have in common.
    pub struct FabricsCommand: 64 {
        /// [`FABRICS_OPCODE`](super::FABRICS_OPCODE).
        [0] opcode: u8,
        /// Flags, as in [`Submission::flags`].
        [1] flags: u8,
        /// The host's identifier of the command.
        [2] cid: U16,
        /// The type of the command.
        [4] kind: FabricsKind,
        /// Reserved bytes, which are zero.
        [5] reserved: [u8; 19],
        /// The descriptor that says where the data is.
        [24] data: SglDescriptor,
        /// Fields that depend on the type of the command.
        [40] specific: [u8; 24],
    }
}

layout! {
    /// The command Connect (Base 6.3).
    pub struct ConnectCommand: 64 {
        /// [`FABRICS_OPCODE`](super::FABRICS_OPCODE).
        [0] opcode: u8,
        /// Flags, as in [`Submission::flags`].
        [1] flags: u8,
        /// The host's identifier of the command.
        [2] cid: U16,
        /// [`FabricsKind::CONNECT`].
        [4] kind: FabricsKind,
        /// Reserved bytes, which are zero.
        [5] reserved: [u8; 19],
        /// The descriptor that says where the data is.
        [24] data: SglDescriptor,
        /// Format of the command and of its data: zero.
        [40] format: U16,
        /// Identifier of the queue; zero for the admin queue.
        [42] queue: U16,
        /// Number of entries of the queue, zero-based.
        [44] queue_size: U16,
        /// Attributes: [`CONNECT_DISABLE_FLOW_CONTROL`], priority in bits 1:0.
        [46] attributes: u8,
        /// Reserved bytes, which are zero.
        [47] reserved_attributes: u8,
        /// Keep-alive timeout in milliseconds; zero for none. Used for the admin queue only.
        [48] keep_alive_ms: U32,
        /// Reserved bytes, which are zero.
        [52] reserved_tail: [u8; 12],
    }
}

layout! {
    /// The data of Connect (Base 6.3, figure "Connect Command – Data").
    pub struct ConnectData: 1024 {
        /// Identifier of the host, the same on all of the host's interfaces.
        [0] host_id: [u8; 16],
        /// The controller's identifier; [`CONNECT_CNTLID_DYNAMIC`] for an admin queue.
        [16] cntlid: U16,
        /// Reserved bytes, which are zero.
        [18] reserved: [u8; 238],
        /// The subsystem's name, zero-terminated.
        [256] subsystem_nqn: [u8; NQN_BYTES],
        /// The host's name, zero-terminated.
        [512] host_nqn: [u8; NQN_BYTES],
        /// Reserved bytes, which are zero.
        [768] reserved_tail: [u8; 256],
    }
}

layout! {
    /// The commands Property Get and Property Set (Base 6.5 and 6.6).
    pub struct PropertyCommand: 64 {
        /// [`FABRICS_OPCODE`](super::FABRICS_OPCODE).
        [0] opcode: u8,
        /// Flags, as in [`Submission::flags`].
        [1] flags: u8,
        /// The host's identifier of the command.
        [2] cid: U16,
        /// The type of the command: Property Get or Property Set.
        [4] kind: FabricsKind,
        /// Reserved bytes, which are zero.
        [5] reserved: [u8; 35],
        /// Bits 2:0 size of the property: 0 for 4 bytes, 1 for 8.
        [40] attributes: u8,
        /// Reserved bytes, which are zero.
        [41] reserved_attributes: [u8; 3],
        /// Offset of the property ([`Property`](super::Property)).
        [44] offset: U32,
        /// The value to set; zero in Property Get.
        [48] value: U64,
        /// Reserved bytes, which are zero.
        [56] reserved_tail: [u8; 8],
    }
}

layout! {
    /// The commands Authentication Send and Authentication Receive (Base 6.2 and 6.1).
    pub struct AuthCommand: 64 {
        /// [`FABRICS_OPCODE`](super::FABRICS_OPCODE).
        [0] opcode: u8,
        /// Flags, as in [`Submission::flags`].
        [1] flags: u8,
        /// The host's identifier of the command.
        [2] cid: U16,
        /// The type of the command: Send or Receive.
        [4] kind: FabricsKind,
        /// Reserved bytes, which are zero.
        [5] reserved: [u8; 19],
        /// The descriptor that says where the data is.
        [24] data: SglDescriptor,
        /// Reserved bytes, which are zero.
        [40] reserved_specific: u8,
        /// Security protocol specific: 01h.
        [41] protocol_specific_0: u8,
        /// Security protocol specific: 01h.
        [42] protocol_specific_1: u8,
        /// Security protocol: E9h.
        [43] protocol: u8,
        /// Number of bytes that are sent, or maximum number of bytes to receive.
        [44] length: U32,
        /// Reserved bytes, which are zero.
        [48] reserved_tail: [u8; 16],
    }
}

impl ConnectCommand {
    /// Returns the command that connects a queue of `size` entries with the data in its capsule.
    /// Zero are its identifier, attributes and keep-alive timeout.
    pub fn new(queue: u16, size: u16) -> ConnectCommand {
        ConnectCommand {
            opcode: FABRICS_OPCODE,
            flags: Submission::FLAGS_SGL,
            kind: FabricsKind::CONNECT,
            data: SglDescriptor::in_capsule(0, size_of::<ConnectData>() as u32),
            queue: queue.into(),
            queue_size: (size - 1).into(),
            ..ConnectCommand::new_zeroed()
        }
    }
}

impl PropertyCommand {
    /// Returns the command that reads a property of 4 or 8 bytes, with an identifier of zero.
    pub fn get(property: Property, bytes: u8) -> PropertyCommand {
        let attributes = bytes / 8;
        PropertyCommand {
            attributes,
            ..PropertyCommand::of_kind(FabricsKind::PROPERTY_GET, property)
        }
    }

    /// Returns the command that sets a property, with an identifier of zero.
    pub fn set(property: Property, value: u64) -> PropertyCommand {
        let value = value.into();
        PropertyCommand { value, ..PropertyCommand::of_kind(FabricsKind::PROPERTY_SET, property) }
    }

    fn of_kind(kind: FabricsKind, property: Property) -> PropertyCommand {
        PropertyCommand {
            opcode: FABRICS_OPCODE,
            flags: Submission::FLAGS_SGL,
            kind,
            offset: property.0.into(),
            ..PropertyCommand::new_zeroed()
        }
    }
}

impl AuthCommand {
    /// Returns the command that sends or receives an authentication message of `length` bytes, with
    /// an identifier of zero.
    pub fn new(kind: FabricsKind, length: u32, data: SglDescriptor) -> AuthCommand {
        AuthCommand {
            opcode: FABRICS_OPCODE,
            flags: Submission::FLAGS_SGL,
            kind,
            data,
            protocol_specific_0: 1,
            protocol_specific_1: 1,
            protocol: AUTH_PROTOCOL,
            length: length.into(),
            ..AuthCommand::new_zeroed()
        }
    }
}

/// Implements the conversions between [`Submission`] and a command of the same 64 bytes.
macro_rules! views {
    ($($name:ident),+) => { $(
        impl $name {
            /// Returns the submission queue entry as this command.
            pub fn of(entry: &Submission) -> &$name {
                zerocopy::transmute_ref!(entry)
            }

            /// Returns this command as a submission queue entry.
            pub fn entry(&self) -> &Submission {
                zerocopy::transmute_ref!(self)
            }

            /// Returns the host's identifier of the command.
            pub fn cid(&self) -> CommandId {
                self.cid.get()
            }
        }
    )+ };
}

views!(FabricsCommand, ConnectCommand, PropertyCommand, AuthCommand);
