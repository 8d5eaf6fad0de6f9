//! Commands to workers, from operators and from the sizing: list connections, move some of them
//! away, end them, park.
//!
//! Commands go directly to the workers' mailboxes. The controller receives the workers' reports and
//! passes them to the callers that wait here. This module deliberately leaves out the choice of
//! connections to move (see `sizing.rs`).

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::{
    ConnId, ConnSummary, Instant, ListenerId, Meters, MoveRefusal, Report, TenantId, WorkerMessage,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::info::UPGRADING;
use crate::mailboxes::MailSender;
use crate::sizing::{Sizing, SizingStep, WorkerLoad};
use crate::tenants::Tenants;

/// Maximum time for a worker to answer a command: much longer than a move takes, and longer than a
/// busy machine lets a worker wait for a processor.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time during which the sizing does nothing after an operator has added or retired a worker.
const OPERATORS_TURN: Duration = Duration::from_secs(60);

/// Time that requests in flight have to end, once the deadline of a retiring worker's connections
/// has passed.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// Number of attempts to send a message to a worker whose mailbox is full, and the pause between
/// attempts.
const GIVE_TRIES: u32 = 100;
const GIVE_PAUSE: Duration = Duration::from_millis(1);

/// Maximum number of concurrent moves from one worker to another.
pub const GIVEN_AT_ONCE: u16 = 16;

/// Maximum number of concurrent moves from a worker to another process, where each batch costs more
/// steps.
pub const HANDED_AT_ONCE: u16 = 32;

/// Maximum number of workers to which an ending connection is followed.
const FOLLOWED_MAX: usize = 8;

/// Maximum number of commands that wait for their answers.
const WAITING_MAX: usize = 256;

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerState {
    /// The worker accepts connections.
    Active,
    /// The worker moves its connections away, and parks once it has none.
    Retiring,
    /// The worker has no connections and uses no processor time.
    Parked,
}

/// The description of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerInfo {
    /// Number of the worker.
    pub number: usize,
    /// State of the worker.
    pub state: WorkerState,
    /// Number of the worker's connections.
    pub connections: usize,
    /// Number of the worker's requests in flight, as last reported.
    pub in_flight: u32,
    /// Share of the last second in which the worker was busy, from 0 to 1.
    pub busy: f64,
    /// Connections that have left for other workers.
    pub moved: u32,
    /// Connections that were to leave and stayed.
    pub stayed: u32,
    /// Connections that came from other workers.
    pub arrived: u32,
    /// Longest time in microseconds during which a leaving connection was not received from.
    pub pause_us_max: u32,
}

/// The description of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Number of the connection's worker.
    pub worker: usize,
    /// The worker's description of the connection.
    pub listed: ConnSummary,
    /// Name of the connection's tenant; `None` if it has none.
    pub tenant: Option<String>,
}

/// The identity of a connection after its move to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveResult {
    /// Number of the new worker.
    pub worker: usize,
    /// The connection's identifier at the new worker.
    pub conn: ConnId,
    /// Time during which the connection was not received from.
    pub pause: Duration,
}

/// The reason that a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandRefused {
    /// There is no worker of this number.
    NoWorker(usize),
    /// The connection stays, for the worker's reason.
    Stays(MoveRefusal),
    /// The worker that listens cannot be retired.
    Listens,
    /// All workers are active already.
    AllServe,
    /// The worker does not accept connections now.
    NotActive(usize),
    /// There is no connection of this identifier (any more).
    NoConnection(usize, ConnId),
    /// The maximum number of the worker's connections is ending already.
    ManyEnd,
    /// Too many commands wait, or the worker does not answer.
    NoAnswer,
    /// The server is being upgraded: another process takes over the connections.
    Upgrading,
}

impl fmt::Display for CommandRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandRefused::NoWorker(n) => write!(f, "there is no worker {n}"),
            CommandRefused::Stays(why) => write!(f, "the connection stays where it is: {why}"),
            CommandRefused::Listens => f.write_str("worker 0 listens, so it cannot be retired"),
            CommandRefused::AllServe => f.write_str("every worker serves already"),
            CommandRefused::NotActive(n) => {
                write!(f, "worker {n} is retired; add it first (see `nearflash worker list`)")
            }
            CommandRefused::NoConnection(worker, ConnId { index, generation }) => write!(
                f,
                "there is no connection {worker}:{index}.{generation} (any more); `nearflash conn list` \
                 shows those that there are, and one that moves has another name afterwards"
            ),
            CommandRefused::ManyEnd => {
                f.write_str("as many connections of the worker as may end already; try again")
            }
            CommandRefused::NoAnswer => f.write_str("the worker does not answer; try again"),
            CommandRefused::Upgrading => f.write_str(UPGRADING),
        }
    }
}

