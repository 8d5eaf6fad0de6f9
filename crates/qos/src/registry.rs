//! The control side of one device's scheduling: tenants come, change and go at any time.
//!
//! Each device has one registry, and only the registry changes tenants. Workers read a tenant's
//! word when they visit the tenant, so nothing is sent to them and nothing is locked. This module
//! deliberately leaves out names, access rules and files.

pub(crate) mod changes;
mod grants;
pub(crate) mod holding;
mod probe;
mod table;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU64;
use core::time::Duration;

use contract::{Instant, Slo, TenantId};

use crate::admission;
use crate::admission::{
    Claim, Permille, Refusal, Standing, Verdict, Ways, admit, claim, scaled, ways,
};
use crate::correction::Adjustment;
use crate::cost_model::CostModel;
use crate::device_model::DeviceModel;
use crate::drift::Drift;
use crate::ledger::Totals;
use crate::queues::QueueLimits;
use crate::shared::{Prices, ROUND_NANOS, Shared};
use crate::tenant::{Class, Terms};
use crate::token_scheduler::TokenScheduler;
use crate::units::generated;
use grants::Grants;
use probe::{Observation, Probe, View};
use table::{Entry, Table};

/// The figures of an admitted tenant: the rate that it needs, and the rate that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The tenant.
    pub tenant: TenantId,
    /// Units a second that its SLO needs; zero for best effort.
    pub needed: u64,
    /// Units a second that are left for best effort.
    pub left: u64,
}

/// The portion of what is left that a best-effort tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// The tenant's part beside those of the others: `weight / Σ weights` of what is left. From 1 to
    /// [`Portion::WEIGHT_MAX`].
    pub weight: u32,
    /// Units a second that the tenant gets at most, whatever others leave; `None` for as much as there is.
    pub cap: Option<u64>,
}

impl Portion {
    /// The largest weight.
    pub const WEIGHT_MAX: u32 = contract::Share::WEIGHT_MAX;
}

impl Default for Portion {
    /// Returns as much as any other tenant gets, without a cap.
    fn default() -> Self {
        Portion { weight: 1, cap: None }
    }
}

/// The registry of one device: its tenants with their promises, its model, and the rates that
/// follow.
#[derive(Debug)]
pub struct Registry {
    shared: Arc<Shared>,
    model: DeviceModel,
    /// The model's prices, corrected.
    cost: CostModel,
    adjustment: Adjustment,
    probe: Probe,
    table: Table,
    /// Units a second that are left when the rest is shared out in whole ones.
    remainder: u64,
    totals: Totals,
    /// Latency-critical tenants can have back what they did not use.
    pays_arrears: bool,
    grants: Grants,
}

impl Registry {
    /// Makes the registry of a device of this model, with room for `tenants_max` tenants.
    pub fn new(model: DeviceModel, tenants_max: usize) -> Registry {
        let shared = Arc::new(Shared::new(tenants_max, Prices::of(model.cost())));
        // Everything is one idle share until somebody registers.
        shared.idle_shares.change(1, 0);
        shared.set_share(model.rate_max());
        Registry {
            shared,
            cost: model.cost().clone(),
            model,
            adjustment: Adjustment::NONE,
            probe: Probe::default(),
            table: Table::new(tenants_max),
            remainder: 0,
            totals: Totals::default(),
            pays_arrears: true,
            grants: Grants::default(),
        }
    }

    /// Returns what the workers share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the device's model.
    pub fn model(&self) -> &DeviceModel {
        &self.model
    }

    /// Makes the scheduler of one of the device's workers.
    pub fn scheduler(&self, worker: usize, limits: QueueLimits) -> TokenScheduler {
        TokenScheduler::new(self.shared.clone(), self.cost.clone(), worker, limits)
    }

    /// Registers a tenant under the first number that is free.
    pub fn register(&mut self, slo: Option<Slo>, now: Instant) -> Result<Admission, Refusal> {
        let free = self.table.first_vacant().ok_or(Refusal::TableFull)?;
        self.register_as(free, slo, now)
    }

    /// Returns `true` if a tenant can be registered under this number.
    pub fn is_vacant(&self, tenant: TenantId) -> bool {
        self.table.is_vacant(tenant)
    }

