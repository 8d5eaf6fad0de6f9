//! Commands that the controller carries out itself. The session gathers their payloads and sends
//! their answers.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::offset_of;

use contract::{Command, Instant, ProtocolError, Range, Status};
use wire::nvme::{
    CONNECT_DISABLE_FLOW_CONTROL, CommandId, ConnectCommand, ConnectData, FABRICS_OPCODE,
    FabricsKind, Status as NvmeStatus, Submission,
};

use super::super::framer::PduViolation;
use super::exchanges::{DataTarget, Exchange, OwnCommand};
use super::{ControllerSession, PendingEvent, Phase, carries, request};
use crate::nvme::psk::IdentityMismatch;
use crate::nvme::{
    Action, CommandResult, DeviceRequest, ExecutionOutcome, HeldCommands, SubmissionStep,
};

/// The outcome of an attempt to carry out a command of the controller itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunProgress {
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
    ) -> Result<Option<PendingEvent>, PduViolation> {
        let cid = entry.cid.get();
        let is_here = match carries(&entry, data_bytes, wanted) {
            Ok(is_here) => is_here,
            Err(status) => {
                self.answer(CommandResult::error(cid, status), &[]);
                return Ok(Some(PendingEvent::Own));
            }
        };
        let own = OwnCommand { entry, payload: Vec::new(), verdict: Status::Ok };
        if wanted == 0 {
            self.own.ready.push_back(own);
            return Ok(Some(PendingEvent::Own));
        }
        let place = self.exchanges.place(Exchange::Own { own, wanted, is_asked: !is_here })?;
        if is_here {
            self.data = DataTarget::Own { place };
            return Ok(None);
        }
        self.exchanges.count_asked();
        self.outbox.bare(&self.style, &self.style.ready(cid, place, wanted));
        Ok(Some(PendingEvent::Own))
    }

    /// Returns the hold that a command has to wait for in a take-over; `None` if it need not wait.
    pub(super) fn waits(&self, own: &OwnCommand) -> Option<HeldCommands> {
        let held = self.desk.held();
        let waits = match (held, &self.queue) {
            (HeldCommands::Nothing, _) => false,
            (held, None) => held == HeldCommands::Connects,
            (_, Some(queue)) => own.verdict.is_ok() && queue.changes_reservation(&own.entry),
        };
        waits.then_some(held)
    }

    /// Keeps a command until the hold `held` ends, or, without one, until the fabric is free. At
    /// most as many commands of a queue wait as the queue has entries.
    pub(super) fn put_off(&mut self, own: OwnCommand, held: Option<HeldCommands>) {
        if self.own.ready.len() >= self.exchanges.most() {
            return self
                .answer(CommandResult::error(own.entry.cid.get(), NvmeStatus::INTERRUPTED), &[]);
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
    pub(super) fn execute(&mut self, own: &OwnCommand, now: Instant) -> RunProgress {
        if !own.verdict.is_ok() {
            let cid = own.entry.cid.get();
            self.answer(CommandResult::error(cid, NvmeStatus::TRANSIENT_TRANSPORT), &[]);
            return RunProgress::More;
        }
        let Some(queue) = &mut self.queue else { return self.connect(own, now) };
        let mut out = Vec::new();
        self.as_of = queue.fence().epoch();
        match queue.execute(&own.entry, &own.payload, now, &mut out) {
            ExecutionOutcome::Done(answer) => self.answer(answer, &out),
            ExecutionOutcome::Parked => {}
            ExecutionOutcome::Discard(io) => self.discard(io),
            ExecutionOutcome::Closing(answer) => {
                self.own.parting = Some((answer, out));
                return if self.part().is_err() { RunProgress::Last } else { RunProgress::More };
            }
            ExecutionOutcome::Busy => return RunProgress::Busy,
        }
        RunProgress::More
    }

    /// Turns each range of a discard into a request. The end of the last one answers the command.
    pub(super) fn discard(&mut self, io: DeviceRequest) {
        let queue = self.queue.as_ref().expect("it has just said so");
        let ranges: Vec<Range> = queue.ranges().to_vec();
        let left = ranges.len();
        let (status, as_of) = (Status::Ok, self.as_of);
        let Ok(place) = self.exchanges.place(Exchange::Discard { io, left, status, as_of }) else {
            return self.answer(CommandResult::error(io.cid, NvmeStatus::INTERRUPTED), &[]);
        };
        if self.is_another(io.tenant) {
            self.pending.push_back(PendingEvent::Attached(io.tenant));
        }
        let requests = ranges.iter().map(|range| request(place, &io, Command::Discard(*range), 0));
        self.pending.extend(requests.map(PendingEvent::Request));
    }

    /// Carries out the first command, a Connect: creates the queue, or ends the connection.
    pub(super) fn connect(&mut self, own: &OwnCommand, now: Instant) -> RunProgress {
        if !self.peer.is_let_in {
            let cid = own.entry.cid.get();
            self.answer(CommandResult::error(cid, NvmeStatus::CONNECT_INVALID_HOST.dnr()), &[]);
            return RunProgress::Last;
        }
        let identity = self.peer.identity.as_deref();
        if let Some(differs) = identity.and_then(|who| who.differs_from(&own.payload)) {
            let answer = refuse_other(own.entry.cid.get(), differs);
            self.answer(answer, &[]);
            return RunProgress::Last;
        }
        let from = (self.peer.conn, self.peer.address);
        let by = (self.peer.port, self.peer.proven);
        let connected = self.desk.connect(by, from, &own.entry, &own.payload, now);
        let Ok(connected) = connected else { return RunProgress::Busy };
        let completion = match connected {
            Ok((queue, completion)) => {
                let command = ConnectCommand::of(&own.entry);
                self.says_success = command.attributes & CONNECT_DISABLE_FLOW_CONTROL != 0;
                self.exchanges.set_most(usize::from(queue.size()));
                if queue.id() != 0 {
                    self.pending.push_back(PendingEvent::Fenced(Arc::clone(queue.fence())));
                }
                self.queue = Some(queue);
                completion
            }
            Err(completion) => completion,
        };
        self.outbox.answer(&self.style, &completion, &[]);
        if self.queue.is_some() { RunProgress::More } else { RunProgress::Last }
    }

    /// Sends the answer that ends the queue, with its data, once no data-changing request of the
    /// queue is at a device.
    ///
    /// # Errors
    /// Returns [`ProtocolError::Ended`] after sending the answer.
    pub(super) fn part(&mut self) -> Result<(), ProtocolError> {
        let Some((answer, data)) = self.own.parting.take() else { return Ok(()) };
        if !self.queue.as_mut().is_some_and(|queue| queue.quiesce()) {
            self.own.parting = Some((answer, data));
            return Ok(());
        }
        self.answer(answer, &data);
        self.phase = Phase::Over;
        Err(ProtocolError::Ended(0))
    }

    /// Carries out the fabric's actions for this connection.
    ///
    /// # Errors
    /// Returns [`ProtocolError::Ended`] if the connection is to be closed.
    pub(super) fn hear(&mut self) -> Result<(), ProtocolError> {
        while let Some(action) = self.desk.take(self.peer.conn) {
            match action {
                Action::Complete { answer, data, .. } => self.answer(answer, &data),
                Action::Close { reason, .. } => {
                    self.phase = Phase::Over;
                    return Err(ProtocolError::Ended(reason as u32));
                }
            }
        }
        Ok(())
    }
}

/// Returns the answer to a Connect by a name for which the host has proven no key of TLS.
fn refuse_other(cid: CommandId, differs: IdentityMismatch) -> CommandResult {
    match differs {
        IdentityMismatch::Host => CommandResult::error(cid, NvmeStatus::CONNECT_INVALID_HOST.dnr()),
        IdentityMismatch::Subsystem => {
            let (at, status) =
                (offset_of!(ConnectData, subsystem_nqn), NvmeStatus::CONNECT_INVALID);
            CommandResult { cid, status: status.dnr(), result: at as u64 | 1 << 16 }
        }
    }
}

/// Refuses commands other than Connect, which has to be the first (Base 3.3.1).
pub(super) fn before_connect(entry: &Submission) -> SubmissionStep {
    let is_connect =
        entry.opcode == FABRICS_OPCODE && ConnectCommand::of(entry).kind == FabricsKind::CONNECT;
    if is_connect {
        return SubmissionStep::Controller { payload_bytes: size_of::<ConnectData>() };
    }
    SubmissionStep::Refused(CommandResult::error(entry.cid.get(), NvmeStatus::SEQUENCE_ERROR.dnr()))
}
