//! Receives straight into a buffer that whoever expects the bytes has chosen: the twin of
//! `sockets/direct.rs`.

use std::io::IoSliceMut;

use contract::{Buf, ConnId, NetEvent};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

use super::EpollSockets;
use super::conn::{Phase, Target};
use crate::sockets::{LOOK_BYTES, PATIENCE};

impl EpollSockets {
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
        match self.find(id) {
            Some(conn) if conn.phase == Phase::Open && !conn.paused && conn.target.is_none() => {
                conn.target = Some(Target { buf, at, until });
                self.line_up(id.index);
                Ok(())
            }
            _ => Err(buf),
        }
    }

    /// Receives once into the buffer that is to be filled, and a little of what follows into `look`.
    pub(super) fn receive_directly(&mut self, index: u32, target: Target, mut look: Buf) {
        let id = self.id(index);
        let conn = &mut self.conns[index as usize];
        let Target { mut buf, at, until } = target;
        let wanted = until - at;
        let behind = LOOK_BYTES.min(look.capacity());
        let socket = conn.socket.as_ref().expect("it wants to receive");
        let mut nothing = RecvAncillaryBuffer::default();
        let mut pieces = [
            IoSliceMut::new(&mut buf.prefix_mut(until)[at..]),
            IoSliceMut::new(look.prefix_mut(behind)),
        ];
        let received = recvmsg(socket, &mut pieces, &mut nothing, RecvFlags::DONTWAIT);
        match received.map(|message| message.bytes) {
            Ok(came) if came > 0 => {
                let len = came.min(wanted);
                conn.readable = came == wanted + behind || conn.ending;
                conn.patience = PATIENCE;
                let is_open = conn.phase == Phase::Open;
                self.rest(index);
                self.events.push_back(NetEvent::Filled { conn: id, buf, at, len });
                if came > len && is_open {
                    let len = came - len;
                    self.events.push_back(NetEvent::Received { conn: id, buf: look, len });
                } else {
                    self.bufs.push(look);
                }
            }
            ended => {
                conn.target = Some(Target { buf, at, until });
                self.bufs.push(look);
                self.received_nothing(index, ended.err());
            }
        }
    }

    /// Leaves a connection alone until it is known what is expected next.
    pub(super) fn rest(&mut self, index: u32) {
        if !std::mem::replace(&mut self.conns[index as usize].is_resting, true) {
            self.resting.push(index);
        }
    }

    /// Receives again from connections for which nobody expects bytes anywhere.
    pub(super) fn end_rests(&mut self) {
        while let Some(index) = self.resting.pop() {
            self.conns[index as usize].is_resting = false;
            self.line_up(index);
        }
    }

    /// A receive has brought no bytes: why not; `None` for the stream's end.
    pub(super) fn received_nothing(&mut self, index: u32, why: Option<Errno>) {
        let conn = &mut self.conns[index as usize];
        match why {
            None => self.end(index, contract::CloseReason::Peer),
            Some(Errno::AGAIN) => conn.readable = false,
            Some(Errno::INTR) => {}
            Some(errno) => self.end(index, contract::CloseReason::Reset(errno.raw_os_error())),
        }
    }

    /// Nobody fills the buffer any more: it goes back as it is.
    pub(super) fn release_target(&mut self, index: u32) {
        let conn = self.id(index);
        if let Some(Target { buf, at, .. }) = self.conns[index as usize].target.take() {
            self.events.push_back(NetEvent::Filled { conn, buf, at, len: 0 });
        }
    }
}
