//! Packets in place of streams: the real endpoints of `packets` over a simulated network, which
//! loses, repeats, delays, damages and swallows packets.
//!
//! All workers have one address. What comes there goes to the worker that the kernel would choose
//! (docs/adr/0027-packets-to-workers.md).

mod air;
mod port;
mod wire;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use contract::{Buf, Instant};
use flash::Rng;
use packets::{PacketKey, SealSettings, Settings, TransportSettings};

pub(crate) use self::air::PacketImpairments;
use self::air::{Air, SharedAir};
pub(crate) use self::port::PacketPort;
use super::host::HostSizes;
use crate::arena::Arena;
use crate::marks::Marks;

/// The network of packets of a world, and the ends of its hosts.
pub(crate) struct PacketNetwork {
    air: SharedAir,
    ends: Vec<PacketPort>,
    chance: Rng,
    /// The key of all hosts, which seals the packets in every second network; `None` in the others.
    sealed: Option<SealSettings>,
}

impl PacketNetwork {
    pub(crate) fn new(impairments: PacketImpairments, seed: u64, marks: Marks) -> PacketNetwork {
        let air = Rc::new(RefCell::new(Air::new(impairments, Rng::new(seed), marks)));
        let mut key = Rng::new(seed ^ 0x5ea1);
        let packets_max = [50, 5_000][key.within(0..=1) as usize];
        let of_key = || PacketKey::new([9; 32]);
        let sealed = key.happens(0.5);
        let sealed = sealed.then(|| SealSettings { key: of_key(), chance: [0; 32], packets_max });
        PacketNetwork { air, ends: Vec::new(), chance: Rng::new(seed ^ 0x5ec7), sealed }
    }

    /// Adds a host, whose user gets received bytes in `buffers`. `worker` is the place among
    /// `workers` of a worker, and `None` for a client.
    pub(crate) fn add(
        &mut self,
        address: SocketAddr,
        sizes: HostSizes,
        buffers: Vec<Buf>,
        worker: Option<(usize, usize)>,
        arena: &mut Arena,
    ) -> PacketPort {
        let packet_bytes = [1200, 1400, 1472, 8972][self.chance.within(0..=3) as usize];
        let chunks_max = [8, 32, 64][self.chance.within(0..=2) as usize];
        let (place, workers) = worker.unwrap_or((0, 1));
        let channels_max = 2 * sizes.connections_max.min(64);
        let endpoint = Settings {
            secret: [0; 32],
            sealed: self.sealed.clone(),
            worker: place as u8,
            workers: workers as u8,
            accepts: worker.is_some(),
            packet_bytes,
            associations_max: 128,
            paths_max: 128,
            windows_max: 32,
            channels_max,
            messages_max: 2 * sizes.frames_max.min(512) + 2 * channels_max,
            pieces_max: 1024,
            holds_max: 256,
            chunks_max,
            ..Settings::CLIENT
        };
        let connections_max = sizes.connections_max.min(64);
        let settings = TransportSettings { endpoint, connections_max, first: 0 };
        // One packet more than can be held is received, so that its head counts.
        let bufs = (0..chunks_max + 4).map(|n| arena.take(packet_bytes, n as u32)).collect();
        let at = self.air.borrow_mut().add(address, bufs, worker.is_some());
        let secrets = Rng::new(self.chance.number());
        let port = PacketPort::new(self.air.clone(), at, settings, secrets, buffers);
        self.ends.push(port.clone());
        port
    }

    /// Sets the time that the network and its endpoints see.
    pub(crate) fn settle(&mut self, now: Instant) {
        self.air.borrow_mut().now = now;
    }

    /// Injects a random fault: silences a host, limits a path to small packets, or repeats old
    /// packets.
    pub(crate) fn strike(&mut self, now: Instant) {
        self.settle(now);
        self.air.borrow_mut().strike();
    }

    /// Adds no more faults, and ends those of paths.
    pub(crate) fn calm_down(&mut self) {
        self.air.borrow_mut().calm_down();
    }

    /// Takes all buffers, at the end of the world.
    pub(crate) fn take_buffers(&mut self) -> Vec<Buf> {
        let of_ends = self.ends.iter_mut().flat_map(PacketPort::take_buffers);
        let mut bufs: Vec<Buf> = of_ends.collect();
        bufs.extend(self.air.borrow_mut().take_buffers());
        bufs
    }
}
