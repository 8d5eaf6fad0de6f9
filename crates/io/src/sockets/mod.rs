//! Kernel TCP and Unix sockets behind the ports of the network ([`Streams`], [`Transport`],
//! `Migrate`, [`Dial`]), over io_uring or epoll.
//!
//! [`SocketsOver`] has the parts that do not depend on the kernel interface: the table of
//! connections, their ends and deadlines, listeners, and the distribution of accepted connections
//! over workers. A [`Kernel`] is the interface. `tests/all/sockets.rs` checks both with one suite.
//!
//! This module deliberately leaves out the meaning of the bytes.

mod kernel;
mod life;
mod listeners;
mod migrate;
mod table;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use contract::{
    Buf, CloseReason, ConnId, Dial, Frame, Instant, ListenerId, NetEvent, ServerEvent, Streams,
    TenantId, Transport,
};
use packets::PacketKey;
use rustix::io::Errno;
use rustix::net::SocketType;

pub(crate) use self::kernel::{Accept, Kernel, Receive};
pub(crate) use self::life::ConnectionLifecycle;
pub(crate) use self::listeners::Listeners;
pub(crate) use self::table::{
    Conn, ConnState, ConnTable, ConnectionPhase, ReceiveFlow, ReceiveTarget,
};
use crate::endpoint::{address_of, peer_of};
use crate::spread::{AcceptedConnection, turned_away};
use crate::tls::{ClientHandshakes, ClientTls, RECORD_BUFFERS_FROM};
use crate::{
    ConnectionBalancer, Endpoint, Error, Listener, Network, Reactor, SocketsConfig, TcpOptions,
    Waker,
};

/// The time that the peer of a finished connection has to close its end, before the connection is
/// cut.
const FINISH_LIMIT: Duration = Duration::from_secs(2);

/// The pause after an accept that failed (no descriptors, say).
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of bytes behind a payload that a bounded receive takes: the heads of a few
/// messages.
pub(crate) const LOOK_BYTES: usize = 512;

/// Number of bounded receives in a row without a payload after which receives are unbounded again,
/// into the sockets' own buffers.
pub(crate) const PATIENCE: u8 = 16;

/// The sockets of a worker over a kernel interface.
pub struct SocketsOver<K: Kernel> {
    kernel: K,
    table: ConnTable<K::ConnState>,
    listeners: Listeners,
    /// Connections that wait for the peer's close, with their deadlines, earliest first.
    finishing: VecDeque<(Instant, ConnId)>,
    /// The queue of connections that other workers accepted for this one; `None` without other
    /// workers.
    inbox: Option<Receiver<AcceptedConnection>>,
    waker: Waker,
    tcp: TcpOptions,
    connections_max: usize,
    /// The number of dials that never became a connection; it identifies each of them.
    failed_dials: u32,
}

impl<K: Kernel> SocketsOver<K> {
    /// Assigns accepted sockets to workers: each to the one that has the fewest.
    fn assign_accepted(&mut self) {
        let mut accepted = std::mem::take(&mut self.listeners.accepted);
        for arrival in accepted.drain(..) {
            let tls = self.listeners.tls_of(arrival.listener);
            match (&self.table.spread, tls) {
                (Some((spread, _)), Some(tls)) => {
                    tls.receive(arrival.socket, arrival.listener, spread);
                    continue;
                }
                (None, Some(_)) => unreachable!("listen() looked"),
                (_, None) => {}
            }
            match &self.table.spread {
                None => self.adopt(arrival),
                Some((spread, me)) => match spread.let_in() {
                    None => turned_away(),
                    Some(worker) if worker == *me => self.adopt(arrival),
                    Some(worker) => spread.hand_over(worker, arrival),
                },
            }
        }
        self.listeners.accepted = accepted;
    }

    /// Makes an accepted socket a connection of this worker.
    fn adopt(&mut self, arrival: AcceptedConnection) {
        let Ok(peer) = peer_of(&arrival.socket) else {
            return self.table.uncount(); // reset before we looked
        };
        self.tcp.apply(&arrival.socket, address_of(&peer));
        match self.kernel.place(&mut self.table, arrival.socket, ConnectionPhase::Open) {
            Ok(index) => {
                self.table[index].secured = arrival.secured;
                let conn = self.table.id(index);
                let (listener, opening) = (Some(arrival.listener), arrival.opening);
                self.table.events.push(NetEvent::Opened { conn, peer, listener, opening });
                match self.table[index].secured {
                    None => self.kernel.start_bounded(&mut self.table, index),
                    Some(_) => self.kernel.start(&mut self.table, index),
                }
            }
            Err(_refused) => {
                ServerEvent::RefusedFull.count();
                tracing::warn!(%peer, max = self.connections_max,
                    "connection refused: this worker has its maximum");
                self.table.uncount();
            }
        }
    }

