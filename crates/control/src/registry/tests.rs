//! Tests of the registry.

use std::time::Duration;

use super::*;
use contract::{Feedback, IoKind, Scheduler};
use qos::{Class, DeviceModel, QueueLimits};
use spec::{Promises, Switches, Tenant};

const NOW: Instant = Instant::ZERO;

fn slo(latency_us: u32, iops: u32, read_percent: u8) -> Option<Slo> {
    (latency_us > 0).then(|| Slo::new(latency_us, iops, read_percent))
}

fn registry() -> TenantRegistry {
    let device = |name: &str, model| DeviceSetup {
        name: name.to_owned(),
        model,
        switches: Switches::default(),
    };
    let devices = vec![device("a", Some(DeviceModel::device_a())), device("disk", None)];
    TenantRegistry::new(devices, 2, 4)
}

fn add(registry: &mut TenantRegistry, name: &str, slo: Option<Slo>) -> Result<Admission, Refusal> {
    registry.register(name, slo.into(), None, Origin::Operator, NOW)
}

#[test]
fn one_number_on_every_device() {
    let mut registry = registry();
    assert_eq!(add(&mut registry, "gold", slo(500, 120_000, 100)).unwrap().tenant, TenantId(1));
    assert_eq!(
        add(&mut registry, TenantRegistry::DEFAULT, slo(0, 0, 0)).unwrap().tenant,
        TenantId(0)
    );
    let classes = |tenant| [0, 1].map(|n| registry.devices.at(n).registry.shared().class(tenant));
    assert_eq!(classes(TenantId(1)), [Class::LatencyCritical, Class::BestEffort]);
    assert_eq!(classes(TenantId(0)), [Class::BestEffort; 2]);
    let gold = &registry.list()[1];
    assert_eq!((gold.name.as_str(), gold.tokens_needed), ("gold", 120_000));
    let devices = registry.devices().infos();
    assert_eq!((devices[0].tokens, devices[0].tokens_left), (Some(420_000), Some(300_000)));
    assert_eq!((devices[0].latency_us, devices[1].tokens), (Some(500), None));
}

#[test]
fn a_device_with_promises_in_windows_tells_its_headroom() {
    let told = |promises| {
        let switches = Switches { promises, ..Switches::default() };
        let model = Some(DeviceModel::device_a());
        let device = DeviceSetup { name: "a".to_owned(), model, switches };
        let mut registry = TenantRegistry::new(vec![device], 2, 4);
        let none = registry.devices().infos()[0].tokens_headroom;
        assert_eq!(none, 0, "nothing is promised");
        add(&mut registry, "gold", slo(500, 20_000, 100)).unwrap();
        let info = &registry.devices().infos()[0];
        (info.tokens.unwrap(), info.tokens_headroom)
    };
    assert_eq!(told(Promises::OnAverage), (420_000, 0));
    let (tokens, headroom) = told(Promises::InWindows);
    assert!((45_000..50_000).contains(&headroom), "{headroom}");
    assert!((419_999..=420_000).contains(&(tokens + headroom)), "{tokens}");
}

#[test]
fn a_check_tells_the_headroom_that_there_would_be() {
    let told = |promises, iops| {
        let switches = Switches { promises, ..Switches::default() };
        let model = Some(DeviceModel::device_a());
        let device = DeviceSetup { name: "a".to_owned(), model, switches };
        let mut registry = TenantRegistry::new(vec![device], 2, 4);
        let asked = Slo::new(500, iops, 100);
        let checked = registry.check(asked, None, None).unwrap();
        add(&mut registry, "gold", slo(500, 20_000, 100)).unwrap();
        let headroom = registry.devices().infos()[0].tokens_headroom;
        (checked, headroom)
    };
    let (Verdict::Admitted { tokens_headroom, .. }, 0) = told(Promises::OnAverage, 20_000) else {
        panic!("it fits");
    };
    assert_eq!(tokens_headroom, 0);
    let (checked, headroom) = told(Promises::InWindows, 20_000);
    let Verdict::Admitted { tokens_headroom, .. } = checked else { panic!("{checked:?}") };
    assert_eq!(tokens_headroom, headroom, "what is kept back once it is admitted");
    let (checked, _) = told(Promises::InWindows, 410_000);
    let Verdict::Refused { refusal: Refusal::TooMuch { tokens_headroom, .. }, .. } = checked else {
        panic!("{checked:?}");
    };
    assert!(tokens_headroom > 10_000, "it would fit without: {tokens_headroom}");
}

