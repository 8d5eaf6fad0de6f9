//! Fences: counters of a connection's requests that may still change data, so that a later
//! connection of the same client does not overtake these requests (docs/adr/0003-fences.md).
//!
//! Both sides of a hand-shake are sequentially consistent, so a request takes no lock. The old
//! connection's worker counts the request, then checks whether the connection was superseded. The
//! superseding side marks the connection, then checks the count.

use alloc::sync::Arc;
use core::array::from_fn;
#[cfg(not(test))]
use core::sync::atomic::AtomicU32;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::DEVICES_MAX;
#[cfg(test)]
use crate::steps::AtomicU32;

/// The requests of a connection that may still change data.
///
/// The rights of a connection can be reduced while it lives ([`revoke`](Fence::revoke)). Each
/// request belongs to the epoch in which it was found to be allowed. A request of an earlier epoch
/// must be checked again before it starts.
#[derive(Debug)]
pub struct Fence {
    /// Twice the epoch, plus one once no request of the connection may start any more.
    state: AtomicU32,
    /// Requests that have started and not ended, by the epoch's lowest bit and by device.
    running: [[AtomicU32; DEVICES_MAX]; 2],
    /// A bit per device: set while this superseded fence is counted in its group's `ghosts`.
    haunts: [AtomicU32; DEVICES_MAX / 32],
    group: Option<Arc<FenceGroup>>,
}

/// The shared state of a group of fences: those of one client's connections that may be open at the
/// same time. Requests of connections that were superseded hold up the requests of the others.
#[derive(Debug)]
pub struct FenceGroup {
    /// Number of superseded fences with outstanding requests, by device.
    ghosts: [AtomicU32; DEVICES_MAX],
    /// `true` if no other process has related connections; see [`FenceGroup::set_all_here`].
    is_all_here: AtomicBool,
}

/// The outcome of an attempt to start a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    /// The request is counted, until [`Fence::end`].
    Started,
    /// The request must wait: requests of a superseded connection of its client may still change
    /// the same device. The ends of those requests end the wait.
    Held,
    /// The request must never start: its connection was superseded.
    Superseded,
    /// The request must be checked again: the connection's rights were reduced after the request's
    /// epoch.
    Stale,
}

/// Bit of [`Fence::state`], set once no request of the connection may start any more.
const SUPERSEDED: u32 = 1;

/// Returns a device's place in [`Fence::haunts`]: the index of the word, and the mask of the bit.
fn haunt(device: usize) -> (usize, u32) {
    (device / 32, 1 << (device % 32))
}

fn zeros<const N: usize>() -> [AtomicU32; N] {
    from_fn(|_| AtomicU32::default())
}

impl Default for Fence {
    fn default() -> Fence {
        let running = [zeros(), zeros()];
        Fence { state: AtomicU32::default(), running, haunts: zeros(), group: None }
    }
}

impl Default for FenceGroup {
    fn default() -> FenceGroup {
        FenceGroup { ghosts: zeros(), is_all_here: AtomicBool::new(false) }
    }
}

impl Fence {
    /// Returns a fence of `group`: its requests wait for requests of
    /// superseded fences of the group.
    pub fn among(group: Arc<FenceGroup>) -> Fence {
        Fence { group: Some(group), ..Fence::default() }
    }

    /// Returns `true` if the fence belongs to a group, and another process may have fences of the
    /// same group.
    pub fn may_be_elsewhere(&self) -> bool {
        self.group.as_ref().is_some_and(|group| !group.is_all_here.load(Ordering::SeqCst))
    }

    /// Returns the current epoch. A check that follows this call is valid as of this epoch.
    pub fn epoch(&self) -> u32 {
        self.state.load(Ordering::SeqCst) >> 1
    }

    /// Starts a request that changes data on a device (below [`DEVICES_MAX`]), allowed as of an
    /// epoch. Pairs with [`supersede`](Fence::supersede) and [`revoke`](Fence::revoke): either
    /// these calls see the request running, or the request sees the calls.
    pub fn start(&self, device: usize, epoch: u32) -> StartOutcome {
        self.of(epoch)[device].fetch_add(1, Ordering::SeqCst);
        let state = self.state.load(Ordering::SeqCst);
        let start = match &self.group {
            _ if state & SUPERSEDED != 0 => StartOutcome::Superseded,
            _ if state >> 1 != epoch => StartOutcome::Stale,
            Some(group) if group.is_haunted(device) => StartOutcome::Held,
            _ => return StartOutcome::Started,
        };
        self.end(device, epoch);
        start
    }

