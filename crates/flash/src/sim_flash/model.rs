//! The parameters of a simulated device (docs/explanation/flash-model.md), and the presets.

/// Parameters of a simulated device. Times are in nanoseconds; a page is 4 KiB. The equations are
/// in docs/explanation/flash-model.md.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Number of flash dies.
    pub dies: usize,
    /// Number of channels; die `n` is on channel `n % channels`.
    pub channels: usize,
    /// Time of the controller for each page of a command. Pages are processed one after the other.
    pub command_ns: u64,
    /// Times of a die that reads.
    pub sense: SenseModel,
    /// Time of one page on a channel.
    pub transfer_ns: u64,
    /// Remaining time of a read: decoding, the bus, the completion.
    pub finish_ns: u64,
    /// Times of the acknowledgement of a buffered write.
    pub ack: AckModel,
    /// The size and speed of the device's write buffer.
    pub buffer: BufferModel,
    /// Buffered pages that a die programs at once.
    pub program_pages: usize,
    /// Time of a new die for one program.
    pub program_ns: u64,
    /// Number of dies drawn for a program; the die with the least debt gets the program.
    pub die_choices: usize,
    /// Time of a new die to erase a block.
    pub erase_ns: u64,
    /// Number of programs that fill a block.
    pub block_programs: usize,
    /// Physical space beyond the logical space of a new device, as a share of the logical space.
    pub spare: f64,
    /// Time that a program or erase runs before it can be suspended.
    pub slice: SliceModel,
}

/// Times of a die that reads, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenseModel {
    /// Time of a die to sense a page of medium difficulty.
    pub medium_ns: u64,
    /// Time that the easy third of the pages takes less, and the hard third takes more.
    pub spread_ns: u64,
    /// Additional time that a read holds its die in mixed mode: while writes are in the buffer or
    /// owed by dies, and shortly after.
    pub mixed_hold_ns: u64,
    /// Time that a device stays in mixed mode after a die has finished all of its programs.
    pub mixed_linger_ns: u64,
}

/// Times of the acknowledgement of a buffered write, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AckModel {
    /// Time from the controller to the acknowledgement of a buffered write, without jitter.
    pub min_ns: u64,
    /// Maximum jitter of an acknowledgement, uniform from zero.
    pub jitter_ns: u64,
    /// Additional time of one acknowledgement in ten.
    pub late_ns: u64,
}

/// The write buffer of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BufferModel {
    /// Capacity of the write buffer in pages.
    pub pages: usize,
    /// Time without a write after which a partial program is padded and programmed.
    pub idle_flush_ns: u64,
    /// Share of the buffer above which a die alternates between programs and reads.
    pub urgent_above: f64,
}

/// Time that a program or erase runs before it can be suspended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SliceModel {
    /// Minimum time that a program or erase runs before it can be suspended.
    pub min_ns: u64,
    /// Maximum time that a program or erase runs before it can be suspended.
    pub max_ns: u64,
    /// Share of its outstanding programs and erases that a die completes before it can be
    /// suspended.
    pub debt_share: f64,
}

impl Model {
    /// Device A of the paper (§3.2.1, Figures 1 and 3, Table 2): write cost 10.
    pub const A: Model = Model {
        dies: 56,
        channels: 14,
        command_ns: 950,
        sense: SenseModel {
            medium_ns: 55_000,
            spread_ns: 12_000,
            mixed_hold_ns: 47_000,
            mixed_linger_ns: 10_000_000,
        },
        transfer_ns: 6_000,
        finish_ns: 13_000,
        ack: AckModel { min_ns: 7_300, jitter_ns: 4_000, late_ns: 7_000 },
        buffer: BufferModel { pages: 4_096, idle_flush_ns: 2_000_000, urgent_above: 0.75 },
        program_pages: 8,
        program_ns: 1_480_000,
        die_choices: 1,
        erase_ns: 5_000_000,
        block_programs: 256,
        spare: 0.15,
        slice: SliceModel { min_ns: 120_000, max_ns: 1_600_000, debt_share: 0.029 },
    };

