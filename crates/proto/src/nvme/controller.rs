//! A controller: what a host has made by connecting an admin queue.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use contract::{Fence, Instant, Kin};
use wire::nvme::{Capabilities, Configuration, ControllerState};

use super::auth::transaction::Transaction;
use super::auth_commands::{PutOff, Waiting};
use super::config::{HostId, Nqn, PortId};
use super::counts::Sum;
use super::events::Events;
use super::features::Features;
use super::fences::Ending;
use super::link::Link;
use super::reservation::{Notices, Registrant};
use super::seam::{Answer, Place};
use super::state::{Mail, SharedCounts};

/// The unit in which hosts may choose their keep-alive timeout (Identify Controller, KAS).
pub(super) const KEEP_ALIVE_UNIT: Duration = Duration::from_secs(1);

/// How long a discovery controller without a keep-alive timeout waits for a command (Base 3.1.2.3).
pub(super) const DISCOVERY_IDLE: Duration = Duration::from_secs(120);

/// How long a host may take to prove who it is on a queue. The largest group takes some tens of
/// milliseconds.
pub(super) const PROOF_LIMIT: Duration = Duration::from_secs(60);

/// How long enabling and shutting down may take, in units of 500 ms. Neither takes any time here.
pub(super) const READY_TIMEOUT: u8 = 15;

/// What a controller is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// I/O.
    Io,
    /// Telling what there is.
    Discovery,
}

/// A queue of a controller.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) place: Place,
    pub(super) size: u16,
    pub(super) counts: SharedCounts,
    /// Counts what of it is at devices.
    pub(super) fence: Arc<Fence>,
    /// Whether the host has to prove who it is before anything else.
    pub(super) must_prove: bool,
    /// When the queue ends if the host has not.
    pub(super) prove_by: Instant,
    /// Whether it has, or need not; read by the queue.
    pub(super) proven: Arc<AtomicBool>,
    pub(super) transaction: Transaction,
    /// An Authentication Receive that waits.
    pub(super) waiting: Option<Waiting>,
    /// A negotiation that is looked at late.
    pub(super) put_off: Option<PutOff>,
    /// When the last negotiation came.
    pub(super) negotiated_at: Instant,
}

impl Record {
    /// When to look whether the host has proven who it is; never once it has.
    fn proof_due(&self) -> Option<Instant> {
        (!self.proven.load(Ordering::Acquire)).then_some(self.prove_by)
    }
}

/// How often in a keep-alive timeout the timer looks whether the host said something. The more often,
/// the sooner behind its timeout a silent host is missed, and what it left behind is fenced off.
const LOOKS: u32 = 4;

/// A keep-alive timer.
#[derive(Clone, Copy, Debug)]
struct KeepAlive {
    timeout: Duration,
    /// When to look next.
    until: Instant,
    /// Looks since the host said something.
    silent: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) link: Arc<Link>,
    pub(super) kind: Kind,
    pub(super) subsystem: Nqn,
    pub(super) port: PortId,
    pub(super) host: Nqn,
    pub(super) host_id: HostId,
    /// What its queues share with those of the host's other controllers.
    pub(super) kin: Arc<Kin>,
    /// Queues that are gone and have something at a device.
    pub(super) ending: Ending,
    /// By queue identifier.
    pub(super) queues: BTreeMap<u16, Record>,
    pub(super) configuration: Configuration,
    pub(super) state: ControllerState,
    keep_alive: Option<KeepAlive>,
    pub(super) features: Features,
    pub(super) events: Events,
    /// Namespaces that changed since the host read the log.
    pub(super) changed: BTreeSet<u32>,
    pub(super) notices: Notices,
    /// Changes of what discovery tells this host.
    pub(super) discovery_changes: u64,
    pub(super) created: Instant,
    /// Another process has been shown it: nothing about it changes.
    pub(super) is_shown: bool,
}

/// Who connects, and how.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) kind: Kind,
    pub(super) subsystem: Nqn,
    pub(super) port: PortId,
    pub(super) host: Nqn,
    pub(super) host_id: HostId,
}

