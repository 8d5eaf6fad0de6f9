//! The hand-over of controllers to another process (docs/adr/0015-moving-controllers.md): the
//! sending side.
//!
//! Once a controller [is exporting](super::Fabric::set_exporting), its queues may leave their
//! workers. When all of them have left, it is [exported](super::Fabric::export). It belongs to this
//! process until it is [handed over](super::Fabric::hand_over), and can be
//! [kept](super::Fabric::cancel_export) until it is [forgotten](super::Fabric::forget_exported).
//! The receiving side is `import.rs`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering;

use contract::Instant;

use super::binding::QueueAddress;
use super::controller::Controller;
use super::exported::{EXPORT_QUEUES_MAX, ExportedController, ExportedQueue, SeenNamespace};
use super::inventory::{AttachedNamespace, Inventory};
use super::migration::{DetachedQueue, moving_place};
use super::record::QueueRecord;
use super::state::State;

/// The commands that wait while two processes have controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum HeldCommands {
    /// No command waits for the other process.
    #[default]
    Nothing = 0,
    /// Commands that change reservations wait.
    Reservations = 1,
    /// Commands that change reservations and Connects wait.
    Connects = 2,
}

impl HeldCommands {
    /// Returns the value of this number; unknown numbers mean [`HeldCommands::Connects`].
    pub(super) fn from_number(number: u8) -> HeldCommands {
        match number {
            0 => HeldCommands::Nothing,
            1 => HeldCommands::Reservations,
            _ => HeldCommands::Connects,
        }
    }
}

/// The reason why a controller cannot be handed over now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportError {
    /// The controller or one of its queues has ended.
    Gone,
    /// A queue of the controller has not left its worker.
    Queues,
    /// The controller has more queues than can be handed over together.
    TooMany,
    /// An action, such as an event to report, has not reached the connection of the controller that
    /// it is for.
    Mail,
    /// The host is authenticating on one of the controller's queues.
    Proof,
    /// A command of the host waits for another host's requests, or for a change to be stored.
    Answer,
    /// Ended queues of the controller, as after a reset, still have requests at devices.
    Ending,
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExportError::Gone => "it has ended",
            ExportError::Queues => "not all of its connections became quiet",
            ExportError::TooMany => "it has too many connections",
            ExportError::Mail => "its host is being told something",
            ExportError::Proof => "its host is being authenticated",
            ExportError::Answer => "a command that changed a reservation is not answered yet",
            ExportError::Ending => "it is being reset",
        })
    }
}

/// Exports a controller: returns a copy for another process, and marks the controller as exported.
/// `numbers` are those under which its queues have left their workers.
///
/// # Errors
/// Returns an [`ExportError`] if the controller cannot be handed over now.
pub(super) fn export(
    state: &mut State,
    cntlid: u16,
    numbers: &[u64],
) -> Result<ExportedController, ExportError> {
    check_ready(state, cntlid, numbers)?;
    let own = state.controllers.find_mut(cntlid).ok_or(ExportError::Gone)?;
    own.is_exported = true;
    let own = state.controllers.find(cntlid).ok_or(ExportError::Gone)?;
    Ok(exported(state, own, numbers))
}

/// Removes a controller that was copied to another process from this one. Keeps the controller
/// aside until the hand-over succeeds or is cancelled.
///
/// # Errors
/// Returns an [`ExportError`] if the controller has changed since it was exported.
pub(super) fn hand_over(
    state: &mut State,
    cntlid: u16,
    numbers: &[u64],
) -> Result<(), ExportError> {
    check_ready(state, cntlid, numbers)?;
    let own = state.controllers.remove(cntlid).ok_or(ExportError::Gone)?;
    state.migrations.hand_over(own, numbers);
    Ok(())
}

/// Cancels the export of a controller, which stays in this process. Also takes back a controller
/// that was handed over and not forgotten.
pub(super) fn cancel(state: &mut State, cntlid: u16, now: Instant) {
    if let Some(own) = state.migrations.take_back(cntlid) {
        state.controllers.insert(own);
    }
    let Some(own) = state.controllers.find_mut(cntlid) else { return };
    let rested = own.rests();
    own.link.set_exporting(false);
    own.is_exported = false;
    if rested {
        // The host could send nothing meanwhile.
        own.set_keep_alive(own.features.keep_alive_ms, now);
    }
}

