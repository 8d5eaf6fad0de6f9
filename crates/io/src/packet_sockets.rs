//! Streams and packets of one thread as one network: connections over packets beside those over TCP
//! and Unix sockets. A server without a listener of packets uses [`Sockets`] alone.
//!
//! A connection's index shows whether it is a stream or goes over packets, and so does a buffer's
//! number.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use contract::{
    Buf, CloseReason, ConnId, Dial, EtherAddress, EtherCard, EtherVia, Frame, Instant, ListenerId,
    Migrate, NetEvent, SizeClass, Streams, TenantId, Ticket, Transport,
};
use packets::{
    LANES_MAX, PacketKey, Packets, PeerAddress, Policy, Route, SealSettings, Settings, Shape,
    ShapedLane, TransportSettings,
};

use crate::arena::ArenaGuard;
use crate::clock::TurnClock;
use crate::ether::{EtherPort, PORTS_BYTES};
use crate::lane::open::open_card;
use crate::lane::{
    AnyLane, CHUNK_BYTES, CardSocket, EmulatedLink, HEAD_BYTES, LaneSizes, RECEIVED_MAX,
    SocketKind, SocketLane, XdpLane,
};
use crate::{
    ClientTls, ConnectionBalancer, Endpoint, Error, Listener, Network, Ring, Sockets,
    SocketsConfig, datagram,
};

/// The bit in the numbers of the receive buffers for packet connections.
const OF_PACKETS: u32 = 1 << 31;

/// The number and size of the receive buffers for packet connections.
const UP: SizeClass = SizeClass { bytes: 16 << 10, count: 512 };

/// Maximum bytes of a packet within the machine: seven replies of 4 KiB. Smaller packets are
/// slower; with larger ones a socket buffer would hold too few.
const LOCAL_BYTES: usize = 32 << 10;
const LOCAL_PACKETS: usize = 26;

/// Packets in flight within the machine.
const LOCAL_WINDOW: u16 = 64;

/// Maximum bytes of a packet over a network: jumbo frames. A path with a smaller limit is detected.
const NETWORK_BYTES: usize = 9000 - UDP_BYTES;

/// Bytes of the heads of IPv4 and UDP.
const UDP_BYTES: usize = 28;

/// A time in the far future, which never comes.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// Lower limit of the number of packets that peers may have in flight to this process at the same
/// time.
const CHUNKS_MIN: usize = 16;

/// Connections over packets, by a lane of any kind.
type CardPackets = Packets<ShapedLane<AnyLane>>;

/// Dials that failed before they had a socket.
#[derive(Default)]
struct FailedDials {
    /// The events that report the failed dials.
    events: Vec<NetEvent>,
    /// The number of failed dials so far.
    dials: u32,
}

/// The times at which a packet transport has to be polled.
struct PollSchedule {
    clock: TurnClock,
    /// The time until which the transport needs no poll unless a lane has work, so that turns skip
    /// it; zero after any call to the transport.
    rests_until: Instant,
}

/// The sockets of a worker over io_uring, and its packets.
pub struct PacketSockets {
    ring: Ring,
    /// The streams, whose connections have the indices below `connections_max`.
    streams: Sockets,
    packets: Option<CardPackets>,
    /// The listener that receives packets.
    listener: Option<(ListenerId, Listener)>,
    /// The buffer sizes and the traffic shape of further lanes, at a client; `None` until it dials.
    further: Option<(LaneSizes, Option<Shape>)>,
    /// The ports of this client at Ethernet cards.
    ether_ports: Vec<EtherPort>,
    /// The server to which packet connections are dialled.
    server: Option<Endpoint>,
    /// The key that encrypts packets to the server.
    key: Option<PacketKey>,
    failures: FailedDials,
    pace: PollSchedule,
    connections_max: usize,
    frames_max: usize,
    /// `true` if the next poll takes packets first; alternates.
    packets_first: bool,
    is_held: bool,
    /// The number of the process that made the sockets.
    process: u32,
    /// The worker's number, and the number of workers.
    place: (usize, usize),
}

