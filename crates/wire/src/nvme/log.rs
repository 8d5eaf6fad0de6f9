//! Log pages (Base 5.16.1).

use zerocopy::little_endian::{U16, U32, U64, U128};

open_enum! {
    /// Which log: bits 7:0 of dword 10 of Get Log Page.
    pub struct LogPage {
        /// Log pages that are served.
        SUPPORTED = 0x00,
        /// Errors.
        ERROR = 0x01,
        /// Health and counts.
        SMART = 0x02,
        /// Firmware slots.
        FIRMWARE = 0x03,
        /// Namespaces that changed since the log was read.
        CHANGED_NAMESPACES = 0x04,
        /// Commands that are served.
        EFFECTS = 0x05,
        /// Asymmetric namespace access.
        ANA = 0x0c,
        /// Features that are served.
        FEATURES = 0x12,
        /// Subsystems and ports, of a discovery controller.
        DISCOVERY = 0x70,
        /// What happened to reservations.
        RESERVATION = 0x80,
    }
}

layout! {
    /// An entry of the error log (Base 5.16.1.2).
    pub struct ErrorEntry: 64 {
        /// Its number, from 1; zero in an unused entry.
        [0] count: U64,
        /// The queue.
        [8] queue: U16,
        /// The command.
        [10] cid: U16,
        /// Its status field.
        [12] status: U16,
        /// Where the error lies: bits 7:0 byte, 10:8 bit; ffffh where that is not told.
        [14] location: U16,
        /// First block.
        [16] lba: U64,
        /// The namespace.
        [24] nsid: U32,
        /// Vendor specific.
        [28] vendor: u8,
        /// Transport ([`TransportKind`](super::TransportKind)).
        [29] transport: u8,
        /// The command set.
        [30] command_set: u8,
        /// The command's opcode, where `version` is 1.
        [31] opcode: u8,
        /// Command specific.
        [32] command: U64,
        /// Transport specific.
        [40] transport_specific: U16,
        /// Zero.
        [42] reserved: [u8; 21],
        /// 1: `opcode` and `command_set` are told.
        [63] version: u8,
    }
}

layout! {
    /// Health (Base 5.16.1.3).
    pub struct SmartLog: 512 {
        /// Bit 0 spare low, 1 temperature, 2 reliability, 3 read-only, 4 volatile backup.
        [0] warning: u8,
        /// Kelvin.
        [1] temperature: U16,
        /// Percent.
        [3] spare: u8,
        /// Percent.
        [4] spare_threshold: u8,
        /// Percent.
        [5] used: u8,
        /// Of endurance groups.
        [6] endurance_warning: u8,
        /// Zero.
        [7] reserved_7: [u8; 25],
        /// Thousands of 512 bytes read, rounded up.
        [32] units_read: U128,
        /// Thousands of 512 bytes written, rounded up.
        [48] units_written: U128,
        /// Read commands.
        [64] reads: U128,
        /// Write commands.
        [80] writes: U128,
        /// Minutes.
        [96] busy_minutes: U128,
        /// Power cycles.
        [112] power_cycles: U128,
        /// Hours.
        [128] power_on_hours: U128,
        /// Shutdowns without notice.
        [144] unsafe_shutdowns: U128,
        /// Media errors.
        [160] media_errors: U128,
        /// Entries that the error log had.
        [176] error_entries: U128,
        /// Minutes.
        [192] warning_minutes: U32,
        /// Minutes.
        [196] critical_minutes: U32,
        /// Kelvin.
        [200] sensors: [U16; 8],
        /// Thermal management; zero.
        [216] thermal: [U32; 4],
        /// Zero.
        [232] reserved_232: [u8; 280],
    }
}

layout! {
    /// Firmware slots (Base 5.16.1.4).
    pub struct FirmwareLog: 512 {
        /// Bits 2:0 the active slot.
        [0] active: u8,
        /// Zero.
        [1] reserved_1: [u8; 7],
        /// Revisions by slot.
        [8] revisions: [[u8; 8]; 7],
        /// Zero.
        [64] reserved_64: [u8; 448],
    }
}

layout! {
    /// Commands that are served, and what they do (Base 5.16.1.6): words of [`effect`].
    pub struct EffectsLog: 4096 {
        /// By opcode.
        [0] admin: [U32; 256],
        /// By opcode.
        [1024] io: [U32; 256],
        /// Zero.
        [2048] reserved: [u8; 2048],
    }
}

/// Bits of the words of [`EffectsLog`].
pub mod effect {
    /// The command is served.
    pub const SERVED: u32 = 1;
    /// It may change blocks.
    pub const CHANGES_BLOCKS: u32 = 1 << 1;
}

open_enum! {
    /// How a namespace is reached through this controller (Base 8.1.3).
    pub struct AnaState {
        /// At its best.
        OPTIMIZED = 1,
        /// At a cost.
        NON_OPTIMIZED = 2,
        /// Not now.
        INACCESSIBLE = 3,
        /// Never again.
        PERSISTENT_LOSS = 4,
        /// It changes.
        CHANGE = 15,
    }
}

layout! {
    /// The beginning of the ANA log (Base 5.16.1.13).
    pub struct AnaHeader: 16 {
        /// Changes.
        [0] changes: U64,
        /// Groups that follow.
        [8] groups: U16,
        /// Zero.
        [10] reserved: [u8; 6],
    }
}

layout! {
    /// A group of the ANA log, followed by its namespace identifiers.
    pub struct AnaGroup: 32 {
        /// Its identifier.
        [0] group: U32,
        /// Namespaces that follow.
        [4] namespaces: U32,
        /// Changes of the group.
        [8] changes: U64,
        /// Its state.
        [16] state: AnaState,
        /// Zero.
        [17] reserved: [u8; 15],
    }
}
