//! Every interleaving of what workers share, under the loom model checker:
//! `cargo test -p nearflash-qos --features loom --test loom`.
//!
//! Without the feature this program is not built: the same types are then made of the processor's
//! atomics and tested beside their code.

use contract::TryLock;
use loom::sync::Arc;
use loom::thread;
use nearflash_qos::{Balance, Bucket, CycleState, IdlePool, Loan, Rounds};

/// Checks that each token that is given to a bucket is taken once, expires once, or is still there.
#[test]
fn a_bucket_neither_makes_nor_loses_tokens() {
    loom::model(|| {
        let bucket = Arc::new(Bucket::new());
        bucket.give(5);
        let other = bucket.clone();
        let taker = thread::spawn(move || {
            let taken = other.take(4);
            other.give(3);
            taken
        });
        let expired = bucket.age() + bucket.age();
        let taken = bucket.take(2);
        let taken = taken + taker.join().unwrap();
        assert_eq!(taken + expired + bucket.held(), 8);
    });
}

/// Checks that no token is lost or made while one worker charges the bucket for what a tenant has
/// spent ahead, and another takes from the bucket and empties it.
#[test]
fn a_bucket_owes_what_it_was_charged() {
    loom::model(|| {
        let bucket = Arc::new(Bucket::new());
        bucket.give(5);
        let other = bucket.clone();
        let charger = thread::spawn(move || {
            other.charge(3);
            other.take(1)
        });
        let gone = bucket.take(4) + bucket.empty();
        let gone = gone + charger.join().unwrap();
        assert_eq!(5 - 3 - gone, bucket.held());
        // What it owes is repaid before anybody gets anything.
        let debt = -bucket.held().min(0);
        bucket.give(debt);
        assert_eq!(bucket.take(1), if debt > 0 { 0 } else { (2 - gone).clamp(0, 1) });
    });
}

/// Returns the rounds of two workers, for each of them.
fn rounds_of_two() -> (Arc<Rounds>, Arc<Rounds>) {
    let rounds = Arc::new(Rounds::new());
    rounds.join(0);
    rounds.join(1);
    (rounds.clone(), rounds)
}

/// Checks that of two workers that finish their rounds at the same time exactly one completes the
/// turn, and empties the bucket.
#[test]
fn one_worker_completes_the_rounds() {
    loom::model(|| {
        let (rounds, other) = rounds_of_two();
        let marker = thread::spawn(move || other.mark(1));
        let mine = rounds.mark(0);
        let others = marker.join().unwrap();
        assert_eq!((mine == CycleState::Over) as u32 + (others == CycleState::Over) as u32, 1);
        // The next turn starts with no marks.
        assert_eq!([rounds.mark(0), rounds.mark(1)], [CycleState::Running, CycleState::Over]);
    });
}

/// Checks that the turn is completed once if a worker parks while the other one marks it, by either
/// of them.
#[test]
fn who_parks_during_a_mark_is_not_waited_for() {
    loom::model(|| {
        let (rounds, other) = rounds_of_two();
        let parker = thread::spawn(move || other.leave(1));
        let marked = rounds.mark(0);
        let left = parker.join().unwrap();
        let completed = |turn| (turn != CycleState::Running) as u32;
        assert_eq!(completed(marked) + completed(left), 1);
        assert_eq!(rounds.mark(0), CycleState::Alone);
    });
}

/// Checks that two workers that spend from one balance at the same time overdraw it by at most one
/// request beyond the limit, and that time is made into tokens once.
#[test]
fn a_shared_balance_is_overdrawn_once() {
    loom::model(|| {
        let balance = Arc::new(Balance::new());
        let spend = |balance: &Balance, now: u64| {
            let time = balance.claim_time(now);
            balance.add(time as i64);
            (time, i64::from(balance.overdraw(10, 0)))
        };
        let other = balance.clone();
        let spender = thread::spawn(move || spend(&other, 3));
        let (my_time, mine) = spend(&balance, 2);
        let (their_time, theirs) = spender.join().unwrap();
        assert_eq!(my_time + their_time, 3);
        assert!((1..=2).contains(&(mine + theirs)));
        assert_eq!(balance.tokens(), 3 - 10 * (mine + theirs));
        assert!(balance.tokens() > -10 - 10 + 3);
    });
}

/// Checks that every nanosecond is made into tokens once, by the pool or by the tenant, when a
/// tenant leaves the pool while another worker settles it.
#[test]
fn an_idle_pool_and_who_leaves_it_make_every_nanosecond_once() {
    loom::model(|| {
        let pool = Arc::new(IdlePool::new());
        pool.change(7, 0);
        pool.change(5, 0);
        let other = pool.clone();
        let settler = thread::spawn(move || other.settle(100));
        let from = pool.change(-5, 60);
        let by_tenant = 5 * (200 - from) as i64;
        let settled = settler.join().unwrap();
        assert_eq!(by_tenant + settled + pool.settle(200), 12 * 200);
    });
}

/// Checks that no more is owed than may be when two workers lend and take back at the same time,
/// and that what was lent is owed or repaid.
#[test]
fn a_loan_is_bounded_and_neither_lost_nor_repaid_twice() {
    loom::model(|| {
        let loan = Arc::new(Loan::new());
        let other = loan.clone();
        let worker = thread::spawn(move || {
            let lent = other.lend(6, 8);
            assert!(other.owed() <= 8);
            (lent, other.repay(5))
        });
        let (lent, repaid) = (loan.lend(6, 8), loan.repay(9));
        let (theirs, back) = worker.join().unwrap();
        assert_eq!(lent + theirs - repaid - back, loan.owed());
        assert!((0..=8).contains(&loan.owed()));
    });
}

/// Checks that a worker that finds a lock taken either takes it on its second try, or is returned
/// to the holder as a waiter, so that it never sleeps on.
#[test]
fn a_worker_that_waits_for_the_lock_is_woken() {
    loom::model(|| {
        let lock = Arc::new(TryLock::new(0));
        let other = lock.clone();
        let inside = thread::spawn(move || {
            let entered = other.try_with(|value| *value += 1).is_some();
            (entered, other.take_waiters())
        });
        let has_entered = lock.with_or_register(5, |value| *value += 1).is_some();
        let mine = lock.take_waiters();
        let (entered, answered) = inside.join().unwrap();
        let is_answered = (mine | answered) & 1 << 5 != 0;
        assert!(has_entered || is_answered, "nobody would wake this worker");
        let entries = i32::from(has_entered) + i32::from(entered);
        assert_eq!(lock.try_with(|value| *value), Some(entries));
    });
}
