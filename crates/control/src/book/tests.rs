//! Tests of the registry.

use super::*;
use crate::words::Share;
use contract::{Feedback, Kind, Scheduler};

const NOW: Instant = Instant::ZERO;

fn slo(latency_us: u32, iops: u32, read_percent: u8) -> Slo {
    Slo { latency_us, iops, read_percent, ..Slo::default() }
}

fn book() -> Book {
    let device = |name: &str, model| DeviceSetup {
        name: name.to_owned(),
        model,
        switches: Switches::default(),
    };
    let devices = vec![device("a", Some(DeviceModel::device_a())), device("disk", None)];
    Book::new(devices, 2, 4)
}

fn add(book: &mut Book, name: &str, slo: Slo) -> Result<Admission, Refusal> {
    book.register(name, &slo, None, Origin::Operator, NOW)
}

#[test]
fn one_number_on_every_device() {
    let mut book = book();
    assert_eq!(add(&mut book, "gold", slo(500, 120_000, 100)).unwrap().tenant, TenantId(1));
    assert_eq!(add(&mut book, Book::DEFAULT, slo(0, 0, 0)).unwrap().tenant, TenantId(0));
    let classes = |tenant| [0, 1].map(|n| book.devices[n].registry.shared().class(tenant));
    assert_eq!(classes(TenantId(1)), [Class::LatencyCritical, Class::BestEffort]);
    assert_eq!(classes(TenantId(0)), [Class::BestEffort; 2]);
    let gold = &book.list()[1];
    assert_eq!((gold.name.as_str(), gold.tokens_needed), ("gold", 120_000));
    let devices = book.device_infos();
    assert_eq!((devices[0].tokens, devices[0].tokens_left), (Some(420_000), Some(300_000)));
    assert_eq!((devices[0].latency_us, devices[1].tokens), (Some(500), None));
}

#[test]
fn refusals_speak_in_names() {
    let mut book = book();
    add(&mut book, "gold", slo(500, 120_000, 100)).unwrap();
    let text = |refusal: Result<Admission, Refusal>| refusal.unwrap_err().to_string();
    assert_eq!(
        text(add(&mut book, "silver", slo(2_000, 400_000, 100))),
        "needs 400000 tokens/s of 300000 available; the device makes 420000 at p95 ≤ 500 µs, \
         the bound of tenant \"gold\""
    );
    assert!(text(add(&mut book, "gold", slo(0, 0, 0))).contains("already"));
    assert!(text(add(&mut book, "", slo(0, 0, 0))).contains("no name"));
    let disk = book.register("x", &slo(500, 1, 100), Some("disk"), Origin::Operator, NOW);
    assert!(text(disk).contains("nearflash calibrate"));
    let none = book.register("x", &slo(0, 0, 0), Some("tape"), Origin::Operator, NOW);
    assert_eq!(text(none), "there is no device \"tape\"; there are: a, disk");
    assert!(text(book.change("lead", &slo(0, 0, 0), NOW)).contains("there are: gold"));
    let Ok(Verdict::Refused { ways, .. }) = book.check(&slo(500, 400_000, 100), None) else {
        panic!("it cannot fit");
    };
    assert_eq!((ways.iops, ways.leave), (Some(300_000), vec!["gold".to_owned()]));
    for name in ["b", "c"] {
        add(&mut book, name, slo(0, 0, 0)).unwrap();
    }
    assert!(text(add(&mut book, "d", slo(0, 0, 0))).contains("table of 4"));
}

#[test]
fn a_number_is_free_when_every_worker_has_let_go() {
    let mut book = book();
    let tenant = add(&mut book, "gold", slo(500, 1_000, 100)).unwrap().tenant;
    let meters = [book.meters(0), book.meters(1)];
    let meter = |n: usize| meters[n].get(tenant).unwrap();
    meter(1).admit();
    book.unregister("gold", NOW).unwrap();
    assert_eq!(book.leaves, [tenant]);
    assert_eq!(add(&mut book, "gold", slo(500, 1_000, 100)).unwrap().tenant, TenantId(2));
    assert_eq!(book.list()[0].state, State::Leaving);
    meter(0).end_epoch();
    meter(1).end_epoch();
    book.settle(NOW);
    assert_eq!(book.list().len(), 2, "a request is in flight");
    meter(1).retire(1);
    book.settle(NOW);
    assert_eq!((book.list().len(), book.epochs[1]), (1, 1));
    assert_eq!(add(&mut book, "third", slo(0, 0, 0)).unwrap().tenant, tenant);
}

