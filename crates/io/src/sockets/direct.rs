//! Receives straight into a buffer that whoever expects the bytes has chosen
//! (docs/adr/0010-direct-receives.md).
//!
//! Into provided buffers the kernel receives whatever there is, so the payload that a message's head
//! announces would be there before anybody has read the head. Hence, as long as payloads are
//! received where they belong, each receive is bounded: it takes the rest of a payload and a little
//! of what lies behind it, or only a little. When no payload comes for some receives, provided
//! buffers take over again.

// UNSAFETY: entries point into blocks and buffers that connections keep until their completion.

use std::ptr;

use contract::{Buf, ConnId, NetEvent, SizeClass};
use io_uring::{cqueue, opcode, types};

use super::Sockets;
use super::conn::{Operation, Phase, Receiving};
use crate::{Error, Owner, RingEvent, carve};

/// Bytes that a bounded receive takes of what lies behind a payload: the heads of a few messages.
pub(crate) const LOOK_BYTES: usize = 512;

/// Buffers for those.
const LOOKS: usize = 256;

/// Bounded receives in a row that may bring no payload.
pub(crate) const PATIENCE: u8 = 16;

/// What a bounded receive in flight points to, and what a payload that is expected waits for.
pub(super) struct Direct {
    /// Where the next bytes belong.
    target: Option<Target>,
    /// Where a little of what follows them goes.
    look: Option<Buf>,
    header: libc::msghdr,
    pieces: [libc::iovec; 2],
}

/// `buf[at..until]` is to be filled; `came` bytes of that have come by another way, because another
/// receive was in flight when this one was asked for.
struct Target {
    buf: Buf,
    at: usize,
    until: usize,
    came: usize,
}

impl Target {
    fn filled(self, conn: ConnId, len: usize) -> NetEvent {
        NetEvent::Filled { conn, buf: self.buf, at: self.at, len }
    }
}

impl Direct {
    pub(super) fn new() -> Box<Direct> {
        const NOTHING: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let header = libc::msghdr {
            msg_name: ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: ptr::null_mut(),
            msg_iovlen: 0,
            msg_control: ptr::null_mut(),
            msg_controllen: 0,
            msg_flags: 0,
        };
        Box::new(Direct { target: None, look: None, header, pieces: [NOTHING; 2] })
    }
}

/// The buffers of bounded receives, numbered from `first` on.
pub(super) fn carve_looks(first: usize) -> Result<Vec<Buf>, Error> {
    let class = SizeClass { bytes: LOOK_BYTES * LOOKS, count: 1 };
    let whole = carve(&[class])?.bufs.pop().expect("it was just carved");
    let parts = whole.into_bytes().chunks_exact_mut(LOOK_BYTES);
    Ok((first..).zip(parts).map(|(n, bytes)| Buf::new(bytes, n as u32)).collect())
}

impl Sockets {
    /// Receives into `buf[at..until]` as soon as the receive that is in flight has ended.
    pub(super) fn begin_direct(
        &mut self,
        id: ConnId,
        buf: Buf,
        at: usize,
        until: usize,
    ) -> Result<(), Buf> {
        assert!(at < until && until <= buf.capacity(), "bytes {at} to {until} of {buf:?}");
        let is_its =
            |event: &NetEvent| matches!(event, NetEvent::Received { conn, .. } if *conn == id);
        if self.events.iter().any(is_its) {
            return Err(buf); // those come first
        }
        let Some(conn) = self.find(id) else { return Err(buf) };
        let is_taken = conn.direct.as_ref().is_some_and(|direct| direct.target.is_some());
        if conn.phase != Phase::Open || conn.paused || is_taken {
            return Err(buf);
        }
        let (receiving, direct) = (conn.receiving, conn.direct.take());
        let mut direct = direct.or_else(|| self.directs.pop()).unwrap_or_else(Direct::new);
        direct.target = Some(Target { buf, at, until, came: 0 });
        self.conns[id.index as usize].direct = Some(direct);
        match receiving {
            Receiving::Idle => self.receive_directly(id.index),
            _ => self.cancel(id.index, Operation::Receive),
        }
        Ok(())
    }

