//! A handshake on a nonblocking socket, with the messages of rustls.
//!
//! The socket is read record by record, so that bytes behind the handshake are left for the worker
//! that gets the connection.

use std::os::fd::OwnedFd;

use contract::Insecurity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError};
use rustls::{CertificateError, Error};

use super::key::{HEADER, RECORD_MAX};
use super::secured::{Next, Secured};

/// Maximum number of a handshake's bytes that are kept at a time: more than a certificate chain.
const KEPT_MAX: usize = 128 << 10;

/// The type of the records that a handshake consists of.
const HANDSHAKE: u8 = 22;

/// The types of records: from a change of ciphers, which TLS 1.3 ignores, to data.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 20..=23;

/// The role of this process in a connection.
pub(super) enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// The state of a handshake after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// For bytes of the peer.
    Reads,
    /// For the socket to accept bytes.
    Writes,
    /// Ended well.
    Done,
    /// The peer does not speak TLS, and TLS is optional.
    Plain,
}

/// The next step of a handshake.
enum Step {
    Send,
    Receive,
    Done,
}

/// A handshake on a socket.
pub(super) struct Handshake {
    pub(super) socket: OwnedFd,
    side: Side,
    /// `true` until it is known whether the peer speaks TLS, if TLS is optional.
    looks: bool,
    incoming: Vec<u8>,
    /// Bytes of `incoming` before the record that is being read.
    whole: usize,
    is_first: bool,
    /// `true` once bytes were to be sent: a server then has the whole hello of its client.
    pub(super) has_answered: bool,
    outgoing: Vec<u8>,
}

/// Runs rustls's steps until the socket is needed.
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
    pub(super) fn new(socket: OwnedFd, side: Side, looks: bool) -> Handshake {
        let (incoming, outgoing) = (Vec::new(), Vec::new());
        let (is_first, has_answered) = (true, false);
        Handshake { socket, side, looks, incoming, whole: 0, is_first, has_answered, outgoing }
    }

    /// Continues as far as the socket allows.
    ///
    /// # Errors
    /// Says why there is no connection over TLS. The peer has been told, if the socket took that.
    pub(super) fn advance(&mut self) -> Result<Progress, Insecurity> {
        if self.looks {
            match self.look()? {
                None => return Ok(Progress::Reads),
                Some(HANDSHAKE) => self.looks = false,
                Some(_) => return Ok(Progress::Plain),
            }
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

    /// Peeks at the first byte, if it has come.
    fn look(&self) -> Result<Option<u8>, Insecurity> {
        let mut first = [0];
        match recv(&self.socket, &mut first, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((_, 1)) => Ok(Some(first[0])),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            _ => Err(Insecurity::BrokenOff),
        }
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

    /// Receives up to the end of a record; returns `false` if the record is incomplete.
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

    /// Returns the socket and the keys of a finished handshake.
    pub(super) fn finish(self) -> Result<(OwnedFd, Box<Secured>), Insecurity> {
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
        };
        Ok((self.socket, Box::new(Secured::new(&secrets, next)?)))
    }
}

/// Returns whether these bytes cannot begin a record, even if its header is incomplete.
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

/// Returns the reason of an error of rustls in our words.
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
