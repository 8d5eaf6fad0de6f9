//! Sockets over epoll, for machines where io_uring is forbidden.
//!
//! Each stream is watched edge-triggered from its beginning, and its state is kept here, so that
//! pausing, resuming and a full send buffer cost no call. A turn receives once from each readable
//! connection, in a fair and bounded order; a kick sends once on each connection with frames, all
//! of them together.

mod conn;
mod reactor;
mod receive;
mod sendmsg;
mod token;

use std::os::fd::OwnedFd;

use contract::{Buf, CloseReason, ConnId, ServerEvent};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};

use self::conn::EpollConnState;
pub use self::reactor::EpollReactor;
use self::receive::{EpollConnTable, Receiver, release_target};
use self::sendmsg::{send_block, send_rest};
use self::token::Token;
use crate::endpoint::hang_up_reason;
use crate::sendblock::SendBlock;
use crate::sockets::{
    ACCEPT_PAUSE, Accept, ConnectionLifecycle, ConnectionPhase, Kernel, Listeners, Receive,
    ReceiveTarget,
};
use crate::spread::AcceptedConnection;
use crate::{Endpoint, Error, Listener, SocketsConfig};

/// Maximum number of receives in one turn of a worker, over all its connections.
const RECEIVES_A_TURN: usize = 64;

/// Maximum number of connections that one turn accepts from one listener.
const ACCEPTS_A_TURN: usize = 64;

/// The kernel interface of sockets over epoll.
pub struct Epoll {
    reactor: EpollReactor,
    receiver: Receiver,
    /// The pieces of the present send of frames; empty between sends.
    block: Box<SendBlock>,
    /// A block for sealed records, if none is lent to a connection. More are allocated for slow
    /// peers.
    spare: Option<Box<SendBlock>>,
    /// The reported events that are being handled; empty between polls.
    reported: Vec<epoll::Event>,
}

impl Epoll {
    fn handle(
        &mut self,
        table: &mut EpollConnTable,
        listeners: &mut Listeners,
        event: epoll::Event,
    ) {
        match Token::from_data(event.data) {
            Token::Waker => {}
            Token::Listener(n) => {
                // None: the listener was closed meanwhile.
                if let Some(listening) = listeners.all.get_mut(n as usize) {
                    listening.is_active = listening.listener.is_some();
                }
            }
            Token::Conn(id) => self.changed(table, id, event.flags),
        }
    }

    /// Handles the events that epoll has reported for a connection: its dial's result, bytes, room
    /// for bytes, or its end.
    fn changed(&mut self, table: &mut EpollConnTable, id: ConnId, flags: epoll::EventFlags) {
        use epoll::EventFlags as E;
        let Some(conn) = table.find(id) else { return };
        if conn.phase == ConnectionPhase::Dialling {
            if !flags.intersects(E::OUT | E::ERR | E::HUP) {
                return;
            }
            let result = rustix::net::sockopt::socket_error(conn.socket()).and_then(|r| r);
            let is_open = self.connected(table, id.index, result.map_err(Errno::raw_os_error));
            if !is_open && table[id.index].phase != ConnectionPhase::Greeting {
                return;
            }
        }
        let conn = &mut table[id.index];
        conn.kernel.state |= flags & (E::IN | E::OUT);
        if flags.intersects(E::RDHUP | E::HUP | E::ERR) {
            conn.kernel.state |= E::IN | E::RDHUP;
        }
        if conn.is_live() && !conn.is_read() && conn.kernel.is_ending() {
            let reason = hang_up_reason(conn.socket());
            return self.end(table, id.index, reason);
        }
        self.receiver.line_up(table, id.index);
        table.mark_ready(id.index);
    }

