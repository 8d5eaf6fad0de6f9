//! The worker's side of tenants: handles of connections, questions to the control plane and its
//! answers, notices, and the counters that it reads.
//!
//! Mail is taken at one place of the turn, a bounded number of messages at a time. What is
//! deliberately not here: who may be promised what, which the control plane decides, and tokens,
//! which the scheduler counts.

use std::collections::VecDeque;
use std::sync::Arc;

use contract::{
    Answer, Ask, ConnId, Device, Hello, HelloReply, LimitedBy, Mailbox, Member, Meter, Meters,
    NoMailbox, Notice, Register, Reply, Scheduler, Session, Slo, Status, Tag, Tell, TenantId,
    TenantReply, Transport, Wish,
};

use crate::Grant;
use crate::connection::{Client, Connection, Greeting, Welcome};
use crate::watch::Watch;
use crate::worker::Worker;

/// Handles that a connection may hold at a time.
const HANDLES_MAX: usize = 16;
/// Questions of a worker that wait for an answer at a time.
const ASKS_MAX: usize = 64;
/// Messages taken in one turn.
const MAIL_MAX: usize = 16;
/// Notices on their way to connections; more are dropped, as the next one says the same.
const NOTICES_MAX: usize = 16;
/// Places of connections that a turn looks at for a notice.
const NOTICE_BATCH: usize = 256;

/// A worker's line to the control plane.
#[derive(Debug)]
pub struct Line<M> {
    /// Its mailbox.
    pub mailbox: M,
    /// Its counters, which the control plane reads.
    pub meters: Arc<Meters>,
    /// Its number.
    pub worker: u16,
    /// With what it sees where the time goes; `None` where nobody wants to know.
    pub watch: Option<Watch>,
}

impl Line<NoMailbox> {
    /// No line: tenants below this number exist, and nobody can register.
    pub fn none(tenants_max: usize) -> Self {
        let meters = Arc::new(Meters::new(tenants_max));
        Line { mailbox: NoMailbox, meters, worker: 0, watch: None }
    }
}

/// A notice that is being carried to the connections of a tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    member: Member,
    iops: u32,
    read_percent: u8,
    /// The first place of the connections' table that has not been looked at.
    next: usize,
}

/// What a worker keeps of its talks with the control plane.
#[derive(Debug, Default)]
pub(crate) struct Talks {
    /// Questions without an answer so far, at most [`ASKS_MAX`].
    pub(crate) asked: usize,
    /// At most [`NOTICES_MAX`].
    pub(crate) notices: VecDeque<Rounds>,
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// Takes what the control plane has sent.
    pub(crate) fn take_mail(&mut self) {
        for _ in 0..MAIL_MAX {
            let Some(tell) = self.line.mailbox.poll() else { break };
            self.progressed = true;
            match tell {
                Tell::Answer { conn, tag, handle, answer } => {
                    self.talks.asked -= 1;
                    self.answer_ask(conn, tag, handle, answer);
                }
                Tell::Move { conn, to } => self.order_move(conn, to),
                Tell::Give { count, to, at_once } => self.order_gift(count, to, at_once),
                Tell::Relieve { permille, to, at_once } => self.order_relief(permille, to, at_once),
                Tell::List { from } => self.list(from),
                Tell::Arrive(parcel) => self.arrive(parcel),
                Tell::Landed { ticket, conn, pause } => self.landed(ticket, conn, pause),
                Tell::Returned(parcel) => self.returned(parcel),
                Tell::Leave { tenant } => self.meter(tenant).end_epoch(),
                Tell::Place { change, number, namespace } => self.place(change, number, namespace),
                Tell::Drain { listener, until } => self.order_drain(listener, until),
                Tell::End { conn, until } => self.order_end(conn, until),
                Tell::Renegotiate { member, iops, read_percent } => {
                    if self.talks.notices.len() < NOTICES_MAX {
                        let rounds = Rounds { member, iops, read_percent, next: 0 };
                        self.talks.notices.push_back(rounds);
                    }
                }
            }
        }
        if !self.talks.notices.is_empty() {
            self.give_notice();
        }
    }

    pub(crate) fn meter(&self, tenant: TenantId) -> &Meter {
        self.line.meters.get(tenant).expect("tenants' numbers lie below the maximum")
    }

