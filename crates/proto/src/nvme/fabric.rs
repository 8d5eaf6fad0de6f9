//! The fabric: the controllers' state behind one door, and atomics that say whether to enter.
//!
//! No worker waits at the door. A worker that finds another thread inside rings, keeps what it
//! wanted to do and does it in a later turn (docs/adr/0023-one-door.md). Whoever leaves wakes the
//! workers that have rung, and ends the queues that have ended meanwhile.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};

use contract::{Door, Instant};
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

    /// Yields the processor to other threads, one of which is inside the fabric's door. A thread of
    /// low priority may be inside and wait for this very processor; a caller that only spins then
    /// waits for as long as the system lets it run. Only threads of the control plane give way.
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
    state: Door<State>,
    /// `true` if a queue has ended while another thread was inside. Whoever is inside ends its
    /// record.
    has_left: AtomicBool,
    /// `true` if actions wait for a worker, by worker.
    mail: Box<[AtomicBool]>,
    /// The time at which the next keep-alive timer may expire, in nanoseconds; `u64::MAX` for never.
    expires_at: AtomicU64,
    /// The current [`Held`](super::Held).
    pub(super) held: AtomicU8,
    environment: Box<dyn Environment>,
}

/// The reason why a worker cannot use the fabric now: another thread is inside its door. The worker
/// is woken when that thread has left, and tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// What a change of the state asks for once nobody is inside.
struct Asked {
    woken: Vec<u16>,
    has_jobs: bool,
    has_reserved: bool,
}

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
            state: Door::new(state),
            has_left: AtomicBool::new(false),
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
    /// that came with it. The inner error is the completion that says why not; the connection is
    /// closed after sending it.
    ///
    /// # Errors
    /// Returns [`Busy`] if another thread changes the fabric. Nothing has happened then.
    pub fn connect(
        self: &Arc<Fabric>,
        port: PortId,
        place: Place,
        entry: &Submission,
        payload: &[u8],
        now: Instant,
    ) -> Result<Result<(Queue, Completion), Completion>, Busy> {
        let ((answer, made), is_sooner) = self.try_with(place.worker, |state| {
            let connected = connect::connect(state, port, place, entry, payload, now);
            (connected, self.expire(state, now))
        })?;
        self.wake_timer(is_sooner);
        Ok(match made {
            None => Err(answer.completion(0)),
            Some(made) => {
                let mut queue = Queue::new(Arc::clone(self), made, place);
                let completion = queue.seal_connect(answer);
                Ok((queue, completion))
            }
        })
    }

    /// Appends the actions that the controllers have for this worker to `out`. Costs one atomic
    /// load when there are none. If another thread is inside, they come with a later call.
    pub fn poll(&self, worker: u16, now: Instant, out: &mut Vec<Action>) {
        let is_due =
            worker == TIMER_WORKER && now.as_nanos() >= self.expires_at.load(Ordering::Acquire);
        let mail = &self.mail[usize::from(worker)];
        if !is_due && !mail.load(Ordering::Acquire) {
            return;
        }
        // Where it is busy, the bell brings the worker here again.
        let _busy = self.try_with(worker, |state| {
            if is_due {
                self.expire(state, now);
            }
            mail.store(false, Ordering::Release);
            state.mail.take(worker, out);
        });
    }

    /// Returns when a worker should poll without being woken.
    pub fn wake_at(&self, worker: u16) -> Option<Instant> {
        if self.has_rung(worker) {
            return None; // whoever is inside wakes it
        }
        if self.mail[usize::from(worker)].load(Ordering::Acquire) {
            return Some(Instant::ZERO);
        }
        match self.expires_at.load(Ordering::Acquire) {
            u64::MAX => None,
            nanos if worker == TIMER_WORKER => Some(Instant::from_nanos(nanos)),
            _ => None,
        }
    }

    /// Returns `true` if a worker has found the fabric busy and has not been woken since.
    pub fn has_rung(&self, worker: u16) -> bool {
        self.state.has_rung(worker)
    }

    /// Returns `true` if there is a worker of this number.
    pub fn has_worker(&self, worker: u16) -> bool {
        usize::from(worker) < self.mail.len()
    }

    /// Keeps all threads out while `work` runs, as a change by an operator does. Workers find the
    /// fabric [`Busy`] meanwhile.
    pub fn shut_while<R>(&self, work: impl FnOnce() -> R) -> R {
        self.with(|_| work())
    }

    /// Runs `work` on the state, after other threads. For the control plane: no worker calls this.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let work = |state: &mut State| self.change(state, work);
        let (result, asked) = self.state.enter(work, || self.environment.give_way());
        self.leave_door(asked);
        result
    }

    /// Runs `work` on the state, unless another thread is inside.
    ///
    /// # Errors
    /// Returns [`Busy`] if one is. That thread wakes the worker.
    pub(super) fn try_with<R>(
        &self,
        worker: u16,
        work: impl FnOnce(&mut State) -> R,
    ) -> Result<R, Busy> {
        let work = |state: &mut State| self.change(state, work);
        let (result, asked) = self.state.enter_or_ring(worker, work).ok_or(Busy)?;
        self.leave_door(asked);
        Ok(result)
    }

    /// Runs `work` on the state, behind the ends of queues that came before.
    fn change<R>(&self, state: &mut State, work: impl FnOnce(&mut State) -> R) -> (R, Asked) {
        if self.has_left.swap(false, Ordering::AcqRel) {
            state.end_left();
        }
        let before = state.auth.len();
        let reserved = state.reservations.changes();
        let result = work(state);
        let woken = state.mail.take_woken();
        for worker in &woken {
            self.mail[usize::from(*worker)].store(true, Ordering::Release);
        }
        let reservations = &state.reservations;
        let has_reserved = reservations.is_stored() && reservations.changes() != reserved;
        (result, Asked { woken, has_jobs: state.auth.len() > before, has_reserved })
    }

    /// Does what a change asks for, and looks after those who came while the thread was inside.
    fn leave_door(&self, mut asked: Asked) {
        loop {
            if asked.has_reserved {
                self.environment.keep();
            }
            if asked.has_jobs {
                self.environment.compute();
            }
            for worker in asked.woken {
                self.environment.wake(worker);
            }
            let rung = self.state.answer();
            if rung != 0 {
                let has_rung = |worker: &u16| rung >> (worker % 64) & 1 == 1;
                (0..self.mail.len() as u16)
                    .filter(has_rung)
                    .for_each(|worker| self.environment.wake(worker));
            }
            if !self.has_left.load(Ordering::Acquire) {
                return;
            }
            // A thread that is inside by now looks after the queue when it leaves.
            let ended = self.state.try_enter(|state| self.change(state, |_| ()));
            let Some(((), next)) = ended else { return };
            asked = next;
        }
    }

    /// Ends what has expired, and stores when to check again. Returns `true` if that is sooner than
    /// it was.
    fn expire(&self, state: &mut State, now: Instant) -> bool {
        state.expire(now);
        auth_commands::take_put_off(state, now);
        let next = state.settle(now).map_or(u64::MAX, Instant::as_nanos);
        next < self.expires_at.swap(next, Ordering::AcqRel)
    }

    /// Wakes the timers' worker for a shorter timer: it may be asleep until the longer one.
    fn wake_timer(&self, is_sooner: bool) {
        if is_sooner {
            self.environment.wake(TIMER_WORKER);
        }
    }

    /// Ends what has expired, on behalf of the control plane.
    pub(super) fn watch(&self, now: Instant) {
        let is_sooner = self.with(|state| self.expire(state, now));
        self.wake_timer(is_sooner);
    }

    /// Returns the namespaces that a controller may reach now.
    ///
    /// # Errors
    /// Returns [`Busy`] if another thread changes the fabric.
    pub(super) fn view(&self, cntlid: u16, worker: u16) -> Result<View, Busy> {
        self.try_with(worker, |state| state.view(cntlid))
    }

    /// Carries out a command of the controller itself.
    ///
    /// # Errors
    /// Returns [`Busy`] if another thread changes the fabric. Nothing has happened then.
    pub(super) fn carry_out(
        &self,
        cntlid: u16,
        worker: u16,
        mut call: Call,
    ) -> Result<Result<Done, Status>, Busy> {
        let now = call.now;
        let timer = call.changes_timer();
        let (done, is_sooner) = self.try_with(worker, |state| {
            let done = admin::carry_out(state, cntlid, &mut call);
            let watches = timer || matches!(done, Ok(Done::Parked));
            (done, watches && self.expire(state, now))
        })?;
        self.wake_timer(is_sooner);
        Ok(done)
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

    /// Ends the queue of a connection that has ended or is about to. `has_left` is the queue's flag
    /// for whoever is inside now.
    pub(super) fn leave(&self, cntlid: u16, queue: u16, place: Place, has_left: &AtomicBool) {
        let leave =
            |state: &mut State| self.change(state, |state| state.leave(cntlid, queue, place));
        if let Some(((), asked)) = self.state.try_enter(leave) {
            return self.leave_door(asked);
        }
        has_left.store(true, Ordering::Release);
        self.has_left.store(true, Ordering::Release);
        // Either this thread enters now, or the one inside finds the flags when it leaves.
        fence(Ordering::SeqCst);
        if let Some(((), asked)) = self.state.try_enter(leave) {
            self.leave_door(asked);
        }
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
