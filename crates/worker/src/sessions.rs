//! The source of the sessions of a worker's connections.

use contract::{CompletedPrelude, ConnId, Instant, ListenerId, Peer, RestorableSession};

/// The reason why bytes did not become a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnpackError {
    /// The bytes do not encode a session.
    Unknown,
    /// A part of the session is in use by another thread. The bytes stay valid for a later turn.
    Later,
}

/// Creates the sessions of connections, and reports which sessions have work that no message of
/// their peer caused.
pub trait SessionFactory<P> {
    /// Creates the session of a new connection from `peer`, which came by `listener`. The session
    /// continues behind `opening`, if there is one.
    fn open(
        &mut self,
        conn: ConnId,
        listener: Option<ListenerId>,
        peer: &Peer,
        opening: Option<&CompletedPrelude>,
    ) -> P;

    /// Restores a session from the bytes that [`pack`](contract::MigratableSession::pack) made, at
    /// another worker or here. The session has no connection yet: if it gets one,
    /// [`landed`](contract::MigratableSession::landed) is called, otherwise it is packed again.
    ///
    /// # Errors
    /// Returns a [`UnpackError`] if the bytes are of no session, or if it is too early.
    fn unpack(&mut self, packed: &[u8]) -> Result<P, UnpackError>;

    /// Forgets a packed session that was lost together with its connection.
    fn lost(&mut self, _packed: &[u8]) {}

    /// Returns a connection whose session has work that no message of its peer caused, such as a
    /// notification to send. The worker calls this method in every turn until it returns `None`.
    /// The connection may be closed by then.
    fn news(&mut self, _now: Instant) -> Option<ConnId> {
        None
    }

    /// Returns the time at which to call [`news`](SessionFactory::news) again if nothing else
    /// happens; `None` for no such time.
    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

/// Sessions made by a function, without news. The function gets the listener and the peer of a
/// connection.
#[derive(Debug)]
pub struct FnSessionFactory<P>(pub fn(Option<ListenerId>, &Peer) -> P);

impl<P: RestorableSession> SessionFactory<P> for FnSessionFactory<P> {
    fn open(
        &mut self,
        _: ConnId,
        listener: Option<ListenerId>,
        peer: &Peer,
        _: Option<&CompletedPrelude>,
    ) -> P {
        (self.0)(listener, peer)
    }

    fn unpack(&mut self, packed: &[u8]) -> Result<P, UnpackError> {
        P::unpack(packed).ok_or(UnpackError::Unknown)
    }
}
