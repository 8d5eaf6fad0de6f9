//! A configured key, in the form in which administrators pass it on (TCP 1.1, 3.6.1.5):
//! `NVMeTLSkey-1:0x:…:`. The last part is the key and its CRC-32, little-endian, in base64.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::{Psk, PskHash, PskMark};
use crc::crc32;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::super::auth::Hash;
use super::derive::Labels;
use super::identity::{IdentityPrefix, TlsIdentity, Version};

const PREFIX: &str = "NVMeTLSkey-1";

/// Maximum length of a text with a key, in bytes. The longest key takes 90.
const TEXT_BYTES_MAX: usize = 256;

/// The text whose keyed hash is the digest in an identity, behind the names.
const DIGESTED: &[u8] = b" NVMe-over-Fabrics";

/// A configured key of a host and its controllers, from which the keys of TLS are derived. It is
/// wiped from memory when it is dropped.
#[derive(Clone)]
pub struct TlsKey {
    key: Zeroizing<Vec<u8>>,
    /// The hash that makes the retained key of the configured one; `None` if they are the same.
    retain: Option<Hash>,
}

/// The reason why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsKeyError {
    /// The text does not have the form `NVMeTLSkey-1:0x:…:`.
    Form,
    /// The number of the hash, the second part of the text, is unknown.
    Hash,
    /// The key does not have 32 or 48 bytes, or not as many as its hash.
    Length,
    /// The CRC does not match: a character is wrong.
    Checksum,
}

impl fmt::Display for TlsKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsKeyError::Form => "not of the form NVMeTLSkey-1:0x:base64:",
            TlsKeyError::Hash => "of an unknown hash (00, 01 and 02 are known)",
            TlsKeyError::Length => "not as long as its hash asks for",
            TlsKeyError::Checksum => "mistyped: its checksum does not match",
        })
    }
}

impl core::error::Error for TlsKeyError {}

impl fmt::Debug for TlsKey {
    /// Prints a placeholder instead of the key, so that no log contains it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsKey(…)")
    }
}

impl PartialEq for TlsKey {
    fn eq(&self, other: &TlsKey) -> bool {
        self.retain == other.retain && bool::from(self.key.ct_eq(&other.key))
    }
}

impl Eq for TlsKey {}

/// A pre-shared key of TLS, derived for one host and subsystem, with the identity under which the
/// host offers the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedPsk {
    /// The identity, which is not secret.
    pub identity: String,
    /// The key of TLS.
    pub psk: Psk,
}

impl TlsKey {
    /// Wraps a configured key of 32 or 48 bytes. `retain` is the hash that makes the retained key;
    /// `None` keeps the configured one.
    ///
    /// # Errors
    /// Returns [`TlsKeyError::Length`] if the key does not have 32 or 48 bytes, or not as many as
    /// the hash's digest, and [`TlsKeyError::Hash`] if these keys cannot have the hash.
    pub fn new(key: &[u8], retain: Option<Hash>) -> Result<TlsKey, TlsKeyError> {
        let fits = match retain {
            Some(Hash::Sha512) => return Err(TlsKeyError::Hash),
            Some(hash) => key.len() == hash.bytes(),
            None => matches!(key.len(), 32 | 48),
        };
        if fits {
            Ok(TlsKey { key: key.to_vec().into(), retain })
        } else {
            Err(TlsKeyError::Length)
        }
    }

