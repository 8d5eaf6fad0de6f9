//! The control side of one device's scheduling: tenants come, change and go at any time.
//!
//! Each device has one registry, and only the registry changes tenants. Workers read a tenant's
//! word when they visit the tenant, so nothing is sent to them and nothing is locked. This module
//! deliberately leaves out names, access rules and files.

pub(crate) mod changes;
mod grants;
pub(crate) mod holding;
mod probe;
pub(crate) mod proposed_registry;
mod table;
pub(crate) mod taxes;
pub(crate) mod windows;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU64;
use core::time::Duration;

use contract::{Instant, Slo, TenantId};

use crate::admission;
use crate::admission::{
    AdmittedPromises, Permille, PricedSlo, Refusal, Verdict, Ways, admit, claim, scaled, ways,
};
use crate::correction::Adjustment;
use crate::cost_model::CostModel;
use crate::device_model::DeviceModel;
use crate::drift::Drift;
use crate::ledger::Totals;
use crate::queues::QueueLimits;
use crate::shared::{Prices, ROUND_NANOS, Shared};
use crate::tax::WriteTax;
use crate::tenant::{Class, Terms};
use crate::token_scheduler::TokenScheduler;
use crate::units::{generated, nano};
use grants::RateUpdates;
use probe::{Observation, Probe, View};
use table::{Entry, Table};
use taxes::{Taxes, limit_debt};

/// The figures of an admitted tenant: the rate that it needs, and the rate that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The number of the admitted tenant.
    pub tenant: TenantId,
    /// The rate of the tenant's SLO in units a second; zero for best effort.
    pub needed: u64,
    /// Units a second that remain for best effort.
    pub left: u64,
}

/// The portion of the unpromised rate that a best-effort tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairShare {
    /// The tenant's weight: it gets `weight / Σ weights` of the unpromised rate. From 1 to
    /// [`FairShare::WEIGHT_MAX`].
    pub weight: u32,
    /// The maximum rate of the tenant in units a second; `None` for no maximum.
    pub cap: Option<u64>,
}

impl FairShare {
    /// The largest weight of a tenant.
    pub const WEIGHT_MAX: u32 = contract::Share::WEIGHT_MAX;
}

impl Default for FairShare {
    /// Returns an equal share with other tenants, without a cap.
    fn default() -> Self {
        FairShare { weight: 1, cap: None }
    }
}

/// The registry of one device: its tenants with their promises, its model, and the rates that
/// follow.
#[derive(Debug)]
pub struct Registry {
    shared: Arc<Shared>,
    model: DeviceModel,
    /// The model's prices, corrected, with the tax on writes.
    cost: CostModel,
    /// The corrected prices with which promises are admitted: the tax is that of uniform writes.
    promised_cost: CostModel,
    treasury: WriteTax,
    adjustment: Adjustment,
    probe: Probe,
    table: Table,
    /// Units a second that remain when the unpromised rate is divided by weights into whole units.
    remainder: u64,
    totals: Totals,
    /// `true` if latency-critical tenants get back tokens that they did not use.
    pays_arrears: bool,
    grants: RateUpdates,
}

impl Registry {
    /// Creates the registry of a device with this model, with room for `tenants_max` tenants.
    pub fn new(model: DeviceModel, tenants_max: usize) -> Registry {
        let shared = Arc::new(Shared::new(tenants_max, Prices::of(model.cost())));
        // Everything is one idle share until somebody registers.
        shared.idle_shares.change(1, 0);
        shared.set_share(model.rate_max());
        Registry {
            shared,
            cost: model.cost().clone(),
            promised_cost: model.cost().clone(),
            treasury: WriteTax::new(model.cost()),
            model,
            adjustment: Adjustment::NONE,
            probe: Probe::default(),
            table: Table::new(tenants_max),
            remainder: 0,
            totals: Totals::default(),
            pays_arrears: true,
            grants: RateUpdates::default(),
        }
    }

