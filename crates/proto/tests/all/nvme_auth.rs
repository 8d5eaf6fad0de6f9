//! Tests of hosts that authenticate, and of hosts that try to do without.

use crate::nvme_host::*;
use contract::Instant;
use nearflash_proto::nvme::auth::{
    Credentials, EXPONENT_BYTES, Group, Hash, HostAuthentication, HostReaction as Proven, Methods,
    ProofFailure, Responder, Response, Secret, augmented,
};
use nearflash_proto::nvme::{
    Action, CloseReason, Config, ExecutionOutcome, Host as Known, Origin, Queue, QueueAddress,
    SubmissionStep,
};
use std::sync::Arc;
use wire::nvme::{
    AuthChallenge, AuthDescriptor, AuthFailure, AuthFailureMessage, AuthHead, AuthKind,
    AuthMessage, AuthNegotiate, AuthReply, AuthSuccess1, AuthSuccess2, ConnectData, FabricsKind,
    Property, Status,
};
use zerocopy::{FromZeros, IntoBytes};

type Fabric = Arc<nearflash_proto::nvme::Fabric>;

const TRANSACTION: u16 = 0x1234;

/// The parameters of a host's authentication.
struct Plan {
    hash: Hash,
    group: Group,
    key: Secret,
    /// The controller's key, if the host challenges the controller.
    controller_key: Option<Secret>,
    reflects: bool,
}

fn secret(byte: u8) -> Secret {
    Secret::new(&[byte; 48], Some(Hash::Sha384)).unwrap()
}

fn plan(hash: Hash, group: Group) -> Plan {
    Plan { hash, group, key: secret(1), controller_key: None, reflects: false }
}

/// Returns a configuration in which host 1 has key 1, and the controller key 2.
pub(crate) fn with_keys() -> Config {
    let mut config = config();
    config.hosts = vec![Known {
        nqn: nqn(&host(1).nqn),
        tenant: None,
        key: Some(secret(1)),
        former_key: None,
        controller_key: Some(secret(2)),
        methods: None,
        tls_key: None,
        former_tls_key: None,
    }];
    config
}

fn send(queue: &mut Queue, message: &[u8]) -> ExecutionOutcome {
    let length = message.len() as u32;
    let entry = auth_entry(FabricsKind::AUTHENTICATION_SEND, 1, length);
    assert_eq!(
        queue.begin(entry.entry()),
        SubmissionStep::Controller { payload_bytes: message.len() }
    );
    queue.execute(entry.entry(), message, Instant::ZERO, &mut Vec::new())
}

/// Fetches a message of the controller, and computes the power that it waits for. Also returns
/// `true` if the connection is closed after the message.
fn receive(fabric: &Fabric, worker: u16, queue: &mut Queue) -> (Vec<u8>, bool) {
    let entry = auth_entry(FabricsKind::AUTHENTICATION_RECEIVE, 2, 4096);
    assert_eq!(queue.begin(entry.entry()), SubmissionStep::Controller { payload_bytes: 0 });
    let mut out = Vec::new();
    match queue.execute(entry.entry(), &[], Instant::ZERO, &mut out) {
        ExecutionOutcome::Done(answer) => {
            assert!(answer.status.is_ok(), "{answer:?}");
            (out, false)
        }
        ExecutionOutcome::Closing(_) => (out, true),
        ExecutionOutcome::Parked => {
            assert!(poll(fabric, worker, Instant::ZERO).is_empty());
            assert!(fabric.compute());
            assert!(!fabric.compute());
            let mut actions = poll(fabric, worker, Instant::ZERO).into_iter();
            let Some(Action::Complete { answer, data, .. }) = actions.next() else {
                panic!("nobody was answered");
            };
            assert!(answer.status.is_ok() && answer.cid == 2);
            let closes = actions.next().is_some_and(|action| {
                matches!(action, Action::Close { reason: CloseReason::NotAuthenticated, .. })
            });
            (data, closes)
        }
        other => panic!("{other:?}"),
    }
}

