//! The table of a server's tenants: by number and by name, with the numbers that are free.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map};

use contract::{Instant, Member, Promise, TenantId};
use qos::Class;
use spec::Tenant;

use crate::info::{Origin, Refusal, State};
use crate::measured::Window;
use crate::standing::Standing;
use crate::totals::TenantTotals;

/// Maximum number of known names in the refusal of an unknown name.
const NAMES_TOLD_MAX: usize = 20;

/// The name of the default tenant, for connections that name none.
pub(super) const DEFAULT: &str = "default";

/// A tenant of the table.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) state: State,
    /// Index of the device on which the promise holds.
    pub(crate) device: usize,
    pub(crate) promise: Promise,
    pub(crate) tokens_needed: u64,
    /// Free text of the operators.
    pub(crate) note: Option<String>,
    /// The configuration item that names the tenant and so prevents its removal; `None` if none
    /// does.
    pub(super) pinned_by: Option<String>,
    pub(crate) window: Window,
    /// Number of answers that named the tenant. Wraps, like the workers' count.
    pub(crate) answers: u32,
    /// Time of the last notice to the tenant; `None` before the first.
    pub(crate) noticed_at: Option<Instant>,
    /// Time since which no connection was seen to hold a handle on the tenant; `None` while one
    /// does.
    pub(crate) alone_since: Option<Instant>,
}

impl Entry {
    /// Returns the standing of the tenant in the last window.
    pub(super) fn standing(&self) -> Standing {
        let (slo, measured) = (self.promise.slo(), &self.window.measured);
        Standing::with(self.state, slo, self.tokens_needed, measured)
    }

    /// Returns the class of the tenant.
    pub(super) fn class(&self) -> Class {
        match (self.state, self.promise) {
            (State::Leaving, _) => Class::Leaving,
            (State::Active, Promise::BestEffort(_)) => Class::BestEffort,
            (State::Active, Promise::LatencyCritical(_)) => Class::LatencyCritical,
        }
    }

    /// Returns `true` if the tenant is not leaving.
    pub(crate) fn is_active(&self) -> bool {
        self.state == State::Active
    }
}

/// The tenants by number and by name. The number of the default tenant is reserved for it.
#[derive(Debug)]
pub(crate) struct TenantTable {
    /// The tenants; the index is the tenant's number.
    entries: Vec<Option<Entry>>,
    /// The tenants that are not leaving, by name.
    names: BTreeMap<String, TenantId>,
    /// Numbers without an entry, which no device knows either.
    free: BTreeSet<TenantId>,
    /// Number of tenants that clients made, by the clients' tenant.
    made: HashMap<TenantId, usize>,
    /// Number of times that each tenant number was freed; the index is the number.
    epochs: Vec<u32>,
    /// Sums of the earlier tenants of each number; the index is the number.
    departed: Vec<Option<Box<TenantTotals>>>,
}

impl TenantTable {
    /// Returns an empty table for at most `tenants_max` tenants.
    pub(super) fn new(tenants_max: usize) -> TenantTable {
        TenantTable {
            entries: (0..tenants_max).map(|_| None).collect(),
            names: BTreeMap::new(),
            free: (0..tenants_max as u32).map(TenantId).collect(),
            made: HashMap::new(),
            epochs: vec![0; tenants_max],
            departed: vec![None; tenants_max],
        }
    }

    /// Returns the capacity of the table.
    pub(crate) fn tenants_max(&self) -> usize {
        self.entries.len()
    }

