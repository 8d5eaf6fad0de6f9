//! A path: one lane of ours and one station of the peer, with numbers, times and a window of its own.

use core::time::Duration;

use contract::Instant;

use crate::control::{Control, Policy};
use crate::head::Ack;
use crate::prove::{LEAST_BYTES, Proof};
use crate::rtt::{HOLD_MAX, Rtt};
use crate::sent::SENT_MAX;
use crate::slab::NONE;
use crate::station::Station;
use crate::window::Seen;

/// Packets that may stay unanswered before a bare acknowledgement leaves.
const UNANSWERED_MAX: u8 = 8;

/// Questions without an answer from which on packets are small again, and from which on another
/// path is preferred.
pub(crate) const SHRINK_PROBES: u8 = 3;
pub(crate) const DISTRUST_PROBES: u8 = 2;

/// What the peer is owed for packets that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Debt {
    Nothing,
    /// An acknowledgement, with the next packet or at this time.
    By(Instant),
    /// An acknowledgement with the next packet, which leaves now.
    Now,
}

/// One way to the peer.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub to: Station,
    pub rtt: Rtt,
    pub control: Control,
    /// Numbers that arrived.
    pub seen: Seen,
    /// When the highest number arrived.
    highest_at: Instant,
    pub debt: Debt,
    unanswered: u8,
    /// A packet that the network marked arrived since the last echo.
    pub echo: bool,
    pub lane: u8,
    /// Probes that were sent since the last acknowledgement.
    pub probes: u8,
    /// A packet may leave although the window is full: a probe.
    pub probes_now: bool,
    /// The peer has proved that it receives at this station.
    pub is_proven: bool,
    /// The size of packets that the path carries.
    pub bytes: u16,
    pub proof: Proof,
    /// The next number.
    pub next: u64,
    /// One more than the highest number that the peer acknowledged.
    pub acked: u64,
    /// No number below is in flight.
    pub oldest: u64,
    /// The place of the sent window, [`NONE`] before the first packet.
    pub window: u32,
    pub in_flight_bytes: u32,
    pub in_flight: u16,
    /// When the last packet that wants an answer was sent.
    pub asked_at: Instant,
    /// No packet leaves before: windows below eight packets are paced.
    pub paced_until: Instant,
    /// When a packet counts as lost by its age, if one may.
    pub loss_at: Option<Instant>,
}

const _: () = assert!(size_of::<Option<Path>>() <= 320);

impl Path {
    pub(crate) fn new(lane: u8, to: Station, policy: Policy, packet_bytes: usize) -> Path {
        Path {
            to,
            rtt: Rtt::default(),
            control: Control::new(policy, packet_bytes, SENT_MAX),
            seen: Seen::default(),
            highest_at: Instant::ZERO,
            debt: Debt::Nothing,
            unanswered: 0,
            echo: false,
            lane,
            probes: 0,
            probes_now: false,
            is_proven: false,
            bytes: LEAST_BYTES,
            proof: Proof::default(),
            next: 0,
            acked: 0,
            oldest: 0,
            window: NONE,
            in_flight_bytes: 0,
            in_flight: 0,
            asked_at: Instant::ZERO,
            paced_until: Instant::ZERO,
            loss_at: None,
        }
    }

    /// Notes that a packet arrived which was not seen before, and what that makes us owe
    /// (RFC 9000, section 13.2.1).
    pub(crate) fn arrived(&mut self, now: Instant, number: u64, elicits: bool, ack_now: bool) {
        let in_order = self.seen.highest().map_or(0, |highest| highest + 1) == number;
        self.seen.note(number);
        if self.seen.highest() == Some(number) {
            self.highest_at = now;
        }
        if !elicits {
            return;
        }
        self.unanswered = self.unanswered.saturating_add(1);
        if ack_now || !in_order || self.unanswered >= UNANSWERED_MAX {
            self.debt = Debt::Now;
        } else if self.debt == Debt::Nothing {
            self.debt = Debt::By(now + HOLD_MAX);
        }
    }

