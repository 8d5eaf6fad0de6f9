//! Data of Identify (Base 5.17, NVM 4.1.5). Every structure has 4 096 bytes on the wire. A struct
//! of fewer bytes has only the beginning that carries values; the rest is zero.

use zerocopy::little_endian::{U16, U32, U64, U128};

use super::NQN_BYTES;

open_enum! {
    /// The structure that Identify reads: bits 7:0 of dword 10.
    pub struct IdentifyCns {
        /// A namespace, with the fields of the NVM command set.
        NAMESPACE = 0x00,
        /// The controller that carries out the command.
        CONTROLLER = 0x01,
        /// The identifiers of the active namespaces.
        ACTIVE_NAMESPACES = 0x02,
        /// The identification descriptors of a namespace, for example its UUID.
        NAMESPACE_DESCRIPTORS = 0x03,
        /// A namespace, of the command set named in dword 11.
        NAMESPACE_OF_SET = 0x05,
        /// The controller, of the command set named in dword 11.
        CONTROLLER_OF_SET = 0x06,
        /// The identifiers of the active namespaces of the command set named in dword 11.
        ACTIVE_NAMESPACES_OF_SET = 0x07,
        /// A namespace, with the fields that do not depend on its command set.
        NAMESPACE_COMMON = 0x08,
        /// The identifiers of the allocated namespaces.
        ALLOCATED_NAMESPACES = 0x10,
        /// An allocated namespace, with the fields of the NVM command set.
        ALLOCATED_NAMESPACE = 0x11,
        /// The identifiers of the controllers that a namespace is attached to.
        NAMESPACE_CONTROLLERS = 0x12,
        /// The identifiers of the subsystem's controllers.
        SUBSYSTEM_CONTROLLERS = 0x13,
        /// The identifiers of the allocated namespaces of the command set named in dword 11.
        ALLOCATED_NAMESPACES_OF_SET = 0x1a,
        /// An allocated namespace, of the command set named in dword 11.
        ALLOCATED_NAMESPACE_OF_SET = 0x1b,
        /// The combinations of I/O command sets that the controller supports.
        COMMAND_SETS = 0x1c,
    }
}

open_enum! {
    /// The identifier of an I/O command set.
    pub struct CommandSetIdentifier {
        /// The NVM command set.
        NVM = 0x00,
    }
}

layout! {
    /// A power state of a controller (Base 5.17.2.1, figure "Power State Descriptor").
    pub struct PowerState: 32 {
        /// Maximum power; bits of `flags` select the unit.
        [0] power_max: U16,
        /// Reserved bytes, which are zero.
        [2] reserved: u8,
        /// Bit 0 selects the unit of `power_max`; bit 1: the state is non-operational.
        [3] flags: u8,
        /// Time to enter the power state, in microseconds.
        [4] entry_us: U32,
        /// Time to leave the power state, in microseconds.
        [8] exit_us: U32,
        /// Relative performance and idle power; zero if not reported.
        [12] relative: [u8; 20],
    }
}

