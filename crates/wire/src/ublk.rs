//! The interface of the Linux kernel's driver `ublk_drv` to the programs that serve its block
//! devices (`linux/ublk_cmd.h`): control commands, the commands of a queue, and the description of
//! a request.
//!
//! All numbers have the byte order of the machine. In each structure, the number before a field is
//! its byte offset, which is asserted.
//!
//! This module deliberately leaves out zoned devices, zero copy and the commands without ioctl
//! encoding, and what a program does with a request.

use zerocopy::native_endian::{I32, U16, U32, U64};

/// The path of the driver's control device.
pub const CONTROL_PATH: &str = "/dev/ublk-control";

/// The number that stands for a device whose number the driver is to choose.
pub const ANY_DEVICE: u32 = u32::MAX;

/// The number that stands for no queue in commands that concern a whole device.
pub const NO_QUEUE: u16 = u16::MAX;

/// Maximum number of requests of a queue that are in flight.
pub const QUEUE_DEPTH_MAX: u16 = 4096;

/// Distance in bytes between the places of two queues in a device's file, at which programs map the
/// descriptions of the queues' requests.
pub const DESCRIPTORS_STRIDE: u64 =
    (QUEUE_DEPTH_MAX as u64 * size_of::<IoDescriptor>() as u64).next_multiple_of(4096);

/// Features of the driver ([`ControlCode::GET_FEATURES`]), and flags of a device that uses them.
pub mod feature {
    /// The program asks for the data of each write with
    /// [`IoCode::GET_DATA`](super::IoCode::GET_DATA), and gives the memory for it then.
    pub const NEED_GET_DATA: u64 = 1 << 2;
    /// The device stays when its program ends, and waits for a successor.
    pub const USER_RECOVERY: u64 = 1 << 3;
    /// Requests that the program had not completed are given to its successor.
    pub const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Commands have the numbers of ioctls.
    pub const IOCTL_ENCODING: u64 = 1 << 6;
    /// The size of a device may change while it serves.
    pub const UPDATE_SIZE: u64 = 1 << 10;
}

/// States of a device, in [`DeviceInfo::state`].
pub mod state {
    /// The block device does not exist, or not any more.
    pub const DEAD: u16 = 0;
    /// The program serves the block device.
    pub const LIVE: u16 = 1;
    /// The program has ended; requests wait for its successor.
    pub const QUIESCED: u16 = 2;
}

/// Attributes of a block device, in [`Basic::attributes`].
pub mod attribute {
    /// Writes are refused.
    pub const READ_ONLY: u32 = 1 << 0;
    /// Completed writes are durable only after a flush.
    pub const VOLATILE_CACHE: u32 = 1 << 2;
    /// Single writes can be made durable (force unit access).
    pub const FUA: u32 = 1 << 3;
}

/// Kinds of parameters in [`Parameters`].
pub mod parameter {
    /// The parameters in [`Basic`](super::Basic) are set.
    pub const BASIC: u32 = 1 << 0;
    /// The parameters in [`Discard`](super::Discard) are set.
    pub const DISCARD: u32 = 1 << 1;
}

/// Flags of a request, in the upper bits of [`IoDescriptor::operation_and_flags`].
pub mod request_flag {
    /// Force unit access: durable before the completion.
    pub const FUA: u32 = 1 << 13;
}

/// Result of a command of a queue: a request has come. A write's data is in the program's memory.
pub const RESULT_OK: i32 = 0;

/// Result of a command of a queue: a write is there, and its data has to be asked for.
pub const RESULT_NEED_GET_DATA: i32 = 1;

/// Result of a command of a queue: the device stops (`-ENODEV`).
pub const RESULT_ABORT: i32 = -19;

/// The type (bits 15:8) of the driver's ioctl numbers: the letter `u`.
const LETTER: u32 = b'u' as u32;

/// Returns the ioctl number of a command with a structure of `bytes` bytes, which the kernel fills
/// (direction 2), or reads and fills (3).
const fn ioctl(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | LETTER << 8 | number
}

const fn control(direction: u32, number: u32) -> u32 {
    ioctl(direction, number, size_of::<ControlCommand>())
}

const fn queue(number: u32) -> u32 {
    ioctl(3, number, size_of::<IoCommand>())
}