    /// Starts to receive where the bytes belong, and a little of what follows.
    fn receive_directly(&mut self, index: u32) {
        let look = self.looks.pop();
        let conn = &mut self.conns[index as usize];
        let direct = conn.direct.as_mut().expect("the caller looked");
        direct.look = look;
        let target = direct.target.as_mut().expect("the caller looked");
        debug_assert!(conn.receiving == Receiving::Idle && target.came == 0);
        conn.receiving = Receiving::Direct;
        let bytes = &mut target.buf.prefix_mut(target.until)[target.at..];
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        let fd = types::Fixed(index);
        let entry = match &mut direct.look {
            None => opcode::Recv::new(fd, start, len as u32).build(),
            Some(look) => {
                let behind = look.bytes_mut();
                direct.pieces = [
                    libc::iovec { iov_base: start.cast(), iov_len: len },
                    libc::iovec { iov_base: behind.as_mut_ptr().cast(), iov_len: behind.len() },
                ];
                direct.header.msg_iov = direct.pieces.as_mut_ptr();
                direct.header.msg_iovlen = direct.pieces.len() as _;
                opcode::RecvMsg::new(fd, &raw mut direct.header).build()
            }
        };
        let data = Operation::Receive.data(index, conn.generation);
        // SAFETY: header and vector are boxed and kept, with both buffers, in `direct` until the
        // receive's completion.
        unsafe { self.ring.push(Owner::Sockets, data, entry) };
    }

    /// Starts to receive a little; `false` where there is no buffer for it.
    fn receive_little(&mut self, index: u32) -> bool {
        let Some(mut look) = self.looks.pop() else { return false };
        let mut direct = self.directs.pop().unwrap_or_else(Direct::new);
        let bytes = look.bytes_mut();
        let fd = types::Fixed(index);
        let entry = opcode::Recv::new(fd, bytes.as_mut_ptr(), bytes.len() as u32).build();
        direct.look = Some(look);
        let conn = &mut self.conns[index as usize];
        conn.receiving = Receiving::Little;
        conn.patience -= 1;
        let before = conn.direct.replace(direct);
        debug_assert!(before.is_none(), "one receive at a time");
        let data = Operation::Receive.data(index, conn.generation);
        // SAFETY: the buffer is kept in `direct` until the receive's completion.
        unsafe { self.ring.push(Owner::Sockets, data, entry) };
        true
    }

    /// A receive of a connection for which bytes are expected somewhere, or little was received.
    pub(super) fn received_bounded(&mut self, index: u32, event: RingEvent) {
        let was = self.conns[index as usize].receiving;
        if !cqueue::more(event.flags) {
            self.conns[index as usize].receiving = Receiving::Idle;
        }
        let came = event.result.max(0) as usize;
        let direct = self.conns[index as usize].direct.as_mut().expect("the caller looked");
        let look = direct.look.take();
        match was {
            Receiving::Direct => self.filled(index, look, came),
            _ => {
                let provided = cqueue::buffer_select(event.flags).map(|n| self.provided.take(n));
                if let Some(buf) = look.or(provided) {
                    self.divert(index, buf, came);
                }
            }
        }
        let Some(reason) = super::end_of(event.result) else { return self.go_on_bounded(index) };
        if self.conns[index as usize].receiving == Receiving::Idle {
            self.release_direct(index);
        }
        self.end(index, reason);
        self.receive_or_free(index);
    }

