//! A worker's round: its phase, the visited tenant, and the sums that the round collects.
//!
//! This module deliberately leaves out the queues that a round walks (`queues.rs`), and the tokens
//! that it spends (`ledger.rs`).

use core::num::NonZeroU64;
use core::ops::AddAssign;

use contract::Instant;

use crate::cost_model::{Load, PriceSum};
use crate::requests::PaidRequests;
use crate::shared::Shared;
use crate::tenant::{Class, Terms};
use crate::units::ROUND_NANOS_MAX;

/// The times of a worker's last rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// The latest time that was ever passed in, in nanoseconds.
    now: u64,
    has_started: bool,
    /// Nanoseconds that the last three rounds took, the latest first, each at most
    /// [`ROUND_NANOS_MAX`].
    last_rounds: [u64; 3],
}

impl Clock {
    /// Advances the clock. A step back counts as standing still.
    fn tick(&mut self, now: Instant) {
        let now = now.as_nanos().max(self.now);
        let passed = if self.has_started { now - self.now } else { 0 };
        self.has_started = true;
        self.now = now;
        self.last_rounds.rotate_right(1);
        self.last_rounds[0] = passed.min(ROUND_NANOS_MAX);
    }
}

/// The phase of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The scheduler is between rounds.
    Over,
    /// The requests that idle tenants may have submitted at once (the "short way") are submitted.
    Express,
    /// Latency-critical tenants get tokens, submit and donate (Algorithm 1, lines 4 to 12).
    Critical,
    /// Best-effort tenants get tokens, submit and donate (lines 13 to 21).
    BestEffort,
    /// Lines 15 to 18 once more, because tenants donated after others had found the bucket empty.
    Again,
    /// Without best-effort tenants, unused tokens serve latency-critical ones.
    Leftovers,
}

impl Phase {
    /// Returns the class whose ring the phase walks.
    pub(crate) fn class(self) -> Class {
        match self {
            Phase::BestEffort | Phase::Again => Class::BestEffort,
            Phase::Critical | Phase::Leftovers | Phase::Express | Phase::Over => {
                Class::LatencyCritical
            }
        }
    }
}

/// The means by which the visited tenant pays for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PaymentSource {
    /// The visited tenant may not pay for requests, because its class has no turn in this phase of
    /// the round.
    Nothing,
    /// The tenant pays from its balance, which may fall below its limit (lines 8 and 9).
    Overdraft,
    /// The tenant pays from its balance in full, within its cap in units a second, if it has one
    /// (line 18).
    Share(Option<NonZeroU64>),
    /// The tenant pays from the bucket, since there is no best-effort tenant to use it.
    Leftovers,
}

/// The counts of the requests that were submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubmittedCounts {
    /// The units that were paid for the requests.
    pub(crate) units: u64,
    /// The number of reads.
    pub(crate) reads: u64,
    /// The number of requests other than reads.
    pub(crate) writes: u64,
    /// The part of the paid `units` that is tax on writes.
    pub(crate) tax: u64,
}

impl AddAssign for SubmittedCounts {
    #[inline]
    fn add_assign(&mut self, other: SubmittedCounts) {
        self.units += other.units;
        self.reads += other.reads;
        self.writes += other.writes;
        self.tax += other.tax;
    }
}

/// A tenant's turn within a phase.
#[derive(Clone, Copy, Debug)]
struct Visit {
    tenant: u32,
    /// The number of tenants of the ring whose visits have not ended, including the present one.
    left: u32,
    /// The tenant with which the phase began.
    first: u32,
    /// `true` if the first tenant of the phase profited from being first.
    is_turn_used: bool,
    /// The tenant's class and rate; `None` until the visit is opened.
    terms: Option<Terms>,
    /// The means by which the tenant pays; [`PaymentSource::Nothing`] until the visit is opened.
    means: PaymentSource,
    /// Requests that are paid and not submitted yet.
    paid: PaidRequests,
    /// The price of all requests that the visited tenant has paid for in this visit.
    spent: PriceSum,
}

impl Visit {
    const NOBODY: Visit = Visit {
        tenant: 0,
        left: 0,
        first: 0,
        is_turn_used: false,
        terms: None,
        means: PaymentSource::Nothing,
        paid: PaidRequests::NONE,
        spent: PriceSum::NOTHING,
    };
}

