//! Dispatch of commands that the controller carries out itself, and the short ones among them:
//! properties, Abort, Asynchronous Event Request, Disconnect.

use contract::Instant;
use wire::nvme::{
    AdminOpcode, ControllerState, FABRICS_OPCODE, FabricsCommand, FabricsKind, NvmOpcode, Property,
    PropertyCommand, Status, VERSION_2_0,
};
use wire::nvme::{CommandId, Configuration};

use super::binding::{CloseReason, CommandResult};
use super::call::{ControllerCommand, ControllerOutcome};
use super::changed::ChangedNamespaces;
use super::controller::{Controller, READY_TIMEOUT};
use super::events::Events;
use super::features::Features;
use super::record::ControllerKind;
use super::state::State;
use super::{auth_commands, feature_commands, identify, logs, reservation_commands};

/// Carries out a command of controller `cntlid` that is not for a device: a Fabrics, admin or
/// reservation command.
pub(super) fn carry_out(
    state: &mut State,
    cntlid: u16,
    call: &mut ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    if call.entry.opcode == FABRICS_OPCODE {
        return carry_out_fabrics(state, cntlid, call);
    }
    if call.queue != 0 {
        return match NvmOpcode(call.entry.opcode) {
            NvmOpcode::RESERVATION_REGISTER => reservation_commands::register(state, cntlid, call),
            NvmOpcode::RESERVATION_ACQUIRE => reservation_commands::acquire(state, cntlid, call),
            NvmOpcode::RESERVATION_RELEASE => reservation_commands::release(state, cntlid, call),
            NvmOpcode::RESERVATION_REPORT => reservation_commands::report(state, cntlid, call),
            _ => Err(Status::INVALID_OPCODE.dnr()),
        };
    }
    match AdminOpcode(call.entry.opcode) {
        AdminOpcode::IDENTIFY => identify::identify(state, cntlid, call),
        AdminOpcode::GET_LOG_PAGE => logs::get_log_page(state, cntlid, call),
        AdminOpcode::GET_FEATURES => feature_commands::get_features(state, cntlid, call),
        AdminOpcode::SET_FEATURES => feature_commands::set_features(state, cntlid, call),
        AdminOpcode::ASYNC_EVENT_REQUEST => await_event(state, cntlid, call.entry.cid.get()),
        AdminOpcode::ABORT => abort(state, cntlid, call.entry.dword10.get()),
        // [`Queue::begin`](super::Queue::begin) has noted its arrival already.
        AdminOpcode::KEEP_ALIVE => Ok(ControllerOutcome::Result(0)),
        _ => Err(Status::INVALID_OPCODE.dnr()),
    }
}

fn carry_out_fabrics(
    state: &mut State,
    cntlid: u16,
    call: &mut ControllerCommand,
) -> Result<ControllerOutcome, Status> {
    match FabricsCommand::of(call.entry).kind {
        FabricsKind::PROPERTY_GET => property_get(state, cntlid, PropertyCommand::of(call.entry)),
        FabricsKind::PROPERTY_SET => {
            property_set(state, cntlid, PropertyCommand::of(call.entry), call.now)
        }
        FabricsKind::DISCONNECT => match FabricsCommand::of(call.entry).specific[..2] {
            [0, 0] => Ok(ControllerOutcome::Closing),
            _ => Err(Status::CONNECT_FORMAT.dnr()),
        },
        FabricsKind::AUTHENTICATION_SEND => auth_commands::authentication_send(state, cntlid, call),
        FabricsKind::AUTHENTICATION_RECEIVE => {
            auth_commands::authentication_receive(state, cntlid, call)
        }
        _ => Err(Status::INVALID_OPCODE.dnr()),
    }
}

/// Carries out Property Get (Base 6.5).
fn property_get(
    state: &mut State,
    cntlid: u16,
    command: &PropertyCommand,
) -> Result<ControllerOutcome, Status> {
    let queue_entries_max = state.inventory.limits().queue_entries_max;
    let controller = state.controllers.get_mut(cntlid)?;
    let (value, bytes) = match Property(command.offset.get()) {
        Property::CAPABILITIES => (Controller::capabilities(queue_entries_max), 8),
        Property::VERSION => (u64::from(VERSION_2_0), 4),
        Property::CONFIGURATION => (u64::from(controller.configuration.0), 4),
        Property::STATE => (u64::from(controller.status().0), 4),
        Property::READY_TIMEOUTS => (u64::from(READY_TIMEOUT), 4),
        _ => return Err(Status::INVALID_FIELD.dnr()),
    };
    match command.attributes & 7 {
        0 if bytes == 4 => Ok(ControllerOutcome::Result(value)),
        1 if bytes == 8 => Ok(ControllerOutcome::Result(value)),
        _ => Err(Status::INVALID_FIELD.dnr()),
    }
}

