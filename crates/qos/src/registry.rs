//! The control side of one device's scheduling: tenants come, change and go at any time.
//!
//! There is one registry a device and it alone changes tenants; workers read each tenant's word when
//! they visit it, so nothing is sent to them and nothing is locked. What is deliberately not here:
//! names, access rules and files.

use alloc::sync::Arc;
use alloc::vec::Vec;

use contract::{Instant, Slo, TenantId};

use crate::admission::{Promise, Refusal, Verdict, Ways, admit, device_rate, promise, ways};
use crate::shared::{ROUND_NANOS, Shared};
use crate::tenant::Terms;
use crate::units::RATE_MAX;
use crate::{Class, DeviceModel, IdleRule, QueueLimits, TokenScheduler, Totals};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Vacant,
    BestEffort,
    Critical(Promise),
    Leaving,
}

/// The tenants of one device.
#[derive(Debug)]
pub struct Registry {
    shared: Arc<Shared>,
    model: DeviceModel,
    entries: Vec<Entry>,
    /// Deficits that were told already.
    told: Vec<u64>,
    totals: Totals,
}

impl Registry {
    /// A device of this model without tenants, with room for `tenants_max`.
    pub fn new(model: DeviceModel, tenants_max: usize) -> Registry {
        let shared = Arc::new(Shared::new(tenants_max));
        let entries = alloc::vec![Entry::Vacant; tenants_max];
        let told = alloc::vec![0; tenants_max];
        // Everything is one idle share until somebody registers.
        shared.idle_shares.change(1, 0);
        shared.set_share(model.rate_max());
        Registry { shared, model, entries, told, totals: Totals::default() }
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
        let cost = self.model.cost().clone();
        TokenScheduler::new(self.shared.clone(), cost, worker, limits, IdleRule::Rest)
    }

    /// Registers a tenant under the first number that is free.
    pub fn register(&mut self, slo: &Slo, now: Instant) -> Result<Admission, Refusal> {
        let mut numbers = (0..self.entries.len() as u32).map(TenantId);
        let free = numbers.find(|tenant| self.is_vacant(*tenant)).ok_or(Refusal::TableFull)?;
        self.register_as(free, slo, now)
    }

    /// Whether a tenant can be registered under this number.
    pub fn is_vacant(&self, tenant: TenantId) -> bool {
        let n = tenant.0 as usize;
        self.entries.get(n) == Some(&Entry::Vacant) && self.shared.tenants[n].terms().holders == 0
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
        let asked = promise(slo, self.model.cost())?;
        if let Some(asked) = asked {
            admit(asked, &self.promises(None), &self.model)?;
        }
        let n = tenant.0 as usize;
        let cell = &self.shared.tenants[n];
        cell.clear_usage();
        self.told[n] = 0;
        cell.balance.skip_to(now.as_nanos());
        Ok(self.install(n, asked, now))
    }

    /// Changes a tenant's SLO, from best effort and to it as well.
    pub fn change(
        &mut self,
        tenant: TenantId,
        slo: &Slo,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        let n = self.registered(tenant)?;
        let asked = promise(slo, self.model.cost())?;
        if let Some(asked) = asked {
            admit(asked, &self.promises(Some(tenant)), &self.model)?;
        }
        Ok(self.install(n, asked, now))
    }

    /// Ends a tenant. What it has queued is still served, as best effort; nothing more is taken.
    /// Its name is free again after [`remove`](Registry::remove).
    pub fn unregister(&mut self, tenant: TenantId, now: Instant) -> Result<(), Refusal> {
        let n = self.registered(tenant)?;
        self.put(n, Entry::Leaving, now);
        Ok(())
    }

    /// Frees the name of a tenant that was unregistered, all of whose requests have ended; whether
    /// that was so as far as the schedulers know.
    pub fn remove(&mut self, tenant: TenantId, now: Instant) -> bool {
        let n = tenant.0 as usize;
        let cell = &self.shared.tenants[n];
        if self.entries[n] != Entry::Leaving || cell.terms().holders > 0 {
            return false;
        }
        self.put(n, Entry::Vacant, now);
        let cell = &self.shared.tenants[n];
        let tokens = cell.balance.tokens();
        cell.balance.add(-tokens);
        self.totals.expired += i128::from(tokens);
        true
    }

    /// Whether an SLO would be admitted, and what would have to give if not.
    pub fn check(&self, slo: &Slo) -> Verdict {
        self.check_beside(slo, self.promises(None))
    }

    /// Whether a tenant's SLO could become this one, and what would have to give if not.
    pub fn check_change(&self, tenant: TenantId, slo: &Slo) -> Verdict {
        self.check_beside(slo, self.promises(Some(tenant)))
    }

