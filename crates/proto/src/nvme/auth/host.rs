//! The host's side of an authentication: the messages that it sends, and how it treats the
//! controller's.

use alloc::vec::Vec;
use core::fmt;

use subtle::ConstantTimeEq;
use wire::nvme::{
    AuthChallenge, AuthDescriptor, AuthFailure, AuthFailureMessage, AuthHead, AuthKind,
    AuthMessage, AuthNegotiate, AuthReply, AuthSuccess1, AuthSuccess2,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{EXPONENT_BYTES, Group, Hash, Responder, Response, Secret, augmented};

/// The number of unpredictable bytes that one authentication takes.
pub const PROOF_CHANCE_BYTES: usize = EXPONENT_BYTES + 64 + 8;

/// The names and keys of host and controller, as the host needs them to authenticate.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The host's qualified name (NQN).
    pub host: alloc::string::String,
    /// The subsystem's qualified name (NQN).
    pub subsystem: alloc::string::String,
    /// The host's key.
    pub key: Secret,
    /// The controller's key. With it, the controller has to authenticate, too; `None` lets it do
    /// without.
    pub controller_key: Option<Secret>,
}

/// The host's reaction to a message of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostReaction {
    /// Send this message, then receive another message of the controller.
    Reply(Vec<u8>),
    /// Send this message; the host is then admitted.
    Last(Vec<u8>),
    /// The host is admitted, and there is nothing more to send.
    Done,
}

/// The reason why an authentication failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofFailure {
    /// The controller refuses the host, with this explanation.
    Refused(AuthFailure),
    /// The controller did not prove that it has the key that the host expects.
    Impostor,
    /// The controller's message is invalid.
    Nonsense,
}

impl fmt::Display for ProofFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProofFailure::Refused(AuthFailure(1)) => {
                f.write_str("the server does not accept the key")
            }
            ProofFailure::Refused(AuthFailure(code)) => {
                write!(f, "the server refuses the authentication (reason {code})")
            }
            ProofFailure::Impostor => f.write_str("the server did not prove that it has its key"),
            ProofFailure::Nonsense => f.write_str("the server's messages make no sense"),
        }
    }
}

/// An authentication of a queue by its host.
#[derive(Clone, Debug)]
pub struct HostAuthentication {
    credentials: Credentials,
    chance: [u8; PROOF_CHANCE_BYTES],
    stage: ExpectedMessage,
}

/// The message that the controller has to send next.
#[derive(Clone, Debug)]
enum ExpectedMessage {
    /// The controller's challenge.
    Challenge,
    /// The verdict. It has to contain this response if the host has challenged the controller.
    Verdict(Option<Vec<u8>>),
}

impl HostAuthentication {
    /// Creates an authentication that uses these unpredictable bytes, which must be used for no
    /// other.
    pub fn new(credentials: Credentials, chance: [u8; PROOF_CHANCE_BYTES]) -> HostAuthentication {
        HostAuthentication { credentials, chance, stage: ExpectedMessage::Challenge }
    }

    fn transaction(&self) -> u16 {
        u16::from_le_bytes([self.chance[EXPONENT_BYTES + 64], self.chance[EXPONENT_BYTES + 65]])
    }

    /// Returns the sequence number of the host's challenge. It is never zero, since zero means that
    /// there is no challenge.
    fn sequence(&self) -> u32 {
        let bytes = &self.chance[EXPONENT_BYTES + 66..][..4];
        u32::from_le_bytes(bytes.try_into().expect("four bytes")) | 1
    }

    fn head(&self, kind: AuthKind, message: AuthMessage) -> AuthHead {
        let transaction = self.transaction().into();
        AuthHead { kind, message, reserved: 0.into(), transaction }
    }

    /// Returns the first message to send, which offers every hash and every group. The controller
    /// answers it with another message.
    pub fn negotiation(&self) -> Vec<u8> {
        let mut offer = AuthDescriptor::new_zeroed();
        offer.protocol = 1;
        offer.hash_count = Hash::ALL.len() as u8;
        offer.group_count = Group::ALL.len() as u8;
        offer.hashes.iter_mut().zip(Hash::ALL).for_each(|(to, hash)| *to = hash.id());
        offer.groups.iter_mut().zip(Group::ALL).for_each(|(to, group)| *to = group.id());
        let negotiate = AuthNegotiate {
            head: self.head(AuthKind::COMMON, AuthMessage::NEGOTIATE),
            concatenation: 0,
            descriptors: 1,
        };
        [negotiate.as_bytes(), offer.as_bytes()].concat()
    }

