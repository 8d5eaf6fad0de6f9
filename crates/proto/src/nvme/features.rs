//! Get Features and Set Features (Base 5.15 and 5.27).

use alloc::vec::Vec;

use contract::Instant;
use wire::nvme::{Feature, FeatureSelect, Status, Timestamp, notice};
use zerocopy::{FromBytes, IntoBytes};

use super::controller::{Controller, Kind};
use super::data;
use super::exported::{age, earlier};
use super::fences::Withdrawal;
use super::queue::{Call, Done};
use super::state::State;
use crate::takeover::{Reader, Unfit, Writer};

/// The size of the data of the Host Behavior Support feature.
const HOST_BEHAVIOUR_BYTES: usize = 512;

/// The events that an I/O controller sends, as bits of the feature and of Identify Controller.
pub(super) const IO_EVENTS: u32 = notice::NAMESPACE | notice::ANA;

/// The bit of Set Features that asks to save the value. No feature here can be saved.
const SAVE: u32 = 1 << 31;

/// The capability bit of a feature that belongs to a namespace.
const OF_NAMESPACE: u64 = 1 << 1;

/// The capability bit of a feature that can be changed.
const CHANGEABLE: u64 = 1 << 2;

/// The values of a controller's features, except for events and write-through, which [`Controller`]
/// keeps elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Features {
    arbitration: u32,
    temperature: [u32; 2],
    pub(super) keep_alive_ms: u32,
    /// The number of granted I/O queues; `None` until the host has asked.
    pub(super) io_queues: Option<u16>,
    write_cache: bool,
    host_behaviour: u8,
    /// Milliseconds, the time at which they were set, and their origin.
    timestamp: (u64, Instant, u8),
    /// The reservation notices that are disabled, for every namespace.
    pub(super) reservation_mask: u32,
}

impl Features {
    pub(super) fn new(now: Instant) -> Features {
        Features {
            arbitration: 0,
            temperature: [u32::from(u16::MAX), 0],
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
    pub(super) fn take(input: &mut Reader<'_>, now: Instant) -> Result<Features, Unfit> {
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
        if is_whole { Ok(features) } else { Err(Unfit::Value("feature")) }
    }

    fn timestamp(&self, now: Instant) -> Timestamp {
        let (millis, set_at, origin) = self.timestamp;
        let millis = millis + now.since(set_at).as_millis() as u64;
        let mut field = [0; 6];
        field.copy_from_slice(&millis.to_le_bytes()[..6]);
        Timestamp { millis: field, origin: origin << 1, reserved: 0 }
    }
}

/// Returns `true` if a kind of controller has this feature.
pub(super) fn is_served(kind: Kind, feature: Feature) -> bool {
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
        | Feature::RESERVATION_PERSISTENCE => kind == Kind::Io,
        _ => false,
    }
}

/// Returns the size of the data of Set Features for this feature.
pub(super) fn payload_bytes(feature: Feature) -> usize {
    match feature {
        Feature::TIMESTAMP => size_of::<Timestamp>(),
        Feature::HOST_BEHAVIOUR => HOST_BEHAVIOUR_BYTES,
        _ => 0,
    }
}

/// Returns the capabilities of a feature.
fn capabilities(feature: Feature) -> u64 {
    match feature {
        Feature::HOST_IDENTIFIER => 0,
        Feature::ERROR_RECOVERY | Feature::RESERVATION_MASK | Feature::RESERVATION_PERSISTENCE => {
            OF_NAMESPACE | CHANGEABLE
        }
        _ => CHANGEABLE,
    }
}

impl State {
    pub(super) fn get_features(&mut self, cntlid: u16, call: &mut Call) -> Result<Done, Status> {
        let dword10 = call.entry.dword10.get();
        let feature = Feature(dword10 as u8);
        let limits = self.limits;
        let controller = self.controller(cntlid)?;
        if !is_served(controller.kind, feature) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        match FeatureSelect((dword10 >> 8) as u8 & 7) {
            FeatureSelect::CURRENT => {}
            FeatureSelect::CAPABILITIES => return Ok(Done::Result(capabilities(feature))),
            FeatureSelect::DEFAULT | FeatureSelect::SAVED => {
                return default_value(feature, call, limits.io_queues_max);
            }
            _ => return Err(Status::INVALID_FIELD.dnr()),
        }
        match feature {
            Feature::ERROR_RECOVERY | Feature::RESERVATION_MASK => {
                self.namespace_value(cntlid, feature, call.entry.nsid.get())
            }
            Feature::RESERVATION_PERSISTENCE => {
                self.namespace_value(cntlid, feature, call.entry.nsid.get())
            }
            _ => controller_value(controller, feature, call, limits.io_queues_max),
        }
    }

