//! The requests that a peer has still to make, and the time of the next ones.

use std::time::Duration;

use contract::Instant;

/// The requests that a peer has still to make.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// The number of requests of the workload that are left to make.
    quota: u32,
    /// The number of probes left to make: requests after the last fault, which must succeed.
    probes: u32,
    /// `true` once the peer has stopped injecting faults (such as closed connections) of its own.
    is_calm: bool,
    /// `true` if a probe failed since the last turn.
    backs_off: bool,
    /// The time before which the peer makes no requests.
    pub(crate) rests_until: Instant,
}

impl Agenda {
    pub(crate) fn new(quota: u32) -> Agenda {
        let rests_until = Instant::ZERO;
        Agenda { quota, probes: 0, is_calm: false, backs_off: false, rests_until }
    }

    /// Drops the remaining workload, and schedules `probes` requests that must succeed.
    pub(crate) fn calm_down(&mut self, probes: u32) {
        self.is_calm = true;
        self.quota = 0;
        self.probes = probes;
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.is_calm
    }

    /// Returns `true` if no request of the workload is left.
    pub(crate) fn has_sent(&self) -> bool {
        self.quota == 0
    }

    /// Returns `true` if neither a request of the workload nor a probe is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.quota == 0 && self.probes == 0
    }

    /// Returns the number of requests of the workload that are left to make.
    pub(crate) fn quota(&self) -> u32 {
        self.quota
    }

    /// Returns the number of probes that are left to make.
    pub(crate) fn probes(&self) -> u32 {
        self.probes
    }

    /// Counts the next request as made. Returns `true` if it is a probe.
    pub(crate) fn take(&mut self) -> bool {
        let is_probe = self.quota == 0;
        match is_probe {
            true => self.probes -= 1,
            false => self.quota -= 1,
        }
        is_probe
    }

    /// Schedules a further probe in place of one that failed. The peer pauses when
    /// [`Agenda::back_off`] is called in the next turn.
    pub(crate) fn repeat_probe(&mut self) {
        self.probes += 1;
        self.backs_off = true;
    }

    /// Pauses the peer for `pause` if a probe has failed since the last turn.
    pub(crate) fn back_off(&mut self, now: Instant, pause: Duration) {
        if std::mem::take(&mut self.backs_off) {
            self.rests_until = now + pause;
        }
    }
}
