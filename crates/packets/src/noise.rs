//! The handshake of a sealed association: `Noise_NNpsk0_25519_AESGCM_BLAKE2s` of the Noise protocol
//! framework, revision 34.
//!
//! Message 1 is part of the hello, message 2 of the accept. Each end draws a key pair of its own
//! for each association, so a pre-shared key that leaks later does not decrypt recorded packets
//! (forward secrecy).

use alloc::boxed::Box;

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use wire::packets::{
    ACCEPT_SEAL_BYTES, AcceptBody, HELLO_SEAL_BYTES, PacketHelloBody, RetryBody, TAG_BYTES,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};
use zeroize::{Zeroize, Zeroizing};

use crate::secret::mac;

/// The handshake's name in the Noise framework.
const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";

/// The first bytes of the prologue, which both ends have to agree on.
const PROLOGUE: &[u8] = b"nearflash packets 1";

/// Length in bytes of the prologue, which covers the body of the hello. The hello's token counts as
/// zeroes, because it may change while the hello is repeated.
const PROLOGUE_BYTES: usize = PROLOGUE.len() + size_of::<PacketHelloBody>();

/// The secrets on which both ends have agreed: one encrypts the initiator's packets, the other the
/// acceptor's.
pub(crate) struct Secrets {
    pub of_initiator: [u8; 32],
    pub of_acceptor: [u8; 32],
}

impl Drop for Secrets {
    fn drop(&mut self) {
        self.of_initiator.zeroize();
        self.of_acceptor.zeroize();
    }
}

/// The source of the random numbers for key pairs. Each draw replaces the state, so that whoever
/// learns the state does not learn earlier draws.
pub(crate) struct KeyRandomness(Zeroizing<[u8; 32]>);

impl KeyRandomness {
    pub(crate) fn new(seed: [u8; 32]) -> KeyRandomness {
        KeyRandomness(seed.into())
    }

    /// Draws 32 bytes.
    fn draw(&mut self) -> Zeroizing<[u8; 32]> {
        let drawn = mac(&self.0, [&b"draw"[..]]).into();
        self.0 = mac(&self.0, [&b"next"[..]]).into();
        drawn
    }
}

/// The handshake of a sealed association at the end that dials, before message 2.
pub(crate) struct InitiatorHandshake {
    state: HandshakeState,
    /// Message 1, which all hellos of the association carry.
    pub message: [u8; HELLO_SEAL_BYTES],
    /// The number of refused hellos, and the number of hellos that had been sent at the last
    /// refusal.
    pub refused: (u8, u8),
}

impl InitiatorHandshake {
    /// Begins the handshake of an association that is dialled with this hello, and makes message 1.
    pub(crate) fn new(
        psk: &[u8; 32],
        chance: &mut KeyRandomness,
        hello: &PacketHelloBody,
    ) -> InitiatorHandshake {
        let prologue = prologue(hello);
        let state = builder(psk, chance, &prologue).build_initiator();
        let mut state = state.expect("the pattern needs no more");
        let mut message = [0; HELLO_SEAL_BYTES];
        let written = state.write_message(&[], &mut message).expect("message 1 has its size");
        assert_eq!(written, HELLO_SEAL_BYTES);
        InitiatorHandshake { state, message, refused: (0, 0) }
    }

    /// Reads message 2, and returns the accept in it and the secrets. Returns `None` if its sender
    /// does not have the key; the state has not changed then.
    pub(crate) fn read(&mut self, message: &[u8]) -> Option<(AcceptBody, Secrets)> {
        let mut accept = [0; size_of::<AcceptBody>() + TAG_BYTES];
        let bytes = self.state.read_message(message, &mut accept).ok()?;
        let accept = AcceptBody::read_from_bytes(accept.get(..bytes)?).ok()?;
        Some((accept, secrets(&mut self.state)))
    }
}

/// The handshake of a sealed association at the end that accepts, after message 1.
pub(crate) struct AcceptorHandshake(HandshakeState);

impl AcceptorHandshake {
    /// Reads message 1 of a hello. Returns `None` if the peer has another key, or the hello was
    /// changed on its way.
    pub(crate) fn new(
        psk: &[u8; 32],
        chance: &mut KeyRandomness,
        hello: &PacketHelloBody,
        message: &[u8],
    ) -> Option<AcceptorHandshake> {
        let prologue = prologue(hello);
        let state = builder(psk, chance, &prologue).build_responder();
        let mut state = state.expect("the pattern needs no more");
        let mut nothing = [0; TAG_BYTES];
        state.read_message(message, &mut nothing).ok().map(|_| AcceptorHandshake(state))
    }

    /// Makes message 2 with an accept in it, and returns the message and the secrets.
    pub(crate) fn accept(mut self, accept: &AcceptBody) -> ([u8; ACCEPT_SEAL_BYTES], Secrets) {
        let mut message = [0; ACCEPT_SEAL_BYTES];
        let written = self.0.write_message(accept.as_bytes(), &mut message);
        assert_eq!(written.ok(), Some(ACCEPT_SEAL_BYTES), "message 2 has its size");
        (message, secrets(&mut self.0))
    }
}

