//! Admission of connections and registration of tenants: hellos, access rules, handles, questions
//! to the control plane, and notices.
//!
//! Deliberately not here: the decision on promises, which the control plane makes, and tokens,
//! which the scheduler counts.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use contract::{
    ConnId, ControlRequest, Device, Hello, HelloReply, LimitedBy, Mailbox, Member, Meters,
    NamespaceId, NamespaceInfo, Notice, REQUEST_BYTES_MAX, Reply, Scheduler, Session, Slo, Status,
    Tag, TenancyAnswer, TenancyOperation, TenancyRequest, TenantId, TenantRegistration,
    TenantReply, Transport,
};

use crate::connections::{AcceptedHello, ClientConnection, HelloStage, Membership, NameClaim};
use crate::engine::Engine;
use crate::frontend::Frontend;
use crate::{ControlPlaneLink, Grant};

/// Maximum number of handles that a connection may hold at a time.
const HANDLES_MAX: usize = 16;
/// Maximum number of a worker's unanswered questions to the control plane.
const ASKS_MAX: usize = 64;
/// Maximum number of notices in delivery; more are dropped, since the next one repeats the news.
const NOTICES_MAX: usize = 16;
/// Number of places of the connections' table that a notice visits in a turn.
const NOTICE_BATCH: usize = 256;

/// A notice that is being carried to the connections of a tenant.
#[derive(Clone, Copy, Debug)]
struct NoticeDelivery {
    member: Member,
    iops: u32,
    read_percent: u8,
    /// The first place of the connections' table that the notice has not visited.
    next: usize,
}

/// The notices of a worker to its connections.
#[derive(Debug, Default)]
pub(crate) struct PendingNotices {
    /// The notices in delivery, at most [`NOTICES_MAX`].
    deliveries: VecDeque<NoticeDelivery>,
}

impl PendingNotices {
    /// Adds a notice of a tenant's new rate, to be delivered to the tenant's connections.
    pub(crate) fn take(&mut self, member: Member, iops: u32, read_percent: u8) {
        if self.deliveries.len() < NOTICES_MAX {
            self.deliveries.push_back(NoticeDelivery { member, iops, read_percent, next: 0 });
        }
    }

    /// Carries the notice in front to some of the connections.
    pub(crate) fn deliver<T: Transport, P: Session>(&mut self, front: &mut Frontend<T, P>) {
        let Some(delivery) = self.deliveries.front().copied() else { return };
        let NoticeDelivery { member, iops, read_percent, next } = delivery;
        if front.gauges.meter(member.tenant).epoch() != member.epoch {
            self.deliveries.pop_front();
            return;
        }
        let end = (next + NOTICE_BATCH).min(front.conns.places());
        for place in next..end {
            let Some(conn) = front.conns.at(place) else { continue };
            let id = conn.id;
            if !conn.session.takes_notices() || conn.life.is_ending() {
                continue;
            }
            let own = front.tenant_of(id, 0) == Ok(member.tenant);
            let handle = own.then_some(0).or_else(|| handle_of(front, id, member.tenant));
            let Some(tenant) = handle else { continue };
            if front.has_frame() {
                let notice = Notice::Renegotiate { tenant, iops, read_percent };
                front.reply(id, &Reply::Notice(notice), None);
            }
        }
        front.progressed = true;
        match end == front.conns.places() {
            true => drop(self.deliveries.pop_front()),
            false => self.deliveries[0].next = end,
        }
    }
}

impl Membership {
    /// Removes the connection from the counts of all its tenants.
    pub(crate) fn leave_all(&self, meters: &Meters) {
        self.leave_own(meters);
        self.handles.iter().flatten().for_each(|member| leave(meters, *member));
    }

    /// Adds the connection to the counts of all its tenants, except those whose epoch has ended.
    pub(crate) fn join_all(&self, meters: &Meters) {
        match (self.entered, &self.grant) {
            (Some(member), _) => join(meters, member),
            (None, Some(grant)) => meter(meters, grant.tenant).join(),
            (None, None) => {}
        }
        self.handles.iter().flatten().for_each(|member| join(meters, *member));
    }

    /// Removes the connection from the count of its grant's tenant.
    fn leave_own(&self, meters: &Meters) {
        match (self.entered, &self.grant) {
            (Some(member), _) => leave(meters, member),
            (None, Some(grant)) => meter(meters, grant.tenant).leave(),
            (None, None) => {}
        }
    }