impl PacketSockets {
    /// Returns the packet transport if the connection goes over packets; `None` for a stream.
    fn of(&mut self, conn: ConnId) -> Option<&mut CardPackets> {
        match conn.index as usize >= self.connections_max {
            true => self.awake(),
            false => None,
        }
    }

    /// Returns the packet transport for a call to it, and has the next turn poll it.
    fn awake(&mut self) -> Option<&mut CardPackets> {
        self.pace.rests_until = Instant::ZERO;
        self.packets.as_mut()
    }

    /// Returns `true` if the packet transport has nothing to do in the turn at `now`.
    fn rests(&self, now: Instant) -> bool {
        let rests = |packets: &CardPackets| self.pace.rests_until > now && !packets.is_reached();
        self.packets.as_ref().is_none_or(rests)
    }

    fn has(&self, conn: ConnId) -> Option<&CardPackets> {
        let is_of_packets = conn.index as usize >= self.connections_max;
        self.packets.as_ref().filter(|_| is_of_packets)
    }

    /// Creates a transport with one lane for each carrier (`roads`). The packet size is the
    /// smallest of the carriers' limits.
    fn carry(
        &mut self,
        roads: Vec<LaneCarrier>,
        window: Option<u16>,
        (dials, key): (bool, Option<PacketKey>),
    ) -> Result<CardPackets, Error> {
        let trial = EmulatedLink::of_environment()?;
        let is_over_udp = matches!(roads[0].over, CarrierSocket::Socket(_, SocketKind::Udp { .. }));
        let head = if is_over_udp { UDP_BYTES } else { PORTS_BYTES };
        let least =
            |of: fn(&LaneCarrier) -> usize| roads.iter().map(of).min().expect("there is a road");
        let (mut packet_bytes, kept) = (least(|road| road.packet_bytes), least(|road| road.kept));
        if let Some(trial) = &trial {
            packet_bytes = trial.packet_bytes(head, packet_bytes);
        }
        let (landings, spares, blocks, base) = match dials {
            false => (64, 256, 64, Settings::WORKER),
            true => (32, 128, 32, Settings::CLIENT),
        };
        // Over Ethernet each packet takes a buffer and a send.
        let (landings, blocks) = match is_over_udp {
            true => (landings, blocks),
            false => (4 * landings, 4 * blocks),
        };
        let sealed = key.map(|key| -> Result<SealSettings, Error> {
            let chance = crate::random::secret();
            Ok(SealSettings { key, chance, packets_max: SealSettings::PACKETS_MAX })
        });
        // Divided dials are for measurements: a client has one association with its server.
        let divided = trial.as_ref().filter(|_| dials).map_or(1, EmulatedLink::associations);
        let settings = Settings {
            secret: crate::random::secret(),
            sealed: sealed.transpose()?,
            worker: self.place.0 as u8,
            workers: self.place.1 as u8,
            packet_bytes,
            control: window.map_or(Policy::Delay, Policy::Fixed),
            local: Policy::Fixed(LOCAL_WINDOW),
            associations_max: base.associations_max.max(2 * divided),
            paths_max: base.paths_max.max(2 * divided),
            windows_max: base.windows_max.max(2 * divided),
            channels_max: self.connections_max,
            messages_max: (2 * self.frames_max).max(256) + 2 * self.connections_max,
            pieces_max: 2 * self.frames_max.max(4096),
            // Whatever is held fits into the spares, so the landings stay with the kernel.
            chunks_max: (kept / (2 * packet_bytes)).clamp(CHUNKS_MIN, spares),
            ..base
        };
        let sizes = LaneSizes { landings, spares, blocks, packet_bytes };
        let shape = trial.as_ref().and_then(|trial| trial.shape(head));
        self.further = dials.then_some((sizes, shape));
        let bufs = ArenaGuard::carve(UP)?;
        let lanes = self.pave(roads, sizes)?;
        let lanes = lanes.into_iter().map(|lane| ShapedLane::new(lane, shape)).collect();
        let (connections_max, first) = (self.connections_max, self.connections_max as u32);
        let settings = TransportSettings { endpoint: settings, connections_max, first };
        let mut packets = Packets::new(settings, lanes, numbered(bufs));
        if let Some(trial) = trial {
            packets.batch(trial.rule(dials));
            packets.divide(divided);
        }
        Ok(packets)
    }

