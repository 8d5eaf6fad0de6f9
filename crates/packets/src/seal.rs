//! The encryption (seal) of the packets of an association: AES-128-GCM, with keys that are replaced
//! as they are used up.
//!
//! A packet's number on its path is used once, so path and number make a nonce that is used once
//! with a key. Both ends count *phases*. An end goes on to the next phase when its key has sealed
//! enough packets, or when the peer has gone on; it never is more than one phase ahead.

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use wire::packets::TAG_BYTES;
use zeroize::Zeroizing;

use crate::head::{HEAD_BYTES, SealSelector};
use crate::noise::Secrets;
use crate::secret::mac;

/// A key of one direction in one phase.
struct DirectionKey {
    key: LessSafeKey,
    iv: [u8; 12],
}

impl DirectionKey {
    fn of(secret: &[u8; 32]) -> DirectionKey {
        let material = Zeroizing::new(mac(secret, [&b"key"[..]]));
        let key = UnboundKey::new(&AES_128_GCM, &material[..16]).expect("a key of 16 bytes");
        DirectionKey { key: LessSafeKey::new(key), iv: core::array::from_fn(|n| material[16 + n]) }
    }

    fn nonce(&self, path: u8, number: u64) -> Nonce {
        let mut nonce = self.iv;
        nonce[3] ^= path;
        nonce[4..].iter_mut().zip(number.to_be_bytes()).for_each(|(byte, of)| *byte ^= of);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Decrypts a packet in place. Returns `false` if its authentication tag is wrong; the packet's
    /// bytes are undefined then.
    fn open(&self, path: u8, number: u64, packet: &mut [u8]) -> bool {
        let (head, inside) = packet.split_at_mut(HEAD_BYTES);
        let nonce = self.nonce(path, number);
        self.key.open_in_place(nonce, Aad::from(&*head), inside).is_ok()
    }
}

/// Returns the secret of the phase after the one of `secret`.
fn next(secret: &[u8; 32]) -> Zeroizing<[u8; 32]> {
    mac(secret, [&b"next"[..]]).into()
}

/// The key of the direction from this end to the peer.
struct OutgoingKey {
    key: DirectionKey,
    secret: Zeroizing<[u8; 32]>,
    phase: u64,
    /// Number of packets that the key has encrypted.
    sealed: u32,
}

impl OutgoingKey {
    fn advance(&mut self) {
        self.secret = next(&self.secret);
        (self.key, self.phase, self.sealed) = (DirectionKey::of(&self.secret), self.phase + 1, 0);
    }
}

/// The keys of the direction from the peer to this end. The key of the next phase is derived before
/// it is needed, so that a forged packet costs no more time than another.
struct IncomingKeys {
    previous: Option<DirectionKey>,
    current: DirectionKey,
    next: DirectionKey,
    /// The secret from which the next key is derived.
    secret: Zeroizing<[u8; 32]>,
    phase: u64,
}

/// The cipher states of an association's two directions.
pub(crate) struct Seal {
    outgoing: OutgoingKey,
    incoming: IncomingKeys,
    /// Number of packets after which a key is replaced.
    packets_max: u32,
}

impl Seal {
    /// Creates the cipher states of the end that dialled an association, or of the end that
    /// accepted it.
    pub(crate) fn new(secrets: &Secrets, is_initiator: bool, packets_max: u32) -> Seal {
        let (ours, theirs) = match is_initiator {
            true => (&secrets.of_initiator, &secrets.of_acceptor),
            false => (&secrets.of_acceptor, &secrets.of_initiator),
        };
        let secret = next(theirs);
        Seal {
            outgoing: OutgoingKey {
                key: DirectionKey::of(ours),
                secret: (*ours).into(),
                phase: 0,
                sealed: 0,
            },
            incoming: IncomingKeys {
                previous: None,
                current: DirectionKey::of(theirs),
                next: DirectionKey::of(&secret),
                secret,
                phase: 0,
            },
            packets_max,
        }
    }

    /// Returns the mark for the head of the next packet by a path. Begins the next phase if the key
    /// has sealed enough packets.
    pub(crate) fn mark(&mut self, path: u8) -> SealSelector {
        // The peer has this phase, so it has the key of the next one.
        let may_advance = self.incoming.phase >= self.outgoing.phase;
        if may_advance && self.outgoing.sealed >= self.packets_max {
            self.outgoing.advance();
        }
        SealSelector { path, phase: self.outgoing.phase as u8 }
    }

    /// Encrypts the bytes after the head of a packet, and returns the authentication tag of the
    /// whole packet.
    pub(crate) fn seal(&mut self, path: u8, number: u64, packet: &mut [u8]) -> [u8; TAG_BYTES] {
        let (head, inside) = packet.split_at_mut(HEAD_BYTES);
        let key = &self.outgoing.key;
        let nonce = key.nonce(path, number);
        let tag = key.key.seal_in_place_separate_tag(nonce, Aad::from(&*head), inside);
        self.outgoing.sealed = self.outgoing.sealed.saturating_add(1);
        let tag = tag.expect("a packet is short enough");
        tag.as_ref().try_into().expect("a tag has its size")
    }

    /// Decrypts a packet of the peer, with its authentication tag at the end, in place. Returns
    /// `false` if the packet does not come from the peer; nothing but its bytes has changed then.
    pub(crate) fn open(&mut self, mark: SealSelector, number: u64, packet: &mut [u8]) -> bool {
        let incoming = &mut self.incoming;
        let ahead = mark.phase.wrapping_sub(incoming.phase as u8);
        match ahead {
            0 => incoming.current.open(mark.path, number, packet),
            1 if incoming.next.open(mark.path, number, packet) => {
                self.go_on();
                true
            }
            u8::MAX => {
                let previous = incoming.previous.as_ref();
                previous.is_some_and(|key| key.open(mark.path, number, packet))
            }
            _ => false,
        }
    }

