//! The simulated network: hosts, connections between them, and their faults.
//!
//! A host's [`StreamPort`] keeps the promises of the real sockets (`io`): each connection has one
//! coalesced send in flight; `Sent` comes for each body before `Closed`; places are reused with
//! another generation; bytes that arrived before a pause are still delivered. Deliberately left
//! out: packets, retransmission, congestion. A connection is two pipes of bytes. In worlds of
//! packets, the hosts have [endpoints](PacketNetwork) instead.

mod conn;
mod host;
mod motion;
mod packets;
mod pipe;
mod port;
mod socket_table;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use contract::{Buf, CloseReason, ConnId, Instant, ListenerId, NetEvent, Peer};
use flash::Rng;

use self::conn::{Conn, Phase};
use self::host::Host;
pub(crate) use self::host::HostSizes;
pub(crate) use self::packets::{PacketImpairments, PacketNetwork, PacketPort};
use self::pipe::TcpEnd;
pub(crate) use self::port::StreamPort;
use crate::marks::{Mark, Marks};
use crate::noticed_ends::NoticedEnds;

/// The error of a connection that was reset.
const RESET: i32 = 104;
/// The error of a connection that timed out.
const TIMED_OUT: i32 = 110;
/// The error of a dial while no server listens.
const REFUSED: i32 = 111;
/// The error of too many descriptors.
const TOO_MANY: i32 = 24;

/// The behaviour of the network. Durations are in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Impairments {
    /// The latency of a segment in nanoseconds.
    pub(crate) latency: RangeInclusive<u64>,
    /// The share of segments that take a hundred times as long, from 0 to 1.
    pub(crate) hiccups: f64,
    /// The size of a segment in bytes.
    pub(crate) segment: RangeInclusive<u64>,
    /// The range from which the maximum size of one receive is drawn, in bytes.
    pub(crate) piece: RangeInclusive<u64>,
    /// The range from which the maximum number of bytes in transit in one direction of a connection
    /// is drawn.
    pub(crate) window: RangeInclusive<u64>,
    /// The probability that a dial succeeds only at the client, while the server never sees the
    /// connection.
    pub(crate) half_open: f64,
    /// The probability that a dial fails at once.
    pub(crate) failed_dials: f64,
    /// The time in nanoseconds until the system notices a silent connection.
    pub(crate) timeout: RangeInclusive<u64>,
}

/// The pseudo-host of connections that move between two workers. It is never driven, so bytes for
/// it wait.
const TABLE: usize = 0;

/// A dial on its way to the server.
struct DialInFlight {
    at: Instant,
    host: usize,
    conn: ConnId,
}

/// The network of a world.
pub(crate) struct Network {
    now: Instant,
    chance: Rng,
    impairments: Impairments,
    /// `true` once no more faults are added.
    calm: bool,
    hosts: Vec<Host>,
    dialled: Vec<DialInFlight>,
    partings: NoticedEnds,
    /// The simulated packet network, which replaces the streams in a world of packets.
    pub(crate) packets: Option<PacketNetwork>,
    marks: Marks,
    trace: bool,
}

/// A network that several ports share.
pub(crate) type NetHandle = Rc<RefCell<Network>>;

impl Network {
    pub(crate) fn new(impairments: Impairments, seed: u64, marks: Marks, trace: bool) -> NetHandle {
        let network = Rc::new(RefCell::new(Network {
            now: Instant::ZERO,
            chance: Rng::new(seed),
            impairments,
            calm: false,
            hosts: Vec::new(),
            dialled: Vec::new(),
            partings: NoticedEnds::default(),
            packets: None,
            marks,
            trace,
        }));
        let sizes = HostSizes { connections_max: usize::MAX, frames_max: 0 };
        let table = network.borrow_mut().add_host(([0; 4], 0).into(), sizes, Vec::new(), false);
        assert!(table == TABLE, "it is the first");
        network
    }

    /// Adds a host with these receive buffers, and returns its number.
    pub(crate) fn add_host(
        &mut self,
        address: SocketAddr,
        sizes: HostSizes,
        buffers: Vec<Buf>,
        listening: bool,
    ) -> usize {
        self.hosts.push(Host::new(address, sizes, buffers, listening));
        self.hosts.len() - 1
    }

    /// Returns the connections whose end the other end's host has polled.
    pub(crate) fn partings(&self) -> NoticedEnds {
        self.partings.clone()
    }

    /// Sends the host's dials to this listener.
    pub(crate) fn dial_to(&mut self, host: usize, listener: ListenerId) {
        self.hosts[host].dials = listener;
    }

