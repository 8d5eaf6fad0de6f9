//! The fabric: one lock around the controllers' state, and atomics that say whether to take it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use contract::Instant;
use spin::{Mutex, MutexGuard};
use wire::nvme::{Completion, Status, Submission};

use super::auth::transaction::CHANCE_BYTES;

use super::binding::{Action, Place};
use super::call::{self, Call, Done};
use super::config::{Config, PortId, Refusal};
use super::link::View;
use super::queue::Queue;
use super::report::{self, ControllerInfo, Reserved, SubsystemInfo};
use super::state::State;
use super::{admin, auth_commands, connect};

/// Services that the fabric needs from its environment. They are called from any thread and must
/// not call the fabric.
pub trait Environment: fmt::Debug + Send + Sync {
    /// Wakes a worker, which then calls [`Fabric::poll`].
    fn wake(&self, worker: u16);

    /// Fills `bytes` with unpredictable ones, for authentication.
    fn random(&self, bytes: &mut [u8]);

    /// Has a thread that carries no I/O call [`Fabric::compute`].
    fn compute(&self);

    /// Yields the processor to other threads, one of which holds the fabric's lock. A thread of low
    /// priority may hold it and wait for this very processor; a caller that only spins then waits
    /// for as long as the system lets it run.
    fn give_way(&self) {
        core::hint::spin_loop();
    }

    /// Has a thread that carries no I/O store the reservations ([`Fabric::reservations_to_keep`]),
    /// after [`Fabric::keep_reservations`] has asked for that.
    fn keep(&self) {}
}

/// An NVMe over Fabrics target: its ports, subsystems, hosts and controllers, shared by all
/// workers.
#[derive(Debug)]
pub struct Fabric {
    state: Mutex<State>,
    /// `true` if actions wait for a worker, by worker.
    mail: Box<[AtomicBool]>,
    /// The time at which the next keep-alive timer may expire, in nanoseconds; `u64::MAX` for never.
    expires_at: AtomicU64,
    /// The current [`Held`](super::Held).
    pub(super) held: AtomicU8,
    environment: Box<dyn Environment>,
}

/// The attempts to take the lock that precede [`Environment::give_way`]: some microseconds.
const SPINS: usize = 100;

