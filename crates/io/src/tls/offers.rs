//! The pre-shared keys that each end of a TLS handshake knows, the keys that a client offers, and
//! the resulting traffic secrets of the connection.

use std::sync::Arc;

use contract::{Psk, PskBook, PskHash, TlsFailure};
use zeroize::Zeroizing;

/// Maximum number of identities of a hello that are looked at.
const IDENTITIES_MAX: usize = 8;

/// The pre-shared keys that one end of a handshake can use.
#[derive(Clone, Default)]
pub(super) enum KnownKeys {
    /// No pre-shared key.
    #[default]
    Nothing,
    /// The keys of a server, before the hello of its client.
    Book(Arc<dyn PskBook>),
    /// The keys that the client may mean.
    Meant {
        identity: Arc<[u8]>,
        psks: Arc<[Psk]>,
        /// The index in `psks` of the key that the present attempt uses.
        attempt: usize,
    },
    /// The key of a client.
    Own { identity: Arc<[u8]>, psk: Psk },
}

impl KnownKeys {
    /// Chooses a key by the extension of the client's hello (RFC 8446, section 4.2.11), and returns
    /// its hash.
    ///
    /// # Errors
    /// Returns [`TlsFailure::UnknownKey`] if the client offers no key that is known.
    pub(super) fn choose(&mut self, extension: &[u8]) -> Result<PskHash, TlsFailure> {
        if let KnownKeys::Book(book) = self {
            let all: Vec<&[u8]> = identities(extension).take(IDENTITIES_MAX).collect();
            if let Some((at, psks)) = book.find(&all) {
                *self =
                    KnownKeys::Meant { identity: all[at].into(), psks: psks.into(), attempt: 0 };
            }
        }
        match self {
            KnownKeys::Meant { psks, attempt, .. } => Ok(psks[*attempt].hash),
            _ => Err(TlsFailure::UnknownKey),
        }
    }

    /// Returns the key of an identity that the client offers; `None` if another is chosen.
    pub(super) fn key_of(&self, offered: &[u8]) -> Option<&Psk> {
        match self {
            KnownKeys::Meant { identity, psks, attempt } if **identity == *offered => {
                psks.get(*attempt)
            }
            _ => None,
        }
    }

    /// Returns a client's identity and key; `None` for a server.
    pub(super) fn own(&self) -> Option<(&[u8], &Psk)> {
        match self {
            KnownKeys::Own { identity, psk } => Some((identity, psk)),
            _ => None,
        }
    }

    /// Returns the keys for the next attempt of a server, which uses the next key with the client's
    /// identity; `None` if there is no further key.
    pub(super) fn next(self) -> Option<KnownKeys> {
        match self {
            KnownKeys::Meant { identity, psks, attempt } if attempt + 1 < psks.len() => {
                Some(KnownKeys::Meant { identity, psks, attempt: attempt + 1 })
            }
            _ => None,
        }
    }

    /// Returns the chosen key and its identity; `None` before the choice, and for a client.
    pub(super) fn chosen(&self) -> Option<(&[u8], &Psk)> {
        match self {
            KnownKeys::Meant { identity, psks, attempt } => Some((identity, psks.get(*attempt)?)),
            _ => None,
        }
    }
}

/// Returns the identities in an extension; those before a fault, if it has one.
fn identities(extension: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = match extension {
        [high, low, rest @ ..] => {
            &rest[..rest.len().min(usize::from(u16::from_be_bytes([*high, *low])))]
        }
        _ => &[],
    };
    std::iter::from_fn(move || {
        let [high, low, behind @ ..] = rest else { return None };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (identity, behind) = behind.split_at_checked(length)?;
        // The obfuscated age of a ticket.
        rest = behind.get(4..)?;
        Some(identity)
    })
}

/// The secrets of a connection's two directions.
#[derive(Default)]
pub(super) struct TrafficSecrets {
    pub(super) client: Option<Zeroizing<Vec<u8>>>,
    pub(super) server: Option<Zeroizing<Vec<u8>>>,
}

impl TrafficSecrets {
    /// Stores the secret of a key log line `LABEL RANDOM SECRET` (the latter two in hexadecimal),
    /// if it is the traffic secret of one direction.
    pub(super) fn note(&mut self, line: &[u8]) {
        let mut words = line.split(|byte| *byte == b' ');
        let [Some(label), Some(_), Some(secret)] = std::array::from_fn(|_| words.next()) else {
            return;
        };
        let place = match label {
            b"CLIENT_TRAFFIC_SECRET_0" => &mut self.client,
            b"SERVER_TRAFFIC_SECRET_0" => &mut self.server,
            _ => return,
        };
        *place = bytes(secret);
    }
}

