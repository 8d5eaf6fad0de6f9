//! Get Features and Set Features (Base 5.15 and 5.27).

use wire::nvme::{Event, Feature, FeatureSelect, Status, Timestamp};
use zerocopy::{FromBytes, IntoBytes};

use super::call::{ControllerCommand, ControllerOutcome};
use super::controller::Controller;
use super::data;
use super::features::{HOST_BEHAVIOUR_BYTES, OF_NAMESPACE, TEMPERATURE_WARNED};
use super::features::{capabilities, events_of, is_served, payload_bytes};
use super::fences::Withdrawal;
use super::logs::TEMPERATURE;
use super::reservation_commands::{await_change, check_unkept};
use super::state::State;

/// The bit of Set Features that asks to save the value. No feature here can be saved.
const SAVE: u32 = 1 << 31;

/// Carries out Get Features (Base 5.15) for controller `cntlid`.
pub(super) fn get_features(
    state: &State,
    cntlid: u16,
    call: &mut ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    let dword10 = call.entry.dword10.get();
    let feature = Feature(dword10 as u8);
    let limits = state.inventory.limits();
    let controller = state.controllers.get(cntlid)?;
    if !is_served(controller.association.kind, feature) {
        return Err(Status::INVALID_FIELD.dnr());
    }
    match FeatureSelect((dword10 >> 8) as u8 & 7) {
        FeatureSelect::CURRENT => {}
        FeatureSelect::CAPABILITIES => return Ok(ControllerOutcome::Result(capabilities(feature))),
        FeatureSelect::DEFAULT | FeatureSelect::SAVED => {
            return default_value(feature, call, limits.io_queues_max);
        }
        _ => return Err(Status::INVALID_FIELD.dnr()),
    }
    match feature {
        Feature::ERROR_RECOVERY | Feature::RESERVATION_MASK | Feature::RESERVATION_PERSISTENCE => {
            namespace_value(state, cntlid, feature, call.nsid())
        }
        _ => controller_value(controller, feature, call, limits.io_queues_max),
    }
}

/// Replies with the current value of a feature that belongs to a namespace.
fn namespace_value(
    state: &State,
    cntlid: u16,
    feature: Feature,
    nsid: u32,
) -> Result<ControllerOutcome, Status> {
    let controller = state.controllers.get(cntlid)?;
    let attached = state
        .inventory
        .namespace_of(&controller.association, nsid)
        .ok_or(Status::INVALID_NAMESPACE.dnr())?;
    Ok(ControllerOutcome::Result(match feature {
        Feature::RESERVATION_MASK => u64::from(controller.features.reservation_mask),
        Feature::RESERVATION_PERSISTENCE => {
            let reservation = state.reservations.find(attached.config.id);
            u64::from(reservation.is_some_and(|reservation| reservation.persists))
        }
        _ => 0,
    }))
}

/// Carries out Set Features (Base 5.27) for controller `cntlid`.
pub(super) fn set_features(
    state: &mut State,
    cntlid: u16,
    call: &mut ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    let dword10 = call.entry.dword10.get();
    let feature = Feature(dword10 as u8);
    let controller = state.controllers.get_mut(cntlid)?;
    if !is_served(controller.association.kind, feature) {
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
        Feature::RESERVATION_PERSISTENCE => set_persistence(state, cntlid, call),
        Feature::QUEUES => set_queues(state, cntlid, call.entry.dword11.get()),
        _ => set_value(state, cntlid, feature, call),
    }
}

/// Grants I/O queues to the host (Number of Queues, Base 5.27.1.5). `wanted` has the zero-based
/// numbers of submission queues (low half) and of completion queues (high half).
fn set_queues(state: &mut State, cntlid: u16, wanted: u32) -> Result<ControllerOutcome, Status> {
    let most = state.inventory.limits().io_queues_max;
    let controller = state.controllers.get_mut(cntlid)?;
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
    Ok(ControllerOutcome::Result(queues_value(granted)))
}

