//! Controllers: the association that a host creates by connecting an admin queue.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use contract::{FenceGroup, Instant};
use wire::nvme::{Capabilities, Configuration, ControllerState};

use super::binding::{CommandResult, QueueAddress};
use super::changed::ChangedNamespaces;
use super::counts::QueueCounts;
use super::events::Events;
use super::features::Features;
use super::fences::EndingQueues;
use super::link::Link;
use super::mail::PendingActions;
use super::record::{Association, ControllerKind, QueueRecord};
use super::reservation::{Notices, Registrant};

/// The unit in which hosts may choose their keep-alive timeout (Identify Controller, KAS).
pub(super) const KEEP_ALIVE_UNIT: Duration = Duration::from_secs(1);

/// The time that a discovery controller without a keep-alive timeout waits for a command (Base
/// 3.1.2.3).
pub(super) const DISCOVERY_IDLE: Duration = Duration::from_secs(120);

/// The time in which a host has to authenticate a queue. Computing with the largest group takes
/// some tens of milliseconds.
pub(super) const PROOF_LIMIT: Duration = Duration::from_secs(60);

/// The time that enabling and shutting down may take, in units of 500 ms. Enabling is immediate; a
/// shutdown waits for requests at devices.
pub(super) const READY_TIMEOUT: u8 = 15;

/// The number of checks for traffic in a keep-alive timeout. The more checks, the sooner after its
/// timeout a silent host is detected and its requests are fenced off.
const LOOKS: u32 = 4;

/// The keep-alive timer of a controller.
#[derive(Clone, Copy, Debug)]
struct KeepAlive {
    timeout: Duration,
    /// The time of the next check for commands of the host.
    until: Instant,
    /// The number of checks since the last command of the host.
    silent: u32,
}

/// A controller and its queues.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) link: Arc<Link>,
    pub(super) association: Association,
    /// The [`FenceGroup`] that the controller's queues share with queues of the host's other
    /// controllers.
    pub(super) group: Arc<FenceGroup>,
    /// The ended queues that still have requests at a device that change data.
    pub(super) ending: EndingQueues,
    /// The present queues, by identifier; zero is the admin queue.
    pub(super) queues: BTreeMap<u16, QueueRecord>,
    pub(super) configuration: Configuration,
    pub(super) state: ControllerState,
    keep_alive: Option<KeepAlive>,
    pub(super) features: Features,
    pub(super) events: Events,
    pub(super) changed: ChangedNamespaces,
    pub(super) notices: Notices,
    pub(super) created: Instant,
    /// `true` if a copy of the controller was sent to another process, so that the controller must
    /// not change until the hand-over ends.
    pub(super) is_exported: bool,
}

impl Controller {
    /// Creates a controller without queues.
    pub(super) fn new(
        cntlid: u16,
        association: Association,
        group: Arc<FenceGroup>,
        now: Instant,
    ) -> Controller {
        Controller {
            link: Arc::new(Link::new(cntlid)),
            association,
            group,
            ending: EndingQueues::default(),
            queues: BTreeMap::new(),
            configuration: Configuration::default(),
            state: ControllerState::default(),
            keep_alive: None,
            features: Features::new(now),
            events: Events::default(),
            changed: ChangedNamespaces::default(),
            notices: Notices::default(),
            created: now,
            is_exported: false,
        }
    }

    /// Returns the controller's identifier.
    pub(super) fn cntlid(&self) -> u16 {
        self.link.cntlid
    }

    /// Starts, changes or stops the keep-alive timer. The timeout of `millis` milliseconds is
    /// rounded up to [`KEEP_ALIVE_UNIT`]; zero means none, or [`DISCOVERY_IDLE`] for a discovery
    /// controller.
    pub(super) fn set_keep_alive(&mut self, millis: u32, now: Instant) {
        let unit = KEEP_ALIVE_UNIT.as_millis() as u32;
        let timeout = match (millis, self.association.kind) {
            (0, ControllerKind::Io) => None,
            (0, ControllerKind::Discovery) => Some(DISCOVERY_IDLE),
            _ => Some(Duration::from_millis(u64::from(millis.div_ceil(unit)) * u64::from(unit))),
        };
        self.features.keep_alive_ms = millis;
        self.keep_alive =
            timeout.map(|timeout| KeepAlive { timeout, until: now + timeout / LOOKS, silent: 0 });
    }

    /// Returns `true` if the host was silent for its timeout. Commands on any queue count as
    /// traffic (Base 3.9, "Traffic Based Keep Alive").
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

    /// Returns the queues whose host did not authenticate in time.
    pub(super) fn unproven(&self, now: Instant) -> impl Iterator<Item = (u16, QueueAddress)> {
        let is_late = move |record: &QueueRecord| record.proof_due().is_some_and(|due| due <= now);
        let rests = self.rests();
        let late = self.queues.iter().filter(move |(_, record)| !rests && is_late(record));
        late.map(|(queue, record)| (*queue, record.place))
    }

    /// Returns when the next timer of the controller may expire; `None` if no timer runs.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        let proofs = self.queues.values().filter_map(QueueRecord::proof_due);
        let put_off = self.queues.values().filter_map(|record| Some(record.put_off.as_ref()?.due));
        let first = proofs.chain(put_off).chain(self.keep_alive.map(|timer| timer.until)).min();
        first.filter(|_| !self.rests())
    }

    /// Returns `true` while the timers are suspended: while the controller's queues are gathered
    /// for another process, and after that process has received it, since the host's commands may
    /// not be read then.
    pub(super) fn rests(&self) -> bool {
        self.is_exported || self.link.is_exporting()
    }

    /// Notes that the host has identified the namespace that has this identifier now.
    pub(super) fn identified(&mut self, nsid: u32) {
        if self.changed.unknown.remove(&nsid) {
            self.link.change();
        }
    }

    /// Returns the controller's host as a registrant of reservations.
    pub(super) fn registrant(&self) -> Registrant {
        let Association { host, host_id, .. } = &self.association;
        Registrant { host: host.clone(), id: *host_id }
    }

    /// Completes Asynchronous Event Requests with events, as long as there are both.
    pub(super) fn send_events(&mut self, mail: &mut PendingActions) {
        let Some(admin) = self.queues.get(&0) else { return };
        while let Some((cid, event)) = self.events.next() {
            let result = u64::from(event.to_result());
            mail.complete(admin.place, CommandResult::with_result(cid, result), Vec::new());
        }
    }

    /// Returns the bits of the Controller Capabilities property.
    pub(super) fn capabilities(queue_entries_max: u16) -> u64 {
        Capabilities { queue_entries_max, timeout: READY_TIMEOUT }.to_bits()
    }

    /// Returns the counts of reads and writes of all present queues of the controller together.
    pub(super) fn sum(&self) -> QueueCounts {
        let mut sum = QueueCounts::default();
        self.queues.values().for_each(|record| sum.add(record.counts.sum()));
        sum
    }

    /// Returns the number of the controller's present I/O queues.
    pub(super) fn io_queues(&self) -> usize {
        self.queues.keys().filter(|queue| **queue != 0).count()
    }
}
