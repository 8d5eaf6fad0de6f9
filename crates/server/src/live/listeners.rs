//! Listeners that are opened and closed at run time.
//!
//! A new listener is bound first, since that may fail and shows its port. Connections wait in the
//! kernel until the change is stored and the accepting worker has the listener. A removed listener
//! is closed when the removal is stored. Its connections stay, and its place is given to no other
//! listener as long as there are any. The next listener there has an identifier of its own, so that
//! a straggler is not mistaken for one of its connections.
//!
//! A drained listener refuses new connections, and its existing connections end. A server that
//! restarts, or another process that takes over, accepts connections at all of its listeners.

use std::time::Duration;

use contract::{ListenerId, Protocol};
use control::admin::{
    self, AddListener, AnaState, Code, ListenerState, Problem, RemoveListener, SetAna,
};
use io::Listener;
use worker::ListenerBinding;

use super::changes::ListenChange;
use super::listen_plan::ListenPlan;
use super::open::{OpenListener, find};
use super::reconciler::Reconciler;
use super::world::ServerSnapshot;
use super::{Changes, LiveState, subsystems};
use crate::config::Config;
use crate::host_keys::HostKeys;
use crate::listen::{ListenAt, NUMBER_MAX};
use crate::tenancy;

/// The ANA group that contains all namespaces.
const GROUP: u32 = 1;

/// Maximum number of open listeners. With more of them in the configuration, none can be added at
/// run time.
const OPEN_MAX: usize = 256;

/// A bound listener that does not accept yet.
struct BoundListener {
    open: OpenListener,
    lead: ListenerBinding,
    listener: Listener,
}

/// The planned changes of listeners, with the new listeners bound.
#[derive(Default)]
pub(super) struct PreparedListeners {
    bound: Vec<BoundListener>,
    gone: Vec<ListenerId>,
    renumbered: Vec<(ListenerId, u16)>,
}

/// Opens and closes the listeners of a server.
pub(super) struct Listeners<'a>(pub(super) &'a Reconciler);

