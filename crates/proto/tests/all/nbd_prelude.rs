//! Tests of NBD before TLS: the messages of both ends, and the bytes that are passed on to a
//! session.

use contract::{CompletedPrelude, Prelude, PreludeOutcome, TlsFailure};
use nearflash_proto::nbd::{ClientPrelude, NbdSession, OPTIONS_BYTES_MAX, ServerPrelude};
use wire::nbd::{OptionKind, OptionReply};

use crate::nbd_client::{hello, named, option, option_replies};
use crate::nbd_rig::Rig;

/// The client's flags: fixed newstyle, without zeroes.
pub(crate) const FLAGS: [u8; 4] = [0, 0, 0, 3];

/// The size in bytes of a server's greeting.
const GREETING: usize = 18;

/// The outcome of a prelude: the bytes that it sent, its end, and the bytes that it did not take.
pub(crate) struct Outcome<'a> {
    pub(crate) said: Vec<u8>,
    pub(crate) end: Result<Option<PreludeOutcome>, TlsFailure>,
    pub(crate) left: &'a [u8],
}

/// Passes the bytes that a peer sends to a prelude, in pieces of up to `most` bytes.
pub(crate) fn play<'a>(prelude: &mut dyn Prelude, sent: &'a [u8], most: usize) -> Outcome<'a> {
    let (mut said, mut left) = (Vec::new(), sent);
    let mut end = prelude.take(&[], &mut said);
    while end == Ok(None) && !left.is_empty() {
        let wants = prelude.wants();
        assert!(wants > 0, "it waits for nothing");
        let (piece, rest) = left.split_at(wants.min(most).min(left.len()));
        left = rest;
        end = prelude.take(piece, &mut said);
    }
    Outcome { said, end, left }
}

/// Passes a client's flags and these options to a server's prelude. Returns the types of its
/// replies, and the outcome.
fn server(is_required: bool, options: &[Vec<u8>]) -> (Vec<OptionReply>, Outcome<'static>) {
    let sent = [&FLAGS[..], &options.concat()].concat().leak();
    for most in [1, 7] {
        let whole = play(&mut ServerPrelude::new(is_required), sent, usize::MAX);
        let cut = play(&mut ServerPrelude::new(is_required), sent, most);
        assert_eq!((whole.said, whole.end, whole.left), (cut.said, cut.end, cut.left));
    }
    let outcome = play(&mut ServerPrelude::new(is_required), sent, usize::MAX);
    let mut bytes = &outcome.said[GREETING..];
    let count = bytes.len() / 20; // none has data
    let replies = option_replies(&mut bytes, count).into_iter().map(|reply| reply.1).collect();
    (replies, outcome)
}

fn secured() -> Result<Option<PreludeOutcome>, TlsFailure> {
    Ok(Some(PreludeOutcome::Secure(CompletedPrelude {
        is_secured: true,
        heard: FLAGS.into(),
        proven: None,
    })))
}

#[test]
fn where_tls_is_required_nothing_else_is_answered() {
    let options = [
        option(OptionKind::LIST, &[]),
        option(OptionKind::STRUCTURED_REPLY, &[]),
        option(OptionKind::GO, &named("first")),
        option(OptionKind::INFO, &named("first")),
        option(OptionKind(77), &[7; 2000]),
        option(OptionKind::STARTTLS, b"data"),
        option(OptionKind::STARTTLS, &[]),
        b"behind it".to_vec(),
    ];
    let (replies, outcome) = server(true, &options);
    let mut expected = vec![OptionReply::TLS_REQUIRED; 5];
    expected.extend([OptionReply::INVALID, OptionReply::ACK]);
    assert_eq!((replies, outcome.end), (expected, secured()));
    assert_eq!(outcome.left, b"behind it", "it may be of the TLS handshake");
}

#[test]
fn who_does_not_want_tls_ends_where_it_is_required() {
    let plain = Err(TlsFailure::Plain);
    let (replies, outcome) = server(true, &[option(OptionKind::EXPORT_NAME, b"first")]);
    assert_eq!((replies, outcome.end), (vec![], plain.clone()));
    let (replies, outcome) = server(true, &[option(OptionKind::ABORT, &[])]);
    assert_eq!((replies, outcome.end), (vec![OptionReply::ACK], plain));
}

#[test]
fn a_client_of_the_plain_newstyle_has_no_tls() {
    let sent = [&[0; 4][..], &option(OptionKind::STARTTLS, &[])].concat();
    let required = play(&mut ServerPrelude::new(true), &sent, 99);
    assert_eq!((required.said.len(), required.end), (GREETING, Err(TlsFailure::Plain)));
    let allowed = play(&mut ServerPrelude::new(false), &sent, 99);
    assert_eq!(allowed.said.len(), GREETING);
    assert!(matches!(allowed.end, Ok(Some(PreludeOutcome::Plain(_)))), "the session refuses it");
}