    /// Replaces the grant. The connection then counts in the new grant's tenant, and `entered` is
    /// empty.
    pub(crate) fn set_grant(&mut self, grant: Option<Arc<Grant>>, meters: &Meters) {
        self.leave_own(meters);
        self.entered = None;
        if let Some(grant) = &grant {
            meter(meters, grant.tenant).join();
        }
        self.grant = grant;
    }
}

fn meter(meters: &Meters, tenant: TenantId) -> &contract::TenantMeter {
    meters.get(tenant).expect("tenants' numbers lie below the maximum")
}

/// Counts a new handle of a tenant, unless the handle is of an earlier epoch.
fn join(meters: &Meters, member: Member) {
    let meter = meter(meters, member.tenant);
    if meter.epoch() == member.epoch {
        meter.join();
    }
}

/// Removes a handle from its tenant's count. A handle of an earlier epoch was removed when that
/// epoch ended.
fn leave(meters: &Meters, member: Member) {
    let meter = meter(meters, member.tenant);
    if meter.epoch() == member.epoch {
        meter.leave();
    }
}

/// Sets the rights of a connection and the tenant that the connection belongs to.
pub(crate) fn set_grant<T: Transport, P: Session>(
    front: &mut Frontend<T, P>,
    id: ConnId,
    grant: Option<Arc<Grant>>,
) {
    front.conns.get(id).membership.set_grant(grant, front.gauges.meters());
    front.settle_account(id);
}

/// Attaches a connection to the tenant that its session names, with the rights of the access rules.
/// `None` means the tenant of the rules.
pub(crate) fn attach<T: Transport, P: Session>(
    front: &mut Frontend<T, P>,
    id: ConnId,
    tenant: Option<TenantId>,
) {
    let conn = front.conns.get(id);
    let granted = match tenant {
        Some(tenant) => conn.membership.grant.as_ref().map(|grant| Arc::new(grant.of(tenant))),
        None => {
            let own = front.shared.listeners.stands(conn.listener);
            let granted = front.shared.access.open(&conn.peer, b"", "", own).ok();
            granted.filter(|_| !front.shared.listeners.is_gone(conn.listener))
        }
    };
    set_grant(front, id, granted);
    // An operator may have made the tenant, and may remove it while the connection is idle.
    let member = tenant.map(|tenant| front.member(tenant));
    let membership = &mut front.conns.get(id).membership;
    membership.entered = member.filter(|_| membership.grant.is_some());
}

/// Answers the hellos whose fences are clear.
pub(crate) fn answer_greetings<T: Transport, P: Session>(front: &mut Frontend<T, P>) {
    let shared = front.shared.clone();
    let waits = |place: &NameClaim| place.is_waiting() || shared.fences.holds(place);
    for n in (0..front.conns.hellos.greeted.len()).rev() {
        let id = front.conns.hellos.greeted[n];
        let unnamed = front.conns.find(id).and_then(|conn| conn.greeting.take_unnamed());
        if let Some(client) = unnamed {
            take_place(front, id, client);
        }
        let welcome = match front.conns.find(id) {
            Some(conn) => {
                let is_early =
                    matches!(conn.greeting, HelloStage::Asked(..) | HelloStage::Unnamed(..));
                if is_early || conn.place.as_ref().is_some_and(waits) {
                    continue;
                }
                conn.greeting.take_fenced()
            }
            None => None,
        };
        front.conns.hellos.greeted.swap_remove(n);
        let Some(AcceptedHello { tag, reply }) = welcome else { continue };
        front.reply(id, &Reply::Hello { tag, status: Status::Ok, reply }, None);
        front.conns.call(id);
    }
}

/// Queues a hello for its answer.
fn greet<T: Transport, P: Session>(front: &mut Frontend<T, P>, id: ConnId, greeting: HelloStage) {
    front.conns.get(id).greeting = greeting;
    front.conns.hellos.greeted.push(id);
}

