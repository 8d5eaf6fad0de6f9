//! Submission and completion queue entries (Base 3.3.3.1 and 3.3.3.2), scatter gather list
//! descriptors (Base 4.1.2), opcodes, and the ranges of Dataset Management (NVM 3.2.3).

use zerocopy::FromZeros;
use zerocopy::little_endian::{U16, U32, U64};

use super::Status;

/// The host's name for a command, unique among those of its queue that have not ended.
pub type CommandId = u16;

/// The opcode of all Fabrics commands, on either kind of queue (Base 3.3.2, figure "Fabrics
/// Command").
pub const FABRICS_OPCODE: u8 = 0x7f;

/// Force unit access, in dword 12 of commands with a range of blocks (NVM 3.2.6).
pub const BLOCK_FUA: u32 = 1 << 30;

/// Deallocate, in dword 12 of Write Zeroes (NVM 3.2.8).
pub const ZEROES_DEALLOCATE: u32 = 1 << 25;

/// The most ranges of a Dataset Management command.
pub const DISCARD_RANGES_MAX: usize = 256;

layout! {
    /// A submission queue entry (Base 3.3.3.1). Of a data pointer only the SGL form exists over
    /// fabrics.
    pub struct Submission: 64 {
        /// What to do; its low two bits are the direction of the data.
        [0] opcode: u8,
        /// Bits 1:0 fused operation, bits 7:6 which form the data pointer has.
        [1] flags: u8,
        /// The host's name for the command.
        [2] cid: U16,
        /// The namespace.
        [4] nsid: U32,
        /// Command specific.
        [8] dword2: U32,
        /// Command specific.
        [12] dword3: U32,
        /// Metadata pointer.
        [16] metadata: U64,
        /// Where the data is.
        [24] data: SglDescriptor,
        /// Command specific.
        [40] dword10: U32,
        /// Command specific.
        [44] dword11: U32,
        /// Command specific.
        [48] dword12: U32,
        /// Command specific.
        [52] dword13: U32,
        /// Command specific.
        [56] dword14: U32,
        /// Command specific.
        [60] dword15: U32,
    }
}

impl Submission {
    /// An entry of zeroes but for these; its data pointer has the SGL form.
    pub fn new(opcode: u8, cid: CommandId, nsid: u32) -> Submission {
        Submission {
            opcode,
            flags: Submission::FLAGS_SGL,
            cid: U16::new(cid),
            nsid: U32::new(nsid),
            ..Submission::new_zeroed()
        }
    }

    /// Flags of a data pointer in SGL form whose metadata, if any, is one contiguous buffer: the
    /// form that fabrics ask for.
    pub const FLAGS_SGL: u8 = 1 << 6;

    /// Which form the data pointer has (bits 7:6): 1 or 2 for SGL.
    pub const fn data_form(&self) -> u8 {
        self.flags >> 6
    }

    /// Which part of a fused operation it is.
    pub const fn fuse(&self) -> Fuse {
        Fuse(self.flags & 3)
    }

    /// Data goes from the host to the controller.
    pub const fn sends_data(&self) -> bool {
        // Of a Fabrics command the type has the direction, in the same bits.
        match self.opcode {
            FABRICS_OPCODE => self.nsid.to_bytes()[0] & 3 == 1,
            opcode => opcode & 3 == 1,
        }
    }

    /// Data goes from the controller to the host.
    pub const fn receives_data(&self) -> bool {
        match self.opcode {
            FABRICS_OPCODE => self.nsid.to_bytes()[0] & 3 == 2,
            opcode => opcode & 3 == 2,
        }
    }

    /// The first block of commands with a range (dwords 10 and 11).
    pub fn lba(&self) -> u64 {
        u64::from(self.dword10.get()) | u64::from(self.dword11.get()) << 32
    }

    /// The number of blocks of commands with a range (dword 12, zero-based there).
    pub fn blocks(&self) -> u32 {
        (self.dword12.get() & 0xffff) + 1
    }
}

open_enum! {
    /// Bits 1:0 of a submission's flags.
    pub struct Fuse {
        /// An ordinary command.
        NONE = 0,
        /// The first of two.
        FIRST = 1,
        /// The second of two.
        SECOND = 2,
    }
}