/// Checks that all queues of the controller have left their workers and have no commands under way.
/// `numbers` identifies the moving queues.
fn check_ready(state: &mut State, cntlid: u16, numbers: &[u64]) -> Result<(), ExportError> {
    let State { controllers, migrations, mail, auth, reservations, .. } = state;
    let own = controllers.find_mut(cntlid).ok_or(ExportError::Gone)?;
    if numbers.len() > EXPORT_QUEUES_MAX {
        return Err(ExportError::TooMany);
    }
    let mut places: Vec<QueueAddress> = Vec::new();
    for number in numbers {
        let queue = migrations.find(*number).ok_or(ExportError::Gone)?;
        let place = moving_place(*number, queue.address);
        let record = own.queues.get(&queue.made.id).filter(|one| one.place == place);
        check_record(record.ok_or(ExportError::Gone)?)?;
        if mail.is_kept(place.conn) {
            return Err(ExportError::Mail);
        }
        places.push(place);
    }
    if own.queues.len() != numbers.len() {
        return Err(ExportError::Queues);
    }
    match own.ending.is_over() {
        _ if places.iter().any(|place| auth.has(*place)) => Err(ExportError::Proof),
        _ if places.iter().any(|place| reservations.waiting_at(*place) > 0) => {
            Err(ExportError::Answer)
        }
        false => Err(ExportError::Ending),
        true => Ok(()),
    }
}

fn exported(state: &State, own: &Controller, numbers: &[u64]) -> ExportedController {
    let mut queues: Vec<ExportedQueue> = numbers
        .iter()
        .map(|number| {
            let queue = state.migrations.find(*number).expect("the caller looked");
            exported_queue(queue, &own.queues[&queue.made.id])
        })
        .collect();
    queues.sort_by_key(|queue| queue.id);
    ExportedController {
        cntlid: own.cntlid(),
        association: own.association.clone(),
        is_last: is_last(state, own),
        configuration: own.configuration,
        state: own.state,
        is_ready: own.link.is_ready(),
        writes_through: own.link.writes_through(),
        created: own.created,
        discovery_changes: state.generations.of(&own.association.host),
        features: own.features.clone(),
        events: own.events.clone(),
        changed: own.changed.clone(),
        notices: own.notices.clone(),
        errors: own.link.errors.to_log(),
        seen_namespaces: seen_namespaces(&state.inventory, own),
        queues,
    }
}

/// Returns `true` if no other controller or request of this host remains at the subsystem.
fn is_last(state: &State, own: &Controller) -> bool {
    let is_grouped = |other: &&Controller| Arc::ptr_eq(&other.group, &own.group);
    state.controllers.iter().filter(is_grouped).count() == 1 && !own.group.is_haunted_anywhere()
}

/// Returns the namespaces as a controller's host sees them.
pub(super) fn seen_namespaces(inventory: &Inventory, own: &Controller) -> Vec<SeenNamespace> {
    let Some(subsystem) = inventory.subsystem(&own.association.subsystem) else {
        return Vec::new();
    };
    let seen = |(nsid, attached): (u32, &AttachedNamespace)| SeenNamespace {
        nsid,
        id: attached.config.id,
        blocks: attached.blocks(),
        shift: attached.shift(),
        identifiers: attached.config.identifiers,
        ana_group: attached.config.ana_group,
        access: subsystem.access(own.association.port, attached.config.ana_group).0,
    };
    inventory.namespaces_of(&own.association).map(seen).collect()
}

fn check_record(record: &QueueRecord) -> Result<(), ExportError> {
    let is_at_rest =
        record.transaction.is_at_rest() && record.waiting.is_none() && record.put_off.is_none();
    if is_at_rest { Ok(()) } else { Err(ExportError::Proof) }
}

fn exported_queue(queue: &DetachedQueue, record: &QueueRecord) -> ExportedQueue {
    ExportedQueue {
        id: queue.made.id,
        size: queue.made.size,
        head: queue.head,
        flow_control: queue.made.flow_control,
        must_prove: record.must_prove,
        is_proven: record.proven.load(Ordering::Acquire),
        prove_by: record.prove_by,
        address: queue.address,
        counts: record.counts.sum(),
    }
}
