//! Tests of the journal: crashes between any two system calls, with a disk that forgets what was
//! not synced.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use contract::{Command, SlotTable, Status, Submission};
use flash::Rng;

use super::*;
use crate::device::flight::{FileCall, FileOperation, FileRequest, TargetFile};
use crate::device::{FileOptions, FileVolume};

const BLOCKS: u64 = 64;
const FIRST: Range = Range::new(8, 17);
const SECOND: Range = Range::new(32, 24);

/// A file behind a volatile cache. A crash loses any sectors that were not synced.
struct CrashableDisk {
    file: File,
    pending: Vec<(u64, Vec<u8>)>,
}

impl CrashableDisk {
    fn open(path: &Path) -> CrashableDisk {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        CrashableDisk { file, pending: Vec::new() }
    }

    fn sync(&mut self) {
        for (offset, data) in self.pending.drain(..) {
            self.file.write_all_at(&data, offset).unwrap();
        }
    }

    fn crash(&mut self, chance: &mut Rng) {
        let share = [0.0, 0.1, 0.5, 0.9, 1.0][chance.within(0..=4) as usize];
        for (offset, data) in self.pending.drain(..) {
            for (place, sector) in data.chunks(512).enumerate() {
                if chance.happens(share) {
                    self.file.write_all_at(sector, offset + place as u64 * 512).unwrap();
                }
            }
        }
    }
}

/// A volume whose system calls go to disks that can crash.
struct CrashableVolume {
    directory: PathBuf,
    volume: FileVolume,
    data: CrashableDisk,
    journal: CrashableDisk,
}

impl CrashableVolume {
    fn new(name: &str) -> CrashableVolume {
        let directory = std::env::temp_dir();
        let directory = directory.join(format!("nearflash-journal-{name}-{}", std::process::id()));
        let volume = Self::open(&directory, Some(BLOCKS * 512));
        let data = CrashableDisk::open(&directory.join("volume"));
        let journal = CrashableDisk::open(&directory.join("volume.journal"));
        CrashableVolume { directory, volume, data, journal }
    }

    fn open(directory: &Path, size: Option<u64>) -> FileVolume {
        FileVolume::open(directory.join("volume"), size, FileOptions::default()).unwrap()
    }

    /// Carries out one system call on the simulated disks; returns the result that the kernel would
    /// give.
    fn make(&mut self, call: FileCall, flight: &FileRequest) -> i32 {
        let disk = match call.target {
            TargetFile::Data => &mut self.data,
            TargetFile::Journal => &mut self.journal,
        };
        let (offset, bytes, dsync) = match call.operation {
            FileOperation::Write { offset, at, bytes, dsync } => {
                let buf = flight.buf.as_ref().unwrap();
                (offset, buf.bytes()[at..at + bytes].to_vec(), dsync)
            }
            FileOperation::WriteHeader { offset, dsync } => {
                (offset, flight.journal_header()[..HEADER_BYTES].to_vec(), dsync)
            }
            FileOperation::Sync => {
                disk.sync();
                return 0;
            }
            operation => panic!("an atomic write has no business with {operation:?}"),
        };
        let count = bytes.len() as i32;
        if dsync {
            // Forced unit access makes this write durable and says nothing about others.
            disk.file.write_all_at(&bytes, offset).unwrap();
        } else {
            disk.pending.push((offset, bytes));
        }
        count
    }

    fn restart(&mut self) {
        // The lock goes with the old volume.
        let spare = FileOptions { journal: false, ..FileOptions::default() };
        let placeholder = self.directory.join("placeholder");
        self.volume = FileVolume::open(&placeholder, Some(4096), spare).unwrap();
        self.volume = Self::open(&self.directory, None);
    }

    /// Returns the byte that fills the range; panics if the range is torn.
    fn mark(&self, range: Range) -> u8 {
        let mut data = vec![0; range.bytes()];
        self.data.file.read_exact_at(&mut data, range.lba * 512).unwrap();
        assert!(data.iter().all(|byte| *byte == data[0]), "{range:?} is torn");
        data[0]
    }

    fn fill(&self, range: Range, mark: u8) {
        self.data.file.write_all_at(&vec![mark; range.bytes()], range.lba * 512).unwrap();
    }

