//! The journal that makes atomic writes survive a crash whole: `PATH.journal` beside the file.
//!
//! A journal has a few fixed slots. An atomic write puts its data into a slot, then a header with a
//! checksum over both, and makes them durable. Then it writes the data in place, makes that
//! durable, and clears the header durably before the acknowledgement (so an old record never
//! overwrites newer data). Opening writes every whole record in place again; the data of a torn
//! record was not yet written in place.
//!
//! This module deliberately leaves out the order of overlapping atomic writes, which range locks
//! above keep apart.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use contract::{BLOCK_BYTES, Buf, REQUEST_BYTES_MAX, Range, SizeClass, TryLock};
use crc::{Crc32c, product_hash};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::{Error, carve};

/// Number of slots of a journal: the maximum of simultaneous atomic writes, over all workers.
pub(super) const SLOTS: usize = 4;
/// Bytes of a header in the file; only the first [`RECORD_BYTES`] are used.
pub(super) const HEADER_BYTES: usize = 4096;
const RECORD_BYTES: usize = 48;
/// Maximum number of bytes of data in a slot: the largest request with the rest of its first and
/// last granule, for any granule up to 64 KiB.
pub(super) const PAYLOAD_BYTES_MAX: usize = REQUEST_BYTES_MAX + 2 * GRANULE_BYTES_MAX;
/// The largest granule of a file with a journal.
pub(super) const GRANULE_BYTES_MAX: usize = 64 << 10;
/// The bytes that identify a record and its layout.
const MAGIC: [u8; 8] = *b"nfjrnl02";
/// The bytes of a record of the first layout, whose checksum is a CRC alone.
const MAGIC_CRC: [u8; 8] = *b"nfjrnl01";

/// The open journal of a file volume, which all workers share.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) file: OwnedFd,
    places: [SlotCell; SLOTS],
    /// The sequence number of the next record.
    sequence: AtomicU64,
    /// The inode of the file that the journal belongs to.
    inode: u64,
    /// `true` if a record could not be cleared: no more writes are allowed, since a restart would
    /// overwrite them with the record's older data.
    pub(super) broken: AtomicBool,
}

/// The exclusive right to use one slot of the journal, with a buffer for the slot's header.
#[derive(Debug)]
pub(super) struct JournalSlot {
    index: usize,
    pub(super) header: Buf,
}

impl JournalSlot {
    /// Returns the offset of the slot's header in the journal, in bytes; the slot's data follows.
    pub(super) fn offset(&self) -> u64 {
        offset_of(self.index)
    }

    /// Clears the header in memory, so that it describes no record of the journal.
    pub(super) fn clear(&mut self) {
        self.header.zero_prefix(HEADER_BYTES);
    }
}

/// The place of a journal's slot while no thread uses it. Taking and giving back never wait: the
/// thread that has taken the slot is alone with its place.
#[derive(Debug)]
struct SlotCell {
    is_free: AtomicBool,
    slot: TryLock<Option<JournalSlot>>,
}

impl SlotCell {
    fn of(slot: JournalSlot) -> SlotCell {
        SlotCell { is_free: AtomicBool::new(true), slot: TryLock::new(Some(slot)) }
    }

    fn take(&self) -> Option<JournalSlot> {
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        self.is_free.compare_exchange(true, false, success, failure).ok()?;
        self.exchange(None)
    }

    fn give(&self, slot: JournalSlot) {
        let before = self.exchange(Some(slot));
        debug_assert!(before.is_none(), "a slot is given back once");
        self.is_free.store(true, Ordering::Release);
    }

    /// Stores `slot` in the place and returns the previous content. Only the thread that has taken
    /// the slot may call this function.
    fn exchange(&self, slot: Option<JournalSlot>) -> Option<JournalSlot> {
        let before = self.slot.try_with(|here| std::mem::replace(here, slot));
        before.expect("a slot is one thread's")
    }
}

fn offset_of(index: usize) -> u64 {
    (index * (HEADER_BYTES + PAYLOAD_BYTES_MAX)) as u64
}

