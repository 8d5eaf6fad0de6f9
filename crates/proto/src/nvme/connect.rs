//! The Connect command (Base 6.3), which creates controllers and their queues.

use alloc::sync::Arc;

use core::sync::atomic::{AtomicBool, Ordering};

use contract::{Fence, Instant, PskMark};
use wire::nvme::{
    CONNECT_CNTLID_DYNAMIC, CONNECT_DISABLE_FLOW_CONTROL, ConnectCommand, ConnectData,
    FABRICS_OPCODE, FabricsKind, Status, Submission,
};
use zerocopy::FromBytes;

use super::auth::transaction::Transaction;
use super::binding::{CommandResult, Origin};
use super::config::{HostId, Nqn};
use super::controller::{Controller, PROOF_LIMIT};
use super::counts::Counts;
use super::data;
use super::link::Link;
use super::record::{Association, ControllerKind, QueueParameters, QueueRecord};
use super::state::State;

/// The invalid field of a Connect (Base 6.3, figure "Connect Response – Dword 0").
#[derive(Clone, Copy)]
enum InvalidField {
    /// The field at this byte of the submission.
    Entry(u16),
    /// The field at this byte of the data.
    Data(u16),
}

/// The fields of a Connect that can be invalid, by their positions.
const QUEUE: InvalidField = InvalidField::Entry(42);
const QUEUE_SIZE: InvalidField = InvalidField::Entry(44);
const HOST_ID: InvalidField = InvalidField::Data(0);
const CNTLID: InvalidField = InvalidField::Data(16);
const SUBSYSTEM: InvalidField = InvalidField::Data(256);
const HOST: InvalidField = InvalidField::Data(512);

/// A bit of the result of a Connect: the queue has to be authenticated (ATR).
const AUTHENTICATION_REQUIRED: u64 = 1 << 17;

/// The status and result of a refused Connect.
struct ConnectRefusal(Status, u64);

impl From<Status> for ConnectRefusal {
    fn from(status: Status) -> ConnectRefusal {
        ConnectRefusal(status, 0)
    }
}

impl From<InvalidField> for ConnectRefusal {
    fn from(wrong: InvalidField) -> ConnectRefusal {
        let result = match wrong {
            InvalidField::Entry(offset) => u64::from(offset),
            InvalidField::Data(offset) => u64::from(offset) | 1 << 16,
        };
        ConnectRefusal(Status::CONNECT_INVALID.dnr(), result)
    }
}

/// The host and its target, from the data of a Connect.
struct ConnectParties {
    host: Nqn,
    host_id: HostId,
    subsystem: Nqn,
    cntlid: u16,
}

/// Carries out a Connect, which creates a queue. Returns the answer, and the created queue if it
/// succeeded.
pub(super) fn connect(
    state: &mut State,
    origin: Origin,
    entry: &Submission,
    payload: &[u8],
    now: Instant,
) -> (CommandResult, Option<QueueParameters>) {
    let cid = entry.cid.get();
    match try_connect(state, origin, entry, payload, now) {
        Ok(made) => {
            let must_prove = !made.proven.load(Ordering::Acquire);
            let authenticate = if must_prove { AUTHENTICATION_REQUIRED } else { 0 };
            let result = u64::from(made.link.cntlid) | authenticate;
            (CommandResult::with_result(cid, result), Some(made))
        }
        Err(ConnectRefusal(status, result)) => (CommandResult { cid, status, result }, None),
    }
}

fn try_connect(
    state: &mut State,
    origin: Origin,
    entry: &Submission,
    payload: &[u8],
    now: Instant,
) -> Result<QueueParameters, ConnectRefusal> {
    let command = ConnectCommand::of(entry);
    if command.opcode != FABRICS_OPCODE || command.kind != FabricsKind::CONNECT {
        return Err(Status::SEQUENCE_ERROR.dnr().into());
    }
    data::expect(entry, size_of::<ConnectData>())?;
    let Ok(connect) = ConnectData::ref_from_bytes(payload) else {
        return Err(Status::DATA_SGL_LENGTH.dnr().into());
    };
    if command.format.get() != 0 {
        return Err(Status::CONNECT_FORMAT.dnr().into());
    }
    let size = command.queue_size.get();
    if size == 0 || size >= state.inventory.limits().queue_entries_max {
        return Err(QUEUE_SIZE.into());
    }
    let who = who(connect)?;
    if !has_proven(state, &who.host, origin.proven) {
        return Err(Status::CONNECT_INVALID_HOST.dnr().into());
    }
    let who_host = who.host.clone();
    let (kind, link) = match command.queue.get() {
        0 => admit_host(state, origin, who, command.keep_alive_ms.get(), now)?,
        queue => admit_queue(state, origin, &who, queue)?,
    };
    let must_prove = kind == ControllerKind::Io && state.inventory.has_key(&who_host);
    let controller = state.controllers.get_mut(link.cntlid).map_err(ConnectRefusal::from)?;
    let made = QueueParameters {
        link,
        fence: Arc::new(Fence::among(Arc::clone(&controller.group))),
        counts: Arc::new(Counts::default()),
        kind,
        id: command.queue.get(),
        size: size + 1,
        flow_control: command.attributes & CONNECT_DISABLE_FLOW_CONTROL == 0,
        proven: Arc::new(AtomicBool::new(!must_prove)),
        has_left: Arc::default(),
    };
    let record = QueueRecord {
        must_prove,
        prove_by: now + PROOF_LIMIT,
        ..made.record(origin.place, Transaction::new(), now)
    };
    controller.queues.insert(made.id, record);
    Ok(made)
}

