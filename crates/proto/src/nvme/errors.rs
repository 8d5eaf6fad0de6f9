//! The error log of a controller (Base 5.16.1.2): the last errors of commands.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use wire::nvme::{ErrorEntry, Status, Submission, TransportKind};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::takeover::{Reader, TakeoverRefusal, Writer};

/// The number of last errors that a controller's error log keeps.
pub(super) const ERROR_ENTRIES: usize = 64;

/// The last errors of a controller, in a ring.
#[derive(Clone, Debug, Default)]
pub(super) struct ErrorLog {
    /// The number of errors since the controller was created.
    count: u64,
    /// The entries: entry `n` is at `(n - 1) % ERROR_ENTRIES`; `entries.len() ≤ ERROR_ENTRIES`.
    entries: Vec<ErrorEntry>,
}

impl ErrorLog {
    /// Returns the entries, the newest first.
    pub(super) fn newest(&self) -> impl Iterator<Item = &ErrorEntry> {
        let next = (self.count % ERROR_ENTRIES as u64) as usize;
        let (newer, older) = self.entries.split_at(next.min(self.entries.len()));
        newer.iter().rev().chain(older.iter().rev())
    }

    /// Encodes the log for another process: the number of errors (8 bytes), then the entries in
    /// ring order.
    pub(super) fn put(&self, to: &mut Writer) -> Result<(), TakeoverRefusal> {
        to.put(self.count.to_le_bytes());
        to.count(self.entries.len())?;
        self.entries.iter().for_each(|entry| to.0.extend(entry.as_bytes()));
        Ok(())
    }

    /// Decodes a log from another process.
    pub(super) fn take(input: &mut Reader<'_>) -> Result<ErrorLog, TakeoverRefusal> {
        let (count, kept) = (input.u64()?, input.count(size_of::<ErrorEntry>())?);
        if kept as u64 != count.min(ERROR_ENTRIES as u64) || count > u64::MAX / 2 {
            return Err(TakeoverRefusal::Value("error log"));
        }
        let entry = |bytes| ErrorEntry::read_from_bytes(bytes).map_err(|_| TakeoverRefusal::Length);
        let entries = (0..kept)
            .map(|_| entry(input.bytes(size_of::<ErrorEntry>())?))
            .collect::<Result<_, TakeoverRefusal>>()?;
        Ok(ErrorLog { count, entries })
    }
}

/// The last errors of a controller, to which its queues add from any worker. No thread waits for
/// another: an entry is lost if so many errors come during its writing that its place in the ring
/// is needed again.
#[derive(Debug)]
pub(super) struct ErrorRing {
    /// The number of errors since the controller was created.
    count: AtomicU64,
    /// The entries: entry `n` is at `(n - 1) % ERROR_ENTRIES`.
    entries: [RingEntry; ERROR_ENTRIES],
}

/// A place in the ring, for one error.
#[derive(Debug, Default)]
struct RingEntry {
    /// The number of the error; zero for none, [`WRITING`] while one is being written.
    number: AtomicU64,
    /// Four fields of 16 bits each, from the highest bits on: the queue, the command's identifier,
    /// its status and its opcode.
    command: AtomicU64,
    lba: AtomicU64,
    nsid: AtomicU32,
}

/// The value of [`RingEntry::number`] while an error is being written there.
const WRITING: u64 = u64::MAX;

impl Default for ErrorRing {
    fn default() -> ErrorRing {
        ErrorRing {
            count: AtomicU64::new(0),
            entries: core::array::from_fn(|_| RingEntry::default()),
        }
    }
}

impl ErrorRing {
    /// Adds the error of a command.
    pub(super) fn add(&self, queue: u16, entry: &Submission, status: Status) {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let lba = if queue == 0 { 0 } else { entry.lba() };
        let fields = [queue, entry.cid.get(), status.to_field(), u16::from(entry.opcode)];
        self.place(number).write(number, fields, lba, entry.nsid.get());
    }

    /// Adds the error of a Fabrics command, which has no namespace.
    pub(super) fn add_fabrics(&self, queue: u16, entry: &Submission, status: Status) {
        let plain = Submission { nsid: U32::ZERO, ..*entry };
        self.add(queue, &plain, status);
    }

    /// Fills the ring with the errors of `log`, for a controller that is not in use yet.
    pub(super) fn restore(&self, log: &ErrorLog) {
        for kept in log.entries.iter().filter(|kept| kept.count.get() > 0) {
            let number = kept.count.get();
            let fields =
                [kept.queue.get(), kept.cid.get(), kept.status.get(), u16::from(kept.opcode)];
            self.place(number).write(number, fields, kept.lba.get(), kept.nsid.get());
        }
        self.count.store(log.count, Ordering::Relaxed);
    }