#[test]
fn refusals_speak_in_names() {
    let mut registry = registry();
    add(&mut registry, "gold", slo(500, 120_000, 100)).unwrap();
    let text = |refusal: Result<Admission, Refusal>| refusal.unwrap_err().to_string();
    assert_eq!(
        text(add(&mut registry, "silver", slo(2_000, 400_000, 100))),
        "needs 400 000 tokens/s of 300 000 available; the device makes 420 000 at p95 ≤ 500 µs, \
         the bound of tenant \"gold\""
    );
    assert!(text(add(&mut registry, "gold", slo(0, 0, 0))).contains("already"));
    assert!(text(add(&mut registry, "", slo(0, 0, 0))).contains("no name"));
    let disk = registry.register("x", slo(500, 1, 100).into(), Some("disk"), Origin::Operator, NOW);
    assert!(text(disk).contains("nearflash calibrate"));
    let none = registry.register("x", slo(0, 0, 0).into(), Some("tape"), Origin::Operator, NOW);
    assert_eq!(text(none), "there is no device \"tape\"; there are: a, disk");
    assert!(text(registry.change("lead", slo(0, 0, 0).into(), NOW)).contains("there are: gold"));
    let Ok(Verdict::Refused { ways, .. }) = registry.check(Slo::new(500, 400_000, 100), None, None)
    else {
        panic!("it cannot fit");
    };
    assert_eq!((ways.iops, ways.leave), (Some(300_000), vec!["gold".to_owned()]));
    for name in ["b", "c"] {
        add(&mut registry, name, slo(0, 0, 0)).unwrap();
    }
    assert!(text(add(&mut registry, "d", slo(0, 0, 0))).contains("table of 4"));
}

#[test]
fn a_number_is_free_when_every_worker_has_let_go() {
    let mut registry = registry();
    let tenant = add(&mut registry, "gold", slo(500, 1_000, 100)).unwrap().tenant;
    let meters = [registry.meters(0), registry.meters(1)];
    let meter = |n: usize| meters[n].get(tenant).unwrap();
    meter(1).admit();
    registry.unregister("gold", NOW).unwrap();
    let told: Vec<WorkerMessage> = registry.take_news().collect();
    assert!(matches!(told[..], [WorkerMessage::Leave { tenant: left }] if left == tenant));
    assert_eq!(add(&mut registry, "gold", slo(500, 1_000, 100)).unwrap().tenant, TenantId(2));
    assert_eq!(registry.list()[0].state, State::Leaving);
    meter(0).end_epoch();
    meter(1).end_epoch();
    registry.settle(NOW);
    assert_eq!(registry.list().len(), 2, "a request is in flight");
    meter(1).retire(1);
    registry.settle(NOW);
    assert_eq!((registry.list().len(), registry.tenants.member(TenantId(1)).epoch), (1, 1));
    assert_eq!(add(&mut registry, "third", slo(0, 0, 0)).unwrap().tenant, tenant);
}

