//! Fences: a client's new connection waits for the requests of its old one.
//!
//! A client that lost a connection sends the unanswered requests again on a new one. Without a
//! fence, an old copy of a write could still be on its way to the device, and land after a later
//! write to the same blocks was acknowledged. So a hello that names a client's connection is
//! answered only when no earlier connection of that name can change data any more
//! (docs/adr/0003-fences.md).
//!
//! The table of names is behind a lock. A worker that finds the lock taken goes on with its turn:
//! the hello, or the connection that arrives, waits for a later turn, and a connection that ends
//! leaves its name for the next clean-up (docs/adr/0023-one-try-lock.md).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;

use contract::{Fence, MigratingNameClaim, TenantId, TryLock};

/// A client's name for one of its connections, together with its tenant, so that no other tenant
/// can take the name.
pub type FenceName = (TenantId, u128, u32);

/// The fences of all workers of a server.
///
/// While another process has a part of the server's connections (docs/adr/0009-upgrade.md), the
/// value also lists the requests that must wait for that process: hellos that name a connection,
/// requests that need their range for themselves, and writes of hosts that may have other writes
/// there.
#[derive(Debug, Default)]
pub struct Fences {
    table: TryLock<NameTable>,
    /// `true` while some hellos wait for another process.
    holds_hellos: AtomicBool,
    /// The kinds of data-changing requests that must wait for another process, as a bit set. One
    /// atomic word, because each such request reads it.
    held_writes: AtomicU8,
}

/// Bit in `held_writes` for requests that no other request in their range of blocks may accompany.
const EXCLUSIVES: u8 = 1;
/// The bit for writes whose fence has a [`FenceGroup`](contract::FenceGroup): the fences of one
/// host, whose writes wait for each other.
const GROUPS: u8 = 2;

/// The hellos that wait for another process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HeldHellos {
    /// No hello waits.
    #[default]
    Nobody,
    /// All hellos with a client name wait.
    All,
    /// Hellos with these client names wait, since the other process still has connections with
    /// these names.
    Names(HashSet<FenceName>),
}

/// A guard that reserves a client name which another process passed on, until the connection with
/// this name has reached a worker.
#[derive(Debug)]
pub struct NameReservation(
    #[expect(dead_code, reason = "it is held, not read")] Option<Arc<Fence>>,
);

#[derive(Debug, Default)]
struct NameTable {
    /// The number of holders of names so far. It distinguishes one holder of a name from another.
    holders: u64,
    names: HashMap<FenceName, NameHolder>,
    /// The number of names after the last clean-up; the next one is due at twice as many.
    cleaned: usize,
    hold: HeldHellos,
}

/// The holder of a name.
#[derive(Debug)]
struct NameHolder {
    /// The number that distinguishes this holder of the name from earlier and later ones.
    serial: u64,
    fence: Arc<Fence>,
    /// The fence of an earlier connection with the same name whose requests had not ended when this
    /// connection took the name.
    before: Option<Arc<Fence>>,
}

/// A connection's position in the succession of connections that use the same client name.
#[derive(Debug)]
pub(crate) struct NameClaim {
    key: FenceName,
    serial: u64,
    fence: Arc<Fence>,
    /// The fence of the connection that had the name before, until its requests have ended.
    before: Option<Arc<Fence>>,
}

impl Fences {
    /// Takes a client's name for a new connection. Earlier connections with the name start no more
    /// requests. Returns `None` without a change if another thread uses the table: the worker tries
    /// again in a later turn.
    pub(crate) fn take(
        &self,
        tenant: TenantId,
        client: u128,
        connection: u32,
    ) -> Option<NameClaim> {
        self.table.try_with(|table| table.take((tenant, client, connection)))
    }

    /// Returns the place of a connection that came from another worker; that worker keeps its own
    /// place meanwhile. If a newer connection has the name by now, the place starts no requests.
    /// Returns `None` if another thread uses the table: the worker tries again in a later turn.
    pub(crate) fn rejoin(&self, place: MigratingNameClaim) -> Option<NameClaim> {
        self.table.try_with(|table| table.rejoin(place))
    }

    /// Keeps all threads out of the table of names while `work` runs, as a change by the control
    /// plane does. Workers that need the table wait for a later turn.
    pub fn shut_while<R>(&self, work: impl FnOnce() -> R) -> R {
        self.change(|_| work())
    }

