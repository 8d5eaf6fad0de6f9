//! Kernel TCP and Unix sockets over epoll behind the [`Transport`] port: for machines where io_uring is forbidden.
//!
//! Each stream is watched once, for each change of its state (edge-triggered), and its state is kept
//! here, so that pausing, resuming and a full send buffer cost no call. A turn receives once from
//! each connection that has something, in a line that is fair and bounded; a kick sends once on each
//! connection that has frames, all of them together. Events hold what the ring's sockets
//! ([`Sockets`](crate::Sockets)) promise, and `tests/all/sockets.rs` checks both.
//!
//! What is deliberately not here: anything about what the bytes mean.

mod conn;
mod direct;
mod handover;
mod reactor;
mod sendmsg;
mod token;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use contract::{
    Buf, CloseReason, ConnId, Dial, Frame, Happening, Instant, ListenerId, Migrate, NetEvent,
    SizeClass, Streams, Ticket, Transport,
};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, SocketAddrUnix, SocketFlags};

use self::conn::{Conn, Phase};
pub use self::reactor::EpollReactor;
use self::sendmsg::send_block;
use self::token::Token;
use crate::endpoint::{address_of, hang_up_reason, peer_of};
use crate::frames::FrameStore;
use crate::listen::reached_itself;
use crate::sendblock::SendBlock;
use crate::sockets::{ACCEPT_PAUSE, FINISH_LIMIT, LOOK_BYTES};
use crate::spread::{Arrival, turned_away};
use crate::{Endpoint, Error, Listener, SocketsConfig, Spread, carve};

/// Receives of one turn, over all connections: a worker's batch.
const RECEIVES_A_TURN: usize = 64;

/// Connections that one turn accepts from one listener.
const ACCEPTS_A_TURN: usize = 64;

/// One worker's sockets.
pub struct EpollSockets {
    reactor: EpollReactor,
    config: SocketsConfig,
    conns: Vec<Conn>,
    /// Free places of `conns`.
    free: Vec<u32>,
    frames: FrameStore,
    /// Receive buffers that are not lent.
    bufs: Vec<Buf>,
    /// What the send being made points to; empty in between.
    block: Box<SendBlock>,
    events: VecDeque<NetEvent>,
    reported: Vec<epoll::Event>,
    /// Connections with frames that the kernel may take.
    ready: Vec<u32>,
    /// Connections to receive from, who waited longest first.
    line: VecDeque<u32>,
    /// Connections whose bounded receives have ended.
    resting: Vec<u32>,
    /// Connections that wait for the peer's close, with their deadlines, earliest first.
    finishing: VecDeque<(Instant, ConnId)>,
    listeners: Vec<Listening>,
    /// When accepting, which failed, is tried again.
    accept_again: Option<Instant>,
    /// Nothing is accepted for now.
    is_held: bool,
    spread: Option<(Arc<Spread>, usize)>,
    server: Option<Endpoint>,
    /// Names dials that never became a connection.
    failed_dials: u32,
    now: Instant,
}

struct Listening {
    id: ListenerId,
    /// `None`: it was closed, and the place is free.
    listener: Option<Listener>,
    /// Connections may wait to be accepted; an accept that finds none ends this.
    waiting: bool,
    /// Whoever comes is turned away.
    refuses: bool,
}

impl EpollSockets {
    /// Sockets of the calling thread.
    ///
    /// # Errors
    /// When memory does not suffice for what `config` asks.
    pub fn new(reactor: &EpollReactor, config: SocketsConfig) -> Result<EpollSockets, Error> {
        let class = SizeClass { bytes: config.receive_buffer_bytes, count: config.receive_buffers };
        Ok(EpollSockets {
            reactor: reactor.clone(),
            conns: Vec::new(),
            free: Vec::new(),
            frames: FrameStore::new(config.frames_max),
            bufs: carve(&[class])?.bufs,
            block: SendBlock::new(),
            events: VecDeque::with_capacity(config.receive_buffers + config.frames_max),
            reported: Vec::with_capacity(1024),
            ready: Vec::with_capacity(1024),
            line: VecDeque::with_capacity(1024),
            resting: Vec::with_capacity(64),
            finishing: VecDeque::new(),
            listeners: Vec::new(),
            accept_again: None,
            is_held: false,
            spread: None,
            server: None,
            failed_dials: 0,
            now: Instant::ZERO,
            config,
        })
    }

    /// Takes part in `spread` as its worker number `worker`: connections that any of its members
    /// accepts go to the one that has the fewest.
    pub fn join(&mut self, spread: Arc<Spread>, worker: usize) {
        spread.register(worker, self.reactor.waker());
        self.spread = Some((spread, worker));
    }

