//! The recovery of a link from lost connections: connecting, pausing, giving up, and sending
//! requests again.

use contract::{ConnId, Dial, HelloReply, Instant, Status};

use super::Initiator;
use super::interface::{Loss, Report};
use super::link::LinkState;

/// Maximum number of transport connections that are found by their index; further ones are searched
/// for.
const NAMES_MAX: usize = 1 << 17;

impl<T: Dial> Initiator<T> {
    /// Handles the deadlines of each link that are due, and sets the next alarm.
    pub(super) fn tend(&mut self, now: Instant) {
        for link in 0..self.links.len() {
            let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            if !due(self.deadline(link)) {
                continue;
            }
            match self.links[link].state {
                LinkState::Resting { .. } if self.closed => {}
                LinkState::Resting { .. } => self.dial(now, link),
                LinkState::Dialling { .. } | LinkState::Greeting { .. } | LinkState::Up { .. } => {
                    self.hang_up(link, Loss::Silent);
                }
                LinkState::Closing { .. } => {}
            }
        }
        self.alarm = (0..self.links.len()).filter_map(|link| self.deadline(link)).min();
    }

    /// Returns the time at which the link needs attention without an event of the network; `None`
    /// for never.
    fn deadline(&self, link: usize) -> Option<Instant> {
        if self.closed {
            return None;
        }
        self.links[link].deadline(self.requests.is_owed(link), self.options.silence_max)
    }

    fn dial(&mut self, now: Instant, link: usize) {
        let conn = self.transport.dial(now);
        let index = conn.index as usize;
        if self.names.len() <= index && index < NAMES_MAX {
            self.names.resize(index + 1, None);
        }
        if let Some(name) = self.names.get_mut(index) {
            *name = Some((conn.generation, link));
        }
        let session = Self::session(&self.options, link);
        let owner = &mut self.links[link];
        owner.session = session;
        owner.draining = false;
        owner.state = LinkState::Dialling { conn, until: now + self.options.silence_max };
    }

    /// Opens the connection for requests, after the handshake.
    pub(super) fn come_up(
        &mut self,
        now: Instant,
        link: usize,
        conn: ConnId,
        hello: Option<HelloReply>,
    ) {
        let owner = &mut self.links[link];
        owner.state = LinkState::Up { conn };
        owner.was_up = hello.is_some();
        if let Some(hello) = hello {
            self.requests.meet(link, hello.storage_epoch);
        }
        owner.heard = now;
        self.requests.report(Report::Connected { link, hello });
        self.requests.rouse(link);
    }

    /// Closes the connection for a reason of the client; [`Initiator::lose`] follows with its
    /// `Closed`.
    pub(super) fn hang_up(&mut self, link: usize, why: Loss) {
        let owner = &mut self.links[link];
        if let LinkState::Closing { .. } = owner.state {
            return;
        }
        let conn = owner.state.conn().expect("there is a connection to end");
        owner.state = LinkState::Closing { conn, why };
        self.transport.close(conn);
    }

    /// Handles the loss of a connection. Requests that were sent on it and may be repeated wait for
    /// the next connection. They keep the original order, before the requests that were not sent
    /// yet.
    pub(super) fn lose(&mut self, now: Instant, link: usize, why: Loss) {
        let owner = &mut self.links[link];
        // A connection that was answered ends an outage, even if no request was sent on it.
        if owner.failures == 0 || std::mem::take(&mut owner.was_up) {
            owner.down_since = now;
        }
        owner.failures = owner.failures.saturating_add(1);
        owner.arriving = None;
        let pause =
            owner.pause(self.options.backoff_min, self.options.backoff_max, &mut self.random);
        let until = now + pause;
        owner.state = LinkState::Resting { until };
        self.alarm = Some(self.alarm.map_or(until, |at| at.min(until)));
        let failures = owner.failures;
        let down_for = now.since(owner.down_since);
        self.requests.report(Report::Lost { link, why });
        self.requests.recall(link);
        if failures >= self.options.attempts_max || down_for >= self.options.outage_max {
            self.requests.forsake(link, Status::ConnectionLost);
        } else if let Loss::Refused(status) = why
            && status != Status::Retry
            && status != Status::NoResources
        {
            self.requests.forsake(link, status);
        }
    }
}
