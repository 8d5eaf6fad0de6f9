//! Which hashes and groups a controller agrees to.

use alloc::vec::Vec;

use super::{Group, Hash};

/// The hashes and groups that may be used, the most wanted first. With nothing in one of the lists
/// nobody can authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Methods {
    /// Hashes.
    pub hashes: Vec<Hash>,
    /// Groups; without [`Group::Null`] there is always an exchange.
    pub groups: Vec<Group>,
}

impl Default for Methods {
    /// All of them, in the order of [`Hash::ALL`] and [`Group::ALL`].
    fn default() -> Self {
        Methods { hashes: Hash::ALL.to_vec(), groups: Group::ALL.to_vec() }
    }
}

impl Methods {
    /// The most wanted hash of those with these identifiers.
    pub(super) fn hash(&self, offered: &[u8]) -> Option<Hash> {
        self.hashes.iter().copied().find(|hash| offered.contains(&hash.id()))
    }

    /// The most wanted group of those with these identifiers.
    pub(super) fn group(&self, offered: &[u8]) -> Option<Group> {
        self.groups.iter().copied().find(|group| offered.contains(&group.id()))
    }
}
