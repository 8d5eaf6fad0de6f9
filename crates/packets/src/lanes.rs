//! The lanes of a transport, by their numbers.
//!
//! The number of a received buffer tells its lane, so that the buffer returns there.

use alloc::vec::Vec;

use contract::{Buf, Instant, LaneReading};

use crate::endpoint::ReceivedPacket;
use crate::lane::Lane;
use crate::packet::Packet;
use crate::settings::LANES_MAX;

/// The bit position of the lane's number in a buffer's number. The bits below number the lane's
/// buffers.
const LANE_BIT: u32 = 24;

/// The lanes of a transport, at most [`LANES_MAX`], and the counts of the packets of each.
pub(crate) struct Lanes<L> {
    lanes: Vec<L>,
    carried: [LaneReading; LANES_MAX],
}

impl<L: Lane> Lanes<L> {
    /// Creates the set of lanes. A lane's index is its number.
    ///
    /// # Panics
    /// Panics if there is no lane, or there are more than [`LANES_MAX`].
    pub(crate) fn new(mut lanes: Vec<L>) -> Lanes<L> {
        assert!((1..=LANES_MAX).contains(&lanes.len()), "{} lanes", lanes.len());
        lanes.reserve_exact(LANES_MAX - lanes.len());
        Lanes { lanes, carried: [LaneReading::default(); LANES_MAX] }
    }

    pub(crate) fn count(&self) -> usize {
        self.lanes.len()
    }

    /// Adds a lane with the next number. Does nothing if there are [`LANES_MAX`].
    pub(crate) fn add(&mut self, lane: L) {
        if self.lanes.len() < LANES_MAX {
            self.lanes.push(lane);
        }
    }

    /// Returns all lanes.
    pub(crate) fn all(&mut self) -> &mut [L] {
        &mut self.lanes
    }

    /// Returns the number of packets that each lane has received and sent.
    pub(crate) fn carried(&self) -> [LaneReading; LANES_MAX] {
        self.carried
    }

    /// Moves the packets that arrived to the end of `arrived`. Returns the system's error number if
    /// the network reports that nobody receives at the address that the first lane has dialled.
    pub(crate) fn poll(&mut self, now: Instant, arrived: &mut Vec<ReceivedPacket>) -> Option<i32> {
        let mut refusal = None;
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let before = arrived.len();
            let refused = lane.poll(now, arrived);
            self.carried[number].received += (arrived.len() - before) as u64;
            if number == 0 {
                refusal = refused;
                continue;
            }
            for one in &mut arrived[before..] {
                one.lane = number as u8;
                renumber(&mut one.buf, |index| index | (number as u32) << LANE_BIT);
            }
        }
        refusal
    }

    /// Returns a packet's lent buffer to its lane.
    pub(crate) fn give(&mut self, mut buf: Buf) {
        let number = buf.index() >> LANE_BIT;
        if number > 0 {
            renumber(&mut buf, |index| index & ((1 << LANE_BIT) - 1));
        }
        self.lanes[number as usize].give(buf);
    }

    /// Returns the lanes that accept a packet now: bit n is set if lane n does.
    pub(crate) fn room(&self) -> u8 {
        let room = |(number, lane): (usize, &L)| u8::from(lane.has_room()) << number;
        self.lanes.iter().enumerate().map(room).sum()
    }

    /// Queues a packet at its lane. Its parts are copied. A packet counts as lost if its lane has
    /// no room, or there is no such lane.
    pub(crate) fn put<'a>(&mut self, packet: &Packet, parts: impl Iterator<Item = &'a [u8]>) {
        let number = usize::from(packet.lane);
        let Some(lane) = self.lanes.get_mut(number).filter(|lane| lane.has_room()) else { return };
        self.carried[number].sent += 1;
        lane.put(packet.to, packet.len(), parts);
    }

    /// Starts to send the queued packets.
    pub(crate) fn kick(&mut self) {
        self.lanes.iter_mut().for_each(Lane::kick);
    }

    /// Returns `true` if [`poll`](Lanes::poll) would find something now.
    pub(crate) fn has_work(&self) -> bool {
        self.lanes.iter().any(Lane::has_work)
    }
}

/// Replaces the number of a buffer.
fn renumber(buf: &mut Buf, number: impl Fn(u32) -> u32) {
    let whole = core::mem::replace(buf, Buf::new(&mut [], 0));
    let index = number(whole.index());
    *buf = Buf::new(whole.into_bytes(), index);
}