/// The state of a worker's round.
#[derive(Debug)]
pub(crate) struct Round {
    clock: Clock,
    phase: Phase,
    visit: Visit,
    /// The device's load when the round began, by which requests are priced.
    load: Load,
    /// The units a second that a best-effort tenant gets for each point of its weight.
    share: u64,
    /// The nano-units that best-effort tenants pay back in this round.
    due: i64,
    /// Nanoseconds until the first blocked tenant can submit.
    wait: u64,
    submitted: SubmittedCounts,
    /// Number of tenants whose requests were submitted without a full visit ("the short way") in
    /// this round.
    short: u32,
    /// `true` if workers record the delays of reads.
    is_measuring: bool,
    /// `true` if requests that would miss their latency are refused.
    is_failing_fast: bool,
    /// `true` if writes of best-effort tenants wait for space in the device.
    is_holding_writes: bool,
    /// Maximum number of requests of this worker that should be at the device at a time.
    depth_max: usize,
    /// Maximum work of several large requests of best effort at the device, in units.
    large_max: u64,
}

impl Round {
    /// Returns the state before the first round.
    pub(crate) fn new() -> Round {
        Round {
            clock: Clock::default(),
            phase: Phase::Over,
            visit: Visit::NOBODY,
            load: Load::Mixed,
            share: 0,
            due: 0,
            wait: u64::MAX,
            submitted: SubmittedCounts::default(),
            short: 0,
            is_measuring: false,
            is_failing_fast: false,
            is_holding_writes: false,
            depth_max: usize::MAX,
            large_max: u64::MAX,
        }
    }

    /// Begins a round (lines 2 and 3): reads the time and the registry's present settings.
    pub(crate) fn begin(&mut self, now: Instant, shared: &Shared) {
        self.clock.tick(now);
        self.is_measuring = shared.measuring();
        self.is_failing_fast = shared.failing_fast();
        self.is_holding_writes = shared.holding_writes();
        self.depth_max = match shared.depth() {
            None => usize::MAX,
            // Each worker that takes part has its part of the device.
            Some(depth) => depth.div_ceil(shared.rounds.members().max(1)) as usize,
        };
        self.large_max = shared.backlog.large_max();
        self.load = shared.read_ratio.load();
        self.share = shared.share();
        self.wait = u64::MAX;
        self.submitted = SubmittedCounts::default();
    }

    /// Begins to submit the requests of idle tenants that are submitted without a visit (the "short
    /// way").
    pub(crate) fn start_express(&mut self, paid: PaidRequests) {
        self.phase = Phase::Express;
        self.visit = Visit { paid, ..Visit::NOBODY };
    }

    /// Begins to visit the `count` tenants of the phase's ring, starting with `first`.
    pub(crate) fn start(&mut self, phase: Phase, first: u32, count: u32) {
        self.phase = phase;
        // The bucket is all that its first tenant may get before others.
        let is_turn_used = phase == Phase::Critical;
        self.visit = Visit { tenant: first, first, left: count, is_turn_used, ..Visit::NOBODY };
    }

    /// Sets the nano-units that best-effort tenants pay back in this round.
    pub(crate) fn set_due(&mut self, due: i64) {
        self.due = due;
    }

