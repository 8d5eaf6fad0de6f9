//! Namespaces that changed behind a host's back, until the host has looked.

use alloc::collections::BTreeSet;

/// The namespaces of a controller that changed since its host looked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Namespaces that changed since the host read the Changed Namespace List log.
    pub(super) listed: BTreeSet<u32>,
    /// Identifiers whose namespace was removed, and that the host has not seen at another one. Until
    /// it has identified that, its commands mean the one that is gone and are refused.
    pub(super) unknown: BTreeSet<u32>,
}
