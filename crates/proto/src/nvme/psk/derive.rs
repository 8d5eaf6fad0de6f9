//! The derivation of keys by HKDF (RFC 5869) and labels (RFC 8446, section 7.1).

use alloc::vec;
use alloc::vec::Vec;

use zeroize::Zeroizing;

use super::super::auth::Hash;

/// The prefix of every label.
const PREFIX: &[u8] = b"tls13 ";

/// The encoding of a label and its context into the input of HKDF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Labels {
    /// The encoding of RFC 8446: each part follows its length.
    Standard,
    /// The encoding of older versions of nvme-cli, which leaves out the lengths of label and
    /// context, and writes the first length little-endian.
    Short,
}

impl Labels {
    pub(super) const ALL: [Labels; 2] = [Labels::Standard, Labels::Short];

    /// Returns `bytes` bytes derived from `key`; `None` if a length cannot be encoded.
    pub(super) fn derive(
        self,
        hash: Hash,
        key: &[u8],
        label: &[u8],
        context: &[u8],
        bytes: usize,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let (length, label_bytes) = (u16::try_from(bytes).ok()?, PREFIX.len() + label.len());
        let mut info = Vec::new();
        match self {
            Labels::Standard => {
                info.extend(length.to_be_bytes());
                info.push(u8::try_from(label_bytes).ok()?);
                info.extend([PREFIX, label].concat());
                info.push(u8::try_from(context.len()).ok()?);
            }
            Labels::Short => {
                info.extend(length.to_le_bytes());
                info.extend([PREFIX, label].concat());
            }
        }
        info.extend(context);
        Some(expand(hash, &extract(hash, key), &info, bytes))
    }
}

/// HKDF-Extract without a salt.
fn extract(hash: Hash, key: &[u8]) -> Zeroizing<Vec<u8>> {
    hash.keyed(&vec![0; hash.bytes()], &[key]).into()
}

/// HKDF-Expand, for at most 255 digests.
fn expand(hash: Hash, prk: &[u8], info: &[u8], bytes: usize) -> Zeroizing<Vec<u8>> {
    // With room for a whole last digest, so that no copy is left behind where the vector grows.
    let mut all = Zeroizing::new(Vec::with_capacity(bytes + hash.bytes()));
    let mut last = Zeroizing::new(Vec::new());
    for number in 1..=u8::MAX {
        if all.len() >= bytes {
            break;
        }
        last = hash.keyed(prk, &[&last, info, &[number]]).into();
        all.extend_from_slice(&last);
    }
    all.truncate(bytes);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5869, test case 3: no salt, no info.
    #[test]
    fn hkdf_derives_the_bytes_of_its_rfc() {
        let prk = extract(Hash::Sha256, &[0x0b; 22]);
        assert_eq!(prk[..4], [0x19, 0xef, 0x24, 0xa3]);
        let okm = expand(Hash::Sha256, &prk, &[], 42);
        assert_eq!(okm[..4], [0x8d, 0xa4, 0xe7, 0x75]);
        assert_eq!((okm.len(), &okm[38..]), (42, &[0xb6, 0x1a, 0x96, 0xc8][..]));
    }

    #[test]
    fn lengths_that_cannot_be_written_are_refused() {
        let derive = |labels: Labels, context: &[u8]| {
            labels.derive(Hash::Sha256, &[1; 32], b"nvme-tls-psk", context, 32)
        };
        assert!(derive(Labels::Standard, &[b'x'; 255]).is_some());
        assert!(derive(Labels::Standard, &[b'x'; 256]).is_none());
        assert!(derive(Labels::Short, &[b'x'; 256]).is_some());
    }
}