    /// Accepts connections from `listener`.
    ///
    /// # Errors
    /// When the system cannot watch one more descriptor.
    pub fn listen(&mut self, id: ListenerId, listener: Listener) -> Result<(), Error> {
        let vacant = self.listeners.iter().position(|own| own.listener.is_none());
        let place = vacant.unwrap_or(self.listeners.len());
        let token = Token::Listener(place as u32);
        rustix::io::ioctl_fionbio(&listener.socket, true)
            .and_then(|()| self.reactor.watch_listener(&listener.socket, token))
            .map_err(|e| Error::system(format!("cannot watch {}", listener.endpoint()), e))?;
        let listener = Some(listener);
        let listening = Listening { id, listener, waiting: true, refuses: false };
        match self.listeners.get_mut(place) {
            Some(vacant) => *vacant = listening,
            None => self.listeners.push(listening),
        }
        Ok(())
    }

    /// Closes a listener. Connections that came by it stay.
    pub fn unlisten(&mut self, id: ListenerId) {
        for listening in self.listeners.iter_mut().filter(|listening| listening.id == id) {
            let Some(listener) = listening.listener.take() else { continue };
            self.reactor.forget(&listener.socket);
            listening.waiting = false;
        }
    }

    /// Turns away whoever comes by a listener from now on, or lets them in again.
    pub fn refuse(&mut self, id: ListenerId, refuses: bool) {
        let own = self.listeners.iter_mut().filter(|listening| listening.id == id);
        own.for_each(|listening| listening.refuses = refuses);
    }

    /// Accepts nothing for now, or again.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Whether an accept may still bring a connection.
    pub fn accepts(&self) -> bool {
        !self.is_held && self.listeners.iter().any(|own| own.listener.is_some())
    }

    /// Makes [`Dial::dial`] connect to `server`.
    pub fn dial_to(&mut self, server: impl Into<Endpoint>) {
        self.server = Some(server.into());
    }

    fn handle(&mut self, event: epoll::Event) {
        match Token::from_data(event.data) {
            Token::Waker => {}
            Token::Listener(n) => {
                // None: it was closed meanwhile.
                if let Some(listening) = self.listeners.get_mut(n as usize) {
                    listening.waiting = true;
                }
            }
            Token::Conn(id) => self.changed(id, event.flags),
        }
    }

    /// A stream's state has changed.
    fn changed(&mut self, id: ConnId, flags: epoll::EventFlags) {
        use epoll::EventFlags as E;
        let Some(conn) = self.find(id) else { return };
        if conn.phase == Phase::Dialling {
            if !flags.intersects(E::OUT | E::ERR | E::HUP) {
                return;
            }
            if !self.connected(id) {
                return;
            }
        }
        let conn = &mut self.conns[id.index as usize];
        conn.writable |= flags.contains(E::OUT);
        conn.ending |= flags.intersects(E::RDHUP | E::HUP | E::ERR);
        conn.readable |= flags.contains(E::IN) || conn.ending;
        if conn.paused && conn.ending {
            return self.hung_up(id.index);
        }
        self.line_up(id.index);
        self.mark_ready(id.index);
    }

    /// A dial has ended; whether there is a connection.
    fn connected(&mut self, id: ConnId) -> bool {
        let conn = &mut self.conns[id.index as usize];
        let socket = conn.socket.as_ref().expect("a dial has a socket");
        let server = self.server.as_ref().expect("a dial had an address");
        match rustix::net::sockopt::socket_error(socket).and_then(|result| result) {
            Ok(()) if reached_itself(socket, server) => {
                self.end(id.index, CloseReason::Unreachable(Errno::CONNREFUSED.raw_os_error()));
                false
            }
            Ok(()) => {
                conn.phase = Phase::Open;
                let peer = server.peer(socket);
                self.events.push_back(NetEvent::Opened { conn: id, peer, listener: None });
                true
            }
            Err(errno) => {
                self.end(id.index, CloseReason::Unreachable(errno.raw_os_error()));
                false
            }
        }
    }

    /// Accepts what waits, unless accepting has to wait.
    fn accept(&mut self) {
        if self.is_held || self.accept_again.is_some_and(|at| at > self.now) {
            return;
        }
        self.accept_again = None;
        for n in 0..self.listeners.len() {
            for _ in 0..ACCEPTS_A_TURN {
                let listening = &mut self.listeners[n];
                let Some(own) = listening.listener.as_ref().filter(|_| listening.waiting) else {
                    break;
                };
                let (listener, refuses) = (listening.id, listening.refuses);
                let accepted = rustix::net::accept_with(&own.socket, SocketFlags::CLOEXEC);
                match accepted {
                    Ok(_turned_away) if refuses => Happening::RefusedDrained.count(),
                    Ok(socket) => self.assign(Arrival { socket, listener }),
                    Err(Errno::AGAIN) => listening.waiting = false,
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(error) => {
                        tracing::warn!(%error,
                            "cannot accept (too few descriptors? raise `ulimit -n`)");
                        self.accept_again = Some(self.now + ACCEPT_PAUSE);
                        return;
                    }
                }
            }
        }
    }

