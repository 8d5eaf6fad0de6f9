//! The reservation commands (Base 7.2 to 7.5).

use alloc::vec::Vec;

use wire::nvme::{
    Event, RegistrantExtended, ReservationAcquire, ReservationHead, ReservationKind,
    ReservationRegister, ReservationRelease, Status,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::call::{ControllerCommand, ControllerOutcome};
use super::config::Nqn;
use super::controller::Controller;
use super::data;
use super::fences::Withdrawal;
use super::inventory::AttachedNamespace;
use super::reservation::{Registrant, Reservation, ReservationNotices};
use super::state::{State, path_status};

/// The bit "Ignore Existing Key" in dword 10 of the reservation commands.
const IGNORE_KEY: u32 = 1 << 3;

/// The status of a conflict with another host's reservation or key.
const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();

/// Carries out Reservation Register (Base 7.3).
pub(super) fn register(
    state: &mut State,
    cntlid: u16,
    call: &mut ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    let (keys, _) = ReservationRegister::read_from_prefix(call.payload)
        .map_err(|_| Status::DATA_SGL_LENGTH.dnr())?;
    let dword10 = call.entry.dword10.get();
    let ignore = dword10 & IGNORE_KEY != 0;
    let most = state.inventory.limits().registrants_max;
    let persists = match dword10 >> 30 {
        0 => None,
        2 => Some(false),
        3 => Some(true),
        _ => return Err(Status::INVALID_FIELD.dnr()),
    };
    let (current, new) = (keys.current_key.get(), keys.new_key.get());
    change_reservation(state, cntlid, call, false, |reservation, host| {
        let change = match dword10 & 7 {
            0 => reservation.register(host, new, ignore, most),
            1 => reservation.unregister(host, (!ignore).then_some(current)),
            2 => reservation.replace(host, (!ignore).then_some(current), new),
            _ => Err(Status::INVALID_FIELD.dnr()),
        }?;
        reservation.persists = persists.unwrap_or(reservation.persists);
        Ok(change)
    })
}

/// Carries out Reservation Acquire (Base 7.2).
pub(super) fn acquire(
    state: &mut State,
    cntlid: u16,
    call: &mut ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    let (keys, _) = ReservationAcquire::read_from_prefix(call.payload)
        .map_err(|_| Status::DATA_SGL_LENGTH.dnr())?;
    let dword10 = call.entry.dword10.get();
    let kind = ReservationKind((dword10 >> 8) as u8);
    if dword10 & IGNORE_KEY != 0 || !(1..=6).contains(&kind.0) {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let current = keys.current_key.get();
    let aborts = dword10 & 7 == 2;
    change_reservation(state, cntlid, call, aborts, |reservation, host| {
        if reservation.key_of(host) != Some(current) {
            return Err(CONFLICT);
        }
        match dword10 & 7 {
            0 => reservation.acquire(host, kind),
            1 | 2 => reservation.preempt(host, keys.preempt_key.get(), kind),
            _ => Err(Status::INVALID_FIELD.dnr()),
        }
    })
}

/// Carries out Reservation Release (Base 7.4).
pub(super) fn release(
    state: &mut State,
    cntlid: u16,
    call: &mut ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    let (keys, _) = ReservationRelease::read_from_prefix(call.payload)
        .map_err(|_| Status::DATA_SGL_LENGTH.dnr())?;
    let dword10 = call.entry.dword10.get();
    let kind = ReservationKind((dword10 >> 8) as u8);
    if dword10 & IGNORE_KEY != 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let current = keys.current_key.get();
    change_reservation(state, cntlid, call, false, |reservation, host| {
        if reservation.key_of(host) != Some(current) {
            return Err(CONFLICT);
        }
        match dword10 & 7 {
            0 => reservation.release(host, kind),
            1 => Ok(reservation.clear(host)),
            _ => Err(Status::INVALID_FIELD.dnr()),
        }
    })
}

/// Carries out Reservation Report (Base 7.5) in its extended form, which 128-bit host
/// identifiers need.
pub(super) fn report(
    state: &mut State,
    cntlid: u16,
    call: &mut ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    if call.entry.dword11.get() & 1 == 0 {
        return Err(Status::HOST_ID_FORMAT.dnr());
    }
    let bytes = (u64::from(call.entry.dword10.get()) + 1) * 4;
    if bytes > contract::REQUEST_BYTES_MAX as u64 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    data::expect(call.entry, bytes as usize)?;
    let controller = state.controllers.get(cntlid)?;
    let attached = state
        .inventory
        .namespace_of(&controller.association, call.entry.nsid.get())
        .ok_or(Status::INVALID_NAMESPACE.dnr())?;
    let none = Reservation::default();
    let report = report_of(state.reservations.find(attached.config.id).unwrap_or(&none));
    call.out.extend_from_slice(&report[..report.len().min(bytes as usize)]);
    call.out.resize(bytes as usize, 0);
    Ok(ControllerOutcome::Result(0))
}

/// Changes the reservation of the namespace that a command names, and notifies the hosts concerned.
/// The command is answered once hosts that lose a right have no data-changing request at a device.
/// If it `aborts`, that includes all hosts that it unregisters (docs/adr/0011-nvme-fences.md).
fn change_reservation(
    state: &mut State,
    cntlid: u16,
    call: &ControllerCommand,
    aborts: bool,
    change: impl FnOnce(&mut Reservation, &Registrant) -> Result<ReservationNotices, Status>,
) -> Result<ControllerOutcome, Status> {
    check_unkept(state, cntlid, call)?;
    let nsid = call.entry.nsid.get();
    let controller = state.controllers.get(cntlid)?;
    let (nqn, port, host) = (
        controller.association.subsystem.clone(),
        controller.association.port,
        controller.registrant(),
    );
    let attached = state
        .inventory
        .namespace_of(&controller.association, nsid)
        .ok_or(Status::INVALID_NAMESPACE.dnr())?;
    let (group, id) = (attached.config.ana_group, attached.config.id);
    let subsystem = state.inventory.subsystem(&nqn).ok_or(Status::QUEUE_DELETED)?;
    let (access, _) = subsystem.access(port, group);
    if let Some(status) = path_status(access) {
        return Err(status);
    }
    // A host without an identifier cannot be a registrant.
    if host.id.0 == [0; 16] {
        return Err(Status::DENIED.dnr());
    }
    let reservation = state.reservations.entry(id);
    let before = reservation.clone();
    let change = change(reservation, &host)?;
    let now = reservation.clone();
    state.reservations.count_change();
    let exports = state.inventory.exports_of(id);
    let mut withdrawal = Withdrawal::default();
    for (nqn, nsid) in &exports {
        state.controllers.access_changed(nqn);
        notify(state, nqn, *nsid, &change);
        let loses = |host: &Registrant| {
            before.takes_from(host, &now)
                || aborts && before.key_of(host).is_some() && now.key_of(host).is_none()
        };
        state.withdraw(nqn, loses, &mut withdrawal);
    }
    await_change(state, cntlid, call, before.persists || now.persists, withdrawal)
}

/// Checks that a command may wait until a reservation is stored. At most as many commands of a
/// queue may wait as the queue has entries, whatever its host sends.
pub(super) fn check_unkept(
    state: &State,
    cntlid: u16,
    call: &ControllerCommand,
) -> Result<(), Status> {
    let controller = state.controllers.get(cntlid)?;
    let record = controller.queues.get(&call.queue).ok_or(Status::QUEUE_DELETED)?;
    match state.reservations.waiting_at(record.place) < usize::from(record.size) {
        true => Ok(()),
        false => Err(Status::INTERRUPTED),
    }
}

/// Delays the answer to a command that changed a reservation, or answers the command at once. The
/// command waits until `withdrawal` is over. If reservations are stored, and this one persists or
/// did (`persists`), the command also waits until the change is stored.
pub(super) fn await_change(
    state: &mut State,
    cntlid: u16,
    call: &ControllerCommand,
    persists: bool,
    withdrawal: Withdrawal,
) -> Result<ControllerOutcome, Status> {
    let controller = state.controllers.get(cntlid)?;
    let Some(record) = controller.queues.get(&call.queue) else {
        return Ok(ControllerOutcome::Result(0));
    };
    let to = (record.place, call.entry.cid.get());
    match state.reservations.park(persists, withdrawal, to) {
        true => Ok(ControllerOutcome::Parked),
        false => Ok(ControllerOutcome::Result(0)),
    }
}

/// Sends the notices of a change to the controllers of the notified hosts, unless the namespace was
/// hidden from a host since it registered.
fn notify(state: &mut State, nqn: &Nqn, nsid: u32, change: &ReservationNotices) {
    let State { controllers, inventory, mail, .. } = state;
    let namespace = inventory.subsystem(nqn).and_then(|served| served.namespaces.get(&nsid));
    let Some(AttachedNamespace { config }) = namespace else { return };
    let sees = |own: &&mut Controller| {
        own.association.subsystem == *nqn && config.hosts.contain(&own.association.host)
    };
    for controller in controllers.iter_mut().filter(sees) {
        let own = controller.registrant();
        for (kind, _) in change.notices.iter().filter(|(_, whom)| *whom == own) {
            if controller.features.reservation_mask >> kind.0 & 1 == 0 {
                controller.notices.add(*kind, nsid);
                controller.events.raise(Event::RESERVATION);
            }
        }
        controller.send_events(mail);
    }
}

fn report_of(reservation: &Reservation) -> Vec<u8> {
    let kind = reservation.held.as_ref().map_or(ReservationKind(0), |(kind, _)| *kind);
    let head = ReservationHead {
        generation: U32::new(reservation.generation),
        kind,
        registrants: U16::new(reservation.registrants.len() as u16),
        persists: u8::from(reservation.persists),
        ..ReservationHead::new_zeroed()
    };
    let mut report = head.as_bytes().to_vec();
    for (host, key) in &reservation.registrants {
        let entry = RegistrantExtended {
            // Controllers are created as hosts connect, so none can be named.
            cntlid: U16::new(u16::MAX),
            state: u8::from(reservation.is_holder(host)),
            key: U64::new(*key),
            host_id: host.id.0,
            ..RegistrantExtended::new_zeroed()
        };
        report.extend_from_slice(entry.as_bytes());
    }
    report
}
