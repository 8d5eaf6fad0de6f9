//! Fences of queues: a controller's writes never land behind later ones of the same host
//! (docs/adr/0011-nvme-fences.md).
//!
//! Each queue has a fence, in which its worker counts what of it is at devices. A queue that is gone
//! starts nothing more, from that moment on and on every worker; and while something of it is at a
//! device still, writes of the same host to that device wait, through whichever controller of the
//! subsystem they come.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use contract::{Fence, Kin};

use super::config::{HostId, Nqn};
use super::reservation::Registrant;

/// Whose writes wait for each other's: a host, at a subsystem. Its paths there are one disk to it.
type Key = (Nqn, HostId, Nqn);

/// The kin of all hosts that are connected, or were and have something at a device.
#[derive(Debug, Default)]
pub(super) struct Families {
    kin: BTreeMap<Key, Arc<Kin>>,
    /// Entries after the last clean-up; the next one is due at twice as many.
    cleaned: usize,
}

impl Families {
    /// Of nobody is it known any more that no other process has anything of it.
    pub(super) fn forget_where(&mut self) {
        self.kin.values().for_each(|kin| kin.set_all_here(false));
    }

    /// What the host's queues at the subsystem share.
    pub(super) fn kin_of(&mut self, host: &Nqn, id: HostId, subsystem: &Nqn) -> Arc<Kin> {
        if self.kin.len() > 2 * self.cleaned + 64 {
            // Fences have the others: of queues, and of requests at devices.
            self.kin.retain(|_, kin| Arc::strong_count(kin) > 1);
            self.cleaned = self.kin.len();
        }
        let key = (host.clone(), id, subsystem.clone());
        Arc::clone(self.kin.entry(key).or_default())
    }

    /// The hosts that have something in common with a subsystem's queues.
    pub(super) fn at<'a>(
        &'a self,
        subsystem: &'a Nqn,
    ) -> impl Iterator<Item = (Registrant, &'a Arc<Kin>)> {
        let own = self.kin.iter().filter(move |((_, _, at), _)| at == subsystem);
        own.map(|((host, id, _), kin)| (Registrant { host: host.clone(), id: *id }, kin))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.kin.len()
    }
}

/// Waits until nothing is at a device that hosts were allowed before they lost a right: what of their
/// queues had started, and what of queues that they lost before.
#[derive(Debug, Default)]
pub struct Withdrawal {
    /// Queues, with the epoch that has to end, once that is known.
    live: Vec<(Arc<Fence>, Option<u32>)>,
    kin: Vec<Arc<Kin>>,
}

impl Withdrawal {
    /// What a queue was allowed until now. Those of the next epoch have to be told of what it lost.
    pub(super) fn add_queue(&mut self, fence: &Arc<Fence>) {
        self.live.push((Arc::clone(fence), fence.revoke()));
    }

    /// What a host's queues that are gone have at devices.
    pub(super) fn add_gone(&mut self, kin: &Arc<Kin>) {
        if kin.is_haunted_anywhere() && !self.kin.iter().any(|known| Arc::ptr_eq(known, kin)) {
            self.kin.push(Arc::clone(kin));
        }
    }

    /// Whether nothing is waited for, as far as that was known when it was last looked at.
    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty() && self.kin.is_empty()
    }

    /// Whether nothing of that is at a device any more. To be asked under the fabric's lock, so that no two
    /// revoke at once.
    pub(super) fn is_over(&mut self) -> bool {
        self.live.retain_mut(|(fence, epoch)| {
            // While an earlier withdrawal lasts, this one has not begun.
            if epoch.is_none() {
                *epoch = fence.revoke();
            }
            // Where one more has begun since, this one was over.
            epoch.is_none_or(|epoch| fence.epoch() == epoch + 1 && fence.is_running_as_of(epoch))
        });
        self.kin.retain(|kin| kin.is_haunted_anywhere());
        self.is_empty()
    }
}

/// Queues of a controller that are gone and have something at a device.
#[derive(Debug, Default)]
pub(super) struct Ending(Vec<Arc<Fence>>);

impl Ending {
    /// Nothing of this queue starts any more.
    pub(super) fn end(&mut self, fence: &Arc<Fence>) {
        fence.supersede();
        self.0.retain(|fence| fence.is_running());
        if fence.is_running() {
            self.0.push(Arc::clone(fence));
        }
    }

    /// Whether nothing of them is at a device any more.
    pub(super) fn is_over(&mut self) -> bool {
        self.0.retain(|fence| fence.is_running());
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use contract::Start;

    use super::*;

    #[test]
    fn kin_are_forgotten_when_nobody_has_them() {
        let mut families = Families::default();
        let subsystem = Nqn::new("nqn.2026-01.io.x:s").unwrap();
        let host = |n: usize| Nqn::new(&format!("nqn.2026-01.io.x:h{n}")).unwrap();
        let fence = Fence::among(families.kin_of(&host(0), HostId([1; 16]), &subsystem));
        assert_eq!(fence.start(0, 0), Start::Started);
        fence.supersede();
        for n in 1..500 {
            families.kin_of(&host(n), HostId([1; 16]), &subsystem);
        }
        assert!(families.len() < 200);
        let again = Fence::among(families.kin_of(&host(0), HostId([1; 16]), &subsystem));
        assert_eq!(again.start(0, 0), Start::Held, "the host was kept, for its request");
        let other = Fence::among(families.kin_of(&host(0), HostId([2; 16]), &subsystem));
        assert_eq!(other.start(0, 0), Start::Started, "another identifier is another host");
    }

    #[test]
    fn a_queue_ends_with_its_last_request() {
        let mut ending = Ending::default();
        let [one, two] = [(); 2].map(|()| Arc::new(Fence::default()));
        assert_eq!(one.start(1, 0), Start::Started);
        ending.end(&one);
        ending.end(&two);
        assert!(!ending.is_over());
        one.end(1, 0);
        assert!(ending.is_over());
    }
}
