//! Controller properties (Base 3.1.3) that exist over fabrics.

/// Version 2.0 of the Base Specification, as encoded in the version property.
pub const VERSION_2_0: u32 = 0x0002_0000;

/// A property of a controller, identified by its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property(pub u32);

impl Property {
    /// Controller capabilities; 8 bytes.
    pub const CAPABILITIES: Property = Property(0x00);
    /// Version; 4 bytes.
    pub const VERSION: Property = Property(0x08);
    /// Controller configuration; 4 bytes.
    pub const CONFIGURATION: Property = Property(0x14);
    /// Controller status; 4 bytes.
    pub const STATE: Property = Property(0x1c);
    /// Controller ready timeouts; 4 bytes.
    pub const READY_TIMEOUTS: Property = Property(0x68);
}

/// Controller capabilities (Base 3.1.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Maximum number of entries of a queue; zero-based on the wire.
    pub queue_entries_max: u16,
    /// Maximum time that the controller takes to become ready after it was enabled, in units of 500
    /// ms.
    pub timeout: u8,
}

impl Capabilities {
    /// Returns the property's value.
    ///
    /// Contiguous queues are required. The NVM command set is the only one, and the I/O command set
    /// bits may select it too. Pages have 4 KiB. A controller that is ready has its media ready.
    pub const fn to_bits(self) -> u64 {
        let contiguous = 1 << 16;
        let timeout = (self.timeout as u64) << 24;
        let command_sets = 1 << 37 | 1 << 43;
        let ready_with_media = 1 << 59;
        (self.queue_entries_max as u64 - 1) | contiguous | timeout | command_sets | ready_with_media
    }
}

/// Controller configuration (Base 3.1.3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration(pub u32);

impl Configuration {
    /// Returns `true` if the host enables the controller.
    pub const fn is_enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns the selected I/O command set: 0 for NVM, 6 for all that are supported.
    pub const fn command_set(self) -> u8 {
        (self.0 >> 4) as u8 & 7
    }

    /// Returns the exponent `n` of the memory page size, which is 4 KiB times 2ⁿ.
    pub const fn page_shift(self) -> u8 {
        (self.0 >> 7) as u8 & 15
    }

    /// Returns the arbitration mechanism of submission queues: 0 for round robin.
    pub const fn arbitration(self) -> u8 {
        (self.0 >> 11) as u8 & 7
    }

    /// Returns the shutdown notification of the host: 0 for none, 1 for normal, 2 for abrupt.
    pub const fn shutdown(self) -> u8 {
        (self.0 >> 14) as u8 & 3
    }

    /// Returns the exponent of the size of a submission queue entry, which is 2ⁿ bytes.
    pub const fn submission_shift(self) -> u8 {
        (self.0 >> 16) as u8 & 15
    }

    /// Returns the exponent of the size of a completion queue entry, which is 2ⁿ bytes.
    pub const fn completion_shift(self) -> u8 {
        (self.0 >> 20) as u8 & 15
    }
}

/// Controller status (Base 3.1.3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerState(pub u32);

impl ControllerState {
    /// The controller is ready to process commands.
    pub const READY: u32 = 1;
    /// The controller does not support the configuration.
    pub const FATAL: u32 = 1 << 1;
    /// Mask of the bits of the shutdown status, which are zero without a shutdown.
    pub const SHUTDOWN: u32 = 3 << 2;
    /// A shutdown is in progress.
    pub const SHUTDOWN_OCCURRING: u32 = 1 << 2;
    /// Shutdown is complete.
    pub const SHUTDOWN_COMPLETE: u32 = 2 << 2;

    /// Returns `true` if the controller is ready to process commands.
    pub const fn is_ready(self) -> bool {
        self.0 & ControllerState::READY != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linux_host_enables_with_these_bits() {
        // Enable, 64-byte and 16-byte entries, 4 KiB pages, NVM command set.
        let configuration = Configuration(0x0046_0001);
        assert!(configuration.is_enabled());
        assert_eq!(configuration.submission_shift(), 6);
        assert_eq!(configuration.completion_shift(), 4);
        assert_eq!(configuration.page_shift(), 0);
        assert_eq!(configuration.command_set(), 0);
        assert_eq!(Configuration(0x0046_4001).shutdown(), 1);
        assert_eq!(Configuration(0x0046_0061).command_set(), 6);
    }

    #[test]
    fn capabilities_lie_where_the_figure_has_them() {
        let bits = Capabilities { queue_entries_max: 128, timeout: 15 }.to_bits();
        assert_eq!(bits & 0xffff, 127);
        assert_eq!(bits >> 24 & 0xff, 15);
        assert_eq!(bits >> 37 & 0xff, 0x41);
        assert_eq!(bits >> 59 & 3, 1);
    }
}
