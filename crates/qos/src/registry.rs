//! The control side of one device's scheduling: tenants come, change and go at any time.
//!
//! There is one registry a device and it alone changes tenants; workers read each tenant's word when
//! they visit it, so nothing is sent to them and nothing is locked. What is deliberately not here:
//! names, access rules and files.

mod batch;
mod holding;
mod undo;

use batch::Grants;
pub use undo::Lot;

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use contract::{Instant, Slo, TenantId};

use crate::admission;
use crate::admission::{Promise, Refusal, Standing, Verdict, Ways, admit, promise, scaled, ways};
use crate::delays::Seen;
use crate::drift::{DRIFT_PERIOD, DRIFT_WINDOW, DriftWatch, Sight};
use crate::shared::{Prices, ROUND_NANOS, Shared};
use crate::tenant::Terms;
use crate::units::generated;
use crate::{
    Adjustment, CORRECTION_READS_MIN, Class, Correction, CostModel, DepthBound, DeviceModel, Drift,
    QueueLimits, TokenScheduler, Totals, Window,
};

pub use holding::Holding;

/// What a tenant was admitted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The tenant.
    pub tenant: TenantId,
    /// Units a second that its SLO needs; zero for best effort.
    pub needed: u64,
    /// Units a second that are left for best effort.
    pub left: u64,
}

/// A tenant that was found below the deficit limit since it was last asked (Algorithm 1, line 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeficitNotice {
    /// The tenant.
    pub tenant: TenantId,
    /// In how many rounds.
    pub rounds: u64,
}

/// What a best-effort tenant may have of what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Its part beside those of the others: it gets `weight / Σ weights` of what is left. From 1 to
    /// [`Portion::WEIGHT_MAX`].
    pub weight: u32,
    /// Units a second that it gets at most, whatever others leave; `None` for as much as there is.
    pub cap: Option<u64>,
}

impl Portion {
    /// The largest weight.
    pub const WEIGHT_MAX: u32 = 1_000;
}

impl Default for Portion {
    /// As much as any other, without a cap.
    fn default() -> Self {
        Portion { weight: 1, cap: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Vacant,
    BestEffort,
    Critical(Slo, Promise),
    /// Best effort for what it has queued.
    Leaving,
}

/// What is measured of the device, and who is told.
#[derive(Debug)]
struct Measurement {
    correction: Option<Correction>,
    depth: Option<DepthBound>,
    seen: Seen,
    looked_at: Instant,
}

/// Who looks now and then whether the device is what its model says.
#[derive(Debug)]
struct Watch {
    judge: DriftWatch,
    seen: Seen,
    /// When the current window began, and when the next one is due.
    open_since: Option<Instant>,
    next_at: Instant,
}

/// The tenants of one device.
#[derive(Debug)]
pub struct Registry {
    shared: Arc<Shared>,
    model: DeviceModel,
    /// The model's prices, corrected.
    cost: CostModel,
    adjustment: Adjustment,
    measurement: Option<Measurement>,
    watch: Option<Watch>,
    /// Somebody else measures the device.
    is_probed: bool,
    entries: Vec<Entry>,
    /// The weight of each tenant, for when it is best effort.
    weights: Vec<u32>,
    /// The weights of all best-effort tenants.
    sharing: u64,
    /// Units a second that are left when the rest is shared out in whole ones.
    remainder: u64,
    vacant: BTreeSet<TenantId>,
    standing: Standing,
    /// Deficits that were told already.
    told: Vec<u64>,
    totals: Totals,
    /// Whether latency-critical tenants can have back what they did not use.
    pays_arrears: bool,
    grants: Grants,
}

impl Registry {
    /// A device of this model without tenants, with room for `tenants_max`.
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
            measurement: None,
            watch: None,
            is_probed: false,
            entries: alloc::vec![Entry::Vacant; tenants_max],
            weights: alloc::vec![1; tenants_max],
            sharing: 0,
            remainder: 0,
            vacant: (0..tenants_max as u32).map(TenantId).collect(),
            standing: Standing::default(),
            told: alloc::vec![0; tenants_max],
            totals: Totals::default(),
            pays_arrears: true,
            grants: Grants::default(),
        }
    }