    /// Device B of the paper (§3.2.1, Figure 3): write cost 20. The paper publishes nothing else
    /// about this device. The rest is a plausible drive of fewer and slower dies, with less spare
    /// space.
    pub const B: Model = Model {
        dies: 44,
        channels: 11,
        command_ns: 1_500,
        sense: SenseModel { medium_ns: 90_000, mixed_hold_ns: 25_000, ..Model::A.sense },
        finish_ns: 8_000,
        program_ns: 2_000_000,
        spare: 0.10,
        slice: SliceModel { debt_share: 0.02, ..Model::A.slice },
        ..Model::A
    };

    /// Device C of the paper (§3.2.1, Figure 3): write cost 16. The paper publishes nothing else
    /// about this device. The rest is a plausible drive between A and B.
    pub const C: Model = Model {
        dies: 48,
        channels: 12,
        command_ns: 1_400,
        sense: SenseModel { medium_ns: 75_000, mixed_hold_ns: 20_000, ..Model::A.sense },
        finish_ns: 8_000,
        program_ns: 1_900_000,
        slice: SliceModel { debt_share: 0.028, ..Model::A.slice },
        ..Model::A
    };

    /// The NVMe device of a cloud instance (2018), by the model that the paper's authors published
    /// with their code: write cost 7.
    pub const CLOUD: Model = Model {
        dies: 60,
        channels: 15,
        command_ns: 2_400,
        sense: SenseModel { medium_ns: 100_000, mixed_hold_ns: 57_000, ..Model::A.sense },
        finish_ns: 10_000,
        program_ns: 1_316_000,
        buffer: BufferModel { pages: 2_240, ..Model::A.buffer },
        slice: SliceModel { min_ns: 150_000, debt_share: 0.04, ..Model::A.slice },
        ..Model::A
    };

    /// A fourteenth of device A: 4 of its 56 dies, behind one of its channels. Service times are
    /// those of device A, so that latencies stay real on machines that cannot drive all of it.
    pub const SMALL: Model = Model {
        dies: 4,
        channels: 1,
        buffer: BufferModel { pages: 292, ..Model::A.buffer },
        ..Model::A
    };
}

impl Model {
    /// Returns a device on which every operation takes `times` times as long. The device serves
    /// `times` times fewer requests per second at `times` times the latency, in the same
    /// proportions. For machines that cannot drive the device itself.
    pub const fn slowed(mut self, times: u32) -> Model {
        let times = times as u64;
        self.command_ns *= times;
        self.sense.medium_ns *= times;
        self.sense.spread_ns *= times;
        self.sense.mixed_hold_ns *= times;
        self.sense.mixed_linger_ns *= times;
        self.transfer_ns *= times;
        self.finish_ns *= times;
        self.ack.min_ns *= times;
        self.ack.jitter_ns *= times;
        self.ack.late_ns *= times;
        self.program_ns *= times;
        self.buffer.idle_flush_ns *= times;
        self.erase_ns *= times;
        self.slice.min_ns *= times;
        self.slice.max_ns *= times;
        self
    }
}

/// A device with a known model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Device A of the paper.
    A,
    /// Device B of the paper, which publishes only the write cost.
    B,
    /// Device C of the paper, which publishes only the write cost.
    C,
    /// The NVMe device of a cloud instance of 2018, by the model that the paper's authors published.
    Cloud,
    /// A fourteenth of device A, for machines with few processors.
    Small,
}

impl Preset {
    /// All predefined models.
    pub const ALL: [Preset; 5] = [Preset::A, Preset::B, Preset::C, Preset::Cloud, Preset::Small];

    /// Returns the preset of this name, in lower case.
    pub fn named(name: &str) -> Option<Preset> {
        Preset::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// Returns the preset's name.
    pub const fn name(self) -> &'static str {
        match self {
            Preset::A => "a",
            Preset::B => "b",
            Preset::C => "c",
            Preset::Cloud => "cloud",
            Preset::Small => "small",
        }
    }

    /// Returns the preset's parameters.
    pub const fn model(self) -> Model {
        match self {
            Preset::A => Model::A,
            Preset::B => Model::B,
            Preset::C => Model::C,
            Preset::Cloud => Model::CLOUD,
            Preset::Small => Model::SMALL,
        }
    }
}
