//! Handshakes with pre-shared keys: the settings of both ends, and a handshake under way.

use std::sync::Arc;

use contract::{Insecurity, Opening, Psk, PskBook};
use zeroize::Zeroizing;

use super::handshake::Step;
use super::offers::{Known, Secrets};
use super::openssl::{Context, Talk};
use super::schedule::TrafficSecret;
use super::secured::Secured;
use crate::Error;

/// Maximum length in bytes of a client's hello with its records. Eight identities take 5 KiB.
const HELLO_BYTES_MAX: usize = 16 << 10;

/// The settings of an end whose handshakes use pre-shared keys.
#[derive(Clone)]
pub(super) struct PskSettings {
    context: Arc<Context>,
    known: Known,
}

impl PskSettings {
    /// Creates the settings of a server that knows the keys in `book`.
    ///
    /// # Errors
    /// Fails if OpenSSL is not installed.
    pub(super) fn of_server(book: Arc<dyn PskBook>) -> Result<PskSettings, Error> {
        let context = Arc::new(Context::new(None)?);
        Ok(PskSettings { context, known: Known::Book(book) })
    }

    /// Creates the settings of a client with this key.
    ///
    /// # Errors
    /// Fails if OpenSSL is not installed.
    pub(super) fn of_client(identity: &[u8], psk: Psk) -> Result<PskSettings, Error> {
        let context = Arc::new(Context::new(Some(psk.hash))?);
        Ok(PskSettings { context, known: Known::Own { identity: identity.into(), psk } })
    }

    /// Begins a handshake.
    pub(super) fn begin(&self) -> Result<PskHandshake, Insecurity> {
        let talk = Talk::new(self.context.clone(), self.known.clone())?;
        let hello = Vec::new();
        Ok(PskHandshake { context: self.context.clone(), talk, hello, has_answered: false })
    }
}

/// A handshake with a pre-shared key.
pub(super) struct PskHandshake {
    context: Arc<Context>,
    talk: Talk,
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
    ) -> Result<Step, Insecurity> {
        if !incoming.is_empty() {
            if self.hello.len() + incoming.len() > HELLO_BYTES_MAX {
                return Err(Insecurity::Misbehaved);
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
                    return Ok(Step::Send);
                }
                Ok(true) => return Ok(Step::Done),
                Ok(false) => return Ok(Step::Receive),
            }
        }
    }

    /// Repeats the handshake with the next key that has the client's identity. Returns `false` if
    /// there is no further key.
    fn try_next(&mut self) -> Result<bool, Insecurity> {
        let Some(known) = self.talk.known().next() else { return Ok(false) };
        self.talk = Talk::new(self.context.clone(), known)?;
        self.talk.hear(&self.hello)?;
        Ok(true)
    }

    /// Returns the keys of a finished handshake, and the opening of the session: the identity of the
    /// client, at a server.
    pub(super) fn finish(mut self) -> Result<(Secured, Option<Box<Opening>>), Insecurity> {
        let Secrets { client, server } = self.talk.secrets();
        let known = self.talk.known();
        let (hash, sent, received) = match &known {
            Known::Own { psk, .. } => (psk.hash, client, server),
            Known::Meant { psks, attempt, .. } => (psks[*attempt].hash, server, client),
            Known::Nothing | Known::Book(_) => return Err(Insecurity::Internal),
        };
        let secret = |bytes: Option<Zeroizing<Vec<u8>>>| {
            TrafficSecret::new(hash, bytes.ok_or(Insecurity::Internal)?)
        };
        let opening = known.chosen().map(|(identity, psk)| {
            let (heard, proven) = (identity.into(), Some(psk.mark));
            Box::new(Opening { is_secured: true, heard, proven })
        });
        Ok((Secured::of_secrets(secret(sent)?, secret(received)?, opening.is_none())?, opening))
    }
}
