//! The life of a connection beyond one socket: dialling, pausing, giving up, sending again.

use contract::{ConnId, Dial, HelloReply, Instant, Slot, Status};

use super::Initiator;
use super::events::may_repeat;
use super::link::State;
use super::words::{Loss, Report, Version};

impl<T: Dial> Initiator<T> {
    /// Does what the clock asks of each connection, and sets the alarm anew.
    pub(super) fn tend(&mut self, now: Instant) {
        for link in 0..self.links.len() {
            let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            if !due(self.links[link].deadline(self.options.silence_max)) {
                continue;
            }
            match self.links[link].state {
                State::Resting { .. } => self.dial(now, link),
                State::Dialling { .. } | State::Greeting { .. } | State::Up { .. } => {
                    self.hang_up(link, Loss::Silent);
                }
                State::Closing { .. } => {}
            }
        }
        let silence_max = self.options.silence_max;
        self.alarm = self.links.iter().filter_map(|link| link.deadline(silence_max)).min();
    }

    fn dial(&mut self, now: Instant, link: usize) {
        let conn = self.transport.dial(now);
        let index = conn.index as usize;
        if self.names.len() <= index {
            self.names.resize(index + 1, None);
        }
        self.names[index] = Some((conn.generation, link));
        let session = Self::session(&self.options, link);
        let owner = &mut self.links[link];
        owner.session = session;
        owner.draining = false;
        owner.state = State::Dialling { conn, until: now + self.options.silence_max };
    }

    /// The connection takes requests from now on.
    pub(super) fn come_up(
        &mut self,
        now: Instant,
        link: usize,
        conn: ConnId,
        hello: Option<HelloReply>,
    ) {
        let owner = &mut self.links[link];
        owner.state = State::Up { conn };
        owner.heard = now;
        self.report(Report::Connected { link, hello });
        self.rouse(link);
    }

    /// Ends the connection for a reason of ours; [`Initiator::lose`] follows with its `Closed`.
    pub(super) fn hang_up(&mut self, link: usize, why: Loss) {
        let owner = &mut self.links[link];
        if let State::Closing { .. } = owner.state {
            return;
        }
        let conn = owner.state.conn().expect("there is a connection to end");
        owner.state = State::Closing { conn, why };
        self.transport.close(conn);
    }

    /// The connection is gone. What was sent on it and may be repeated waits for the next one, in
    /// the original order and before what was not sent yet.
    pub(super) fn lose(&mut self, now: Instant, link: usize, why: Loss) {
        let owner = &mut self.links[link];
        assert!(owner.lent.is_empty(), "payloads come back before a connection ends");
        if owner.failures == 0 {
            owner.down_since = now;
        }
        owner.failures = owner.failures.saturating_add(1);
        owner.arriving = None;
        let pause =
            owner.pause(self.options.backoff_min, self.options.backoff_max, &mut self.random);
        let until = now + pause;
        owner.state = State::Resting { until };
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

    /// Puts what was sent on the connection back into its queue, or ends it.
    fn recall(&mut self, link: usize) {
        if self.links[link].sent == 0 {
            return;
        }
        let fenced = self.options.version == Version::Two && self.options.client != 0;
        let mut sent: Vec<(u64, Slot)> = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.link == link && flight.sent)
            .map(|(slot, flight)| (flight.order, slot))
            .collect();
        sent.sort_unstable_by_key(|&(order, _)| order);
        for &(_, slot) in sent.iter().rev() {
            let flight = self.flights.get(slot);
            if may_repeat(&flight.work, fenced) && flight.reissues < self.options.reissues_max {
                flight.reissues += 1;
                flight.sent = false;
                self.links[link].sent -= 1;
                self.links[link].ready.push_front(slot);
            }
        }
        for (_, slot) in sent {
            if self.flights.find(slot).is_some_and(|flight| flight.sent) {
                self.finish(slot, Status::ConnectionLost);
            }
        }
    }

    /// Ends everything that waits for the connection.
    fn forsake(&mut self, link: usize, status: Status) {
        while let Some(slot) = self.links[link].ready.pop_front() {
            self.finish(slot, status);
        }
    }

    /// A draining server did not carry the request out: it waits for the next connection, at its
    /// place in the original order.
    pub(super) fn put_back(&mut self, link: usize, slot: Slot) {
        let flight = self.flights.get(slot);
        flight.sent = false;
        let order = flight.order;
        let flights = &mut self.flights;
        let owner = &mut self.links[link];
        owner.sent -= 1;
        let place = owner
            .ready
            .iter()
            .position(|&other| flights.get(other).order > order)
            .unwrap_or(owner.ready.len());
        owner.ready.insert(place, slot);
        self.leave_if_drained(link);
    }
}
