//! The table of a device's tenants: their promises or weights, and the sums of these.
//!
//! This module deliberately leaves out publishing to the workers (`registry.rs`).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use contract::{Slo, TenantId};

use crate::admission::{AdmittedPromises, PricedSlo, Refusal};

/// An entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The number belongs to no tenant.
    Vacant,
    /// A tenant with a share of the unpromised rate.
    BestEffort,
    /// A tenant with an SLO, and the SLO's claim.
    Critical(Slo, PricedSlo),
    /// An unregistered tenant: best effort for the requests that it has queued.
    Leaving,
}

impl Entry {
    /// Returns `true` if the tenant gets a share of the unpromised rate.
    fn is_sharing(self) -> bool {
        matches!(self, Entry::BestEffort | Entry::Leaving)
    }

    /// Returns `true` if the entry has a tenant that was not unregistered.
    fn is_registered(self) -> bool {
        matches!(self, Entry::BestEffort | Entry::Critical(..))
    }
}

/// The tenants of one device.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    /// The weight of each tenant, used while it is best effort.
    weights: Vec<u32>,
    /// The summed weights of all best-effort tenants, including leaving ones.
    sharing: u64,
    vacant: BTreeSet<TenantId>,
    standing: AdmittedPromises,
}

impl Table {
    /// Makes a table without tenants, with room for `tenants_max`.
    pub(super) fn new(tenants_max: usize) -> Table {
        Table {
            entries: alloc::vec![Entry::Vacant; tenants_max],
            weights: alloc::vec![1; tenants_max],
            sharing: 0,
            vacant: (0..tenants_max as u32).map(TenantId).collect(),
            standing: AdmittedPromises::default(),
        }
    }

    /// Returns the lowest free number of a tenant; `None` if the table is full.
    pub(super) fn first_vacant(&self) -> Option<TenantId> {
        self.vacant.first().copied()
    }

    /// Returns `true` if a tenant can be registered under this number.
    pub(super) fn is_vacant(&self, tenant: TenantId) -> bool {
        self.vacant.contains(&tenant)
    }

    /// Frees the number of a removed tenant.
    pub(super) fn free(&mut self, tenant: TenantId) {
        self.vacant.insert(tenant);
    }

    /// Sets the weight of a new tenant.
    pub(super) fn reset(&mut self, n: usize, weight: u32) {
        self.weights[n] = weight;
    }

    /// Returns the index of a registered tenant's entry. Fails if the tenant is not registered.
    pub(super) fn registered(&self, tenant: TenantId) -> Result<usize, Refusal> {
        let n = tenant.0 as usize;
        let entry = self.entries.get(n).filter(|entry| entry.is_registered());
        entry.map(|_| n).ok_or(Refusal::NoTenant)
    }

    /// Returns the registered tenants.
    pub(super) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        let of = |(n, entry): (usize, &Entry)| entry.is_registered().then_some(TenantId(n as u32));
        self.entries.iter().enumerate().filter_map(of)
    }

    /// Returns the tenants with an SLO.
    pub(super) fn critical(&self) -> impl Iterator<Item = (TenantId, Slo)> {
        let of = |(n, entry): (usize, &Entry)| match entry {
            Entry::Critical(slo, _) => Some((TenantId(n as u32), *slo)),
            _ => None,
        };
        self.entries.iter().enumerate().filter_map(of)
    }

    /// Returns the entry of the tenant with number `n`; vacant for a number beyond the table.
    pub(super) fn entry(&self, n: usize) -> Entry {
        self.entries.get(n).copied().unwrap_or(Entry::Vacant)
    }

    /// Returns a tenant's weight as best effort.
    pub(super) fn weight(&self, n: usize) -> u32 {
        self.weights[n]
    }

    /// Returns the summed weights of all best-effort tenants, including leaving ones.
    pub(super) fn sharing(&self) -> u64 {
        self.sharing
    }

    /// Returns the promises of latency-critical tenants.
    pub(super) fn standing(&self) -> &AdmittedPromises {
        &self.standing
    }

    /// Calls `ask` with the table as if tenant `n` had no promise, and returns the answer.
    pub(super) fn beside<R>(&mut self, n: usize, ask: impl FnOnce(&Table) -> R) -> R {
        self.promise(n, false);
        let answer = ask(self);
        self.promise(n, true);
        answer
    }

    /// Adds the promise of tenant `n` to the sums if `counts` is `true`, or else removes it. Does
    /// nothing for a tenant without an SLO.
    fn promise(&mut self, n: usize, counts: bool) {
        let Entry::Critical(_, promise) = self.entries[n] else { return };
        let tenant = TenantId(n as u32);
        match counts {
            true => self.standing.insert(tenant, promise),
            false => self.standing.remove(tenant, promise),
        }
    }

    /// Replaces the entry and the weight of the tenant with number `n`.
    pub(super) fn set(&mut self, n: usize, entry: Entry, weight: u32) {
        self.vacant.remove(&TenantId(n as u32));
        if self.entries[n].is_sharing() {
            self.sharing -= u64::from(self.weights[n]);
        }
        self.promise(n, false);
        (self.entries[n], self.weights[n]) = (entry, weight);
        if entry.is_sharing() {
            self.sharing += u64::from(weight);
        }
        self.promise(n, true);
    }

    /// Recomputes the claims of all SLOs by `needs`. An SLO for which `needs` returns `None` keeps
    /// its claim.
    pub(super) fn reprice(&mut self, needs: impl Fn(&Slo) -> Option<PricedSlo>) {
        for n in 0..self.entries.len() {
            let Entry::Critical(slo, _) = self.entries[n] else { continue };
            let Some(promise) = needs(&slo) else { continue };
            self.promise(n, false);
            self.entries[n] = Entry::Critical(slo, promise);
            self.promise(n, true);
        }
    }
}