    /// Returns the value of a feature that belongs to a namespace.
    fn namespace_value(&self, cntlid: u16, feature: Feature, nsid: u32) -> Result<Done, Status> {
        let controller = self.controllers.get(&cntlid).ok_or(Status::QUEUE_DELETED)?;
        let attached =
            self.namespace_of(controller, nsid).ok_or(Status::INVALID_NAMESPACE.dnr())?;
        Ok(Done::Result(match feature {
            Feature::RESERVATION_MASK => u64::from(controller.features.reservation_mask),
            Feature::RESERVATION_PERSISTENCE => {
                let reservation = self.reservations.get(&attached.config.id);
                u64::from(reservation.is_some_and(|reservation| reservation.persists))
            }
            _ => 0,
        }))
    }

    pub(super) fn set_features(&mut self, cntlid: u16, call: &mut Call) -> Result<Done, Status> {
        let dword10 = call.entry.dword10.get();
        let feature = Feature(dword10 as u8);
        let controller = self.controller(cntlid)?;
        if !is_served(controller.kind, feature) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if dword10 & SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE.dnr());
        }
        data::expect(call.entry, payload_bytes(feature))?;
        let of_namespace = capabilities(feature) & OF_NAMESPACE != 0;
        if !of_namespace && !matches!(call.entry.nsid.get(), 0 | u32::MAX) {
            return Err(Status::FEATURE_NOT_NAMESPACE.dnr());
        }
        match feature {
            Feature::RESERVATION_PERSISTENCE => self.set_persistence(cntlid, call),
            Feature::QUEUES => self.set_queues(cntlid, call.entry.dword11.get()),
            _ => self.set_value(cntlid, feature, call),
        }
    }

    /// Grants I/O queues (Base 5.27.1.5). Both numbers are zero-based.
    fn set_queues(&mut self, cntlid: u16, wanted: u32) -> Result<Done, Status> {
        let most = self.limits.io_queues_max;
        let controller = self.controller(cntlid)?;
        let (submission, completion) = (wanted as u16, (wanted >> 16) as u16);
        if submission == u16::MAX || completion == u16::MAX {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if controller.io_queues() > 0 {
            return Err(Status::SEQUENCE_ERROR.dnr());
        }
        // Over fabrics, queues come in pairs, so one number serves for both.
        let granted = most.min(submission.max(completion) + 1);
        controller.features.io_queues = Some(granted);
        Ok(Done::Result(queues_value(granted)))
    }

    fn set_value(&mut self, cntlid: u16, feature: Feature, call: &Call) -> Result<Done, Status> {
        let value = call.entry.dword11.get();
        let State { controllers, mail, .. } = self;
        let controller = controllers.get_mut(&cntlid).ok_or(Status::QUEUE_DELETED)?;
        let features = &mut controller.features;
        match feature {
            Feature::ARBITRATION => features.arbitration = value,
            // There is one power state, one error recovery and one atomicity, so only those can be
            // chosen.
            Feature::POWER | Feature::ERROR_RECOVERY if value & 0x1f == 0 => {}
            Feature::WRITE_ATOMICITY if value <= 1 => {}
            Feature::TEMPERATURE => features.set_temperature(value)?,
            Feature::WRITE_CACHE => {
                features.write_cache = value & 1 != 0;
                controller.link.set_writes_through(value & 1 == 0);
            }
            Feature::EVENTS => {
                controller.events.wanted = value;
                controller.send_events(mail);
            }
            Feature::TIMESTAMP => {
                let (stamp, _) = Timestamp::read_from_prefix(call.payload)
                    .map_err(|_| Status::DATA_SGL_LENGTH.dnr())?;
                let mut millis = [0; 8];
                millis[..6].copy_from_slice(&stamp.millis);
                features.timestamp = (u64::from_le_bytes(millis), call.now, 1);
            }
            Feature::KEEP_ALIVE => controller.set_keep_alive(value, call.now),
            Feature::HOST_BEHAVIOUR => features.host_behaviour = call.payload[0],
            Feature::HOST_IDENTIFIER => return Err(Status::SEQUENCE_ERROR.dnr()),
            Feature::RESERVATION_MASK => return self.set_reservation_mask(cntlid, call),
            _ => return Err(Status::INVALID_FIELD.dnr()),
        }
        Ok(Done::Result(0))
    }

    /// Sets the mask of reservation notices, for all namespaces together.
    fn set_reservation_mask(&mut self, cntlid: u16, call: &Call) -> Result<Done, Status> {
        self.check_any_namespace(cntlid, call.entry.nsid.get())?;
        let controller = self.controller(cntlid)?;
        controller.features.reservation_mask = call.entry.dword11.get() & 0b1110;
        Ok(Done::Result(0))
    }

    fn set_persistence(&mut self, cntlid: u16, call: &Call) -> Result<Done, Status> {
        let nsid = call.entry.nsid.get();
        self.check_any_namespace(cntlid, nsid)?;
        self.check_unkept(cntlid, call)?;
        let (subsystem, host) = {
            let controller = self.controller(cntlid)?;
            (controller.subsystem.clone(), controller.host.clone())
        };
        let State { subsystems, reservations, .. } = self;
        let subsystem = subsystems.get(&subsystem).ok_or(Status::QUEUE_DELETED)?;
        for (number, attached) in &subsystem.namespaces {
            let named = nsid == u32::MAX || nsid == *number;
            if named && attached.config.hosts.contain(&host) {
                let reservation = reservations.entry(attached.config.id).or_default();
                reservation.persists = call.entry.dword11.get() & 1 != 0;
            }
        }
        self.reservation_changes += 1;
        self.await_change(cntlid, call, true, Withdrawal::default())
    }

    fn check_any_namespace(&self, cntlid: u16, nsid: u32) -> Result<(), Status> {
        let controller = self.controllers.get(&cntlid).ok_or(Status::QUEUE_DELETED)?;
        match nsid {
            u32::MAX => Ok(()),
            _ => self
                .namespace_of(controller, nsid)
                .map(|_| ())
                .ok_or(Status::INVALID_NAMESPACE.dnr()),
        }
    }
}