    /// The tenant that a connection's requests with this handle are charged to.
    pub(crate) fn tenant_of(&self, id: ConnId, handle: u16) -> Result<TenantId, Status> {
        let conn = self.conns[id.index as usize].as_ref().expect("it sent a request");
        let member = match (handle, conn.membership.entered) {
            (0, None) => {
                return conn
                    .membership
                    .grant
                    .as_ref()
                    .map(|grant| grant.tenant)
                    .ok_or(Status::Denied);
            }
            (0, Some(member)) => member,
            (n, _) => {
                let held = conn.membership.handles.get(usize::from(n) - 1).copied().flatten();
                held.ok_or(Status::NoTenant)?
            }
        };
        self.tenant_as(member)
    }

    /// The tenant, if it is what it was when that was said.
    pub(crate) fn tenant_as(&self, member: Member) -> Result<TenantId, Status> {
        if self.meter(member.tenant).epoch() == member.epoch {
            Ok(member.tenant)
        } else {
            Err(Status::NoTenant)
        }
    }

    /// Lets a connection belong to another tenant, or to none.
    pub(crate) fn set_grant(&mut self, id: ConnId, grant: Option<Arc<Grant>>) {
        let conn = self.find(id).expect("the caller looked");
        let (before, entered) = (conn.membership.grant.take(), conn.membership.entered.take());
        conn.membership.grant = grant.clone();
        self.leave_own(before.as_ref(), entered);
        if let Some(grant) = grant {
            self.meter(grant.tenant).join();
        }
    }

    /// A connection with this grant is gone: so are its handles.
    pub(crate) fn leave_all(
        &self,
        grant: Option<&Arc<Grant>>,
        entered: Option<Member>,
        handles: &[Option<Member>],
    ) {
        self.leave_own(grant, entered);
        handles.iter().flatten().for_each(|member| self.leave(*member));
    }

    /// A connection came with all that. What is of an epoch that has ended here is not counted.
    pub(crate) fn join_all(&self, conn: &Connection<P>) {
        match (conn.membership.entered, &conn.membership.grant) {
            (Some(member), _) => self.join(member),
            (None, Some(grant)) => self.meter(grant.tenant).join(),
            (None, None) => {}
        }
        conn.membership.handles.iter().flatten().for_each(|member| self.join(*member));
    }

    /// A connection belongs to the tenant of its grant no more.
    fn leave_own(&self, grant: Option<&Arc<Grant>>, entered: Option<Member>) {
        match (entered, grant) {
            (Some(member), _) => self.leave(member),
            (None, Some(grant)) => self.meter(grant.tenant).leave(),
            (None, None) => {}
        }
    }

    /// A hello names a tenant that no rule names: the control plane is asked whether an operator made
    /// it, if the rules let the connection in as nobody else's, with the right to register (`plain`).
    /// Until the answer nothing more is read from it.
    ///
    /// # Errors
    /// The status to refuse it with.
    pub(crate) fn enter(
        &mut self,
        id: ConnId,
        hello: &Hello,
        plain: Option<Arc<Grant>>,
        reply: HelloReply,
    ) -> Result<(), Status> {
        let may_choose = |grant: &Arc<Grant>| grant.register && grant.tenant == TenantId::DEFAULT;
        let plain = plain.filter(may_choose).ok_or(Status::Denied)?;
        self.set_grant(id, Some(plain));
        let wish = Wish::Enter { name: hello.tenant.clone() };
        if !self.send_ask(id, hello.tag, 0, wish) {
            return Err(Status::Retry);
        }
        let client = Client { name: hello.client, connection: hello.connection };
        self.greet(id, Greeting::Asked(Welcome { tag: hello.tag, reply }, client));
        Ok(())
    }

