//! A connection of an initiator to its server.

use std::time::Duration;

use contract::{ConnId, Instant, Slot};
use proto::reflex::ClientSession;

use super::interface::Loss;
use crate::random::Random;

/// The state of a connection. The cycle is: Resting → Dialling → Greeting → Up → (Closing →)
/// Resting.
#[derive(Clone, Copy, Debug)]
pub(super) enum LinkState {
    /// The link has no connection, and waits until the time `until` to connect again.
    Resting { until: Instant },
    /// The dial is in progress. The transport's `Opened` or `Closed` ends this state, or the client
    /// at `until`.
    Dialling { conn: ConnId, until: Instant },
    /// The hello is sent. Its answer or `Closed` ends this state, or the client at `until`.
    Greeting { conn: ConnId, until: Instant },
    /// Requests flow. `Closed` or a decision of the client ends this state.
    Up { conn: ConnId },
    /// The client has closed the connection for the reason `why`. `Closed` ends this state.
    Closing { conn: ConnId, why: Loss },
}

impl LinkState {
    /// Returns the transport's identifier of the connection; `None` in a pause between connections.
    pub(super) fn conn(self) -> Option<ConnId> {
        match self {
            LinkState::Resting { .. } => None,
            LinkState::Dialling { conn, .. }
            | LinkState::Greeting { conn, .. }
            | LinkState::Up { conn }
            | LinkState::Closing { conn, .. } => Some(conn),
        }
    }
}

/// A connection of the initiator to the server, over successive connections of the transport.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) state: LinkState,
    pub(super) session: ClientSession,
    /// The read whose data is arriving, and the number of its bytes received so far; `None` between
    /// replies.
    pub(super) arriving: Option<(Slot, usize)>,
    /// The read whose buffer was lent to the transport for a direct receive; `None` if there is
    /// none.
    pub(super) filling: Option<Slot>,
    /// `true` once the server has announced that it stops: nothing more is sent on this connection.
    pub(super) draining: bool,
    /// The time at which the server last sent anything. If the server owed no answer since, the
    /// time at which it began to owe one.
    pub(super) heard: Instant,
    /// Number of connections, and of attempts to make one, that ended since the last answer to a
    /// request.
    pub(super) failures: u32,
    /// `true` from a hello's answer until the connection is lost.
    pub(super) was_up: bool,
    /// Time at which the last connection was lost on which the server had answered. The present
    /// outage counts from there.
    pub(super) down_since: Instant,
}

impl Link {
    pub(super) fn new(session: ClientSession) -> Self {
        Link {
            state: LinkState::Resting { until: Instant::ZERO },
            session,
            arriving: None,
            filling: None,
            draining: false,
            heard: Instant::ZERO,
            failures: 0,
            was_up: false,
            down_since: Instant::ZERO,
        }
    }

    /// Returns `true` if the connection accepts requests now.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, LinkState::Up { .. }) && !self.draining
    }

    /// Returns the time at which the link needs attention without an event of the network. The
    /// server owes an answer if `is_owed`.
    pub(super) fn deadline(&self, is_owed: bool, silence_max: Duration) -> Option<Instant> {
        match self.state {
            LinkState::Resting { until }
            | LinkState::Dialling { until, .. }
            | LinkState::Greeting { until, .. } => Some(until),
            LinkState::Up { .. } if is_owed => Some(self.heard + silence_max),
            LinkState::Up { .. } | LinkState::Closing { .. } => None,
        }
    }

    /// Returns the pause before the next dial, which doubles with each of the link's `failures`,
    /// from `min` to `max`. A random part of up to half is left out, so that many clients do not
    /// come back at once.
    pub(super) fn pause(&self, min: Duration, max: Duration, random: &mut Random) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(20);
        let full = min.saturating_mul(1 << doublings).min(max);
        full.mul_f64(0.5 + 0.5 * random.unit())
    }
}
