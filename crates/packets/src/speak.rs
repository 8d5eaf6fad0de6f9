//! The packets that an association sends: packets with records, probes of paths, and bare
//! acknowledgements.

use core::time::Duration;

use contract::Instant;
use wire::packets::{PacketKind, ProbeBody};
use zerocopy::IntoBytes;

use crate::association::Association;
use crate::head::Head;
use crate::pack::Load;
use crate::packet::Packet;
use crate::path::Path;
use crate::pools::Pools;
use crate::sent::Fate;
use crate::slab::Queue;

impl Association {
    /// Writes the next packet of the association. Returns `false` if there is nothing to send now.
    pub(crate) fn transmit(
        &mut self,
        pools: &mut Pools,
        now: Instant,
        credits: u16,
        packet: &mut Packet,
    ) -> bool {
        if let Some((path, load)) = self.choose(pools, now) {
            let Path { lane, to, bytes, .. } = pools.paths[path];
            packet.begin(lane, to, usize::from(bytes));
            let pieces = self.words.fill(pools, packet, load);
            if !packet.is_bare() {
                self.launch(pools, now, (path, credits), packet, pieces);
                // Another path is asked as well: is the peer silent, or the path?
                self.words.pings |= load == Load::Ping;
                return true;
            }
        }
        if self.prove(pools, now, credits, packet) {
            return true;
        }
        let owing = self.paths().find(|path| pools.paths[*path].receipt.owes(now));
        let Some(path) = owing else { return false };
        let Path { lane, to, .. } = pools.paths[path];
        packet.begin(lane, to, usize::from(self.packet_bytes));
        self.finish(pools, now, (path, credits), packet, (PacketKind::DATA, false));
        true
    }

    /// Returns the path for the next packet with records, and the load of the packet. A path that has
    /// to be probed comes first: it gets a ping if another path answers, and messages otherwise. Then
    /// comes the path that would deliver the packet first. Returns `None` if no path may send, or
    /// nothing waits.
    fn choose(&mut self, pools: &mut Pools, now: Instant) -> Option<(u32, Load)> {
        if let Some(path) = self.paths().find(|path| pools.paths[*path].flight.probes_now) {
            let answers = |other: u32| other != path && pools.paths[other].answers();
            let may_wait = self.paths().any(answers) && pools.pieces.free() > 0;
            let load = if may_wait { Load::Ping } else { Load::Any };
            self.words.pings |= load == Load::Ping || !self.words.are_any();
            if self.is_free(pools, path) {
                return Some((path, load));
            }
            if load == Load::Any {
                return None;
            }
        }
        if !self.words.are_any() || self.is_spent(pools) {
            return None;
        }
        self.fastest(pools, now).map(|path| (path, Load::Any))
    }

    /// Returns `true` if the credits are used up. Packets of silent paths do not count while another
    /// path answers: their pieces would wait for credits, and the silent paths for news of the peer.
    fn is_spent(&self, pools: &Pools) -> bool {
        if self.in_flight < self.credits {
            return false;
        }
        let (mut answering, mut counted) = (false, 0);
        for path in self.paths().map(|path| &pools.paths[path]).filter(|path| path.answers()) {
            (answering, counted) = (true, counted + path.flight.packets);
        }
        !answering || counted >= self.credits
    }

    /// Returns the path that would deliver a full packet first, of those with room for one. Paths
    /// that leave a probe unanswered are left out while another path answers.
    fn fastest(&self, pools: &mut Pools, now: Instant) -> Option<u32> {
        let mut best: Option<(Duration, u32)> = None;
        let (mut has_answering, mut is_best_answering) = (false, false);
        for place in self.paths() {
            let path = &pools.paths[place];
            let (bytes, answers) = (u32::from(path.bytes), path.answers());
            has_answering |= answers;
            let may = path.is_proven && path.paced_until <= now && path.has_room(bytes);
            if may && (answers || !has_answering) && self.is_free(pools, place) {
                let delivery = pools.paths[place].delivery(bytes);
                if answers > is_best_answering || best.is_none_or(|(least, _)| delivery < least) {
                    (best, is_best_answering) = (Some((delivery, place)), answers);
                }
            }
        }
        best.filter(|_| is_best_answering || !has_answering).map(|(_, path)| path)
    }

