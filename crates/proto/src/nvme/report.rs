//! Reports on a fabric's objects, and storage of its reservations.

use alloc::vec::Vec;

use contract::{Geometry, Instant, NamespaceId};
use wire::nvme::{ReservationKind, Status};

use super::binding::{Answer, Place};
use super::config::{HostId, Hosts, Nqn, Port, PortId, Refusal};
use super::controller::{Controller, Kind};
use super::counts::Sum;
use super::fabric::Fabric;
use super::reservation::{Registrant, Reservation};
use super::state::State;

/// A report on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// The queue's identifier; zero for the admin queue.
    pub id: u16,
    /// The most commands that may be in flight.
    pub size: u16,
    /// The worker and connection that it lives on.
    pub place: Place,
    /// The queue's reads and writes.
    pub sum: Sum,
}

/// A report on a controller: a host that is connected to a subsystem through a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// The controller's identifier.
    pub cntlid: u16,
    /// The controller's kind.
    pub kind: Kind,
    /// The subsystem.
    pub subsystem: Nqn,
    /// The port.
    pub port: PortId,
    /// The host.
    pub host: Nqn,
    /// The host's identifier.
    pub host_id: HostId,
    /// `true` if the host has enabled it.
    pub is_ready: bool,
    /// The keep-alive timeout in milliseconds; zero for none.
    pub keep_alive_ms: u32,
    /// When it was created.
    pub created: Instant,
    /// The number of errors that it has reported to its host.
    pub errors: u64,
    /// The queues.
    pub queues: Vec<QueueInfo>,
}

/// A report on a namespace of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// The subsystem's identifier of the namespace.
    pub nsid: u32,
    /// The server's identifier of the namespace.
    pub id: NamespaceId,
    /// The geometry.
    pub geometry: Geometry,
    /// The ANA group.
    pub ana_group: u32,
    /// The hosts that see it.
    pub hosts: Hosts,
}

/// A report on a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemInfo {
    /// The subsystem's name.
    pub nqn: Nqn,
    /// The serial number.
    pub serial: alloc::string::String,
    /// The hosts that may connect.
    pub hosts: Hosts,
    /// The ports that lead to the subsystem; empty means all ports.
    pub ports: Vec<PortId>,
    /// The namespaces.
    pub namespaces: Vec<NamespaceInfo>,
    /// The reads and writes of hosts since the fabric was created.
    pub sum: Sum,
}

/// The reservation of a namespace, as it is stored over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The subsystem.
    pub subsystem: Nqn,
    /// The namespace's identifier in the subsystem.
    pub nsid: u32,
    /// Counts registrations and changes of the holder.
    pub generation: u32,
    /// Registrants with their keys, in the order of their registration.
    pub registrants: Vec<(Registrant, u64)>,
    /// The kind, and the holder: `None` for the kinds that all registrants hold.
    pub held: Option<(ReservationKind, Option<Registrant>)>,
    /// `true` if it persists through power loss. Only such reservations have to be stored.
    pub persists: bool,
}

