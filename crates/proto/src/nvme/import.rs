//! The hand-over of controllers from another process (docs/adr/0015-moving-controllers.md): the
//! receiving side.
//!
//! A [prepared](super::Fabric::prepare_import) controller reserves its identifier, and changes
//! nothing else. Once it is [imported](super::Fabric::import), its queues arrive as from another
//! worker.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::AtomicBool;

use contract::{Fence, Instant};
use wire::nvme::Event;

use super::auth::transaction::Transaction;
use super::controller::Controller;
use super::counts::Counts;
use super::export::seen_namespaces;
use super::exported::{ExportedController, ExportedQueue, SeenNamespace};
use super::inventory::{AttachedNamespace, Inventory};
use super::migration::{DetachedQueue, moving_place};
use super::record::{ControllerKind, QueueParameters, QueueRecord};
use super::state::State;

/// The reason why a controller from another process is refused. The controller's host has to
/// connect anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// The identifier is taken, or there are too many controllers.
    Full,
    /// The subsystem cannot be reached through the controller's port.
    Subsystem,
    /// The host may not connect, or not without a key.
    Host,
    /// The namespace with this identifier is a different namespace in this process, or it has
    /// become smaller.
    Namespace(u32),
    /// The queues exceed this fabric's limits in number or size.
    Queues,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Full => f.write_str("there is no room for the controller"),
            ImportError::Subsystem => f.write_str("its subsystem is not there by its listener"),
            ImportError::Host => f.write_str("its host may not connect as it did"),
            ImportError::Namespace(nsid) => write!(f, "namespace {nsid} is another one now"),
            ImportError::Queues => f.write_str("its queues are too many or too large"),
        }
    }
}

/// Checks that a controller of another process can be taken over.
///
/// # Errors
/// Returns an [`ImportError`] if it cannot.
pub(super) fn check_importable(
    state: &State,
    exported: &ExportedController,
) -> Result<(), ImportError> {
    let limits = state.inventory.limits();
    let others = state.migrations.expected_besides(exported.cntlid);
    let is_full = state.controllers.len() + others >= usize::from(limits.controllers_max);
    if is_full || state.controllers.find(exported.cntlid).is_some() {
        return Err(ImportError::Full);
    }
    let fits = |queue: &ExportedQueue| {
        queue.size <= limits.queue_entries_max && queue.id <= limits.io_queues_max
    };
    let granted = exported.features.io_queues.unwrap_or(1);
    if !exported.queues.iter().all(fits) || granted > limits.io_queues_max {
        return Err(ImportError::Queues);
    }
    if !state.inventory.has_port(exported.association.port) {
        return Err(ImportError::Subsystem);
    }
    match exported.association.kind {
        ControllerKind::Discovery => Ok(()),
        ControllerKind::Io => check_disk(state, exported),
    }
}

/// Checks the subsystem, host and namespaces of an I/O controller.
fn check_disk(state: &State, exported: &ExportedController) -> Result<(), ImportError> {
    let served = state.inventory.subsystem(&exported.association.subsystem);
    let served = served.filter(|served| served.is_at(exported.association.port));
    let served = served.ok_or(ImportError::Subsystem)?;
    let has_key = state.inventory.has_key(&exported.association.host);
    let was_let_in = exported.queues.iter().any(|queue| !queue.must_prove);
    let is_stranger = served.must_authenticate && (was_let_in || !has_key);
    if is_stranger || !served.hosts.contain(&exported.association.host) {
        return Err(ImportError::Host);
    }
    let sees = |seen: &&SeenNamespace| {
        let attached = served.namespaces.get(&seen.nsid);
        attached.is_some_and(|attached| !is_same(seen, attached))
    };
    match exported.seen_namespaces.iter().find(sees) {
        Some(seen) => Err(ImportError::Namespace(seen.nsid)),
        None => Ok(()),
    }
}

