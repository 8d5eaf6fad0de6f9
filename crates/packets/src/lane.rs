//! The port to a carrier of packets: a UDP socket, a network card, or a simulated network.

use alloc::vec::Vec;

use contract::{Buf, Instant};

use crate::endpoint::ReceivedPacket;
use crate::peer_address::PeerAddress;

/// A carrier of packets to and from addresses (addresses). Packets may be lost, repeated and
/// reordered.
///
/// The methods only queue work or drain inboxes, as those of [`Streams`](contract::Streams).
pub trait Lane {
    /// Moves the packets that arrived to the end of `arrived`; a turn begins with it, at `now`.
    /// Returns the system's error number if the network reports that the dialled address does not
    /// receive.
    fn poll(&mut self, now: Instant, arrived: &mut Vec<ReceivedPacket>) -> Option<i32>;

    /// Returns a packet's lent buffer to the lane.
    fn give(&mut self, buf: Buf);

    /// Returns `true` if [`put`](Lane::put) accepts a packet now.
    fn has_room(&self) -> bool;

    /// Queues a packet of `bytes` bytes. Its parts are copied.
    fn put<'a>(&mut self, to: PeerAddress, bytes: usize, parts: impl Iterator<Item = &'a [u8]>);

    /// Sends a packet at once if that is possible without waiting, for an endpoint whose thread
    /// runs no further turns.
    fn part(&mut self, to: PeerAddress, packet: &[u8]);

    /// Starts to send the queued packets.
    fn kick(&mut self);

    /// Prepares for a new association with the dialled address, whose route may have changed. No
    /// association exists at the time.
    fn renew(&mut self, to: PeerAddress);

    /// Returns `true` if [`poll`](Lane::poll) would find something now.
    fn has_work(&self) -> bool;
}
