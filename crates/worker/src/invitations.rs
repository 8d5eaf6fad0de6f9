//! Requests for the payloads of writes, sent to peers (docs/adr/0006-awaited-payloads.md).
//!
//! A request whose payload was asked for holds a slot and a buffer until the payload came. Any
//! number of requests may lie behind it on the same connection. If those had to wait for the slots
//! and buffers that only later bytes can free, the worker would deadlock. So awaited payloads have
//! no more than half of the slots and never the last of the largest buffers. A request that finds
//! none stops nothing: it is put off, and its peer is asked later.

use contract::{ConnId, Device, Member, Request, Scheduler, Session, Status, TenantId, Transport};

use crate::Limits;
use crate::connections::ConnectionStage;
use crate::engine::Engine;
use crate::requests::{InFlightRequest, PutOffQueues, PutOffRequest, SHARE, Shortage};

/// The requests of a worker whose payloads it has not asked the peers for yet. A request waits
/// until a slot or a buffer is returned; requests of closed connections are skipped.
#[derive(Debug)]
pub(crate) struct PutOffRequests {
    lines: PutOffQueues,
    /// Connections whose put-off requests could not be refused for lack of frames. Frames that the
    /// network returns end the wait.
    returned: Vec<ConnId>,
}

/// The outcome of an attempt to ask for a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskOutcome {
    /// The peer was asked, or the request was refused.
    Done,
    /// The tenant has asked for too many payloads already, or no buffer of the size is free. Other
    /// requests may find room.
    Waits,
    /// No request slot or frame is free for any connection now.
    Short,
}

impl From<Shortage> for AskOutcome {
    fn from(shortage: Shortage) -> AskOutcome {
        match shortage {
            Shortage::OfTenant | Shortage::Clogged => AskOutcome::Waits,
            Shortage::OfWorker => AskOutcome::Short,
        }
    }
}

impl PutOffRequests {
    /// Creates waiting lines for as many requests that a single tenant can have as many waiting as
    /// there are slots.
    pub(crate) fn new(limits: &Limits) -> Self {
        let requests_max = (limits.in_flight + limits.in_flight.div_ceil(SHARE)).min(1 << 16);
        PutOffRequests {
            lines: PutOffQueues::new(requests_max, limits.tenants),
            returned: Vec::new(),
        }
    }

    /// Returns the number of requests whose payloads the worker has not asked their peers for yet.
    pub(crate) fn put_off(&self) -> usize {
        self.lines.len()
    }

