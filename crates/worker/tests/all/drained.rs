//! The state that a draining worker reports: inert, and drained.

use std::time::Duration;

use crate::rig::{Rig, UNIT};
use contract::{ConnId, WorkerMessage};

/// Checks that a draining worker is not inert while a connection is away, since the connection may
/// come back with requests, which then go to the device.
#[test]
fn while_a_connection_is_away_the_worker_may_come_to_a_device() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    rig.connect(0, 1);
    let conn = ConnId { index: 0, generation: 0 };
    // Nobody takes mail there.
    rig.tell(WorkerMessage::Move { conn, to: 1 });
    assert_eq!(rig.worker.connections(), 0, "it is away");
    rig.drain();
    assert!(!rig.worker.is_inert());
    // The drain takes too long: it is given up.
    rig.pass(Duration::from_secs(3600));
    assert!(rig.worker.is_inert() && rig.worker.is_drained());
}
