//! The hashes of DH-HMAC-CHAP (Base 8.13.5.2, figure "HMAC Hash Functions").

use alloc::vec::Vec;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};

/// A hash function that DH-HMAC-CHAP may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hash {
    /// SHA-256, with digests of 32 bytes.
    Sha256,
    /// SHA-384, with digests of 48 bytes.
    Sha384,
    /// SHA-512, with digests of 64 bytes.
    Sha512,
}

impl Hash {
    /// All hashes, the fastest first.
    pub const ALL: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];

    /// Returns the hash's identifier in authentication messages and in keys.
    pub const fn id(self) -> u8 {
        match self {
            Hash::Sha256 => 1,
            Hash::Sha384 => 2,
            Hash::Sha512 => 3,
        }
    }

    /// Returns the hash of this identifier; `None` if no hash has it.
    pub fn from_id(id: u8) -> Option<Hash> {
        Hash::ALL.into_iter().find(|hash| hash.id() == id)
    }

    /// Returns the size of a digest in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    /// Returns the hash of `bytes`.
    pub fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Hash::Sha256 => Sha256::digest(bytes).to_vec(),
            Hash::Sha384 => Sha384::digest(bytes).to_vec(),
            Hash::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    /// Returns the keyed hash (RFC 2104) of the concatenated pieces.
    pub fn keyed(self, key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
        fn run<M: Mac + KeyInit>(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
            let mut mac = <M as KeyInit>::new_from_slice(key).expect("a key has any length");
            pieces.iter().for_each(|piece| mac.update(piece));
            mac.finalize().into_bytes().to_vec()
        }
        match self {
            Hash::Sha256 => run::<Hmac<Sha256>>(key, pieces),
            Hash::Sha384 => run::<Hmac<Sha384>>(key, pieces),
            Hash::Sha512 => run::<Hmac<Sha512>>(key, pieces),
        }
    }
}
