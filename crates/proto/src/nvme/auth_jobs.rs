//! The modular exponentiations that authentications wait for, and the failed authentications.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::net::IpAddr;
use core::sync::atomic::AtomicBool;
use core::time::Duration;

use contract::{AuthFailures, Credential, Instant};

use super::auth::ModularPower;
use super::binding::QueueAddress;
use super::controllers::Controllers;
use super::record::QueueRecord;

/// The number of remembered failures from which on an address's negotiations are delayed.
const PROOFS_MAX: u32 = 16;

/// The time after which one failed authentication is forgotten.
const FORGET: Duration = Duration::from_secs(5);

/// A modular exponentiation that a queue's authentication waits for.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) cntlid: u16,
    pub(super) queue: u16,
    /// The queue's worker and connection, kept up to date until the computation begins.
    pub(super) place: QueueAddress,
    /// The queue's flag that its host has authenticated. Only its address is used here: it
    /// distinguishes the queue from a later one with the same numbers.
    pub(super) proven: Arc<AtomicBool>,
    pub(super) power: ModularPower,
    /// The time at which the host's message was processed.
    pub(super) at: Instant,
}

/// The waiting computations of authentications, and the failed authentications.
#[derive(Debug)]
pub(super) struct AuthJobs {
    /// The computations, oldest first; at most one for each queue.
    jobs: VecDeque<Job>,
    /// Failed authentications, by source address.
    failures: AuthFailures,
}

impl AuthJobs {
    /// Creates an empty list of computations and failures.
    pub(super) fn new() -> AuthJobs {
        let failures = AuthFailures::new(Credential::Key, PROOFS_MAX, FORGET);
        AuthJobs { jobs: VecDeque::new(), failures }
    }

    /// Returns the number of computations that wait.
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Adds a computation behind those that wait.
    pub(super) fn push(&mut self, job: Job) {
        self.jobs.push_back(job);
    }

    /// Takes the oldest computation; `None` if no authentication waits for one.
    pub(super) fn pop(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// Returns the failed authentications, to count another.
    pub(super) fn failures(&mut self) -> &mut AuthFailures {
        &mut self.failures
    }

    /// Returns how long a negotiation from this address is delayed: zero, unless too many
    /// authentications from there have failed.
    pub(super) fn delay(
        &mut self,
        address: IpAddr,
        controllers: &Controllers,
        now: Instant,
    ) -> Duration {
        if self.failures.wait(address, now).is_none() {
            return Duration::ZERO;
        }
        let place = AuthFailures::place(address);
        let records = controllers.iter().flat_map(|own| own.queues.values());
        let from_there = |record: &&QueueRecord| {
            record.put_off.is_some() && record.place.address.map(AuthFailures::place) == Some(place)
        };
        let waiting = records.filter(from_there).count();
        self.failures.delay(address, waiting, now)
    }

    /// Returns `true` if a computation waits for the NVMe queue of the connection at this place.
    pub(super) fn has(&self, place: QueueAddress) -> bool {
        self.jobs.iter().any(|job| job.place == place)
    }

    /// Drops the computations for a connection that is gone.
    pub(super) fn forget(&mut self, place: QueueAddress) {
        self.jobs.retain(|job| job.place != place);
    }

    /// Changes the place of a queue from `from` to `to` in the computation that the queue waits
    /// for.
    pub(super) fn relocate(&mut self, from: QueueAddress, to: QueueAddress) {
        self.jobs.iter_mut().filter(|job| job.place == from).for_each(|job| job.place = to);
    }
}