    /// Runs `work` on the table, after waiting for other threads. For the control plane.
    fn change<R>(&self, work: impl FnOnce(&mut NameTable) -> R) -> R {
        self.table.with(work, thread::yield_now)
    }

    /// Sets which hellos must wait. During an upgrade, the other process (old or new) may still
    /// have a connection with the same client name.
    pub fn hold_hellos(&self, hold: HeldHellos) {
        self.change(|table| {
            self.holds_hellos.store(hold != HeldHellos::Nobody, Ordering::SeqCst);
            table.hold = hold;
        });
    }

    /// Returns whether the hello of this connection must wait because another process may have a
    /// connection with the same client name. Returns `true` while another thread uses the table.
    pub(crate) fn holds(&self, place: &NameClaim) -> bool {
        if !self.holds_hellos.load(Ordering::SeqCst) {
            return false;
        }
        let is_held = self.table.try_with(|table| match &table.hold {
            HeldHellos::Nobody => false,
            HeldHellos::All => true,
            HeldHellos::Names(names) => names.contains(&place.key),
        });
        is_held.unwrap_or(true)
    }

    /// Sets whether requests that exclude others wait for another process. Requests in devices
    /// continue.
    pub fn hold_exclusives(&self, hold: bool) {
        self.hold_writes(EXCLUSIVES, hold);
    }

    /// Sets whether writes whose fence belongs to a group ([`FenceGroup`](contract::FenceGroup))
    /// wait for another process, which may have fences of the same group. Such a fence may have
    /// ended with requests still at the devices, which this process cannot see
    /// (docs/adr/0011-nvme-fences.md).
    pub fn hold_groups(&self, hold: bool) {
        self.hold_writes(GROUPS, hold);
    }

    fn hold_writes(&self, which: u8, hold: bool) {
        match hold {
            true => self.held_writes.fetch_or(which, Ordering::SeqCst),
            false => self.held_writes.fetch_and(!which, Ordering::SeqCst),
        };
    }

    /// Returns whether any request that changes data waits for another process.
    pub(crate) fn holds_writes(&self) -> bool {
        self.held_writes.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn holds_exclusives(&self) -> bool {
        self.held_writes.load(Ordering::Relaxed) & EXCLUSIVES != 0
    }

    pub(crate) fn holds_groups(&self) -> bool {
        self.held_writes.load(Ordering::Relaxed) & GROUPS != 0
    }

    /// Returns the names of open connections and of those with running requests.
    pub fn names(&self) -> Vec<FenceName> {
        self.change(|table| {
            let is_used =
                |name: &NameHolder| Arc::strong_count(&name.fence) > 1 || name.is_running();
            let used = table.names.iter().filter(|(_, name)| is_used(name));
            used.map(|(key, _)| *key).collect()
        })
    }

    /// Makes the place of a connection that comes from another process a place of this process,
    /// kept until the second value is dropped. A connection that took the name here is the newer
    /// one.
    pub fn adopt(&self, place: MigratingNameClaim) -> (MigratingNameClaim, NameReservation) {
        let MigratingNameClaim { tenant, client, connection, is_superseded, .. } = place;
        let key = (tenant, client, connection);
        self.change(|table| {
            if is_superseded || table.names.contains_key(&key) {
                return (
                    MigratingNameClaim { serial: 0, is_superseded: true, ..place },
                    NameReservation(None),
                );
            }
            let (serial, fence) = table.hold_name(key, None);
            (MigratingNameClaim { serial, ..place }, NameReservation(Some(fence)))
        })
    }

    /// Gives up the place of a closed connection. The name stays taken while requests of the
    /// connection run, so that a later connection waits for them. If another thread uses the table,
    /// the name stays until a later clean-up.
    pub(crate) fn leave(&self, place: NameClaim) {
        // The place is dropped in either case.
        let _closed = self.table.try_with(|table| table.leave(place));
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.change(|table| table.names.len())
    }
}

impl NameTable {
    fn take(&mut self, key: FenceName) -> NameClaim {
        // An earlier holder that has not been let in runs nothing and never will; then what it
        // waited for is what the new one waits for. So at most one is waited for.
        let before = self.names.remove(&key).and_then(|earlier| {
            earlier.fence.supersede();
            [Some(earlier.fence), earlier.before].into_iter().flatten().find(|f| f.is_running())
        });
        let (serial, fence) = self.hold_name(key, before.clone());
        NameClaim { key, serial, fence, before }
    }

