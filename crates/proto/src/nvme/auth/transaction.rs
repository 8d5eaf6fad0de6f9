//! The controller's side of an authentication: which message comes, and which is said.

use alloc::boxed::Box;
use alloc::vec::Vec;

use subtle::ConstantTimeEq;
use wire::nvme::{
    AUTH_LIST_MAX, AuthChallenge, AuthDescriptor, AuthFailure, AuthFailureMessage, AuthHead,
    AuthKind, AuthMessage, AuthNegotiate, AuthReply, AuthSuccess1,
};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{EXPONENT_BYTES, End, Group, Hash, Methods, Power, Response, Secret, augmented};

/// Bytes of chance that a message of the host may need.
pub(in crate::nvme) const CHANCE_BYTES: usize = EXPONENT_BYTES + CHALLENGE_BYTES_MAX + 4;

/// Bytes of the longest challenge.
const CHALLENGE_BYTES_MAX: usize = 64;

/// Keys and names of the two ends.
#[derive(Clone, Debug)]
pub(in crate::nvme) struct Ends {
    pub(in crate::nvme) host: alloc::string::String,
    pub(in crate::nvme) subsystem: alloc::string::String,
    /// The host's key; without one nobody can prove to be it.
    pub(in crate::nvme) key: Option<Secret>,
    /// The controller's key.
    pub(in crate::nvme) own_key: Option<Secret>,
}

/// What was agreed on, and said, so far.
#[derive(Clone, Debug)]
struct Agreed {
    transaction: u16,
    hash: Hash,
    group: Group,
    challenge: Vec<u8>,
    sequence: u32,
    exponent: [u8; EXPONENT_BYTES],
    ends: Ends,
}

/// The host's reply, while the shared value is computed.
#[derive(Clone, Debug)]
struct Replied {
    response: Vec<u8>,
    /// The host's challenge and its sequence number.
    challenge: Option<(Vec<u8>, u32)>,
}

/// Where a transaction stands.
#[derive(Debug)]
enum Step {
    /// Nothing was said; ended by the host's negotiation.
    Idle,
    /// Ended by the computed public value.
    MakingChallenge(Box<Agreed>),
    /// A message waits; ended when the host fetches it.
    Saying(Vec<u8>, Next),
    /// Ended by the host's reply.
    AwaitingReply(Box<Agreed>),
    /// Ended by the computed shared value.
    Verifying(Box<Agreed>, Replied),
    /// Ended by the host's last word about the controller.
    AwaitingVerdict(u16),
    /// Authenticated; a negotiation begins anew.
    Done,
    /// Over; the connection ends.
    Failed,
}

/// What follows a message that the host has fetched.
#[derive(Debug)]
enum Next {
    Reply(Box<Agreed>),
    Verdict(u16),
    Done,
    Failed,
}

/// What the host has to be given when it asks for a message.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::nvme) enum Said {
    /// This.
    Message(Vec<u8>),
    /// This; then the connection ends.
    Last(Vec<u8>),
    /// What is being computed.
    Later,
    /// Nothing: it is the host's turn.
    Nothing,
}

/// See the module.
#[derive(Debug)]
pub(in crate::nvme) struct Transaction {
    step: Step,
    proven: bool,
}

impl Transaction {
    pub(in crate::nvme) fn new() -> Transaction {
        Transaction { step: Step::Idle, proven: false }
    }

    /// One that has ended, or has not begun: whether the host has proven who it is.
    pub(in crate::nvme) fn at_rest(proven: bool) -> Transaction {
        Transaction { step: if proven { Step::Done } else { Step::Idle }, proven }
    }

    /// Whether it has ended well or not begun: nothing of it is waited for.
    pub(in crate::nvme) fn is_at_rest(&self) -> bool {
        matches!(self.step, Step::Idle | Step::Done)
    }

    /// Whether the host has proven who it is.
    pub(in crate::nvme) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Whether it has failed and the connection ends.
    pub(in crate::nvme) fn has_failed(&self) -> bool {
        matches!(self.step, Step::Failed)
    }

    /// Whether the host has been told, or will be, that it has not proven who it is.
    pub(in crate::nvme) fn is_refused(&self) -> bool {
        matches!(self.step, Step::Saying(_, Next::Failed))
    }

