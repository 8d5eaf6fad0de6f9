//! A request on its way through the kernel, over a ring or a pool of threads.
//!
//! A request may take several system calls: short transfers continue, refused calls fall back to
//! others, forced unit access may need a sync. [`FileRequest::call`] returns the next call,
//! [`FileRequest::advance`] takes its result.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use contract::{BLOCK_BYTES, Buf, Command, Completion, IoKind, Range, Slot, Status, Submission};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::file::Shared;
use super::journal::{HEADER_BYTES, Journal, JournalSlot};

/// Maximum number of repeated system calls of a request. One interruption more completes it with
/// `Retry`.
const REPEATS_MAX: u8 = 100;

/// Zeroes to write to a file that has no better method.
pub(super) static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

#[repr(align(4096))]
pub(super) struct Zeroes(pub(super) [u8; 64 << 10]);

#[derive(Debug)]
pub(super) struct FileRequest {
    /// The slot that identifies the request to the worker that submitted it.
    pub(super) slot: Slot,
    pub(super) command: Command,
    pub(super) buf: Option<Buf>,
    /// Completed bytes of the range: in the journal if that comes first, then in place.
    progress: u64,
    step: RequestStep,
    repeats: u8,
    /// The journal slot of a large atomic write, from its first system call to its last; `None` for
    /// other requests.
    journal: Option<JournalSlot>,
    /// The status with which a journaled write ends once its record is cleared.
    outcome: Status,
}

/// The present step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestStep {
    /// Moving data between the buffer and the file.
    Transfer,
    /// Making the range zero.
    Zero(ZeroMethod),
    /// A sync of the transferred data; the last step except for clearing the journal.
    Sync,
    /// The write of a record in the journal.
    Journal(JournalStep),
}

/// The steps of a journal record, around the transfer in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournalStep {
    /// Waiting for a slot. The end of another atomic write ends the step.
    Await,
    /// Writing the data to the journal.
    Payload,
    /// Writing the header to the journal.
    Header,
    /// Syncing data and header. The transfer in place and its sync follow.
    Sync,
    /// Writing an empty header, durably.
    Clear,
    /// Syncing the empty header, where synchronous writes are refused.
    ClearSync,
}

/// Methods of zeroing a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZeroMethod {
    /// Deallocating the space (`FALLOC_FL_PUNCH_HOLE`).
    Punch = 1,
    /// Zeroing by the file system, which may keep the space allocated (`FALLOC_FL_ZERO_RANGE`).
    ZeroRange = 2,
    /// Writing zeroes. Never refused.
    Write = 4,
}

/// A system call to make for a request, with the file that the call is made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileCall {
    pub(super) target: TargetFile,
    pub(super) operation: FileOperation,
}

/// A file of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetFile {
    Data,
    Journal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileOperation {
    /// Reads `bytes` bytes at `offset` of the file to byte `at` of the request's buffer.
    Read { offset: u64, at: usize, bytes: usize },
    /// Writes `bytes` bytes from byte `at` of the request's buffer to `offset` of the file, durably
    /// if `dsync`.
    Write { offset: u64, at: usize, bytes: usize, dsync: bool },
    /// Writes the header of the request's journal slot, durably if `dsync`.
    WriteHeader { offset: u64, dsync: bool },
    /// Writes the first `bytes` bytes of [`ZEROES`].
    WriteZeroes { offset: u64, bytes: usize },
    /// Calls `fallocate(2)` on `bytes` bytes.
    Allocate { mode: FallocateFlags, offset: u64, bytes: u64 },
    /// Makes the file's data durable with `fdatasync(2)`.
    Sync,
}