    /// Returns the state that the workers share.
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

    /// Registers a tenant under the first free number; without an SLO, as best effort.
    pub fn register(&mut self, slo: Option<Slo>, now: Instant) -> Result<Admission, Refusal> {
        let free = self.table.first_vacant().ok_or(Refusal::TableFull)?;
        self.register_as(free, slo, now)
    }

    /// Returns `true` if a tenant can be registered under this number.
    pub fn is_vacant(&self, tenant: TenantId) -> bool {
        self.table.is_vacant(tenant)
    }

    /// Registers a tenant under a number that [`is_vacant`](Registry::is_vacant), so that several
    /// devices can use the same number for the tenant.
    pub fn register_as(
        &mut self,
        tenant: TenantId,
        slo: Option<Slo>,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        assert!(self.is_vacant(tenant), "tenant {} is registered already", tenant.0);
        let device = (&self.model, &self.promised_cost);
        let permille = self.adjustment.rate_permille;
        let entry = judge(slo, self.table.standing(), device, permille)?;
        let n = tenant.0 as usize;
        let cell = self.shared.tenant(tenant.0);
        cell.clear_usage();
        cell.set_cap(None);
        cell.clear_debt(now.as_nanos());
        cell.balance.skip_to(now.as_nanos());
        self.table.reset(n, FairShare::default().weight);
        Ok(self.install(n, entry, now))
    }

    /// Changes a tenant's SLO; `None` makes the tenant best effort.
    pub fn change(
        &mut self,
        tenant: TenantId,
        slo: Option<Slo>,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        let n = self.table.registered(tenant)?;
        // What it was promised is free for what it asks.
        let device = (&self.model, &self.promised_cost);
        let permille = self.adjustment.rate_permille;
        let judge = |table: &Table| judge(slo, table.standing(), device, permille);
        let entry = self.table.beside(n, judge)?;
        Ok(self.install(n, entry, now))
    }

    /// Changes a tenant's portion as best effort. Registered tenants have the
    /// [default](FairShare::default); a change of class and back keeps the portion.
    pub fn set_portion(
        &mut self,
        tenant: TenantId,
        portion: FairShare,
        now: Instant,
    ) -> Result<(), Refusal> {
        let n = self.table.registered(tenant)?;
        if !(1..=FairShare::WEIGHT_MAX).contains(&portion.weight) {
            return Err(Refusal::Invalid("a weight is a number from 1 to 1000"));
        }
        if portion.cap == Some(0) {
            return Err(Refusal::Invalid("a cap of nothing would stop the tenant for ever"));
        }
        self.shared.tenant(tenant.0).set_cap(portion.cap);
        self.put(n, self.table.entry(n), portion.weight, now);
        Ok(())
    }

    /// Returns a tenant's portion as best effort.
    pub fn portion(&self, tenant: TenantId) -> FairShare {
        let cap = self.shared.tenant(tenant.0).cap();
        FairShare { weight: self.table.weight(tenant.0 as usize), cap: cap.map(NonZeroU64::get) }
    }

    /// Ends a tenant. Requests that the tenant has queued are still served, as best effort; more
    /// are refused. The number is free again after [`remove`](Registry::remove).
    pub fn unregister(&mut self, tenant: TenantId, now: Instant) -> Result<(), Refusal> {
        let n = self.table.registered(tenant)?;
        self.put(n, Entry::Leaving, self.table.weight(n), now);
        Ok(())
    }

    /// Frees the number of an unregistered tenant whose requests have all ended. Returns `false` if
    /// the tenant is not unregistered, or if some requests have not ended, as far as the schedulers
    /// know.
    pub fn remove(&mut self, tenant: TenantId, now: Instant) -> bool {
        let n = tenant.0 as usize;
        if self.table.entry(n) != Entry::Leaving || self.shared.tenant(tenant.0).terms().holders > 0
        {
            return false;
        }
        self.put(n, Entry::Vacant, self.table.weight(n), now);
        self.table.free(tenant);
        let balance = &self.shared.tenant(tenant.0).balance;
        self.totals.expired += i128::from(balance.empty());
        true
    }