    /// Registers a tenant under a number that [`is_vacant`](Registry::is_vacant), so that several
    /// devices can know the tenant by one number.
    pub fn register_as(
        &mut self,
        tenant: TenantId,
        slo: Option<Slo>,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        assert!(self.is_vacant(tenant), "tenant {} is registered already", tenant.0);
        let device = (&self.model, &self.cost);
        let permille = self.adjustment.rate_permille;
        let entry = judge(slo, self.table.standing(), device, permille)?;
        let n = tenant.0 as usize;
        let cell = self.shared.tenant(tenant.0);
        cell.clear_usage();
        cell.set_cap(None);
        cell.clear_debt(now.as_nanos());
        cell.balance.skip_to(now.as_nanos());
        self.table.reset(n, Portion::default().weight);
        Ok(self.install(n, entry, now))
    }

    /// Changes a tenant's SLO, from best effort and to it as well.
    pub fn change(
        &mut self,
        tenant: TenantId,
        slo: Option<Slo>,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        let n = self.table.registered(tenant)?;
        // What it was promised is free for what it asks.
        let (device, permille) = ((&self.model, &self.cost), self.adjustment.rate_permille);
        let judge = |table: &Table| judge(slo, table.standing(), device, permille);
        let entry = self.table.beside(n, judge)?;
        Ok(self.install(n, entry, now))
    }

    /// Changes what a tenant gets while it is best effort. Registered tenants have the
    /// [default](Portion::default); a change of class and back keeps the portion.
    pub fn set_portion(
        &mut self,
        tenant: TenantId,
        portion: Portion,
        now: Instant,
    ) -> Result<(), Refusal> {
        let n = self.table.registered(tenant)?;
        if !(1..=Portion::WEIGHT_MAX).contains(&portion.weight) {
            return Err(Refusal::Invalid("a weight is a number from 1 to 1000"));
        }
        if portion.cap == Some(0) {
            return Err(Refusal::Invalid("a cap of nothing would stop the tenant for ever"));
        }
        self.shared.tenant(tenant.0).set_cap(portion.cap);
        self.put(n, self.table.entry(n), portion.weight, now);
        Ok(())
    }

    /// Returns what a tenant gets while it is best effort.
    pub fn portion(&self, tenant: TenantId) -> Portion {
        let cap = self.shared.tenant(tenant.0).cap();
        Portion { weight: self.table.weight(tenant.0 as usize), cap: cap.map(NonZeroU64::get) }
    }

    /// Ends a tenant. Requests that the tenant has queued are still served, as best effort; more
    /// are refused. The number is free again after [`remove`](Registry::remove).
    pub fn unregister(&mut self, tenant: TenantId, now: Instant) -> Result<(), Refusal> {
        let n = self.table.registered(tenant)?;
        self.put(n, Entry::Leaving, self.table.weight(n), now);
        Ok(())
    }

    /// Frees the number of a tenant that was unregistered and whose requests have all ended. Returns
    /// `false` if that is not so, as far as the schedulers know.
    pub fn remove(&mut self, tenant: TenantId, now: Instant) -> bool {
        let n = tenant.0 as usize;
        if self.table.entry(n) != Entry::Leaving || self.shared.tenant(tenant.0).terms().holders > 0
        {
            return false;
        }
        self.put(n, Entry::Vacant, self.table.weight(n), now);
        self.table.free(tenant);
        let balance = &self.shared.tenant(tenant.0).balance;
        let tokens = balance.tokens();
        balance.add(-tokens);
        self.totals.expired += i128::from(tokens);
        true
    }

    /// Tells if an SLO would be admitted, and what would have to give if not.
    pub fn check(&self, slo: Option<Slo>) -> Verdict {
        self.check_beside(slo, self.table.standing())
    }

    /// Tells if a tenant's SLO could become this one, and what would have to give if not.
    pub fn check_change(&self, tenant: TenantId, slo: Option<Slo>) -> Verdict {
        let Entry::Critical(_, promise) = self.table.entry(tenant.0 as usize) else {
            return self.check(slo);
        };
        let mut others = self.table.standing().clone();
        others.remove(tenant, promise);
        self.check_beside(slo, &others)
    }

