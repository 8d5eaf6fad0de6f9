//! One connection's state.

use std::os::fd::OwnedFd;

use crate::frames::FrameQueue;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for the kernel to connect; an event that it is writable, or failed, ends this.
    Dialling,
    /// Sends and receives.
    Open,
    /// Sends what is queued, then shuts its side; the peer's close or the deadline ends this.
    Finishing,
}

/// A place in the table of connections.
pub(super) struct Conn {
    /// How often the place was used before.
    pub(super) generation: u32,
    /// `None`: the place is vacant.
    pub(super) socket: Option<OwnedFd>,
    pub(super) phase: Phase,
    /// The kernel may have bytes for us; a receive that takes less than it could ends this.
    pub(super) readable: bool,
    /// The kernel has the stream's end or an error for us, behind those bytes.
    pub(super) ending: bool,
    /// The kernel may take bytes; a send that it does not take whole ends this.
    pub(super) writable: bool,
    /// Back-pressure: do not receive.
    pub(super) paused: bool,
    /// Made by us, so not counted among the accepted ones.
    pub(super) dialled: bool,
    pub(super) queue: FrameQueue,
    /// Bytes of the frames in `queue` that the kernel has not taken.
    pub(super) unsent: usize,
    /// Bytes of the first frame in `queue` that the kernel has taken; less than all of them.
    pub(super) taken: usize,
    /// It is in the list of connections to send on.
    pub(super) is_ready: bool,
    /// It is in the line of connections to receive from.
    pub(super) is_in_line: bool,
}

impl Conn {
    pub(super) fn vacant() -> Conn {
        Conn {
            generation: 0,
            socket: None,
            phase: Phase::Dialling,
            readable: false,
            ending: false,
            writable: false,
            paused: false,
            dialled: false,
            queue: FrameQueue::EMPTY,
            unsent: 0,
            taken: 0,
            is_ready: false,
            is_in_line: false,
        }
    }

    pub(super) fn occupy(&mut self, socket: OwnedFd, phase: Phase) {
        assert!(self.socket.is_none(), "the place was free");
        self.socket = Some(socket);
        self.phase = phase;
    }

    /// Closes the socket and makes the place ready for another connection.
    pub(super) fn vacate(&mut self) {
        assert!(self.queue.is_empty(), "frames of a closed connection are returned");
        *self = Conn {
            generation: self.generation.wrapping_add(1),
            is_ready: self.is_ready,
            is_in_line: self.is_in_line,
            ..Conn::vacant()
        };
    }

    /// Whether a receive makes sense now.
    pub(super) fn wants_receive(&self) -> bool {
        let receives = matches!(self.phase, Phase::Open | Phase::Finishing);
        self.socket.is_some() && receives && self.readable && !self.paused
    }

    /// Whether a send makes sense now.
    pub(super) fn wants_send(&self) -> bool {
        let sends = matches!(self.phase, Phase::Open | Phase::Finishing);
        self.socket.is_some() && sends && self.writable && !self.queue.is_empty()
    }
}