    /// The control plane has said whether a connection may enter the tenant that its hello names.
    fn entered(&mut self, id: ConnId, client: Client, answer: Answer) {
        let member = answer.member.filter(|_| answer.status == Status::Ok);
        let conn = self.find(id).expect("the caller looked");
        let Some(member) = member else {
            let welcome = conn.greeting.take_fenced();
            let Welcome { tag, reply } = welcome.expect("the control plane has just answered");
            tracing::warn!(peer = %conn.peer, "hello refused: there is no tenant of this name");
            self.reply(id, &Reply::Hello { tag, status: answer.status, reply }, None);
            return self.finish(id);
        };
        let mut granted =
            conn.membership.grant.as_ref().expect("a rule let it in").of(member.tenant);
        granted.register = false; // what an operator promised is the operator's to change
        self.set_grant(id, Some(Arc::new(granted)));
        self.find(id).expect("the caller looked").membership.entered = Some(member);
        self.take_place(id, client);
        self.answer_greetings();
    }

    /// A handle was given. One of an earlier epoch names nobody.
    fn join(&self, member: Member) {
        let meter = self.meter(member.tenant);
        if meter.epoch() == member.epoch {
            meter.join();
        }
    }

    /// A handle is gone. One of an earlier epoch has not been counted since that ended.
    fn leave(&self, member: Member) {
        let meter = self.meter(member.tenant);
        if meter.epoch() == member.epoch {
            meter.leave();
        }
    }

    /// A register: the control plane is asked, if the access rules let the connection register.
    pub(crate) fn register(&mut self, id: ConnId, register: Register) {
        let conn = self.find(id).expect("it asked");
        let number = conn.namespace;
        let namespace = self.namespaces.find(number);
        let device = namespace.map_or(0, |namespace| namespace.device as u8);
        let Register { tag, name, slo, .. } = register;
        self.ask_control(id, tag, 0, Wish::Register { name, slo, device });
    }

    /// A renegotiate of a tenant that the connection has a handle on, or belongs to.
    pub(crate) fn renegotiate(&mut self, id: ConnId, tag: Tag, handle: u16, slo: Slo) {
        match self.tenant_of(id, handle) {
            Ok(tenant) => {
                let member = Member { tenant, epoch: self.meter(tenant).epoch() };
                self.ask_control(id, tag, handle, Wish::Change { member, slo });
            }
            Err(status) => self.answer_tenant(id, tag, handle, Answer::bare(status)),
        }
    }

    /// The connection gives a handle back. The control plane hears of it, because a tenant that
    /// clients made ends with the last handle.
    pub(crate) fn unregister(&mut self, id: ConnId, tag: Tag, handle: u16) {
        let conn = self.find(id).expect("it asked");
        let place = conn.membership.handles.get_mut(usize::from(handle).wrapping_sub(1));
        let Some(member) = place.and_then(Option::take) else {
            return self.answer_tenant(id, tag, handle, Answer::bare(Status::NoTenant));
        };
        // The control plane counts handles when it decides, so this one is gone before it is asked.
        self.leave(member);
        if !self.send_ask(id, tag, handle, Wish::Unregister { member }) {
            self.find(id).expect("it asked").membership.handles[usize::from(handle) - 1] =
                Some(member);
            self.join(member);
            self.answer_tenant(id, tag, handle, Answer::bare(Status::Retry));
        }
    }

    fn ask_control(&mut self, id: ConnId, tag: Tag, handle: u16, wish: Wish) {
        let conn = self.find(id).expect("it asked");
        let answer = match &conn.membership.grant {
            Some(grant) if grant.register => None,
            _ => Some(Status::Denied),
        };
        if answer.is_some() || !self.send_ask(id, tag, handle, wish) {
            let status = answer.unwrap_or(Status::Retry);
            self.answer_tenant(id, tag, handle, Answer::bare(status));
        }
    }

    /// Asks the control plane; `false`: too much is being asked already.
    fn send_ask(&mut self, id: ConnId, tag: Tag, handle: u16, wish: Wish) -> bool {
        let conn = self.find(id).expect("it asked");
        let asker = conn.membership.grant.as_ref().map_or(TenantId::DEFAULT, |grant| grant.tenant);
        let worker = self.line.worker;
        let sent = self.talks.asked < ASKS_MAX
            && self.line.mailbox.ask(Ask { worker, conn: id, tag, handle, asker, wish });
        if sent {
            self.talks.asked += 1;
            // It counts as a request, so that the connection does not end before the answer.
            self.find(id).expect("it asked").outstanding.count += 1;
        }
        sent
    }

