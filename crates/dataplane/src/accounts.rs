//! The times for which the workers' threads waited for a processor, as the kernel's scheduler
//! counts them. Each thread opens the kernel's statistics of itself, and other threads read them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use control::WorkerController;
use io::{CpuWaits, ThreadAccount};

/// The kernel's accounts of the workers' threads, by worker: how long each thread has waited for a
/// processor. Clones are cheap and share the accounts.
#[derive(Clone, Debug, Default)]
pub struct ThreadAccounts {
    all: Arc<[OnceLock<Option<ThreadAccount>>]>,
}

impl ThreadAccounts {
    /// Creates an empty account for each of `workers` threads. From now on, `controller` reads from
    /// it how long the worker's thread has waited for a processor.
    pub fn watched_by(controller: &mut WorkerController, workers: usize) -> ThreadAccounts {
        let accounts = ThreadAccounts { all: (0..workers).map(|_| OnceLock::new()).collect() };
        for worker in 0..workers {
            let (own, mut seen, mut sum) = (accounts.clone(), CpuWaits::default(), Duration::ZERO);
            let account = move || {
                let now = own.waits_of(worker)?;
                sum += now.since(&std::mem::replace(&mut seen, now));
                Some(sum)
            };
            controller.set_account(worker, Box::new(account));
        }
        accounts
    }

    /// Opens the kernel's account of the calling thread, which runs worker number `worker`.
    pub fn open(&self, worker: usize) {
        self.all[worker].get_or_init(ThreadAccount::of_this_thread);
    }

    /// Returns a worker's wait times; `None` before its thread has begun, after it has ended, and
    /// on kernels without accounts.
    fn waits_of(&self, worker: usize) -> Option<CpuWaits> {
        self.all[worker].get()?.as_ref()?.waits()
    }

    /// Returns the wait times of all workers, by worker. Where the wait times are unknown, they are
    /// zero.
    pub fn waits(&self) -> Vec<CpuWaits> {
        (0..self.all.len()).map(|worker| self.waits_of(worker).unwrap_or_default()).collect()
    }
}
