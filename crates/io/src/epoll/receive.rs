//! Receives over epoll: a line of readable connections, and receives directly into a buffer of the
//! caller (docs/adr/0010-direct-receives.md).

use std::collections::VecDeque;
use std::io::IoSliceMut;

use contract::{Buf, CloseReason, NetEvent, SizeClass};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recv, recvmsg};

use super::conn::{EpollConnState, wants_receive};
use crate::sockets::{ConnectionPhase, LOOK_BYTES, PATIENCE, ReceiveTarget};
use crate::{Error, SocketsConfig, carve};

/// The table of a worker's connections over epoll.
pub(super) type EpollConnTable = crate::sockets::ConnTable<EpollConnState>;

/// The receives of a worker's sockets.
pub(super) struct Receiver {
    /// Receive buffers that are not lent.
    bufs: Vec<Buf>,
    receive_buffers: usize,
    /// Indices of readable connections, in the order in which they became readable.
    line: VecDeque<u32>,
    /// Indices of connections that receive no more in this turn, because they have received as many
    /// bytes as they may read ahead.
    resting: Vec<u32>,
}

impl Receiver {
    pub(super) fn new(config: &SocketsConfig) -> Result<Receiver, Error> {
        let class = SizeClass { bytes: config.receive_buffer_bytes, count: config.receive_buffers };
        Ok(Receiver {
            bufs: carve(&[class])?.bufs,
            receive_buffers: config.receive_buffers,
            line: VecDeque::with_capacity(1024),
            resting: Vec::with_capacity(64),
        })
    }

    /// Takes back a receive buffer that the caller was lent.
    pub(super) fn give(&mut self, buf: Buf) {
        assert!(self.bufs.len() < self.receive_buffers, "a buffer was returned twice");
        self.bufs.push(buf);
    }

    /// Returns `true` if a readable connection waits to be received from and a receive buffer is
    /// free.
    pub(super) fn has_work(&self) -> bool {
        !self.line.is_empty() && !self.bufs.is_empty()
    }

    /// Appends a readable connection to the queue of connections to receive from, unless it is
    /// queued already.
    pub(super) fn line_up(&mut self, table: &mut EpollConnTable, index: u32) {
        let conn = &mut table[index];
        if wants_receive(conn) && !std::mem::replace(&mut conn.kernel.is_in_line, true) {
            self.line.push_back(index);
        }
    }

    /// Receives once from the first connection in line. Returns the connection's index, and the
    /// reason if it has ended; `None` if no connection waits or there is no buffer.
    pub(super) fn receive_next(
        &mut self,
        table: &mut EpollConnTable,
    ) -> Option<(u32, Option<CloseReason>)> {
        if self.bufs.is_empty() {
            return None;
        }
        let index = self.line.pop_front()?;
        table[index].kernel.is_in_line = false;
        if !wants_receive(&table[index]) {
            return Some((index, None));
        }
        let buf = self.bufs.pop().expect("looked at above");
        let ended = match table[index].kernel.target.take() {
            Some(target) => self.receive_directly(table, index, target, buf),
            None => self.receive(table, index, buf),
        };
        if ended.is_none() {
            self.line_up(table, index);
        }
        Some((index, ended))
    }

    /// Receives once from a connection into `buf`. Returns the reason if the connection has ended.
    fn receive(
        &mut self,
        table: &mut EpollConnTable,
        index: u32,
        mut buf: Buf,
    ) -> Option<CloseReason> {
        let conn = &mut table[index];
        let was_bounded = conn.kernel.patience > 0;
        let most = if was_bounded { LOOK_BYTES.min(buf.capacity()) } else { buf.capacity() };
        match recv(conn.socket(), buf.prefix_mut(most), RecvFlags::DONTWAIT) {
            Ok((_, len)) if len > 0 => {
                let place = &mut conn.kernel;
                // A receive that found less than it had room for took all that there was.
                place.received(len == most);
                place.patience = if len == most { 0 } else { place.patience.saturating_sub(1) };
                let mut ended = None;
                if conn.phase == ConnectionPhase::Open {
                    let spent;
                    (spent, ended) = table.received(index, buf, len);
                    self.bufs.extend(spent);
                } else {
                    self.bufs.push(buf);
                }
                if was_bounded {
                    self.rest(table, index);
                }
                ended
            }
            ended => {
                self.bufs.push(buf);
                received_nothing(table, index, ended.err())
            }
        }
    }

    /// Receives once from a connection into the payload's buffer, and bytes behind the payload into
    /// `look`. Returns the reason if the connection has ended.
    fn receive_directly(
        &mut self,
        table: &mut EpollConnTable,
        index: u32,
        mut target: ReceiveTarget,
        mut look: Buf,
    ) -> Option<CloseReason> {
        let id = table.id(index);
        let conn = &mut table[index];
        let wanted = target.until - target.at;
        let behind = LOOK_BYTES.min(look.capacity());
        let mut nothing = RecvAncillaryBuffer::default();
        let mut pieces = [
            IoSliceMut::new(&mut target.buf.prefix_mut(target.until)[target.at..]),
            IoSliceMut::new(look.prefix_mut(behind)),
        ];
        let received = recvmsg(conn.socket(), &mut pieces, &mut nothing, RecvFlags::DONTWAIT);
        match received.map(|message| message.bytes) {
            Ok(came) if came > 0 => {
                let len = came.min(wanted);
                conn.kernel.received(came == wanted + behind);
                conn.kernel.patience = PATIENCE;
                let is_open = conn.phase == ConnectionPhase::Open;
                self.rest(table, index);
                table.events.push(target.filled(id, len));
                if came > len && is_open {
                    let len = came - len;
                    table.events.push(NetEvent::Received { conn: id, buf: look, len });
                } else {
                    self.bufs.push(look);
                }
                None
            }
            ended => {
                conn.kernel.target = Some(target);
                self.bufs.push(look);
                received_nothing(table, index, ended.err())
            }
        }
    }

    /// Pauses a connection's receives until the end of the turn, when it is known whether a payload
    /// comes next.
    pub(super) fn rest(&mut self, table: &mut EpollConnTable, index: u32) {
        if !std::mem::replace(&mut table[index].kernel.is_resting, true) {
            self.resting.push(index);
        }
    }

    /// Ends the pauses of receives, at the end of a turn: connections for which bytes wait line up
    /// again.
    pub(super) fn end_rests(&mut self, table: &mut EpollConnTable) {
        while let Some(index) = self.resting.pop() {
            table[index].kernel.is_resting = false;
            self.line_up(table, index);
        }
    }
}

/// Handles a receive without bytes; without an error in `why` it is the stream's end. Returns the
/// reason if the connection has ended.
fn received_nothing(
    table: &mut EpollConnTable,
    index: u32,
    why: Option<Errno>,
) -> Option<CloseReason> {
    match why {
        None => return Some(CloseReason::Peer),
        Some(Errno::AGAIN) => table[index].kernel.state.remove(EventFlags::IN),
        Some(Errno::INTR) => {}
        Some(errno) => return Some(CloseReason::Reset(errno.raw_os_error())),
    }
    None
}

/// Returns the buffer that the connection was to receive a payload into, by an event, if the
/// connection has such a buffer.
pub(super) fn release_target(table: &mut EpollConnTable, index: u32) {
    let conn = table.id(index);
    if let Some(target) = table[index].kernel.target.take() {
        table.events.push(target.filled(conn, 0));
    }
}