/// The worker that checks the keep-alive timers.
const TIMER_WORKER: u16 = 0;

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
        Ok(Arc::new(Fabric {
            state: Mutex::new(state),
            mail: (0..config.workers).map(|_| AtomicBool::new(false)).collect(),
            expires_at: AtomicU64::new(u64::MAX),
            held: AtomicU8::new(0),
            environment,
        }))
    }

    /// Checks a configuration without creating a fabric.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names the invalid part of the configuration.
    pub fn check(config: &Config) -> Result<(), Refusal> {
        State::new(config, Instant::ZERO).map(drop)
    }

    /// Creates a queue from a connection's first submission, which must be a Connect, and the data
    /// that came with it.
    ///
    /// # Errors
    /// Returns the completion that says why not; the connection is closed after sending it.
    pub fn connect(
        self: &Arc<Fabric>,
        port: PortId,
        place: Place,
        entry: &Submission,
        payload: &[u8],
        now: Instant,
    ) -> Result<(Queue, Completion), Completion> {
        let (answer, made) =
            self.with(|state| connect::connect(state, port, place, entry, payload, now));
        self.watch(now);
        match made {
            None => Err(answer.completion(0)),
            Some(made) => {
                let mut queue = Queue::new(Arc::clone(self), made, place);
                let completion = queue.seal_connect(answer);
                Ok((queue, completion))
            }
        }
    }

    /// Appends the actions that the controllers have for this worker to `out`. Costs one atomic
    /// load when there are none.
    pub fn poll(&self, worker: u16, now: Instant, out: &mut Vec<Action>) {
        if worker == TIMER_WORKER && now.as_nanos() >= self.expires_at.load(Ordering::Acquire) {
            self.watch(now);
        }
        let mail = &self.mail[usize::from(worker)];
        if mail.load(Ordering::Acquire) && mail.swap(false, Ordering::AcqRel) {
            self.with(|state| state.mail.take(worker, out));
        }
    }

    /// Returns when a worker should poll without being woken.
    pub fn wake_at(&self, worker: u16) -> Option<Instant> {
        if self.mail[usize::from(worker)].load(Ordering::Acquire) {
            return Some(Instant::ZERO);
        }
        match self.expires_at.load(Ordering::Acquire) {
            u64::MAX => None,
            nanos if worker == TIMER_WORKER => Some(Instant::from_nanos(nanos)),
            _ => None,
        }
    }

    /// Returns `true` if there is a worker of this number.
    pub fn has_worker(&self, worker: u16) -> bool {
        usize::from(worker) < self.mail.len()
    }

    /// Takes the lock. It is held for microseconds, unless its holder has lost its processor.
    fn lock(&self) -> MutexGuard<'_, State> {
        loop {
            for _ in 0..SPINS {
                if let Some(state) = self.state.try_lock() {
                    return state;
                }
                core::hint::spin_loop();
            }
            self.environment.give_way();
        }
    }

    /// Runs `work` under the lock, then wakes the workers that have got actions.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let (result, woken, has_jobs, has_reserved) = {
            let mut state = self.lock();
            let before = state.auth.len();
            let reserved = state.reservations.changes();
            let result = work(&mut state);
            let has_jobs = state.auth.len() > before;
            let woken = state.mail.take_woken();
            for worker in &woken {
                self.mail[usize::from(*worker)].store(true, Ordering::Release);
            }
            let reservations = &state.reservations;
            let has_reserved = reservations.is_stored() && reservations.changes() != reserved;
            (result, woken, has_jobs, has_reserved)
        };
        if has_reserved {
            self.environment.keep();
        }
        if has_jobs {
            self.environment.compute();
        }
        for worker in woken {
            self.environment.wake(worker);
        }
        result
    }

    /// Ends what has expired, and stores when to check again.
    pub(super) fn watch(&self, now: Instant) {
        let is_sooner = self.with(|state| {
            state.expire(now);
            auth_commands::take_put_off(state, now);
            let next = state.settle(now).map_or(u64::MAX, Instant::as_nanos);
            next < self.expires_at.swap(next, Ordering::AcqRel)
        });
        // A shorter timer came: the watchman may be asleep until the longer one.
        if is_sooner {
            self.environment.wake(TIMER_WORKER);
        }
    }

    /// Returns the namespaces that a controller may reach now.
    pub(super) fn view(&self, cntlid: u16) -> View {
        self.with(|state| state.view(cntlid))
    }

    /// Carries out a command of the controller itself.
    pub(super) fn carry_out(&self, cntlid: u16, mut call: Call) -> Result<Done, Status> {
        let now = call.now;
        let timer = call.changes_timer();
        let done = self.with(|state| admin::carry_out(state, cntlid, &mut call));
        if timer || matches!(done, Ok(Done::Parked)) {
            self.watch(now);
        }
        done
    }

    /// Returns unpredictable bytes for a command that needs them, and else zeroes.
    pub(super) fn chance(&self, entry: &Submission) -> [u8; CHANCE_BYTES] {
        let mut chance = [0; CHANCE_BYTES];
        if call::needs_chance(entry) {
            self.environment.random(&mut chance);
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

    /// Ends the queue of a connection that has ended or is about to.
    pub(super) fn leave(&self, cntlid: u16, queue: u16, place: Place) {
        self.with(|state| state.leave(cntlid, queue, place));
    }
}

/// Reports, and storage of reservations.
impl Fabric {
    /// Returns the controllers, ordered by identifier.
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        self.with(|state| state.controllers.iter().map(report::controller_info).collect())
    }

    /// Returns the subsystems, ordered by name.
    pub fn subsystems(&self) -> Vec<SubsystemInfo> {
        self.with(|state| report::subsystem_infos(state))
    }

    /// Returns all reservations and registrations.
    pub fn reservations(&self) -> Vec<Reserved> {
        self.with(|state| report::reservations(state))
    }

    /// Delays the answers to changes of persistent reservations until they are
    /// [stored](Fabric::kept_reservations).
    pub fn keep_reservations(&self) {
        self.with(|state| state.reservations.set_stored());
    }

    /// Returns the reservations that persist, for storage, and the number of the change that they
    /// include.
    pub fn reservations_to_keep(&self) -> (u64, Vec<Reserved>) {
        self.with(|state| {
            let lasting =
                report::reservations(state).into_iter().filter(|reserved| reserved.persists);
            (state.reservations.changes(), lasting.collect())
        })
    }

    /// Answers the commands whose changes, up to the number `change`, are stored or could not be.
    pub fn kept_reservations(&self, change: u64, kept: bool) {
        self.with(|state| state.reservations.stored(change, kept, &mut state.mail));
    }

    /// Restores a stored reservation. To be called before hosts connect.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the subsystem or namespace does not exist, or if the reservation is
    /// inconsistent. Nothing of it is restored then.
    pub fn restore_reservation(&self, kept: Reserved) -> Result<(), Refusal> {
        self.with(|state| report::restore(state, kept))
    }
}
