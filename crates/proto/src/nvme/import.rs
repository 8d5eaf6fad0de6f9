//! The hand-over of controllers from another process (docs/adr/0015-moving-controllers.md): the
//! receiving side.
//!
//! An [expected](Fabric::expect) controller reserves its identifier, and changes nothing else. Once
//! it is [admitted](Fabric::admit), its queues arrive like those that come from another worker.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::AtomicBool;

use contract::{Fence, Instant};
use wire::nvme::Event;

use super::auth::transaction::Transaction;
use super::connect::Made;
use super::controller::{Arrival, Controller, Kind, Record};
use super::counts::Counts;
use super::exported::{Emigrant, EmigrantQueue, Sight};
use super::fabric::Fabric;
use super::migration::{Traveller, nowhere};
use super::state::State;

/// The reason why a controller is not taken over; its host connects anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwelcome {
    /// The identifier is taken, or there are too many controllers.
    Full,
    /// The subsystem cannot be reached through the controller's port.
    Subsystem,
    /// The host may not connect, or not without a key.
    Host,
    /// The namespace of this identifier is a different one here.
    Namespace(u32),
    /// The queues exceed this fabric's limits in number or size.
    Queues,
}

impl fmt::Display for Unwelcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unwelcome::Full => f.write_str("there is no room for the controller"),
            Unwelcome::Subsystem => f.write_str("its subsystem is not there by its listener"),
            Unwelcome::Host => f.write_str("its host may not connect as it did"),
            Unwelcome::Namespace(nsid) => write!(f, "namespace {nsid} is another one now"),
            Unwelcome::Queues => f.write_str("its queues are too many or too large"),
        }
    }
}

/// Controllers that may arrive, each with the numbers of its queues.
#[derive(Debug, Default)]
pub(super) struct Expected(BTreeMap<u16, (Emigrant, Vec<u64>)>);

impl Expected {
    /// Returns `true` if a controller of this identifier may arrive.
    pub(super) fn contains(&self, cntlid: u16) -> bool {
        self.0.contains_key(&cntlid)
    }
}

impl Fabric {
    /// Prepares for a controller from another process. Returns the numbers of its queues, by queue
    /// identifier.
    ///
    /// # Errors
    /// Returns an [`Unwelcome`] if the controller cannot be taken over.
    pub fn expect(&self, emigrant: Emigrant) -> Result<BTreeMap<u16, u64>, Unwelcome> {
        self.with(|state| {
            state.check_welcome(&emigrant)?;
            let numbers: Vec<u64> = emigrant.queues.iter().map(|_| state.transit.next()).collect();
            let by_id = emigrant.queues.iter().map(|queue| queue.id).zip(numbers.iter().copied());
            let by_id = by_id.collect();
            state.expected.0.insert(emigrant.cntlid, (emigrant, numbers));
            Ok(by_id)
        })
    }

    /// Drops an expected controller that does not arrive.
    pub fn disappoint(&self, cntlid: u16) {
        self.with(|state| drop(state.expected.0.remove(&cntlid)));
    }

    /// Makes an expected controller part of this fabric. Returns `false` if it was not expected.
    pub fn admit(&self, cntlid: u16, now: Instant) -> bool {
        let is_there = self.with(|state| {
            let Some((emigrant, numbers)) = state.expected.0.remove(&cntlid) else { return false };
            state.admit(emigrant, &numbers, now);
            true
        });
        self.watch(now);
        is_there
    }
}

impl State {
    fn check_welcome(&self, emigrant: &Emigrant) -> Result<(), Unwelcome> {
        let others = self.expected.0.keys().filter(|cntlid| **cntlid != emigrant.cntlid).count();
        let is_full = self.controllers.len() + others >= usize::from(self.limits.controllers_max);
        if is_full || self.controllers.contains_key(&emigrant.cntlid) {
            return Err(Unwelcome::Full);
        }
        let fits = |queue: &EmigrantQueue| {
            queue.size <= self.limits.queue_entries_max && queue.id <= self.limits.io_queues_max
        };
        let granted = emigrant.features.io_queues.unwrap_or(1);
        if !emigrant.queues.iter().all(fits) || granted > self.limits.io_queues_max {
            return Err(Unwelcome::Queues);
        }
        if !self.ports.contains_key(&emigrant.port) {
            return Err(Unwelcome::Subsystem);
        }
        match emigrant.kind {
            Kind::Discovery => Ok(()),
            Kind::Io => self.check_disk(emigrant),
        }
    }

