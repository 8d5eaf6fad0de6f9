//! The hashes and groups that a controller agrees to.

use alloc::vec::Vec;

use super::{Group, Hash};

/// The permitted hashes and groups, in order of preference. Nobody can authenticate if one of the
/// lists is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Methods {
    /// The permitted hashes, the preferred one first.
    pub hashes: Vec<Hash>,
    /// The permitted groups, the preferred one first. Without [`Group::Null`], every authentication
    /// includes a Diffie-Hellman exchange.
    pub groups: Vec<Group>,
}

impl Default for Methods {
    /// Permits all, in the order of [`Hash::ALL`] and [`Group::ALL`].
    fn default() -> Self {
        Methods { hashes: Hash::ALL.to_vec(), groups: Group::ALL.to_vec() }
    }
}

impl Methods {
    /// Returns the preferred hash among the offered identifiers; `None` if no offered hash is
    /// permitted.
    pub(super) fn hash(&self, offered: &[u8]) -> Option<Hash> {
        self.hashes.iter().copied().find(|hash| offered.contains(&hash.id()))
    }

    /// Returns the preferred group among the offered identifiers; `None` if no offered group is
    /// permitted.
    pub(super) fn group(&self, offered: &[u8]) -> Option<Group> {
        self.groups.iter().copied().find(|group| offered.contains(&group.id()))
    }
}
