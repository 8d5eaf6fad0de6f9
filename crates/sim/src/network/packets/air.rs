//! The packets in transit in the simulated network, and their loss, delay and delivery.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use contract::{Buf, Instant};
use flash::Rng;
use packets::{PeerAddress, ReceivedPacket};
use wire::packets::PacketKind;

use crate::marks::{Mark, Marks};

/// Offsets in a packet by which the kernel finds the worker: of the worker's number, and of a
/// random byte in a hello.
const WORKER_AT: usize = 7;
const CHANCE_AT: usize = 49;

/// The largest packet that a narrow path carries, in bytes.
const NARROW: RangeInclusive<u64> = 1200..=1471;

/// The number of latest packets that can be repeated.
const TAPE: usize = 256;

/// The behaviour of the network of packets.
#[derive(Clone, Debug)]
pub(crate) struct PacketImpairments {
    /// The latency of a packet in nanoseconds.
    pub(crate) latency: RangeInclusive<u64>,
    /// The share of packets that take up to twenty times as long, so that others overtake them.
    pub(crate) late: f64,
    pub(crate) lost: f64,
    pub(crate) doubled: f64,
    /// The share of packets with a wrong bit or a missing end.
    pub(crate) damaged: f64,
}

/// A network of packets that several lanes share.
pub(super) type SharedAir = Rc<RefCell<Air>>;

/// A packet on its way.
#[derive(Clone)]
struct PacketInFlight {
    from: SocketAddr,
    to: usize,
    bytes: Vec<u8>,
}

/// The network card of a host, with the packets on their way to it.
struct NetworkCard {
    address: SocketAddr,
    /// The packets on their way here, by the time of their arrival.
    coming: BTreeMap<(Instant, u64), PacketInFlight>,
    /// The receive buffers that are not lent.
    bufs: Vec<Buf>,
    /// The time until which no packet comes to or leaves this card.
    dark_until: Instant,
    /// The time until which a narrow path drops large packets, and the largest size in bytes that
    /// passes.
    narrow: (Instant, usize),
}

/// The network that carries the packets of all hosts of a world.
pub(super) struct Air {
    pub(super) now: Instant,
    chance: Rng,
    impairments: PacketImpairments,
    calm: bool,
    places: Vec<NetworkCard>,
    /// The indices of the workers' cards.
    workers: Vec<usize>,
    order: u64,
    tape: VecDeque<PacketInFlight>,
    marks: Marks,
}

impl Air {
    pub(super) fn new(impairments: PacketImpairments, chance: Rng, marks: Marks) -> Air {
        Air {
            now: Instant::ZERO,
            chance,
            impairments,
            calm: false,
            places: Vec::new(),
            workers: Vec::new(),
            order: 0,
            tape: VecDeque::new(),
            marks,
        }
    }

    /// Adds a host that receives into these buffers, and returns the index of its card.
    pub(super) fn add(&mut self, address: SocketAddr, bufs: Vec<Buf>, is_worker: bool) -> usize {
        let place = self.places.len();
        if is_worker {
            self.workers.push(place);
        }
        let (dark_until, narrow) = (Instant::ZERO, (Instant::ZERO, 0));
        let coming = BTreeMap::new();
        self.places.push(NetworkCard { address, coming, bufs, dark_until, narrow });
        place
    }

    /// Returns the address of the card at an index. All workers have that of the first one.
    pub(super) fn address(&self, place: usize) -> SocketAddr {
        match self.workers.contains(&place) {
            true => self.server(),
            false => self.places[place].address,
        }
    }

    /// Returns the address of the workers.
    pub(super) fn server(&self) -> SocketAddr {
        self.places[self.workers[0]].address
    }

    /// Sends a packet, which may be lost, doubled, damaged or late on its way.
    pub(super) fn carry(&mut self, from: usize, to: SocketAddr, bytes: Vec<u8>) {
        let Some(to) = self.addressee(to, &bytes) else { return };
        let is_dark = |place: &usize| self.places[*place].dark_until > self.now;
        if [from, to].iter().any(is_dark) {
            return;
        }
        let is_narrow = |place: &usize| {
            let (until, largest) = self.places[*place].narrow;
            until > self.now && bytes.len() > largest
        };
        if [from, to].iter().any(is_narrow) {
            return self.marks.hit(Mark::PacketSwallowed);
        }
        let PacketImpairments { lost, doubled, damaged, .. } = self.impairments;
        if self.happens(lost) {
            return self.marks.hit(Mark::PacketLost);
        }
        let mut flying = PacketInFlight { from: self.address(from), to, bytes };
        self.tape.push_back(flying.clone());
        if self.tape.len() > TAPE {
            self.tape.pop_front();
        }
        if self.happens(doubled) {
            self.fly(flying.clone());
        }
        if self.happens(damaged) {
            self.marks.hit(Mark::PacketDamaged);
            let at = self.chance.within(0..=flying.bytes.len() as u64 - 1) as usize;
            match self.chance.happens(0.5) {
                true => flying.bytes[at] ^= 1 << self.chance.within(0..=7),
                false => flying.bytes.truncate(at),
            }
        }
        self.fly(flying);
    }

