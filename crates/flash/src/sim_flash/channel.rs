//! A channel between the controller and its dies, as a calendar of transfers.

use alloc::boxed::Box;
use alloc::vec;

/// Number of slots in a calendar. Transfers further ahead find the channel free.
const SLOTS: u64 = 4096;
const WORDS: usize = (SLOTS / 64) as usize;

/// A calendar of slots of one transfer each. A transfer takes the first free slot after its page is
/// ready. So an early page does not wait for a late one.
#[derive(Debug)]
pub(super) struct Channel {
    slot_ns: u64,
    /// Number of the first slot that is not over. Bit `n % SLOTS` stands for slot `n`.
    first: u64,
    taken: Box<[u64]>,
}

impl Channel {
    pub(super) fn new(slot_ns: u64) -> Self {
        Channel { slot_ns, first: 0, taken: vec![0; WORDS].into_boxed_slice() }
    }

    /// Takes a slot for a page that will be ready at `ready`; returns the end of the transfer. All
    /// times are in ns. No later transfer has its page ready before `now`.
    pub(super) fn transfer(&mut self, now: u64, ready: u64) -> u64 {
        self.forget_until(now / self.slot_ns);
        let mut slot = ready.div_ceil(self.slot_ns).max(self.first);
        while slot < self.first + SLOTS - 64 {
            let (word, bit) = ((slot / 64) as usize % WORDS, slot % 64);
            let free = !self.taken[word] & (u64::MAX << bit);
            if free != 0 {
                slot = slot / 64 * 64 + u64::from(free.trailing_zeros());
                self.taken[word] |= 1 << (slot % 64);
                break;
            }
            slot = (slot / 64 + 1) * 64;
        }
        (slot + 1) * self.slot_ns
    }

    fn forget_until(&mut self, slot: u64) {
        let (old, new) = (self.first / 64, slot / 64);
        if new > old {
            for word in old..new.min(old + WORDS as u64) {
                self.taken[word as usize % WORDS] = 0;
            }
            self.first = new * 64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_share_it_one_after_the_other() {
        let mut channel = Channel::new(10);
        assert_eq!([0, 0, 0].map(|ready| channel.transfer(0, ready)), [10, 20, 30]);
        assert_eq!(channel.transfer(0, 500), 510);
        assert_eq!(channel.transfer(0, 31), 50, "the early do not wait for the late");
        assert_eq!(channel.transfer(0, 1), 40);
    }

    #[test]
    fn a_calendar_goes_round() {
        let mut channel = Channel::new(10);
        for round in 0..20_000 {
            let now = round * 777;
            assert_eq!(channel.transfer(now, now + 700), (now + 700).div_ceil(10) * 10 + 10);
        }
        let far = 1_000_000_000_000;
        assert_eq!(channel.transfer(far, far), far + 10);
        assert_eq!(channel.transfer(far, far + 10_000_000), far + 10_000_010);
        assert_eq!(channel.transfer(far, far + 10_000_000), far + 10_000_010, "too far to tell");
    }

    #[test]
    fn a_full_word_sends_to_the_next() {
        let mut channel = Channel::new(1);
        for n in 0..300 {
            assert_eq!(channel.transfer(0, 0), n + 1);
        }
    }
}
