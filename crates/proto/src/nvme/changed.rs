//! For each controller, the namespaces that have changed since its host last read them.

use alloc::collections::BTreeSet;

/// The namespaces that have changed since the controller's host last read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChangedNamespaces {
    /// Namespaces that changed since the host read the Changed Namespace List log.
    pub(super) listed: BTreeSet<u32>,
    /// Identifiers whose namespace was removed, and under which the host has not identified a new
    /// one yet. Until then commands to them are refused, since they mean the removed namespace.
    pub(super) unknown: BTreeSet<u32>,
}