    /// What the workers share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The device's model.
    pub fn model(&self) -> &DeviceModel {
        &self.model
    }

    /// The scheduler of one of the device's workers.
    pub fn scheduler(&self, worker: usize, limits: QueueLimits) -> TokenScheduler {
        TokenScheduler::new(self.shared.clone(), self.cost.clone(), worker, limits)
    }

    /// Registers a tenant under the first number that is free.
    pub fn register(&mut self, slo: &Slo, now: Instant) -> Result<Admission, Refusal> {
        let free = self.vacant.first().copied().ok_or(Refusal::TableFull)?;
        self.register_as(free, slo, now)
    }

    /// Whether a tenant can be registered under this number.
    pub fn is_vacant(&self, tenant: TenantId) -> bool {
        self.vacant.contains(&tenant)
    }

    /// Registers a tenant under a number that [`is_vacant`](Registry::is_vacant), so that several
    /// devices can know it by the same.
    pub fn register_as(
        &mut self,
        tenant: TenantId,
        slo: &Slo,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        assert!(self.is_vacant(tenant), "tenant {} is registered already", tenant.0);
        let entry = self.judge(slo)?;
        let n = tenant.0 as usize;
        let cell = &self.shared.tenant(n as u32);
        cell.clear_usage();
        cell.set_cap(None);
        cell.clear_debt(now.as_nanos());
        self.told[n] = 0;
        self.weights[n] = Portion::default().weight;
        cell.balance.skip_to(now.as_nanos());
        Ok(self.install(n, entry, now))
    }

    /// Changes a tenant's SLO, from best effort and to it as well.
    pub fn change(
        &mut self,
        tenant: TenantId,
        slo: &Slo,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        let n = self.registered(tenant)?;
        // What it was promised is free for what it asks.
        let old = self.entries[n];
        if let Entry::Critical(_, promise) = old {
            self.standing.remove(tenant, promise);
        }
        let judged = self.judge(slo);
        if let Entry::Critical(_, promise) = old {
            self.standing.insert(tenant, promise);
        }
        Ok(self.install(n, judged?, now))
    }

    /// Changes what a tenant gets while it is best effort. Registered tenants have the
    /// [default](Portion::default); a change of class and back keeps it.
    pub fn set_portion(
        &mut self,
        tenant: TenantId,
        portion: Portion,
        now: Instant,
    ) -> Result<(), Refusal> {
        let n = self.registered(tenant)?;
        if !(1..=Portion::WEIGHT_MAX).contains(&portion.weight) {
            return Err(Refusal::Invalid("a weight is a number from 1 to 1000"));
        }
        if portion.cap == Some(0) {
            return Err(Refusal::Invalid("a cap of nothing would stop the tenant for ever"));
        }
        self.shared.tenant(n as u32).set_cap(portion.cap);
        let entry = self.entries[n];
        self.put(n, entry, portion.weight, now);
        Ok(())
    }

    /// What a tenant gets while it is best effort.
    pub fn portion(&self, tenant: TenantId) -> Portion {
        let n = tenant.0 as usize;
        let cap = self.shared.tenant(n as u32).cap();
        Portion { weight: self.weights[n], cap: cap.map(NonZeroU64::get) }
    }

    /// Ends a tenant. What it has queued is still served, as best effort; nothing more is taken.
    /// Its name is free again after [`remove`](Registry::remove).
    pub fn unregister(&mut self, tenant: TenantId, now: Instant) -> Result<(), Refusal> {
        let n = self.registered(tenant)?;
        self.put(n, Entry::Leaving, self.weights[n], now);
        Ok(())
    }

    /// Frees the name of a tenant that was unregistered, all of whose requests have ended; whether
    /// that was so as far as the schedulers know.
    pub fn remove(&mut self, tenant: TenantId, now: Instant) -> bool {
        let n = tenant.0 as usize;
        let cell = &self.shared.tenant(n as u32);
        if self.entries[n] != Entry::Leaving || cell.terms().holders > 0 {
            return false;
        }
        self.put(n, Entry::Vacant, self.weights[n], now);
        self.vacant.insert(tenant);
        let cell = &self.shared.tenant(n as u32);
        let tokens = cell.balance.tokens();
        cell.balance.add(-tokens);
        self.totals.expired += i128::from(tokens);
        true
    }

