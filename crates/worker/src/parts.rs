//! The parts that all workers of a server share.

use std::sync::atomic::AtomicU32;

use crate::{Access, Fences, Listeners, Namespaces};

/// The parts that all workers of a server share.
#[derive(Debug)]
pub struct Parts {
    /// The namespaces at the start of a worker, which is told of changes.
    pub namespaces: Namespaces,
    /// The access rules.
    pub access: Access,
    /// The listeners, and the namespaces they lead to.
    pub listeners: Listeners,
    /// The fences.
    pub fences: Fences,
    /// The storage epoch, which clients are told; zero for none.
    pub storage_epoch: AtomicU32,
}
