//! Tests of the ledger without queues.

use core::num::NonZeroU64;

use contract::{Instant, Slo, TenantId};

use super::*;
use crate::units::NEG_LIMIT;
use crate::{DeviceModel, FairShare, Registry};

/// A latency-critical tenant of 10 million units a second.
const CRITICAL: u32 = 0;
const RATE: u64 = 10_000_000;

/// A best-effort tenant, which gets the 32 million units a second that are left.
const BEST_EFFORT: u32 = 1;

/// A ledger that holds both tenants from time zero on, and its round. There are no queues.
struct LedgerFixture {
    registry: Registry,
    ledger: Ledger,
    round: Round,
}

impl LedgerFixture {
    fn new() -> LedgerFixture {
        let mut registry = Registry::new(DeviceModel::device_a(), 2);
        let slo = Some(Slo::new(500, 100_000, 100));
        registry.register(slo, Instant::ZERO).unwrap();
        registry.register(None, Instant::ZERO).unwrap();
        let mut bed = LedgerFixture {
            ledger: Ledger::new(registry.shared().clone(), 0),
            registry,
            round: Round::new(),
        };
        bed.begin(0);
        bed.ledger.join();
        assert_eq!(bed.ledger.hold(CRITICAL, 0), Class::LatencyCritical);
        assert_eq!(bed.ledger.hold(BEST_EFFORT, 0), Class::BestEffort);
        bed
    }

    /// Begins a round at `micros` µs, as a scheduler does: the tokens of idle tenants go to the
    /// bucket first.
    fn begin(&mut self, micros: u64) {
        self.round.begin(Instant::from_nanos(micros * 1_000), self.ledger.shared());
        self.ledger.settle(self.round.now());
    }

    /// Has rounds of 100 µs, up to the `last` one, in which the critical tenant earns and spends
    /// nothing. Returns `true` if it donated in the last one.
    fn earn_up_to(&mut self, last: u64) -> bool {
        let mut has_donated = false;
        for round in 1..=last {
            self.begin(round * 100);
            self.ledger.earn(CRITICAL, RATE, 0, &self.round);
            has_donated = self.ledger.donate(CRITICAL, RATE, &self.round);
        }
        has_donated
    }

    fn collect(&mut self, cap: Option<u64>, all: u64, first: u64) -> bool {
        let demand = Demand { all: nano(all), first: nano(first) };
        let cap = cap.and_then(NonZeroU64::new);
        self.ledger.collect(BEST_EFFORT, 1, cap, demand, &self.round)
    }

    fn balance(&self, tenant: u32) -> i64 {
        self.registry.shared().balance(TenantId(tenant))
    }

    fn bucket(&self) -> i64 {
        self.registry.shared().bucket.held()
    }

    /// Asserts that the generated tokens are spent, expired, or held by tenants or the bucket.
    fn balances(&self) {
        let (ours, theirs) = (self.ledger.totals(), self.registry.totals());
        let made = ours.generated + theirs.generated;
        let gone = ours.spent + ours.expired + theirs.expired;
        assert_eq!(made, gone + self.registry.shared().held());
        assert_eq!(
            ours.donated + theirs.donated - ours.borrowed - ours.expired,
            i128::from(self.bucket())
        );
    }
}

#[test]
fn a_critical_tenant_keeps_three_rounds_and_donates_nine_tenths_of_more() {
    let mut bed = LedgerFixture::new();
    assert!(!bed.earn_up_to(3));
    assert_eq!((bed.balance(CRITICAL), bed.bucket()), (nano(3_000), 0));
    let mut bed = LedgerFixture::new();
    assert!(bed.earn_up_to(4));
    assert_eq!((bed.balance(CRITICAL), bed.bucket()), (nano(400), nano(3_600)));
    assert_eq!(bed.ledger.totals().donated, i128::from(nano(3_600)));
    bed.balances();
}

