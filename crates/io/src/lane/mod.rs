//! Lanes of packets: a UDP socket, a packet socket of an Ethernet card, or an AF_XDP socket of one.

mod block;
mod kind;
pub(crate) mod open;
mod socket;
mod trial;
pub(crate) mod xdp;

use contract::{Buf, Instant};
use packets::{Lane, PeerAddress, ReceivedPacket};

pub(crate) use self::kind::SocketKind;
pub(crate) use self::socket::{LaneSizes, SocketLane};
pub(crate) use self::trial::EmulatedLink;
pub(crate) use self::xdp::{CHUNK_BYTES, CardSocket, HEAD_BYTES, RECEIVED_MAX, XdpLane};

/// A lane of any kind.
#[allow(clippy::large_enum_variant, reason = "there is one in a thread")]
pub(crate) enum AnyLane {
    /// Over a socket of UDP, or a packet socket.
    Socket(SocketLane),
    /// Over an AF_XDP socket.
    Xdp(XdpLane),
}

contract::variants!(each, AnyLane: Socket, Xdp);

impl AnyLane {
    /// Stops receiving: from now on, packets are for another process.
    pub(crate) fn cease(&mut self) {
        each!(self, lane => lane.cease())
    }

    /// Takes back a lane that was never used: its number can be given to another lane.
    pub(crate) fn withdraw(self) {
        match self {
            AnyLane::Socket(lane) => lane.withdraw(),
            // The card goes with its socket. The kernel may still use the memory, which stays.
            AnyLane::Xdp(lane) => drop(lane),
        }
    }
}

impl Lane for AnyLane {
    fn poll(&mut self, now: Instant, arrived: &mut Vec<ReceivedPacket>) -> Option<i32> {
        each!(self, lane => lane.poll(now, arrived))
    }

    fn give(&mut self, buf: Buf) {
        each!(self, lane => lane.give(buf))
    }

    fn has_room(&self) -> bool {
        each!(self, lane => lane.has_room())
    }

    fn put<'a>(&mut self, to: PeerAddress, bytes: usize, parts: impl Iterator<Item = &'a [u8]>) {
        each!(self, lane => lane.put(to, bytes, parts))
    }

    fn part(&mut self, to: PeerAddress, packet: &[u8]) {
        each!(self, lane => lane.part(to, packet))
    }

    fn kick(&mut self) {
        each!(self, lane => lane.kick())
    }

    fn renew(&mut self, to: PeerAddress) {
        each!(self, lane => lane.renew(to))
    }

    fn has_work(&self) -> bool {
        each!(self, lane => lane.has_work())
    }
}
