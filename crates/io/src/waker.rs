//! Waking a parked worker from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::Error;

/// A handle that ends a worker's wait in the kernel from another thread. Clones are cheap. A wake
/// of a running worker, or a second wake before the worker has noticed the first, costs no system
/// call.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    fd: OwnedFd,
    /// `true` if a wake was sent that the worker has not noticed.
    pending: AtomicBool,
    /// `true` if the worker has noticed a wake since the last [`was_woken`](Waker::was_woken).
    seen: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> Result<Self, Error> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::system("cannot make an eventfd to wake a worker", e))?;
        Ok(Waker {
            shared: Arc::new(Shared {
                fd,
                pending: AtomicBool::new(false),
                seen: AtomicBool::new(false),
            }),
        })
    }

    /// Ends the worker's present wait in the kernel, or its next one if the worker is running.
    pub fn wake(&self) {
        if !self.shared.pending.swap(true, Ordering::AcqRel) {
            // The counter cannot overflow: it is written at most once between two reads.
            let _ = rustix::io::write(&self.shared.fd, &1u64.to_ne_bytes());
        }
    }

    /// Clears a wake. The worker calls this when the descriptor has become readable, before it
    /// looks for the reason of the wake.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.shared.fd, &mut [0u8; 8]);
        // A swap, so that what was done before a wake that found `pending` set is seen after this.
        self.shared.pending.swap(false, Ordering::AcqRel);
        self.shared.seen.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if a wake has ended a wait since the last call.
    pub fn was_woken(&self) -> bool {
        self.shared.seen.load(Ordering::Relaxed) && self.shared.seen.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.fd.as_fd()
    }
}
