//! The fabric: the operations of workers and of the control plane on the controllers' state.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU8};

use contract::{Instant, Psk};
use wire::nvme::{Completion, Status, Submission};

use super::auth::transaction::CHANCE_BYTES;

use super::binding::{Action, Origin, QueueAddress};
use super::call::{self, ControllerCommand, ControllerOutcome};
use super::config::{Config, Refusal};
use super::entrance::{Environment, FabricLock, LockBusy};
use super::link::VisibleNamespaces;
use super::psk::{TlsIdentity, TlsKey};
use super::queue::Queue;
use super::report::{self, ControllerInfo, StoredReservation};
use super::state::State;
use super::{admin, auth_commands, connect};

/// An NVMe over Fabrics target: its ports, subsystems, hosts and controllers, shared by all
/// workers.
#[derive(Debug)]
pub struct Fabric {
    entrance: FabricLock,
    /// The number of the current [`HeldCommands`](super::HeldCommands): the commands that sessions
    /// hold back.
    pub(super) held: AtomicU8,
}

impl Fabric {
    /// Creates a fabric from its configuration. `now` is its start, from which the health log
    /// counts hours.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the invalid part of the configuration.
    pub fn new(
        config: &Config,
        now: Instant,
        environment: Box<dyn Environment>,
    ) -> Result<Arc<Fabric>, Refusal> {
        let state = State::new(config, now)?;
        let entrance = FabricLock::new(state, config.workers, environment);
        Ok(Arc::new(Fabric { entrance, held: AtomicU8::new(0) }))
    }

    /// Checks a configuration without creating a fabric.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the invalid part of the configuration.
    pub fn check(config: &Config) -> Result<(), Refusal> {
        State::new(config, Instant::ZERO).map(drop)
    }

    /// Creates a queue from a connection's first submission, which must be a Connect, and its data.
    /// The inner error is the completion with the reason; the connection is closed after sending
    /// it.
    ///
    /// # Errors
    /// Returns [`LockBusy`] if another thread changes the fabric. Nothing has happened then.
    pub fn connect(
        self: &Arc<Fabric>,
        origin: Origin,
        entry: &Submission,
        payload: &[u8],
        now: Instant,
    ) -> Result<Result<(Queue, Completion), Completion>, LockBusy> {
        let place = origin.place;
        let ((answer, made), is_sooner) = self.try_with(place.worker, |state| {
            let connected = connect::connect(state, origin, entry, payload, now);
            (connected, self.entrance.expire(state, now))
        })?;
        self.entrance.wake_timer(is_sooner);
        Ok(match made {
            None => Err(answer.completion(0)),
            Some(made) => {
                let mut queue = Queue::new(Arc::clone(self), made, place);
                let completion = queue.seal_connect(answer);
                Ok((queue, completion))
            }
        })
    }

    /// Appends the controllers' actions for this worker to `out`. Costs one or two atomic loads if
    /// there are none. If another thread is inside, the actions come with a later call.
    pub fn poll(&self, worker: u16, now: Instant, out: &mut Vec<Action>) {
        self.entrance.poll(worker, now, out);
    }

    /// Returns the time at which a worker should poll without being woken: [`Instant::ZERO`] if
    /// actions wait for it, `None` if it need not.
    pub fn wake_at(&self, worker: u16) -> Option<Instant> {
        self.entrance.wake_at(worker)
    }

    /// Returns `true` if a worker has found the fabric busy and was not woken since.
    pub fn is_waiting(&self, worker: u16) -> bool {
        self.entrance.is_waiting(worker)
    }

    /// Returns `true` if there is a worker of this number.
    pub fn has_worker(&self, worker: u16) -> bool {
        usize::from(worker) < self.entrance.workers()
    }

    /// Keeps all threads out while `work` runs, as a change by an operator does. Workers find the
    /// fabric [`LockBusy`] meanwhile.
    pub fn shut_while<R>(&self, work: impl FnOnce() -> R) -> R {
        self.with(|_| work())
    }