#[test]
fn a_percentile_needs_its_rates_and_a_share_a_model() {
    let mut registry = registry();
    let strict = Some(Slo { percentile_tenths: 990, ..Slo::new(1_000, 1_000, 100) });
    let text = |refusal: Refusal| refusal.to_string();
    let unknown = text(add(&mut registry, "gold", strict).unwrap_err());
    assert!(unknown.contains("device \"a\" has no rates for p99"), "{unknown}");
    add(&mut registry, "batch", slo(0, 0, 0)).unwrap();
    let share = Share { weight: 3, cap_tokens: Some(500) };
    let to = |share| Promise::BestEffort(Some(share));
    registry.change("batch", to(share), NOW).unwrap();
    assert_eq!(registry.list()[0].promise, Promise::BestEffort(share));
    // Without a model, there are no tokens to share.
    let portions = [0, 1].map(|n| registry.devices.at(n).registry.portion(TenantId(1)).weight);
    assert_eq!(portions, [3, 1]);
    for bad in [Share { weight: 1_001, ..share }, Share { cap_tokens: Some(0), ..share }] {
        let why = text(registry.change("batch", to(bad), NOW).unwrap_err());
        assert!(why.contains("expected a number from 1"), "{why}");
    }
    registry.register("tape", slo(0, 0, 0).into(), Some("disk"), Origin::Operator, NOW).unwrap();
    let why = text(registry.change("tape", to(share), NOW).unwrap_err());
    assert!(why.contains("\"disk\" has none"), "{why}");
    let best_effort = Promise::BestEffort(share);
    let refused = registry.register("iron", best_effort, Some("disk"), Origin::Operator, NOW);
    assert!(text(refused.unwrap_err()).contains("\"disk\" has none"));
    assert_eq!(registry.find("iron"), None);
    // The default share needs no model.
    registry.change("tape", to(Share::default()), NOW).unwrap();
}

#[test]
fn a_device_whose_delays_grow_is_corrected_where_that_is_asked_for() {
    let device = |name: &str, correct_online| DeviceSetup {
        name: name.to_owned(),
        model: Some(DeviceModel::device_a()),
        switches: Switches { correct_online, ..Switches::default() },
    };
    let mut registry = TenantRegistry::new(vec![device("new", true), device("old", false)], 1, 4);
    for (name, device) in [("gold", "new"), ("iron", "old")] {
        registry
            .register(name, slo(500, 10_000, 50).into(), Some(device), Origin::Operator, NOW)
            .unwrap();
    }
    let mut schedulers =
        [0, 1].map(|n| registry.devices().scheduler(n, 0, QueueLimits { slots: 8, of_tenant: 8 }));
    let delay = Duration::from_millis(5);
    for window in 1..=4 {
        let now = NOW + Duration::from_millis(100 * window);
        for scheduler in &mut schedulers {
            (0..300).for_each(|_| scheduler.ended(IoKind::Read, delay));
            scheduler.begin_round(now);
            while scheduler.next().is_some() {}
        }
        registry.observe(now);
        // Too soon for another window.
        registry.observe(now + Duration::from_millis(1));
    }
    let [new, old] = &registry.devices().infos()[..] else { panic!("two devices") };
    assert!(new.correction.is_some_and(|now| now.write_permille > 1_000), "{new:?}");
    assert!(old.correction.is_none(), "{old:?}");
    // More expensive writes need more tokens for the same SLO.
    let [gold, iron] = [0, 1].map(|n| registry.list()[n].tokens_needed);
    assert_eq!((new.tokens_promised, old.tokens_promised), (gold, iron));
    assert!(gold > iron && iron == 55_000, "{gold} {iron}");
}

#[test]
fn what_the_configuration_names_stays() {
    let mut registry = registry();
    let tenant = add(&mut registry, "gold", slo(500, 1_000, 100)).unwrap().tenant;
    registry.pin(tenant, "access rule 1");
    let refusal = registry.unregister("gold", NOW).unwrap_err();
    assert!(refusal.to_string().contains("access rule 1"), "{refusal}");
    registry.change("gold", slo(0, 0, 0).into(), NOW).unwrap();
    assert_eq!(registry.list()[0].class, Class::BestEffort);
}

