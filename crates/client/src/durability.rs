//! Acknowledged changes that no flush has made durable yet, and the loss of them with the machine of
//! the server.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use contract::Status;

/// The durability of a volume's changes, as the volume's initiators know it. All initiators that
/// change one volume share it, since a flush of one of them covers the changes of all.
///
/// A server gives its *storage epoch* in the answer to a hello. A change that was acknowledged and
/// not flushed is lost with its epoch. The next flush then ends as [`Status::WritesLost`], once, and
/// the flushes after it cover what was changed since.
#[derive(Debug, Default)]
pub struct Durability {
    /// The storage epoch of the server; zero until it is known.
    epoch: AtomicU32,
    /// Number of flushes that were sent: the *span* that changes of now belong to.
    span: AtomicU64,
    /// The span of the last acknowledged change, plus one; zero for none.
    changed: AtomicU64,
    /// The number of the first span that no flush covers.
    covered: AtomicU64,
    /// `true` if changes were lost and no flush has told it.
    is_lost: AtomicBool,
}

impl Durability {
    /// Returns the durability of a volume whose earlier client knew this epoch, and may have had
    /// changes that no flush covers.
    pub fn after(epoch: u32) -> Durability {
        Durability { epoch: epoch.into(), changed: 1.into(), ..Durability::default() }
    }

    /// Returns the storage epoch of the server; zero until it is known.
    fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Returns the storage epoch of the server if no loss is left to be told; what a successor of this
    /// client has to know.
    pub fn settled_epoch(&self) -> Option<u32> {
        let epoch = Some(self.epoch()).filter(|epoch| *epoch != 0);
        epoch.filter(|_| !self.is_lost.load(Ordering::Relaxed))
    }

    /// Takes note of the epoch that a server gives with the answer to a hello; zero for none.
    pub(crate) fn meet(&self, epoch: u32) {
        if epoch == 0 {
            return;
        }
        let before = self.epoch.swap(epoch, Ordering::Relaxed);
        let is_open = self.changed.load(Ordering::Relaxed) > self.covered.load(Ordering::Relaxed);
        if before != 0 && before != epoch && is_open {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Takes note of a change that the server has acknowledged.
    pub(crate) fn change(&self) {
        let changed = self.span.load(Ordering::Relaxed) + 1;
        if self.changed.load(Ordering::Relaxed) < changed {
            self.changed.fetch_max(changed, Ordering::Relaxed);
        }
    }

    /// Returns the span that a flush ends which is sent now.
    pub(crate) fn begin_flush(&self) -> u64 {
        self.span.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the status of a flush that succeeded at the server and ended this span.
    pub(crate) fn end_flush(&self, span: u64) -> Status {
        self.covered.fetch_max(span + 1, Ordering::Relaxed);
        match self.is_lost.swap(false, Ordering::Relaxed) {
            true => Status::WritesLost,
            false => Status::Ok,
        }
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
        durability.change();
        durability.meet(7);
        assert_eq!(flush(&durability), Status::Ok, "the machine has not started anew");
        durability.change();
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
        durability.change();
        assert_eq!(flush(&durability), Status::Ok);
        durability.meet(8);
        assert_eq!(flush(&durability), Status::Ok, "nothing was open");
    }

    #[test]
    fn a_flush_covers_no_change_that_came_after_it_was_sent() {
        let durability = Durability::default();
        durability.meet(7);
        let span = durability.begin_flush();
        durability.change();
        assert_eq!(durability.end_flush(span), Status::Ok);
        durability.meet(8);
        assert_eq!(flush(&durability), Status::WritesLost);
    }

    #[test]
    fn a_flush_that_outlives_the_epoch_tells_of_the_loss() {
        let durability = Durability::default();
        durability.meet(7);
        durability.change();
        let span = durability.begin_flush();
        durability.meet(8);
        assert_eq!(durability.end_flush(span), Status::WritesLost);
    }

    #[test]
    fn servers_without_epochs_lose_nothing_that_is_known() {
        let durability = Durability::default();
        durability.meet(0);
        durability.change();
        durability.meet(7);
        assert_eq!(flush(&durability), Status::Ok, "the first epoch that is known");
        durability.change();
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
