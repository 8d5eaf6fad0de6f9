//! A network of endpoints in virtual time. Each node has an incoming port for each lane, with a
//! rate, a queue and a delay.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;
use std::vec::Vec;

use contract::{Buf, Instant};

use super::key_randomness::Chance;
use crate::{Endpoint, Event, Packet, PeerAddress, ReceivedPacket, SealSettings, Settings};

/// The chances of damage that the network does to a packet, in parts of 1000.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Impairments {
    pub loss: u32,
    pub duplicate: u32,
    pub reorder: u32,
    pub corrupt: u32,
    pub truncate: u32,
}

/// The UDP port of a node, unless a translator gives it another one.
const UDP: u16 = 7420;

/// The incoming port of a node for one lane.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    /// Bytes a second that the link carries.
    pub rate: u64,
    pub queue_bytes: u64,
    /// The delay of packets to the node.
    pub delay: Duration,
    /// The size in bytes of the largest packet that the port passes; larger ones are dropped.
    pub largest: usize,
    /// `true` if the link loses every packet.
    pub is_cut: bool,
    /// The length of the queue in bytes above which packets are marked for congestion.
    pub mark_bytes: u64,
    pub busy_until: Instant,
    /// Number of bytes that the port carried since the last reading.
    pub carried: u64,
    /// The longest queue in bytes since the last reading.
    pub queued_most: u64,
    pub dropped: u64,
}

impl Port {
    /// A port of 10 Gbit/s with a delay of 10 µs and a queue of a megabyte.
    pub(crate) const FAST: Port = Port {
        rate: 1_250_000_000,
        queue_bytes: 1 << 20,
        delay: Duration::from_micros(10),
        largest: 1 << 16,
        is_cut: false,
        mark_bytes: u64::MAX,
        busy_until: Instant::ZERO,
        carried: 0,
        queued_most: 0,
        dropped: 0,
    };

    /// Queues a packet. Returns the time of its delivery, and `true` if it was marked for
    /// congestion; `None` if it is dropped.
    fn take(&mut self, now: Instant, bytes: usize) -> Option<(Instant, bool)> {
        let waits = (self.busy_until - now).as_nanos() as u64;
        let queued = waits * self.rate / 1_000_000_000;
        let bytes = bytes as u64;
        if self.is_cut || bytes > self.largest as u64 || queued + bytes > self.queue_bytes {
            self.dropped += 1;
            return None;
        }
        self.queued_most = self.queued_most.max(queued);
        let takes = Duration::from_nanos(bytes * 1_000_000_000 / self.rate);
        self.busy_until = self.busy_until.max(now) + takes;
        self.carried += bytes;
        Some((self.busy_until + self.delay, queued > self.mark_bytes))
    }
}

/// A packet on its way to a node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PacketInFlight {
    pub at: Instant,
    pub order: u64,
    pub to: usize,
    pub lane: u8,
    pub from: usize,
    pub bytes: Vec<u8>,
    pub is_marked: bool,
}

/// An endpoint, its ports and its receive buffers.
pub(crate) struct Node {
    pub endpoint: Endpoint,
    packet: Packet,
    pub ports: Vec<Port>,
    /// The UDP port by which others know the node: a translator of addresses may change it.
    pub udp: u16,
    free: Vec<Buf>,
    bufs: usize,
}