    fn check_beside(&self, slo: Option<Slo>, others: &Standing) -> Verdict {
        let permille = self.adjustment.rate_permille;
        let Some(slo) = slo else {
            let device = scaled(others.device_rate(&self.model), permille);
            return Verdict::Admitted { needed: 0, left: device.saturating_sub(others.promised()) };
        };
        let asked = match claim(&slo, &self.model, &self.cost) {
            Err(refusal) => return Verdict::Refused { refusal, ways: Ways::default() },
            Ok(asked) => asked,
        };
        match admit(asked, others, permille) {
            Ok(left) => Verdict::Admitted { needed: asked.rate, left },
            Err(refusal) => {
                let ways = ways(&slo, asked, others, &self.model, &self.cost, permille);
                Verdict::Refused { refusal, ways }
            }
        }
    }

    /// Returns the units a second that the device makes with the tenants as they are.
    pub fn device_rate(&self) -> u64 {
        let rate = self.table.standing().device_rate(&self.model);
        scaled(rate, self.adjustment.rate_permille)
    }

    /// Returns the units a second that latency-critical tenants need for what they were promised.
    /// The sum exceeds [`device_rate`](Registry::device_rate) only where a correction has found
    /// that the device cannot keep what its model promised.
    pub fn promised(&self) -> u64 {
        self.table.standing().promised()
    }

    /// Returns the units a second that are left for best effort.
    pub fn left(&self) -> u64 {
        self.device_rate().saturating_sub(self.promised())
    }

    /// Returns the shortest latency that is promised, in microseconds.
    pub fn latency_us_min(&self) -> Option<u32> {
        self.table.standing().latency_us_min()
    }

    /// Returns every latency-critical tenant's promise.
    pub fn promises(&self) -> impl Iterator<Item = (TenantId, Claim)> {
        self.table.standing().iter()
    }

    /// Measures the device from now on, and corrects its model in each
    /// [`observe`](Registry::observe); or stops, and trusts the model again.
    pub fn correct_online(&mut self, on: bool, now: Instant) {
        self.probe.correct(on, &self.shared.delays, now);
        if !on {
            self.adjust(Adjustment::NONE, now);
        }
        self.measure_while_needed();
    }

    /// Bounds how many requests are at the device at a time, for the sake of the strictest latency,
    /// from the next [`observe`](Registry::observe) on; or leaves that to the device.
    pub fn bound_depth(&mut self, on: bool, now: Instant) {
        self.probe.bound_depth(on, &self.shared.delays, now);
        if !on {
            self.shared.set_depth(None);
        }
        self.measure_while_needed();
    }

    /// Refuses requests of latency-critical tenants that would wait longer for tokens than their
    /// latency allows, at once and retryably; or lets them wait.
    pub fn fail_fast(&mut self, on: bool) {
        self.shared.set_failing_fast(on);
    }

    /// Lets latency-critical tenants have back, at the cost of best effort, what they did not use of
    /// the last [`STALL_NANOS_MAX`](crate::units::STALL_NANOS_MAX), as a new registry does; or never.
    pub fn pay_arrears(&mut self, on: bool) {
        self.pays_arrears = on;
        self.bound_loan();
    }

    /// Bounds what is lent, which is at the device before it was made. A twentieth of what the device
    /// serves within the strictest latency delays nobody by more than a twentieth of that.
    fn bound_loan(&self) {
        let strictest = self.latency_us_min().filter(|_| self.pays_arrears);
        let nanos = strictest.map_or(0, |us| u64::from(us) * 1_000 / 20);
        self.shared.set_loan_max(generated(self.device_rate(), nanos));
    }

    fn measure_while_needed(&self) {
        self.shared.set_measuring(self.probe.is_needed());
    }

    /// Has the workers measure the device, for a reader of [`Shared::delays`]; or no more for that
    /// reader's sake.
    pub fn probe(&mut self, on: bool) {
        self.probe.read(on);
        self.measure_while_needed();
    }

    /// Watches from the next [`observe`](Registry::observe) on if the device is what its model says:
    /// workers measure the device for [`DRIFT_WINDOW`](crate::DRIFT_WINDOW) in each
    /// [`DRIFT_PERIOD`](crate::DRIFT_PERIOD).
    pub fn watch_drift(&mut self, on: bool, now: Instant) {
        self.probe.watch(on, now);
        self.measure_while_needed();
    }

    /// Returns the drift of the device from its model; `None` if it is not watched.
    pub fn drift(&self) -> Option<Drift> {
        self.probe.drift()
    }