#[test]
fn a_frozen_book_stays_as_it_is_and_knows_names() {
    let mut registry = registry();
    let gold = add(&mut registry, "gold", slo(500, 1000, 100)).unwrap().tenant;
    let member = registry.member("gold").unwrap();
    assert_eq!((member.tenant, member.epoch), (gold, 0));
    assert_eq!(registry.name_of(gold, None), Some("gold"));
    assert_eq!(registry.name_of(gold, Some(1)), None, "that is somebody else");
    registry.freeze(true);
    assert_eq!(add(&mut registry, "silver", slo(0, 0, 0)).unwrap_err(), Refusal::Upgrading);
    assert_eq!(registry.change("gold", slo(0, 0, 0).into(), NOW).unwrap_err(), Refusal::Upgrading);
    assert_eq!(registry.unregister("gold", NOW).unwrap_err(), Refusal::Upgrading);
    registry.freeze(false);
    registry.unregister("gold", NOW).unwrap();
    assert_eq!((registry.name_of(gold, None), registry.member("gold")), (None, None));
}

#[test]
fn devices_come_and_go_and_tenants_are_known_on_all_of_them() {
    let mut registry = registry();
    let share = Share { weight: 3, cap_tokens: None };
    let origin = Origin::Operator;
    registry.register("old", Promise::BestEffort(share), None, origin, NOW).unwrap();
    let setup = DeviceSetup {
        name: "new".to_owned(),
        model: Some(DeviceModel::device_a()),
        switches: Switches::default(),
    };
    assert_eq!(registry.add_device(setup, 2, NOW), Ok(()));
    let old = registry.find("old").unwrap();
    assert_eq!(registry.devices.at(2).registry.portion(old).weight, share.weight);
    registry.register("gold", slo(500, 120_000, 100).into(), Some("new"), origin, NOW).unwrap();
    let told = registry.remove_device("new").unwrap_err().to_string();
    assert_eq!(told, "device \"new\" cannot be removed: tenant \"gold\" is on it");
    assert!(registry.remove_device("a").is_err(), "a tenant is there that named none");
    registry.unregister("gold", NOW).unwrap();
    let told = registry.check_device_end("new").unwrap_err().to_string();
    assert!(told.contains("leaving"), "{told}");
    for meters in registry.meters.all() {
        let gold = meters.get(TenantId(2)).unwrap();
        gold.end_epoch();
    }
    registry.settle(NOW);
    assert_eq!(registry.remove_device("new"), Ok(()));
    let names = |registry: &TenantRegistry| -> Vec<String> {
        registry.device_flows().into_iter().map(|(info, _)| info.name).collect()
    };
    assert_eq!(names(&registry), ["a", "disk"]);
    assert!(
        matches!(registry.remove_device("new"), Err(Refusal::NoDevice { known, .. }) if known.len() == 2)
    );
    registry.restore_device(2);
    assert_eq!(names(&registry), ["a", "disk", "new"]);
    registry.remove_device("new").unwrap();
    // A device of the same name gets a place of its own.
    let again = DeviceSetup { name: "new".to_owned(), model: None, switches: Switches::default() };
    assert_eq!(registry.add_device(again.clone(), 3, NOW), Ok(()));
    assert_eq!(registry.add_device(again, 4, NOW), Err(Refusal::Taken("new".to_owned())));
    assert_eq!(add(&mut registry, "more", slo(0, 0, 0)).unwrap().tenant, TenantId(2));
    // A place is not an index into the list of existing devices.
    assert_eq!(registry.devices().infos().len(), 3);
    assert_eq!(
        (registry.devices.at(0).tokens_left(), registry.devices.at(3).tokens_left()),
        (registry.devices().infos()[0].tokens_left, None)
    );
    let on_gone = registry.register_on("late", Promise::default(), 2, origin, NOW);
    assert!(matches!(on_gone, Err(Refusal::NoDevice { .. })), "{on_gone:?}");
}

