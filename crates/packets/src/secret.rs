//! The endpoint's secret, and the values derived from it: cookies, stateless tokens, and the
//! authentication codes of resets.

use contract::Instant;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use wire::packets::RetryBody;
use zeroize::Zeroizing;

use crate::peer_address::PeerAddress;

/// The nanoseconds of a minute. A token is valid in the minute in which it was made and in the
/// next.
const MINUTE: u64 = 60_000_000_000;

/// The endpoint's secret, and the number of cookies derived from it so far.
pub(crate) struct Secret {
    key: Zeroizing<[u8; 32]>,
    cookies: u64,
}

impl Secret {
    pub(crate) fn new(key: [u8; 32]) -> Secret {
        Secret { key: key.into(), cookies: 0 }
    }

    /// Returns a new cookie: a number that cannot be guessed, different each time, never zero.
    pub(crate) fn cookie(&mut self) -> u64 {
        self.cookies += 1;
        let mac = mac(&self.key, [b"cookie", &self.cookies.to_le_bytes()[..]]);
        u64::from_le_bytes(core::array::from_fn(|n| mac[n])) | 1
    }

    /// Returns the token for a hello from this address with this cookie.
    pub(crate) fn token(&self, now: Instant, from: &PeerAddress, cookie: u64) -> RetryBody {
        self.token_of(now.as_nanos() / MINUTE, from, cookie)
    }

    /// Returns the number that a peer has to return from this address, to prove that it receives
    /// there what is sent by the path `path` of the association with this cookie. Never zero.
    pub(crate) fn challenge(&self, at: &PeerAddress, (cookie, path): (u64, u8)) -> u64 {
        let words = [&b"moved"[..], &at.encode(), &cookie.to_le_bytes(), &[path]];
        let mac = mac(&self.key, words);
        u64::from_le_bytes(core::array::from_fn(|n| mac[n])) | 1
    }

    fn token_of(&self, minute: u64, from: &PeerAddress, cookie: u64) -> RetryBody {
        let key = mac(&self.key, [b"minute", &minute.to_le_bytes()[..]]);
        let proof = mac(&key, [&from.encode()[..], &cookie.to_le_bytes()]);
        RetryBody { minute: minute.into(), proof: half(proof) }
    }

    /// Returns `true` if this end made the token for this address and cookie, in this minute or the
    /// one before.
    pub(crate) fn knows(
        &self,
        now: Instant,
        from: &PeerAddress,
        cookie: u64,
        token: &RetryBody,
    ) -> bool {
        let (minute, this) = (token.minute.get(), now.as_nanos() / MINUTE);
        let is_fresh = minute == this || Some(minute) == this.checked_sub(1);
        let ours = self.token_of(minute, from, cookie);
        is_fresh && bool::from(ours.proof.ct_eq(&token.proof))
    }
}

/// The key of the authentication codes of resets if packets are not encrypted. The key is public,
/// so the code only proves knowledge of the association's cookie.
pub(crate) const RESET_KEY: [u8; 32] = [0; 32];

/// Returns the authentication code of a reset, which proves that its sender has seen the
/// association's cookie and has the key.
pub(crate) fn reset_proof(key: &[u8; 32], cookie: u64, association: u32) -> [u8; 16] {
    let words = [&b"reset"[..], &cookie.to_le_bytes(), &association.to_le_bytes()];
    half(mac(key, words))
}

/// Returns `true` if the authentication code `proof` of a reset is right.
pub(crate) fn is_reset(key: &[u8; 32], cookie: u64, association: u32, proof: &[u8; 16]) -> bool {
    bool::from(reset_proof(key, cookie, association).ct_eq(proof))
}

/// Returns the HMAC-SHA256 of all words, one behind the other.
pub(crate) fn mac<'a>(key: &[u8; 32], words: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for word in words {
        mac.update(word);
    }
    mac.finalize().into_bytes().into()
}

fn half(mac: [u8; 32]) -> [u8; 16] {
    core::array::from_fn(|n| mac[n])
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn peer_address(port: u16) -> PeerAddress {
        PeerAddress::Internet(core::net::SocketAddr::from(([10, 0, 0, 1], port)))
    }

    #[test]
    fn a_token_is_for_one_station_one_cookie_and_a_minute() {
        let secret = Secret::new([7; 32]);
        let now = Instant::ZERO + Duration::from_secs(59);
        let token = secret.token(now, &peer_address(1), 5);
        let later = |secs| now + Duration::from_secs(secs);
        for (secs, port, cookie, good) in [
            (0, 1, 5, true),
            (60, 1, 5, true),
            (61, 1, 5, false),
            (0, 2, 5, false),
            (0, 1, 6, false),
        ] {
            assert_eq!(secret.knows(later(secs), &peer_address(port), cookie, &token), good);
        }
        assert!(!Secret::new([8; 32]).knows(now, &peer_address(1), 5, &token));
        let forged = RetryBody { proof: [0; 16], ..token };
        assert!(!secret.knows(now, &peer_address(1), 5, &forged));
    }

    #[test]
    fn cookies_differ_and_resets_need_the_cookie() {
        let mut secret = Secret::new([7; 32]);
        let (first, second) = (secret.cookie(), secret.cookie());
        assert!(first != second && first != 0);
        let proof = reset_proof(&RESET_KEY, first, 3);
        let is_reset =
            |key: u8, cookie, association| super::is_reset(&[key; 32], cookie, association, &proof);
        assert!(is_reset(0, first, 3));
        assert!(!is_reset(0, second, 3) && !is_reset(0, first, 4) && !is_reset(1, first, 3));
    }
}