    /// The control plane has answered.
    fn answer_ask(&mut self, id: ConnId, tag: Tag, handle: u16, answer: Answer) {
        self.act_on(id, tag, handle, answer);
        if let Some(member) = answer.member {
            self.meter(member.tenant).note_answer();
        }
    }

    fn act_on(&mut self, id: ConnId, tag: Tag, handle: u16, mut answer: Answer) {
        let Some(conn) = self.find(id) else { return };
        if let Some(client) = conn.greeting.take_asked() {
            self.entered(id, client, answer);
            return self.retire(id);
        }
        let mut handle = handle;
        if let (Status::Ok, 0, Some(member)) = (answer.status, handle, answer.member) {
            match self.give_handle(id, member) {
                Some(given) => handle = given,
                None => answer = Answer::bare(Status::NoResources),
            }
        }
        self.answer_tenant(id, tag, handle, answer);
        self.retire(id);
    }

    /// The connection's handle on a tenant; `None` if it holds too many.
    fn give_handle(&mut self, id: ConnId, member: Member) -> Option<u16> {
        let own =
            self.find(id).and_then(|conn| conn.membership.grant.as_ref().map(|grant| grant.tenant));
        if own == Some(member.tenant) {
            return Some(0);
        }
        let conn = self.find(id).expect("the caller looked");
        let place = match conn.membership.handles.iter().position(|held| *held == Some(member)) {
            Some(place) => place,
            None => {
                let free = conn.membership.handles.iter().position(Option::is_none);
                let place = free.unwrap_or(conn.membership.handles.len());
                if place == HANDLES_MAX {
                    return None;
                }
                if place == conn.membership.handles.len() {
                    conn.membership.handles.push(None);
                }
                conn.membership.handles[place] = Some(member);
                self.join(member);
                place
            }
        };
        Some(place as u16 + 1)
    }

    fn answer_tenant(&mut self, id: ConnId, tag: Tag, handle: u16, answer: Answer) {
        let Answer { status, tokens_needed, tokens_free, limit_latency_us, .. } = answer;
        let limited_by = match answer.limited_by {
            LimitedBy::Nobody => 0,
            LimitedBy::ThisSlo => TenantReply::LIMITED_BY_THIS,
            LimitedBy::Tenant(tenant) => {
                self.handle_of(id, tenant).unwrap_or(TenantReply::LIMITED_BY_OTHER)
            }
        };
        let reply = TenantReply {
            tenant: handle,
            tokens_needed,
            tokens_free,
            limited_by,
            limit_latency_us,
        };
        self.reply(id, &Reply::Tenant { tag, status, reply }, None);
    }

    /// The handle that a connection has on a tenant.
    fn handle_of(&self, id: ConnId, tenant: TenantId) -> Option<u16> {
        let conn = self.conns.get(id.index as usize)?.as_ref().filter(|conn| conn.id == id)?;
        let epoch = self.meter(tenant).epoch();
        let place = conn
            .membership
            .handles
            .iter()
            .position(|held| *held == Some(Member { tenant, epoch }))?;
        Some(place as u16 + 1)
    }

    /// Carries the notice in front to some of the connections.
    fn give_notice(&mut self) {
        let Some(rounds) = self.talks.notices.front().copied() else { return };
        let Rounds { member, iops, read_percent, next } = rounds;
        if self.meter(member.tenant).epoch() != member.epoch {
            self.talks.notices.pop_front();
            return;
        }
        let end = (next + NOTICE_BATCH).min(self.conns.len());
        for index in next..end {
            let Some(conn) = self.conns[index].as_deref() else { continue };
            let id = conn.id;
            if !conn.session.takes_notices() || conn.life.is_ending() {
                continue;
            }
            let own = self.tenant_of(id, 0) == Ok(member.tenant);
            let handle = own.then_some(0).or_else(|| self.handle_of(id, member.tenant));
            let Some(tenant) = handle else { continue };
            if self.transport.room() > self.owed() {
                let notice = Notice::Renegotiate { tenant, iops, read_percent };
                self.reply(id, &Reply::Notice(notice), None);
            }
        }
        self.progressed = true;
        match end == self.conns.len() {
            true => drop(self.talks.notices.pop_front()),
            false => self.talks.notices[0].next = end,
        }
    }
}