impl Controller {
    pub(super) fn new(cntlid: u16, arrival: Arrival, kin: Arc<Kin>, now: Instant) -> Controller {
        Controller {
            link: Arc::new(Link::new(cntlid)),
            kind: arrival.kind,
            subsystem: arrival.subsystem,
            port: arrival.port,
            host: arrival.host,
            host_id: arrival.host_id,
            kin,
            ending: Ending::default(),
            queues: BTreeMap::new(),
            configuration: Configuration::default(),
            state: ControllerState::default(),
            keep_alive: None,
            features: Features::new(now),
            events: Events::default(),
            changed: BTreeSet::new(),
            notices: Notices::default(),
            discovery_changes: 0,
            created: now,
            is_shown: false,
        }
    }

    /// Starts, changes or stops the keep-alive timer; the timeout is rounded up to the unit.
    pub(super) fn set_keep_alive(&mut self, millis: u32, now: Instant) {
        let unit = KEEP_ALIVE_UNIT.as_millis() as u32;
        let timeout = match (millis, self.kind) {
            (0, Kind::Io) => None,
            (0, Kind::Discovery) => Some(DISCOVERY_IDLE),
            _ => Some(Duration::from_millis(u64::from(millis.div_ceil(unit)) * u64::from(unit))),
        };
        self.features.keep_alive_ms = millis;
        self.keep_alive =
            timeout.map(|timeout| KeepAlive { timeout, until: now + timeout / LOOKS, silent: 0 });
    }

    /// Whether the host was silent for its timeout. Commands on any queue count (Base 3.9,
    /// "Traffic Based Keep Alive").
    pub(super) fn has_expired(&mut self, now: Instant) -> bool {
        let rests = self.rests();
        let Some(timer) = self.keep_alive.as_mut().filter(|_| !rests) else { return false };
        if now < timer.until {
            return false;
        }
        timer.until = now + timer.timeout / LOOKS;
        timer.silent = if self.link.take_heard() { 0 } else { timer.silent + 1 };
        timer.silent >= LOOKS
    }

    /// Queues whose host took too long to prove who it is.
    pub(super) fn unproven(&self, now: Instant) -> impl Iterator<Item = (u16, Place)> {
        let is_late = move |record: &Record| record.proof_due().is_some_and(|due| due <= now);
        let rests = self.rests();
        let late = self.queues.iter().filter(move |(_, record)| !rests && is_late(record));
        late.map(|(queue, record)| (*queue, record.place))
    }

    /// When one of its timers may expire.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        let proofs = self.queues.values().filter_map(Record::proof_due);
        let put_off = self.queues.values().filter_map(|record| Some(record.put_off.as_ref()?.due));
        let first = proofs.chain(put_off).chain(self.keep_alive.map(|timer| timer.until)).min();
        first.filter(|_| !self.rests())
    }

    /// Whether its timers rest: nobody may be hearing its host, because its queues are being gathered for
    /// another process or that has been shown them.
    pub(super) fn rests(&self) -> bool {
        self.is_shown || self.link.is_called()
    }

    /// The host as reservations know it.
    pub(super) fn registrant(&self) -> Registrant {
        Registrant { host: self.host.clone(), id: self.host_id }
    }

    /// Answers event requests with events, while there are both.
    pub(super) fn send_events(&mut self, mail: &mut Mail) {
        let Some(admin) = self.queues.get(&0) else { return };
        while let Some((cid, event)) = self.events.next() {
            let result = u64::from(event.to_result());
            mail.complete(admin.place, Answer::with_result(cid, result), Vec::new());
        }
    }

    /// The property, as bits.
    pub(super) fn capabilities(queue_entries_max: u16) -> u64 {
        Capabilities { queue_entries_max, timeout: READY_TIMEOUT }.to_bits()
    }

    /// Everything that its queues read and wrote.
    pub(super) fn sum(&self) -> Sum {
        let mut sum = Sum::default();
        self.queues.values().for_each(|record| sum.add(record.counts.sum()));
        sum
    }

    /// The I/O queues that there are.
    pub(super) fn io_queues(&self) -> usize {
        self.queues.keys().filter(|queue| **queue != 0).count()
    }
}
