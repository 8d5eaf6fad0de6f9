//! Log pages (Base 5.16.1).

use zerocopy::little_endian::{U16, U32, U64, U128};

open_enum! {
    /// The identifier of a log page: bits 7:0 of dword 10 of Get Log Page.
    pub struct LogPage {
        /// List of the supported log pages.
        SUPPORTED = 0x00,
        /// Recent errors of commands.
        ERROR = 0x01,
        /// Health status and counters.
        SMART = 0x02,
        /// Firmware slots and their revisions.
        FIRMWARE = 0x03,
        /// Namespaces that changed since the last read of this log.
        CHANGED_NAMESPACES = 0x04,
        /// Supported commands and their effects.
        EFFECTS = 0x05,
        /// States of asymmetric namespace access.
        ANA = 0x0c,
        /// Supported features and their effects.
        FEATURES = 0x12,
        /// Subsystems and ports, as a discovery controller reports them.
        DISCOVERY = 0x70,
        /// Reservation notices.
        RESERVATION = 0x80,
    }
}

layout! {
    /// An entry of the error log (Base 5.16.1.2).
    pub struct ErrorEntry: 64 {
        /// Number of the error, from 1; zero in an unused entry.
        [0] count: U64,
        /// Identifier of the submission queue.
        [8] queue: U16,
        /// Identifier of the command.
        [10] cid: U16,
        /// Status field of the command's completion.
        [12] status: U16,
        /// Location of the error: bits 7:0 byte, 10:8 bit; ffffh if not reported.
        [14] location: U16,
        /// First block that the error concerns.
        [16] lba: U64,
        /// Identifier of the namespace.
        [24] nsid: U32,
        /// Vendor specific.
        [28] vendor: u8,
        /// Type of the transport ([`TransportKind`](super::TransportKind)).
        [29] transport: u8,
        /// The command set of the command, where `version` is 1.
        [30] command_set: u8,
        /// The command's opcode, where `version` is 1.
        [31] opcode: u8,
        /// Information that depends on the command.
        [32] command: U64,
        /// Information that depends on the transport.
        [40] transport_specific: U16,
        /// Reserved bytes, which are zero.
        [42] reserved: [u8; 21],
        /// 1: `opcode` and `command_set` are reported.
        [63] version: u8,
    }
}

layout! {
    /// The health log (Base 5.16.1.3).
    pub struct SmartLog: 512 {
        /// Critical warnings: bit 0 spare low, 1 temperature, 2 reliability, 3 read-only, 4
        /// volatile backup.
        [0] warning: u8,
        /// Temperature in Kelvin.
        [1] temperature: U16,
        /// Available spare in percent.
        [3] spare: u8,
        /// Threshold of the available spare in percent.
        [4] spare_threshold: u8,
        /// Used share of the estimated endurance in percent; may exceed 100.
        [5] used: u8,
        /// Critical warnings of all endurance groups.
        [6] endurance_warning: u8,
        /// Reserved bytes, which are zero.
        [7] reserved_7: [u8; 25],
        /// Data read, in units of 1000 times 512 bytes, rounded up.
        [32] units_read: U128,
        /// Data written, in units of 1000 times 512 bytes, rounded up.
        [48] units_written: U128,
        /// Number of read commands.
        [64] reads: U128,
        /// Number of write commands.
        [80] writes: U128,
        /// Time for which the controller was busy with commands, in minutes.
        [96] busy_minutes: U128,
        /// Number of power cycles.
        [112] power_cycles: U128,
        /// Power-on time in hours.
        [128] power_on_hours: U128,
        /// Number of shutdowns without notification.
        [144] unsafe_shutdowns: U128,
        /// Number of media errors.
        [160] media_errors: U128,
        /// Number of entries that the error log has had since the controller was made.
        [176] error_entries: U128,
        /// Time above the warning temperature, in minutes.
        [192] warning_minutes: U32,
        /// Time above the critical temperature, in minutes.
        [196] critical_minutes: U32,
        /// Temperatures of the sensors in Kelvin.
        [200] sensors: [U16; 8],
        /// Counts and times of thermal management; zero.
        [216] thermal: [U32; 4],
        /// Reserved bytes, which are zero.
        [232] reserved_232: [u8; 280],
    }
}

layout! {
    /// The firmware slot log (Base 5.16.1.4).
    pub struct FirmwareLog: 512 {
        /// Bits 2:0: number of the active firmware slot.
        [0] active: u8,
        /// Reserved bytes, which are zero.
        [1] reserved_1: [u8; 7],
        /// Firmware revisions of the slots, in ASCII.
        [8] revisions: [[u8; 8]; 7],
        /// Reserved bytes, which are zero.
        [64] reserved_64: [u8; 448],
    }
}

layout! {
    /// The supported commands and their effects (Base 5.16.1.6): words of [`effect`].
    pub struct EffectsLog: 4096 {
        /// Words of the admin commands, indexed by opcode.
        [0] admin: [U32; 256],
        /// Words of the I/O commands, indexed by opcode.
        [1024] io: [U32; 256],
        /// Reserved bytes, which are zero.
        [2048] reserved: [u8; 2048],
    }
}

/// Bits of the words of [`EffectsLog`].
pub mod effect {
    /// The command is supported.
    pub const SERVED: u32 = 1;
    /// The command may change blocks.
    pub const CHANGES_BLOCKS: u32 = 1 << 1;
}

open_enum! {
    /// The accessibility of a namespace through this controller (Base 8.1.3).
    pub struct AnaState {
        /// Accessible with optimal characteristics.
        OPTIMIZED = 1,
        /// Accessible with reduced characteristics.
        NON_OPTIMIZED = 2,
        /// Inaccessible for the time being.
        INACCESSIBLE = 3,
        /// Permanently inaccessible.
        PERSISTENT_LOSS = 4,
        /// In transition between states.
        CHANGE = 15,
    }
}

layout! {
    /// The beginning of the ANA log (Base 5.16.1.13); [`AnaGroup`]s follow.
    pub struct AnaHeader: 16 {
        /// Number of times that the log has changed.
        [0] changes: U64,
        /// Number of groups that follow.
        [8] groups: U16,
        /// Reserved bytes, which are zero.
        [10] reserved: [u8; 6],
    }
}

layout! {
    /// A group of the ANA log; the identifiers of its namespaces follow.
    pub struct AnaGroup: 32 {
        /// Identifier of the group.
        [0] group: U32,
        /// Number of namespace identifiers that follow.
        [4] namespaces: U32,
        /// Number of times that the state of the group has changed.
        [8] changes: U64,
        /// State of the group's namespaces through this controller.
        [16] state: AnaState,
        /// Reserved bytes, which are zero.
        [17] reserved: [u8; 15],
    }
}