    /// Returns tenants that would have to go, as few as possible, for the other promises to fit
    /// into another model of the device; none if all fit.
    pub fn displaced(&self, model: &DeviceModel) -> Vec<TenantId> {
        admission::displaced(self.table.critical(), model)
    }

    /// Trusts another model from now on. Promises to tenants stay; where they are more than the
    /// device makes by the new model, each tenant gets its part of that, as when the model is
    /// [corrected](Registry::adjust). A correction starts anew, and so does the drift.
    ///
    /// # Errors
    /// The new model has no rate for what a tenant was promised; then the old one stays.
    pub fn set_model(&mut self, model: DeviceModel, now: Instant) -> Result<(), Refusal> {
        for (_, slo) in self.table.critical() {
            claim(&slo, &model, model.cost())?;
        }
        self.cost = model.cost().clone();
        self.model = model;
        self.probe.restart();
        self.adjust(Adjustment::NONE, now);
        Ok(())
    }

    /// Ends a window of what is measured, and installs what follows for the correction, the bound of
    /// the depth and the drift. The control plane calls this every
    /// [`CORRECTION_NANOS`](crate::CORRECTION_NANOS) or so; while all are off nothing happens. Workers
    /// take the changes up in their next rounds.
    /// `waited` is the longest time since the last call for which a worker was ready to run and did
    /// not: windows with much of that change nothing.
    pub fn observe(&mut self, waited: Duration, now: Instant) -> Adjustment {
        let view = View {
            model: &self.model,
            delays: &self.shared.delays,
            cost: &self.cost,
            adjustment: self.adjustment,
            rate: scaled(
                self.table.standing().device_rate(&self.model),
                self.adjustment.rate_permille,
            ),
            strictest: self.table.standing().strictest().map(|(_, promise)| promise),
        };
        self.probe.look(&view, waited, now);
        self.shared.set_measuring(self.probe.is_needed());
        let Some(Observation { depth, adjustment }) = self.probe.end_window(&view, now) else {
            return self.adjustment;
        };
        if let Some(depth) = depth {
            self.shared.set_depth(depth);
        }
        if adjustment != self.adjustment {
            self.adjust(adjustment, now);
        }
        adjustment
    }

    /// Returns the factors that correct the model's rate and its price of writes at present.
    pub fn adjustment(&self) -> Adjustment {
        self.adjustment
    }

    /// Returns `true` if the model is corrected by what is measured.
    pub fn is_corrected(&self) -> bool {
        self.probe.is_correcting()
    }

    /// Multiplies the model's rate and its price of writes from now on: what tenants need is priced
    /// anew, and where that is more than the device makes, each gets its part of that.
    pub fn adjust(&mut self, adjustment: Adjustment, now: Instant) {
        self.settle(now.as_nanos());
        self.adjustment = adjustment;
        let write = u64::from(self.model.cost().write());
        self.cost.set_write((write * u64::from(adjustment.write_permille) / 1_000) as u32);
        self.shared.set_prices(Prices::of(&self.cost));
        let (model, cost) = (&self.model, &self.cost);
        self.table.reprice(|slo| claim(slo, model, cost).ok());
        let share = self.lower_share(now.as_nanos());
        self.grant_all(now);
        self.raise_share(share, now.as_nanos());
    }

    /// Returns what the registry made by settling the idle pools before changes, and what expired
    /// with the balances of removed tenants (a debt counts below zero).
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Puts what idle tenants made into the bucket.
    fn settle(&mut self, now: u64) {
        let made = i128::from(self.shared.settle(now));
        self.totals.generated += made;
        self.totals.donated += made;
    }

    fn install(&mut self, n: usize, entry: Entry, now: Instant) -> Admission {
        self.put(n, entry, self.table.weight(n), now);
        let needed = match entry {
            Entry::Critical(_, promise) => promise.rate,
            _ => 0,
        };
        Admission { tenant: TenantId(n as u32), needed, left: self.left() }
    }