fn head(kind: AuthKind, message: AuthMessage) -> AuthHead {
    AuthHead { kind, message, reserved: 0.into(), transaction: TRANSACTION.into() }
}

fn negotiation(hash: u8, group: u8) -> Vec<u8> {
    let mut descriptor = AuthDescriptor::new_zeroed();
    (descriptor.protocol, descriptor.hash_count, descriptor.group_count) = (1, 1, 1);
    (descriptor.hashes[0], descriptor.groups[0]) = (hash, group);
    let negotiate = AuthNegotiate {
        head: head(AuthKind::COMMON, AuthMessage::NEGOTIATE),
        concatenation: 0,
        descriptors: 1,
    };
    [negotiate.as_bytes(), descriptor.as_bytes()].concat()
}

/// Authenticates as a host. Returns the controller's explanation on failure.
fn authenticate(
    fabric: &Fabric,
    worker: u16,
    queue: &mut Queue,
    host: &Host,
    plan: &Plan,
) -> Result<(), AuthFailure> {
    send(queue, &negotiation(plan.hash.id(), plan.group.id()));
    let (message, _) = receive(fabric, worker, queue);
    respond(fabric, worker, queue, host, plan, &message)
}

/// Authenticates as a host from the challenge on.
fn respond(
    fabric: &Fabric,
    worker: u16,
    queue: &mut Queue,
    host: &Host,
    plan: &Plan,
    message: &[u8],
) -> Result<(), AuthFailure> {
    let bytes = plan.hash.bytes();
    let challenge: AuthChallenge = read(message);
    assert_eq!(challenge.head.message, AuthMessage::CHALLENGE);
    assert_eq!((challenge.hash, challenge.group), (plan.hash.id(), plan.group.id()));
    assert_eq!(usize::from(challenge.value_bytes.get()), plan.group.bytes());
    let (given, rest) = message[16..].split_at(bytes);
    let exponent = [0x77; EXPONENT_BYTES];
    let own_value = plan.group.public(exponent).map(|power| power.raise()).unwrap_or_default();
    let shared = plan.group.shared(&rest[..plan.group.bytes()], exponent);
    let shared = shared.map(|power| power.raise()).unwrap_or_default();
    let response = |end, challenge: &[u8], sequence, key: &Secret| {
        let challenge = &augmented(plan.hash, challenge, &shared);
        let (hash, transaction) = (plan.hash, TRANSACTION);
        let (host, subsystem) = (&*host.nqn, SUBSYSTEM);
        Response { end, hash, challenge, sequence, transaction, host, subsystem }.with(key)
    };
    let proof = response(Responder::Host, given, challenge.sequence.get(), &plan.key);
    let own_challenge = if plan.reflects { given.to_vec() } else { vec![0x42; bytes] };
    let reply = AuthReply {
        head: head(AuthKind::DH_HMAC_CHAP, AuthMessage::REPLY),
        hash_bytes: bytes as u8,
        challenges: u8::from(plan.controller_key.is_some() || plan.reflects),
        value_bytes: (own_value.len() as u16).into(),
        sequence: 99.into(),
        ..AuthReply::new_zeroed()
    };
    send(queue, &[reply.as_bytes(), &proof, &own_challenge, &own_value].concat());
    let (message, closes) = receive(fabric, worker, queue);
    if read::<AuthHead>(&message).message == AuthMessage::FAILURE1 {
        assert!(closes, "a host that failed is disconnected");
        return Err(read::<AuthFailureMessage>(&message).explanation);
    }
    let success: AuthSuccess1 = read(&message);
    assert_eq!(success.head.message, AuthMessage::SUCCESS1);
    if let Some(key) = &plan.controller_key {
        assert_eq!(success.responds, 1);
        let expected = response(Responder::Controller, &own_challenge, 99, key);
        assert_eq!(message[16..16 + bytes], expected, "the controller is who it says");
        let verdict = AuthSuccess2 {
            head: head(AuthKind::DH_HMAC_CHAP, AuthMessage::SUCCESS2),
            reserved: [0; 10],
        };
        send(queue, verdict.as_bytes());
    }
    Ok(())
}

