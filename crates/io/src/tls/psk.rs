//! Handshakes with pre-shared keys: the settings of both ends, and a handshake under way.

use std::sync::Arc;

use contract::{CompletedPrelude, Psk, PskBook, TlsFailure};
use zeroize::Zeroizing;

use super::handshake::HandshakeStep;
use super::offers::{KnownKeys, TrafficSecrets};
use super::openssl::{SslContext, SslHandshake};
use super::schedule::TrafficSecret;
use super::secured::TlsState;
use crate::Error;

/// Maximum length in bytes of a client's hello with its records. Eight identities take 5 KiB.
const HELLO_BYTES_MAX: usize = 16 << 10;

/// The settings of an end whose handshakes use pre-shared keys.
#[derive(Clone)]
pub(super) struct PskSettings {
    context: Arc<SslContext>,
    known: KnownKeys,
}

impl PskSettings {
    /// Creates the settings of a server that knows the keys in `book`.
    ///
    /// # Errors
    /// Fails if OpenSSL is not installed.
    pub(super) fn of_server(book: Arc<dyn PskBook>) -> Result<PskSettings, Error> {
        let context = Arc::new(SslContext::new(None)?);
        Ok(PskSettings { context, known: KnownKeys::Book(book) })
    }

    /// Creates the settings of a client with this key.
    ///
    /// # Errors
    /// Fails if OpenSSL is not installed.
    pub(super) fn of_client(identity: &[u8], psk: Psk) -> Result<PskSettings, Error> {
        let context = Arc::new(SslContext::new(Some(psk.hash))?);
        Ok(PskSettings { context, known: KnownKeys::Own { identity: identity.into(), psk } })
    }

    /// Begins a handshake.
    pub(super) fn begin(&self) -> Result<PskHandshake, TlsFailure> {
        let talk = SslHandshake::new(self.context.clone(), self.known.clone())?;
        let hello = Vec::new();
        Ok(PskHandshake { context: self.context.clone(), talk, hello, has_answered: false })
    }
}

/// A handshake with a pre-shared key.
pub(super) struct PskHandshake {
    context: Arc<SslContext>,
    talk: SslHandshake,
    /// The bytes received so far, kept until this end has answered. They are processed again if the
    /// handshake is repeated with another key that has the same identity.
    hello: Vec<u8>,
    has_answered: bool,
}

impl PskHandshake {
    /// Continues the handshake with the TLS records in `incoming`, and empties `incoming`. Appends
    /// the bytes to send to `outgoing`, and returns the next step.
    pub(super) fn drive(
        &mut self,
        incoming: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<HandshakeStep, TlsFailure> {
        if !incoming.is_empty() {
            if self.hello.len() + incoming.len() > HELLO_BYTES_MAX {
                return Err(TlsFailure::Misbehaved);
            }
            self.talk.hear(incoming)?;
            if !self.has_answered {
                self.hello.extend_from_slice(incoming);
            }
            incoming.clear();
        }
        let had = outgoing.len();
        loop {
            let went = self.talk.go_on();
            self.talk.say(outgoing);
            match went {
                Err(_) if !self.has_answered && self.try_next()? => outgoing.truncate(had),
                Err(why) => return Err(why),
                Ok(_) if outgoing.len() > had => {
                    (self.has_answered, self.hello) = (true, Vec::new());
                    return Ok(HandshakeStep::Send);
                }
                Ok(true) => return Ok(HandshakeStep::Done),
                Ok(false) => return Ok(HandshakeStep::Receive),
            }
        }
    }

    /// Repeats the handshake with the next key that has the client's identity. Returns `false` if
    /// there is no further key.
    fn try_next(&mut self) -> Result<bool, TlsFailure> {
        let Some(known) = self.talk.known().next() else { return Ok(false) };
        self.talk = SslHandshake::new(self.context.clone(), known)?;
        self.talk.hear(&self.hello)?;
        Ok(true)
    }

    /// Returns the keys of a finished handshake, and the opening of the session: the identity of
    /// the client, at a server.
    pub(super) fn finish(
        mut self,
    ) -> Result<(TlsState, Option<Box<CompletedPrelude>>), TlsFailure> {
        let TrafficSecrets { client, server } = self.talk.secrets();
        let known = self.talk.known();
        let (hash, sent, received) = match &known {
            KnownKeys::Own { psk, .. } => (psk.hash, client, server),
            KnownKeys::Meant { psks, attempt, .. } => (psks[*attempt].hash, server, client),
            KnownKeys::Nothing | KnownKeys::Book(_) => return Err(TlsFailure::Internal),
        };
        let secret = |bytes: Option<Zeroizing<Vec<u8>>>| {
            TrafficSecret::new(hash, bytes.ok_or(TlsFailure::Internal)?)
        };
        let opening = known.chosen().map(|(identity, psk)| {
            let (heard, proven) = (identity.into(), Some(psk.mark));
            Box::new(CompletedPrelude { is_secured: true, heard, proven })
        });
        Ok((TlsState::of_secrets(secret(sent)?, secret(received)?, opening.is_none())?, opening))
    }
}