    /// Whether an SLO would be admitted, and what would have to give if not.
    pub fn check(&self, slo: &Slo) -> Verdict {
        self.check_beside(slo, &self.standing)
    }

    /// Whether a tenant's SLO could become this one, and what would have to give if not.
    pub fn check_change(&self, tenant: TenantId, slo: &Slo) -> Verdict {
        let Some(Entry::Critical(_, promise)) = self.entries.get(tenant.0 as usize) else {
            return self.check(slo);
        };
        let mut others = self.standing.clone();
        others.remove(tenant, *promise);
        self.check_beside(slo, &others)
    }

    fn check_beside(&self, slo: &Slo, others: &Standing) -> Verdict {
        let permille = self.adjustment.rate_permille;
        let asked = match promise(slo, &self.model, &self.cost) {
            Err(refusal) => return Verdict::Refused { refusal, ways: Ways::default() },
            Ok(None) => {
                let device = scaled(others.device_rate(&self.model), permille);
                let left = device.saturating_sub(others.promised());
                return Verdict::Admitted { needed: 0, left };
            }
            Ok(Some(asked)) => asked,
        };
        match admit(asked, others, permille) {
            Ok(left) => Verdict::Admitted { needed: asked.rate, left },
            Err(refusal) => {
                let ways = ways(slo, asked, others, &self.model, &self.cost, permille);
                Verdict::Refused { refusal, ways }
            }
        }
    }

    /// Units a second that the device makes with the tenants as they are.
    pub fn device_rate(&self) -> u64 {
        scaled(self.standing.device_rate(&self.model), self.adjustment.rate_permille)
    }

    /// Units a second that latency-critical tenants need for what they were promised. More than
    /// [`device_rate`](Registry::device_rate) only where a correction has found that the device
    /// cannot keep what its model promised.
    pub fn promised(&self) -> u64 {
        self.standing.promised()
    }

    /// Units a second that are left for best effort.
    pub fn left(&self) -> u64 {
        self.device_rate().saturating_sub(self.promised())
    }

    /// The shortest latency that is promised, in microseconds.
    pub fn latency_us_min(&self) -> Option<u32> {
        self.standing.latency_us_min()
    }

    /// Every latency-critical tenant's promise.
    pub fn promises(&self) -> impl Iterator<Item = (TenantId, Promise)> {
        self.standing.iter()
    }

    /// Measures the device from now on, and corrects its model in each
    /// [`observe`](Registry::observe); or stops, and trusts the model again.
    pub fn correct_online(&mut self, on: bool, now: Instant) {
        self.measure(now).correction = on.then(Correction::new);
        if !on {
            self.adjust(Adjustment::NONE, now);
        }
        self.measure_if_needed();
    }

    /// Bounds how many requests are at the device at a time, for the sake of the strictest latency,
    /// from the next [`observe`](Registry::observe) on; or leaves that to the device.
    pub fn bound_depth(&mut self, on: bool, now: Instant) {
        self.measure(now).depth = on.then(DepthBound::new);
        if !on {
            self.shared.set_depth(None);
        }
        self.measure_if_needed();
    }

    /// Refuses requests of latency-critical tenants that would wait longer for tokens than their
    /// latency allows, at once and retryably; or lets them wait.
    pub fn fail_fast(&mut self, on: bool) {
        self.shared.set_failing_fast(on);
    }

    /// Lets latency-critical tenants have back, at the cost of best effort, what they did not use of
    /// the last [`STALL_NANOS_MAX`](crate::units::STALL_NANOS_MAX) (which is so unless told
    /// otherwise); or never.
    pub fn pay_arrears(&mut self, on: bool) {
        self.pays_arrears = on;
        self.bound_loan();
    }

    /// What is lent is at the device before it was made. A twentieth of what the device serves
    /// within the strictest latency delays nobody by more than a twentieth of that.
    fn bound_loan(&self) {
        let strictest = self.standing.latency_us_min().filter(|_| self.pays_arrears);
        let nanos = strictest.map_or(0, |us| u64::from(us) * 1_000 / 20);
        self.shared.set_loan_max(generated(self.device_rate(), nanos));
    }