/// Returns `true` if the host still has the pre-shared key that its connection has proven in the
/// TLS handshake, or if the connection has proven none.
fn has_proven(state: &State, host: &Nqn, proven: Option<PskMark>) -> bool {
    proven.is_none_or(|mark| state.inventory.tls_keys(host).any(|key| key.mark() == mark))
}

/// Admits an admin queue by creating a controller.
fn admit_host(
    state: &mut State,
    Origin { port, proven, .. }: Origin,
    who: ConnectParties,
    keep_alive_ms: u32,
    now: Instant,
) -> Result<(ControllerKind, Arc<Link>), ConnectRefusal> {
    let kind = if who.subsystem.is_discovery() {
        ControllerKind::Discovery
    } else {
        let subsystem = state.inventory.subsystem(&who.subsystem).ok_or(SUBSYSTEM)?;
        if !subsystem.is_at(port) {
            return Err(SUBSYSTEM.into());
        }
        let is_stranger = subsystem.must_authenticate && !state.inventory.has_key(&who.host);
        if is_stranger || !subsystem.hosts.contain(&who.host) {
            return Err(Status::CONNECT_INVALID_HOST.dnr().into());
        }
        ControllerKind::Io
    };
    if who.cntlid != CONNECT_CNTLID_DYNAMIC {
        return Err(CNTLID.into());
    }
    let State { controllers, inventory, migrations, families, .. } = state;
    let is_taken = |cntlid| migrations.expects(cntlid);
    let cntlid = controllers.new_cntlid(inventory.limits().controllers_max, is_taken);
    let cntlid = cntlid.ok_or(Status::CONNECT_BUSY)?;
    let ConnectParties { host, host_id, subsystem, .. } = who;
    let association =
        Association { kind, subsystem, port, host, host_id, is_secured: proven.is_some() };
    let group = families.group_of(&association);
    let mut controller = Controller::new(cntlid, association, group, now);
    controller.set_keep_alive(keep_alive_ms, now);
    let link = Arc::clone(&controller.link);
    controllers.insert(controller);
    Ok((kind, link))
}

/// Admits an I/O queue of a controller that the same host created through the same port. A
/// controller of another host counts as absent, so that hosts cannot find out which controllers
/// exist. A controller that was created over TLS has no queue without it.
fn admit_queue(
    state: &State,
    Origin { port, proven, .. }: Origin,
    who: &ConnectParties,
    queue: u16,
) -> Result<(ControllerKind, Arc<Link>), ConnectRefusal> {
    let most = state.inventory.limits().io_queues_max;
    let own = state.controllers.find(who.cntlid).filter(|own| own.association.host == who.host);
    let controller = own.ok_or(CNTLID)?;
    if controller.association.subsystem != who.subsystem {
        return Err(SUBSYSTEM.into());
    }
    if controller.association.host_id != who.host_id {
        return Err(HOST_ID.into());
    }
    if controller.association.is_secured && proven.is_none() {
        return Err(Status::CONNECT_INVALID_HOST.dnr().into());
    }
    if controller.association.port != port {
        return Err(CNTLID.into());
    }
    if !controller.state.is_ready() {
        return Err(Status::SEQUENCE_ERROR.dnr().into());
    }
    let granted = controller.features.io_queues.unwrap_or(most);
    if controller.association.kind == ControllerKind::Discovery || queue > granted {
        return Err(QUEUE.into());
    }
    if controller.queues.contains_key(&queue) {
        return Err(Status::SEQUENCE_ERROR.dnr().into());
    }
    Ok((controller.association.kind, Arc::clone(&controller.link)))
}

fn who(connect: &ConnectData) -> Result<ConnectParties, InvalidField> {
    Ok(ConnectParties {
        subsystem: Nqn::from_field(&connect.subsystem_nqn).ok_or(SUBSYSTEM)?,
        host: match connect.host_nqn[0] {
            0 => Nqn::anonymous(HostId(connect.host_id)),
            _ => Nqn::from_field(&connect.host_nqn).ok_or(HOST)?,
        },
        host_id: HostId(connect.host_id),
        cntlid: connect.cntlid.get(),
    })
}
