//! The state of one TLS connection after its handshake.

use contract::{Buf, TlsFailure, TlsOpen};
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, Error, ExtractedSecrets};

use super::key::{ContentType, TrafficKey};
use super::schedule::TrafficSecret;

/// Maximum number of records that a server seals with one key under a pre-shared key. Linux's NVMe
/// host cannot take a key update, and gives the connection up. RFC 8446, section 5.5, recommends
/// 2^24.5 full records for AES-GCM; with 2^32 an attacker's advantage stays below 2^-40.
const RECORDS_MAX_TO_HOSTS: u64 = 1 << 32;

/// Maximum of the count `idle` of records without data, which each record with data lowers by one.
/// Beyond it the connection is ended.
const IDLE_MAX: u8 = 32;

/// The number of records without data as which a key update counts, since it costs a derivation of
/// keys.
const UPDATE_WEIGHT: u8 = 8;

/// The source of the next keys of a connection.
pub(super) enum KeySource {
    Server(KernelConnection<ServerConnectionData>),
    Client(KernelConnection<ClientConnectionData>),
    /// The connection began with a pre-shared key.
    Secrets(Box<NextSecrets>),
}

/// The secrets of both directions.
pub(super) struct NextSecrets {
    sending: TrafficSecret,
    receiving: TrafficSecret,
    is_client: bool,
}

impl KeySource {
    fn sending(&mut self) -> Result<TrafficKey, TlsFailure> {
        match self {
            KeySource::Server(next) => made(next.update_tx_secret()),
            KeySource::Client(next) => made(next.update_tx_secret()),
            KeySource::Secrets(next) => next.sending.update(),
        }
    }

    fn receiving(&mut self) -> Result<TrafficKey, TlsFailure> {
        match self {
            KeySource::Server(next) => made(next.update_rx_secret()),
            KeySource::Client(next) => made(next.update_rx_secret()),
            KeySource::Secrets(next) => next.receiving.update(),
        }
    }

    /// Returns `true` if this end is the client.
    fn is_client(&self) -> bool {
        match self {
            KeySource::Server(_) => false,
            KeySource::Client(_) => true,
            KeySource::Secrets(next) => next.is_client,
        }
    }
}

/// Returns the key that rustls has derived.
fn made(derived: Result<(u64, ConnectionTrafficSecrets), Error>) -> Result<TrafficKey, TlsFailure> {
    let (sequence, secrets) = derived.map_err(|_| TlsFailure::Internal)?;
    TrafficKey::new(sequence, &secrets)
}

/// The content of an opened record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RecordContent {
    /// Data for the session, with its length in bytes.
    Data(usize),
    /// The record holds no data for the session: it is a control message or empty.
    Nothing,
    /// The peer sends no more data on the connection.
    Closed,
}

/// The keys of a TLS connection, and the beginning of a record that has not come whole.
pub(crate) struct TlsState {
    pub(super) sending: TrafficKey,
    pub(super) receiving: TrafficKey,
    next: KeySource,
    /// The beginning of an incomplete record; `None` if there is none.
    pub(super) carry: Option<Buf>,
    pub(super) carried: usize,
    /// Bytes of the first queued frame that are sealed already.
    pub(super) gone: usize,
    /// `true` if the peer has requested a key update, so that this end must replace its sending
    /// key.
    pub(super) owes_update: bool,
    /// The number of records without data received, less those with data; not below zero. Used to
    /// end connections that send only empty records.
    idle: u8,
    /// Keeps the connection counted as one over TLS; `None` if this end dialled it.
    pub(super) counted: Option<TlsOpen>,
}

impl std::fmt::Debug for TlsState {
    /// Omits the keys, which are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secured").field("carried", &self.carried).finish_non_exhaustive()
    }
}

impl TlsState {
    /// Returns the state of a connection whose handshake has just ended.
    pub(super) fn new(secrets: &ExtractedSecrets, next: KeySource) -> Result<TlsState, TlsFailure> {
        let sending = TrafficKey::new(secrets.tx.0, &secrets.tx.1)?;
        let receiving = TrafficKey::new(secrets.rx.0, &secrets.rx.1)?;
        Ok(TlsState::of(sending, receiving, next))
    }