/// Carries out Property Set (Base 6.6). Controller Configuration is the only property that a
/// host may set.
fn property_set(
    state: &mut State,
    cntlid: u16,
    command: &PropertyCommand,
    now: Instant,
) -> Result<ControllerOutcome, Status> {
    if command.attributes & 7 != 0 || Property(command.offset.get()) != Property::CONFIGURATION {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let new = Configuration(command.value.get() as u32);
    let controller = state.controllers.get_mut(cntlid)?;
    let enables = !controller.configuration.is_enabled() && new.is_enabled();
    if enables && !controller.ending.is_over() {
        // The controller is being reset, as its state says (Base 3.7.2).
        return Err(Status::SEQUENCE_ERROR.dnr());
    }
    let old = core::mem::replace(&mut controller.configuration, new);
    match (old.is_enabled(), new.is_enabled()) {
        (false, true) => controller.enable(new),
        (true, false) => {
            controller.reset(now);
            state.close_io_queues(cntlid, CloseReason::Reset);
        }
        _ => {}
    }
    if new.shutdown() != 0 {
        state.close_io_queues(cntlid, CloseReason::ShutDown);
        state.controllers.get_mut(cntlid)?.state.0 |= ControllerState::SHUTDOWN_COMPLETE;
    }
    Ok(ControllerOutcome::Result(0))
}

/// Carries out Asynchronous Event Request (Base 5.2).
fn await_event(
    state: &mut State,
    cntlid: u16,
    cid: CommandId,
) -> Result<ControllerOutcome, Status> {
    let State { controllers, mail, .. } = state;
    let controller = controllers.get_mut(cntlid)?;
    if !controller.events.park(cid) {
        return Err(Status::EVENT_LIMIT.dnr());
    }
    controller.send_events(mail);
    Ok(ControllerOutcome::Parked)
}

/// Carries out Abort (Base 5.1). Only event requests can be aborted; bit 0 of the result is set if
/// nothing was aborted.
fn abort(state: &mut State, cntlid: u16, named: u32) -> Result<ControllerOutcome, Status> {
    let (queue, cid) = (named as u16, (named >> 16) as u16);
    let State { controllers, mail, .. } = state;
    let controller = controllers.get_mut(cntlid)?;
    let admin = controller.queues.get(&0).map(|record| record.place);
    match admin {
        Some(place) if queue == 0 && controller.events.abort(cid) => {
            let answer = CommandResult::error(cid, Status::ABORTED);
            mail.complete(place, answer, alloc::vec::Vec::new());
            Ok(ControllerOutcome::Result(0))
        }
        _ => Ok(ControllerOutcome::Result(1)),
    }
}

impl Controller {
    /// Enables the controller (Base 3.5.1), which is ready at once. Unsupported settings make its
    /// status fatal instead.
    fn enable(&mut self, wanted: Configuration) {
        let sizes = wanted.submission_shift() == 6 && wanted.completion_shift() == 4;
        let sizes = sizes
            || (self.association.kind == ControllerKind::Discovery
                && wanted.submission_shift() == 0);
        let good = sizes
            && wanted.page_shift() == 0
            && wanted.arbitration() == 0
            && matches!(wanted.command_set(), 0 | 6);
        self.state = ControllerState(match good {
            true => ControllerState::READY,
            false => ControllerState::FATAL,
        });
        self.link.set_ready(good);
    }

    /// Returns the Controller Status property. A reset or shutdown is complete once none of the
    /// ended queues has a request at a device that changes data. Hosts wait for that as long as
    /// CAP.TO says.
    fn status(&mut self) -> ControllerState {
        let is_over = self.ending.is_over();
        let ControllerState(state) = self.state;
        ControllerState(match state & ControllerState::SHUTDOWN {
            _ if is_over => state,
            0 if self.configuration.is_enabled() => state,
            0 => state | ControllerState::READY,
            _ => state & !ControllerState::SHUTDOWN | ControllerState::SHUTDOWN_OCCURRING,
        })
    }

    /// Resets the controller (Base 3.7.2), and forgets the host's settings except the keep-alive
    /// timeout.
    fn reset(&mut self, now: Instant) {
        self.state = ControllerState::default();
        self.link.set_ready(false);
        self.link.set_writes_through(false);
        let keep_alive_ms = self.features.keep_alive_ms;
        self.features = Features::new(now);
        self.features.keep_alive_ms = keep_alive_ms;
        self.events = Events::default();
        self.changed = ChangedNamespaces::default();
    }
}
