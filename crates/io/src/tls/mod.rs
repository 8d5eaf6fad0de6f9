//! TLS 1.3 on streams (docs/adr/0036-tls-in-the-worker.md).
//!
//! A thread beside the workers does the handshakes (`handshake_thread`): with certificates by
//! rustls, with pre-shared keys by OpenSSL (`psk`, docs/adr/0048-tls-with-pre-shared-keys.md). The
//! keys are then extracted, and the connection goes to its worker. The worker seals and opens
//! records ([`TlsState`]) in its own memory, with one send a turn as without TLS. New keys (key
//! updates) are derived by rustls, or by `schedule` after a handshake of OpenSSL.
//!
//! This module leaves the messages of a handshake and certificates to rustls and OpenSSL.

mod certificate;
mod ciphers;
mod handshake;
mod handshake_thread;
mod intake;
mod key;
mod line;
mod offers;
mod openssl;
mod psk;
#[cfg(test)]
mod psk_tests;
mod schedule;
mod seal;
mod secured;
#[cfg(test)]
mod tests;
mod trust;

pub use self::certificate::{PreludeOf, ServerTls, TlsPolicy};
pub use self::trust::ClientTls;

pub(crate) use self::handshake_thread::ClientHandshakes;
pub(crate) use self::intake::{RECORD_BUFFERS_FROM, RecordBuffers};
pub(crate) use self::seal::SealedRecords;
pub(crate) use self::secured::TlsState;