layout! {
    /// Data of Identify Controller (Base 5.17.2.1, CNS 01h).
    pub struct IdentifyController: 4096 {
        /// PCI identifier of the vendor; zero over fabrics.
        [0] vendor: U16,
        /// PCI identifier of the subsystem's vendor; zero over fabrics.
        [2] subsystem_vendor: U16,
        /// Serial number of the subsystem, ASCII padded with spaces.
        [4] serial: [u8; 20],
        /// Model, ASCII padded with spaces.
        [24] model: [u8; 40],
        /// Firmware revision, ASCII padded with spaces.
        [64] firmware: [u8; 8],
        /// Recommended arbitration burst: the exponent of a power of two, in commands.
        [72] arbitration_burst: u8,
        /// Organizationally unique identifier of the vendor, assigned by the IEEE.
        [73] ieee: [u8; 3],
        /// Multi-path: bit 0 several ports, bit 1 several controllers, bit 3 ANA.
        [76] multi_path: u8,
        /// Largest transfer: the exponent of a power of two, in units of the smallest page; zero:
        /// no limit.
        [77] transfer_max_shift: u8,
        /// The controller's identifier.
        [78] cntlid: U16,
        /// Version, as in the version property.
        [80] version: U32,
        /// Typical time to resume from a shutdown, in microseconds.
        [84] resume_us: U32,
        /// Typical time of a shutdown, in microseconds.
        [88] shutdown_us: U32,
        /// Optional asynchronous events that the controller sends: bits of
        /// [`notice`](super::notice).
        [92] events: U32,
        /// Attributes: bit 0 host identifiers of 128 bits, bit 6 traffic-based keep-alive.
        [96] attributes: U32,
        /// Supported read recovery levels, a bit each.
        [100] read_recovery: U16,
        /// Reserved bytes, which are zero.
        [102] reserved_102: [u8; 9],
        /// Controller type: 1 I/O, 2 discovery, 3 administrative.
        [111] kind: u8,
        /// Globally unique identifier of the field-replaceable unit.
        [112] fru: [u8; 16],
        /// Delays after which a host retries a command, by the number in the command's status, in
        /// units of 100 ms.
        [128] retry_delays: [U16; 3],
        /// Reserved bytes, which are zero.
        [134] reserved_134: [u8; 119],
        /// NVM subsystem report: bit 0 storage device, bit 1 enclosure.
        [253] subsystem_report: u8,
        /// Bits 6:0: remaining write cycles of the vital product data; bit 7: they are reported.
        [254] vpd_writes: u8,
        /// Management endpoints: bit 0 at a two-wire port, bit 1 at a PCIe port.
        [255] management: u8,
        /// Supported optional admin commands, a bit each.
        [256] admin_commands: U16,
        /// Maximum number of outstanding Abort commands, zero-based.
        [258] aborts_max: u8,
        /// Maximum number of outstanding Asynchronous Event Requests, zero-based.
        [259] event_requests_max: u8,
        /// Firmware updates: bit 0 the first slot is read-only, bits 3:1 number of slots.
        [260] firmware_updates: u8,
        /// Log pages: bit 0 SMART by namespace, 1 effects, 2 extended data, 5 supported pages.
        [261] log_pages: u8,
        /// Maximum number of entries of the error log, zero-based.
        [262] error_entries_max: u8,
        /// Number of power states, zero-based.
        [263] power_states: u8,
        /// Vendor specific admin commands: bit 0 they have the standard format.
        [264] vendor_commands: u8,
        /// Autonomous power state transitions: bit 0 they are supported.
        [265] power_transitions: u8,
        /// Temperature from which on the controller warns, in Kelvin.
        [266] temperature_warning: U16,
        /// Temperature that is critical, in Kelvin.
        [268] temperature_critical: U16,
        /// Maximum time for which activating firmware stops commands, in units of 100 ms.
        [270] firmware_time: U16,
        /// Preferred size of the host memory buffer, in units of 4 KiB.
        [272] host_buffer_wanted: U32,
        /// Minimum size of the host memory buffer, in units of 4 KiB.
        [276] host_buffer_needed: U32,
        /// Capacity of the subsystem in bytes.
        [280] capacity_total: U128,
        /// Capacity in bytes that belongs to no namespace.
        [296] capacity_free: U128,
        /// Replay protected memory blocks: bits 2:0 their number, zero for none.
        [312] replay_protected: U32,
        /// Time of an extended self-test in minutes.
        [316] self_test_minutes: U16,
        /// Self-tests: bit 0 the subsystem runs one at a time.
        [318] self_test: u8,
        /// Granularity of firmware updates, in units of 4 KiB; zero: not reported.
        [319] firmware_granularity: u8,
        /// Granularity of the keep-alive timeout, in units of 100 ms; zero: no keep-alive.
        [320] keep_alive_granularity: U16,
        /// Thermal management by the host: bit 0 it is supported.
        [322] thermal: U16,
        /// Minimum temperature of thermal management by the host, in Kelvin.
        [324] thermal_min: U16,
        /// Maximum temperature of thermal management by the host, in Kelvin.
        [326] thermal_max: U16,
        /// Sanitize capabilities: bit 0 crypto erase, bit 1 block erase, bit 2 overwrite.
        [328] sanitize: U32,
        /// Minimum size of an entry of the host memory buffer, in units of 4 KiB.
        [332] host_buffer_entry_min: U32,
        /// Maximum number of entries of the host memory buffer.
        [336] host_buffer_entries_max: U16,
        /// Maximum identifier of an NVM set.
        [338] sets_max: U16,
        /// Maximum identifier of an endurance group.
        [340] endurance_groups_max: U16,
        /// Maximum time of an ANA transition in seconds.
        [342] ana_transition_seconds: u8,
        /// ANA states that are reported (bits 0 to 4), bit 6 group identifiers do not change.
        [343] ana: u8,
        /// Largest ANA group identifier.
        [344] ana_group_max: U32,
        /// Number of ANA groups.
        [348] ana_groups: U32,
        /// Maximum size of the persistent event log, in units of 64 KiB.
        [352] persistent_log: U32,
        /// Identifier of the domain that the controller belongs to.
        [356] domain: U16,
        /// Reserved bytes, which are zero.
        [358] reserved_358: [u8; 10],
        /// Maximum capacity of an endurance group in bytes.
        [368] endurance_capacity_max: U128,
        /// Reserved bytes, which are zero.
        [384] reserved_384: [u8; 128],
        /// Size of a submission queue entry, which is 2ⁿ bytes: bits 3:0 the least `n`, bits 7:4
        /// the greatest.
        [512] submission_shift: u8,
        /// Size of a completion queue entry, which is 2ⁿ bytes: bits 3:0 the least `n`, bits 7:4
        /// the greatest.
        [513] completion_shift: u8,
        /// Maximum number of commands of one queue that the controller carries out at a time; zero:
        /// not reported.
        [514] commands_max: U16,
        /// Largest namespace identifier.
        [516] namespaces: U32,
        /// Supported optional NVM commands, a bit each.
        [520] commands: U16,
        /// Fused operations: bit 0 compare and write.
        [522] fused: U16,
        /// Attributes of the command Format NVM.
        [524] format: u8,
        /// Volatile write cache: bit 0 there is one, bits 2:1 whether a flush may name all
        /// namespaces (2: no, 3: yes).
        [525] write_cache: u8,
        /// Atomic write unit in blocks, zero-based.
        [526] atomic_blocks: U16,
        /// Atomic write unit in a power failure, in blocks, zero-based.
        [528] atomic_blocks_power_fail: U16,
        /// Vendor specific I/O commands: bit 0 they have the standard format.
        [530] vendor_io_commands: u8,
        /// Namespace write protection: bit 0 it is supported.
        [531] write_protection: u8,
        /// Atomic compare and write unit in blocks, zero-based.
        [532] atomic_compare_blocks: U16,
        /// Supported formats of the descriptors of Copy, a bit each.
        [534] copy_formats: U16,
        /// Scatter gather lists: bits 1:0 they are supported, bit 2 keyed, bit 20 offsets in
        /// capsules, bit 21 transport data blocks.
        [536] sgl: U32,
        /// Maximum number of namespaces; zero: as many as `namespaces` says.
        [540] namespaces_max: U32,
        /// Maximum number of namespace attachments of the domain.
        [544] domain_attachments_max: U128,
        /// Maximum number of namespace attachments of an I/O controller.
        [560] attachments_max: U32,
        /// Reserved bytes, which are zero.
        [564] reserved_564: [u8; 204],
        /// The subsystem's name, zero-terminated.
        [768] subsystem_nqn: [u8; NQN_BYTES],
        /// Reserved bytes, which are zero.
        [1024] reserved_1024: [u8; 768],
        /// Size of a command capsule, in units of 16 bytes.
        [1792] command_capsule: U32,
        /// Size of a response capsule, in units of 16 bytes.
        [1796] response_capsule: U32,
        /// Offset of in-capsule data after the submission entry, in units of 16 bytes.
        [1800] capsule_data_offset: U16,
        /// Fabrics controller attributes: bit 0 controllers are static.
        [1802] fabrics_attributes: u8,
        /// Maximum number of SGL data block descriptors of a command; zero: no limit.
        [1803] sgl_blocks_max: u8,
        /// Supported optional Fabrics commands: bit 0 Disconnect.
        [1804] fabrics_commands: U16,
        /// Type of a discovery controller: 0 not reported, 1 direct, 2 central.
        [1806] discovery_kind: u8,
        /// Reserved bytes, which are zero.
        [1807] reserved_1807: [u8; 241],
        /// The power states, of which `power_states` says the number.
        [2048] power: [PowerState; 32],
        /// Bytes of the vendor's choice; zero here.
        [3072] vendor_specific: [u8; 1024],
    }
}

