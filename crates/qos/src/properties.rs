//! Properties of the fast scheduler: it agrees with the oracle, tokens are conserved, balances stay
//! within their bounds, and no tenant starves.

use alloc::vec;
use alloc::vec::Vec;

use contract::{
    ChoreCounters, ChoreRate, Command, Instant, IoKind, Range, Scheduler, Slo, Slot, SlotTable,
    TenantId,
};
use proptest::prelude::*;

use crate::admission::{Refusal, Verdict};
use crate::reference::Reference;
use crate::units::{NEG_LIMIT, nano};
use crate::{
    Adjustment, Class, CostModel, DeviceModel, FairShare, PRICE_MAX, QueueLimits, Registry,
    SizePoint, TokenScheduler, WEIGHT_MAX,
};

const LIMITS: QueueLimits = QueueLimits { slots: 4096, of_tenant: 4096 };

/// The start of virtual time.
const START: Instant = Instant::from_nanos(1_000_000_000);

/// Returns a registry with latency-critical tenants of these IOPS (100 % reads, 500 µs), and so
/// many best-effort ones.
fn registry(critical: &[u32], best_effort: usize) -> Registry {
    let mut registry = Registry::new(DeviceModel::device_a(), critical.len() + best_effort + 1);
    for iops in critical {
        let slo = Some(Slo::new(500, *iops, 100));
        registry.register(slo, START).unwrap();
    }
    for _ in 0..best_effort {
        registry.register(None, START).unwrap();
    }
    registry
}

fn scheduler(registry: &Registry, worker: usize) -> TokenScheduler {
    registry.scheduler(worker, LIMITS)
}

/// Returns the units a second that the workers may generate: promises, shares, and the remainder.
fn granted(registry: &Registry) -> u64 {
    let shared = registry.shared();
    let rate = |terms: crate::tenant::Terms| match terms.class {
        Class::LatencyCritical => terms.rate,
        Class::BestEffort | Class::Leaving => terms.rate * shared.share(),
        Class::Vacant => 0,
    };
    let tenants = (0..shared.tenants_max() as u32).map(|tenant| shared.tenant(tenant).terms());
    let unheld = |terms: &crate::tenant::Terms| terms.holders == 0;
    // What is idle is in the pools, with the remainder; what is held makes its own.
    let held: u64 = tenants.filter(|terms| !unheld(terms)).map(rate).sum();
    held + shared.lent()
}

/// A request of a tenant.
#[derive(Clone, Debug)]
struct RequestSpec {
    tenant: usize,
    kind: IoKind,
    bytes: usize,
}

/// The requests before a round, and the time since the last round.
#[derive(Clone, Debug)]
struct Step {
    asks: Vec<RequestSpec>,
    at: Jump,
}

#[derive(Clone, Debug)]
enum Jump {
    Forward(u64),
    Back(u64),
}

fn ask(tenants: usize) -> impl Strategy<Value = RequestSpec> {
    let kind = prop_oneof![4 => Just(IoKind::Read), 1 => Just(IoKind::Write), 1 => Just(IoKind::Exchange), 1 => Just(IoKind::Other)];
    let bytes = prop_oneof![6 => Just(4096usize), 2 => 0usize..200_000, 1 => Just(1 << 20)];
    (0..tenants, kind, bytes).prop_map(|(tenant, kind, bytes)| RequestSpec { tenant, kind, bytes })
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

/// Generates a case: the IOPS of the latency-critical tenants, the number of best-effort tenants,
/// and the steps.
fn case() -> impl Strategy<Value = (Vec<u32>, usize, Vec<Step>)> {
    case_of(prop::collection::vec(1u32..100_000, 0..4))
}

/// Generates a case in which little rate remains for best effort, so that saved tokens matter.
fn scarce_case() -> impl Strategy<Value = (Vec<u32>, usize, Vec<Step>)> {
    case_of(Just(vec![400_000]))
}

fn case_of(
    critical: impl Strategy<Value = Vec<u32>>,
) -> impl Strategy<Value = (Vec<u32>, usize, Vec<Step>)> {
    (critical, 0usize..4)
        .prop_filter("somebody", |(critical, best_effort)| critical.len() + best_effort > 0)
        .prop_flat_map(|(critical, best_effort)| {
            let tenants = critical.len() + best_effort;
            let steps = prop::collection::vec(step(tenants), 1..60);
            (Just(critical), Just(best_effort), steps)
        })
}

/// Submits the requests that a round releases, at most `most`. Returns their tenants in order.
fn drain(scheduler: &mut TokenScheduler, table: &mut SlotTable<usize>, most: usize) -> Vec<usize> {
    let next = || scheduler.next().map(|slot: Slot| table.remove(slot));
    core::iter::from_fn(next).take(most).collect()
}

/// The oracle's rule for tenants without demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Oracle {
    /// Algorithm 1, line by line. No tenant is ever without demand: each has [`BACKLOG`] requests
    /// before each round.
    LineByLine,
    /// Algorithm 1, with the rules for tenants without demand (`reference_idle.rs`).
    Idle,
}

