//! Wrong members, damage, and members that fail: errors with a sentence, and nothing overwritten.

use std::format;
use std::vec;
use std::vec::Vec;

use contract::Status;

use super::members::Members;
use super::run::{Run, Sizes};
use crate::command::{Settings, Token};
use crate::error::Error;
use crate::geometry::Shape;
use crate::layout::{Superblock, VERSION, checksum};
use crate::open::{create, open};
use crate::policy::Policy;

const SIZES: Sizes = Sizes {
    members: 2,
    member_pages: 260,
    segment_pages: 8,
    spare_per_mille: 1500,
    policy: Policy::HEAT3,
    commits: false,
};

fn shape(uuid: &[u8; 16]) -> Shape {
    Shape { uuid: *uuid, segment_pages: 8, spare_per_mille: 1500, policy: Policy::HEAT3 }
}

fn created(uuid: &[u8; 16], count: usize) -> Members {
    let mut members = Members::new(count, 260);
    create(&mut members, &shape(uuid)).unwrap();
    members
}

/// Opens members that must be refused, and left as they are.
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
    page[at..at + 2].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let crc = checksum(&page[..4092]);
    page[4092..].copy_from_slice(&crc.to_le_bytes());
    members.0[0].write(1, &page);
    assert_eq!(refusal(members), Error::Version(0, VERSION + 1));
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
    let mut run = Run::new(&SIZES, 7, None);
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
    let mut run = Run::new(&SIZES, 8, None);
    for failures in [1, 2] {
        assert!(run.write(3, 1, false, false));
        run.turn().unwrap();
        for _ in 0..failures {
            let batch = run.flying.iter().position(|c| matches!(c.token, Token::Batch(_)));
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
        let batch = run.flying.iter().position(|c| matches!(c.token, Token::Batch(_)));
        ends.push(run.end(batch.expect("a batch is on its way"), Status::MediaError));
        let _ = run.turn();
    }
    assert!(ends[2].is_err() && ends[..2].iter().all(Result::is_ok));
    assert!(run.volume.report().read_only);
    assert!(run.read(3, 1));
    run.turn().unwrap();
}

/// Returns the members of a run whose process died after three writes of two pages, and the page of
/// the middle one's header. `flushed` of the writes are durable.
fn three_batches(flushed: usize) -> (Members, u64) {
    let sizes = Sizes { members: 1, member_pages: 400, segment_pages: 16, ..SIZES };
    let mut run = Run::new(&sizes, 9, None);
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