    /// Returns all numbers, with and without a tenant.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = TenantId> + use<> {
        (0..self.entries.len() as u32).map(TenantId)
    }

    /// Returns the tenant of a number; `None` if the number is not in use.
    pub(crate) fn get(&self, tenant: TenantId) -> Option<&Entry> {
        self.entries.get(tenant.0 as usize)?.as_ref()
    }

    /// Returns the tenant of a number, for changes; `None` if the number is not in use.
    pub(crate) fn get_mut(&mut self, tenant: TenantId) -> Option<&mut Entry> {
        self.entries.get_mut(tenant.0 as usize)?.as_mut()
    }

    /// Returns the tenant of a number that is in use.
    pub(crate) fn entry(&self, tenant: TenantId) -> &Entry {
        self.get(tenant).expect("a number that was just found")
    }

    /// Returns the tenant of a number that is in use, for changes.
    pub(crate) fn entry_mut(&mut self, tenant: TenantId) -> &mut Entry {
        self.get_mut(tenant).expect("a number that was just found")
    }

    /// Returns the tenants in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TenantId, &Entry)> {
        let each = self.entries.iter().enumerate();
        each.filter_map(|(n, entry)| Some((TenantId(n as u32), entry.as_ref()?)))
    }

    /// Returns the number of the tenant of this name; `None` if there is none that is not leaving.
    pub(crate) fn find(&self, name: &str) -> Option<TenantId> {
        self.names.get(name).copied()
    }

    /// Returns the number of the tenant of this name that is not leaving.
    ///
    /// # Errors
    /// Fails if there is no such tenant.
    pub(super) fn known(&self, name: &str) -> Result<TenantId, Refusal> {
        self.find(name).ok_or_else(|| self.no_tenant(name))
    }

    /// Returns the names of the tenants that are not leaving, in order.
    pub(super) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Builds the "unknown tenant" refusal, listing up to [`NAMES_TOLD_MAX`] existing names.
    pub(super) fn no_tenant(&self, name: &str) -> Refusal {
        let known = self.names().take(NAMES_TOLD_MAX).map(str::to_owned).collect();
        let others = self.names.len().saturating_sub(NAMES_TOLD_MAX);
        Refusal::NoTenant { name: name.to_owned(), known, others }
    }

    /// Returns the name of a tenant.
    pub(super) fn name(&self, tenant: TenantId) -> String {
        self.entry(tenant).name.clone()
    }

    /// Returns the tenant of a number, in the number's current epoch.
    pub(crate) fn member(&self, tenant: TenantId) -> Member {
        Member { tenant, epoch: self.epochs[tenant.0 as usize] }
    }

    /// Returns the epoch that workers enter when the tenant of a number has left.
    pub(super) fn next_epoch(&self, tenant: TenantId) -> u32 {
        self.epochs[tenant.0 as usize].wrapping_add(1)
    }

    /// Returns a member's tenant; `None` if it is leaving, or its number has another epoch.
    pub(crate) fn current(&self, member: Member) -> Option<&Entry> {
        let is_it = self.epochs.get(member.tenant.0 as usize) == Some(&member.epoch);
        self.get(member.tenant).filter(|entry| is_it && entry.is_active())
    }

    /// Returns the sums of the earlier tenants of a number; `None` without such sums.
    pub(crate) fn departed(&self, tenant: TenantId) -> Option<&TenantTotals> {
        self.departed[tenant.0 as usize].as_deref()
    }

    /// Checks that a name is valid and unknown.
    ///
    /// # Errors
    /// Fails with the reason.
    pub(super) fn check_new(&self, name: &str) -> Result<(), Refusal> {
        Tenant::check_name(name).map_err(Refusal::Invalid)?;
        match self.names.contains_key(name) {
            true => Err(Refusal::Taken(name.to_owned())),
            false => Ok(()),
        }
    }

    /// Returns a number for one more tenant. The number of the default tenant is reserved. The
    /// clients of one tenant get at most a quarter of the table, so that they cannot take its room
    /// from others.
    ///
    /// # Errors
    /// Fails if the table is full, or has no more room for these clients.
    pub(super) fn room(&self, name: &str, origin: Origin) -> Result<TenantId, Refusal> {
        let tenants_max = (self.entries.len() / 4).max(1);
        if let Origin::Client(by) = origin
            && self.made.get(&by).is_some_and(|made| *made >= tenants_max)
        {
            return Err(Refusal::TooMany { tenants_max });
        }
        let free = match name {
            DEFAULT => self.free.get(&TenantId::DEFAULT),
            _ => self.free.range(TenantId(1)..).next(),
        };
        free.copied().ok_or(Refusal::TableFull { tenants_max: self.entries.len() })
    }

    /// Returns the number of tenants that the table has room for, besides the default one.
    pub(super) fn vacancies(&self) -> usize {
        self.free.range(TenantId(1)..).count()
    }

    /// Adds a tenant under a [free number](TenantTable::room).
    pub(super) fn add(&mut self, tenant: TenantId, entry: Entry) {
        self.names.insert(entry.name.clone(), tenant);
        self.free.remove(&tenant);
        if let Origin::Client(by) = entry.origin {
            *self.made.entry(by).or_default() += 1;
        }
        self.entries[tenant.0 as usize] = Some(entry);
    }

    /// Begins a tenant's end: its name is free at once, its number is not.
    pub(super) fn leave(&mut self, tenant: TenantId) {
        let entry = self.entries[tenant.0 as usize].as_mut().expect("a number that was just found");
        entry.state = State::Leaving;
        self.names.remove(&entry.name);
    }

    /// Frees the number of a tenant that has left.
    pub(super) fn remove(&mut self, tenant: TenantId) {
        let n = tenant.0 as usize;
        let entry = self.entries[n].take().expect("it was leaving");
        self.epochs[n] = self.next_epoch(tenant);
        self.free.insert(tenant);
        if let Origin::Client(by) = entry.origin
            && let hash_map::Entry::Occupied(mut made) = self.made.entry(by)
        {
            *made.get_mut() -= 1;
            if *made.get() == 0 {
                made.remove();
            }
        }
        if entry.window.totals != TenantTotals::default() {
            self.departed[n].get_or_insert_default().add_totals(&entry.window.totals);
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::TenantReading;

    use super::*;

    fn entry(name: &str, origin: Origin) -> Entry {
        Entry {
            name: name.to_owned(),
            origin,
            state: State::Active,
            device: 0,
            promise: Promise::default(),
            tokens_needed: 0,
            note: None,
            pinned_by: None,
            window: Window::start(TenantReading::default(), Instant::ZERO),
            answers: 0,
            noticed_at: None,
            alone_since: None,
        }
    }

    fn add(table: &mut TenantTable, name: &str, origin: Origin) -> Result<TenantId, Refusal> {
        table.check_new(name)?;
        let tenant = table.room(name, origin)?;
        table.add(tenant, entry(name, origin));
        Ok(tenant)
    }

    #[test]
    fn a_name_is_free_before_its_number() {
        let mut table = TenantTable::new(3);
        let one = add(&mut table, "one", Origin::Operator).unwrap();
        assert_eq!(add(&mut table, "one", Origin::Operator), Err(Refusal::Taken("one".into())));
        let before = table.member(one);
        assert!(table.current(before).is_some());
        table.leave(one);
        assert!(table.current(before).is_none() && table.find("one").is_none());
        let two = add(&mut table, "one", Origin::Operator).unwrap();
        assert_eq!((one, two), (TenantId(1), TenantId(2)));
        // The last number is the default tenant's.
        let full = Err(Refusal::TableFull { tenants_max: 3 });
        assert_eq!(add(&mut table, "three", Origin::Operator), full);
        table.remove(one);
        assert_eq!(add(&mut table, "three", Origin::Operator), Ok(one));
        assert_ne!(table.member(one), before);
        assert_eq!(add(&mut table, DEFAULT, Origin::Configured), Ok(TenantId::DEFAULT));
    }

    #[test]
    fn clients_get_a_quarter_of_the_table() {
        let mut table = TenantTable::new(9);
        let mine = Origin::Client(TenantId(7));
        let first = add(&mut table, "a", mine).unwrap();
        add(&mut table, "b", mine).unwrap();
        assert_eq!(add(&mut table, "c", mine), Err(Refusal::TooMany { tenants_max: 2 }));
        assert!(add(&mut table, "c", Origin::Client(TenantId(8))).is_ok());
        table.leave(first);
        assert!(add(&mut table, "d", mine).is_err(), "its number is not free yet");
        table.remove(first);
        assert!(add(&mut table, "d", mine).is_ok());
    }
}
