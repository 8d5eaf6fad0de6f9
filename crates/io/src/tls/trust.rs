//! The certificates that a client trusts, or the key that it shares with its server.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use contract::{Prelude, Psk, TlsFailure};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, version,
};

use super::ciphers::provider;
use super::handshake::{HandshakeRole, PreHandshake};
use super::psk::PskSettings;
use crate::Error;

/// The file with the certificates of the authorities that the machine trusts, on Debian and others.
const MACHINE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The servers that a client trusts: by their certificates, or by a key that it shares with them.
#[derive(Clone)]
pub struct ClientTls {
    trust: ServerTrust,
    /// Creates preludes; `None` if the protocol does not begin in the clear.
    prelude: Option<fn() -> Box<dyn Prelude>>,
}

/// The proof that a client asks for.
#[derive(Clone)]
enum ServerTrust {
    /// A certificate with this name that the configuration of rustls trusts.
    Certificate { config: Arc<ClientConfig>, name: ServerName<'static> },
    /// The pre-shared key.
    Key(PskSettings),
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.trust {
            ServerTrust::Certificate { name, .. } => Some(name),
            ServerTrust::Key(_) => None,
        };
        f.debug_struct("ClientTls").field("name", &name).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Creates the trust in servers. With a `fingerprint` (SHA-256, in hexadecimal), only the
    /// certificate with it is trusted, whatever its names and dates are. Otherwise the certificate
    /// must be issued for `name` by an authority in the file `authorities` (in PEM), or by one that
    /// the machine trusts.
    ///
    /// # Errors
    /// Fails if the name or the fingerprint cannot be parsed, or the file has no certificates.
    pub fn new(
        name: &str,
        authorities: Option<&Path>,
        fingerprint: Option<&str>,
    ) -> Result<ClientTls, Error> {
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned())
            .map_err(|_| Error::new(format!("{bare:?} is no name of a host")))?;
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| Error::new(error.to_string()))?;
        let mut config = match fingerprint {
            Some(text) => {
                let pinned = Arc::new(PinnedCertificate { fingerprint: parse(text)?, provider });
                builder.dangerous().with_custom_certificate_verifier(pinned).with_no_client_auth()
            }
            None => {
                let roots = roots(authorities.unwrap_or(Path::new(MACHINE)))?;
                builder.with_root_certificates(roots).with_no_client_auth()
            }
        };
        config.enable_secret_extraction = true;
        config.resumption = Resumption::disabled();
        let trust = ServerTrust::Certificate { config: Arc::new(config), name };
        Ok(ClientTls { trust, prelude: None })
    }

    /// Creates the trust in servers that have the pre-shared key of this identity.
    ///
    /// # Errors
    /// Fails if OpenSSL is not installed.
    pub fn with_key(identity: &[u8], psk: Psk) -> Result<ClientTls, Error> {
        let trust = ServerTrust::Key(PskSettings::of_client(identity, psk)?);
        Ok(ClientTls { trust, prelude: None })
    }

    /// Returns this trust for a protocol that begins in the clear, with a prelude.
    #[must_use]
    pub fn behind(self, prelude: fn() -> Box<dyn Prelude>) -> ClientTls {
        ClientTls { prelude: Some(prelude), ..self }
    }

    /// Returns the part of a new connection before its TLS handshake.
    pub(super) fn before(&self) -> PreHandshake {
        self.prelude.map_or(PreHandshake::Nothing, |prelude| PreHandshake::Prelude(prelude()))
    }

    /// Returns the client's side of a new handshake.
    pub(super) fn side(&self) -> Result<HandshakeRole, TlsFailure> {
        let (config, name) = match &self.trust {
            ServerTrust::Certificate { config, name } => (config.clone(), name.clone()),
            ServerTrust::Key(settings) => {
                return Ok(HandshakeRole::Psk(Box::new(settings.begin()?)));
            }
        };
        let client = UnbufferedClientConnection::new(config, name);
        client
            .map(|client| HandshakeRole::Client(Box::new(client)))
            .map_err(|_| TlsFailure::Internal)
    }
}

/// Reads the certificates of authorities from a file in PEM.
fn roots(file: &Path) -> Result<RootCertStore, Error> {
    let say = |what: &dyn fmt::Display| Error::new(format!("{}: {what}", file.display()));
    let text = std::fs::read(file).map_err(|error| {
        Error::new(format!(
            "cannot read the authorities' certificates in {} ({error}); name a file by ?ca=FILE, or \
             the server's own certificate by ?fingerprint=SHA256",
            file.display()
        ))
    })?;
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&text) {
        let authority = authority.map_err(|error| say(&error))?;
        roots.add(authority).map_err(|error| say(&error))?;
    }
    match roots.is_empty() {
        true => Err(say(&"there is no certificate of an authority in PEM")),
        false => Ok(roots),
    }
}

/// Parses a fingerprint: 64 hexadecimal digits, optionally separated by colons.
fn parse(text: &str) -> Result<[u8; 32], Error> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let wrong = || {
        Error::new(format!(
            "fingerprint {text:?}; expected SHA-256 as 64 hexadecimal digits, as `openssl x509 \
             -noout -fingerprint -sha256 -in FILE` prints it"
        ))
    };
    if digits.len() != 64 || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut bytes = [0; 32];
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}

/// Trust in a single certificate by its fingerprint.
#[derive(Debug)]
struct PinnedCertificate {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = ring::digest::digest(&ring::digest::SHA256, end_entity);
        match found.as_ref() == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_hexadecimal_with_or_without_colons() {
        let plain = "ab".repeat(32);
        let coloned = vec!["AB"; 32].join(":");
        assert_eq!(parse(&plain).unwrap(), [0xab; 32]);
        assert_eq!(parse(&coloned).unwrap(), [0xab; 32]);
        for bad in ["", "ab", &"+1".repeat(32), &"ä".repeat(32), &"ab".repeat(33)] {
            assert!(parse(bad).unwrap_err().to_string().contains("SHA-256"), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_trusted_is_named() {
        let error =
            |ca: &str| ClientTls::new("host", Some(Path::new(ca)), None).unwrap_err().to_string();
        assert!(error("/nowhere").contains("/nowhere") && error("/nowhere").contains("?ca=FILE"));
        assert!(error("/dev/null").contains("no certificate of an authority"));
        let pin = "ab".repeat(32);
        for name in ["host", "10.0.0.1", "[::1]"] {
            ClientTls::new(name, None, Some(&pin)).unwrap();
        }
        assert!(ClientTls::new("a b", None, Some(&pin)).is_err());
    }
}