#[test]
fn a_percentile_needs_its_rates_and_a_share_a_model() {
    let mut book = book();
    let strict = Slo { percentile_tenths: 990, ..slo(1_000, 1_000, 100) };
    let text = |refusal: Refusal| refusal.to_string();
    let unknown = text(add(&mut book, "gold", strict).unwrap_err());
    assert!(unknown.contains("device \"a\" has no rates for p99"), "{unknown}");
    add(&mut book, "batch", slo(0, 0, 0)).unwrap();
    let share = Share { weight: 3, cap_tokens: Some(500) };
    book.set_share("batch", share, NOW).unwrap();
    assert_eq!(book.list()[0].share, share);
    // Without a model, there are no tokens to share.
    let portions = [0, 1].map(|n| book.devices[n].registry.portion(TenantId(1)).weight);
    assert_eq!(portions, [3, 1]);
    for bad in [Share { weight: 1_001, ..share }, Share { cap_tokens: Some(0), ..share }] {
        let why = text(book.set_share("batch", bad, NOW).unwrap_err());
        assert!(why.contains("expected a number from 1"), "{why}");
    }
    book.register("tape", &slo(0, 0, 0), Some("disk"), Origin::Operator, NOW).unwrap();
    let why = text(book.set_share("tape", share, NOW).unwrap_err());
    assert!(why.contains("\"disk\" has none"), "{why}");
    let (gold, slo) = (Some(share), slo(500, 1_000, 100));
    let refused = book.register_sharing("gold", &slo, gold, None, Origin::Operator, NOW);
    assert!(text(refused.unwrap_err()).contains("promised a latency"));
    assert_eq!(book.find("gold"), None);
}

#[test]
fn a_device_whose_delays_grow_is_corrected_where_that_is_asked_for() {
    let device = |name: &str, correct_online| DeviceSetup {
        name: name.to_owned(),
        model: Some(DeviceModel::device_a()),
        switches: Switches { correct_online, ..Switches::default() },
    };
    let mut book = Book::new(vec![device("new", true), device("old", false)], 1, 4);
    for (name, device) in [("gold", "new"), ("iron", "old")] {
        book.register(name, &slo(500, 10_000, 50), Some(device), Origin::Operator, NOW).unwrap();
    }
    let mut schedulers =
        [0, 1].map(|n| book.scheduler(n, 0, QueueLimits { slots: 8, of_tenant: 8 }));
    let delay = Duration::from_millis(5);
    for window in 1..=4 {
        let now = NOW + Duration::from_millis(100 * window);
        for scheduler in &mut schedulers {
            (0..300).for_each(|_| scheduler.ended(Kind::Read, delay));
            scheduler.begin_round(now);
            while scheduler.next().is_some() {}
        }
        book.observe(now);
        // Too soon for another window.
        book.observe(now + Duration::from_millis(1));
    }
    let [new, old] = &book.device_infos()[..] else { panic!("two devices") };
    assert!(new.correction.is_some_and(|now| now.write_permille > 1_000), "{new:?}");
    assert!(old.correction.is_none(), "{old:?}");
    // More expensive writes need more tokens for the same SLO.
    let [gold, iron] = [0, 1].map(|n| book.list()[n].tokens_needed);
    assert_eq!((new.tokens_promised, old.tokens_promised), (gold, iron));
    assert!(gold > iron && iron == 55_000, "{gold} {iron}");
}

#[test]
fn what_the_configuration_names_stays() {
    let mut book = book();
    let tenant = add(&mut book, "gold", slo(500, 1_000, 100)).unwrap().tenant;
    book.pin(tenant, "access rule 1");
    let refusal = book.unregister("gold", NOW).unwrap_err();
    assert!(refusal.to_string().contains("access rule 1"), "{refusal}");
    book.change("gold", &slo(0, 0, 0), NOW).unwrap();
    assert_eq!(book.list()[0].class, Class::BestEffort);
}

#[test]
fn a_frozen_book_stays_as_it_is_and_knows_names() {
    let mut book = book();
    let gold = add(&mut book, "gold", slo(500, 1000, 100)).unwrap().tenant;
    let member = book.member("gold").unwrap();
    assert_eq!((member.tenant, member.epoch), (gold, 0));
    assert_eq!(book.name_of(gold, None), Some("gold"));
    assert_eq!(book.name_of(gold, Some(1)), None, "that is somebody else");
    book.freeze(true);
    assert_eq!(add(&mut book, "silver", slo(0, 0, 0)).unwrap_err(), Refusal::Upgrading);
    assert_eq!(book.change("gold", &slo(0, 0, 0), NOW).unwrap_err(), Refusal::Upgrading);
    assert_eq!(book.unregister("gold", NOW).unwrap_err(), Refusal::Upgrading);
    book.freeze(false);
    book.unregister("gold", NOW).unwrap();
    assert_eq!((book.name_of(gold, None), book.member("gold")), (None, None));
}

