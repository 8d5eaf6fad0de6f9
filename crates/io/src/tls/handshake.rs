//! A handshake on a nonblocking socket, with the messages of rustls or OpenSSL, behind the prelude
//! of a protocol that begins in the clear.
//!
//! The socket is read record by record, so that bytes behind the handshake are left for the worker
//! that gets the connection.

use std::os::fd::OwnedFd;

use contract::{CompletedPrelude, Prelude, PreludeOutcome, TlsFailure};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError};
use rustls::{CertificateError, Error};

use super::key::{HEADER, RECORD_MAX};
use super::psk::PskHandshake;
use super::secured::{KeySource, TlsState};

/// Maximum number of a handshake's bytes that are kept at a time: more than a certificate chain.
const KEPT_MAX: usize = 128 << 10;

/// Maximum number of bytes of a prelude that one call receives.
const PIECE_BYTES_MAX: usize = 512;

/// Maximum number of receives of a prelude in one turn.
const PIECES_MAX: usize = 32;

/// The type of the records that a handshake consists of.
const HANDSHAKE: u8 = 22;

/// The types of records: from a change of ciphers, which TLS 1.3 ignores, to data.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 20..=23;

/// The role of this process in a connection.
pub(super) enum HandshakeRole {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
    /// Either role, with pre-shared keys.
    Psk(Box<PskHandshake>),
}

/// The exchange that precedes a TLS handshake on a connection.
pub(super) enum PreHandshake {
    /// The handshake begins at once.
    Nothing,
    /// TLS is optional: the first byte of the peer decides.
    Look,
    /// The protocol begins in the clear.
    Prelude(Box<dyn Prelude>),
}

/// The state of a handshake after [`Handshake::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeProgress {
    /// The handshake waits for bytes of the peer.
    Reads,
    /// The handshake waits until the socket accepts bytes.
    Writes,
    /// The handshake has ended well.
    Done,
    /// The peer does not speak TLS, and TLS is optional.
    Plain,
}

/// The result of a handshake: the socket, its keys, and the outcome of a prelude if there was one.
pub(super) type FinishedHandshake = (OwnedFd, Box<TlsState>, Option<Box<CompletedPrelude>>);

/// The next step that rustls or OpenSSL wants in a handshake.
pub(super) enum HandshakeStep {
    Send,
    Receive,
    Done,
}

/// A TLS handshake on a nonblocking socket, with the unencrypted exchange that precedes the
/// handshake.
pub(super) struct Handshake {
    pub(super) socket: OwnedFd,
    side: HandshakeRole,
    before: PreHandshake,
    /// The outcome of a prelude, for the session; `None` without a prelude, or before its end.
    pub(super) opening: Option<Box<CompletedPrelude>>,
    incoming: Vec<u8>,
    /// Bytes of `incoming` before the record that is being read.
    whole: usize,
    is_first: bool,
    /// `true` once bytes were to be sent: a server then has the whole hello of its client.
    pub(super) has_answered: bool,
    outgoing: Vec<u8>,
}

/// Runs rustls's steps until the socket is needed. The result is the next `HandshakeStep`, or why
/// the handshake fails; the peer's alert is then in `$outgoing`.
macro_rules! drive {
    ($side:expr, $incoming:expr, $outgoing:expr) => {
        loop {
            let status = $side.process_tls_records($incoming);
            let discard = status.discard;
            let step = match status.state {
                Ok(ConnectionState::EncodeTlsData(mut encode)) => {
                    encode_into($outgoing, |room| encode.encode(room)).map(|()| None)
                }
                Ok(ConnectionState::TransmitTlsData(transmit)) => {
                    transmit.done();
                    Ok(Some(HandshakeStep::Send))
                }
                Ok(ConnectionState::BlockedHandshake) => Ok(Some(HandshakeStep::Receive)),
                Ok(ConnectionState::WriteTraffic(_)) => Ok(Some(HandshakeStep::Done)),
                Ok(_) => Err(TlsFailure::Misbehaved),
                Err(error) => Err(reason(&error)),
            };
            $incoming.drain(..discard);
            match step {
                Ok(None) => {}
                Ok(Some(step)) => break Ok(step),
                Err(why) => {
                    // What rustls has to say to the peer about it.
                    if let Ok(ConnectionState::EncodeTlsData(mut encode)) =
                        $side.process_tls_records(&mut []).state
                    {
                        let _ = encode_into($outgoing, |room| encode.encode(room));
                    }
                    break Err(why);
                }
            }
        }
    };
}

impl Handshake {
    pub(super) fn new(socket: OwnedFd, side: HandshakeRole, before: PreHandshake) -> Handshake {
        Handshake {
            socket,
            side,
            before,
            opening: None,
            incoming: Vec::new(),
            whole: 0,
            is_first: true,
            has_answered: false,
            outgoing: Vec::new(),
        }
    }

