//! The packets that arrived on a path, and the acknowledgement that is to be sent for them.

use contract::Instant;

use crate::head::Ack;
use crate::rtt::HOLD_MAX;
use crate::window::SeenNumbers;

/// Number of unacknowledged packets from which on an acknowledgement is sent in a packet of its
/// own.
const UNANSWERED_MAX: u8 = 8;

/// The present time, and the time at which a packet came to this end.
pub(crate) type RxTimes = (Instant, Instant);

/// The acknowledgement that this end owes to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DueAck {
    Nothing,
    /// An acknowledgement leaves with the next packet, or by itself at this time.
    By(Instant),
    /// An acknowledgement leaves at once.
    Now,
}

/// The packets that arrived on a path.
#[derive(Clone, Debug)]
pub(crate) struct Receipt {
    /// Numbers of the packets that arrived.
    pub seen: SeenNumbers,
    /// The time at which the packet with the highest number arrived.
    highest_at: Instant,
    pub debt: DueAck,
    unanswered: u8,
    /// `true` if a packet with a congestion mark arrived since this end last sent a packet by the
    /// path.
    pub echo: bool,
}

impl Receipt {
    /// Creates the state of a path on which nothing has arrived.
    pub(crate) fn new() -> Receipt {
        Receipt {
            seen: SeenNumbers::default(),
            highest_at: Instant::ZERO,
            debt: DueAck::Nothing,
            unanswered: 0,
            echo: false,
        }
    }

    /// Notes a new packet, and decides when its acknowledgement is to be sent (RFC 9000, section
    /// 13.2.1). A packet that does not elicit one is only noted. It came to this end at `came`, and
    /// was taken `now`.
    pub(crate) fn arrived(
        &mut self,
        (now, came): RxTimes,
        number: u64,
        elicits: bool,
        ack_now: bool,
    ) {
        let in_order = self.seen.highest().map_or(0, |highest| highest + 1) == number;
        self.seen.note(number);
        if self.seen.highest() == Some(number) {
            self.highest_at = came;
        }
        if !elicits {
            return;
        }
        self.unanswered = self.unanswered.saturating_add(1);
        if ack_now || !in_order || self.unanswered >= UNANSWERED_MAX {
            self.debt = DueAck::Now;
        } else if self.debt == DueAck::Nothing {
            self.debt = DueAck::By(now + HOLD_MAX);
        }
    }

    /// Returns the acknowledgement of the packets that arrived, and counts it as sent; `None` if
    /// none has arrived.
    pub(crate) fn report(&mut self, now: Instant) -> Option<Ack> {
        // Also where nothing was accepted yet: a bare packet says that we live.
        (self.debt, self.unanswered) = (DueAck::Nothing, 0);
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
            DueAck::Nothing => false,
            DueAck::By(at) => at <= now,
            DueAck::Now => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(1_000 * us)
    }

    #[test]
    fn acknowledgements_wait_for_a_packet_to_ride_on() {
        let mut receipt = Receipt::new();
        receipt.arrived((at(10), at(10)), 0, true, false);
        receipt.arrived((at(20), at(20)), 1, true, false);
        assert_eq!(receipt.debt, DueAck::By(at(110)));
        assert!(!receipt.owes(at(109)) && receipt.owes(at(110)));
        let ack = receipt.report(at(25)).unwrap();
        assert_eq!((ack.highest, ack.before, ack.held_us), (1, 1, 5));
        assert_eq!(receipt.debt, DueAck::Nothing);
    }

    #[test]
    fn gaps_eight_packets_and_wishes_make_them_leave() {
        let mut gap = Receipt::new();
        gap.arrived((at(1), at(1)), 1, true, false);
        assert_eq!(gap.debt, DueAck::Now);
        let mut many = Receipt::new();
        for number in 0..8 {
            assert!(!many.owes(at(1)));
            many.arrived((at(1), at(1)), number, true, false);
        }
        assert!(many.owes(at(1)));
        let mut wish = Receipt::new();
        wish.arrived((at(1), at(1)), 0, true, true);
        assert!(wish.owes(at(1)));
        let mut bare = Receipt::new();
        bare.arrived((at(1), at(1)), 5, false, false);
        assert_eq!(bare.debt, DueAck::Nothing, "nobody acknowledges acknowledgements");
        let mut refusing = Receipt::new();
        refusing.debt = DueAck::Now;
        assert_eq!(refusing.report(at(1)), None);
        assert_eq!(refusing.debt, DueAck::Nothing);
    }
}
