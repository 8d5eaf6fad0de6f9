//! A handshake on a nonblocking socket, with the messages of rustls or OpenSSL, behind the prelude
//! of a protocol that begins in the clear.
//!
//! The socket is read record by record, so that bytes behind the handshake are left for the worker
//! that gets the connection.

use std::os::fd::OwnedFd;

use contract::{Insecurity, Opening, Passage, Prelude};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError};
use rustls::{CertificateError, Error};

use super::key::{HEADER, RECORD_MAX};
use super::psk::PskHandshake;
use super::secured::{Next, Secured};

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
pub(super) enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
    /// Either role, with pre-shared keys.
    Psk(Box<PskHandshake>),
}

/// The exchange that precedes a TLS handshake on a connection.
pub(super) enum Before {
    /// The handshake begins at once.
    Nothing,
    /// TLS is optional: the first byte of the peer decides.
    Look,
    /// The protocol begins in the clear.
    Prelude(Box<dyn Prelude>),
}

/// The state of a handshake after [`Handshake::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
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
pub(super) type Finished = (OwnedFd, Box<Secured>, Option<Box<Opening>>);

/// The next step that rustls or OpenSSL wants in a handshake.
pub(super) enum Step {
    Send,
    Receive,
    Done,
}

/// A TLS handshake on a nonblocking socket, with the unencrypted exchange that precedes the
/// handshake.
pub(super) struct Handshake {
    pub(super) socket: OwnedFd,
    side: Side,
    before: Before,
    /// The outcome of a prelude, for the session; `None` without a prelude, or before its end.
    pub(super) opening: Option<Box<Opening>>,
    incoming: Vec<u8>,
    /// Bytes of `incoming` before the record that is being read.
    whole: usize,
    is_first: bool,
    /// `true` once bytes were to be sent: a server then has the whole hello of its client.
    pub(super) has_answered: bool,
    outgoing: Vec<u8>,
}