    /// Asks for the payload of a new request, or puts the request off.
    pub(crate) fn await_payload<T: Transport, D: Device, S: Scheduler, P: Session>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
        id: ConnId,
        request: Request,
    ) {
        let charged = engine.front.tenant_of(id, request.tenant);
        let tenant = match charged {
            Err(status) => return engine.front.refuse(id, &request, charged, status),
            Ok(tenant) => tenant,
        };
        let member = engine.front.member(tenant);
        let conn = engine.front.conns.get(id);
        if conn.life.is_moving() || !conn.put_off.is_empty() {
            return conn.put_off.push((request, member));
        }
        self.ask_in_line(engine, PutOffRequest { conn: id, request, charged: member });
    }

    /// Asks for the payload of a request, or puts the request off behind the others of its tenant.
    /// Refuses the request if too many are put off.
    fn ask_in_line<T: Transport, D: Device, S: Scheduler, P: Session>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
        put_off: PutOffRequest,
    ) {
        let PutOffRequest { conn, request, charged: Member { tenant, .. } } = put_off;
        let is_first = !self.lines.has(tenant);
        let is_done = is_first && ask(engine, &put_off) == AskOutcome::Done;
        if !is_done && !self.lines.push(tenant, put_off) {
            engine.front.refuse(conn, &request, Ok(tenant), Status::Retry);
        }
    }

    /// Moves the put-off requests of a leaving connection to `taken`, with their charged tenants.
    pub(crate) fn ask_no_more(&mut self, id: ConnId, taken: &mut Vec<(Request, Member)>) {
        self.lines.withdraw(id, taken);
    }

    /// Asks again for the payloads of the requests that a connection had put off before it moved or
    /// stayed. Requests that cannot be refused for lack of frames are tried in a later turn.
    pub(crate) fn ask_again<T: Transport, D: Device, S: Scheduler, P: Session>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
        id: ConnId,
    ) {
        let stays = |life: ConnectionStage| !life.is_ending() && !life.is_moving();
        let conn = engine.front.conns.find(id).filter(|conn| stays(conn.life));
        let Some(conn) = conn else { return };
        let mut put_off = std::mem::take(&mut conn.put_off);
        let mut asked = 0;
        while asked < put_off.len() && engine.front.has_frame() {
            let (request, charged) = put_off[asked];
            self.ask_in_line(engine, PutOffRequest { conn: id, request, charged });
            asked += 1;
        }
        put_off.drain(..asked);
        if put_off.is_empty() {
            return;
        }
        if let Some(conn) = engine.front.conns.find(id) {
            conn.put_off = put_off;
            if !self.returned.contains(&id) {
                self.returned.push(id);
            }
        }
    }

    /// Asks for the payloads of put-off requests until the turn's batch is full or no request finds
    /// a slot and a buffer.
    pub(crate) fn go_on<T: Transport, D: Device, S: Scheduler, P: Session>(
        &mut self,
        engine: &mut Engine<T, D, S, P>,
    ) {
        for id in std::mem::take(&mut self.returned) {
            self.ask_again(engine, id);
        }
        let (mut asked, mut waiting) = (0, 0);
        while asked < engine.front.limits.batch && waiting < self.lines.tenants() {
            let put_off = self.lines.front().expect("somebody waits");
            let conn = engine.front.conns.find(put_off.conn);
            let is_gone = conn.is_none_or(|conn| conn.life.is_ending());
            match if is_gone { AskOutcome::Done } else { ask(engine, &put_off) } {
                AskOutcome::Done => {
                    self.lines.pop();
                    asked += 1;
                }
                AskOutcome::Waits => {
                    self.lines.pass();
                    waiting += 1;
                }
                AskOutcome::Short => break,
            }
        }
        engine.front.progressed |= asked > 0;
    }
}

/// Allocates a slot and a buffer for the request and asks its peer for the payload, or refuses the
/// request.
fn ask<T: Transport, D: Device, S: Scheduler, P: Session>(
    engine: &mut Engine<T, D, S, P>,
    put_off: &PutOffRequest,
) -> AskOutcome {
    let PutOffRequest { conn: id, request, charged } = *put_off;
    if !engine.front.has_frame() {
        return AskOutcome::Short;
    }
    let charged: Result<TenantId, Status> = engine.front.tenant_as(charged);
    let placed = match engine.judge(id, &request, charged) {
        Ok(placed) => placed,
        Err(status) => {
            engine.front.refuse(id, &request, charged, status);
            return AskOutcome::Done;
        }
    };
    let account = engine.front.conns.peek(id).intake.account;
    if let Some(shortage) = engine.front.shortage(account) {
        return shortage.into();
    }
    let Engine { front, lanes, .. } = &mut *engine;
    let (tenant, bytes) = (placed.tenant, request.payload_bytes);
    let yields = || lanes.peek(usize::from(placed.device)).scheduler().yields(tenant);
    let buf = match front.requests.supply_awaited(tenant, bytes, yields) {
        Ok(buf) => Some(buf),
        Err(shortage) => return shortage.into(),
    };
    front.gauges.meter(placed.tenant).admit();
    let now = front.now;
    let slot = front.insert_held(|| InFlightRequest::new(id, &request, placed, buf, true, now));
    let conn = front.conns.get(id);
    conn.outstanding.count += 1;
    conn.outstanding.awaited += 1;
    conn.outstanding.asked.push(front.requests.table(), slot);
    let buf = front.requests.get(slot).buf.as_mut().expect("it was just given one");
    let head = conn.session.invite(request.tag, slot, buf.prefix_mut(request.payload_bytes));
    match head.is_empty() {
        true => engine.awaited_came(id, slot, Status::Ok),
        false => front.send_bare(id, head),
    }
    AskOutcome::Done
}
