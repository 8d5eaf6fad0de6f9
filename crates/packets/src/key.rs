//! The key that both ends of sealed associations have, and the secrets derived from it.

use core::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::secret::mac;

/// Number of hexadecimal digits of a key in its text form.
const DIGITS: usize = 64;

/// A pre-shared key of 256 random bits that a server shares with its clients. Any holder can open
/// associations, and can impersonate the server. The key is erased from memory when it is dropped.
#[derive(Clone)]
pub struct PacketKey([u8; 32]);

impl PacketKey {
    /// Creates the key from its bytes.
    pub const fn new(bytes: [u8; 32]) -> PacketKey {
        PacketKey(bytes)
    }

    /// Parses a key of 64 hexadecimal digits, as `openssl rand -hex 32` writes it. Returns `None`
    /// for another text. White space around the digits is ignored.
    pub fn parse(text: &str) -> Option<PacketKey> {
        let digits = text.trim().as_bytes();
        if digits.len() != DIGITS {
            return None;
        }
        let mut key = PacketKey([0; 32]);
        for (byte, two) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(two[at]).to_digit(16);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Some(key)
    }

    /// Returns the pre-shared secret that both ends mix into their handshake.
    pub(crate) fn psk(&self) -> Zeroizing<[u8; 32]> {
        mac(&self.0, [&b"handshake"[..]]).into()
    }

    /// Returns the key that authenticates resets.
    pub(crate) fn reset_key(&self) -> Zeroizing<[u8; 32]> {
        mac(&self.0, [&b"reset"[..]]).into()
    }
}

impl Drop for PacketKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for PacketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PacketKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::String;

    #[test]
    fn a_key_is_sixty_four_digits() {
        let text: String = (0..32).map(|byte| format!("{byte:02x}")).collect();
        let key = PacketKey::parse(&format!("{text}\n")).unwrap();
        assert_eq!(key.0, core::array::from_fn(|n| n as u8));
        assert_eq!(PacketKey::parse(&text.to_uppercase()).unwrap().0, key.0);
        for bad in ["", &text[1..], &format!("{text}0"), &text.replace("0a", "0g"), &"é".repeat(32)]
        {
            assert!(PacketKey::parse(bad).is_none(), "{bad}");
        }
        assert_eq!(format!("{key:?}"), "PacketKey", "keys are not printed");
    }

    #[test]
    fn what_is_derived_differs() {
        let key = PacketKey::new([7; 32]);
        assert!(key.psk() != key.reset_key() && *key.psk() != [7; 32]);
        assert_ne!(key.psk(), PacketKey::new([8; 32]).psk());
    }
}
