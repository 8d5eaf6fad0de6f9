//! The parts that all workers of a server share.

use std::sync::atomic::AtomicU32;

use contract::NamespaceId;

use crate::{AccessRules, Fences, ListenerBinding, Listeners, Namespaces};

/// The parts that all workers of a server share.
#[derive(Debug)]
pub struct SharedState {
    /// The namespaces at the start of the server. Later changes come to each worker as messages.
    pub namespaces: Namespaces,
    /// The access rules of the server, by which connections get their tenants and rights.
    pub access: AccessRules,
    /// The listeners, with the namespace and the tenant of clients at each of them.
    pub listeners: Listeners,
    /// The fences of clients' earlier connections.
    pub fences: Fences,
    /// The storage epoch, a number that is sent to clients. A client that sees the number change
    /// knows that acknowledged but unflushed writes may be lost. Zero if the server has no storage
    /// epoch.
    pub storage_epoch: AtomicU32,
}

impl SharedState {
    /// Returns the shared state of a server with one listener, which leads to the first namespace, and
    /// without a storage epoch.
    pub fn new(namespaces: Namespaces, access: AccessRules) -> SharedState {
        SharedState {
            namespaces,
            access,
            listeners: Listeners::of([ListenerBinding::to(NamespaceId(1))]),
            fences: Fences::default(),
            storage_epoch: 0.into(),
        }
    }
}