/// Connects an admin queue whose Connect has required authentication, which has not begun.
fn unproven(fabric: &Fabric) -> Session {
    let entry = connect_entry(0, 32, 0);
    let data: ConnectData = connect_data(&host(1), SUBSYSTEM, 0xffff);
    let port = nearflash_proto::nvme::PortId(1);
    let at = place(1, 50);
    let probe = fabric
        .connect(Origin::plain(port, at), entry.entry(), data.as_bytes(), Instant::ZERO)
        .unwrap();
    assert_eq!(probe.unwrap().1.result.get() >> 16, 2, "authentication is required");
    open(fabric, &host(1), SUBSYSTEM, 1, place(0, 0)).unwrap()
}

#[test]
fn every_hash_and_group_lets_in_who_has_the_key() {
    let fabric = fabric(&with_keys());
    for hash in Hash::ALL {
        for group in [Group::Null, Group::Ffdhe2048] {
            let mut own = unproven(&fabric);
            assert_eq!(own.get(Property::VERSION, 4), Err(Status::AUTHENTICATION_REQUIRED.dnr()));
            let plan = plan(hash, group);
            assert_eq!(authenticate(&fabric, 0, &mut own.admin, &host(1), &plan), Ok(()));
            own.enable();
        }
    }
    let mut own = unproven(&fabric);
    let plan = plan(Hash::Sha512, Group::Ffdhe8192);
    assert_eq!(authenticate(&fabric, 0, &mut own.admin, &host(1), &plan), Ok(()));
}

#[test]
fn the_controller_proves_itself_when_asked() {
    let fabric = fabric(&with_keys());
    let mut own = unproven(&fabric);
    let plan = Plan { controller_key: Some(secret(2)), ..plan(Hash::Sha384, Group::Ffdhe3072) };
    assert_eq!(authenticate(&fabric, 0, &mut own.admin, &host(1), &plan), Ok(()));
    own.enable();
    let mut queue = own.io(1, place(1, 1)).unwrap();
    let flush = wire::nvme::Submission::new(0, 1, 1);
    let SubmissionStep::Refused(answer) = queue.begin(&flush) else {
        panic!("let in without proof")
    };
    assert_eq!(answer.status, Status::AUTHENTICATION_REQUIRED.dnr());
    assert_eq!(authenticate(&fabric, 1, &mut queue, &host(1), &plan), Ok(()));
    assert!(matches!(queue.begin(&flush), SubmissionStep::Device(_)));
}

#[test]
fn who_has_not_the_key_is_told_so_and_disconnected() {
    let fabric = fabric(&with_keys());
    for group in [Group::Null, Group::Ffdhe2048] {
        let mut own = unproven(&fabric);
        let wrong = Plan { key: secret(3), ..plan(Hash::Sha256, group) };
        let outcome = authenticate(&fabric, 0, &mut own.admin, &host(1), &wrong);
        assert_eq!(outcome, Err(AuthFailure::FAILED));
        assert_eq!(own.get(Property::VERSION, 4), Err(Status::AUTHENTICATION_REQUIRED.dnr()));
    }
    let mut own = unproven(&fabric);
    let mirror = Plan { reflects: true, ..plan(Hash::Sha256, Group::Null) };
    let outcome = authenticate(&fabric, 0, &mut own.admin, &host(1), &mirror);
    assert_eq!(outcome, Err(AuthFailure::FAILED), "our own challenge is not answered");
}

fn from(last: u8) -> QueueAddress {
    QueueAddress { address: Some([192, 0, 2, last].into()), ..place(0, 0) }
}

