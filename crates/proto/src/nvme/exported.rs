//! A controller on its way to another process, as plain data and as bytes
//! (docs/adr/0015-moving-controllers.md).
//!
//! The format is little-endian: magic `nfcontrl` (8 bytes), hand-over version (2), length of the
//! rest (4), then the fields in the order of [`ExportedController::encode`]. Times are encoded as
//! ages. Each count is checked against the remaining bytes before anything is allocated.
//! Deliberately left out: the connections of the queues, which travel as parcels, keys, and
//! authentications in progress.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use contract::{Instant, NamespaceId};
use wire::nvme::{AnaState, Configuration, ControllerState};

use super::changed::ChangedNamespaces;
use super::config::{ANA_GROUPS_MAX, HostId, Identifiers, Nqn, PortId};
use super::controllers::CNTLID_END;
use super::counts::QueueCounts;
use super::errors::ErrorLog;
use super::events::Events;
use super::features::Features;
use super::record::{Association, ControllerKind};
use super::reservation::Notices;
use crate::takeover::{BODY_BYTES_MAX, Reader, TakeoverRefusal, Writer, age, earlier};

const MAGIC: [u8; 8] = *b"nfcontrl";

/// The most queues of a controller that can be handed over, the admin queue included.
pub const EXPORT_QUEUES_MAX: usize = 240;

/// The most namespaces that an exported controller may list.
const NAMESPACES_MAX: usize = contract::NAMESPACES_MAX;

/// The most entries that an exported queue may have.
const QUEUE_ENTRIES_MAX: u16 = 4096;

/// The largest accepted value of a counter, so that adding several does not overflow.
const COUNT_MAX: u64 = 1 << 56;

/// A namespace as the host has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeenNamespace {
    pub(super) nsid: u32,
    pub(super) id: NamespaceId,
    /// The size of the namespace, in blocks as the host sees them.
    pub(super) blocks: u64,
    /// Log2 of the number of 512-byte blocks in one of the host's blocks, as in
    /// [`VisibleNamespace`](super::link::VisibleNamespace).
    pub(super) shift: u8,
    pub(super) identifiers: Identifiers,
    pub(super) ana_group: u32,
    pub(super) access: AnaState,
}

/// The state of a queue of an exported controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExportedQueue {
    pub(super) id: u16,
    pub(super) size: u16,
    /// The head of the submission queue: `head < size`.
    pub(super) head: u16,
    pub(super) flow_control: bool,
    /// `true` if the host had to authenticate; the next field says whether it has.
    pub(super) must_prove: bool,
    pub(super) is_proven: bool,
    /// The time at which the queue ends if the host has not authenticated.
    pub(super) prove_by: Instant,
    /// The host's source address, by which failed authentications are counted; `None` for not
    /// counting.
    pub(super) address: Option<IpAddr>,
    pub(super) counts: QueueCounts,
}

/// A controller as plain data, for transfer to another process. Its times are on the clock of the
/// process that holds the value.
#[derive(Clone)]
pub struct ExportedController {
    pub(super) cntlid: u16,
    pub(super) association: Association,
    /// `true` if the sending process keeps no other controller of the host at the subsystem, and no
    /// request of the host's ended queues runs there.
    pub(super) is_last: bool,
    pub(super) configuration: Configuration,
    pub(super) state: ControllerState,
    pub(super) is_ready: bool,
    pub(super) writes_through: bool,
    pub(super) created: Instant,
    pub(super) discovery_changes: u64,
    pub(super) features: Features,
    pub(super) events: Events,
    pub(super) changed: ChangedNamespaces,
    pub(super) notices: Notices,
    pub(super) errors: ErrorLog,
    /// The namespaces that the host sees, ordered by identifier.
    pub(super) seen_namespaces: Vec<SeenNamespace>,
    /// The queues, ordered by identifier; the first is the admin queue.
    pub(super) queues: Vec<ExportedQueue>,
}

impl fmt::Debug for ExportedController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "controller {} of {} at {}",
            self.cntlid, self.association.host, self.association.subsystem
        )
    }
}

impl ExportedController {
    /// Returns the controller's identifier, which the host knows.
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Returns the qualified name of the controller's host.
    pub fn host(&self) -> &Nqn {
        &self.association.host
    }

    /// Returns the number of queues, the admin queue included.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Returns the port for replacement, if its number differs in the receiving process.
    pub fn port_mut(&mut self) -> &mut PortId {
        &mut self.association.port
    }