    /// Continues as far as the socket allows.
    ///
    /// # Errors
    /// Fails with the reason why there is no connection over TLS. The peer has been told, if the
    /// socket took the alert.
    pub(super) fn advance(&mut self) -> Result<HandshakeProgress, TlsFailure> {
        if let Some(waits) = self.begin()? {
            return Ok(waits);
        }
        loop {
            if !self.send()? {
                return Ok(HandshakeProgress::Writes);
            }
            // The rest of a record of which a piece came before.
            if self.incoming.len() > self.whole && !self.receive()? {
                return Ok(HandshakeProgress::Reads);
            }
            let step = match &mut self.side {
                HandshakeRole::Server(side) => drive!(side, &mut self.incoming, &mut self.outgoing),
                HandshakeRole::Client(side) => drive!(side, &mut self.incoming, &mut self.outgoing),
                HandshakeRole::Psk(side) => side.drive(&mut self.incoming, &mut self.outgoing),
            };
            self.whole = self.incoming.len();
            self.has_answered |= matches!(step, Ok(HandshakeStep::Send));
            match step {
                Ok(HandshakeStep::Send) => {}
                Ok(HandshakeStep::Done) if self.outgoing.is_empty() => {
                    return Ok(HandshakeProgress::Done);
                }
                Ok(HandshakeStep::Done) => {}
                Ok(HandshakeStep::Receive) => {
                    if !self.receive()? {
                        return Ok(HandshakeProgress::Reads);
                    }
                }
                Err(why) => {
                    let _ = self.send();
                    return Err(why);
                }
            }
        }
    }

    /// Continues with the part before the handshake. Returns the state after that; `None` once the
    /// handshake may begin.
    fn begin(&mut self) -> Result<Option<HandshakeProgress>, TlsFailure> {
        match &self.before {
            PreHandshake::Nothing => return Ok(None),
            PreHandshake::Look => match self.look()? {
                None => return Ok(Some(HandshakeProgress::Reads)),
                Some(HANDSHAKE) => {}
                Some(_) => return Ok(Some(HandshakeProgress::Plain)),
            },
            PreHandshake::Prelude(_) => {
                if let Some(waits) = self.play()? {
                    return Ok(Some(waits));
                }
            }
        }
        self.before = PreHandshake::Nothing;
        Ok(None)
    }

    /// Continues with the prelude. No more bytes are received than the prelude wants. Returns the
    /// state after that; `None` if the handshake may begin.
    fn play(&mut self) -> Result<Option<HandshakeProgress>, TlsFailure> {
        let mut bytes = [0; PIECE_BYTES_MAX];
        self.hear(&[])?;
        for _ in 0..PIECES_MAX {
            if !self.send()? {
                return Ok(Some(HandshakeProgress::Writes));
            }
            let wants = match &self.before {
                PreHandshake::Prelude(prelude) => prelude.wants().min(PIECE_BYTES_MAX),
                PreHandshake::Nothing | PreHandshake::Look => return Ok(None),
            };
            let came = match recv(&self.socket, &mut bytes[..wants], RecvFlags::DONTWAIT) {
                Ok((_, came @ 1..)) => came,
                Err(Errno::INTR) => 0,
                Err(Errno::AGAIN) => return Ok(Some(HandshakeProgress::Reads)),
                Ok((_, 0)) | Err(_) => return Err(TlsFailure::BrokenOff),
            };
            let (opening, waits) = match self.hear(&bytes[..came])? {
                None => continue,
                Some(PreludeOutcome::Plain(opening)) => (opening, Some(HandshakeProgress::Plain)),
                Some(PreludeOutcome::Secure(opening)) => (opening, None),
            };
            self.opening = Some(Box::new(opening));
            return Ok(waits);
        }
        // Others have their turn before it goes on.
        Ok(Some(if self.send()? { HandshakeProgress::Reads } else { HandshakeProgress::Writes }))
    }

    /// Passes received bytes to the prelude. Returns the outcome if the prelude has ended. If it
    /// fails, its last answers are sent.
    fn hear(&mut self, bytes: &[u8]) -> Result<Option<PreludeOutcome>, TlsFailure> {
        let PreHandshake::Prelude(prelude) = &mut self.before else { return Ok(None) };
        let heard = prelude.take(bytes, &mut self.outgoing);
        if heard.is_err() {
            let _ = self.send();
        }
        heard
    }

    /// Peeks at the peer's first byte and leaves it in the socket; returns `None` if no byte has
    /// arrived.
    fn look(&self) -> Result<Option<u8>, TlsFailure> {
        let mut first = [0];
        match recv(&self.socket, &mut first, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((_, 1)) => Ok(Some(first[0])),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            _ => Err(TlsFailure::BrokenOff),
        }
    }