/// The number of 4 KiB requests in each queue before a round: more than the device serves in
/// [`ROUND_MAX`].
const BACKLOG: u32 = 1_300;

/// The longest time between two rounds in which a tenant has demand all the time, in nanoseconds.
const ROUND_MAX: u64 = 1_000_000;

/// A scheduler and the oracle, which get the same requests.
struct Pair {
    registry: Registry,
    fast: TokenScheduler,
    reference: Reference,
    table: SlotTable<usize>,
    oracle: Oracle,
}

impl Pair {
    fn new(critical: &[u32], best_effort: usize, oracle: Oracle) -> Pair {
        let registry = registry(critical, best_effort);
        let limits = QueueLimits { slots: 1 << 14, of_tenant: 1 << 14 };
        let rates: Vec<Option<u64>> = critical
            .iter()
            .map(|iops| Some(u64::from(*iops) * 100))
            .chain(vec![None; best_effort])
            .collect();
        let loan_max = registry.shared().loan_max();
        let mut reference = Reference::new(&rates, registry.left(), loan_max);
        reference.start_idle(START.as_nanos(), registry.shared().bucket.held());
        let fast = registry.scheduler(0, limits);
        Pair { fast, registry, reference, table: SlotTable::new(limits.slots), oracle }
    }

    fn enqueue(&mut self, ask: &RequestSpec) {
        let slot = self.table.insert(ask.tenant).unwrap();
        let tenant = TenantId(ask.tenant as u32);
        self.fast.enqueue(tenant, ask.kind, ask.bytes, slot).unwrap();
        let cost = self.registry.model().cost().cost(ask.kind, ask.bytes);
        match self.oracle {
            Oracle::LineByLine => self.reference.enqueue(ask.tenant, cost),
            Oracle::Idle => self.reference.enqueue_idle(ask.tenant, cost),
        }
    }

    /// Fills the queue of each tenant with reads of 4 KiB, up to [`BACKLOG`].
    fn fill(&mut self) {
        for tenant in 0..self.reference.tenants.len() {
            while self.fast.queued_of(TenantId(tenant as u32)) < BACKLOG {
                self.enqueue(&RequestSpec { tenant, kind: IoKind::Read, bytes: 4096 });
            }
        }
    }

    /// Runs a round on both sides, and compares all of their state.
    fn round(&mut self, now: Instant) -> Result<(), TestCaseError> {
        self.fast.begin_round(now);
        let load = self.fast.round().load();
        let submitted = drain(&mut self.fast, &mut self.table, usize::MAX);
        let expected = match self.oracle {
            Oracle::LineByLine => self.reference.schedule(now.as_nanos(), load),
            Oracle::Idle => self.reference.schedule_idle(now.as_nanos(), load),
        };
        prop_assert_eq!(submitted, expected);
        let shared = self.registry.shared();
        for (n, tenant) in self.reference.tenants.iter().enumerate() {
            let id = TenantId(n as u32);
            prop_assert_eq!(shared.balance(id), tenant.tokens);
            prop_assert_eq!(shared.usage(id).deficits, tenant.deficits);
            prop_assert_eq!(shared.tenant(n as u32).arrears.tokens(), tenant.arrears);
            prop_assert_eq!(self.fast.queued_of(id) as usize, tenant.queue.len());
            prop_assert!(self.oracle == Oracle::Idle || !tenant.queue.is_empty());
        }
        prop_assert_eq!(shared.bucket.held(), self.reference.bucket);
        prop_assert_eq!(shared.loan.owed(), self.reference.loan);
        Ok(())
    }
}

