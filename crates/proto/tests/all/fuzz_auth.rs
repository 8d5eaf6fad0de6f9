//! Fuzzes DH-HMAC-CHAP past its first message: both ends speak, and one message is damaged on its
//! way. Nobody is served without the host's key, a host never trusts a controller without the
//! controller's key, and what was said once proves nothing on another connection.
//!
//! Runs a fixed number of rounds, or for `FUZZ_SECONDS` if that is set. `FUZZ_SEED` sets the first
//! seed. A failure prints the seed of its round.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::nvme_auth::with_keys;
use crate::nvme_host::*;
use crate::support::{Chance, rounds};
use contract::Instant;
use nearflash_proto::nvme::auth::{
    Credentials, Group, Hash, HostAuthentication, HostReaction, Methods, PROOF_CHANCE_BYTES,
    ProofFailure, Secret,
};
use nearflash_proto::nvme::{Action, Config, ExecutionOutcome, Fabric, SubmissionStep};
use wire::nvme::{AuthFailure, AuthMessage, FabricsKind, Property, Status};

/// The number of rounds if no time is given.
const ROUNDS: u64 = 600;

/// The messages of an authentication: negotiation, challenge, reply, verdict, and the host's own
/// verdict.
const MESSAGES: usize = 5;

/// The bytes that tell what a message is.
const TELLING: [AuthMessage; 7] = [
    AuthMessage::NEGOTIATE,
    AuthMessage::CHALLENGE,
    AuthMessage::REPLY,
    AuthMessage::SUCCESS1,
    AuthMessage::SUCCESS2,
    AuthMessage::FAILURE1,
    AuthMessage::FAILURE2,
];

#[test]
fn one_message_is_damaged() {
    let mut reached = BTreeSet::new();
    rounds::rounds(ROUNDS, |seed| round(Chance(seed), &mut reached));
    let marks = [
        "served",
        "refused",
        "impostor",
        "nonsense",
        "replayed",
        "reply damaged",
        "survived",
        "verdict damaged",
    ];
    let missed: Vec<_> = marks.iter().filter(|mark| !reached.contains(*mark)).collect();
    assert!(rounds::is_replay() || missed.is_empty(), "never happened: {missed:?}");
}

fn secret(byte: u8) -> Secret {
    Secret::new(&[byte; 48], Some(Hash::Sha384)).unwrap()
}

/// Returns a configuration in which host 1 has key 1, and the controller key 2.
fn configured(hash: Hash, group: Group) -> Config {
    let mut config = with_keys();
    config.methods = Methods { hashes: vec![hash], groups: vec![group] };
    config
}

/// Damages a message in one of several ways.
fn damage(chance: &mut Chance, message: &mut Vec<u8>, earlier: &[Vec<u8>]) {
    let at = chance.below(message.len());
    match chance.below(7) {
        0 => message[at] ^= 1 + chance.below(255) as u8,
        1 => message.truncate(at.max(1)),
        2 => {
            let more = 1 + chance.below(64);
            message.extend(chance.bytes(more));
        }
        3 if message.len() > 1 => message[1] = chance.of(&TELLING).0,
        4 => {
            let other = chance.below(earlier.len());
            message.clone_from(&earlier[other]);
        }
        5 => {
            let byte = chance.of(&[0, 1, 0x7f, 0xff]);
            let end = message.len().min(at + 2);
            message[at..end].fill(byte);
        }
        _ => {
            let from = chance.below(message.len());
            let bytes = chance.below(message.len() - from.max(at)) + 1;
            message.copy_within(from..from + bytes, at);
        }
    }
}

/// A connection of host 1, with the messages that have gone over it.
struct AuthConversation {
    fabric: Arc<Fabric>,
    own: Session,
    said: Vec<Vec<u8>>,
    is_closed: bool,
}

impl AuthConversation {
    fn new(fabric: &Arc<Fabric>, conn: u32) -> AuthConversation {
        let own = open(fabric, &host(1), SUBSYSTEM, 1, place(0, conn)).unwrap();
        AuthConversation { fabric: fabric.clone(), own, said: Vec::new(), is_closed: false }
    }

    /// Sends a message to the controller.
    fn send(&mut self, message: &[u8]) {
        let entry = auth_entry(FabricsKind::AUTHENTICATION_SEND, 1, message.len() as u32);
        let step = self.own.admin.begin(entry.entry());
        assert_eq!(step, SubmissionStep::Controller { payload_bytes: message.len() });
        let out = &mut Vec::new();
        match self.own.admin.execute(entry.entry(), message, Instant::ZERO, out) {
            ExecutionOutcome::Done(answer) => assert!(answer.status.is_ok(), "{answer:?}"),
            ExecutionOutcome::Closing(_) => self.is_closed = true,
            other => panic!("{other:?}"),
        }
        self.said.push(message.to_vec());
    }

    /// Fetches a message of the controller; returns `None` if the controller has none to send.
    fn fetch(&mut self) -> Option<Vec<u8>> {
        let entry = auth_entry(FabricsKind::AUTHENTICATION_RECEIVE, 2, 4096);
        assert_eq!(
            self.own.admin.begin(entry.entry()),
            SubmissionStep::Controller { payload_bytes: 0 }
        );
        let mut out = Vec::new();
        let message = match self.own.admin.execute(entry.entry(), &[], Instant::ZERO, &mut out) {
            ExecutionOutcome::Done(answer) if answer.status.is_ok() => out,
            ExecutionOutcome::Done(answer) => {
                assert_eq!(answer.status, Status::SEQUENCE_ERROR.dnr());
                return None;
            }
            ExecutionOutcome::Closing(_) => {
                self.is_closed = true;
                out
            }
            ExecutionOutcome::Parked => {
                assert!(self.fabric.compute(), "a power is to be computed");
                let mut actions = poll(&self.fabric, 0, Instant::ZERO).into_iter();
                let Some(Action::Complete { data, .. }) = actions.next() else {
                    panic!("nobody was answered");
                };
                self.is_closed = actions.any(|action| matches!(action, Action::Close { .. }));
                data
            }
            other => panic!("{other:?}"),
        };
        self.said.push(message.clone());
        Some(message)
    }

