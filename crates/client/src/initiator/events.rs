//! Events of the network: turns received bytes into replies, and replies into ended requests.

use contract::ProtocolError::UnknownTag;
use contract::{
    Buf, CloseReason, ConnId, Dial, Frame, FrameHead, Instant, NetEvent, Notice, ProtocolError,
    Slot, Status, Tag, TlsFailure,
};
use proto::reflex::ClientEvent;

use super::Initiator;
use super::interface::{Loss, Report, Ticket};
use super::link::LinkState;
use super::requests::{Flight, RequestBody};

impl<T: Dial> Initiator<T> {
    pub(super) fn handle(&mut self, now: Instant, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, .. } => {
                let link = self.link_of(conn).expect("only what was dialled opens");
                self.greet(now, link, conn);
            }
            NetEvent::Received { conn, buf, len } => {
                if let Some(link) = self.link_of(conn) {
                    self.links[link].heard = now;
                    let bytes = &buf.bytes()[..len];
                    if !self.links[link].was_up && bytes == TlsFailure::REFUSAL {
                        let why = CloseReason::Insecure(TlsFailure::Wanted);
                        self.hang_up(link, Loss::Network(why));
                    } else if let Err(fatal) = self.parse(now, link, bytes) {
                        self.hang_up(link, Loss::Protocol(fatal));
                    } else if self.links[link].session.expects() >= self.options.direct_min {
                        self.fillable.push(link);
                    }
                }
                self.transport.give(buf);
            }
            NetEvent::Filled { conn, buf, at, len } => {
                let link = self.link_of(conn).expect("a buffer comes back before the end");
                self.filled(now, link, buf, at, len);
            }
            NetEvent::Sent { conn, buf } => {
                if let Some((slot, status)) = self.requests.take_back(self.link_of(conn), buf) {
                    self.finish(slot, status);
                }
            }
            NetEvent::Closed { conn, reason } => {
                let link = self.link_of(conn).expect("only what was dialled closes");
                if let Some(name) = self.names.get_mut(conn.index as usize) {
                    *name = None;
                }
                let why = match self.links[link].state {
                    LinkState::Closing { why, .. } => why,
                    _ => Loss::Network(reason),
                };
                self.lose(now, link, why);
            }
        }
    }

    /// Returns the link whose current connection is `conn`.
    fn link_of(&self, conn: ConnId) -> Option<usize> {
        match self.names.get(conn.index as usize) {
            Some(&Some((generation, link))) if generation == conn.generation => Some(link),
            Some(_) => None,
            // An index beyond the table: the dial failed before it became a connection.
            None => self.links.iter().position(|link| link.state.conn() == Some(conn)),
        }
    }

    /// Handles an opened connection: version 2 sends its hello first.
    fn greet(&mut self, now: Instant, link: usize, conn: ConnId) {
        let LinkState::Dialling { until, .. } = self.links[link].state else {
            return; // Given up while it was dialled; its `Closed` follows.
        };
        let heads = self.links[link].session.greeting();
        if heads.is_empty() {
            return self.come_up(now, link, conn, None);
        }
        self.links[link].state = LinkState::Greeting { conn, until };
        self.send_heads(now, conn, heads);
    }

    pub(super) fn send_heads(&mut self, now: Instant, conn: ConnId, heads: Vec<FrameHead>) {
        for head in heads {
            self.transport.send(now, conn, Frame::bare(head));
        }
    }

    fn parse(&mut self, now: Instant, link: usize, mut input: &[u8]) -> Result<(), ProtocolError> {
        if let LinkState::Closing { .. } = self.links[link].state {
            return Ok(()); // What it still says does not matter.
        }
        while let Some(event) = self.links[link].session.next_event(&mut input)? {
            match event {
                ClientEvent::Reply { tag, status, body_bytes } => {
                    self.answer(link, tag, status, body_bytes)?;
                }
                ClientEvent::Body { bytes, end } => self.take_body(link, bytes, end),
                ClientEvent::Hello { status, reply, .. } => match self.links[link].state {
                    LinkState::Greeting { conn, .. } if status.is_ok() => {
                        self.come_up(now, link, conn, Some(reply));
                    }
                    LinkState::Greeting { .. } => {
                        self.hang_up(link, Loss::Refused(status));
                        return Ok(());
                    }
                    _ => return Err(ProtocolError::OutOfOrder),
                },
                ClientEvent::Info { tag, info } => {
                    let ticket = self.end_control(link, tag)?;
                    self.requests.report(Report::Info(ticket, info));
                }
                ClientEvent::Tenant { tag, status, reply } => {
                    let ticket = self.end_control(link, tag)?;
                    self.requests.report(Report::Tenant(ticket, status, reply));
                }
                ClientEvent::Pong { tag } => {
                    let ticket = self.end_control(link, tag)?;
                    self.requests.report(Report::Pong(ticket, Status::Ok));
                }
                ClientEvent::Notice(notice) => {
                    self.links[link].draining |= notice == Notice::Draining;
                    self.requests.report(Report::Notice { link, notice });
                    self.leave_if_drained(link);
                }
            }
        }
        Ok(())
    }

    /// Returns the request with this tag, which the server answers, and resets the link's failures.
    /// Fails if the request was not sent on this connection, or is answered already.
    fn owed(&mut self, link: usize, tag: Tag) -> Result<(Slot, &mut Flight), ProtocolError> {
        let owed = self.requests.owed(link, tag)?;
        self.links[link].failures = 0;
        Ok(owed)
    }

    fn answer(
        &mut self,
        link: usize,
        tag: Tag,
        status: Status,
        body: usize,
    ) -> Result<(), ProtocolError> {
        let draining = self.links[link].draining;
        let (slot, flight) = self.owed(link, tag)?;
        let is_lent = flight.is_lent();
        let RequestBody::Data { command, .. } = flight.work else { return Err(UnknownTag(tag)) };
        if body != if status.is_ok() { command.reply_bytes() } else { 0 } {
            return Err(ProtocolError::BadLength(body as u64));
        }
        if status == Status::Retry && draining && !is_lent && !self.requests.is_ordered(slot) {
            self.requests.put_back(slot);
            self.leave_if_drained(link);
        } else if body > 0 {
            self.links[link].arriving = Some((slot, 0));
        } else {
            self.finish(slot, status);
        }
        Ok(())
    }

    fn take_body(&mut self, link: usize, bytes: &[u8], end: Option<Status>) {
        let arriving = self.links[link].arriving;
        let (slot, filled) = arriving.expect("a session yields a body behind its reply");
        if let RequestBody::Data { command, buf: Some(buf), .. } = self.requests.work(slot) {
            let room = buf.prefix_mut(command.reply_bytes());
            room[filled..filled + bytes.len()].copy_from_slice(bytes);
            self.copied += bytes.len() as u64;
        }
        self.body_came(link, bytes.len(), end);
    }

    /// Counts `bytes` more received bytes of the read whose data is arriving on the link.
    fn body_came(&mut self, link: usize, bytes: usize, end: Option<Status>) {
        let arriving = &mut self.links[link].arriving;
        let (slot, filled) = arriving.take().expect("a session yields a body behind its reply");
        match end {
            Some(status) => self.finish(slot, status),
            None => *arriving = Some((slot, filled + bytes)),
        }
    }

    /// Lends the transport the buffers of reads whose data comes next on their connections, so that
    /// the data is received into them directly.
    pub(super) fn receive_directly(&mut self) {
        for n in 0..self.fillable.len() {
            let link = self.fillable[n];
            let owner = &self.links[link];
            let LinkState::Up { conn } = owner.state else { continue };
            let arriving = owner.arriving.filter(|_| owner.filling.is_none());
            let Some((slot, at)) = arriving else { continue };
            let bytes = owner.session.expects();
            let RequestBody::Data { buf: home, .. } = self.requests.work(slot) else { continue };
            let Some(buf) = home.take() else { continue };
            match self.transport.receive_into(conn, buf, at, at + bytes) {
                Ok(()) => self.links[link].filling = Some(slot),
                Err(buf) => *home = Some(buf),
            }
        }
        self.fillable.clear();
    }

    /// Takes back a buffer that was lent to the transport to receive into.
    fn filled(&mut self, now: Instant, link: usize, buf: Buf, at: usize, len: usize) {
        let owner = &mut self.links[link];
        let slot = owner.filling.take().expect("it was lent");
        let mut came = &buf.bytes()[at..at + len];
        let passed = match owner.state {
            LinkState::Closing { .. } => Ok(None),
            _ => owner.session.next_event(&mut came).map(|event| match event {
                Some(ClientEvent::Body { bytes, end }) => {
                    assert!(bytes.len() == len, "what was expected is what came");
                    Some(end)
                }
                None => None, // nothing came: the connection ends
                Some(other) => unreachable!("a body was expected, not {other:?}"),
            }),
        };
        let RequestBody::Data { buf: home, .. } = self.requests.work(slot) else {
            unreachable!("only requests with data have a buffer")
        };
        *home = Some(buf);
        match passed {
            Ok(None) => {}
            Ok(Some(end)) => {
                self.links[link].heard = now;
                self.body_came(link, len, end);
                // The link stays in the list however little data is left, since further large reads
                // may follow.
                self.fillable.push(link);
            }
            Err(fatal) => self.hang_up(link, Loss::Protocol(fatal)),
        }
    }

    /// Ends the request in `slot` with `status`. It leaves the tables as soon as its buffer is
    /// back.
    fn finish(&mut self, slot: Slot, status: Status) {
        if let Some(link) = self.requests.finish(slot, status) {
            self.leave_if_drained(link);
        }
    }

    fn end_control(&mut self, link: usize, tag: Tag) -> Result<Ticket, ProtocolError> {
        let (slot, flight) = self.owed(link, tag)?;
        if let RequestBody::Data { .. } = flight.work {
            return Err(UnknownTag(tag));
        }
        self.requests.retire(slot);
        self.leave_if_drained(link);
        Ok(Ticket(slot))
    }

    /// Closes the connection to a draining server once no request is outstanding: the server waits
    /// only for the client's end.
    fn leave_if_drained(&mut self, link: usize) {
        let owner = &self.links[link];
        let is_idle = owner.draining && !self.requests.is_owed(link);
        if is_idle && let LinkState::Up { .. } = owner.state {
            self.hang_up(link, Loss::Network(CloseReason::Peer));
        }
    }
}