    /// Closes connections whose peers did not close in time. While frames are still being sent, the
    /// peer gets more time: the caller of `finish` sets the limit.
    fn expire_finishing(&mut self) {
        let now = self.table.now;
        while let Some((_, conn)) = self.finishing.pop_front_if(|(deadline, _)| *deadline <= now) {
            if self.unsent(conn) > 0 {
                self.finishing.push_back((now + FINISH_LIMIT, conn));
            } else {
                self.close(conn);
            }
        }
    }

    /// Starts a dial and returns its index in the table, or the system's error.
    fn start_dial(&mut self) -> Result<u32, Errno> {
        let server = self.table.server.clone().expect("dial_to() was called before");
        if matches!(server, Endpoint::Ethernet(_)) {
            return Err(Errno::AFNOSUPPORT);
        }
        let socket = rustix::net::socket_with(server.family(), SocketType::STREAM, K::FLAGS, None)?;
        self.tcp.apply(&socket, server.internet());
        let index = self.kernel.connect(&mut self.table, socket, &server)?;
        self.table[index].is_dialled = true;
        Ok(index)
    }
}

impl<K: Kernel> Network for SocketsOver<K> {
    type Reactor = K::Reactor;

    fn new(reactor: &K::Reactor, config: SocketsConfig) -> Result<Self, Error> {
        let events = config.receive_buffers + config.frames_max;
        Ok(SocketsOver {
            kernel: K::new(reactor, &config)?,
            table: ConnTable::new(config.connections_max, config.frames_max, events),
            listeners: Listeners::default(),
            finishing: VecDeque::new(),
            inbox: None,
            waker: reactor.waker(),
            tcp: config.tcp,
            connections_max: config.connections_max,
            failed_dials: 0,
        })
    }

    fn join(&mut self, spread: Arc<ConnectionBalancer>, worker: usize) {
        self.inbox = Some(spread.register(worker, self.waker.clone()));
        self.table.spread = Some((spread, worker));
    }

    fn listen(&mut self, id: ListenerId, listener: Listener) -> Result<(), Error> {
        if listener.endpoint().is_of_packets() {
            return Err(Error::new(format!(
                "cannot receive packets at {}: these workers were started for streams alone; \
                 expected io_uring, and a listener of packets in the configuration at the start",
                listener.endpoint()
            )));
        }
        if listener.tls.is_some() && self.table.spread.is_none() {
            return Err(Error::new("a listener with TLS is for workers of a spread"));
        }
        let n = self.listeners.add(id, listener);
        let listening = self.kernel.listen(&mut self.listeners, n);
        if listening.is_err() {
            self.listeners.all[n].listener = None;
        }
        listening
    }

    fn unlisten(&mut self, id: ListenerId) {
        for n in 0..self.listeners.all.len() {
            let listening = &mut self.listeners.all[n];
            if listening.id == id
                && let Some(listener) = listening.listener.take()
            {
                if let Some(tls) = &listener.tls {
                    tls.shut(true);
                }
                self.kernel.unlisten(&mut self.listeners, n, &listener);
            }
        }
    }

    fn hold(&mut self, is_held: bool) {
        self.listeners.is_held = is_held;
        self.kernel.follow(&mut self.listeners);
    }

    fn refuse(&mut self, id: ListenerId, refuses: bool) {
        self.listeners.refuse(id, refuses);
    }

    fn accepts(&self) -> bool {
        K::accepts(&self.listeners)
    }

    fn dial_to(&mut self, server: impl Into<Endpoint>) {
        self.table.server = Some(server.into());
    }

    fn dial_over(&mut self, tls: ClientTls) -> Result<(), Error> {
        self.table.greeter = Some(ClientHandshakes::new(tls, self.waker.clone())?);
        Ok(())
    }

    fn dial_sealed(&mut self, _key: PacketKey) -> Result<(), Error> {
        Err(Error::new("a key of packets is of no use to streams; expected reflex+udp://"))
    }
}

impl<K: Kernel> Streams for SocketsOver<K> {
    fn poll(&mut self, now: Instant, events: &mut Vec<NetEvent>, max: usize) {
        self.table.now = now;
        if self.table.spread.as_ref().is_some_and(|(spread, me)| spread.has_arrivals(*me)) {
            while let Some(arrival) = self.inbox.as_ref().and_then(|inbox| inbox.try_recv().ok()) {
                self.adopt(arrival);
            }
        }
        self.kernel.poll(&mut self.table, &mut self.listeners);
        if self.table.greeter.as_ref().is_some_and(ClientHandshakes::has_news) {
            self.kernel.end_greetings(&mut self.table);
        }
        self.assign_accepted();
        self.expire_finishing();
        if max >= self.table.events.len() {
            events.append(&mut self.table.events);
        } else {
            events.extend(self.table.events.drain(..max));
        }
    }