    /// Checks whether an SLO would be admitted, and if not, which changes would make room.
    pub fn check(&self, slo: Option<Slo>) -> Verdict {
        self.check_beside(slo, self.table.standing())
    }

    /// Checks whether a tenant's SLO could be changed to this one, and if not, which changes would
    /// make room.
    pub fn check_change(&self, tenant: TenantId, slo: Option<Slo>) -> Verdict {
        let Entry::Critical(_, promise) = self.table.entry(tenant.0 as usize) else {
            return self.check(slo);
        };
        let mut others = self.table.standing().clone();
        others.remove(tenant, promise);
        self.check_beside(slo, &others)
    }

    fn check_beside(&self, slo: Option<Slo>, others: &AdmittedPromises) -> Verdict {
        let permille = self.adjustment.rate_permille;
        let Some(slo) = slo else {
            return admission::admitted_best_effort(others, &self.model, permille);
        };
        let asked = match claim(&slo, &self.model, &self.promised_cost) {
            Err(refusal) => return Verdict::Refused { refusal, ways: Ways::default() },
            Ok(asked) => asked,
        };
        match admit(asked, others, permille) {
            Ok(left) => admission::admitted(asked, left, others, permille),
            Err(refusal) => {
                let ways = ways(&slo, asked, others, &self.model, &self.promised_cost, permille);
                Verdict::Refused { refusal, ways }
            }
        }
    }

    /// Returns the units a second that the device makes at the strictest of its promises, after the
    /// correction.
    pub fn device_rate(&self) -> u64 {
        let rate = self.table.standing().device_rate(&self.model);
        scaled(rate, self.adjustment.rate_permille)
    }

    /// Returns the units a second that the promises of latency-critical tenants need. The sum
    /// exceeds [`device_rate`](Registry::device_rate) only if the rate was lowered, or prices were
    /// raised, after promises were made: by a correction, another model or a tax.
    pub fn promised(&self) -> u64 {
        self.table.standing().promised()
    }

    /// Returns the units a second that further promises may have.
    pub fn left(&self) -> u64 {
        self.device_rate().saturating_sub(self.promised())
    }

    /// Returns the shortest latency that is promised, in microseconds; `None` without promises.
    pub fn latency_us_min(&self) -> Option<u32> {
        self.table.standing().latency_us_min()
    }

    /// Returns every latency-critical tenant's promise.
    pub fn promises(&self) -> impl Iterator<Item = (TenantId, PricedSlo)> {
        self.table.standing().iter()
    }

    /// Turns the online correction on: the device is measured, and each
    /// [`observe`](Registry::observe) corrects its model. Turned off, the model is used as it is.
    pub fn correct_online(&mut self, on: bool, now: Instant) {
        self.probe.correct(on, &self.shared.delays, now);
        if !on {
            self.adjust(Adjustment::NONE, now);
        }
        self.measure_while_needed();
    }

    /// Turns the bound of the number of requests at the device on or off. The bound is computed for
    /// the strictest latency, from the next [`observe`](Registry::observe) on.
    pub fn bound_depth(&mut self, on: bool, now: Instant) {
        self.probe.bound_depth(on, &self.shared.delays, now);
        if !on {
            self.shared.backlog.set_depth_max(None);
        }
        self.measure_while_needed();
    }

    /// Turns fail-fast on or off: requests of latency-critical tenants that would wait longer for
    /// tokens than their latency allows are refused at once, retryably.
    pub fn fail_fast(&mut self, on: bool) {
        self.shared.set_failing_fast(on);
    }

