//! The listeners of a server by number, with the namespaces and tenants that they lead to. A
//! connection carries its listener's number, which is looked up when the connection opens and at
//! its hello.
//!
//! Listeners come and go while workers run, without a lock. So each place is written once, before
//! the first connection comes by it, and its number is never used for another listener: connections
//! of the earlier one may still be there.

use std::sync::OnceLock;

use contract::{ListenerId, NamespaceId, Protocol};

use crate::Stands;

/// The namespace and the tenant that a listener leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lead {
    /// The protocol of the listener.
    pub protocol: Protocol,
    /// The namespace of requests that name none.
    pub namespace: NamespaceId,
    /// The tenant of clients that get no other tenant from an access rule; `None` for the default
    /// tenant.
    pub stands: Option<Stands>,
}

impl Lead {
    /// Returns a lead of protocol `reflex` to this namespace.
    pub fn to(namespace: NamespaceId) -> Lead {
        Lead { protocol: Protocol::Reflex, namespace, stands: None }
    }
}

/// The listeners of a server, each in a place that is written once.
#[derive(Debug)]
pub struct Listeners {
    /// The listeners' leads, by number.
    leads: Box<[OnceLock<Lead>]>,
}

impl Listeners {
    /// Returns listeners with these leads, numbered from 0.
    pub fn of(leads: impl IntoIterator<Item = Lead>) -> Listeners {
        Listeners { leads: leads.into_iter().map(OnceLock::from).collect() }
    }

    /// Returns `places` places without a listener.
    pub fn with_places(places: u16) -> Listeners {
        Listeners { leads: (0..places).map(|_| OnceLock::new()).collect() }
    }

    /// Returns the lead of a listener, if a listener of this number ever existed.
    pub fn find(&self, id: ListenerId) -> Option<&Lead> {
        self.leads.get(usize::from(id.0))?.get()
    }

    /// Returns the listener's own tenant, if it has one, for clients that get no other tenant from
    /// a rule.
    pub fn stands(&self, id: ListenerId) -> Option<&Stands> {
        self.find(id)?.stands.as_ref()
    }

    /// Sets the lead of a number, once and for good.
    ///
    /// # Errors
    /// Fails if the place is taken, or if there is no such place.
    pub fn set(&self, id: ListenerId, lead: Lead) -> Result<(), Lead> {
        match self.leads.get(usize::from(id.0)) {
            Some(place) => place.set(lead),
            None => Err(lead),
        }
    }

    /// Returns whether there is a place of this number that no listener ever used.
    pub fn is_vacant(&self, id: ListenerId) -> bool {
        self.leads.get(usize::from(id.0)).is_some_and(|place| place.get().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_once() {
        let listeners = Listeners::with_places(2);
        let (first, second, beyond) = (ListenerId(0), ListenerId(1), ListenerId(2));
        assert!(listeners.find(first).is_none() && listeners.is_vacant(first));
        assert_eq!(listeners.set(first, Lead::to(NamespaceId(3))), Ok(()));
        assert!(listeners.set(first, Lead::to(NamespaceId(4))).is_err(), "it is taken");
        assert_eq!(listeners.find(first).unwrap().namespace, NamespaceId(3));
        assert!(listeners.is_vacant(second) && !listeners.is_vacant(first));
        assert!(listeners.set(beyond, Lead::to(NamespaceId(1))).is_err(), "there is no such place");
        assert!(!listeners.is_vacant(beyond) && listeners.find(beyond).is_none());
    }
}
