//! Pre-shared keys for TLS 1.3 over NVMe/TCP (TCP Transport Specification 1.1, 3.6.1): the text
//! form of a configured key, the keys derived from it, and the identities under which a host offers
//! them.
//!
//! Deliberately left out: TLS itself. A handshake takes a [`contract::Psk`] and its identity, which
//! [`TlsKey::offered`] and [`TlsKey::psks`] return.

mod derive;
mod identity;
mod key;

pub(crate) use identity::IdentityMismatch;
pub use identity::TlsIdentity;
pub use key::{OfferedPsk, TlsKey, TlsKeyError};