    /// Counts a request as ended that started as of `epoch`.
    pub fn end(&self, device: usize, epoch: u32) {
        let before = self.of(epoch)[device].fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a request ended that had not started");
        let is_gone = self.state.load(Ordering::SeqCst) & SUPERSEDED != 0;
        if before == 1 && is_gone && !self.is_running_at(device) {
            self.rest(device);
        }
    }

    /// Marks the connection as superseded: no request of it starts from now on, and its outstanding
    /// requests hold up its group. A second call may overlap the first.
    pub fn supersede(&self) {
        self.state.fetch_or(SUPERSEDED, Ordering::SeqCst);
        let Some(group) = &self.group else { return };
        for device in 0..DEVICES_MAX {
            if self.is_running_at(device) {
                group.ghosts[device].fetch_add(1, Ordering::SeqCst);
                let (word, bit) = haunt(device);
                let was = self.haunts[word].fetch_or(bit, Ordering::SeqCst);
                if was & bit != 0 {
                    group.ghosts[device].fetch_sub(1, Ordering::SeqCst); // it counts once
                }
                // The last request may have ended before the fence was counted as a ghost.
                if !self.is_running_at(device) {
                    self.rest(device);
                }
            }
        }
    }

    /// Begins a new epoch, to reduce the connection's rights. Requests that were allowed before
    /// need another check to start, and running ones are counted apart.
    ///
    /// Returns `None`, and changes nothing, while requests of the previous epoch still run, since
    /// they share a counter with the next epoch. Calls must not overlap.
    pub fn revoke(&self) -> Option<u32> {
        let epoch = self.epoch();
        if self.is_running_as_of(epoch.wrapping_sub(1)) {
            return None;
        }
        let state = self.state.fetch_add(2, Ordering::SeqCst);
        Some(state >> 1)
    }

    /// Returns `true` if requests that started as of this epoch still run. The epoch must be the
    /// current one or the one before.
    pub fn is_running_as_of(&self, epoch: u32) -> bool {
        self.of(epoch).iter().any(|running| running.load(Ordering::SeqCst) > 0)
    }

    /// Returns `true` if no request of the connection may start any more.
    pub fn is_superseded(&self) -> bool {
        self.state.load(Ordering::SeqCst) & SUPERSEDED != 0
    }

    /// Returns `true` if requests of the connection have started and not ended, on any device.
    pub fn is_running(&self) -> bool {
        [0, 1].iter().any(|epoch| self.is_running_as_of(*epoch))
    }

    fn is_running_at(&self, device: usize) -> bool {
        self.running.iter().any(|running| running[device].load(Ordering::SeqCst) > 0)
    }

    /// Returns the numbers of running requests that started as of an epoch, by device.
    fn of(&self, epoch: u32) -> &[AtomicU32; DEVICES_MAX] {
        &self.running[(epoch & 1) as usize]
    }

