//! One connection's state.

use std::os::fd::OwnedFd;

use contract::Buf;

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

/// A buffer whose bytes from `at` to `until` are to be filled next.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) buf: Buf,
    pub(super) at: usize,
    pub(super) until: usize,
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
    /// Where the next bytes belong.
    pub(super) target: Option<Target>,
    /// Bounded receives that may still bring no payload, before receives take what there is again.
    pub(super) patience: u8,
    /// A bounded receive has ended: unless more is expected somewhere, the next waits for a kick.
    pub(super) is_resting: bool,
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
            target: None,
            patience: 0,
            is_resting: false,
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
        assert!(self.target.is_none(), "so is the buffer that was to be filled");
        *self = Conn {
            generation: self.generation.wrapping_add(1),
            is_ready: self.is_ready,
            is_in_line: self.is_in_line,
            is_resting: self.is_resting,
            ..Conn::vacant()
        };
    }

    /// Whether a receive makes sense now.
    pub(super) fn wants_receive(&self) -> bool {
        let receives = matches!(self.phase, Phase::Open | Phase::Finishing);
        let is_free = !self.is_resting || self.target.is_some();
        self.socket.is_some() && receives && self.readable && !self.paused && is_free
    }

    /// Whether a send makes sense now.
    pub(super) fn wants_send(&self) -> bool {
        let sends = matches!(self.phase, Phase::Open | Phase::Finishing);
        self.socket.is_some() && sends && self.writable && !self.queue.is_empty()
    }
}