/// Replaces the earlier connection of the same client, if the client has a name. If another thread
/// uses the table of names, a later turn tries again.
fn take_place<T: Transport, P: Session>(
    front: &mut Frontend<T, P>,
    id: ConnId,
    client: ClientConnection,
) {
    let conn = front.conns.get(id);
    let tenant = conn.membership.grant.as_ref().expect("it was let in").tenant;
    if client.name != 0 {
        let place = front.shared.fences.take(tenant, client.name, client.connection);
        let Some(place) = place else { return conn.greeting.await_name(client) };
        conn.fence = Some(place.fence().clone());
        conn.place = Some(place);
    }
}

/// Returns the handle of a connection on a tenant, if it has one.
fn handle_of<T: Transport, P: Session>(
    front: &Frontend<T, P>,
    id: ConnId,
    tenant: TenantId,
) -> Option<u16> {
    let (conn, member) = (front.conns.look(id)?, front.member(tenant));
    let place = conn.membership.handles.iter().position(|held| *held == Some(member))?;
    Some(place as u16 + 1)
}

/// Gives a connection a handle on a tenant, or returns the one that it has, which is 0 for its own
/// tenant. Returns `None` if the connection holds too many.
fn give_handle<T: Transport, P: Session>(
    front: &mut Frontend<T, P>,
    id: ConnId,
    member: Member,
) -> Option<u16> {
    let membership = &mut front.conns.get(id).membership;
    if membership.grant.as_ref().is_some_and(|grant| grant.tenant == member.tenant) {
        return Some(0);
    }
    let handles = &mut membership.handles;
    if let Some(place) = handles.iter().position(|held| *held == Some(member)) {
        return Some(place as u16 + 1);
    }
    let place = handles.iter().position(Option::is_none).unwrap_or(handles.len());
    if place == HANDLES_MAX {
        return None;
    }
    if place == handles.len() {
        handles.push(None);
    }
    handles[place] = Some(member);
    join(front.gauges.meters(), member);
    Some(place as u16 + 1)
}

/// Answers a request to register a tenant, to change its promise or to unregister it.
fn answer_tenant<T: Transport, P: Session>(
    front: &mut Frontend<T, P>,
    id: ConnId,
    (tag, handle): (Tag, u16),
    answer: TenancyAnswer,
) {
    let TenancyAnswer { status, tokens_needed, tokens_free, limit_latency_us, .. } = answer;
    let limited_by = match answer.limited_by {
        LimitedBy::Nobody => 0,
        LimitedBy::ThisSlo => TenantReply::LIMITED_BY_THIS,
        LimitedBy::Tenant(tenant) => {
            handle_of(front, id, tenant).unwrap_or(TenantReply::LIMITED_BY_OTHER)
        }
    };
    let reply =
        TenantReply { tenant: handle, tokens_needed, tokens_free, limited_by, limit_latency_us };
    front.reply(id, &Reply::Tenant { tag, status, reply }, None);
}

/// Acts on the control plane's answer to a connection's question: replies to the peer, or goes on
/// with the connection's hello.
pub(crate) fn take_answer<T: Transport, P: Session>(
    front: &mut Frontend<T, P>,
    id: ConnId,
    asked: (Tag, u16),
    answer: TenancyAnswer,
) {
    front.conns.hellos.asked -= 1;
    act_on(front, id, asked, answer);
    if let Some(member) = answer.member {
        front.gauges.meter(member.tenant).note_answer();
    }
}

fn act_on<T: Transport, P: Session>(
    front: &mut Frontend<T, P>,
    id: ConnId,
    (tag, mut handle): (Tag, u16),
    mut answer: TenancyAnswer,
) {
    let Some(conn) = front.conns.find(id) else { return };
    if let Some(client) = conn.greeting.take_asked() {
        enter(front, id, client, answer);
        return front.retire(id);
    }
    if let (Status::Ok, 0, Some(member)) = (answer.status, handle, answer.member) {
        match give_handle(front, id, member) {
            Some(given) => handle = given,
            None => answer = TenancyAnswer::bare(Status::NoResources),
        }
    }
    answer_tenant(front, id, (tag, handle), answer);
    front.retire(id);
}