    /// Creates a lane over each carrier. If one lane cannot be made, the lanes made before it are
    /// taken back, so that the next dial can make them.
    fn pave(&self, roads: Vec<LaneCarrier>, sizes: LaneSizes) -> Result<Vec<AnyLane>, Error> {
        let mut lanes = Vec::with_capacity(roads.len());
        for (number, road) in roads.into_iter().enumerate() {
            match self.lane(number, road, sizes) {
                Ok(lane) => lanes.push(lane),
                Err(error) => {
                    lanes.into_iter().for_each(AnyLane::withdraw);
                    return Err(error);
                }
            }
        }
        Ok(lanes)
    }

    /// Creates lane `number` over a carrier.
    fn lane(&self, number: usize, road: LaneCarrier, sizes: LaneSizes) -> Result<AnyLane, Error> {
        Ok(match road.over {
            CarrierSocket::Socket(socket, kind) => {
                AnyLane::Socket(SocketLane::new(&self.ring, number, (socket, kind), sizes)?)
            }
            CarrierSocket::Card(card, ether_port) => {
                let (of, most) = ((&self.ring, number), (sizes.packet_bytes, sizes.spares));
                AnyLane::Xdp(XdpLane::new(of, *card, ether_port, most)?)
            }
        })
    }

    /// Opens lanes to the further addresses of a server. A lane that cannot be opened costs speed,
    /// not correctness.
    fn open_lanes(&mut self) {
        let (Some(packets), Some((sizes, shape))) = (&mut self.packets, self.further) else {
            return;
        };
        while let Some(peer_address) = packets.wanted_lane() {
            let number = packets.lanes().len();
            let opened = match peer_address {
                PeerAddress::Internet(to) => datagram::connect(to).and_then(|socket| {
                    let of = (Arc::new(socket), SocketKind::Udp { is_connected: true });
                    SocketLane::new(&self.ring, number, of, sizes)
                }),
                PeerAddress::Ethernet { .. } => Err(Error::new("cards are opened at the start")),
            };
            match opened {
                Ok(lane) => packets.add_lane(ShapedLane::new(AnyLane::Socket(lane), shape)),
                Err(error) => {
                    tracing::debug!(%error, "cannot open a lane to a further peer_address");
                    packets.forgo_lane();
                }
            }
        }
    }

    /// Creates the sockets for packets to a server.
    fn call(&mut self) -> Result<(), Error> {
        let server = self.server.clone().expect("it is known");
        let key = (true, self.key.clone());
        self.packets = Some(match &server {
            Endpoint::Ethernet(at) => {
                let (roads, routes) = self.call_cards(at)?;
                let mut packets = self.carry(roads, at.window, key)?;
                packets.dial_by(&routes);
                packets
            }
            Endpoint::Packets(lanes) => {
                let socket = Arc::new(datagram::connect(lanes.first())?);
                let road = LaneCarrier::over_udp(socket, lanes.first(), true);
                let mut packets = self.carry(vec![road], lanes.window, key)?;
                let peer_addresses = lanes.all().iter().copied().map(PeerAddress::Internet);
                packets.dial_to(&peer_addresses.collect::<Vec<_>>());
                packets
            }
            other => return Err(Error::new(format!("{other} is for streams"))),
        });
        Ok(())
    }

    /// Opens the cards for a server on Ethernet segments, and returns the carriers and the routes
    /// to the server. A card that cannot be opened costs speed, not correctness, if another can.
    fn call_cards(&mut self, at: &EtherAddress) -> Result<(Vec<LaneCarrier>, Vec<Route>), Error> {
        let (mut ether_ports, mut roads, mut routes) = (Vec::new(), Vec::new(), Vec::new());
        let mut opened: Vec<&str> = Vec::new();
        let mut failure = Error::new(format!("{at} names no server; expected INTERFACE/MAC"));
        // Cards that only search are of no use without one that leads to the server.
        let (named, searching): (Vec<_>, Vec<_>) =
            at.cards().iter().partition(|card| card.mac.is_some());
        for card in named.into_iter().chain(searching) {
            if card.mac.is_none() && !routes.iter().any(|route: &Route| route.to.is_some()) {
                return Err(failure);
            }
            let lane = opened.iter().position(|interface| *interface == card.interface());
            let lane = match lane {
                Some(_) => lane,
                None => match call_card(card, at.via) {
                    Ok((ether_port, road)) => {
                        opened.push(card.interface());
                        ether_ports.push(ether_port);
                        roads.push(road);
                        Some(roads.len() - 1)
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a card is left out");
                        failure = error;
                        None
                    }
                },
            };
            let to = card.mac.map(|mac| PeerAddress::Ethernet { mac, port: at.port });
            routes.extend(lane.map(|lane| Route { lane: lane as u8, to }));
        }
        if !routes.iter().any(|route| route.to.is_some()) {
            return Err(failure);
        }
        self.ether_ports = ether_ports;
        Ok((roads, routes))
    }

