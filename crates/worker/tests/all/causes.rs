//! Why connections end, as the worker counts it.

use std::time::Duration;

use crate::rig::{Rig, UNIT};
use contract::{ConnId, EndCause, Instant, ListenerId, NamespaceId, WorkerMessage};
use nearflash_worker::ListenerBinding;

/// An act that ends a connection.
type Act<'a> = &'a dyn Fn(&mut Rig);

#[test]
fn each_end_is_counted_once_by_its_cause() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    let mut counted = [0; EndCause::ALL.len()];
    let until = Instant::ZERO + Duration::from_secs(10);
    let ends: [(EndCause, Act<'_>); 5] = [
        (EndCause::Peer, &|rig| drop(rig.hang_up(0))),
        (EndCause::Network, &|rig| rig.reset(1)),
        (EndCause::Protocol, &|rig| drop(rig.say(2, b"X\x00"))),
        (EndCause::Ordered, &|rig| {
            let conn = ConnId { index: 3, generation: 0 };
            rig.tell(WorkerMessage::End { conn, until });
        }),
        (EndCause::Drained, &|rig| {
            rig.tell(WorkerMessage::Drain { listener: Some(ListenerId(0)), until: Some(until) });
        }),
    ];
    for (index, (cause, end)) in ends.into_iter().enumerate() {
        rig.connect(index as u32, 1);
        end(&mut rig);
        counted[cause as usize] += 1;
        assert_eq!(rig.meters.worker.read().ends, counted, "{cause:?}");
        assert_eq!(rig.worker.connections(), 0);
    }
}

#[test]
fn one_that_leaves_for_another_worker_has_not_ended() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    rig.connect(0, 1);
    rig.tell(WorkerMessage::Move { conn: ConnId { index: 0, generation: 0 }, to: 1 });
    assert!(rig.departed().is_some());
    assert_eq!(rig.meters.worker.read().ends, [0; EndCause::ALL.len()]);
}

#[test]
fn a_straggler_of_a_listener_whose_place_was_given_away_is_not_let_in() {
    let mut rig = Rig::new(16, &[(UNIT, 16), (4 * UNIT, 3)]);
    rig.connect(0, 1);
    rig.listeners().free(ListenerId(0));
    let next = rig.listeners().vacant(0).unwrap();
    rig.listeners().set(next, ListenerBinding::to(NamespaceId(1))).unwrap();
    rig.connect(1, 1);
    assert_eq!(rig.meters.worker.read().ends[EndCause::NotLetIn as usize], 1);
    assert_eq!(rig.worker.connections(), 1, "who was let in before stays");
}

#[test]
fn who_sends_much_while_it_is_stopped_ends_by_back_pressure() {
    let mut rig = Rig::new(1, &[(UNIT, 16), (4 * UNIT, 3)]);
    rig.connect(0, 1);
    rig.open_gate(false);
    let reads = [b'R', 1].repeat(4 << 20);
    while rig.worker.connections() > 0 {
        rig.say(0, &reads);
    }
    assert_eq!(rig.meters.worker.read().ends[EndCause::BackPressure as usize], 1);
}