impl std::error::Error for CommandRefused {}

/// The report that a command waits for: its kind and worker, and the connection or the position in
/// the worker's list of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Moved(u16, ConnId),
    Listed(u16, u32),
    Ends(u16, ConnId),
}

/// A function that restricts new connections to some workers: worker `n` accepts them if bit `n` is
/// set.
pub(crate) type WorkerRestriction = Box<dyn Fn(u64) + Send + Sync>;

/// The present state of all workers.
struct WorkerTable {
    states: Vec<WorkerState>,
    busy: Vec<f64>,
    /// The workers' counters of busy microseconds at the last check, and the time of that check.
    looked: (Vec<u32>, Instant),
    /// Time at which the connections that cannot leave a retiring worker are ended, by worker.
    drain_at: Vec<Option<Instant>>,
    sizing: Sizing,
    open_to: Option<WorkerRestriction>,
    /// Commands that wait for their reports, oldest first.
    waiting: Vec<PendingCommand>,
    /// Number of commands so far that wait or waited for a report.
    orders: u64,
}

/// A command that waits for its report.
struct PendingCommand {
    /// Number of the command, which distinguishes commands that wait for the same report.
    number: u64,
    key: Key,
    told: SyncSender<Report>,
}

impl fmt::Debug for WorkerTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerTable").field("states", &self.states).finish_non_exhaustive()
    }
}

/// A handle on the workers of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WorkerCommands {
    tenants: Tenants,
    senders: Arc<[MailSender]>,
    meters: Arc<[Arc<Meters>]>,
    table: Arc<Mutex<WorkerTable>>,
}

impl WorkerCommands {
    /// Returns the commands for `workers` workers. `senders` may have further receivers, such as
    /// the hand-over thread.
    pub(crate) fn new(
        tenants: Tenants,
        senders: Arc<[MailSender]>,
        workers: usize,
    ) -> WorkerCommands {
        let meters = (0..workers).map(|worker| tenants.meters(worker)).collect();
        let table = WorkerTable {
            states: vec![WorkerState::Active; workers],
            busy: vec![0.0; workers],
            looked: (vec![0; workers], Instant::ZERO),
            drain_at: vec![None; workers],
            sizing: Sizing::new(workers.max(1), workers.max(1)),
            open_to: None,
            waiting: Vec::new(),
            orders: 0,
        };
        WorkerCommands { tenants, senders, meters, table: Arc::new(Mutex::new(table)) }
    }

    /// Sets the function that tells the acceptor which workers accept connections.
    pub fn set_open_to(&self, open_to: WorkerRestriction) {
        let mut table = self.table();
        table.open_to = Some(open_to);
        table.tell_open();
    }

    /// Sets the number of active workers to at least `least`, and at most all, as needed. The other
    /// workers are parked from now on. To be called before any client connects.
    pub fn size(&self, least: usize) {
        let mut table = self.table();
        let most = self.meters.len();
        table.sizing = Sizing::new(least, most);
        table.states[least..].fill(WorkerState::Parked);
        table.tell_open();
    }

