//! The life of a link beyond one connection: dialling, pausing, giving up, sending again.

use contract::{Command, ConnId, Dial, HelloReply, Instant, Slot, Status};

use super::events::may_repeat;
use super::interface::{Loss, Report, Version};
use super::link::LinkState;
use super::{Flight, Initiator};

/// Maximum number of transport connections that are found by their index; further ones are searched
/// for.
const NAMES_MAX: usize = 1 << 17;

impl<T: Dial> Initiator<T> {
    /// Handles the due deadlines of each link, and sets the next alarm.
    pub(super) fn tend(&mut self, now: Instant) {
        for link in 0..self.links.len() {
            let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            if !due(self.links[link].deadline(self.options.silence_max)) {
                continue;
            }
            match self.links[link].state {
                LinkState::Resting { .. } => self.dial(now, link),
                LinkState::Dialling { .. } | LinkState::Greeting { .. } | LinkState::Up { .. } => {
                    self.hang_up(link, Loss::Silent);
                }
                LinkState::Closing { .. } => {}
            }
        }
        let silence_max = self.options.silence_max;
        self.alarm = self.links.iter().filter_map(|link| link.deadline(silence_max)).min();
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

    /// Opens the connection for requests.
    pub(super) fn come_up(
        &mut self,
        now: Instant,
        link: usize,
        conn: ConnId,
        hello: Option<HelloReply>,
    ) {
        let owner = &mut self.links[link];
        owner.state = LinkState::Up { conn };
        owner.heard = now;
        self.report(Report::Connected { link, hello });
        self.rouse(link);
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
        if owner.failures == 0 {
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
        self.report(Report::Lost { link, why });
        self.recall(link);
        if failures >= self.options.attempts_max || down_for >= self.options.outage_max {
            self.forsake(link, Status::ConnectionLost);
        } else if let Loss::Refused(status) = why
            && status != Status::Retry
            && status != Status::NoResources
        {
            self.forsake(link, status);
        }
    }

    /// Puts the requests that were sent on the connection back into its queue, or ends them.
    fn recall(&mut self, link: usize) {
        if self.links[link].sent == 0 {
            return;
        }
        let mut sent: Vec<(u64, Slot)> = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.link == link && flight.sent)
            .map(|(slot, flight)| (flight.order, slot))
            .collect();
        sent.sort_unstable_by_key(|&(order, _)| order);
        self.links[link].lent.clear();
        let mut doomed = Vec::new();
        for &(_, slot) in sent.iter().rev() {
            let flight = self.flights.get(slot);
            flight.sent = false;
            self.links[link].sent -= 1;
            if flight.lent.is_some() {
                self.orphans.push_back(slot);
            } else if self.count_repeat(slot) {
                self.links[link].ready.push_front(slot);
            } else {
                doomed.push(slot);
            }
        }
        for &slot in doomed.iter().rev() {
            self.finish(slot, Status::ConnectionLost);
        }
    }

    /// Returns `true` if a request that was sent on a lost connection may be sent again, and counts
    /// the repetition.
    fn count_repeat(&mut self, slot: Slot) -> bool {
        let fenced = self.options.version == Version::Two && self.options.client != 0;
        let flight = self.flights.get(slot);
        let may = may_repeat(&flight.work, fenced) && flight.reissues < self.options.reissues_max;
        flight.reissues += u8::from(may);
        may
    }

    /// Queues an orphan again whose payload is back, or ends it.
    pub(super) fn queue_again(&mut self, slot: Slot) {
        if self.count_repeat(slot) {
            self.put_in_order(slot);
        } else {
            self.finish(slot, Status::ConnectionLost);
        }
    }

    /// Ends all requests that wait for the connection.
    fn forsake(&mut self, link: usize, status: Status) {
        while let Some(slot) = self.links[link].ready.pop_front() {
            self.finish(slot, status);
        }
    }

    /// Puts a request back that a draining server did not carry out; the request waits for the next
    /// connection.
    pub(super) fn put_back(&mut self, link: usize, slot: Slot) {
        self.flights.get(slot).sent = false;
        self.links[link].sent -= 1;
        self.put_in_order(slot);
        self.leave_if_drained(link);
    }

    /// Returns `true` if a barrier was sent after the request in its stream, or the request is a
    /// barrier and another request was sent after it.
    ///
    /// The server goes on with the requests after the barrier, so a repetition would break their
    /// order. Instead, the submitter learns that the request was not carried out.
    pub(super) fn is_ordered(&mut self, slot: Slot) -> bool {
        let Flight { link, order, ref work, .. } = *self.flights.get(slot);
        let Some((command, stream)) = work.place() else { return false };
        self.flights.iter().any(|(_, other)| {
            let is_behind = other.link == link && other.sent && other.order > order;
            is_behind
                && other.work.place().is_some_and(|(behind, its)| {
                    its == stream && [command, behind].contains(&Command::Barrier)
                })
        })
    }

    /// Queues the request at its position in the original order.
    fn put_in_order(&mut self, slot: Slot) {
        let Flight { link, order, .. } = *self.flights.get(slot);
        let flights = &mut self.flights;
        let ready = &mut self.links[link].ready;
        let later = ready.iter().position(|&other| flights.get(other).order > order);
        ready.insert(later.unwrap_or(ready.len()), slot);
        self.rouse(link);
    }
}
