//! The hand-over of controllers to another process (docs/adr/0015-moving-controllers.md): the
//! sending side.
//!
//! Once a controller is [called](super::Fabric::call), its queues may leave their workers. When all of
//! them have left, it is [exported](super::Fabric::emigrate). It belongs to this process until it is [let
//! go](super::Fabric::let_go), and can be taken back until it is [forgotten](super::Fabric::forget). The
//! receiving side is `import.rs`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering;

use contract::Instant;

use super::binding::Place;
use super::controller::Controller;
use super::exported::{EMIGRANT_QUEUES_MAX, Emigrant, EmigrantQueue, Sight};
use super::inventory::{Attached, Inventory};
use super::migration::{Traveller, nowhere};
use super::record::Record;
use super::state::State;

/// The commands that wait while two processes have controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Held {
    /// No commands.
    #[default]
    Nothing = 0,
    /// Commands that change reservations.
    Reservations = 1,
    /// Commands that change reservations, and Connects.
    Connects = 2,
}

impl Held {
    /// Returns the hold of this number.
    pub(super) fn from_number(number: u8) -> Held {
        match number {
            0 => Held::Nothing,
            1 => Held::Reservations,
            _ => Held::Connects,
        }
    }
}

/// The reason why a controller cannot be handed over now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    /// The controller or one of its queues has ended.
    Gone,
    /// A queue's connection did not come along.
    Queues,
    /// The controller has more queues than can be handed over together.
    TooMany,
    /// An action waits for one of its connections.
    Mail,
    /// The host is authenticating.
    Proof,
    /// A command of the host waits for another host's requests, or for a change to be stored.
    Answer,
    /// The controller is being reset.
    Ending,
}

impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unready::Gone => "it has ended",
            Unready::Queues => "not all of its connections became quiet",
            Unready::TooMany => "it has too many connections",
            Unready::Mail => "its host is being told something",
            Unready::Proof => "its host is being authenticated",
            Unready::Answer => "a command that changed a reservation is not answered yet",
            Unready::Ending => "it is being reset",
        })
    }
}

/// Exports a controller whose queues have left under these numbers.
///
/// # Errors
/// Returns an [`Unready`] if the controller cannot be handed over now.
pub(super) fn export(state: &mut State, cntlid: u16, numbers: &[u64]) -> Result<Emigrant, Unready> {
    check_ready(state, cntlid, numbers)?;
    let own = state.controllers.find_mut(cntlid).ok_or(Unready::Gone)?;
    own.is_shown = true;
    let own = state.controllers.find(cntlid).ok_or(Unready::Gone)?;
    Ok(emigrant(state, own, numbers))
}

/// Removes an exported controller from this process.
///
/// # Errors
/// Returns an [`Unready`] if the controller has changed since it was exported.
pub(super) fn let_go(state: &mut State, cntlid: u16, numbers: &[u64]) -> Result<(), Unready> {
    check_ready(state, cntlid, numbers)?;
    let own = state.controllers.remove(cntlid).ok_or(Unready::Gone)?;
    state.migrations.let_go(own, numbers);
    Ok(())
}

/// Keeps a controller that was called, exported or let go.
pub(super) fn take_back(state: &mut State, cntlid: u16, now: Instant) {
    if let Some(own) = state.migrations.take_back(cntlid) {
        state.controllers.insert(own);
    }
    let Some(own) = state.controllers.find_mut(cntlid) else { return };
    let rested = own.rests();
    own.link.set_called(false);
    own.is_shown = false;
    if rested {
        // The host could send nothing meanwhile.
        own.set_keep_alive(own.features.keep_alive_ms, now);
    }
}

/// Checks that these queues are all queues of the controller, and that all of them have left and are
/// at rest.
fn check_ready(state: &mut State, cntlid: u16, numbers: &[u64]) -> Result<(), Unready> {
    let State { controllers, migrations, mail, auth, reservations, .. } = state;
    let own = controllers.find_mut(cntlid).ok_or(Unready::Gone)?;
    if numbers.len() > EMIGRANT_QUEUES_MAX {
        return Err(Unready::TooMany);
    }
    let mut places: Vec<Place> = Vec::new();
    for number in numbers {
        let traveller = migrations.find(*number).ok_or(Unready::Gone)?;
        let place = nowhere(*number, traveller.address);
        let record = own.queues.get(&traveller.made.id).filter(|one| one.place == place);
        check_record(record.ok_or(Unready::Gone)?)?;
        if mail.is_kept(place.conn) {
            return Err(Unready::Mail);
        }
        places.push(place);
    }
    if own.queues.len() != numbers.len() {
        return Err(Unready::Queues);
    }
    match own.ending.is_over() {
        _ if places.iter().any(|place| auth.has(*place)) => Err(Unready::Proof),
        _ if places.iter().any(|place| reservations.waiting_at(*place) > 0) => Err(Unready::Answer),
        false => Err(Unready::Ending),
        true => Ok(()),
    }
}

fn emigrant(state: &State, own: &Controller, numbers: &[u64]) -> Emigrant {
    let mut queues: Vec<EmigrantQueue> = numbers
        .iter()
        .map(|number| {
            let traveller = state.migrations.find(*number).expect("the caller looked");
            emigrant_queue(traveller, &own.queues[&traveller.made.id])
        })
        .collect();
    queues.sort_by_key(|queue| queue.id);
    Emigrant {
        cntlid: own.cntlid(),
        association: own.association.clone(),
        is_last: is_last(state, own),
        configuration: own.configuration,
        state: own.state,
        is_ready: own.link.is_ready(),
        writes_through: own.link.writes_through(),
        created: own.created,
        discovery_changes: own.discovery_changes,
        features: own.features.clone(),
        events: own.events.clone(),
        changed: own.changed.clone(),
        notices: own.notices.clone(),
        errors: own.link.errors(),
        sights: sights(&state.inventory, own),
        queues,
    }
}

/// Returns `true` if no other controller or request of this host remains at the subsystem.
fn is_last(state: &State, own: &Controller) -> bool {
    let is_kin = |other: &&Controller| Arc::ptr_eq(&other.kin, &own.kin);
    state.controllers.iter().filter(is_kin).count() == 1 && !own.kin.is_haunted_anywhere()
}

/// Returns the namespaces as a controller's host sees them.
pub(super) fn sights(inventory: &Inventory, own: &Controller) -> Vec<Sight> {
    let Some(subsystem) = inventory.subsystem(&own.association.subsystem) else {
        return Vec::new();
    };
    let sight = |(nsid, attached): (u32, &Attached)| Sight {
        nsid,
        id: attached.config.id,
        blocks: attached.blocks(),
        shift: attached.shift(),
        identifiers: attached.config.identifiers,
        ana_group: attached.config.ana_group,
        access: subsystem.access(own.association.port, attached.config.ana_group).0,
    };
    inventory.namespaces_of(&own.association).map(sight).collect()
}

fn check_record(record: &Record) -> Result<(), Unready> {
    let is_at_rest =
        record.transaction.is_at_rest() && record.waiting.is_none() && record.put_off.is_none();
    if is_at_rest { Ok(()) } else { Err(Unready::Proof) }
}

fn emigrant_queue(traveller: &Traveller, record: &Record) -> EmigrantQueue {
    EmigrantQueue {
        id: traveller.made.id,
        size: traveller.made.size,
        head: traveller.head,
        flow_control: traveller.made.flow_control,
        must_prove: record.must_prove,
        is_proven: record.proven.load(Ordering::Acquire),
        prove_by: record.prove_by,
        address: traveller.address,
        counts: record.counts.sum(),
    }
}