/// The nodes and the packets between them.
pub(crate) struct World {
    pub now: Instant,
    pub nodes: Vec<Node>,
    pub air: BinaryHeap<Reverse<PacketInFlight>>,
    pub chance: Chance,
    pub impairments: Impairments,
    order: u64,
    chunk_bytes: usize,
    /// Every packet that was sent while `is_taped` was set, for tests that replay packets.
    pub tape: Vec<PacketInFlight>,
    pub is_taped: bool,
    pub steps: u64,
    /// Number of bytes that were sent to addresses where nobody is.
    pub lost_bytes: usize,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        World {
            now: Instant::from_nanos(1_000_000_000),
            nodes: Vec::new(),
            air: BinaryHeap::new(),
            chance: Chance(seed),
            impairments: Impairments::default(),
            order: 0,
            chunk_bytes: 0,
            tape: Vec::new(),
            is_taped: false,
            steps: 0,
            lost_bytes: 0,
        }
    }

    /// Adds a node and returns its index. The node's receive buffers come from `arena` and return
    /// there at the end.
    pub(crate) fn add(&mut self, settings: Settings, ports: Vec<Port>, arena: &mut Arena) -> usize {
        let settings = Settings { secret: [self.chance.next() as u8; 32], ..settings };
        let sealed = settings.sealed.clone();
        let sealed = sealed.map(|of| SealSettings { chance: [self.chance.next() as u8; 32], ..of });
        let settings = Settings { sealed, ..settings };
        self.chunk_bytes = self.chunk_bytes.max(settings.packet_bytes);
        let bufs = settings.chunks_max + 1;
        self.nodes.push(Node {
            packet: Packet::new(settings.packet_bytes),
            ports,
            udp: UDP,
            free: (0..bufs).map(|_| arena.take(settings.packet_bytes)).collect(),
            bufs,
            endpoint: Endpoint::new(settings),
        });
        self.nodes.len() - 1
    }

    /// Returns the address of a node on a lane.
    pub(crate) fn peer_address(node: usize, lane: u8) -> PeerAddress {
        PeerAddress::Internet(core::net::SocketAddr::from(([10, 0, lane, node as u8], UDP)))
    }

    fn node_of(peer_address: &PeerAddress) -> usize {
        match peer_address {
            PeerAddress::Internet(core::net::SocketAddr::V4(v4)) => v4.ip().octets()[3].into(),
            _ => panic!("a peer_address of this world"),
        }
    }

    /// Runs the world up to time `until`. `act` gets each event, with its endpoint and node.
    pub(crate) fn run(&mut self, until: Instant, mut act: impl FnMut(&mut Endpoint, usize, Event)) {
        loop {
            for node in 0..self.nodes.len() {
                self.pump(node, &mut act);
            }
            let wakes = self.nodes.iter().filter_map(|node| node.endpoint.wake_at());
            let lands = self.air.peek().map(|flying| flying.0.at);
            let Some(next) = wakes.chain(lands).min().filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(next);
            self.steps += 1;
            assert!(self.steps < 50_000_000, "the world goes on and on");
            while self.air.peek().is_some_and(|flying| flying.0.at <= self.now) {
                let flying = self.air.pop().unwrap().0;
                self.land(flying);
            }
        }
    }

    fn pump(&mut self, node: usize, act: &mut impl FnMut(&mut Endpoint, usize, Event)) {
        let now = self.now;
        self.nodes[node].endpoint.advance(now);
        loop {
            let this = &mut self.nodes[node];
            while let Some(event) = this.endpoint.event() {
                act(&mut this.endpoint, node, event);
            }
            this.free.extend(core::iter::from_fn(|| this.endpoint.take_back()));
            if !this.endpoint.transmit(now, &mut this.packet) {
                // The end of an association is an event of a transmit.
                let Some(event) = this.endpoint.event() else { break };
                act(&mut this.endpoint, node, event);
                continue;
            }
            let bytes = this.endpoint.slices(&this.packet).collect::<Vec<_>>().concat();
            assert_eq!(bytes.len(), this.packet.len());
            let (lane, peer_address) = (this.packet.lane, this.packet.to);
            if let Some(lent) = this.packet.lent() {
                this.endpoint.gone(lent);
            }
            let to = World::node_of(&peer_address);
            // Behind a translator nobody has a port that it has forgotten.
            match peer_address == self.outside(to, lane) {
                true => self.send(node, to, lane, bytes),
                false => self.lost_bytes += bytes.len(),
            }
        }
    }

    /// Sends a packet to the port of a node. The simulated network (its impairments) may lose,
    /// repeat, delay or damage the packet.
    pub(crate) fn send(&mut self, from: usize, to: usize, lane: u8, mut bytes: Vec<u8>) {
        let Impairments { loss, duplicate, reorder, corrupt, truncate } = self.impairments;
        if self.chance.per_mille(loss) {
            return;
        }
        let port = &mut self.nodes[to].ports[usize::from(lane)];
        let Some((mut at, is_marked)) = port.take(self.now, bytes.len()) else { return };
        if self.chance.per_mille(reorder) {
            at = at + Duration::from_micros(self.chance.next() % 400);
        }
        let copies = if self.chance.per_mille(duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let mut copy = bytes.clone();
            if self.chance.per_mille(corrupt) {
                let at = self.chance.below(copy.len());
                copy[at] ^= 1 << self.chance.below(8);
            }
            if self.chance.per_mille(truncate) {
                copy.truncate(self.chance.below(copy.len()));
            }
            self.order += 1;
            let flying =
                PacketInFlight { at, order: self.order, to, lane, from, bytes: copy, is_marked };
            if self.is_taped {
                self.tape.push(flying.clone());
            }
            self.air.push(Reverse(flying));
            at = at + Duration::from_micros(self.chance.next() % 100);
        }
        bytes.clear();
    }

    /// Delivers a packet to its node. Without a free receive buffer the packet is dropped, as by a
    /// network card.
    pub(crate) fn land(&mut self, flying: PacketInFlight) {
        let from = self.outside(flying.from, flying.lane);
        self.land_from(flying, from);
    }

    /// Returns the address by which others know a node on a lane.
    fn outside(&self, node: usize, lane: u8) -> PeerAddress {
        let PeerAddress::Internet(mut address) = World::peer_address(node, lane) else {
            panic!("a peer_address of this world")
        };
        address.set_port(self.nodes[node].udp);
        PeerAddress::Internet(address)
    }

    /// Delivers a packet to its node, as if it came from the address `from`.
    pub(crate) fn land_from(&mut self, flying: PacketInFlight, from: PeerAddress) {
        let node = &mut self.nodes[flying.to];
        let Some(mut buf) = node.free.pop() else { return };
        buf.prefix_mut(flying.bytes.len()).copy_from_slice(&flying.bytes);
        let PacketInFlight { lane, is_marked, bytes, .. } = flying;
        let arrived =
            ReceivedPacket { lane, is_marked, ..ReceivedPacket::plain(from, buf, bytes.len()) };
        node.endpoint.receive(self.now, arrived);
        node.free.extend(core::iter::from_fn(|| node.endpoint.take_back()));
    }

    /// Asserts that every endpoint is at rest and has returned its receive buffers, and gives these
    /// to `arena`.
    pub(crate) fn end(mut self, arena: &mut Arena) {
        for (n, node) in self.nodes.iter_mut().enumerate() {
            node.free.extend(core::iter::from_fn(|| node.endpoint.take_back()));
            assert!(node.endpoint.is_at_rest(), "node {n} is at rest");
            assert_eq!(node.free.len(), node.bufs, "the chunks of node {n} are whole");
            arena.free.append(&mut node.free);
        }
    }
}

/// A stock of buffers for all worlds of a test, made as they are needed.
pub(crate) struct Arena {
    free: Vec<Buf>,
    bytes: usize,
    pub made: u32,
}

impl Arena {
    /// Returns an arena of buffers of `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Arena {
        Arena { free: Vec::new(), bytes, made: 0 }
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Buf {
        assert!(bytes <= self.bytes);
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            let memory = std::vec![0; self.bytes].into_boxed_slice();
            Buf::new(std::boxed::Box::leak(memory), self.made)
        })
    }

    pub(crate) fn give(&mut self, buf: Buf) {
        self.free.push(buf);
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }
}
