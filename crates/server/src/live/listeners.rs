//! Listeners that are drained while the server runs: they turn away whoever comes, and the connections
//! end that came by them. A server that starts again, or another process that takes over, lets people in
//! by all of them.

use std::sync::Arc;
use std::time::Duration;

use contract::ListenerId;
use control::WorkerCommands;
use control::admin::{self, Code, ListenerState, Problem};
use io::Waker;

use super::open::find;
use super::{Live, Open};
use crate::listen::NUMBER_MAX;
use crate::orders::Orders;

/// The means by which a running server reaches its accepting workers and their connections.
pub(crate) struct Gate {
    pub(crate) orders: Arc<Orders>,
    pub(crate) wakers: Vec<Waker>,
    pub(crate) commands: WorkerCommands,
}

impl Live {
    /// The server runs.
    pub(crate) fn set_gate(&self, gate: Gate) {
        assert!(self.gate.set(gate).is_ok(), "a server starts once");
    }

    pub(super) fn drain(&self, name: &str, limit: Duration) -> Result<admin::Listener, Problem> {
        let id = self.turn_away(name, true)?;
        let (gate, clock) = (self.gate()?, &self.ground.clock);
        gate.commands.drain(id, Some(clock.now() + limit));
        tracing::info!(listener = name, limit_ms = limit.as_millis() as u64, "drained");
        self.told_one(name)
    }

    pub(super) fn resume(&self, name: &str) -> Result<admin::Listener, Problem> {
        let id = find(&self.seen().open, name)?.at.id;
        self.gate()?.commands.drain(id, None);
        self.turn_away(name, false)?;
        tracing::info!(listener = name, "the listener accepts connections again");
        self.told_one(name)
    }

    pub(super) fn gate(&self) -> Result<&Gate, Problem> {
        let starting = || Problem::new(Code::Busy, "this server is still starting; try again");
        self.gate.get().ok_or_else(starting)
    }

    fn turn_away(&self, name: &str, turns: bool) -> Result<ListenerId, Problem> {
        let gate = self.gate()?;
        let id = {
            let inner = self.lock_for_change()?;
            inner.check_thawed()?;
            find(&inner.open, name)?.at.id
        };
        gate.orders.turn_away(id, turns, &gate.wakers);
        self.await_orders()?;
        Ok(id)
    }

    /// Waits until all workers have done what they were told.
    pub(super) fn await_orders(&self) -> Result<(), Problem> {
        let gate = self.gate()?;
        let end = self.ground.clock.now() + super::SETTLE_MAX;
        while !gate.orders.are_done() {
            if self.ground.clock.now() >= end {
                return Err(Problem::new(Code::TimeOut, "a worker does not answer"));
            }
            std::thread::sleep(super::SETTLE_PAUSE);
        }
        Ok(())
    }

    /// Connections by listener, as workers call it, if any listener turns people away.
    pub(super) fn counts(&self) -> Option<Vec<usize>> {
        let gate = self.gate.get()?;
        let seen = self.seen();
        let turns = seen.open.iter().any(|open| gate.orders.turning().has(open.at.id));
        if turns { self.counts_of() } else { None }
    }

    /// Returns the connections of each listener, or `None` if a worker does not answer.
    pub(super) fn counts_of(&self) -> Option<Vec<usize>> {
        let all = self.gate.get()?.commands.connections().ok()?;
        let mut counts = vec![0; usize::from(NUMBER_MAX)];
        all.iter().for_each(|info| counts[usize::from(info.listed.listener)] += 1);
        Some(counts)
    }

    /// Returns the state of a listener, and its connections if it does not accept new ones.
    pub(super) fn state_of(
        &self,
        open: &Open,
        counts: Option<&[usize]>,
    ) -> (ListenerState, Option<usize>) {
        let id = open.at.id;
        let turns = self.gate.get().is_some_and(|gate| gate.orders.turning().has(id));
        match (turns, counts.map(|counts| counts[usize::from(id.0)])) {
            (false, _) => (ListenerState::Open, None),
            (true, Some(0)) => (ListenerState::Drained, Some(0)),
            (true, own) => (ListenerState::Draining, own),
        }
    }
}
