//! What a worker tells of itself.

mod rig;

use std::time::Duration;

use rig::{Rig, UNIT};

/// A little more than between two housekeepings.
const A_WHILE: Duration = Duration::from_millis(1_100);

#[test]
fn connections_that_do_nothing_are_told_of() {
    let mut rig = Rig::new(4, &[(UNIT, 3)]);
    let told = |rig: &Rig| rig.meters.worker.read().gauges.protocols;
    rig.connect(0, 1);
    rig.connect(1, 1);
    rig.pass(A_WHILE);
    assert_eq!(told(&rig), [2, 0]);
    let turns = rig.meters.worker.read().turns;
    rig.pass(A_WHILE);
    assert_eq!(rig.meters.worker.read().turns, turns, "there is nothing new to tell");
    rig.hang_up(1);
    rig.pass(A_WHILE);
    assert_eq!(told(&rig), [1, 0]);
    rig.hang_up(0);
    assert_eq!(told(&rig), [0, 0]);
}
