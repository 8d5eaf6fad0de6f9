//! The traffic secret of one direction of a TLS connection, and the derivation of record keys from
//! it (RFC 8446, sections 7.2 and 7.3).
//!
//! rustls does this for handshakes of its own; this module is for those of pre-shared keys.

use contract::{PskHash, TlsFailure};
use ring::aead::{AES_128_GCM, AES_256_GCM};
use ring::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use zeroize::Zeroizing;

use super::key::TrafficKey;

/// The secret of one direction, which changes with every key update. It is wiped from memory when
/// it is dropped.
pub(super) struct TrafficSecret {
    hash: PskHash,
    bytes: Zeroizing<Vec<u8>>,
}

/// A number of bytes to derive.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl TrafficSecret {
    /// Wraps the first secret of a direction.
    ///
    /// # Errors
    /// Fails if the secret is not as long as the hash's digest.
    pub(super) fn new(
        hash: PskHash,
        bytes: impl Into<Zeroizing<Vec<u8>>>,
    ) -> Result<TrafficSecret, TlsFailure> {
        let bytes = bytes.into();
        let wanted = match hash {
            PskHash::Sha256 => 32,
            PskHash::Sha384 => 48,
        };
        let fits = bytes.len() == wanted;
        fits.then_some(TrafficSecret { hash, bytes }).ok_or(TlsFailure::Internal)
    }

    /// Returns the key of the direction's records. The first of these has number 0.
    pub(super) fn key(&self) -> Result<TrafficKey, TlsFailure> {
        let algorithm = match self.hash {
            PskHash::Sha256 => &AES_128_GCM,
            PskHash::Sha384 => &AES_256_GCM,
        };
        let (mut key, mut iv) = (Zeroizing::new(vec![0; algorithm.key_len()]), [0; 12]);
        self.derive(b"tls13 key", &mut key)?;
        self.derive(b"tls13 iv", &mut iv)?;
        TrafficKey::of(algorithm, &key, iv, 0)
    }

    /// Replaces the secret by the next one, and returns the key of that.
    pub(super) fn update(&mut self) -> Result<TrafficKey, TlsFailure> {
        let mut next = Zeroizing::new(vec![0; self.bytes.len()]);
        self.derive(b"tls13 traffic upd", &mut next)?;
        self.bytes = next;
        self.key()
    }

    fn derive(&self, label: &[u8], out: &mut [u8]) -> Result<(), TlsFailure> {
        let algorithm = match self.hash {
            PskHash::Sha256 => HKDF_SHA256,
            PskHash::Sha384 => HKDF_SHA384,
        };
        let length = (out.len() as u16).to_be_bytes();
        let info: [&[u8]; 4] = [&length, &[label.len() as u8], label, &[0]];
        let prk = Prk::new_less_safe(algorithm, &self.bytes);
        let expanded = prk.expand(&info, Length(out.len()));
        expanded.and_then(|okm| okm.fill(out)).map_err(|_| TlsFailure::Internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 8448, section 3: the server's secret of data, its key and its iv.
    #[test]
    fn keys_are_those_of_the_rfc() {
        let hex = |text: &str| -> Vec<u8> {
            let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
            digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
        };
        let secret = hex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
        let secret = TrafficSecret::new(PskHash::Sha256, secret).unwrap();
        let (mut key, mut iv) = ([0; 16], [0; 12]);
        secret.derive(b"tls13 key", &mut key).unwrap();
        secret.derive(b"tls13 iv", &mut iv).unwrap();
        assert_eq!(key[..], hex("9f02283b6c9c07efc26bb9f2ac92e356"));
        assert_eq!(iv[..], hex("cf782b88dd83549aadf1e984"));
        assert!(TrafficSecret::new(PskHash::Sha384, vec![0; 32]).is_err());
    }
}