    /// Whether it has begun and has not ended.
    pub(in crate::nvme) fn is_under_way(&self) -> bool {
        match &self.step {
            Step::Idle | Step::Done | Step::Failed | Step::AwaitingVerdict(_) => false,
            Step::Saying(_, next) => matches!(next, Next::Reply(_)),
            Step::MakingChallenge(_) | Step::AwaitingReply(_) | Step::Verifying(..) => true,
        }
    }

    /// Whether it is the controller's turn and the message is ready.
    pub(in crate::nvme) fn has_to_speak(&self) -> bool {
        matches!(self.step, Step::Saying(..))
    }

    /// Whether a message would begin one.
    pub(in crate::nvme) fn is_begun_by(&self, message: &[u8]) -> bool {
        let head = AuthHead::read_from_prefix(message);
        let is_idle = matches!(self.step, Step::Idle | Step::Done);
        let begins = |(head, _): (AuthHead, &[u8])| {
            (head.kind, head.message) == (AuthKind::COMMON, AuthMessage::NEGOTIATE)
        };
        is_idle && head.is_ok_and(begins)
    }

    /// Takes a message of the host's; what has to be computed because of it.
    pub(in crate::nvme) fn take(
        &mut self,
        message: &[u8],
        methods: &Methods,
        ends: impl FnOnce() -> Ends,
        chance: &[u8; CHANCE_BYTES],
    ) -> Option<Power> {
        let Ok((head, _)) = AuthHead::read_from_prefix(message) else {
            return self.fail(0, AuthFailure::PAYLOAD);
        };
        let transaction = head.transaction.get();
        let step = core::mem::replace(&mut self.step, Step::Failed);
        match ((head.kind, head.message), step) {
            // A negotiation may come at any time between messages, to begin anew.
            ((AuthKind::COMMON, AuthMessage::NEGOTIATE), Step::Idle | Step::Done) => {
                match negotiate(message, transaction, methods, ends, chance) {
                    Ok(agreed) => self.challenge(agreed),
                    Err(failure) => self.fail(transaction, failure),
                }
            }
            ((AuthKind::DH_HMAC_CHAP, AuthMessage::REPLY), Step::AwaitingReply(agreed))
                if agreed.transaction == transaction =>
            {
                match read_reply(message, &agreed) {
                    Ok((replied, None)) => self.verify(&agreed, replied, &[]),
                    Ok((replied, power)) => {
                        self.step = Step::Verifying(agreed, replied);
                        power
                    }
                    Err(failure) => self.fail(transaction, failure),
                }
            }
            ((AuthKind::DH_HMAC_CHAP, AuthMessage::SUCCESS2), Step::AwaitingVerdict(own))
                if own == transaction =>
            {
                (self.step, self.proven) = (Step::Done, true);
                None
            }
            ((AuthKind::COMMON, AuthMessage::FAILURE2), _) => {
                (self.step, self.proven) = (Step::Failed, false);
                None
            }
            _ => self.fail(transaction, AuthFailure::MESSAGE),
        }
    }

    /// A power that [`Transaction::take`] asked for is computed.
    pub(in crate::nvme) fn computed(&mut self, value: &[u8]) {
        match core::mem::replace(&mut self.step, Step::Failed) {
            Step::MakingChallenge(agreed) => self.say_challenge(agreed, value),
            Step::Verifying(agreed, replied) => {
                self.verify(&agreed, replied, value);
            }
            step => self.step = step,
        }
    }

    /// The message that the host asks for, at most `room` bytes.
    pub(in crate::nvme) fn give(&mut self, room: usize) -> Said {
        match core::mem::replace(&mut self.step, Step::Failed) {
            Step::Saying(message, next) if message.len() <= room => {
                self.step = match next {
                    Next::Reply(agreed) => Step::AwaitingReply(agreed),
                    Next::Verdict(transaction) => Step::AwaitingVerdict(transaction),
                    Next::Done => Step::Done,
                    Next::Failed => return Said::Last(message),
                };
                Said::Message(message)
            }
            step @ (Step::MakingChallenge(_) | Step::Verifying(..)) => {
                self.step = step;
                Said::Later
            }
            step => {
                self.step = step;
                Said::Nothing
            }
        }
    }