#[test]
fn a_critical_tenant_overdraws_to_its_limit_and_waits() {
    let mut bed = LedgerFixture::new();
    bed.earn_up_to(1);
    assert!(bed.ledger.pay(CRITICAL, 1_500, PaymentSource::Overdraft));
    assert!(!bed.ledger.pay_all(CRITICAL, 4_501, PaymentSource::Overdraft));
    assert!(bed.ledger.pay_all(CRITICAL, 4_500, PaymentSource::Overdraft));
    assert_eq!(bed.balance(CRITICAL), NEG_LIMIT);
    assert!(!bed.ledger.pay(CRITICAL, 1, PaymentSource::Overdraft));
    assert_eq!(bed.ledger.wait_of_critical(CRITICAL, RATE), 1);
    bed.ledger.pay_back(CRITICAL, 4_500, PaymentSource::Overdraft);
    assert_eq!(bed.balance(CRITICAL), -nano(500));
    bed.balances();
}

#[test]
fn arrears_come_from_the_bucket_and_then_from_best_effort() {
    let mut bed = LedgerFixture::new();
    bed.earn_up_to(4);
    // The donation is what the tenant may have back.
    assert!(bed.ledger.pay_all(CRITICAL, 5_400, PaymentSource::Overdraft));
    assert!(bed.ledger.pay(CRITICAL, 100, PaymentSource::Overdraft));
    assert_eq!((bed.bucket(), bed.balance(CRITICAL)), (nano(3_600) - 1, NEG_LIMIT + 1 - nano(100)));
    bed.ledger.expire(CycleState::Alone);
    assert!(bed.ledger.pay(CRITICAL, 100, PaymentSource::Overdraft));
    assert_eq!(bed.registry.shared().loan.owed(), nano(100));
    // A twentieth of what the device serves within 500 µs is lent at most.
    assert!(bed.ledger.pay(CRITICAL, 5_000, PaymentSource::Overdraft));
    assert!(!bed.ledger.pay(CRITICAL, 100, PaymentSource::Overdraft));
    assert_eq!(bed.registry.shared().loan.owed(), nano(1_050));
    bed.balances();
    // Seven eighths of a share of 3 200 units are less than the loan is.
    bed.begin(500);
    bed.round.set_due(bed.ledger.due(&bed.round));
    bed.collect(None, 100_000, 100);
    assert_eq!(bed.registry.shared().loan.owed(), 0);
    assert_eq!(bed.balance(BEST_EFFORT), nano(5 * 3_200 - 1_050));
    bed.balances();
}

#[test]
fn a_best_effort_tenant_borrows_what_it_lacks_and_gives_what_it_does_not_need() {
    let mut bed = LedgerFixture::new();
    bed.earn_up_to(4);
    assert!(bed.collect(None, 20_000, 100));
    // Its share of 400 µs, and all that was in the bucket.
    assert_eq!((bed.balance(BEST_EFFORT), bed.bucket()), (nano(12_800 + 3_600), 0));
    assert!(!bed.ledger.pay_all(BEST_EFFORT, 16_401, PaymentSource::Share(None)));
    assert!(bed.ledger.pay(BEST_EFFORT, 16_000, PaymentSource::Share(None)));
    assert!(!bed.ledger.pay(BEST_EFFORT, 401, PaymentSource::Share(None)));
    let wait = bed.ledger.wait_of_best_effort(BEST_EFFORT, 1, 720, &bed.round);
    assert_eq!(wait, 10_001);
    assert!(!bed.collect(None, 300, 100));
    assert_eq!((bed.balance(BEST_EFFORT), bed.bucket()), (nano(300), nano(100)));
    bed.balances();
}

#[test]
fn a_cap_bounds_what_counts_as_demand() {
    let (mut bed, cap) = (LedgerFixture::new(), 1_000_000);
    let portion = FairShare { cap: Some(cap), ..FairShare::default() };
    bed.registry.set_portion(TenantId(BEST_EFFORT), portion, Instant::ZERO).unwrap();
    bed.begin(500);
    let means = PaymentSource::Share(bed.ledger.cap(BEST_EFFORT));
    assert!(!bed.collect(Some(cap), 10_000, 200));
    // 500 units in 500 µs; the rest of its share goes to the bucket.
    assert_eq!((bed.balance(BEST_EFFORT), bed.bucket()), (nano(500), nano(16_000 - 500)));
    assert!(!bed.ledger.pay_all(BEST_EFFORT, 501, means));
    assert!(bed.ledger.pay(BEST_EFFORT, 500, means));
    assert!(!bed.collect(Some(cap), 9_500, 200));
    assert!(!bed.ledger.pay(BEST_EFFORT, 1, means), "its allowance is used up");
    bed.balances();
}