    /// Puts an entry into the table and tells the workers: rates that fall fall first, so that the
    /// promised rates and the shares never add up to more than the device makes.
    fn put(&mut self, n: usize, entry: Entry, weight: u32, now: Instant) {
        let was_overcommitted = self.is_overcommitted();
        let was_alone = self.table.sharing() == 0;
        self.table.set(n, entry, weight);
        let (is_alone, now_nanos) = (self.table.sharing() == 0, now.as_nanos());
        self.settle(now_nanos);
        let share = self.lower_share(now_nanos);
        self.shared.set_best_effort(self.table.sharing());
        if was_alone && !is_alone {
            self.shared.idle_shares.change(-1, now_nanos);
        }
        self.grant(n, now_nanos);
        if (was_overcommitted || self.is_overcommitted()) && !self.grants.put_off() {
            self.grant_all(now);
        }
        if !was_alone && is_alone {
            self.shared.idle_shares.change(1, now_nanos);
        }
        self.raise_share(share, now_nanos);
        let strictest = self.latency_us_min();
        let twentieth = strictest.map_or(ROUND_NANOS, |us| u64::from(us) * 1_000 / 20);
        self.shared.set_round_nanos(twentieth.min(ROUND_NANOS));
    }

    /// Returns the share of a unit of weight as it is to be; installs it if it falls.
    fn lower_share(&mut self, now: u64) -> u64 {
        let share = self.left() / self.table.sharing().max(1);
        if share < self.shared.share() {
            self.shared.set_share(share);
        }
        self.shared.idle_critical.change(-(self.remainder as i64), now);
        self.remainder = 0;
        share
    }

    /// Installs the share if it rises, and what is left when it is given to all.
    fn raise_share(&mut self, share: u64, now: u64) {
        self.shared.set_share(share);
        self.remainder = self.left() % self.table.sharing().max(1);
        self.shared.idle_critical.change(self.remainder as i64, now);
        self.bound_loan();
    }

    fn is_overcommitted(&self) -> bool {
        self.promised() > self.device_rate()
    }

    /// Returns a tenant's class, and its rate or weight.
    fn terms(&self, n: usize) -> (Class, u64) {
        let weight = u64::from(self.table.weight(n));
        match self.table.entry(n) {
            Entry::Vacant => (Class::Vacant, 0),
            Entry::BestEffort => (Class::BestEffort, weight),
            Entry::Leaving => (Class::Leaving, weight),
            Entry::Critical(_, Claim { rate, .. }) if self.is_overcommitted() => {
                let part = u128::from(rate) * u128::from(self.device_rate());
                (Class::LatencyCritical, (part / u128::from(self.promised())) as u64)
            }
            Entry::Critical(_, promise) => (Class::LatencyCritical, promise.rate),
        }
    }

    /// Tells the workers a tenant's terms.
    fn grant(&self, n: usize, now: u64) {
        let (class, rate) = self.terms(n);
        let cell = self.shared.tenant(n as u32);
        if let Entry::Critical(_, promise) = self.table.entry(n) {
            cell.set_latency_nanos(u64::from(promise.latency_us) * 1_000);
        }
        let old = cell.change(class, rate);
        self.shared.count_change(old.class, class);
        if (old.class, old.rate) != (class, rate) {
            cell.change_promise(old, class, rate, now);
        }
        if old.holders == 0 {
            self.pool(old, -1, now);
            self.pool(Terms { class, rate, ..old }, 1, now);
        }
    }

    /// Tells the workers the terms of all latency-critical tenants: first those that fall.
    fn grant_all(&mut self, now: Instant) {
        self.grants.count();
        for falls in [true, false] {
            for (tenant, _) in self.table.standing().iter() {
                let n = tenant.0 as usize;
                let (old, new) = (self.shared.tenant(tenant.0).terms().rate, self.terms(n).1);
                if (falls && new < old) || (!falls && new > old) {
                    self.grant(n, now.as_nanos());
                }
            }
        }
    }

    /// Puts an unheld tenant's rate into its idle pool, or takes it out.
    fn pool(&self, terms: Terms, by: i64, now: u64) {
        if let Some(pool) = self.shared.idle_pool(terms.class) {
            pool.change(by * terms.rate as i64, now);
        }
    }
}

/// Returns what a tenant with this SLO, or of best effort, would be beside the others, or why it is refused, by the
/// device's model and corrected prices.
fn judge(
    slo: Option<Slo>,
    others: &Standing,
    (model, cost): (&DeviceModel, &CostModel),
    permille: Permille,
) -> Result<Entry, Refusal> {
    let Some(slo) = slo else { return Ok(Entry::BestEffort) };
    let asked = claim(&slo, model, cost)?;
    admit(asked, others, permille)?;
    Ok(Entry::Critical(slo, asked))
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