    /// Makes the host accept connections again.
    pub(crate) fn listen(&mut self, host: usize) {
        self.hosts[host].listening = true;
    }

    /// Adds no more faults; earlier ones take their course.
    pub(crate) fn calm_down(&mut self) {
        self.calm = true;
        self.packets.iter_mut().for_each(PacketNetwork::calm_down);
    }

    fn happens(&mut self, share: f64) -> bool {
        !self.calm && self.chance.happens(share)
    }

    fn say(&self, host: usize, conn: ConnId, what: &dyn std::fmt::Display) {
        if self.trace {
            let micros = self.now.as_nanos() as f64 / 1e3;
            let ConnId { index, generation } = conn;
            eprintln!("{micros:14.3} net host {host} conn {index}.{generation}: {what}");
        }
    }

    fn latency(&mut self) -> Duration {
        let nanos = self.chance.within(self.impairments.latency.clone());
        let share = self.impairments.hiccups;
        let factor = if self.happens(share) { 100 } else { 1 };
        Duration::from_nanos(nanos * factor)
    }

    fn id(&self, host: usize, index: u32) -> ConnId {
        self.hosts[host].id(index)
    }

    fn find(&mut self, host: usize, id: ConnId) -> Option<&mut Conn> {
        self.hosts[host].find(id)
    }

    /// Puts an end of a connection at a free index of the host and returns the index; `None` if
    /// there is none.
    fn place(&mut self, host: usize, phase: Phase) -> Option<u32> {
        let window = self.chance.within(self.impairments.window.clone()) as usize;
        if !self.hosts[host].free.is_empty() {
            self.marks.hit(Mark::PlaceReused);
        }
        self.hosts[host].place(phase, window)
    }

    /// Starts a dial of a host; see [`contract::Dial`].
    fn dial(&mut self, host: usize, now: Instant) -> ConnId {
        self.now = now;
        let share = self.impairments.failed_dials;
        let placed = if self.happens(share) { None } else { self.place(host, Phase::Dialling) };
        let Some(index) = placed else {
            self.marks.hit(Mark::DialFailedAtOnce);
            let owner = &mut self.hosts[host];
            owner.failed_dials += 1;
            let conn = ConnId { index: u32::MAX, generation: owner.failed_dials };
            let reason = CloseReason::Unreachable(TOO_MANY);
            owner.events.push_back(NetEvent::Closed { conn, reason });
            return conn;
        };
        let conn = self.id(host, index);
        let at = now + self.latency();
        self.dialled.push(DialInFlight { at, host, conn });
        self.say(host, conn, &"dials");
        conn
    }

    /// Delivers the dials that are due.
    pub(crate) fn settle(&mut self, now: Instant) {
        self.now = now;
        self.packets.iter_mut().for_each(|packets| packets.settle(now));
        while let Some(n) = self.dialled.iter().position(|dialled| dialled.at <= now) {
            let DialInFlight { host, conn, .. } = self.dialled.remove(n);
            self.arrive(host, conn);
        }
    }

    /// Returns the time at which the next dial arrives at the server; `None` if none is on its way.
    pub(crate) fn next_dial(&self) -> Option<Instant> {
        self.dialled.iter().map(|dialled| dialled.at).min()
    }

    fn arrive(&mut self, host: usize, conn: ConnId) {
        let at = self.now + self.latency();
        let servers: Vec<usize> =
            (0..self.hosts.len()).filter(|&host| self.hosts[host].listening).collect();
        if servers.is_empty() {
            self.marks.hit(Mark::DialRefused);
            if let Some(dialling) = self.find(host, conn) {
                dialling.answer = Some((at, Err(REFUSED)));
            }
            return;
        }
        let share = self.impairments.half_open;
        if self.happens(share) {
            self.marks.hit(Mark::HalfOpen);
            let timeout = self.timeout();
            if let Some(dialling) = self.find(host, conn) {
                dialling.answer = Some((at, Ok(())));
                dialling.inbound.dark = true;
                dialling.inbound.end(timeout, TcpEnd::Reset(TIMED_OUT));
            }
            return;
        }
        let server = servers[self.chance.within(0..=servers.len() as u64 - 1) as usize];
        let accepted = self.place(server, Phase::Open);
        let address = self.hosts[host].address;
        let near = accepted.map(|index| (server, self.id(server, index)));
        let waits = |phase| phase == Phase::Dialling;
        let dialler_lives = self.find(host, conn).is_some_and(|conn| waits(conn.phase));
        if let Some(dialling) = self.find(host, conn).filter(|_| dialler_lives) {
            dialling.answer = Some((at, Ok(())));
            dialling.peer = near;
            if near.is_none() {
                dialling.inbound.end(at, TcpEnd::Reset(RESET));
            }
        }
        let Some((_, id)) = near else { return };
        let last = self.hosts[host].last_server.replace(server);
        if last.is_some_and(|last| last != server) {
            self.marks.hit(Mark::AtAnotherWorker);
        }
        let far = dialler_lives.then_some((host, conn));
        let now = self.now;
        let accepted = self.find(server, id).expect("it was just placed");
        accepted.peer = far;
        if far.is_none() {
            accepted.inbound.end(now, TcpEnd::Reset(RESET));
        }
        let (peer, listener) = (Peer::Internet(address), Some(self.hosts[host].dials));
        self.hosts[server].events.push_back(NetEvent::opened(id, peer, listener));
        self.say(server, id, &format_args!("accepts {address}"));
    }