    /// Puts a packet on its way.
    fn fly(&mut self, flying: PacketInFlight) {
        let nanos = self.chance.within(self.impairments.latency.clone());
        let late = self.impairments.late;
        let factor = if self.happens(late) { self.chance.within(2..=20) } else { 1 };
        self.order += 1;
        let at = self.now + Duration::from_nanos(nanos * factor);
        self.places[flying.to].coming.insert((at, self.order), flying);
    }

    /// Returns the index of the card that a packet goes to; `None` if no card has its address.
    fn addressee(&self, to: SocketAddr, bytes: &[u8]) -> Option<usize> {
        if to != self.server() {
            return self.places.iter().position(|place| place.address == to);
        }
        let is_hello = bytes.first()? & 15 == PacketKind::HELLO.0;
        let byte = *bytes.get(if is_hello { CHANCE_AT } else { WORKER_AT })?;
        Some(self.workers[usize::from(byte) % self.workers.len()])
    }

    fn happens(&mut self, share: f64) -> bool {
        !self.calm && self.chance.happens(share)
    }

    /// Moves the packets that have arrived at a card to the end of `arrived`. Packets without a
    /// buffer are dropped, as by a network card. All packets are dropped unless a process `listens`
    /// at the card.
    pub(super) fn land(&mut self, place: usize, listens: bool, arrived: &mut Vec<ReceivedPacket>) {
        let NetworkCard { coming, bufs, .. } = &mut self.places[place];
        while let Some(first) = coming.first_entry()
            && first.key().0 <= self.now
        {
            let PacketInFlight { from, bytes, .. } = first.remove();
            let fits = |buf: &mut Buf| listens && bytes.len() <= buf.capacity();
            let Some(mut buf) = bufs.pop_if(fits) else { continue };
            buf.prefix_mut(bytes.len()).copy_from_slice(&bytes);
            arrived.push(ReceivedPacket::plain(PeerAddress::Internet(from), buf, bytes.len()));
        }
    }

    /// Takes a lent receive buffer of a card back.
    pub(super) fn give(&mut self, place: usize, buf: Buf) {
        self.places[place].bufs.push(buf);
    }

    /// Returns the time at which the next packet arrives at a card; `None` if none is on its way.
    pub(super) fn arrives_at(&self, place: usize) -> Option<Instant> {
        self.places[place].coming.keys().next().map(|(at, _)| *at)
    }

    /// Adds a random fault: a silent card, a narrow path, or a repetition of old packets.
    pub(super) fn strike(&mut self) {
        let place = self.chance.within(0..=self.places.len() as u64 - 1) as usize;
        let lasts = [30, 300, 3_000, 8_000][self.chance.within(0..=3) as usize];
        let until = self.now + Duration::from_millis(self.chance.within(1..=lasts));
        match self.chance.within(0..=3) {
            0 => {
                self.marks.hit(Mark::PacketsDark);
                self.places[place].dark_until = until;
            }
            1 => {
                let largest = self.chance.within(NARROW) as usize;
                self.places[place].narrow = (until, largest);
            }
            _ => {
                self.marks.hit(Mark::PacketsReplayed);
                let tape: Vec<PacketInFlight> = self.tape.iter().cloned().collect();
                tape.into_iter().for_each(|flying| self.fly(flying));
            }
        }
    }

    /// Ends all faults of cards and paths, and adds no more.
    pub(super) fn calm_down(&mut self) {
        self.calm = true;
        for place in &mut self.places {
            (place.dark_until, place.narrow.0) = (Instant::ZERO, Instant::ZERO);
        }
    }

    /// Takes the buffers of every host, at the end of the world.
    pub(super) fn take_buffers(&mut self) -> Vec<Buf> {
        self.places.iter_mut().flat_map(|place| std::mem::take(&mut place.bufs)).collect()
    }
}
