//! The entrance to the fabric's state, for workers and for the control plane.
//!
//! No worker waits at the lock. A worker that finds it taken is remembered, keeps its work and
//! repeats it in a later turn (docs/adr/0023-one-try-lock.md). The thread that releases the lock
//! wakes these workers, and ends the queues that have ended meanwhile.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use contract::{Instant, TryLock};

use super::auth_commands;
use super::binding::{Action, QueueAddress};
use super::state::State;

/// Services that the fabric needs from its environment. They are called from any thread and must
/// not call the fabric.
pub trait Environment: fmt::Debug + Send + Sync {
    /// Wakes a worker, which then calls `Fabric::poll`.
    fn wake(&self, worker: u16);

    /// Fills `bytes` with unpredictable ones, for authentication.
    fn random(&self, bytes: &mut [u8]);

    /// Wakes a thread without I/O, which then calls `Fabric::compute`.
    fn compute(&self);

    /// Yields the processor to other threads, one of which holds the fabric's lock. That
    /// thread may have low priority and need this very processor, so a caller that only spins could
    /// block it for long. Only threads of the control plane call this.
    fn give_way(&self) {
        core::hint::spin_loop();
    }

    /// Wakes a thread without I/O to store the reservations (`Fabric::reservations_to_keep`), after
    /// `Fabric::keep_reservations` has requested that.
    fn keep(&self) {}
}

/// The reason why a worker cannot use the fabric now: another thread holds its lock. The worker is
/// woken when that thread has released the lock, and tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockBusy;

/// The calls of the environment that a change of the state needs, to be made once no thread is
/// inside.
struct DeferredCalls {
    woken: Vec<u16>,
    has_jobs: bool,
    has_reserved: bool,
}

/// The number of the worker that checks the timers of all controllers.
const TIMER_WORKER: u16 = 0;

/// The state of a fabric behind its lock, and atomics that tell whether a thread needs to take the
/// lock.
#[derive(Debug)]
pub(super) struct FabricLock {
    state: TryLock<State>,
    /// `true` if a queue has ended while another thread was inside. That thread then removes the
    /// queue's record.
    has_left: AtomicBool,
    /// For each worker, by its number: `true` if actions of controllers wait for it.
    mail: Box<[AtomicBool]>,
    /// The time at which the next timer may expire, in nanoseconds of the server's clock;
    /// `u64::MAX` for never.
    expires_at: AtomicU64,
    pub(super) environment: Box<dyn Environment>,
}

impl FabricLock {
    /// Creates the lock around the state of a fabric for the given number of workers.
    pub(super) fn new(state: State, workers: u16, environment: Box<dyn Environment>) -> FabricLock {
        FabricLock {
            state: TryLock::new(state),
            has_left: AtomicBool::new(false),
            mail: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            expires_at: AtomicU64::new(u64::MAX),
            environment,
        }
    }

    /// Returns the number of workers.
    pub(super) fn workers(&self) -> usize {
        self.mail.len()
    }

    /// Runs `work` on the state, once no other thread is inside. Only the control plane calls this,
    /// since workers must not wait.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let work = |state: &mut State| self.change(state, work);
        let (result, asked) = self.state.with(work, || self.environment.give_way());
        self.after_release(asked);
        result
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
        let work = |state: &mut State| self.change(state, work);
        let (result, asked) = self.state.with_or_register(worker, work).ok_or(LockBusy)?;
        self.after_release(asked);
        Ok(result)
    }

    /// Ends the queues that left while another thread was inside, then runs `work` on the state.
    /// Also returns the calls of the environment that the changes need.
    fn change<R>(
        &self,
        state: &mut State,
        work: impl FnOnce(&mut State) -> R,
    ) -> (R, DeferredCalls) {
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
        (result, DeferredCalls { woken, has_jobs: state.auth.len() > before, has_reserved })
    }

    /// Finishes after the lock was released: makes the calls that a change needs, and handles the
    /// queues and workers that arrived while the lock was held.
    fn after_release(&self, mut asked: DeferredCalls) {
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
            let rung = self.state.take_waiters();
            if rung != 0 {
                let is_waiting = |worker: &u16| rung >> (worker % 64) & 1 == 1;
                (0..self.mail.len() as u16)
                    .filter(is_waiting)
                    .for_each(|worker| self.environment.wake(worker));
            }
            if !self.has_left.load(Ordering::Acquire) {
                return;
            }
            // A thread that is inside by now looks after the queue when it leaves.
            let ended = self.state.try_with(|state| self.change(state, |_| ()));
            let Some(((), next)) = ended else { return };
            asked = next;
        }
    }

    /// Ends the controllers and queues whose timers have expired, and stores the time of the next
    /// check. Returns `true` if this time is sooner than the one stored before.
    pub(super) fn expire(&self, state: &mut State, now: Instant) -> bool {
        state.expire(now);
        auth_commands::take_put_off(state, now);
        let next = state.settle(now).map_or(u64::MAX, Instant::as_nanos);
        next < self.expires_at.swap(next, Ordering::AcqRel)
    }

    /// Wakes the worker that checks the timers, if a timer expires sooner than this worker knows
    /// (`is_sooner`).
    pub(super) fn wake_timer(&self, is_sooner: bool) {
        if is_sooner {
            self.environment.wake(TIMER_WORKER);
        }
    }

    /// Appends the controllers' actions for this worker to `out`. Costs one or two atomic loads if
    /// there are none. If another thread is inside, the actions come with a later call.
    pub(super) fn poll(&self, worker: u16, now: Instant, out: &mut Vec<Action>) {
        let is_due =
            worker == TIMER_WORKER && now.as_nanos() >= self.expires_at.load(Ordering::Acquire);
        let mail = &self.mail[usize::from(worker)];
        if !is_due && !mail.load(Ordering::Acquire) {
            return;
        }
        // Where it is busy, the holder's wake brings the worker here again.
        let _busy = self.try_with(worker, |state| {
            if is_due {
                self.expire(state, now);
            }
            mail.store(false, Ordering::Release);
            state.mail.take(worker, out);
        });
    }

    /// Returns the time at which a worker should poll without being woken: [`Instant::ZERO`] if
    /// actions wait for it, `None` if it need not.
    pub(super) fn wake_at(&self, worker: u16) -> Option<Instant> {
        if self.is_waiting(worker) {
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

    /// Returns `true` if a worker has found the fabric busy and was not woken since.
    pub(super) fn is_waiting(&self, worker: u16) -> bool {
        self.state.is_waiting(worker)
    }

    /// Ends the queue of a connection that ends. If another thread is inside, sets the queue's flag
    /// `has_left`, by which that thread finds and ends the queue.
    pub(super) fn leave(
        &self,
        cntlid: u16,
        queue: u16,
        place: QueueAddress,
        has_left: &AtomicBool,
    ) {
        let leave =
            |state: &mut State| self.change(state, |state| state.leave(cntlid, queue, place));
        if let Some(((), asked)) = self.state.try_with(leave) {
            return self.after_release(asked);
        }
        has_left.store(true, Ordering::Release);
        self.has_left.store(true, Ordering::Release);
        // Either this thread enters now, or the one inside finds the flags when it leaves.
        fence(Ordering::SeqCst);
        if let Some(((), asked)) = self.state.try_with(leave) {
            self.after_release(asked);
        }
    }
}
