//! The packets that an association sends: packets with records, probes of paths, and bare
//! acknowledgements.

use contract::Instant;
use wire::packets::{PacketKind, ProbeBody};
use zerocopy::IntoBytes;

use crate::association::Association;
use crate::choose::choose;
use crate::head::ParsedHead;
use crate::pack::AllowedRecords;
use crate::packet::Packet;
use crate::path::Path;
use crate::pools::Pools;
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
        if let Some((path, load)) = choose(self, pools, now) {
            let Path { lane, to, bytes, .. } = pools.paths[path];
            packet.begin(lane, to, usize::from(bytes));
            let pieces = self.words.fill(pools, packet, load);
            if !packet.is_bare() {
                self.launch(pools, now, (path, credits), packet, pieces);
                // Another path is asked as well: is the peer silent, or the path?
                self.words.pings |= load == AllowedRecords::Ping;
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
        let head = ParsedHead {
            kind,
            ack_now,
            echo: core::mem::take(&mut path.receipt.echo),
            bytes: 0,
            association: self.peer.place,
            cookie: self.peer.cookie,
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
        if echo != 0 && path.is_proven && !self.words.is_initiator {
            let others = pools.gate.peer_addresses.iter().flatten();
            let own = pools.gate.peer_addresses.get(usize::from(path.lane)).copied().flatten();
            for peer_address in others.filter(|peer_address| Some(**peer_address) != own) {
                packet.append(peer_address.body().as_bytes());
            }
        }
        if asks {
            packet.pad(usize::from(path.proof.size().min(self.packet_bytes)));
            path.proof.retry(now, path.is_proven && path.flight.probes > 0);
        }
        self.finish(pools, now, (place, credits), packet, (PacketKind::PROBE, false));
        true
    }
}