    /// What was received where it belongs, and a little more.
    fn filled(&mut self, index: u32, look: Option<Buf>, came: usize) {
        let id = self.id(index);
        let conn = &mut self.conns[index as usize];
        let is_open = conn.phase == Phase::Open;
        let direct = conn.direct.as_mut().expect("it was in flight");
        let target = direct.target.take().expect("it was in flight");
        let len = came.min(target.until - target.at);
        if len > 0 {
            conn.patience = PATIENCE;
        }
        self.events.push_back(target.filled(id, len));
        match look {
            Some(buf) if came > len && is_open => {
                self.events.push_back(NetEvent::Received { conn: id, buf, len: came - len });
            }
            Some(buf) => self.looks.push(buf),
            None => {}
        }
    }

    /// Bytes that came by another way: as far as they are expected somewhere, they are copied there.
    fn divert(&mut self, index: u32, mut buf: Buf, len: usize) {
        let id = self.id(index);
        let conn = &mut self.conns[index as usize];
        if conn.phase != Phase::Open || len == 0 {
            return self.take_back(buf);
        }
        if conn.receiving == Receiving::Idle && len == buf.capacity() {
            conn.patience = 0; // there is more than a little
        }
        let direct = conn.direct.as_mut().expect("the caller looked");
        let mut taken = 0;
        if let Some(target) = &mut direct.target {
            let from = target.at + target.came;
            taken = len.min(target.until - from);
            let room = &mut target.buf.prefix_mut(target.until)[from..];
            room[..taken].copy_from_slice(&buf.bytes()[..taken]);
            target.came += taken;
            if let Some(whole) = direct.target.take_if(|t| t.at + t.came == t.until) {
                let came = whole.came;
                conn.patience = PATIENCE;
                self.events.push_back(whole.filled(id, came));
            }
        }
        if taken == len {
            return self.take_back(buf);
        }
        if taken > 0 {
            buf.bytes_mut().copy_within(taken..len, 0);
        }
        self.events.push_back(NetEvent::Received { conn: id, buf, len: len - taken });
    }

    /// After a receive that did not end the connection.
    fn go_on_bounded(&mut self, index: u32) {
        let conn = &mut self.conns[index as usize];
        if conn.receiving != Receiving::Idle {
            return; // more follows
        }
        let is_free = conn.phase == Phase::Open && !conn.paused;
        let direct = conn.direct.as_ref().expect("a bounded receive has ended");
        if is_free && direct.target.as_ref().is_some_and(|target| target.came == 0) {
            return self.receive_directly(index);
        }
        self.release_direct(index);
        let conn = &mut self.conns[index as usize];
        if matches!(conn.phase, Phase::Closing(_)) {
            return self.free_when_quiet(index);
        }
        if !std::mem::replace(&mut conn.is_resting, true) {
            self.resting.push(index);
        }
    }

    /// Nothing is in flight that fills a buffer: it goes back as it is.
    fn release_direct(&mut self, index: u32) {
        let id = self.id(index);
        let mut direct = self.conns[index as usize].direct.take().expect("the caller looked");
        if let Some(target) = direct.target.take() {
            let came = target.came;
            self.events.push_back(target.filled(id, came));
        }
        self.directs.push(direct);
    }

    /// Receives again from connections whose bounded receives have ended and for which nobody
    /// expects bytes anywhere.
    pub(super) fn receive_rested(&mut self) {
        while let Some(index) = self.resting.pop() {
            let conn = &mut self.conns[index as usize];
            conn.is_resting = false;
            let is_free = conn.receiving == Receiving::Idle && !conn.paused && !conn.is_starved;
            let looks = is_free && conn.phase == Phase::Open && conn.patience > 0;
            if !(looks && self.receive_little(index)) {
                self.receive_or_free(index);
            }
        }
    }

    /// Takes a receive buffer back, of whichever kind.
    pub(super) fn take_back(&mut self, buf: Buf) {
        if (buf.index() as usize) < self.config.receive_buffers {
            self.provided.give(buf);
        } else {
            assert!(self.looks.len() < LOOKS, "a receive buffer was returned twice");
            self.looks.push(buf);
        }
    }
}
