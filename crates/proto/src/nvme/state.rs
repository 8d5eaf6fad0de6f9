//! The state that the fabric's lock protects, and the changes that affect several of its parts.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::time::Duration;

use contract::Instant;
use wire::nvme::{AnaState, Event, Status};

use super::auth_jobs::AuthJobs;
use super::binding::{CloseReason, QueueAddress};
use super::config::{Config, Hosts, Nqn, PortId, Refusal};
use super::controller::Controller;
use super::controllers::Controllers;
use super::counts::QueueCounts;
use super::fences::{HostFences, Withdrawal};
use super::generations::Generations;
use super::inventory::{AttachedNamespace, Inventory};
use super::link::{VisibleNamespace, VisibleNamespaces};
use super::mail::PendingActions;
use super::migration::{DetachedQueue, Migrations, moving_place};
use super::record::{Association, QueueParameters};
use super::reservation::{Registrant, Reservation};
use super::reservations::Reservations;

/// The state of a fabric, which one thread at a time reads or changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) inventory: Inventory,
    pub(super) controllers: Controllers,
    /// The [`FenceGroup`](contract::FenceGroup) of each host at each subsystem, which the host's
    /// queues share.
    pub(super) families: HostFences,
    pub(super) auth: AuthJobs,
    pub(super) reservations: Reservations,
    /// The requests of hosts whose rights operators have reduced since the last
    /// [`Fabric::take_withdrawal`](super::Fabric::take_withdrawal).
    lost: Withdrawal,
    pub(super) mail: PendingActions,
    pub(super) migrations: Migrations,
    pub(super) generations: Generations,
    /// The time at which the fabric was created.
    pub(super) started: Instant,
}

/// The interval of checks for the end of requests whose hosts have lost a right.
const WITHDRAWAL_PERIOD: Duration = Duration::from_micros(200);

impl State {
    /// Creates the state of a fabric from its configuration.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the invalid part of the configuration.
    pub(super) fn new(config: &Config, started: Instant) -> Result<State, Refusal> {
        Ok(State {
            inventory: Inventory::new(config)?,
            controllers: Controllers::new(),
            families: HostFences::default(),
            auth: AuthJobs::new(),
            reservations: Reservations::default(),
            lost: Withdrawal::default(),
            mail: PendingActions::new(config.workers),
            migrations: Migrations::default(),
            generations: Generations::default(),
            started,
        })
    }

    /// Returns the namespaces that a controller may reach now, with what each permits.
    pub(super) fn view(&self, cntlid: u16) -> VisibleNamespaces {
        let Some(controller) = self.controllers.find(cntlid) else {
            return VisibleNamespaces::default();
        };
        let association = &controller.association;
        let (generation, losses) = (controller.link.generation(), controller.link.losses());
        let tenant = self.inventory.host(&association.host).and_then(|host| host.tenant);
        let Some(subsystem) = self.inventory.subsystem(&association.subsystem) else {
            return VisibleNamespaces { generation, losses, ..VisibleNamespaces::default() };
        };
        let registrant = controller.registrant();
        let seen = |(nsid, attached): (u32, &AttachedNamespace)| {
            let (state, _) = subsystem.access(association.port, attached.config.ana_group);
            let reservation = self.reservations.find(attached.config.id);
            let (reads, writes, flushes) = statuses(attached, reservation, &registrant);
            let path = path_status(state);
            VisibleNamespace {
                nsid,
                namespace: attached.config.id,
                tenant: attached.config.tenant.or(tenant).or(subsystem.tenant),
                blocks: attached.blocks(),
                shift: attached.shift(),
                reads: path.unwrap_or(reads),
                writes: path.unwrap_or(writes),
                flushes: path.unwrap_or(flushes),
            }
        };
        let unknown = &controller.changed.unknown;
        let all = self.inventory.namespaces_of(association);
        let known = all.filter(|(nsid, _)| !unknown.contains(nsid));
        let namespaces = known.map(seen).collect();
        VisibleNamespaces { generation, losses, namespaces }
    }

