//! The parts that all workers of a server share.

use std::sync::atomic::AtomicU32;

use crate::{Access, Fences, Listeners, Namespaces};

/// The parts that all workers of a server share.
#[derive(Debug)]
pub struct Parts {
    /// The namespaces at the start of the server. Later changes come to each worker as messages.
    pub namespaces: Namespaces,
    /// The access rules of the server, by which connections get their tenants and rights.
    pub access: Access,
    /// The listeners, and the namespaces they lead to.
    pub listeners: Listeners,
    /// The fences of clients' earlier connections.
    pub fences: Fences,
    /// The number that clients are told so that they notice when changes that were acknowledged but
    /// not flushed may be lost: then it differs. Zero if the server has none.
    pub storage_epoch: AtomicU32,
}