impl Journal {
    /// Returns a journal that another process has open. That process's records must all be cleared
    /// before this process writes its first one.
    pub(super) fn adopt(file: OwnedFd, inode: u64) -> Result<Journal, Error> {
        let headers = carve(&[SizeClass { bytes: HEADER_BYTES, count: SLOTS }])?.bufs;
        Ok(Journal::new(file, headers, inode, 1))
    }

    fn new(file: OwnedFd, headers: Vec<Buf>, inode: u64, sequence: u64) -> Journal {
        let mut headers = headers.into_iter();
        let place = |index| {
            let header = headers.next().expect("a header for each slot");
            SlotCell::of(JournalSlot { index, header })
        };
        Journal {
            places: std::array::from_fn(place),
            sequence: AtomicU64::new(sequence),
            inode,
            broken: AtomicBool::new(false),
            file,
        }
    }

    /// Takes a slot; returns `None` while all are in use.
    pub(super) fn take(&self) -> Option<JournalSlot> {
        self.places.iter().find_map(SlotCell::take)
    }

    pub(super) fn give(&self, slot: JournalSlot) {
        self.places[slot.index].give(slot);
    }

    /// Fills the slot's header for this data of `range`.
    pub(super) fn seal(&self, slot: &mut JournalSlot, range: Range, data: &[u8]) {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let record = JournalRecord { sequence, range, inode: self.inode };
        slot.clear();
        record.seal(slot.header.prefix_mut(RECORD_BYTES), data);
    }
}

/// The contents of a journal slot's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JournalRecord {
    sequence: u64,
    range: Range,
    inode: u64,
}