    /// Gives an accepted connection to the worker that has the fewest.
    fn assign(&mut self, arrival: Arrival) {
        match &self.spread {
            None => self.adopt(arrival),
            Some((spread, me)) => match spread.let_in() {
                None => turned_away(),
                Some(worker) if worker == *me => self.adopt(arrival),
                Some(worker) => spread.hand_over(worker, arrival),
            },
        }
    }

    /// Makes an accepted socket a connection of this worker.
    fn adopt(&mut self, arrival: Arrival) {
        let Ok(peer) = peer_of(&arrival.socket) else {
            return self.uncount(); // reset before we looked
        };
        self.config.tcp.apply(&arrival.socket, address_of(&peer));
        match self.place(arrival.socket, Phase::Open) {
            Ok(index) => {
                let conn = self.id(index);
                let listener = Some(arrival.listener);
                self.events.push_back(NetEvent::Opened { conn, peer, listener });
            }
            Err(_refused) => {
                Happening::RefusedFull.count();
                tracing::warn!(%peer, max = self.config.connections_max,
                    "connection refused: this worker has its maximum");
                self.uncount();
            }
        }
    }

    fn uncount(&self) {
        if let Some((spread, me)) = &self.spread {
            spread.gone(*me);
        }
    }

    /// Puts the socket into a free place and watches it; `None` the socket comes back when there
    /// is none.
    fn place(&mut self, socket: OwnedFd, phase: Phase) -> Result<u32, OwnedFd> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.conns.len() < self.config.connections_max => {
                self.conns.push(Conn::vacant());
                self.conns.len() as u32 - 1
            }
            None => return Err(socket),
        };
        if let Err(error) = self.reactor.watch_stream(&socket, Token::Conn(self.id(index))) {
            tracing::warn!(%error, "cannot watch a connection");
            self.free.push(index);
            return Err(socket);
        }
        self.conns[index as usize].occupy(socket, phase);
        Ok(index)
    }

    fn id(&self, index: u32) -> ConnId {
        ConnId { index, generation: self.conns[index as usize].generation }
    }

    fn find(&mut self, conn: ConnId) -> Option<&mut Conn> {
        let found = self.conns.get_mut(conn.index as usize)?;
        (found.generation == conn.generation && found.socket.is_some()).then_some(found)
    }

    /// Puts a connection that has something into the line of those to receive from.
    fn line_up(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        if conn.wants_receive() && !std::mem::replace(&mut conn.is_in_line, true) {
            self.line.push_back(index);
        }
    }

    /// Puts a connection that may send into the list of those to send on.
    fn mark_ready(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        if conn.wants_send() && !std::mem::replace(&mut conn.is_ready, true) {
            self.ready.push(index);
        }
    }

    /// Receives along the line.
    fn receive(&mut self) {
        for _ in 0..RECEIVES_A_TURN {
            if self.bufs.is_empty() {
                return;
            }
            let Some(index) = self.line.pop_front() else { return };
            self.conns[index as usize].is_in_line = false;
            if self.conns[index as usize].wants_receive() {
                self.receive_once(index);
                self.line_up(index);
            }
        }
    }

    fn receive_once(&mut self, index: u32) {
        let id = self.id(index);
        let conn = &mut self.conns[index as usize];
        let mut buf = self.bufs.pop().expect("the caller looked");
        if let Some(target) = conn.target.take() {
            return self.receive_directly(index, target, buf);
        }
        let socket = conn.socket.as_ref().expect("it wants to receive");
        let most = if conn.patience > 0 { LOOK_BYTES.min(buf.capacity()) } else { buf.capacity() };
        match rustix::net::recv(socket, buf.prefix_mut(most), RecvFlags::DONTWAIT) {
            Ok((_, len)) if len > 0 => {
                // What came with less than there was room for was all; its end comes behind it.
                conn.readable = len == most || conn.ending;
                let was_bounded = conn.patience > 0;
                conn.patience = if len == most { 0 } else { conn.patience.saturating_sub(1) };
                if conn.phase == Phase::Open {
                    self.events.push_back(NetEvent::Received { conn: id, buf, len });
                } else {
                    self.bufs.push(buf);
                }
                if was_bounded {
                    self.rest(index);
                }
            }
            ended => {
                self.bufs.push(buf);
                self.received_nothing(index, ended.err());
            }
        }
    }

    /// Sends what `index` has queued, as much as one send takes.
    fn flush(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        conn.is_ready = false;
        if !conn.wants_send() {
            return;
        }
        self.block.clear();
        let mut gone = conn.taken;
        for frame in self.frames.iter(&conn.queue) {
            if !self.block.append_rest(frame, std::mem::take(&mut gone)) {
                break;
            }
        }
        let socket = conn.socket.as_ref().expect("it wants to send");
        match send_block(socket, &mut self.block) {
            Ok(sent) => {
                conn.writable = sent == self.block.bytes;
                self.sent(index, sent);
            }
            Err(Errno::AGAIN) => conn.writable = false,
            Err(Errno::INTR) => {}
            Err(errno) => self.end(index, CloseReason::Reset(errno.raw_os_error())),
        }
        self.mark_ready(index);
    }

    /// The kernel has taken `bytes` more of what is queued.
    fn sent(&mut self, index: u32, bytes: usize) {
        let id = self.id(index);
        let conn = &mut self.conns[index as usize];
        conn.unsent -= bytes;
        conn.taken += bytes;
        while let Some(front) = self.frames.front(&conn.queue) {
            let whole = front.wire_bytes();
            if conn.taken < whole {
                return;
            }
            conn.taken -= whole;
            let frame = self.frames.pop(&mut conn.queue).expect("looked at above");
            if let Some(buf) = frame.body {
                self.events.push_back(NetEvent::Sent { conn: id, buf });
            }
        }
        assert!(conn.taken == 0, "the kernel took more than there was");
        if conn.phase == Phase::Finishing {
            self.shut_sending(index);
        }
    }

    fn shut_sending(&mut self, index: u32) {
        let socket = self.conns[index as usize].socket.as_ref().expect("occupied");
        let _ = rustix::net::shutdown(socket, Shutdown::Write); // a dead peer shows in the receive
    }

    /// A connection that is not read has ended.
    fn hung_up(&mut self, index: u32) {
        let socket = self.conns[index as usize].socket.as_ref().expect("it was just found");
        let reason = hang_up_reason(socket);
        self.end(index, reason);
    }

    /// The connection ends for `reason`. Nothing of it is in flight, so it ends at once.
    fn end(&mut self, index: u32, reason: CloseReason) {
        let id = self.id(index);
        self.release_target(index);
        let conn = &mut self.conns[index as usize];
        while let Some(frame) = self.frames.pop(&mut conn.queue) {
            if let Some(buf) = frame.body {
                self.events.push_back(NetEvent::Sent { conn: id, buf });
            }
        }
        let socket = conn.socket.as_ref().expect("an occupied place has a socket");
        let _ = rustix::net::shutdown(socket, Shutdown::Both);
        let accepted = !conn.dialled;
        conn.vacate();
        self.free.push(index);
        self.events.push_back(NetEvent::Closed { conn: id, reason });
        if accepted {
            self.uncount();
        }
    }

    /// Ends connections whose peers did not close in time. While frames are still leaving, the peer
    /// has more time: whoever finished the connection decides for how long.
    fn expire_finishing(&mut self) {
        while let Some(&(deadline, conn)) = self.finishing.front() {
            if deadline > self.now {
                break;
            }
            self.finishing.pop_front();
            if self.unsent(conn) > 0 {
                self.finishing.push_back((self.now + FINISH_LIMIT, conn));
            } else {
                self.close(conn);
            }
        }
    }

    /// Starts a connection; the error is the system's number.
    fn start_dial(&mut self) -> Result<u32, Errno> {
        let server = self.server.as_ref().expect("dial_to() was called before");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = rustix::net::SocketType::STREAM;
        let socket = rustix::net::socket_with(server.family(), kind, flags, None)?;
        self.config.tcp.apply(&socket, server.internet());
        let begun = match server {
            Endpoint::Internet(address) => rustix::net::connect(&socket, address),
            Endpoint::Unix(path) => SocketAddrUnix::new(path.as_bytes())
                .and_then(|address| rustix::net::connect(&socket, &address)),
        };
        match begun {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        let index = self.place(socket, Phase::Dialling).map_err(|_refused| Errno::MFILE)?;
        self.conns[index as usize].dialled = true;
        Ok(index)
    }
}

