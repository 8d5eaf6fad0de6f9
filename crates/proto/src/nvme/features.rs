//! The features of a controller (Base 5.27): their values, sizes and capabilities.

use contract::Instant;
use wire::nvme::{Feature, Status, Timestamp, notice};

use super::record::ControllerKind;
use crate::takeover::{Reader, TakeoverRefusal, Writer, age, earlier};

/// The size in bytes of the data of the Host Behavior Support feature.
pub(super) const HOST_BEHAVIOUR_BYTES: usize = 512;

/// The notices that an I/O controller sends, as bits of feature Asynchronous Event Configuration
/// and of Identify Controller (OAES).
pub(super) const IO_EVENTS: u32 = notice::NAMESPACE | notice::ANA;

/// The temperature in kelvin that is reported to hosts as too warm, which is also the initial
/// warning threshold.
pub(super) const TEMPERATURE_WARNED: u16 = 0x0157;

/// The capability bit of a feature that belongs to a namespace.
pub(super) const OF_NAMESPACE: u64 = 1 << 1;

/// The capability bit of a feature that can be changed.
const CHANGEABLE: u64 = 1 << 2;

/// The values of a controller's features, except for events and write-through, which `Controller`
/// keeps elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Features {
    pub(super) arbitration: u32,
    pub(super) temperature: [u32; 2],
    pub(super) keep_alive_ms: u32,
    /// The number of granted I/O queues; `None` until the host has asked.
    pub(super) io_queues: Option<u16>,
    pub(super) write_cache: bool,
    pub(super) host_behaviour: u8,
    /// The timestamp in milliseconds, the time at which it was set, and its origin: 0 for a reset,
    /// 1 for the host.
    pub(super) timestamp: (u64, Instant, u8),
    /// The kinds of reservation notices that the host has disabled for all namespaces, as bits of
    /// feature Reservation Notification Mask.
    pub(super) reservation_mask: u32,
}

impl Features {
    pub(super) fn new(now: Instant) -> Features {
        Features {
            arbitration: 0,
            temperature: [u32::from(TEMPERATURE_WARNED), 0],
            keep_alive_ms: 0,
            io_queues: None,
            write_cache: true,
            host_behaviour: 0,
            timestamp: (0, now, 0),
            reservation_mask: 0,
        }
    }

    /// Encodes the features for another process, in the order of the fields. The time of setting is
    /// encoded as an age.
    pub(super) fn put(&self, to: &mut Writer, now: Instant) {
        to.put(self.arbitration.to_le_bytes());
        self.temperature.iter().for_each(|threshold| to.put(threshold.to_le_bytes()));
        to.put(self.keep_alive_ms.to_le_bytes());
        to.put(self.io_queues.unwrap_or(0).to_le_bytes());
        to.flag(self.write_cache);
        to.put([self.host_behaviour]);
        let (millis, set_at, origin) = self.timestamp;
        to.put(millis.to_le_bytes());
        to.put(age(now, set_at));
        to.put([origin]);
        to.put(self.reservation_mask.to_le_bytes());
    }

    /// Decodes features from another process.
    pub(super) fn take(input: &mut Reader<'_>, now: Instant) -> Result<Features, TakeoverRefusal> {
        let features = Features {
            arbitration: input.u32()?,
            temperature: [input.u32()?, input.u32()?],
            keep_alive_ms: input.u32()?,
            io_queues: Some(input.u16()?).filter(|granted| *granted > 0),
            write_cache: input.flag("write cache")?,
            host_behaviour: input.u8()?,
            timestamp: (input.u64()?, earlier(now, input.u64()?), input.u8()?),
            reservation_mask: input.u32()?,
        };
        let (millis, _, origin) = features.timestamp;
        let is_whole = features.temperature.iter().all(|threshold| *threshold <= 0xffff)
            && millis >> 48 == 0
            && origin <= 1
            && features.reservation_mask & !0b1110 == 0;
        if is_whole { Ok(features) } else { Err(TakeoverRefusal::Value("feature")) }
    }

    /// Returns `true` if a temperature of `kelvin` has reached the upper or the lower threshold.
    pub(super) fn is_beyond_a_threshold(&self, kelvin: u16) -> bool {
        let [over, under] = self.temperature;
        let kelvin = u32::from(kelvin);
        kelvin >= over || kelvin <= under
    }

    /// Sets a threshold of the composite temperature, as encoded in dword 11 of Set Features (Base
    /// 5.27.1.3).
    pub(super) fn set_temperature(&mut self, value: u32) -> Result<(), Status> {
        let (sensor, under) = (value >> 16 & 0xf, value >> 20 & 3);
        match (sensor, under) {
            (0 | 0xf, 0 | 1) => {
                self.temperature[under as usize] = value & 0xffff;
                Ok(())
            }
            _ => Err(Status::INVALID_FIELD.dnr()),
        }
    }

    /// Returns the value of feature Timestamp at time `now`: the milliseconds that were set, and
    /// those since then.
    pub(super) fn timestamp(&self, now: Instant) -> Timestamp {
        let (millis, set_at, origin) = self.timestamp;
        let millis = millis + now.since(set_at).as_millis() as u64;
        let mut field = [0; 6];
        field.copy_from_slice(&millis.to_le_bytes()[..6]);
        Timestamp { millis: field, origin: origin << 1, reserved: 0 }
    }
}

/// Returns the events that a kind of controller sends, as bits of feature Asynchronous Event
/// Configuration.
pub(super) fn events_of(kind: ControllerKind) -> u32 {
    match kind {
        ControllerKind::Io => IO_EVENTS | notice::SMART,
        ControllerKind::Discovery => notice::DISCOVERY,
    }
}

/// Returns `true` if a kind of controller has this feature.
pub(super) fn is_served(kind: ControllerKind, feature: Feature) -> bool {
    match feature {
        Feature::EVENTS | Feature::KEEP_ALIVE | Feature::HOST_IDENTIFIER => true,
        Feature::ARBITRATION
        | Feature::POWER
        | Feature::TEMPERATURE
        | Feature::ERROR_RECOVERY
        | Feature::WRITE_CACHE
        | Feature::QUEUES
        | Feature::WRITE_ATOMICITY
        | Feature::TIMESTAMP
        | Feature::HOST_BEHAVIOUR
        | Feature::RESERVATION_MASK
        | Feature::RESERVATION_PERSISTENCE => kind == ControllerKind::Io,
        _ => false,
    }
}

/// Returns the size in bytes of the data that Set Features sends for this feature; zero for none.
pub(super) fn payload_bytes(feature: Feature) -> usize {
    match feature {
        Feature::TIMESTAMP => size_of::<Timestamp>(),
        Feature::HOST_BEHAVIOUR => HOST_BEHAVIOUR_BYTES,
        _ => 0,
    }
}

/// Returns the capabilities of a feature, as bits for Get Features (`OF_NAMESPACE`, `CHANGEABLE`).
pub(super) fn capabilities(feature: Feature) -> u64 {
    match feature {
        Feature::HOST_IDENTIFIER => 0,
        Feature::ERROR_RECOVERY | Feature::RESERVATION_MASK | Feature::RESERVATION_PERSISTENCE => {
            OF_NAMESPACE | CHANGEABLE
        }
        _ => CHANGEABLE,
    }
}