    /// Removes a superseded fence from its group's count of fences with outstanding requests at the
    /// device, if the fence is included there. Only one of two concurrent callers removes the
    /// fence.
    fn rest(&self, device: usize) {
        let (word, bit) = haunt(device);
        let was = self.haunts[word].fetch_and(!bit, Ordering::SeqCst);
        if was & bit != 0 {
            let group = self.group.as_ref().expect("a fence that haunts has a group");
            group.ghosts[device].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl FenceGroup {
    /// Sets whether it is known that no other process of this server has related connections, or
    /// outstanding requests of superseded ones (docs/adr/0015-moving-controllers.md). The initial
    /// value is `false`.
    pub fn set_all_here(&self, is_so: bool) {
        self.is_all_here.store(is_so, Ordering::SeqCst);
    }

    /// Returns `true` if requests of a superseded fence still run on any device.
    pub fn is_haunted_anywhere(&self) -> bool {
        (0..DEVICES_MAX).any(|device| self.is_haunted(device))
    }

    /// Returns `true` if requests of a superseded fence still run on this device.
    pub fn is_haunted(&self, device: usize) -> bool {
        self.ghosts[device].load(Ordering::SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::sync::atomic;

    use std::sync::Mutex;
    use std::vec::Vec;

    use super::*;
    use crate::steps::in_every_order;

    fn two() -> (Arc<FenceGroup>, Fence, Fence) {
        let group = Arc::new(FenceGroup::default());
        let fences = [(); 2].map(|()| Fence::among(group.clone()));
        let [old, new] = fences;
        (group, old, new)
    }

    #[test]
    fn live_fences_of_a_group_do_not_wait_for_each_other() {
        let (_, one, other) = two();
        assert_eq!(one.start(0, 0), StartOutcome::Started);
        assert_eq!(other.start(0, 0), StartOutcome::Started);
        one.end(0, 0);
        other.end(0, 0);
        assert!(!one.is_running() && !other.is_running());
    }

    #[test]
    fn requests_of_the_superseded_hold_up_those_of_their_group_at_the_same_device() {
        let (group, old, new) = two();
        let stranger = Fence::among(Arc::new(FenceGroup::default()));
        assert_eq!(
            (old.start(0, 0), old.start(0, 0)),
            (StartOutcome::Started, StartOutcome::Started)
        );
        old.supersede();
        old.supersede();
        assert_eq!((new.start(0, 0), new.start(1, 0)), (StartOutcome::Held, StartOutcome::Started));
        assert_eq!(stranger.start(0, 0), StartOutcome::Started);
        assert_eq!(
            (old.start(0, 0), old.start(1, 0)),
            (StartOutcome::Superseded, StartOutcome::Superseded)
        );
        old.end(0, 0);
        assert_eq!(new.start(0, 0), StartOutcome::Held, "one of two has ended");
        old.end(0, 0);
        assert_eq!(new.start(0, 0), StartOutcome::Started);
        assert!(!group.is_haunted(0));
    }

    #[test]
    fn each_ghost_counts() {
        let (group, old, new) = two();
        let third = Fence::among(group.clone());
        assert_eq!(
            (old.start(3, 0), new.start(3, 0)),
            (StartOutcome::Started, StartOutcome::Started)
        );
        old.supersede();
        new.supersede();
        old.end(3, 0);
        assert_eq!(third.start(3, 0), StartOutcome::Held);
        new.end(3, 0);
        assert_eq!(third.start(3, 0), StartOutcome::Started);
    }

    #[test]
    fn without_a_group_nobody_is_held_up() {
        let fence = Fence::default();
        assert_eq!(fence.start(0, 0), StartOutcome::Started);
        fence.supersede();
        assert!(fence.is_running());
        fence.end(0, 0);
        assert_eq!(fence.start(0, 0), StartOutcome::Superseded);
    }

    #[test]
    fn what_was_allowed_before_is_looked_at_again_and_waited_for() {
        let fence = Fence::default();
        assert_eq!(fence.start(2, 0), StartOutcome::Started);
        assert_eq!((fence.revoke(), fence.epoch()), (Some(0), 1));
        assert_eq!(fence.start(2, 0), StartOutcome::Stale);
        assert_eq!(fence.start(2, 1), StartOutcome::Started);
        assert!(fence.is_running_as_of(0) && fence.is_running_as_of(1));
        assert_eq!(fence.revoke(), None, "those of the first epoch still run");
        fence.end(2, 0);
        assert!(!fence.is_running_as_of(0), "newer ones are not waited for");
        assert_eq!(fence.revoke(), Some(1));
        assert_eq!(fence.start(2, 2), StartOutcome::Started);
        fence.end(2, 1);
        assert!(!fence.is_running_as_of(1) && fence.is_running_as_of(2) && fence.is_running());
        fence.supersede();
        assert_eq!(fence.start(2, 2), StartOutcome::Superseded);
        fence.end(2, 2);
        assert!(!fence.is_running());
    }

    #[test]
    fn a_ghost_rests_when_requests_of_both_epochs_have_ended() {
        let (group, old, new) = two();
        assert_eq!(old.start(0, 0), StartOutcome::Started);
        old.revoke().unwrap();
        assert_eq!(old.start(0, 1), StartOutcome::Started);
        old.supersede();
        old.end(0, 1);
        assert_eq!(new.start(0, 0), StartOutcome::Held);
        old.end(0, 0);
        assert!(!group.is_haunted_anywhere());
    }

    /// A fence with some started requests, and the observations of two threads.
    struct FenceFixture {
        group: Arc<FenceGroup>,
        fence: Fence,
        /// Number of requests of the first epoch that have started.
        begun: atomic::AtomicU32,
        /// Number of started requests at the time when a thread saw that no more would start, and
        /// that none ran.
        settled: [Mutex<Option<u32>>; 2],
    }

    fn scene(started: u32) -> FenceFixture {
        let group = Arc::new(FenceGroup::default());
        let fence = Fence::among(group.clone());
        for _ in 0..started {
            assert_eq!(fence.start(0, 0), StartOutcome::Started);
        }
        FenceFixture { group, fence, begun: started.into(), settled: Default::default() }
    }

    impl FenceFixture {
        /// Returns the atomics that change in the first epoch.
        fn watched(&self) -> Vec<usize> {
            let Fence { state, running, haunts, .. } = &self.fence;
            [state.at(), running[0][0].at(), haunts[0].at(), self.group.ghosts[0].at()].into()
        }

        fn watched_in_both(&self) -> Vec<usize> {
            self.watched().into_iter().chain([self.fence.running[1][0].at()]).collect()
        }

        fn request(&self) {
            if self.fence.start(0, 0) == StartOutcome::Started {
                self.begun.fetch_add(1, Ordering::SeqCst);
                self.fence.end(0, 0);
            }
        }

        fn settle(&self, me: usize, is_settled: bool) {
            *self.settled[me].lock().unwrap() =
                is_settled.then(|| self.begun.load(Ordering::SeqCst));
        }

        fn supersede(&self, me: usize) {
            self.fence.supersede();
            self.settle(me, !self.group.is_haunted(0));
        }

        fn revoke(&self) {
            let epoch = self.fence.revoke().expect("there was no epoch before");
            self.settle(0, !self.fence.is_running_as_of(epoch));
        }

        /// Asserts that a thread that saw nothing running has seen the last request start, and that
        /// no ghost is left once all requests have ended.
        fn check(&self) {
            let begun = self.begun.load(Ordering::SeqCst);
            for settled in &self.settled {
                assert!(settled.lock().unwrap().is_none_or(|so_far| so_far == begun));
            }
            assert!(!self.group.is_haunted(0) && !self.fence.is_running());
        }
    }

    #[test]
    fn no_ghost_is_left_or_lost_whatever_the_order() {
        let orders = [
            in_every_order(
                || scene(0),
                FenceFixture::watched,
                [&FenceFixture::request, &|scene| scene.supersede(0)],
                FenceFixture::check,
            ),
            in_every_order(
                || scene(1),
                FenceFixture::watched,
                [&|scene| scene.fence.end(0, 0), &|scene| scene.supersede(0)],
                FenceFixture::check,
            ),
            in_every_order(
                || scene(2),
                FenceFixture::watched,
                [&|scene| (0..2).for_each(|_| scene.fence.end(0, 0)), &|scene| scene.supersede(0)],
                FenceFixture::check,
            ),
        ];
        std::println!("orders: {orders:?}");
        assert!(orders.iter().all(|orders| *orders > 20));
    }

    #[test]
    fn nothing_that_was_revoked_starts_unseen_whatever_the_order() {
        let orders = in_every_order(
            || scene(0),
            FenceFixture::watched,
            [&FenceFixture::request, &FenceFixture::revoke],
            FenceFixture::check,
        );
        std::println!("orders: {orders}");
        assert!(orders > 20);
    }

    #[test]
    fn a_ghost_of_two_epochs_rests_once_whichever_ends_last() {
        let orders = in_every_order(
            || {
                let scene = scene(1);
                scene.fence.revoke().unwrap();
                assert_eq!(scene.fence.start(0, 1), StartOutcome::Started);
                scene.fence.supersede();
                assert!(scene.group.is_haunted(0));
                scene
            },
            FenceFixture::watched_in_both,
            [&|scene| scene.fence.end(0, 0), &|scene| scene.fence.end(0, 1)],
            FenceFixture::check,
        );
        std::println!("orders: {orders}");
        assert!(orders > 20);
    }

    #[test]
    fn whoever_supersedes_as_well_finds_the_ghost() {
        let orders = in_every_order(
            || scene(1),
            FenceFixture::watched,
            [&|scene| scene.supersede(0), &|scene| scene.supersede(1)],
            |scene| {
                let settled = scene.settled.each_ref().map(|settled| *settled.lock().unwrap());
                assert_eq!(settled, [None, None], "its request has not ended");
                scene.fence.end(0, 0);
                scene.check();
            },
        );
        let ending = in_every_order(
            || scene(1),
            FenceFixture::watched,
            [&|scene| scene.supersede(0), &|scene| {
                scene.fence.end(0, 0);
                scene.supersede(1);
            }],
            FenceFixture::check,
        );
        std::println!("orders: {orders}, {ending}");
        assert!(orders > 20 && ending > 20);
    }
}