    /// Checks the subsystem, host and namespaces of an I/O controller.
    fn check_disk(&self, emigrant: &Emigrant) -> Result<(), Unwelcome> {
        let served = self.subsystems.get(&emigrant.subsystem);
        let served = served.filter(|served| served.is_at(emigrant.port));
        let served = served.ok_or(Unwelcome::Subsystem)?;
        let has_key = self.hosts.get(&emigrant.host).is_some_and(|host| host.key.is_some());
        let was_let_in = emigrant.queues.iter().any(|queue| !queue.must_prove);
        let is_stranger = served.must_authenticate && (was_let_in || !has_key);
        if is_stranger || !served.hosts.contain(&emigrant.host) {
            return Err(Unwelcome::Host);
        }
        let sees = |sight: &&Sight| {
            let attached = served.namespaces.get(&sight.nsid);
            attached.is_some_and(|attached| !is_same(sight, attached))
        };
        match emigrant.sights.iter().find(sees) {
            Some(sight) => Err(Unwelcome::Namespace(sight.nsid)),
            None => Ok(()),
        }
    }

    fn admit(&mut self, emigrant: Emigrant, numbers: &[u64], now: Instant) {
        let Emigrant { cntlid, kind, subsystem, port, host, host_id, .. } = emigrant;
        let kin = self.families.kin_of(&host, host_id, &subsystem);
        if emigrant.is_last {
            kin.set_all_here(true);
        }
        let arrival = Arrival { kind, subsystem, port, host, host_id };
        let mut own = Controller::new(cntlid, arrival, kin, now);
        own.link.set_ready(emigrant.is_ready);
        own.link.set_writes_through(emigrant.writes_through);
        own.link.with_errors(|errors| *errors = emigrant.errors);
        own.configuration = emigrant.configuration;
        own.state = emigrant.state;
        own.created = emigrant.created;
        own.discovery_changes = emigrant.discovery_changes;
        own.features = emigrant.features;
        own.events = emigrant.events;
        own.changed = emigrant.changed;
        own.notices = emigrant.notices;
        own.set_keep_alive(own.features.keep_alive_ms, now);
        for (queue, number) in emigrant.queues.iter().zip(numbers) {
            let traveller = settle(&mut own, queue, *number, now);
            self.transit.put(*number, traveller);
        }
        self.tell_what_changed(&mut own, &emigrant.sights);
        own.send_events(&mut self.mail);
        self.controllers.insert(cntlid, own);
        self.pass_over(cntlid);
    }

    /// Raises events for what differs from what the host saw before.
    fn tell_what_changed(&self, own: &mut Controller, before: &[Sight]) {
        if own.kind == Kind::Discovery {
            // Discovery does not compare: the host reads the log again.
            own.discovery_changes += 1;
            return own.events.raise(Event::DISCOVERY);
        }
        let now = self.sights(own);
        let of = |sights: &[Sight], nsid: u32| sights.iter().find(|one| one.nsid == nsid).copied();
        let all: BTreeSet<u32> = before.iter().chain(&now).map(|sight| sight.nsid).collect();
        for nsid in all {
            let (was, is) = (of(before, nsid), of(&now, nsid));
            let key = |sight: Option<Sight>| sight.map(|sight| (sight.blocks, sight.ana_group));
            if key(was) != key(is) {
                own.changed.insert(nsid);
                own.events.raise(Event::NAMESPACE);
            }
            let access = |sight: Option<Sight>| sight.map(|sight| sight.access);
            if was.is_some() && is.is_some() && access(was) != access(is) {
                own.events.raise(Event::ANA);
            }
        }
    }
}

/// Adds a queue to a controller, on its way to a worker under this number.
fn settle(own: &mut Controller, queue: &EmigrantQueue, number: u64, now: Instant) -> Traveller {
    let address = queue.address;
    let counts = Arc::new(Counts::of(queue.counts));
    let proven = Arc::new(AtomicBool::new(queue.is_proven));
    let fence = Arc::new(Fence::among(Arc::clone(&own.kin)));
    let record = Record {
        place: nowhere(number, address),
        size: queue.size,
        counts: Arc::clone(&counts),
        fence: Arc::clone(&fence),
        must_prove: queue.must_prove,
        prove_by: queue.prove_by,
        proven: Arc::clone(&proven),
        transaction: Transaction::at_rest(queue.must_prove && queue.is_proven),
        waiting: None,
        put_off: None,
        negotiated_at: now,
    };
    own.queues.insert(queue.id, record);
    let made = Made {
        link: Arc::clone(&own.link),
        counts,
        fence,
        kind: own.kind,
        id: queue.id,
        size: queue.size,
        flow_control: queue.flow_control,
        proven,
    };
    // A session brings its own waiting fused compare.
    Traveller { made, head: queue.head, first: None, address }
}

/// Returns `true` if the namespace that the host saw is the one that is attached here.
fn is_same(sight: &Sight, attached: &super::state::Attached) -> bool {
    attached.config.id == sight.id
        && attached.config.identifiers == sight.identifiers
        && attached.shift() == sight.shift
        && attached.blocks() >= sight.blocks
}
