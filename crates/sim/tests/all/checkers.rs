//! Checks that the checkers notice: a server with a broken promise fails, and a faithful one does
//! not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nearflash_sim::{Arena, Marks, Outcome, Sabotage, Toll, World, besiege};

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

/// Worlds that showed a fault once:
///
/// - a host's write is at a stalled device when its connections are lost, and its second copy is
///   answered with "command interrupted": the first lands after a later write of another client;
/// - a server with few tokens is late for clients that wait 50 ms, and spends its tokens on what they
///   sent on connections that are gone;
/// - more requests that were put off are refused at once than there are frames.
#[test]
fn faults_that_were_mended_stay_mended() {
    for seed in [82_623_854_293, 500_269, 501_737] {
        if let Err(what) = run(seed, Sabotage::None) {
            panic!("seed {seed}: {what}");
        }
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

fn siege(seed: u64, sabotage: Sabotage) -> Result<Toll, String> {
    let (mut arena, marks) = (Arena::default(), Marks::default());
    let run = || besiege(seed, sabotage, &mut arena, &marks);
    catch_unwind(AssertUnwindSafe(run)).map_err(|what| match what.downcast::<String>() {
        Ok(text) => *text,
        Err(_) => String::new(),
    })
}

#[test]
fn attackers_of_another_tenant_hold_nobody_up() {
    for seed in 1..=12 {
        if let Err(what) = siege(seed, Sabotage::None) {
            panic!("seed {seed}: {what}");
        }
    }
}

#[test]
fn attackers_that_share_a_tenant_with_their_neighbours_show() {
    let failure = (1..=20).find_map(|seed| siege(seed, Sabotage::OneTenant).err());
    let what = failure.expect("the sabotage went unnoticed");
    let expected = ["the longest read", "a request of a neighbour waits", "of a neighbour: "];
    assert!(expected.iter().any(|part| what.contains(part)), "{what}");
}

#[test]
fn the_same_seed_gives_the_same_siege() {
    let toll = |seed| {
        let Toll { steps, reads, longest, p95, .. } = siege(seed, Sabotage::None).unwrap();
        (steps, reads, longest, p95)
    };
    assert_eq!(toll(3), toll(3));
}