impl Streams for EpollSockets {
    fn poll(&mut self, now: Instant, events: &mut Vec<NetEvent>, max: usize) {
        self.now = now;
        if let Some((spread, me)) = &self.spread {
            for arrival in spread.take_arrivals(*me) {
                self.adopt(arrival);
            }
        }
        let mut reported = std::mem::take(&mut self.reported);
        self.reactor.drain(&mut reported);
        for event in reported.drain(..) {
            self.handle(event);
        }
        self.reported = reported;
        self.accept();
        self.receive();
        self.expire_finishing();
        let take = max.min(self.events.len());
        events.extend(self.events.drain(..take));
    }

    fn give(&mut self, buf: Buf) {
        assert!(self.bufs.len() < self.config.receive_buffers, "a buffer was returned twice");
        self.bufs.push(buf);
    }

    fn receive_into(&mut self, conn: ConnId, buf: Buf, at: usize, until: usize) -> Result<(), Buf> {
        self.begin_direct(conn, buf, at, until)
    }

    fn room(&self) -> usize {
        self.frames.room()
    }

    fn send(&mut self, _now: Instant, conn: ConnId, frame: Frame) {
        let bytes = frame.wire_bytes();
        match self.conns.get_mut(conn.index as usize) {
            Some(found)
                if found.generation == conn.generation
                    && matches!(found.phase, Phase::Open | Phase::Finishing) =>
            {
                found.unsent += bytes;
                self.frames.push(&mut found.queue, frame);
                self.mark_ready(conn.index);
            }
            _ => {
                if let Some(buf) = frame.body {
                    self.events.push_back(NetEvent::Sent { conn, buf });
                }
            }
        }
    }