impl FileRequest {
    /// Begins a request; `Err` is the completion of a request that cannot be served.
    pub(super) fn start(
        submission: Submission,
        shared: &Shared,
    ) -> Result<FileRequest, Completion> {
        shared.assert_aligned(&submission);
        let Submission { slot, command, buf } = submission;
        let atomic_max = shared.geometry.atomic_blocks_max;
        let refusal = match command {
            _ if shared.is_broken() && command.kind() == IoKind::Write => Status::MediaError,
            _ if shared.geometry.read_only && command.kind() == IoKind::Write => Status::ReadOnly,
            Command::Compare(_) | Command::CompareAndWrite(_) | Command::Commit { .. } => {
                Status::Unsupported
            }
            Command::WriteAtomic(range) if range.blocks > atomic_max => Status::AtomicTooLarge,
            _ => Status::Ok,
        };
        if !refusal.is_ok() {
            return Err(Completion { slot, status: refusal, buf });
        }
        let granule_blocks = (shared.alignment.offset / BLOCK_BYTES) as u32;
        let step = match command {
            Command::WriteAtomic(range) if range.blocks > granule_blocks => {
                RequestStep::Journal(JournalStep::Await)
            }
            Command::Read(_) | Command::Write { .. } | Command::WriteAtomic(_) => {
                RequestStep::Transfer
            }
            Command::Discard(_) | Command::WriteZeroes { .. } => {
                RequestStep::Zero(shared.zeroing(command))
            }
            Command::Flush => RequestStep::Sync,
            Command::Compare(_)
            | Command::CompareAndWrite(_)
            | Command::Commit { .. }
            | Command::Barrier => {
                unreachable!("{command:?} cannot get here")
            }
        };
        let (journal, outcome) = (None, Status::Ok);
        Ok(FileRequest { slot, command, buf, progress: 0, step, repeats: 0, journal, outcome })
    }

    /// Returns whether [`call`](FileRequest::call) may be called, after trying to take a slot of
    /// the journal for a request that waits for one; `false` while all slots are in use.
    pub(super) fn is_ready(&mut self, shared: &Shared) -> bool {
        if self.step != RequestStep::Journal(JournalStep::Await) {
            return true;
        }
        self.journal = shared.journal().take();
        if self.journal.is_some() {
            self.step = RequestStep::Journal(JournalStep::Payload);
        }
        self.journal.is_some()
    }

    /// Returns the next system call.
    pub(super) fn call(&self, shared: &Shared) -> FileCall {
        match self.step {
            RequestStep::Journal(record) => {
                let operation = self.journal_operation(record, shared);
                FileCall { target: TargetFile::Journal, operation }
            }
            _ => FileCall { target: TargetFile::Data, operation: self.operation(shared) },
        }
    }

    fn journal_operation(&self, record: JournalStep, shared: &Shared) -> FileOperation {
        let slot = self.journal.as_ref().expect("a slot was taken");
        let offset = slot.offset();
        match record {
            JournalStep::Await => unreachable!("it waits for a slot"),
            JournalStep::Payload => {
                let at = self.progress as usize;
                let bytes = self.command.payload_bytes() - at;
                let offset = offset + HEADER_BYTES as u64 + self.progress;
                FileOperation::Write { offset, at, bytes, dsync: false }
            }
            JournalStep::Header => FileOperation::WriteHeader { offset, dsync: false },
            JournalStep::Clear => {
                let dsync = !shared.refused_dsync.load(Ordering::Relaxed);
                FileOperation::WriteHeader { offset, dsync }
            }
            JournalStep::Sync | JournalStep::ClearSync => FileOperation::Sync,
        }
    }

