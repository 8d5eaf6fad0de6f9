//! The counts that a worker adds to its meters.

use std::time::Duration;

use crate::rig::{Rig, UNIT};
use contract::{
    CoarseHistogram, NamespaceId, Protocol, TenantId, TenantReading, WorkReading, coarse_edge,
};

/// A little more than the time between two rounds of housekeeping.
const A_WHILE: Duration = Duration::from_millis(1_100);

#[test]
fn connections_that_do_nothing_are_told_of() {
    let mut rig = Rig::new(4, &[(UNIT, 3)]);
    let told = |rig: &Rig| rig.meters.worker.read().gauges.protocols;
    rig.connect(0, 1);
    rig.connect(1, 1);
    rig.pass(A_WHILE);
    assert_eq!(told(&rig), [2, 0, 0]);
    let turns = rig.meters.worker.read().turns;
    rig.pass(A_WHILE);
    assert_eq!(rig.meters.worker.read().turns, turns, "there is nothing new to tell");
    rig.hang_up(1);
    rig.pass(A_WHILE);
    assert_eq!(told(&rig), [1, 0, 0]);
    rig.hang_up(0);
    assert_eq!(told(&rig), [0, 0, 0]);
}

#[test]
fn one_request_in_64_is_counted_for_all_that_it_belongs_to() {
    let mut rig = Rig::new(64, &[(UNIT, 34)]);
    rig.connect(0, 1);
    for _ in 0..100 {
        // A hundred turns of 1 µs in the scheduler, and none at the device.
        rig.open_gate(false);
        rig.say(0, &b"R\x01".repeat(32));
        rig.open_gate(true);
    }
    let namespace = rig.meters.namespace(NamespaceId(1)).unwrap().work.read();
    let protocol = rig.meters.protocol(Protocol::Reflex).read();
    let mut tenants = TenantReading::default();
    (0..2).for_each(|n| rig.meters.get(TenantId(n)).unwrap().add_to(&mut tenants));
    assert_eq!((namespace.requests, namespace.bytes[0]), ([3_200, 0, 0], 3_200 * UNIT as u64));
    assert_eq!((namespace.samples, tenants.samples), (protocol.samples, protocol.samples));
    let [read, others] = &namespace.samples;
    let all = |histogram: &CoarseHistogram<u32>| histogram.iter().sum::<u32>();
    let picked = protocol.requests[0];
    assert!((25..100).contains(&picked), "{picked} of 3200");
    assert_eq!(protocol.bytes[0], u64::from(picked) * UNIT as u64);
    assert_eq!((read.each_ref().map(all), others.each_ref().map(all)), ([picked; 3], [0; 3]));
    let within = |histogram: &CoarseHistogram<u32>, micros: u64| {
        let edges = (0..).map_while(coarse_edge).take_while(|edge| *edge <= micros * 1_000);
        histogram.iter().take(edges.count()).sum::<u32>()
    };
    let [scheduler, device, reply] = read.each_ref();
    assert_eq!((within(scheduler, 66), within(scheduler, 263)), (0, picked));
    assert_eq!((within(device, 5), within(reply, 5)), (picked, picked));
    assert_eq!(rig.meters.protocol(Protocol::NvmeTcp).read(), WorkReading::default());
}

#[test]
fn barriers_are_looked_at_as_often_though_no_device_sees_them() {
    let mut rig = Rig::new(64, &[(UNIT, 34)]);
    rig.connect(0, 1);
    for _ in 0..100 {
        rig.say(0, &b"O\0".repeat(32));
    }
    let namespace = rig.meters.namespace(NamespaceId(1)).unwrap().work.read();
    let picked = rig.meters.protocol(Protocol::Reflex).read().requests;
    assert_eq!(namespace.requests, [0, 0, 3_200]);
    assert!(picked[..2] == [0, 0] && (25..100).contains(&picked[2]), "{picked:?} of 3200");
}
