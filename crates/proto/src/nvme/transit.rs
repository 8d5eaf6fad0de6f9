//! Queues whose connections are on their way from one worker to another
//! (docs/adr/0007-moving-connections.md).
//!
//! A controller does not notice: it has its queue's record all the time, and with it events, keep-alive
//! and fence. In between the record's place is nowhere, where the queue's mail is kept. So a queue
//! whose controller ends meanwhile is fenced off at once, and finds its end in its mail when it lands.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use contract::ConnId;

use super::connect::Made;
use super::fabric::Fabric;
use super::queue::Queue;
use super::seam::{Action, Io, Place};
use super::state::{Mail, State};

/// The worker of places that are nowhere.
pub(super) const NOWHERE: u16 = u16::MAX;

/// What a queue is made of again when it lands.
#[derive(Debug)]
pub(super) struct Traveller {
    pub(super) made: Made,
    /// See [`Queue`].
    pub(super) head: u16,
    /// See [`Queue`].
    pub(super) first: Option<Io>,
    /// Where it comes from; see [`Place`].
    pub(super) address: Option<IpAddr>,
}

/// The queues that are on their way, each with a number that no other ever has.
#[derive(Debug, Default)]
pub(super) struct Transit {
    travellers: BTreeMap<u64, Traveller>,
    begun: u64,
}

impl Transit {
    /// A number that no other ever has.
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

/// Where mail of a queue is kept that is on its way, from wherever it comes.
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

    /// Everything that names the place of a queue names another from now on.
    fn relocate(&mut self, made: &Made, from: Place, to: Place) {
        let controller = self.controllers.get_mut(&made.link.cntlid);
        let record = controller.and_then(|own| own.queues.get_mut(&made.id));
        // Another may have its number by now.
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
    /// Whether something waits for a connection that is on its way.
    pub(super) fn is_kept(&mut self, conn: ConnId) -> bool {
        self.at(NOWHERE).iter().any(|action| action.conn() == conn)
    }

    /// What waits for one place waits for another.
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
    /// Whether there is a worker of this number.
    pub fn has_worker(&self, worker: u16) -> bool {
        worker < self.workers()
    }

    /// A queue's connection leaves its worker; the number by which it [lands](Fabric::land).
    pub(super) fn depart(&self, from: Place, traveller: Traveller) -> u64 {
        self.with(|state| state.depart(from, traveller))
    }

    /// The queue of this number has a connection again. `None`: there is none.
    pub fn land(self: &Arc<Fabric>, number: u64, worker: u16, conn: ConnId) -> Option<Queue> {
        let (traveller, place) = self.with(|state| state.land(number, worker, conn))?;
        Some(Queue::landed(Arc::clone(self), traveller, place))
    }

    /// The connection of the queue of this number is lost.
    pub fn lose(self: &Arc<Fabric>, number: u64) {
        let Place { worker, conn, .. } = nowhere(number, None);
        drop(self.land(number, worker, conn));
    }
}