#[test]
fn leftovers_are_for_critical_tenants_and_nothing_is_for_nobody() {
    let mut bed = LedgerFixture::new();
    bed.earn_up_to(4);
    assert!(!bed.ledger.pay_all(CRITICAL, 1, PaymentSource::Leftovers));
    assert!(!bed.ledger.pay(CRITICAL, 1, PaymentSource::Nothing));
    assert!(bed.ledger.pay(CRITICAL, 6_000, PaymentSource::Leftovers));
    assert!(bed.ledger.pay(CRITICAL, 3_000, PaymentSource::Leftovers));
    assert!(!bed.ledger.pay(CRITICAL, 1, PaymentSource::Leftovers), "the bucket is empty");
    bed.balances();
}

#[test]
fn a_tenant_or_its_pool_makes_every_nanosecond_once() {
    let mut bed = LedgerFixture::new();
    bed.earn_up_to(2);
    bed.begin(300);
    let due = bed.ledger.rest(CRITICAL, RATE, false, &bed.round);
    // 2 000 units of the 3 000 that its balance holds are there.
    assert_eq!(due, Some(300_000 + 100_001));
    assert_eq!(bed.ledger.rest(CRITICAL, RATE, true, &bed.round), None);
    bed.collect(None, 0, 0);
    bed.ledger.give_up(BEST_EFFORT, &bed.round);
    assert_eq!(bed.balance(BEST_EFFORT), 0);
    bed.begin(400);
    assert_eq!(bed.ledger.totals().generated, i128::from(nano(42 * 400)));
    bed.balances();
}

#[test]
fn the_short_way_spends_the_rate_of_tenants_that_nobody_holds() {
    let mut bed = LedgerFixture::new();
    let ask = |units| {
        let requests = SubmittedCounts { units, reads: 1, ..SubmittedCounts::default() };
        ImmediateDemand { requests, is_single: true }
    };
    assert!(!bed.ledger.spend_short(CRITICAL, ask(100), 0, &bed.round), "it is held");
    bed.ledger.abandon(CRITICAL, &bed.round);
    bed.ledger.abandon(BEST_EFFORT, &bed.round);
    assert!(!bed.ledger.spend_short(CRITICAL, ask(AHEAD_MAX + 1), 0, &bed.round));
    assert!(bed.ledger.spend_short(CRITICAL, ask(4_000), 0, &bed.round));
    assert!(!bed.ledger.spend_short(CRITICAL, ask(1_100), 0, &bed.round), "it is 4 000 ahead");
    assert!(bed.ledger.spend_short(CRITICAL, ask(900), 0, &bed.round));
    bed.begin(100);
    let spare = nano(3_000);
    assert!(!bed.ledger.spend_short(BEST_EFFORT, ask(3_100), spare, &bed.round));
    assert!(bed.ledger.spend_short(BEST_EFFORT, ask(3_000), spare, &bed.round));
    assert!(!bed.ledger.spend_short(BEST_EFFORT, ask(100), spare, &bed.round), "it was just here");
    bed.ledger.charge(4_000 + 900 + 3_000);
    bed.ledger.refund(3_000, 0);
    assert_eq!(bed.bucket(), -nano(4_900 - 4_200));
    bed.balances();
}

#[test]
fn a_request_behind_too_many_others_is_hopeless() {
    let bed = LedgerFixture::new();
    // 500 µs make 5 000 units, and the tenant may owe as many.
    assert!(!bed.ledger.is_hopeless(TenantId(CRITICAL), 9_900));
    assert!(bed.ledger.is_hopeless(TenantId(CRITICAL), 10_001));
    assert!(!bed.ledger.is_hopeless(TenantId(BEST_EFFORT), 1_000_000));
}
