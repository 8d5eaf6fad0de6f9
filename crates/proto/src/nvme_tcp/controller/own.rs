//! Commands that the controller carries out itself. The session gathers their payloads and sends
//! their answers.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::offset_of;

use contract::{Command, Fatal, Instant, Range, Status};
use wire::nvme::{
    CONNECT_DISABLE_FLOW_CONTROL, CommandId, ConnectCommand, ConnectData, FABRICS_OPCODE,
    FabricsKind, Status as NvmeStatus, Submission,
};

use super::super::framer::Broken;
use super::exchanges::{Data, Exchange, Own};
use super::{ControllerSession, Pending, Phase, carries, request};
use crate::nvme::psk::Differs;
use crate::nvme::{Action, Answer, Held, Io, Outcome, Step};

/// The outcome of an attempt to carry out a command of the controller itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Executed {
    /// The command was carried out, and the connection takes further commands.
    More,
    /// The command was carried out, and the connection must be closed after its answer.
    Last,
    /// Another thread holds the lock of the fabric, so the command has to be repeated later.
    Busy,
}

impl ControllerSession {
    /// Adds a command of the controller itself, and requests its payload if needed.
    pub(super) fn own(
        &mut self,
        entry: Submission,
        data_bytes: usize,
        wanted: usize,
    ) -> Result<Option<Pending>, Broken> {
        let cid = entry.cid.get();
        let is_here = match carries(&entry, data_bytes, wanted) {
            Ok(is_here) => is_here,
            Err(status) => {
                self.answer(Answer::error(cid, status), &[]);
                return Ok(Some(Pending::Own));
            }
        };
        let own = Own { entry, payload: Vec::new(), verdict: Status::Ok };
        if wanted == 0 {
            self.own.ready.push_back(own);
            return Ok(Some(Pending::Own));
        }
        let place = self.exchanges.place(Exchange::Own { own, wanted, is_asked: !is_here })?;
        if is_here {
            self.data = Data::Own { place };
            return Ok(None);
        }
        self.exchanges.count_asked();
        self.outbox.bare(&self.style, &self.style.ready(cid, place, wanted));
        Ok(Some(Pending::Own))
    }

    /// Returns the hold that a command has to wait for in a take-over; `None` if it need not wait.
    pub(super) fn waits(&self, own: &Own) -> Option<Held> {
        let held = self.desk.held();
        let waits = match (held, &self.queue) {
            (Held::Nothing, _) => false,
            (held, None) => held == Held::Connects,
            (_, Some(queue)) => own.verdict.is_ok() && queue.changes_reservation(&own.entry),
        };
        waits.then_some(held)
    }

    /// Keeps a command until the hold `held` ends, or, without one, until the fabric is free. At
    /// most as many commands of a queue wait as the queue has entries.
    pub(super) fn put_off(&mut self, own: Own, held: Option<Held>) {
        if self.own.ready.len() >= self.exchanges.most() {
            return self.answer(Answer::error(own.entry.cid.get(), NvmeStatus::INTERRUPTED), &[]);
        }
        if let Some(held) = held {
            self.own.ready.push_back(own);
            self.desk.call_later(self.peer.conn, held);
        } else {
            self.own.ready.push_front(own);
            self.desk.call_when_free(self.peer.conn);
        }
    }

    /// Carries out a command of the controller itself.
    pub(super) fn execute(&mut self, own: &Own, now: Instant) -> Executed {
        if !own.verdict.is_ok() {
            let cid = own.entry.cid.get();
            self.answer(Answer::error(cid, NvmeStatus::TRANSIENT_TRANSPORT), &[]);
            return Executed::More;
        }
        let Some(queue) = &mut self.queue else { return self.connect(own, now) };
        let mut out = Vec::new();
        self.as_of = queue.fence().epoch();
        match queue.execute(&own.entry, &own.payload, now, &mut out) {
            Outcome::Done(answer) => self.answer(answer, &out),
            Outcome::Parked => {}
            Outcome::Discard(io) => self.discard(io),
            Outcome::Closing(answer) => {
                self.own.parting = Some((answer, out));
                return if self.part().is_err() { Executed::Last } else { Executed::More };
            }
            Outcome::Busy => return Executed::Busy,
        }
        Executed::More
    }

