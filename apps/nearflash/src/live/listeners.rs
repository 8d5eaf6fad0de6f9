//! Listeners that are drained while the server runs: they turn away whoever comes, and the connections
//! end that came by them. A server that starts again, or another process that takes over, lets people in
//! by all of them.

use std::sync::Arc;
use std::time::Duration;

use contract::ListenerId;
use control::Foreman;
use control::admin::{self, Code, ListenerState, Problem};
use io::Waker;

use super::Live;
use crate::orders::{Orders, TURNING_MAX};

/// How a running server reaches those who accept, and their connections.
pub(crate) struct Gate {
    pub(crate) orders: Arc<Orders>,
    pub(crate) wakers: Vec<Waker>,
    pub(crate) foreman: Foreman,
}

impl Live {
    /// The server runs.
    pub(crate) fn set_gate(&self, gate: Gate) {
        assert!(self.gate.set(gate).is_ok(), "a server starts once");
    }

    pub(super) fn drain(&self, name: &str, limit: Duration) -> Result<admin::Listener, Problem> {
        let index = self.turn_away(name, true)?;
        let (gate, clock) = (self.gate()?, &self.ground.clock);
        gate.foreman.drain(ListenerId(index as u16), Some(clock.now() + limit));
        tracing::info!(listener = index + 1, limit_ms = limit.as_millis() as u64, "drained");
        Ok(self.told_listeners().listeners.swap_remove(index))
    }

    pub(super) fn resume(&self, name: &str) -> Result<admin::Listener, Problem> {
        let index = self.find_listener(name)?;
        self.gate()?.foreman.drain(ListenerId(index as u16), None);
        let index = self.turn_away(name, false)?;
        tracing::info!(listener = index + 1, "lets people in again");
        Ok(self.told_listeners().listeners.swap_remove(index))
    }

    fn gate(&self) -> Result<&Gate, Problem> {
        let starting = || Problem::new(Code::Busy, "this server is starting still; try again");
        self.gate.get().ok_or_else(starting)
    }

    fn turn_away(&self, name: &str, turns: bool) -> Result<usize, Problem> {
        let (index, gate) = (self.find_listener(name)?, self.gate()?);
        self.lock().check_thawed()?;
        if index >= TURNING_MAX {
            let message = format!("of listeners the first {TURNING_MAX} can be drained");
            return Err(Problem::new(Code::Unsupported, message));
        }
        gate.orders.turn_away(index, turns, &gate.wakers);
        let end = self.ground.clock.now() + super::SETTLE_MAX;
        while !gate.orders.are_done() {
            if self.ground.clock.now() >= end {
                return Err(Problem::new(Code::TimeOut, "a worker does not answer"));
            }
            std::thread::sleep(super::SETTLE_PAUSE);
        }
        Ok(index)
    }

    /// Whether a listener lets people in, and how many are there if it does not.
    pub(super) fn states(&self) -> Vec<(ListenerState, Option<usize>)> {
        let listeners = self.ground.listen.len();
        let turning = self.gate.get().map_or(0, |gate| gate.orders.turning());
        let turns = |n: usize| n < TURNING_MAX && turning >> n & 1 == 1;
        if turning == 0 {
            return vec![(ListenerState::Open, None); listeners];
        }
        // Of a worker that does not answer nobody knows how many it has.
        let asked = self.gate.get().map(|gate| gate.foreman.connections());
        let connections = asked.and_then(Result::ok);
        let state = |n: usize| {
            let own = connections.as_ref().map(|all| {
                all.iter().filter(|info| usize::from(info.listed.listener) == n).count()
            });
            match (turns(n), own) {
                (false, _) => (ListenerState::Open, None),
                (true, Some(0)) => (ListenerState::Drained, Some(0)),
                (true, own) => (ListenerState::Draining, own),
            }
        };
        (0..listeners).map(state).collect()
    }
}