    /// Turns arrears on or off: latency-critical tenants get back, at the cost of best effort, the
    /// tokens that they did not use in the last [`STALL_NANOS_MAX`](crate::units::STALL_NANOS_MAX).
    /// On by default.
    pub fn pay_arrears(&mut self, on: bool) {
        self.pays_arrears = on;
        self.bound_work();
    }

    /// Limits what may be at the device ahead of promised requests: a loan to a twentieth, and best
    /// effort's large requests to half of what the device does within the strictest latency.
    fn bound_work(&self) {
        let (rate, strictest) = (self.device_rate(), self.latency_us_min());
        let work = |us: u32| generated(rate, u64::from(us) * 1_000);
        let loan = strictest.filter(|_| self.pays_arrears).map_or(0, |us| work(us) / 20);
        self.shared.set_loan_max(loan);
        self.shared.backlog.set_large_max(strictest.map(|us| (work(us) / nano(2)) as u64));
    }

    fn measure_while_needed(&self) {
        self.shared.set_measuring(self.probe.is_needed());
    }

    /// Starts or stops the workers' measurement of the device for a reader of [`Shared::delays`].
    pub fn probe(&mut self, on: bool) {
        self.probe.read(on);
        self.measure_while_needed();
    }

    /// Turns the watch of the device's drift on or off. While it is on, workers measure the device
    /// for [`DRIFT_WINDOW`](crate::DRIFT_WINDOW) in each [`DRIFT_PERIOD`](crate::DRIFT_PERIOD),
    /// from the next [`observe`](Registry::observe) on.
    pub fn watch_drift(&mut self, on: bool, now: Instant) {
        self.probe.watch(on, now);
        self.measure_while_needed();
    }

    /// Returns the drift of the device from its model; `None` if it is not watched.
    pub fn drift(&self) -> Option<Drift> {
        self.probe.drift()
    }

    /// Returns tenants that would have to go for the other promises to fit into another model of
    /// the device, chosen greedily; none if all fit.
    pub fn displaced(&self, model: &DeviceModel) -> Vec<TenantId> {
        admission::displaced(self.table.critical(), &self.model.succeeded_by(model))
    }

    /// Replaces the device's model. Promises to tenants stay. If they exceed the rate of the new
    /// model, each tenant gets a proportional part, as when the model is
    /// [corrected](Registry::adjust). The correction and the drift start anew.
    ///
    /// # Errors
    /// The new model has no rate for what a tenant was promised; then the old one stays.
    pub fn set_model(&mut self, model: DeviceModel, now: Instant) -> Result<(), Refusal> {
        let model = self.model.succeeded_by(&model);
        for (_, slo) in self.table.critical() {
            claim(&slo, &model, model.cost())?;
        }
        self.cost = model.cost().clone();
        self.model = model;
        self.probe.restart();
        self.adjust(Adjustment::NONE, now);
        Ok(())
    }

    /// Ends a window of measurement, and applies the result to the correction, the bound of the
    /// depth and the drift. Returns the adjustment that applies from now on. The control plane
    /// calls this about every [`CORRECTION_NANOS`](crate::CORRECTION_NANOS); while all three are
    /// off nothing happens. Workers use the changes from their next rounds on. `waited` is the
    /// longest time since the last call for which a worker waited for a processor: windows with
    /// much of it change nothing.
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
            self.shared.backlog.set_depth_max(depth);
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

    /// Returns `true` if the online correction is on.
    pub fn is_corrected(&self) -> bool {
        self.probe.is_correcting()
    }

