//! The reservations of a fabric, and the commands that wait for changes of them to take effect.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use contract::NamespaceId;
use wire::nvme::{CommandId, Status};

use super::binding::{CommandResult, QueueAddress};
use super::fences::Withdrawal;
use super::mail::PendingActions;
use super::reservation::Reservation;

/// A command that changed a reservation and is not answered yet.
#[derive(Debug)]
struct UnansweredCommand {
    /// The number of the change that has to be stored first; `None` once it is stored or if it need
    /// not be.
    change: Option<u64>,
    /// The requests at devices that have to end first.
    withdrawal: Withdrawal,
    /// The destination of the answer; `None` once the connection is gone.
    to: Option<(QueueAddress, CommandId)>,
}

/// The reservations of a fabric, and the commands that wait for a change of them.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    /// The reservations, by namespace. Every subsystem that exports a namespace shares its
    /// reservation.
    all: BTreeMap<NamespaceId, Reservation>,
    /// The number of changes of reservations since the fabric was created.
    changes: u64,
    /// `true` if the program stores persistent reservations, so that a command that changes one is
    /// answered after the change is stored.
    is_stored: bool,
    /// Commands that changed a reservation and wait for their answer. A command is answered once
    /// its change is stored (if it persists) and no request that it forbids is at a device. A queue
    /// has at most as many such commands as entries.
    unanswered: Vec<UnansweredCommand>,
}

impl Reservations {
    /// Returns the reservation of a namespace; `None` if it never had one.
    pub(super) fn find(&self, id: NamespaceId) -> Option<&Reservation> {
        self.all.get(&id)
    }

    /// Returns the reservation of a namespace for changes, creating it if needed.
    pub(super) fn entry(&mut self, id: NamespaceId) -> &mut Reservation {
        self.all.entry(id).or_default()
    }

    /// Returns the reservations, ordered by namespace.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&NamespaceId, &Reservation)> {
        self.all.iter()
    }

    /// Replaces the reservation of a namespace, without counting a change.
    pub(super) fn restore(&mut self, id: NamespaceId, reservation: Reservation) {
        self.all.insert(id, reservation);
    }

    /// Replaces all reservations, without counting a change.
    pub(super) fn replace_all(&mut self, all: BTreeMap<NamespaceId, Reservation>) {
        self.all = all;
    }

    /// Drops the reservations of namespaces that `is_exported` rejects, without counting a change.
    /// Returns `true` if there were any.
    pub(super) fn retain(&mut self, is_exported: impl Fn(NamespaceId) -> bool) -> bool {
        let before = self.all.len();
        self.all.retain(|id, _| is_exported(*id));
        self.all.len() < before
    }

    /// Returns the number of changes of reservations since the fabric was created.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Counts a change of a reservation.
    pub(super) fn count_change(&mut self) {
        self.changes += 1;
    }

    /// Delays answers to changes of persistent reservations, from now on, until the changes are
    /// stored.
    pub(super) fn set_stored(&mut self) {
        self.is_stored = true;
    }

    /// Returns `true` if the program stores persistent reservations.
    pub(super) fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// Answers the commands whose changes, up to number `change`, were stored; with an error if
    /// storing has failed (`is_good` is `false`).
    pub(super) fn stored(&mut self, change: u64, is_good: bool, mail: &mut PendingActions) {
        for one in &mut self.unanswered {
            if one.change.take_if(|at| *at <= change).is_some()
                && !is_good
                && let Some((place, cid)) = one.to.take()
            {
                mail.complete(place, CommandResult::error(cid, Status::INTERNAL), Vec::new());
            }
        }
        self.settle(mail);
    }

    /// Delays the answer to a command that changed a reservation until `withdrawal` is over. If
    /// reservations are stored, and this one persists or did (`persists`), also until the change is
    /// stored. Returns `false` if the command need not wait.
    pub(super) fn park(
        &mut self,
        persists: bool,
        mut withdrawal: Withdrawal,
        to: (QueueAddress, CommandId),
    ) -> bool {
        let change = (self.is_stored && persists).then_some(self.changes);
        let waits = !withdrawal.is_over() || change.is_some();
        if waits {
            self.unanswered.push(UnansweredCommand { change, withdrawal, to: Some(to) });
        }
        waits
    }

    /// Answers the commands whose changes are stored, or need no storing, and for which no
    /// preempted request is at a device any more.
    pub(super) fn settle(&mut self, mail: &mut PendingActions) {
        self.unanswered.retain_mut(|one| {
            let is_settled = one.withdrawal.is_over() && one.change.is_none();
            if is_settled && let Some((place, cid)) = one.to {
                mail.complete(place, CommandResult::ok(cid), Vec::new());
            }
            !is_settled
        });
    }

    /// Returns `true` if a command waits for the end of requests at devices.
    pub(super) fn has_withdrawals(&self) -> bool {
        self.unanswered.iter().any(|one| !one.withdrawal.is_empty())
    }

    /// Returns the number of waiting commands of the connection at this place.
    pub(super) fn waiting_at(&self, place: QueueAddress) -> usize {
        let places = self.unanswered.iter().filter_map(|one| one.to);
        places.filter(|(at, _)| *at == place).count()
    }

    /// Drops the destinations of answers to a closed connection.
    pub(super) fn forget(&mut self, place: QueueAddress) {
        for waiting in &mut self.unanswered {
            waiting.to.take_if(|(at, _)| *at == place);
        }
    }

    /// Redirects the answers for the connection at place `from` to the one at `to`.
    pub(super) fn relocate(&mut self, from: QueueAddress, to: QueueAddress) {
        let waiting = self.unanswered.iter_mut().filter_map(|one| one.to.as_mut());
        waiting.filter(|(at, _)| *at == from).for_each(|(at, _)| *at = to);
    }
}