    /// Gives a name to a new connection, which waits for the requests of `before`. Returns the
    /// connection's number among all holders of names, and its fence.
    fn hold_name(&mut self, key: FenceName, before: Option<Arc<Fence>>) -> (u64, Arc<Fence>) {
        self.holders += 1;
        let (serial, fence) = (self.holders, Arc::new(Fence::default()));
        self.names.insert(key, NameHolder { serial, fence: fence.clone(), before });
        (serial, fence)
    }

    fn rejoin(&self, place: MigratingNameClaim) -> NameClaim {
        let MigratingNameClaim { tenant, client, connection, serial, .. } = place;
        let key = (tenant, client, connection);
        let own = self.names.get(&key).filter(|name| name.serial == serial);
        let fence = own.map(|name| name.fence.clone()).unwrap_or_else(|| {
            let fence = Fence::default();
            fence.supersede();
            Arc::new(fence)
        });
        NameClaim { key, serial, fence, before: None }
    }

    fn leave(&mut self, place: NameClaim) {
        let is_own = |name: &NameHolder| Arc::ptr_eq(&name.fence, &place.fence);
        let quiet = !place.is_waiting() && !place.fence.is_running();
        if quiet && self.names.get(&place.key).is_some_and(is_own) {
            self.names.remove(&place.key);
        }
        drop(place);
        if self.names.len() > 2 * self.cleaned + 64 {
            self.names.retain(|_, name| Arc::strong_count(&name.fence) > 1 || name.is_running());
            self.cleaned = self.names.len();
        }
    }
}

impl NameHolder {
    fn is_running(&self) -> bool {
        self.fence.is_running() || self.before.as_ref().is_some_and(|before| before.is_running())
    }
}

impl NameClaim {
    /// Returns whether requests of an earlier connection still run.
    pub(crate) fn is_waiting(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.is_running())
    }

    /// Returns the place as plain data, for another worker. The place no longer waits for earlier
    /// connections.
    pub(crate) fn to_parcel(&self) -> MigratingNameClaim {
        let (tenant, client, connection) = self.key;
        let is_superseded = self.fence.is_superseded();
        MigratingNameClaim { tenant, client, connection, serial: self.serial, is_superseded }
    }

    pub(crate) fn fence(&self) -> &Arc<Fence> {
        &self.fence
    }
}

#[cfg(test)]
mod tests {
    use contract::StartOutcome;

    use super::*;

    const TENANT: TenantId = TenantId::DEFAULT;

    fn starts(fence: &Fence) -> bool {
        fence.start(0, 0) == StartOutcome::Started
    }

    #[test]
    fn another_tenant_cannot_take_the_name() {
        let fences = Fences::default();
        let place = fences.take(TENANT, 7, 0).unwrap();
        let other = fences.take(TenantId(1), 7, 0).unwrap();
        assert!(starts(place.fence()) && !other.is_waiting());
        place.fence().end(0, 0);
    }

    #[test]
    fn a_new_connection_waits_for_the_old_ones_requests() {
        let fences = Fences::default();
        let old = fences.take(TENANT, 7, 0).unwrap();
        assert!(!old.is_waiting());
        assert!(starts(old.fence()));
        let new = fences.take(TENANT, 7, 0).unwrap();
        assert!(new.is_waiting());
        assert!(!starts(old.fence()), "nothing of the old one starts any more");
        let other = fences.take(TENANT, 7, 1).unwrap();
        assert!(!other.is_waiting());
        old.fence().end(0, 0);
        assert!(!new.is_waiting());
        assert!(starts(new.fence()));
        new.fence().end(0, 0);
    }

    #[test]
    fn a_place_is_found_again_unless_it_was_taken() {
        let fences = Fences::default();
        let place = fences.take(TENANT, 7, 0).unwrap();
        let again = fences.rejoin(place.to_parcel()).unwrap();
        assert!(starts(again.fence()) && place.fence().is_running());
        again.fence().end(0, 0);
        let newer = fences.take(TENANT, 7, 0).unwrap();
        assert!(!starts(again.fence()), "both are the same, so both are superseded");
        assert!(!starts(fences.rejoin(place.to_parcel()).unwrap().fence()));
        assert!(starts(fences.rejoin(newer.to_parcel()).unwrap().fence()));
        // Whoever was superseded leaves the name alone.
        fences.leave(again);
        assert!(newer.fence().is_running());
    }

