//! Keys of hosts and controllers, in the form in which administrators pass them on (Base 8.13.5.8):
//! `DHHC-1:0x:…:`. The last part is the key and its CRC-32, little-endian, in base64.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc::crc32;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::hash::Hash;

const PREFIX: &str = "DHHC-1";

/// The text that a key is transformed with, after its owner's name.
const TRANSFORM: &[u8] = b"NVMe-over-Fabrics";

/// A host's or controller's key. It is wiped from memory when it is dropped.
#[derive(Clone)]
pub struct Secret {
    key: Zeroizing<Vec<u8>>,
    /// The hash that transforms the key before its use; `None` for no transformation.
    transform: Option<Hash>,
}

/// The reason why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretError {
    /// The text does not have the form `DHHC-1:0x:…:`.
    Form,
    /// The number of the hash, the second part of the text, is unknown.
    Hash,
    /// The key does not have 32, 48 or 64 bytes, or not as many as its hash.
    Length,
    /// The CRC does not match: a character is wrong.
    Checksum,
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SecretError::Form => "not of the form DHHC-1:0x:base64:",
            SecretError::Hash => "an unknown hash (00 to 03 are known)",
            SecretError::Length => "not as long as its hash asks for",
            SecretError::Checksum => "its checksum does not match: a character is wrong",
        })
    }
}

impl core::error::Error for SecretError {}

impl fmt::Debug for Secret {
    /// Prints a placeholder instead of the key, so that no log contains it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.transform == other.transform && bool::from(self.key.ct_eq(&other.key))
    }
}

impl Eq for Secret {}

impl Secret {
    /// Wraps a key of 32, 48 or 64 bytes. `transform` is the hash that transforms the key before
    /// its use; `None` means no transformation.
    ///
    /// # Errors
    /// Returns [`SecretError::Length`] if the key does not have 32, 48 or 64 bytes, or not as many
    /// as the hash's digest.
    pub fn new(key: &[u8], transform: Option<Hash>) -> Result<Secret, SecretError> {
        let fits = match transform {
            Some(hash) => key.len() == hash.bytes(),
            None => matches!(key.len(), 32 | 48 | 64),
        };
        if !fits {
            return Err(SecretError::Length);
        }
        Ok(Secret { key: key.to_vec().into(), transform })
    }

    /// Parses a key in the standard form, `DHHC-1:0x:…:`.
    ///
    /// # Errors
    /// Returns a [`SecretError`], which never contains the text, since that is secret.
    pub fn parse(text: &str) -> Result<Secret, SecretError> {
        let mut parts = text.trim().split(':');
        let [prefix, hash, data, end, none] = core::array::from_fn(|_| parts.next());
        if prefix != Some(PREFIX) || end != Some("") || none.is_some() {
            return Err(SecretError::Form);
        }
        let transform = match hash {
            Some("00") => None,
            Some("01") => Some(Hash::Sha256),
            Some("02") => Some(Hash::Sha384),
            Some("03") => Some(Hash::Sha512),
            _ => return Err(SecretError::Hash),
        };
        let data = STANDARD.decode(data.unwrap_or("")).map_err(|_| SecretError::Form)?;
        let data = Zeroizing::new(data);
        let Some((key, sum)) = data.split_last_chunk::<4>() else {
            return Err(SecretError::Length);
        };
        if crc32(key) != u32::from_le_bytes(*sum) {
            return Err(SecretError::Checksum);
        }
        Secret::new(key, transform)
    }

    /// Returns the key in the standard form, `DHHC-1:0x:…:`, which is as secret as the key.
    pub fn to_text(&self) -> String {
        let mut data = Zeroizing::new(Vec::with_capacity(self.key.len() + 4));
        data.extend_from_slice(&self.key);
        data.extend_from_slice(&crc32(&self.key).to_le_bytes());
        let hash = self.transform.map_or(0, Hash::id);
        alloc::format!("{PREFIX}:{hash:02x}:{}:", STANDARD.encode(&*data))
    }

    /// Returns the key as responses use it: transformed with the name of its owner (Base 8.13.5.7).
    pub(super) fn transformed(&self, owner: &str) -> Zeroizing<Vec<u8>> {
        match self.transform {
            None => self.key.clone(),
            Some(hash) => hash.keyed(&self.key, &[owner.as_bytes(), TRANSFORM]).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_standard_form() {
        for (bytes, transform) in
            [(32, None), (48, None), (64, None), (32, Some(Hash::Sha256)), (64, Some(Hash::Sha512))]
        {
            let key: Vec<u8> = (0..bytes).collect();
            let secret = Secret::new(&key, transform).unwrap();
            assert_eq!(Secret::parse(&secret.to_text()), Ok(secret));
        }
    }

    #[test]
    fn a_wrong_character_is_seen() {
        let text = Secret::new(&[7; 32], None).unwrap().to_text();
        assert_eq!(text, "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:");
        let error = |text: &str| Secret::parse(text).unwrap_err();
        assert_eq!(error(&text.replace("BwfL", "BwgL")), SecretError::Checksum);
        assert_eq!(error(&text.replace(":00:", ":07:")), SecretError::Hash);
        assert_eq!(error(&text.replace(":00:", ":02:")), SecretError::Length);
        assert_eq!(error(text.trim_end_matches(':')), SecretError::Form);
        assert_eq!(error("secret"), SecretError::Form);
    }
}
