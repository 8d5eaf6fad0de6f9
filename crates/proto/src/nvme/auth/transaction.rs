//! The controller's side of an authentication: the host's messages, and the controller's answers.

use alloc::boxed::Box;
use alloc::vec::Vec;

use subtle::ConstantTimeEq;
use wire::nvme::{
    AUTH_LIST_MAX, AuthChallenge, AuthDescriptor, AuthFailure, AuthFailureMessage, AuthHead,
    AuthKind, AuthMessage, AuthNegotiate, AuthReply, AuthSuccess1,
};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{
    EXPONENT_BYTES, Group, Hash, Methods, ModularPower, Responder, Response, Secret, augmented,
};

/// The number of unpredictable bytes that processing a message of the host may take.
pub(crate) const CHANCE_BYTES: usize = EXPONENT_BYTES + CHALLENGE_BYTES_MAX + 4;

/// The size of the longest challenge in bytes.
const CHALLENGE_BYTES_MAX: usize = 64;

/// The names and keys of host and subsystem, as the controller needs them to authenticate.
#[derive(Clone, Debug)]
pub(crate) struct ControllerCredentials {
    pub(crate) host: alloc::string::String,
    pub(crate) subsystem: alloc::string::String,
    /// The host's key. Without a key, authentication as the host is impossible.
    pub(crate) key: Option<Secret>,
    /// The host's previous key, which also proves the host while operators change keys.
    pub(crate) former_key: Option<Secret>,
    /// The controller's key. Without one, a host that challenges the controller is refused.
    pub(crate) own_key: Option<Secret>,
}

/// The negotiated parameters, and the controller's challenge.
#[derive(Clone, Debug)]
struct NegotiatedParameters {
    transaction: u16,
    hash: Hash,
    group: Group,
    challenge: Vec<u8>,
    sequence: u32,
    exponent: [u8; EXPONENT_BYTES],
    ends: ControllerCredentials,
}

/// The content of the host's reply, kept while the shared value is computed.
#[derive(Clone, Debug)]
struct HostReply {
    response: Vec<u8>,
    /// The host's challenge and its sequence number; `None` if the host does not challenge the
    /// controller.
    challenge: Option<(Vec<u8>, u32)>,
}

/// The progress of a transaction.
#[derive(Debug)]
enum TransactionStep {
    /// No message has been exchanged. The host's negotiation ends this step.
    Idle,
    /// The computed public value ends this step.
    MakingChallenge(Box<NegotiatedParameters>),
    /// A message waits. The host ends this step by fetching it.
    Saying(Vec<u8>, StepAfterMessage),
    /// The host's reply ends this step.
    AwaitingReply(Box<NegotiatedParameters>),
    /// The computed shared value ends this step.
    Verifying(Box<NegotiatedParameters>, HostReply),
    /// The host's verdict about the controller ends this step.
    AwaitingVerdict(u16),
    /// The host is authenticated. A negotiation starts anew.
    Done,
    /// The authentication has failed, and the connection ends.
    Failed,
}

/// The step that follows once the host has fetched a message.
#[derive(Debug)]
enum StepAfterMessage {
    Reply(Box<NegotiatedParameters>),
    Verdict(u16),
    Done,
    Failed,
}

/// The answer to a host that asks for a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ControllerMessage {
    /// The message for the host, after which the authentication goes on or has ended.
    Message(Vec<u8>),
    /// The message that informs the host of its refusal. The connection ends after the message.
    Last(Vec<u8>),
    /// The message is still being computed.
    Later,
    /// No message can be sent: the host has to send the next one, or the message is larger than the
    /// room that the host has given.
    Nothing,
}

/// The authentication of one queue.
#[derive(Debug)]
pub(crate) struct Transaction {
    step: TransactionStep,
    proven: bool,
}

impl Transaction {
    pub(crate) fn new() -> Transaction {
        Transaction { step: TransactionStep::Idle, proven: false }
    }

    /// Creates a transaction that has succeeded, if `proven`, or that has not begun.
    pub(crate) fn at_rest(proven: bool) -> Transaction {
        Transaction {
            step: if proven { TransactionStep::Done } else { TransactionStep::Idle },
            proven,
        }
    }

