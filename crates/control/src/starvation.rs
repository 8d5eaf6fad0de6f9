//! The check of the machine: whether workers wait for processors for so long that latencies are
//! those of the machine and not of devices.
//!
//! This module deliberately leaves out the measurement (`io::ThreadAccount`), and its effect on the
//! judgement of devices (`qos::is_starved`).

use std::fmt;

use qos::WAITS_MAX;

use crate::flows::WorkerFlow;

/// A worker that waited for a processor for too large a part of the last window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Starvation {
    /// Number of the worker.
    pub worker: usize,
    /// Share of the window for which the worker waited, from 0 to 1.
    pub share: f64,
}

impl Starvation {
    /// Returns the worker that waited longest for a processor, if it waited for more than the share
    /// [`WAITS_MAX`] of the last window.
    pub(crate) fn of(workers: &[WorkerFlow]) -> Option<Starvation> {
        let shares = workers.iter().map(|flow| flow.last.waited_share).enumerate();
        let most = shares.max_by(|(_, a), (_, b)| a.total_cmp(b));
        most.filter(|(_, share)| *share > WAITS_MAX)
            .map(|(worker, share)| Starvation { worker, share })
    }
}

impl fmt::Display for Starvation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Starvation { worker, share } = self;
        write!(
            f,
            "the machine is overcommitted: worker {worker} was ready to run and did not for {:.0} % of \
             the last second",
            share * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::WorkerWindow;

    fn flow(waited_share: f64) -> WorkerFlow {
        let last = WorkerWindow { waited_share, ..WorkerWindow::default() };
        WorkerFlow { last, ..WorkerFlow::default() }
    }

    #[test]
    fn the_worker_that_waits_longest_is_named() {
        assert_eq!(Starvation::of(&[]), None);
        assert_eq!(Starvation::of(&[flow(0.0), flow(WAITS_MAX)]), None);
        let found = Starvation::of(&[flow(0.1), flow(0.374), flow(0.03)]).unwrap();
        assert_eq!(found, Starvation { worker: 1, share: 0.374 });
        assert_eq!(
            found.to_string(),
            "the machine is overcommitted: worker 1 was ready to run and did not for 37 % of the last \
             second"
        );
    }
}
