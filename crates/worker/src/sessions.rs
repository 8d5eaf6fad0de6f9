//! The source of the sessions of a worker's connections.

use contract::{ConnId, Instant, ListenerId, Peer, Unpack};

/// The reason why bytes did not become a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUnpacked {
    /// The bytes are of no session.
    Unknown,
    /// A part of the session cannot be had at this instant. The bytes stay good for a later turn.
    Later,
}

/// Makes sessions, and knows which of them have news.
pub trait Sessions<P> {
    /// Makes the session of a new connection from `peer`, which came by `listener`.
    fn open(&mut self, conn: ConnId, listener: Option<ListenerId>, peer: &Peer) -> P;

    /// Makes the session again that was [packed](contract::Movable::pack) as these bytes, at another
    /// worker or here. The session has no connection yet: if it gets one, it
    /// [is told](contract::Movable::landed), otherwise it is [packed](contract::Movable::pack)
    /// again.
    ///
    /// # Errors
    /// Returns a [`NotUnpacked`] if the bytes are of no session, or if it is too early.
    fn unpack(&mut self, packed: &[u8]) -> Result<P, NotUnpacked>;

    /// Forgets a session that was packed and is lost on its way, with its connection.
    fn lost(&mut self, _packed: &[u8]) {}

    /// Returns a connection whose session is to attend to something that did not come from its peer.
    /// The worker asks in every turn until there is none. The connection may be gone.
    fn news(&mut self, _now: Instant) -> Option<ConnId> {
        None
    }

    /// Returns when to ask for news without anything else having happened.
    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

/// The sessions that a function makes, which have no news. The function is told the listener and
/// the peer of a connection.
#[derive(Debug)]
pub struct FromFn<P>(pub fn(Option<ListenerId>, &Peer) -> P);

impl<P: Unpack> Sessions<P> for FromFn<P> {
    fn open(&mut self, _: ConnId, listener: Option<ListenerId>, peer: &Peer) -> P {
        (self.0)(listener, peer)
    }

    fn unpack(&mut self, packed: &[u8]) -> Result<P, NotUnpacked> {
        P::unpack(packed).ok_or(NotUnpacked::Unknown)
    }
}
