//! TLS for operators on other machines: the server's certificate, and the authorities that a client
//! trusts.
//!
//! TLS 1.3 only: every client of recent years supports it, and there is nothing to choose. Clients
//! authenticate by a token, not by a certificate.

use std::fmt;
use std::sync::{Arc, RwLock};

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto, version};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::tokens::Tokens;

/// The server's certificate and key, and the tokens of its operators. Both can be replaced while
/// the server runs, since certificates expire and operators leave.
pub struct Credentials(RwLock<CredentialState>);

struct CredentialState {
    server: Arc<ServerConfig>,
    tokens: Arc<Tokens>,
}

impl fmt::Debug for Credentials {
    /// Omits the key, which is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("tokens", &*self.tokens()).finish_non_exhaustive()
    }
}

fn inside(certificate: &[u8], key: &[u8], tokens: Tokens) -> Result<CredentialState, String> {
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|error| format!("the certificate makes no sense: {error}"))?;
    if chain.is_empty() {
        return Err("there is no certificate in PEM".to_owned());
    }
    // The error does not describe a fault of a key, since that would disclose part of the key.
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "there is no private key in PEM")?;
    let server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| format!("the certificate and the key do not go together: {error}"))?;
    Ok(CredentialState { server: Arc::new(server), tokens: Arc::new(tokens) })
}

impl Credentials {
    /// Returns credentials of a certificate chain and its private key, both in PEM, and the tokens
    /// of admitted operators.
    ///
    /// # Errors
    /// Fails with the fault, without anything of the key.
    pub fn new(certificate: &[u8], key: &[u8], tokens: Tokens) -> Result<Credentials, String> {
        inside(certificate, key, tokens).map(|inside| Credentials(RwLock::new(inside)))
    }

    /// Replaces the credentials; open connections go on.
    ///
    /// # Errors
    /// Fails with the fault; then the old credentials stay.
    pub fn replace(&self, certificate: &[u8], key: &[u8], tokens: Tokens) -> Result<(), String> {
        let new = inside(certificate, key, tokens)?;
        *self.0.write().expect("no holder panics") = new;
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.read().expect("no holder panics").server.clone())
    }

    pub(super) fn tokens(&self) -> Arc<Tokens> {
        self.0.read().expect("no holder panics").tokens.clone()
    }
}

fn provider() -> Arc<crypto::CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

/// A client's access to a server on another machine: the trusted authorities, and the client's
/// token.
#[derive(Clone)]
pub struct ClientCredentials {
    config: Arc<ClientConfig>,
    token: String,
}

impl fmt::Debug for ClientCredentials {
    /// Omits the token, which is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCredentials").finish_non_exhaustive()
    }
}

impl ClientCredentials {
    /// Trusts servers whose certificate is issued by one of `authorities` (in PEM), and presents
    /// `token` to them.
    ///
    /// # Errors
    /// Fails with the fault, without anything of the token.
    pub fn new(authorities: &[u8], token: &str) -> Result<ClientCredentials, String> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities) {
            let added = authority.map_err(|error| error.to_string());
            let added = added.and_then(|one| roots.add(one).map_err(|error| error.to_string()));
            added
                .map_err(|error| format!("the authority's certificate makes no sense: {error}"))?;
        }
        if roots.is_empty() {
            return Err("there is no certificate of an authority in PEM".to_owned());
        }
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token is one word of ASCII".to_owned());
        }
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(ClientCredentials { config: Arc::new(config), token: token.to_owned() })
    }

    pub(super) fn connector(&self) -> TlsConnector {
        TlsConnector::from(self.config.clone())
    }

    /// Returns the value of the HTTP header `authorization` with the client's token.
    pub(super) fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }
}
