//! Queues whose connections move from one worker to another (docs/adr/0007-moving-connections.md).
//!
//! The controller is not affected: it keeps the queue's record, and with it events, keep-alive and
//! fence. During the move the record's place is [`nowhere`], where the queue's actions are kept. If
//! the controller ends during the move, the queue is fenced off at once, and finds its close action
//! when it arrives.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use contract::ConnId;

use super::binding::{Action, Io, Place};
use super::connect::Made;
use super::fabric::Fabric;
use super::queue::Queue;
use super::state::{Mail, State};

/// The worker number of places that are nowhere.
pub(super) const NOWHERE: u16 = u16::MAX;

/// The parts from which a queue is rebuilt when its connection arrives.
#[derive(Debug)]
pub(super) struct Traveller {
    pub(super) made: Made,
    /// The head of the submission queue.
    pub(super) head: u16,
    /// A fused compare that waits for its write.
    pub(super) first: Option<Io>,
    /// The source address; see [`Place`].
    pub(super) address: Option<IpAddr>,
}

/// The queues that are moving, each with a number that is never reused.
#[derive(Debug, Default)]
pub(super) struct Transit {
    travellers: BTreeMap<u64, Traveller>,
    begun: u64,
}

impl Transit {
    /// Returns a number that is never reused.
    pub(super) fn next(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    pub(super) fn find(&self, number: u64) -> Option<&Traveller> {
        self.travellers.get(&number)
    }

    pub(super) fn put(&mut self, number: u64, traveller: Traveller) {
        self.travellers.insert(number, traveller);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Traveller> {
        self.travellers.remove(&number)
    }
}

/// Returns the place at which the actions of a moving queue are kept.
pub(super) fn nowhere(number: u64, address: Option<IpAddr>) -> Place {
    let conn = ConnId { index: number as u32, generation: (number >> 32) as u32 };
    Place { worker: NOWHERE, conn, address }
}

impl State {
    fn depart(&mut self, from: Place, traveller: Traveller) -> u64 {
        let number = self.transit.next();
        self.relocate(&traveller.made, from, nowhere(number, traveller.address));
        self.transit.travellers.insert(number, traveller);
        number
    }

    fn land(&mut self, number: u64, worker: u16, conn: ConnId) -> Option<(Traveller, Place)> {
        let traveller = self.transit.travellers.remove(&number)?;
        let to = Place { worker, conn, address: traveller.address };
        self.relocate(&traveller.made, nowhere(number, traveller.address), to);
        Some((traveller, to))
    }

    /// Replaces the place of a queue wherever the state refers to it.
    fn relocate(&mut self, made: &Made, from: Place, to: Place) {
        let controller = self.controllers.get_mut(&made.link.cntlid);
        let record = controller.and_then(|own| own.queues.get_mut(&made.id));
        // Another queue may have its identifier by now.
        if let Some(record) = record.filter(|record| record.place == from) {
            record.place = to;
        }
        self.jobs.iter_mut().filter(|job| job.place == from).for_each(|job| job.place = to);
        let waiting = self.unanswered.iter_mut().filter_map(|one| one.to.as_mut());
        waiting.filter(|(at, _)| *at == from).for_each(|(at, _)| *at = to);
        self.mail.redirect(from, to);
    }
}

impl Mail {
    /// Returns `true` if an action waits for a connection that is moving.
    pub(super) fn is_kept(&mut self, conn: ConnId) -> bool {
        self.at(NOWHERE).iter().any(|action| action.conn() == conn)
    }

    /// Moves the actions that wait for one place to another.
    fn redirect(&mut self, from: Place, to: Place) {
        let all = self.at(from.worker);
        let is_its = |action: &Action| action.conn() == from.conn;
        let moved: Vec<Action> = all.extract_if(.., |action| is_its(action)).collect();
        for mut action in moved {
            match &mut action {
                Action::Complete { conn, .. } | Action::Close { conn, .. } => *conn = to.conn,
            }
            self.post(to.worker, action);
        }
    }
}

impl Fabric {
    /// Returns `true` if there is a worker of this number.
    pub fn has_worker(&self, worker: u16) -> bool {
        worker < self.workers()
    }

    /// Detaches a queue from its worker; returns the number by which it [lands](Fabric::land).
    pub(super) fn depart(&self, from: Place, traveller: Traveller) -> u64 {
        self.with(|state| state.depart(from, traveller))
    }

    /// Attaches the queue of this number to a connection. Returns `None` if there is no such queue.
    pub fn land(self: &Arc<Fabric>, number: u64, worker: u16, conn: ConnId) -> Option<Queue> {
        let (traveller, place) = self.with(|state| state.land(number, worker, conn))?;
        Some(Queue::landed(Arc::clone(self), traveller, place))
    }

    /// Ends the queue of this number, because its connection is lost.
    pub fn lose(self: &Arc<Fabric>, number: u64) {
        let Place { worker, conn, .. } = nowhere(number, None);
        drop(self.land(number, worker, conn));
    }
}
