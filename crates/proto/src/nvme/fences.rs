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

    #[cfg(test)]
    fn len(&self) -> usize {
        self.kin.len()
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
        assert_eq!(fence.start(0), Start::Started);
        fence.supersede();
        for n in 1..500 {
            families.kin_of(&host(n), HostId([1; 16]), &subsystem);
        }
        assert!(families.len() < 200);
        let again = Fence::among(families.kin_of(&host(0), HostId([1; 16]), &subsystem));
        assert_eq!(again.start(0), Start::Held, "the host was kept, for its request");
        let other = Fence::among(families.kin_of(&host(0), HostId([2; 16]), &subsystem));
        assert_eq!(other.start(0), Start::Started, "another identifier is another host");
    }

    #[test]
    fn a_queue_ends_with_its_last_request() {
        let mut ending = Ending::default();
        let [one, two] = [(); 2].map(|()| Arc::new(Fence::default()));
        assert_eq!(one.start(1), Start::Started);
        ending.end(&one);
        ending.end(&two);
        assert!(!ending.is_over());
        one.end(1);
        assert!(ending.is_over());
    }
}