    fn measure(&mut self, now: Instant) -> &mut Measurement {
        let delays = &self.shared.delays;
        self.measurement.get_or_insert_with(|| {
            let mut seen = Seen::nothing();
            seen.look(delays);
            Measurement { correction: None, depth: None, seen, looked_at: now }
        })
    }

    fn measure_if_needed(&mut self) {
        let idle = |m: &mut Measurement| m.correction.is_none() && m.depth.is_none();
        self.measurement.take_if(idle);
        self.measure_while_needed();
    }

    fn measure_while_needed(&self) {
        let is_watched = self.watch.as_ref().is_some_and(|watch| watch.open_since.is_some());
        self.shared.set_measuring(self.measurement.is_some() || is_watched || self.is_probed);
    }

    /// Has the workers measure the device, for whoever reads [`Shared::delays`]; or no more for
    /// their sake.
    pub fn probe(&mut self, on: bool) {
        self.is_probed = on;
        self.measure_while_needed();
    }

    /// Watches from the next [`observe`](Registry::observe) on whether the device is what its model
    /// says: workers measure it for [`DRIFT_WINDOW`] in each [`DRIFT_PERIOD`].
    pub fn watch_drift(&mut self, on: bool, now: Instant) {
        self.watch = on.then(|| Watch {
            judge: DriftWatch::new(),
            seen: Seen::nothing(),
            open_since: None,
            next_at: now,
        });
        self.measure_while_needed();
    }

    /// How the device stands beside its model; `None` where nobody watches.
    pub fn drift(&self) -> Option<Drift> {
        self.watch.as_ref().map(|watch| watch.judge.state())
    }

    /// Opens and ends windows of the drift.
    fn watch(&mut self, now: Instant) {
        let Some(watch) = &mut self.watch else { return };
        match watch.open_since {
            None if now >= watch.next_at => {
                watch.seen.look(&self.shared.delays);
                (watch.open_since, watch.next_at) = (Some(now), now + DRIFT_PERIOD);
            }
            Some(begun) if now.since(begun) >= DRIFT_WINDOW => {
                let since = watch.seen.look(&self.shared.delays);
                let Adjustment { rate_permille, write_permille } = self.adjustment;
                let sight = Sight {
                    since: &since,
                    length: now.since(begun),
                    write: self.cost.write(),
                    corrected: f64::from(rate_permille) / f64::from(write_permille),
                };
                watch.judge.end(&self.model, sight, now);
                watch.open_since = None;
            }
            _ => return,
        }
        self.measure_while_needed();
    }

    /// Tenants that would have to go, few of them, for what the others are promised to fit into
    /// another model of the device; nobody where all fits.
    pub fn displaced(&self, model: &DeviceModel) -> Vec<TenantId> {
        let mut standing = Standing::default();
        let mut displaced = Vec::new();
        for (n, entry) in self.entries.iter().enumerate() {
            let Entry::Critical(slo, _) = entry else { continue };
            let tenant = TenantId(n as u32);
            match promise(slo, model, model.cost()) {
                Ok(Some(promise)) => standing.insert(tenant, promise),
                _ => displaced.push(tenant),
            }
        }
        displaced.extend(admission::excess(&standing, model));
        displaced
    }

    /// Trusts another model from now on. What tenants were promised stays; where that is more than
    /// the device makes by the new model, each gets its part of it, as when the model is
    /// [corrected](Registry::adjust). A correction starts anew, and so does the drift.
    ///
    /// # Errors
    /// The new model has no rate for what a tenant was promised; then the old one stays.
    pub fn set_model(&mut self, model: DeviceModel, now: Instant) -> Result<(), Refusal> {
        let critical = |entry: &Entry| match entry {
            Entry::Critical(slo, _) => Some(*slo),
            _ => None,
        };
        for slo in self.entries.iter().filter_map(critical) {
            promise(&slo, &model, model.cost())?;
        }
        self.cost = model.cost().clone();
        self.model = model;
        if let Some(measurement) = &mut self.measurement {
            measurement.correction = measurement.correction.as_ref().map(|_| Correction::new());
        }
        if let Some(watch) = &mut self.watch {
            watch.judge = DriftWatch::new();
        }
        self.adjust(Adjustment::NONE, now);
        Ok(())
    }

