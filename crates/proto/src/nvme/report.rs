//! Reports on a fabric's objects, and storage of its reservations.

use alloc::vec::Vec;

use contract::Instant;
use wire::nvme::ReservationKind;

use super::binding::QueueAddress;
use super::config::{HostId, Nqn, PortId, Refusal};
use super::controller::Controller;
use super::counts::QueueCounts;
use super::record::ControllerKind;
use super::reservation::{Registrant, Reservation};
use super::state::State;

/// A report on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// The queue's identifier; zero for the admin queue.
    pub id: u16,
    /// The most commands that may be in flight.
    pub size: u16,
    /// The worker and the connection of the queue.
    pub place: QueueAddress,
    /// The counts of the queue's reads and writes.
    pub sum: QueueCounts,
}

/// A report on a controller: a host that is connected to a subsystem through a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// The controller's identifier.
    pub cntlid: u16,
    /// The controller's kind: for I/O or for discovery.
    pub kind: ControllerKind,
    /// The subsystem's name.
    pub subsystem: Nqn,
    /// The port through which the host has connected.
    pub port: PortId,
    /// The host's name.
    pub host: Nqn,
    /// The host's identifier.
    pub host_id: HostId,
    /// `true` if the host has enabled the controller, and the controller is ready.
    pub is_ready: bool,
    /// The keep-alive timeout in milliseconds; zero for none.
    pub keep_alive_ms: u32,
    /// The time at which the controller was created.
    pub created: Instant,
    /// The number of errors that the controller has reported to its host.
    pub errors: u64,
    /// The controller's present queues, ordered by identifier.
    pub queues: Vec<QueueInfo>,
}

/// The reservation of a namespace, as it is stored over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReservation {
    /// The name of a subsystem that exports the namespace.
    pub subsystem: Nqn,
    /// The namespace's identifier in the subsystem.
    pub nsid: u32,
    /// The number of registrations, of their replacements and removals, and of preemptions (PR
    /// generation, Base 7.5).
    pub generation: u32,
    /// Registrants with their keys, in the order of their registration.
    pub registrants: Vec<(Registrant, u64)>,
    /// The reservation's kind and holder. An absent holder stands for all registrants; `None` means
    /// that the namespace is not reserved.
    pub held: Option<(ReservationKind, Option<Registrant>)>,
    /// `true` if the reservation persists through power loss. Only such reservations have to be
    /// stored.
    pub persists: bool,
}

/// Returns the reservation of each namespace that has or had one, with its registrants.
pub(super) fn reservations(state: &State) -> Vec<StoredReservation> {
    let mut all = Vec::new();
    for served in state.inventory.subsystems() {
        for (nsid, attached) in &served.namespaces {
            let Some(own) = state.reservations.find(attached.config.id) else { continue };
            let Reservation { generation, registrants, held, persists } = own.clone();
            if generation != 0 || persists {
                let (subsystem, nsid) = (served.nqn.clone(), *nsid);
                all.push(StoredReservation {
                    subsystem,
                    nsid,
                    generation,
                    registrants,
                    held,
                    persists,
                });
            }
        }
    }
    all
}

/// Returns a report on a controller.
pub(super) fn controller_info(controller: &Controller) -> ControllerInfo {
    let queues = controller.queues.iter().map(|(id, record)| QueueInfo {
        id: *id,
        size: record.size,
        place: record.place,
        sum: record.counts.sum(),
    });
    ControllerInfo {
        cntlid: controller.cntlid(),
        kind: controller.association.kind,
        subsystem: controller.association.subsystem.clone(),
        port: controller.association.port,
        host: controller.association.host.clone(),
        host_id: controller.association.host_id,
        is_ready: controller.state.is_ready(),
        keep_alive_ms: controller.features.keep_alive_ms,
        created: controller.created,
        errors: controller.link.errors.count(),
        queues: queues.collect(),
    }
}

/// Restores a stored reservation.
///
/// # Errors
/// Returns a [`Refusal`] if the subsystem or namespace does not exist, or if the reservation is
/// inconsistent. Nothing of it is restored then.
pub(super) fn restore(state: &mut State, kept: StoredReservation) -> Result<(), Refusal> {
    let most = state.inventory.limits().registrants_max;
    let reservation = Reservation {
        generation: kept.generation,
        registrants: kept.registrants,
        held: kept.held,
        persists: kept.persists,
    };
    if !reservation.is_sound(most) {
        return Err(Refusal::Restore);
    }
    let id = state.inventory.namespace_mut(&kept.subsystem, kept.nsid)?.config.id;
    state.reservations.restore(id, reservation);
    let State { inventory, controllers, .. } = state;
    inventory.exports_of(id).iter().for_each(|(nqn, _)| controllers.access_changed(nqn));
    Ok(())
}