    /// Encodes the controller for another process, with times as ages at `now`.
    ///
    /// # Errors
    /// Returns a [`TakeoverRefusal`] if the encoded controller is too large.
    pub fn encode(&self, now: Instant) -> Result<Vec<u8>, TakeoverRefusal> {
        let mut to = Writer::begin(MAGIC);
        self.put_self(&mut to, now)?;
        self.features.put(&mut to, now);
        self.events.put(&mut to)?;
        put_numbers(&mut to, &self.changed.listed)?;
        put_numbers(&mut to, &self.changed.unknown)?;
        self.notices.put(&mut to)?;
        self.errors.put(&mut to)?;
        to.count(self.seen_namespaces.len())?;
        self.seen_namespaces.iter().for_each(|seen| put_seen(&mut to, seen));
        to.count(self.queues.len())?;
        self.queues.iter().for_each(|queue| put_queue(&mut to, queue, now));
        to.sealed(BODY_BYTES_MAX)
    }

    fn put_self(&self, to: &mut Writer, now: Instant) -> Result<(), TakeoverRefusal> {
        to.put(self.cntlid.to_le_bytes());
        to.flag(self.association.kind == ControllerKind::Discovery);
        to.string(self.association.subsystem.as_str().as_bytes())?;
        to.put(self.association.port.0.to_le_bytes());
        to.string(self.association.host.as_str().as_bytes())?;
        to.put(self.association.host_id.0);
        to.flag(self.is_last);
        to.put(self.configuration.0.to_le_bytes());
        to.put(self.state.0.to_le_bytes());
        to.flag(self.is_ready);
        to.flag(self.writes_through);
        to.put(age(now, self.created));
        to.put(self.discovery_changes.to_le_bytes());
        Ok(())
    }

    /// Decodes a controller of another process, whose times are ages at `now`.
    ///
    /// # Errors
    /// Returns a [`TakeoverRefusal`] if the bytes are foreign, of another version, truncated or
    /// invalid.
    pub fn decode(bytes: &[u8], now: Instant) -> Result<ExportedController, TakeoverRefusal> {
        let input = &mut Reader::open(bytes, MAGIC)?;
        let exported = ExportedController {
            cntlid: input.u16()?,
            association: Association {
                kind: if input.flag("kind")? {
                    ControllerKind::Discovery
                } else {
                    ControllerKind::Io
                },
                subsystem: take_name(input)?,
                port: PortId(input.u16()?),
                host: take_host(input)?,
                host_id: HostId(input.array()?),
                // Connections over TLS end with the process that has them.
                is_secured: false,
            },
            is_last: input.flag("host")?,
            configuration: Configuration(input.u32()?),
            state: ControllerState(input.u32()?),
            is_ready: input.flag("state")?,
            writes_through: input.flag("write cache")?,
            created: earlier(now, input.u64()?),
            discovery_changes: input.u64()?,
            features: Features::take(input, now)?,
            events: Events::take(input)?,
            changed: ChangedNamespaces {
                listed: take_numbers(input)?,
                unknown: take_numbers(input)?,
            },
            notices: Notices::take(input)?,
            errors: ErrorLog::take(input)?,
            seen_namespaces: take_all(input, SEEN_BYTES, NAMESPACES_MAX, take_seen)?,
            queues: take_all(input, QUEUE_BYTES, EXPORT_QUEUES_MAX, |input| {
                take_queue(input, now)
            })?,
        };
        if !input.0.is_empty() {
            return Err(TakeoverRefusal::Length);
        }
        exported.check()?;
        Ok(exported)
    }

    /// Checks that the fields agree with each other.
    fn check(&self) -> Result<(), TakeoverRefusal> {
        let ordered = self.queues.is_sorted_by(|one, next| one.id < next.id)
            && self.seen_namespaces.is_sorted_by(|one, next| one.nsid < next.nsid);
        let has_admin = self.queues.first().is_some_and(|queue| queue.id == 0);
        let is_plain = self.association.kind == ControllerKind::Io
            || self.queues.len() == 1 && self.seen_namespaces.is_empty();
        let is_kind = (self.association.kind == ControllerKind::Discovery)
            == self.association.subsystem.is_discovery();
        let is_numbered = (1..CNTLID_END).contains(&self.cntlid);
        let counts = self.discovery_changes <= u64::MAX / 2;
        match ordered && has_admin && is_plain && is_kind && is_numbered && counts {
            true => Ok(()),
            false => Err(TakeoverRefusal::Value("controller")),
        }
    }
}

pub(super) fn take_host(input: &mut Reader<'_>) -> Result<Nqn, TakeoverRefusal> {
    let text = core::str::from_utf8(input.string()?).map_err(|_| TakeoverRefusal::Value("name"))?;
    Nqn::of_host(text).map_err(|_| TakeoverRefusal::Value("name"))
}

fn take_name(input: &mut Reader<'_>) -> Result<Nqn, TakeoverRefusal> {
    let text = core::str::from_utf8(input.string()?).map_err(|_| TakeoverRefusal::Value("name"))?;
    Nqn::new(text).map_err(|_| TakeoverRefusal::Value("name"))
}

