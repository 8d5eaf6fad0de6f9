//! The hand-over of controllers to another process (docs/adr/0015-moving-controllers.md): the
//! sending side.
//!
//! Once a controller is [called](Fabric::call), its queues may leave their workers. When all of
//! them have left, it is [exported](Fabric::emigrate). It belongs to this process until it is [let
//! go](Fabric::let_go), and can be taken back until it is [forgotten](Fabric::forget). The
//! receiving side is `import.rs`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering;

use contract::Instant;

use super::controller::{Controller, Record};
use super::exported::{EMIGRANT_QUEUES_MAX, Emigrant, EmigrantQueue, Sight};
use super::fabric::Fabric;
use super::migration::{Traveller, nowhere};
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

/// Controllers that were let go, with their queues by number, until they are forgotten.
#[derive(Debug, Default)]
pub(super) struct LetGo(BTreeMap<u16, (Controller, BTreeMap<u64, Traveller>)>);

impl Fabric {
    /// Sets the commands that sessions hold back from now on.
    pub fn hold(&self, held: Held) {
        self.held.store(held as u8, Ordering::SeqCst);
        if held == Held::Connects {
            self.with(|state| state.families.forget_where());
        }
    }

    /// Returns the commands that sessions hold back.
    pub fn held(&self) -> Held {
        match self.held.load(Ordering::SeqCst) {
            0 => Held::Nothing,
            1 => Held::Reservations,
            _ => Held::Connects,
        }
    }

    /// Allows or forbids the queues of a controller to leave for another process. While they may,
    /// the controller's timers are suspended, since queues that have left are not read. The caller
    /// soon exports the controller or [takes it back](Fabric::take_back). Returns `false` if there
    /// is no such controller.
    pub fn call(&self, cntlid: u16, is_called: bool) -> bool {
        self.with(|state| {
            let own = state.controllers.get(&cntlid);
            own.is_some_and(|own| {
                own.link.set_called(is_called);
                true
            })
        })
    }

    /// Returns the number of a controller's queues; zero if there is no such controller.
    pub fn queues_of(&self, cntlid: u16) -> usize {
        self.with(|state| state.controllers.get(&cntlid).map_or(0, |own| own.queues.len()))
    }

    /// Returns the controller and the identifier of the queue that left under this number.
    pub fn departed(&self, number: u64) -> Option<(u16, u16)> {
        self.with(|state| {
            let made = &state.transit.find(number)?.made;
            Some((made.link.cntlid, made.id))
        })
    }

    /// Exports a controller whose queues have left under these numbers. The controller does not
    /// change any more until it is [let go](Fabric::let_go) or [taken back](Fabric::take_back).
    ///
    /// # Errors
    /// Returns an [`Unready`] if the controller cannot be handed over now.
    pub fn emigrate(&self, cntlid: u16, numbers: &[u64]) -> Result<Emigrant, Unready> {
        self.with(|state| {
            state.check_ready(cntlid, numbers)?;
            let emigrant = state.emigrant(cntlid, numbers);
            state.controllers.get_mut(&cntlid).expect("looked at above").is_shown = true;
            Ok(emigrant)
        })
    }

    /// Removes an exported controller from this process.
    ///
    /// # Errors
    /// Returns an [`Unready`] if the controller has changed since it was exported.
    pub fn let_go(&self, cntlid: u16, numbers: &[u64]) -> Result<(), Unready> {
        self.with(|state| {
            state.check_ready(cntlid, numbers)?;
            let own = state.controllers.remove(&cntlid).expect("looked at above");
            let travellers = numbers
                .iter()
                .map(|number| (*number, state.transit.remove(*number).expect("looked at above")));
            let travellers = travellers.collect();
            state.let_go.0.insert(cntlid, (own, travellers));
            Ok(())
        })
    }

    /// Forgets a controller that was let go: it now belongs to another process for good.
    pub fn forget(&self, cntlid: u16) {
        self.with(|state| drop(state.let_go.0.remove(&cntlid)));
    }

    /// Keeps a controller that was called, exported or let go.
    pub fn take_back(&self, cntlid: u16, now: Instant) {
        self.with(|state| {
            if let Some((own, travellers)) = state.let_go.0.remove(&cntlid) {
                state.controllers.insert(cntlid, own);
                travellers.into_iter().for_each(|(number, one)| state.transit.put(number, one));
            }
            let Some(own) = state.controllers.get_mut(&cntlid) else { return };
            let rested = own.rests();
            own.link.set_called(false);
            own.is_shown = false;
            if rested {
                // The host could send nothing meanwhile.
                own.set_keep_alive(own.features.keep_alive_ms, now);
            }
        });
        self.watch(now);
    }
}

impl State {
    /// Checks that these queues are all queues of the controller, and that all of them have left
    /// and are at rest.
    fn check_ready(&mut self, cntlid: u16, numbers: &[u64]) -> Result<(), Unready> {
        let State { controllers, transit, mail, jobs, unanswered, .. } = self;
        let own = controllers.get_mut(&cntlid).ok_or(Unready::Gone)?;
        if numbers.len() > EMIGRANT_QUEUES_MAX {
            return Err(Unready::TooMany);
        }
        let mut places = Vec::new();
        for number in numbers {
            let traveller = transit.find(*number).ok_or(Unready::Gone)?;
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
        let is_its = |place| places.contains(place);
        let waits = unanswered.iter().filter_map(|one| one.to.as_ref()).any(|(to, _)| is_its(to));
        match own.ending.is_over() {
            _ if jobs.iter().any(|job| is_its(&job.place)) => Err(Unready::Proof),
            _ if waits => Err(Unready::Answer),
            false => Err(Unready::Ending),
            true => Ok(()),
        }
    }

    fn emigrant(&self, cntlid: u16, numbers: &[u64]) -> Emigrant {
        let own = &self.controllers[&cntlid];
        let mut queues: Vec<EmigrantQueue> = numbers
            .iter()
            .map(|number| {
                let traveller = self.transit.find(*number).expect("the caller looked");
                emigrant_queue(traveller, &own.queues[&traveller.made.id])
            })
            .collect();
        queues.sort_by_key(|queue| queue.id);
        Emigrant {
            cntlid,
            kind: own.kind,
            subsystem: own.subsystem.clone(),
            port: own.port,
            host: own.host.clone(),
            host_id: own.host_id,
            is_last: self.is_last(own),
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
            sights: self.sights(own),
            queues,
        }
    }

    /// Returns `true` if no other controller or request of this host remains at the subsystem.
    fn is_last(&self, own: &Controller) -> bool {
        let is_kin = |other: &&Controller| alloc::sync::Arc::ptr_eq(&other.kin, &own.kin);
        self.controllers.values().filter(is_kin).count() == 1 && !own.kin.is_haunted_anywhere()
    }

    /// Returns the namespaces as a controller's host sees them.
    pub(super) fn sights(&self, own: &Controller) -> Vec<Sight> {
        let Some(subsystem) = self.subsystem_of(own) else { return Vec::new() };
        let sight = |(nsid, attached): (u32, &super::state::Attached)| Sight {
            nsid,
            id: attached.config.id,
            blocks: attached.blocks(),
            shift: attached.shift(),
            identifiers: attached.config.identifiers,
            ana_group: attached.config.ana_group,
            access: subsystem.access(own.port, attached.config.ana_group).0,
        };
        self.namespaces_of(own).map(sight).collect()
    }
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