    /// Turns each range of a discard into a request. The end of the last one answers the command.
    pub(super) fn discard(&mut self, io: Io) {
        let queue = self.queue.as_ref().expect("it has just said so");
        let ranges: Vec<Range> = queue.ranges().to_vec();
        let left = ranges.len();
        let (status, as_of) = (Status::Ok, self.as_of);
        let Ok(place) = self.exchanges.place(Exchange::Discard { io, left, status, as_of }) else {
            return self.answer(Answer::error(io.cid, NvmeStatus::INTERRUPTED), &[]);
        };
        if self.is_another(io.tenant) {
            self.pending.push_back(Pending::Attached(io.tenant));
        }
        let requests = ranges.iter().map(|range| request(place, &io, Command::Discard(*range), 0));
        self.pending.extend(requests.map(Pending::Request));
    }

    /// Carries out the first command, a Connect: creates the queue, or ends the connection.
    pub(super) fn connect(&mut self, own: &Own, now: Instant) -> Executed {
        if !self.peer.is_let_in {
            let cid = own.entry.cid.get();
            self.answer(Answer::error(cid, NvmeStatus::CONNECT_INVALID_HOST.dnr()), &[]);
            return Executed::Last;
        }
        let identity = self.peer.identity.as_deref();
        if let Some(differs) = identity.and_then(|who| who.differs_from(&own.payload)) {
            let answer = refuse_other(own.entry.cid.get(), differs);
            self.answer(answer, &[]);
            return Executed::Last;
        }
        let from = (self.peer.conn, self.peer.address);
        let by = (self.peer.port, self.peer.proven);
        let connected = self.desk.connect(by, from, &own.entry, &own.payload, now);
        let Ok(connected) = connected else { return Executed::Busy };
        let completion = match connected {
            Ok((queue, completion)) => {
                let command = ConnectCommand::of(&own.entry);
                self.says_success = command.attributes & CONNECT_DISABLE_FLOW_CONTROL != 0;
                self.exchanges.set_most(usize::from(queue.size()));
                if queue.id() != 0 {
                    self.pending.push_back(Pending::Fenced(Arc::clone(queue.fence())));
                }
                self.queue = Some(queue);
                completion
            }
            Err(completion) => completion,
        };
        self.outbox.answer(&self.style, &completion, &[]);
        if self.queue.is_some() { Executed::More } else { Executed::Last }
    }

    /// Sends the answer that ends the queue, with its data, once no data-changing request of the
    /// queue is at a device.
    ///
    /// # Errors
    /// Returns [`Fatal::Ended`] after sending the answer.
    pub(super) fn part(&mut self) -> Result<(), Fatal> {
        let Some((answer, data)) = self.own.parting.take() else { return Ok(()) };
        if !self.queue.as_mut().is_some_and(|queue| queue.quiesce()) {
            self.own.parting = Some((answer, data));
            return Ok(());
        }
        self.answer(answer, &data);
        self.phase = Phase::Over;
        Err(Fatal::Ended(0))
    }

    /// Carries out the fabric's actions for this connection.
    ///
    /// # Errors
    /// Returns [`Fatal::Ended`] if the connection is to be closed.
    pub(super) fn hear(&mut self) -> Result<(), Fatal> {
        while let Some(action) = self.desk.take(self.peer.conn) {
            match action {
                Action::Complete { answer, data, .. } => self.answer(answer, &data),
                Action::Close { reason, .. } => {
                    self.phase = Phase::Over;
                    return Err(Fatal::Ended(reason as u32));
                }
            }
        }
        Ok(())
    }
}

/// Returns the answer to a Connect by a name for which the host has proven no key of TLS.
fn refuse_other(cid: CommandId, differs: Differs) -> Answer {
    match differs {
        Differs::Host => Answer::error(cid, NvmeStatus::CONNECT_INVALID_HOST.dnr()),
        Differs::Subsystem => {
            let (at, status) =
                (offset_of!(ConnectData, subsystem_nqn), NvmeStatus::CONNECT_INVALID);
            Answer { cid, status: status.dnr(), result: at as u64 | 1 << 16 }
        }
    }
}

/// Refuses commands other than Connect, which has to be the first (Base 3.3.1).
pub(super) fn before_connect(entry: &Submission) -> Step {
    let is_connect =
        entry.opcode == FABRICS_OPCODE && ConnectCommand::of(entry).kind == FabricsKind::CONNECT;
    if is_connect {
        return Step::Controller { payload_bytes: size_of::<ConnectData>() };
    }
    Step::Refused(Answer::error(entry.cid.get(), NvmeStatus::SEQUENCE_ERROR.dnr()))
}
