//! The state that a controller shares with its queues on any worker.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use contract::{NamespaceId, TenantId};
use wire::nvme::Status;

use super::errors::ErrorRing;

/// The atomics that a controller shares with its queues, which belong to several workers.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) cntlid: u16,
    /// `true` if the host has enabled the controller, so that commands other than Fabrics commands
    /// may come.
    is_ready: AtomicBool,
    /// `true` if the controller has ended.
    is_gone: AtomicBool,
    /// `true` if a command came since the keep-alive timer last checked.
    heard: AtomicBool,
    /// `true` if the host has switched the write cache off.
    writes_through: AtomicBool,
    /// `true` if the queues may move to another process.
    is_exporting: AtomicBool,
    /// A number that grows with each change of the namespaces or rights that the controller has.
    generation: AtomicU64,
    /// The number of times that the controller's host has lost rights. Each is a change of
    /// `generation`, too.
    losses: AtomicU64,
    /// The errors of the controller's commands.
    pub(super) errors: ErrorRing,
}

impl Link {
    pub(super) fn new(cntlid: u16) -> Link {
        Link {
            cntlid,
            is_ready: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            writes_through: AtomicBool::new(false),
            is_exporting: AtomicBool::new(false),
            generation: AtomicU64::new(1),
            losses: AtomicU64::new(0),
            errors: ErrorRing::default(),
        }
    }

    /// Notes that a command came. Writes only once between two checks of the keep-alive timer, so
    /// that queues do not contend for the cache line.
    pub(super) fn hear(&self) {
        if !self.heard.load(Ordering::Relaxed) {
            self.heard.store(true, Ordering::Relaxed);
        }
    }

    /// Returns `true` if a command came since the last call.
    pub(super) fn take_heard(&self) -> bool {
        self.heard.swap(false, Ordering::Relaxed)
    }

    pub(super) fn set_ready(&self, is_ready: bool) {
        self.is_ready.store(is_ready, Ordering::Release);
    }

    pub(super) fn set_exporting(&self, is_exporting: bool) {
        self.is_exporting.store(is_exporting, Ordering::Release);
    }

    pub(super) fn is_exporting(&self) -> bool {
        self.is_exporting.load(Ordering::Acquire)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    pub(super) fn set_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    pub(super) fn set_writes_through(&self, through: bool) {
        self.writes_through.store(through, Ordering::Release);
    }

    pub(super) fn writes_through(&self) -> bool {
        self.writes_through.load(Ordering::Acquire)
    }

    /// Checks that the controller accepts commands now.
    ///
    /// # Errors
    /// Returns the status with which a command is refused now.
    pub(super) fn ready(&self) -> Result<(), Status> {
        if self.is_gone.load(Ordering::Acquire) {
            return Err(Status::QUEUE_DELETED);
        }
        if !self.is_ready.load(Ordering::Acquire) {
            return Err(Status::SEQUENCE_ERROR.dnr());
        }
        Ok(())
    }

    /// Makes every queue fetch its view anew before its next command.
    pub(super) fn change(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Counts a withdrawal of the host's rights. To be called after [`change`](Link::change). From
    /// now on a read is answered only if its host still has the right to read.
    pub(super) fn lose(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }
}

/// A namespace as a controller may use it at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VisibleNamespace {
    pub(super) nsid: u32,
    pub(super) namespace: NamespaceId,
    pub(super) tenant: Option<TenantId>,
    /// The size of the namespace, in blocks as the host sees them.
    pub(super) blocks: u64,
    /// Log2 of the number of 512-byte blocks in one of the host's blocks: 0 or 3.
    pub(super) shift: u8,
    /// The status of reads: success, or the reason to refuse them.
    pub(super) reads: Status,
    /// The status of writes: success, or the reason to refuse them.
    pub(super) writes: Status,
    /// The status of flushes: success, or the reason to refuse them.
    pub(super) flushes: Status,
}

/// The namespaces that a controller may reach, as of a generation of its [`Link`].
#[derive(Clone, Debug, Default)]
pub(super) struct VisibleNamespaces {
    pub(super) generation: u64,
    /// The number of times that the host had lost rights (`losses` of the [`Link`]) when the view
    /// was made.
    pub(super) losses: u64,
    /// The namespaces, ordered by identifier.
    pub(super) namespaces: Box<[VisibleNamespace]>,
}

impl VisibleNamespaces {
    pub(super) fn find(&self, nsid: u32) -> Option<&VisibleNamespace> {
        // Most subsystems number their namespaces from one without a gap.
        let likely = self.namespaces.get((nsid as usize).wrapping_sub(1));
        if let Some(seen) = likely
            && seen.nsid == nsid
        {
            return likely;
        }
        let at = self.namespaces.binary_search_by_key(&nsid, |seen| seen.nsid).ok()?;
        self.namespaces.get(at)
    }
}