    fn check_beside(&self, slo: &Slo, others: Vec<(TenantId, Promise)>) -> Verdict {
        let asked = match promise(slo, self.model.cost()) {
            Err(refusal) => return Verdict::Refused { refusal, ways: Ways::default() },
            Ok(None) => {
                let left = self.rate_beside(&others) - sum(&others);
                return Verdict::Admitted { needed: 0, left };
            }
            Ok(Some(asked)) => asked,
        };
        match admit(asked, &others, &self.model) {
            Ok(left) => Verdict::Admitted { needed: asked.rate, left },
            Err(refusal) => {
                Verdict::Refused { refusal, ways: ways(slo, asked, &others, &self.model) }
            }
        }
    }

    /// Units a second that the device makes with the tenants as they are.
    pub fn device_rate(&self) -> u64 {
        self.rate_beside(&self.promises(None))
    }

    fn rate_beside(&self, promises: &[(TenantId, Promise)]) -> u64 {
        device_rate(promises.iter().map(|(_, promise)| *promise), &self.model)
            .expect("admitted latencies have a rate")
    }

    /// Units a second that are promised to latency-critical tenants.
    pub fn promised(&self) -> u64 {
        sum(&self.promises(None))
    }

    /// Units a second that are left for best effort.
    pub fn left(&self) -> u64 {
        self.device_rate() - self.promised()
    }

    /// Latency-critical tenants that went below the deficit limit since the last call.
    pub fn take_notices(&mut self) -> Vec<DeficitNotice> {
        let mut notices = Vec::new();
        for (n, told) in self.told.iter_mut().enumerate() {
            let deficits = self.shared.tenants[n].usage().deficits;
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

    fn registered(&self, tenant: TenantId) -> Result<usize, Refusal> {
        let n = tenant.0 as usize;
        match self.entries.get(n) {
            Some(Entry::BestEffort | Entry::Critical(_)) => Ok(n),
            _ => Err(Refusal::NoTenant),
        }
    }

    fn promises(&self, without: Option<TenantId>) -> Vec<(TenantId, Promise)> {
        let critical = |(n, entry): (usize, &Entry)| match entry {
            Entry::Critical(promise) => Some((TenantId(n as u32), *promise)),
            _ => None,
        };
        let all = self.entries.iter().enumerate().filter_map(critical);
        all.filter(|(tenant, _)| Some(*tenant) != without).collect()
    }

    fn install(&mut self, n: usize, asked: Option<Promise>, now: Instant) -> Admission {
        self.put(n, asked.map_or(Entry::BestEffort, Entry::Critical), now);
        let needed = asked.map_or(0, |promise| promise.rate);
        Admission { tenant: TenantId(n as u32), needed, left: self.left() }
    }

    /// Puts an entry into the table and tells the workers: rates that fall fall first, so that the
    /// promised rates and the shares never add up to more than the device makes.
    fn put(&mut self, n: usize, entry: Entry, now: Instant) {
        self.entries[n] = entry;
        let shared = &self.shared;
        self.totals.generated += i128::from(shared.settle(now.as_nanos()));
        let sharing = |entry: &&Entry| matches!(entry, Entry::BestEffort | Entry::Leaving);
        let best_effort = self.entries.iter().filter(sharing).count() as u64;
        let share = (self.left() / best_effort.max(1)).min(RATE_MAX);
        let alone_before = shared.best_effort() == 0;
        if share < shared.share() {
            shared.set_share(share);
        }
        shared.set_best_effort(best_effort);
        let now_nanos = now.as_nanos();
        if alone_before && best_effort > 0 {
            shared.idle_shares.change(-1, now_nanos);
        }
        let (class, rate) = match entry {
            Entry::Vacant => (Class::Vacant, 0),
            Entry::BestEffort => (Class::BestEffort, 0),
            Entry::Critical(promise) => (Class::LatencyCritical, promise.rate),
            Entry::Leaving => (Class::Leaving, 0),
        };
        let old = shared.tenants[n].change(class, rate);
        if old.holders == 0 {
            self.pool(old, -1, now_nanos);
            self.pool(Terms { class, rate, ..old }, 1, now_nanos);
        }
        if !alone_before && best_effort == 0 {
            shared.idle_shares.change(1, now_nanos);
        }
        shared.set_share(share);
        let promises = self.promises(None);
        let strictest = promises.iter().map(|(_, promise)| promise.latency_us).min();
        let twentieth = strictest.map_or(ROUND_NANOS, |us| u64::from(us) * 1_000 / 20);
        shared.set_round_nanos(twentieth.min(ROUND_NANOS));
    }

    /// Puts an unheld tenant's rate into its idle pool, or takes it out.
    fn pool(&self, terms: Terms, by: i64, now: u64) {
        match terms.class {
            Class::Vacant => {}
            Class::LatencyCritical => {
                self.shared.idle_critical.change(by * terms.rate as i64, now);
            }
            Class::BestEffort | Class::Leaving => {
                self.shared.idle_shares.change(by, now);
            }
        }
    }
}

/// Units a second of these promises.
fn sum(promises: &[(TenantId, Promise)]) -> u64 {
    promises.iter().map(|(_, promise)| promise.rate).sum()
}

#[cfg(all(test, not(loom)))]
mod tests {
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
        let Verdict::Refused { ways, .. } = registry.check_change(lax, &slo(500, 130_000, 100))
        else {
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
}