    /// Runs `work` on the state, once no other thread is inside. Only the control plane calls this,
    /// since workers must not wait.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        self.entrance.with(work)
    }

    /// Runs `work` on the state, unless another thread is inside.
    ///
    /// # Errors
    /// Returns [`LockBusy`] if another thread is inside. That thread wakes the worker.
    pub(super) fn try_with<R>(
        &self,
        worker: u16,
        work: impl FnOnce(&mut State) -> R,
    ) -> Result<R, LockBusy> {
        self.entrance.try_with(worker, work)
    }

    /// Ends the queue of a connection that ends, now or when the thread inside leaves.
    pub(super) fn leave(&self, cntlid: u16, queue: u16, place: QueueAddress, left: &AtomicBool) {
        self.entrance.leave(cntlid, queue, place, left);
    }

    /// Ends the controllers and queues whose timers have expired, on behalf of the control plane.
    pub(super) fn watch(&self, now: Instant) {
        let is_sooner = self.with(|state| self.entrance.expire(state, now));
        self.entrance.wake_timer(is_sooner);
    }

    /// Returns the namespaces that a controller may reach now.
    ///
    /// # Errors
    /// Returns [`LockBusy`] if another thread changes the fabric.
    pub(super) fn view(&self, cntlid: u16, worker: u16) -> Result<VisibleNamespaces, LockBusy> {
        self.try_with(worker, |state| state.view(cntlid))
    }

    /// Carries out a command that is not for a device. The inner error is the command's status.
    ///
    /// # Errors
    /// Returns [`LockBusy`] if another thread changes the fabric. Nothing has happened then.
    pub(super) fn carry_out(
        &self,
        cntlid: u16,
        worker: u16,
        mut call: ControllerCommand,
    ) -> Result<Result<ControllerOutcome, Status>, LockBusy> {
        let now = call.now;
        let timer = call.changes_timer();
        let (done, is_sooner) = self.try_with(worker, |state| {
            let done = admin::carry_out(state, cntlid, &mut call);
            let watches = timer || matches!(done, Ok(ControllerOutcome::Parked));
            (done, watches && self.entrance.expire(state, now))
        })?;
        self.entrance.wake_timer(is_sooner);
        Ok(done)
    }

    /// Returns random bytes for a command that needs them, and zeroes for other commands.
    pub(super) fn chance(&self, entry: &Submission) -> [u8; CHANCE_BYTES] {
        let mut chance = [0; CHANCE_BYTES];
        if call::needs_chance(entry) {
            self.entrance.environment.random(&mut chance);
        }
        chance
    }

    /// Computes one modular exponentiation for an authentication, which may take some tens of
    /// milliseconds. Returns `false` if none is waiting. After each [`Environment::compute`], a
    /// thread that carries no I/O calls this until it returns `false`.
    pub fn compute(&self) -> bool {
        let Some(job) = self.with(|state| state.auth.pop()) else { return false };
        let value = job.power.raise();
        self.with(|state| auth_commands::computed(state, &job, &value));
        true
    }
}

/// Reports on controllers, and the storage of reservations.
impl Fabric {
    /// Returns a report on each controller, ordered by identifier.
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        self.with(|state| state.controllers.iter().map(report::controller_info).collect())
    }

    /// Returns the reservation of each namespace that has or had one, with its registrants.
    pub fn reservations(&self) -> Vec<StoredReservation> {
        self.with(|state| report::reservations(state))
    }

    /// Delays the answers to changes of persistent reservations until they are
    /// [stored](Fabric::kept_reservations).
    pub fn keep_reservations(&self) {
        self.with(|state| state.reservations.set_stored());
    }

    /// Returns the reservations that persist, for storage, and the number of the change that they
    /// include.
    pub fn reservations_to_keep(&self) -> (u64, Vec<StoredReservation>) {
        self.with(|state| {
            let lasting =
                report::reservations(state).into_iter().filter(|reserved| reserved.persists);
            (state.reservations.changes(), lasting.collect())
        })
    }

    /// Answers the commands whose changes, up to the number `change`, were stored (`kept`) or could
    /// not be.
    pub fn kept_reservations(&self, change: u64, kept: bool) {
        self.with(|state| state.reservations.stored(change, kept, &mut state.mail));
    }

    /// Restores a stored reservation. To be called before hosts connect.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the subsystem or namespace does not exist, or if the reservation is
    /// inconsistent. Nothing of it is restored then.
    pub fn restore_reservation(&self, kept: StoredReservation) -> Result<(), Refusal> {
        self.with(|state| report::restore(state, kept))
    }
}

/// Returns the index of the first of these identities for which a host has keys, and the
/// pre-shared keys that the host may mean by it, the current one first. Returns `None` if no host
/// has a key for any of them. Only a thread that does handshakes calls this, since workers must not
/// wait. Whether the subsystem exists shows in the Connect that follows.
///
/// The fabric is entered once, however many identities a stranger offers, and not at all for those
/// that name no host.
pub fn psks(fabric: &Fabric, identities: &[&[u8]]) -> Option<(usize, Vec<Psk>)> {
    let parsed = identities.iter().map(|identity| TlsIdentity::parse(identity));
    let named: Vec<(usize, TlsIdentity)> =
        parsed.enumerate().filter_map(|(at, who)| Some((at, who?))).collect();
    if named.is_empty() {
        return None;
    }
    let keys: Vec<Vec<TlsKey>> = fabric.with(|state| {
        let keys_of = |who: &TlsIdentity| state.inventory.tls_keys(&who.host).cloned().collect();
        named.iter().map(|(_, who)| keys_of(who)).collect()
    });
    named.iter().zip(&keys).find_map(|((at, who), keys)| {
        let psks: Vec<Psk> = keys.iter().flat_map(|key| key.psks(who, identities[*at])).collect();
        (!psks.is_empty()).then_some((*at, psks))
    })
}