    /// Receives packets at a listener.
    fn receive(&mut self, id: ListenerId, mut listener: Listener) -> Result<(), Error> {
        if self.packets.is_some() {
            return Err(Error::new(format!(
                "cannot receive packets at {}: a server receives packets at one address, which it \
                 had at its start",
                listener.endpoint()
            )));
        }
        let window = match listener.endpoint() {
            Endpoint::Ethernet(at) => at.window,
            Endpoint::Packets(lanes) => lanes.window,
            other => return Err(Error::new(format!("{other} is for streams"))),
        };
        let (key, mut lanes) = (listener.key.clone(), std::mem::take(&mut listener.also));
        let (mut roads, mut peer_addresses) = (Vec::new(), [None; LANES_MAX]);
        let all = [&mut listener].into_iter().chain(&mut lanes);
        for (lane, place) in all.zip(&mut peer_addresses) {
            let (road, peer_address) = LaneCarrier::at_lane(lane)?;
            roads.push(road);
            *place = Some(peer_address);
        }
        listener.also = lanes;
        let mut packets = self.carry(roads, window, (false, key))?;
        packets.tell(peer_addresses);
        packets.listen(Some(id));
        packets.hold(self.is_held);
        (self.packets, self.listener) = (Some(packets), Some((id, listener)));
        Ok(())
    }
}

/// Opens a local card for a client; `via` selects the kernel's interface (AF_XDP or packet socket).
fn call_card(card: &EtherCard, via: Option<EtherVia>) -> Result<(EtherPort, LaneCarrier), Error> {
    let ether_port = EtherPort::call(card.interface())?;
    // Memory of a card that is opened stays, so nothing may fail afterwards that can fail before.
    ether_port.packet_bytes()?;
    let road = match open_card(&ether_port, (card.interface(), via), 1)? {
        Some(socket) => LaneCarrier::over_card(Box::new(socket), &ether_port)?,
        None => LaneCarrier::over_ether(Arc::new(ether_port.open()?), &ether_port)?,
    };
    Ok((ether_port, road))
}

/// The socket or card under a lane.
enum CarrierSocket {
    Socket(Arc<OwnedFd>, SocketKind),
    Card(Box<CardSocket>, EtherPort),
}

/// The carrier of a future lane: a socket or card, and the limits that determine the lane's sizes.
struct LaneCarrier {
    over: CarrierSocket,
    /// Bytes of the largest packet.
    packet_bytes: usize,
    /// Bytes of received packets that the kernel buffers for the socket.
    kept: usize,
}

impl LaneCarrier {
    /// Returns the carrier of a listener's first lane, and the address that is announced to clients
    /// for it.
    fn at_lane(lane: &mut Listener) -> Result<(LaneCarrier, PeerAddress), Error> {
        let (card, socket) = (lane.card.take(), lane.socket.clone());
        match (lane.endpoint(), lane.ether_port.as_deref()) {
            (Endpoint::Packets(lanes), _) => {
                let address = lanes.first();
                Ok((LaneCarrier::over_udp(socket, address, false), PeerAddress::Internet(address)))
            }
            (_, Some(ether_port)) => {
                let road = match card {
                    Some(card) => LaneCarrier::over_card(card, ether_port)?,
                    None => LaneCarrier::over_ether(socket, ether_port)?,
                };
                Ok((
                    road,
                    PeerAddress::Ethernet { mac: ether_port.card.mac, port: ether_port.port },
                ))
            }
            (other, None) => Err(Error::new(format!("{other} is for streams"))),
        }
    }

