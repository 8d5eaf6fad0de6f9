//! The drain of the whole server, as by SIGTERM. A drain is not stored and cannot be undone.

use std::sync::Mutex;
use std::time::Duration;

use control::UPGRADING;
use control::admin::{Code, Drain, DrainServer, DrainState, Problem};

use super::reconciler::Reconciler;

/// The state of the server's drain, and whether a take-over forbids one.
#[derive(Default)]
pub(super) struct Drains {
    /// `true` if another process may take over, so that this one may not drain. The lock is held
    /// only for an instant, since an operator may stop a server because its disk hangs.
    is_given: Mutex<bool>,
}

impl Drains {
    /// Begins to drain the server.
    ///
    /// # Errors
    /// Fails while the server starts, and while another process takes over.
    pub(super) fn begin(&self, to: &Reconciler, how: DrainServer) -> Result<Drain, Problem> {
        let gate = to.gate()?;
        let limit = how.deadline_ms.map_or(to.ground.drain_limit, Duration::from_millis);
        {
            let is_given = self.is_given.lock().expect("no holder of this lock panics");
            if *is_given {
                return Err(Problem::new(Code::Busy, UPGRADING));
            }
            gate.orders.stop_by(to.ground.clock.now() + limit, &gate.wakers);
        }
        tracing::info!(limit_ms = limit.as_millis() as u64, "the server drains, as it was told");
        Drains::told(to)
    }

    /// Returns the state of the drain.
    ///
    /// # Errors
    /// Fails while the server starts.
    pub(super) fn told(of: &Reconciler) -> Result<Drain, Problem> {
        let gate = of.gate()?;
        let workers = gate.commands.workers();
        let drains = gate.orders.stops();
        let left = |until: contract::Instant| until.since(of.ground.clock.now()).as_millis();
        Ok(Drain {
            state: if drains { DrainState::Draining } else { DrainState::Serving },
            connections: workers.iter().map(|worker| worker.connections).sum(),
            in_flight: workers.iter().map(|worker| u64::from(worker.in_flight)).sum(),
            left_ms: gate.orders.stops_by().filter(|_| drains).map(|until| left(until) as u64),
        })
    }

    /// Forbids drains, since another process may take over.
    ///
    /// # Errors
    /// Fails as [`check_stays`](Reconciler::check_stays) does.
    pub(super) fn forbid(&self, to: &Reconciler) -> Result<(), Problem> {
        let mut is_given = self.is_given.lock().expect("no holder of this lock panics");
        to.check_stays()?;
        *is_given = true;
        Ok(())
    }

    /// Allows operators to start drains again.
    pub(super) fn allow(&self) {
        *self.is_given.lock().expect("no holder of this lock panics") = false;
    }
}
