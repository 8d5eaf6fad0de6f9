//! The events that an endpoint has for its user.

use contract::{Buf, CloseReason, ConnId};
use wire::packets::{REFUSED_NEEDS_KEY, REFUSED_NO_KEY, REFUSED_OTHER_KEY};

use crate::channel::REFUSED;
use crate::station::Station;

/// The identifier of an association. The generation tells successive users of one place apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AssociationId {
    /// Place in the endpoint's table.
    pub index: u32,
    /// Number of associations that used the place before.
    pub generation: u32,
}

/// Bytes of a message that arrived. The bytes lie in a chunk, which is lent until
/// [`give`](crate::Endpoint::give).
#[derive(Debug, PartialEq, Eq)]
pub struct Delivery {
    pub(crate) chunk: u32,
    pub(crate) at: u32,
    pub(crate) bytes: u32,
    /// Offset in the message.
    pub offset: u32,
    /// The last bytes of the message.
    pub is_last: bool,
}

/// The reason for the end of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// The peer is silent.
    Silent,
    /// The peer does not know the association any more.
    Reset,
    /// The peer refused the association; the number is one of `wire::packets::REFUSED_…`.
    Refused(u32),
    /// This end closed the association.
    Local,
    /// The association has had no channel for a while.
    Idle,
}

impl Down {
    /// Returns the number on Linux of the error with which a refusal ends a connection:
    /// `ENOKEY`, `EKEYREJECTED`, `EPROTONOSUPPORT` or `ECONNREFUSED`.
    pub(crate) fn refusal(reason: u32) -> i32 {
        match reason {
            REFUSED_NEEDS_KEY => 126,
            REFUSED_OTHER_KEY => 129,
            REFUSED_NO_KEY => 93,
            _ => REFUSED,
        }
    }
}

/// An event of an endpoint.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// An association that was dialled is up.
    Up(AssociationId),
    /// An association has ended, after all of its channels.
    Down(AssociationId, Down),
    /// A channel is open: accepted or asked for.
    Opened {
        /// The channel's identifier.
        conn: ConnId,
        /// The association it belongs to.
        association: AssociationId,
        /// The station of the association's first path.
        peer: Station,
    },
    /// Bytes arrived on a channel.
    Received {
        /// The channel of the message.
        conn: ConnId,
        /// The bytes, to be given back.
        delivery: Delivery,
    },
    /// A message was delivered to the peer's endpoint, or dropped with its channel. Its body
    /// returns.
    Sent {
        /// The channel.
        conn: ConnId,
        /// The body, if the message had one.
        buf: Option<BufOf>,
    },
    /// A channel has ended. No further event of it follows but `Sent`.
    Closed {
        /// The channel.
        conn: ConnId,
        /// The reason.
        reason: CloseReason,
    },
}

/// The body of a message, which returns to the user that sent it. Bodies are equal if their buffers
/// have the same index.
#[derive(Debug)]
pub struct BufOf(pub Buf);

impl PartialEq for BufOf {
    fn eq(&self, other: &BufOf) -> bool {
        self.0.index() == other.0.index()
    }
}
