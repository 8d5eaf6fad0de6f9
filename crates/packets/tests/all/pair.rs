//! Two endpoints and the packets between them, which arrive at once or when the test wants.

use std::net::SocketAddr;
use std::time::Duration;

use contract::{Buf, ConnId, Frame, FrameHead, Instant};
use nearflash_packets::{
    AssociationId, Endpoint, Event, Packet, PacketKey, PeerAddress, ReceivedPacket, SealSettings,
    Settings,
};

/// The settings of an endpoint with small tables, so that they run full.
pub(crate) const SMALL: Settings = Settings {
    packet_bytes: 9000,
    associations_max: 8,
    paths_max: 16,
    windows_max: 8,
    channels_max: 32,
    messages_max: 128,
    pieces_max: 256,
    holds_max: 128,
    chunks_max: 64,
    ..Settings::WORKER
};

/// Returns the settings of endpoints that seal their packets, `packets_max` with each key.
pub(crate) fn sealed(packets_max: u32) -> Option<SealSettings> {
    Some(SealSettings { key: PacketKey::new([9; 32]), chance: [0; 32], packets_max })
}

/// Buffers that outlive the endpoints of a test, so that many endpoints can be made.
#[derive(Default)]
pub(crate) struct Arena {
    free: Vec<Buf>,
    made: u32,
}

impl Arena {
    pub(crate) fn take(&mut self) -> Buf {
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            Buf::new(Box::leak(vec![0; 16 << 10].into_boxed_slice()), self.made)
        })
    }

    pub(crate) fn give(&mut self, buf: Buf) {
        self.free.push(buf);
    }

    /// Returns `true` if every buffer has returned.
    pub(crate) fn is_whole(&self) -> bool {
        self.free.len() == self.made as usize
    }
}

/// A client and a server without a network between them.
pub(crate) struct Pair {
    pub now: Instant,
    pub ends: [Endpoint; 2],
    packet: Packet,
    pub association: AssociationId,
    pub conn: ConnId,
    /// The bytes of the packet that was fetched last.
    pub wire: Vec<u8>,
    /// `true` if each end answers each message with one of 4 KiB.
    pub echoes: bool,
    /// Number of messages that both ends have received.
    pub messages: u64,
}

pub(crate) fn peer_address(end: usize) -> PeerAddress {
    PeerAddress::Internet(SocketAddr::from(([10, 0, 0, end as u8], 7420)))
}

impl Pair {
    /// Returns a pair whose client has an association with the server, and a channel.
    pub(crate) fn new(settings: &Settings, arena: &mut Arena) -> Pair {
        let sealed = |chance: u8| {
            let sealed = settings.sealed.clone();
            sealed.map(|sealed| SealSettings { chance: [chance; 32], ..sealed })
        };
        let sealeds = (sealed(1), sealed(2));
        let client = Settings { accepts: false, secret: [1; 32], ..settings.clone() };
        let client = Settings { sealed: sealeds.0, ..client };
        let server = Settings { secret: [2; 32], sealed: sealeds.1, ..settings.clone() };
        let mut ends = [Endpoint::new(client), Endpoint::new(server)];
        let now = Instant::from_nanos(1_000_000_000);
        let association = ends[0].dial(now, 0, peer_address(1)).unwrap();
        let conn = ends[0].connect(association).unwrap();
        let mut pair = Pair {
            now,
            ends,
            packet: Packet::new(settings.packet_bytes),
            association,
            conn,
            wire: Vec::with_capacity(settings.packet_bytes),
            echoes: false,
            messages: 0,
        };
        pair.settle(arena);
        pair
    }

    /// Sends a message of `bytes` bytes and a head of 24 from an end.
    pub(crate) fn send(&mut self, end: usize, conn: ConnId, bytes: usize, arena: &mut Arena) {
        let mut body = arena.take();
        body.prefix_mut(bytes).fill(7);
        let head = FrameHead::new(&[5; 24]);
        let frame = Frame { head, body: Some(body), body_len: bytes };
        self.ends[end].send(conn, frame, false);
    }

    /// Fetches the next packet of an end into `wire`. Returns `false` if the end has none.
    pub(crate) fn fetch(&mut self, end: usize) -> bool {
        let endpoint = &mut self.ends[end];
        if !endpoint.transmit(self.now, &mut self.packet) {
            return false;
        }
        self.wire.clear();
        endpoint.slices(&self.packet).for_each(|part| self.wire.extend_from_slice(part));
        if let Some(lent) = self.packet.lent() {
            endpoint.gone(lent);
        }
        true
    }

    /// Hands the bytes of a packet to an end, as if they came from an address.
    pub(crate) fn hand(&mut self, end: usize, from: PeerAddress, bytes: &[u8], arena: &mut Arena) {
        let mut buf = arena.take();
        buf.prefix_mut(bytes.len()).copy_from_slice(bytes);
        self.ends[end].receive(self.now, ReceivedPacket::plain(from, buf, bytes.len()));
        self.follow(end, arena);
    }

    /// Processes the events of an end, and puts the buffers that it does not need into the arena.
    pub(crate) fn follow(&mut self, end: usize, arena: &mut Arena) {
        while let Some(event) = self.ends[end].event() {
            match event {
                Event::Received { conn, delivery } => {
                    let is_last = delivery.is_last;
                    self.ends[end].give(delivery);
                    self.messages += u64::from(is_last);
                    if is_last && self.echoes {
                        self.send(end, conn, 4096, arena);
                    }
                }
                Event::Sent { buf, .. } => arena.give(buf.expect("every message has a body").0),
                _ => {}
            }
        }
        while let Some(buf) = self.ends[end].take_back() {
            arena.give(buf);
        }
    }

    /// Carries packets until both ends have nothing to send, at most a hundred from each.
    pub(crate) fn settle(&mut self, arena: &mut Arena) {
        for _ in 0..100 {
            let mut is_quiet = true;
            for end in 0..2 {
                self.ends[end].advance(self.now);
                self.follow(end, arena);
                if self.fetch(end) {
                    is_quiet = false;
                    let wire = std::mem::take(&mut self.wire);
                    self.hand(1 - end, peer_address(end), &wire, arena);
                    self.wire = wire;
                }
            }
            self.now = self.now + Duration::from_micros(5);
            if is_quiet {
                break;
            }
        }
    }
}