    fn table(&self) -> std::sync::MutexGuard<'_, WorkerTable> {
        self.table.lock().expect("no holder of this lock panics")
    }

    /// Processes a worker's report; returns the report if no command waits for it.
    pub(crate) fn hear(&self, report: Report) -> Option<Report> {
        let key = match &report {
            Report::Moved { worker, conn, .. } => Key::Moved(*worker, *conn),
            Report::Listed { worker, from, .. } => Key::Listed(*worker, *from),
            Report::Ends { worker, conn, .. } => Key::Ends(*worker, *conn),
        };
        let mut table = self.table();
        let Some(n) = table.waiting.iter().position(|waiting| waiting.key == key) else {
            return Some(report);
        };
        let PendingCommand { told, .. } = table.waiting.remove(n);
        // A receiver that gave up waiting is gone.
        let _ = told.try_send(report);
        None
    }

    /// Sends a command and waits for its report.
    fn order(
        &self,
        worker: usize,
        key: Key,
        tell: WorkerMessage,
    ) -> Result<Report, CommandRefused> {
        let (told, receiver): (_, Receiver<Report>) = sync_channel(1);
        let number = {
            let mut table = self.table();
            if table.waiting.len() == WAITING_MAX {
                return Err(CommandRefused::NoAnswer);
            }
            // A second answer about the same connection would be taken for the first.
            let moves = table.waiting.iter().any(|waiting| waiting.key == key);
            if moves && matches!(key, Key::Moved(..)) {
                return Err(CommandRefused::Stays(MoveRefusal::TooMany));
            }
            table.orders += 1;
            let number = table.orders;
            table.waiting.push(PendingCommand { number, key, told });
            number
        };
        let sent = self.senders[worker].send(tell).is_ok();
        let heard = if sent { receiver.recv_timeout(PATIENCE).ok() } else { None };
        if heard.is_none() {
            self.table().waiting.retain(|waiting| waiting.number != number);
        }
        heard.ok_or(CommandRefused::NoAnswer)
    }

    /// Checks that no hand-over is in progress.
    ///
    /// # Errors
    /// Fails if another process takes over: commands to this process would have no lasting effect.
    fn check_thawed(&self) -> Result<(), CommandRefused> {
        self.tenants.registry().check_thawed().map_err(|_| CommandRefused::Upgrading)
    }

    fn check(&self, worker: usize) -> Result<u16, CommandRefused> {
        match worker < self.meters.len() {
            true => Ok(worker as u16),
            false => Err(CommandRefused::NoWorker(worker)),
        }
    }

    /// Moves a connection to another worker, and waits until it has arrived.
    ///
    /// # Errors
    /// Fails with the reason that the connection stays, or if the worker does not answer.
    pub fn move_connection(
        &self,
        worker: usize,
        conn: ConnId,
        to: usize,
    ) -> Result<MoveResult, CommandRefused> {
        let (from, number) = (self.check(worker)?, self.check(to)?);
        self.check_thawed()?;
        if self.table().states[to] != WorkerState::Active {
            return Err(CommandRefused::NotActive(to));
        }
        let tell = WorkerMessage::Move { conn, to: number };
        match self.order(worker, Key::Moved(from, conn), tell)? {
            Report::Moved { ended, .. } => ended
                .map(|(conn, pause)| MoveResult { worker: to, conn, pause })
                .map_err(CommandRefused::Stays),
            Report::Listed { .. } | Report::Ends { .. } => Err(CommandRefused::NoAnswer),
        }
    }

    /// Returns all connections, by worker.
    ///
    /// # Errors
    /// Fails if a worker does not answer.
    pub fn connections(&self) -> Result<Vec<ConnectionInfo>, CommandRefused> {
        let mut all = Vec::new();
        for worker in 0..self.meters.len() {
            let mut from = Some(0);
            while let Some(place) = from {
                let key = Key::Listed(worker as u16, place);
                match self.order(worker, key, WorkerMessage::List { from: place })? {
                    Report::Listed { connections, next, .. } => {
                        all.extend(connections.iter().map(|listed| (worker, *listed)));
                        from = next;
                    }
                    Report::Moved { .. } | Report::Ends { .. } => {
                        return Err(CommandRefused::NoAnswer);
                    }
                }
            }
        }
        let tenants = self.tenants.list();
        let names: HashMap<TenantId, &String> =
            tenants.iter().map(|info| (info.tenant, &info.name)).collect();
        let name = |listed: &ConnSummary| names.get(&listed.tenant?).copied().cloned();
        let info = |(worker, listed): (usize, ConnSummary)| ConnectionInfo {
            worker,
            listed,
            tenant: name(&listed),
        };
        Ok(all.into_iter().map(info).collect())
    }

    /// Returns one connection.
    ///
    /// # Errors
    /// Fails if no connection has this identifier (any more), or the worker does not answer.
    pub fn connection(
        &self,
        worker: usize,
        conn: ConnId,
    ) -> Result<ConnectionInfo, CommandRefused> {
        let number = self.check(worker)?;
        let tell = WorkerMessage::List { from: conn.index };
        let report = self.order(worker, Key::Listed(number, conn.index), tell)?;
        let Report::Listed { connections, .. } = report else {
            return Err(CommandRefused::NoAnswer);
        };
        let found = connections.iter().find(|listed| listed.conn == conn);
        let listed = *found.ok_or(CommandRefused::NoConnection(worker, conn))?;
        Ok(self.told(worker, listed))
    }

    /// Ends a connection gracefully: it accepts no more requests, and ends when its requests in
    /// flight have ended, or after `limit`. A connection that is moving to another worker is
    /// followed. Returns the ending connection, without waiting for its end.
    ///
    /// # Errors
    /// Fails if no connection has this identifier (any more), too many are ending already, the
    /// worker does not answer, or another process takes over.
    pub fn end_connection(
        &self,
        worker: usize,
        conn: ConnId,
        limit: Duration,
    ) -> Result<ConnectionInfo, CommandRefused> {
        self.check(worker)?;
        self.check_thawed()?;
        let gone = CommandRefused::NoConnection(worker, conn);
        let until = self.tenants.now() + limit;
        let (mut worker, mut conn) = (worker, conn);
        for _ in 0..FOLLOWED_MAX {
            // A number of no worker means that the connection has left for another process.
            let number = self.check(worker).map_err(|_| gone)?;
            let order = WorkerMessage::End { conn, until };
            let report = self.order(worker, Key::Ends(number, conn), order)?;
            let Report::Ends { begun, .. } = report else { return Err(CommandRefused::NoAnswer) };
            match begun {
                Ok(listed) => return Ok(self.told(worker, listed)),
                Err(MoveRefusal::Elsewhere { worker: at, conn: name }) => {
                    (worker, conn) = (usize::from(at), name);
                }
                Err(MoveRefusal::TooMany) => return Err(CommandRefused::ManyEnd),
                Err(MoveRefusal::Gone) => return Err(gone),
                Err(_) => return Err(CommandRefused::NoAnswer),
            }
        }
        Err(CommandRefused::NoAnswer)
    }

    /// Returns the description of a listed connection, with the name of its tenant.
    fn told(&self, worker: usize, listed: ConnSummary) -> ConnectionInfo {
        let registry = self.tenants.registry();
        let entry = listed.tenant.and_then(|tenant| registry.tenants.get(tenant));
        ConnectionInfo { worker, listed, tenant: entry.map(|entry| entry.name.clone()) }
    }

    /// Checks the workers periodically: how busy they were, which of them have moved all
    /// connections away, and whether there are too few or too many. `strain` is the highest latency
    /// of a tenant relative to its bound.
    pub(crate) fn look(&self, now: Instant, strain: f64) {
        let mut table = self.table();
        let (before, at) = std::mem::replace(&mut table.looked, (Vec::new(), now));
        let passed_us = now.since(at).as_micros().max(1) as f64;
        let counts: Vec<u32> = self.meters.iter().map(|meters| meters.worker.busy_us()).collect();
        for (n, (count, before)) in counts.iter().zip(&before).enumerate() {
            table.busy[n] = (f64::from(count.wrapping_sub(*before)) / passed_us).min(1.0);
        }
        table.looked.0 = counts;
        for worker in 0..self.meters.len() {
            let connections = self.meters[worker].worker.connections();
            match (table.states[worker], connections) {
                (WorkerState::Active, _) | (WorkerState::Parked, 0) => {}
                (WorkerState::Retiring, 0) => {
                    table.states[worker] = WorkerState::Parked;
                    table.drain_at[worker] = None;
                }
                // Some connections were still moving to the worker when it parked.
                (WorkerState::Retiring | WorkerState::Parked, _) => {
                    table.states[worker] = WorkerState::Retiring;
                    self.empty(&table, worker);
                    if table.drain_at[worker].take_if(|at| *at <= now).is_some() {
                        let until = Some(now + LAST_REQUESTS);
                        let drain = WorkerMessage::Drain { listener: None, until };
                        self.say(worker, drain);
                    }
                }
            }
        }
        let serving: Vec<WorkerLoad> =
            table.active().map(|worker| self.seen(&table, worker)).collect();
        match table.sizing.decide(now, &serving, strain) {
            SizingStep::Stay => {}
            SizingStep::Add => {
                let idle = (0..self.meters.len()).find(|n| table.states[*n] != WorkerState::Active);
                if let Some(worker) = idle {
                    tracing::info!(worker, strain, "added: the others are busy");
                    self.activate(&mut table, worker);
                }
            }
            SizingStep::Retire(worker) => {
                tracing::info!(worker, "retired: the others are enough");
                self.retire_in(&mut table, worker);
            }
            SizingStep::Shift { from, to, permille } => {
                tracing::info!(from, to, permille, "connections move: one worker has too much");
                let to = to as u16;
                let relief = WorkerMessage::Relieve { permille, to, at_once: GIVEN_AT_ONCE };
                if self.senders[from].send(relief).is_err() {
                    table.sizing.forget_shift();
                }
            }
        }
    }

    fn seen(&self, table: &WorkerTable, worker: usize) -> WorkerLoad {
        let connections = self.meters[worker].worker.connections() as usize;
        WorkerLoad { worker, busy: table.busy[worker], connections }
    }

    /// Asks the worker `from` to move `count` connections to the worker `to`. The message is lost
    /// if the worker's mailbox is full; the next check repeats it if the worker retires.
    fn give(&self, from: usize, to: usize, count: usize) {
        let (count, to) = (count as u32, to as u16);
        let _full =
            self.senders[from].send(WorkerMessage::Give { count, to, at_once: GIVEN_AT_ONCE });
    }

    /// Activates a worker: it accepts new connections, and the other active workers give it a part
    /// of theirs.
    fn activate(&self, table: &mut WorkerTable, worker: usize) {
        // Later connections are not subject to an earlier drain.
        table.drain_at[worker] = None;
        self.say(worker, WorkerMessage::Drain { listener: None, until: None });
        table.states[worker] = WorkerState::Active;
        table.tell_open();
        let count = table.active().count();
        for from in table.active().filter(|from| *from != worker) {
            let connections = self.meters[from].worker.connections() as usize;
            self.give(from, worker, connections / count);
        }
    }

    fn retire_in(&self, table: &mut WorkerTable, worker: usize) {
        table.states[worker] = WorkerState::Retiring;
        table.tell_open();
        self.empty(table, worker);
    }

    /// Moves all connections of a worker to the active workers.
    fn empty(&self, table: &WorkerTable, worker: usize) {
        let connections = self.meters[worker].worker.connections() as usize;
        let each = connections.div_ceil(table.active().count().max(1));
        table.active().for_each(|to| self.give(worker, to, each));
    }

    /// Makes every worker move all movable connections to the hand-over thread, which takes them to
    /// another process, `at_once` at a time. With zero, connections that have not left stay, and no
    /// further ones follow. The sizing pauses meanwhile.
    pub fn hand_over(&self, at_once: u16) {
        let now = self.tenants.now();
        self.table().sizing.rest(now, OPERATORS_TURN);
        let (count, to) = (if at_once > 0 { u32::MAX } else { 0 }, self.meters.len() as u16);
        let give = WorkerMessage::Give { count, to, at_once };
        (0..self.meters.len()).for_each(|worker| self.say(worker, give.clone()));
    }

    /// Drains the connections of a listener: each ends when its requests in flight have ended, and
    /// all of them at `until`. With `None`, cancels the drain.
    pub fn drain(&self, listener: ListenerId, until: Option<Instant>) {
        let drain = WorkerMessage::Drain { listener: Some(listener), until };
        (0..self.meters.len()).for_each(|worker| self.say(worker, drain.clone()));
    }

    /// Sends a message to a worker. If the mailbox is full, retries for about 0.1 s, and then drops
    /// the message.
    fn say(&self, worker: usize, mut tell: WorkerMessage) {
        // A worker empties its mailbox in every turn.
        for _ in 0..GIVE_TRIES {
            match self.senders[worker].send(tell) {
                Ok(()) => return,
                Err(refused) => tell = refused,
            }
            std::thread::sleep(GIVE_PAUSE);
        }
    }

    /// Returns the number of connections of all workers, as last reported.
    pub fn connection_count(&self) -> usize {
        self.meters.iter().map(|meters| meters.worker.connections() as usize).sum()
    }

    /// Sends a message to a worker once, without repeating the attempt if the worker's mailbox is
    /// full.
    ///
    /// # Errors
    /// Returns the message if the mailbox is full.
    pub fn pass(&self, to: usize, tell: WorkerMessage) -> Result<(), WorkerMessage> {
        self.senders[to].send(tell)
    }

    /// Activates a worker; by default the first one that is not active. Returns its number.
    ///
    /// # Errors
    /// Fails if all workers are active, or none has this number, or another process takes over.
    pub fn add(&self, worker: Option<usize>) -> Result<usize, CommandRefused> {
        self.check_thawed()?;
        let now = self.tenants.now();
        let mut table = self.table();
        let rests = |n: &usize| table.states[*n] != WorkerState::Active;
        let worker = match worker {
            Some(worker) => usize::from(self.check(worker)?),
            None => (0..self.meters.len()).find(rests).ok_or(CommandRefused::AllServe)?,
        };
        if rests(&worker) {
            self.activate(&mut table, worker);
        }
        table.drain_at[worker] = None;
        table.sizing.rest(now, OPERATORS_TURN);
        Ok(worker)
    }

    /// Retires a worker: moves all its connections away, and parks it. Connections that cannot move
    /// end by themselves, or after `limit`.
    ///
    /// # Errors
    /// Fails if the worker listens, or none has this number, or another process takes over.
    pub fn retire(&self, worker: usize, limit: Option<Duration>) -> Result<(), CommandRefused> {
        let now = self.tenants.now();
        self.check(worker)?;
        if worker == 0 {
            return Err(CommandRefused::Listens);
        }
        self.check_thawed()?;
        let mut table = self.table();
        table.drain_at[worker] = limit.map(|limit| now + limit);
        if table.states[worker] == WorkerState::Active {
            self.retire_in(&mut table, worker);
        }
        table.sizing.rest(now, OPERATORS_TURN);
        Ok(())
    }

    /// Returns the descriptions of all workers, by number.
    pub fn workers(&self) -> Vec<WorkerInfo> {
        let table = self.table();
        let info = |(number, meters): (usize, &Arc<Meters>)| {
            let [moved, stayed, arrived] = meters.worker.moves();
            WorkerInfo {
                number,
                state: table.states[number],
                connections: meters.worker.connections() as usize,
                in_flight: meters.worker.read().gauges.in_flight,
                busy: table.busy[number],
                moved,
                stayed,
                arrived,
                pause_us_max: meters.worker.pause_us_max(),
            }
        };
        self.meters.iter().enumerate().map(info).collect()
    }
}