/// Asks for a message that is not ready, and checks that the command waits.
fn ask_early(queue: &mut Queue) {
    let entry = auth_entry(FabricsKind::AUTHENTICATION_RECEIVE, 2, 4096);
    queue.begin(entry.entry());
    let outcome = queue.execute(entry.entry(), &[], Instant::ZERO, &mut Vec::new());
    assert_eq!(outcome, ExecutionOutcome::Parked);
}

#[test]
fn an_address_that_fails_is_answered_late_and_gets_in_with_the_key() {
    let fabric = fabric(&with_keys());
    let wrong = Plan { key: secret(3), ..plan(Hash::Sha256, Group::Null) };
    for _ in 0..16 {
        let mut own = open(&fabric, &host(1), SUBSYSTEM, 1, from(1)).unwrap();
        let outcome = authenticate(&fabric, 0, &mut own.admin, &host(1), &wrong);
        assert_eq!(outcome, Err(AuthFailure::FAILED));
    }
    for group in [Group::Null, Group::Ffdhe2048] {
        let right = plan(Hash::Sha256, group);
        let mut own = open(&fabric, &host(1), SUBSYSTEM, 1, from(1)).unwrap();
        send(&mut own.admin, &negotiation(right.hash.id(), right.group.id()));
        ask_early(&mut own.admin);
        assert!(!fabric.compute(), "nothing is computed for it yet");
        assert_eq!(fabric.wake_at(0), Some(at(1_000)));
        assert!(poll(&fabric, 0, at(999)).is_empty());
        // Other addresses are not affected.
        let mut other = open(&fabric, &host(1), SUBSYSTEM, 1, from(2)).unwrap();
        assert_eq!(authenticate(&fabric, 0, &mut other.admin, &host(1), &right), Ok(()));
        drop(other);
        let mut actions = poll(&fabric, 0, at(1_000));
        if group != Group::Null {
            assert!(actions.is_empty() && fabric.compute());
            actions = poll(&fabric, 0, at(1_000));
        }
        let Some(Action::Complete { data, .. }) = actions.pop() else { panic!("{actions:?}") };
        assert_eq!(respond(&fabric, 0, &mut own.admin, &host(1), &right, &data), Ok(()));
        own.enable();
    }
}

#[test]
fn who_has_powers_computed_and_goes_has_failed() {
    let fabric = fabric(&with_keys());
    let right = plan(Hash::Sha256, Group::Ffdhe2048);
    for _ in 0..16 {
        let mut own = open(&fabric, &host(1), SUBSYSTEM, 1, from(1)).unwrap();
        send(&mut own.admin, &negotiation(right.hash.id(), right.group.id()));
    }
    let mut own = open(&fabric, &host(1), SUBSYSTEM, 1, from(1)).unwrap();
    send(&mut own.admin, &negotiation(right.hash.id(), right.group.id()));
    assert!(!fabric.compute(), "what nobody waits for is not computed, nor what comes next, yet");
    drop(own);
    // A host that has authenticated may disconnect without a penalty.
    for _ in 0..20 {
        let mut own = open(&fabric, &host(1), SUBSYSTEM, 1, from(2)).unwrap();
        let plan = plan(Hash::Sha256, Group::Null);
        assert_eq!(authenticate(&fabric, 0, &mut own.admin, &host(1), &plan), Ok(()));
    }
}

#[test]
fn keys_change_live() {
    let fabric = fabric(&with_keys());
    let known = |key| Known {
        nqn: nqn(&host(1).nqn),
        tenant: None,
        key,
        former_key: None,
        controller_key: None,
        methods: None,
        tls_key: None,
        former_tls_key: None,
    };
    fabric.set_host(known(Some(secret(9)))).unwrap();
    let mut own = unproven(&fabric);
    let old = plan(Hash::Sha256, Group::Null);
    let outcome = authenticate(&fabric, 0, &mut own.admin, &host(1), &old);
    assert_eq!(outcome, Err(AuthFailure::FAILED));
    let mut own = unproven(&fabric);
    let new = Plan { key: secret(9), ..old };
    assert_eq!(authenticate(&fabric, 0, &mut own.admin, &host(1), &new), Ok(()));
    fabric.set_host(known(None)).unwrap();
    connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 7));
}

