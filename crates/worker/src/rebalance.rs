//! Orders to give connections to other workers, whichever: so many, or a part of the load.

/// An order to give connections to another worker, whichever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) to: u16,
    /// Connections that are still to leave.
    left: u32,
    /// Connections that may leave or be away at the same time.
    at_once: u16,
    /// The first place of the connections' table that has not been looked at.
    pub(crate) next: usize,
    /// The messages that the connections are to take with them; `None`: however many.
    share: Option<Share>,
}

/// The load that leaves with its connections, in messages between two housekeepings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    wanted: u64,
    taken: u64,
}

impl Share {
    /// Returns whether some are left to be taken.
    fn is_left(self) -> bool {
        self.taken < self.wanted
    }

    /// Returns the share when a connection of so many messages has left; `None` if it is not to go.
    /// More than was wanted may go, but less than would make the other worker the one that has too
    /// much: where half of a difference is wanted, half of that difference is what is left at most.
    fn with(self, messages: u32) -> Option<Share> {
        let taken = self.taken + u64::from(messages);
        let goes = messages > 0 && self.is_left() && 2 * taken <= 3 * self.wanted;
        goes.then_some(Share { taken, ..self })
    }
}

impl Order {
    /// Makes an order to give so many connections.
    pub(crate) fn of_count(count: u32, to: u16, at_once: u16) -> Order {
        Order { to, left: count, at_once, next: 0, share: None }
    }

    /// Makes an order to give connections that make so many messages.
    pub(crate) fn of_messages(wanted: u64, to: u16, at_once: u16) -> Order {
        let share = Some(Share { wanted, taken: 0 });
        Order { to, left: u32::MAX, at_once, next: 0, share }
    }

    /// Returns how many connections may leave or be away at the same time.
    pub(crate) fn at_once(&self) -> usize {
        usize::from(self.at_once)
    }

    /// Returns whether more connections are to leave.
    pub(crate) fn is_left(&self) -> bool {
        self.left > 0 && self.share.is_none_or(Share::is_left)
    }

    /// Returns whether connections are left to leave by number.
    pub(crate) fn is_counting(&self) -> bool {
        self.left > 0
    }

    /// Returns the order when a connection of so many messages has left; `None` if it is not to go.
    pub(crate) fn with(&self, messages: u32) -> Option<Order> {
        let share = match self.share {
            None => None,
            Some(share) => Some(share.with(messages)?),
        };
        Some(Order { left: self.left - 1, share, ..*self })
    }
}