impl Fabric {
    /// Returns the controllers, ordered by identifier.
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        self.with(|state| state.controllers.values().map(controller_info).collect())
    }

    /// Returns the subsystems, ordered by name.
    pub fn subsystems(&self) -> Vec<SubsystemInfo> {
        self.with(|state| state.subsystem_infos())
    }

    /// Returns the ports, ordered by number.
    pub fn ports(&self) -> Vec<Port> {
        self.with(|state| state.ports.values().cloned().collect())
    }

    /// Returns the number of changes of reservations, which tells whether there is something to
    /// store.
    pub fn reservation_changes(&self) -> u64 {
        self.with(|state| state.reservation_changes)
    }

    /// Returns all reservations and registrations.
    pub fn reservations(&self) -> Vec<Reserved> {
        self.with(|state| state.reservations())
    }

    /// Delays the answers to changes of persistent reservations until they are
    /// [stored](Fabric::kept_reservations).
    pub fn keep_reservations(&self) {
        self.with(|state| state.keeps = true);
    }

    /// Returns the reservations that persist, for storage, and the number of the change that they
    /// include.
    pub fn reservations_to_keep(&self) -> (u64, Vec<Reserved>) {
        self.with(|state| {
            let lasting = state.reservations().into_iter().filter(|reserved| reserved.persists);
            (state.reservation_changes, lasting.collect())
        })
    }

    /// Answers the commands whose changes, up to the number `change`, are stored or could not be.
    pub fn kept_reservations(&self, change: u64, kept: bool) {
        self.with(|state| {
            for one in &mut state.unanswered {
                if one.change.take_if(|at| *at <= change).is_some()
                    && !kept
                    && let Some((place, cid)) = one.to.take()
                {
                    state.mail.complete(place, Answer::error(cid, Status::INTERNAL), Vec::new());
                }
            }
            state.settle();
        });
    }

    /// Restores a stored reservation. To be called before hosts connect.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the subsystem or namespace does not exist, or if the reservation is
    /// inconsistent. Nothing of it is restored then.
    pub fn restore_reservation(&self, kept: Reserved) -> Result<(), Refusal> {
        self.with(|state| {
            let most = state.limits.registrants_max;
            let reservation = Reservation {
                generation: kept.generation,
                registrants: kept.registrants,
                held: kept.held,
                persists: kept.persists,
            };
            if !reservation.is_sound(most) {
                return Err(Refusal::Restore);
            }
            let id = state.namespace(&kept.subsystem, kept.nsid)?.config.id;
            state.reservations.insert(id, reservation);
            state.exports_of(id).iter().for_each(|(nqn, _)| state.access_changed(nqn));
            Ok(())
        })
    }
}

impl State {
    fn subsystem_infos(&self) -> Vec<SubsystemInfo> {
        let info = |(nqn, served): (&Nqn, &super::state::Served)| {
            let mut sum = Sum::default();
            served.retired.values().for_each(|retired| sum.add(*retired));
            let own = self.controllers.values().filter(|own| own.subsystem == *nqn);
            own.for_each(|own| sum.add(own.sum()));
            let namespaces = served.namespaces.iter().map(|(nsid, attached)| NamespaceInfo {
                nsid: *nsid,
                id: attached.config.id,
                geometry: attached.config.geometry,
                ana_group: attached.config.ana_group,
                hosts: attached.config.hosts.clone(),
            });
            SubsystemInfo {
                nqn: nqn.clone(),
                serial: served.serial.clone(),
                hosts: served.hosts.clone(),
                ports: served.ports.clone(),
                namespaces: namespaces.collect(),
                sum,
            }
        };
        self.subsystems.iter().map(info).collect()
    }

    fn reservations(&self) -> Vec<Reserved> {
        let mut all = Vec::new();
        for (nqn, served) in &self.subsystems {
            for (nsid, attached) in &served.namespaces {
                let Some(own) = self.reservations.get(&attached.config.id) else { continue };
                let Reservation { generation, registrants, held, persists } = own.clone();
                if generation != 0 || persists {
                    let (subsystem, nsid) = (nqn.clone(), *nsid);
                    all.push(Reserved { subsystem, nsid, generation, registrants, held, persists });
                }
            }
        }
        all
    }
}

fn controller_info(controller: &Controller) -> ControllerInfo {
    let queues = controller.queues.iter().map(|(id, record)| QueueInfo {
        id: *id,
        size: record.size,
        place: record.place,
        sum: record.counts.sum(),
    });
    ControllerInfo {
        cntlid: controller.link.cntlid,
        kind: controller.kind,
        subsystem: controller.subsystem.clone(),
        port: controller.port,
        host: controller.host.clone(),
        host_id: controller.host_id,
        is_ready: controller.state.is_ready(),
        keep_alive_ms: controller.features.keep_alive_ms,
        created: controller.created,
        errors: controller.link.error_count(),
        queues: queues.collect(),
    }
}
