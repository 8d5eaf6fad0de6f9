//! Tests of wrong members, damage, and members that fail: the error has a sentence, and nothing is
//! overwritten.

use std::format;
use std::vec;
use std::vec::Vec;

use contract::Status;
use zerocopy::{FromBytes, IntoBytes};

use super::members::Members;
use super::run::{Sizes, TrialRun};
use crate::command::{CommandToken, Settings};
use crate::error::Error;
use crate::geometry::{Shape, VIRTUAL_PAGES_MAX};
use crate::layout::{Superblock, VERSION, VERSION_THIN, checksum};
use crate::open::{create, open};
use crate::policy::Policy;

const SIZES: Sizes = Sizes {
    members: 2,
    member_pages: 260,
    segment_pages: 8,
    spare_per_mille: 1500,
    policy: Policy::HEAT3,
    commits: false,
    virtual_pages: None,
};

fn shape(uuid: &[u8; 16]) -> Shape {
    Shape {
        uuid: *uuid,
        segment_pages: 8,
        spare_per_mille: 1500,
        policy: Policy::HEAT3,
        virtual_pages: None,
    }
}

fn created(uuid: &[u8; 16], count: usize) -> Members {
    let mut members = Members::new(count, 260);
    create(&mut members, &shape(uuid)).unwrap();
    members
}

/// Opens members that must be refused and left as they are, and returns the error.
fn refusal(mut members: Members) -> Error {
    let before = members.bytes();
    let error = match open(&mut members, Settings::new(Policy::HEAT3)) {
        Ok(_) => panic!("they are refused"),
        Err(error) => error,
    };
    assert!(members.bytes() == before, "nothing is overwritten");
    let sentence = format!("{error}");
    assert!(sentence.contains("; "), "it says what to do: {sentence}");
    error
}

#[test]
fn wrong_members_are_refused() {
    let one = created(b"one volume......", 2);
    let two = created(b"another volume..", 2);
    let [first, second] = [one.0[0].clone(), one.0[1].clone()];
    let order = Members(vec![second.clone(), first.clone()]);
    assert_eq!(refusal(order), Error::Order(0, 1));
    assert_eq!(refusal(Members(vec![first.clone(), two.0[1].clone()])), Error::Foreign(1));
    assert_eq!(refusal(Members(vec![first.clone()])), Error::Count(1, 2));
    assert_eq!(refusal(Members::new(1, 180)), Error::NoVolume(0));
    let empty = Members::new(1, 180).0[0].clone();
    assert_eq!(refusal(Members(vec![first, empty])), Error::NoVolume(1));
}

#[test]
fn a_volume_is_not_created_over_another() {
    let mut members = created(b"one volume......", 2);
    let before = members.bytes();
    assert_eq!(create(&mut members, &shape(b"another volume..")), Err(Error::InUse(0)));
    assert!(members.bytes() == before);
    let mut small = Members::new(1, 60);
    assert_eq!(create(&mut small, &shape(b"one volume......")), Err(Error::TooSmall));
    assert!(small.0[0].unflushed() == 0);
}

#[test]
fn one_damaged_superblock_is_survived_and_two_are_not() {
    let mut members = created(b"one volume......", 2);
    members.0[1].damage(0, 50);
    let (_, opened) = open(&mut members.clone(), Settings::new(Policy::HEAT3)).unwrap();
    assert_eq!((opened.damaged_copies, opened.clean), (1, false));
    members.0[1].damage(1, 50);
    assert_eq!(refusal(members), Error::Damaged(1));
}

#[test]
fn a_newer_format_is_refused_by_its_number() {
    let mut members = created(b"one volume......", 1);
    let mut page = vec![0; 4096];
    members.0[0].read(0, &mut page);
    let at = core::mem::offset_of!(Superblock, version);
    page[at..at + 2].copy_from_slice(&(VERSION_THIN + 1).to_le_bytes());
    let crc = checksum(&page[..4092]);
    page[4092..].copy_from_slice(&crc.to_le_bytes());
    members.0[0].write(1, &page);
    assert_eq!(refusal(members), Error::Version(0, VERSION_THIN + 1));
}

