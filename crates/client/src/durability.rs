//! Acknowledged changes that no flush has made durable yet, and their loss with the server's
//! machine.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use contract::Status;

/// The durability of a volume's changes, as the volume's initiators know it. All initiators that
/// change one volume share it, since a flush of one of them covers the changes of all.
///
/// A server gives its *storage epoch* in the answer to a hello. A change that was acknowledged and
/// not flushed is lost with its epoch. The next flush then ends as [`Status::WritesLost`], once,
/// and later flushes cover the changes since then.
#[derive(Debug, Default)]
pub struct Durability {
    ledger: Mutex<Ledger>,
    /// A copy of [`Ledger::epoch`], to be read without the lock.
    epoch: AtomicU32,
    /// A copy of [`Ledger::changed`], to be read without the lock.
    changed: AtomicU64,
    /// Number of flushes that were sent: the *span* that changes of now belong to.
    span: AtomicU64,
}

/// The storage epoch of a volume's server, and which changes no flush covers yet.
#[derive(Debug, Default)]
struct Ledger {
    /// The storage epoch of the server; zero until it is known.
    epoch: u32,
    /// The span of the last acknowledged change, plus one; zero for none.
    changed: u64,
    /// The number of the first span that no flush covers.
    covered: u64,
    /// `true` if the server has lost acknowledged changes, and no flush has reported the loss yet.
    is_lost: bool,
}

impl Durability {
    /// Returns the durability record of a volume whose earlier client knew this storage epoch, and
    /// may have had changes that no flush has made durable.
    pub fn after(epoch: u32) -> Durability {
        let ledger = Ledger { epoch, changed: 1, ..Ledger::default() };
        Durability {
            ledger: ledger.into(),
            epoch: epoch.into(),
            changed: 1.into(),
            ..Durability::default()
        }
    }

    /// Returns the storage epoch of the server, for a successor of this client. `None` if the epoch
    /// is not known, or if a loss remains to be reported.
    pub fn settled_epoch(&self) -> Option<u32> {
        let ledger = self.ledger();
        (ledger.epoch != 0 && !ledger.is_lost).then_some(ledger.epoch)
    }

    /// Notes the epoch that a server reports in the answer to a hello; zero for none.
    pub(crate) fn meet(&self, epoch: u32) {
        let mut ledger = self.ledger();
        if epoch == 0 || epoch == ledger.epoch {
            return;
        }
        ledger.is_lost |= ledger.epoch != 0 && ledger.changed > ledger.covered;
        ledger.epoch = epoch;
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// Notes a change that the server has acknowledged in this epoch. Only the first change of a
    /// span takes the lock.
    pub(crate) fn change(&self, epoch: u32) {
        let changed = self.span.load(Ordering::Relaxed) + 1;
        let is_known = self.changed.load(Ordering::Relaxed) >= changed;
        if is_known && self.epoch.load(Ordering::Relaxed) == epoch {
            return;
        }
        let mut ledger = self.ledger();
        ledger.changed = ledger.changed.max(changed);
        self.changed.store(ledger.changed, Ordering::Relaxed);
        // Another initiator has met a later epoch before this one heard of the change.
        ledger.is_lost |= epoch != 0 && epoch != ledger.epoch;
    }

    /// Begins a new span of changes, since a flush is sent now. Returns the number of the span that
    /// ends.
    pub(crate) fn begin_flush(&self) -> u64 {
        self.span.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the status of a flush that succeeded at the server and ended this span:
    /// [`Status::WritesLost`] if changes were lost before, else `Ok`.
    pub(crate) fn end_flush(&self, span: u64) -> Status {
        let mut ledger = self.ledger();
        ledger.covered = ledger.covered.max(span + 1);
        match std::mem::take(&mut ledger.is_lost) {
            true => Status::WritesLost,
            false => Status::Ok,
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flush(durability: &Durability) -> Status {
        let span = durability.begin_flush();
        durability.end_flush(span)
    }

    #[test]
    fn a_flush_tells_once_of_changes_that_an_epoch_ended() {
        let durability = Durability::default();
        durability.meet(7);
        durability.change(7);
        durability.meet(7);
        assert_eq!(flush(&durability), Status::Ok, "the machine has not started anew");
        durability.change(7);
        durability.meet(8);
        assert_eq!(durability.settled_epoch(), None);
        assert_eq!(flush(&durability), Status::WritesLost);
        assert_eq!(flush(&durability), Status::Ok);
        assert_eq!(durability.settled_epoch(), Some(8));
    }

    #[test]
    fn what_was_flushed_is_not_lost() {
        let durability = Durability::default();
        durability.meet(7);
        durability.change(7);
        assert_eq!(flush(&durability), Status::Ok);
        durability.meet(8);
        assert_eq!(flush(&durability), Status::Ok, "nothing was open");
    }

    #[test]
    fn a_flush_covers_no_change_that_came_after_it_was_sent() {
        let durability = Durability::default();
        durability.meet(7);
        let span = durability.begin_flush();
        durability.change(7);
        assert_eq!(durability.end_flush(span), Status::Ok);
        durability.meet(8);
        assert_eq!(flush(&durability), Status::WritesLost);
    }

    #[test]
    fn a_flush_that_outlives_the_epoch_tells_of_the_loss() {
        let durability = Durability::default();
        durability.meet(7);
        durability.change(7);
        let span = durability.begin_flush();
        durability.meet(8);
        assert_eq!(durability.end_flush(span), Status::WritesLost);
    }

    #[test]
    fn a_change_that_is_heard_of_after_its_epoch_is_lost() {
        let durability = Durability::default();
        durability.meet(7);
        durability.meet(8);
        durability.change(7);
        assert_eq!(durability.settled_epoch(), None);
        assert_eq!(flush(&durability), Status::WritesLost);
        assert_eq!(flush(&durability), Status::Ok);
    }

    #[test]
    fn the_first_flush_after_an_epoch_tells_however_initiators_take_turns() {
        for _ in 0..200 {
            let durability = Durability::default();
            durability.meet(7);
            durability.change(7);
            let told = std::thread::scope(|scope| {
                let initiator = || {
                    durability.meet(8);
                    flush(&durability)
                };
                let both = [scope.spawn(initiator), scope.spawn(initiator)];
                both.map(|one| one.join().unwrap())
            });
            let told = told.iter().filter(|status| **status == Status::WritesLost).count();
            assert_eq!(told, 1, "once, and not by nobody");
        }
    }

    #[test]
    fn servers_without_epochs_lose_nothing_that_is_known() {
        let durability = Durability::default();
        durability.meet(0);
        durability.change(0);
        durability.meet(7);
        assert_eq!(flush(&durability), Status::Ok, "the first epoch that is known");
        durability.change(7);
        durability.meet(0);
        assert_eq!(flush(&durability), Status::Ok);
    }

    #[test]
    fn a_successor_takes_what_it_did_not_see_for_changed() {
        let durability = Durability::after(7);
        durability.meet(8);
        assert_eq!(flush(&durability), Status::WritesLost);
        let durability = Durability::after(7);
        durability.meet(7);
        assert_eq!(flush(&durability), Status::Ok);
    }
}
