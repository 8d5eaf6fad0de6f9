//! Submission and completion queue entries (Base 3.3.3.1 and 3.3.3.2), scatter gather list
//! descriptors (Base 4.1.2), opcodes, and the ranges of Dataset Management (NVM 3.2.3).

use zerocopy::FromZeros;
use zerocopy::little_endian::{U16, U32, U64};

use super::Status;

/// The host's identifier of a command, unique among the outstanding commands of its queue.
pub type CommandId = u16;

/// The opcode of all Fabrics commands, on either kind of queue (Base 3.3.2, figure "Fabrics
/// Command").
pub const FABRICS_OPCODE: u8 = 0x7f;

/// Force unit access, in dword 12 of commands with a range of blocks (NVM 3.2.6).
pub const BLOCK_FUA: u32 = 1 << 30;

/// Deallocate, in dword 12 of Write Zeroes (NVM 3.2.8).
pub const ZEROES_DEALLOCATE: u32 = 1 << 25;

/// Maximum number of ranges of a Dataset Management command.
pub const DISCARD_RANGES_MAX: usize = 256;

layout! {
    /// A submission queue entry (Base 3.3.3.1). Over fabrics, a data pointer always has the SGL
    /// form.
    pub struct Submission: 64 {
        /// The opcode; its low two bits are the direction of the data.
        [0] opcode: u8,
        /// Bits 1:0 the command's part in a fused operation, bits 7:6 the form of the data pointer.
        [1] flags: u8,
        /// The host's identifier of the command, which its completion repeats.
        [2] cid: U16,
        /// Identifier of the namespace.
        [4] nsid: U32,
        /// A word whose meaning depends on the command.
        [8] dword2: U32,
        /// A word whose meaning depends on the command.
        [12] dword3: U32,
        /// The address of a metadata buffer, which is not used here.
        [16] metadata: U64,
        /// The descriptor that says where the data is.
        [24] data: SglDescriptor,
        /// A word whose meaning depends on the command.
        [40] dword10: U32,
        /// A word whose meaning depends on the command.
        [44] dword11: U32,
        /// A word whose meaning depends on the command.
        [48] dword12: U32,
        /// A word whose meaning depends on the command.
        [52] dword13: U32,
        /// A word whose meaning depends on the command.
        [56] dword14: U32,
        /// A word whose meaning depends on the command.
        [60] dword15: U32,
    }
}

impl Submission {
    /// Returns an entry with these values, whose data pointer has the SGL form; the other fields
    /// are zero.
    pub fn new(opcode: u8, cid: CommandId, nsid: u32) -> Submission {
        Submission {
            opcode,
            flags: Submission::FLAGS_SGL,
            cid: U16::new(cid),
            nsid: U32::new(nsid),
            ..Submission::new_zeroed()
        }
    }

    /// Flags of a data pointer in SGL form whose metadata, if any, is one contiguous buffer.
    /// Fabrics require this form.
    pub const FLAGS_SGL: u8 = 1 << 6;

    /// Returns the form of the data pointer (bits 7:6): 1 or 2 for SGL.
    pub const fn data_form(&self) -> u8 {
        self.flags >> 6
    }

    /// Returns the command's part in a fused operation.
    pub const fn fuse(&self) -> Fuse {
        Fuse(self.flags & 3)
    }

    /// Returns `true` if data goes from the host to the controller.
    pub const fn sends_data(&self) -> bool {
        // A Fabrics command has the direction in the same bits of its type, not of its opcode.
        match self.opcode {
            FABRICS_OPCODE => self.nsid.to_bytes()[0] & 3 == 1,
            opcode => opcode & 3 == 1,
        }
    }

    /// Returns the first block of a command with a range (dwords 10 and 11).
    pub fn lba(&self) -> u64 {
        u64::from(self.dword10.get()) | u64::from(self.dword11.get()) << 32
    }

    /// Returns the number of blocks of a command with a range (dword 12, zero-based on the wire).
    pub fn blocks(&self) -> u32 {
        (self.dword12.get() & 0xffff) + 1
    }
}

open_enum! {
    /// A command's part in a fused operation: bits 1:0 of a submission's flags.
    pub struct Fuse {
        /// The command is not fused.
        NONE = 0,
        /// The command is the first of the two commands of a fused operation.
        FIRST = 1,
        /// The command is the second of the two commands of a fused operation.
        SECOND = 2,
    }
}

layout! {
    /// A scatter gather list descriptor (Base 4.1.2).
    pub struct SglDescriptor: 16 {
        /// An address, or for [`SglKind::DATA_OFFSET`] the offset within the capsule's data.
        [0] address: U64,
        /// Length of the data in bytes.
        [8] length: U32,
        /// Reserved bytes, which are zero.
        [12] reserved: [u8; 3],
        /// Type and subtype of the descriptor.
        [15] kind: SglKind,
    }
}

