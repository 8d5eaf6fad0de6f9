//! The state that a server reports without waiting for a change in progress: the state before the
//! change.

use std::sync::Arc;

use super::world::ServerSnapshot;
use super::{LiveState, OpenListener};
use crate::listen::ListenAt;

/// The state that the server reports.
#[derive(Debug)]
pub(super) struct ReportedState {
    pub(super) world: Arc<ServerSnapshot>,
    /// The open listeners, sorted by number.
    pub(super) open: Vec<OpenListener>,
    /// Closed listeners that may still have connections.
    departed: Vec<ListenAt>,
}

impl ReportedState {
    pub(super) fn of(inner: &LiveState) -> Arc<ReportedState> {
        let (world, open) = (inner.world.clone(), inner.open.clone());
        Arc::new(ReportedState { world, open, departed: inner.departed.clone() })
    }

    fn all(&self) -> impl Iterator<Item = &ListenAt> {
        self.open.iter().map(|open| &open.at).chain(&self.departed)
    }

    /// Returns the number of the listener whose identifier has this place; by default, the place
    /// plus one.
    pub(super) fn number_of(&self, place: u16) -> u16 {
        self.all().find(|at| at.id.place() == place).map_or(place + 1, |at| at.number)
    }

    /// Returns pairs of the place in a listener's identifier and the listener's number, for
    /// listeners whose number is not the place plus one.
    pub(super) fn numbers_of_others(&self) -> Vec<(u16, u16)> {
        let others = self.all().filter(|at| at.number != at.id.place() + 1);
        others.map(|at| (at.id.place(), at.number)).collect()
    }
}