fn take_all<T>(
    input: &mut Reader<'_>,
    bytes_min: usize,
    most: usize,
    mut take: impl FnMut(&mut Reader<'_>) -> Result<T, TakeoverRefusal>,
) -> Result<Vec<T>, TakeoverRefusal> {
    let count = input.count(bytes_min)?;
    if count > most {
        return Err(TakeoverRefusal::TooLarge);
    }
    (0..count).map(|_| take(input)).collect()
}

fn put_numbers(to: &mut Writer, numbers: &BTreeSet<u32>) -> Result<(), TakeoverRefusal> {
    to.count(numbers.len())?;
    numbers.iter().for_each(|nsid| to.put(nsid.to_le_bytes()));
    Ok(())
}

fn take_numbers(input: &mut Reader<'_>) -> Result<BTreeSet<u32>, TakeoverRefusal> {
    Ok(take_all(input, 4, NAMESPACES_MAX, |input| input.u32())?.into_iter().collect())
}

/// The encoded size of a [`SeenNamespace`] in bytes.
const SEEN_BYTES: usize = 4 + 2 + 8 + 1 + 16 + 16 + 8 + 4 + 1;

fn put_seen(to: &mut Writer, seen: &SeenNamespace) {
    to.put(seen.nsid.to_le_bytes());
    to.put(seen.id.0.to_le_bytes());
    to.put(seen.blocks.to_le_bytes());
    to.put([seen.shift]);
    to.put(seen.identifiers.uuid);
    to.put(seen.identifiers.nguid);
    to.put(seen.identifiers.eui64);
    to.put(seen.ana_group.to_le_bytes());
    to.put([seen.access.0]);
}

fn take_seen(input: &mut Reader<'_>) -> Result<SeenNamespace, TakeoverRefusal> {
    let seen = SeenNamespace {
        nsid: input.u32()?,
        id: NamespaceId(input.u16()?),
        blocks: input.u64()?,
        shift: input.u8()?,
        identifiers: Identifiers {
            uuid: input.array()?,
            nguid: input.array()?,
            eui64: input.array()?,
        },
        ana_group: input.u32()?,
        access: AnaState(input.u8()?),
    };
    match seen.nsid > 0 && (1..=ANA_GROUPS_MAX).contains(&seen.ana_group) {
        true => Ok(seen),
        false => Err(TakeoverRefusal::Value("namespace")),
    }
}

/// The encoded size of an [`ExportedQueue`] in bytes.
const QUEUE_BYTES: usize = 2 + 2 + 2 + 1 + 1 + 1 + 8 + 18 + 5 * 8;

fn put_queue(to: &mut Writer, queue: &ExportedQueue, now: Instant) {
    to.put(queue.id.to_le_bytes());
    to.put(queue.size.to_le_bytes());
    to.put(queue.head.to_le_bytes());
    to.flag(queue.flow_control);
    to.flag(queue.must_prove);
    to.flag(queue.is_proven);
    // The time until then, not since then.
    to.put(age(queue.prove_by, now));
    to.address(queue.address);
    let QueueCounts { reads, writes, blocks_read, blocks_written, media_errors } = queue.counts;
    for count in [reads, writes, blocks_read, blocks_written, media_errors] {
        to.put(count.to_le_bytes());
    }
}

fn take_queue(input: &mut Reader<'_>, now: Instant) -> Result<ExportedQueue, TakeoverRefusal> {
    let queue = ExportedQueue {
        id: input.u16()?,
        size: input.u16()?,
        head: input.u16()?,
        flow_control: input.flag("flow control")?,
        must_prove: input.flag("authentication")?,
        is_proven: input.flag("authentication")?,
        prove_by: Instant::from_nanos(now.as_nanos().saturating_add(input.u64()?)),
        address: input.address()?,
        counts: QueueCounts {
            reads: input.u64()?,
            writes: input.u64()?,
            blocks_read: input.u64()?,
            blocks_written: input.u64()?,
            media_errors: input.u64()?,
        },
    };
    let sized = (2..=QUEUE_ENTRIES_MAX).contains(&queue.size) && queue.head < queue.size;
    // A host that need not authenticate counts as authenticated.
    let proof = queue.must_prove || queue.is_proven;
    let QueueCounts { reads, writes, blocks_read, blocks_written, media_errors } = queue.counts;
    let all = [reads, writes, blocks_read, blocks_written, media_errors];
    let counted = all.iter().all(|count| *count <= COUNT_MAX);
    match sized && proof && counted {
        true => Ok(queue),
        false => Err(TakeoverRefusal::Value("queue")),
    }
}