#[test]
fn the_key_before_goes_on_while_keys_are_changed() {
    let fabric = fabric(&with_keys());
    let known = |former_key| Known {
        nqn: nqn(&host(1).nqn),
        tenant: None,
        key: Some(secret(9)),
        former_key,
        controller_key: None,
        methods: None,
        tls_key: None,
        former_tls_key: None,
    };
    let outcome_of = |key| {
        let plan = Plan { key, ..plan(Hash::Sha256, Group::Null) };
        authenticate(&fabric, 0, &mut unproven(&fabric).admin, &host(1), &plan)
    };
    fabric.set_host(known(Some(secret(1)))).unwrap();
    assert_eq!((outcome_of(secret(1)), outcome_of(secret(9))), (Ok(()), Ok(())));
    assert_eq!(outcome_of(secret(5)), Err(AuthFailure::FAILED));
    fabric.set_host(known(None)).unwrap();
    assert_eq!((outcome_of(secret(1)), outcome_of(secret(9))), (Err(AuthFailure::FAILED), Ok(())));
    fabric.set_host(Known { key: None, ..known(Some(secret(1))) }).unwrap();
    connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 7));
}

#[test]
fn hosts_without_a_key_are_refused_where_keys_are_asked_for() {
    let mut config = with_keys();
    let open_fabric = fabric(&config);
    open(&open_fabric, &host(2), SUBSYSTEM, 1, place(0, 0)).expect("nothing asks for keys");
    config.subsystems[0].must_authenticate = true;
    let fabric = fabric(&config);
    let refused = open(&fabric, &host(2), SUBSYSTEM, 1, place(0, 0)).unwrap_err();
    assert_eq!(refused.status(), Status::CONNECT_INVALID_HOST.dnr());
    unproven(&fabric);
}

/// Checks that controllers from the time before the host had a key are ended when keys are
/// required, since they may be anybody's.
#[test]
fn who_came_before_there_was_a_key_goes_when_keys_are_asked_for() {
    let fabric = fabric(&config());
    let _early = connect(&fabric, &host(1), SUBSYSTEM, 1, place(0, 0));
    fabric.set_host(with_keys().hosts.remove(0)).unwrap();
    assert_eq!(fabric.controllers().len(), 1, "nothing asks for keys yet");
    let mut proven = unproven(&fabric);
    let plan = plan(Hash::Sha256, Group::Null);
    assert_eq!(authenticate(&fabric, 0, &mut proven.admin, &host(1), &plan), Ok(()));
    fabric.set_must_authenticate(&nqn(SUBSYSTEM), true).unwrap();
    let left: Vec<u16> = fabric.controllers().iter().map(|own| own.cntlid).collect();
    assert_eq!(left, [proven.admin.cntlid()]);
}

#[test]
fn only_methods_that_are_allowed_are_agreed_on() {
    let mut config = with_keys();
    config.methods = Methods { hashes: vec![Hash::Sha512], groups: vec![Group::Ffdhe2048] };
    let fabric = fabric(&config);
    let mut own = unproven(&fabric);
    let good = plan(Hash::Sha512, Group::Ffdhe2048);
    assert_eq!(authenticate(&fabric, 0, &mut own.admin, &host(1), &good), Ok(()));
    let cases = [
        (Hash::Sha256, Group::Ffdhe2048, AuthFailure::HASH),
        (Hash::Sha512, Group::Null, AuthFailure::GROUP),
    ];
    for (hash, group, expected) in cases {
        let mut own = unproven(&fabric);
        send(&mut own.admin, &negotiation(hash.id(), group.id()));
        let (said, closes) = receive(&fabric, 0, &mut own.admin);
        assert_eq!((read::<AuthFailureMessage>(&said).explanation, closes), (expected, true));
    }
}