/// Attaches a connection to the tenant of its hello, if the control plane has allowed that.
fn enter<T: Transport, P: Session>(
    front: &mut Frontend<T, P>,
    id: ConnId,
    client: ClientConnection,
    answer: TenancyAnswer,
) {
    let member = answer.member.filter(|_| answer.status == Status::Ok);
    let conn = front.conns.get(id);
    let Some(member) = member else {
        let welcome = conn.greeting.take_fenced();
        let AcceptedHello { tag, reply } = welcome.expect("the control plane has just answered");
        tracing::warn!(peer = %conn.peer, "hello refused: there is no tenant of this name");
        front.reply(id, &Reply::Hello { tag, status: answer.status, reply }, None);
        return front.finish(id);
    };
    let grant = conn.membership.grant.as_ref().expect("a rule let it in");
    let mut granted = grant.of(member.tenant);
    granted.register = false; // what an operator promised is the operator's to change
    set_grant(front, id, Some(Arc::new(granted)));
    front.conns.get(id).membership.entered = Some(member);
    take_place(front, id, client);
    answer_greetings(front);
}

/// The parts of a worker that answer hellos and registrations.
pub(crate) struct Registrar<'a, T, D, S, P, M> {
    pub(crate) engine: &'a mut Engine<T, D, S, P>,
    pub(crate) line: &'a mut ControlPlaneLink<M>,
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Registrar<'_, T, D, S, P, M> {
    /// Answers a request that is about the connection rather than the data.
    pub(crate) fn control(&mut self, id: ConnId, control: ControlRequest) {
        match control {
            ControlRequest::Hello(hello) => self.present(id, hello),
            ControlRequest::Info { tag, namespace } => {
                let info = self.info(id, namespace);
                self.engine.front.reply(id, &Reply::Info { tag, info }, None);
            }
            ControlRequest::Find { tag, name } => {
                let info = self.find(id, &name);
                self.engine.front.reply(id, &Reply::Info { tag, info }, None);
            }
            ControlRequest::List { tag } => {
                let names = self.names(id);
                self.engine.front.reply(id, &Reply::List { tag, names }, None);
            }
            ControlRequest::Ping { tag } => self.engine.front.reply(id, &Reply::Pong { tag }, None),
            ControlRequest::Register(register) => self.register(id, register),
            ControlRequest::Renegotiate(register) => {
                self.renegotiate(id, register.tag, register.tenant, register.slo);
            }
            ControlRequest::Unregister { tag, tenant } => self.unregister(id, tag, tenant),
        }
    }

    /// Processes a connection's hello. Delays it if clients at the same address have presented
    /// wrong tokens.
    fn present(&mut self, id: ConnId, hello: Hello) {
        let front = &mut self.engine.front;
        let conn = front.conns.get(id);
        let peer = conn.peer;
        // Processes of this machine are known by their users.
        let Some(address) = peer.address() else { return self.hello(id, &hello) };
        if hello.token.is_empty() || !front.shared.access.has_tokens() {
            return self.hello(id, &hello);
        }
        let (address, now) = (address.ip(), front.now);
        let throttle = &mut front.conns.hellos.throttle;
        let delay = throttle.delay(address, now);
        if delay.is_zero() {
            return self.look_at_token(id, address, &hello);
        }
        if throttle.is_full() {
            let reply = self.terms(id, &hello);
            let front = &mut self.engine.front;
            front.reply(id, &Reply::Hello { tag: hello.tag, status: Status::Retry, reply }, None);
            return front.finish(id);
        }
        tracing::warn!(%peer, "too many wrong tokens came from this address: this one waits");
        throttle.put_off(now + delay, id, address, hello);
        front.conns.get(id).greeting = HelloStage::Throttled;
    }

    /// Processes the delayed hellos whose time has come.
    pub(crate) fn look_at_tokens(&mut self) {
        let now = self.engine.front.now;
        while let Some(due) = self.engine.front.conns.hellos.throttle.next_due(now) {
            let (id, address, hello) = due;
            self.engine.front.progressed = true;
            self.engine.front.conns.get(id).greeting = HelloStage::Idle;
            self.look_at_token(id, address, &hello);
            self.engine.front.conns.call(id);
        }
    }

    fn look_at_token(&mut self, id: ConnId, address: IpAddr, hello: &Hello) {
        let front = &mut self.engine.front;
        if !front.shared.access.knows(&hello.token) {
            front.conns.hellos.throttle.add(address, front.now);
        }
        self.hello(id, hello);
    }

    /// Returns the limits and rights that go into the answer to a hello.
    fn terms(&mut self, id: ConnId, hello: &Hello) -> HelloReply {
        let limit = self.engine.front.limits.in_flight_of_connection as u32;
        HelloReply {
            queue_depth: match hello.queue_depth {
                0 => limit,
                wanted => wanted.min(limit),
            },
            request_bytes_max: REQUEST_BYTES_MAX as u32,
            checksums: hello.checksums,
            namespaces: self.engine.namespaces.last(),
            namespace: self.engine.front.conns.get(id).view.namespace.0,
            storage_epoch: self.engine.front.shared.storage_epoch.load(Ordering::Relaxed),
        }
    }

    /// Admits or refuses a connection, or asks the control plane whether it may enter the tenant
    /// that its hello names.
    fn hello(&mut self, id: ConnId, hello: &Hello) {
        let reply = self.terms(id, hello);
        let front = &mut self.engine.front;
        let conn = front.conns.get(id);
        let (peer, shared) = (conn.peer, front.shared.clone());
        if shared.listeners.is_gone(conn.listener) {
            tracing::warn!(%peer, "hello refused: its listener was closed");
            return front.finish(id);
        }
        let own = shared.listeners.stands(conn.listener);
        if let Ok(grant) = shared.access.open(&peer, &hello.token, &hello.tenant, own) {
            set_grant(front, id, Some(grant));
            greet(front, id, HelloStage::Fenced(AcceptedHello { tag: hello.tag, reply }));
            take_place(
                front,
                id,
                ClientConnection { name: hello.client, connection: hello.connection },
            );
            return answer_greetings(front);
        }
        // An operator may have made the tenant, which then no rule names.
        let plain = shared.access.open(&peer, &hello.token, "", own).ok();
        let why = match (&plain, hello.token.is_empty()) {
            (Some(_), _) => "no access rule gives it the tenant that it asks for",
            (None, true) => "no access rule lets in who comes from there without a token",
            (None, false) if shared.access.knows(&hello.token) => {
                "the access rule of its token does not let it in"
            }
            (None, false) => "its token is that of no access rule",
        };
        if let Err(status) = self.ask_to_enter(id, hello, plain, reply) {
            let why = if status == Status::Retry { "the control plane is busy" } else { why };
            tracing::warn!(%peer, tenant = ?hello.tenant, "hello refused: {why}");
            let front = &mut self.engine.front;
            front.reply(id, &Reply::Hello { tag: hello.tag, status, reply }, None);
            front.finish(id);
        }
    }

    /// Asks the control plane whether an operator created the tenant that a hello names but no
    /// access rule does. The rules must admit the connection without a tenant and with the right to
    /// register (`plain`). The connection is not read until the answer.
    ///
    /// # Errors
    /// Fails with the status to refuse the hello with.
    fn ask_to_enter(
        &mut self,
        id: ConnId,
        hello: &Hello,
        plain: Option<Arc<Grant>>,
        reply: HelloReply,
    ) -> Result<(), Status> {
        let may_choose = |grant: &Arc<Grant>| grant.register && grant.tenant == TenantId::DEFAULT;
        let plain = plain.filter(may_choose).ok_or(Status::Denied)?;
        set_grant(&mut self.engine.front, id, Some(plain));
        let wish = TenancyOperation::Enter { name: hello.tenant.clone() };
        if !self.send_ask(id, hello.tag, 0, wish) {
            return Err(Status::Retry);
        }
        let client = ClientConnection { name: hello.client, connection: hello.connection };
        let welcome = AcceptedHello { tag: hello.tag, reply };
        greet(&mut self.engine.front, id, HelloStage::Asked(welcome, client));
        Ok(())
    }

    /// Returns the description of a namespace for a connection that has rights to it. `None` means
    /// the connection's own namespace.
    fn info(
        &mut self,
        id: ConnId,
        namespace: Option<NamespaceId>,
    ) -> Result<NamespaceInfo, Status> {
        let conn = self.engine.front.conns.get(id);
        let number = namespace.unwrap_or(conn.view.namespace);
        let found = self.engine.namespaces.find(number).ok_or(Status::NoNamespace)?;
        let mut rights = conn.membership.grant.as_ref().ok_or(Status::Denied)?.rights(number);
        if !rights.read && !rights.write {
            return Err(Status::Denied);
        }
        conn.view.learn(number, self.engine.namespaces.removed(number));
        let geometry = self.engine.lanes.peek(found.device).geometry();
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

    /// Returns the description of a namespace, by its name or number, for a connection that has
    /// rights to it. An empty name means the connection's own namespace.
    fn find(&mut self, id: ConnId, name: &str) -> Result<NamespaceInfo, Status> {
        let found = match name {
            "" => None,
            name => Some(self.engine.namespaces.named(name).ok_or(Status::NoNamespace)?),
        };
        self.info(id, found)
    }

    /// Returns the names of the namespaces to which a connection has rights.
    fn names(&self, id: ConnId) -> Result<Vec<Arc<str>>, Status> {
        let grant = &self.engine.front.conns.peek(id).membership.grant;
        let grant = grant.as_ref().ok_or(Status::Denied)?;
        let is_shown = |number| {
            let rights = grant.rights(number);
            rights.read || rights.write
        };
        let shown = self.engine.namespaces.names().filter(|(number, _)| is_shown(*number));
        Ok(shown.map(|(_, name)| Arc::clone(name)).collect())
    }

    /// Asks the control plane to register a tenant, if the access rules let the connection
    /// register.
    fn register(&mut self, id: ConnId, register: TenantRegistration) {
        let number = self.engine.front.conns.peek(id).view.namespace;
        let namespace = self.engine.namespaces.find(number);
        let device = namespace.map_or(0, |namespace| namespace.device as u8);
        let TenantRegistration { tag, name, slo, .. } = register;
        self.ask(id, tag, 0, TenancyOperation::Register { name, slo, device });
    }

    /// Asks the control plane to change the promise of a tenant on which the connection has a
    /// handle, or to which it belongs.
    fn renegotiate(&mut self, id: ConnId, tag: Tag, handle: u16, slo: Option<Slo>) {
        let front = &mut self.engine.front;
        match front.tenant_of(id, handle) {
            Ok(tenant) => {
                let member = front.member(tenant);
                self.ask(id, tag, handle, TenancyOperation::Change { member, slo });
            }
            Err(status) => answer_tenant(front, id, (tag, handle), TenancyAnswer::bare(status)),
        }
    }

    /// Takes a handle back and tells the control plane, since a tenant that clients made ends with
    /// its last handle.
    fn unregister(&mut self, id: ConnId, tag: Tag, handle: u16) {
        let front = &mut self.engine.front;
        let place = usize::from(handle).wrapping_sub(1);
        let held = front.conns.get(id).membership.handles.get_mut(place);
        let Some(member) = held.and_then(Option::take) else {
            return answer_tenant(front, id, (tag, handle), TenancyAnswer::bare(Status::NoTenant));
        };
        // The control plane counts handles when it decides, so this one is gone before it is asked.
        leave(front.gauges.meters(), member);
        if !self.send_ask(id, tag, handle, TenancyOperation::Unregister { member }) {
            let front = &mut self.engine.front;
            front.conns.get(id).membership.handles[place] = Some(member);
            join(front.gauges.meters(), member);
            answer_tenant(front, id, (tag, handle), TenancyAnswer::bare(Status::Retry));
        }
    }

    /// Sends a connection's question to the control plane, or refuses if the connection may not
    /// register.
    fn ask(&mut self, id: ConnId, tag: Tag, handle: u16, wish: TenancyOperation) {
        let grant = &self.engine.front.conns.peek(id).membership.grant;
        let may = grant.as_ref().is_some_and(|grant| grant.register);
        if !may || !self.send_ask(id, tag, handle, wish) {
            let status = if may { Status::Retry } else { Status::Denied };
            answer_tenant(&mut self.engine.front, id, (tag, handle), TenancyAnswer::bare(status));
        }
    }

    /// Sends a question to the control plane; returns `false` if too many are unanswered.
    fn send_ask(&mut self, id: ConnId, tag: Tag, handle: u16, wish: TenancyOperation) -> bool {
        let (conns, worker) = (&mut self.engine.front.conns, self.line.worker);
        let grant = &conns.peek(id).membership.grant;
        let asker = grant.as_ref().map_or(TenantId::DEFAULT, |grant| grant.tenant);
        let sent = conns.hellos.asked < ASKS_MAX
            && self.line.mailbox.ask(TenancyRequest { worker, conn: id, tag, handle, asker, wish });
        if sent {
            conns.hellos.asked += 1;
            // It counts as a request, so that the connection does not end before the answer.
            conns.get(id).outstanding.count += 1;
        }
        sent
    }
}