    /// Returns `true` if the authentication has succeeded or not begun, so that no message is
    /// outstanding.
    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(self.step, TransactionStep::Idle | TransactionStep::Done)
    }

    /// Returns `true` if the host has authenticated.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Returns `true` if the transaction has failed and the connection ends.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.step, TransactionStep::Failed)
    }

    /// Returns `true` if the transaction has failed, and a message that says so waits for the host.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.step, TransactionStep::Saying(_, StepAfterMessage::Failed))
    }

    /// Returns `true` if the transaction has begun and the host has neither proved its key nor
    /// failed.
    pub(crate) fn is_under_way(&self) -> bool {
        match &self.step {
            TransactionStep::Idle
            | TransactionStep::Done
            | TransactionStep::Failed
            | TransactionStep::AwaitingVerdict(_) => false,
            TransactionStep::Saying(_, next) => matches!(next, StepAfterMessage::Reply(_)),
            TransactionStep::MakingChallenge(_)
            | TransactionStep::AwaitingReply(_)
            | TransactionStep::Verifying(..) => true,
        }
    }

    /// Returns `true` if a message waits for the host.
    pub(crate) fn has_to_speak(&self) -> bool {
        matches!(self.step, TransactionStep::Saying(..))
    }

    /// Returns `true` if the message would begin a transaction now: it is a negotiation, and no
    /// transaction is under way.
    pub(crate) fn is_begun_by(&self, message: &[u8]) -> bool {
        let head = AuthHead::read_from_prefix(message);
        let is_idle = matches!(self.step, TransactionStep::Idle | TransactionStep::Done);
        let begins = |(head, _): (AuthHead, &[u8])| {
            (head.kind, head.message) == (AuthKind::COMMON, AuthMessage::NEGOTIATE)
        };
        is_idle && head.is_ok_and(begins)
    }

    /// Processes a message from the host. Returns an exponentiation to compute, if one is needed.
    pub(crate) fn take(
        &mut self,
        message: &[u8],
        methods: &Methods,
        ends: impl FnOnce() -> ControllerCredentials,
        chance: &[u8; CHANCE_BYTES],
    ) -> Option<ModularPower> {
        let Ok((head, _)) = AuthHead::read_from_prefix(message) else {
            return self.fail(0, AuthFailure::PAYLOAD);
        };
        let transaction = head.transaction.get();
        let step = core::mem::replace(&mut self.step, TransactionStep::Failed);
        match ((head.kind, head.message), step) {
            // A negotiation may start anew whenever no other message is expected.
            (
                (AuthKind::COMMON, AuthMessage::NEGOTIATE),
                TransactionStep::Idle | TransactionStep::Done,
            ) => match negotiate(message, transaction, methods, ends, chance) {
                Ok(agreed) => self.challenge(agreed),
                Err(failure) => self.fail(transaction, failure),
            },
            (
                (AuthKind::DH_HMAC_CHAP, AuthMessage::REPLY),
                TransactionStep::AwaitingReply(agreed),
            ) if agreed.transaction == transaction => match read_reply(message, &agreed) {
                Ok((replied, None)) => self.verify(&agreed, replied, &[]),
                Ok((replied, power)) => {
                    self.step = TransactionStep::Verifying(agreed, replied);
                    power
                }
                Err(failure) => self.fail(transaction, failure),
            },
            (
                (AuthKind::DH_HMAC_CHAP, AuthMessage::SUCCESS2),
                TransactionStep::AwaitingVerdict(own),
            ) if own == transaction => {
                (self.step, self.proven) = (TransactionStep::Done, true);
                None
            }
            ((AuthKind::COMMON, AuthMessage::FAILURE2), _) => {
                (self.step, self.proven) = (TransactionStep::Failed, false);
                None
            }
            _ => self.fail(transaction, AuthFailure::MESSAGE),
        }
    }

    /// Continues with `value`, the result of the exponentiation that [`Transaction::take`] has
    /// returned.
    pub(crate) fn computed(&mut self, value: &[u8]) {
        match core::mem::replace(&mut self.step, TransactionStep::Failed) {
            TransactionStep::MakingChallenge(agreed) => self.say_challenge(agreed, value),
            TransactionStep::Verifying(agreed, replied) => {
                self.verify(&agreed, replied, value);
            }
            step => self.step = step,
        }
    }

    /// Returns the answer to a host that asks for a message of at most `room` bytes.
    pub(crate) fn give(&mut self, room: usize) -> ControllerMessage {
        match core::mem::replace(&mut self.step, TransactionStep::Failed) {
            TransactionStep::Saying(message, next) if message.len() <= room => {
                self.step = match next {
                    StepAfterMessage::Reply(agreed) => TransactionStep::AwaitingReply(agreed),
                    StepAfterMessage::Verdict(transaction) => {
                        TransactionStep::AwaitingVerdict(transaction)
                    }
                    StepAfterMessage::Done => TransactionStep::Done,
                    StepAfterMessage::Failed => return ControllerMessage::Last(message),
                };
                ControllerMessage::Message(message)
            }
            step @ (TransactionStep::MakingChallenge(_) | TransactionStep::Verifying(..)) => {
                self.step = step;
                ControllerMessage::Later
            }
            step => {
                self.step = step;
                ControllerMessage::Nothing
            }
        }
    }

    fn challenge(&mut self, agreed: Box<NegotiatedParameters>) -> Option<ModularPower> {
        match agreed.group.public(agreed.exponent) {
            None => self.say_challenge(agreed, &[]),
            power => {
                self.step = TransactionStep::MakingChallenge(agreed);
                return power;
            }
        }
        None
    }

    fn say_challenge(&mut self, agreed: Box<NegotiatedParameters>, value: &[u8]) {
        let head = AuthChallenge {
            head: head(AuthKind::DH_HMAC_CHAP, AuthMessage::CHALLENGE, agreed.transaction),
            hash_bytes: agreed.hash.bytes() as u8,
            hash: agreed.hash.id(),
            group: agreed.group.id(),
            value_bytes: U16::new(value.len() as u16),
            sequence: agreed.sequence.into(),
            ..AuthChallenge::new_zeroed()
        };
        let message = [head.as_bytes(), &agreed.challenge, value].concat();
        self.step = TransactionStep::Saying(message, StepAfterMessage::Reply(agreed));
    }

    fn verify(
        &mut self,
        agreed: &NegotiatedParameters,
        replied: HostReply,
        shared: &[u8],
    ) -> Option<ModularPower> {
        let NegotiatedParameters { transaction, hash, ends, .. } = agreed;
        let response = |end: Responder, key: &Secret, challenge: &[u8], sequence: u32| -> Vec<u8> {
            let challenge = &augmented(*hash, challenge, shared);
            let (hash, transaction) = (*hash, *transaction);
            let (host, subsystem) = (&*ends.host, &*ends.subsystem);
            let response =
                Response { end, hash, challenge, sequence, transaction, host, subsystem };
            response.with(key)
        };
        let is_proven = |key: &Secret| {
            let expected = response(Responder::Host, key, &agreed.challenge, agreed.sequence);
            bool::from(expected.ct_eq(&replied.response))
        };
        let mut keys = ends.key.iter().chain(ends.key.as_ref().and(ends.former_key.as_ref()));
        if !keys.any(is_proven) {
            return self.fail(*transaction, AuthFailure::FAILED);
        }
        let answer = match &replied.challenge {
            None => None,
            Some((challenge, sequence)) => match &ends.own_key {
                None => return self.fail(*transaction, AuthFailure::FAILED),
                Some(key) => Some(response(Responder::Controller, key, challenge, *sequence)),
            },
        };
        let head = AuthSuccess1 {
            head: head(AuthKind::DH_HMAC_CHAP, AuthMessage::SUCCESS1, *transaction),
            hash_bytes: hash.bytes() as u8,
            responds: u8::from(answer.is_some()),
            ..AuthSuccess1::new_zeroed()
        };
        // A host that has challenged the controller sends its verdict first.
        let next = match &answer {
            Some(_) => StepAfterMessage::Verdict(*transaction),
            None => {
                self.proven = true;
                StepAfterMessage::Done
            }
        };
        let message = [head.as_bytes(), answer.as_deref().unwrap_or_default()].concat();
        self.step = TransactionStep::Saying(message, next);
        None
    }

    fn fail(&mut self, transaction: u16, explanation: AuthFailure) -> Option<ModularPower> {
        let message = AuthFailureMessage {
            head: head(AuthKind::COMMON, AuthMessage::FAILURE1, transaction),
            reason: 1,
            explanation,
        };
        self.proven = false;
        self.step = TransactionStep::Saying(message.as_bytes().to_vec(), StepAfterMessage::Failed);
        None
    }
}