    fn operation(&self, shared: &Shared) -> FileOperation {
        let range = self.command.range().unwrap_or(Range::new(0, 0));
        let offset = range.lba * BLOCK_BYTES as u64 + self.progress;
        let left = u64::from(range.blocks) * BLOCK_BYTES as u64 - self.progress;
        let (at, bytes) = (self.progress as usize, left as usize);
        match (self.step, self.command) {
            (RequestStep::Transfer, Command::Read(_)) => FileOperation::Read { offset, at, bytes },
            (RequestStep::Transfer, _) => {
                let dsync = self.is_forced_with_write(shared);
                FileOperation::Write { offset, at, bytes, dsync }
            }
            (RequestStep::Zero(ZeroMethod::Write), _) => {
                FileOperation::WriteZeroes { offset, bytes: ZEROES.0.len().min(bytes) }
            }
            (RequestStep::Zero(ZeroMethod::Punch), _) => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                FileOperation::Allocate { mode, offset, bytes: left }
            }
            (RequestStep::Zero(ZeroMethod::ZeroRange), _) => {
                let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                FileOperation::Allocate { mode, offset, bytes: left }
            }
            (RequestStep::Sync, _) => FileOperation::Sync,
            (RequestStep::Journal(_), _) => unreachable!("that is the journal's"),
        }
    }

    /// Takes the call's result: not negative, or a negated error number. Returns the request's
    /// status if it has ended, or `None` if it needs another call.
    pub(super) fn advance(&mut self, result: i32, shared: &Shared) -> Option<Status> {
        if result < 0 {
            let status = self.fall_back(Errno::from_raw_os_error(-result), shared)?;
            return self.fail(status, shared);
        }
        match self.step {
            RequestStep::Journal(record) => {
                return self.advance_record(record, result as usize, shared);
            }
            RequestStep::Sync => return self.succeed(),
            RequestStep::Zero(ZeroMethod::Punch | ZeroMethod::ZeroRange) => {
                self.progress = self.range_bytes()
            }
            RequestStep::Transfer | RequestStep::Zero(ZeroMethod::Write) => {
                if !self.go_on(result as u64, shared) {
                    return self.fail(Status::MediaError, shared);
                }
            }
        }
        if self.progress < self.range_bytes() {
            return None;
        }
        let synced = self.step == RequestStep::Transfer && self.is_forced_with_write(shared);
        if self.is_forced() && !synced {
            self.step = RequestStep::Sync;
            return None;
        }
        self.succeed()
    }

    /// Advances past a transfer of `count` bytes. A granule that was transferred in part is
    /// repeated, since the next call must be aligned. Returns `false` if not one granule was
    /// transferred, as from a file that was shortened meanwhile.
    fn go_on(&mut self, count: u64, shared: &Shared) -> bool {
        let granule = shared.alignment.offset as u64;
        let end = self.progress + count;
        let end = if end < self.range_bytes() { end / granule * granule } else { end };
        let moved = end > self.progress;
        self.progress = end;
        moved
    }

    fn advance_record(
        &mut self,
        record: JournalStep,
        count: usize,
        shared: &Shared,
    ) -> Option<Status> {
        let short = count < HEADER_BYTES;
        self.step = match record {
            JournalStep::Await => unreachable!("it waits for a slot"),
            JournalStep::Payload => {
                if !self.go_on(count as u64, shared) {
                    return self.fail(Status::MediaError, shared);
                }
                if self.progress < self.range_bytes() {
                    return None;
                }
                self.seal(shared);
                RequestStep::Journal(JournalStep::Header)
            }
            JournalStep::Header | JournalStep::Clear if short => {
                return self.fail(Status::MediaError, shared);
            }
            JournalStep::Header => RequestStep::Journal(JournalStep::Sync),
            JournalStep::Sync => {
                self.progress = 0;
                RequestStep::Transfer
            }
            JournalStep::Clear if shared.refused_dsync.load(Ordering::Relaxed) => {
                RequestStep::Journal(JournalStep::ClearSync)
            }
            JournalStep::Clear | JournalStep::ClearSync => return Some(self.outcome),
        };
        None
    }

    fn seal(&mut self, shared: &Shared) {
        let range = self.command.range().expect("an atomic write has a range");
        let data = &self.buf.as_ref().expect("a write has a buffer").bytes()[..range.bytes()];
        let slot = self.journal.as_mut().expect("a slot was taken");
        shared.journal().seal(slot, range, data);
    }

    /// Returns `Ok` if the request has ended, or `None` if its journal record must be cleared
    /// first.
    fn succeed(&mut self) -> Option<Status> {
        let Some(slot) = &mut self.journal else { return Some(Status::Ok) };
        slot.clear();
        self.step = RequestStep::Journal(JournalStep::Clear);
        None
    }

    /// Takes the step that follows an error; returns the request's status if it has ended. A
    /// failure to clear a record breaks the volume: writes are refused until a restart has
    /// recovered it.
    fn fail(&mut self, status: Status, shared: &Shared) -> Option<Status> {
        match (self.step, &mut self.journal) {
            (RequestStep::Journal(JournalStep::Clear | JournalStep::ClearSync), _) => {
                shared.journal().broken.store(true, Ordering::Relaxed);
                Some(Status::MediaError)
            }
            (_, None) | (RequestStep::Journal(JournalStep::Payload), _) => Some(status),
            (_, Some(slot)) => {
                slot.clear();
                self.outcome = status;
                self.step = RequestStep::Journal(JournalStep::Clear);
                None
            }
        }
    }

    /// Ends the request, and frees its slot of the journal.
    pub(super) fn complete(self, status: Status, shared: &Shared) -> Completion {
        if let Some(slot) = self.journal {
            shared.journal().give(slot);
        }
        Completion { slot: self.slot, status, buf: self.buf }
    }

    /// Returns the header of the request's slot in the journal.
    pub(super) fn journal_header(&self) -> &[u8] {
        self.journal.as_ref().expect("a slot was taken").header.bytes()
    }

    fn range_bytes(&self) -> u64 {
        self.command.range().map_or(0, |range| u64::from(range.blocks) * BLOCK_BYTES as u64)
    }

    /// Returns whether the request's write itself makes the data durable, so that no sync follows.
    fn is_forced_with_write(&self, shared: &Shared) -> bool {
        let refused = shared.refused_dsync.load(Ordering::Relaxed);
        self.is_forced() && self.journal.is_none() && !refused
    }

    /// Returns whether the data must be durable before the reply.
    fn is_forced(&self) -> bool {
        matches!(
            self.command,
            Command::Write { fua: true, .. }
                | Command::WriteZeroes { fua: true, .. }
                | Command::WriteAtomic(_)
        )
    }

    fn fall_back(&mut self, errno: Errno, shared: &Shared) -> Option<Status> {
        match (errno, self.step) {
            (Errno::AGAIN | Errno::INTR, _) if self.repeats < REPEATS_MAX => {
                self.repeats += 1;
                None
            }
            (Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL, RequestStep::Zero(zeroing))
                if zeroing != ZeroMethod::Write =>
            {
                shared.refused_zeroing.fetch_or(zeroing as u8, Ordering::Relaxed);
                self.step = RequestStep::Zero(shared.zeroing(self.command));
                None
            }
            // Others may have been refused meanwhile; what was sent before still comes back so.
            (
                Errno::OPNOTSUPP,
                RequestStep::Transfer | RequestStep::Journal(JournalStep::Clear),
            ) if self.is_forced() && self.repeats < REPEATS_MAX => {
                self.repeats += 1;
                shared.refused_dsync.store(true, Ordering::Relaxed);
                None
            }
            _ => Some(status_of(errno)),
        }
    }
}

