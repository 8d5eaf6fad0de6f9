//! Atomics whose operations a test runs in every possible order.
//!
//! Two threads run their parts. Before each operation on a watched atomic, a thread waits for its
//! turn, so that the operations come one after another. If all of them are sequentially consistent,
//! [`in_every_order`] tries all possible orders. (loom, which the schedulers' tests use, treats
//! such operations as acquire and release, and would find impossible orders.)

extern crate std;

use core::cell::RefCell;
use core::ptr;
use core::sync::atomic::{self, Ordering};

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread_local;
use std::vec::Vec;

/// An atomic like its namesake, with ordered operations.
#[derive(Debug, Default)]
pub(crate) struct AtomicU32(atomic::AtomicU32);

impl AtomicU32 {
    /// Returns the atomic's address in memory, which identifies it to [`in_every_order`].
    pub(crate) fn at(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    pub(crate) fn load(&self, order: Ordering) -> u32 {
        step(self.at());
        self.0.load(order)
    }

    pub(crate) fn fetch_add(&self, more: u32, order: Ordering) -> u32 {
        step(self.at());
        self.0.fetch_add(more, order)
    }

    pub(crate) fn fetch_sub(&self, less: u32, order: Ordering) -> u32 {
        step(self.at());
        self.0.fetch_sub(less, order)
    }

    pub(crate) fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        step(self.at());
        self.0.fetch_or(bits, order)
    }

    pub(crate) fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        step(self.at());
        self.0.fetch_and(bits, order)
    }
}

thread_local! {
    /// The run that this thread takes part in, and the index of the thread, 0 or 1.
    static PART: RefCell<Option<(Arc<Interleaving>, usize)>> = const { RefCell::new(None) };
}

/// A run of the two threads, with their operations in one of the possible orders.
#[derive(Debug)]
struct Interleaving {
    state: Mutex<State>,
    turned: Condvar,
}

#[derive(Debug)]
struct State {
    watched: Vec<usize>,
    threads: [ThreadStatus; 2],
    /// The threads that take the first steps, by index. After these steps, the first thread runs as
    /// long as it has any.
    given: Vec<usize>,
    /// The index of the thread that took each step so far, and whether the other thread could have
    /// run instead.
    taken: Vec<(usize, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadStatus {
    Runs,
    Waits,
    Done,
}

impl State {
    /// Lets a waiting thread run once neither thread runs.
    fn turn(&mut self) {
        let waits = self.threads.map(|stand| stand == ThreadStatus::Waits);
        if self.threads.contains(&ThreadStatus::Runs) || waits == [false; 2] {
            return;
        }
        let given = self.given.get(self.taken.len()).copied();
        let next = given.unwrap_or(usize::from(!waits[0]));
        self.taken.push((next, waits[1 - next]));
        self.threads[next] = ThreadStatus::Runs;
    }

    /// Returns the first steps of the next order to try; `None` after the last order.
    fn next(&self) -> Option<Vec<usize>> {
        let last = self.taken.iter().rposition(|&(who, other)| who == 0 && other)?;
        Some(self.taken[..last].iter().map(|(who, _)| *who).chain([1]).collect())
    }
}

impl Interleaving {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Sets a thread's state, and blocks until it is the thread's turn to run.
    fn stand(&self, me: usize, stand: ThreadStatus) {
        let mut state = self.state();
        state.threads[me] = stand;
        state.turn();
        self.turned.notify_all();
        while state.threads[me] == ThreadStatus::Waits {
            state = self.turned.wait(state).expect("no holder of this lock panics");
        }
    }
}

/// Waits for the thread's turn, before an operation on the atomic at this address.
fn step(at: usize) {
    let part = PART.with_borrow(Clone::clone);
    if let Some((play, me)) = part.filter(|(play, _)| play.state().watched.contains(&at)) {
        play.stand(me, ThreadStatus::Waits);
    }
}

/// Runs a thread's part. The part also counts as done if it panics.
fn act(play: &Arc<Interleaving>, me: usize, part: impl FnOnce()) {
    struct ThreadEnd<'a>(&'a Interleaving, usize);
    impl Drop for ThreadEnd<'_> {
        fn drop(&mut self) {
            PART.set(None);
            self.0.stand(self.1, ThreadStatus::Done);
        }
    }
    let _exit = ThreadEnd(play, me);
    PART.set(Some((play.clone(), me)));
    part();
}

/// Makes a scene, lets two threads run their parts with the scene, and checks it afterwards: once
/// for each order of the operations on the `watched` atomics. Returns the number of orders.
pub(crate) fn in_every_order<S: Sync>(
    make: impl Fn() -> S,
    watched: impl Fn(&S) -> Vec<usize>,
    parts: [&(dyn Fn(&S) + Sync); 2],
    after: impl Fn(&S),
) -> usize {
    let mut given = Vec::new();
    for orders in 1.. {
        let scene = make();
        let threads = [ThreadStatus::Runs; 2];
        let state = State { watched: watched(&scene), threads, given, taken: Vec::new() };
        let play = Arc::new(Interleaving { state: Mutex::new(state), turned: Condvar::new() });
        std::thread::scope(|scope| {
            scope.spawn(|| act(&play, 1, || parts[1](&scene)));
            act(&play, 0, || parts[0](&scene));
        });
        after(&scene);
        let next = play.state().next();
        match next {
            Some(next) => given = next,
            None => return orders,
        }
    }
    unreachable!("there are not so many")
}

#[test]
fn all_orders_are_tried() {
    type AtomicPair = [AtomicU32; 2];
    let add = |to: &AtomicU32, times: u32| {
        for _ in 0..times {
            to.fetch_add(1, Ordering::SeqCst);
        }
    };
    let orders = in_every_order(
        AtomicPair::default,
        |scene| scene.each_ref().map(AtomicU32::at).into(),
        [&|scene: &AtomicPair| add(&scene[0], 3), &|scene: &AtomicPair| add(&scene[1], 4)],
        |scene| assert_eq!(scene.each_ref().map(|all| all.load(Ordering::SeqCst)), [3, 4]),
    );
    assert_eq!(orders, 35, "three of seven");
}