    /// Returns the report of what arrived, and counts it as sent.
    pub(crate) fn report(&mut self, now: Instant) -> Option<Ack> {
        // Also where nothing was accepted yet: a bare packet says that we live.
        (self.debt, self.unanswered) = (Debt::Nothing, 0);
        let highest = self.seen.highest()?;
        let held = now - self.highest_at;
        Some(Ack {
            highest: highest as u32,
            before: self.seen.before(),
            held_us: u16::try_from(held.as_micros()).unwrap_or(u16::MAX),
        })
    }

    /// Returns `true` if an acknowledgement has to leave now.
    pub(crate) fn owes(&self, now: Instant) -> bool {
        match self.debt {
            Debt::Nothing => false,
            Debt::By(at) => at <= now,
            Debt::Now => true,
        }
    }

    /// Returns `true` if the window lets a packet of these bytes go. Where packets are paced, the
    /// last one may stick out: otherwise windows of 1 and of 1.9 packets would be the same.
    pub(crate) fn has_room(&self, bytes: u32) -> bool {
        let window = self.control.window();
        let more = if self.control.is_paced() { 1 } else { bytes };
        self.in_flight == 0 || self.in_flight_bytes + more <= window
    }

    /// Returns when a packet of these bytes would have been delivered, counted from now.
    pub(crate) fn delivery(&self, bytes: u32) -> Duration {
        // A window leaves in a round trip, so bytes take their share of one.
        let rtt = self.rtt.smoothed().as_nanos() as u64;
        let queued = u64::from(self.in_flight_bytes) + u64::from(bytes);
        Duration::from_nanos(rtt / 2 + rtt * queued / u64::from(self.control.window()))
    }

    /// Returns when the path needs attention next.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let debt = match self.debt {
            Debt::By(at) => Some(at),
            Debt::Nothing | Debt::Now => None,
        };
        [debt, self.loss_at, self.probe_at(), self.proof.next].into_iter().flatten().min()
    }

    /// Returns when silence makes a probe necessary.
    pub(crate) fn probe_at(&self) -> Option<Instant> {
        let waits = self.in_flight > 0;
        waits.then(|| self.asked_at + self.rtt.probe_after(u32::from(self.probes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> Path {
        let to = Station::Ethernet { mac: [1; 6], queue: 0 };
        Path::new(0, to, Policy::Delay, 1000)
    }

    fn at(us: u64) -> Instant {
        Instant::from_nanos(1_000 * us)
    }

    #[test]
    fn acknowledgements_wait_for_a_packet_to_ride_on() {
        let mut path = path();
        path.arrived(at(10), 0, true, false);
        path.arrived(at(20), 1, true, false);
        assert_eq!(path.debt, Debt::By(at(110)));
        assert!(!path.owes(at(109)) && path.owes(at(110)));
        let ack = path.report(at(25)).unwrap();
        assert_eq!((ack.highest, ack.before, ack.held_us), (1, 1, 5));
        assert_eq!(path.debt, Debt::Nothing);
    }

    #[test]
    fn gaps_eight_packets_and_wishes_make_them_leave() {
        let mut gap = path();
        gap.arrived(at(1), 1, true, false);
        assert_eq!(gap.debt, Debt::Now);
        let mut many = path();
        for number in 0..8 {
            assert!(!many.owes(at(1)));
            many.arrived(at(1), number, true, false);
        }
        assert!(many.owes(at(1)));
        let mut wish = path();
        wish.arrived(at(1), 0, true, true);
        assert!(wish.owes(at(1)));
        let mut bare = path();
        bare.arrived(at(1), 5, false, false);
        assert_eq!(bare.debt, Debt::Nothing, "nobody acknowledges acknowledgements");
        let mut refusing = path();
        refusing.debt = Debt::Now;
        assert_eq!(refusing.report(at(1)), None);
        assert_eq!(refusing.debt, Debt::Nothing);
    }
}
