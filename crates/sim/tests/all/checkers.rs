//! Checks that the checkers notice: a server with a broken promise fails, and a faithful one does
//! not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nearflash_sim::{Arena, Marks, Sabotage, SiegeReport, World, WorldKind, WorldTotals, besiege};

/// The kinds of worlds.
const KINDS: [WorldKind; 4] =
    [WorldKind::Hosts, WorldKind::Nbd, WorldKind::Attached, WorldKind::Packets];

/// The number of seeds in which a sabotage has to show.
const SEEDS_MAX: u64 = 400;

/// The number of worlds of each kind without a sabotage. `cargo xtask ci` runs hundreds more, in a
/// step of their own.
const FAITHFUL: u64 = 10;

fn run(kind: WorldKind, seed: u64, sabotage: Sabotage) -> Result<WorldTotals, String> {
    let mut arena = Arena::default();
    let marks = Marks::default();
    let run = || World::new(kind, seed, sabotage, &mut arena, &marks, false).run(&mut arena);
    catch_unwind(AssertUnwindSafe(run)).map_err(|what| match what.downcast::<String>() {
        Ok(text) => *text,
        Err(what) => what.downcast::<&str>().map_or_else(|_| String::new(), |s| s.to_string()),
    })
}

/// Checks that the first failure of a sabotage is an expected one. The search begins with the seed
/// `from`, which showed it before.
fn first_failure(kind: WorldKind, sabotage: Sabotage, from: u64, expected: &[&str]) {
    let mut seeds = from..from + SEEDS_MAX;
    let failure = seeds.find_map(|seed| Some((seed, run(kind, seed, sabotage).err()?)));
    let Some((seed, what)) = failure else { panic!("{sabotage:?} went unnoticed") };
    assert!(expected.iter().any(|part| what.contains(part)), "seed {seed}: {what}");
    let faithful = run(kind, seed, Sabotage::None);
    assert!(faithful.is_ok(), "seed {seed} fails without sabotage: {faithful:?}");
}

#[test]
fn a_copy_that_no_fence_holds_back_shows() {
    first_failure(
        WorldKind::Hosts,
        Sabotage::SeparateFences,
        63,
        &["had been carried out", "across a barrier"],
    );
}

#[test]
fn a_write_of_a_lost_controller_that_no_fence_holds_back_shows() {
    first_failure(WorldKind::Hosts, Sabotage::UnfencedControllers, 33, &["had been carried out"]);
}

#[test]
fn comparisons_without_common_locks_show() {
    first_failure(
        WorldKind::Hosts,
        Sabotage::SeparateLocks,
        11,
        &["won, but", "is torn", "had been carried out"],
    );
}

#[test]
fn a_barrier_that_orders_nothing_shows() {
    first_failure(
        WorldKind::Hosts,
        Sabotage::ScatteredStreams,
        1,
        &["across a barrier", "had been carried out"],
    );
}

#[test]
fn a_request_that_a_move_doubles_shows() {
    first_failure(
        WorldKind::Hosts,
        Sabotage::DoubledMoves,
        1,
        &["a reply to no request", "had been carried out"],
    );
}

#[test]
fn a_number_that_is_used_again_too_early_shows() {
    first_failure(WorldKind::Hosts, Sabotage::EarlyReuse, 160, &["requests in flight"]);
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let outcome = |kind, seed| {
        let WorldTotals { steps, requests, elapsed } = run(kind, seed, Sabotage::None).unwrap();
        (steps, requests, elapsed)
    };
    for kind in KINDS {
        for seed in [3, 39, 49] {
            assert_eq!(outcome(kind, seed), outcome(kind, seed));
        }
    }
}

/// Runs worlds of these seeds without sabotage, none of which may fail.
fn none_fails(kind: WorldKind, seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        if let Err(what) = run(kind, seed, Sabotage::None) {
            panic!("seed {seed}: {what}");
        }
    }
}

/// Runs worlds that showed a fault once:
///
/// - a host's write is at a stalled device when its connections are lost, and its second copy is
///   answered with "command interrupted": the first lands after a later write of another client;
/// - a server with few tokens is late for clients that wait 50 ms, and spends its tokens on what
///   they sent on connections that are gone;
/// - more requests that were put off are refused at once than there are frames.
#[test]
fn faults_that_were_mended_stay_mended() {
    none_fails(WorldKind::Hosts, [82_623_854_293, 500_269, 501_737]);
}

#[test]
fn faithful_servers_pass() {
    none_fails(WorldKind::Hosts, 1..=FAITHFUL);
}

#[test]
fn faithful_servers_of_nbd_pass() {
    none_fails(WorldKind::Nbd, 1..=FAITHFUL);
}

#[test]
fn faithful_servers_of_attached_volumes_pass() {
    none_fails(WorldKind::Attached, 1..=FAITHFUL);
}

#[test]
fn faithful_servers_of_packets_pass() {
    none_fails(WorldKind::Packets, 1..=FAITHFUL);
}

#[test]
fn a_barrier_that_orders_nothing_shows_over_packets() {
    first_failure(
        WorldKind::Packets,
        Sabotage::ScatteredStreams,
        1,
        &["across a barrier", "had been carried out"],
    );
}

#[test]
fn a_successor_with_another_identity_than_its_predecessor_shows() {
    first_failure(WorldKind::Attached, Sabotage::StrangeSuccessors, 1, &["had been carried out"]);
}

#[test]
fn an_nbd_request_that_a_move_doubles_shows() {
    let expected = ["broke the protocol", "had been carried out", "a reply to no request"];
    first_failure(WorldKind::Nbd, Sabotage::DoubledMoves, 1, &expected);
}

fn siege(seed: u64, sabotage: Sabotage) -> Result<SiegeReport, String> {
    let (mut arena, marks) = (Arena::default(), Marks::default());
    let run = || besiege(seed, sabotage, &mut arena, &marks);
    catch_unwind(AssertUnwindSafe(run)).map_err(|what| match what.downcast::<String>() {
        Ok(text) => *text,
        Err(_) => String::new(),
    })
}

#[test]
fn attackers_of_another_tenant_hold_nobody_up() {
    // `cargo xtask ci` lets every tenth of its worlds be a siege, too.
    for seed in 1..=4 {
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
    let report = |seed| {
        let SiegeReport { steps, reads, longest, p95, .. } = siege(seed, Sabotage::None).unwrap();
        (steps, reads, longest, p95)
    };
    assert_eq!(report(3), report(3));
}
