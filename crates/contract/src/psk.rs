//! Pre-shared keys of TLS 1.3 (RFC 8446, section 4.2.11), and the port to those that a server knows.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use zeroize::Zeroize;

/// The hash of a pre-shared key. It decides the cipher of the connections that begin with the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PskHash {
    /// SHA-256, with cipher AES-128-GCM.
    Sha256,
    /// SHA-384, with cipher AES-256-GCM.
    Sha384,
}

/// A mark of the configured key that a [`Psk`] is derived from: while it is configured, the
/// connections that have proven the derived key may begin sessions. It reveals nothing of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PskMark(pub u64);

/// A pre-shared key. It is wiped from memory when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Psk {
    /// The hash of the key.
    pub hash: PskHash,
    /// The bytes of the pre-shared key.
    pub key: Box<[u8]>,
    /// The mark of the configured key.
    pub mark: PskMark,
}

impl fmt::Debug for Psk {
    /// Omits the key, which is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl Drop for Psk {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// The pre-shared keys that a server knows. They are looked up by the thread that does handshakes,
/// never by a worker.
pub trait PskBook: Send + Sync {
    /// Returns the index of the first known identity among those that a peer offers, and the keys
    /// that the peer may mean by it, the likeliest first. There are several while a key is replaced.
    /// Returns `None` if no identity is known.
    ///
    /// `identities` are those of one hello, whose sender has proven nothing yet. Therefore an
    /// implementation takes a lock that others need once at most.
    fn find(&self, identities: &[&[u8]]) -> Option<(usize, Vec<Psk>)>;
}
