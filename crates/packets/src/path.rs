//! A path: a pair of a local lane and an address of the peer, with its own packet numbers, timers
//! and window.

use core::time::Duration;

use contract::Instant;

use crate::control::{Control, Policy};
use crate::peer_address::PeerAddress;
use crate::proof::{LEAST_BYTES, PathProbes};
use crate::receipt::{DueAck, Receipt};
use crate::rtt::Rtt;
use crate::sent::SENT_MAX;
use crate::slab::NONE;

/// The number of unanswered probes after which packets become small, since the path may drop large
/// ones (a smaller MTU). They take at least 31 ms, because a busy machine may be silent for several
/// milliseconds.
pub(crate) const SHRINK_PROBES: u8 = 5;

/// The number of unanswered probes after which a path is not used any more, if the peer was heard
/// by another one since the last probe.
pub(crate) const DISTRUST_PROBES: u8 = 3;

/// Packets become small after this many round trips in which large packets were lost and none
/// arrived, even if small ones are acknowledged.
const SWALLOWED_MAX: u8 = 5;

/// The state of the packets that were sent by a path and are not acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    /// The number of the next packet that the path sends.
    pub next: u64,
    /// The highest number that the peer acknowledged, plus one.
    pub acked: u64,
    /// The lowest number of a packet that may be in flight.
    pub oldest: u64,
    /// The highest number that was counted as lost, plus one.
    pub doubted: u64,
    /// The index of the sent window, [`NONE`] before the first packet.
    pub window: u32,
    /// Number of bytes in flight.
    pub bytes: u32,
    /// Number of packets in flight.
    pub packets: u16,
    /// The time at which the last packet that needs an acknowledgement was sent.
    pub asked_at: Instant,
    /// The earliest time at which a packet counts as lost by its age; `None` if there is none.
    pub loss_at: Option<Instant>,
    /// Number of probes that were sent since a packet in flight was last acknowledged.
    pub probes: u8,
    /// Number of losses of packets above the minimum size since such a packet last arrived. At most
    /// one loss counts in a round trip.
    pub swallowed: u8,
    /// The packet number from which on a loss counts in `swallowed`.
    pub suspect: u64,
    /// `true` if a packet is to be sent although the window is full, as a probe for an
    /// acknowledgement.
    pub probes_now: bool,
}

/// A path to the peer: a pair of a lane and an address.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub to: PeerAddress,
    pub rtt: Rtt,
    pub control: Control,
    pub receipt: Receipt,
    pub flight: Flight,
    pub lane: u8,
    /// The identifier of the path in its association, which the initiator has chosen.
    pub id: u8,
    /// `true` once the peer has proved that it receives packets at the address.
    pub is_proven: bool,
    /// The largest packet that the path carries, in bytes.
    pub bytes: u16,
    pub proof: PathProbes,
    /// The time before which no packet with records is sent, since windows below eight packets are
    /// paced.
    pub paced_until: Instant,
}

const _: () = assert!(size_of::<Option<Path>>() <= 320);

impl Path {
    pub(crate) fn new(lane: u8, to: PeerAddress, policy: Policy, packet_bytes: usize) -> Path {
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
            proof: PathProbes::default(),
            paced_until: Instant::ZERO,
        }
    }

    /// Returns `true` if the path seems to drop all but small packets (RFC 8899, section 4.3: a
    /// black hole).
    pub(crate) fn swallows(&self) -> bool {
        let is_silent = self.flight.probes >= SHRINK_PROBES;
        self.is_proven
            && self.bytes > LEAST_BYTES
            && (is_silent || self.flight.swallowed >= SWALLOWED_MAX)
    }

    /// Sets the size of packets to one that the path was found to carry. On a proven path, a size
    /// that is not larger than before changes nothing.
    pub(crate) fn carries(&mut self, bytes: u16) {
        if self.is_proven && bytes <= self.bytes {
            return;
        }
        self.bytes = bytes;
        self.flight.swallowed = 0;
        self.rtt.forget_least();
        self.control.restart();
    }

    /// Returns `true` if packets with records may go by the path, and no probe for an
    /// acknowledgement is unanswered.
    pub(crate) fn answers(&self) -> bool {
        self.is_proven && self.flight.probes == 0
    }

    /// Returns `true` if the window has room for a packet of `bytes` bytes. On a paced path the
    /// last packet may exceed the window: otherwise windows of 1 and of 1.9 packets would behave
    /// alike.
    pub(crate) fn has_room(&self, bytes: u32) -> bool {
        let window = self.control.window();
        let more = if self.control.is_paced() { 1 } else { bytes };
        self.flight.packets == 0 || self.flight.bytes + more <= window
    }

    /// Returns an estimate of the time until a packet of `bytes` bytes would be delivered, if it
    /// were sent now.
    pub(crate) fn delivery(&self, bytes: u32) -> Duration {
        // A window leaves in a round trip, so bytes take their share of one.
        let rtt = self.rtt.smoothed().as_nanos() as u64;
        let queued = u64::from(self.flight.bytes) + u64::from(bytes);
        Duration::from_nanos(rtt / 2 + rtt * queued / u64::from(self.control.window()))
    }

    /// Returns the time of the path's next timed work; `None` if there is none.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let debt = match self.receipt.debt {
            DueAck::By(at) => Some(at),
            DueAck::Nothing | DueAck::Now => None,
        };
        let shrinks = self.swallows().then_some(Instant::ZERO);
        let times = [debt, self.flight.loss_at, self.probe_at(), self.proof.next, shrinks];
        times.into_iter().flatten().min()
    }

    /// Returns the time at which a probe is sent if the peer stays silent; `None` if nothing is in
    /// flight.
    pub(crate) fn probe_at(&self) -> Option<Instant> {
        let waits = self.flight.packets > 0;
        waits.then(|| self.flight.asked_at + self.rtt.probe_after(u32::from(self.flight.probes)))
    }
}
