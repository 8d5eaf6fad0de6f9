//! The sending half of a channel: the numbers and floors of messages, and the limit of
//! unacknowledged messages.

use crate::flags::Flags;
use crate::incoming::MESSAGES_MAX;
use crate::slab::Queue;

/// The sending half of a channel.
#[derive(Debug)]
pub(crate) struct SendingHalf {
    /// Bit `n`: every piece of message `base` + n is acknowledged. Bit 0 is clear.
    acked: Flags,
    /// The lowest number of a message that is not wholly acknowledged.
    base: u32,
    /// The number of the next message.
    next: u32,
    /// The floor of the next message: messages with lower numbers are delivered before it.
    floor: u32,
    /// Messages that are not cut into pieces to the end.
    pub queue: Queue,
    /// Number of bytes in messages that are not wholly acknowledged.
    pub unsent: u32,
    /// The count in the last flow-control record (stop or go) of the peer.
    stops_heard: u32,
    is_stopped: bool,
}

impl SendingHalf {
    pub(crate) fn new() -> SendingHalf {
        SendingHalf {
            acked: Flags::NONE,
            base: 0,
            next: 0,
            floor: 0,
            queue: Queue::EMPTY,
            unsent: 0,
            stops_heard: 0,
            is_stopped: false,
        }
    }

    /// Returns `true` if the first piece of a new message may be sent: the peer has not stopped the
    /// channel, and the receiver tracks the message. It tracks [`MESSAGES_MAX`] messages.
    pub(crate) fn may_begin(&self) -> bool {
        !self.is_stopped && self.next.wrapping_sub(self.base) < MESSAGES_MAX
    }

    /// Returns `true` if further pieces of a message may be sent: the peer has not stopped the
    /// channel.
    pub(crate) fn may_go_on(&self) -> bool {
        !self.is_stopped
    }

    /// Returns `true` if the peer has acknowledged the first message, which opens the channel.
    pub(crate) fn is_opened(&self) -> bool {
        self.base > 0 || self.acked.has(0)
    }

    /// Returns the number of a new message, and the distance from the number to the message's
    /// floor. A strict message is delivered after all earlier messages and before all later ones.
    pub(crate) fn number(&mut self, strict: bool) -> (u32, u16) {
        let number = self.next;
        if strict {
            self.floor = number;
        }
        // The receiver has delivered everything that is further below than its window is long.
        let behind = number.wrapping_sub(self.floor).min(MESSAGES_MAX) as u16;
        self.next = number.wrapping_add(1);
        if strict {
            self.floor = self.next;
        } else if number.wrapping_sub(self.floor) > MESSAGES_MAX {
            self.floor = number.wrapping_sub(MESSAGES_MAX);
        }
        (number, behind)
    }

    /// Notes that every piece of a message is acknowledged.
    pub(crate) fn acknowledged(&mut self, number: u32) {
        let ahead = number.wrapping_sub(self.base);
        assert!(ahead < MESSAGES_MAX, "a message is acknowledged once");
        self.acked.set(ahead);
        self.base = self.base.wrapping_add(self.acked.pass());
    }

    /// Applies the peer's stop or go, unless a later one was applied.
    pub(crate) fn hear(&mut self, count: u32, is_stop: bool) {
        let newer = count.wrapping_sub(self.stops_heard);
        if newer > 0 && newer < u32::MAX / 2 {
            (self.stops_heard, self.is_stopped) = (count, is_stop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_messages_are_the_floor_of_later_ones() {
        let mut outgoing = SendingHalf::new();
        let table = [
            (true, 0, 0),
            (false, 1, 0),
            (false, 2, 1),
            (true, 3, 0),
            (false, 4, 0),
            (false, 5, 1),
        ];
        for (strict, number, behind) in table {
            assert_eq!(outgoing.number(strict), (number, behind));
        }
    }

    #[test]
    fn the_floor_of_free_messages_follows_them_around_the_numbers() {
        let mut outgoing =
            SendingHalf { next: u32::MAX - 300, floor: u32::MAX - 300, ..SendingHalf::new() };
        outgoing.base = outgoing.next;
        for n in 0..1000u32 {
            let (number, behind) = outgoing.number(false);
            assert_eq!(u32::from(behind), n.min(128));
            assert!(outgoing.next.wrapping_sub(outgoing.base) <= MESSAGES_MAX);
            outgoing.acknowledged(number);
        }
    }

    #[test]
    fn a_channel_runs_ahead_of_its_oldest_message_by_the_window() {
        let mut outgoing = SendingHalf::new();
        for _ in 0..MESSAGES_MAX {
            assert!(outgoing.may_begin());
            outgoing.number(false);
        }
        outgoing.acknowledged(1);
        assert!(!outgoing.may_begin(), "message 0 is not acknowledged");
        outgoing.acknowledged(0);
        assert_eq!(outgoing.base, 2);
        assert!(outgoing.may_begin());
    }

    #[test]
    fn the_latest_stop_or_go_counts() {
        let mut outgoing = SendingHalf::new();
        for (count, is_stop, may) in [
            (1, true, false),
            (3, true, false),
            (2, false, false),
            (4, false, true),
            (4, true, true),
        ] {
            outgoing.hear(count, is_stop);
            assert_eq!(outgoing.may_begin(), may, "{count}");
        }
    }
}