#[test]
fn devices_come_and_go_and_tenants_are_known_on_all_of_them() {
    let mut book = book();
    let share = Share { weight: 3, cap_tokens: None };
    let origin = Origin::Operator;
    book.register_sharing("old", &slo(0, 0, 0), Some(share), None, origin, NOW).unwrap();
    let setup = DeviceSetup {
        name: "new".to_owned(),
        model: Some(DeviceModel::device_a()),
        switches: Switches::default(),
    };
    assert_eq!(book.add_device(setup, NOW), Ok(2));
    let old = book.find("old").unwrap();
    assert_eq!(Share::from(book.devices[2].registry.portion(old)), share);
    book.register("gold", &slo(500, 120_000, 100), Some("new"), origin, NOW).unwrap();
    let told = book.remove_device("new").unwrap_err().to_string();
    assert_eq!(told, "device \"new\" cannot be removed: tenant \"gold\" is on it");
    assert!(book.remove_device("a").is_err(), "a tenant is there that named none");
    book.unregister("gold", NOW).unwrap();
    let told = book.check_device_end("new").unwrap_err().to_string();
    assert!(told.contains("leaving"), "{told}");
    for meters in book.meters.clone() {
        let gold = meters.get(TenantId(2)).unwrap();
        gold.end_epoch();
    }
    book.settle(NOW);
    assert_eq!(book.remove_device("new"), Ok(()));
    let names = |book: &Book| -> Vec<String> {
        book.device_flows().into_iter().map(|(info, _)| info.name).collect()
    };
    assert_eq!(names(&book), ["a", "disk"]);
    assert!(
        matches!(book.remove_device("new"), Err(Refusal::NoDevice { known, .. }) if known.len() == 2)
    );
    book.restore_device(2);
    assert_eq!(names(&book), ["a", "disk", "new"]);
    book.remove_device("new").unwrap();
    // A device of the same name gets a place of its own.
    let again = DeviceSetup { name: "new".to_owned(), model: None, switches: Switches::default() };
    assert_eq!(book.add_device(again.clone(), NOW), Ok(3));
    assert_eq!(book.add_device(again, NOW), Err(Refusal::Taken("new".to_owned())));
    assert_eq!(add(&mut book, "more", slo(0, 0, 0)).unwrap().tenant, TenantId(2));
    // A place is not an index into the list of existing devices.
    assert_eq!(book.device_infos().len(), 3);
    assert_eq!(
        (book.tokens_left(0), book.tokens_left(3)),
        (book.device_infos()[0].tokens_left, None)
    );
    let on_gone = book.register_on("late", &slo(0, 0, 0), 2, origin, NOW);
    assert!(matches!(on_gone, Err(Refusal::NoDevice { .. })), "{on_gone:?}");
}

#[test]
fn a_batch_that_was_begun_ends_or_is_undone_though_all_is_frozen() {
    use crate::book::batch::TenantChange;
    let strict = Slo { iops: 100_000, latency_us: 500, read_percent: 100, ..Slo::default() };
    let changes = [
        TenantChange::Set { name: "gold".to_owned(), slo: Slo::default(), share: None },
        TenantChange::Add { name: "new".to_owned(), slo: strict, share: None, device: None },
        TenantChange::Remove { name: "gone".to_owned() },
    ];
    for is_kept in [false, true] {
        let mut book = book();
        add(&mut book, "gold", strict).unwrap();
        add(&mut book, "gone", Slo::default()).unwrap();
        let undo = book.begin_batch(&changes, NOW).unwrap();
        book.freeze(true);
        let promised = |book: &Book, name: &str| {
            let tenant = book.find(name)?;
            Some(book.info(tenant).slo.latency_us)
        };
        if is_kept {
            book.end_batch(&changes, NOW);
            assert_eq!(promised(&book, "gone"), None);
            assert_eq!((promised(&book, "gold"), promised(&book, "new")), (Some(0), Some(500)));
        } else {
            // No such tenant would be admitted now.
            book.undo_batch(undo, NOW);
            assert_eq!(promised(&book, "new"), None);
            assert_eq!((promised(&book, "gold"), promised(&book, "gone")), (Some(500), Some(0)));
        }
    }
}

/// Tests that a tenant that ended during a batch stays ended after its undo: its number may belong
/// to another tenant by then.
#[test]
fn what_has_ended_while_it_was_changed_stays_so_when_that_is_undone() {
    let mut book = book();
    let mine = Slo { iops: 100_000, latency_us: 500, read_percent: 100, ..Slo::default() };
    let tenant = add(&mut book, "gold", mine).unwrap().tenant;
    let name = "gold".to_owned();
    let changes = [TenantChange::Set { name, slo: Slo::default(), share: None }];
    let ends = |book: &mut Book| {
        let undo = book.begin_batch(&changes, NOW).unwrap();
        book.unregister("gold", NOW).unwrap();
        (0..2).for_each(|n| book.meters(n).get(tenant).unwrap().end_epoch());
        book.settle(NOW);
        undo
    };
    let undo = ends(&mut book);
    book.undo_batch(undo, NOW);
    add(&mut book, "gold", mine).unwrap();
    let undo = ends(&mut book);
    assert_eq!(add(&mut book, "other", slo(0, 0, 0)).unwrap().tenant, tenant);
    book.undo_batch(undo, NOW);
    assert_eq!(book.info(tenant).slo.latency_us, 0);
    assert_eq!(book.device_infos()[0].tokens_promised, 0);
}