fn secrets(state: &mut HandshakeState) -> Secrets {
    let (of_initiator, of_acceptor) = state.dangerously_get_raw_split();
    Secrets { of_initiator, of_acceptor }
}

fn prologue(hello: &PacketHelloBody) -> [u8; PROLOGUE_BYTES] {
    let hello = PacketHelloBody { token: RetryBody::new_zeroed(), ..*hello };
    let mut bytes = [0; PROLOGUE_BYTES];
    let (name, body) = bytes.split_at_mut(PROLOGUE.len());
    name.copy_from_slice(PROLOGUE);
    body.copy_from_slice(hello.as_bytes());
    bytes
}

fn builder<'a>(psk: &'a [u8; 32], chance: &mut KeyRandomness, prologue: &'a [u8]) -> Builder<'a> {
    let pattern = PATTERN.parse().expect("a pattern of the framework");
    let builder = Builder::with_resolver(pattern, Box::new(Resolver(chance.draw())));
    let builder = builder.psk(0, psk).and_then(|builder| builder.prologue(prologue));
    builder.expect("each is given once")
}

/// The primitives of the crate `snow`, with the random numbers of a seed. The seed is wiped from
/// memory when this value is dropped.
struct Resolver(Zeroizing<[u8; 32]>);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(HandshakeRandomness { seed: self.0.clone(), count: 0 }))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// A generator of the random numbers of one handshake. Its seed is wiped from memory when it is
/// dropped.
struct HandshakeRandomness {
    seed: Zeroizing<[u8; 32]>,
    count: u64,
}

impl Random for HandshakeRandomness {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        for part in dest.chunks_mut(32) {
            let drawn = mac(&self.seed, [&b"part"[..], &self.count.to_le_bytes()]);
            let drawn = Zeroizing::new(drawn);
            part.copy_from_slice(&drawn[..part.len()]);
            self.count += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> PacketHelloBody {
        PacketHelloBody { association: 3.into(), cookie: 9.into(), ..FromZeros::new_zeroed() }
    }

    fn accept() -> AcceptBody {
        AcceptBody { association: 5.into(), cookie: 11.into(), ..FromZeros::new_zeroed() }
    }

    #[test]
    fn both_ends_agree_on_the_secrets_and_the_accept() {
        let mut chance = KeyRandomness::new([1; 32]);
        let mut greeting = InitiatorHandshake::new(&[7; 32], &mut chance, &hello());
        let token = RetryBody { minute: 8.into(), proof: [4; 16] };
        let again = PacketHelloBody { token, ..hello() };
        let answering =
            AcceptorHandshake::new(&[7; 32], &mut chance, &again, &greeting.message).unwrap();
        let (message, theirs) = answering.accept(&accept());
        for at in 0..message.len() {
            let mut forged = message;
            forged[at] ^= 1;
            assert!(greeting.read(&forged).is_none(), "byte {at}");
        }
        let (read, ours) = greeting.read(&message).expect("forgeries have changed nothing");
        assert_eq!(read.as_bytes(), accept().as_bytes());
        assert_eq!(ours.of_initiator, theirs.of_initiator);
        assert_eq!(ours.of_acceptor, theirs.of_acceptor);
        assert_ne!(ours.of_acceptor, ours.of_initiator);
    }

    #[test]
    fn another_key_or_another_hello_is_not_answered() {
        let mut chance = KeyRandomness::new([1; 32]);
        let InitiatorHandshake { message, .. } =
            InitiatorHandshake::new(&[7; 32], &mut chance, &hello());
        let mut reads = |psk: u8, hello: &PacketHelloBody, message: &[u8]| {
            AcceptorHandshake::new(&[psk; 32], &mut chance, hello, message).is_some()
        };
        assert!(reads(7, &hello(), &message) && !reads(8, &hello(), &message));
        assert!(!reads(7, &PacketHelloBody { packet_bytes: 1.into(), ..hello() }, &message));
        assert!(!reads(7, &PacketHelloBody { cookie: 8.into(), ..hello() }, &message));
        for at in 0..message.len() {
            let mut forged = message;
            forged[at] ^= 0x80;
            // The highest bit of a public key means nothing to the curve, but it is hashed.
            assert!(!reads(7, &hello(), &forged), "byte {at}");
        }
    }

    #[test]
    fn one_seed_gives_one_handshake_and_no_two_are_alike() {
        let message = |seed| {
            InitiatorHandshake::new(&[7; 32], &mut KeyRandomness::new(seed), &hello()).message
        };
        assert_eq!(message([1; 32]), message([1; 32]));
        assert_ne!(message([1; 32]), message([2; 32]));
        let mut chance = KeyRandomness::new([1; 32]);
        let messages =
            [(); 2].map(|()| InitiatorHandshake::new(&[7; 32], &mut chance, &hello()).message);
        assert_ne!(messages[0], messages[1]);
    }
}
