//! A path: one of our lanes and one station of the peer, with its own packet numbers, timers and
//! window.

use core::time::Duration;

use contract::Instant;

use crate::control::{Control, Policy};
use crate::proof::{LEAST_BYTES, Proof};
use crate::receipt::{Debt, Receipt};
use crate::rtt::Rtt;
use crate::sent::SENT_MAX;
use crate::slab::NONE;
use crate::station::Station;

/// The number of unanswered probes after which packets become small again and another path is
/// preferred.
pub(crate) const SHRINK_PROBES: u8 = 3;
pub(crate) const DISTRUST_PROBES: u8 = 2;

/// The number of round trips in which large packets are lost and none arrives after which packets
/// become small, though small ones are acknowledged.
const SWALLOWED_MAX: u8 = 5;

/// The packets that were sent by a path and are not acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    /// The number of the next packet.
    pub next: u64,
    /// The highest number that the peer acknowledged, plus one.
    pub acked: u64,
    /// The lowest number that may be in flight.
    pub oldest: u64,
    /// The highest number that was counted as lost, plus one.
    pub doubted: u64,
    /// The index of the sent window, [`NONE`] before the first packet.
    pub window: u32,
    pub bytes: u32,
    pub packets: u16,
    /// The time at which the last packet that needs an acknowledgement was sent.
    pub asked_at: Instant,
    /// The time at which the oldest packet counts as lost by its age, if there is one.
    pub loss_at: Option<Instant>,
    /// Probes that were sent since the last acknowledgement.
    pub probes: u8,
    /// Losses of packets of more than the least size, at most one a round trip, since one of them
    /// arrived.
    pub swallowed: u8,
    /// The number from which on such a loss counts.
    pub suspect: u64,
    /// `true` if a probe may be sent although the window is full.
    pub probes_now: bool,
}

/// A path to the peer.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub to: Station,
    pub rtt: Rtt,
    pub control: Control,
    pub receipt: Receipt,
    pub flight: Flight,
    pub lane: u8,
    /// The identifier of the path in its association, which the initiator has chosen.
    pub id: u8,
    /// `true` once the peer has proved that it receives at this station.
    pub is_proven: bool,
    /// The size of packets that the path carries.
    pub bytes: u16,
    pub proof: Proof,
    /// The time before which no packet is sent: windows below eight packets are paced.
    pub paced_until: Instant,
}

const _: () = assert!(size_of::<Option<Path>>() <= 320);

impl Path {
    pub(crate) fn new(lane: u8, to: Station, policy: Policy, packet_bytes: usize) -> Path {
        Path {
            to,
            rtt: Rtt::default(),
            control: Control::new(policy, packet_bytes, SENT_MAX),
            receipt: Receipt::new(),
            flight: Flight {
                next: 0,
                acked: 0,
                oldest: 0,
                doubted: 0,
                window: NONE,
                bytes: 0,
                packets: 0,
                asked_at: Instant::ZERO,
                loss_at: None,
                probes: 0,
                swallowed: 0,
                suspect: 0,
                probes_now: false,
            },
            lane,
            id: 0,
            is_proven: false,
            bytes: LEAST_BYTES,
            proof: Proof::default(),
            paced_until: Instant::ZERO,
        }
    }

    /// Returns `true` if the path seems to carry small packets only (RFC 8899, section 4.3).
    pub(crate) fn swallows(&self) -> bool {
        let is_silent = self.flight.probes >= SHRINK_PROBES;
        self.bytes > LEAST_BYTES && (is_silent || self.flight.swallowed >= SWALLOWED_MAX)
    }

    /// Sets the size of packets to one that the path was found to carry. On a path in use, a
    /// smaller one than before is nothing new.
    pub(crate) fn carries(&mut self, bytes: u16) {
        if self.is_proven && bytes <= self.bytes {
            return;
        }
        self.bytes = bytes;
        self.flight.swallowed = 0;
        self.rtt.forget_least();
        self.control.restart();
    }

    /// Returns `true` if the window has room for a packet of these bytes. On a paced path the last
    /// packet may exceed the window: otherwise windows of 1 and of 1.9 packets would behave alike.
    pub(crate) fn has_room(&self, bytes: u32) -> bool {
        let window = self.control.window();
        let more = if self.control.is_paced() { 1 } else { bytes };
        self.flight.packets == 0 || self.flight.bytes + more <= window
    }

    /// Returns the time from now until a packet of these bytes would be delivered.
    pub(crate) fn delivery(&self, bytes: u32) -> Duration {
        // A window leaves in a round trip, so bytes take their share of one.
        let rtt = self.rtt.smoothed().as_nanos() as u64;
        let queued = u64::from(self.flight.bytes) + u64::from(bytes);
        Duration::from_nanos(rtt / 2 + rtt * queued / u64::from(self.control.window()))
    }

    /// Returns when the path needs attention next.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let debt = match self.receipt.debt {
            Debt::By(at) => Some(at),
            Debt::Nothing | Debt::Now => None,
        };
        let shrinks = self.swallows().then_some(Instant::ZERO);
        let times = [debt, self.flight.loss_at, self.probe_at(), self.proof.next, shrinks];
        times.into_iter().flatten().min()
    }

    /// Returns the time at which a probe is sent if the peer stays silent.
    pub(crate) fn probe_at(&self) -> Option<Instant> {
        let waits = self.flight.packets > 0;
        waits.then(|| self.flight.asked_at + self.rtt.probe_after(u32::from(self.flight.probes)))
    }
}
