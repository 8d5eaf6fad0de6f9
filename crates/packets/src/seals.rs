//! The seals of an endpoint's associations, and the handshakes that lead to them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use wire::packets::{ACCEPT_SEAL_BYTES, AcceptBody, HELLO_SEAL_BYTES, PacketHelloBody};

use crate::head::Mark;
use crate::noise::{Answering, Chance, Greeting};
use crate::seal::Seal;
use crate::settings::Sealed;

/// Refused hellos after which an association that has a key is given up.
const REFUSALS_MIN: u8 = 3;

/// The seal of one association.
enum Of {
    /// The place is free, or its peer is not known yet.
    Nobody,
    /// This end has dialled. The peer's accept ends the state.
    Greeting(Box<Greeting>),
    /// Both ends have keys. The acceptor keeps its message, since an accept may be lost.
    Up(Box<(Seal, Option<[u8; ACCEPT_SEAL_BYTES]>)>),
}

/// The seals of an endpoint that has a key.
pub(crate) struct Seals {
    psk: [u8; 32],
    /// The key of the proofs of resets.
    pub reset_key: [u8; 32],
    chance: Chance,
    packets_max: u32,
    /// By the places of associations.
    of: Vec<Of>,
}

impl Seals {
    /// Returns the seals of an endpoint with at most so many associations.
    pub(crate) fn new(sealed: &Sealed, associations_max: usize) -> Seals {
        Seals {
            psk: sealed.key.psk(),
            reset_key: sealed.key.reset_key(),
            chance: Chance::new(sealed.chance),
            packets_max: sealed.packets_max,
            of: (0..associations_max).map(|_| Of::Nobody).collect(),
        }
    }

    /// Returns `true` if a refusal of an association that is dialled is to be believed. Anybody on
    /// the path can forge one, so several hellos have to be refused; `hellos` were sent so far.
    pub(crate) fn is_refused(&mut self, place: u32, hellos: u8) -> bool {
        let Of::Greeting(greeting) = &mut self.of[place as usize] else { return true };
        let (refusals, last) = greeting.refused;
        if last != hellos {
            greeting.refused = (refusals + 1, hellos);
        }
        greeting.refused.0 >= REFUSALS_MIN
    }

    /// Begins the handshake of an association that is dialled with this hello.
    pub(crate) fn greet(&mut self, place: u32, hello: &PacketHelloBody) {
        let greeting = Greeting::new(&self.psk, &mut self.chance, hello);
        self.of[place as usize] = Of::Greeting(Box::new(greeting));
    }

    /// Returns message 1 of an association that is dialled.
    pub(crate) fn message(&self, place: u32) -> Option<&[u8; HELLO_SEAL_BYTES]> {
        match &self.of[place as usize] {
            Of::Greeting(greeting) => Some(&greeting.message),
            Of::Nobody | Of::Up(_) => None,
        }
    }

    /// Returns the accept in message 2, after which packets are sealed. Returns `None` if the
    /// message is not the peer's.
    pub(crate) fn accepted(&mut self, place: u32, message: &[u8]) -> Option<AcceptBody> {
        let Of::Greeting(greeting) = &mut self.of[place as usize] else { return None };
        let (accept, secrets) = greeting.read(message)?;
        let seal = Seal::new(&secrets, true, self.packets_max);
        self.of[place as usize] = Of::Up(Box::new((seal, None)));
        Some(accept)
    }

    /// Reads message 1 of a hello, or returns `None` if its sender does not have our key.
    pub(crate) fn hear(&mut self, hello: &PacketHelloBody, message: &[u8]) -> Option<Answering> {
        Answering::new(&self.psk, &mut self.chance, hello, message)
    }

    /// Accepts an association.
    pub(crate) fn accept(&mut self, place: u32, answering: Answering, accept: &AcceptBody) {
        let (message, secrets) = answering.accept(accept);
        let seal = Seal::new(&secrets, false, self.packets_max);
        self.of[place as usize] = Of::Up(Box::new((seal, Some(message))));
    }

    /// Returns message 2 of an association that this end has accepted.
    pub(crate) fn answer(&self, place: u32) -> Option<[u8; ACCEPT_SEAL_BYTES]> {
        match &self.of[place as usize] {
            Of::Up(up) => up.1,
            Of::Nobody | Of::Greeting(_) => None,
        }
    }

    /// Returns the seal of an association that is up.
    pub(crate) fn get(&mut self, place: u32) -> Option<&mut Seal> {
        match &mut self.of[place as usize] {
            Of::Up(up) => Some(&mut up.0),
            Of::Nobody | Of::Greeting(_) => None,
        }
    }

    /// Opens a packet of an association in place. Returns `false` if it is not the peer's.
    pub(crate) fn open(&mut self, place: u32, mark: Mark, number: u64, packet: &mut [u8]) -> bool {
        self.get(place).is_some_and(|seal| seal.open(mark, number, packet))
    }

    /// Forgets the keys of an association that is over.
    pub(crate) fn forget(&mut self, place: u32) {
        self.of[place as usize] = Of::Nobody;
    }
}