/// Tests that the counts of a removed device whose place is reused go on, and are not the new
/// device's.
#[test]
fn a_device_in_the_place_of_another_begins_anew() {
    let mut registry = registry();
    let setup = |name: &str| DeviceSetup {
        name: name.to_owned(),
        model: Some(DeviceModel::device_a()),
        switches: Switches::default(),
    };
    registry.add_device(setup("one"), 2, NOW).unwrap();
    let strict = slo(500, 120_000, 100).into();
    registry.register("gold", strict, Some("one"), Origin::Operator, NOW).unwrap();
    registry.unregister("gold", NOW).unwrap();
    registry.meters.all().iter().for_each(|meters| meters.get(TenantId(1)).unwrap().end_epoch());
    registry.settle(NOW);
    let made = registry.devices.made()[2];
    registry.remove_device("one").unwrap();
    registry.add_device(setup("two"), 2, NOW).unwrap();
    assert_eq!(registry.devices.made()[2], made, "counters of a place never go back");
    let infos = registry.devices().infos();
    let names: Vec<&str> = infos.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["a", "disk", "two"]);
    assert_eq!(infos[2].tokens_promised, 0);
    registry.register("silver", strict, Some("two"), Origin::Operator, NOW).unwrap();
    assert_eq!(
        registry.check_device_end("two").unwrap_err().to_string().matches("silver").count(),
        1
    );
}

#[test]
fn a_batch_that_was_begun_ends_or_is_undone_though_all_is_frozen() {
    use crate::registry::batch::TenantChange;
    let strict = Some(Slo::new(500, 100_000, 100));
    let changes = [
        TenantChange::Set {
            name: "gold".to_owned(),
            to: None.into(),
            note: Some("new".into()),
            device: None,
        },
        TenantChange::Add(Tenant { promise: strict.into(), ..Tenant::new("new") }),
        TenantChange::Remove { name: "gone".to_owned() },
    ];
    for is_kept in [false, true] {
        let mut registry = registry();
        add(&mut registry, "gold", strict).unwrap();
        add(&mut registry, "gone", None).unwrap();
        let begun = Batch::begin(&mut registry, &changes, NOW).unwrap();
        registry.freeze(true);
        let noted = |registry: &TenantRegistry| registry.info(registry.find("gold").unwrap()).note;
        assert_eq!(noted(&registry).as_deref(), Some("new"));
        let promised = |registry: &TenantRegistry, name: &str| {
            let tenant = registry.find(name)?;
            Some(registry.info(tenant).promise.slo().map_or(0, |slo| slo.latency_us))
        };
        if is_kept {
            begun.end(&mut registry, NOW);
            assert_eq!(promised(&registry, "gone"), None);
            assert_eq!(
                (promised(&registry, "gold"), promised(&registry, "new")),
                (Some(0), Some(500))
            );
        } else {
            // No such tenant would be admitted now.
            begun.undo(&mut registry, NOW);
            assert_eq!((promised(&registry, "new"), noted(&registry)), (None, None));
            assert_eq!(
                (promised(&registry, "gold"), promised(&registry, "gone")),
                (Some(500), Some(0))
            );
        }
    }
}

#[test]
fn a_promise_moves_to_another_device_or_stays_where_it_is() {
    use crate::registry::batch::TenantChange;
    let mut registry = registry();
    let model = Some(DeviceModel::device_a());
    let setup = DeviceSetup { name: "b".to_owned(), model, switches: Switches::default() };
    registry.add_device(setup, 2, NOW).unwrap();
    let strict = slo(500, 100_000, 100);
    let gold = add(&mut registry, "gold", strict).unwrap().tenant;
    let to = |device: &str| {
        let (name, device) = ("gold".to_owned(), Some(device.to_owned()));
        [TenantChange::Set { name, to: strict.into(), note: None, device }]
    };
    let stands = |registry: &TenantRegistry| {
        let class = |place| registry.devices.at(place).registry.shared().class(gold);
        (registry.info(gold).device, [0, 2].map(class))
    };
    let on_a = ("a".to_owned(), [Class::LatencyCritical, Class::BestEffort]);
    let on_b = ("b".to_owned(), [Class::BestEffort, Class::LatencyCritical]);
    let begun = Batch::begin(&mut registry, &to("b"), NOW).unwrap();
    assert_eq!(stands(&registry), on_b);
    begun.undo(&mut registry, NOW);
    assert_eq!(stands(&registry), on_a);
    let large = slo(500, 400_000, 100).into();
    registry.register("silver", large, Some("b"), Origin::Operator, NOW).unwrap();
    for (device, words) in [("disk", "nearflash calibrate"), ("tape", "disk"), ("b", "silver")] {
        let (_, refusal) = Batch::begin(&mut registry, &to(device), NOW).unwrap_err();
        assert!(refusal.to_string().contains(words), "{refusal}");
        assert_eq!(stands(&registry), on_a);
    }
    let verdict = registry.check(strict.unwrap(), Some("gold"), Some("b")).unwrap();
    assert!(matches!(verdict, Verdict::Refused { .. }), "{verdict:?}");
    registry.change("silver", slo(500, 1_000, 100).into(), NOW).unwrap();
    Batch::begin(&mut registry, &to("b"), NOW).unwrap().end(&mut registry, NOW);
    assert_eq!(stands(&registry), on_b);
    assert_eq!(registry.devices().infos()[0].tokens_promised, 0);
    assert_eq!(registry.check_device_end("a"), Ok(0), "nobody is on it any more");
}

