//! What a simulated device is made of: the parameters of docs/flash-model.md, and the presets.

/// Parameters of a simulated device. Times are in nanoseconds; a page is 4 KiB. The equations are
/// in docs/flash-model.md.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Flash dies.
    pub dies: usize,
    /// Channels; die `n` is on channel `n % channels`.
    pub channels: usize,
    /// The controller's work for each page of a command, one after the other.
    pub command_ns: u64,
    /// A die's time to sense a page of middling difficulty.
    pub sense_ns: u64,
    /// How much less the easy third of the pages takes, and how much more the hard third.
    pub sense_spread_ns: u64,
    /// How much longer a read holds its die while the device is in mixed mode.
    pub mixed_hold_ns: u64,
    /// How long after its last write a device stays in mixed mode.
    pub mixed_linger_ns: u64,
    /// Time of one page on a channel.
    pub transfer_ns: u64,
    /// What a read takes besides: decoding, the bus, the completion.
    pub finish_ns: u64,
    /// From the controller to the acknowledgement of a buffered write, without jitter.
    pub ack_ns: u64,
    /// Jitter of that, evenly spread from zero.
    pub ack_jitter_ns: u64,
    /// What one acknowledgement in ten takes longer.
    pub ack_late_ns: u64,
    /// Pages that the write buffer holds.
    pub buffer_pages: usize,
    /// Buffered pages that a die programs at once.
    pub program_pages: usize,
    /// A die's time for that, new.
    pub program_ns: u64,
    /// After so long without a write, a part of a program is programmed, padded.
    pub idle_flush_ns: u64,
    /// Dies that are drawn for a program, of which the least indebted gets it.
    pub die_choices: usize,
    /// A die's time to erase a block, new.
    pub erase_ns: u64,
    /// Programs that fill a block.
    pub block_programs: usize,
    /// Physical space beyond the logical, as a share of the logical, new.
    pub spare: f64,
    /// The shortest time that a program or erase runs before it can be suspended.
    pub slice_ns_min: u64,
    /// The longest.
    pub slice_ns_max: u64,
    /// The share of its debt that a die works off before it can be suspended.
    pub slice_share: f64,
    /// Share of the buffer above which a die alternates between programs and reads.
    pub urgent_above: f64,
}

impl Model {
    /// Device A of the paper (§3.2.1, Figures 1 and 3, Table 2): write cost 10.
    pub const A: Model = Model {
        dies: 56,
        channels: 14,
        command_ns: 950,
        sense_ns: 55_000,
        sense_spread_ns: 12_000,
        mixed_hold_ns: 48_000,
        mixed_linger_ns: 10_000_000,
        transfer_ns: 6_000,
        finish_ns: 13_000,
        ack_ns: 7_300,
        ack_jitter_ns: 4_000,
        ack_late_ns: 7_000,
        buffer_pages: 4_096,
        program_pages: 8,
        program_ns: 1_500_000,
        idle_flush_ns: 2_000_000,
        die_choices: 1,
        erase_ns: 5_000_000,
        block_programs: 256,
        spare: 0.15,
        slice_ns_min: 120_000,
        slice_ns_max: 1_600_000,
        slice_share: 0.03,
        urgent_above: 0.75,
    };
}
