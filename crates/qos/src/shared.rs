//! The state that the workers of one device share: the tenants, the bucket, the idle pools, the
//! rounds and the read ratio.
//!
//! Each device has one such value, which is read and changed without locks.

use alloc::boxed::Box;

use contract::TenantId;

use crate::backlog::Backlog;
use crate::balance::Balance;
use crate::bucket::Bucket;
use crate::cost_model::{PRICE_MAX, TAX_MAX};
use crate::idle_pool::IdlePool;
use crate::loan::Loan;
use crate::rounds::Rounds;
use crate::sync::{Acquire, AtomicBool, AtomicI64, AtomicU32, AtomicU64, Release};
use crate::tenant::{Tenant, Usage};
use crate::units::generated;
use crate::{Class, CostModel, Delays, ReadRatio};

/// The longest time between two rounds while requests wait, in nanoseconds, whatever the SLOs
/// (paper, section 3.2.2: 0.5 to 100 µs).
pub const ROUND_NANOS: u64 = 100_000;

/// The number of bits of one price in the word that holds all [`Prices`].
const PRICE_BITS: u32 = 20;

/// The prices of 4 KiB requests that may change while workers use them, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// The price of a write without the tax.
    pub write: u32,
    /// The price of a read while the load is read-only.
    pub read_only_read: u32,
    /// The tax on a write, which pays for the background work that the write causes in the device.
    pub tax: u32,
}

impl Prices {
    pub(crate) fn of(cost: &CostModel) -> Prices {
        Prices { write: cost.write(), read_only_read: cost.read_only_read(), tax: cost.tax() }
    }

    fn word(self) -> u64 {
        const { assert!(PRICE_MAX < 1 << PRICE_BITS && TAX_MAX < 1 << (64 - 2 * PRICE_BITS)) };
        let read = u64::from(self.read_only_read) << PRICE_BITS;
        u64::from(self.tax) << (2 * PRICE_BITS) | read | u64::from(self.write)
    }

    fn of_word(word: u64) -> Prices {
        let price = |word: u64| (word & ((1 << PRICE_BITS) - 1)) as u32;
        let (write, read_only_read) = (price(word), price(word >> PRICE_BITS));
        Prices { write, read_only_read, tax: (word >> (2 * PRICE_BITS)) as u32 }
    }
}

/// The scheduling state of one device that all its workers share.
/// [`Registry::new`](crate::Registry::new) creates it, and only the registry changes tenants.
#[derive(Debug)]
pub struct Shared {
    tenants: Box<[Tenant]>,
    pub(crate) bucket: Bucket,
    /// The loan of latency-critical tenants, which best-effort tenants pay back.
    pub(crate) loan: Loan,
    pub(crate) rounds: Rounds,
    pub(crate) read_ratio: ReadRatio,
    /// The summed rates of latency-critical tenants that no worker holds, and the remainder of the
    /// division of the unpromised rate into whole units.
    pub(crate) idle_critical: IdlePool,
    /// The summed weights of idle best-effort tenants; one while no best-effort tenant is
    /// registered.
    pub(crate) idle_shares: IdlePool,
    /// Units a second that a best-effort tenant gets for each point of its weight.
    share: AtomicU64,
    population: Population,
    /// The corrected [`Prices`]: the write in the low bits, then the read, then the tax.
    prices: AtomicU64,
    /// The account of the device's background work (chores): taxes come in, and the cost of chores
    /// goes out.
    pub(crate) chores: Balance,
    /// The bounds on what the device has to do at a time.
    pub(crate) backlog: Backlog,
    flags: Flags,
    pub(crate) delays: Delays,
    /// The longest time between two rounds while requests wait, in nanoseconds.
    round_nanos: AtomicU64,
    /// The upper bound of the loan, in nano-units.
    loan_max: AtomicI64,
}

/// Switches that workers read once a round.
#[derive(Debug)]
struct Flags {
    /// `true` if requests that would miss their latency are refused.
    failing_fast: AtomicBool,
    /// `true` while workers record delays.
    measuring: AtomicBool,
    /// `true` while the device has no space for more writes of best-effort tenants.
    holding_writes: AtomicBool,
}

/// The weights of the best-effort tenants, and the number of latency-critical ones.
#[derive(Debug)]
struct Population {
    /// The sum of the weights of all best-effort tenants, including those that are leaving.
    best_effort: AtomicU64,
    /// The number of latency-critical tenants.
    critical: AtomicU32,
}

impl Shared {
    pub(crate) fn new(tenants_max: usize, prices: Prices) -> Shared {
        Shared {
            tenants: (0..tenants_max).map(|_| Tenant::vacant()).collect(),
            bucket: Bucket::new(),
            loan: Loan::new(),
            rounds: Rounds::new(),
            read_ratio: ReadRatio::new(),
            idle_critical: IdlePool::new(),
            idle_shares: IdlePool::new(),
            share: AtomicU64::new(0),
            population: Population { best_effort: AtomicU64::new(0), critical: AtomicU32::new(0) },
            prices: AtomicU64::new(prices.word()),
            chores: Balance::new(),
            backlog: Backlog::new(),
            flags: Flags {
                failing_fast: AtomicBool::new(false),
                measuring: AtomicBool::new(false),
                holding_writes: AtomicBool::new(false),
            },
            delays: Delays::new(),
            round_nanos: AtomicU64::new(ROUND_NANOS),
            loan_max: AtomicI64::new(0),
        }
    }

    /// Returns the cell of a tenant, whose number must be below
    /// [`tenants_max`](Shared::tenants_max).
    #[inline]
    pub(crate) fn tenant(&self, tenant: u32) -> &Tenant {
        &self.tenants[tenant as usize]
    }