#[test]
fn other_methods_hold_from_the_next_authentication_on_and_a_host_may_have_its_own() {
    let fabric = fabric(&with_keys());
    let only = |hash| Methods { hashes: vec![hash], groups: vec![Group::Null] };
    let refused = |hash: Hash| {
        let mut own = unproven(&fabric);
        send(&mut own.admin, &negotiation(hash.id(), Group::Null.id()));
        let (said, _) = receive(&fabric, 0, &mut own.admin);
        read::<AuthFailureMessage>(&said).explanation
    };
    let proves = |hash| {
        let mut own = unproven(&fabric);
        authenticate(&fabric, 0, &mut own.admin, &host(1), &plan(hash, Group::Null))
    };
    let mut first = unproven(&fabric);
    let old = plan(Hash::Sha256, Group::Null);
    assert_eq!(authenticate(&fabric, 0, &mut first.admin, &host(1), &old), Ok(()));
    fabric.set_methods(only(Hash::Sha512));
    assert_eq!(fabric.controllers().len(), 1, "who has proved itself stays");
    assert_eq!(refused(Hash::Sha256), AuthFailure::HASH);
    assert_eq!(proves(Hash::Sha512), Ok(()));
    let with = |methods| Known { methods, ..with_keys().hosts.remove(0) };
    fabric.set_host(with(Some(only(Hash::Sha384)))).unwrap();
    assert_eq!(refused(Hash::Sha512), AuthFailure::HASH);
    assert_eq!(proves(Hash::Sha384), Ok(()));
    fabric.set_host(with(None)).unwrap();
    assert_eq!(refused(Hash::Sha384), AuthFailure::HASH);
    assert_eq!(proves(Hash::Sha512), Ok(()));
}

/// A timeout ends the connection of an I/O queue, and the whole controller of an admin queue.
#[test]
fn a_host_that_stops_halfway_is_disconnected_after_a_minute() {
    let fabric = fabric(&with_keys());
    let mut own = unproven(&fabric);
    let plan = plan(Hash::Sha256, Group::Null);
    assert_eq!(authenticate(&fabric, 0, &mut own.admin, &host(1), &plan), Ok(()));
    own.enable();
    let mut half = own.io(1, place(1, 1)).unwrap();
    send(&mut half, &negotiation(Hash::Sha256.id(), Group::Null.id()));
    let mut whole = own.io(2, place(1, 2)).unwrap();
    assert_eq!(authenticate(&fabric, 1, &mut whole, &host(1), &plan), Ok(()));
    let at = |seconds| Instant::ZERO + std::time::Duration::from_secs(seconds);
    let ended = |worker, seconds| {
        let actions = poll(&fabric, worker, at(seconds)).into_iter();
        let close = |action| match action {
            Action::Close { conn, reason: CloseReason::NotAuthenticated } => conn,
            other => panic!("{other:?}"),
        };
        actions.map(close).collect::<Vec<_>>()
    };
    assert_eq!(fabric.wake_at(0), Some(at(60)));
    assert_eq!([ended(0, 59), ended(1, 59)], [vec![], vec![]]);
    assert_eq!([ended(0, 60), ended(1, 60)], [vec![], vec![place(1, 1).conn]]);
    drop(half);
    assert_eq!(fabric.wake_at(0), None);
    let late = open(&fabric, &host(1), SUBSYSTEM, 1, place(0, 9)).unwrap();
    assert_eq!(ended(0, 60), [place(0, 9).conn]);
    drop(late);
    let left: Vec<u16> = fabric.controllers().iter().map(|own| own.cntlid).collect();
    assert_eq!(left.len(), 1, "the other host's controller stays");
}

