//! The epoll interface's state of one connection.

use rustix::event::epoll::EventFlags;

use crate::sendblock::SendBlock;
use crate::sockets::{Conn, ConnState, ReceiveTarget};

/// The epoll interface's state of one connection.
pub struct EpollConnState {
    /// The events that the kernel has reported and that still hold. `IN`: bytes may have arrived;
    /// cleared by a receive that takes less than it could. `OUT`: the socket may accept bytes;
    /// cleared by a partial send. `RDHUP`: the stream's end or an error follows the bytes.
    pub(super) state: EventFlags,
    /// The caller's buffer for the payload that comes next; `None` if no payload is expected.
    pub(super) target: Option<ReceiveTarget>,
    /// Number of bounded receives that may still come without a payload before receives are
    /// unbounded again.
    pub(super) patience: u8,
    /// `true` if a bounded receive has ended. The next receive waits for the end of the turn,
    /// unless a payload is expected.
    pub(super) is_resting: bool,
    /// `true` if the place is in the line of connections to receive from.
    pub(super) is_in_line: bool,
    /// Bytes of the first queued frame that the kernel has taken.
    pub(super) taken: usize,
    /// The sealed TLS records that the kernel has accepted only in part, and the number of accepted
    /// bytes; `None` if there are none. The frames in the records are still queued.
    pub(super) sealed: Option<(Box<SendBlock>, usize)>,
}

impl Default for EpollConnState {
    fn default() -> Self {
        let (is_resting, is_in_line) = (false, false);
        let state = EventFlags::empty();
        EpollConnState {
            state,
            target: None,
            patience: 0,
            is_resting,
            is_in_line,
            taken: 0,
            sealed: None,
        }
    }
}

impl EpollConnState {
    /// Returns whether the kernel has reported the stream's end or an error.
    pub(super) fn is_ending(&self) -> bool {
        self.state.contains(EventFlags::RDHUP)
    }

    /// Notes that a receive took bytes, and whether the kernel may have `more`. The stream's end is
    /// received after all bytes.
    pub(super) fn received(&mut self, more: bool) {
        let readable = more || self.is_ending();
        self.state.set(EventFlags::IN, readable);
    }
}

impl ConnState for EpollConnState {
    fn vacate(&mut self) {
        assert!(self.target.is_none(), "the buffer that was to be filled is returned");
        self.state = EventFlags::empty();
        self.patience = 0;
        self.taken = 0;
        self.sealed = None;
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn carried(&self) -> usize {
        0
    }

    fn may_send(&self) -> bool {
        self.state.contains(EventFlags::OUT)
    }

    fn is_idle(&self) -> bool {
        true
    }
}

/// Returns whether to receive from the connection now: it is readable, being read and not resting.
pub(super) fn wants_receive(conn: &Conn<EpollConnState>) -> bool {
    let place = &conn.kernel;
    let is_free = !place.is_resting || place.target.is_some();
    conn.is_read() && place.state.contains(EventFlags::IN) && is_free
}
