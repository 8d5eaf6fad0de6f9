//! Streams and packets of one thread as one network: connections over packets beside those over TCP
//! and Unix sockets. A server without a listener of packets uses [`Sockets`] alone.
//!
//! The index of a connection tells which of the two it belongs to, as does the number of a buffer.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use contract::{
    Buf, CloseReason, ConnId, Dial, Frame, Instant, ListenerId, Migrate, NetEvent, SizeClass,
    Streams, TenantId, Ticket, Transport,
};
use packets::{PacketKey, Packets, Policy, Sealed, Settings, Station, TransportSettings};

use crate::udp::{LaneSizes, UdpLane};
use crate::{
    ClientTls, Endpoint, Error, Listener, Network, Ring, Sockets, SocketsConfig, Spread, carve,
    datagram,
};

/// The bit in the numbers of the receive buffers for packet connections.
const OF_PACKETS: u32 = 1 << 31;

/// The size of the receive buffers for packet connections.
const UP: SizeClass = SizeClass { bytes: 16 << 10, count: 512 };

/// Maximum bytes of a packet within the machine: seven replies of 4 KiB. Smaller packets are
/// slower; with larger ones a socket buffer would hold too few.
const LOCAL_BYTES: usize = 32 << 10;
const LOCAL_PACKETS: usize = 26;

/// Packets in flight within the machine.
const LOCAL_WINDOW: u16 = 64;

/// Maximum bytes of a packet over a network: jumbo frames. A path with a smaller limit is detected.
const NETWORK_BYTES: usize = 9000 - 28;

/// The least number of packets that may be outstanding to us.
const CHUNKS_MIN: usize = 16;

/// The sockets of a worker over io_uring, and its packets.
pub struct PacketSockets {
    ring: Ring,
    /// The streams, whose connections have the indices below `connections_max`.
    streams: Sockets,
    packets: Option<Packets<UdpLane>>,
    /// The listener that receives packets.
    listener: Option<(ListenerId, Listener)>,
    /// The server to which packet connections are dialled.
    server: Option<SocketAddr>,
    /// The key with which packets to the server are sealed.
    key: Option<PacketKey>,
    /// Events for dials that failed before they had a socket.
    failures: Vec<NetEvent>,
    failed_dials: u32,
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
    /// Returns the packet transport if the connection belongs to it.
    fn of(&mut self, conn: ConnId) -> Option<&mut Packets<UdpLane>> {
        let is_of_packets = conn.index as usize >= self.connections_max;
        self.packets.as_mut().filter(|_| is_of_packets)
    }

    fn has(&self, conn: ConnId) -> Option<&Packets<UdpLane>> {
        let is_of_packets = conn.index as usize >= self.connections_max;
        self.packets.as_ref().filter(|_| is_of_packets)
    }

    /// Returns a transport over a socket that is bound to the address, or connected to it.
    fn carry(
        &self,
        socket: Arc<OwnedFd>,
        address: SocketAddr,
        (dials, key): (bool, Option<PacketKey>),
    ) -> Result<Packets<UdpLane>, Error> {
        let kept = rustix::net::sockopt::socket_recv_buffer_size(&socket).unwrap_or(0);
        // Within the machine nothing but the socket's memory is a bottleneck.
        let most = match address.ip().is_loopback() {
            true => (kept / LOCAL_PACKETS).min(LOCAL_BYTES),
            false => NETWORK_BYTES,
        };
        let most = most.max(Settings::PACKET_BYTES_MIN);
        let path = dials.then(|| datagram::path_bytes(&socket, address)).flatten();
        let packet_bytes = path.unwrap_or(most).clamp(Settings::PACKET_BYTES_MIN, most);
        let (landings, spares, blocks, base) = match dials {
            false => (64, 256, 64, Settings::WORKER),
            true => (32, 128, 32, Settings::CLIENT),
        };
        let sealed = key.map(|key| -> Result<Sealed, Error> {
            let chance = datagram::secret()?;
            Ok(Sealed { key, chance, packets_max: Sealed::PACKETS_MAX })
        });
        let settings = Settings {
            secret: datagram::secret()?,
            sealed: sealed.transpose()?,
            worker: self.place.0 as u8,
            workers: self.place.1 as u8,
            packet_bytes,
            control: Policy::Delay,
            local: Policy::Fixed(LOCAL_WINDOW),
            channels_max: self.connections_max,
            messages_max: (2 * self.frames_max).max(256) + 2 * self.connections_max,
            pieces_max: 2 * self.frames_max.max(4096),
            // Whatever is held fits into the spares, so the landings stay with the kernel.
            chunks_max: (kept / (2 * packet_bytes)).clamp(CHUNKS_MIN, spares),
            ..base
        };
        let sizes = LaneSizes { landings, spares, blocks, packet_bytes };
        let lane = UdpLane::new(&self.ring, socket, dials, sizes)?;
        let numbered = |buf: Buf| {
            let index = buf.index() | OF_PACKETS;
            Buf::new(buf.into_bytes(), index)
        };
        let bufs = carve(&[UP])?.bufs.into_iter().map(numbered).collect();
        let (connections_max, first) = (self.connections_max, self.connections_max as u32);
        let settings = TransportSettings { endpoint: settings, connections_max, first };
        Ok(Packets::new(settings, lane, bufs))
    }

