//! Authentication Send and Authentication Receive (Base 6.2 and 6.1), and the powers that they make
//! somebody else compute.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use wire::nvme::{AUTH_PROTOCOL, AuthCommand, CommandId, Status};

use super::auth::Power;
use super::auth::transaction::{Ends, Said};
use super::controller::Record;
use super::data;
use super::queue::{Call, Done};
use super::seam::{Answer, CloseReason, Place};
use super::state::{Mail, State};

/// A power that a queue's authentication waits for.
#[derive(Debug)]
pub(super) struct Job {
    cntlid: u16,
    queue: u16,
    /// Tells the queue from a later one of the same numbers.
    pub(super) place: Place,
    pub(super) power: Power,
}

/// An Authentication Receive that waits for what is being computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    cid: CommandId,
    room: usize,
}

impl State {
    /// Authentication Send.
    pub(super) fn authentication_send(&mut self, cntlid: u16, call: &Call) -> Result<Done, Status> {
        let command = AuthCommand::of(call.entry);
        check(command)?;
        if call.payload.is_empty() {
            return Err(Status::INVALID_FIELD.dnr());
        }
        let State { controllers, hosts, methods, .. } = self;
        let controller = controllers.get_mut(&cntlid).ok_or(Status::QUEUE_DELETED)?;
        let known = hosts.get(&controller.host);
        let ends = || Ends {
            host: controller.host.to_string(),
            subsystem: controller.subsystem.to_string(),
            key: known.and_then(|host| host.key.clone()),
            own_key: known.and_then(|host| host.controller_key.clone()),
        };
        let record = controller.queues.get_mut(&call.queue).ok_or(Status::QUEUE_DELETED)?;
        let power = record.transaction.take(call.payload, methods, ends, &call.chance);
        record
            .proven
            .store(record.transaction.is_proven() || !record.must_prove, Ordering::Release);
        if record.transaction.has_failed() {
            return Ok(Done::Closing);
        }
        if let Some(power) = power {
            let place = record.place;
            // A queue has one transaction, and that waits for one power at most.
            self.jobs.push_back(Job { cntlid, queue: call.queue, place, power });
        }
        Ok(Done::Result(0))
    }

    /// Authentication Receive.
    pub(super) fn authentication_receive(
        &mut self,
        cntlid: u16,
        call: &mut Call,
    ) -> Result<Done, Status> {
        let command = AuthCommand::of(call.entry);
        check(command)?;
        let room = command.length.get() as usize;
        if room == 0 || room > super::queue::PAYLOAD_BYTES_MAX {
            return Err(Status::INVALID_FIELD.dnr());
        }
        data::expect(call.entry, room)?;
        let controller = self.controller(cntlid)?;
        let record = controller.queues.get_mut(&call.queue).ok_or(Status::QUEUE_DELETED)?;
        match record.transaction.give(room) {
            Said::Later if record.waiting.is_none() => {
                record.waiting = Some(Waiting { cid: call.entry.cid.get(), room });
                Ok(Done::Parked)
            }
            Said::Later | Said::Nothing => Err(Status::SEQUENCE_ERROR.dnr()),
            Said::Message(message) => {
                call.out.extend_from_slice(&message);
                call.out.resize(room, 0);
                Ok(Done::Result(0))
            }
            Said::Last(message) => {
                call.out.extend_from_slice(&message);
                call.out.resize(room, 0);
                Ok(Done::Closing)
            }
        }
    }

    /// A power is computed: the transaction goes on, and whoever waits for it is answered.
    pub(super) fn computed(&mut self, job: &Job, value: &[u8]) {
        let State { controllers, mail, .. } = self;
        let Some(controller) = controllers.get_mut(&job.cntlid) else { return };
        let Some(record) = controller.queues.get_mut(&job.queue) else { return };
        if record.place != job.place {
            return;
        }
        record.transaction.computed(value);
        record
            .proven
            .store(record.transaction.is_proven() || !record.must_prove, Ordering::Release);
        if let Some(waiting) = record.waiting.take() {
            answer(record, waiting, mail);
        }
    }
}

/// Gives the host that waits what there is to say now.
fn answer(record: &mut Record, waiting: Waiting, mail: &mut Mail) {
    let Waiting { cid, room } = waiting;
    let (mut message, is_last) = match record.transaction.give(room) {
        Said::Message(message) => (message, false),
        Said::Last(message) => (message, true),
        Said::Later | Said::Nothing => {
            let status = Status::INVALID_FIELD.dnr();
            return mail.complete(record.place, Answer::error(cid, status), Vec::new());
        }
    };
    message.resize(room, 0);
    mail.complete(record.place, Answer::ok(cid), message);
    if is_last {
        mail.close(record.place, CloseReason::NotAuthenticated);
    }
}

fn check(command: &AuthCommand) -> Result<(), Status> {
    let is_known = command.protocol == AUTH_PROTOCOL
        && command.protocol_specific_0 == 1
        && command.protocol_specific_1 == 1;
    if is_known { Ok(()) } else { Err(Status::INVALID_FIELD.dnr()) }
}