open_number! {
    /// The ioctl number of a command of the driver's control device.
    pub struct ControlCode(u32) {
        /// Reads a device's [`DeviceInfo`].
        GET_DEVICE_INFO = control(2, 0x02),
        /// Creates a device of the driver, without a block device.
        ADD_DEVICE = control(3, 0x04),
        /// Removes a device of the driver, and waits until it is gone.
        DELETE_DEVICE = control(3, 0x05),
        /// Creates the block device, once the program waits for requests on all queues.
        START_DEVICE = control(3, 0x06),
        /// Removes the block device; the driver's device stays.
        STOP_DEVICE = control(3, 0x07),
        /// Sets a device's [`Parameters`] before its start.
        SET_PARAMETERS = control(3, 0x08),
        /// Reads a device's [`Parameters`].
        GET_PARAMETERS = control(2, 0x09),
        /// Prepares a device for the successor of a program that has ended.
        START_RECOVERY = control(3, 0x10),
        /// Gives a device to the successor, once it waits for requests on all queues.
        END_RECOVERY = control(3, 0x11),
        /// Reads the driver's features.
        GET_FEATURES = control(2, 0x13),
        /// Removes a device without waiting. Its number becomes free once the last process has
        /// closed the device.
        DELETE_DEVICE_LATER = control(2, 0x14),
        /// Changes the size of a device while it serves.
        UPDATE_SIZE = control(3, 0x15),
    }
}

open_number! {
    /// The ioctl number of a command of a device's queue.
    pub struct IoCode(u32) {
        /// Waits for the first request with a tag.
        FETCH = queue(0x20),
        /// Completes a request, and waits for the next one with its tag.
        COMMIT_AND_FETCH = queue(0x21),
        /// Asks for the data of a write.
        GET_DATA = queue(0x22),
    }
}

open_number! {
    /// The operation of a request, in the lowest byte of [`IoDescriptor::operation_and_flags`].
    pub struct Operation(u8) {
        /// Reads the sectors.
        READ = 0,
        /// Writes the sectors.
        WRITE = 1,
        /// Makes completed writes durable.
        FLUSH = 2,
        /// Discards the sectors.
        DISCARD = 3,
        /// Writes zeroes to the sectors.
        WRITE_ZEROES = 5,
    }
}

layout! {
    /// A command of the control device, inside its submission entry.
    pub struct ControlCommand: 32 {
        /// The number of the device that the command concerns.
        [0] device: U32,
        /// The number of the queue, or [`NO_QUEUE`].
        [4] queue: U16,
        /// Length in bytes of the command's buffer, in the program's memory.
        [6] len: U16,
        /// Address of the command's buffer, in the program's memory.
        [8] address: U64,
        /// The argument of the command: a process identifier, or a size in sectors.
        [16] data: U64,
        /// Length in bytes of a path at the start of the buffer.
        [24] path_len: U16,
        /// Padding bytes without a meaning.
        [26] padding: U16,
        /// Reserved bytes, which neither end uses.
        [28] reserved: U32,
    }
}

layout! {
    /// The properties of a device.
    pub struct DeviceInfo: 64 {
        /// Number of queues.
        [0] queues: U16,
        /// Number of requests of each queue.
        [2] queue_depth: U16,
        /// The state, a value of [`state`].
        [4] state: U16,
        /// Padding bytes without a meaning.
        [6] padding: U16,
        /// Maximum length of a request's data in bytes.
        [8] request_bytes_max: U32,
        /// The device's number.
        [12] device: U32,
        /// Identifier of the process that serves the device.
        [16] process: I32,
        /// Padding bytes without a meaning.
        [20] padding_2: U32,
        /// Flags of the device: bits of [`feature`].
        [24] flags: U64,
        /// Flags for the program's own use, which the driver only stores.
        [32] program_flags: U64,
        /// The user who made the device.
        [40] owner: U32,
        /// The group of the user.
        [44] group: U32,
        /// Reserved bytes, which neither end uses.
        [48] reserved: U64,
        /// Reserved bytes, which neither end uses.
        [56] reserved_2: U64,
    }
}