    /// Returns the carrier over a UDP socket that is bound to an address, or connected to it.
    fn over_udp(socket: Arc<OwnedFd>, address: SocketAddr, dials: bool) -> LaneCarrier {
        let kept = kept_by(&socket);
        // Within the machine nothing but the socket's memory is a bottleneck.
        let most = match address.ip().is_loopback() {
            true => (kept / LOCAL_PACKETS).min(LOCAL_BYTES),
            false => NETWORK_BYTES,
        };
        let most = most.max(Settings::PACKET_BYTES_MIN);
        let path = dials.then(|| datagram::path_bytes(&socket, address)).flatten();
        let packet_bytes = path.unwrap_or(most).clamp(Settings::PACKET_BYTES_MIN, most);
        LaneCarrier {
            over: CarrierSocket::Socket(socket, SocketKind::Udp { is_connected: dials }),
            packet_bytes,
            kept,
        }
    }

    /// Returns the carrier over a packet socket at an Ethernet card.
    fn over_ether(socket: Arc<OwnedFd>, ether_port: &EtherPort) -> Result<LaneCarrier, Error> {
        let (packet_bytes, kept) = (ether_port.packet_bytes()?, kept_by(&socket));
        Ok(LaneCarrier {
            over: CarrierSocket::Socket(socket, SocketKind::at(ether_port)),
            packet_bytes,
            kept,
        })
    }

    /// Returns the carrier over an AF_XDP socket at an Ethernet card.
    fn over_card(card: Box<CardSocket>, ether_port: &EtherPort) -> Result<LaneCarrier, Error> {
        let packet_bytes = ether_port.packet_bytes()?.min(card.frame_bytes() - HEAD_BYTES);
        let kept = RECEIVED_MAX * CHUNK_BYTES;
        Ok(LaneCarrier { over: CarrierSocket::Card(card, ether_port.clone()), packet_bytes, kept })
    }
}

/// Returns the receive buffers for packet connections, with their numbers.
fn numbered(bufs: ArenaGuard) -> Vec<Buf> {
    let numbered = |buf: Buf| {
        let index = buf.index() | OF_PACKETS;
        Buf::new(buf.into_bytes(), index)
    };
    let (_, bufs) = bufs.keep();
    bufs.into_iter().map(numbered).collect()
}

fn kept_by(socket: &OwnedFd) -> usize {
    rustix::net::sockopt::socket_recv_buffer_size(socket).unwrap_or(0)
}

impl Drop for PacketSockets {
    /// Notifies the peers of the end of the packet connections. In a forked child, which shares
    /// them, does nothing.
    fn drop(&mut self) {
        if let Some(packets) = &mut self.packets
            && self.process == std::process::id()
        {
            packets.leave();
        }
    }
}

impl Network for PacketSockets {
    type Reactor = Ring;

    fn new(ring: &Ring, config: SocketsConfig) -> Result<Self, Error> {
        let (connections_max, frames_max) = (config.connections_max, config.frames_max);
        Ok(PacketSockets {
            ring: ring.clone(),
            streams: Sockets::new(ring, config)?,
            packets: None,
            listener: None,
            further: None,
            ether_ports: Vec::new(),
            server: None,
            key: None,
            failures: FailedDials::default(),
            pace: PollSchedule { clock: TurnClock::NEW, rests_until: Instant::ZERO },
            connections_max,
            frames_max,
            packets_first: false,
            is_held: false,
            process: std::process::id(),
            place: (0, 1),
        })
    }

    fn join(&mut self, spread: Arc<ConnectionBalancer>, worker: usize) {
        self.place = (worker, spread.hand_over_number());
        self.streams.join(spread, worker);
    }

    fn listen(&mut self, id: ListenerId, listener: Listener) -> Result<(), Error> {
        match listener.endpoint().is_of_packets() {
            true => self.receive(id, listener),
            false => self.streams.listen(id, listener),
        }
    }

