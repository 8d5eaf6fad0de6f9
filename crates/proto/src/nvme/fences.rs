//! Fences of queues: a controller's writes never take effect after later ones of the same host
//! (docs/adr/0011-nvme-fences.md).
//!
//! Each queue has a fence, in which its worker counts the queue's requests at devices that change
//! data. A queue that has ended starts no further such request, on any worker. While one of its
//! requests is still at a device, writes of the same host to that device wait, through whichever
//! controller of the subsystem they come.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use contract::{Fence, FenceGroup};

use super::config::{HostId, Nqn};
use super::record::Association;
use super::reservation::Registrant;

/// A host, by name and identifier, at a subsystem. The host's writes wait for each other, since all
/// its paths to the subsystem lead to one disk.
type HostAtSubsystem = (Nqn, HostId, Nqn);

/// The [`FenceGroup`] of each host that is connected, or that was connected and still has requests
/// at a device. A `FenceGroup` joins the fences of one host's queues, whose writes wait for each
/// other.
#[derive(Debug, Default)]
pub(super) struct HostFences {
    group: BTreeMap<HostAtSubsystem, Arc<FenceGroup>>,
    /// The number of entries after the last clean-up. The next is due above twice as many plus 64.
    cleaned: usize,
}

impl HostFences {
    /// Marks every [`FenceGroup`] as possibly having requests in another process.
    pub(super) fn forget_where(&mut self) {
        self.group.values().for_each(|group| group.set_all_here(false));
    }

    /// Returns the [`FenceGroup`] that the host's queues at the subsystem share, creating it if
    /// needed.
    pub(super) fn group_of(&mut self, association: &Association) -> Arc<FenceGroup> {
        if self.group.len() > 2 * self.cleaned + 64 {
            // All other references belong to fences: of queues, and of requests at devices.
            self.group.retain(|_, group| Arc::strong_count(group) > 1);
            self.cleaned = self.group.len();
        }
        let Association { host, host_id, subsystem, .. } = association;
        let key = (host.clone(), *host_id, subsystem.clone());
        Arc::clone(self.group.entry(key).or_default())
    }

    /// Returns the hosts that have a [`FenceGroup`] at a subsystem.
    pub(super) fn at<'a>(
        &'a self,
        subsystem: &'a Nqn,
    ) -> impl Iterator<Item = (Registrant, &'a Arc<FenceGroup>)> {
        let own = self.group.iter().filter(move |((_, _, at), _)| at == subsystem);
        own.map(|((host, id, _), group)| (Registrant { host: host.clone(), id: *id }, group))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.group.len()
    }
}

/// The requests that hosts had started when they lost an access right. A withdrawal ends when none
/// of these requests is at a device. Only data-changing requests count, those of the hosts' current
/// queues and of ended ones.
#[derive(Debug, Default)]
pub struct Withdrawal {
    /// The fences of current queues, each with the epoch whose requests have to end; `None` while
    /// an earlier withdrawal lasts.
    live: Vec<(Arc<Fence>, Option<u32>)>,
    group: Vec<Arc<FenceGroup>>,
}

impl Withdrawal {
    /// Adds the requests that a queue has started until now, before its host lost a right.
    pub(super) fn add_queue(&mut self, fence: &Arc<Fence>) {
        self.live.push((Arc::clone(fence), fence.revoke()));
    }

    /// Adds the requests that a host's ended queues have at devices.
    pub(super) fn add_gone(&mut self, group: &Arc<FenceGroup>) {
        if group.is_haunted_anywhere() && !self.group.iter().any(|known| Arc::ptr_eq(known, group))
        {
            self.group.push(Arc::clone(group));
        }
    }

    /// Returns `true` if there was nothing to wait for at the last check.
    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty() && self.group.is_empty()
    }

    /// Returns `true` once none of the requests is at a device. To be called with the fabric's lock
    /// held, so that no two calls revoke at once.
    pub(super) fn is_over(&mut self) -> bool {
        self.live.retain_mut(|(fence, epoch)| {
            // While an earlier withdrawal lasts, this one has not begun.
            if epoch.is_none() {
                *epoch = fence.revoke();
            }
            // If another withdrawal has begun since, this one was over.
            epoch.is_none_or(|epoch| fence.epoch() == epoch + 1 && fence.is_running_as_of(epoch))
        });
        self.group.retain(|group| group.is_haunted_anywhere());
        self.is_empty()
    }
}

/// Ended queues of a controller that still have requests at a device that change data.
#[derive(Debug, Default)]
pub(super) struct EndingQueues(Vec<Arc<Fence>>);

impl EndingQueues {
    /// Stops data-changing requests of a queue from starting, and remembers the queue while such a
    /// request is at a device.
    pub(super) fn end(&mut self, fence: &Arc<Fence>) {
        fence.supersede();
        self.0.retain(|fence| fence.is_running());
        if fence.is_running() {
            self.0.push(Arc::clone(fence));
        }
    }

    /// Returns `true` once none of the ended queues has a data-changing request at a device.
    pub(super) fn is_over(&mut self) -> bool {
        self.0.retain(|fence| fence.is_running());
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use contract::StartOutcome;

    use super::*;
    use crate::nvme::config::PortId;
    use crate::nvme::record::ControllerKind;

    #[test]
    fn groups_are_forgotten_when_nobody_has_them() {
        let mut families = HostFences::default();
        let association = |n: usize, id: u8| Association {
            kind: ControllerKind::Io,
            subsystem: Nqn::new("nqn.2026-01.io.x:s").unwrap(),
            port: PortId(1),
            host: Nqn::new(&format!("nqn.2026-01.io.x:h{n}")).unwrap(),
            host_id: HostId([id; 16]),
            is_secured: false,
        };
        let fence = Fence::among(families.group_of(&association(0, 1)));
        assert_eq!(fence.start(0, 0), StartOutcome::Started);
        fence.supersede();
        for n in 1..500 {
            families.group_of(&association(n, 1));
        }
        assert!(families.len() < 200);
        let again = Fence::among(families.group_of(&association(0, 1)));
        assert_eq!(again.start(0, 0), StartOutcome::Held, "the host was kept, for its request");
        let other = Fence::among(families.group_of(&association(0, 2)));
        assert_eq!(other.start(0, 0), StartOutcome::Started, "another identifier is another host");
    }

    #[test]
    fn a_queue_ends_with_its_last_request() {
        let mut ending = EndingQueues::default();
        let [one, two] = [(); 2].map(|()| Arc::new(Fence::default()));
        assert_eq!(one.start(1, 0), StartOutcome::Started);
        ending.end(&one);
        ending.end(&two);
        assert!(!ending.is_over());
        one.end(1, 0);
        assert!(ending.is_over());
    }
}