impl Features {
    /// Sets a threshold of the composite temperature (Base 5.27.1.3), which is never reached.
    fn set_temperature(&mut self, value: u32) -> Result<(), Status> {
        let (sensor, under) = (value >> 16 & 0xf, value >> 20 & 3);
        match (sensor, under) {
            (0 | 0xf, 0 | 1) => {
                self.temperature[under as usize] = value & 0xffff;
                Ok(())
            }
            _ => Err(Status::INVALID_FIELD.dnr()),
        }
    }
}

/// Returns the current value of a feature of the controller.
fn controller_value(
    controller: &Controller,
    feature: Feature,
    call: &mut Call,
    queues_max: u16,
) -> Result<Done, Status> {
    let features = &controller.features;
    let dword11 = call.entry.dword11.get();
    Ok(Done::Result(match feature {
        Feature::ARBITRATION => u64::from(features.arbitration),
        Feature::TEMPERATURE => match (dword11 >> 16 & 0xf, dword11 >> 20 & 3) {
            (0, under @ (0 | 1)) => u64::from(features.temperature[under as usize]),
            _ => return Err(Status::INVALID_FIELD.dnr()),
        },
        Feature::WRITE_CACHE => u64::from(features.write_cache),
        Feature::QUEUES => queues_value(features.io_queues.unwrap_or(queues_max)),
        Feature::EVENTS => u64::from(controller.events.wanted),
        Feature::KEEP_ALIVE => u64::from(features.keep_alive_ms),
        Feature::TIMESTAMP => return reply(call, features.timestamp(call.now).as_bytes()),
        Feature::HOST_BEHAVIOUR => {
            let mut behaviour = [0; HOST_BEHAVIOUR_BYTES];
            behaviour[0] = features.host_behaviour;
            return reply(call, &behaviour);
        }
        Feature::HOST_IDENTIFIER => {
            // Over fabrics, identifiers have 128 bits, and the host has to say that it expects
            // those.
            if dword11 & 1 == 0 {
                return Err(Status::INVALID_FIELD.dnr());
            }
            return reply(call, &controller.host_id.0);
        }
        _ => 0,
    }))
}

/// Returns the default value of a feature.
fn default_value(feature: Feature, call: &mut Call, queues_max: u16) -> Result<Done, Status> {
    let over = call.entry.dword11.get() >> 20 & 3 == 0;
    match feature {
        Feature::TIMESTAMP => reply(call, &[0; size_of::<Timestamp>()]),
        Feature::HOST_BEHAVIOUR => reply(call, &[0; HOST_BEHAVIOUR_BYTES]),
        Feature::HOST_IDENTIFIER => reply(call, &[0; 16]),
        Feature::WRITE_CACHE => Ok(Done::Result(1)),
        Feature::QUEUES => Ok(Done::Result(queues_value(queues_max))),
        Feature::TEMPERATURE if over => Ok(Done::Result(u64::from(u16::MAX))),
        _ => Ok(Done::Result(0)),
    }
}

/// Returns the number of queues, twice and zero-based.
fn queues_value(queues: u16) -> u64 {
    let zero_based = u64::from(queues - 1);
    zero_based | zero_based << 16
}

/// Replies with data for the host.
fn reply(call: &mut Call, bytes: &[u8]) -> Result<Done, Status> {
    data::expect(call.entry, bytes.len())?;
    copy(call.out, bytes);
    Ok(Done::Result(0))
}

fn copy(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
}