#[test]
fn messages_that_make_no_sense_fail() {
    let fabric = fabric(&with_keys());
    let cases = [
        (negotiation(4, 0), AuthFailure::HASH),
        (negotiation(1, 9), AuthFailure::GROUP),
        (negotiation(1, 0)[..40].to_vec(), AuthFailure::PAYLOAD),
        (vec![1, 2, 0, 0, 0, 0], AuthFailure::MESSAGE),
        (vec![1], AuthFailure::PAYLOAD),
    ];
    for (message, expected) in cases {
        let mut own = unproven(&fabric);
        send(&mut own.admin, &message);
        let (said, closes) = receive(&fabric, 0, &mut own.admin);
        assert_eq!(read::<AuthFailureMessage>(&said).explanation, expected);
        assert!(closes);
    }
    let mut own = unproven(&fabric);
    let entry = auth_entry(FabricsKind::AUTHENTICATION_RECEIVE, 2, 4096);
    let early = run(&mut own.admin, entry.entry(), &[], Instant::ZERO);
    assert_eq!(early, Err(Status::SEQUENCE_ERROR.dnr()));
}

/// Runs the crate's host side of an authentication against the controller.
fn prove(
    fabric: &Fabric,
    queue: &mut Queue,
    proof: &mut HostAuthentication,
) -> Result<(), ProofFailure> {
    send(queue, &proof.negotiation());
    loop {
        let (message, _) = receive(fabric, 0, queue);
        match proof.take(&message)? {
            Proven::Reply(reply) => send(queue, &reply),
            Proven::Last(message) => {
                send(queue, &message);
                return Ok(());
            }
            Proven::Done => return Ok(()),
        };
    }
}

#[test]
fn the_hosts_end_proves_itself_and_wants_proof() {
    let fabric = fabric(&with_keys());
    let proof = |key, controller_key, chance| {
        let (host, subsystem) = (host(1).nqn, SUBSYSTEM.to_owned());
        HostAuthentication::new(Credentials { host, subsystem, key, controller_key }, [chance; _])
    };
    let mut own = unproven(&fabric);
    assert_eq!(prove(&fabric, &mut own.admin, &mut proof(secret(1), None, 1)), Ok(()));
    own.enable();
    let mut own = unproven(&fabric);
    let mut both = proof(secret(1), Some(secret(2)), 2);
    assert_eq!(prove(&fabric, &mut own.admin, &mut both), Ok(()));
    own.enable();
    let mut own = unproven(&fabric);
    let outcome = prove(&fabric, &mut own.admin, &mut proof(secret(3), None, 3));
    assert_eq!(outcome, Err(ProofFailure::Refused(AuthFailure::FAILED)));
    let mut own = unproven(&fabric);
    let outcome = prove(&fabric, &mut own.admin, &mut proof(secret(1), Some(secret(4)), 4));
    assert_eq!(outcome, Err(ProofFailure::Impostor));
}

/// Changes one part of an otherwise valid challenge.
#[test]
fn challenges_that_are_cut_or_anothers_make_no_sense() {
    let fabric = fabric(&with_keys());
    let (host, subsystem) = (host(1).nqn, SUBSYSTEM.to_owned());
    let credentials = Credentials { host, subsystem, key: secret(1), controller_key: None };
    let proof = HostAuthentication::new(credentials, [5; _]);
    let mut own = unproven(&fabric);
    send(&mut own.admin, &proof.negotiation());
    let (padded, _) = receive(&fabric, 0, &mut own.admin);
    let challenge: AuthChallenge = read(&padded);
    let length = 16 + Hash::Sha256.bytes() + usize::from(challenge.value_bytes.get());
    assert_eq!(challenge.hash, Hash::Sha256.id());
    let whole = &padded[..length];
    let take = |message: &[u8]| proof.clone().take(message);
    assert!(matches!(take(whole), Ok(Proven::Reply(_))));
    for cut in 0..whole.len() {
        assert_eq!(take(&whole[..cut]), Err(ProofFailure::Nonsense), "cut after {cut} bytes");
    }
    let with = |at: usize, byte: u8| {
        let mut message = whole.to_vec();
        assert_ne!(std::mem::replace(&mut message[at], byte), byte);
        message
    };
    // The message, the transaction, the hash and the group (Base 8.13.5.3).
    for (at, byte) in [(1, 0x7f), (4, 6), (8, 9), (9, 9)] {
        assert_eq!(take(&with(at, byte)), Err(ProofFailure::Nonsense), "byte {at}");
    }
}

