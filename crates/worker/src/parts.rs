//! The parts that all workers of a server share.

use std::sync::atomic::AtomicU32;

use crate::{Access, Fences, Listeners, Namespaces};

/// The parts that all workers of a server share.
#[derive(Debug)]
pub struct Parts {
    /// The namespaces at the start of the server. Later changes come to each worker as messages.
    pub namespaces: Namespaces,
    /// The access rules.
    pub access: Access,
    /// The listeners, and the namespaces they lead to.
    pub listeners: Listeners,
    /// The fences of clients' earlier connections.
    pub fences: Fences,
    /// The storage epoch that clients are told; zero for none.
    pub storage_epoch: AtomicU32,
}