/// Runs rustls's steps until the socket is needed. The result is the next `Step`, or why the
/// handshake fails; the peer's alert is then in `$outgoing`.
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
                    Ok(Some(Step::Send))
                }
                Ok(ConnectionState::BlockedHandshake) => Ok(Some(Step::Receive)),
                Ok(ConnectionState::WriteTraffic(_)) => Ok(Some(Step::Done)),
                Ok(_) => Err(Insecurity::Misbehaved),
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
    pub(super) fn new(socket: OwnedFd, side: Side, before: Before) -> Handshake {
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
    pub(super) fn advance(&mut self) -> Result<Progress, Insecurity> {
        if let Some(waits) = self.begin()? {
            return Ok(waits);
        }
        loop {
            if !self.send()? {
                return Ok(Progress::Writes);
            }
            // The rest of a record of which a piece came before.
            if self.incoming.len() > self.whole && !self.receive()? {
                return Ok(Progress::Reads);
            }
            let step = match &mut self.side {
                Side::Server(side) => drive!(side, &mut self.incoming, &mut self.outgoing),
                Side::Client(side) => drive!(side, &mut self.incoming, &mut self.outgoing),
                Side::Psk(side) => side.drive(&mut self.incoming, &mut self.outgoing),
            };
            self.whole = self.incoming.len();
            self.has_answered |= matches!(step, Ok(Step::Send));
            match step {
                Ok(Step::Send) => {}
                Ok(Step::Done) if self.outgoing.is_empty() => return Ok(Progress::Done),
                Ok(Step::Done) => {}
                Ok(Step::Receive) => {
                    if !self.receive()? {
                        return Ok(Progress::Reads);
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
    fn begin(&mut self) -> Result<Option<Progress>, Insecurity> {
        match &self.before {
            Before::Nothing => return Ok(None),
            Before::Look => match self.look()? {
                None => return Ok(Some(Progress::Reads)),
                Some(HANDSHAKE) => {}
                Some(_) => return Ok(Some(Progress::Plain)),
            },
            Before::Prelude(_) => {
                if let Some(waits) = self.play()? {
                    return Ok(Some(waits));
                }
            }
        }
        self.before = Before::Nothing;
        Ok(None)
    }

    /// Continues with the prelude. No more bytes are received than the prelude wants. Returns the
    /// state after that; `None` if the handshake may begin.
    fn play(&mut self) -> Result<Option<Progress>, Insecurity> {
        let mut bytes = [0; PIECE_BYTES_MAX];
        self.hear(&[])?;
        for _ in 0..PIECES_MAX {
            if !self.send()? {
                return Ok(Some(Progress::Writes));
            }
            let wants = match &self.before {
                Before::Prelude(prelude) => prelude.wants().min(PIECE_BYTES_MAX),
                Before::Nothing | Before::Look => return Ok(None),
            };
            let came = match recv(&self.socket, &mut bytes[..wants], RecvFlags::DONTWAIT) {
                Ok((_, came @ 1..)) => came,
                Err(Errno::INTR) => 0,
                Err(Errno::AGAIN) => return Ok(Some(Progress::Reads)),
                Ok((_, 0)) | Err(_) => return Err(Insecurity::BrokenOff),
            };
            let (opening, waits) = match self.hear(&bytes[..came])? {
                None => continue,
                Some(Passage::Plain(opening)) => (opening, Some(Progress::Plain)),
                Some(Passage::Secure(opening)) => (opening, None),
            };
            self.opening = Some(Box::new(opening));
            return Ok(waits);
        }
        // Others have their turn before it goes on.
        Ok(Some(if self.send()? { Progress::Reads } else { Progress::Writes }))
    }

    /// Passes received bytes to the prelude. Returns the outcome if the prelude has ended. If it
    /// fails, its last answers are sent.
    fn hear(&mut self, bytes: &[u8]) -> Result<Option<Passage>, Insecurity> {
        let Before::Prelude(prelude) = &mut self.before else { return Ok(None) };
        let heard = prelude.take(bytes, &mut self.outgoing);
        if heard.is_err() {
            let _ = self.send();
        }
        heard
    }

    /// Peeks at the peer's first byte and leaves it in the socket; returns `None` if no byte has
    /// arrived.
    fn look(&self) -> Result<Option<u8>, Insecurity> {
        let mut first = [0];
        match recv(&self.socket, &mut first, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((_, 1)) => Ok(Some(first[0])),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            _ => Err(Insecurity::BrokenOff),
        }
    }

    /// Returns `true` if TLS is optional and the peer has sent nothing yet.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.before, Before::Look) && self.look() == Ok(None)
    }

    /// Sends the outgoing bytes; returns `false` if the socket does not take all of them now.
    fn send(&mut self) -> Result<bool, Insecurity> {
        while !self.outgoing.is_empty() {
            match send(&self.socket, &self.outgoing, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.outgoing.drain(..sent)),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Insecurity::BrokenOff),
            }
        }
        Ok(true)
    }

    /// Receives up to the end of a record; returns `false` if the rest of it has not come.
    fn receive(&mut self) -> Result<bool, Insecurity> {
        if self.incoming.len() > KEPT_MAX {
            return Err(Insecurity::Misbehaved);
        }
        loop {
            let record = &self.incoming[self.whole..];
            let length = match record.first_chunk::<HEADER>() {
                None => HEADER,
                Some(&[kind, major, _, high, low]) => {
                    let is_plain = major != 3 || !RECORD_TYPES.contains(&kind);
                    if self.is_first && is_plain {
                        return Err(Insecurity::Plain);
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
                return Err(Insecurity::Plain);
            }
            if length > RECORD_MAX {
                return Err(Insecurity::Misbehaved);
            }
            let had = self.incoming.len();
            self.incoming.resize(had + missing, 0);
            let got = recv(&self.socket, &mut self.incoming[had..], RecvFlags::DONTWAIT);
            let came = got.as_ref().map_or(0, |(_, came)| *came);
            self.incoming.truncate(had + came);
            match got {
                Ok((_, 0)) => return Err(Insecurity::BrokenOff),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(_) => return Err(Insecurity::BrokenOff),
            }
        }
    }

    /// Returns the socket, the keys and the opening of a finished handshake.
    pub(super) fn finish(self) -> Result<Finished, Insecurity> {
        if !self.incoming.is_empty() {
            return Err(Insecurity::Misbehaved);
        }
        let internal = |_| Insecurity::Internal;
        let (secrets, next) = match self.side {
            Side::Server(side) => {
                let (secrets, next) = side.dangerous_into_kernel_connection().map_err(internal)?;
                (secrets, Next::Server(next))
            }
            Side::Client(side) => {
                let (secrets, next) = side.dangerous_into_kernel_connection().map_err(internal)?;
                (secrets, Next::Client(next))
            }
            Side::Psk(side) => {
                let (secured, opening) = side.finish()?;
                return Ok((self.socket, Box::new(secured), opening));
            }
        };
        Ok((self.socket, Box::new(Secured::new(&secrets, next)?), self.opening))
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
) -> Result<(), Insecurity> {
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
                return Err(Insecurity::Internal);
            }
        }
    }
}

/// Returns the reason for an insecure connection that an error of rustls stands for.
fn reason(error: &Error) -> Insecurity {
    use CertificateError as C;
    match error {
        Error::InvalidCertificate(C::Expired | C::ExpiredContext { .. }) => Insecurity::Expired,
        Error::InvalidCertificate(C::NotValidYet | C::NotValidYetContext { .. }) => {
            Insecurity::NotYetValid
        }
        Error::InvalidCertificate(C::NotValidForName | C::NotValidForNameContext { .. }) => {
            Insecurity::WrongName
        }
        // An authority of the same name has another key.
        Error::InvalidCertificate(C::UnknownIssuer | C::BadSignature) => {
            Insecurity::UnknownAuthority
        }
        Error::InvalidCertificate(C::ApplicationVerificationFailure) => {
            Insecurity::WrongFingerprint
        }
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => Insecurity::BadCertificate,
        Error::AlertReceived(alert) => Insecurity::Alert(u8::from(*alert)),
        Error::PeerIncompatible(_) => Insecurity::NothingInCommon,
        Error::DecryptError => Insecurity::BadRecord,
        Error::PeerMisbehaved(_)
        | Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. } => Insecurity::Misbehaved,
        _ => Insecurity::Internal,
    }
}
