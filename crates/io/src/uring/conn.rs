//! The ring's state of one connection.

use super::address::SocketAddress;
use super::direct::DirectReceive;
use crate::sendblock::SendBlock;
use crate::sockets::{ConnState, LOOK_BYTES};

/// The kind of receive that is in flight for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReceiveKind {
    /// No receive is in flight.
    #[default]
    Idle,
    /// A multishot receive into provided buffers is in flight, until its last completion.
    Armed,
    /// A bounded receive into a provided buffer is in flight: it takes a few bytes.
    Little,
    /// A receive into the caller's buffer for a payload is in flight.
    Direct,
}

/// The ring's state of one connection.
#[derive(Default)]
pub struct RingConnState {
    pub(super) receiving: ReceiveKind,
    /// The memory of a bounded receive, with the caller's buffer for a payload; `None` if neither
    /// is needed.
    pub(super) direct: Option<Box<DirectReceive>>,
    /// Number of bounded receives that may still come without a payload before multishot receives
    /// are used again.
    pub(super) patience: u8,
    /// `true` if the place is in the list of connections whose bounded receives have ended.
    pub(super) is_resting: bool,
    /// `true` if the place is in the line of connections that wait for receive buffers.
    pub(super) is_starved: bool,
    /// `true` if the kernel watches for the connection's end. The watch stays when receiving
    /// resumes, since the next pause needs it.
    pub(super) is_watched: bool,
    /// The address that a connect in flight points to.
    pub(super) dialling: Option<Box<SocketAddress>>,
    /// The vector of the send in flight. The send carries the first `frames` of the queue.
    pub(super) sending: Option<Box<SendBlock>>,
}

impl RingConnState {
    /// Takes a bounded receive with this result off the connection's patience. There is more than a
    /// few bytes where it was full, so nothing is left then.
    pub(super) fn lose_patience(&mut self, result: i32) {
        match usize::try_from(result) {
            Err(_) | Ok(0) => {}
            Ok(LOOK_BYTES..) => self.patience = 0,
            Ok(_) => self.patience = self.patience.saturating_sub(1),
        }
    }
}

impl ConnState for RingConnState {
    fn vacate(&mut self) {
        debug_assert!(!self.is_busy() && self.direct.is_none(), "nothing is in flight");
        self.patience = 0;
    }

    fn is_busy(&self) -> bool {
        !self.is_idle() || self.sending.is_some() || self.dialling.is_some()
    }

    fn carried(&self) -> usize {
        self.sending.as_ref().map_or(0, |block| block.frames)
    }

    fn may_send(&self) -> bool {
        self.sending.is_none()
    }

    fn is_idle(&self) -> bool {
        self.receiving == ReceiveKind::Idle && !self.is_watched
    }
}

impl Drop for RingConnState {
    /// Leaks the memory that sends and receives in flight refer to.
    fn drop(&mut self) {
        std::mem::forget(self.sending.take());
        std::mem::forget(self.direct.take());
    }
}
