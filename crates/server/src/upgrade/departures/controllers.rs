//! The NVMe controllers that leave for the successor, each with the connections of all its queues
//! (docs/adr/0015-moving-controllers.md). A controller is shown once all of its connections have
//! come from their workers.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use contract::{Instant, MigratingConnection};
use control::HANDED_AT_ONCE;
use proto::nvme::{EXPORT_QUEUES_MAX, ExportedController, Fabric};
use proto::nvme_tcp::ControllerSession;
use proto::takeover::{BODY_BYTES_MAX, TakeoverKind, encode, put_controller, put_parcel_within};

use super::super::step::{STEP_MAX, step_with};
use super::super::talk::ChannelEnd;
use super::{Departures, HELD_MAX};

/// The time limits for the connections of one controller to become quiet together: when it is asked
/// first, so that a busy one does not use up the time of the others, and when it is asked once more
/// after all the others. A host whose controller stays connects again, so a busy machine gets this
/// much time.
const GATHER_MAX: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// The interval at which controllers that did not become quiet in time are asked again.
const ASK_AGAIN: Duration = Duration::from_millis(25);

/// Maximum number of a worker's connections that are collected at the same time to leave, unless a
/// single controller has more on that worker. All connections wait for the slowest one of their
/// controller.
const GATHERED_AT_ONCE: u16 = HANDED_AT_ONCE;

/// The number of connections that may be leaving at once in addition to those of the controllers
/// being collected.
const SLACK: u16 = 16;

/// The reason why a controller that is larger than one message stays.
const MUCH: &str = "its connections have more under way than fits one message (256 MiB)";

/// The connections of a controller that have come from their workers: by queue identifier, the
/// number by which the queue moves, and its parcel.
type GatheredQueues = BTreeMap<u16, (u64, Box<MigratingConnection>)>;

/// A controller that was shown to the successor and still belongs to this process.
#[derive(Debug)]
struct OfferedController {
    cntlid: u16,
    /// The tickets of the controller's connections.
    tickets: Vec<u64>,
    /// The numbers by which the controller's queues move.
    numbers: Vec<u64>,
}

/// The controllers on their way to the successor.
#[derive(Debug, Default)]
pub(super) struct Controllers {
    gathered: BTreeMap<u16, GatheredQueues>,
    /// The controllers that were shown, by the ticket of their admin queue's connection.
    shown: BTreeMap<u64, OfferedController>,
    /// The identifiers of all NVMe controllers that have so far been asked to finish their
    /// commands.
    called: HashSet<u16>,
    /// The controllers that were asked and not quiet in time: the number of their connections that
    /// came, and of all.
    late: BTreeMap<u16, (usize, usize)>,
    /// `true` if any controller belongs to the successor.
    are_given: bool,
}