/// Tests that a note changes although the tenant's promise does not fit into the model any more.
#[test]
fn a_note_changes_beside_a_promise_that_would_be_refused() {
    use crate::registry::batch::TenantChange;
    let mut registry = registry();
    let strict = Slo::new(500, 100_000, 100);
    let gold = add(&mut registry, "gold", Some(strict)).unwrap().tenant;
    let fresh = DeviceModel::device_a();
    let tenth = |point: &qos::RatePoint| qos::RatePoint {
        mixed: point.mixed / 10,
        read_only: point.read_only / 10,
        ..*point
    };
    let points = fresh.points().iter().map(tenth).collect();
    let worn = DeviceModel::new(fresh.cost().clone(), points, fresh.rate_max() / 10).unwrap();
    registry.set_model("a", worn, NOW).unwrap();
    let set = |note: Option<&str>| TenantChange::Set {
        name: "gold".to_owned(),
        to: Some(strict).into(),
        note: note.map(str::to_owned),
        device: None,
    };
    let (_, refusal) = Batch::begin(&mut registry, &[set(None)], NOW).unwrap_err();
    assert!(matches!(refusal, Refusal::TooMuch { .. }), "{refusal}");
    for (note, shown) in [("worn out", Some("worn out")), ("", None)] {
        Batch::begin(&mut registry, &[set(Some(note))], NOW).unwrap().end(&mut registry, NOW);
        assert_eq!(registry.info(gold).note.as_deref(), shown);
        assert_eq!(registry.info(gold).promise, Some(strict).into());
    }
    registry.freeze(true);
    let (_, refusal) = Batch::begin(&mut registry, &[set(Some("late"))], NOW).unwrap_err();
    assert_eq!(refusal, Refusal::Upgrading);
}

/// Tests that a tenant that ended during a batch stays ended after its undo: its number may belong
/// to another tenant by then.
#[test]
fn what_has_ended_while_it_was_changed_stays_so_when_that_is_undone() {
    let mut registry = registry();
    let mine = Some(Slo::new(500, 100_000, 100));
    let tenant = add(&mut registry, "gold", mine).unwrap().tenant;
    let name = "gold".to_owned();
    let changes = [TenantChange::Set { name, to: None.into(), note: None, device: None }];
    let ends = |registry: &mut TenantRegistry| {
        let begun = Batch::begin(registry, &changes, NOW).unwrap();
        registry.unregister("gold", NOW).unwrap();
        (0..2).for_each(|n| registry.meters(n).get(tenant).unwrap().end_epoch());
        registry.settle(NOW);
        begun
    };
    let begun = ends(&mut registry);
    begun.undo(&mut registry, NOW);
    add(&mut registry, "gold", mine).unwrap();
    let begun = ends(&mut registry);
    assert_eq!(add(&mut registry, "other", slo(0, 0, 0)).unwrap().tenant, tenant);
    begun.undo(&mut registry, NOW);
    assert_eq!(registry.info(tenant).promise.slo(), None);
    assert_eq!(registry.devices().infos()[0].tokens_promised, 0);
}