    /// Parses a key in the form `NVMeTLSkey-1:0x:…:`.
    ///
    /// # Errors
    /// Returns a [`TlsKeyError`], which never contains the text, since that is secret.
    pub fn parse(text: &str) -> Result<TlsKey, TlsKeyError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(TlsKeyError::Form);
        }
        let mut parts = text.trim().split(':');
        let [prefix, hash, data, end, none] = core::array::from_fn(|_| parts.next());
        if prefix != Some(PREFIX) || end != Some("") || none.is_some() {
            return Err(TlsKeyError::Form);
        }
        let retain = match hash {
            Some("00") => None,
            Some("01") => Some(Hash::Sha256),
            Some("02") => Some(Hash::Sha384),
            _ => return Err(TlsKeyError::Hash),
        };
        let data = STANDARD.decode(data.unwrap_or("")).map_err(|_| TlsKeyError::Form)?;
        let data = Zeroizing::new(data);
        let (key, sum) = data.split_last_chunk::<4>().ok_or(TlsKeyError::Length)?;
        if crc32(key) != u32::from_le_bytes(*sum) {
            return Err(TlsKeyError::Checksum);
        }
        TlsKey::new(key, retain)
    }

    /// Returns the key in the form `NVMeTLSkey-1:0x:…:`, which is as secret as the key.
    pub fn to_text(&self) -> String {
        let mut data = Zeroizing::new(Vec::with_capacity(self.key.len() + 4));
        data.extend_from_slice(&self.key);
        data.extend_from_slice(&crc32(&self.key).to_le_bytes());
        format!("{PREFIX}:{:02x}:{}:", self.retain.map_or(0, Hash::id), STANDARD.encode(&*data))
    }

    /// Returns the key that a host offers for a subsystem, with the identity of version 1.
    pub fn offered(&self, who: &TlsIdentity) -> OfferedPsk {
        let offer = self.derive(who, Version::One, Labels::Standard);
        offer.expect("a digest and a name are short enough for their labels")
    }

    /// Returns the derived keys that an identity (for the host and subsystem `who`) may refer to,
    /// at most two: version 0 has one identity for the standard derivation and for that of older
    /// versions of nvme-cli. An identity of another key yields no key.
    pub fn psks<'a>(
        &'a self,
        who: &'a TlsIdentity,
        identity: &'a [u8],
    ) -> impl Iterator<Item = Psk> + 'a {
        let forms = Version::ALL.into_iter().flat_map(|v| Labels::ALL.map(|labels| (v, labels)));
        let offers = forms.filter_map(|(version, labels)| self.derive(who, version, labels));
        let meant = offers.filter(move |offer| offer.identity.as_bytes() == identity);
        meant.map(|offer| offer.psk)
    }

    /// Derives the key of TLS, and its identity; `None` if the names are too long for it.
    fn derive(&self, who: &TlsIdentity, version: Version, labels: Labels) -> Option<OfferedPsk> {
        let bytes = self.key.len();
        let (host, subsystem) = (who.host.as_str(), who.subsystem.as_str());
        let retained = match self.retain {
            None => self.key.clone(),
            Some(hash) => labels.derive(hash, &self.key, b"HostNQN", host.as_bytes(), bytes)?,
        };
        let (hash, of_tls) = match bytes {
            32 => (Hash::Sha256, PskHash::Sha256),
            _ => (Hash::Sha384, PskHash::Sha384),
        };
        let kind = IdentityPrefix(version, hash);
        let (identity, context) = match version {
            Version::Zero => {
                let identity = format!("{kind} {host} {subsystem}");
                (identity.clone(), identity)
            }
            Version::One => {
                let names = [host.as_bytes(), b" ", subsystem.as_bytes(), DIGESTED];
                let digest = STANDARD.encode(hash.keyed(&retained, &names));
                let identity = format!("{kind} {host} {subsystem} {digest}");
                (identity, format!("{:02} {digest}", hash.id()))
            }
        };
        let context = context.as_bytes();
        let key = labels.derive(hash, &retained, b"nvme-tls-psk", context, bytes)?;
        let mark = self.mark();
        Some(OfferedPsk { identity, psk: Psk { hash: of_tls, key: key.as_slice().into(), mark } })
    }

    /// Returns a short digest of the key. A session compares digests to find out whether its host
    /// still has the key.
    pub(crate) fn mark(&self) -> PskMark {
        let retain = [self.retain.map_or(0, Hash::id)];
        let digest = Hash::Sha256.keyed(&self.key, &[b"nearflash mark ", &retain]);
        let first = digest.first_chunk().expect("a digest has 32 bytes");
        PskMark(u64::from_le_bytes(*first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::vec;

    /// The keys of libnvme's tests.
    const SHORT_KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
    const LONG_KEY: &str = "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W\
                            2LxIcLXVsDn8kXZQ==:";

    fn who(host: &str, subsystem: &str) -> TlsIdentity {
        let text = format!("NVMe0R01 {host} {subsystem}");
        TlsIdentity::parse(text.as_bytes()).unwrap()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn keys_survive_their_standard_form() {
        for text in [SHORT_KEY, LONG_KEY, &SHORT_KEY.replace(":01:", ":00:")] {
            let key = TlsKey::parse(&format!(" {text}\n")).unwrap();
            assert_eq!(key.to_text(), text);
            assert_eq!(format!("{key:?}"), "TlsKey(…)");
        }
    }

    #[test]
    fn a_wrong_character_is_seen() {
        let error = |text: &str| TlsKey::parse(text).unwrap_err();
        assert_eq!(error(&SHORT_KEY.replace("VRL", "VRM")), TlsKeyError::Checksum);
        assert_eq!(error(&SHORT_KEY.replace(":01:", ":03:")), TlsKeyError::Hash);
        assert_eq!(error(&SHORT_KEY.replace(":01:", ":1:")), TlsKeyError::Hash);
        assert_eq!(error(&SHORT_KEY.replace(":01:", ":02:")), TlsKeyError::Length);
        assert_eq!(error(&LONG_KEY.replace(":02:", ":01:")), TlsKeyError::Length);
        assert_eq!(error(&SHORT_KEY.replace("key-1", "key-2")), TlsKeyError::Form);
        assert_eq!(error(SHORT_KEY.trim_end_matches(':')), TlsKeyError::Form);
        assert_eq!(error(&format!("{SHORT_KEY}:")), TlsKeyError::Form);
        assert_eq!(error("NVMeTLSkey-1:00:AAAA:"), TlsKeyError::Length);
        assert_eq!(error(&" ".repeat(1 << 20)), TlsKeyError::Form);
        assert_eq!(TlsKey::new(&[1; 64], Some(Hash::Sha512)), Err(TlsKeyError::Hash));
    }

    /// The identities are those of libnvme's tests (`test/psk.c`); the keys were computed beside
    /// this code from the specification's text.
    #[test]
    fn identities_and_keys_are_those_of_libnvme() {
        let who = who("nqn.psk-test-host", "nqn.psk-test-subsys");
        let short = TlsKey::parse(SHORT_KEY).unwrap().offered(&who);
        assert_eq!(
            short.identity,
            "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys \
             iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU="
        );
        assert_eq!(short.psk.hash, PskHash::Sha256);
        let key = "8fc3c0badfd4c0c66fa3ca33aadd0314f85536cc9bc47338b60f3e6e563786ca";
        assert_eq!(hex(&short.psk.key), key);
        let long = TlsKey::parse(LONG_KEY).unwrap().offered(&who);
        assert_eq!(
            long.identity,
            "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys \
             QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a"
        );
        assert_eq!(long.psk.hash, PskHash::Sha384);
        assert_eq!(
            hex(&long.psk.key),
            "a2b2f943f479fc682555cec89857c80ed004ce92f32a973d5764155bb7e36b17a85368a0666d250afac9282\
             dda2e62ca"
        );
    }

    /// The vectors of Linux's `auth_kunit.c`, which begin at the retained key.
    #[test]
    fn keys_are_those_of_linux() {
        let retained: Vec<u8> = vec![
            0x17, 0x33, 0xc5, 0x9f, 0xa7, 0xf4, 0x8f, 0xcf, 0x37, 0xf5, 0xf2, 0x6f, 0xc4, 0xff,
            0x02, 0x68, 0xad, 0x4f, 0x78, 0xe0, 0x30, 0xf4, 0xf3, 0xb0, 0xbf, 0xd1, 0xd4, 0x7e,
            0x7b, 0xb1, 0x44, 0x7a,
        ];
        let digest = "OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=";
        let context = format!("01 {digest}");
        let labels = Labels::Standard;
        let key = labels
            .derive(Hash::Sha256, &retained, b"nvme-tls-psk", context.as_bytes(), 32)
            .unwrap();
        assert_eq!(hex(&key), "3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8");
        let names: [&[u8]; 4] = [b"hostnqn", b" ", b"subsysnqn", DIGESTED];
        assert_eq!(STANDARD.encode(Hash::Sha256.keyed(&retained, &names)), digest);
    }

    #[test]
    fn hosts_may_offer_every_form_of_their_key() {
        let who = who("nqn.psk-test-host", "nqn.psk-test-subsys");
        let key = TlsKey::parse(SHORT_KEY).unwrap();
        let keys = |identity: &str| -> Vec<String> {
            key.psks(&who, identity.as_bytes()).map(|psk| hex(&psk.key)[..8].into()).collect()
        };
        let standard = key.offered(&who).identity;
        assert_eq!(keys(&standard), ["8fc3c0ba"]);
        // That of older versions of nvme-cli, by libnvme's tests of compatibility.
        let digest = "66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=";
        let older = format!("NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys {digest}");
        assert_eq!(keys(&older), ["b9f5ab2a"]);
        let zero = "NVMe0R01 nqn.psk-test-host nqn.psk-test-subsys";
        assert_eq!(keys(zero), ["05c65035", "09fb1983"]);
        for other in [&standard.replace("R01", "R02"), &zero.replace("R01", "R02"), "", "NVMe0R01"]
        {
            assert!(keys(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn long_names_have_identities_of_version_1_only() {
        let (host, subsystem) =
            ("nqn.".to_owned() + &"h".repeat(219), "nqn.".to_owned() + &"s".repeat(219));
        let who = who(&host, &subsystem);
        let key = TlsKey::parse(LONG_KEY).unwrap();
        let offered = key.offered(&who);
        assert_eq!(key.psks(&who, offered.identity.as_bytes()).count(), 1);
        assert_eq!(TlsIdentity::parse(offered.identity.as_bytes()), Some(who.clone()));
        let zero = format!("NVMe0R02 {host} {subsystem}");
        assert_eq!(key.psks(&who, zero.as_bytes()).count(), 1, "only without lengths");
    }
}