    /// Ends the scheduler's round.
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Over;
    }

    /// Opens the visit of a tenant with these terms.
    pub(crate) fn open(&mut self, terms: Terms, means: PaymentSource) {
        (self.visit.terms, self.visit.means) = (Some(terms), means);
    }

    /// Notes that the visited tenant profited from its place in the order: it borrowed from the
    /// bucket, or took the room of large requests at the device.
    pub(crate) fn use_turn(&mut self) {
        self.visit.is_turn_used |= self.visit.tenant == self.visit.first;
    }

    /// Advances to the next tenant of the ring.
    pub(crate) fn visit_next(&mut self, tenant: u32) {
        let visit = &mut self.visit;
        visit.tenant = tenant;
        visit.left -= 1;
        (visit.terms, visit.means) = (None, PaymentSource::Nothing);
    }

    /// Notes requests that the visited tenant has paid for.
    #[inline]
    pub(crate) fn add_paid(&mut self, paid: PaidRequests, spent: PriceSum) {
        self.visit.paid = paid;
        self.visit.spent += spent;
    }

    /// Notes that the visited tenant got a payment back.
    pub(crate) fn take_back(&mut self, spent: PriceSum) {
        self.visit.spent -= spent;
    }

    /// Takes out the requests that are paid and not submitted.
    pub(crate) fn take_paid(&mut self) -> PaidRequests {
        core::mem::replace(&mut self.visit.paid, PaidRequests::NONE)
    }

    /// Returns the price and number of requests that the visited tenant has paid for, and adds them
    /// to the round's counts.
    pub(crate) fn count_visit(&mut self) -> SubmittedCounts {
        let spent = core::mem::replace(&mut self.visit.spent, PriceSum::NOTHING);
        let submitted = self.sum_of(&spent);
        self.add(submitted);
        submitted
    }

    /// Adds to the counts of this round's submitted requests.
    pub(crate) fn add(&mut self, submitted: SubmittedCounts) {
        self.submitted += submitted;
    }

    /// Returns the price of requests under this round's load, and their number.
    #[inline]
    pub(crate) fn sum_of(&self, priced: &PriceSum) -> SubmittedCounts {
        SubmittedCounts {
            units: priced.under(self.load),
            reads: priced.reads(),
            writes: priced.writes(),
            tax: priced.tax(),
        }
    }

    /// Lowers the time until the first blocked tenant can submit to at most `nanos`.
    pub(crate) fn wait_for(&mut self, nanos: u64) {
        self.wait = self.wait.min(nanos);
    }

    /// Sets the number of tenants whose requests were submitted without a full visit ("the short
    /// way").
    pub(crate) fn set_short(&mut self, tenants: u32) {
        self.short = tenants;
    }

    /// Returns the requests that are paid and not submitted.
    #[inline]
    pub(crate) fn paid_mut(&mut self) -> &mut PaidRequests {
        &mut self.visit.paid
    }

    /// Returns the time at which the round began, in nanoseconds; never earlier than that of an
    /// earlier round.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.clock.now
    }

    /// Returns the time at which the round began; never earlier than that of an earlier round.
    pub(crate) fn instant(&self) -> Instant {
        Instant::from_nanos(self.clock.now)
    }

    /// Returns the sum of the last three rounds' times in nanoseconds. Algorithm 1's POS_LIMIT is
    /// the tokens that a rate makes in this time.
    pub(crate) fn three_rounds(&self) -> u64 {
        self.clock.last_rounds.iter().sum()
    }

    /// Returns the nanoseconds between the beginnings of this round and the previous one, at most
    /// [`ROUND_NANOS_MAX`].
    pub(crate) fn last_round(&self) -> u64 {
        self.clock.last_rounds[0]
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Returns the visited tenant; `None` at the end of the phase's ring.
    pub(crate) fn visited(&self) -> Option<u32> {
        (self.visit.left > 0).then_some(self.visit.tenant)
    }

    /// Returns the first tenant of the phase if that tenant gained from being visited first; `None`
    /// otherwise.
    pub(crate) fn turn_used(&self) -> Option<u32> {
        self.visit.is_turn_used.then_some(self.visit.first)
    }

    /// Returns the visited tenant's class and rate; `None` until the visit is opened.
    pub(crate) fn terms(&self) -> Option<Terms> {
        self.visit.terms
    }

    /// Returns how the visited tenant pays.
    pub(crate) fn means(&self) -> PaymentSource {
        self.visit.means
    }

    /// Returns the number of a tenant's requests that are paid and not submitted.
    pub(crate) fn paid_of(&self, tenant: u32) -> u32 {
        let is_visited = self.visit.tenant == tenant && self.phase != Phase::Express;
        if is_visited { self.visit.paid.left } else { 0 }
    }

    /// Returns the number of requests that are paid and not submitted.
    pub(crate) fn paid(&self) -> u32 {
        self.visit.paid.left
    }

    #[inline]
    pub(crate) fn load(&self) -> Load {
        self.load
    }

    #[inline]
    pub(crate) fn share(&self) -> u64 {
        self.share
    }

    pub(crate) fn due(&self) -> i64 {
        self.due
    }

    pub(crate) fn wait(&self) -> u64 {
        self.wait
    }

    pub(crate) fn submitted(&self) -> SubmittedCounts {
        self.submitted
    }

    pub(crate) fn short(&self) -> u32 {
        self.short
    }

    #[inline]
    pub(crate) fn is_measuring(&self) -> bool {
        self.is_measuring
    }

    /// Returns `true` if the visited tenant may not submit all of these requests, because writes of
    /// best-effort tenants wait for space in the device.
    #[inline]
    pub(crate) fn holds(&self, requests: &PriceSum) -> bool {
        self.is_holding_writes && self.is_sharing() && requests.writes() > 0
    }

    /// Returns the maximum work of several large requests of best effort at the device, in units;
    /// the largest number without a bound.
    #[inline]
    pub(crate) fn large_max(&self) -> u64 {
        self.large_max
    }

    /// Returns `true` if the visited tenant pays as best effort.
    #[inline]
    pub(crate) fn is_sharing(&self) -> bool {
        matches!(self.visit.means, PaymentSource::Share(_))
    }

    /// Returns `true` while writes of best-effort tenants wait for space in the device.
    pub(crate) fn is_holding_writes(&self) -> bool {
        self.is_holding_writes
    }

    #[inline]
    pub(crate) fn is_failing_fast(&self) -> bool {
        self.is_failing_fast
    }

    #[inline]
    pub(crate) fn depth_max(&self) -> usize {
        self.depth_max
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::{DeviceModel, Registry};

    #[test]
    fn a_clock_stands_still_instead_of_going_back() {
        let mut clock = Clock::default();
        let mut at = |micros: u64| {
            clock.tick(Instant::from_nanos(micros * 1_000));
            (clock.now, clock.last_rounds)
        };
        assert_eq!(at(5_000), (5_000_000, [0, 0, 0]));
        assert_eq!(at(5_010), (5_010_000, [10_000, 0, 0]));
        assert_eq!(at(4_000), (5_010_000, [0, 10_000, 0]));
        assert_eq!(at(9_000_000), (9_000_000_000, [ROUND_NANOS_MAX, 0, 10_000]));
        assert_eq!(at(9_000_001), (9_000_001_000, [1_000, ROUND_NANOS_MAX, 0]));
    }

    #[test]
    fn a_phase_visits_its_ring_once() {
        let registry = Registry::new(DeviceModel::device_a(), 4);
        let mut round = Round::new();
        round.begin(Instant::ZERO, registry.shared());
        assert!(round.is_over());
        round.start(Phase::BestEffort, 3, 2);
        assert_eq!((round.visited(), round.turn_used()), (Some(3), None));
        round.visit_next(1);
        round.use_turn();
        assert_eq!((round.visited(), round.turn_used()), (Some(1), None));
        round.visit_next(3);
        assert_eq!(round.visited(), None);
        round.start(Phase::Again, 1, 1);
        round.use_turn();
        assert_eq!((round.visited(), round.turn_used()), (Some(1), Some(1)));
        round.end();
        assert!(round.is_over());
    }

    #[test]
    fn a_round_counts_what_was_paid_and_not_taken_back() {
        let cost = crate::CostModel::linear(1_000, 50).unwrap();
        let line = crate::cost_model::PriceIndex::of(contract::IoKind::Write, 4096);
        let one = *cost.priced(line);
        let mut round = Round::new();
        round.start(Phase::Critical, 0, 1);
        round.add_paid(PaidRequests::NONE, one.times(3));
        round.take_back(one);
        assert_eq!(
            round.count_visit(),
            SubmittedCounts { units: 2_000, writes: 2, ..SubmittedCounts::default() }
        );
        assert_eq!(round.count_visit(), SubmittedCounts::default());
        assert_eq!(
            round.submitted(),
            SubmittedCounts { units: 2_000, writes: 2, ..SubmittedCounts::default() }
        );
    }

    #[test]
    fn a_round_waits_for_the_first_tenant_that_can_pay() {
        let mut round = Round::new();
        assert_eq!(round.wait(), u64::MAX);
        round.wait_for(7_000);
        round.wait_for(9_000);
        assert_eq!(round.wait(), 7_000);
    }
}
