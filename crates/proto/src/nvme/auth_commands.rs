//! Authentication Send and Authentication Receive (Base 6.2 and 6.1), and the modular
//! exponentiations that other threads compute for them.
//!
//! An address with too many failed authentications may continue, but its negotiations are delayed
//! before anything is computed for them. A host that has its key is still admitted.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use contract::Instant;
use wire::nvme::{AUTH_PROTOCOL, AuthCommand, Status};

use super::auth::transaction::{CHANCE_BYTES, ControllerCredentials, ControllerMessage};
use super::auth_jobs::Job;
use super::binding::{CloseReason, CommandResult};
use super::call::{ControllerCommand, ControllerOutcome, PAYLOAD_BYTES_MAX};
use super::controller::Controller;
use super::data;
use super::mail::PendingActions;
use super::record::{DelayedNegotiation, QueueRecord, WaitingReceive};
use super::state::State;

/// Carries out Authentication Send, which brings a message of the host (Base 6.2).
pub(super) fn authentication_send(
    state: &mut State,
    cntlid: u16,
    call: &ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    let command = AuthCommand::of(call.entry);
    check(command)?;
    if call.payload.is_empty() {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let record = state.controllers.get_mut(cntlid)?.queues.get(&call.queue);
    let record = record.ok_or(Status::QUEUE_DELETED)?;
    if record.put_off.is_some() {
        return Err(Status::SEQUENCE_ERROR.dnr());
    }
    let begins = record.transaction.is_begun_by(call.payload);
    let delay = match record.place.address.filter(|_| begins) {
        Some(address) => state.auth.delay(address, &state.controllers, call.now),
        None => Duration::ZERO,
    };
    if !delay.is_zero() {
        let (due, message) = (call.now + delay, call.payload.to_vec());
        let put_off = DelayedNegotiation { due, message, chance: call.chance };
        let controller = state.controllers.get_mut(cntlid)?;
        let record = controller.queues.get_mut(&call.queue).expect("looked at above");
        record.put_off = Some(put_off);
        return Ok(ControllerOutcome::Result(0));
    }
    match take_message(state, cntlid, call.queue, call.payload, &call.chance, call.now) {
        Some(true) => Ok(ControllerOutcome::Result(0)),
        Some(false) => Ok(ControllerOutcome::Closing),
        None => Err(Status::QUEUE_DELETED),
    }
}

/// Processes an authentication message of a host. Returns `Some(true)` if the queue goes on,
/// `Some(false)` if it ends, and `None` if there is no such queue any more.
fn take_message(
    state: &mut State,
    cntlid: u16,
    queue: u16,
    message: &[u8],
    chance: &[u8; CHANCE_BYTES],
    now: Instant,
) -> Option<bool> {
    let State { controllers, inventory, auth, .. } = state;
    let controller = controllers.find_mut(cntlid)?;
    let known = inventory.host(&controller.association.host);
    let ends = || ControllerCredentials {
        host: controller.association.host.to_string(),
        subsystem: controller.association.subsystem.to_string(),
        key: known.and_then(|host| host.key.clone()),
        former_key: known.and_then(|host| host.former_key.clone()),
        own_key: known.and_then(|host| host.controller_key.clone()),
    };
    let methods = inventory.methods_of(&controller.association.host);
    let record = controller.queues.get_mut(&queue)?;
    if record.transaction.is_begun_by(message) {
        record.negotiated_at = now;
    }
    let power = record.transaction.take(message, methods, ends, chance);
    record.tell_proven();
    record.count_refusal(auth.failures(), now);
    if record.transaction.has_failed() {
        return Some(false);
    }
    if let Some(power) = power {
        let (place, proven) = (record.place, Arc::clone(&record.proven));
        // A queue has one transaction, and that waits for one exponentiation at most.
        auth.push(Job { cntlid, queue, place, proven, power, at: now });
    }
    Some(true)
}

/// Processes the negotiations whose delay is over, and answers hosts that wait for the reply.
pub(super) fn take_put_off(state: &mut State, now: Instant) {
    let is_due = |record: &QueueRecord| record.put_off.as_ref().is_some_and(|own| own.due <= now);
    let due_of = |own: &Controller| {
        let due = own.queues.iter().filter(|(_, record)| is_due(record));
        due.map(|(queue, _)| (own.cntlid(), *queue)).collect::<Vec<_>>()
    };
    let due: Vec<(u16, u16)> = state.controllers.iter().flat_map(due_of).collect();
    for (cntlid, queue) in due {
        let record = state.controllers.record_mut(cntlid, queue);
        let put_off = record.and_then(|record| record.put_off.take());
        let DelayedNegotiation { message, chance, .. } = put_off.expect("it was just seen");
        take_message(state, cntlid, queue, &message, &chance, now);
        let State { controllers, mail, .. } = state;
        let Some(record) = controllers.record_mut(cntlid, queue) else { continue };
        if record.transaction.has_to_speak()
            && let Some(waiting) = record.waiting.take()
        {
            answer(record, waiting, mail);
        }
    }
}

/// Carries out Authentication Receive, by which the host fetches a message (Base 6.1).
pub(super) fn authentication_receive(
    state: &mut State,
    cntlid: u16,
    call: &mut ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    let command = AuthCommand::of(call.entry);
    check(command)?;
    let room = command.length.get() as usize;
    if room == 0 || room > PAYLOAD_BYTES_MAX {
        return Err(Status::INVALID_FIELD.dnr());
    }
    data::expect(call.entry, room)?;
    let controller = state.controllers.get_mut(cntlid)?;
    let record = controller.queues.get_mut(&call.queue).ok_or(Status::QUEUE_DELETED)?;
    let said = match record.put_off {
        Some(_) => ControllerMessage::Later,
        None => record.transaction.give(room),
    };
    match said {
        ControllerMessage::Later if record.waiting.is_none() => {
            record.waiting = Some(WaitingReceive { cid: call.entry.cid.get(), room });
            Ok(ControllerOutcome::Parked)
        }
        ControllerMessage::Later | ControllerMessage::Nothing => Err(Status::SEQUENCE_ERROR.dnr()),
        ControllerMessage::Message(message) => {
            call.out.extend_from_slice(&message);
            call.out.resize(room, 0);
            Ok(ControllerOutcome::Result(0))
        }
        ControllerMessage::Last(message) => {
            call.out.extend_from_slice(&message);
            call.out.resize(room, 0);
            Ok(ControllerOutcome::Closing)
        }
    }
}

/// Continues a transaction with a computed value, and answers a host that waits for it.
pub(super) fn computed(state: &mut State, job: &Job, value: &[u8]) {
    let State { controllers, mail, auth, .. } = state;
    let Some(record) = controllers.record_mut(job.cntlid, job.queue) else { return };
    if !Arc::ptr_eq(&record.proven, &job.proven) {
        return;
    }
    record.transaction.computed(value);
    record.tell_proven();
    record.count_refusal(auth.failures(), job.at);
    if let Some(waiting) = record.waiting.take() {
        answer(record, waiting, mail);
    }
}

/// Answers a waiting Authentication Receive with the transaction's next message.
fn answer(record: &mut QueueRecord, waiting: WaitingReceive, mail: &mut PendingActions) {
    let WaitingReceive { cid, room } = waiting;
    let (mut message, is_last) = match record.transaction.give(room) {
        ControllerMessage::Message(message) => (message, false),
        ControllerMessage::Last(message) => (message, true),
        ControllerMessage::Later | ControllerMessage::Nothing => {
            let status = Status::INVALID_FIELD.dnr();
            return mail.complete(record.place, CommandResult::error(cid, status), Vec::new());
        }
    };
    message.resize(room, 0);
    mail.complete(record.place, CommandResult::ok(cid), message);
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