layout! {
    /// A scatter gather list descriptor (Base 4.1.2).
    pub struct SglDescriptor: 16 {
        /// An address, or for [`SglKind::DATA_OFFSET`] the offset within the capsule's data.
        [0] address: U64,
        /// Bytes.
        [8] length: U32,
        /// Zero.
        [12] reserved: [u8; 3],
        /// Type and subtype.
        [15] kind: SglKind,
    }
}

impl SglDescriptor {
    /// Data that lies `offset` bytes into the capsule's.
    pub fn in_capsule(offset: u64, length: u32) -> SglDescriptor {
        SglDescriptor {
            address: U64::new(offset),
            length: U32::new(length),
            reserved: [0; 3],
            kind: SglKind::DATA_OFFSET,
        }
    }

    /// Data that the transport carries in messages of its own.
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
        /// Data block at an address.
        DATA_ADDRESS = 0x00,
        /// Data block at an offset of the capsule.
        DATA_OFFSET = 0x01,
        /// Data is read and thrown away.
        BIT_BUCKET = 0x10,
        /// Segment.
        SEGMENT = 0x20,
        /// Last segment.
        LAST_SEGMENT = 0x30,
        /// Keyed data block.
        KEYED = 0x40,
        /// Transport data block.
        TRANSPORT = 0x5a,
    }
}

layout! {
    /// A completion queue entry (Base 3.3.3.2).
    pub struct Completion: 16 {
        /// Command specific.
        [0] result: U64,
        /// Head of the submission queue, for its flow control.
        [8] sq_head: U16,
        /// The submission queue; reserved over fabrics.
        [10] sq_id: U16,
        /// The command's name.
        [12] cid: U16,
        /// How it ended (a [`Status`]); bit 0 is the phase tag, zero over fabrics.
        [14] status: U16,
    }
}

impl Completion {
    /// How it ended.
    pub fn status(&self) -> Status {
        Status::from_field(self.status.get())
    }
}

open_enum! {
    /// Opcodes of the admin queue (Base 5).
    pub struct AdminOpcode {
        /// Read a log.
        GET_LOG_PAGE = 0x02,
        /// Read a data structure.
        IDENTIFY = 0x06,
        /// End another command.
        ABORT = 0x08,
        /// Write a feature.
        SET_FEATURES = 0x09,
        /// Read a feature.
        GET_FEATURES = 0x0a,
        /// Wait for an event.
        ASYNC_EVENT_REQUEST = 0x0c,
        /// Say that the host lives.
        KEEP_ALIVE = 0x18,
        /// [`FABRICS_OPCODE`].
        FABRICS = 0x7f,
    }
}

open_enum! {
    /// Opcodes of I/O queues (NVM 3.2, Base 7).
    pub struct NvmOpcode {
        /// Make acknowledged writes durable.
        FLUSH = 0x00,
        /// Write.
        WRITE = 0x01,
        /// Read.
        READ = 0x02,
        /// Mark blocks as bad.
        WRITE_UNCORRECTABLE = 0x04,
        /// Compare stored data with the host's.
        COMPARE = 0x05,
        /// Write zeroes.
        WRITE_ZEROES = 0x08,
        /// Tell what data is for; here: that it is for nothing.
        DATASET_MANAGEMENT = 0x09,
        /// Read without telling.
        VERIFY = 0x0c,
        /// Register for reservations.
        RESERVATION_REGISTER = 0x0d,
        /// Read who is registered.
        RESERVATION_REPORT = 0x0e,
        /// Reserve.
        RESERVATION_ACQUIRE = 0x11,
        /// Give a reservation up.
        RESERVATION_RELEASE = 0x15,
        /// Copy blocks.
        COPY = 0x19,
        /// [`FABRICS_OPCODE`].
        FABRICS = 0x7f,
    }
}

layout! {
    /// A range of Dataset Management (NVM 3.2.3, figure "Range Definition").
    pub struct DiscardRange: 16 {
        /// Hints; ignored.
        [0] attributes: U32,
        /// Number of blocks; not zero-based.
        [4] blocks: U32,
        /// First block.
        [8] lba: U64,
    }
}