layout! {
    /// A format of logical blocks (NVM 4.1.5.1, figure "LBA Format Data Structure").
    pub struct LbaFormat: 4 {
        /// Length of a block's metadata in bytes.
        [0] metadata_bytes: U16,
        /// The exponent of the size of a block, which is 2ⁿ bytes.
        [2] data_shift: u8,
        /// Performance of the format relative to the others; 0 is best.
        [3] performance: u8,
    }
}

layout! {
    /// Data of Identify Namespace of the NVM command set (NVM 4.1.5.1, CNS 00h).
    pub struct IdentifyNamespace: 4096 {
        /// Size of the namespace in blocks.
        [0] size: U64,
        /// Capacity of the namespace: the number of blocks that can be allocated at a time.
        [8] capacity: U64,
        /// Number of allocated blocks.
        [16] utilization: U64,
        /// Features: bit 1 the namespace has atomic units of its own, bit 2 reads of deallocated
        /// blocks can be made to fail, bit 3 identifiers are not reused, bit 4 the preferred
        /// granularities are reported.
        [24] features: u8,
        /// Number of LBA formats, zero-based.
        [25] formats: u8,
        /// Index of the LBA format in use (bits 3:0), and location of the metadata (bit 4).
        [26] format: u8,
        /// Supported locations of the metadata: bit 0 behind each block, bit 1 in a separate
        /// buffer.
        [27] metadata: u8,
        /// Supported types of end-to-end protection, a bit each.
        [28] protection_capabilities: u8,
        /// Type of end-to-end protection in use (bits 2:0); zero for none.
        [29] protection: u8,
        /// Multi-path: bit 0 the namespace may be attached to several controllers.
        [30] sharing: u8,
        /// Reservations: bit 0 persist through power loss, bits 6:1 types, bit 7 ignore key as of
        /// revision 1.3.
        [31] reservations: u8,
        /// Progress of Format NVM: bit 7 it is reported, bits 6:0 percent that remain.
        [32] format_progress: u8,
        /// Deallocation: bits 2:0 content of deallocated blocks (1: zeroes), bit 3 Write Zeroes may
        /// deallocate.
        [33] deallocate: u8,
        /// Atomic write unit in blocks, zero-based.
        [34] atomic_blocks: U16,
        /// Atomic write unit in a power failure, in blocks, zero-based.
        [36] atomic_blocks_power_fail: U16,
        /// Atomic compare and write unit in blocks, zero-based.
        [38] atomic_compare_blocks: U16,
        /// Distance in blocks of the boundaries that no atomic write may cross, zero-based; zero:
        /// there are none.
        [40] atomic_boundary: U16,
        /// Block at which the first atomic boundary lies.
        [42] atomic_boundary_offset: U16,
        /// Distance in blocks of the boundaries that no write may cross to be atomic in a power
        /// failure, zero-based; zero: there are none.
        [44] atomic_boundary_power_fail: U16,
        /// Optimal I/O boundary in blocks: reads and writes are best if they do not cross its
        /// multiples; zero: not reported.
        [46] boundary: U16,
        /// Capacity of the namespace in bytes.
        [48] capacity_bytes: U128,
        /// Preferred write granularity in blocks, zero-based.
        [64] write_granularity: U16,
        /// Preferred write alignment in blocks, zero-based.
        [66] write_alignment: U16,
        /// Preferred deallocate granularity in blocks, zero-based.
        [68] deallocate_granularity: U16,
        /// Preferred deallocate alignment in blocks, zero-based.
        [70] deallocate_alignment: U16,
        /// Optimal write size in blocks, zero-based.
        [72] write_size: U16,
        /// Maximum number of blocks of one range of a Copy.
        [74] copy_range_max: U16,
        /// Maximum number of blocks of a Copy.
        [76] copy_max: U32,
        /// Maximum number of ranges of a Copy, zero-based.
        [80] copy_ranges_max: u8,
        /// Reserved bytes, which are zero.
        [81] reserved_81: [u8; 11],
        /// Identifier of the namespace's ANA group.
        [92] ana_group: U32,
        /// Reserved bytes, which are zero.
        [96] reserved_96: [u8; 3],
        /// Attributes: bit 0 write protected.
        [99] attributes: u8,
        /// Identifier of the namespace's NVM set.
        [100] set: U16,
        /// Identifier of the namespace's endurance group.
        [102] endurance_group: U16,
        /// Globally unique identifier; zero for none.
        [104] nguid: [u8; 16],
        /// IEEE extended unique identifier; zero for none.
        [120] eui64: [u8; 8],
        /// The LBA formats, of which `formats` says the number.
        [128] lba_formats: [LbaFormat; 64],
        /// Bytes of the vendor's choice; zero here.
        [384] vendor_specific: [u8; 3712],
    }
}