    /// Returns the state of a TLS connection whose handshake has just ended with these traffic
    /// secrets.
    pub(super) fn of_secrets(
        sending: TrafficSecret,
        receiving: TrafficSecret,
        is_client: bool,
    ) -> Result<TlsState, TlsFailure> {
        let mut keys = (sending.key()?, receiving.key()?);
        if !is_client {
            keys.0.records_max = RECORDS_MAX_TO_HOSTS;
        }
        let next = KeySource::Secrets(Box::new(NextSecrets { sending, receiving, is_client }));
        Ok(TlsState::of(keys.0, keys.1, next))
    }

    fn of(sending: TrafficKey, receiving: TrafficKey, next: KeySource) -> TlsState {
        TlsState {
            sending,
            receiving,
            next,
            carry: None,
            carried: 0,
            gone: 0,
            owes_update: false,
            idle: 0,
            counted: None,
        }
    }

    /// Opens (decrypts) the record that begins at `at` and ends with `bytes`. Its data is moved to
    /// the start of `bytes`.
    pub(super) fn open(
        &mut self,
        bytes: &mut [u8],
        at: usize,
    ) -> Result<RecordContent, TlsFailure> {
        let (length, content) = self.receiving.open(bytes, at)?;
        if content == ContentType::Data && length > 0 {
            self.idle = self.idle.saturating_sub(1);
            return Ok(RecordContent::Data(length));
        }
        self.idle += match content {
            ContentType::Handshake => UPDATE_WEIGHT,
            _ => 1,
        };
        if self.idle > IDLE_MAX {
            return Err(TlsFailure::Misbehaved);
        }
        match (content, &bytes[..length]) {
            (ContentType::Data, _) => Ok(RecordContent::Nothing),
            // A close_notify or user_canceled; all other alerts are fatal, whatever they say.
            (ContentType::Alert, [_, 0]) => Ok(RecordContent::Closed),
            (ContentType::Alert, [_, 90]) => Ok(RecordContent::Nothing),
            (ContentType::Alert, [_, number]) => Err(TlsFailure::Alert(*number)),
            (ContentType::Handshake, message) => {
                self.hear(message).map(|()| RecordContent::Nothing)
            }
            (ContentType::Alert, _) => Err(TlsFailure::Misbehaved),
        }
    }

    /// Processes handshake messages that come after the handshake: key updates. Tickets are
    /// ignored, as nearflash servers send none.
    fn hear(&mut self, mut messages: &[u8]) -> Result<(), TlsFailure> {
        const KEY_UPDATE: u8 = 24;
        const NEW_SESSION_TICKET: u8 = 4;
        while let [kind, high, middle, low, rest @ ..] = messages {
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            let (body, behind) = rest.split_at_checked(length).ok_or(TlsFailure::Misbehaved)?;
            messages = behind;
            match (*kind, body) {
                // Nothing may follow a key update in its record.
                (KEY_UPDATE, [wish @ (0 | 1)]) if behind.is_empty() => {
                    self.receiving = self.next.receiving()?;
                    self.owes_update |= *wish == 1;
                }
                (NEW_SESSION_TICKET, _) if self.next.is_client() => {}
                _ => return Err(TlsFailure::Misbehaved),
            }
        }
        if messages.is_empty() { Ok(()) } else { Err(TlsFailure::Misbehaved) }
    }

    /// Seals a key update into `record` and replaces the sending key. Returns the record's length.
    pub(super) fn update(&mut self, record: &mut [u8]) -> Result<usize, TlsFailure> {
        const MESSAGE: [u8; 5] = [24, 0, 0, 1, 0];
        record[super::key::HEADER..][..MESSAGE.len()].copy_from_slice(&MESSAGE);
        let bytes = self.sending.seal(record, MESSAGE.len(), ContentType::Handshake)?;
        let records_max = self.sending.records_max;
        self.sending = self.next.sending()?;
        self.sending.records_max = records_max;
        self.owes_update = false;
        Ok(bytes)
    }
}