impl Departures<'_> {
    /// Gives every NVMe controller away that can leave, some at a time, within a time limit that
    /// starts at `began`. Those that are busy are asked once more after all the others.
    pub(crate) fn give_controllers(&mut self, began: Instant) -> Result<(), String> {
        let Some(fabric) = self.grounds.live.fabric() else { return Ok(()) };
        let grounds = self.grounds.clone();
        let last = began + HELD_MAX;
        for limit in GATHER_MAX {
            while grounds.clock.now() < last
                && let Some(at_once) = self.call_some(&fabric)
            {
                let gathered = self.gather(at_once, (grounds.clock.now() + limit).min(last));
                self.release_all(&fabric);
                gathered?;
            }
            for cntlid in self.controllers.late.keys() {
                self.controllers.called.remove(cntlid);
            }
        }
        for (cntlid, (came, of)) in std::mem::take(&mut self.controllers.late) {
            tracing::warn!(cntlid, came, of, "a controller stays: not all connections are quiet");
        }
        self.settle()
    }

    /// Orders some further NVMe controllers to leave, each with all of its queues. Returns the
    /// number of these connections that a worker may give at once; `None` if no controllers remain.
    fn call_some(&mut self, fabric: &Fabric) -> Option<u16> {
        let mut at_workers = vec![0; self.grounds.wakers.len()];
        for controller in fabric.controllers() {
            let has_room = controller.queues.len() <= EXPORT_QUEUES_MAX;
            if !has_room || self.controllers.called.contains(&controller.cntlid) {
                continue;
            }
            let mut then = at_workers.clone();
            for queue in &controller.queues {
                if let Some(count) = then.get_mut(usize::from(queue.place.worker)) {
                    *count += 1;
                }
            }
            let is_first = self.controllers.gathered.is_empty();
            if is_first || then.iter().all(|count| *count <= GATHERED_AT_ONCE) {
                at_workers = then;
                fabric.set_exporting(controller.cntlid, true);
                self.controllers.called.insert(controller.cntlid);
                self.controllers.late.remove(&controller.cntlid);
                self.controllers.gathered.insert(controller.cntlid, GatheredQueues::new());
            }
        }
        let most = at_workers.into_iter().max().unwrap_or(0);
        // Others may be leaving, too.
        (!self.controllers.gathered.is_empty()).then_some(most + SLACK)
    }

    /// Waits until `end` for the connections of the called controllers, and for the successor's
    /// answers.
    fn gather(&mut self, at_once: u16, end: Instant) -> Result<(), String> {
        let grounds = self.grounds.clone();
        let mut asked = Instant::ZERO;
        self.moved_at = grounds.clock.now();
        loop {
            let now = grounds.clock.now();
            let waits = !self.controllers.gathered.is_empty();
            if waits && now.since(asked) >= ASK_AGAIN {
                grounds.commands.hand_over(at_once);
                asked = now;
            }
            match self.hand_over.next_soon() {
                Some(event) => self.take_event(event)?,
                None => self.take_mail()?,
            }
            let stops = grounds.orders.stops();
            if stops && self.given == 0 {
                return Err("this server was told to stop".to_owned());
            }
            let is_late = stops || now >= end;
            if self.controllers.shown.is_empty() && (!waits || is_late) {
                grounds.commands.hand_over(0);
                return Ok(());
            }
            if (!waits || is_late) && now.since(self.moved_at) >= STEP_MAX {
                return Err("the new process does not accept the connections".to_owned());
            }
        }
    }

    /// Lets the controllers whose connections did not finish their commands in time stay with this
    /// process, and records which ones.
    fn release_all(&mut self, fabric: &Fabric) {
        let now = self.grounds.clock.now();
        for (cntlid, gathered) in std::mem::take(&mut self.controllers.gathered) {
            let (came, of) = (gathered.len(), fabric.queues_of(cntlid));
            tracing::debug!(cntlid, came, of, "a controller is busy");
            self.controllers.late.insert(cntlid, (came, of));
            self.release(fabric, cntlid, gathered, now);
        }
    }

    fn release(&mut self, fabric: &Fabric, cntlid: u16, gathered: GatheredQueues, now: Instant) {
        fabric.cancel_export(cntlid, now);
        for (_, parcel) in gathered.into_values() {
            self.hand_over.give_back(parcel);
        }
    }

    /// Takes a connection that is a queue of a controller from its worker.
    pub(super) fn take_queue(
        &mut self,
        number: u64,
        parcel: Box<MigratingConnection>,
    ) -> Result<(), String> {
        let Some(fabric) = self.grounds.live.fabric() else {
            self.hand_over.give_back(parcel);
            return Ok(());
        };
        let departed = fabric.moving_queue(number);
        let found = departed.and_then(|(cntlid, queue)| {
            Some((cntlid, queue, self.controllers.gathered.get_mut(&cntlid)?))
        });
        let Some((cntlid, queue, gathered)) = found else {
            // Too late, or its controller is no more.
            self.hand_over.give_back(parcel);
            return Ok(());
        };
        if let Some((_, other)) = gathered.insert(queue, (number, parcel)) {
            self.hand_over.give_back(other);
        }
        if gathered.len() < fabric.queues_of(cntlid) {
            return Ok(());
        }
        let gathered = self.controllers.gathered.remove(&cntlid).expect("it was just there");
        self.show_controller(&fabric, cntlid, gathered)
    }

    /// Shows a complete controller to the successor, unless it cannot leave now.
    fn show_controller(
        &mut self,
        fabric: &Fabric,
        cntlid: u16,
        gathered: GatheredQueues,
    ) -> Result<(), String> {
        let grounds = self.grounds.clone();
        let now = grounds.clock.now();
        let numbers: Vec<u64> = gathered.values().map(|(number, _)| *number).collect();
        let body = match fabric.export(cntlid, &numbers) {
            Ok(exported) => self.controller_body(&exported, &gathered),
            Err(why) => Err(why.to_string()),
        };
        let body = match body {
            Ok(body) => body,
            Err(why) => {
                tracing::warn!(cntlid, why, "a controller stays");
                self.release(fabric, cntlid, gathered, now);
                return Ok(());
            }
        };
        let mut tickets = Vec::new();
        for (_, parcel) in gathered.into_values() {
            let ticket = parcel.ticket;
            let shelved = grounds.spread.fetch(ticket, grounds.spread.hand_over_number());
            tickets.push(ticket.0);
            self.shown.insert(ticket.0, (parcel, shelved));
        }
        let sent = self.send_shown(
            TakeoverKind::Controller,
            grounds.clock.machine_nanos(),
            &body,
            &tickets,
        );
        step_with("predecessor", "controller", tickets.len());
        self.moved_at = now;
        self.controllers.shown.insert(tickets[0], OfferedController { cntlid, tickets, numbers });
        sent.map_err(String::from)
    }

    fn controller_body(
        &self,
        own: &ExportedController,
        all: &GatheredQueues,
    ) -> Result<Vec<u8>, String> {
        let now = self.grounds.clock.now();
        let controller = own.encode(now).map_err(|unfit| unfit.to_string())?;
        let mut body = put_controller(&controller);
        let registry = self.grounds.tenants.registry();
        let name = |id, epoch| registry.name_of(id, epoch).map(str::to_owned);
        for (_, parcel) in all.values() {
            let encoded = encode(parcel, now, name).map_err(|unfit| unfit.to_string())?;
            let put = put_parcel_within(&mut body, parcel.ticket.0, &encoded, BODY_BYTES_MAX);
            put.map_err(|_| MUCH.to_owned())?;
        }
        Ok(body)
    }

    /// Keeps the controller of a ticket, which the successor cannot take. Returns `false` if the
    /// ticket belongs to no controller.
    pub(super) fn keep_controller(&mut self, ticket: u64, why: &str) -> bool {
        let Some(shown) = self.controllers.shown.remove(&ticket) else { return false };
        tracing::warn!(cntlid = shown.cntlid, why, "a controller stays");
        self.take_controller_back(&shown);
        true
    }

    fn take_controller_back(&mut self, shown: &OfferedController) {
        let now = self.grounds.clock.now();
        if let Some(fabric) = self.grounds.live.fabric() {
            fabric.cancel_export(shown.cntlid, now);
        }
        for ticket in &shown.tickets {
            if let Some((parcel, shelved)) = self.shown.remove(ticket) {
                self.take_back(parcel, shelved);
            }
        }
    }

    /// Hands a controller over with one message when the successor has taken its connections, or
    /// keeps it if its state has changed. Returns `None` if the connections belong to no
    /// controller.
    pub(super) fn give_controller(&mut self, tickets: &[u64]) -> Option<Result<(), ChannelEnd>> {
        let shown = self.controllers.shown.remove(tickets.first()?)?;
        let fabric = self.grounds.live.fabric()?;
        if shown.tickets != tickets {
            self.take_controller_back(&shown);
            return Some(Err(ChannelEnd::Nonsense("it takes a part of a controller".to_owned())));
        }
        if let Err(why) = fabric.hand_over(shown.cntlid, &shown.numbers) {
            tracing::warn!(cntlid = shown.cntlid, %why, "a controller stays");
            self.take_controller_back(&shown);
            return Some(Ok(()));
        }
        step_with("predecessor", "leaves", tickets.len());
        let given = self.give_all(tickets);
        match &given {
            Ok(()) => {
                fabric.forget_exported(shown.cntlid);
                self.controllers.are_given = true;
            }
            Err(_) => self.take_controller_back(&shown),
        }
        Some(given)
    }

    /// Returns `true` if at least one controller belongs to the successor.
    pub(crate) fn has_given_controllers(&self) -> bool {
        self.controllers.are_given
    }

    /// Takes back all controllers that are leaving, before their connections return to the workers.
    pub(crate) fn keep_controllers(&mut self) {
        let Some(fabric) = self.grounds.live.fabric() else { return };
        for (_, shown) in std::mem::take(&mut self.controllers.shown) {
            self.take_controller_back(&shown);
        }
        self.release_all(&fabric);
    }
}

/// Returns the number of a parcel's queue; `None` if the parcel is no queue of a controller.
pub(super) fn number(parcel: &MigratingConnection) -> Option<u64> {
    ControllerSession::number(&parcel.session)
}
