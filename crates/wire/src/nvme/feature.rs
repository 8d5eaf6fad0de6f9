//! Features (Base 5.27.1) and asynchronous events (Base 5.2).

open_enum! {
    /// The identifier of a feature: bits 7:0 of dword 10.
    pub struct Feature {
        /// Arbitration between submission queues.
        ARBITRATION = 0x01,
        /// The power state of the controller.
        POWER = 0x02,
        /// The temperature thresholds at which the controller sends an event.
        TEMPERATURE = 0x04,
        /// Error recovery: how long reads and writes are retried.
        ERROR_RECOVERY = 0x05,
        /// The volatile write cache: on or off.
        WRITE_CACHE = 0x06,
        /// The number of I/O queues that the controller grants.
        QUEUES = 0x07,
        /// Atomicity of writes larger than a block.
        WRITE_ATOMICITY = 0x0a,
        /// Mask of the asynchronous events that the controller sends.
        EVENTS = 0x0b,
        /// Timestamp; 8 bytes of data.
        TIMESTAMP = 0x0e,
        /// Keep-alive timeout.
        KEEP_ALIVE = 0x0f,
        /// Behaviour that the host supports (Host Behavior Support); 512 bytes of data.
        HOST_BEHAVIOUR = 0x16,
        /// Host identifier; 16 bytes of data.
        HOST_IDENTIFIER = 0x81,
        /// Mask of the reservation notices that the controller does not send.
        RESERVATION_MASK = 0x82,
        /// Persistence of reservations through power loss.
        RESERVATION_PERSISTENCE = 0x83,
    }
}

open_enum! {
    /// The value of a feature that Get Features reads: bits 10:8 of dword 10.
    pub struct FeatureSelect {
        /// The current value.
        CURRENT = 0,
        /// The default value.
        DEFAULT = 1,
        /// The value that survives a reset.
        SAVED = 2,
        /// The feature's capabilities, instead of a value: whether it can be saved and changed.
        CAPABILITIES = 3,
    }
}

layout! {
    /// The data of the timestamp feature (Base 5.27.1.11).
    pub struct Timestamp: 8 {
        /// Milliseconds since 1970 (or since the controller was reset), little-endian.
        [0] millis: [u8; 6],
        /// Bits 3:1 origin of the time: 0 the reset, 1 the host.
        [6] origin: u8,
        /// Reserved bytes, which are zero.
        [7] reserved: u8,
    }
}

open_enum! {
    /// The type of an asynchronous event: bits 2:0 of the result.
    pub struct EventKind {
        /// An error that is not the outcome of one command.
        ERROR = 0,
        /// A change of the health status.
        SMART = 1,
        /// A notice, for example of changed namespaces.
        NOTICE = 2,
        /// An event of the I/O command set, for example a reservation notice.
        COMMAND_SET = 6,
    }
}

/// Bits of [`Feature::EVENTS`] and of the `events` field of Identify Controller.
pub mod notice {
    /// The bits of the critical warnings of the health log.
    pub const SMART: u32 = 0xff;
    /// Namespaces were attached, detached or changed.
    pub const NAMESPACE: u32 = 1 << 8;
    /// Asymmetric namespace access changed.
    pub const ANA: u32 = 1 << 11;
    /// The discovery log changed.
    pub const DISCOVERY: u32 = 1 << 31;
}

/// An asynchronous event (Base 5.2.1): the result of an Asynchronous Event Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The type of the event.
    pub kind: EventKind,
    /// The identifier of the event within its type.
    pub information: u8,
    /// The log page that has details of the event.
    pub page: super::LogPage,
}

impl Event {
    /// Namespaces were attached, detached or changed.
    pub const NAMESPACE: Event = Event::new(EventKind::NOTICE, 0x00, super::LogPage(0x04));
    /// Asymmetric namespace access changed.
    pub const ANA: Event = Event::new(EventKind::NOTICE, 0x03, super::LogPage(0x0c));
    /// The discovery log changed.
    pub const DISCOVERY: Event = Event::new(EventKind::NOTICE, 0xf0, super::LogPage(0x70));
    /// A reservation notice is available.
    pub const RESERVATION: Event = Event::new(EventKind::COMMAND_SET, 0x00, super::LogPage(0x80));

    /// The temperature has reached a threshold.
    pub const TEMPERATURE: Event = Event::new(EventKind::SMART, 0x01, super::LogPage(0x02));

    const fn new(kind: EventKind, information: u8, page: super::LogPage) -> Event {
        Event { kind, information, page }
    }

    /// Returns the event in the form of dword 0 of the completion of an Asynchronous Event Request.
    pub const fn to_result(self) -> u32 {
        self.kind.0 as u32 | (self.information as u32) << 8 | (self.page.0 as u32) << 16
    }
}
