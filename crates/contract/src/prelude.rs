//! The interface to the unencrypted exchange by which a protocol begins before its TLS handshake.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::{PskMark, TlsFailure};

/// The beginning of a negotiation, which a [`Prelude`] has exchanged. The session of the connection
/// continues behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletedPrelude {
    /// `true` if the connection is over TLS from now on.
    pub is_secured: bool,
    /// Bytes that the peer has sent before, which the session has to know. The protocol defines
    /// their form.
    pub heard: Box<[u8]>,
    /// The mark of the pre-shared key that the peer has proven; `None` without one.
    pub proven: Option<PskMark>,
}

/// The continuation of a connection after its prelude.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreludeOutcome {
    /// A TLS handshake follows, then a session that goes on from here.
    Secure(CompletedPrelude),
    /// A session follows, without TLS.
    Plain(CompletedPrelude),
}

/// An end of the unencrypted exchange that precedes the TLS handshake of a protocol. Works on
/// bytes alone, without I/O and without a clock.
pub trait Prelude: Send {
    /// Returns how many bytes to receive next at most; not zero. Bytes behind them may be of the
    /// TLS handshake.
    fn wants(&self) -> usize;

    /// Takes bytes of the peer, and appends what is to be sent to `answers`. The first call brings
    /// no bytes, and later calls may bring none. Returns the continuation once it is decided; the
    /// answers are sent before it.
    ///
    /// # Errors
    /// Says why the connection is to end, once the answers have been sent.
    fn take(
        &mut self,
        bytes: &[u8],
        answers: &mut Vec<u8>,
    ) -> Result<Option<PreludeOutcome>, TlsFailure>;
}