    /// Returns `true` if the connection is there and other commands are served.
    fn is_served(&mut self) -> bool {
        !self.is_closed && self.own.get(Property::STATE, 4).is_ok()
    }
}

/// The outcome of an authentication as the host sees it; `None` if it ended without a verdict.
type Verdict = Option<Result<(), ProofFailure>>;

/// Lets both ends speak, and damages the message `damaged`. Returns the host's view, and `true` if
/// there was such a message.
fn speak(
    talk: &mut AuthConversation,
    proof: &mut HostAuthentication,
    damaged: Option<usize>,
    chance: &mut Chance,
) -> (Verdict, bool) {
    let mut is_done = false;
    let mut pass = |chance: &mut Chance, number: usize, message: &mut Vec<u8>, said: &[_]| {
        if damaged == Some(number) {
            damage(chance, message, said);
            is_done = true;
        }
    };
    let mut message = proof.negotiation();
    let mut verdict = None;
    for number in (0..MESSAGES).step_by(2) {
        let earlier = [talk.said.clone(), vec![message.clone()]].concat();
        pass(chance, number, &mut message, &earlier);
        talk.send(&message);
        if talk.is_closed || number + 1 == MESSAGES {
            break;
        }
        assert!(number > 0 || !talk.is_served(), "a negotiation proves nothing");
        let Some(mut answer) = talk.fetch() else { break };
        pass(chance, number + 1, &mut answer, &talk.said);
        match proof.take(&answer) {
            Ok(HostReaction::Reply(reply)) => message = reply,
            Ok(HostReaction::Last(last)) => (message, verdict) = (last, Some(Ok(()))),
            Ok(HostReaction::Done) => {
                verdict = Some(Ok(()));
                break;
            }
            Err(failure) => {
                verdict = Some(Err(failure));
                break;
            }
        }
        if talk.is_closed {
            break;
        }
    }
    (verdict, is_done)
}

fn round(mut chance: Chance, reached: &mut BTreeSet<&'static str>) {
    let hash = chance.of(&Hash::ALL);
    // Each exchange computes four powers.
    let group = if chance.below(8) == 0 { Group::Ffdhe2048 } else { Group::Null };
    let fabric = fabric(&configured(hash, group));
    let (has_key, asks, is_genuine) = (chance.below(4) > 0, chance.flip(), chance.below(4) > 0);
    let credentials = Credentials {
        host: host(1).nqn,
        subsystem: SUBSYSTEM.to_owned(),
        key: secret(if has_key { 1 } else { 3 }),
        controller_key: asks.then(|| secret(if is_genuine { 2 } else { 4 })),
    };
    let bytes: [u8; PROOF_CHANCE_BYTES] = chance.bytes(PROOF_CHANCE_BYTES).try_into().unwrap();
    let mut proof = HostAuthentication::new(credentials, bytes);
    let damaged = (chance.below(8) > 0).then(|| chance.below(MESSAGES));
    let mut talk = AuthConversation::new(&fabric, 1);
    assert!(!talk.is_served());
    let (verdict, is_damaged) = speak(&mut talk, &mut proof, damaged, &mut chance);
    let is_served = talk.is_served();
    assert!(has_key || !is_served, "served without the key");
    let trusts = verdict == Some(Ok(()));
    assert!(is_genuine || !asks || !trusts, "trusts a controller without its key");
    if !is_damaged {
        let expected = match (has_key, asks && !is_genuine) {
            (false, _) => Err(ProofFailure::Refused(AuthFailure::FAILED)),
            (true, true) => Err(ProofFailure::Impostor),
            (true, false) => Ok(()),
        };
        assert_eq!((verdict, is_served), (Some(expected), expected.is_ok()));
    }
    let marks = [
        ("served", is_served),
        ("refused", matches!(verdict, Some(Err(ProofFailure::Refused(_))))),
        ("impostor", verdict == Some(Err(ProofFailure::Impostor))),
        ("nonsense", verdict == Some(Err(ProofFailure::Nonsense))),
        ("reply damaged", is_damaged && damaged == Some(2)),
        ("verdict damaged", is_damaged && damaged == Some(4)),
        ("survived", is_damaged && is_served),
    ];
    reached.extend(marks.iter().filter(|(_, is_so)| *is_so).map(|(mark, _)| *mark));
    if is_served {
        replay(&fabric, &talk.said);
        reached.insert("replayed");
    }
}

/// Says on a new connection what a host with the key has said, and checks that nobody is served.
fn replay(fabric: &Arc<Fabric>, said: &[Vec<u8>]) {
    let mut talk = AuthConversation::new(fabric, 2);
    for message in said.iter().step_by(2) {
        talk.send(message);
        let answer = if talk.is_closed { None } else { talk.fetch() };
        if answer.is_none() || talk.is_closed {
            break;
        }
    }
    assert!(!talk.is_served(), "an old reply proves a host");
}