fn set_value(
    state: &mut State,
    cntlid: u16,
    feature: Feature,
    call: &ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    let value = call.entry.dword11.get();
    let State { controllers, mail, .. } = state;
    let controller = controllers.get_mut(cntlid)?;
    let features = &mut controller.features;
    match feature {
        Feature::ARBITRATION => features.arbitration = value,
        // There is one power state, one error recovery and one atomicity, so only those can be
        // chosen.
        Feature::POWER | Feature::ERROR_RECOVERY if value & 0x1f == 0 => {}
        Feature::WRITE_ATOMICITY if value <= 1 => {}
        Feature::TEMPERATURE => {
            let was_beyond = features.is_beyond_a_threshold(TEMPERATURE);
            features.set_temperature(value)?;
            if !was_beyond && features.is_beyond_a_threshold(TEMPERATURE) {
                controller.events.raise(Event::TEMPERATURE);
                controller.send_events(mail);
            }
        }
        Feature::WRITE_CACHE => {
            features.write_cache = value & 1 != 0;
            controller.link.set_writes_through(value & 1 == 0);
        }
        Feature::EVENTS => {
            // Bits of events that never come read back as off.
            controller.events.wanted = value & events_of(controller.association.kind);
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
        Feature::RESERVATION_MASK => return set_reservation_mask(state, cntlid, call),
        _ => return Err(Status::INVALID_FIELD.dnr()),
    }
    Ok(ControllerOutcome::Result(0))
}

/// Sets the mask of reservation notices, for all namespaces together.
fn set_reservation_mask(
    state: &mut State,
    cntlid: u16,
    call: &ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    check_any_namespace(state, cntlid, call.entry.nsid.get())?;
    let controller = state.controllers.get_mut(cntlid)?;
    controller.features.reservation_mask = call.entry.dword11.get() & 0b1110;
    Ok(ControllerOutcome::Result(0))
}

/// Sets whether the reservations of one or all namespaces persist.
fn set_persistence(
    state: &mut State,
    cntlid: u16,
    call: &ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    let nsid = call.entry.nsid.get();
    check_any_namespace(state, cntlid, nsid)?;
    check_unkept(state, cntlid, call)?;
    let State { inventory, controllers, reservations, .. } = state;
    let association = &controllers.get(cntlid)?.association;
    inventory.subsystem(&association.subsystem).ok_or(Status::QUEUE_DELETED)?;
    let own = inventory.namespaces_of(association);
    for (_, attached) in own.filter(|(number, _)| nsid == u32::MAX || nsid == *number) {
        reservations.entry(attached.config.id).persists = call.entry.dword11.get() & 1 != 0;
    }
    state.reservations.count_change();
    await_change(state, cntlid, call, true, Withdrawal::default())
}

fn check_any_namespace(state: &State, cntlid: u16, nsid: u32) -> Result<(), Status> {
    let controller = state.controllers.get(cntlid)?;
    match nsid {
        u32::MAX => Ok(()),
        _ => state
            .inventory
            .namespace_of(&controller.association, nsid)
            .map(|_| ())
            .ok_or(Status::INVALID_NAMESPACE.dnr()),
    }
}

/// Replies with the current value of a feature that belongs to the controller.
fn controller_value(
    controller: &Controller,
    feature: Feature,
    call: &mut ControllerCommand,
    queues_max: u16,
) -> Result<ControllerOutcome, Status> {
    let features = &controller.features;
    let dword11 = call.entry.dword11.get();
    Ok(ControllerOutcome::Result(match feature {
        Feature::ARBITRATION => u64::from(features.arbitration),
        Feature::TEMPERATURE => match (dword11 >> 16 & 0xf, dword11 >> 20 & 3) {
            (0, under @ (0 | 1)) => u64::from(features.temperature[under as usize]),
            _ => return Err(Status::INVALID_FIELD.dnr()),
        },
        Feature::WRITE_CACHE => u64::from(features.write_cache),
        Feature::QUEUES => queues_value(features.io_queues.unwrap_or(queues_max)),
        Feature::EVENTS => u64::from(controller.events.wanted),
        Feature::KEEP_ALIVE => u64::from(features.keep_alive_ms),
        Feature::TIMESTAMP => return call.reply(features.timestamp(call.now).as_bytes()),
        Feature::HOST_BEHAVIOUR => {
            let mut behaviour = [0; HOST_BEHAVIOUR_BYTES];
            behaviour[0] = features.host_behaviour;
            return call.reply(&behaviour);
        }
        Feature::HOST_IDENTIFIER => {
            // Over fabrics, identifiers have 128 bits, and the host has to say that it expects
            // those.
            if dword11 & 1 == 0 {
                return Err(Status::INVALID_FIELD.dnr());
            }
            return call.reply(&controller.association.host_id.0);
        }
        _ => 0,
    }))
}

/// Replies with the default value of a feature.
fn default_value(
    feature: Feature,
    call: &mut ControllerCommand,
    queues_max: u16,
) -> Result<ControllerOutcome, Status> {
    let over = call.entry.dword11.get() >> 20 & 3 == 0;
    match feature {
        Feature::TIMESTAMP => call.reply(&[0; size_of::<Timestamp>()]),
        Feature::HOST_BEHAVIOUR => call.reply(&[0; HOST_BEHAVIOUR_BYTES]),
        Feature::HOST_IDENTIFIER => call.reply(&[0; 16]),
        Feature::WRITE_CACHE => Ok(ControllerOutcome::Result(1)),
        Feature::QUEUES => Ok(ControllerOutcome::Result(queues_value(queues_max))),
        Feature::TEMPERATURE if over => {
            Ok(ControllerOutcome::Result(u64::from(TEMPERATURE_WARNED)))
        }
        _ => Ok(ControllerOutcome::Result(0)),
    }
}

/// Returns the value of feature Number of Queues: the zero-based number of queues in both halves.
fn queues_value(queues: u16) -> u64 {
    let zero_based = u64::from(queues - 1);
    zero_based | zero_based << 16
}
