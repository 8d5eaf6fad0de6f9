//! A lane with the rate of a link, for measurements: loopback and pairs of virtual cards have none.
//!
//! The shape holds back what leaves, as a card does whose ring is full. It deliberately leaves out
//! the time that a packet takes on the link, so it says something about rates and nothing about
//! latencies.

use alloc::vec::Vec;
use core::time::Duration;

use contract::{Buf, Instant};

use crate::endpoint::ReceivedPacket;
use crate::lane::Lane;
use crate::peer_address::PeerAddress;

/// The time for which packets may leave ahead of the link, as into the ring of a card.
pub const AHEAD: Duration = Duration::from_micros(100);

/// The rate of a link, and what each packet takes of it beside its own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bits that the link carries in a second; above zero.
    pub bits_per_second: u64,
    /// Bytes around each packet on the link: the heads of frames and protocols, and the gap between
    /// frames.
    pub overhead_bytes: usize,
}

/// A token bucket: [`AHEAD`] of a link's time, which packets spend and time brings back.
#[derive(Clone, Debug)]
struct Bucket {
    shape: Shape,
    /// The time at which the link has carried all packets that were put so far.
    idle_at: Instant,
    /// Time of the last packet beyond whole nanoseconds, in nanoseconds times bits per second.
    rest: u64,
}

impl Bucket {
    fn new(shape: Shape) -> Bucket {
        Bucket { shape, idle_at: Instant::ZERO, rest: 0 }
    }

    /// Returns `true` if a packet may leave at `now`.
    fn has_room(&self, now: Instant) -> bool {
        self.idle_at <= now + AHEAD
    }

    /// Takes the tokens of a packet.
    fn spend(&mut self, now: Instant, bytes: usize) {
        let rate = self.shape.bits_per_second.max(1);
        let bits = 8 * (bytes + self.shape.overhead_bytes) as u64;
        let taken = bits.saturating_mul(1_000_000_000).saturating_add(self.rest);
        self.rest = taken % rate;
        self.idle_at = self.idle_at.max(now) + Duration::from_nanos(taken / rate);
    }
}

/// A lane that may have the rate of a link.
pub struct ShapedLane<L> {
    lane: L,
    /// The tokens; `None` if the lane has no rate of its own.
    bucket: Option<Bucket>,
    /// The time of the last poll.
    now: Instant,
}

impl<L> ShapedLane<L> {
    /// Returns the lane with a shape, or as it is.
    pub fn new(lane: L, shape: Option<Shape>) -> ShapedLane<L> {
        ShapedLane { lane, bucket: shape.map(Bucket::new), now: Instant::ZERO }
    }

    /// Returns the lane below the shape.
    pub fn inner(&mut self) -> &mut L {
        &mut self.lane
    }

    fn may_leave(&self) -> bool {
        self.bucket.as_ref().is_none_or(|bucket| bucket.has_room(self.now))
    }
}

impl<L: Lane> Lane for ShapedLane<L> {
    fn poll(&mut self, now: Instant, arrived: &mut Vec<ReceivedPacket>) -> Option<i32> {
        self.now = now;
        self.lane.poll(now, arrived)
    }

    fn give(&mut self, buf: Buf) {
        self.lane.give(buf);
    }

    fn has_room(&self) -> bool {
        self.may_leave() && self.lane.has_room()
    }