    /// Returns the number of tenants that there is room for.
    pub(crate) fn tenants_max(&self) -> usize {
        self.tenants.len()
    }

    /// Returns the pool for tenants of this class that no worker holds; `None` for
    /// [`Class::Vacant`].
    pub(crate) fn idle_pool(&self, class: Class) -> Option<&IdlePool> {
        match class {
            Class::Vacant => None,
            Class::LatencyCritical => Some(&self.idle_critical),
            Class::BestEffort | Class::Leaving => Some(&self.idle_shares),
        }
    }

    /// Returns the units a second that a best-effort tenant of weight 1 gets.
    pub fn share(&self) -> u64 {
        self.share.load(Acquire)
    }

    pub(crate) fn set_share(&self, share: u64) {
        self.share.store(share, Release);
    }

    /// Returns the present prices.
    pub fn prices(&self) -> Prices {
        Prices::of_word(self.prices.load(Acquire))
    }

    pub(crate) fn set_prices(&self, prices: Prices) {
        self.prices.store(prices.word(), Release);
    }

    /// Returns the maximum number of requests at the device, over all workers; `None` without a
    /// bound.
    pub fn depth(&self) -> Option<u32> {
        self.backlog.depth_max()
    }

    /// Returns `true` if requests that would miss their latency are refused at once.
    pub fn failing_fast(&self) -> bool {
        self.flags.failing_fast.load(Acquire)
    }

    pub(crate) fn set_failing_fast(&self, on: bool) {
        self.flags.failing_fast.store(on, Release);
    }

    /// Returns `true` while writes of best-effort tenants wait for space in the device.
    pub fn holding_writes(&self) -> bool {
        self.flags.holding_writes.load(Acquire)
    }

    pub(crate) fn set_holding_writes(&self, on: bool) {
        self.flags.holding_writes.store(on, Release);
    }

    /// Returns `true` if workers record how long reads are at the device.
    pub fn measuring(&self) -> bool {
        self.flags.measuring.load(Acquire)
    }

    pub(crate) fn set_measuring(&self, on: bool) {
        self.flags.measuring.store(on, Release);
    }

    /// Returns the counts of read delays, while they are [measured](Shared::measuring).
    pub fn delays(&self) -> &Delays {
        &self.delays
    }

    /// Returns the summed weights of the best-effort tenants on all workers.
    pub fn best_effort(&self) -> u64 {
        self.population.best_effort.load(Acquire)
    }

    pub(crate) fn set_best_effort(&self, count: u64) {
        self.population.best_effort.store(count, Release);
    }

    /// Returns `true` if the tenant is not latency-critical and other tenants are.
    pub fn yields(&self, tenant: TenantId) -> bool {
        self.population.critical.load(Acquire) > 0 && self.class(tenant) != Class::LatencyCritical
    }

    /// Updates the number of latency-critical tenants after one tenant has changed its class.
    pub(crate) fn count_change(&self, old: Class, new: Class) {
        let [was, is] = [old, new].map(|class| u32::from(class == Class::LatencyCritical));
        let before = self.population.critical.load(Acquire);
        self.population.critical.store(before + is - was, Release);
    }

    /// Returns the longest time between two rounds while requests wait, in nanoseconds: 5 % of the
    /// strictest SLO, at most [`ROUND_NANOS`].
    pub fn round_nanos(&self) -> u64 {
        self.round_nanos.load(Acquire)
    }

    pub(crate) fn set_round_nanos(&self, nanos: u64) {
        self.round_nanos.store(nanos, Release);
    }

    /// Returns the upper bound of the loan in nano-units; zero if arrears are off.
    pub fn loan_max(&self) -> i64 {
        self.loan_max.load(Acquire)
    }

    pub(crate) fn set_loan_max(&self, tokens: i64) {
        self.loan_max.store(tokens, Release);
    }

    /// Returns the estimate of the device's read ratio.
    pub fn read_ratio(&self) -> &ReadRatio {
        &self.read_ratio
    }

    /// Returns a tenant's class; `Vacant` if there is no such tenant.
    pub fn class(&self, tenant: TenantId) -> Class {
        self.tenants.get(tenant.0 as usize).map_or(Class::Vacant, |cell| cell.terms().class)
    }

    /// Returns a tenant's activity since its registration.
    pub fn usage(&self, tenant: TenantId) -> Usage {
        self.tenants.get(tenant.0 as usize).map_or(Usage::default(), |cell| cell.usage())
    }

    /// Returns a tenant's balance in nano-units.
    pub fn balance(&self, tenant: TenantId) -> i64 {
        self.tenants.get(tenant.0 as usize).map_or(0, |cell| cell.balance.tokens())
    }

    /// Returns the units per second that are lent to best-effort tenants at present, because the
    /// latency-critical tenants to which they are promised are idle.
    pub fn lent(&self) -> u64 {
        self.idle_critical.rate() + self.idle_shares.rate() * self.share()
    }

    /// Returns the nano-units in the bucket, in every balance and in the account of the background
    /// work (debts count as negative), less the loan.
    pub fn held(&self) -> i128 {
        let balances = self.tenants.iter().map(|cell| i128::from(cell.balance.tokens()));
        let owned = balances.sum::<i128>() + i128::from(self.chores.tokens());
        owned + i128::from(self.bucket.held()) - i128::from(self.loan.owed())
    }

    /// Generates the tokens of idle tenants until `now` (nanoseconds) into the bucket, and returns
    /// the amount.
    pub(crate) fn settle(&self, now: u64) -> i64 {
        let critical = self.idle_critical.settle(now);
        let shares = u64::try_from(self.idle_shares.settle(now)).expect("time makes no debts");
        let made = critical.saturating_add(generated(shares, self.share()));
        self.bucket.give(made);
        made
    }
}
