//! Kernel TCP and Unix sockets over io_uring behind the [`Transport`] port.
//!
//! Receives are multishot into a provided-buffer ring; one send is in flight a connection and
//! carries whatever became ready meanwhile; descriptors are registered. The methods of the port
//! only write submission entries and drain the inbox: [`Ring::enter`] alone enters the kernel.
//!
//! What is deliberately not here: anything about what the bytes mean.

// UNSAFETY: submission entries point into blocks and addresses that this module keeps in place
// until their last completion; accepted descriptors arrive as numbers.
#![allow(unsafe_code)]

mod accept;
mod conn;
mod dial;
mod direct;
mod handover;
mod provided;
mod starved;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use contract::{
    Buf, CloseReason, ConnId, Frame, Happening, Instant, ListenerId, Migrate, NetEvent, Streams,
    Ticket, Transport,
};
use io_uring::{cqueue, opcode, types};
use rustix::net::Shutdown;

use self::conn::{Conn, Operation, Phase, Receiving};
use self::direct::Direct;
pub(crate) use self::direct::{LOOK_BYTES, PATIENCE};
use self::provided::ProvidedBuffers;
use crate::endpoint::{address_of, hang_up_reason, peer_of};
use crate::frames::{FrameQueue, FrameStore};
use crate::listen::reached_itself;
use crate::sendblock::SendBlock;
use crate::spread::{Arrival, turned_away};
use crate::{Endpoint, Error, Listener, Owner, Ring, RingEvent, Spread, TcpOptions};

/// How long a connection that we finished may take to close its side.
pub(crate) const FINISH_LIMIT: Duration = Duration::from_secs(2);

/// How long to leave a listener alone after an accept failed (no descriptors, say).
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The provided-buffer group of the receives.
const GROUP: u16 = 0;

/// Vectors of sends that are made at start: sends in flight at the same time, unless peers are slow.
const BLOCKS: usize = 64;

/// Sizes and options of a worker's sockets. Every number is a maximum, allocated at start.
#[derive(Debug)]
pub struct SocketsConfig {
    /// Connections at the same time.
    pub connections_max: usize,
    /// Receive buffers; a power of two.
    pub receive_buffers: usize,
    /// Bytes of each.
    pub receive_buffer_bytes: usize,
    /// Frames that wait to be sent, over all connections.
    pub frames_max: usize,
    /// Socket options.
    pub tcp: TcpOptions,
}

impl Default for SocketsConfig {
    fn default() -> Self {
        SocketsConfig {
            connections_max: 16384,
            receive_buffers: 4096,
            receive_buffer_bytes: 8 << 10,
            frames_max: 16384,
            tcp: TcpOptions::default(),
        }
    }
}

/// One worker's sockets.
pub struct Sockets {
    ring: Ring,
    config: SocketsConfig,
    conns: Vec<Conn>,
    /// Free places of `conns`.
    free: Vec<u32>,
    frames: FrameStore,
    provided: ProvidedBuffers,
    /// Vectors that no send uses. More are made when more connections send at the same time than
    /// ever before, at most one for each.
    blocks: Vec<Box<SendBlock>>,
    /// What no bounded receive uses, in the same way.
    #[allow(clippy::vec_box, reason = "the boxes themselves go to connections and come back")]
    directs: Vec<Box<Direct>>,
    /// Buffers of bounded receives that are not lent.
    looks: Vec<Buf>,
    events: VecDeque<NetEvent>,
    completions: Vec<RingEvent>,
    /// Connections with frames and no send in flight.
    ready: Vec<u32>,
    /// Connections whose receive ended for want of buffers.
    starved: VecDeque<u32>,
    /// Connections whose bounded receives have ended.
    resting: Vec<u32>,
    /// Connections that wait for the peer's close, with their deadlines, earliest first.
    finishing: VecDeque<(Instant, ConnId)>,
    listeners: Vec<Listening>,
    /// When listeners whose accept failed are tried again.
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
    /// `None`: it was closed, and the place is free once its accept has ended.
    listener: Option<Listener>,
    armed: bool,
    /// Whoever comes is turned away.
    refuses: bool,
}

