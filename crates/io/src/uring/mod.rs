//! Sockets over io_uring.
//!
//! Receives are multishot into a provided-buffer ring. Each connection has one send in flight,
//! which carries all frames that became ready meanwhile. Descriptors are registered. The methods
//! only write submission entries and drain the inbox; only
//! [`Reactor::enter`](crate::Reactor::enter) enters the kernel.

// UNSAFETY: submission entries point into blocks and addresses that connections keep in place until
// their last completion; accepted descriptors arrive as numbers.
#![allow(unsafe_code)]

pub(crate) mod address;
mod conn;
mod direct;
mod operation;
pub(crate) mod provided;
mod receive;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use contract::{Buf, CloseReason, ServerEvent};
use io_uring::{cqueue, opcode, types};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use self::address::SocketAddress;
use self::conn::{ReceiveKind, RingConnState};
use self::operation::{Operation, cancel};
use self::receive::{Receiver, RingConnTable};
use crate::ring::COMPLETIONS_MAX;
use crate::sendblock::SendBlock;
use crate::sockets::{
    ACCEPT_PAUSE, Accept, ConnectionLifecycle, ConnectionPhase, Kernel, Listeners, Receive,
    ReceiveTarget,
};
use crate::spread::AcceptedConnection;
use crate::{Endpoint, Error, Listener, Owner, Ring, RingEvent, SocketsConfig};

/// Number of vectors for sends that are allocated at start: enough unless many peers are slow.
const BLOCKS: usize = 64;

/// The kernel interface of sockets over a ring.
pub struct Uring {
    ring: Ring,
    receiver: Receiver,
    /// Vectors that no send uses. More are allocated when more connections send at the same time
    /// than ever before, at most one for each connection.
    #[allow(clippy::vec_box, reason = "the boxes themselves go to connections and come back")]
    blocks: Vec<Box<SendBlock>>,
    /// The completions that are being handled; empty between polls.
    completions: Vec<RingEvent>,
}

impl Uring {
    fn handle(&mut self, table: &mut RingConnTable, listeners: &mut Listeners, event: RingEvent) {
        let (operation, index) = Operation::from_data(event.data);
        let ended = match operation {
            Operation::Receive => self.receiver.received(table, index, event),
            Operation::Send => return self.sent(table, index, event.result),
            Operation::Watch => self.receiver.hung_up(table, index, event),
            Operation::Connect => return self.dialled(table, index, event.result),
            Operation::Accept => return self.accepted(table, listeners, index as usize, event),
            Operation::Cancel => return,
        };
        if let Some(reason) = ended {
            self.end(table, index, reason);
        }
        self.leave(table, index);
    }

    /// Processes the completion of a send. A send that the kernel has not taken whole ends the
    /// connection.
    fn sent(&mut self, table: &mut RingConnTable, index: u32, result: i32) {
        let conn = &mut table[index];
        let block = conn.kernel.sending.take().expect("a send was in flight");
        conn.unsent -= block.plain();
        table.pop_sent(index, block.frames);
        let whole = result >= 0 && result as usize == block.bytes;
        self.blocks.push(block);
        match table[index].phase {
            ConnectionPhase::Closing(_) => self.leave(table, index),
            _ if whole => self.after_send(table, index),
            _ => self.end(table, index, CloseReason::Reset((-result).max(0))),
        }
    }

    /// Processes the completion of a dial's connect.
    fn dialled(&mut self, table: &mut RingConnTable, index: u32, result: i32) {
        table[index].kernel.dialling = None;
        if table[index].phase != ConnectionPhase::Dialling {
            return self.leave(table, index);
        }
        let result = if result == 0 { Ok(()) } else { Err(-result) };
        if self.connected(table, index, result) {
            self.receiver.start(table, index);
        }
    }

