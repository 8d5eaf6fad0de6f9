//! The drain of the whole server, as SIGTERM orders it: nothing of it is kept, and it is not taken back.

use std::time::Duration;

use control::UPGRADING;
use control::admin::{Code, Drain, DrainServer, DrainState, Problem};

use super::Live;

impl Live {
    pub(super) fn drain_all(&self, how: DrainServer) -> Result<Drain, Problem> {
        let gate = self.gate()?;
        let limit = how.deadline_ms.map_or(self.ground.drain_limit, Duration::from_millis);
        {
            let is_given = self.is_given.lock().expect("no holder of this lock panics");
            if *is_given {
                return Err(Problem::new(Code::Busy, UPGRADING));
            }
            gate.orders.end_by(self.ground.clock.now() + limit, &gate.wakers);
        }
        tracing::info!(limit_ms = limit.as_millis() as u64, "the server drains, as it was told");
        self.told_drain()
    }

    pub(super) fn told_drain(&self) -> Result<Drain, Problem> {
        let gate = self.gate()?;
        let workers = gate.commands.workers();
        let drains = gate.orders.word().stops();
        let left = |until: contract::Instant| until.since(self.ground.clock.now()).as_millis();
        Ok(Drain {
            state: if drains { DrainState::Draining } else { DrainState::Serving },
            connections: workers.iter().map(|worker| worker.connections).sum(),
            in_flight: workers.iter().map(|worker| u64::from(worker.in_flight)).sum(),
            left_ms: gate.orders.stops_by().filter(|_| drains).map(|until| left(until) as u64),
        })
    }

    /// From now on another process may take over, and no drain begins.
    ///
    /// # Errors
    /// As [`check_stays`](Live::check_stays).
    pub(super) fn forbid_drains(&self) -> Result<(), Problem> {
        let mut is_given = self.is_given.lock().expect("no holder of this lock panics");
        self.check_stays()?;
        *is_given = true;
        Ok(())
    }

    /// A drain may begin again.
    pub(super) fn allow_drains(&self) {
        *self.is_given.lock().expect("no holder of this lock panics") = false;
    }

    /// # Errors
    /// That the server drains, and ends soon.
    pub(super) fn check_stays(&self) -> Result<(), Problem> {
        match self.gate.get().is_some_and(|gate| gate.orders.word().stops()) {
            true => Err(Problem::new(Code::Busy, "this server is draining, and ends after that")),
            false => Ok(()),
        }
    }
}