/// Adds an announced controller of another process to the fabric. `numbers` identifies the
/// controller's moving queues.
pub(super) fn import(
    state: &mut State,
    exported: ExportedController,
    numbers: &[u64],
    now: Instant,
) {
    let cntlid = exported.cntlid;
    let group = state.families.group_of(&exported.association);
    if exported.is_last {
        group.set_all_here(true);
    }
    let mut own = Controller::new(cntlid, exported.association, group, now);
    own.link.set_ready(exported.is_ready);
    own.link.set_writes_through(exported.writes_through);
    own.link.errors.restore(&exported.errors);
    own.configuration = exported.configuration;
    own.state = exported.state;
    own.created = exported.created;
    state.generations.raise(&own.association.host, exported.discovery_changes);
    own.features = exported.features;
    own.events = exported.events;
    own.changed = exported.changed;
    own.notices = exported.notices;
    own.set_keep_alive(own.features.keep_alive_ms, now);
    for (queue, number) in exported.queues.iter().zip(numbers) {
        let queue = settle(&mut own, queue, *number, now);
        state.migrations.put(*number, queue);
    }
    if own.association.kind == ControllerKind::Discovery {
        // What discovery tells was not compared.
        state.generations.count(|host| *host == own.association.host);
    }
    tell_what_changed(&state.inventory, &mut own, &exported.seen_namespaces);
    own.send_events(&mut state.mail);
    state.controllers.insert(own);
    state.controllers.pass_over(cntlid);
}

/// Raises events for the differences between the inventory and the host's earlier view `before`.
fn tell_what_changed(inventory: &Inventory, own: &mut Controller, before: &[SeenNamespace]) {
    if own.association.kind == ControllerKind::Discovery {
        // Discovery does not compare: the host reads the log again.
        return own.events.raise(Event::DISCOVERY);
    }
    let now = seen_namespaces(inventory, own);
    let of = |seen_namespaces: &[SeenNamespace], nsid: u32| {
        seen_namespaces.iter().find(|one| one.nsid == nsid).copied()
    };
    let all: BTreeSet<u32> = before.iter().chain(&now).map(|seen| seen.nsid).collect();
    for nsid in all {
        let (was, is) = (of(before, nsid), of(&now, nsid));
        let key = |seen: Option<SeenNamespace>| seen.map(|seen| (seen.blocks, seen.ana_group));
        if key(was) != key(is) {
            own.changed.listed.insert(nsid);
            own.events.raise(Event::NAMESPACE);
        }
        let access = |seen: Option<SeenNamespace>| seen.map(|seen| seen.access);
        if was.is_some() && is.is_some() && access(was) != access(is) {
            own.events.raise(Event::ANA);
        }
    }
}

/// Adds a queue to an imported controller. The queue is on its way to a worker, under this number.
fn settle(own: &mut Controller, queue: &ExportedQueue, number: u64, now: Instant) -> DetachedQueue {
    let address = queue.address;
    let made = QueueParameters {
        link: Arc::clone(&own.link),
        counts: Arc::new(Counts::of(queue.counts)),
        fence: Arc::new(Fence::among(Arc::clone(&own.group))),
        kind: own.association.kind,
        id: queue.id,
        size: queue.size,
        flow_control: queue.flow_control,
        proven: Arc::new(AtomicBool::new(queue.is_proven)),
        has_left: Arc::default(),
    };
    let transaction = Transaction::at_rest(queue.must_prove && queue.is_proven);
    let record = QueueRecord {
        must_prove: queue.must_prove,
        prove_by: queue.prove_by,
        ..made.record(moving_place(number, address), transaction, now)
    };
    own.queues.insert(queue.id, record);
    // A session brings its own waiting fused compare.
    DetachedQueue { made, head: queue.head, first: None, address }
}

/// Returns `true` if the attached namespace is the one that the host saw, and not smaller than
/// then.
fn is_same(seen: &SeenNamespace, attached: &AttachedNamespace) -> bool {
    attached.config.id == seen.id
        && attached.config.identifiers == seen.identifiers
        && attached.shift() == seen.shift
        && attached.blocks() >= seen.blocks
}