    fn unlisten(&mut self, id: ListenerId) {
        let is_own = self.listener.as_ref().is_some_and(|(own, _)| *own == id);
        match self.awake().filter(|_| is_own) {
            Some(packets) => packets.listen(None),
            None => self.streams.unlisten(id),
        }
    }

    fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        self.streams.hold(is_held);
        if let Some(packets) = self.awake() {
            packets.hold(is_held);
        }
    }

    fn refuse(&mut self, id: ListenerId, refuses: bool) {
        let is_own = self.listener.as_ref().is_some_and(|(own, _)| *own == id);
        match self.awake().filter(|_| is_own) {
            Some(packets) => packets.refuse(refuses),
            None => self.streams.refuse(id, refuses),
        }
    }

    fn accepts(&self) -> bool {
        self.streams.accepts()
    }

    fn dial_to(&mut self, server: impl Into<Endpoint>) {
        match server.into() {
            packets if packets.is_of_packets() => self.server = Some(packets),
            other => self.streams.dial_to(other),
        }
    }

    fn dial_over(&mut self, tls: ClientTls) -> Result<(), Error> {
        self.streams.dial_over(tls)
    }

    fn dial_sealed(&mut self, key: PacketKey) -> Result<(), Error> {
        self.key = Some(key);
        Ok(())
    }
}

impl Streams for PacketSockets {
    fn poll(&mut self, now: Instant, events: &mut Vec<NetEvent>, max: usize) {
        let before = events.len();
        events.append(&mut self.failures.events);
        if self.rests(now) {
            return self.streams.poll(now, events, max);
        }
        self.pace.clock.begin(now);
        self.open_lanes();
        self.pace.rests_until = Instant::ZERO;
        let Some(packets) = &mut self.packets else { return };
        self.packets_first = !self.packets_first;
        if self.packets_first {
            packets.poll(now, events, max);
            self.streams.poll(now, events, max.saturating_sub(events.len() - before));
        } else {
            self.streams.poll(now, events, max);
            packets.poll(now, events, max.saturating_sub(events.len() - before));
        }
    }

    fn give(&mut self, buf: Buf) {
        match buf.index() & OF_PACKETS != 0 {
            true => self.awake().expect("they have lent the buffer").give(buf),
            false => self.streams.give(buf),
        }
    }

    fn receive_into(&mut self, conn: ConnId, buf: Buf, at: usize, until: usize) -> Result<(), Buf> {
        match self.of(conn) {
            Some(packets) => packets.receive_into(conn, buf, at, until),
            None => self.streams.receive_into(conn, buf, at, until),
        }
    }

    fn room(&self) -> usize {
        let room = self.packets.as_ref().map_or(usize::MAX, |packets| packets.room());
        self.streams.room().min(room)
    }

    fn send(&mut self, now: Instant, conn: ConnId, frame: Frame) {
        match self.of(conn) {
            Some(packets) => packets.send(now, conn, frame),
            None => self.streams.send(now, conn, frame),
        }
    }

    fn kick(&mut self, now: Instant) {
        self.streams.kick(now);
        if self.pace.rests_until > now {
            return;
        }
        if let Some(packets) = &mut self.packets {
            // What the turn has done meanwhile is no delay of the network.
            packets.kick(self.pace.clock.now(now));
            if self.listener.is_some() {
                packets.reading().tell(self.place.0);
            }
            self.pace.rests_until = packets.wake_at().unwrap_or(NEVER);
        }
    }

    fn close(&mut self, conn: ConnId) {
        match self.of(conn) {
            Some(packets) => packets.close(conn),
            None => self.streams.close(conn),
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        if !self.failures.events.is_empty() {
            return Some(Instant::ZERO);
        }
        let packets = self.packets.as_ref().and_then(|packets| match self.pace.rests_until {
            Instant::ZERO => packets.wake_at(),
            _ if packets.is_reached() => Some(Instant::ZERO),
            until => Some(until).filter(|until| *until < NEVER),
        });
        [self.streams.wake_at(), packets].into_iter().flatten().min()
    }
}

impl Transport for PacketSockets {
    fn pause(&mut self, conn: ConnId) {
        match self.of(conn) {
            Some(packets) => packets.pause(conn),
            None => self.streams.pause(conn),
        }
    }