/// Parses hexadecimal digits.
fn bytes(digits: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.as_chunks::<2>();
    if !pairs.1.is_empty() {
        return None;
    }
    let mut bytes = Zeroizing::new(vec![0; pairs.0.len()]);
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs.0) {
        *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::PskMark;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// A book of two keys, which counts how often it is asked.
    #[derive(Default)]
    struct TwoKeyBook(AtomicUsize);

    impl PskBook for TwoKeyBook {
        fn find(&self, identities: &[&[u8]]) -> Option<(usize, Vec<Psk>)> {
            self.0.fetch_add(1, Relaxed);
            let psk =
                |n: u8| Psk { hash: PskHash::Sha384, key: [n; 48].into(), mark: PskMark(n.into()) };
            let at = identities.iter().position(|identity| *identity == b"known")?;
            Some((at, vec![psk(1), psk(2)]))
        }
    }

    fn extension(identities: &[&[u8]]) -> Vec<u8> {
        let entry = |id: &&[u8]| [&(id.len() as u16).to_be_bytes()[..], id, &[0; 4]].concat();
        let all: Vec<u8> = identities.iter().flat_map(entry).collect();
        [&(all.len() as u16).to_be_bytes()[..], &all, &[0, 33, 32]].concat()
    }

    #[test]
    fn the_first_known_identity_is_chosen_and_its_keys_are_tried_in_order() {
        let mut known = KnownKeys::Book(Arc::<TwoKeyBook>::default());
        let offered = extension(&[b"unknown", b"known", b"other"]);
        assert_eq!(known.choose(&offered), Ok(PskHash::Sha384));
        assert_eq!(known.chosen().unwrap().0, b"known");
        assert_eq!(known.key_of(b"known").unwrap().key[0], 1);
        assert!(known.key_of(b"unknown").is_none());
        let mut next = known.next().unwrap();
        assert_eq!(next.choose(&offered), Ok(PskHash::Sha384));
        assert_eq!(next.key_of(b"known").unwrap().key[0], 2);
        assert!(next.next().is_none());
    }

    #[test]
    fn faults_and_unknown_identities_are_refused() {
        let whole = extension(&[b"x", b"known"]);
        for offered in [&[][..], &[0], &[0, 9], &whole[..6], &extension(&[]), &extension(&[b"x"])] {
            let mut known = KnownKeys::Book(Arc::<TwoKeyBook>::default());
            assert_eq!(known.choose(offered), Err(TlsFailure::UnknownKey), "{offered:?}");
        }
        for end in 0..whole.len() {
            let _ = KnownKeys::Book(Arc::<TwoKeyBook>::default()).choose(&whole[..end]);
        }
    }

    #[test]
    fn a_hello_of_many_identities_asks_once() {
        let book = Arc::<TwoKeyBook>::default();
        let mut known = KnownKeys::Book(book.clone());
        let last_known = [&[&b"unknown"[..]; IDENTITIES_MAX - 1][..], &[b"known"]].concat();
        let too_late = [&[&b"unknown"[..]; IDENTITIES_MAX][..], &[b"known"]].concat();
        assert_eq!(known.choose(&extension(&too_late)), Err(TlsFailure::UnknownKey));
        assert_eq!(book.0.swap(0, Relaxed), 1);
        assert_eq!(known.choose(&extension(&last_known)), Ok(PskHash::Sha384));
        let mut next = known.next().unwrap();
        assert_eq!(next.choose(&extension(&last_known)), Ok(PskHash::Sha384));
        assert_eq!(book.0.load(Relaxed), 1, "a further attempt knows the keys");
    }

    #[test]
    fn secrets_are_taken_from_their_lines() {
        let mut secrets = TrafficSecrets::default();
        for line in [
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET aa bb",
            "CLIENT_TRAFFIC_SECRET_0 aa 0aFf",
            "SERVER_TRAFFIC_SECRET_0 aa",
            "",
        ] {
            secrets.note(line.as_bytes());
        }
        assert_eq!((secrets.client, secrets.server), (Some(vec![0x0a, 0xff].into()), None));
        assert_eq!((bytes(b"0"), bytes(b"0x")), (None, None));
    }
}