    /// Processes a completion of the accept at the listener with index `n`.
    fn accepted(
        &mut self,
        table: &RingConnTable,
        listeners: &mut Listeners,
        n: usize,
        event: RingEvent,
    ) {
        // SAFETY: the kernel just gave us this descriptor and nobody else has it.
        let socket = (event.result >= 0).then(|| unsafe { OwnedFd::from_raw_fd(event.result) });
        let Some(listening) = listeners.all.get_mut(n) else { return };
        listening.is_active = cqueue::more(event.flags);
        if listening.listener.is_none() {
            return; // what a closed listener still accepted is closed, too
        }
        let again = match socket {
            // The hold may be over by now.
            None if event.result == -libc::ECANCELED => (!listeners.is_held).then_some(table.now),
            None => {
                let error = std::io::Error::from_raw_os_error(-event.result);
                tracing::warn!(%error, "cannot accept (too few descriptors? raise `ulimit -n`)");
                Some(table.now + ACCEPT_PAUSE)
            }
            Some(_turned_away) if listening.refuses => {
                ServerEvent::RefusedDrained.count();
                Some(table.now + ACCEPT_PAUSE)
            }
            Some(socket) => {
                listeners.accepted.push(AcceptedConnection::new(socket, listening.id));
                Some(table.now + ACCEPT_PAUSE)
            }
        };
        if !cqueue::more(event.flags) {
            listeners.again = again;
        }
    }
}

impl Kernel for Uring {
    type Reactor = Ring;

    const FLAGS: SocketFlags = SocketFlags::CLOEXEC;

    fn new(ring: &Ring, config: &SocketsConfig) -> Result<Uring, Error> {
        let receiver = Receiver::new(ring, config)?;
        let places = config.connections_max as u32;
        ring.register_files(places).map_err(|e| {
            Error::system(format!("cannot register {places} descriptors (raise `ulimit -n`)"), e)
        })?;
        Ok(Uring {
            ring: ring.clone(),
            receiver,
            blocks: (0..BLOCKS).map(|_| SendBlock::new()).collect(),
            completions: Vec::with_capacity(COMPLETIONS_MAX),
        })
    }

    fn register(&mut self, _: &RingConnTable, index: u32, socket: &OwnedFd) -> std::io::Result<()> {
        let fds = [socket.as_raw_fd()];
        self.ring.with_submitter(|s| s.register_files_update(index, &fds)).map(drop)
    }

    fn unregister(&mut self, index: u32, _socket: &OwnedFd) {
        // Fails only for a place outside of the ring's table, which `register` would have refused.
        let _ = self.ring.with_submitter(|s| s.register_files_update(index, &[-1]));
    }

    fn connect(
        &mut self,
        table: &mut RingConnTable,
        socket: OwnedFd,
        server: &Endpoint,
    ) -> Result<u32, Errno> {
        let placed = self.place(table, socket, ConnectionPhase::Dialling);
        let index = placed.map_err(|_refused| Errno::MFILE)?;
        let conn = &mut table[index];
        let address = conn.kernel.dialling.insert(Box::new(SocketAddress::from(server)));
        let (pointer, length) = address.as_raw();
        let entry = opcode::Connect::new(types::Fixed(index), pointer, length).build();
        let data = Operation::Connect.data(index, conn.generation);
        // SAFETY: the address is boxed and kept in `dialling` until the connect's completion.
        unsafe { self.ring.push(Owner::SOCKETS, data, entry) };
        Ok(index)
    }

    fn poll(&mut self, table: &mut RingConnTable, listeners: &mut Listeners) {
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.drain(Owner::SOCKETS, &mut completions);
        for completion in completions.drain(..) {
            self.handle(table, listeners, completion);
        }
        self.completions = completions;
    }