    /// Ends a controller and its connections.
    pub(super) fn remove_controller(&mut self, cntlid: u16, reason: CloseReason) {
        let Some(controller) = self.controllers.remove(cntlid) else { return };
        controller.link.set_gone();
        controller.link.change();
        for record in controller.queues.values() {
            record.fence.supersede();
            record.count_abandoned(self.auth.failures());
            self.mail.close(record.place, reason);
        }
        self.lost.is_over();
        self.lost.add_gone(&controller.group);
        self.inventory.retire(&controller.association, controller.sum());
    }

    /// Ends the controllers that `whom` selects, and their connections.
    pub(super) fn remove_controllers(
        &mut self,
        reason: CloseReason,
        whom: impl Fn(&Controller) -> bool,
    ) {
        for cntlid in self.controllers.ids(whom) {
            self.remove_controller(cntlid, reason);
        }
    }

    /// Ends controllers in subsystems that require authentication, if their host has no key, or had
    /// none when it connected.
    pub(super) fn end_strangers(&mut self) {
        let State { inventory, controllers, .. } = &*self;
        let strangers = controllers.ids(|own| {
            let Association { subsystem, host, .. } = &own.association;
            let served = inventory.subsystem(subsystem);
            let was_let_in = own.queues.values().any(|record| !record.must_prove);
            served.is_some_and(|served| served.must_authenticate)
                && (was_let_in || !inventory.has_key(host))
        });
        for cntlid in strangers {
            self.remove_controller(cntlid, CloseReason::HostRemoved);
        }
    }

    /// Returns the counts of reads and writes of a host at a subsystem since the creation of the
    /// fabric.
    pub(super) fn sum_of(&self, association: &Association) -> QueueCounts {
        let mut sum = self.inventory.retired_of(association);
        sum.add(self.controllers.sum_of(&association.subsystem, &association.host));
        sum
    }

    /// Ends the queue of a connection that has ended. An admin queue takes its controller with it.
    pub(super) fn leave(&mut self, cntlid: u16, queue: u16, place: QueueAddress) {
        self.mail.forget(place);
        self.auth.forget(place);
        self.reservations.forget(place);
        let Some(controller) = self.controllers.find_mut(cntlid) else { return };
        if controller.queues.get(&queue).is_none_or(|record| record.place != place) {
            return;
        }
        let record = controller.queues.remove(&queue).expect("looked at above");
        record.count_abandoned(self.auth.failures());
        controller.ending.end(&record.fence);
        self.inventory.retire(&controller.association, record.counts.sum());
        if queue == 0 {
            self.remove_controller(cntlid, CloseReason::AdminGone);
        }
    }

    /// Ends the I/O queues of a controller that was reset or shut down.
    pub(super) fn close_io_queues(&mut self, cntlid: u16, reason: CloseReason) {
        let Some(controller) = self.controllers.find_mut(cntlid) else { return };
        let queues = core::mem::take(&mut controller.queues);
        let (admin, io): (BTreeMap<_, _>, BTreeMap<_, _>) =
            queues.into_iter().partition(|(queue, _)| *queue == 0);
        controller.queues = admin;
        for record in io.values() {
            controller.ending.end(&record.fence);
            self.mail.close(record.place, reason);
            self.inventory.retire(&controller.association, record.counts.sum());
        }
    }

    /// Removes the queues whose connections ended while another thread held the fabric's lock.
    pub(super) fn end_left(&mut self) {
        let records = self.controllers.iter().flat_map(|own| {
            let cntlid = own.cntlid();
            own.queues.iter().map(move |(queue, record)| (cntlid, *queue, record))
        });
        let left = records.filter(|(.., record)| record.has_left.load(Ordering::Acquire));
        let left: Vec<_> =
            left.map(|(cntlid, queue, record)| (cntlid, queue, record.place)).collect();
        left.into_iter().for_each(|(cntlid, queue, place)| self.leave(cntlid, queue, place));
    }

