//! Tests of requests as traces of system calls and their results.

use contract::SlotTable;

use super::*;
use crate::device::{FileOptions, FileVolume};

fn volume(name: &str) -> FileVolume {
    let path = std::env::temp_dir().join(format!("nearflash-flight-{}-{name}", std::process::id()));
    let options = FileOptions { journal: false, ..FileOptions::default() };
    let volume = FileVolume::open(&path, Some(1 << 20), options).unwrap();
    std::fs::remove_file(&path).unwrap();
    volume
}

fn flight(volume: &FileVolume, command: Command) -> FileRequest {
    let bytes = command.buffer_bytes();
    let buf = (bytes > 0).then(|| {
        let class = contract::SizeClass { bytes, count: 1 };
        crate::carve(&[class]).unwrap().bufs.remove(0)
    });
    let slot = SlotTable::new(1).insert(()).unwrap();
    FileRequest::start(Submission { slot, command, buf }, &volume.shared).unwrap()
}

#[test]
fn a_short_write_goes_on_at_the_next_granule() {
    let volume = volume("short");
    let shared = &volume.shared;
    let range = Range::new(64, 32);
    let mut flight = flight(&volume, Command::Write { range, fua: true });
    let write = |at: usize| FileOperation::Write {
        offset: (64 * 512 + at) as u64,
        at,
        bytes: 16384 - at,
        dsync: true,
    };
    assert_eq!(flight.call(shared).operation, write(0));
    assert_eq!(flight.advance(8192, shared), None);
    assert_eq!(flight.call(shared).operation, write(8192));
    assert_eq!(flight.advance(4096 + 17, shared), None);
    let granule = shared.alignment.offset;
    assert_eq!(flight.call(shared).operation, write(12288 / granule * granule));
    assert_eq!(flight.advance(4096, shared), Some(Status::Ok));
}

/// A journal breaks when a record cannot be cleared. A process that adopts the file would take the
/// record for a cleared one.
#[test]
fn a_file_whose_journal_is_broken_is_not_passed_on() {
    let path = std::env::temp_dir().join(format!("nearflash-flight-{}-broken", std::process::id()));
    let volume = FileVolume::open(&path, Some(1 << 20), FileOptions::default()).unwrap();
    assert_eq!(volume.files().unwrap().len(), 2);
    let range = Range::new(0, 64);
    let mut flight = flight(&volume, Command::WriteAtomic(range));
    flight.step = RequestStep::Journal(JournalStep::Clear);
    assert_eq!(flight.advance(-libc::EIO, &volume.shared), Some(Status::MediaError));
    assert!(volume.files().is_err());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_that_shrank_is_a_media_error_and_never_a_loop() {
    let volume = volume("shrank");
    let mut flight = flight(&volume, Command::Read(Range::new(0, 8)));
    assert_eq!(flight.advance(0, &volume.shared), Some(Status::MediaError));
}

#[test]
fn refused_synchronous_writes_are_followed_by_a_sync() {
    let volume = volume("dsync");
    let shared = &volume.shared;
    let command = Command::Write { range: Range::new(0, 8), fua: true };
    for first in [true, false] {
        let mut flight = flight(&volume, command);
        if first {
            assert_eq!(flight.advance(-libc::EOPNOTSUPP, shared), None);
        }
        let plain = FileOperation::Write { offset: 0, at: 0, bytes: 4096, dsync: false };
        assert_eq!(flight.call(shared).operation, plain);
        assert_eq!(flight.advance(4096, shared), None);
        assert_eq!(flight.call(shared).operation, FileOperation::Sync);
        assert_eq!(flight.advance(0, shared), Some(Status::Ok));
    }
}

#[test]
fn zeroing_falls_back_to_writing_zeroes_and_remembers() {
    let volume = volume("zeroes");
    let shared = &volume.shared;
    let command = Command::WriteZeroes { range: Range::new(0, 256), fua: true };
    let mut flight = flight(&volume, command);
    for mode in [FallocateFlags::ZERO_RANGE, FallocateFlags::PUNCH_HOLE] {
        let mode = mode | FallocateFlags::KEEP_SIZE;
        let expected = FileOperation::Allocate { mode, offset: 0, bytes: 131_072 };
        assert_eq!(flight.call(shared).operation, expected);
        assert_eq!(flight.advance(-libc::EOPNOTSUPP, shared), None);
    }
    for offset in [0, 65_536] {
        let expected = FileOperation::WriteZeroes { offset, bytes: 65_536 };
        assert_eq!(flight.call(shared).operation, expected);
        assert_eq!(flight.advance(65_536, shared), None);
    }
    assert_eq!(flight.call(shared).operation, FileOperation::Sync);
    assert_eq!(flight.advance(0, shared), Some(Status::Ok));
    let discard = self::flight(&volume, Command::Discard(Range::new(8, 8)));
    let expected = FileOperation::WriteZeroes { offset: 4096, bytes: 4096 };
    assert_eq!(discard.call(shared).operation, expected);
}

#[test]
fn errors_become_statuses_and_interruptions_are_bounded() {
    let volume = volume("errors");
    let shared = &volume.shared;
    for (errno, status) in [
        (libc::EIO, Status::MediaError),
        (libc::ENOSPC, Status::NoSpace),
        (libc::EROFS, Status::ReadOnly),
        (libc::EINVAL, Status::Internal),
    ] {
        let command = Command::Write { range: Range::new(0, 8), fua: false };
        assert_eq!(flight(&volume, command).advance(-errno, shared), Some(status));
    }
    let mut flight = flight(&volume, Command::Flush);
    for _ in 0..REPEATS_MAX {
        assert_eq!(flight.advance(-libc::EAGAIN, shared), None);
    }
    assert_eq!(flight.advance(-libc::EAGAIN, shared), Some(Status::Retry));
}