    fn flush(&mut self, table: &mut RingConnTable, index: u32) {
        let mut block = self.blocks.pop().unwrap_or_else(SendBlock::new);
        block.clear();
        if table[index].secured.is_some() {
            let mut secured = table[index].secured.take();
            let keys = secured.as_mut().expect("just seen");
            let sealed = block.seal(keys, table.frames.iter(&table[index].queue));
            table[index].secured = secured;
            if let Err(why) = sealed {
                self.blocks.push(block);
                return self.end(table, index, CloseReason::Insecure(why));
            }
        } else {
            for frame in table.frames.iter(&table[index].queue) {
                if !block.append(frame) {
                    break;
                }
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
        let conn = &mut table[index];
        conn.kernel.sending = Some(block);
        let data = Operation::Send.data(index, conn.generation);
        // SAFETY: the block is boxed and kept in `sending`, and the frames stay in their places,
        // until the send's completion.
        unsafe { self.ring.push(Owner::SOCKETS, data, entry) };
    }

    fn cancel(&mut self, table: &mut RingConnTable, index: u32) {
        let conn = &table[index];
        let is_dialling = conn.phase == ConnectionPhase::Dialling;
        let receives = !is_dialling && conn.kernel.receiving != ReceiveKind::Idle;
        let in_flight = [
            is_dialling.then_some(Operation::Connect),
            receives.then_some(Operation::Receive),
            conn.kernel.is_watched.then_some(Operation::Watch),
        ];
        for operation in in_flight.into_iter().flatten() {
            cancel(&self.ring, operation, index, conn.generation);
        }
    }

    fn has_work(&self, _listeners: &Listeners) -> bool {
        self.ring.has_events(Owner::SOCKETS)
    }
}

impl Receive for Uring {
    type ConnState = RingConnState;

    fn give(&mut self, buf: Buf) {
        self.receiver.give(buf);
    }

    fn receive_into(
        &mut self,
        table: &mut RingConnTable,
        index: u32,
        target: ReceiveTarget,
    ) -> Result<(), Buf> {
        self.receiver.receive_into(table, index, target)
    }

    fn start_bounded(&mut self, table: &mut RingConnTable, index: u32) {
        self.receiver.start_bounded(table, index);
    }

    fn start(&mut self, table: &mut RingConnTable, index: u32) {
        self.receiver.start(table, index);
    }

    fn stop(&mut self, table: &mut RingConnTable, index: u32, was_read: bool) {
        self.receiver.stop(table, index, was_read);
    }

    fn end_turn(&mut self, table: &mut RingConnTable) {
        self.receiver.end_turn(table);
    }
}

impl Accept for Uring {
    fn listen(&mut self, listeners: &mut Listeners, n: usize) -> Result<(), Error> {
        if let Some(listener) = &listeners.all[n].listener {
            // A listener that another process has passed on may not block, as that process's way to
            // the kernel wanted it.
            let _ = rustix::io::ioctl_fionbio(&listener.socket, false);
        }
        self.follow(listeners);
        Ok(())
    }

    fn unlisten(&mut self, listeners: &mut Listeners, n: usize, _listener: &Listener) {
        if listeners.all[n].is_active {
            cancel(&self.ring, Operation::Accept, n as u32, 0);
        }
    }

    fn follow(&mut self, listeners: &mut Listeners) {
        for (n, listening) in listeners.all.iter_mut().enumerate() {
            let Some(listener) = &listening.listener else { continue };
            match (listeners.is_held, listening.is_active) {
                (true, true) => cancel(&self.ring, Operation::Accept, n as u32, 0),
                (false, false) => {
                    listening.is_active = true;
                    let fd = types::Fd(listener.socket.as_raw_fd());
                    let entry = opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build();
                    let data = Operation::Accept.data(n as u32, 0);
                    // SAFETY: the entry points to nothing.
                    unsafe { self.ring.push(Owner::SOCKETS, data, entry) };
                }
                (true, false) | (false, true) => {}
            }
        }
    }

    fn accepts(listeners: &Listeners) -> bool {
        listeners.all.iter().any(|listening| listening.is_active)
    }
}
