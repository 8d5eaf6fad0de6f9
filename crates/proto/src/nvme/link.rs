//! What a controller and its queues share, on whatever workers they live.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use contract::{NamespaceId, TenantId};
use spin::Mutex;
use wire::nvme::Status;

use super::errors::ErrorLog;

/// The controller as its queues see it: atomics, and an error log that errors alone touch.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) cntlid: u16,
    /// Commands other than those of fabrics may come.
    is_ready: AtomicBool,
    /// The controller is no more.
    is_gone: AtomicBool,
    /// The host said something since the keep-alive timer last looked.
    heard: AtomicBool,
    /// The host switched the write cache off.
    writes_through: AtomicBool,
    /// Its queues may leave for another process.
    is_called: AtomicBool,
    /// Counts changes of what the controller may reach.
    generation: AtomicU64,
    errors: Mutex<ErrorLog>,
    /// How many errors there ever were, for those whom workers would wait for if they locked the log.
    error_count: AtomicU64,
}

impl Link {
    pub(super) fn new(cntlid: u16) -> Link {
        Link {
            cntlid,
            is_ready: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            writes_through: AtomicBool::new(false),
            is_called: AtomicBool::new(false),
            generation: AtomicU64::new(1),
            errors: Mutex::new(ErrorLog::default()),
            error_count: AtomicU64::new(0),
        }
    }

    /// Changes the error log.
    pub(super) fn with_errors(&self, change: impl FnOnce(&mut ErrorLog)) {
        let mut errors = self.errors.lock();
        change(&mut errors);
        self.error_count.store(errors.count(), Ordering::Relaxed);
    }

    /// The error log as it is, for threads that workers may wait for.
    pub(super) fn errors(&self) -> ErrorLog {
        self.errors.lock().clone()
    }

    pub(super) fn error_count(&self) -> u64 {
        self.error_count.load(Ordering::Relaxed)
    }

    /// A command came. Written once in a keep-alive period, so that queues do not fight for the line.
    pub(super) fn hear(&self) {
        if !self.heard.load(Ordering::Relaxed) {
            self.heard.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a command came since the last call.
    pub(super) fn take_heard(&self) -> bool {
        self.heard.swap(false, Ordering::Relaxed)
    }

    pub(super) fn set_ready(&self, is_ready: bool) {
        self.is_ready.store(is_ready, Ordering::Release);
    }

    pub(super) fn set_called(&self, is_called: bool) {
        self.is_called.store(is_called, Ordering::Release);
    }

    pub(super) fn is_called(&self) -> bool {
        self.is_called.load(Ordering::Acquire)
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

    /// Whether commands may come now.
    ///
    /// # Errors
    /// The status of a command that may not.
    pub(super) fn ready(&self) -> Result<(), Status> {
        if self.is_gone.load(Ordering::Acquire) {
            return Err(Status::QUEUE_DELETED);
        }
        if !self.is_ready.load(Ordering::Acquire) {
            return Err(Status::SEQUENCE_ERROR.dnr());
        }
        Ok(())
    }

    /// Makes every queue take another view before its next command.
    pub(super) fn change(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// A namespace as a controller may use it at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) nsid: u32,
    pub(super) namespace: NamespaceId,
    pub(super) tenant: Option<TenantId>,
    /// In blocks as the host sees them.
    pub(super) blocks: u64,
    /// Contract's blocks in one of the host's, as a power of two: 0 or 3.
    pub(super) shift: u8,
    /// What commands that read are told: success, or why they may not.
    pub(super) reads: Status,
    /// The same for commands that write.
    pub(super) writes: Status,
    /// The same for a flush.
    pub(super) flushes: Status,
}

/// What a controller may reach, as of a generation of its [`Link`].
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) generation: u64,
    /// Sorted by identifier.
    pub(super) namespaces: Box<[Seen]>,
}

impl View {
    pub(super) fn find(&self, nsid: u32) -> Option<&Seen> {
        // Most subsystems number them from one without a gap.
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