    #[test]
    fn hellos_wait_for_another_process_by_name_or_all() {
        let fences = Fences::default();
        let (one, other) = (fences.take(TENANT, 7, 0).unwrap(), fences.take(TENANT, 8, 0).unwrap());
        let held = || (fences.holds(&one), fences.holds(&other));
        assert_eq!(held(), (false, false));
        fences.hold_hellos(HeldHellos::All);
        assert_eq!(held(), (true, true));
        fences.hold_hellos(HeldHellos::Names([(TENANT, 8, 0)].into()));
        assert_eq!(held(), (false, true));
        fences.hold_hellos(HeldHellos::Nobody);
        assert_eq!(held(), (false, false));
    }

    #[test]
    fn a_place_of_another_process_is_the_older_one() {
        let (there, here) = (Fences::default(), Fences::default());
        let old = there.take(TENANT, 7, 0).unwrap();
        assert_eq!(there.names(), [(TENANT, 7, 0)]);
        let (place, _adopted) = here.adopt(old.to_parcel());
        let moved = here.rejoin(place).unwrap();
        assert!(starts(moved.fence()), "it has the name here");
        moved.fence().end(0, 0);
        let newer = here.take(TENANT, 7, 0).unwrap();
        assert!(!starts(moved.fence()) && starts(newer.fence()));
        // It arrives after its successor has said hello, or had been superseded before.
        let (place, _adopted) = here.adopt(old.to_parcel());
        assert!(!starts(here.rejoin(place).unwrap().fence()));
        let _ = there.take(TENANT, 7, 0).unwrap();
        let (place, _adopted) = Fences::default().adopt(old.to_parcel());
        assert!(place.is_superseded && !starts(here.rejoin(place).unwrap().fence()));
    }

    #[test]
    fn a_worker_that_finds_the_lock_taken_tries_again() {
        let fences = Fences::default();
        let (place, gone) =
            (fences.take(TENANT, 7, 0).unwrap(), fences.take(TENANT, 8, 0).unwrap());
        fences.hold_hellos(HeldHellos::Names([(TENANT, 9, 0)].into()));
        fences.shut_while(|| {
            assert!(
                fences.take(TENANT, 7, 0).is_none() && fences.rejoin(place.to_parcel()).is_none()
            );
            assert!(fences.holds(&place), "who cannot look waits");
            fences.leave(gone);
        });
        assert!(starts(place.fence()), "nobody has taken its name");
        place.fence().end(0, 0);
        assert!(!fences.holds(&place));
        assert_eq!(fences.names(), [(TENANT, 7, 0)], "the other name is nobody's");
    }

    #[test]
    fn a_third_connection_waits_for_the_first() {
        let fences = Fences::default();
        let first = fences.take(TENANT, 7, 0).unwrap();
        assert!(starts(first.fence()));
        let second = fences.take(TENANT, 7, 0).unwrap();
        let third = fences.take(TENANT, 7, 0).unwrap();
        assert!(second.is_waiting() && third.is_waiting());
        assert!(!starts(second.fence()));
        fences.leave(second);
        first.fence().end(0, 0);
        assert!(!third.is_waiting());
        assert!(starts(third.fence()));
    }

    #[test]
    fn names_are_forgotten_when_nothing_runs() {
        let fences = Fences::default();
        let quiet = fences.take(TENANT, 1, 0).unwrap();
        fences.leave(quiet);
        assert_eq!(fences.len(), 0);
        let place = fences.take(TENANT, 2, 0).unwrap();
        let fence = place.fence().clone();
        assert!(starts(&fence));
        fences.leave(place);
        assert_eq!(fences.len(), 1, "a request still runs");
        fence.end(0, 0);
        drop(fence);
        for client in 100..200 {
            let place = fences.take(TENANT, client, 0).unwrap();
            fence_kept_while_running(&fences, place);
        }
        assert!(fences.len() < 100, "what ended is cleaned up in time");
    }

    /// Leaves a place while a request of its connection runs. The request then ends.
    fn fence_kept_while_running(fences: &Fences, place: NameClaim) {
        let fence = place.fence().clone();
        assert!(starts(&fence));
        fences.leave(place);
        fence.end(0, 0);
    }
}