/// A success without a challenge proves nothing.
#[test]
fn a_controller_that_only_says_that_all_is_well_has_proven_nothing() {
    let credentials = Credentials {
        host: host(1).nqn,
        subsystem: SUBSYSTEM.to_owned(),
        key: secret(1),
        controller_key: Some(secret(2)),
    };
    let proof = HostAuthentication::new(credentials, [7; _]);
    let own: AuthHead = read(&proof.negotiation());
    let success = AuthSuccess1 {
        head: AuthHead {
            transaction: own.transaction,
            ..head(AuthKind::DH_HMAC_CHAP, AuthMessage::SUCCESS1)
        },
        hash_bytes: 32,
        ..AuthSuccess1::new_zeroed()
    };
    assert_eq!(proof.clone().take(success.as_bytes()), Err(ProofFailure::Nonsense));
    let challenge = AuthChallenge {
        head: AuthHead { message: AuthMessage::CHALLENGE, ..success.head },
        hash_bytes: 32,
        hash: Hash::Sha256.id(),
        sequence: 9.into(),
        ..AuthChallenge::new_zeroed()
    };
    let challenge = [challenge.as_bytes(), &[5; 32]].concat();
    let mut asked = proof;
    assert!(matches!(asked.take(&challenge), Ok(Proven::Reply(_))));
    assert_eq!(asked.take(&challenge), Err(ProofFailure::Nonsense), "one response for one chance");
    assert_eq!(asked.take(success.as_bytes()), Err(ProofFailure::Impostor));
}

#[test]
fn a_proof_goes_on_while_its_connection_moves() {
    let fabric = fabric(&with_keys());
    let Session { mut admin, .. } = unproven(&fabric);
    send(&mut admin, &negotiation(Hash::Sha256.id(), Group::Ffdhe2048.id()));
    let entry = auth_entry(FabricsKind::AUTHENTICATION_RECEIVE, 2, 4096);
    admin.begin(entry.entry());
    let outcome = admin.execute(entry.entry(), &[], Instant::ZERO, &mut Vec::new());
    assert_eq!(outcome, ExecutionOutcome::Parked, "its power is not computed");
    let number = admin.detach().unwrap();
    assert!(fabric.compute());
    let at = place(1, 9);
    let mut landed = attach(&fabric, number, at.worker, at.conn).unwrap();
    let [Action::Complete { conn, answer, data }] = &poll(&fabric, 1, Instant::ZERO)[..] else {
        panic!("nobody was answered");
    };
    assert_eq!((*conn, answer.cid), (at.conn, 2));
    // The shared value was computed for the old place, and still gives the right response here.
    let right = plan(Hash::Sha256, Group::Ffdhe2048);
    assert_eq!(respond(&fabric, 1, &mut landed, &host(1), &right, data), Ok(()));
}

#[test]
fn a_proof_that_moved_still_wants_the_key() {
    let fabric = fabric(&with_keys());
    let Session { mut admin, .. } = unproven(&fabric);
    send(&mut admin, &negotiation(Hash::Sha256.id(), Group::Ffdhe2048.id()));
    let (message, _) = receive(&fabric, 0, &mut admin);
    let number = admin.detach().unwrap();
    let at = place(1, 9);
    let mut landed = attach(&fabric, number, at.worker, at.conn).unwrap();
    let wrong = Plan { key: secret(3), ..plan(Hash::Sha256, Group::Ffdhe2048) };
    let outcome = respond(&fabric, 1, &mut landed, &host(1), &wrong, &message);
    assert_eq!(outcome, Err(AuthFailure::FAILED));
}
