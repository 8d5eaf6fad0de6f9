//! The registry: who is admitted, what is granted, and who is refused.

use contract::Scheduler as _;

use crate::{Holding, UndoCopy};

use super::*;
use crate::units::{NEG_LIMIT, nano};

fn slo(latency_us: u32, iops: u32, read_percent: u8) -> Option<Slo> {
    (latency_us > 0).then(|| Slo::new(latency_us, iops, read_percent))
}

fn registry() -> Registry {
    Registry::new(DeviceModel::device_a(), 8)
}

#[test]
fn figure_five() {
    let mut registry = registry();
    let mut register = |slo| registry.register(slo, Instant::ZERO).unwrap();
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
    let mut register = |slo| registry.register(slo, Instant::ZERO).unwrap().tenant;
    let strict = register(slo(500, 300_000, 100));
    let lax = register(slo(2_000, 100_000, 100));
    assert!(matches!(registry.check(slo(500, 310_000, 100)), Verdict::Refused { .. }));
    let larger = registry.check_change(strict, slo(500, 310_000, 100));
    assert_eq!(larger, Verdict::Admitted { needed: 31_000_000, left: 1_000_000, headroom: 0 });
    // Without the strict one the device makes what it does at 2 ms.
    let freed = registry.check_change(strict, slo(0, 0, 0));
    assert_eq!(freed, Verdict::Admitted { needed: 0, left: 57_000_000 - 10_000_000, headroom: 0 });
    let Verdict::Refused { ways, .. } = registry.check_change(lax, slo(500, 130_000, 100)) else {
        panic!("it does not fit beside the strict one")
    };
    assert_eq!((ways.iops, ways.leave), (Some(120_000), alloc::vec![strict]));
}

#[test]
fn changes_move_rates_between_pools() {
    let mut registry = registry();
    assert_eq!(registry.shared().lent(), 100_000_000);
    let now = Instant::ZERO;
    let a = registry.register(slo(2_000, 20_000, 90), now).unwrap().tenant;
    assert_eq!(registry.shared().lent(), 57_000_000);
    let b = registry.register(slo(0, 0, 0), now).unwrap().tenant;
    assert_eq!(registry.shared().share(), 57_000_000 - 3_800_000);
    registry.change(a, slo(500, 10_000, 90), now).unwrap();
    assert_eq!(registry.shared().share(), 42_000_000 - 1_900_000);
    registry.change(a, slo(0, 0, 0), now).unwrap();
    assert_eq!(registry.shared().share(), 50_000_000);
    for tenant in [a, b] {
        registry.unregister(tenant, now).unwrap();
        assert_eq!(registry.unregister(tenant, now), Err(Refusal::NoTenant));
        assert!(registry.remove(tenant, now) && !registry.remove(tenant, now));
    }
    assert_eq!(registry.shared().lent(), 100_000_000);
    assert_eq!(registry.shared().best_effort(), 0);
    assert_eq!(registry.register(slo(0, 0, 0), now).unwrap().tenant, a);
}