/// Plays the steps on the scheduler and on the oracle, and compares both after each round.
fn decides_alike(
    critical: &[u32],
    best_effort: usize,
    steps: &[Step],
    oracle: Oracle,
) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(critical, best_effort, oracle);
    let mut at = START.as_nanos();
    for step in steps {
        if oracle == Oracle::LineByLine {
            pair.fill();
        }
        step.asks.iter().for_each(|ask| pair.enqueue(ask));
        pair.round(moved(&mut at, &step.at))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    /// Checks that, while all tenants have demand, the scheduler decides like Algorithm 1 line by
    /// line: equal requests in equal order, equal balances to the last nano-unit, equal counts of
    /// deficits.
    #[test]
    fn decides_what_the_reference_decides((critical, best_effort, steps) in case()) {
        let at_most = |jump| match jump {
            Jump::Forward(by) => Jump::Forward(by.min(ROUND_MAX)),
            Jump::Back(by) => Jump::Back(by % ROUND_MAX),
        };
        let steps = steps.into_iter().map(|Step { asks, at }| Step { asks, at: at_most(at) });
        // The first round makes every tenant known.
        let first = Step { asks: vec![], at: Jump::Forward(0) };
        let steps: Vec<Step> = core::iter::once(first).chain(steps).collect();
        decides_alike(&critical, best_effort, &steps, Oracle::LineByLine)?;
    }

    /// Checks that the scheduler, which does not visit tenants without demand and serves some the
    /// short way, decides like the oracle, which visits all of them.
    #[test]
    fn decides_what_the_reference_decides_of_idle_tenants(
        (critical, best_effort, steps) in prop_oneof![case(), scarce_case()],
    ) {
        // The clock steps back no further than to where it was first read.
        let first = Step { asks: vec![], at: Jump::Forward(0) };
        let steps: Vec<Step> = core::iter::once(first).chain(steps).collect();
        decides_alike(&critical, best_effort, &steps, Oracle::Idle)?;
    }

    /// Checks that, with several workers, tenants on any of them and rounds cut short, no token is
    /// created or lost, and balances stay within their bounds.
    #[test]
    fn tokens_are_conserved(
        (critical, best_effort, steps) in case(),
        workers in 1usize..4,
        choices in prop::collection::vec((0usize..4, 0usize..40, 0u8..20), 60),
    ) {
        let mut registry = registry(&critical, best_effort);
        let tenants = critical.len() + best_effort;
        let mut all: Vec<TokenScheduler> =
            (0..workers).map(|worker| scheduler(&registry, worker)).collect();
        let mut table = SlotTable::new(LIMITS.slots);
        let mut at = START.as_nanos();
        let mut done = ChoreCounters::default();
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
                3..6 => assert!(matches!(registry.change(tenant, None, now), Ok(_) | Err(Refusal::NoTenant))),
                6..9 => {
                    let slo = Some(Slo::new(600, 5_000, 0));
                    let answer = registry.change(tenant, slo, now);
                    let expected = matches!(
                        answer,
                        Ok(_) | Err(Refusal::NoTenant | Refusal::TooMuch(_))
                    );
                    prop_assert!(expected, "{answer:?}");
                }
                9 => {
                    registry.remove(tenant, now);
                }
                10..13 => {
                    let weight = 1 + *most as u32;
                    let cap = (*worker % 2 == 1).then_some(1 + *most as u64 * 10_000);
                    let set = registry.set_portion(tenant, FairShare { weight, cap }, now);
                    prop_assert!(matches!(set, Ok(()) | Err(Refusal::NoTenant)), "{set:?}");
                }
                13 | 14 => {
                    let rate_permille = 250 + 18 * *most as u32;
                    let write_permille = 1_000 * (1 + *worker as u32);
                    registry.adjust(Adjustment { rate_permille, write_permille }, now);
                }
                15..18 => {
                    // Some of its requests move to another worker, in the middle of a round
                    // perhaps.
                    let queued = scheduler.queued();
                    let mut taken = Vec::new();
                    let mut wanted = |slot: Slot| slot.index() % 3 != most % 3;
                    scheduler.withdraw(tenant, &mut wanted, &mut taken);
                    prop_assert_eq!(scheduler.queued(), queued - taken.len());
                    for slot in taken {
                        let other = &mut all[(worker + 1) % workers];
                        if other.enqueue(tenant, IoKind::Read, 4096, slot).is_err() {
                            table.remove(slot);
                        }
                    }
                }
                18 => {
                    let uniform = ChoreRate { read_permille: 9_000, written_permille: 8_000 };
                    if crate::Taxes::view(&registry).is_none() {
                        registry.taxes().expect(uniform, 1 << 20, now);
                    }
                    done.host_pages += 10 * *worker as u64;
                    done.written_pages += 30 * *most as u64;
                    done.is_short = *most % 2 == 1;
                    registry.taxes().charge(done, now);
                }
                _ => {}
            }
            let scheduler = &mut all[worker % workers];
            scheduler.begin_round(now);
            drain(scheduler, &mut table, if *most < 20 { *most } else { usize::MAX });
            let totals = all.iter().map(TokenScheduler::totals).chain([registry.totals()]);
            let (made, gone) = totals.fold((0, 0), |(made, gone), totals| {
                (made + totals.generated, gone + totals.spent + totals.expired)
            });
            prop_assert_eq!(made, gone + registry.shared().held());
            let flows = all.iter().map(TokenScheduler::totals);
            let own = registry.totals().donated - registry.totals().borrowed;
            let put = flows.fold(own, |held, totals| {
                held + totals.donated - totals.borrowed - totals.expired
            });
            prop_assert_eq!(put, i128::from(registry.shared().bucket.held()));
            // The dearest request, with writes four times as dear: 1 MiB, compared, written and
            // taxed.
            let largest = nano(256 * (100 + 4 * 1_000 + 4 * 8_900));
            for n in 0..tenants {
                let tokens = registry.shared().balance(TenantId(n as u32));
                let limit = registry.shared().tenant(n as u32).limit();
                prop_assert!(limit == NEG_LIMIT || crate::Taxes::view(&registry).is_some());
                prop_assert!(tokens > limit - largest, "tenant {} has {}", n, tokens);
            }
            prop_assert!(granted(&registry) <= registry.device_rate());
        }
    }

    /// Checks that several workers with slightly different clocks, and tenants on any of them,
    /// together generate no more than the device serves, to the nano-unit.
    #[test]
    fn no_more_is_made_than_the_device_serves(
        (critical, best_effort, steps) in case(),
        workers in 1usize..4,
        choices in prop::collection::vec((0usize..4, 0usize..40, 0u64..30_000), 60),
    ) {
        let registry = registry(&critical, best_effort);
        let mut all: Vec<TokenScheduler> =
            (0..workers).map(|worker| scheduler(&registry, worker)).collect();
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

    /// Checks that no token expires in a round that leaves a best-effort tenant waiting, or any
    /// tenant if none is best effort. So free tokens and demand never outlast a round together.
    #[test]
    fn work_is_conserved((critical, best_effort, steps) in case()) {
        let registry = registry(&critical, best_effort);
        let mut fast = scheduler(&registry, 0);
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

    /// Checks that all queued requests are submitted in bounded time once no more arrive, on every
    /// worker.
    #[test]
    fn nobody_starves((critical, best_effort, steps) in case()) {
        let registry = registry(&critical, best_effort);
        let mut all = [0, 1].map(|worker| scheduler(&registry, worker));
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

    /// Checks that a best-effort tenant keeps no more than its queue costs, and that a
    /// latency-critical one is never further below its limit than one request.
    #[test]
    fn balances_stay_within_their_bounds((critical, best_effort, steps) in case()) {
        let registry = registry(&critical, best_effort);
        let mut fast = scheduler(&registry, 0);
        let mut table = SlotTable::new(LIMITS.slots);
        let mut at = START.as_nanos();
        let mut queued = vec![0; critical.len() + best_effort];
        for step in &steps {
            for ask in &step.asks {
                let slot = table.insert(ask.tenant).unwrap();
                fast.enqueue(TenantId(ask.tenant as u32), ask.kind, ask.bytes, slot).unwrap();
                queued[ask.tenant] += u64::from(registry.model().cost().cost(ask.kind, ask.bytes).mixed);
            }
            fast.begin_round(moved(&mut at, &step.at));
            drain(&mut fast, &mut table, usize::MAX);
            for (n, queued) in queued.iter_mut().enumerate() {
                let tenant = TenantId(n as u32);
                if fast.queued_of(tenant) == 0 {
                    *queued = 0;
                }
                let tokens = registry.shared().balance(tenant);
                if n >= critical.len() {
                    prop_assert!((0..=nano(*queued)).contains(&tokens), "{} of {}", tokens, queued);
                }
                prop_assert!(tokens > NEG_LIMIT - nano(281_600));
            }
        }
    }

    /// Checks that work is conserved when a worker has parked: while requests wait on the other
    /// worker, the device's full rate is generated, and none of it expires.
    #[test]
    fn work_is_conserved_while_a_worker_is_parked((critical, best_effort, steps) in case()) {
        let registry = registry(&critical, best_effort + 1);
        let mut all = [0, 1].map(|worker| scheduler(&registry, worker));
        let mut table = SlotTable::new(LIMITS.slots);
        let greedy = TenantId((critical.len() + best_effort) as u32);
        // Worker 1 has tenants of every kind, and serves them until nobody waits.
        let mut at = START.as_nanos();
        for ask in steps.iter().flat_map(|step| &step.asks).filter(|ask| ask.bytes <= 4096) {
            let slot = table.insert(ask.tenant).unwrap();
            all[1].enqueue(TenantId(ask.tenant as u32), ask.kind, ask.bytes, slot).unwrap();
        }
        let mut rounds = 0;
        while all[1].queued() > 0 {
            at += 1_000_000;
            all[1].begin_round(Instant::from_nanos(at));
            drain(&mut all[1], &mut table, usize::MAX);
            rounds += 1;
            prop_assume!(rounds < 20_000);
        }
        let mut run = |rounds: usize, at: &mut u64| {
            for _ in 0..rounds {
                *at += 50_000;
                while all[0].queued_of(greedy) < 2_000 {
                    let slot = table.insert(0).unwrap();
                    all[0].enqueue(greedy, IoKind::Read, 4096, slot).unwrap();
                }
                all[0].begin_round(Instant::from_nanos(*at));
                drain(&mut all[0], &mut table, usize::MAX);
                // It sleeps, and wakes when its resting tenants are due.
                let now = Instant::from_nanos(*at);
                if all[1].wake_at(now).is_some_and(|due| due <= now) {
                    all[1].begin_round(now);
                    drain(&mut all[1], &mut table, usize::MAX);
                }
            }
            all.iter().fold((0, 0, 0), |(made, spent, expired), scheduler| {
                let totals = scheduler.totals();
                (made + totals.generated, spent + totals.spent, expired + totals.expired)
            })
        };
        // Resting tenants fill up to three rounds' tokens first, the slowest last.
        let before = run(200, &mut at);
        let after = run(200, &mut at);
        prop_assert_eq!(after.2, before.2, "tokens expired while somebody waited");
        let served = i128::from(registry.device_rate()) * 200 * 50_000;
        let resting: u64 = critical.iter().map(|iops| u64::from(*iops) * 100).sum();
        let (made, spent) = (after.0 - before.0, after.1 - before.1);
        // What rests at both ends is made later, and earlier; nobody else keeps anything.
        let slack = i128::from(resting) * 200 * 50_000 + i128::from(nano(100));
        prop_assert!(made >= served - slack, "{} of {}", made, served);
        // And a debt may be repaid: the deficit, and the write that exceeded it.
        let debts = i128::from(nano(1_000) - NEG_LIMIT) * critical.len() as i128;
        let kept = i128::from(resting) * 4_000_000 + debts + i128::from(nano(200));
        prop_assert!(spent >= made - kept, "{} of {}, {} may be kept", spent, made, kept);
    }

    /// Checks that, for any sequence of calls to the registry, the published token rates never
    /// exceed the device's rate, and every refused tenant would not have fitted.
    #[test]
    fn an_admitted_set_fits(
        steps in prop::collection::vec((0u8..8, 0u32..12, 1u32..200_000, 0u8..=100, 0u32..4), 1..60)
    ) {
        let mut registry = Registry::new(DeviceModel::device_a(), 12);
        for (what, tenant, iops, read_percent, latency) in steps {
            let tenant = TenantId(tenant);
            let latency_us = [0, 500, 1_000, 2_000][latency as usize];
            let slo = (latency_us > 0).then(|| Slo::new(latency_us, iops, read_percent));
            let fits = matches!(registry.check(slo), Verdict::Admitted { .. });
            let room = !(0..12).all(|n| !registry.is_vacant(TenantId(n)));
            let overcommitted = registry.promised() > registry.device_rate();
            match what {
                0..4 => {
                    let answer = registry.register(slo, START);
                    prop_assert_eq!(answer.is_ok(), fits && room, "{:?}", answer);
                }
                4 => {
                    let fits = matches!(registry.check_change(tenant, slo), Verdict::Admitted { .. });
                    let answer = registry.change(tenant, slo, START);
                    let known = !matches!(answer, Err(Refusal::NoTenant));
                    prop_assert!(!known || answer.is_ok() == fits, "{answer:?}");
                }
                5 => {
                    let known = registry.unregister(tenant, START).is_ok();
                    prop_assert!(!known || registry.remove(tenant, START));
                }
                6 => {
                    let portion = FairShare { weight: 1 + iops % 1_000, cap: Some(u64::from(iops)) };
                    prop_assert!(matches!(
                        registry.set_portion(tenant, portion, START),
                        Ok(()) | Err(Refusal::NoTenant)
                    ));
                }
                _ => {
                    let rate_permille = 250 + iops % 751;
                    registry.adjust(Adjustment { rate_permille, write_permille: 1_000 + iops % 3_001 }, START);
                }
            }
            let (granted, device) = (granted(&registry), registry.device_rate());
            prop_assert!(granted <= device, "{} of {}", granted, device);
            if registry.promised() > device {
                prop_assert!(overcommitted || what == 7, "only a correction takes more than there is");
            } else {
                prop_assert_eq!(granted, device, "nothing is withheld");
            }
        }
    }

    /// Checks that every request that a peer can form has a positive price, whatever the prices,
    /// the curve and the load.
    #[test]
    fn every_cost_is_positive(
        blocks in 1u32..,
        kind in 0usize..8,
        write in 1..=PRICE_MAX,
        read in 1..=PRICE_MAX,
        later in 1..=PRICE_MAX,
        weights in prop::collection::vec(100..=WEIGHT_MAX, 0..5),
    ) {
        let range = Range::new(0, blocks);
        let command = [
            Command::Read(range),
            Command::Write { range, fua: false },
            Command::WriteAtomic(range),
            Command::CompareAndWrite(range),
            Command::Compare(range),
            Command::Flush,
            Command::Discard(range),
            Command::WriteZeroes { range, fua: true },
        ][kind];
        let mut weights = weights;
        weights.sort_unstable();
        let point = |(n, weight): (usize, &u32)| SizePoint { bytes: 4096 << (2 * n), weight: *weight };
        let curve: Vec<SizePoint> = weights.iter().enumerate().map(point).collect();
        let mut model = CostModel::curved(write, read, &curve).unwrap();
        let bytes = command.range().map_or(0, |range| range.bytes());
        for _ in 0..2 {
            let cost = model.cost(command.work(), bytes);
            prop_assert!(cost.mixed > 0 && cost.read_only > 0, "{command:?} costs {cost:?}");
            model.set_write(later);
        }
    }

    /// Checks that time may step back, stand still or leap an hour: no round spends more than a few
    /// of the longest rounds generate plus the repaid deficits, and no tenant is stuck afterwards.
    #[test]
    fn leaps_of_time_do_no_harm((critical, best_effort, steps) in case()) {
        let registry = registry(&critical, best_effort);
        let mut fast = scheduler(&registry, 0);
        let mut table = SlotTable::new(LIMITS.slots);
        let tenants = critical.len() + best_effort;
        let mut ask = |fast: &mut TokenScheduler, tenant: usize, most: u32| {
            while fast.queued_of(TenantId(tenant as u32)) < most {
                let slot = table.insert(tenant).unwrap();
                fast.enqueue(TenantId(tenant as u32), IoKind::Read, 4096, slot).unwrap();
            }
            core::iter::from_fn(|| fast.next()).map(|slot| table.remove(slot)).count()
        };
        let (mut at, mut latest) = (START.as_nanos(), START.as_nanos());
        let made = i128::from(registry.device_rate()) * 24_000_000;
        let most = made + i128::from(nano(100 * 102)) * tenants as i128;
        for step in &steps {
            let before = fast.totals().spent;
            fast.begin_round(moved(&mut at, &step.at));
            latest = latest.max(at);
            for tenant in 0..tenants {
                ask(&mut fast, tenant, 400);
            }
            let spent = fast.totals().spent - before;
            prop_assert!(spent <= most, "{} in a round", spent);
        }
        // Time goes on from the latest that was seen.
        let slowest = critical.iter().min().copied().unwrap_or(u32::MAX);
        let nanos = 200_000_000_000 / u64::from(slowest).min(100_000);
        let before = fast.totals().spent;
        for _ in 0..1_000 {
            latest += nanos / 1_000;
            fast.begin_round(Instant::from_nanos(latest));
            (0..tenants).for_each(|tenant| { ask(&mut fast, tenant, 4); });
        }
        prop_assert!(fast.totals().spent > before);
    }
}
