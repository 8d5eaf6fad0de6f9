//! Fences: what counts a connection's requests that may still change data, so that a later
//! connection of the same client does not overtake them (docs/adr/0003-fences.md).
//!
//! Both sides of a hand-shake are sequentially consistent, so no lock is taken for a request: the old
//! connection's worker counts, then looks whether it was superseded; whoever supersedes does that,
//! then looks at the count.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::DEVICES_MAX;

/// A connection's requests that may still change data.
#[derive(Debug, Default)]
pub struct Fence {
    /// Nothing of the connection may start any more.
    superseded: AtomicBool,
    /// By device: requests that have started and not ended.
    running: [AtomicU32; DEVICES_MAX],
    /// By device, as bits: counted among the ghosts of its kin.
    haunts: AtomicU32,
    kin: Option<Arc<Kin>>,
}

/// What the connections of one client share that may be live at the same time: the requests of those
/// that are gone hold up the others'.
#[derive(Debug, Default)]
pub struct Kin {
    /// By device: superseded fences whose requests still run.
    ghosts: [AtomicU32; DEVICES_MAX],
}

/// Whether a request may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It is counted, until [`Fence::end`].
    Started,
    /// Not now: requests of a connection of its client that is gone may still change the same device.
    /// Their ends end this.
    Held,
    /// Never: its connection was superseded.
    Superseded,
}

impl Fence {
    /// A fence whose requests wait for those of superseded ones of the same kin.
    pub fn among(kin: Arc<Kin>) -> Fence {
        Fence { kin: Some(kin), ..Fence::default() }
    }

    /// Whether its requests wait for those of others.
    pub fn has_kin(&self) -> bool {
        self.kin.is_some()
    }

    /// A request that changes data wants to start at a device (below [`DEVICES_MAX`]). Pairs with
    /// [`supersede`](Fence::supersede): either that sees this request running, or this one sees that
    /// it was superseded.
    pub fn start(&self, device: usize) -> Start {
        self.running[device].fetch_add(1, Ordering::SeqCst);
        let start = match &self.kin {
            _ if self.superseded.load(Ordering::SeqCst) => Start::Superseded,
            Some(kin) if kin.is_haunted(device) => Start::Held,
            _ => return Start::Started,
        };
        self.end(device);
        start
    }

    /// A request that had started has ended.
    pub fn end(&self, device: usize) {
        let before = self.running[device].fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a request ended that had not started");
        if before == 1 && self.superseded.load(Ordering::SeqCst) {
            self.rest(device);
        }
    }

    /// Nothing of the connection starts from now on; what of it still runs holds up its kin.
    pub fn supersede(&self) {
        if self.superseded.swap(true, Ordering::SeqCst) {
            return;
        }
        let Some(kin) = &self.kin else { return };
        for device in 0..DEVICES_MAX {
            if self.running[device].load(Ordering::SeqCst) > 0 {
                kin.ghosts[device].fetch_add(1, Ordering::SeqCst);
                self.haunts.fetch_or(1 << device, Ordering::SeqCst);
                // Its last request may have ended before it was a ghost.
                if self.running[device].load(Ordering::SeqCst) == 0 {
                    self.rest(device);
                }
            }
        }
    }

    /// Whether nothing of the connection may start any more.
    pub fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::SeqCst)
    }

    /// Whether requests of it run.
    pub fn is_running(&self) -> bool {
        self.running.iter().any(|running| running.load(Ordering::SeqCst) > 0)
    }

    /// Is a ghost at the device no more, if it was. Of two that find out, one does it.
    fn rest(&self, device: usize) {
        let was = self.haunts.fetch_and(!(1 << device), Ordering::SeqCst);
        if was & 1 << device != 0 {
            let kin = self.kin.as_ref().expect("whoever haunts has kin");
            kin.ghosts[device].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Kin {
    /// Whether requests of a superseded fence still run at the device.
    pub fn is_haunted(&self, device: usize) -> bool {
        self.ghosts[device].load(Ordering::SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    fn two() -> (Arc<Kin>, Fence, Fence) {
        let kin = Arc::new(Kin::default());
        let fences = [(); 2].map(|()| Fence::among(kin.clone()));
        let [old, new] = fences;
        (kin, old, new)
    }

    #[test]
    fn live_kin_do_not_wait_for_each_other() {
        let (_, one, other) = two();
        assert_eq!(one.start(0), Start::Started);
        assert_eq!(other.start(0), Start::Started);
        one.end(0);
        other.end(0);
        assert!(!one.is_running() && !other.is_running());
    }

    #[test]
    fn requests_of_the_superseded_hold_up_those_of_their_kin_at_the_same_device() {
        let (kin, old, new) = two();
        let stranger = Fence::among(Arc::new(Kin::default()));
        assert_eq!((old.start(0), old.start(0)), (Start::Started, Start::Started));
        old.supersede();
        old.supersede();
        assert_eq!((new.start(0), new.start(1)), (Start::Held, Start::Started));
        assert_eq!(stranger.start(0), Start::Started);
        assert_eq!((old.start(0), old.start(1)), (Start::Superseded, Start::Superseded));
        old.end(0);
        assert_eq!(new.start(0), Start::Held, "one of two has ended");
        old.end(0);
        assert_eq!(new.start(0), Start::Started);
        assert!(!kin.is_haunted(0));
    }

    #[test]
    fn each_ghost_counts() {
        let (kin, old, new) = two();
        let third = Fence::among(kin.clone());
        assert_eq!((old.start(3), new.start(3)), (Start::Started, Start::Started));
        old.supersede();
        new.supersede();
        old.end(3);
        assert_eq!(third.start(3), Start::Held);
        new.end(3);
        assert_eq!(third.start(3), Start::Started);
    }

    #[test]
    fn without_kin_nobody_is_held_up() {
        let fence = Fence::default();
        assert_eq!(fence.start(0), Start::Started);
        fence.supersede();
        assert!(fence.is_running());
        fence.end(0);
        assert_eq!(fence.start(0), Start::Superseded);
    }

    /// Requests start and end on one thread while another supersedes: whoever finds no ghost then sees
    /// none start any more, and in the end none is left.
    #[test]
    fn no_ghost_is_left_or_lost_whatever_the_order() {
        for round in 0..2_000_u32 {
            let (kin, old, _) = two();
            let begun = AtomicU32::new(0);
            let settled = std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..round % 7 + 1 {
                        if old.start(0) == Start::Started {
                            begun.fetch_add(1, Ordering::SeqCst);
                            old.end(0);
                        }
                    }
                });
                old.supersede();
                (!kin.is_haunted(0)).then(|| begun.load(Ordering::SeqCst))
            });
            assert!(settled.is_none_or(|begun_then| begun_then == begun.load(Ordering::SeqCst)));
            assert!(!kin.is_haunted(0) && !old.is_running());
        }
    }
}