    /// Follows the peer into the next phase, with the keys of both directions.
    fn go_on(&mut self) {
        let incoming = &mut self.incoming;
        incoming.secret = next(&incoming.secret);
        let later = DirectionKey::of(&incoming.secret);
        let current = core::mem::replace(&mut incoming.next, later);
        incoming.previous = Some(core::mem::replace(&mut incoming.current, current));
        incoming.phase += 1;
        if self.outgoing.phase < incoming.phase {
            self.outgoing.advance();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    fn pair(packets_max: u32) -> [Seal; 2] {
        let secrets = Secrets { of_initiator: [1; 32], of_acceptor: [2; 32] };
        [true, false].map(|is_initiator| Seal::new(&secrets, is_initiator, packets_max))
    }

    /// Seals a packet with a number, and returns its mark and its bytes.
    fn seal(by: &mut Seal, path: u8, number: u64) -> (SealSelector, Vec<u8>) {
        let mark = by.mark(path);
        let mut packet = std::vec![0x5a; HEAD_BYTES + 24];
        packet[0] = mark.phase;
        let tag = by.seal(path, number, &mut packet);
        packet.extend_from_slice(&tag);
        (mark, packet)
    }

    /// Checks sealed packets against bytes that another implementation of HMAC-SHA256 and AES-GCM
    /// has computed.
    #[test]
    fn packets_are_sealed_as_the_document_says() {
        let [mut client, mut server] = pair(1);
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let (mark, mut packet) = seal(&mut client, 3, 7);
        assert_eq!(mark, SealSelector { path: 3, phase: 0 });
        assert_eq!(
            hex(&packet[HEAD_BYTES..]),
            "156ed43786e74d8fa0e04955d02015cd6f57009224d8e8309b4eddb6f0bfd1c06c3ded790be5b8cd"
        );
        let (mark, mut later) = seal(&mut client, 3, 7);
        assert_eq!(mark, SealSelector { path: 3, phase: 1 });
        assert_eq!(
            hex(&later[HEAD_BYTES..]),
            "cfa8fde97a5a0937425157dc8778db65503014b1755f490c72f7ab11f837e25838374e79a2839841"
        );
        let marks = [0, 1].map(|phase| SealSelector { path: 3, phase });
        assert!(server.open(marks[1], 7, &mut later) && server.open(marks[0], 7, &mut packet));
    }

    #[test]
    fn a_packet_is_opened_as_it_was_sealed_by_the_peer_alone() {
        let [mut client, mut server] = pair(100);
        let (mark, packet) = seal(&mut client, 3, 7);
        assert!(packet[HEAD_BYTES..HEAD_BYTES + 24] != [0x5a; 24], "it cannot be read");
        let opens = |by: &mut Seal, mark, number, packet: &[u8]| {
            let mut packet = packet.to_vec();
            by.open(mark, number, &mut packet) && packet[HEAD_BYTES..][..24] == [0x5a; 24]
        };
        for at in 0..packet.len() {
            let mut forged = packet.clone();
            forged[at] ^= 4;
            assert!(!opens(&mut server, mark, 7, &forged), "byte {at}");
        }
        assert!(!opens(&mut server, mark, 8, &packet), "another number");
        assert!(!opens(&mut server, SealSelector { path: 2, ..mark }, 7, &packet), "another path");
        for phase in 1..=255 {
            assert!(
                !opens(&mut server, SealSelector { phase, ..mark }, 7, &packet),
                "phase {phase}"
            );
        }
        assert!(!opens(&mut client, mark, 7, &packet), "our own, reflected");
        assert!(!opens(&mut server, mark, 7, &packet[..HEAD_BYTES + 15]), "cut");
        assert!(opens(&mut server, mark, 7, &packet));
    }

    #[test]
    fn keys_are_replaced_and_late_packets_still_open() {
        let [mut client, mut server] = pair(4);
        let mut late = seal(&mut client, 0, 0);
        for number in 1..2_000 {
            let (mark, mut packet) = seal(&mut client, 0, number);
            assert!(server.open(mark, number, &mut packet), "{number}");
            assert!(server.open(late.0, number - 1, &mut late.1), "one behind");
            late = seal(&mut client, 0, number + 10_000);
            assert!(server.open(late.0, number + 10_000, &mut late.1));
            let (mark, mut packet) = seal(&mut server, 0, number);
            assert!(client.open(mark, number, &mut packet), "the answer to {number}");
            late = seal(&mut client, 0, number);
        }
        assert!(client.outgoing.phase > 500, "{}", client.outgoing.phase);
        assert!(client.outgoing.phase - client.incoming.phase <= 1);
    }

    #[test]
    fn nobody_goes_on_before_the_peer_has_followed() {
        let [mut client, mut server] = pair(4);
        let phases: Vec<u8> = (0..40).map(|n| seal(&mut client, 0, n).0.phase).collect();
        assert_eq!(phases[..6], [0, 0, 0, 0, 1, 1]);
        assert!(phases[4..].iter().all(|phase| *phase == 1), "nothing has come back");
        let (mark, mut packet) = seal(&mut client, 0, 40);
        assert!(server.open(mark, 40, &mut packet));
        let (mark, mut packet) = seal(&mut server, 0, 0);
        assert_eq!(mark.phase, 1, "the server has followed");
        assert!(client.open(mark, 0, &mut packet));
        assert_eq!(seal(&mut client, 0, 41).0.phase, 2);
    }
}
