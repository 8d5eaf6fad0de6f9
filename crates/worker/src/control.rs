//! Connections come, introduce themselves, ask about things, and go.

use std::sync::Arc;

use contract::{
    CloseReason, ConnId, Control, Device, End, Frame, Hello, HelloReply, ListenerId, Mailbox,
    Member, NamespaceId, NamespaceInfo, Peer, REQUEST_BYTES_MAX, Reply, Scheduler, Session, Status,
    TenantId, Transport,
};

use crate::connection::{Client, Connection, Greeting, Receiving, Welcome};
use crate::fence::Place;
use crate::worker::Worker;

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    pub(crate) fn open(&mut self, id: ConnId, peer: Peer, listener: Option<ListenerId>) {
        let mut conn = Connection::new(id, peer, self.sessions.open(id, listener, &peer));
        if let Some(listener) = listener {
            let lead = self.shared.listeners.find(listener);
            conn.namespace = lead.map_or(NamespaceId(1), |lead| lead.namespace);
            conn.listener = listener;
        }
        let own = self.shared.listeners.stands(conn.listener);
        // What it may do without saying who it is: all that version 1 ever may.
        let grant = self.shared.access.open(&peer, b"", "", own).ok();
        self.seat(conn);
        self.set_grant(id, grant);
        tracing::debug!(%peer, "connection opened");
        if self.is_draining() {
            self.finish(id);
        } else if self.is_drained_at(listener) {
            // It was on its way already.
            self.dismiss(id, End::Drained);
        }
    }

    /// Puts a connection into its place.
    pub(crate) fn seat(&mut self, conn: Connection<P>) {
        let index = conn.id.index as usize;
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, || None);
        }
        assert!(self.conns[index].is_none(), "the transport reused a place too early");
        self.conns[index] = Some(Box::new(conn));
        self.open_connections += 1;
        self.line.meters.worker.set_connections(self.open_connections);
    }

    /// The transport has let go of the connection.
    pub(crate) fn closed(&mut self, id: ConnId, reason: CloseReason) {
        let Some(conn) = self.conns.get_mut(id.index as usize) else { return };
        if conn.as_ref().is_none_or(|c| c.id != id) {
            return;
        }
        let mut conn = conn.take().expect("looked at above");
        self.open_connections -= 1;
        self.line.meters.worker.set_connections(self.open_connections);
        tracing::debug!(peer = %conn.peer, ?reason, "connection closed");
        self.line.meters.worker.end(conn.life.cause().unwrap_or(match reason {
            CloseReason::Peer => End::Peer,
            CloseReason::Reset(_) | CloseReason::Local | CloseReason::Unreachable(_) => {
                End::Network
            }
        }));
        if let Receiving::Into(slot) = conn.intake.receiving {
            self.forget(slot);
        }
        self.forget_awaited(conn.outstanding.asked);
        for stream in &mut conn.streams {
            while let Some(slot) = stream.held.pop(&mut self.in_flight) {
                self.forget(slot);
            }
        }
        if let Some(stalled) = &conn.intake.stalled {
            self.carried -= stalled.bytes.len() - stalled.taken;
        }
        if conn.greeting == Greeting::Throttled {
            self.guesses.forget(id);
        }
        if let Some(place) = conn.place.take() {
            self.shared.fences.leave(place);
        }
        self.forget_leaving(id);
        self.lose_luggage(&conn);
        self.leave_all(
            conn.membership.grant.as_ref(),
            conn.membership.entered,
            &conn.membership.handles,
        );
        self.discard_unwanted();
    }

    pub(crate) fn control(&mut self, id: ConnId, control: Control) {
        match control {
            Control::Hello(hello) => self.present(id, hello),
            Control::Info { tag, namespace } => {
                let info = self.info(id, namespace);
                self.reply(id, &Reply::Info { tag, info }, None);
            }
            Control::Ping { tag } => self.reply(id, &Reply::Pong { tag }, None),
            Control::Register(register) => self.register(id, register),
            Control::Renegotiate(register) => {
                self.renegotiate(id, register.tag, register.tenant, register.slo);
            }
            Control::Unregister { tag, tenant } => self.unregister(id, tag, tenant),
        }
    }

    /// The session knows whose requests they are; what those may do, the rules say.
    pub(crate) fn attach(&mut self, id: ConnId, tenant: Option<TenantId>) {
        let conn = self.find(id).expect("it is attached");
        let granted = match tenant {
            Some(tenant) => conn.membership.grant.as_ref().map(|grant| Arc::new(grant.of(tenant))),
            None => {
                let (peer, listener) = (conn.peer, conn.listener);
                let own = self.shared.listeners.stands(listener);
                self.shared.access.open(&peer, b"", "", own).ok()
            }
        };
        self.set_grant(id, granted);
        // An operator may have made the tenant, and may remove it while the connection is idle.
        let member = tenant.map(|tenant| Member { tenant, epoch: self.meter(tenant).epoch() });
        let conn = self.find(id).expect("it is attached");
        conn.membership.entered = member.filter(|_| conn.membership.grant.is_some());
    }

    /// What a connection is told with the answer to its hello.
    pub(crate) fn terms(&mut self, id: ConnId, hello: &Hello) -> HelloReply {
        let limit = self.limits.in_flight_of_connection as u32;
        let namespaces = self.namespaces.last();
        let conn = self.find(id).expect("it said hello");
        HelloReply {
            queue_depth: match hello.queue_depth {
                0 => limit,
                wanted => wanted.min(limit),
            },
            request_bytes_max: REQUEST_BYTES_MAX as u32,
            checksums: hello.checksums,
            namespaces,
            namespace: conn.namespace.0,
        }
    }

    pub(crate) fn hello(&mut self, id: ConnId, hello: &Hello) {
        let reply = self.terms(id, hello);
        let conn = self.find(id).expect("it said hello");
        let (peer, listener) = (conn.peer, conn.listener);
        let own = self.shared.listeners.stands(listener);
        match self.shared.access.open(&peer, &hello.token, &hello.tenant, own) {
            Err(_) => {
                // An operator may have made the tenant, which then no rule names.
                let plain = self.shared.access.open(&peer, &hello.token, "", own).ok();
                if let Err(status) = self.enter(id, hello, plain, reply) {
                    tracing::warn!(%peer, "hello refused: no access rule lets it in");
                    self.reply(id, &Reply::Hello { tag: hello.tag, status, reply }, None);
                    self.finish(id);
                }
            }
            Ok(grant) => {
                self.set_grant(id, Some(grant));
                self.greet(id, Greeting::Fenced(Welcome { tag: hello.tag, reply }));
                self.take_place(id, Client { name: hello.client, connection: hello.connection });
                self.answer_greetings();
            }
        }
    }

    /// The connection is let in as soon as nothing stands against it.
    pub(crate) fn greet(&mut self, id: ConnId, greeting: Greeting) {
        self.find(id).expect("it said hello").greeting = greeting;
        self.greetings.push(id);
    }

    /// Takes the place of an earlier connection of the same client, if the client has a name.
    pub(crate) fn take_place(&mut self, id: ConnId, client: Client) {
        let conn = self.find(id).expect("it said hello");
        let tenant = conn.membership.grant.as_ref().expect("it was let in").tenant;
        if client.name != 0 {
            let place = self.shared.fences.take(tenant, client.name, client.connection);
            let conn = self.find(id).expect("it said hello");
            conn.fence = Some(place.fence().clone());
            conn.place = Some(place);
        }
    }

    /// Lets in the connections whose fences are clear.
    pub(crate) fn answer_greetings(&mut self) {
        let shared = self.shared.clone();
        let waits = |place: &Place| place.is_waiting() || shared.fences.holds(place);
        for n in (0..self.greetings.len()).rev() {
            let id = self.greetings[n];
            let welcome = match self.find(id) {
                Some(conn) => {
                    let is_asked = matches!(conn.greeting, Greeting::Asked(..));
                    if is_asked || conn.place.as_ref().is_some_and(waits) {
                        continue;
                    }
                    conn.greeting.take_fenced()
                }
                None => None,
            };
            self.greetings.swap_remove(n);
            let Some(Welcome { tag, reply }) = welcome else { continue };
            self.reply(id, &Reply::Hello { tag, status: Status::Ok, reply }, None);
            self.look_again(id);
        }
    }

    fn info(
        &mut self,
        id: ConnId,
        namespace: Option<NamespaceId>,
    ) -> Result<NamespaceInfo, Status> {
        let conn = self.conns[id.index as usize].as_ref().expect("it asked");
        let number = namespace.unwrap_or(conn.namespace);
        let found = self.namespaces.find(number).ok_or(Status::NoNamespace)?;
        let mut rights = conn.membership.grant.as_ref().ok_or(Status::Denied)?.rights(number);
        if !rights.read && !rights.write {
            return Err(Status::Denied);
        }
        let geometry = self.devices[found.device].geometry;
        rights.write &= !found.read_only && !geometry.read_only;
        Ok(NamespaceInfo {
            namespace: number,
            blocks: found.blocks,
            physical_block_bytes: geometry.physical_block_bytes,
            atomic_blocks_max: geometry.atomic_blocks_max,
            rights,
            volatile_cache: geometry.volatile_cache,
        })
    }

    /// Encodes a reply and queues it. A reply that the version cannot say ends the connection.
    pub(crate) fn reply(
        &mut self,
        id: ConnId,
        reply: &Reply,
        body: Option<(contract::Buf, usize)>,
    ) {
        let (buf, body_len) = match body {
            Some((buf, len)) => (Some(buf), len),
            None => (None, 0),
        };
        let Some(conn) = self.find(id).filter(|conn| !conn.life.is_broken()) else {
            return self.give_back(buf);
        };
        let bytes = buf.as_ref().map_or(&[][..], |buf| &buf.bytes()[..body_len]);
        let head = conn.session.reply(reply, bytes);
        if let Ok(head) = &head {
            conn.progress.queued += (head.bytes().len() + body_len + head.tail().len()) as u64;
        }
        match head {
            Ok(head) if head.is_empty() => self.give_back(buf),
            Ok(head) if body_len > 0 && !head.leaves_body() => {
                self.transport.send(self.now, id, Frame { head, body: buf, body_len });
            }
            Ok(head) => {
                self.transport.send(self.now, id, Frame::bare(head));
                self.give_back(buf);
            }
            Err(fatal) => {
                self.give_back(buf);
                self.disconnect(id, End::Unsayable, &fatal.to_string());
            }
        }
    }

    pub(crate) fn give_back(&mut self, buf: Option<contract::Buf>) {
        match buf {
            Some(buf) if self.spare.is_none() && buf.capacity() == self.pool.largest() => {
                self.spare = Some(buf);
            }
            Some(buf) => self.pool.give(buf),
            None => {}
        }
    }
}
