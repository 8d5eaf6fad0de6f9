//! What there is, for whoever administers it.

use alloc::vec::Vec;

use contract::{Geometry, Instant, NamespaceId};
use wire::nvme::{ReservationKind, Status};

use super::config::{HostId, Hosts, Nqn, Port, PortId, Refusal};
use super::controller::{Controller, Kind};
use super::counts::Sum;
use super::fabric::Fabric;
use super::reservation::{Registrant, Reservation};
use super::seam::{Answer, Place};
use super::state::State;

/// A queue of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its identifier; zero for the admin queue.
    pub id: u16,
    /// The most commands that may be in flight.
    pub size: u16,
    /// Where its connection lives.
    pub place: Place,
    /// What it read and wrote.
    pub sum: Sum,
}

/// A controller, which is a host that is connected to a subsystem through a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Its identifier.
    pub cntlid: u16,
    /// What it is for.
    pub kind: Kind,
    /// The subsystem.
    pub subsystem: Nqn,
    /// The port.
    pub port: PortId,
    /// The host.
    pub host: Nqn,
    /// The host's identifier.
    pub host_id: HostId,
    /// Whether the host has enabled it.
    pub is_ready: bool,
    /// The keep-alive timeout in milliseconds; zero for none.
    pub keep_alive_ms: u32,
    /// When it was made.
    pub created: Instant,
    /// Errors that it has told its host.
    pub errors: u64,
    /// Its queues.
    pub queues: Vec<QueueInfo>,
}

/// A namespace of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// The subsystem's name for it.
    pub nsid: u32,
    /// The server's.
    pub id: NamespaceId,
    /// What it is.
    pub geometry: Geometry,
    /// Its ANA group.
    pub ana_group: u32,
    /// Which hosts see it.
    pub hosts: Hosts,
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemInfo {
    /// Its name.
    pub nqn: Nqn,
    /// Its serial number.
    pub serial: alloc::string::String,
    /// Which hosts may connect.
    pub hosts: Hosts,
    /// The ports that lead to it; empty: all.
    pub ports: Vec<PortId>,
    /// Its namespaces.
    pub namespaces: Vec<NamespaceInfo>,
    /// What hosts read and wrote since the fabric began.
    pub sum: Sum,
}

/// The reservation of a namespace as it is kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The subsystem.
    pub subsystem: Nqn,
    /// The namespace.
    pub nsid: u32,
    /// Counts registrations and changes of the holder.
    pub generation: u32,
    /// Registrants with their keys, in the order of their registration.
    pub registrants: Vec<(Registrant, u64)>,
    /// The kind, and the holder: `None` for the kinds that all registrants hold.
    pub held: Option<(ReservationKind, Option<Registrant>)>,
    /// Whether it persists through power loss. Only what does has to be kept.
    pub persists: bool,
}

impl Fabric {
    /// The controllers, in the order of their identifiers.
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        self.with(|state| state.controllers.values().map(controller_info).collect())
    }

    /// The subsystems, in the order of their names.
    pub fn subsystems(&self) -> Vec<SubsystemInfo> {
        self.with(|state| state.subsystem_infos())
    }

    /// The ports, in the order of their numbers.
    pub fn ports(&self) -> Vec<Port> {
        self.with(|state| state.ports.values().cloned().collect())
    }

    /// How often reservations have changed, to see whether there is something to keep.
    pub fn reservation_changes(&self) -> u64 {
        self.with(|state| state.reservation_changes)
    }

    /// All reservations and registrations.
    pub fn reservations(&self) -> Vec<Reserved> {
        self.with(|state| state.reservations())
    }

    /// From now on changes of reservations that persist are answered only when they are
    /// [kept](Fabric::kept_reservations).
    pub fn keep_reservations(&self) {
        self.with(|state| state.keeps = true);
    }

    /// The reservations that persist, to be kept, and the change up to which they are so.
    pub fn reservations_to_keep(&self) -> (u64, Vec<Reserved>) {
        self.with(|state| {
            let lasting = state.reservations().into_iter().filter(|reserved| reserved.persists);
            (state.reservation_changes, lasting.collect())
        })
    }

    /// The reservations up to a change are kept, or could not be.
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

    /// Puts back what was kept over a restart; to be done before hosts connect.
    ///
    /// # Errors
    /// A subsystem or namespace that there is not, or what contradicts itself; nothing of that
    /// reservation is put back.
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