    fn timeout(&mut self) -> Instant {
        let nanos = self.chance.within(self.impairments.timeout.clone());
        self.now + Duration::from_nanos(nanos)
    }

    /// Resets, ends or silences an open connection, if there is one.
    pub(crate) fn strike(&mut self, now: Instant) {
        self.now = now;
        if let Some(packets) = &mut self.packets {
            return packets.strike(now);
        }
        let mut victims = Vec::new();
        for (host, owner) in self.hosts.iter().enumerate() {
            let live = (0..owner.conns.len()).filter(|&n| owner.conns[n].is_live());
            victims.extend(live.map(|n| (host, self.id(host, n as u32))));
        }
        if victims.is_empty() {
            return;
        }
        let (host, id) = victims[self.chance.within(0..=victims.len() as u64 - 1) as usize];
        let peer = self.find(host, id).expect("it is open").peer;
        match self.chance.within(0..=4) {
            0 => {
                self.marks.hit(Mark::WentDark);
                self.say(host, id, &"goes dark");
                for (host, id) in [Some((host, id)), peer].into_iter().flatten() {
                    let timeout = self.timeout();
                    if let Some(conn) = self.find(host, id) {
                        conn.inbound.dark = true;
                        conn.inbound.end(timeout, TcpEnd::Reset(TIMED_OUT));
                    }
                }
            }
            1 => {
                self.marks.hit(Mark::FinByNetwork);
                let conn = self.find(host, id).expect("it is open");
                conn.inbound.end(now, TcpEnd::Fin);
                conn.peer = None;
                if let Some((host, id)) = peer
                    && let Some(conn) = self.find(host, id)
                {
                    conn.inbound.end(now, TcpEnd::Reset(RESET));
                    conn.peer = None;
                }
            }
            _ => {
                self.marks.hit(Mark::ResetByNetwork);
                for (host, id) in [Some((host, id)), peer].into_iter().flatten() {
                    let at = now + self.latency();
                    if let Some(conn) = self.find(host, id) {
                        conn.inbound.end(at, TcpEnd::Reset(RESET));
                    }
                }
            }
        }
    }

    /// Kills the host's process: its connections are reset, and its unsent bytes are dropped.
    pub(crate) fn kill(&mut self, host: usize, now: Instant) {
        self.now = now;
        self.hosts[host].listening = false;
        for index in 0..self.hosts[host].conns.len() as u32 {
            if self.hosts[host].conns[index as usize].phase != Phase::Vacant {
                self.end(host, index, CloseReason::Local);
                self.hosts[host].conns[index as usize].quiet_at = now;
            }
        }
        self.advance(host);
        self.hosts[host].drop_received();
    }

    /// Returns the number of the host's connections, including those that are dialling or closing.
    pub(crate) fn connections(&self, host: usize) -> usize {
        self.hosts[host].connections()
    }

    /// Returns `true` if every receive buffer of the host is back, no frame is queued and no event
    /// waits.
    pub(crate) fn is_at_rest(&self, host: usize) -> bool {
        self.hosts[host].is_at_rest()
    }

    /// Describes why a host is not at rest, for a failure's message.
    pub(crate) fn describe(&self, host: usize) -> String {
        format!("host {host} {}", self.hosts[host].describe())
    }

    /// Takes the receive buffers of every host, at the end of the world.
    pub(crate) fn take_buffers(&mut self) -> Vec<Buf> {
        self.hosts.iter_mut().flat_map(|host| std::mem::take(&mut host.buffers)).collect()
    }
}
