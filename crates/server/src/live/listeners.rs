//! Listeners that are drained while the server runs: they turn away whoever comes, and the connections
//! end that came by them. A server that starts again, or another process that takes over, lets people in
//! by all of them.

use std::time::Duration;

use contract::ListenerId;
use control::admin::{self, AnaState, Code, ListenerState, Problem, SetAna};

use super::open::{Listeners, find};
use super::world::World;
use super::{Inner, Open, subsystems};
use crate::listen::{NUMBER_MAX, Protocol};

/// The group that all namespaces are in.
const GROUP: u32 = 1;

impl Listeners<'_> {
    /// Turns away whoever comes by a listener, and ends its connections within `limit`.
    pub(super) fn drain(&self, id: ListenerId, limit: Duration) -> Result<(), Problem> {
        self.turn_away(id, true)?;
        let (gate, clock) = (self.0.gate()?, &self.0.ground.clock);
        gate.commands.drain(id, Some(clock.now() + limit));
        Ok(())
    }

    /// Lets whoever comes by a listener in again.
    pub(super) fn resume(&self, id: ListenerId) -> Result<(), Problem> {
        self.0.gate()?.commands.drain(id, None);
        self.turn_away(id, false)
    }

    fn turn_away(&self, id: ListenerId, turns: bool) -> Result<(), Problem> {
        let gate = self.0.gate()?;
        gate.orders.turn_away(id, turns, &gate.wakers);
        self.0.await_orders()
    }

    /// Connections by listener, as workers call it, if any listener turns people away.
    pub(super) fn counts(&self) -> Option<Vec<usize>> {
        let gate = self.0.gate().ok()?;
        let seen = self.0.seen();
        let turns = seen.open.iter().any(|open| gate.orders.turning().has(open.at.id));
        if turns { self.counts_of() } else { None }
    }

    /// Returns the connections of each listener, or `None` if a worker does not answer.
    pub(super) fn counts_of(&self) -> Option<Vec<usize>> {
        let all = self.0.gate().ok()?.commands.connections().ok()?;
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
        let turns = self.0.gate().is_ok_and(|gate| gate.orders.turning().has(id));
        match (turns, counts.map(|counts| counts[usize::from(id.0)])) {
            (false, _) => (ListenerState::Open, None),
            (true, Some(0)) => (ListenerState::Drained, Some(0)),
            (true, own) => (ListenerState::Draining, own),
        }
    }

    pub(super) fn told(&self) -> admin::Listeners {
        let counts = self.counts();
        let seen = self.0.seen();
        let told = |open: &Open| self.told_with(&seen.world, open, counts.as_deref());
        admin::Listeners { listeners: seen.open.iter().map(told).collect() }
    }

    /// Returns one listener, by number or address.
    pub(super) fn told_one(&self, name: &str) -> Result<admin::Listener, Problem> {
        let counts = self.counts();
        let seen = self.0.seen();
        let open = find(&seen.open, name)?;
        Ok(self.told_with(&seen.world, open, counts.as_deref()))
    }

    pub(super) fn set_ana(
        &self,
        inner: &mut Inner,
        name: &str,
        to: &SetAna,
    ) -> Result<admin::Listener, Problem> {
        let (mut listener, group) = (0, to.group.unwrap_or(GROUP));
        self.0.change(inner, |inner, changes| {
            let at = &find(&inner.open, name)?.at;
            if at.protocol != Protocol::NvmeTcp {
                let message = "only listeners that speak nvme-tcp have such states";
                return Err(Problem::new(Code::Invalid, message));
            }
            listener = at.number;
            if let Some(nqn) = &to.subsystem {
                subsystems::find(&inner.world, nqn)?;
            }
            for subsystem in &inner.world.config.subsystem {
                if to.subsystem.is_some() && to.subsystem != subsystem.nqn {
                    continue;
                }
                let mut config = subsystem.clone();
                config.ana.retain(|ana| (ana.listener, ana.group) != (listener, group));
                if to.state != AnaState::Optimized {
                    config.ana.push(spec::Ana { listener, group, state: to.state });
                }
                changes.subsystems.insert(config.name(), Some(config));
            }
            Ok(Vec::new())
        })?;
        tracing::info!(listener, group, state = ?to.state, "access through a listener changed");
        self.told_one(name)
    }

    /// A listener, with how many connections came by each one, where that is known.
    pub(super) fn told_with(
        &self,
        world: &World,
        open: &Open,
        counts: Option<&[usize]>,
    ) -> admin::Listener {
        let number = open.at.number;
        let all = world.config.subsystem.iter().flat_map(subsystems::told_ana);
        let ana = all.filter(|ana| ana.listener == number).collect();
        let (state, connections) = self.state_of(open, counts);
        admin::Listener { number, url: open.url(), state, connections, ana }
    }
}
