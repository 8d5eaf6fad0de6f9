//! TLS for operators elsewhere: the server's certificate, and what a client trusts.
//!
//! TLS 1.3 alone: every client of the last years has it, and there is nothing to choose. Whoever
//! connects proves who they are by a token, not by a certificate.

use std::fmt;
use std::sync::{Arc, RwLock};

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto, version};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::tokens::Tokens;

/// What a server shows to operators elsewhere, and what it asks of them. Both can be replaced while it
/// runs, because certificates end and people leave.
pub struct Credentials(RwLock<Inside>);

struct Inside {
    server: Arc<ServerConfig>,
    tokens: Arc<Tokens>,
}

impl fmt::Debug for Credentials {
    /// The key is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("tokens", &*self.tokens()).finish_non_exhaustive()
    }
}

fn inside(certificate: &[u8], key: &[u8], tokens: Tokens) -> Result<Inside, String> {
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|error| format!("the certificate makes no sense: {error}"))?;
    if chain.is_empty() {
        return Err("there is no certificate in PEM".to_owned());
    }
    // What is wrong with a key is not told in detail, which would be of the key.
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "there is no private key in PEM")?;
    let server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| format!("the certificate and the key do not go together: {error}"))?;
    Ok(Inside { server: Arc::new(server), tokens: Arc::new(tokens) })
}

impl Credentials {
    /// A chain of certificates and its private key, both in PEM, and the tokens of those who may come.
    ///
    /// # Errors
    /// Says what is wrong, and nothing of the key.
    pub fn new(certificate: &[u8], key: &[u8], tokens: Tokens) -> Result<Credentials, String> {
        inside(certificate, key, tokens).map(|inside| Credentials(RwLock::new(inside)))
    }

    /// Others from here on; connections that are open go on.
    ///
    /// # Errors
    /// Says what is wrong; then they stay as they were.
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

/// How a client reaches a server elsewhere: whom it trusts, and how it says who it is.
#[derive(Clone)]
pub struct Pass {
    config: Arc<ClientConfig>,
    token: String,
}

impl fmt::Debug for Pass {
    /// The token is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").finish_non_exhaustive()
    }
}

impl Pass {
    /// Trusts servers whose certificate one of `authorities` (in PEM) vouches for, and shows them
    /// `token`.
    ///
    /// # Errors
    /// Says what is wrong, and nothing of the token.
    pub fn new(authorities: &[u8], token: &str) -> Result<Pass, String> {
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
        Ok(Pass { config: Arc::new(config), token: token.to_owned() })
    }

    pub(super) fn connector(&self) -> TlsConnector {
        TlsConnector::from(self.config.clone())
    }

    /// The value of the header `authorization`.
    pub(super) fn authorization(&self) -> String {
        format!("Bearer {}", self.token)
    }
}