impl JournalRecord {
    /// Writes the header: magic, sequence, inode, first block, blocks, CRC-32C over all of these
    /// and the data, hash of the data; little-endian.
    fn seal(&self, header: &mut [u8], data: &[u8]) {
        header[..8].copy_from_slice(&MAGIC);
        header[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        header[16..24].copy_from_slice(&self.inode.to_le_bytes());
        header[24..32].copy_from_slice(&self.range.lba.to_le_bytes());
        header[32..36].copy_from_slice(&self.range.blocks.to_le_bytes());
        header[36..40].fill(0);
        let checksum = checksum(&header[..40], data);
        header[40..RECORD_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Parses a slot's header without checking the checksum; `None` if it has no record.
    fn parse(header: &[u8]) -> Option<JournalRecord> {
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let range = Range::new(word(24), word(32) as u32);
        let record = JournalRecord { sequence: word(8), range, inode: word(16) };
        [MAGIC, MAGIC_CRC].iter().any(|magic| header[..8] == *magic).then_some(record)
    }

    /// Returns whether the header's checksum is that of the header and its data.
    fn is_whole(header: &[u8], data: &[u8]) -> bool {
        checksum(&header[..40], data).to_le_bytes() == header[40..RECORD_BYTES]
    }
}

/// Returns the CRC-32C of a record's header and data in the low half, and the [`product_hash`] of
/// the data in the high half: data that end with their own CRC all have one CRC. A record of the
/// first layout has no hash.
fn checksum(header: &[u8], data: &[u8]) -> u64 {
    let hash = if header[..8] == MAGIC_CRC { 0 } else { product_hash(data) };
    u64::from(hash) << 32 | u64::from(Crc32c::of_parts([header, data]))
}

/// A file with blocking transfers and syncs, for recovery.
pub(super) struct BlockingFile<'a> {
    pub(super) file: &'a OwnedFd,
    pub(super) path: &'a Path,
}

impl BlockingFile<'_> {
    fn failed(&self, what: &str, error: impl Into<std::io::Error>) -> Error {
        Error::system(format!("cannot {what} {}", self.path.display()), error)
    }

    /// Reads until the buffer is full. Bytes behind the end of the file are zero.
    fn read(&self, mut data: &mut [u8], mut offset: u64) -> Result<(), Error> {
        while !data.is_empty() {
            match rustix::io::pread(self.file, &mut *data, offset) {
                Ok(0) => {
                    data.fill(0);
                    return Ok(());
                }
                Ok(count) => {
                    data = &mut data[count..];
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed("read", errno)),
            }
        }
        Ok(())
    }

    fn write(&self, mut data: &[u8], mut offset: u64) -> Result<(), Error> {
        while !data.is_empty() {
            match rustix::io::pwrite(self.file, data, offset) {
                Ok(count) => {
                    data = &data[count..];
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed("write", errno)),
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        rustix::fs::fdatasync(self.file).map_err(|errno| self.failed("sync", errno))
    }
}

/// Returns the journal's path for a file.
pub(super) fn path_of(path: &Path) -> PathBuf {
    // By whatever name the file is opened, its journal is the same.
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let path = real.as_path();
    let mut name = path.as_os_str().to_owned();
    name.push(".journal");
    PathBuf::from(name)
}

/// Allocates the space of a whole journal, so that a full disk never stops half a record.
pub(super) fn reserve(file: &OwnedFd) -> Result<(), Errno> {
    let bytes = offset_of(SLOTS);
    if rustix::fs::seek(file, SeekFrom::End(0))? >= bytes {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP) => rustix::fs::ftruncate(file, bytes),
        result => result,
    }
}

/// Returns whether the journal at this path has a record that was not cleared.
pub(super) fn has_records(path: &Path) -> bool {
    use std::os::unix::fs::FileExt;
    let Ok(file) = fs::File::open(path) else { return false };
    (0..SLOTS).any(|index| {
        let mut header = [0; RECORD_BYTES];
        let offset = offset_of(index);
        file.read_exact_at(&mut header, offset).is_ok() && JournalRecord::parse(&header).is_some()
    })
}

/// Opens a journal from its open file, after writing the data of each whole record to its range of
/// the data file: a crash has left these records. Returns the journal and their number.
///
/// # Errors
/// Fails if a file cannot be read or written, or a record belongs to another file.
pub(super) fn recover(
    journal: OwnedFd,
    journal_path: &Path,
    data: &BlockingFile<'_>,
    inode: u64,
    blocks: u64,
) -> Result<(Journal, usize), Error> {
    let plain = BlockingFile { file: &journal, path: journal_path };
    let mut headers = carve(&[SizeClass { bytes: HEADER_BYTES, count: SLOTS }])?.bufs;
    let mut found: Vec<(JournalRecord, usize)> = Vec::new();
    let mut used = Vec::new();
    let mut payload: Option<Buf> = None;
    for (index, header) in headers.iter_mut().enumerate() {
        let offset = offset_of(index);
        plain.read(header.bytes_mut(), offset)?;
        let Some(record) = JournalRecord::parse(header.bytes()) else { continue };
        used.push(index);
        let range = record.range;
        if range.bytes() > PAYLOAD_BYTES_MAX || !range.fits(blocks) {
            continue;
        }
        let payload = recovery_buf(&mut payload)?;
        let target = payload.prefix_mut(range.bytes());
        plain.read(target, offset + HEADER_BYTES as u64)?;
        if JournalRecord::is_whole(header.bytes(), target) {
            found.push((record, index));
        }
    }
    if found.iter().any(|(record, _)| record.inode != inode) {
        return Err(Error::new(format!(
            "{} holds an atomic write that belongs to another file than {}; remove the journal if \
             that write may be lost",
            journal_path.display(),
            data.path.display()
        )));
    }
    found.sort_by_key(|(record, _)| record.sequence);
    for (record, index) in &found {
        let payload = recovery_buf(&mut payload)?;
        let bytes = payload.prefix_mut(record.range.bytes());
        let offset = offset_of(*index);
        plain.read(bytes, offset + HEADER_BYTES as u64)?;
        data.write(bytes, record.range.lba * BLOCK_BYTES as u64)?;
    }
    data.sync()?;
    for header in &mut headers {
        header.zero_prefix(HEADER_BYTES);
    }
    for index in used {
        plain.write(headers[index].bytes(), offset_of(index))?;
    }
    plain.sync()?;
    let next = found.last().map_or(1, |(record, _)| record.sequence.wrapping_add(1));
    Ok((Journal::new(journal, headers, inode, next), found.len()))
}

/// Returns the buffer for a record's data, allocated for the first record.
fn recovery_buf(buf: &mut Option<Buf>) -> Result<&mut Buf, Error> {
    if buf.is_none() {
        *buf = carve(&[SizeClass { bytes: PAYLOAD_BYTES_MAX, count: 1 }])?.bufs.pop();
    }
    Ok(buf.as_mut().expect("it was just made"))
}

#[cfg(test)]
mod tests;