    fn resume(&mut self, conn: ConnId) {
        match self.of(conn) {
            Some(packets) => packets.resume(conn),
            None => self.streams.resume(conn),
        }
    }

    fn unsent(&self, conn: ConnId) -> usize {
        self.has(conn).map_or_else(|| self.streams.unsent(conn), |packets| packets.unsent(conn))
    }

    fn charge(&mut self, conn: ConnId, account: TenantId) {
        match self.of(conn) {
            Some(packets) => packets.charge(conn, account),
            None => self.streams.charge(conn, account),
        }
    }

    fn queued(&self, account: TenantId) -> usize {
        let packets = self.packets.as_ref().map_or(0, |packets| packets.queued(account));
        self.streams.queued(account) + packets
    }

    fn finish(&mut self, conn: ConnId) {
        match self.of(conn) {
            Some(packets) => packets.finish(conn),
            None => self.streams.finish(conn),
        }
    }

    fn stop_listening(&mut self) {
        self.streams.stop_listening();
        let is_held = self.is_held;
        let Some(packets) = self.awake() else { return };
        if is_held {
            // Another process has the socket from now on. It hears what comes for us.
            packets.lanes().iter_mut().for_each(|lane| lane.inner().cease());
            packets.abandon();
        }
        packets.stop_listening();
    }
}

impl Migrate for PacketSockets {
    fn moves_to(&self, conn: ConnId, to: u16) -> bool {
        self.has(conn).is_none() && self.streams.moves_to(conn, to)
    }

    fn still(&mut self, conn: ConnId) {
        match self.of(conn) {
            Some(packets) => packets.still(conn),
            None => self.streams.still(conn),
        }
    }

    fn is_still(&self, conn: ConnId) -> bool {
        self.has(conn).is_none() && self.streams.is_still(conn)
    }

    fn detach(&mut self, conn: ConnId, to: u16) -> Ticket {
        self.streams.detach(conn, to)
    }

    fn attach(&mut self, ticket: Ticket) -> Option<ConnId> {
        self.streams.attach(ticket)
    }
}

impl Dial for PacketSockets {
    fn dial(&mut self, now: Instant) -> ConnId {
        if self.server.is_none() {
            return self.streams.dial(now);
        }
        if self.packets.is_none()
            && let Err(error) = self.call()
        {
            tracing::warn!(%error, "cannot dial");
            self.failures.dials = self.failures.dials.wrapping_add(1);
            let conn = ConnId { index: u32::MAX, generation: self.failures.dials };
            let reason = CloseReason::Unreachable(error.errno().unwrap_or(libc::ENOMEM));
            self.failures.events.push(NetEvent::Closed { conn, reason });
            return conn;
        }
        self.awake().expect("the call has made them").dial(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: LaneSizes = LaneSizes { landings: 32, spares: 0, blocks: 4, packet_bytes: 1200 };

    fn road(kind: SocketKind) -> LaneCarrier {
        let socket = datagram::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        LaneCarrier {
            over: CarrierSocket::Socket(Arc::new(socket), kind),
            packet_bytes: 1200,
            kept: 1 << 20,
        }
    }

    #[test]
    fn lanes_that_cannot_all_be_made_leave_nothing_in_the_way_of_the_next_dial() {
        let ring = Ring::new().unwrap();
        let sockets = PacketSockets::new(
            &ring,
            SocketsConfig { connections_max: 4, receive_buffers: 16, ..SocketsConfig::default() },
        )
        .unwrap();
        let udp = || road(SocketKind::Udp { is_connected: true });
        // Only receive buffers of Ethernet grow with the packets, so the second lane fails.
        let too_large = LaneSizes { packet_bytes: 1 << 45, ..SIZES };
        for dial in 0..3 {
            let ether = road(SocketKind::Ethernet { index: 1, port: 1 });
            let error = sockets.pave(vec![udp(), ether], too_large).err().expect("no memory");
            assert_eq!(error.errno(), Some(libc::ENOMEM), "dial {dial}: {error}");
        }
        assert_eq!(sockets.pave(vec![udp(), udp()], SIZES).unwrap().len(), 2);
    }
}
