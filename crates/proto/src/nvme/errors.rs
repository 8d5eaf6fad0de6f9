//! The error log of a controller.

use alloc::vec::Vec;

use wire::nvme::{ErrorEntry, Status, Submission, TransportKind};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::takeover::{Reader, Unfit, Writer};

/// The number of entries that are kept.
pub(super) const ERROR_ENTRIES: usize = 64;

/// The last errors of a controller, in a ring.
#[derive(Clone, Debug, Default)]
pub(super) struct ErrorLog {
    /// The number of errors so far.
    count: u64,
    /// The entries: entry `n` is at `(n - 1) % ERROR_ENTRIES`; `entries.len() ≤ ERROR_ENTRIES`.
    entries: Vec<ErrorEntry>,
}

impl ErrorLog {
    /// Adds the error of a command.
    pub(super) fn add(&mut self, queue: u16, entry: &Submission, status: Status) {
        let at = (self.count % ERROR_ENTRIES as u64) as usize;
        self.count += 1;
        let kept = ErrorEntry {
            count: U64::new(self.count),
            queue: U16::new(queue),
            cid: entry.cid,
            status: U16::new(status.to_field()),
            location: U16::new(u16::MAX),
            lba: U64::new(if queue == 0 { 0 } else { entry.lba() }),
            nsid: entry.nsid,
            transport: TransportKind::TCP.0,
            opcode: entry.opcode,
            version: 1,
            ..ErrorEntry::new_zeroed()
        };
        match self.entries.get_mut(at) {
            Some(place) => *place = kept,
            None => self.entries.push(kept),
        }
    }

    /// Returns the number of errors so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the entries, the newest first.
    pub(super) fn newest(&self) -> impl Iterator<Item = &ErrorEntry> {
        let next = (self.count % ERROR_ENTRIES as u64) as usize;
        let (newer, older) = self.entries.split_at(next.min(self.entries.len()));
        newer.iter().rev().chain(older.iter().rev())
    }

    /// Encodes the log for another process: the number of errors (8 bytes), then the entries in
    /// ring order.
    pub(super) fn put(&self, to: &mut Writer) -> Result<(), Unfit> {
        to.put(self.count.to_le_bytes());
        to.count(self.entries.len())?;
        self.entries.iter().for_each(|entry| to.0.extend(entry.as_bytes()));
        Ok(())
    }

    /// Decodes a log from another process.
    pub(super) fn take(input: &mut Reader<'_>) -> Result<ErrorLog, Unfit> {
        let (count, kept) = (input.u64()?, input.count(size_of::<ErrorEntry>())?);
        if kept as u64 != count.min(ERROR_ENTRIES as u64) || count > u64::MAX / 2 {
            return Err(Unfit::Value("error log"));
        }
        let entry = |bytes| ErrorEntry::read_from_bytes(bytes).map_err(|_| Unfit::Length);
        let entries = (0..kept)
            .map(|_| entry(input.bytes(size_of::<ErrorEntry>())?))
            .collect::<Result<_, Unfit>>()?;
        Ok(ErrorLog { count, entries })
    }

    /// Adds the error of a Fabrics command, which has no namespace.
    pub(super) fn add_fabrics(&mut self, queue: u16, entry: &Submission, status: Status) {
        let plain = Submission { nsid: U32::ZERO, ..*entry };
        self.add(queue, &plain, status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_comes_first_also_when_the_ring_is_full() {
        let mut log = ErrorLog::default();
        let entry = Submission::new(2, 7, 1);
        for _ in 0..3 {
            log.add(1, &entry, Status::INVALID_FIELD);
        }
        let counts = |log: &ErrorLog| log.newest().map(|e| e.count.get()).collect::<Vec<_>>();
        assert_eq!(counts(&log), [3, 2, 1]);
        for _ in 0..ERROR_ENTRIES {
            log.add(1, &entry, Status::INVALID_FIELD);
        }
        let newest = counts(&log);
        assert_eq!(newest.len(), ERROR_ENTRIES);
        assert_eq!((newest[0], newest[ERROR_ENTRIES - 1]), (67, 4));
    }
}
