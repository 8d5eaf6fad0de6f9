//! The registry: who is admitted, what is granted, and who is refused.

use super::*;

fn slo(latency_us: u32, iops: u32, read_percent: u8) -> Slo {
    Slo { latency_us, iops, read_percent, ..Slo::default() }
}

fn registry() -> Registry {
    Registry::new(DeviceModel::device_a(), 8)
}

#[test]
fn figure_five() {
    let mut registry = registry();
    let mut register = |slo| registry.register(&slo, Instant::ZERO).unwrap();
    let a = register(slo(500, 120_000, 100));
    let b = register(slo(500, 70_000, 80));
    let _c = register(slo(0, 0, 0));
    let d = register(slo(0, 0, 0));
    assert_eq!([a.needed, b.needed, d.left], [12_000_000, 19_600_000, 10_400_000]);
    assert_eq!(registry.shared().share(), 5_200_000);
    assert_eq!(registry.shared().round_nanos(), 25_000);
    // All of them are idle, so all is lent.
    assert_eq!(registry.shared().lent(), 42_000_000);
}

#[test]
fn a_change_is_checked_beside_the_others_alone() {
    let mut registry = registry();
    let mut register = |slo| registry.register(&slo, Instant::ZERO).unwrap().tenant;
    let strict = register(slo(500, 300_000, 100));
    let lax = register(slo(2_000, 100_000, 100));
    assert!(matches!(registry.check(&slo(500, 310_000, 100)), Verdict::Refused { .. }));
    let larger = registry.check_change(strict, &slo(500, 310_000, 100));
    assert_eq!(larger, Verdict::Admitted { needed: 31_000_000, left: 1_000_000 });
    // Without the strict one the device makes what it does at 2 ms.
    let freed = registry.check_change(strict, &slo(0, 0, 0));
    assert_eq!(freed, Verdict::Admitted { needed: 0, left: 57_000_000 - 10_000_000 });
    let Verdict::Refused { ways, .. } = registry.check_change(lax, &slo(500, 130_000, 100)) else {
        panic!("it does not fit beside the strict one")
    };
    assert_eq!((ways.iops, ways.leave), (Some(120_000), alloc::vec![strict]));
}

#[test]
fn changes_move_rates_between_pools() {
    let mut registry = registry();
    assert_eq!(registry.shared().lent(), 100_000_000);
    let now = Instant::ZERO;
    let a = registry.register(&slo(2_000, 20_000, 90), now).unwrap().tenant;
    assert_eq!(registry.shared().lent(), 57_000_000);
    let b = registry.register(&slo(0, 0, 0), now).unwrap().tenant;
    assert_eq!(registry.shared().share(), 57_000_000 - 3_800_000);
    registry.change(a, &slo(500, 10_000, 90), now).unwrap();
    assert_eq!(registry.shared().share(), 42_000_000 - 1_900_000);
    registry.change(a, &slo(0, 0, 0), now).unwrap();
    assert_eq!(registry.shared().share(), 50_000_000);
    for tenant in [a, b] {
        registry.unregister(tenant, now).unwrap();
        assert_eq!(registry.unregister(tenant, now), Err(Refusal::NoTenant));
        assert!(registry.remove(tenant, now) && !registry.remove(tenant, now));
    }
    assert_eq!(registry.shared().lent(), 100_000_000);
    assert_eq!(registry.shared().best_effort(), 0);
    assert_eq!(registry.register(&slo(0, 0, 0), now).unwrap().tenant, a);
}

