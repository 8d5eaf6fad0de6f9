//! The controllers of a fabric, by identifier.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use contract::Instant;
use wire::nvme::{Event, Status};

use super::binding::QueueAddress;
use super::config::{Hosts, Nqn};
use super::controller::Controller;
use super::counts::QueueCounts;
use super::mail::PendingActions;
use super::record::{ControllerKind, QueueRecord};

/// The end of the range of controller identifiers; larger values have other meanings (Base 3.1.1).
pub(super) const CNTLID_END: u16 = 0xfff0;

/// The controllers of a fabric.
#[derive(Debug)]
pub(super) struct Controllers {
    all: BTreeMap<u16, Controller>,
    /// The identifier that the next controller tries first.
    next: u16,
}

impl Controllers {
    /// Creates an empty set of controllers.
    pub(super) fn new() -> Controllers {
        Controllers { all: BTreeMap::new(), next: 1 }
    }

    /// Returns an identifier that no controller has, and that `is_taken` does not reject. Returns
    /// `None` if there are `most` controllers. Identifiers are used in turn, so that a host's late
    /// command does not reach another host's controller.
    pub(super) fn new_cntlid(&mut self, most: u16, is_taken: impl Fn(u16) -> bool) -> Option<u16> {
        if self.all.len() >= usize::from(most) {
            return None;
        }
        loop {
            let id = self.next;
            self.next = following(id);
            if !self.all.contains_key(&id) && !is_taken(id) {
                return Some(id);
            }
        }
    }

    /// Makes [`Controllers::new_cntlid`] continue after this identifier, which a controller from
    /// another process has.
    pub(super) fn pass_over(&mut self, cntlid: u16) {
        if self.next <= cntlid {
            self.next = following(cntlid);
        }
    }

    /// Returns the number of controllers.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the controller of this identifier; `None` if there is none.
    pub(super) fn find(&self, cntlid: u16) -> Option<&Controller> {
        self.all.get(&cntlid)
    }

    /// Returns the controller of this identifier for changes; `None` if there is none.
    pub(super) fn find_mut(&mut self, cntlid: u16) -> Option<&mut Controller> {
        self.all.get_mut(&cntlid)
    }

    /// Returns a queue's controller, which exists as long as its admin queue does.
    ///
    /// # Errors
    /// Returns [`Status::QUEUE_DELETED`] if the controller, and thus the queue, has ended.
    pub(super) fn get(&self, cntlid: u16) -> Result<&Controller, Status> {
        self.all.get(&cntlid).ok_or(Status::QUEUE_DELETED)
    }

    /// Returns a queue's controller for changes, like [`Controllers::get`].
    ///
    /// # Errors
    /// Returns [`Status::QUEUE_DELETED`] if the controller, and thus the queue, has ended.
    pub(super) fn get_mut(&mut self, cntlid: u16) -> Result<&mut Controller, Status> {
        self.all.get_mut(&cntlid).ok_or(Status::QUEUE_DELETED)
    }

    /// Returns the record of a queue for changes; `None` if the controller or the queue has ended.
    pub(super) fn record_mut(&mut self, cntlid: u16, queue: u16) -> Option<&mut QueueRecord> {
        self.all.get_mut(&cntlid)?.queues.get_mut(&queue)
    }

    /// Adds a controller.
    pub(super) fn insert(&mut self, controller: Controller) {
        self.all.insert(controller.cntlid(), controller);
    }

    /// Removes the controller of this identifier, and returns it; `None` if there is none.
    pub(super) fn remove(&mut self, cntlid: u16) -> Option<Controller> {
        self.all.remove(&cntlid)
    }