    /// Ends a window of what is measured, and installs what the correction and the bound of the
    /// depth make of it; and those of the drift. To be called every
    /// [`CORRECTION_NANOS`](crate::CORRECTION_NANOS) or so; does nothing while all are off. Workers
    /// take it up in their next rounds.
    pub fn observe(&mut self, now: Instant) -> Adjustment {
        self.watch(now);
        let rate = self.device_rate();
        let Some(measurement) = &mut self.measurement else { return self.adjustment };
        let since = measurement.seen.look(&self.shared.delays);
        let nanos = now.since(measurement.looked_at).as_nanos() as u64;
        measurement.looked_at = now;
        let bound = self.standing.strictest().map(|(_, promise)| promise);
        let tail = bound.filter(|_| since.ended() >= CORRECTION_READS_MIN);
        let window = Window {
            nanos,
            bound_us: bound.map(|promise| promise.latency_us),
            tail_nanos: tail.map(|promise| since.tail_nanos(promise.percentile.tenths())),
            reads: since.reads,
            writes: since.writes,
            spent: since.spent,
            rate,
            write: self.cost.write(),
        };
        if let Some(depth) = &mut measurement.depth {
            self.shared.set_depth(depth.observe(&window));
        }
        let adjustment = match &mut measurement.correction {
            Some(correction) => correction.observe(&window),
            None => self.adjustment,
        };
        if adjustment != self.adjustment {
            self.adjust(adjustment, now);
        }
        adjustment
    }

    /// What the model is multiplied with at present.
    pub fn adjustment(&self) -> Adjustment {
        self.adjustment
    }

    /// Whether the model is corrected by what is measured.
    pub fn is_corrected(&self) -> bool {
        self.measurement.as_ref().is_some_and(|measurement| measurement.correction.is_some())
    }

    /// Multiplies the model's rate and its price of writes from now on: what tenants need is priced
    /// anew, and where that is more than the device makes, each gets its part of that.
    pub fn adjust(&mut self, adjustment: Adjustment, now: Instant) {
        self.settle(now.as_nanos());
        self.adjustment = adjustment;
        let write = u64::from(self.model.cost().write());
        self.cost.set_write((write * u64::from(adjustment.write_permille) / 1_000) as u32);
        self.shared.set_prices(Prices::of(&self.cost));
        for n in 0..self.entries.len() {
            let Entry::Critical(slo, old) = self.entries[n] else { continue };
            let promised = promise(&slo, &self.model, &self.cost);
            let promise = promised.ok().flatten().unwrap_or(old);
            let tenant = TenantId(n as u32);
            self.standing.remove(tenant, old);
            self.standing.insert(tenant, promise);
            self.entries[n] = Entry::Critical(slo, promise);
        }
        let share = self.lower_share(now.as_nanos());
        self.grant_all(now);
        self.raise_share(share, now.as_nanos());
    }

    /// Latency-critical tenants that went below the deficit limit since the last call.
    pub fn take_notices(&mut self) -> Vec<DeficitNotice> {
        let mut notices = Vec::new();
        for (n, told) in self.told.iter_mut().enumerate() {
            let deficits = self.shared.tenant(n as u32).usage().deficits;
            if deficits > *told {
                let tenant = TenantId(n as u32);
                notices.push(DeficitNotice { tenant, rounds: deficits - *told });
                *told = deficits;
            }
        }
        notices
    }

    /// What the registry made by settling the idle pools before changes, and what expired with the
    /// balances of removed tenants (a debt counts below zero).
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Puts what idle tenants made into the bucket.
    fn settle(&mut self, now: u64) {
        let made = i128::from(self.shared.settle(now));
        self.totals.generated += made;
        self.totals.donated += made;
    }

    fn registered(&self, tenant: TenantId) -> Result<usize, Refusal> {
        let n = tenant.0 as usize;
        match self.entries.get(n) {
            Some(Entry::BestEffort | Entry::Critical(..)) => Ok(n),
            _ => Err(Refusal::NoTenant),
        }
    }

    /// What a tenant with this SLO would be beside the others, or why it is refused.
    fn judge(&self, slo: &Slo) -> Result<Entry, Refusal> {
        let Some(asked) = promise(slo, &self.model, &self.cost)? else {
            return Ok(Entry::BestEffort);
        };
        admit(asked, &self.standing, self.adjustment.rate_permille)?;
        Ok(Entry::Critical(*slo, asked))
    }