#[test]
fn a_full_table_and_a_full_device_refuse() {
    let mut registry = registry();
    let mut admitted = 0;
    let refusal = loop {
        match registry.register(&slo(2_000, 20_000, 90), Instant::ZERO) {
            Ok(_) => admitted += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((admitted, refusal), (8, Refusal::TableFull));
    assert!(registry.promised() <= registry.device_rate());
    let much = registry.check(&slo(2_000, 200_000, 90));
    assert!(matches!(much, Verdict::Refused { refusal: Refusal::TooMuch(_), .. }));
    let tight = registry.check(&slo(500, 1, 100));
    assert!(matches!(tight, Verdict::Admitted { needed: 100, .. }), "{tight:?}");
}

#[test]
fn weights_share_what_is_left() {
    let mut registry = registry();
    let now = Instant::ZERO;
    let heavy = registry.register(&slo(0, 0, 0), now).unwrap().tenant;
    let light = registry.register(&slo(0, 0, 0), now).unwrap().tenant;
    registry.set_portion(heavy, Portion { weight: 3, cap: None }, now).unwrap();
    assert_eq!((registry.shared().share(), registry.shared().best_effort()), (25_000_000, 4));
    // Class and back keeps the weight.
    registry.change(heavy, &slo(2_000, 1_000, 100), now).unwrap();
    assert_eq!(registry.shared().share(), 57_000_000 - 100_000);
    registry.change(heavy, &slo(0, 0, 0), now).unwrap();
    assert_eq!(registry.portion(heavy), Portion { weight: 3, cap: None });
    registry.set_portion(light, Portion { weight: 4, cap: Some(9) }, now).unwrap();
    assert_eq!(registry.portion(light), Portion { weight: 4, cap: Some(9) });
    assert_eq!(registry.shared().share(), 100_000_000 / 7);
    // Nothing is lost to whole units.
    assert_eq!(registry.shared().lent(), 100_000_000);
    for portion in [(0, None), (1_001, None), (1, Some(0))] {
        let portion = Portion { weight: portion.0, cap: portion.1 };
        let refused = registry.set_portion(light, portion, now);
        assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
    }
    registry.unregister(light, now).unwrap();
    registry.remove(light, now);
    assert_eq!(registry.shared().share(), 100_000_000 / 3);
    assert_eq!(registry.register(&slo(0, 0, 0), now).unwrap().tenant, light);
    assert_eq!(registry.portion(light), Portion::default());
    assert_eq!(registry.shared().share(), 25_000_000);
}

#[test]
fn a_corrected_device_promises_less_and_grants_what_it_has() {
    let mut registry = registry();
    let now = Instant::ZERO;
    let reader = registry.register(&slo(500, 120_000, 100), now).unwrap().tenant;
    let writer = registry.register(&slo(500, 10_000, 0), now).unwrap().tenant;
    registry.register(&slo(0, 0, 0), now).unwrap();
    assert_eq!(registry.shared().share(), 20_000_000);
    // Writes have become half as dear again: 150 K tokens a second for the writer.
    let dearer = Adjustment { write_permille: 1_500, ..Adjustment::NONE };
    registry.adjust(dearer, now);
    assert_eq!((registry.promised(), registry.shared().share()), (27_000_000, 15_000_000));
    assert_eq!((registry.shared().lent(), registry.shared().prices().write), (42_000_000, 1_500));
    // And the device serves half of it all: 210 K tokens of 270 K.
    registry.adjust(Adjustment { rate_permille: 500, ..dearer }, now);
    assert_eq!((registry.device_rate(), registry.left()), (21_000_000, 0));
    let rate = |tenant: TenantId| registry.shared().tenants[tenant.0 as usize].terms().rate;
    assert_eq!((rate(reader), rate(writer)), (9_333_333, 11_666_666));
    assert!(registry.shared().lent() <= 21_000_000);
    let refused = registry.check(&slo(2_000, 1, 100));
    assert!(matches!(refused, Verdict::Refused { .. }), "{refused:?}");
    // One goes: the other has what it was promised.
    registry.unregister(writer, now).unwrap();
    let rate = |tenant: TenantId| registry.shared().tenants[tenant.0 as usize].terms().rate;
    assert_eq!((rate(reader), registry.left()), (12_000_000, 9_000_000));
    registry.adjust(Adjustment::NONE, now);
    assert_eq!((registry.left(), registry.shared().lent()), (30_000_000, 42_000_000));
}

#[test]
fn another_model_keeps_promises_and_names_who_does_not_fit() {
    let mut registry = registry();
    let now = Instant::ZERO;
    let reader = registry.register(&slo(500, 120_000, 100), now).unwrap().tenant;
    let writer = registry.register(&slo(500, 10_000, 0), now).unwrap().tenant;
    let model = |write, tokens: u64, latency_us| {
        let rate = tokens * 100;
        let row = crate::RatePoint { latency_us, mixed: rate, read_only: rate };
        DeviceModel::new(CostModel::linear(write, 80).unwrap(), alloc::vec![row], rate).unwrap()
    };
    assert_eq!(registry.displaced(&model(2_000, 420_000, 500)), []);
    registry.set_model(model(2_000, 420_000, 500), now).unwrap();
    assert_eq!((registry.promised(), registry.left()), (32_000_000, 10_000_000));
    let prices = Prices { write: 2_000, read_only_read: 80 };
    assert_eq!(registry.shared().prices(), prices);
    // 320 K tokens are promised, of 160 K.
    let half = model(2_000, 160_000, 500);
    assert_eq!(registry.displaced(&half), [writer]);
    registry.set_model(half, now).unwrap();
    let rate = |tenant: TenantId| registry.shared().tenants[tenant.0 as usize].terms().rate;
    assert_eq!((rate(reader), rate(writer), registry.left()), (6_000_000, 10_000_000, 0));
    // A model that knows nothing of what was promised changes nothing.
    let lax = model(1_000, 420_000, 1_000);
    assert_eq!(registry.displaced(&lax), [reader, writer]);
    assert!(matches!(registry.set_model(lax, now), Err(Refusal::TooTight { .. })));
    assert_eq!(registry.shared().prices(), prices);
    registry.set_model(DeviceModel::device_a(), now).unwrap();
    assert_eq!((registry.left(), registry.shared().lent()), (20_000_000, 42_000_000));
}
