//! The lane of a host into the simulated network.

use contract::{Buf, Instant};
use packets::{Lane, PeerAddress, ReceivedPacket};

use super::air::SharedAir;

/// The lane of a process. A process that has ended neither sends nor receives.
pub(crate) struct ProcessLane {
    pub(super) air: SharedAir,
    pub(super) place: usize,
    pub(super) has_ended: bool,
}

impl ProcessLane {
    fn send(&mut self, to: PeerAddress, bytes: Vec<u8>) {
        if let (PeerAddress::Internet(to), false) = (to, self.has_ended) {
            self.air.borrow_mut().carry(self.place, to, bytes);
        }
    }
}

impl Lane for ProcessLane {
    fn poll(&mut self, _now: Instant, arrived: &mut Vec<ReceivedPacket>) -> Option<i32> {
        self.air.borrow_mut().land(self.place, !self.has_ended, arrived);
        None
    }

    fn give(&mut self, buf: Buf) {
        self.air.borrow_mut().give(self.place, buf);
    }

    fn has_room(&self) -> bool {
        true
    }

    fn put<'a>(&mut self, to: PeerAddress, bytes: usize, parts: impl Iterator<Item = &'a [u8]>) {
        let packet: Vec<u8> = parts.flatten().copied().collect();
        assert_eq!(packet.len(), bytes, "a packet has its size");
        self.send(to, packet);
    }

    fn part(&mut self, to: PeerAddress, packet: &[u8]) {
        self.send(to, packet.to_vec());
    }

    fn kick(&mut self) {}

    fn renew(&mut self, _to: PeerAddress) {}

    fn has_work(&self) -> bool {
        let air = self.air.borrow();
        air.arrives_at(self.place).is_some_and(|at| at <= air.now)
    }
}