    /// Multiplies the model's rate and its price of writes by these factors from now on. The needs
    /// of tenants are priced anew; if they exceed the device's rate, each tenant gets a
    /// proportional part.
    pub fn adjust(&mut self, adjustment: Adjustment, now: Instant) {
        self.settle(now.as_nanos());
        self.adjustment = adjustment;
        let write = u64::from(self.model.cost().write());
        let write = (write * u64::from(adjustment.write_permille) / 1_000) as u32;
        let mut untaxed = self.model.cost().clone();
        untaxed.set_write(write);
        (self.cost, self.promised_cost) = self.treasury.price(untaxed);
        self.shared.set_prices(Prices::of(&self.cost));
        let (model, cost) = (&self.model, &self.promised_cost);
        self.table.reprice(|slo| claim(slo, model, cost).ok());
        let debtors = self.table.critical().map(|(id, slo)| (self.shared.tenant(id.0), slo));
        debtors.for_each(|(tenant, slo)| limit_debt(tenant, &slo, cost));
        let share = self.lower_share(now.as_nanos());
        self.grant_all(now);
        self.raise_share(share, now.as_nanos());
    }

    /// Returns access to the taxes by which tenants pay for the device's background work (chores).
    pub fn taxes(&mut self) -> Taxes<'_> {
        Taxes(self)
    }

    /// Returns the tokens that the registry generated by settling the idle pools before changes,
    /// and those that expired with the balances of removed tenants (a debt counts as negative).
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Generates the tokens of idle tenants into the bucket.
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

    /// Sets an entry of the table and publishes the rates to the workers: lower rates first, so
    /// that promises and shares together never exceed the device's rate.
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

    /// Returns the units a second that a best-effort tenant of weight 1 gets from now on, and
    /// publishes them if they are fewer than before. Takes the remainder of the division out of the
    /// idle pool.
    fn lower_share(&mut self, now: u64) -> u64 {
        let share = filled(self) / self.table.sharing().max(1);
        if share < self.shared.share() {
            self.shared.set_share(share);
        }
        self.shared.idle_critical.change(-(self.remainder as i64), now);
        self.remainder = 0;
        share
    }

    /// Publishes the units a second of a best-effort tenant of weight 1, if they are more than
    /// before, and adds the remainder of the division to the idle pool.
    fn raise_share(&mut self, share: u64, now: u64) {
        self.shared.set_share(share);
        self.remainder = filled(self) % self.table.sharing().max(1);
        self.shared.idle_critical.change(self.remainder as i64, now);
        self.bound_work();
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
            Entry::Critical(_, PricedSlo { rate, .. }) if self.is_overcommitted() => {
                let part = u128::from(rate) * u128::from(self.device_rate());
                (Class::LatencyCritical, (part / u128::from(self.promised())) as u64)
            }
            Entry::Critical(_, promise) => (Class::LatencyCritical, promise.rate),
        }
    }

    /// Publishes a tenant's terms to the workers.
    fn grant(&self, n: usize, now: u64) {
        let (class, rate) = self.terms(n);
        let cell = self.shared.tenant(n as u32);
        if let Entry::Critical(slo, promise) = self.table.entry(n) {
            cell.set_latency_nanos(u64::from(promise.latency_us) * 1_000);
            limit_debt(cell, &slo, &self.promised_cost);
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

    /// Publishes the rates of all latency-critical tenants to the workers: first those that fall,
    /// then those that rise.
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

    /// Adds the rate or weight of a tenant that no worker holds to its idle pool (`by` is 1), or
    /// subtracts it (−1).
    fn pool(&self, terms: Terms, by: i64, now: u64) {
        if let Some(pool) = self.shared.idle_pool(terms.class) {
            pool.change(by * terms.rate as i64, now);
        }
    }
}

/// Returns the units a second that best effort gets on a registry's device.
fn filled(registry: &Registry) -> u64 {
    let rate = registry.table.standing().filled_rate(&registry.model);
    scaled(rate, registry.adjustment.rate_permille).saturating_sub(registry.promised())
}

/// Decides whether an SLO (`None` for best effort) fits beside the promises to others, by the
/// device's model, corrected prices and corrected rate. Returns the tenant's entry of the table, or
/// the reason for the refusal.
fn judge(
    slo: Option<Slo>,
    others: &AdmittedPromises,
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