    /// Tells the hosts that `whom` selects that the discovery log has changed for them.
    pub(super) fn discovery_changed(&mut self, whom: impl Fn(&Nqn) -> bool) {
        self.generations.count(&whom);
        self.controllers.discovery_changed(&mut self.mail, whom);
    }

    /// Tells the hosts of the set `hosts` that a namespace was attached, detached or changed.
    pub(super) fn namespace_changed(&mut self, subsystem: &Nqn, nsid: u32, hosts: &Hosts) {
        self.controllers.namespace_changed(&mut self.mail, subsystem, nsid, hosts);
    }

    /// Sets the state of an ANA group through a port, and tells the hosts that see the group.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if there is no such subsystem, port or group, or no such state.
    pub(super) fn set_access(
        &mut self,
        nqn: &Nqn,
        port: PortId,
        group: u32,
        access: AnaState,
    ) -> Result<(), Refusal> {
        let State { inventory, controllers, mail, .. } = self;
        inventory.set_access(nqn, port, group, access)?;
        controllers.access_changed(nqn);
        controllers.raise(Event::ANA, mail, |own| {
            let mut seen = inventory.namespaces_of(&own.association);
            own.association.subsystem == *nqn
                && own.association.port == port
                && seen.any(|(_, attached)| attached.config.ana_group == group)
        });
        Ok(())
    }

    /// Drops the reservations of namespaces that no subsystem exports. Returns `true` if there were
    /// any.
    pub(super) fn forget_reservations(&mut self) -> bool {
        let State { reservations, inventory, .. } = self;
        reservations.retain(|id| inventory.is_exported(id))
    }

    /// Drops the reservations of namespaces that no subsystem exports any more, and counts that as
    /// a change. Otherwise a stored one would come back with a namespace of the same identifiers.
    pub(super) fn end_reservations(&mut self) {
        if self.forget_reservations() {
            self.reservations.count_change();
        }
    }

    /// Adds to `withdrawal` the data-changing requests that were started at a subsystem by the
    /// hosts that `whom` selects. The hosts' views must have changed already.
    pub(super) fn withdraw(
        &self,
        subsystem: &Nqn,
        whom: impl Fn(&Registrant) -> bool,
        withdrawal: &mut Withdrawal,
    ) {
        let own = self.controllers.of_subsystem(subsystem);
        for controller in own.filter(|own| whom(&own.registrant())) {
            controller.link.lose();
            let io = controller.queues.iter().filter(|(queue, _)| **queue != 0);
            io.for_each(|(_, record)| withdrawal.add_queue(&record.fence));
        }
        let lost = self.families.at(subsystem).filter(|(host, _)| whom(host));
        lost.for_each(|(_, group)| withdrawal.add_gone(group));
    }

    /// Adds requests to those whose end must be awaited: requests that the hosts selected by `whom`
    /// have started at a subsystem, and whose rights an operator has reduced.
    pub(super) fn lose(&mut self, nqn: &Nqn, whom: impl Fn(&Nqn) -> bool) {
        let mut lost = core::mem::take(&mut self.lost);
        self.withdraw(nqn, |host| whom(&host.host), &mut lost);
        lost.is_over();
        self.lost = lost;
    }

    /// Takes the requests of hosts whose rights operators have reduced since the last call.
    pub(super) fn take_lost(&mut self) -> Withdrawal {
        core::mem::take(&mut self.lost)
    }

    /// Ends controllers whose hosts were silent for too long, and queues whose hosts did not
    /// authenticate in time.
    pub(super) fn expire(&mut self, now: Instant) {
        for cntlid in self.controllers.expired(now) {
            self.remove_controller(cntlid, CloseReason::KeepAliveExpired);
        }
        self.end_unproven(now);
    }

