//! One connection of an initiator to its server, and what it owes.

use std::collections::VecDeque;
use std::time::Duration;

use contract::{ConnId, Instant, Slot};
use proto::reflex::ClientSession;

use super::words::Loss;
use crate::random::Random;

/// Where a connection is in its life. It goes round: Resting → Dialling → Greeting → Up →
/// (Closing →) Resting.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// No connection; ended by the clock at `until`.
    Resting { until: Instant },
    /// Ended by the transport's `Opened` or `Closed`, or by us at `until`.
    Dialling { conn: ConnId, until: Instant },
    /// Our hello is out; ended by its answer, by `Closed`, or by us at `until`.
    Greeting { conn: ConnId, until: Instant },
    /// Requests flow; ended by `Closed` or by a reason of ours.
    Up { conn: ConnId },
    /// We closed it, for this reason; ended by `Closed`.
    Closing { conn: ConnId, why: Loss },
}

impl State {
    /// The transport's name for the connection, if there is one.
    pub(super) fn conn(self) -> Option<ConnId> {
        match self {
            State::Resting { .. } => None,
            State::Dialling { conn, .. }
            | State::Greeting { conn, .. }
            | State::Up { conn }
            | State::Closing { conn, .. } => Some(conn),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) state: State,
    pub(super) session: ClientSession,
    /// Requests that belong to this connection, waiting or sent.
    pub(super) load: usize,
    /// How many of them were sent on the present connection: `sent ≤ load`.
    pub(super) sent: usize,
    /// The ones that wait to be sent, in order.
    pub(super) ready: VecDeque<Slot>,
    /// The ones whose payload the transport holds, in the order of sending.
    pub(super) lent: VecDeque<Slot>,
    /// The read whose data is arriving, and how many bytes of it came so far.
    pub(super) arriving: Option<(Slot, usize)>,
    /// The read whose buffer the transport has, to receive into it.
    pub(super) filling: Option<Slot>,
    /// The server said that it stops soon: nothing more is sent on this connection.
    pub(super) draining: bool,
    /// It is listed among those that may have something to send.
    pub(super) eager: bool,
    /// When the server last said something, or last came to owe something.
    pub(super) heard: Instant,
    /// Failed attempts in a row.
    pub(super) failures: u32,
    /// Since when there has been no connection that answers.
    pub(super) down_since: Instant,
}

impl Link {
    pub(super) fn new(session: ClientSession, in_flight_max: usize) -> Self {
        // Each queue can hold every request; small ones start with that capacity.
        let capacity = in_flight_max.min(64);
        Link {
            state: State::Resting { until: Instant::ZERO },
            session,
            load: 0,
            sent: 0,
            ready: VecDeque::with_capacity(capacity),
            lent: VecDeque::with_capacity(capacity),
            arriving: None,
            filling: None,
            draining: false,
            eager: false,
            heard: Instant::ZERO,
            failures: 0,
            down_since: Instant::ZERO,
        }
    }

    /// Whether requests may be sent now, as far as the connection is concerned.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Up { .. }) && !self.draining
    }

    /// When something must be done about it without an event of the network.
    pub(super) fn deadline(&self, silence_max: Duration) -> Option<Instant> {
        match self.state {
            State::Resting { until }
            | State::Dialling { until, .. }
            | State::Greeting { until, .. } => Some(until),
            State::Up { .. } if self.sent > 0 => Some(self.heard + silence_max),
            State::Up { .. } | State::Closing { .. } => None,
        }
    }

    /// The pause after `failures` failures in a row: doubling from `min` to `max`, of which a
    /// random half is left out so that many clients do not come back at once.
    pub(super) fn pause(&self, min: Duration, max: Duration, random: &mut Random) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(20);
        let full = min.saturating_mul(1 << doublings).min(max);
        full.mul_f64(0.5 + 0.5 * random.unit())
    }
}
