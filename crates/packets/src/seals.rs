//! The encryption states (seals) of an endpoint's associations, and the handshakes that lead to
//! them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use wire::packets::{ACCEPT_SEAL_BYTES, AcceptBody, HELLO_SEAL_BYTES, PacketHelloBody};
use zeroize::Zeroizing;

use crate::head::SealSelector;
use crate::noise::{AcceptorHandshake, InitiatorHandshake, KeyRandomness};
use crate::seal::Seal;
use crate::settings::SealSettings;

/// Number of refused hellos after which an endpoint with a key gives up an association.
const REFUSALS_MIN: u8 = 3;

/// The state of one association's encryption.
enum SealState {
    /// The index has no association, or an association without keys.
    Nobody,
    /// The local end has dialled. The peer's accept ends the state.
    Greeting(Box<InitiatorHandshake>),
    /// Both ends have keys. The acceptor keeps its handshake message, since an accept packet may be
    /// lost and has to be sent again.
    Up(Box<(Seal, Option<[u8; ACCEPT_SEAL_BYTES]>)>),
}

/// The encryption states of an endpoint's associations, for an endpoint with a pre-shared key.
pub(crate) struct Seals {
    psk: Zeroizing<[u8; 32]>,
    /// The key that authenticates reset packets.
    pub reset_key: Zeroizing<[u8; 32]>,
    chance: KeyRandomness,
    packets_max: u32,
    /// The encryption state of each association, by the association's index.
    of: Vec<SealState>,
}

impl Seals {
    /// Creates the encryption states of an endpoint that has at most `associations_max`
    /// associations.
    pub(crate) fn new(sealed: &SealSettings, associations_max: usize) -> Seals {
        Seals {
            psk: sealed.key.psk(),
            reset_key: sealed.key.reset_key(),
            chance: KeyRandomness::new(sealed.chance),
            packets_max: sealed.packets_max,
            of: (0..associations_max).map(|_| SealState::Nobody).collect(),
        }
    }

    /// Counts a refusal of an association that is being dialled, and returns `true` if the refusal
    /// is to be believed. Anybody on the path can forge a refusal, so several hellos have to be
    /// refused; `hellos` is the number of hellos sent so far.
    pub(crate) fn is_refused(&mut self, place: u32, hellos: u8) -> bool {
        let SealState::Greeting(greeting) = &mut self.of[place as usize] else { return true };
        let (refusals, last) = greeting.refused;
        if last != hellos {
            greeting.refused = (refusals + 1, hellos);
        }
        greeting.refused.0 >= REFUSALS_MIN
    }

    /// Begins the handshake of an association that is dialled with this hello.
    pub(crate) fn greet(&mut self, place: u32, hello: &PacketHelloBody) {
        let greeting = InitiatorHandshake::new(&self.psk, &mut self.chance, hello);
        self.of[place as usize] = SealState::Greeting(Box::new(greeting));
    }

    /// Returns message 1 of the handshake of an association that this end has dialled and that is
    /// not up yet; `None` for another association.
    pub(crate) fn message(&self, place: u32) -> Option<&[u8; HELLO_SEAL_BYTES]> {
        match &self.of[place as usize] {
            SealState::Greeting(greeting) => Some(&greeting.message),
            SealState::Nobody | SealState::Up(_) => None,
        }
    }

    /// Returns the accept in message 2 and keeps the keys of the association. Returns `None` if the
    /// message does not come from the peer.
    pub(crate) fn accepted(&mut self, place: u32, message: &[u8]) -> Option<AcceptBody> {
        let SealState::Greeting(greeting) = &mut self.of[place as usize] else { return None };
        let (accept, secrets) = greeting.read(message)?;
        let seal = Seal::new(&secrets, true, self.packets_max);
        self.of[place as usize] = SealState::Up(Box::new((seal, None)));
        Some(accept)
    }

    /// Reads message 1 of a hello, and returns the handshake at the accepting end; `None` if the
    /// hello's sender does not have the key.
    pub(crate) fn hear(
        &mut self,
        hello: &PacketHelloBody,
        message: &[u8],
    ) -> Option<AcceptorHandshake> {
        AcceptorHandshake::new(&self.psk, &mut self.chance, hello, message)
    }

    /// Accepts an association: makes message 2 and keeps the keys.
    pub(crate) fn accept(&mut self, place: u32, answering: AcceptorHandshake, accept: &AcceptBody) {
        let (message, secrets) = answering.accept(accept);
        let seal = Seal::new(&secrets, false, self.packets_max);
        self.of[place as usize] = SealState::Up(Box::new((seal, Some(message))));
    }

    /// Returns message 2 of the handshake of an association that this end has accepted; `None` for
    /// another association.
    pub(crate) fn answer(&self, place: u32) -> Option<[u8; ACCEPT_SEAL_BYTES]> {
        match &self.of[place as usize] {
            SealState::Up(up) => up.1,
            SealState::Nobody | SealState::Greeting(_) => None,
        }
    }

    /// Returns the cipher state of an association whose keys are known; `None` for another
    /// association.
    pub(crate) fn get(&mut self, place: u32) -> Option<&mut Seal> {
        match &mut self.of[place as usize] {
            SealState::Up(up) => Some(&mut up.0),
            SealState::Nobody | SealState::Greeting(_) => None,
        }
    }

    /// Decrypts a packet of an association in place. Returns `false` if the packet does not
    /// authenticate as the peer's.
    pub(crate) fn open(
        &mut self,
        place: u32,
        mark: SealSelector,
        number: u64,
        packet: &mut [u8],
    ) -> bool {
        self.get(place).is_some_and(|seal| seal.open(mark, number, packet))
    }

    /// Erases the keys of an association that has ended.
    pub(crate) fn forget(&mut self, place: u32) {
        self.of[place as usize] = SealState::Nobody;
    }
}