    /// Answers the commands whose changes of reservations have taken effect everywhere. Returns the
    /// time at which the next timer may expire; `None` if no timer runs.
    pub(super) fn settle(&mut self, now: Instant) -> Option<Instant> {
        self.reservations.settle(&mut self.mail);
        let soon = self.reservations.has_withdrawals().then(|| now + WITHDRAWAL_PERIOD);
        self.controllers.expires_at().into_iter().chain(soon).min()
    }

    /// Ends the queues whose hosts did not authenticate in time; an admin queue takes its
    /// controller with it.
    fn end_unproven(&mut self, now: Instant) {
        for (cntlid, queue, place) in self.controllers.unproven(now) {
            if queue == 0 {
                self.remove_controller(cntlid, CloseReason::NotAuthenticated);
            } else {
                self.leave(cntlid, queue, place);
                self.mail.close(place, CloseReason::NotAuthenticated);
            }
        }
    }

    /// Detaches a queue from its worker; returns the number by which another worker
    /// [claims](State::claim) it.
    pub(super) fn detach(&mut self, from: QueueAddress, queue: DetachedQueue) -> u64 {
        let number = self.migrations.next();
        self.relocate(&queue.made, from, moving_place(number, queue.address));
        self.migrations.put(number, queue);
        number
    }

    /// Removes the moving queue with this number from the list of moving queues, and returns the
    /// queue with its host's view of the namespaces; `None` if there is none. The queue keeps the
    /// address of a moving queue until it is [relocated](State::relocate).
    pub(super) fn claim(&mut self, number: u64) -> Option<(DetachedQueue, VisibleNamespaces)> {
        let queue = self.migrations.remove(number)?;
        let view = self.view(queue.made.link.cntlid);
        Some((queue, view))
    }

    /// Ends the moving queue with this number; does nothing if there is no such queue.
    pub(super) fn abandon(&mut self, number: u64) {
        let Some(queue) = self.migrations.remove(number) else { return };
        let place = moving_place(number, queue.address);
        self.leave(queue.made.link.cntlid, queue.made.id, place);
    }

    /// Replaces the address of a queue (its worker and connection) in all parts of the state that
    /// refer to it.
    pub(super) fn relocate(
        &mut self,
        made: &QueueParameters,
        from: QueueAddress,
        to: QueueAddress,
    ) {
        self.controllers.relocate(made.link.cntlid, made.id, from, to);
        self.auth.relocate(from, to);
        self.reservations.relocate(from, to);
        self.mail.redirect(from, to);
    }
}

/// Returns the statuses for reads, writes and flushes under the reservation and the write
/// protection. For reservations a flush is a write; for write protection it is not.
fn statuses(
    attached: &AttachedNamespace,
    reservation: Option<&Reservation>,
    registrant: &Registrant,
) -> (Status, Status, Status) {
    let allowed = |allowed: bool| match allowed {
        true => Status::SUCCESS,
        false => Status::RESERVATION_CONFLICT.dnr(),
    };
    let (reads, writes) =
        reservation.map_or((true, true), |reservation| reservation.allows(registrant));
    let flushes = allowed(writes);
    let writes = match attached.config.geometry.read_only {
        true => Status::WRITE_PROTECTED.dnr(),
        false => flushes,
    };
    (allowed(reads), writes, flushes)
}

/// Returns the NVMe status that commands get on a path in this ANA state; `None` if the state
/// allows commands (Base 8.1.3).
pub(super) fn path_status(state: AnaState) -> Option<Status> {
    match state {
        AnaState::OPTIMIZED | AnaState::NON_OPTIMIZED => None,
        AnaState::PERSISTENT_LOSS => Some(Status::ANA_PERSISTENT_LOSS),
        AnaState::CHANGE => Some(Status::ANA_TRANSITION),
        _ => Some(Status::ANA_INACCESSIBLE),
    }
}