impl WorkerTable {
    /// Returns the numbers of the active workers.
    fn active(&self) -> impl Iterator<Item = usize> {
        let is_active =
            |(n, state): (usize, &WorkerState)| (*state == WorkerState::Active).then_some(n);
        self.states.iter().enumerate().filter_map(is_active)
    }

    /// Tells the acceptor which workers accept new connections.
    fn tell_open(&self) {
        let bit = |(n, state): (usize, &WorkerState)| {
            if *state == WorkerState::Active { 1 << n } else { 0 }
        };
        if let Some(open_to) = &self.open_to {
            open_to(self.states.iter().enumerate().map(bit).sum());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use contract::Mailbox;

    use crate::{DeviceSetup, Switches, WorkerController, WorkerMailbox};

    fn table(workers: usize) -> (WorkerController, WorkerCommands, Vec<WorkerMailbox>) {
        let name = "disk".to_owned();
        let device = DeviceSetup { name, model: None, switches: Switches::default() };
        let tenants = Tenants::new(vec![device], workers, 8, Arc::new(|| Instant::ZERO));
        let (controller, boxes) = WorkerController::new(tenants, workers);
        let commands = controller.commands();
        (controller, commands, boxes)
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_worker_that_rests_gives_away_what_still_comes() {
        let (_desk, commands, mut boxes) = table(2);
        let state = || commands.workers()[1].state;
        commands.retire(1, None).unwrap();
        commands.look(at(1), 0.0);
        assert_eq!(state(), WorkerState::Parked);
        while boxes[1].poll().is_some() {}
        // Worker 0 had been told to move some connections to it, and now they have arrived.
        commands.meters[1].worker.set_connections(3);
        commands.look(at(2), 0.0);
        assert_eq!(state(), WorkerState::Retiring);
        assert_eq!(
            boxes[1].poll(),
            Some(WorkerMessage::Give { count: 3, to: 0, at_once: GIVEN_AT_ONCE })
        );
        commands.meters[1].worker.set_connections(0);
        commands.look(at(3), 0.0);
        assert_eq!(state(), WorkerState::Parked);
    }

    /// Returns the worker's next message.
    fn next(boxes: &mut WorkerMailbox) -> WorkerMessage {
        loop {
            match boxes.poll() {
                Some(tell) => break tell,
                None => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn a_connection_that_is_to_end_is_followed_to_where_it_has_moved() {
        let (mut controller, commands, mut boxes) = table(2);
        let (here, there) =
            (ConnId { index: 7, generation: 1 }, ConnId { index: 0, generation: 4 });
        let peer = contract::Peer::Local { uid: 0 };
        let listed = ConnSummary {
            conn: there,
            peer,
            tenant: None,
            listener: 0,
            in_flight: 0,
            messages: 0,
            can_move: true,
            can_leave: true,
            is_ending: true,
        };
        let end = |worker| {
            let ordering = commands.clone();
            let limit = Duration::from_secs(1);
            std::thread::spawn(move || ordering.end_connection(worker, here, limit))
        };
        let until = Instant::ZERO + Duration::from_secs(1);
        let ending = end(0);
        assert_eq!(next(&mut boxes[0]), WorkerMessage::End { conn: here, until });
        let elsewhere = MoveRefusal::Elsewhere { worker: 1, conn: there };
        boxes[0].report(Report::Ends { worker: 0, conn: here, begun: Err(elsewhere) });
        controller.serve(at(1));
        assert_eq!(next(&mut boxes[1]), WorkerMessage::End { conn: there, until });
        boxes[1].report(Report::Ends { worker: 1, conn: there, begun: Ok(listed) });
        controller.serve(at(1));
        assert_eq!(ending.join().unwrap(), Ok(ConnectionInfo { worker: 1, listed, tenant: None }));
        // In another process, or moving for ever.
        let ending = end(0);
        next(&mut boxes[0]);
        let elsewhere = MoveRefusal::Elsewhere { worker: 2, conn: there };
        boxes[0].report(Report::Ends { worker: 0, conn: here, begun: Err(elsewhere) });
        controller.serve(at(1));
        assert_eq!(ending.join().unwrap(), Err(CommandRefused::NoConnection(0, here)));
        let ending = end(0);
        for _ in 0..FOLLOWED_MAX {
            next(&mut boxes[0]);
            let elsewhere = MoveRefusal::Elsewhere { worker: 0, conn: here };
            boxes[0].report(Report::Ends { worker: 0, conn: here, begun: Err(elsewhere) });
            controller.serve(at(1));
        }
        assert_eq!(ending.join().unwrap(), Err(CommandRefused::NoAnswer));
    }

    #[test]
    fn while_another_process_takes_over_nothing_is_ordered() {
        let (_desk, commands, mut boxes) = table(2);
        let conn = ConnId { index: 7, generation: 1 };
        let before = commands.workers();
        commands.tenants.registry().freeze(true);
        let refused = CommandRefused::Upgrading;
        assert_eq!(commands.move_connection(0, conn, 1), Err(refused));
        assert_eq!(commands.end_connection(0, conn, Duration::ZERO), Err(refused));
        assert_eq!((commands.retire(1, None), commands.add(None)), (Err(refused), Err(refused)));
        assert_eq!(commands.workers(), before);
        assert!(boxes.iter_mut().all(|own| own.poll().is_none()), "no worker has heard of it");
        commands.tenants.registry().freeze(false);
        commands.retire(1, None).unwrap();
    }

    #[test]
    fn who_orders_a_move_hears_of_that_and_of_no_other() {
        let (mut controller, commands, mut boxes) = table(2);
        let conn = ConnId { index: 7, generation: 1 };
        let ordering = commands.clone();
        let first = std::thread::spawn(move || ordering.move_connection(0, conn, 1));
        assert_eq!(next(&mut boxes[0]), WorkerMessage::Move { conn, to: 1 });
        let second = commands.move_connection(0, conn, 1);
        assert_eq!(second, Err(CommandRefused::Stays(MoveRefusal::TooMany)));
        assert_eq!(boxes[0].poll(), None, "the worker is told once");
        let there = ConnId { index: 0, generation: 4 };
        let pause = Duration::from_micros(90);
        boxes[0].report(Report::Moved { worker: 0, conn, ended: Ok((there, pause)) });
        controller.serve(at(1));
        let moved = MoveResult { worker: 1, conn: there, pause };
        assert_eq!(first.join().unwrap(), Ok(moved));
    }
}