    /// Returns the controllers, ordered by identifier.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Controller> {
        self.all.values()
    }

    /// Returns the controllers for changes, ordered by identifier.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Controller> {
        self.all.values_mut()
    }

    /// Returns the controllers of a subsystem, ordered by identifier.
    pub(super) fn of_subsystem<'a>(
        &'a self,
        subsystem: &'a Nqn,
    ) -> impl Iterator<Item = &'a Controller> {
        self.all.values().filter(move |own| own.association.subsystem == *subsystem)
    }

    /// Returns the identifiers of the controllers that `whom` selects, in order.
    pub(super) fn ids(&self, whom: impl Fn(&Controller) -> bool) -> BTreeSet<u16> {
        self.all.values().filter(|own| whom(own)).map(Controller::cntlid).collect()
    }

    /// Returns the counts of reads and writes of the current queues of a host at a subsystem.
    pub(super) fn sum_of(&self, subsystem: &Nqn, host: &Nqn) -> QueueCounts {
        let mut sum = QueueCounts::default();
        let own = self.of_subsystem(subsystem).filter(|own| own.association.host == *host);
        own.for_each(|own| sum.add(own.sum()));
        sum
    }

    /// Raises an event at every controller that `whom` selects.
    pub(super) fn raise(
        &mut self,
        event: Event,
        mail: &mut PendingActions,
        whom: impl Fn(&Controller) -> bool,
    ) {
        for controller in self.all.values_mut().filter(|controller| whom(controller)) {
            controller.events.raise(event);
            controller.send_events(mail);
        }
    }

    /// Raises a discovery log change at the discovery controllers of the hosts that `whom` selects.
    pub(super) fn discovery_changed(
        &mut self,
        mail: &mut PendingActions,
        whom: impl Fn(&Nqn) -> bool,
    ) {
        let told = |own: &&mut Controller| {
            own.association.kind == ControllerKind::Discovery && whom(&own.association.host)
        };
        for controller in self.all.values_mut().filter(told) {
            controller.events.raise(Event::DISCOVERY);
            controller.send_events(mail);
        }
    }

    /// Tells the controllers of the set `hosts` at a subsystem that a namespace was attached,
    /// detached or changed.
    pub(super) fn namespace_changed(
        &mut self,
        mail: &mut PendingActions,
        subsystem: &Nqn,
        nsid: u32,
        hosts: &Hosts,
    ) {
        for controller in self.all.values_mut() {
            let association = &controller.association;
            if association.subsystem == *subsystem && hosts.contain(&association.host) {
                controller.link.change();
                controller.changed.listed.insert(nsid);
                controller.events.raise(Event::NAMESPACE);
                controller.send_events(mail);
            }
        }
    }

    /// Records that the controllers of the hosts in `hosts` know a removed namespace by this
    /// identifier, until each host identifies a new one. To be called before the hosts are notified
    /// of the change.
    pub(super) fn namespace_removed(&mut self, subsystem: &Nqn, nsid: u32, hosts: &Hosts) {
        for controller in self.all.values_mut() {
            let association = &controller.association;
            if association.subsystem == *subsystem && hosts.contain(&association.host) {
                controller.changed.unknown.insert(nsid);
            }
        }
    }

    /// Makes the queues of a subsystem's controllers fetch their view of the namespaces anew.
    pub(super) fn access_changed(&self, subsystem: &Nqn) {
        self.of_subsystem(subsystem).for_each(|controller| controller.link.change());
    }

    /// Makes the queues of a host's controllers fetch their view of the namespaces anew.
    pub(super) fn host_changed(&self, host: &Nqn) {
        let own = self.all.values().filter(|own| own.association.host == *host);
        own.for_each(|own| own.link.change());
    }

    /// Sets the place of a queue to `to`, if the queue is at place `from`.
    pub(super) fn relocate(
        &mut self,
        cntlid: u16,
        queue: u16,
        from: QueueAddress,
        to: QueueAddress,
    ) {
        // Another queue may have its identifier by now.
        let record = self.record_mut(cntlid, queue).filter(|record| record.place == from);
        if let Some(record) = record {
            record.place = to;
        }
    }

    /// Returns the identifiers of the controllers whose hosts were silent for too long.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<u16> {
        let expired = self.all.values_mut().filter_map(|controller| {
            let has_expired = controller.has_expired(now);
            has_expired.then_some(controller.cntlid())
        });
        expired.collect()
    }

    /// Returns the controller, queue and place of queues whose hosts did not authenticate in time.
    pub(super) fn unproven(&self, now: Instant) -> Vec<(u16, u16, QueueAddress)> {
        let of = |own: &Controller| {
            let cntlid = own.cntlid();
            own.unproven(now).map(move |(queue, place)| (cntlid, queue, place)).collect::<Vec<_>>()
        };
        self.all.values().flat_map(of).collect()
    }

    /// Returns when the first timer of all controllers may expire; `None` if no timer runs.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        self.all.values().filter_map(Controller::expires_at).min()
    }
}

fn following(cntlid: u16) -> u16 {
    if cntlid + 1 == CNTLID_END { 1 } else { cntlid + 1 }
}