layout! {
    /// The first bytes of Identify Namespace, independent of the command set (Base 5.17.2.8, CNS
    /// 08h).
    pub struct IdentifyNamespaceCommon: 16 {
        /// Features: bit 3 identifiers are not reused.
        [0] features: u8,
        /// Multi-path, as in [`IdentifyNamespace::sharing`].
        [1] sharing: u8,
        /// Reservations, as in [`IdentifyNamespace::reservations`].
        [2] reservations: u8,
        /// Progress of Format NVM, as in [`IdentifyNamespace::format_progress`].
        [3] format_progress: u8,
        /// Identifier of the namespace's ANA group.
        [4] ana_group: U32,
        /// Attributes: bit 0 write protected.
        [8] attributes: u8,
        /// Reserved bytes, which are zero.
        [9] reserved: u8,
        /// Identifier of the namespace's NVM set.
        [10] set: U16,
        /// Identifier of the namespace's endurance group.
        [12] endurance_group: U16,
        /// Status: bit 0 the namespace is ready.
        [14] state: u8,
        /// Reserved bytes, which are zero.
        [15] reserved_tail: u8,
    }
}

layout! {
    /// The first bytes of Identify Controller of the NVM command set (NVM 4.1.5.3, CNS 06h).
    pub struct IdentifyNvmController: 16 {
        /// Maximum size of a Verify: the exponent of a power of two, in units of the smallest page;
        /// zero: no limit.
        [0] verify_max_shift: u8,
        /// Maximum size of a Write Zeroes: the exponent of a power of two, in units of the smallest
        /// page; zero: no limit.
        [1] write_zeroes_max_shift: u8,
        /// Maximum size of a Write Uncorrectable: the exponent of a power of two, in units of the
        /// smallest page; zero: no limit.
        [2] write_uncorrectable_max_shift: u8,
        /// Maximum number of ranges of a Dataset Management command.
        [3] discard_ranges_max: u8,
        /// Maximum number of blocks of one range of a Dataset Management command.
        [4] discard_range_max: U32,
        /// Maximum number of blocks of all ranges of a Dataset Management command.
        [8] discard_max: U64,
    }
}