    fn put<'a>(&mut self, to: PeerAddress, bytes: usize, parts: impl Iterator<Item = &'a [u8]>) {
        if let Some(bucket) = &mut self.bucket {
            bucket.spend(self.now, bytes);
        }
        self.lane.put(to, bytes, parts);
    }

    fn part(&mut self, to: PeerAddress, packet: &[u8]) {
        self.lane.part(to, packet);
    }

    fn kick(&mut self) {
        self.lane.kick();
    }

    fn renew(&mut self, to: PeerAddress) {
        self.lane.renew(to);
    }

    /// Returns `true` also while nothing may leave, so that the thread looks again.
    fn has_work(&self) -> bool {
        !self.may_leave() || self.lane.has_work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lane that counts what it is given.
    #[derive(Default)]
    struct CountingLane {
        packets: u64,
        is_full: bool,
    }

    impl Lane for CountingLane {
        fn poll(&mut self, _now: Instant, _arrived: &mut Vec<ReceivedPacket>) -> Option<i32> {
            None
        }

        fn give(&mut self, _buf: Buf) {}

        fn has_room(&self) -> bool {
            !self.is_full
        }

        fn put<'a>(&mut self, _: PeerAddress, bytes: usize, parts: impl Iterator<Item = &'a [u8]>) {
            assert_eq!(parts.map(<[u8]>::len).sum::<usize>(), bytes);
            self.packets += 1;
        }

        fn part(&mut self, _to: PeerAddress, _packet: &[u8]) {}

        fn kick(&mut self) {}

        fn renew(&mut self, _to: PeerAddress) {}

        fn has_work(&self) -> bool {
            false
        }
    }

    const GIGABIT: u64 = 1_000_000_000;

    fn lane(bits_per_second: u64) -> ShapedLane<CountingLane> {
        let shape = Shape { bits_per_second, overhead_bytes: 66 };
        ShapedLane::new(CountingLane::default(), Some(shape))
    }

    /// Puts as many packets of `bytes` bytes as leave until `nanos`, with a turn each `turn`
    /// nanoseconds. Returns their number.
    fn send(
        lane: &mut ShapedLane<CountingLane>,
        bytes: usize,
        (from, nanos): (u64, u64),
        turn: u64,
    ) -> u64 {
        let (before, packet) = (lane.inner().packets, alloc::vec![0; bytes]);
        let to = PeerAddress::Internet(([10, 0, 0, 1], 1).into());
        for at in (from..from + nanos).step_by(turn as usize) {
            lane.poll(Instant::from_nanos(at), &mut Vec::new());
            while lane.has_room() {
                lane.put(to, bytes, [&packet[..]].into_iter());
            }
        }
        lane.inner().packets - before
    }

    #[test]
    fn no_more_leaves_than_the_link_carries_and_no_less() {
        for (gigabits, bytes) in [(10, 8972), (10, 64), (1, 8972), (1, 1400), (3, 777)] {
            let mut lane = lane(gigabits * GIGABIT);
            let sent = send(&mut lane, bytes, (1, GIGABIT / 10), 10_000);
            let carried = sent as f64 * 8.0 * (bytes + 66) as f64 / (gigabits * GIGABIT) as f64;
            // The link is ahead by AHEAD at the end, and by the packet that went beyond it.
            let last = 8.0 * (bytes + 66) as f64 / (gigabits * GIGABIT) as f64;
            let range = 0.1..=0.1 + AHEAD.as_secs_f64() + last;
            assert!(range.contains(&carried), "{gigabits} Gbit/s, {bytes}: {carried} s");
        }
    }

    #[test]
    fn a_pause_is_made_good_for_no_longer_than_the_ring() {
        let (mut lane, bytes) = (lane(10 * GIGABIT), 8972);
        let each = 8 * (bytes as u64 + 66) / 10; // nanoseconds
        send(&mut lane, bytes, (1, 1_000_000), 1_000);
        let burst = send(&mut lane, bytes, (GIGABIT, 1), 1);
        assert_eq!(burst, AHEAD.as_nanos() as u64 / each + 1);
        // A sender that comes too seldom loses what the ring does not hold.
        let seldom = send(&mut lane, bytes, (2 * GIGABIT, 10_000_000), 1_000_000);
        assert_eq!(seldom, 10 * burst);
    }

    #[test]
    fn a_lane_that_may_not_send_has_its_thread_look_again() {
        let mut lane = lane(GIGABIT);
        send(&mut lane, 8972, (1, 1), 1);
        assert!(!lane.has_room() && lane.has_work());
        lane.poll(Instant::from_nanos(GIGABIT), &mut Vec::new());
        assert!(lane.has_room() && !lane.has_work());
        lane.inner().is_full = true;
        assert!(!lane.has_room(), "the lane below has a say, too");
    }

    #[test]
    fn without_a_shape_the_lane_is_as_it_was() {
        let mut lane = ShapedLane::new(CountingLane::default(), None);
        let to = PeerAddress::Internet(([10, 0, 0, 1], 1).into());
        for _ in 0..100_000 {
            assert!(lane.has_room() && !lane.has_work());
            lane.put(to, 2, [&[1][..], &[2][..]].into_iter());
        }
        assert_eq!(lane.inner().packets, 100_000);
    }
}