layout! {
    /// Parameters that every block device has.
    pub struct Basic: 32 {
        /// Attributes of the block device: bits of [`attribute`].
        [0] attributes: U32,
        /// Logical block size in bytes, as a power of two.
        [4] logical_block_shift: u8,
        /// Physical block size in bytes, as a power of two.
        [5] physical_block_shift: u8,
        /// Best size of a request in bytes, as a power of two.
        [6] io_best_shift: u8,
        /// Smallest size of a request that performs well, in bytes, as a power of two.
        [7] io_min_shift: u8,
        /// Maximum length of a request in sectors.
        [8] sectors_max: U32,
        /// Number of sectors at whose multiples requests are split; zero if they are not.
        [12] chunk_sectors: U32,
        /// Size of the device in sectors.
        [16] sectors: U64,
        /// Mask of the address bits at which a request's memory may have gaps; zero for anywhere.
        [24] gap_mask: U64,
    }
}

layout! {
    /// Parameters of discards and writes of zeroes.
    pub struct Discard: 20 {
        /// Offset of the first discard granule on the device, in bytes.
        [0] alignment: U32,
        /// Size of a discard granule in bytes.
        [4] granularity: U32,
        /// Maximum length of a discard in sectors.
        [8] discard_sectors_max: U32,
        /// Maximum length of a write of zeroes in sectors.
        [12] write_zeroes_sectors_max: U32,
        /// Maximum number of ranges of a discard.
        [16] segments_max: U16,
        /// Reserved bytes, which neither end uses.
        [18] reserved: U16,
    }
}

layout! {
    /// The parameters of a device; the kernel's structure has more behind them.
    pub struct Parameters: 60 {
        /// Length in bytes of the structure that the program knows.
        [0] len: U32,
        /// The parameters that are set: bits of [`parameter`].
        [4] kinds: U32,
        /// The parameters that every device has.
        [8] basic: Basic,
        /// The parameters of discards and writes of zeroes.
        [40] discard: Discard,
    }
}

layout! {
    /// A command of a queue, inside its submission entry.
    pub struct IoCommand: 16 {
        /// The number of the queue.
        [0] queue: U16,
        /// The request's tag.
        [2] tag: U16,
        /// Number of bytes that a completed request has transferred, or a negated error number.
        [4] result: I32,
        /// Address of the request's data in the program's memory.
        [8] address: U64,
    }
}

layout! {
    /// The description of a request, in memory that the kernel shares with the program.
    pub struct IoDescriptor: 24 {
        /// The [`Operation`] in bits 7:0, and [`request_flag`] above.
        [0] operation_and_flags: U32,
        /// Number of sectors of 512 bytes.
        [4] sectors: U32,
        /// First sector of 512 bytes.
        [8] sector: U64,
        /// Address of the request's data in the program's memory.
        [16] address: U64,
    }
}

impl IoDescriptor {
    /// Returns the operation of the request.
    pub fn operation(&self) -> Operation {
        Operation(self.operation_and_flags.get() as u8)
    }

    /// Returns `true` if the request is to be durable before its completion.
    pub fn is_durable(&self) -> bool {
        self.operation_and_flags.get() & request_flag::FUA != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares command numbers with those that a C program with the kernel's header has printed.
    #[test]
    fn commands_have_the_numbers_of_the_kernels_header() {
        assert_eq!(ControlCode::ADD_DEVICE.0, 0xc020_7504);
        assert_eq!(ControlCode::GET_DEVICE_INFO.0, 0x8020_7502);
        assert_eq!(ControlCode::GET_FEATURES.0, 0x8020_7513);
        assert_eq!(ControlCode::DELETE_DEVICE_LATER.0, 0x8020_7514);
        assert_eq!(ControlCode::END_RECOVERY.0, 0xc020_7511);
        assert_eq!(IoCode::FETCH.0, 0xc010_7520);
        assert_eq!(IoCode::COMMIT_AND_FETCH.0, 0xc010_7521);
        assert_eq!(IoCode::GET_DATA.0, 0xc010_7522);
        assert_eq!(DESCRIPTORS_STRIDE, 98_304);
    }

    #[test]
    fn operations_are_apart_from_flags() {
        let mut descriptor = IoDescriptor {
            operation_and_flags: (1 | 1 << 13 | 1 << 11).into(),
            sectors: 8.into(),
            sector: 0.into(),
            address: 0.into(),
        };
        assert_eq!((descriptor.operation(), descriptor.is_durable()), (Operation::WRITE, true));
        descriptor.operation_and_flags = 5.into();
        assert_eq!(descriptor.operation(), Operation::WRITE_ZEROES);
        assert!(!descriptor.is_durable());
    }
}