impl Shared {
    /// Returns the file that a call uses.
    pub(super) fn target(&self, target: TargetFile) -> BorrowedFd<'_> {
        match target {
            TargetFile::Data => self.file.as_fd(),
            TargetFile::Journal => self.journal().file.as_fd(),
        }
    }

    fn journal(&self) -> &Journal {
        self.journal.as_ref().expect("only a volume with a journal takes large atomic writes")
    }

    /// Returns `true` if the file refuses further writes, because a restart would overwrite them
    /// with an older record of the journal.
    pub(super) fn is_broken(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.broken.load(Ordering::Relaxed))
    }

    /// Returns the best way to carry out a zeroing command that the file has not refused.
    fn zeroing(&self, command: Command) -> ZeroMethod {
        let refused = self.refused_zeroing.load(Ordering::Relaxed);
        let preferred = match command {
            Command::Discard(_) => [ZeroMethod::Punch, ZeroMethod::ZeroRange],
            _ => [ZeroMethod::ZeroRange, ZeroMethod::Punch],
        };
        let allowed = preferred.into_iter().find(|zeroing| *zeroing as u8 & refused == 0);
        allowed.unwrap_or(ZeroMethod::Write)
    }

    /// Panics unless the submission keeps the contract and this volume's granularity.
    fn assert_aligned(&self, submission: &Submission) {
        let Submission { command, buf, .. } = submission;
        if let Some(range) = command.range() {
            let granule = (self.alignment.offset / BLOCK_BYTES) as u64;
            assert!(range.fits(self.blocks()), "{command:?} is outside the file");
            assert!(
                (range.lba | u64::from(range.blocks)).is_multiple_of(granule),
                "{command:?} is finer than {granule} blocks"
            );
        }
        let capacity = buf.as_ref().map_or(0, Buf::capacity);
        assert!(capacity >= command.buffer_bytes(), "{capacity} bytes for {command:?}");
        if let Some(buf) = buf {
            let address = buf.bytes().as_ptr().addr();
            let memory = self.alignment.memory;
            assert!(address.is_multiple_of(memory), "{buf:?} is not aligned to {memory} bytes");
        }
    }
}

/// Returns the status that the sender of a request gets for this error number of the file.
pub(super) fn status_of(errno: Errno) -> Status {
    match errno {
        Errno::IO | Errno::REMOTEIO | Errno::NODATA | Errno::ILSEQ => Status::MediaError,
        Errno::NXIO | Errno::NODEV | Errno::TIMEDOUT => Status::MediaError,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Status::NoSpace,
        Errno::ROFS | Errno::PERM => Status::ReadOnly,
        Errno::AGAIN | Errno::INTR | Errno::NOMEM | Errno::BUSY => Status::Retry,
        _ => Status::Internal,
    }
}

#[cfg(test)]
mod tests;