    /// Processes a message of the controller. Computes powers of the group that the controller
    /// chose, which takes from half a millisecond to some tens of milliseconds.
    ///
    /// # Errors
    /// Returns a [`ProofFailure`] if the host is not admitted, or if the controller did not
    /// authenticate.
    pub fn take(&mut self, message: &[u8]) -> Result<HostReaction, ProofFailure> {
        let (head, _) = AuthHead::read_from_prefix(message).map_err(|_| ProofFailure::Nonsense)?;
        match head.message {
            AuthMessage::FAILURE1 => {
                let said = AuthFailureMessage::read_from_prefix(message);
                let (said, _) = said.map_err(|_| ProofFailure::Nonsense)?;
                Err(ProofFailure::Refused(said.explanation))
            }
            _ if head.transaction.get() != self.transaction() => Err(ProofFailure::Nonsense),
            // Each message is accepted once and in this order. A controller that starts with
            // success has proven nothing, and the unpredictable bytes serve for one response only.
            said => match (&self.stage, said) {
                (ExpectedMessage::Challenge, AuthMessage::CHALLENGE) => {
                    self.reply(message).ok_or(ProofFailure::Nonsense)
                }
                (ExpectedMessage::Verdict(expected), AuthMessage::SUCCESS1) => {
                    self.verdict(message, expected.as_deref())
                }
                _ => Err(ProofFailure::Nonsense),
            },
        }
    }

    fn reply(&mut self, message: &[u8]) -> Option<HostReaction> {
        let (challenge, rest) = AuthChallenge::read_from_prefix(message).ok()?;
        let hash = Hash::from_id(challenge.hash)?;
        let group = Group::from_id(challenge.group)?;
        let (given, rest) = rest.split_at_checked(hash.bytes())?;
        let exponent = *self.chance.first_chunk::<EXPONENT_BYTES>().expect("it is longer");
        let (own_value, shared) = match group {
            Group::Null => (Vec::new(), Vec::new()),
            group => {
                let value = rest.get(..usize::from(challenge.value_bytes.get()))?;
                (group.public(exponent)?.raise(), group.shared(value, exponent)?.raise())
            }
        };
        let transaction = self.transaction();
        let respond = |end, challenge: &[u8], sequence, key: &Secret| {
            let challenge = &augmented(hash, challenge, &shared);
            let (host, subsystem) = (&*self.credentials.host, &*self.credentials.subsystem);
            Response { end, hash, challenge, sequence, transaction, host, subsystem }.with(key)
        };
        let proof =
            respond(Responder::Host, given, challenge.sequence.get(), &self.credentials.key);
        let own_challenge = &self.chance[EXPONENT_BYTES..][..hash.bytes()];
        let expected = self.credentials.controller_key.as_ref();
        let expected =
            expected.map(|key| respond(Responder::Controller, own_challenge, self.sequence(), key));
        let challenges = expected.is_some();
        let reply = AuthReply {
            head: self.head(AuthKind::DH_HMAC_CHAP, AuthMessage::REPLY),
            hash_bytes: hash.bytes() as u8,
            challenges: u8::from(challenges),
            value_bytes: (own_value.len() as u16).into(),
            sequence: if challenges { self.sequence() } else { 0 }.into(),
            ..AuthReply::new_zeroed()
        };
        let none = alloc::vec![0; hash.bytes()];
        let own_challenge = if challenges { own_challenge } else { &none };
        let message = [reply.as_bytes(), &proof, own_challenge, &own_value].concat();
        self.stage = ExpectedMessage::Verdict(expected);
        Some(HostReaction::Reply(message))
    }

    fn verdict(
        &self,
        message: &[u8],
        expected: Option<&[u8]>,
    ) -> Result<HostReaction, ProofFailure> {
        let Some(expected) = expected else { return Ok(HostReaction::Done) };
        let (success, response) =
            AuthSuccess1::read_from_prefix(message).map_err(|_| ProofFailure::Nonsense)?;
        let response = response.get(..expected.len()).unwrap_or_default();
        if success.responds == 0 || !bool::from(expected.ct_eq(response)) {
            return Err(ProofFailure::Impostor);
        }
        let head = self.head(AuthKind::DH_HMAC_CHAP, AuthMessage::SUCCESS2);
        let verdict = AuthSuccess2 { head, reserved: [0; 10] };
        Ok(HostReaction::Last(verdict.as_bytes().to_vec()))
    }
}