fn head(kind: AuthKind, message: AuthMessage, transaction: u16) -> AuthHead {
    AuthHead { kind, message, reserved: U16::ZERO, transaction: U16::new(transaction) }
}

/// Parses the host's offer, and chooses the controller's preferred hash and group among the
/// offered.
fn negotiate(
    message: &[u8],
    transaction: u16,
    methods: &Methods,
    ends: impl FnOnce() -> ControllerCredentials,
    chance: &[u8; CHANCE_BYTES],
) -> Result<Box<NegotiatedParameters>, AuthFailure> {
    let (offer, rest) =
        AuthNegotiate::read_from_prefix(message).map_err(|_| AuthFailure::PAYLOAD)?;
    if offer.concatenation != 0 {
        return Err(AuthFailure::CONCATENATION);
    }
    let (protocols, _) =
        <[AuthDescriptor]>::ref_from_prefix_with_elems(rest, usize::from(offer.descriptors))
            .map_err(|_| AuthFailure::PAYLOAD)?;
    let own = protocols.iter().find(|protocol| protocol.protocol == 1);
    let own = own.ok_or(AuthFailure::PROTOCOL)?;
    let (hashes, groups) = (usize::from(own.hash_count), usize::from(own.group_count));
    if hashes > AUTH_LIST_MAX || groups > AUTH_LIST_MAX {
        return Err(AuthFailure::PAYLOAD);
    }
    let hash = methods.hash(&own.hashes[..hashes]).ok_or(AuthFailure::HASH)?;
    let group = methods.group(&own.groups[..groups]).ok_or(AuthFailure::GROUP)?;
    let (exponent, rest) = chance.split_first_chunk().expect("there is enough chance");
    let (challenge, sequence) = rest.split_at(CHALLENGE_BYTES_MAX);
    // The highest bit is set, so that the exponent is never zero.
    let mut exponent: [u8; EXPONENT_BYTES] = *exponent;
    exponent[0] |= 0x80;
    let sequence = u32::from_le_bytes(sequence.try_into().expect("four bytes"));
    Ok(Box::new(NegotiatedParameters {
        transaction,
        hash,
        group,
        challenge: challenge[..hash.bytes()].to_vec(),
        // Zero has another meaning.
        sequence: sequence.max(1),
        exponent,
        ends: ends(),
    }))
}