    /// Creates the socket for packets to a server.
    fn call(&mut self, server: SocketAddr) -> Result<(), Error> {
        let socket = Arc::new(datagram::connect(server)?);
        let mut packets = self.carry(socket, server, (true, self.key.clone()))?;
        packets.dial_to(Station::Internet(server));
        self.packets = Some(packets);
        Ok(())
    }

    /// Receives packets at a listener.
    fn receive(
        &mut self,
        id: ListenerId,
        listener: Listener,
        address: SocketAddr,
    ) -> Result<(), Error> {
        if self.packets.is_some() {
            return Err(Error::new(format!(
                "cannot receive packets at {}: a server receives packets at one address, which it \
                 had at its start",
                listener.endpoint()
            )));
        }
        let key = listener.key.clone();
        let mut packets = self.carry(listener.socket.clone(), address, (false, key))?;
        packets.listen(Some(id));
        packets.hold(self.is_held);
        (self.packets, self.listener) = (Some(packets), Some((id, listener)));
        Ok(())
    }
}

impl Drop for PacketSockets {
    /// Tells the peers that the packet connections are over. In a forked child, which shares them,
    /// does nothing.
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
            server: None,
            key: None,
            failures: Vec::new(),
            failed_dials: 0,
            connections_max,
            frames_max,
            packets_first: false,
            is_held: false,
            process: std::process::id(),
            place: (0, 1),
        })
    }

    fn join(&mut self, spread: Arc<Spread>, worker: usize) {
        self.place = (worker, spread.hand_over_number());
        self.streams.join(spread, worker);
    }

    fn listen(&mut self, id: ListenerId, listener: Listener) -> Result<(), Error> {
        match listener.endpoint() {
            Endpoint::Packets(address) => {
                let address = *address;
                self.receive(id, listener, address)
            }
            _ => self.streams.listen(id, listener),
        }
    }

    fn unlisten(&mut self, id: ListenerId) {
        match &mut self.packets {
            Some(packets) if self.listener.as_ref().is_some_and(|(own, _)| *own == id) => {
                packets.listen(None);
            }
            _ => self.streams.unlisten(id),
        }
    }

    fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        self.streams.hold(is_held);
        if let Some(packets) = &mut self.packets {
            packets.hold(is_held);
        }
    }

    fn refuse(&mut self, id: ListenerId, refuses: bool) {
        match &mut self.packets {
            Some(packets) if self.listener.as_ref().is_some_and(|(own, _)| *own == id) => {
                packets.refuse(refuses);
            }
            _ => self.streams.refuse(id, refuses),
        }
    }

    fn accepts(&self) -> bool {
        self.streams.accepts()
    }

    fn dial_to(&mut self, server: impl Into<Endpoint>) {
        match server.into() {
            Endpoint::Packets(address) => self.server = Some(address),
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
        events.append(&mut self.failures);
        let Some(packets) = &mut self.packets else { return self.streams.poll(now, events, max) };
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
        match &mut self.packets {
            Some(packets) if buf.index() & OF_PACKETS != 0 => packets.give(buf),
            _ => self.streams.give(buf),
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
        if let Some(packets) = &mut self.packets {
            packets.kick(now);
            if self.listener.is_some() {
                packets.reading().tell(self.place.0);
            }
        }
    }

    fn close(&mut self, conn: ConnId) {
        match self.of(conn) {
            Some(packets) => packets.close(conn),
            None => self.streams.close(conn),
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        if !self.failures.is_empty() {
            return Some(Instant::ZERO);
        }
        let packets = self.packets.as_ref().and_then(|packets| packets.wake_at());
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
        let Some(packets) = &mut self.packets else { return };
        if self.is_held {
            // Another process has the socket from now on. It hears what comes for us.
            packets.lane().cease();
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
        let Some(server) = self.server else { return self.streams.dial(now) };
        if self.packets.is_none()
            && let Err(error) = self.call(server)
        {
            self.failed_dials = self.failed_dials.wrapping_add(1);
            let conn = ConnId { index: u32::MAX, generation: self.failed_dials };
            let reason = CloseReason::Unreachable(error.errno().unwrap_or(libc::ENOMEM));
            self.failures.push(NetEvent::Closed { conn, reason });
            return conn;
        }
        self.packets.as_mut().expect("the call has made them").dial(now)
    }
}