    fn kick(&mut self, _now: Instant) {
        let count = self.ready.len();
        for n in 0..count {
            self.flush(self.ready[n]);
        }
        self.ready.drain(..count);
        self.end_rests();
    }

    fn close(&mut self, conn: ConnId) {
        if self.find(conn).is_some() {
            self.end(conn.index, CloseReason::Local);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let receives = !self.line.is_empty() && !self.bufs.is_empty();
        let accepts = !self.is_held
            && self.accept_again.is_none()
            && self.listeners.iter().any(|l| l.waiting && l.listener.is_some());
        let busy = receives || accepts || !self.ready.is_empty() || !self.events.is_empty();
        if busy || self.reactor.has_events() {
            return Some(Instant::ZERO);
        }
        let finishing = self.finishing.front().map(|(deadline, _)| *deadline);
        [finishing, self.accept_again].into_iter().flatten().min()
    }
}

impl Transport for EpollSockets {
    fn pause(&mut self, conn: ConnId) {
        let Some(found) = self.find(conn) else { return };
        let is_over = !std::mem::replace(&mut found.paused, true) && found.ending;
        self.release_target(conn.index);
        if is_over {
            self.hung_up(conn.index);
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(found) = self.find(conn) {
            found.paused = false;
            self.line_up(conn.index);
        }
    }

    fn unsent(&self, conn: ConnId) -> usize {
        self.conns
            .get(conn.index as usize)
            .filter(|found| found.generation == conn.generation)
            .map_or(0, |found| found.unsent)
    }

    fn finish(&mut self, conn: ConnId) {
        let deadline = self.now + FINISH_LIMIT;
        let Some(found) = self.find(conn) else { return };
        if found.phase != Phase::Open {
            return;
        }
        found.phase = Phase::Finishing;
        let idle = found.queue.is_empty();
        self.finishing.push_back((deadline, conn));
        if idle {
            self.shut_sending(conn.index);
        }
        self.resume(conn); // to see the peer's close
    }

    fn stop_listening(&mut self) {
        self.listeners.clear();
        self.accept_again = None;
    }
}

impl Migrate for EpollSockets {
    fn still(&mut self, conn: ConnId) {
        self.pause(conn);
    }

    fn is_still(&self, conn: ConnId) -> bool {
        self.is_quiet(conn)
    }

    fn detach(&mut self, conn: ConnId, to: u16) -> Ticket {
        self.put_into_rack(conn, to)
    }

    fn attach(&mut self, ticket: Ticket) -> Option<ConnId> {
        self.take_from_rack(ticket)
    }
}

impl Dial for EpollSockets {
    fn dial(&mut self, _now: Instant) -> ConnId {
        match self.start_dial() {
            Ok(index) => self.id(index),
            Err(errno) => {
                self.failed_dials = self.failed_dials.wrapping_add(1);
                let conn = ConnId { index: u32::MAX, generation: self.failed_dials };
                let reason = CloseReason::Unreachable(errno.raw_os_error());
                self.events.push_back(NetEvent::Closed { conn, reason });
                conn
            }
        }
    }
}