/// Parses the host's reply. Also returns the exponentiation for the shared value, if a group was
/// negotiated.
fn read_reply(
    message: &[u8],
    agreed: &NegotiatedParameters,
) -> Result<(HostReply, Option<ModularPower>), AuthFailure> {
    let (reply, rest) = AuthReply::read_from_prefix(message).map_err(|_| AuthFailure::PAYLOAD)?;
    let bytes = agreed.hash.bytes();
    let value_bytes = usize::from(reply.value_bytes.get());
    let fits = usize::from(reply.hash_bytes) == bytes
        && value_bytes == agreed.group.bytes()
        && rest.len() >= 2 * bytes + value_bytes;
    if !fits {
        return Err(AuthFailure::PAYLOAD);
    }
    let (response, rest) = rest.split_at(bytes);
    let (challenge, rest) = rest.split_at(bytes);
    let power = match agreed.group {
        Group::Null => None,
        group => {
            Some(group.shared(&rest[..value_bytes], agreed.exponent).ok_or(AuthFailure::PAYLOAD)?)
        }
    };
    let challenge = match reply.challenges {
        0 => None,
        // The controller's own challenge, sent back, would make it compute the host's response.
        1 if challenge == agreed.challenge => return Err(AuthFailure::FAILED),
        1 => Some((challenge.to_vec(), reply.sequence.get())),
        _ => return Err(AuthFailure::PAYLOAD),
    };
    Ok((HostReply { response: response.to_vec(), challenge }, power))
}
