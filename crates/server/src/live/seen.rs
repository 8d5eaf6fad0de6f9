//! The state that a server reports without waiting for a running change: the state before it.

use std::sync::Arc;

use super::world::World;
use super::{Inner, Open};
use crate::listen::ListenAt;

/// The state that the server reports.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) world: Arc<World>,
    /// The listeners, by number.
    pub(super) open: Vec<Open>,
    /// Listeners that are gone, by whom connections may have come that stay.
    departed: Vec<ListenAt>,
}

impl Seen {
    pub(super) fn of(inner: &Inner) -> Arc<Seen> {
        let (world, open) = (inner.world.clone(), inner.open.clone());
        Arc::new(Seen { world, open, departed: inner.departed.clone() })
    }

    fn all(&self) -> impl Iterator<Item = &ListenAt> {
        self.open.iter().map(|open| &open.at).chain(&self.departed)
    }

    /// The number of what workers call a listener.
    pub(super) fn number_of(&self, id: u16) -> u16 {
        self.all().find(|at| at.id.0 == id).map_or(id + 1, |at| at.number)
    }

    /// The numbers of listeners that workers do not call by one less.
    pub(super) fn numbers_of_others(&self) -> Vec<(u16, u16)> {
        let others = self.all().filter(|at| at.number != at.id.0 + 1);
        others.map(|at| (at.id.0, at.number)).collect()
    }
}
