//! Checks that the checkers notice: a server with a broken promise fails, and a faithful one does
//! not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nearflash_sim::{Arena, Marks, Outcome, Sabotage, World};

/// The number of seeds in which a sabotage has to show.
const SEEDS_MAX: u64 = 400;

fn run(seed: u64, sabotage: Sabotage) -> Result<Outcome, String> {
    let mut arena = Arena::default();
    let marks = Marks::default();
    let run = || World::new(seed, sabotage, &mut arena, &marks, false).run(&mut arena);
    catch_unwind(AssertUnwindSafe(run)).map_err(|what| match what.downcast::<String>() {
        Ok(text) => *text,
        Err(what) => what.downcast::<&str>().map_or_else(|_| String::new(), |s| s.to_string()),
    })
}

/// Checks that the first failure of a sabotage is of an expected kind.
fn first_failure(sabotage: Sabotage, expected: &[&str]) {
    let failure = (1..=SEEDS_MAX).find_map(|seed| Some((seed, run(seed, sabotage).err()?)));
    let Some((seed, what)) = failure else { panic!("{sabotage:?} went unnoticed") };
    assert!(expected.iter().any(|part| what.contains(part)), "seed {seed}: {what}");
    let faithful = run(seed, Sabotage::None);
    assert!(faithful.is_ok(), "seed {seed} fails without sabotage: {faithful:?}");
}

#[test]
fn a_copy_that_no_fence_holds_back_shows() {
    first_failure(Sabotage::SeparateFences, &["had been carried out", "across a barrier"]);
}

#[test]
fn a_write_of_a_lost_controller_that_no_fence_holds_back_shows() {
    first_failure(Sabotage::UnfencedControllers, &["had been carried out"]);
}

#[test]
fn comparisons_without_common_locks_show() {
    first_failure(Sabotage::SeparateLocks, &["won, but", "is torn", "had been carried out"]);
}

#[test]
fn a_barrier_that_orders_nothing_shows() {
    first_failure(Sabotage::ScatteredStreams, &["across a barrier", "had been carried out"]);
}

#[test]
fn a_request_that_a_move_doubles_shows() {
    first_failure(Sabotage::DoubledMoves, &["a reply to no request", "had been carried out"]);
}

#[test]
fn a_number_that_is_used_again_too_early_shows() {
    first_failure(Sabotage::EarlyReuse, &["requests in flight"]);
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let outcome = |seed| {
        let Outcome { steps, requests, elapsed } = run(seed, Sabotage::None).unwrap();
        (steps, requests, elapsed)
    };
    for seed in [3, 39, 49] {
        assert_eq!(outcome(seed), outcome(seed));
    }
}

#[test]
fn faithful_servers_pass() {
    for seed in 1..=60 {
        if let Err(what) = run(seed, Sabotage::None) {
            panic!("seed {seed}: {what}");
        }
    }
}
