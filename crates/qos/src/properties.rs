//! Properties of the fast scheduler: it decides what the reference decides, tokens are conserved,
//! balances stay within their bounds, nobody starves.

use alloc::vec;
use alloc::vec::Vec;

use contract::{Instant, Kind, Scheduler, Slo, Slot, SlotTable, TenantId};
use proptest::prelude::*;

use crate::admission::Refusal;
use crate::reference::Reference;
use crate::units::{NEG_LIMIT, nano};
use crate::{DeviceModel, IdleRule, QueueLimits, Registry, TokenScheduler};

const LIMITS: QueueLimits = QueueLimits { slots: 4096, of_tenant: 4096 };

/// When everything begins.
const START: Instant = Instant::from_nanos(1_000_000_000);

/// A registry with latency-critical tenants of these IOPS (100 % reads, 500 µs), then so many
/// best-effort ones.
fn registry(critical: &[u32], best_effort: usize) -> Registry {
    let mut registry = Registry::new(DeviceModel::device_a(), critical.len() + best_effort + 1);
    for iops in critical {
        let slo = Slo { latency_us: 500, iops: *iops, read_percent: 100, ..Slo::default() };
        registry.register(&slo, START).unwrap();
    }
    for _ in 0..best_effort {
        registry.register(&Slo::default(), START).unwrap();
    }
    registry
}

fn visiting(registry: &Registry, worker: usize, idle: IdleRule) -> TokenScheduler {
    let cost = registry.model().cost().clone();
    TokenScheduler::new(registry.shared().clone(), cost, worker, LIMITS, idle)
}

/// A request of a tenant.
#[derive(Clone, Debug)]
struct Ask {
    tenant: usize,
    kind: Kind,
    bytes: usize,
}

/// What happens before a round, and how much later than the last one it is.
#[derive(Clone, Debug)]
struct Step {
    asks: Vec<Ask>,
    at: Jump,
}

#[derive(Clone, Debug)]
enum Jump {
    Forward(u64),
    Back(u64),
}

fn ask(tenants: usize) -> impl Strategy<Value = Ask> {
    let kind = prop_oneof![4 => Just(Kind::Read), 1 => Just(Kind::Write), 1 => Just(Kind::Exchange), 1 => Just(Kind::Other)];
    let bytes = prop_oneof![6 => Just(4096usize), 2 => 0usize..200_000, 1 => Just(1 << 20)];
    (0..tenants, kind, bytes).prop_map(|(tenant, kind, bytes)| Ask { tenant, kind, bytes })
}

fn step(tenants: usize) -> impl Strategy<Value = Step> {
    let at = prop_oneof![
        8 => (500u64..100_000).prop_map(Jump::Forward),
        1 => Just(Jump::Forward(0)),
        1 => (0u64..50_000_000).prop_map(Jump::Forward),
        1 => Just(Jump::Forward(3_600_000_000_000)),
        1 => (0u64..1_000_000_000).prop_map(Jump::Back),
    ];
    let asks = prop::collection::vec(ask(tenants), 0..12);
    (asks, at).prop_map(|(asks, at)| Step { asks, at })
}

fn moved(at: &mut u64, jump: &Jump) -> Instant {
    *at = match jump {
        Jump::Forward(by) => *at + by,
        Jump::Back(by) => at.saturating_sub(*by),
    };
    Instant::from_nanos(*at)
}

/// The tenants and steps of a case.
fn case() -> impl Strategy<Value = (Vec<u32>, usize, Vec<Step>)> {
    let critical = prop::collection::vec(1u32..100_000, 0..4);
    (critical, 0usize..4)
        .prop_filter("somebody", |(critical, best_effort)| critical.len() + best_effort > 0)
        .prop_flat_map(|(critical, best_effort)| {
            let tenants = critical.len() + best_effort;
            let steps = prop::collection::vec(step(tenants), 1..60);
            (Just(critical), Just(best_effort), steps)
        })
}