impl Listeners<'_> {
    /// Opens a listener, stores it as a live change, and returns its status with the address to
    /// which it is bound.
    pub(super) fn open(
        &self,
        inner: &mut LiveState,
        wanted: &AddListener,
    ) -> Result<admin::ListenerStatus, Problem> {
        self.0.gate()?;
        self.0.check_stays()?;
        let mut at = ListenAt::parse(&wanted.url).map_err(invalid)?;
        if inner.open.len() >= OPEN_MAX {
            let message = format!("there are {OPEN_MAX} listeners, which is as many as can be");
            return Err(Problem::new(Code::TableFull, message));
        }
        self.forget_departed(inner);
        wanted.validate().map_err(|(_, error)| invalid(error))?;
        at.number = self.vacant_number(inner, wanted.number)?;
        at.id = self.vacant_id(at.number, &[])?;
        let mut bound = self.bind(&inner.world.config, at)?;
        // From now on it is asked for where it is: whoever was told the address finds it there
        // again.
        let at = ListenAt { endpoint: bound.open.endpoint().clone(), ..bound.open.at };
        bound.open = OpenListener::of(&bound.listener, at);
        let (number, id) = (bound.open.at.number, bound.open.at.id);
        let query = wanted.url.find('?').map_or("", |start| &wanted.url[start..]);
        let kept = ListenChange::Added(format!("{}{query}", bound.open.url()));
        let mut changes = inner.changes.clone();
        changes.listeners.insert(number, kept);
        let mut open = inner.open.clone();
        open.push(bound.open.clone());
        open.sort_by_key(|open| open.at.number);
        let world = self.0.world(inner, &changes, &open)?;
        inner.keep(changes)?;
        let ready = PreparedListeners { bound: vec![bound], ..PreparedListeners::default() };
        let served = self.serve(inner, world, ready);
        if let Err(problem) = served {
            self.undo(inner, number, id);
            return Err(problem);
        }
        let open = inner.open.iter().find(|open| open.at.id == id).expect("it was just opened");
        tracing::info!(listener = number, url = open.url(), "listens");
        Ok(self.told_with(&inner.world, open, None))
    }

    /// Closes a listener, and stores its removal. Its connections stay, or end as in a drain.
    pub(super) fn close(
        &self,
        inner: &mut LiveState,
        name: &str,
        how: RemoveListener,
    ) -> Result<OpenListener, Problem> {
        let gate = self.0.gate()?;
        let gone = find(&inner.open, name)?.clone();
        let (number, id) = (gone.at.number, gone.at.id);
        let changes = inner.without_listener(number);
        let open = inner.open.iter().filter(|open| open.at.number != number).cloned();
        let open: Vec<OpenListener> = open.collect();
        let world = self.0.world(inner, &changes, &open)?;
        inner.keep(changes)?;
        self.serve(
            inner,
            world,
            PreparedListeners { gone: vec![id], ..PreparedListeners::default() },
        )?;
        if let Some(limit_ms) = how.drain_ms {
            let until = self.0.ground.clock.now() + Duration::from_millis(limit_ms);
            gate.commands.drain(id, Some(until));
        }
        tracing::info!(listener = number, url = gone.url(), drains = how.drain_ms, "is closed");
        Ok(gone)
    }

    /// Plans the changes from the present listeners to the ones of another configuration.
    ///
    /// # Errors
    /// Only a restart can make the changes, for the reason returned.
    pub(super) fn listeners_to(
        &self,
        inner: &mut LiveState,
        base: &Config,
    ) -> Result<ListenPlan, String> {
        let wanted = inner.changes.made_to(base).listeners()?;
        let open: Vec<ListenAt> = inner.open.iter().map(|open| open.at.clone()).collect();
        let mut plan = ListenPlan::of(&open, &wanted, |number| inner.changes.names_way(number))?;
        if !plan.new.is_empty() {
            self.forget_departed(inner);
        }
        let mut taken = Vec::new();
        for at in &mut plan.new {
            at.id = self.vacant_id(at.number, &taken).map_err(|problem| problem.message)?;
            taken.push(at.id);
        }
        Ok(plan)
    }

    /// Binds the new listeners of a configuration. Returns them with all listeners as they will be.
    pub(super) fn make_ready(
        &self,
        inner: &LiveState,
        config: &Config,
        plan: ListenPlan,
    ) -> Result<(PreparedListeners, Vec<OpenListener>), Problem> {
        let bound = plan.new.into_iter().map(|at| self.bind(config, at));
        let bound = bound.collect::<Result<Vec<BoundListener>, _>>()?;
        let ready = PreparedListeners { bound, gone: plan.gone, renumbered: plan.renumbered };
        let open = ready.apply(&inner.open);
        Ok((ready, open))
    }

    /// Tells workers and NVMe hosts the new state, with the listeners that open and close.
    pub(super) fn serve(
        &self,
        inner: &mut LiveState,
        world: ServerSnapshot,
        ready: PreparedListeners,
    ) -> Result<(), Problem> {
        let open = ready.apply(&inner.open);
        for BoundListener { open, lead, .. } in &ready.bound {
            let set = self.0.ground.shared.listeners.set(open.at.id, lead.clone());
            assert!(set.is_ok(), "its place was vacant");
        }
        self.0.adopt(inner, world);
        let before = std::mem::replace(&mut inner.open, open);
        let gone: Vec<ListenAt> = before
            .into_iter()
            .filter(|open| ready.gone.contains(&open.at.id))
            .map(|open| open.at)
            .collect();
        let gone_ids: Vec<ListenerId> = gone.iter().map(|at| at.id).collect();
        if !gone.is_empty() {
            self.forget_departed(inner);
        }
        inner.departed.extend(gone);
        self.0.show(inner);
        if let Err(why) = self.0.make_fabric(inner) {
            return Err(Problem::new(Code::NotOpened, why));
        }
        let new: Vec<ListenerId> = ready.bound.iter().map(|bound| bound.open.at.id).collect();
        if new.is_empty() && gone_ids.is_empty() {
            return Ok(());
        }
        let gate = self.0.gate()?;
        let listeners = ready.bound.into_iter().map(|bound| (bound.open.at.id, bound.listener));
        let listeners: Vec<_> = listeners.collect();
        if !listeners.is_empty() {
            gate.orders.listen(listeners, &gate.wakers);
        }
        gone_ids.iter().for_each(|id| gate.orders.close(*id, &gate.wakers));
        self.0.await_orders()?;
        let complaint = |id: ListenerId| Some((id, gate.orders.take_complaint(id)?));
        let refused: Vec<(ListenerId, String)> = new.into_iter().filter_map(complaint).collect();
        // Nobody has come by them, and nobody will, so that their places are free soon.
        let is_refused = |open: &OpenListener| refused.iter().any(|(id, _)| *id == open.at.id);
        let closed = inner.open.extract_if(.., |open| is_refused(open)).map(|open| open.at);
        inner.departed.extend(closed);
        self.0.show(inner);
        match refused.into_iter().next() {
            Some((_, why)) => Err(Problem::new(Code::NotOpened, why)),
            None => Ok(()),
        }
    }

    /// Closes a new listener again and removes it from the stored changes, because a worker could
    /// not take it.
    fn undo(&self, inner: &mut LiveState, number: u16, id: ListenerId) {
        let changes = inner.without_listener(number);
        let open = inner.open.iter().filter(|open| open.at.number != number).cloned();
        let open: Vec<OpenListener> = open.collect();
        let undone = self.0.world(inner, &changes, &open).and_then(|world| {
            inner.keep(changes)?;
            self.serve(
                inner,
                world,
                PreparedListeners { gone: vec![id], ..PreparedListeners::default() },
            )
        });
        if let Err(problem) = undone {
            tracing::error!(error = problem.message, "a listener that failed is not taken back");
        }
    }

    /// Checks and binds a listener, which does not accept yet.
    fn bind(&self, config: &Config, at: ListenAt) -> Result<BoundListener, Problem> {
        if at.endpoint.is_of_packets() {
            // No worker could take it.
            return Err(Problem::new(
                Code::NotOpened,
                format!(
                    "cannot receive packets at {}: a server does so where it did at its start; name \
                     the listener in the configuration, and start the server anew",
                    at.endpoint
                ),
            ));
        }
        if at.endpoint.is_exposed() && !config.has_access_rules() && !self.0.ground.insecure {
            return Err(invalid(format!(
                "{} is reachable from other machines and no [[access]] rule says who may come in; \
                 add one to the configuration, or start the server with --insecure",
                at.endpoint
            )));
        }
        let named: Vec<u16> =
            config.numbered_namespaces().iter().filter_map(|one| one.number).collect();
        check_lead(&at, |number| named.contains(&number))?;
        tenancy::make_default(&at, config, &self.0.ground.tenants).map_err(invalid)?;
        let lead = tenancy::lead(&at, &self.0.ground.tenants.registry()).map_err(invalid)?;
        let ground = &self.0.ground;
        let bound = at.bind(&ground.tcp, ground.workers, &HostKeys(ground.fabric.clone()));
        let listener = bound.map_err(|error| Problem::new(Code::NotOpened, error))?;
        let open = OpenListener::of(&listener, at);
        Ok(BoundListener { open, lead, listener })
    }

    /// Returns a free identifier that is not in `taken`, preferably in the place that a listener of
    /// this number has by default.
    fn vacant_id(&self, number: u16, taken: &[ListenerId]) -> Result<ListenerId, Problem> {
        let vacant = |place: u16| self.0.ground.shared.listeners.vacant(place);
        let all = (0..NUMBER_MAX).rev().filter_map(vacant).filter(|id| !taken.contains(id));
        // As few generations as possible, since each is memory.
        let first = |id: &ListenerId| (id.generation(), id.place() + 1 != number);
        all.min_by_key(first).ok_or_else(|| {
            let message = format!(
                "all {NUMBER_MAX} places of listeners are taken, by listeners or by connections that \
                 came by closed ones: end some of these with `nearflash conn end`"
            );
            Problem::new(Code::TableFull, message)
        })
    }

    /// Forgets the closed listeners that have no connections left, as far as known. Their numbers
    /// and places become free, and a successor is not told of them.
    fn forget_departed(&self, inner: &mut LiveState) {
        if inner.departed.is_empty() || self.0.has_older() {
            return;
        }
        // Two looks, as in `is_used`.
        let looks = [self.counts_of(), self.counts_of()];
        let is_left = |at: &ListenAt| {
            let count = |look: &Vec<usize>| look[usize::from(at.id.place())];
            looks.iter().any(|look| look.as_ref().is_none_or(|look| count(look) > 0))
        };
        for gone in inner.departed.extract_if(.., |at| !is_left(at)) {
            self.0.ground.shared.listeners.free(gone.id);
        }
    }

    /// Returns a free number: no open or configured listener has it, and no closed listener with
    /// connections. If a number is `wanted`, returns that one or an error.
    fn vacant_number(&self, inner: &LiveState, wanted: Option<u16>) -> Result<u16, Problem> {
        let configured = inner.base.numbered_listeners(&inner.changes.added_listeners());
        let is_free = |number: &u16| {
            inner.open.iter().all(|open| open.at.number != *number)
                && inner.departed.iter().all(|at| at.number != *number)
                && configured.iter().all(|one| one.number != Some(*number))
                && inner.changes.listeners.get(number).is_none_or(ListenChange::is_reserved)
                // What was said of the ways through another would be said of this one.
                && !inner.changes.names_way(*number)
        };
        if let Some(number) = wanted {
            let taken = || Problem::new(Code::Taken, format!("the number {number} is taken"));
            return is_free(&number).then_some(number).ok_or_else(taken);
        }
        (1..=NUMBER_MAX).find(is_free).ok_or_else(|| {
            let message = format!("all {NUMBER_MAX} numbers of listeners are taken");
            Problem::new(Code::TableFull, message)
        })
    }

    /// Returns the object that refers to a tenant, in words (a listener, for example), which
    /// prevents the tenant's removal. Returns `None` if nothing refers to the tenant.
    pub(super) fn namer_of(&self, inner: &LiveState, tenant: &str) -> Option<String> {
        let names = |at: &&ListenAt| at.tenant.as_deref() == Some(tenant);
        if let Some(at) = inner.open.iter().map(|open| &open.at).find(names) {
            return Some(tenancy::by(at));
        }
        inner.world.namer_of(tenant).or_else(|| {
            let at = inner.departed.iter().filter(names).find(|at| self.is_used(at))?;
            Some(format!("a connection by {}, which was removed,", at.endpoint))
        })
    }

    /// Returns true if connections of a listener may exist. The second look finds a connection that
    /// moved between workers during the first.
    fn is_used(&self, at: &ListenAt) -> bool {
        let look = || self.counts_of().is_none_or(|counts| counts[usize::from(at.id.place())] > 0);
        look() || look()
    }

    /// Drains a listener: refuses new connections, and ends its connections within `limit`.
    pub(super) fn drain(&self, id: ListenerId, limit: Duration) -> Result<(), Problem> {
        self.turn_away(id, true)?;
        let (gate, clock) = (self.0.gate()?, &self.0.ground.clock);
        gate.commands.drain(id, Some(clock.now() + limit));
        Ok(())
    }

    /// Makes a listener accept connections again.
    pub(super) fn resume(&self, id: ListenerId) -> Result<(), Problem> {
        self.0.gate()?.commands.drain(id, None);
        self.turn_away(id, false)
    }

    fn turn_away(&self, id: ListenerId, turns: bool) -> Result<(), Problem> {
        let gate = self.0.gate()?;
        gate.orders.turn_away(id, turns, &gate.wakers);
        self.0.await_orders()
    }

    /// Counts the connections of each listener, by the place in its identifier. Returns `None` if
    /// no listener refuses connections, or a worker does not answer.
    pub(super) fn counts(&self) -> Option<Vec<usize>> {
        let gate = self.0.gate().ok()?;
        let seen = self.0.seen();
        let turns = seen.open.iter().any(|open| gate.orders.turning().has(open.at.id));
        if turns { self.counts_of() } else { None }
    }

    /// Counts the connections of each listener, by the place in its identifier. Returns `None` if a
    /// worker does not answer.
    pub(super) fn counts_of(&self) -> Option<Vec<usize>> {
        let all = self.0.gate().ok()?.commands.connections().ok()?;
        let mut counts = vec![0; usize::from(NUMBER_MAX)];
        all.iter().for_each(|info| counts[usize::from(info.listed.listener)] += 1);
        Some(counts)
    }

    /// Returns the state of a listener, and the number of its connections if it does not accept new
    /// ones.
    pub(super) fn state_of(
        &self,
        open: &OpenListener,
        counts: Option<&[usize]>,
    ) -> (ListenerState, Option<usize>) {
        let id = open.at.id;
        let turns = self.0.gate().is_ok_and(|gate| gate.orders.turning().has(id));
        match (turns, counts.map(|counts| counts[usize::from(id.place())])) {
            (false, _) => (ListenerState::Open, None),
            (true, Some(0)) => (ListenerState::Drained, Some(0)),
            (true, own) => (ListenerState::Draining, own),
        }
    }

    pub(super) fn told(&self) -> admin::Listeners {
        let counts = self.counts();
        let seen = self.0.seen();
        let told = |open: &OpenListener| self.told_with(&seen.world, open, counts.as_deref());
        admin::Listeners { listeners: seen.open.iter().map(told).collect() }
    }

    /// Returns the description of one listener, by number or address.
    pub(super) fn told_one(&self, name: &str) -> Result<admin::ListenerStatus, Problem> {
        let counts = self.counts();
        let seen = self.0.seen();
        let open = find(&seen.open, name)?;
        Ok(self.told_with(&seen.world, open, counts.as_deref()))
    }

    pub(super) fn set_ana(
        &self,
        inner: &mut LiveState,
        name: &str,
        to: &SetAna,
    ) -> Result<admin::ListenerStatus, Problem> {
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

    /// Returns the status of a listener, with its number of connections where known.
    pub(super) fn told_with(
        &self,
        world: &ServerSnapshot,
        open: &OpenListener,
        counts: Option<&[usize]>,
    ) -> admin::ListenerStatus {
        let number = open.at.number;
        let all = world.config.subsystem.iter().flat_map(subsystems::told_ana);
        let ana = all.filter(|ana| ana.listener == number).collect();
        let (state, connections) = self.state_of(open, counts);
        admin::ListenerStatus { number, url: open.url(), state, connections, ana }
    }
}

