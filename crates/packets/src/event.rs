//! The events that an endpoint has for its user.

use contract::{Buf, CloseReason, ConnId};
use wire::packets::{REFUSED_NEEDS_KEY, REFUSED_NO_KEY, REFUSED_OTHER_KEY};

use crate::channel::{EndReason, REFUSED};
use crate::peer_address::PeerAddress;

/// The identifier of an association. The generation tells successive users of one place apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AssociationId {
    /// Index in the endpoint's table of associations.
    pub index: u32,
    /// Number of associations that had the index before.
    pub generation: u32,
}

/// Bytes of a message that arrived. The bytes lie in a chunk, which is lent until
/// [`give`](crate::Endpoint::give).
#[derive(Debug, PartialEq, Eq)]
pub struct Delivery {
    pub(crate) chunk: u32,
    pub(crate) at: u32,
    pub(crate) bytes: u32,
    /// Offset of the bytes in the message.
    pub offset: u32,
    /// `true` if these are the last bytes of the message.
    pub is_last: bool,
}

/// The reason for the end of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssociationEnd {
    /// The peer has not answered for too long.
    Silent,
    /// The peer does not know the association any more.
    Reset,
    /// The peer refused the association; the value is one of `wire::packets::REFUSED_…`.
    Refused(u32),
    /// The local end closed the association.
    Local,
    /// The association has had no channel for a while.
    Idle,
}

impl AssociationEnd {
    /// Returns the reason that the channels of the association are told.
    pub(crate) fn reason(self) -> EndReason {
        match self {
            Self::Local => EndReason::Local,
            Self::Refused(reason) => EndReason::Refused(Self::refusal(reason)),
            Self::Silent | Self::Reset | Self::Idle => EndReason::Lost,
        }
    }

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
    /// A further address that the peer of a dialled association claims to have.
    /// [`add_path`](crate::Endpoint::add_path) verifies the claim.
    AddressAnnounced(AssociationId, PeerAddress),
    /// An association has ended, after all of its channels.
    Down(AssociationId, AssociationEnd),
    /// A channel is open: the peer has opened it, or has answered this end's open.
    Opened {
        /// The channel's identifier.
        conn: ConnId,
        /// The association that the channel belongs to.
        association: AssociationId,
        /// The address of the peer with which the association began.
        peer: PeerAddress,
    },
    /// Bytes of a message arrived on a channel.
    Received {
        /// The channel of the message.
        conn: ConnId,
        /// The bytes, to be returned with [`give`](crate::Endpoint::give).
        delivery: Delivery,
    },
    /// A message was delivered to the peer's endpoint, or dropped with its channel. Its body
    /// returns to the user.
    Sent {
        /// The channel of the message.
        conn: ConnId,
        /// The body; `None` if the message had none.
        buf: Option<MessageBody>,
    },
    /// A channel has ended. No further event of the channel follows but `Sent`.
    Closed {
        /// The channel that has ended.
        conn: ConnId,
        /// The reason for the end.
        reason: CloseReason,
    },
}

/// The body of a message, which returns to the user that sent it. Bodies are equal if their buffers
/// have the same index.
#[derive(Debug)]
pub struct MessageBody(pub Buf);

impl PartialEq for MessageBody {
    fn eq(&self, other: &MessageBody) -> bool {
        self.0.index() == other.0.index()
    }
}
