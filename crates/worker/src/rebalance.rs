//! Orders to give any connections to another worker: a number of them, or a part of the load.

/// An order to give connections, of the worker's choice, to another worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RebalanceOrder {
    pub(crate) to: u16,
    /// Number of connections that are still to leave.
    left: u32,
    /// Maximum number of connections that may be on their way at the same time.
    at_once: u16,
    /// The first place of the connections' table that the order has not visited.
    pub(crate) next: usize,
    /// The part of the worker's load that the moved connections are to take with them; `None` if a
    /// number of connections was ordered instead.
    share: Option<LoadShare>,
}

/// A part of the load that is to leave, in messages between two scans of housekeeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LoadShare {
    wanted: u64,
    taken: u64,
}

impl LoadShare {
    /// Returns whether more load is to leave.
    fn is_left(self) -> bool {
        self.taken < self.wanted
    }

    /// Returns the load that remains to be moved after a connection with `messages` messages has
    /// left. Returns `None` if the connection should stay: because it has no load, or because moves
    /// would exceed one and a half times the wanted load and so overload the receiving worker.
    fn with(self, messages: u32) -> Option<LoadShare> {
        let taken = self.taken + u64::from(messages);
        let goes = messages > 0 && self.is_left() && 2 * taken <= 3 * self.wanted;
        goes.then_some(LoadShare { taken, ..self })
    }
}

impl RebalanceOrder {
    /// Returns an order to move `count` connections to worker `to`, at most `at_once` at a time.
    pub(crate) fn of_count(count: u32, to: u16, at_once: u16) -> RebalanceOrder {
        RebalanceOrder { to, left: count, at_once, next: 0, share: None }
    }

    /// Returns an order to move connections to worker `to`, at most `at_once` of them at a time,
    /// until the messages that they had between two scans of housekeeping add up to about `wanted`.
    pub(crate) fn of_messages(wanted: u64, to: u16, at_once: u16) -> RebalanceOrder {
        let share = Some(LoadShare { wanted, taken: 0 });
        RebalanceOrder { to, left: u32::MAX, at_once, next: 0, share }
    }

    /// Returns the maximum number of connections on their way at the same time.
    pub(crate) fn at_once(&self) -> usize {
        usize::from(self.at_once)
    }

    /// Returns whether more connections are to leave.
    pub(crate) fn is_left(&self) -> bool {
        self.left > 0 && self.share.is_none_or(LoadShare::is_left)
    }

    /// Returns `true` while the order's number of connections is not used up.
    pub(crate) fn is_counting(&self) -> bool {
        self.left > 0
    }

    /// Returns the order that remains after a connection with `messages` messages has left, or
    /// `None` if the connection should stay.
    pub(crate) fn with(&self, messages: u32) -> Option<RebalanceOrder> {
        let share = match self.share {
            None => None,
            Some(share) => Some(share.with(messages)?),
        };
        Some(RebalanceOrder { left: self.left - 1, share, ..*self })
    }
}