impl SglDescriptor {
    /// Returns the descriptor of `length` bytes at `offset` within the capsule's data.
    pub fn in_capsule(offset: u64, length: u32) -> SglDescriptor {
        SglDescriptor {
            address: U64::new(offset),
            length: U32::new(length),
            reserved: [0; 3],
            kind: SglKind::DATA_OFFSET,
        }
    }

    /// Returns the descriptor of `length` bytes that the transport carries in separate messages.
    pub fn transport(length: u32) -> SglDescriptor {
        SglDescriptor {
            address: U64::ZERO,
            length: U32::new(length),
            reserved: [0; 3],
            kind: SglKind::TRANSPORT,
        }
    }
}

open_enum! {
    /// Type (bits 7:4) and subtype (bits 3:0) of an SGL descriptor.
    pub struct SglKind {
        /// Data block at an address in the host's memory.
        DATA_ADDRESS = 0x00,
        /// Data block at an offset of the capsule.
        DATA_OFFSET = 0x01,
        /// The data is read and discarded.
        BIT_BUCKET = 0x10,
        /// A list of further descriptors, which is not the last one.
        SEGMENT = 0x20,
        /// The last list of further descriptors.
        LAST_SEGMENT = 0x30,
        /// Data block at an address, with a key for remote access.
        KEYED = 0x40,
        /// Data block that the transport carries in separate messages.
        TRANSPORT = 0x5a,
    }
}

layout! {
    /// A completion queue entry (Base 3.3.3.2).
    pub struct Completion: 16 {
        /// The result; its meaning depends on the command.
        [0] result: U64,
        /// Head of the submission queue, by which the host knows the free entries.
        [8] sq_head: U16,
        /// Identifier of the submission queue; reserved over fabrics.
        [10] sq_id: U16,
        /// The identifier of the completed command.
        [12] cid: U16,
        /// The command's [`Status`]; bit 0 is the phase tag, zero over fabrics.
        [14] status: U16,
    }
}

impl Completion {
    /// Returns the command's status.
    pub fn status(&self) -> Status {
        Status::from_field(self.status.get())
    }
}

open_enum! {
    /// Opcodes of the admin queue (Base 5).
    pub struct AdminOpcode {
        /// Reads a log page of the controller.
        GET_LOG_PAGE = 0x02,
        /// Reads an Identify data structure.
        IDENTIFY = 0x06,
        /// Aborts another outstanding command.
        ABORT = 0x08,
        /// Sets the value of a feature of the controller or a namespace.
        SET_FEATURES = 0x09,
        /// Reads the value of a feature of the controller or a namespace.
        GET_FEATURES = 0x0a,
        /// Waits for an asynchronous event.
        ASYNC_EVENT_REQUEST = 0x0c,
        /// Restarts the keep-alive timer.
        KEEP_ALIVE = 0x18,
        /// A Fabrics command ([`FABRICS_OPCODE`]).
        FABRICS = 0x7f,
    }
}

open_enum! {
    /// Opcodes of I/O queues (NVM 3.2, Base 7).
    pub struct NvmOpcode {
        /// Makes acknowledged writes durable.
        FLUSH = 0x00,
        /// Writes blocks.
        WRITE = 0x01,
        /// Reads blocks.
        READ = 0x02,
        /// Makes blocks unreadable until they are written again.
        WRITE_UNCORRECTABLE = 0x04,
        /// Compares stored data with the host's data.
        COMPARE = 0x05,
        /// Writes zeroes to a range of blocks.
        WRITE_ZEROES = 0x08,
        /// Gives hints on the use of data. Only the hint to deallocate has an effect here.
        DATASET_MANAGEMENT = 0x09,
        /// Checks that blocks can be read, without transferring them.
        VERIFY = 0x0c,
        /// Registers, replaces or removes a reservation key.
        RESERVATION_REGISTER = 0x0d,
        /// Reports the registrants and the reservation.
        RESERVATION_REPORT = 0x0e,
        /// Acquires or preempts a reservation.
        RESERVATION_ACQUIRE = 0x11,
        /// Releases or clears a reservation.
        RESERVATION_RELEASE = 0x15,
        /// Copies blocks of a namespace to other blocks of it.
        COPY = 0x19,
        /// A Fabrics command ([`FABRICS_OPCODE`]).
        FABRICS = 0x7f,
    }
}

layout! {
    /// A range of Dataset Management (NVM 3.2.3, figure "Range Definition").
    pub struct DiscardRange: 16 {
        /// Hints on the use of the range; ignored.
        [0] attributes: U32,
        /// Number of blocks; not zero-based.
        [4] blocks: U32,
        /// First block of the range.
        [8] lba: U64,
    }
}
