//! The listeners of a server by place, with the namespaces and tenants that they lead to. A
//! connection carries its listener's identifier, which is looked up when the connection opens and
//! at its hello.
//!
//! Listeners come and go while workers run, without a lock: what a listener leads to is written
//! once, before the first connection comes by it, into a cell that only its identifier names. A
//! place is given again, with the next generation, when its listener is closed and no connection of
//! it is left, as far as known. A connection that was on its way all the time has an identifier of
//! an earlier generation, which leads nowhere.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use contract::{ListenerId, NamespaceId, Protocol};

use crate::DefaultTenant;

/// The namespace and the tenant that a listener leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerBinding {
    /// The protocol of the listener.
    pub protocol: Protocol,
    /// The namespace of requests that name none.
    pub namespace: NamespaceId,
    /// The tenant of clients that get no other tenant from an access rule; `None` for the default
    /// tenant.
    pub stands: Option<DefaultTenant>,
}

impl ListenerBinding {
    /// Returns a lead of protocol `reflex` to this namespace.
    pub fn to(namespace: NamespaceId) -> ListenerBinding {
        ListenerBinding { protocol: Protocol::Reflex, namespace, stands: None }
    }
}

/// The maximum number of listeners that can use one place of the table in turn.
const GENERATIONS: usize = 1 << 10;

/// The listeners of a server, each in a place.
#[derive(Debug)]
pub struct Listeners {
    /// For each place of the table, the number of listeners that have used the place and are gone.
    generations: Box<[AtomicU32]>,
    /// The leads by generation and place. A row is made when a place needs it.
    rows: Box<[OnceLock<ListenerRow>]>,
}

/// The namespaces and tenants of the listeners of one generation, indexed by the listeners' places.
type ListenerRow = Box<[OnceLock<ListenerBinding>]>;

impl Listeners {
    /// Returns listeners with these leads, in places from 0.
    pub fn of(leads: impl IntoIterator<Item = ListenerBinding>) -> Listeners {
        let row: ListenerRow = leads.into_iter().map(OnceLock::from).collect();
        let listeners = Listeners::with_places(row.len() as u16);
        assert!(listeners.rows[0].set(row).is_ok(), "nobody else knows them");
        listeners
    }

    /// Returns `places` places without a listener.
    pub fn with_places(places: u16) -> Listeners {
        Listeners {
            generations: (0..places).map(|_| AtomicU32::new(0)).collect(),
            rows: (0..GENERATIONS).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Returns the namespace and the tenant that a listener leads to; `None` if the listener has no
    /// place, or its place was given away.
    pub fn find(&self, id: ListenerId) -> Option<&ListenerBinding> {
        let row = self.rows.get(usize::from(id.generation()))?.get()?;
        row.get(usize::from(id.place()))?.get().filter(|_| !self.is_gone(id))
    }

    /// Returns the tenant that is configured at a listener, for clients that no access rule gives a
    /// tenant; `None` without such a tenant.
    pub fn stands(&self, id: ListenerId) -> Option<&DefaultTenant> {
        self.find(id)?.stands.as_ref()
    }

    /// Returns `true` if a listener is gone and its place in the table is free or used by another
    /// listener.
    pub fn is_gone(&self, id: ListenerId) -> bool {
        let generation = self.generations.get(usize::from(id.place()));
        generation.is_some_and(|now| now.load(Ordering::Acquire) > u32::from(id.generation()))
    }

    /// Returns the identifier of the next listener in a place; `None` if the place is taken, used
    /// up or beyond the table.
    pub fn vacant(&self, place: u16) -> Option<ListenerId> {
        let generation = self.generations.get(usize::from(place))?.load(Ordering::Acquire);
        let id = ListenerId::new(place, generation as u16);
        let is_free = (generation as usize) < GENERATIONS && self.find(id).is_none();
        is_free.then_some(id)
    }

    /// Puts a listener's namespace and tenant (`lead`) into the place of the table that the
    /// identifier names.
    ///
    /// # Errors
    /// Fails if the place is taken, if it is of another generation, or if there is no such place.
    pub fn set(&self, id: ListenerId, lead: ListenerBinding) -> Result<(), ListenerBinding> {
        if self.vacant(id.place()) != Some(id) {
            return Err(lead);
        }
        let row = || self.generations.iter().map(|_| OnceLock::new()).collect();
        self.rows[usize::from(id.generation())].get_or_init(row)[usize::from(id.place())].set(lead)
    }

    /// Frees the place of a closed listener that has no connections, for another listener.
    pub fn free(&self, id: ListenerId) {
        if let Some(generation) = self.generations.get(usize::from(id.place())) {
            let (now, next) = (u32::from(id.generation()), u32::from(id.generation()) + 1);
            // It may have been freed before.
            let _ = generation.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_listener_at_a_time() {
        let listeners = Listeners::with_places(2);
        let (first, second, beyond) = (ListenerId(0), ListenerId(1), ListenerId(2));
        assert_eq!((listeners.find(first), listeners.vacant(0)), (None, Some(first)));
        assert_eq!(listeners.set(first, ListenerBinding::to(NamespaceId(3))), Ok(()));
        assert!(listeners.set(first, ListenerBinding::to(NamespaceId(4))).is_err(), "it is taken");
        assert_eq!(listeners.find(first).unwrap().namespace, NamespaceId(3));
        assert_eq!((listeners.vacant(0), listeners.vacant(1)), (None, Some(second)));
        assert!(
            listeners.set(beyond, ListenerBinding::to(NamespaceId(1))).is_err(),
            "there is no such place"
        );
        assert_eq!((listeners.vacant(2), listeners.find(beyond)), (None, None));
        listeners.free(beyond);
        assert!(!listeners.is_gone(beyond) && !listeners.is_gone(first));
    }

    #[test]
    fn an_identifier_leads_nowhere_when_its_place_was_given_away() {
        let listeners = Listeners::of([ListenerBinding::to(NamespaceId(1))]);
        let before = ListenerId(0);
        listeners.free(before);
        assert!(listeners.is_gone(before) && listeners.find(before).is_none());
        listeners.free(before);
        let next = listeners.vacant(0).unwrap();
        assert_eq!((next.place(), next.generation()), (0, 1), "it was freed once");
        assert!(listeners.set(before, ListenerBinding::to(NamespaceId(2))).is_err());
        assert_eq!(listeners.set(next, ListenerBinding::to(NamespaceId(2))), Ok(()));
        assert!(listeners.find(before).is_none() && listeners.is_gone(before));
        assert_eq!(listeners.find(next).unwrap().namespace, NamespaceId(2));
    }

    #[test]
    fn a_place_rests_for_good_after_its_last_generation() {
        let listeners = Listeners::with_places(1);
        for _ in 0..GENERATIONS {
            let id = listeners.vacant(0).unwrap();
            assert_eq!(listeners.set(id, ListenerBinding::to(NamespaceId(1))), Ok(()));
            listeners.free(id);
        }
        assert_eq!(listeners.vacant(0), None);
        assert!(listeners.is_gone(ListenerId::new(0, GENERATIONS as u16 - 1)));
    }
}