    fn challenge(&mut self, agreed: Box<Agreed>) -> Option<Power> {
        match agreed.group.public(agreed.exponent) {
            None => self.say_challenge(agreed, &[]),
            power => {
                self.step = Step::MakingChallenge(agreed);
                return power;
            }
        }
        None
    }

    fn say_challenge(&mut self, agreed: Box<Agreed>, value: &[u8]) {
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
        self.step = Step::Saying(message, Next::Reply(agreed));
    }

    fn verify(&mut self, agreed: &Agreed, replied: Replied, shared: &[u8]) -> Option<Power> {
        let Agreed { transaction, hash, ends, .. } = agreed;
        let response = |end: End, challenge: &[u8], sequence: u32| -> Option<Vec<u8>> {
            let key = match end {
                End::Host => ends.key.as_ref(),
                End::Controller => ends.own_key.as_ref(),
            };
            let challenge = &augmented(*hash, challenge, shared);
            let (hash, transaction) = (*hash, *transaction);
            let (host, subsystem) = (&*ends.host, &*ends.subsystem);
            let response =
                Response { end, hash, challenge, sequence, transaction, host, subsystem };
            Some(response.with(key?))
        };
        let expected = response(End::Host, &agreed.challenge, agreed.sequence);
        let Some(expected) = expected else {
            return self.fail(*transaction, AuthFailure::FAILED);
        };
        if !bool::from(expected.ct_eq(&replied.response)) {
            return self.fail(*transaction, AuthFailure::FAILED);
        }
        let answer = match &replied.challenge {
            None => None,
            Some((challenge, sequence)) => match response(End::Controller, challenge, *sequence) {
                None => return self.fail(*transaction, AuthFailure::FAILED),
                answer => answer,
            },
        };
        let head = AuthSuccess1 {
            head: head(AuthKind::DH_HMAC_CHAP, AuthMessage::SUCCESS1, *transaction),
            hash_bytes: hash.bytes() as u8,
            responds: u8::from(answer.is_some()),
            ..AuthSuccess1::new_zeroed()
        };
        // A host that has challenged says first what it makes of the answer.
        let next = match &answer {
            Some(_) => Next::Verdict(*transaction),
            None => {
                self.proven = true;
                Next::Done
            }
        };
        let message = [head.as_bytes(), answer.as_deref().unwrap_or_default()].concat();
        self.step = Step::Saying(message, next);
        None
    }

    fn fail(&mut self, transaction: u16, explanation: AuthFailure) -> Option<Power> {
        let message = AuthFailureMessage {
            head: head(AuthKind::COMMON, AuthMessage::FAILURE1, transaction),
            reason: 1,
            explanation,
        };
        self.proven = false;
        self.step = Step::Saying(message.as_bytes().to_vec(), Next::Failed);
        None
    }
}

fn head(kind: AuthKind, message: AuthMessage, transaction: u16) -> AuthHead {
    AuthHead { kind, message, reserved: U16::ZERO, transaction: U16::new(transaction) }
}

/// What the host offers, and what of it is taken: the first that it knows of what we prefer.
fn negotiate(
    message: &[u8],
    transaction: u16,
    methods: &Methods,
    ends: impl FnOnce() -> Ends,
    chance: &[u8; CHANCE_BYTES],
) -> Result<Box<Agreed>, AuthFailure> {
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
    // As long as it can be, so that it is never none.
    let mut exponent: [u8; EXPONENT_BYTES] = *exponent;
    exponent[0] |= 0x80;
    let sequence = u32::from_le_bytes(sequence.try_into().expect("four bytes"));
    Ok(Box::new(Agreed {
        transaction,
        hash,
        group,
        challenge: challenge[..hash.bytes()].to_vec(),
        // Zero would mean something else.
        sequence: sequence.max(1),
        exponent,
        ends: ends(),
    }))
}

/// The host's reply, and the shared value that has to be computed for it.
fn read_reply(message: &[u8], agreed: &Agreed) -> Result<(Replied, Option<Power>), AuthFailure> {
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
        // Our own challenge sent back would have us make the host's response for it.
        1 if challenge == agreed.challenge => return Err(AuthFailure::FAILED),
        1 => Some((challenge.to_vec(), reply.sequence.get())),
        _ => return Err(AuthFailure::PAYLOAD),
    };
    Ok((Replied { response: response.to_vec(), challenge }, power))
}