/// Submits all that a round lets go.
fn drain(scheduler: &mut TokenScheduler, table: &mut SlotTable<usize>, most: usize) -> Vec<usize> {
    let next = || scheduler.next().map(|slot: Slot| table.remove(slot));
    core::iter::from_fn(next).take(most).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    /// With Algorithm 1's own rule for tenants without demand: the same decisions in the same
    /// order, the same balances to the last nano-unit, the same notices.
    #[test]
    fn decides_what_the_reference_decides((critical, best_effort, steps) in case()) {
        let registry = registry(&critical, best_effort);
        let mut fast = visiting(&registry, 0, IdleRule::Visit);
        let rates: Vec<Option<u64>> = critical.iter().map(|iops| Some(u64::from(*iops) * 100))
            .chain(vec![None; best_effort]).collect();
        let mut reference = Reference::new(&rates, registry.left());
        let mut table = SlotTable::new(LIMITS.slots);
        // The first round makes every latency-critical tenant known.
        let known = (0..critical.len()).map(|tenant| Ask { tenant, kind: Kind::Read, bytes: 1 });
        let first = Step { asks: known.collect(), at: Jump::Forward(0) };
        let mut at = START.as_nanos();
        for step in core::iter::once(&first).chain(&steps) {
            for ask in &step.asks {
                let slot = table.insert(ask.tenant).unwrap();
                let tenant = TenantId(ask.tenant as u32);
                fast.enqueue(tenant, ask.kind, ask.bytes, slot).unwrap();
                let cost = registry.model().cost().cost(ask.kind, ask.bytes);
                reference.enqueue(ask.tenant, cost);
            }
            let now = moved(&mut at, &step.at);
            fast.begin_round(now);
            let load = fast.load;
            let submitted = drain(&mut fast, &mut table, usize::MAX);
            prop_assert_eq!(submitted, reference.schedule(now.as_nanos(), load));
            for (n, tenant) in reference.tenants.iter().enumerate() {
                let id = TenantId(n as u32);
                prop_assert_eq!(registry.shared().balance(id), tenant.tokens);
                prop_assert_eq!(registry.shared().usage(id).deficits, tenant.deficits);
                prop_assert_eq!(fast.queued_of(id) as usize, tenant.queue.len());
            }
            prop_assert_eq!(registry.shared().bucket.held(), reference.bucket);
        }
    }

    /// Several workers, tenants on any of them, rounds cut short: nothing is made or lost on the
    /// way, and balances stay within their bounds.
    #[test]
    fn tokens_are_conserved(
        (critical, best_effort, steps) in case(),
        workers in 1usize..4,
        choices in prop::collection::vec((0usize..4, 0usize..40, 0u8..20), 60),
    ) {
        let mut registry = registry(&critical, best_effort);
        let tenants = critical.len() + best_effort;
        let mut all: Vec<TokenScheduler> =
            (0..workers).map(|worker| visiting(&registry, worker, IdleRule::Rest)).collect();
        let mut table = SlotTable::new(LIMITS.slots);
        let mut at = START.as_nanos();
        for (step, (worker, most, change)) in steps.iter().zip(&choices) {
            let scheduler = &mut all[worker % workers];
            for ask in &step.asks {
                let slot = table.insert(ask.tenant).unwrap();
                let tenant = TenantId(ask.tenant as u32);
                if scheduler.enqueue(tenant, ask.kind, ask.bytes, slot).is_err() {
                    table.remove(slot);
                }
            }
            let now = moved(&mut at, &step.at);
            let tenant = TenantId(u32::from(*change) % tenants as u32);
            match change {
                0..3 => assert!(matches!(registry.unregister(tenant, now), Ok(()) | Err(Refusal::NoTenant))),
                3..6 => assert!(matches!(registry.change(tenant, &Slo::default(), now), Ok(_) | Err(Refusal::NoTenant))),
                6..9 => {
                    let slo = Slo { latency_us: 600, iops: 5_000, ..Slo::default() };
                    let answer = registry.change(tenant, &slo, now);
                    let expected = matches!(
                        answer,
                        Ok(_) | Err(Refusal::NoTenant | Refusal::TooMuch(_))
                    );
                    prop_assert!(expected, "{answer:?}");
                }
                9 => {
                    registry.remove(tenant, now);
                }
                _ => {}
            }
            scheduler.begin_round(now);
            drain(scheduler, &mut table, if *most < 20 { *most } else { usize::MAX });
            let totals = all.iter().map(TokenScheduler::totals).chain([registry.totals()]);
            let (made, gone) = totals.fold((0, 0), |(made, gone), totals| {
                (made + totals.generated, gone + totals.spent + totals.expired)
            });
            prop_assert_eq!(made, gone + registry.shared().held());
            let largest = nano(281_600);
            for n in 0..tenants {
                let tokens = registry.shared().balance(TenantId(n as u32));
                prop_assert!(tokens > NEG_LIMIT - largest, "tenant {} has {}", n, tokens);
            }
            prop_assert!(registry.promised() <= registry.device_rate());
        }
    }

    /// Several workers, whose clocks are read a little apart, with tenants on any of them: together
    /// they make no more than the device serves, not by a nano-unit.
    #[test]
    fn no_more_is_made_than_the_device_serves(
        (critical, best_effort, steps) in case(),
        workers in 1usize..4,
        choices in prop::collection::vec((0usize..4, 0usize..40, 0u64..30_000), 60),
    ) {
        let registry = registry(&critical, best_effort);
        let mut all: Vec<TokenScheduler> =
            (0..workers).map(|worker| visiting(&registry, worker, IdleRule::Rest)).collect();
        let mut table = SlotTable::new(LIMITS.slots);
        let mut at = START.as_nanos();
        for (step, (worker, most, behind)) in steps.iter().zip(&choices) {
            let scheduler = &mut all[worker % workers];
            for ask in &step.asks {
                let slot = table.insert(ask.tenant).unwrap();
                let tenant = TenantId(ask.tenant as u32);
                scheduler.enqueue(tenant, ask.kind, ask.bytes, slot).unwrap();
            }
            if let Jump::Forward(by) = step.at {
                at += by;
            }
            scheduler.begin_round(Instant::from_nanos(at.saturating_sub(*behind)));
            drain(scheduler, &mut table, if *most < 20 { *most } else { usize::MAX });
            let made: i128 = all.iter().map(|scheduler| scheduler.totals().generated).sum();
            let served = i128::from(registry.device_rate()) * i128::from(at - START.as_nanos());
            prop_assert!(made <= served, "{} of {}", made, served);
        }
    }

    /// Nothing expires in a round that leaves a best-effort tenant waiting (or, without one, any
    /// tenant): tokens that nobody owns and demand never outlast it together.
    #[test]
    fn work_is_conserved((critical, best_effort, steps) in case()) {
        let registry = registry(&critical, best_effort);
        let mut fast = visiting(&registry, 0, IdleRule::Rest);
        let mut table = SlotTable::new(LIMITS.slots);
        let mut at = START.as_nanos();
        for step in &steps {
            for ask in &step.asks {
                let slot = table.insert(ask.tenant).unwrap();
                let tenant = TenantId(ask.tenant as u32);
                fast.enqueue(tenant, ask.kind, ask.bytes, slot).unwrap();
            }
            let before = fast.totals().expired;
            fast.begin_round(moved(&mut at, &step.at));
            drain(&mut fast, &mut table, usize::MAX);
            let sharing = if best_effort == 0 { 0 } else { critical.len() };
            let all = critical.len() + best_effort;
            let waits = (sharing..all).any(|n| fast.queued_of(TenantId(n as u32)) > 0);
            prop_assert!(!waits || fast.totals().expired == before);
        }
    }

    /// Whatever was queued is submitted in bounded time once requests stop coming, on every worker.
    #[test]
    fn nobody_starves((critical, best_effort, steps) in case()) {
        let registry = registry(&critical, best_effort);
        let mut all = [0, 1].map(|worker| visiting(&registry, worker, IdleRule::Rest));
        let mut table = SlotTable::new(LIMITS.slots);
        let mut units = 0;
        for (n, ask) in steps.iter().flat_map(|step| &step.asks).enumerate() {
            let slot = table.insert(ask.tenant).unwrap();
            let tenant = TenantId(ask.tenant as u32);
            all[n % 2].enqueue(tenant, ask.kind, ask.bytes, slot).unwrap();
            units += u64::from(registry.model().cost().cost(ask.kind, ask.bytes).mixed);
        }
        // The slowest way: all of one tenant, at the lowest rate that is promised or shared.
        let share = registry.left() / best_effort.max(1) as u64;
        let slowest = critical.iter().map(|iops| u64::from(*iops) * 100).min().unwrap_or(share);
        let nanos = units as u128 * 1_000_000_000 / u128::from(slowest.min(share).max(1));
        let round = u64::try_from(nanos / 2_000).unwrap().clamp(10_000, 1_000_000);
        let most = nanos / u128::from(round) + 10;
        prop_assume!(most < 100_000);
        let mut at = START.as_nanos();
        for _ in 0..most {
            at += round;
            for scheduler in &mut all {
                scheduler.begin_round(Instant::from_nanos(at));
                drain(scheduler, &mut table, usize::MAX);
            }
        }
        prop_assert_eq!(all[0].queued() + all[1].queued(), 0);
        prop_assert!(table.is_empty());
    }
}
