//! The kernel's accounts of the workers' threads: each thread opens its own, and others read it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use control::WorkerController;
use io::ThreadAccount;

/// The accounts by worker. Cheap to clone; all clones are the same accounts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    all: Arc<[OnceLock<Option<ThreadAccount>>]>,
}

impl Accounts {
    /// Returns places for the accounts of this many workers, which `controller` reads from now on.
    pub(crate) fn watched_by(controller: &mut WorkerController, workers: usize) -> Accounts {
        let accounts = Accounts { all: (0..workers).map(|_| OnceLock::new()).collect() };
        for worker in 0..workers {
            let own = accounts.clone();
            controller.set_account(worker, Box::new(move || own.waited(worker)));
        }
        accounts
    }

    /// Opens the account of the calling thread, which is this worker.
    pub(crate) fn open(&self, worker: usize) {
        self.all[worker].get_or_init(ThreadAccount::of_this_thread);
    }

    /// Returns the time for which a worker was ready to run and did not; `None` before its thread has
    /// begun, after that has ended, and where the kernel has no accounts.
    fn waited(&self, worker: usize) -> Option<Duration> {
        self.all[worker].get()?.as_ref()?.waited()
    }

    /// Returns the times for which the workers were ready to run and did not; zero where that is not
    /// known.
    pub(crate) fn waits(&self) -> Vec<Duration> {
        (0..self.all.len()).map(|worker| self.waited(worker).unwrap_or_default()).collect()
    }
}