    fn give(&mut self, buf: Buf) {
        match buf.index() < RECORD_BUFFERS_FROM {
            true => self.kernel.give(buf),
            false => {
                self.table.spares.give(buf).into_iter().for_each(|held| self.kernel.give(held))
            }
        }
    }

    fn receive_into(&mut self, conn: ConnId, buf: Buf, at: usize, until: usize) -> Result<(), Buf> {
        assert!(at < until && until <= buf.capacity(), "bytes {at} to {until} of {buf:?}");
        let is_read = |found: &Conn<K::ConnState>| {
            let is_plain = found.secured.is_none();
            found.phase == ConnectionPhase::Open && found.flow == ReceiveFlow::Reading && is_plain
        };
        // Bytes that wait among the events come first. Records of TLS are opened elsewhere.
        if self.table.has_received(conn) || !self.table.find(conn).is_some_and(is_read) {
            return Err(buf);
        }
        let target = ReceiveTarget { buf, at, until, came: 0 };
        self.kernel.receive_into(&mut self.table, conn.index, target)
    }

    fn room(&self) -> usize {
        self.table.frames.room()
    }

    fn send(&mut self, _now: Instant, conn: ConnId, frame: Frame) {
        self.table.send(conn, frame);
    }

    fn kick(&mut self, now: Instant) {
        let count = self.table.ready.len();
        for n in 0..count {
            let index = self.table.ready[n];
            self.table[index].is_ready = false;
            if self.table[index].wants_send() {
                self.kernel.flush(&mut self.table, index);
            }
        }
        self.table.ready.drain(..count);
        self.kernel.end_turn(&mut self.table);
        if self.listeners.again.is_some_and(|at| at <= now) {
            self.listeners.again = None;
            self.kernel.follow(&mut self.listeners);
        }
    }

    fn close(&mut self, conn: ConnId) {
        if self.table.find(conn).is_some() {
            self.kernel.end(&mut self.table, conn.index, CloseReason::Local);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let has_work = !self.table.events.is_empty() || !self.table.ready.is_empty();
        if has_work || self.kernel.has_work(&self.listeners) {
            return Some(Instant::ZERO);
        }
        let finishing = self.finishing.front().map(|(deadline, _)| *deadline);
        [finishing, self.listeners.again].into_iter().flatten().min()
    }
}

impl<K: Kernel> Transport for SocketsOver<K> {
    fn pause(&mut self, conn: ConnId) {
        self.stop_reading(conn, ReceiveFlow::Paused);
    }

    fn resume(&mut self, conn: ConnId) {
        let Some(found) = self.table.find_mut(conn) else { return };
        if std::mem::replace(&mut found.flow, ReceiveFlow::Reading) != ReceiveFlow::Reading {
            self.kernel.start(&mut self.table, conn.index);
        }
    }

    fn unsent(&self, conn: ConnId) -> usize {
        self.table.find(conn).map_or(0, |found| found.unsent)
    }

    fn charge(&mut self, conn: ConnId, account: TenantId) {
        self.table.charge(conn, account);
    }

    fn queued(&self, account: TenantId) -> usize {
        self.table.queued(account)
    }

    fn finish(&mut self, conn: ConnId) {
        let deadline = self.table.now + FINISH_LIMIT;
        let Some(found) = self.table.find_mut(conn) else { return };
        if found.phase != ConnectionPhase::Open {
            return;
        }
        found.phase = ConnectionPhase::Finishing;
        self.finishing.push_back((deadline, conn));
        self.kernel.after_send(&mut self.table, conn.index);
        self.resume(conn); // to see the peer's close
    }

    fn stop_listening(&mut self) {
        for n in 0..self.listeners.all.len() {
            if let Some(listener) = self.listeners.all[n].listener.take() {
                self.kernel.unlisten(&mut self.listeners, n, &listener);
            }
        }
        self.listeners.again = None;
    }
}

impl<K: Kernel> Dial for SocketsOver<K> {
    fn dial(&mut self, _now: Instant) -> ConnId {
        match self.start_dial() {
            Ok(index) => self.table.id(index),
            Err(errno) => {
                self.failed_dials = self.failed_dials.wrapping_add(1);
                let conn = ConnId { index: u32::MAX, generation: self.failed_dials };
                let reason = CloseReason::Unreachable(errno.raw_os_error());
                self.table.events.push(NetEvent::Closed { conn, reason });
                conn
            }
        }
    }
}