impl Sockets {
    /// Sockets of the calling thread.
    ///
    /// # Errors
    /// When memory or descriptors do not suffice for what `config` asks.
    pub fn new(ring: &Ring, config: SocketsConfig) -> Result<Sockets, Error> {
        let provided = ProvidedBuffers::register(
            ring,
            GROUP,
            config.receive_buffer_bytes,
            config.receive_buffers,
        )?;
        let places = config.connections_max as u32;
        ring.register_files(places).map_err(|e| {
            Error::system(format!("cannot register {places} descriptors (raise `ulimit -n`)"), e)
        })?;
        Ok(Sockets {
            ring: ring.clone(),
            conns: Vec::new(),
            free: Vec::new(),
            frames: FrameStore::new(config.frames_max),
            provided,
            blocks: (0..BLOCKS).map(|_| SendBlock::new()).collect(),
            directs: (0..BLOCKS).map(|_| Direct::new()).collect(),
            looks: direct::carve_looks(config.receive_buffers)?,
            events: VecDeque::with_capacity(config.receive_buffers),
            completions: Vec::with_capacity(1024),
            ready: Vec::new(),
            starved: VecDeque::new(),
            resting: Vec::with_capacity(BLOCKS),
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
        spread.register(worker, self.ring.waker());
        self.spread = Some((spread, worker));
    }

    /// Accepts connections from `listener`.
    pub fn listen(&mut self, id: ListenerId, listener: Listener) {
        // One that another process has passed on may be as that one's way to the kernel wanted it.
        let _ = rustix::io::ioctl_fionbio(&listener.socket, false);
        let listening = Listening { id, listener: Some(listener), armed: false, refuses: false };
        // A place whose last accept has not ended yet would hear of that.
        match self.listeners.iter_mut().find(|own| own.listener.is_none() && !own.armed) {
            Some(place) => *place = listening,
            None => self.listeners.push(listening),
        }
        self.arm_accepts();
    }

    /// Makes [`contract::Dial::dial`] connect to `server`.
    pub fn dial_to(&mut self, server: impl Into<Endpoint>) {
        self.server = Some(server.into());
    }

    fn arm_accepts(&mut self) {
        for n in 0..self.listeners.len() {
            let Some(listener) = &self.listeners[n].listener else { continue };
            if self.listeners[n].armed || self.is_held {
                continue;
            }
            let fd = types::Fd(listener.socket.as_raw_fd());
            self.listeners[n].armed = true;
            let entry = opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build();
            // SAFETY: the entry points to nothing.
            unsafe { self.ring.push(Owner::Sockets, Operation::Accept.data(n as u32, 0), entry) };
        }
    }

    fn handle(&mut self, event: RingEvent) {
        let (operation, index) = Operation::from_data(event.data);
        match operation {
            Operation::Accept => self.accepted(index as usize, event),
            Operation::Receive => self.received(index, event),
            Operation::Send => self.sent(index, event),
            Operation::Connect => self.connected(index, event),
            Operation::Watch => self.hung_up(index, event),
            Operation::Cancel => {}
        }
    }

    fn accepted(&mut self, n: usize, event: RingEvent) {
        let mut open = None;
        if let Some(listening) = self.listeners.get_mut(n) {
            listening.armed = cqueue::more(event.flags);
            open = listening.listener.as_ref().map(|_| (listening.id, listening.refuses));
        }
        let Some((listener, refuses)) = open else {
            // The listener was closed; so is what it still accepted.
            if event.result >= 0 {
                // SAFETY: the kernel just gave us this descriptor and nobody else has it.
                drop(unsafe { OwnedFd::from_raw_fd(event.result) });
            }
            return;
        };
        if event.result == -libc::ECANCELED {
            // The hold may be over by now.
            self.accept_again = (!self.is_held).then_some(self.now);
            return;
        }
        if event.result < 0 {
            let error = std::io::Error::from_raw_os_error(-event.result);
            tracing::warn!(%error, "cannot accept (too few descriptors? raise `ulimit -n`)");
        } else {
            // SAFETY: the kernel just gave us this descriptor and nobody else has it.
            let socket = unsafe { OwnedFd::from_raw_fd(event.result) };
            let arrival = Arrival { socket, listener };
            match &self.spread {
                _ if refuses => Happening::RefusedDrained.count(),
                None => self.adopt(arrival),
                Some((spread, me)) => match spread.let_in() {
                    None => turned_away(),
                    Some(worker) if worker == *me => self.adopt(arrival),
                    Some(worker) => spread.hand_over(worker, arrival),
                },
            }
        }
        if !cqueue::more(event.flags) {
            self.accept_again = Some(self.now + ACCEPT_PAUSE);
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
                self.arm_receive(index);
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

    /// Puts the socket into a free place and registers it; `None` the socket comes back when there
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
        let fds = [socket.as_raw_fd()];
        let registered = self.ring.with_submitter(|s| s.register_files_update(index, &fds));
        if let Err(error) = registered {
            tracing::warn!(%error, "cannot register a connection's descriptor");
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

    fn arm_receive(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        debug_assert!(conn.receiving == Receiving::Idle);
        conn.receiving = Receiving::Armed;
        let data = Operation::Receive.data(index, conn.generation);
        let entry = opcode::RecvMulti::new(types::Fixed(index), GROUP).build();
        // SAFETY: the entry points to nothing; the kernel receives into the provided buffers.
        unsafe { self.ring.push(Owner::Sockets, data, entry) };
    }

    fn received(&mut self, index: u32, event: RingEvent) {
        let id = self.id(index);
        let conn = &mut self.conns[index as usize];
        if conn.direct.is_some() {
            return self.received_bounded(index, event);
        }
        if !cqueue::more(event.flags) {
            conn.receiving = Receiving::Idle;
        }
        if let Some(number) = cqueue::buffer_select(event.flags) {
            let buf = self.provided.take(number);
            if event.result > 0 && conn.phase == Phase::Open {
                let len = event.result as usize;
                self.events.push_back(NetEvent::Received { conn: id, buf, len });
            } else {
                self.provided.give(buf);
            }
        }
        match end_of(event.result) {
            Some(reason) => self.end(index, reason),
            None if event.result == -libc::ENOBUFS => self.starve(index),
            None => {}
        }
        self.receive_or_free(index);
    }

    /// After a receive has ended: receives again, or goes on with closing.
    fn receive_or_free(&mut self, index: u32) {
        let conn = &self.conns[index as usize];
        if conn.receiving != Receiving::Idle || conn.socket.is_none() {
            return;
        }
        match conn.phase {
            Phase::Closing(_) => self.free_when_quiet(index),
            Phase::Open | Phase::Finishing if !conn.paused && !conn.is_starved => {
                self.arm_receive(index);
            }
            _ => {}
        }
    }

    /// Watches for the end of a connection that is not read.
    fn watch(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        let lives = matches!(conn.phase, Phase::Open | Phase::Finishing);
        if !lives || std::mem::replace(&mut conn.is_watched, true) {
            return;
        }
        let data = Operation::Watch.data(index, conn.generation);
        let events = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        let entry = opcode::PollAdd::new(types::Fixed(index), events as u32).build();
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(Owner::Sockets, data, entry) };
    }

    /// What watches for the connection's end has ended. While it is read, its end shows there.
    fn hung_up(&mut self, index: u32, event: RingEvent) {
        let conn = &mut self.conns[index as usize];
        conn.is_watched = false;
        match conn.phase {
            Phase::Closing(_) => self.free_when_quiet(index),
            _ if conn.paused && event.result > 0 => {
                let reason = hang_up_reason(conn.socket.as_ref().expect("an occupied place"));
                self.end(index, reason);
            }
            // It was to move, and stays, and was paused before the end of the watching was known.
            _ if conn.paused && !conn.is_stilled && event.result == -libc::ECANCELED => {
                self.watch(index);
            }
            _ => {}
        }
    }

    /// The connection ends for `reason`; `Closed` follows when nothing of it is in flight.
    fn end(&mut self, index: u32, reason: CloseReason) {
        let conn = &mut self.conns[index as usize];
        if matches!(conn.phase, Phase::Closing(_)) {
            return;
        }
        let dialling = conn.phase == Phase::Dialling;
        conn.phase = Phase::Closing(reason);
        let socket = conn.socket.as_ref().expect("an occupied place has a socket");
        let _ = rustix::net::shutdown(socket, Shutdown::Both); // ends what is in flight
        let cancel = match (dialling, conn.receiving) {
            (true, _) => Some(Operation::Connect),
            (false, Receiving::Idle) => None,
            (false, _) => Some(Operation::Receive),
        };
        let watch = self.conns[index as usize].is_watched.then_some(Operation::Watch);
        for operation in cancel.into_iter().chain(watch) {
            self.cancel(index, operation);
        }
        self.drop_waiting_frames(index);
        self.free_when_quiet(index);
    }

    fn cancel(&mut self, index: u32, operation: Operation) {
        let generation = self.conns[index as usize].generation;
        let target = types::CancelBuilder::user_data(
            (Owner::Sockets as u64) << 56 | operation.data(index, generation),
        );
        let entry = opcode::AsyncCancel2::new(target).build();
        let data = Operation::Cancel.data(index, generation);
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(Owner::Sockets, data, entry) };
    }

    /// Gives back the bodies of frames that no send carries.
    fn drop_waiting_frames(&mut self, index: u32) {
        let id = self.id(index);
        let conn = &mut self.conns[index as usize];
        let carried = conn.sending.as_ref().map_or(0, |block| block.frames);
        let mut kept = FrameQueue::EMPTY;
        let mut waiting = std::mem::replace(&mut conn.queue, FrameQueue::EMPTY);
        for n in 0.. {
            let Some(frame) = self.frames.pop(&mut waiting) else { break };
            if n < carried {
                // A send in flight points to its body, which stays where it is.
                self.frames.push(&mut kept, frame);
            } else if let Some(buf) = frame.body {
                self.events.push_back(NetEvent::Sent { conn: id, buf });
            }
        }
        self.conns[index as usize].queue = kept;
    }

    fn free_when_quiet(&mut self, index: u32) {
        let id = self.id(index);
        let conn = &mut self.conns[index as usize];
        let Phase::Closing(reason) = conn.phase else { return };
        let is_read = conn.receiving != Receiving::Idle || conn.is_watched;
        if is_read || conn.sending.is_some() || conn.dialling.is_some() {
            return;
        }
        debug_assert!(conn.queue.is_empty(), "frames of a closed connection are returned");
        // Fails only for a place outside the table, which `place` would have refused.
        let _ = self.ring.with_submitter(|s| s.register_files_update(index, &[-1]));
        let accepted = !conn.dialled;
        conn.vacate();
        self.free.push(index);
        self.events.push_back(NetEvent::Closed { conn: id, reason });
        if accepted {
            self.uncount();
        }
    }

    /// Starts a send of what `index` has queued.
    fn start_send(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        conn.is_ready = false;
        let sendable = matches!(conn.phase, Phase::Open | Phase::Finishing);
        if conn.sending.is_some() || conn.queue.is_empty() || !sendable {
            return;
        }
        let mut block = self.blocks.pop().unwrap_or_else(SendBlock::new);
        block.clear();
        for frame in self.frames.iter(&conn.queue) {
            if !block.append(frame) {
                break;
            }
        }
        const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let fd = types::Fixed(index);
        let entry = match block.pieces() {
            [one] => {
                opcode::Send::new(fd, one.iov_base.cast(), one.iov_len as u32).flags(FLAGS).build()
            }
            _ => opcode::SendMsg::new(fd, block.message()).flags(FLAGS as u32).build(),
        };
        conn.sending = Some(block);
        let data = Operation::Send.data(index, conn.generation);
        // SAFETY: the block is boxed and kept in `sending`, and the frames stay in their places,
        // until the send's last completion.
        unsafe { self.ring.push(Owner::Sockets, data, entry) };
    }

    fn sent(&mut self, index: u32, event: RingEvent) {
        let conn = &mut self.conns[index as usize];
        let id = ConnId { index, generation: conn.generation };
        let block = conn.sending.take().expect("a send was in flight");
        let result = event.result;
        for _ in 0..block.frames {
            let frame = self.frames.pop(&mut conn.queue).expect("the send carried it");
            if let Some(buf) = frame.body {
                self.events.push_back(NetEvent::Sent { conn: id, buf });
            }
        }
        conn.unsent -= block.bytes;
        let whole = result >= 0 && result as usize == block.bytes;
        self.blocks.push(block);
        if matches!(self.conns[index as usize].phase, Phase::Closing(_)) {
            return self.free_when_quiet(index);
        }
        if !whole {
            return self.end(index, CloseReason::Reset(if result < 0 { -result } else { 0 }));
        }
        let conn = &mut self.conns[index as usize];
        match (conn.queue.is_empty(), conn.phase) {
            (false, _) => self.mark_ready(index),
            (true, Phase::Finishing) => self.shut_sending(index),
            (true, _) => {}
        }
    }

    fn mark_ready(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        if !conn.is_ready {
            conn.is_ready = true;
            self.ready.push(index);
        }
    }

    fn shut_sending(&mut self, index: u32) {
        let socket = self.conns[index as usize].socket.as_ref().expect("occupied");
        let _ = rustix::net::shutdown(socket, Shutdown::Write); // a dead peer shows in the receive
    }

    fn connected(&mut self, index: u32, event: RingEvent) {
        let id = self.id(index);
        let conn = &mut self.conns[index as usize];
        conn.dialling = None;
        let server = self.server.as_ref().expect("a dial had an address");
        match (conn.phase, event.result) {
            (Phase::Dialling, 0)
                if conn.socket.as_ref().is_some_and(|own| reached_itself(own, server)) =>
            {
                conn.phase = Phase::Closing(CloseReason::Unreachable(libc::ECONNREFUSED));
                self.free_when_quiet(index);
            }
            (Phase::Dialling, 0) => {
                conn.phase = Phase::Open;
                let peer = server.peer(conn.socket.as_ref().expect("a dial has a socket"));
                self.events.push_back(NetEvent::Opened { conn: id, peer, listener: None });
                self.arm_receive(index);
            }
            (Phase::Dialling, error) => {
                conn.phase = Phase::Closing(CloseReason::Unreachable(-error));
                self.free_when_quiet(index);
            }
            _ => self.free_when_quiet(index),
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
}

impl Streams for Sockets {
    fn poll(&mut self, now: Instant, events: &mut Vec<NetEvent>, max: usize) {
        self.now = now;
        if let Some((spread, me)) = &self.spread {
            for arrival in spread.take_arrivals(*me) {
                self.adopt(arrival);
            }
        }
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.drain(Owner::Sockets, &mut completions);
        for completion in completions.drain(..) {
            self.handle(completion);
        }
        self.completions = completions;
        self.expire_finishing();
        let take = max.min(self.events.len());
        events.extend(self.events.drain(..take));
    }

    fn give(&mut self, buf: Buf) {
        self.take_back(buf);
    }

    fn receive_into(&mut self, conn: ConnId, buf: Buf, at: usize, until: usize) -> Result<(), Buf> {
        self.begin_direct(conn, buf, at, until)
    }

    fn room(&self) -> usize {
        self.frames.room()
    }

    fn send(&mut self, _now: Instant, conn: ConnId, frame: Frame) {
        let bytes = frame.wire_bytes();
        let index = conn.index as usize;
        match self.conns.get_mut(index) {
            Some(found)
                if found.generation == conn.generation
                    && matches!(found.phase, Phase::Open | Phase::Finishing) =>
            {
                found.unsent += bytes;
                self.frames.push(&mut found.queue, frame);
                if found.sending.is_none() {
                    self.mark_ready(conn.index);
                }
            }
            _ => {
                if let Some(buf) = frame.body {
                    self.events.push_back(NetEvent::Sent { conn, buf });
                }
            }
        }
    }

    fn kick(&mut self, now: Instant) {
        for n in 0..self.ready.len() {
            self.start_send(self.ready[n]);
        }
        self.ready.clear();
        self.receive_rested();
        self.receive_starved();
        if self.accept_again.is_some_and(|at| at <= now) {
            self.accept_again = None;
            self.arm_accepts();
        }
    }

    fn close(&mut self, conn: ConnId) {
        if self.find(conn).is_some() {
            self.end(conn.index, CloseReason::Local);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        if !self.events.is_empty() || self.ring.has_events(Owner::Sockets) {
            return Some(Instant::ZERO);
        }
        let finishing = self.finishing.front().map(|(deadline, _)| *deadline);
        [finishing, self.accept_again].into_iter().flatten().min()
    }
}

impl Transport for Sockets {
    fn pause(&mut self, conn: ConnId) {
        let Some(found) = self.find(conn) else { return };
        let was_paused = std::mem::replace(&mut found.paused, true);
        found.is_stilled = false;
        if found.receiving != Receiving::Idle && !was_paused {
            self.cancel(conn.index, Operation::Receive);
        }
        self.watch(conn.index);
    }

    fn resume(&mut self, conn: ConnId) {
        let Some(found) = self.find(conn) else { return };
        found.is_stilled = false;
        if std::mem::replace(&mut found.paused, false) {
            self.receive_or_free(conn.index);
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
        for n in 0..self.listeners.len() {
            self.cancel_accept(n as u32);
        }
        self.listeners.clear();
        self.accept_again = None;
    }
}

impl Migrate for Sockets {
    fn still(&mut self, conn: ConnId) {
        self.quieten(conn);
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

impl Sockets {
    fn cancel_accept(&mut self, n: u32) {
        let target = types::CancelBuilder::user_data(
            (Owner::Sockets as u64) << 56 | Operation::Accept.data(n, 0),
        );
        let entry = opcode::AsyncCancel2::new(target).build();
        // SAFETY: the entry points to nothing.
        unsafe { self.ring.push(Owner::Sockets, Operation::Cancel.data(n, 0), entry) };
    }
}

/// How a receive with this result ends the connection, if it does.
fn end_of(result: i32) -> Option<CloseReason> {
    match result {
        0 => Some(CloseReason::Peer),
        n if n > 0 => None,
        n => match -n {
            libc::ENOBUFS | libc::ECANCELED | libc::EINTR => None,
            errno => Some(CloseReason::Reset(errno)),
        },
    }
}

impl Drop for Sockets {
    /// What operations in flight point to is left to the kernel for good.
    fn drop(&mut self) {
        for conn in &mut self.conns {
            std::mem::forget(conn.sending.take());
            std::mem::forget(conn.direct.take());
        }
    }
}