    /// Accepts the connections that wait at the listeners, unless accepting is paused.
    fn accept(&mut self, table: &EpollConnTable, listeners: &mut Listeners) {
        if listeners.is_held || listeners.again.is_some_and(|at| at > table.now) {
            return;
        }
        listeners.again = None;
        for listening in &mut listeners.all {
            for _ in 0..ACCEPTS_A_TURN {
                let own = listening.listener.as_ref().filter(|_| listening.is_active);
                let Some(own) = own else { break };
                match rustix::net::accept_with(&own.socket, SocketFlags::CLOEXEC) {
                    Ok(_turned_away) if listening.refuses => ServerEvent::RefusedDrained.count(),
                    Ok(socket) => {
                        let listener = listening.id;
                        let arrival = AcceptedConnection::new(socket, listener);
                        listeners.accepted.push(arrival);
                    }
                    Err(Errno::AGAIN) => listening.is_active = false,
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(error) => {
                        tracing::warn!(%error,
                            "cannot accept (too few descriptors? raise `ulimit -n`)");
                        listeners.again = Some(table.now + ACCEPT_PAUSE);
                        return;
                    }
                }
            }
        }
    }

    /// Seals a TLS connection's queued frames, and sends the resulting records after the remainder
    /// of records that were sealed before.
    fn flush_sealed(&mut self, table: &mut EpollConnTable, index: u32) {
        let (block, mut taken) = match table[index].kernel.sealed.take() {
            Some(begun) => begun,
            None => {
                let mut block = self.spare.take().unwrap_or_else(SendBlock::new);
                block.clear();
                let mut secured = table[index].secured.take();
                let keys = secured.as_mut().expect("the caller looked");
                let sealed = block.seal(keys, table.frames.iter(&table[index].queue));
                table[index].secured = secured;
                if let Err(why) = sealed {
                    return self.end(table, index, CloseReason::Insecure(why));
                }
                (block, 0)
            }
        };
        match send_rest(table[index].socket(), &block, taken) {
            Ok(sent) => taken += sent,
            Err(Errno::AGAIN) => {}
            Err(errno) => {
                return self.end(table, index, CloseReason::Reset(errno.raw_os_error()));
            }
        }
        let is_whole = taken == block.bytes;
        table[index].kernel.state.set(epoll::EventFlags::OUT, is_whole);
        if !is_whole {
            table[index].kernel.sealed = Some((block, taken));
            return;
        }
        table[index].unsent -= block.plain();
        table.pop_sent(index, block.frames);
        self.spare = Some(block);
        self.after_send(table, index);
    }

    /// Notes that the kernel has taken `bytes` more bytes of the connection's queued frames.
    fn sent(&mut self, table: &mut EpollConnTable, index: u32, bytes: usize) {
        let conn = &mut table[index];
        conn.unsent -= bytes;
        conn.kernel.taken += bytes;
        while let Some(front) = table.frames.front(&table[index].queue) {
            let whole = front.wire_bytes();
            if table[index].kernel.taken < whole {
                return;
            }
            table[index].kernel.taken -= whole;
            table.pop_sent(index, 1);
        }
        assert!(table[index].kernel.taken == 0, "the kernel took more than there was");
    }
}

impl Kernel for Epoll {
    type Reactor = EpollReactor;

    const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

    fn new(reactor: &EpollReactor, config: &SocketsConfig) -> Result<Epoll, Error> {
        Ok(Epoll {
            reactor: reactor.clone(),
            receiver: Receiver::new(config)?,
            block: SendBlock::new(),
            spare: None,
            reported: Vec::with_capacity(1024),
        })
    }

    fn register(
        &mut self,
        table: &EpollConnTable,
        index: u32,
        socket: &OwnedFd,
    ) -> std::io::Result<()> {
        Ok(self.reactor.watch_stream(socket, Token::Conn(table.id(index)))?)
    }

    fn unregister(&mut self, _index: u32, socket: &OwnedFd) {
        self.reactor.forget(socket);
    }