#[test]
fn volumes_that_are_not_thin_keep_their_format() {
    let [whole, thin] = [None, Some(1 << 20)].map(|virtual_pages| {
        let mut members = Members::new(1, 260);
        let shape = Shape { virtual_pages, ..shape(b"one volume......") };
        create(&mut members, &shape).unwrap();
        let mut page = vec![0; 4096];
        members.0[0].read(0, &mut page);
        (Superblock::read_from_bytes(&page).unwrap(), members)
    });
    assert_eq!((whole.0.version.get(), thin.0.version.get()), (VERSION, VERSION_THIN));
    assert_eq!(whole.0.thin.as_bytes(), [0; 12]);
    let (volume, _) = open(&mut thin.1.clone(), Settings::new(Policy::HEAT3)).unwrap();
    let geometry = volume.geometry();
    assert_eq!((geometry.pages, geometry.thin), (1 << 20, true));
    assert!(geometry.capacity < 260);
    let mut large = Members::new(1, 260);
    let shape = |virtual_pages| Shape { virtual_pages, ..shape(b"one volume......") };
    assert_eq!(create(&mut large, &shape(Some(1 << 32))), Err(Error::VirtualSize));
    assert_eq!(create(&mut large, &shape(Some(0))), Err(Error::VirtualSize));
    create(&mut large, &shape(Some(VIRTUAL_PAGES_MAX.into()))).unwrap();
}

#[test]
fn a_damaged_checkpoint_is_refused() {
    let mut members = created(b"one volume......", 1);
    for page in 2..20 {
        members.0[0].damage(page, 9);
    }
    assert_eq!(refusal(members), Error::Checkpoint(0));
}

#[test]
fn a_volume_that_was_closed_opens_without_a_log() {
    let mut run = TrialRun::new(&SIZES, 7, None);
    let pages = run.volume.geometry().pages;
    (0..300).for_each(|_| {
        run.request(pages);
        run.drain().unwrap();
    });
    run.volume.close();
    while !run.volume.is_closed() {
        run.drain().unwrap();
    }
    let before = run.read_all().unwrap();
    let (_, opened) = open(&mut run.members.clone(), Settings::new(Policy::HEAT3)).unwrap();
    assert!(opened.clean && opened.batches == 0);
    run.crash(true).unwrap();
    assert_eq!(run.read_all().unwrap(), before);
}

#[test]
fn a_failed_batch_goes_to_another_segment_and_the_third_failure_ends_writes() {
    let mut run = TrialRun::new(&SIZES, 8, None);
    for failures in [1, 2] {
        assert!(run.write(3, 1, false, false));
        run.turn().unwrap();
        for _ in 0..failures {
            let batch = run.flying.iter().position(|c| matches!(c.token, CommandToken::Batch(_)));
            run.end(batch.expect("a batch is on its way"), Status::MediaError).unwrap();
            run.turn().unwrap();
        }
        run.drain().unwrap();
    }
    run.crash(false).unwrap();
    assert!(run.write(3, 1, false, false));
    run.turn().unwrap();
    let mut ends = Vec::new();
    for _ in 0..3 {
        let batch = run.flying.iter().position(|c| matches!(c.token, CommandToken::Batch(_)));
        ends.push(run.end(batch.expect("a batch is on its way"), Status::MediaError));
        let _ = run.turn();
    }
    assert!(ends[2].is_err() && ends[..2].iter().all(Result::is_ok));
    assert!(run.volume.report().read_only);
    assert!(run.read(3, 1));
    run.turn().unwrap();
}

/// Returns the members of a run whose process died after three writes of two pages, and the
/// member's page where the middle one's header lies. `flushed` of the writes are durable.
fn three_batches(flushed: usize) -> (Members, u64) {
    let sizes = Sizes { members: 1, member_pages: 400, segment_pages: 16, ..SIZES };
    let mut run = TrialRun::new(&sizes, 9, None);
    for number in 1..=3 {
        assert!(run.write(2 * number as u32, 2, false, false));
        run.drain().unwrap();
        if number == flushed {
            assert!(run.flush());
            run.drain().unwrap();
        }
    }
    run.members.keep_all();
    let at = run.volume.geometry().locate(run.volume.store.map.place(4)).1 - 1;
    (run.members, at)
}