    /// Returns `true` if a path has a sent window, and its place for the next packet is free.
    fn is_free(&self, pools: &mut Pools, path: u32) -> bool {
        if !pools.arm(path) {
            return false;
        }
        let path = &pools.paths[path];
        pools.windows[path.flight.window].evicted(path.flight.next).fate != Fate::InFlight
    }

    /// Finishes a packet with records, notes it as in flight, and may ask for an acknowledgement.
    fn launch(
        &mut self,
        pools: &mut Pools,
        now: Instant,
        (place, credits): (u32, u16),
        packet: &mut Packet,
        pieces: Queue,
    ) {
        let path = &mut pools.paths[place];
        let number = path.flight.next;
        let bytes = packet.len() as u32;
        let was_probe = core::mem::take(&mut path.flight.probes_now);
        path.flight.bytes += bytes;
        path.flight.packets += 1;
        self.in_flight += 1;
        path.flight.asked_at = now;
        path.paced_until = match path.control.pause(bytes, path.rtt.smoothed()) {
            Some(pause) => now + pause,
            None => now,
        };
        let was_limited = 2 * path.flight.bytes >= path.control.window();
        let window = &mut pools.windows[path.flight.window];
        window.note(number, now, packet.len(), pieces, was_limited);
        self.waits_since.get_or_insert(now);
        // The last packet that may go asks for an answer at once.
        let is_last = self.in_flight >= self.credits || !path.has_room(u32::from(path.bytes));
        let kind = (PacketKind::DATA, was_probe || is_last);
        self.finish(pools, now, (place, credits), packet, kind);
    }

    /// Gives a packet its number, and writes its head and checksum.
    pub(crate) fn finish(
        &mut self,
        pools: &mut Pools,
        now: Instant,
        (place, credits): (u32, u16),
        packet: &mut Packet,
        (kind, ack_now): (PacketKind, bool),
    ) {
        let path = &mut pools.paths[place];
        let number = path.flight.next;
        path.flight.next += 1;
        let head = Head {
            kind,
            ack_now,
            echo: core::mem::take(&mut path.receipt.echo),
            bytes: 0,
            association: self.peer_place,
            cookie: self.peer_cookie,
            number: number as u32,
            ack: path.receipt.report(now),
            credits,
            mark: None,
        };
        (packet.path, packet.number) = (path.id, number);
        packet.finish(head, &pools.messages);
        pools.counters.sent += 1;
    }

    /// Writes a path probe, or the answer to one, that is due. Returns `false` if none is.
    pub(crate) fn prove(
        &mut self,
        pools: &mut Pools,
        now: Instant,
        credits: u16,
        packet: &mut Packet,
    ) -> bool {
        let due = |path: &u32| pools.paths[*path].proof.is_due(now);
        let Some(place) = self.paths().find(due) else { return false };
        let path = &mut pools.paths[place];
        let echo = core::mem::take(&mut path.proof.echo);
        // The peer's probe is answered by a small packet: the way back may carry less.
        let asks = path.proof.asks(now) && (echo == 0 || !path.is_proven);
        let challenge = if asks { path.proof.challenge } else { 0 };
        packet.begin(path.lane, path.to, usize::from(self.packet_bytes));
        let body = ProbeBody { challenge: challenge.into(), echo: echo.into() };
        packet.append(body.as_bytes());
        if asks {
            packet.pad(usize::from(path.proof.size().min(self.packet_bytes)));
            path.proof.retry(now, path.is_proven && path.flight.probes > 0);
        }
        self.finish(pools, now, (place, credits), packet, (PacketKind::PROBE, false));
        true
    }
}