    fn connect(
        &mut self,
        table: &mut EpollConnTable,
        socket: OwnedFd,
        server: &Endpoint,
    ) -> Result<u32, Errno> {
        let begun = match server {
            Endpoint::Internet(address) => rustix::net::connect(&socket, address),
            Endpoint::Packets(lanes) => rustix::net::connect(&socket, &lanes.first()),
            Endpoint::Unix(path) => SocketAddrUnix::new(path.as_bytes())
                .and_then(|address| rustix::net::connect(&socket, &address)),
            Endpoint::Ethernet(_) => return Err(Errno::AFNOSUPPORT),
        };
        match begun {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        self.place(table, socket, ConnectionPhase::Dialling).map_err(|_refused| Errno::MFILE)
    }

    fn poll(&mut self, table: &mut EpollConnTable, listeners: &mut Listeners) {
        let mut reported = std::mem::take(&mut self.reported);
        self.reactor.drain(&mut reported);
        for event in reported.drain(..) {
            self.handle(table, listeners, event);
        }
        self.reported = reported;
        self.accept(table, listeners);
        for _ in 0..RECEIVES_A_TURN {
            match self.receiver.receive_next(table) {
                None => break,
                Some((_, None)) => {}
                Some((index, Some(reason))) => self.end(table, index, reason),
            }
        }
    }

    fn flush(&mut self, table: &mut EpollConnTable, index: u32) {
        if table[index].secured.is_some() {
            return self.flush_sealed(table, index);
        }
        self.block.clear();
        let conn = &table[index];
        let mut gone = conn.kernel.taken;
        for frame in table.frames.iter(&conn.queue) {
            if !self.block.append_rest(frame, std::mem::take(&mut gone)) {
                break;
            }
        }
        match send_block(conn.socket(), &mut self.block) {
            Ok(sent) => {
                let is_writable = sent == self.block.bytes;
                table[index].kernel.state.set(epoll::EventFlags::OUT, is_writable);
                self.sent(table, index, sent);
            }
            Err(Errno::AGAIN) => table[index].kernel.state.remove(epoll::EventFlags::OUT),
            Err(Errno::INTR) => {}
            Err(errno) => {
                return self.end(table, index, CloseReason::Reset(errno.raw_os_error()));
            }
        }
        self.after_send(table, index);
    }

    fn cancel(&mut self, table: &mut EpollConnTable, index: u32) {
        release_target(table, index);
    }

    fn has_work(&self, listeners: &Listeners) -> bool {
        let accepts = !listeners.is_held
            && listeners.again.is_none()
            && listeners.all.iter().any(|own| own.is_active && own.listener.is_some());
        self.receiver.has_work() || accepts || self.reactor.has_events()
    }
}

impl Receive for Epoll {
    type ConnState = EpollConnState;

    fn give(&mut self, buf: Buf) {
        self.receiver.give(buf);
    }

    fn receive_into(
        &mut self,
        table: &mut EpollConnTable,
        index: u32,
        target: ReceiveTarget,
    ) -> Result<(), Buf> {
        if table[index].kernel.target.is_some() {
            return Err(target.buf);
        }
        table[index].kernel.target = Some(target);
        self.receiver.line_up(table, index);
        Ok(())
    }

    fn start_bounded(&mut self, table: &mut EpollConnTable, index: u32) {
        table[index].kernel.patience = 1;
        self.receiver.rest(table, index);
    }

    fn start(&mut self, table: &mut EpollConnTable, index: u32) {
        self.receiver.line_up(table, index);
    }

    fn stop(&mut self, table: &mut EpollConnTable, index: u32, was_read: bool) {
        release_target(table, index);
        let conn = &table[index];
        if was_read && conn.is_live() && conn.kernel.is_ending() {
            let reason = hang_up_reason(conn.socket());
            self.end(table, index, reason);
        }
    }

    fn end_turn(&mut self, table: &mut EpollConnTable) {
        self.receiver.end_rests(table);
    }
}

impl Accept for Epoll {
    fn listen(&mut self, listeners: &mut Listeners, n: usize) -> Result<(), Error> {
        let listening = &mut listeners.all[n];
        let Some(listener) = &listening.listener else { return Ok(()) };
        rustix::io::ioctl_fionbio(&listener.socket, true)
            .and_then(|()| self.reactor.watch_listener(&listener.socket, Token::Listener(n as u32)))
            .map_err(|e| Error::system(format!("cannot watch {}", listener.endpoint()), e))?;
        listening.is_active = true;
        Ok(())
    }

    fn unlisten(&mut self, listeners: &mut Listeners, n: usize, listener: &Listener) {
        self.reactor.forget(&listener.socket);
        listeners.all[n].is_active = false;
    }

    fn follow(&mut self, _listeners: &mut Listeners) {}

    fn accepts(listeners: &Listeners) -> bool {
        !listeners.is_held && listeners.all.iter().any(|own| own.listener.is_some())
    }
}