    fn install(&mut self, n: usize, entry: Entry, now: Instant) -> Admission {
        self.put(n, entry, self.weights[n], now);
        let needed = match entry {
            Entry::Critical(_, promise) => promise.rate,
            _ => 0,
        };
        Admission { tenant: TenantId(n as u32), needed, left: self.left() }
    }

    /// Puts an entry into the table and tells the workers: rates that fall fall first, so that the
    /// promised rates and the shares never add up to more than the device makes.
    fn put(&mut self, n: usize, entry: Entry, weight: u32, now: Instant) {
        let tenant = TenantId(n as u32);
        let shares = |entry: &Entry| matches!(entry, Entry::BestEffort | Entry::Leaving);
        let overcommitted = self.is_overcommitted();
        let alone_before = self.sharing == 0;
        self.vacant.remove(&tenant);
        if shares(&self.entries[n]) {
            self.sharing -= u64::from(self.weights[n]);
        }
        if let Entry::Critical(_, promise) = self.entries[n] {
            self.standing.remove(tenant, promise);
        }
        self.entries[n] = entry;
        self.weights[n] = weight;
        if shares(&entry) {
            self.sharing += u64::from(weight);
        }
        if let Entry::Critical(_, promise) = entry {
            self.standing.insert(tenant, promise);
        }
        let (alone, now_nanos) = (self.sharing == 0, now.as_nanos());
        self.settle(now_nanos);
        let share = self.lower_share(now_nanos);
        self.shared.set_best_effort(self.sharing);
        if alone_before && !alone {
            self.shared.idle_shares.change(-1, now_nanos);
        }
        self.grant(n, now_nanos);
        if (overcommitted || self.is_overcommitted()) && !self.grants.put_off() {
            self.grant_all(now);
        }
        if !alone_before && alone {
            self.shared.idle_shares.change(1, now_nanos);
        }
        self.raise_share(share, now_nanos);
        let strictest = self.standing.latency_us_min();
        let twentieth = strictest.map_or(ROUND_NANOS, |us| u64::from(us) * 1_000 / 20);
        self.shared.set_round_nanos(twentieth.min(ROUND_NANOS));
    }

    /// The share of a unit of weight as it is to be; installs it if it falls.
    fn lower_share(&mut self, now: u64) -> u64 {
        let share = self.left() / self.sharing.max(1);
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
        self.remainder = self.left() % self.sharing.max(1);
        self.shared.idle_critical.change(self.remainder as i64, now);
        self.bound_loan();
    }

    fn is_overcommitted(&self) -> bool {
        self.promised() > self.device_rate()
    }

    /// A tenant's class, and its rate or weight.
    fn terms(&self, n: usize) -> (Class, u64) {
        let weight = u64::from(self.weights[n]);
        match self.entries[n] {
            Entry::Vacant => (Class::Vacant, 0),
            Entry::BestEffort => (Class::BestEffort, weight),
            Entry::Leaving => (Class::Leaving, weight),
            Entry::Critical(_, Promise { rate, .. }) if self.is_overcommitted() => {
                let part = u128::from(rate) * u128::from(self.device_rate());
                (Class::LatencyCritical, (part / u128::from(self.promised())) as u64)
            }
            Entry::Critical(_, promise) => (Class::LatencyCritical, promise.rate),
        }
    }

    /// Tells the workers a tenant's terms.
    fn grant(&self, n: usize, now: u64) {
        let (class, rate) = self.terms(n);
        if let Entry::Critical(_, promise) = self.entries[n] {
            let nanos = u64::from(promise.latency_us) * 1_000;
            self.shared.tenant(n as u32).set_latency_nanos(nanos);
        }
        let old = self.shared.tenant(n as u32).change(class, rate);
        if (old.class, old.rate) != (class, rate) {
            self.shared.tenant(n as u32).change_promise(old, class, rate, now);
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
            for (tenant, _) in self.standing.iter() {
                let n = tenant.0 as usize;
                let (old, new) = (self.shared.tenant(n as u32).terms().rate, self.terms(n).1);
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

#[cfg(all(test, not(feature = "loom")))]
mod tests;