impl PreparedListeners {
    /// Checks that the namespaces to which the new listeners lead exist in `world`.
    pub(super) fn check_leads(&self, world: &ServerSnapshot) -> Result<(), Problem> {
        let is_there = |number| world.spaces.iter().any(|space| space.number.0 == number);
        self.bound.iter().try_for_each(|bound| check_lead(&bound.open.at, is_there))
    }

    /// Returns the open listeners after the changes, sorted by number.
    fn apply(&self, open: &[OpenListener]) -> Vec<OpenListener> {
        let stays = |open: &&OpenListener| !self.gone.contains(&open.at.id);
        let new = self.bound.iter().map(|bound| bound.open.clone());
        let mut all: Vec<OpenListener> = open.iter().filter(stays).cloned().chain(new).collect();
        for open in &mut all {
            let other = self.renumbered.iter().find(|(id, _)| *id == open.at.id);
            open.at.number = other.map_or(open.at.number, |(_, number)| *number);
        }
        all.sort_by_key(|open| open.at.number);
        all
    }
}

impl LiveState {
    /// Returns the changes to keep when a listener is removed, together with its settings.
    fn without_listener(&self, number: u16) -> Changes {
        let mut changes = self.changes.clone();
        let configured = self.base.numbered_listeners(&changes.added_listeners());
        changes.listeners.remove(&number);
        let numbers = changes.added_listeners();
        if self.base.numbered_listeners(&numbers)
            != self.base.numbered_listeners(&[numbers, vec![number]].concat())
        {
            // A listener of the configuration would take its number, and so change its own.
            changes.listeners.insert(number, ListenChange::reserved());
        }
        if let Some(one) = configured.into_iter().find(|one| one.number == Some(number)) {
            changes.listeners.insert(number, ListenChange::Removed(one.url));
        }
        for subsystem in &self.world.config.subsystem {
            let mut config = subsystem.clone();
            config.ana.retain(|ana| ana.listener != number);
            if config.ana.len() != subsystem.ana.len() {
                changes.subsystems.insert(config.name(), Some(config));
            }
        }
        changes
    }
}

/// Checks that a listener's namespace exists, since clients that name none use it.
fn check_lead(at: &ListenAt, is_there: impl Fn(u16) -> bool) -> Result<(), Problem> {
    let number = at.namespace.0;
    match at.protocol != Protocol::NvmeTcp && !is_there(number) {
        true => Err(invalid(format!("{}: there is no namespace {number}", at.endpoint))),
        false => Ok(()),
    }
}

fn invalid(error: String) -> Problem {
    Problem::new(Code::Invalid, error)
}
