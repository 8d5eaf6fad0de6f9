//! The hand-over of controllers from another process (docs/adr/0015-moving-controllers.md): the
//! receiving side.
//!
//! An [expected](super::Fabric::expect) controller reserves its identifier, and changes nothing else. Once
//! it is [admitted](super::Fabric::admit), its queues arrive like those that come from another worker.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::AtomicBool;

use contract::{Fence, Instant};
use wire::nvme::Event;

use super::auth::transaction::Transaction;
use super::controller::Controller;
use super::counts::Counts;
use super::export::sights;
use super::exported::{Emigrant, EmigrantQueue, Sight};
use super::inventory::{Attached, Inventory};
use super::migration::{Traveller, nowhere};
use super::record::{Kind, Made, Record};
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

/// Checks that a controller of another process can be taken over.
///
/// # Errors
/// Returns an [`Unwelcome`] if it cannot.
pub(super) fn check_welcome(state: &State, emigrant: &Emigrant) -> Result<(), Unwelcome> {
    let limits = state.inventory.limits();
    let others = state.migrations.expected_besides(emigrant.cntlid);
    let is_full = state.controllers.len() + others >= usize::from(limits.controllers_max);
    if is_full || state.controllers.find(emigrant.cntlid).is_some() {
        return Err(Unwelcome::Full);
    }
    let fits = |queue: &EmigrantQueue| {
        queue.size <= limits.queue_entries_max && queue.id <= limits.io_queues_max
    };
    let granted = emigrant.features.io_queues.unwrap_or(1);
    if !emigrant.queues.iter().all(fits) || granted > limits.io_queues_max {
        return Err(Unwelcome::Queues);
    }
    if !state.inventory.has_port(emigrant.association.port) {
        return Err(Unwelcome::Subsystem);
    }
    match emigrant.association.kind {
        Kind::Discovery => Ok(()),
        Kind::Io => check_disk(state, emigrant),
    }
}

/// Checks the subsystem, host and namespaces of an I/O controller.
fn check_disk(state: &State, emigrant: &Emigrant) -> Result<(), Unwelcome> {
    let served = state.inventory.subsystem(&emigrant.association.subsystem);
    let served = served.filter(|served| served.is_at(emigrant.association.port));
    let served = served.ok_or(Unwelcome::Subsystem)?;
    let has_key = state.inventory.has_key(&emigrant.association.host);
    let was_let_in = emigrant.queues.iter().any(|queue| !queue.must_prove);
    let is_stranger = served.must_authenticate && (was_let_in || !has_key);
    if is_stranger || !served.hosts.contain(&emigrant.association.host) {
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

/// Makes an expected controller, whose queues have these numbers, part of the fabric.
pub(super) fn admit(state: &mut State, emigrant: Emigrant, numbers: &[u64], now: Instant) {
    let cntlid = emigrant.cntlid;
    let kin = state.families.kin_of(&emigrant.association);
    if emigrant.is_last {
        kin.set_all_here(true);
    }
    let mut own = Controller::new(cntlid, emigrant.association, kin, now);
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
        state.migrations.put(*number, traveller);
    }
    tell_what_changed(&state.inventory, &mut own, &emigrant.sights);
    own.send_events(&mut state.mail);
    state.controllers.insert(own);
    state.controllers.pass_over(cntlid);
}

/// Raises events for what differs from what the host saw before.
fn tell_what_changed(inventory: &Inventory, own: &mut Controller, before: &[Sight]) {
    if own.association.kind == Kind::Discovery {
        // Discovery does not compare: the host reads the log again.
        own.discovery_changes += 1;
        return own.events.raise(Event::DISCOVERY);
    }
    let now = sights(inventory, own);
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

/// Adds a queue to a controller, on its way to a worker under this number.
fn settle(own: &mut Controller, queue: &EmigrantQueue, number: u64, now: Instant) -> Traveller {
    let address = queue.address;
    let made = Made {
        link: Arc::clone(&own.link),
        counts: Arc::new(Counts::of(queue.counts)),
        fence: Arc::new(Fence::among(Arc::clone(&own.kin))),
        kind: own.association.kind,
        id: queue.id,
        size: queue.size,
        flow_control: queue.flow_control,
        proven: Arc::new(AtomicBool::new(queue.is_proven)),
    };
    let transaction = Transaction::at_rest(queue.must_prove && queue.is_proven);
    let record = Record {
        must_prove: queue.must_prove,
        prove_by: queue.prove_by,
        ..made.record(nowhere(number, address), transaction, now)
    };
    own.queues.insert(queue.id, record);
    // A session brings its own waiting fused compare.
    Traveller { made, head: queue.head, first: None, address }
}

/// Returns `true` if the namespace that the host saw is the one that is attached here.
fn is_same(sight: &Sight, attached: &Attached) -> bool {
    attached.config.id == sight.id
        && attached.config.identifiers == sight.identifiers
        && attached.shift() == sight.shift
        && attached.blocks() >= sight.blocks
}