#[test]
fn what_makes_no_sense_or_has_no_end_is_cut_off() {
    for is_required in [true, false] {
        let mut prelude = ServerPrelude::new(is_required);
        let end = play(&mut prelude, b"GET / HTTP/1.1\r\n", 99).end;
        assert_eq!(end, Err(TlsFailure::Misbehaved));
        let (_, outcome) = server(is_required, &[b"no option at all".to_vec()]);
        assert_eq!(outcome.end, Err(TlsFailure::Misbehaved));
        let many = vec![option(OptionKind::STARTTLS, &[0; 1000]); 70];
        let (replies, outcome) = server(is_required, &many);
        assert_eq!(outcome.end, Err(TlsFailure::Misbehaved));
        assert_eq!(replies.len(), OPTIONS_BYTES_MAX / 1016);
        let mut endless = option(OptionKind::STARTTLS, &[]);
        endless[12..].fill(0xff);
        assert_eq!(server(is_required, &[endless]).1.end, Err(TlsFailure::Misbehaved));
    }
}

#[test]
fn a_client_that_passes_tls_by_is_answered_as_without() {
    for first in [
        option(OptionKind::LIST, &[]),
        option(OptionKind::STRUCTURED_REPLY, &[]),
        option(OptionKind::EXPORT_NAME, b"first"),
        option(OptionKind::GO, &named("none")),
        option(OptionKind::ABORT, &[]),
    ] {
        let (replies, outcome) = server(false, std::slice::from_ref(&first));
        assert!(replies.is_empty());
        let Ok(Some(PreludeOutcome::Plain(opening))) = outcome.end else { panic!("it goes on") };
        assert!(!opening.is_secured);
        let mut after = Rig::of(NbdSession::after(&opening), 8);
        after.receive(outcome.left);
        let mut alone = Rig::new(8);
        alone.receive(&[&FLAGS[..], &first].concat());
        assert_eq!([&outcome.said, &after.output[..]].concat(), alone.output, "{first:?}");
        assert_eq!(after.ended, alone.ended);
    }
}

#[test]
fn nothing_of_the_time_before_tls_is_good_behind_it() {
    let options = [option(OptionKind::STRUCTURED_REPLY, &[]), option(OptionKind::STARTTLS, &[])];
    let Ok(Some(PreludeOutcome::Secure(opening))) = server(true, &options).1.end else {
        panic!("TLS")
    };
    let mut rig = Rig::of(NbdSession::after(&opening), 8);
    assert!(rig.output.is_empty(), "no second greeting");
    rig.receive(&option(OptionKind::STARTTLS, &[]));
    rig.receive(&option(OptionKind::GO, &named("first")));
    let mut bytes = &rig.output[..];
    let replies = option_replies(&mut bytes, 4);
    assert_eq!(replies[0].1, OptionReply::INVALID, "a second time");
    // No structured replies: the flag of reads in one piece is not set.
    assert_eq!(&replies[1].2[10..], [0x0d, 0x6d]);
    assert_eq!(replies[3].1, OptionReply::ACK);
}

#[test]
fn who_has_passed_tls_by_does_not_get_it_later() {
    let (_, outcome) = server(false, &[option(OptionKind::LIST, &[])]);
    let Ok(Some(PreludeOutcome::Plain(opening))) = outcome.end else { panic!("it goes on") };
    let mut rig = Rig::of(NbdSession::after(&opening), 8);
    rig.output.clear();
    rig.receive(&option(OptionKind::STARTTLS, &[]));
    let mut bytes = &rig.output[..];
    assert_eq!(option_replies(&mut bytes, 1)[0].1, OptionReply::POLICY);
    rig.receive(&hello("first", true)[FLAGS.len()..]);
    assert_eq!(rig.ended, None);
}

#[test]
fn both_ends_come_to_terms() {
    for is_required in [true, false] {
        let (mut server, mut client) = (ServerPrelude::new(is_required), ClientPrelude::default());
        let mut said = Vec::new();
        assert_eq!(server.take(&[], &mut said), Ok(None));
        let asked = play(&mut client, &said, 5);
        assert_eq!(asked.end, Ok(None));
        let answered = play(&mut server, &asked.said, 3);
        assert_eq!((answered.end, answered.left), (secured(), &[][..]));
        let end = play(&mut client, &answered.said, 1).end;
        assert!(matches!(end, Ok(Some(PreludeOutcome::Secure(_)))), "{end:?}");
    }
}

#[test]
fn a_client_does_not_go_on_without_tls() {
    let greeting = play(&mut ServerPrelude::new(true), &[], 1).said;
    let answered = |reply: OptionReply, data: &[u8]| {
        let mut answer = option(OptionKind::STARTTLS, data);
        answer.splice(..12, [0; 16]);
        answer[..8].copy_from_slice(&0x0003_e889_0455_65a9u64.to_be_bytes());
        answer[8..12].copy_from_slice(&OptionKind::STARTTLS.0.to_be_bytes());
        answer[12..16].copy_from_slice(&reply.0.to_be_bytes());
        let sent = [&greeting[..], &answer].concat();
        play(&mut ClientPrelude::default(), &sent, 99).end
    };
    for reply in [OptionReply::UNSUPPORTED, OptionReply::POLICY] {
        assert_eq!(answered(reply, b""), Err(TlsFailure::Plain));
        assert_eq!(answered(reply, b"why not"), Err(TlsFailure::Plain));
    }
    assert_eq!(answered(OptionReply::ACK, b"data"), Err(TlsFailure::Misbehaved));
    assert!(answered(OptionReply::ACK, b"").is_ok());
    let end = play(&mut ClientPrelude::default(), b"SSH-2.0-OpenSSH_9.2p1", 99).end;
    assert_eq!(end, Err(TlsFailure::Misbehaved));
}