    fn flight(&self, range: Range, mark: u8) -> FileRequest {
        let command = Command::WriteAtomic(range);
        let class = SizeClass { bytes: 16384, count: 1 };
        let mut buf = carve(&[class]).unwrap().bufs.pop().unwrap();
        buf.bytes_mut().fill(mark);
        let slot = SlotTable::new(1).insert(()).unwrap();
        FileRequest::start(Submission { slot, command, buf: Some(buf) }, &self.volume.shared)
            .unwrap()
    }
}

impl Drop for CrashableVolume {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Carries out the request's next system call, if it is ready. Returns `true` if it was the last.
fn step(machine: &mut CrashableVolume, flight: &mut FileRequest) -> bool {
    let volume = machine.volume.clone();
    if !flight.is_ready(&volume.shared) {
        return false;
    }
    let result = machine.make(flight.call(&volume.shared), flight);
    match flight.advance(result, &volume.shared) {
        None => false,
        Some(status) => {
            assert_eq!(status, Status::Ok);
            true
        }
    }
}

#[test]
fn no_crash_tears_an_atomic_write_or_revives_an_old_one() {
    let mut machine = CrashableVolume::new("crash");
    let (mut old, mut new, mut finished, mut recovered) = (0, 0, 0, 0);
    for seed in 0..200 {
        let mut chance = Rng::new(seed);
        for range in [FIRST, SECOND] {
            machine.fill(range, 1);
        }
        let mut flights = [(FIRST, 2), (SECOND, 3)].map(|(range, mark)| {
            let flight = machine.flight(range, mark);
            (range, mark, Some(flight))
        });
        for _ in 0..chance.within(0..=20) {
            let (range, mark, flight) = &mut flights[chance.within(0..=1) as usize];
            if flight.as_mut().is_some_and(|running| step(&mut machine, running)) {
                let shared = machine.volume.shared.clone();
                flight.take().unwrap().complete(Status::Ok, &shared);
                if chance.happens(0.5) {
                    // A newer write, made durable.
                    *mark = 5;
                    machine.fill(*range, *mark);
                }
            }
        }
        machine.data.crash(&mut chance);
        machine.journal.crash(&mut chance);
        machine.restart();
        recovered += u32::from(!machine.volume.notes().is_empty());
        for (range, mark, flight) in &flights {
            let found = machine.mark(*range);
            match flight {
                None => assert_eq!(found, *mark, "seed {seed}: an acknowledged write is lost"),
                Some(_) => assert!(found == 1 || found == *mark, "seed {seed}: {range:?} {found}"),
            }
            old += u32::from(found == 1);
            new += u32::from(found == *mark);
            finished += u32::from(flight.is_none());
            machine.fill(*range, 9);
        }
        machine.restart();
        for range in [FIRST, SECOND] {
            assert_eq!(machine.mark(range), 9, "seed {seed}: an old record came back");
        }
    }
    assert!(old > 50 && new > 50 && finished > 50, "{old} old, {new} new, {finished} finished");
    assert!(recovered > 10, "recovery hardly ever had to finish a write: {recovered}");
}

#[test]
fn a_request_waits_for_a_slot_and_gets_it_when_one_is_free() {
    let machine = CrashableVolume::new("slots");
    let shared = machine.volume.shared.clone();
    let mut flights: Vec<FileRequest> = (0..SLOTS).map(|_| machine.flight(FIRST, 2)).collect();
    assert!(flights.iter_mut().all(|flight| flight.is_ready(&shared)));
    let mut late = machine.flight(SECOND, 3);
    assert!(!late.is_ready(&shared));
    flights.pop().unwrap().complete(Status::MediaError, &shared);
    assert!(late.is_ready(&shared));
}

#[test]
fn an_error_clears_the_record_and_one_in_clearing_ends_all_writes() {
    let mut machine = CrashableVolume::new("errors");
    let shared = machine.volume.shared.clone();
    let to_transfer = |machine: &mut CrashableVolume| {
        let mut flight = machine.flight(FIRST, 2);
        while !matches!(flight_target(&mut flight, &shared), TargetFile::Data) {
            assert!(!step(machine, &mut flight));
        }
        flight
    };
    let mut flight = to_transfer(&mut machine);
    assert_eq!(flight.advance(-libc::EIO, &shared), None, "the record is cleared first");
    let call = flight.call(&shared);
    assert!(matches!(call.operation, FileOperation::WriteHeader { dsync: true, .. }), "{call:?}");
    assert_eq!(flight.advance(HEADER_BYTES as i32, &shared), Some(Status::MediaError));
    flight.complete(Status::MediaError, &shared);

    let mut flight = to_transfer(&mut machine);
    assert_eq!(flight.advance(-libc::ENOSPC, &shared), None);
    assert_eq!(flight.advance(-libc::EIO, &shared), Some(Status::MediaError));
    flight.complete(Status::MediaError, &shared);
    let slot = SlotTable::new(1).insert(()).unwrap();
    let command = Command::Discard(FIRST);
    let refused = FileRequest::start(Submission { slot, command, buf: None }, &shared).unwrap_err();
    assert_eq!(refused.status, Status::MediaError);
}

fn flight_target(flight: &mut FileRequest, shared: &super::super::file::Shared) -> TargetFile {
    assert!(flight.is_ready(shared));
    flight.call(shared).target
}

#[test]
fn a_pending_record_keeps_strangers_away() {
    let mut machine = CrashableVolume::new("strangers");
    let mut flight = machine.flight(FIRST, 2);
    for _ in 0..3 {
        step(&mut machine, &mut flight);
    }
    machine.data.sync();
    machine.journal.sync();
    let path = machine.directory.join("volume");
    let spare = FileOptions { journal: false, ..FileOptions::default() };
    machine.volume =
        FileVolume::open(machine.directory.join("placeholder"), Some(4096), spare).unwrap();
    for options in [spare, FileOptions { read_only: true, ..FileOptions::default() }] {
        let complaint = FileVolume::open(&path, None, options).unwrap_err().to_string();
        assert!(complaint.contains("was not closed in order"), "{complaint}");
    }
    let copy = machine.directory.join("copy");
    fs::copy(&path, &copy).unwrap();
    fs::copy(path_of(&path), path_of(&copy)).unwrap();
    let options = FileOptions::default();
    let complaint = FileVolume::open(&copy, None, options).unwrap_err().to_string();
    assert!(complaint.contains("belongs to another file"), "{complaint}");
    fs::remove_file(&path).unwrap();
    let made_anew = FileVolume::open(&path, Some(BLOCKS * 512), options).unwrap();
    assert!(made_anew.notes().is_empty(), "the old record died with the old file");
    assert_eq!(fs::read(&path).unwrap(), vec![0; BLOCKS as usize * 512]);
}

/// Returns data of sectors that each end with the CRC-32C of their other bytes.
fn sealed(range: Range, mark: u8) -> Vec<u8> {
    let mut data = vec![mark; range.bytes()];
    for sector in data.chunks_mut(BLOCK_BYTES) {
        let crc = Crc32c::of(&sector[..BLOCK_BYTES - 4]);
        sector[BLOCK_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    }
    data
}

#[test]
fn data_with_checksums_of_its_own_does_not_pass_for_other_such_data() {
    let record = JournalRecord { sequence: 7, range: FIRST, inode: 3 };
    let [new, old] = [1, 2].map(|mark| sealed(FIRST, mark));
    let mut header = vec![0; RECORD_BYTES];
    record.seal(&mut header, &new);
    let crc = |data: &[u8]| Crc32c::of_parts([&header[..40], data]);
    assert_eq!(crc(&new), crc(&old), "a CRC does not tell them apart");
    assert!(JournalRecord::is_whole(&header, &new) && !JournalRecord::is_whole(&header, &old));
}

#[test]
fn a_record_of_the_first_layout_is_whole_by_its_crc() {
    let data = vec![9; FIRST.bytes()];
    let mut header = vec![0; RECORD_BYTES];
    JournalRecord { sequence: 7, range: FIRST, inode: 3 }.seal(&mut header, &data);
    header[..8].copy_from_slice(&MAGIC_CRC);
    let crc = Crc32c::of_parts([&header[..40], &data]);
    header[40..].copy_from_slice(&u64::from(crc).to_le_bytes());
    assert!(JournalRecord::parse(&header).is_some() && JournalRecord::is_whole(&header, &data));
    header[44] = 1;
    assert!(!JournalRecord::is_whole(&header, &data));
}