#[test]
fn a_damaged_durable_batch_with_a_later_one_behind_is_refused() {
    for byte in [3, 30, 70, 90] {
        let (mut members, at) = three_batches(2);
        members.0[0].damage(at, byte);
        assert!(matches!(refusal(members), Error::Batch(_)), "byte {byte}");
    }
}

#[test]
fn a_batch_that_no_flush_covers_may_be_missing_before_a_later_one() {
    let (mut members, at) = three_batches(1);
    members.0[0].damage(at, 30);
    let (_, opened) = open(&mut members, Settings::new(Policy::HEAT3)).unwrap();
    assert_eq!(opened.batches, 1);
}

/// Returns the index of a command in flight with such a token.
fn find(run: &TrialRun, is_it: impl Fn(CommandToken) -> bool) -> usize {
    run.flying.iter().position(|command| is_it(command.token)).expect("it is in flight")
}

#[test]
fn the_first_copy_of_a_repeated_batch_does_not_count_as_durable() {
    let mut run = TrialRun::new(&SIZES, 10, None);
    assert!(run.write(3, 1, false, false));
    run.turn().unwrap();
    let stamp = run.volume.store.clock.next_stamp - 1;
    let batch = find(&run, |token| matches!(token, CommandToken::Batch(_)));
    run.end(batch, Status::MediaError).unwrap();
    run.turn().unwrap();
    assert!(run.flush());
    run.turn().unwrap();
    for _ in 0..SIZES.members {
        let flush = find(&run, |token| matches!(token, CommandToken::Flush(_)));
        run.complete(flush).unwrap();
    }
    assert!(run.volume.store.flusher.durable_below <= stamp);
    run.drain().unwrap();
}

/// Ends all commands in flight, whatever the replies say, and asserts that no request is left.
fn end_all(run: &mut TrialRun) {
    for _ in 0..1_000 {
        let _ = run.turn();
        if !run.flying.is_empty() {
            let _ = run.complete(0);
        }
    }
    assert_eq!(run.unanswered(), 0, "every request is answered");
}

#[test]
fn requests_are_answered_after_a_failed_flush() {
    let mut run = TrialRun::new(&SIZES, 11, None);
    assert!(run.commit(vec![1, 5]));
    run.turn().unwrap();
    let batch = find(&run, |token| matches!(token, CommandToken::Batch(_)));
    run.complete(batch).unwrap();
    run.turn().unwrap();
    // On its way, waiting for that, and a discard of a page on its way.
    assert!(run.commit(vec![2, 6]));
    run.turn().unwrap();
    assert!(run.commit(vec![2, 7]) && run.discard(2, 1));
    run.turn().unwrap();
    let flush = find(&run, |token| matches!(token, CommandToken::Flush(_)));
    let failed = run.end(flush, Status::MediaError);
    assert!(failed.is_err() && run.volume.report().read_only);
    assert!(run.flush(), "a flush is taken, and fails");
    end_all(&mut run);
}

#[test]
fn requests_are_answered_after_a_failed_checkpoint() {
    let sizes = Sizes { members: 1, ..SIZES };
    let mut run = TrialRun::new(&sizes, 12, None);
    let pages = run.volume.geometry().pages;
    while !run.flying.iter().any(|command| command.token == CommandToken::Checkpoint) {
        run.request(pages);
        run.turn().unwrap();
        run.complete_any().unwrap();
    }
    let mut begun = 0;
    while begun < 2 {
        begun += u32::from(run.commit(vec![1, 5 + begun]));
        run.turn().unwrap();
        let other = run.flying.iter().position(|command| command.token != CommandToken::Checkpoint);
        if let Some(other) = other.filter(|_| begun < 2) {
            run.complete(other).unwrap();
            run.turn().unwrap();
        }
    }
    let checkpoint = find(&run, |token| token == CommandToken::Checkpoint);
    let _ = run.end(checkpoint, Status::MediaError);
    end_all(&mut run);
    assert!(run.volume.report().read_only);
}
