//! Queues, each in the storage of the thread that opened it, because the kernel takes a ring's
//! requests from one thread only. Python objects hold keys to them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use crate::failure::Failure;
use crate::inner::Inner;
use crate::job::Job;

/// Number of forks between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The next queue's key.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Keys of queues whose Python objects were dropped in other threads.
static DROPPED: Mutex<Vec<(ThreadId, u64)>> = Mutex::new(Vec::new());

thread_local! {
    static QUEUES: RefCell<Queues> = const { RefCell::new(Queues(None)) };
}

/// The queues of a thread.
struct Queues(Option<HashMap<u64, Box<Inner>>>);

impl Drop for Queues {
    /// Closes the thread's open queues when it ends. The interpreter may be gone by then, so
    /// buffers of requests in flight stay exported.
    fn drop(&mut self) {
        for (_, inner) in self.0.take().into_iter().flatten() {
            std::mem::forget(inner.close());
        }
    }
}

/// The key of a queue.
#[derive(Debug)]
pub(crate) struct Key {
    thread: ThreadId,
    forks: u64,
    number: u64,
}

impl Key {
    /// Puts a queue into this thread's storage.
    pub(crate) fn keep(inner: Inner) -> Key {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        QUEUES.with_borrow_mut(|queues| {
            queues.0.get_or_insert_default().insert(number, Box::new(inner));
        });
        Key { thread: thread::current().id(), forks: forks(), number }
    }

    /// Calls `f` with the queue, if the queue is open and belongs to this process and this thread.
    pub(crate) fn on<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> Result<T, Failure> {
        if self.forks != forks() {
            return Err(foreign());
        }
        if self.thread != thread::current().id() {
            return Err(Failure::new("Error", "a queue belongs to the thread that opened it"));
        }
        let found = QUEUES.with(|queues| {
            let mut queues = queues.try_borrow_mut().ok()?;
            let inner = queues.0.as_mut()?.get_mut(&self.number)?;
            Some(f(inner))
        });
        found.ok_or_else(|| Failure::new("Closed", "the volume is closed"))
    }

    /// Closes the queue. In another thread than its owner, only notes that the owner has to close
    /// it.
    pub(crate) fn close(&self) -> Vec<Job> {
        if self.forks != forks() {
            return Vec::new();
        }
        if self.thread != thread::current().id() {
            let mut dropped = DROPPED.lock().unwrap_or_else(PoisonError::into_inner);
            dropped.push((self.thread, self.number));
            return Vec::new();
        }
        take(self.number).map_or_else(Vec::new, |inner| inner.close())
    }
}

fn take(number: u64) -> Option<Box<Inner>> {
    let take = |queues: &RefCell<Queues>| queues.borrow_mut().0.as_mut()?.remove(&number);
    // Threads that end have closed all they had.
    QUEUES.try_with(take).ok().flatten()
}

/// Closes this thread's queues whose Python objects were dropped in other threads.
pub(crate) fn sweep() -> Vec<Job> {
    let this = thread::current().id();
    let mut ours = Vec::new();
    let mut dropped = DROPPED.lock().unwrap_or_else(PoisonError::into_inner);
    dropped.retain(|(thread, number)| {
        if *thread == this {
            ours.push(*number);
        }
        *thread != this
    });
    drop(dropped);
    ours.into_iter().filter_map(take).flat_map(|inner| inner.close()).collect()
}

/// Closes all queues of this thread.
pub(crate) fn close_all() -> Vec<Job> {
    let all = QUEUES.with_borrow_mut(|queues| queues.0.take());
    all.into_iter().flatten().flat_map(|(_, inner)| inner.close()).collect()
}

/// Returns the number of forks so far.
pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Leaves the queues to the parent. Called in a child that was just forked.
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let all = QUEUES.with_borrow_mut(|queues| queues.0.take());
    for (_, inner) in all.into_iter().flatten() {
        inner.leave_to_parent();
    }
}

/// Returns the failure of a forked child that uses a volume of its parent.
fn foreign() -> Failure {
    let text = "the volume was opened before a fork and belongs to the parent process: \
                open it again in the child, or start processes with the method \"spawn\"";
    Failure::new("ForkedError", text)
}