layout! {
    /// The first bytes of the NVM command set's part of Identify Namespace (NVM 4.1.5.2, CNS 05h).
    pub struct IdentifyNvmNamespace: 16 {
        /// Mask of the storage tag's bits that are compared.
        [0] tag_mask: U64,
        /// Capabilities of protection information.
        [8] protection: u8,
        /// Reserved bytes, which are zero.
        [9] reserved: [u8; 3],
        /// Storage tag size and protection information format of LBA format 0.
        [12] extended_format: U32,
    }
}

open_enum! {
    /// The type of a namespace identification descriptor (Base 5.17.2.3).
    pub struct DescriptorKind {
        /// IEEE extended unique identifier: 8 bytes.
        EUI64 = 1,
        /// Namespace globally unique identifier: 16 bytes.
        NGUID = 2,
        /// UUID: 16 bytes.
        UUID = 3,
        /// I/O command set identifier: 1 byte.
        COMMAND_SET = 4,
    }
}

layout! {
    /// The head of a namespace identification descriptor; the identifier follows.
    pub struct DescriptorHead: 4 {
        /// The type of the identifier.
        [0] kind: DescriptorKind,
        /// Length of the identifier in bytes.
        [1] bytes: u8,
        /// Reserved bytes, which are zero.
        [2] reserved: U16,
    }
}