#[test]
fn a_full_table_and_a_full_device_refuse() {
    let mut registry = registry();
    let mut admitted = 0;
    let refusal = loop {
        match registry.register(slo(2_000, 20_000, 90), Instant::ZERO) {
            Ok(_) => admitted += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((admitted, refusal), (8, Refusal::TableFull));
    assert!(registry.promised() <= registry.device_rate());
    let much = registry.check(slo(2_000, 200_000, 90));
    assert!(matches!(much, Verdict::Refused { refusal: Refusal::TooMuch(_), .. }));
    let tight = registry.check(slo(500, 1, 100));
    assert!(matches!(tight, Verdict::Admitted { needed: 100, .. }), "{tight:?}");
}

#[test]
fn weights_share_what_is_left() {
    let mut registry = registry();
    let now = Instant::ZERO;
    let heavy = registry.register(slo(0, 0, 0), now).unwrap().tenant;
    let light = registry.register(slo(0, 0, 0), now).unwrap().tenant;
    registry.set_portion(heavy, FairShare { weight: 3, cap: None }, now).unwrap();
    assert_eq!((registry.shared().share(), registry.shared().best_effort()), (25_000_000, 4));
    // Class and back keeps the weight.
    registry.change(heavy, slo(2_000, 1_000, 100), now).unwrap();
    assert_eq!(registry.shared().share(), 57_000_000 - 100_000);
    registry.change(heavy, slo(0, 0, 0), now).unwrap();
    assert_eq!(registry.portion(heavy), FairShare { weight: 3, cap: None });
    registry.set_portion(light, FairShare { weight: 4, cap: Some(9) }, now).unwrap();
    assert_eq!(registry.portion(light), FairShare { weight: 4, cap: Some(9) });
    assert_eq!(registry.shared().share(), 100_000_000 / 7);
    // Nothing is lost to whole units.
    assert_eq!(registry.shared().lent(), 100_000_000);
    for portion in [(0, None), (1_001, None), (1, Some(0))] {
        let portion = FairShare { weight: portion.0, cap: portion.1 };
        let refused = registry.set_portion(light, portion, now);
        assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
    }
    registry.unregister(light, now).unwrap();
    registry.remove(light, now);
    assert_eq!(registry.shared().share(), 100_000_000 / 3);
    assert_eq!(registry.register(slo(0, 0, 0), now).unwrap().tenant, light);
    assert_eq!(registry.portion(light), FairShare::default());
    assert_eq!(registry.shared().share(), 25_000_000);
}

#[test]
fn a_corrected_device_promises_less_and_grants_what_it_has() {
    let mut registry = registry();
    let now = Instant::ZERO;
    let reader = registry.register(slo(500, 120_000, 100), now).unwrap().tenant;
    let writer = registry.register(slo(500, 10_000, 0), now).unwrap().tenant;
    registry.register(slo(0, 0, 0), now).unwrap();
    assert_eq!(registry.shared().share(), 20_000_000);
    // Writes have become half as dear again: 150 K tokens a second for the writer.
    let dearer = Adjustment { write_permille: 1_500, ..Adjustment::NONE };
    registry.adjust(dearer, now);
    assert_eq!((registry.promised(), registry.shared().share()), (27_000_000, 15_000_000));
    assert_eq!((registry.shared().lent(), registry.shared().prices().write), (42_000_000, 1_500));
    // And the device serves half of it all: 210 K tokens of 270 K.
    registry.adjust(Adjustment { rate_permille: 500, ..dearer }, now);
    assert_eq!((registry.device_rate(), registry.left()), (21_000_000, 0));
    let rate = |tenant: TenantId| registry.shared().tenant(tenant.0).terms().rate;
    assert_eq!((rate(reader), rate(writer)), (9_333_333, 11_666_666));
    assert!(registry.shared().lent() <= 21_000_000);
    let refused = registry.check(slo(2_000, 1, 100));
    assert!(matches!(refused, Verdict::Refused { .. }), "{refused:?}");
    // One goes: the other has what it was promised.
    registry.unregister(writer, now).unwrap();
    let rate = |tenant: TenantId| registry.shared().tenant(tenant.0).terms().rate;
    assert_eq!((rate(reader), registry.left()), (12_000_000, 9_000_000));
    registry.adjust(Adjustment::NONE, now);
    assert_eq!((registry.left(), registry.shared().lent()), (30_000_000, 42_000_000));
}

#[test]
fn another_model_keeps_promises_and_names_who_does_not_fit() {
    let mut registry = registry();
    let now = Instant::ZERO;
    let reader = registry.register(slo(500, 120_000, 100), now).unwrap().tenant;
    let writer = registry.register(slo(500, 10_000, 0), now).unwrap().tenant;
    let model = |write, tokens: u64, latency_us| {
        let rate = tokens * 100;
        let row = crate::RatePoint { latency_us, mixed: rate, read_only: rate };
        DeviceModel::new(CostModel::linear(write, 80).unwrap(), alloc::vec![row], rate).unwrap()
    };
    assert_eq!(registry.displaced(&model(2_000, 420_000, 500)), []);
    registry.set_model(model(2_000, 420_000, 500), now).unwrap();
    assert_eq!((registry.promised(), registry.left()), (32_000_000, 10_000_000));
    let prices = Prices { write: 2_000, read_only_read: 80, tax: 0 };
    assert_eq!(registry.shared().prices(), prices);
    // 320 K tokens are promised, of 160 K.
    let half = model(2_000, 160_000, 500);
    assert_eq!(registry.displaced(&half), [writer]);
    registry.set_model(half, now).unwrap();
    let rate = |tenant: TenantId| registry.shared().tenant(tenant.0).terms().rate;
    assert_eq!((rate(reader), rate(writer), registry.left()), (6_000_000, 10_000_000, 0));
    // A model that knows nothing of what was promised changes nothing.
    let lax = model(1_000, 420_000, 1_000);
    assert_eq!(registry.displaced(&lax), [reader, writer]);
    assert!(matches!(registry.set_model(lax, now), Err(Refusal::TooTight { .. })));
    assert_eq!(registry.shared().prices(), prices);
    registry.set_model(DeviceModel::device_a(), now).unwrap();
    assert_eq!((registry.left(), registry.shared().lent()), (20_000_000, 42_000_000));
}

/// Checks that a series of changes recomputes the rates of all tenants once, since otherwise its
/// cost would be its length times the number of tenants.
#[test]
fn a_row_of_changes_works_out_once_what_all_have() {
    const MANY: u32 = 1_000;
    let now = Instant::ZERO;
    let change = |in_a_row: bool| {
        let mut registry = Registry::new(DeviceModel::device_a(), MANY as usize);
        for _ in 0..MANY {
            registry.register(slo(500, 400, 100), now).unwrap();
        }
        registry.adjust(Adjustment { rate_permille: 200, ..Adjustment::NONE }, now);
        let all = || (0..MANY).map(TenantId);
        let before: Vec<UndoCopy> = all().map(|tenant| registry.lot_of(tenant)).collect();
        let mut seen = Vec::new();
        let mut row = |registry: &mut Registry, make: &dyn Fn(&mut Registry)| {
            let rounds = registry.grants.rounds;
            if in_a_row {
                registry.begin_row();
            }
            make(registry);
            if in_a_row {
                registry.end_row(now);
                assert!(registry.grants.rounds <= rounds + 1);
            }
            let shared = registry.shared();
            let terms = (0..shared.tenants_max() as u32).map(|n| shared.tenant(n).terms());
            let terms: Vec<_> = terms.map(|terms| (terms.class, terms.rate)).collect();
            seen.push((terms, shared.share(), shared.lent(), registry.left()));
        };
        row(&mut registry, &|registry| {
            for tenant in all().filter(|tenant| tenant.0 % 2 == 0) {
                registry.change(tenant, slo(0, 0, 0), now).unwrap();
            }
        });
        assert!(registry.promised() > registry.device_rate(), "they have parts still");
        row(&mut registry, &|registry| {
            all().zip(&before).for_each(|(tenant, lot)| registry.put_back(tenant, *lot, now));
        });
        row(&mut registry, &|registry| {
            for tenant in all().filter(|tenant| tenant.0 % 8 > 0) {
                registry.unregister(tenant, now).unwrap();
            }
        });
        assert!(registry.left() > 0, "all have what they were promised");
        row(&mut registry, &|_| {});
        seen
    };
    assert_eq!(change(true), change(false));
}

/// Asserts that the tokens that one process generated are spent, expired or held.
fn adds_up(registry: &Registry, schedulers: &[&TokenScheduler]) {
    let all = schedulers.iter().map(|one| one.totals()).chain([registry.totals()]);
    let (made, gone) = all.fold((0, 0), |(made, gone), totals| {
        (made + totals.generated, gone + totals.spent + totals.expired)
    });
    assert_eq!(made, gone + registry.shared().held());
}

/// A server process in a take-over: a registry, one scheduler, and the slots of its requests.
struct Process {
    registry: Registry,
    scheduler: TokenScheduler,
    slots: contract::SlotTable<()>,
}

impl Process {
    /// Creates a process with a latency-critical tenant of 1 000 reads a second, and a best-effort
    /// tenant. Returns it with their numbers.
    fn new() -> (Process, TenantId, TenantId) {
        let mut registry = registry();
        let strict = registry.register(slo(1_000, 1_000, 100), Instant::ZERO).unwrap().tenant;
        let shares = registry.register(slo(0, 0, 0), Instant::ZERO).unwrap().tenant;
        let scheduler = registry.scheduler(0, QueueLimits { slots: 64, of_tenant: 64 });
        (Process { registry, scheduler, slots: contract::SlotTable::new(64) }, strict, shares)
    }

    /// Queues a read of `bytes` bytes for a tenant.
    fn ask(&mut self, tenant: TenantId, bytes: usize) {
        let slot = self.slots.insert(()).unwrap();
        self.scheduler.enqueue(tenant, contract::IoKind::Read, bytes, slot).unwrap();
    }

    /// Runs a round at `us` microseconds. Returns the number of requests that it submits.
    fn round(&mut self, us: u64) -> usize {
        self.scheduler.begin_round(Instant::from_nanos(us * 1_000));
        core::iter::from_fn(|| self.scheduler.next()).map(|slot| self.slots.remove(slot)).count()
    }

    fn balance(&self, tenant: TenantId) -> i64 {
        self.registry.shared().balance(tenant)
    }
}

/// Checks that a dropped scheduler releases its tenants, since otherwise a removed tenant would
/// keep its number for as long as the process lives.
#[test]
fn a_scheduler_that_is_dropped_holds_nobody() {
    let (mut process, strict, shares) = Process::new();
    let idle = process.registry.shared().lent();
    process.round(1);
    process.ask(strict, 4096);
    process.ask(shares, 1 << 20);
    assert_eq!(process.round(2), 1, "one rests, and one saves for what it cannot pay yet");
    process.scheduler.withdraw(shares, &mut |_| true, &mut Vec::new());
    let holders =
        |tenant: TenantId, registry: &Registry| registry.shared().tenant(tenant.0).terms().holders;
    let Process { mut registry, scheduler, .. } = process;
    // The strict one was served the short way, for which nobody has to hold it.
    assert_eq!((scheduler.queued(), [strict, shares].map(|t| holders(t, &registry))), (0, [0, 1]));
    assert!(registry.shared().lent() < idle);
    drop(scheduler);
    assert_eq!([strict, shares].map(|tenant| holders(tenant, &registry)), [0, 0]);
    assert_eq!(registry.shared().lent(), idle, "what they make is made for others");
    let now = Instant::from_nanos(3_000);
    for tenant in [strict, shares] {
        registry.unregister(tenant, now).unwrap();
        assert!(registry.remove(tenant, now));
    }
}

/// Returns a process whose strict tenant has read 1 MiB, which is 206 ms more than it may be ahead.
fn indebted() -> (Process, TenantId, TenantId) {
    let (mut process, strict, shares) = Process::new();
    process.ask(strict, 1 << 20);
    assert_eq!(process.round(1_000), 1);
    process.ask(strict, 4096);
    assert_eq!(process.round(2_000), 0, "it is in deficit");
    (process, strict, shares)
}

#[test]
fn a_tenant_in_deficit_stays_there_in_another_process() {
    let (mut old, strict, _) = indebted();
    let now = Instant::from_nanos(2_000_000);
    let told = old.registry.bequeath(now);
    assert_eq!(told, [(strict, Holding { balance: old.balance(strict), allowance: 0 })]);
    assert!(told[0].1.balance < -nano(20_000), "{told:?}");
    adds_up(&old.registry, &[&old.scheduler]);
    let (mut new, _, _) = Process::new();
    assert!(new.registry.inherit(strict, told[0].1, now));
    assert_eq!(new.balance(strict), old.balance(strict), "it owes in both");
    adds_up(&new.registry, &[&new.scheduler]);
    new.ask(strict, 4096);
    // It has to pay back what it owes beyond 50 tokens at 1 000 a second, as in one process.
    let times: Vec<u64> = (3..400).map(|ms| ms * 1_000).collect();
    let goes = times.into_iter().find(|us| new.round(*us) == 1).unwrap();
    assert!((200_000..=210_000).contains(&goes), "{goes} µs");
    adds_up(&new.registry, &[&new.scheduler]);
    // What it spends in the older process beyond that, as a connection that stays there does.
    assert!(old.registry.spent_since(&told, now).is_empty());
    assert_eq!(old.round(250_000), 1);
    old.ask(strict, 1 << 20);
    assert_eq!(old.round(251_000), 1);
    let later = Instant::from_nanos(251_000_000);
    let since = old.registry.spent_since(&told, later);
    let before = new.balance(strict);
    let [(tenant, more)] = since[..] else { panic!("{since:?}") };
    assert_eq!((tenant, more.balance), (strict, old.balance(strict) - told[0].1.balance));
    assert!(more.balance < 0, "{more:?}");
    assert!(new.registry.inherit(strict, more, later));
    assert_eq!(new.balance(strict), before + more.balance);
    adds_up(&new.registry, &[&new.scheduler]);
}

#[test]
fn a_debt_that_came_along_refuses_nobody_for_good() {
    let (mut old, strict, _) = indebted();
    let now = Instant::from_nanos(2_000_000);
    let told = old.registry.bequeath(now);
    let (mut new, _, _) = Process::new();
    new.registry.fail_fast(true);
    new.round(1);
    assert!(new.registry.inherit(strict, told[0].1, now));
    // Nobody holds it, so only a request has it repay; the next are refused until it has.
    new.ask(strict, 4096);
    assert_eq!(new.round(3_000), 0);
    let slot = new.slots.insert(()).unwrap();
    assert!(new.scheduler.enqueue(strict, contract::IoKind::Read, 4096, slot).is_err());
    new.slots.remove(slot);
    let served: usize = (4..400).map(|ms| new.round(ms * 1_000)).sum();
    assert_eq!(served, 1);
    new.ask(strict, 4096);
    adds_up(&new.registry, &[&new.scheduler]);
}

#[test]
fn what_is_put_back_is_not_judged_anew() {
    let mut registry = registry();
    let now = Instant::ZERO;
    let most = |reads: u32| slo(1_000, reads, 100);
    let tenant = registry.register(most(100_000), now).unwrap().tenant;
    let before = registry.lot_of(tenant);
    registry.change(tenant, slo(0, 0, 0), now).unwrap();
    // Others take all that it gave up.
    for reads in [400_000, 200_000, 100_000, 50_000] {
        let _ = registry.register(most(reads), now);
    }
    assert!(registry.change(tenant, most(100_000), now).is_err());
    registry.put_back(tenant, before, now);
    let terms = registry.shared().tenant(tenant.0).terms();
    assert_eq!(terms.class, Class::LatencyCritical);
}

#[test]
fn what_a_tenant_has_is_in_one_process_at_a_time() {
    let (mut old, strict, shares) = Process::new();
    // It saves for what it cannot pay yet.
    old.round(1);
    old.ask(shares, 1 << 20);
    assert_eq!(old.round(2), 0);
    assert_eq!(old.round(50), 0);
    let saved = old.balance(shares);
    assert!(saved > 0);
    let told = old.registry.bequeath(Instant::from_nanos(50_000));
    assert!(told.contains(&(shares, Holding { balance: saved, allowance: 0 })), "{told:?}");
    assert_eq!(old.balance(shares), 0, "it is the other's");
    adds_up(&old.registry, &[&old.scheduler]);
    let (mut new, _, _) = Process::new();
    let now = Instant::from_nanos(60_000);
    for (tenant, held) in &told {
        assert!(new.registry.inherit(*tenant, *held, now));
    }
    assert_eq!(new.balance(shares), saved);
    adds_up(&new.registry, &[&new.scheduler]);
    // The other process has failed.
    old.registry.keep(&told);
    assert_eq!((old.balance(shares), old.balance(strict)), (saved, 0));
    adds_up(&old.registry, &[&old.scheduler]);
}

#[test]
fn what_no_scheduler_could_come_to_is_not_inherited() {
    let (mut process, strict, shares) = Process::new();
    let (dearest, now) = (nano(256 * (100 + 1_000)), Instant::from_nanos(5));
    for tenant in [strict, shares] {
        for _twice in 0..2 {
            let debt = Holding { balance: i64::MIN, allowance: i64::MIN };
            assert!(process.registry.inherit(tenant, debt, now));
            assert_eq!(process.balance(tenant), NEG_LIMIT - dearest);
            adds_up(&process.registry, &[&process.scheduler]);
        }
        let much = Holding { balance: i64::MAX, allowance: i64::MAX };
        assert!(process.registry.inherit(tenant, much, now));
        adds_up(&process.registry, &[&process.scheduler]);
    }
    // What three of the longest rounds make for the one, the dearest request for the other.
    assert_eq!(process.balance(strict), generated(100_000, 3_000_000));
    assert_eq!(process.balance(shares), dearest);
    assert!(!process.registry.inherit(TenantId(7), Holding::default(), now), "nobody is there");
    assert!(!process.registry.inherit(TenantId(u32::MAX), Holding::default(), now));
}

#[test]
fn a_tenant_beyond_its_cap_stays_there_in_another_process() {
    let (mut old, _, shares) = Process::new();
    let capped = FairShare { weight: 1, cap: Some(100_000) };
    old.registry.set_portion(shares, capped, Instant::ZERO).unwrap();
    old.round(1_000);
    old.ask(shares, 1 << 20);
    let times: Vec<u64> = (2..200).map(|ms| ms * 1_000).collect();
    let went = times.into_iter().find(|us| old.round(*us) == 1).unwrap();
    let told = old.registry.bequeath(Instant::from_nanos(went * 1_000));
    let held = told.iter().find(|(tenant, _)| *tenant == shares).unwrap().1;
    assert!(held.allowance < -nano(20_000), "{held:?}");
    let (mut new, _, _) = Process::new();
    new.registry.set_portion(shares, capped, Instant::ZERO).unwrap();
    assert!(new.registry.inherit(shares, held, Instant::from_nanos(went * 1_000)));
    new.ask(shares, 4096);
    assert_eq!(new.round(went + 1_000), 0, "a tenth of a second would do");
    assert_eq!(new.round(went + 300_000), 1);
    adds_up(&new.registry, &[&new.scheduler]);
}