    /// Returns `true` if TLS is optional and the peer has sent nothing yet.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.before, PreHandshake::Look) && self.look() == Ok(None)
    }

    /// Sends the outgoing bytes; returns `false` if the socket does not take all of them now.
    fn send(&mut self) -> Result<bool, TlsFailure> {
        while !self.outgoing.is_empty() {
            match send(&self.socket, &self.outgoing, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.outgoing.drain(..sent)),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(_) => return Err(TlsFailure::BrokenOff),
            }
        }
        Ok(true)
    }

    /// Receives up to the end of a record; returns `false` if the rest of it has not come.
    fn receive(&mut self) -> Result<bool, TlsFailure> {
        if self.incoming.len() > KEPT_MAX {
            return Err(TlsFailure::Misbehaved);
        }
        loop {
            let record = &self.incoming[self.whole..];
            let length = match record.first_chunk::<HEADER>() {
                None => HEADER,
                Some(&[kind, major, _, high, low]) => {
                    let is_plain = major != 3 || !RECORD_TYPES.contains(&kind);
                    if self.is_first && is_plain {
                        return Err(TlsFailure::Plain);
                    }
                    self.is_first = false;
                    HEADER + usize::from(u16::from_be_bytes([high, low]))
                }
            };
            let missing = length - record.len();
            if missing == 0 {
                return Ok(true);
            }
            if is_plain_start(record) && self.is_first {
                return Err(TlsFailure::Plain);
            }
            if length > RECORD_MAX {
                return Err(TlsFailure::Misbehaved);
            }
            let had = self.incoming.len();
            self.incoming.resize(had + missing, 0);
            let got = recv(&self.socket, &mut self.incoming[had..], RecvFlags::DONTWAIT);
            let came = got.as_ref().map_or(0, |(_, came)| *came);
            self.incoming.truncate(had + came);
            match got {
                Ok((_, 0)) => return Err(TlsFailure::BrokenOff),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(_) => return Err(TlsFailure::BrokenOff),
            }
        }
    }

    /// Returns the socket, the keys and the opening of a finished handshake.
    pub(super) fn finish(self) -> Result<FinishedHandshake, TlsFailure> {
        if !self.incoming.is_empty() {
            return Err(TlsFailure::Misbehaved);
        }
        let internal = |_| TlsFailure::Internal;
        let (secrets, next) = match self.side {
            HandshakeRole::Server(side) => {
                let (secrets, next) = side.dangerous_into_kernel_connection().map_err(internal)?;
                (secrets, KeySource::Server(next))
            }
            HandshakeRole::Client(side) => {
                let (secrets, next) = side.dangerous_into_kernel_connection().map_err(internal)?;
                (secrets, KeySource::Client(next))
            }
            HandshakeRole::Psk(side) => {
                let (secured, opening) = side.finish()?;
                return Ok((self.socket, Box::new(secured), opening));
            }
        };
        Ok((self.socket, Box::new(TlsState::new(&secrets, next)?), self.opening))
    }
}

/// Returns `true` if these bytes cannot begin a TLS record, even if the record's header is
/// incomplete.
fn is_plain_start(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|kind| !RECORD_TYPES.contains(kind))
}

/// Appends a message encoded by rustls to the outgoing bytes.
fn encode_into(
    outgoing: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), TlsFailure> {
    let had = outgoing.len();
    let mut room = 4096;
    loop {
        outgoing.resize(had + room, 0);
        match encode(&mut outgoing[had..]) {
            Ok(written) => {
                outgoing.truncate(had + written);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(error)) => room = error.required_size,
            Err(EncodeError::AlreadyEncoded) => {
                outgoing.truncate(had);
                return Err(TlsFailure::Internal);
            }
        }
    }
}

/// Returns the reason for an insecure connection that an error of rustls stands for.
fn reason(error: &Error) -> TlsFailure {
    use CertificateError as C;
    match error {
        Error::InvalidCertificate(C::Expired | C::ExpiredContext { .. }) => TlsFailure::Expired,
        Error::InvalidCertificate(C::NotValidYet | C::NotValidYetContext { .. }) => {
            TlsFailure::NotYetValid
        }
        Error::InvalidCertificate(C::NotValidForName | C::NotValidForNameContext { .. }) => {
            TlsFailure::WrongName
        }
        // An authority of the same name has another key.
        Error::InvalidCertificate(C::UnknownIssuer | C::BadSignature) => {
            TlsFailure::UnknownAuthority
        }
        Error::InvalidCertificate(C::ApplicationVerificationFailure) => {
            TlsFailure::WrongFingerprint
        }
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => TlsFailure::BadCertificate,
        Error::AlertReceived(alert) => TlsFailure::Alert(u8::from(*alert)),
        Error::PeerIncompatible(_) => TlsFailure::NothingInCommon,
        Error::DecryptError => TlsFailure::BadRecord,
        Error::PeerMisbehaved(_)
        | Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. } => TlsFailure::Misbehaved,
        _ => TlsFailure::Internal,
    }
}