    /// Returns the number of errors since the controller was created.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns a copy of the log. An entry that is lost or being written is blank: its number is
    /// zero, which hosts take for no entry (Base 5.16.1.2).
    pub(super) fn to_log(&self) -> ErrorLog {
        let count = self.count();
        let mut log = ErrorLog { count, entries: Vec::new() };
        let kept = count.min(ERROR_ENTRIES as u64);
        log.entries.resize_with(kept as usize, ErrorEntry::new_zeroed);
        for number in count - kept + 1..=count {
            if let Some(entry) = self.place(number).read(number) {
                log.entries[((number - 1) % ERROR_ENTRIES as u64) as usize] = entry;
            }
        }
        log
    }

    fn place(&self, number: u64) -> &RingEntry {
        &self.entries[((number - 1) % ERROR_ENTRIES as u64) as usize]
    }
}

impl RingEntry {
    /// Writes an error into this entry of the ring, unless the entry holds a later error or another
    /// thread is writing it.
    fn write(&self, number: u64, fields: [u16; 4], lba: u64, nsid: u32) {
        let before = self.number.load(Ordering::Relaxed);
        let claim = || {
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            self.number.compare_exchange(before, WRITING, success, failure)
        };
        // WRITING is above every number.
        if before > number || claim().is_err() {
            return;
        }
        // Whoever reads a field of this error finds the place claimed.
        fence(Ordering::Release);
        let command = fields.iter().fold(0, |word, field| word << 16 | u64::from(*field));
        self.command.store(command, Ordering::Relaxed);
        self.lba.store(lba, Ordering::Relaxed);
        self.nsid.store(nsid, Ordering::Relaxed);
        self.number.store(number, Ordering::Release);
    }

    /// Reads the error of this number; `None` if the place has another one, or was overwritten
    /// during the read.
    fn read(&self, number: u64) -> Option<ErrorEntry> {
        if self.number.load(Ordering::Acquire) != number {
            return None;
        }
        let command = self.command.load(Ordering::Relaxed);
        let field = |n: u32| U16::new((command >> (16 * n)) as u16);
        let entry = ErrorEntry {
            count: U64::new(number),
            queue: field(3),
            cid: field(2),
            status: field(1),
            location: U16::new(u16::MAX),
            lba: U64::new(self.lba.load(Ordering::Relaxed)),
            nsid: U32::new(self.nsid.load(Ordering::Relaxed)),
            transport: TransportKind::TCP.0,
            opcode: command as u8,
            version: 1,
            ..ErrorEntry::new_zeroed()
        };
        fence(Ordering::Acquire);
        (self.number.load(Ordering::Relaxed) == number).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn the_newest_comes_first_also_when_the_ring_is_full() {
        let ring = ErrorRing::default();
        let entry = Submission::new(2, 7, 1);
        for _ in 0..3 {
            ring.add(1, &entry, Status::INVALID_FIELD);
        }
        let counts = |log: &ErrorLog| log.newest().map(|e| e.count.get()).collect::<Vec<_>>();
        assert_eq!(counts(&ring.to_log()), [3, 2, 1]);
        for _ in 0..ERROR_ENTRIES {
            ring.add(1, &entry, Status::INVALID_FIELD);
        }
        let newest = counts(&ring.to_log());
        assert_eq!(newest.len(), ERROR_ENTRIES);
        assert_eq!((newest[0], newest[ERROR_ENTRIES - 1]), (67, 4));
        let again = ErrorRing::default();
        again.restore(&ring.to_log());
        let kept = again.to_log();
        assert_eq!((counts(&kept), again.count()), (newest, 67));
        let newest = *kept.newest().next().unwrap();
        assert_eq!((newest.cid.get(), newest.opcode, newest.queue.get()), (7, 2, 1));
        assert_eq!(newest.status.get(), Status::INVALID_FIELD.to_field());
    }

    #[test]
    fn an_entry_that_is_being_written_is_blank_and_never_mixed() {
        let ring = ErrorRing::default();
        ring.entries[0].number.store(WRITING, Ordering::Relaxed);
        ring.add(1, &Submission::new(2, 7, 1), Status::INVALID_FIELD);
        assert_eq!((ring.count(), ring.to_log().entries[0].count.get()), (1, 0));
        // Writers and a reader at once: each entry has the fields of one error.
        let ring = ErrorRing::default();
        std::thread::scope(|threads| {
            for writer in 0..2_u16 {
                let ring = &ring;
                threads.spawn(move || {
                    for n in 0..2_000 {
                        let own = writer << 12 | n;
                        let entry = Submission::new(2, own, u32::from(own));
                        ring.add(own, &entry, Status::INVALID_FIELD);
                    }
                });
            }
            for _ in 0..200 {
                for kept in &ring.to_log().entries {
                    let (cid, nsid) = (u32::from(kept.cid.get()), kept.nsid.get());
                    assert!(cid == nsid && kept.queue.get() == kept.cid.get(), "{kept:?}");
                }
            }
        });
        assert_eq!(ring.count(), 4_000);
    }
}
