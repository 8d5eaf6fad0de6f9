//! A listener's certificate and key, or its pre-shared keys, and its handshakes.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use contract::{ListenerId, Prelude, Protocol, PskBook, TlsFailure, TlsUse};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection};
use rustls::{ServerConfig, version};

use super::ciphers::provider;
use super::handshake::{HandshakeRole, PreHandshake};
use super::handshake_thread::{HandshakeThread, OutcomeReceiver};
use super::psk::PskSettings;
use super::secured::TlsState;
use crate::{ConnectionBalancer, Error};

/// The use of TLS at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsPolicy {
    /// TLS is optional: the first byte of a connection decides, or its prelude.
    Allowed,
    /// Every connection must use TLS.
    Required,
}

/// A function that creates the server's end of a protocol's prelude, for a listener with this
/// policy.
pub type PreludeOf = fn(TlsPolicy) -> Box<dyn Prelude>;

/// The TLS of a listener: how it proves itself, and the thread that does its handshakes.
pub struct ServerTls {
    policy: TlsPolicy,
    /// The counters of TLS connections of the listener's protocol.
    uses: &'static TlsUse,
    /// Creates preludes; `None` if the protocol does not begin in the clear.
    prelude: Option<PreludeOf>,
    proof: ServerProof,
    /// `true` while the listener is drained, and once it is closed: connections are refused when
    /// their handshakes end.
    is_shut: AtomicBool,
    handshake_thread: HandshakeThread,
}

/// The means by which a listener proves itself.
enum ServerProof {
    /// The configuration of rustls with certificate and key, which [`replace`](ServerTls::replace)
    /// changes.
    Certificate(RwLock<Arc<ServerConfig>>),
    /// The keys that are shared with the clients.
    Keys(PskSettings),
}

impl fmt::Debug for ServerTls {
    /// Omits the key, which is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Returns the TLS of a listener of `reflex` with this certificate chain and private key, both
    /// in PEM.
    ///
    /// # Errors
    /// Fails if certificate or key are not PEM or do not belong together, or if no thread can be
    /// started. The error tells nothing of the key.
    pub fn new(policy: TlsPolicy, certificate: &[u8], key: &[u8]) -> Result<Arc<Self>, Error> {
        ServerTls::behind(Protocol::Reflex, None, policy, certificate, key)
    }

    /// Returns the TLS of a listener of a protocol. With a `prelude`, connections begin in the
    /// clear.
    ///
    /// # Errors
    /// Fails if certificate or key are not PEM or do not belong together, or if no thread can be
    /// started. The error tells nothing of the key.
    pub fn behind(
        protocol: Protocol,
        prelude: Option<PreludeOf>,
        policy: TlsPolicy,
        certificate: &[u8],
        key: &[u8],
    ) -> Result<Arc<Self>, Error> {
        let config = config(certificate, key)?;
        ServerTls::of(protocol, prelude, policy, ServerProof::Certificate(RwLock::new(config)))
    }

    /// Returns the TLS of a listener whose clients have the pre-shared keys in `book`. The session
    /// of a connection gets the identity of its key as what was heard before.
    ///
    /// # Errors
    /// Fails if OpenSSL is not installed, or if no thread can be started.
    pub fn with_keys(
        protocol: Protocol,
        policy: TlsPolicy,
        book: Arc<dyn PskBook>,
    ) -> Result<Arc<Self>, Error> {
        ServerTls::of(protocol, None, policy, ServerProof::Keys(PskSettings::of_server(book)?))
    }

    fn of(
        protocol: Protocol,
        prelude: Option<PreludeOf>,
        policy: TlsPolicy,
        proof: ServerProof,
    ) -> Result<Arc<Self>, Error> {
        let is_shut = AtomicBool::new(false);
        let (uses, handshake_thread) = (TlsUse::of(protocol), HandshakeThread::start()?);
        Ok(Arc::new(ServerTls { policy, uses, prelude, proof, is_shut, handshake_thread }))
    }

    /// Replaces certificate and key, if the listener has them. Existing connections keep their
    /// keys.
    ///
    /// # Errors
    /// Fails if they are not PEM or do not belong together. The old ones stay then.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), Error> {
        if let ServerProof::Certificate(held) = &self.proof {
            let new = config(certificate, key)?;
            *held.write().expect("no holder panics") = new;
        }
        Ok(())
    }

    /// Starts the handshake of an accepted connection, which then goes to a worker of `spread`.
    pub(crate) fn receive(
        self: &Arc<Self>,
        socket: OwnedFd,
        listener: ListenerId,
        spread: &Arc<ConnectionBalancer>,
    ) {
        let answer =
            OutcomeReceiver::Accepted { tls: self.clone(), listener, spread: spread.clone() };
        self.handshake_thread.welcome(socket, answer);
    }

    /// Sets whether connections whose handshake ends are refused.
    pub(crate) fn shut(&self, is_shut: bool) {
        self.is_shut.store(is_shut, Ordering::Release);
    }

    /// Returns whether connections whose handshake ends are refused.
    pub(super) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Acquire)
    }

    /// Counts a connection that is let in; `secured` is `None` without TLS.
    pub(super) fn count(&self, secured: Option<&mut TlsState>) {
        if self.policy == TlsPolicy::Allowed {
            self.uses.chose(secured.is_some());
        }
        if let Some(secured) = secured {
            secured.counted = Some(self.uses.open());
        }
    }

    /// Returns the use of TLS at the listener.
    pub fn policy(&self) -> TlsPolicy {
        self.policy
    }

    /// Returns the exchange that precedes the TLS handshake of a new connection.
    pub(super) fn before(&self) -> PreHandshake {
        match (self.prelude, self.policy) {
            (Some(prelude), policy) => PreHandshake::Prelude(prelude(policy)),
            (None, TlsPolicy::Allowed) => PreHandshake::Look,
            (None, TlsPolicy::Required) => PreHandshake::Nothing,
        }
    }

    /// Returns `true` if the protocol begins in the clear.
    pub(super) fn has_prelude(&self) -> bool {
        self.prelude.is_some()
    }

    /// Returns the server's side of a new handshake.
    pub(super) fn side(&self) -> Result<HandshakeRole, TlsFailure> {
        let config = match &self.proof {
            ServerProof::Certificate(held) => held.read().expect("no holder panics").clone(),
            ServerProof::Keys(settings) => {
                return Ok(HandshakeRole::Psk(Box::new(settings.begin()?)));
            }
        };
        let server = UnbufferedServerConnection::new(config).map_err(|_| TlsFailure::Internal)?;
        Ok(HandshakeRole::Server(Box::new(server)))
    }
}

fn config(certificate: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, Error> {
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(certificate).collect();
    let chain =
        chain.map_err(|error| Error::new(format!("the certificate makes no sense: {error}")))?;
    if chain.is_empty() {
        return Err(Error::new("there is no certificate in PEM"));
    }
    // The error does not describe a fault of a key, since that would disclose part of the key.
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|_| Error::new("there is no private key in PEM"))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| {
            Error::new(format!("the certificate and the key do not go together: {error}"))
        })?;
    config.enable_secret_extraction = true;
    // Sessions are not resumed: connections live long, and nothing has to be kept of them.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}
