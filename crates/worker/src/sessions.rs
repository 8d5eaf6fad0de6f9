//! The source of the sessions of a worker's connections.

use contract::{ConnId, Instant, ListenerId, Opening, Peer, Unpack};

/// The reason why bytes did not become a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUnpacked {
    /// The bytes do not encode a session.
    Unknown,
    /// A part of the session is in use by another thread. The bytes stay valid for a later turn.
    Later,
}

/// Creates the sessions of connections, and reports which sessions have work that no message of
/// their peer caused.
pub trait Sessions<P> {
    /// Creates the session of a new connection from `peer`, which came by `listener`. The session
    /// continues behind `opening`, if there is one.
    fn open(
        &mut self,
        conn: ConnId,
        listener: Option<ListenerId>,
        peer: &Peer,
        opening: Option<&Opening>,
    ) -> P;

    /// Restores a session from the bytes that [`pack`](contract::Movable::pack) made, at another
    /// worker or here. The session has no connection yet: if it gets one,
    /// [`landed`](contract::Movable::landed) is called, otherwise it is packed again.
    ///
    /// # Errors
    /// Returns a [`NotUnpacked`] if the bytes are of no session, or if it is too early.
    fn unpack(&mut self, packed: &[u8]) -> Result<P, NotUnpacked>;

    /// Forgets a packed session that was lost together with its connection.
    fn lost(&mut self, _packed: &[u8]) {}

    /// Returns a connection whose session has work that no message of its peer caused, such as a
    /// notification to send. The worker calls this method in every turn until it returns `None`.
    /// The connection may be closed by then.
    fn news(&mut self, _now: Instant) -> Option<ConnId> {
        None
    }

    /// Returns the time at which to call [`news`](Sessions::news) again if nothing else happens;
    /// `None` for no such time.
    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

/// Sessions made by a function, without news. The function gets the listener and the peer of a
/// connection.
#[derive(Debug)]
pub struct FromFn<P>(pub fn(Option<ListenerId>, &Peer) -> P);

impl<P: Unpack> Sessions<P> for FromFn<P> {
    fn open(
        &mut self,
        _: ConnId,
        listener: Option<ListenerId>,
        peer: &Peer,
        _: Option<&Opening>,
    ) -> P {
        (self.0)(listener, peer)
    }

    fn unpack(&mut self, packed: &[u8]) -> Result<P, NotUnpacked> {
        P::unpack(packed).ok_or(NotUnpacked::Unknown)
    }
}
