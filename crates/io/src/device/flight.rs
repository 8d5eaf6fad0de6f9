//! One request on its way through the kernel, whichever way it is carried there.
//!
//! A request may take several system calls: short transfers go on, refused ones fall back, forced
//! unit access may need a sync. [`Flight::operation`] says the next call, [`Flight::advance`] takes
//! its result.

use std::sync::atomic::Ordering;

use contract::{BLOCK_BYTES, Buf, Command, Completion, Kind, Range, Slot, Status, Submission};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::file::Shared;

/// Calls that may ask to be repeated before a request is given back with `Retry`.
const REPEATS_MAX: u8 = 100;

/// Zeroes to write where a file can do no better.
pub(super) static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

#[repr(align(4096))]
pub(super) struct Zeroes(pub(super) [u8; 64 << 10]);

#[derive(Debug)]
pub(super) struct Flight {
    /// The request's name outside.
    pub(super) slot: Slot,
    pub(super) command: Command,
    pub(super) buf: Option<Buf>,
    /// Bytes of the range that are done.
    progress: u64,
    step: Step,
    repeats: u8,
}

/// What is being done for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Moving data between the buffer and the file.
    Transfer,
    /// Making the range zero.
    Zero(Zeroing),
    /// Making what was done durable. The last step.
    Sync,
}

/// Ways to make a range zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeroing {
    /// Giving the space back.
    Punch = 1,
    /// Telling the file system.
    ZeroRange = 2,
    /// Writing zeroes. Never refused.
    Write = 4,
}

/// A system call on the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Read `bytes` to `at` in the buffer.
    Read { offset: u64, at: usize, bytes: usize },
    /// Write `bytes` from `at` in the buffer, durably if `dsync`.
    Write { offset: u64, at: usize, bytes: usize, dsync: bool },
    /// Write so many of [`ZEROES`].
    WriteZeroes { offset: u64, bytes: usize },
    /// `fallocate`.
    Allocate { mode: FallocateFlags, offset: u64, bytes: u64 },
    /// `fdatasync`.
    Sync,
}

impl Flight {
    /// A request on its way; `Err` is its completion where it cannot be served at all.
    pub(super) fn start(submission: Submission, shared: &Shared) -> Result<Flight, Completion> {
        shared.assert_aligned(&submission);
        let Submission { slot, command, buf } = submission;
        let atomic_max = shared.geometry.atomic_blocks_max;
        let refusal = match command {
            _ if shared.geometry.read_only && command.kind() == Kind::Write => Status::ReadOnly,
            Command::CompareAndWrite(_) => Status::Unsupported,
            Command::WriteAtomic(range) if range.blocks > atomic_max => Status::AtomicTooLarge,
            _ => Status::Ok,
        };
        if !refusal.is_ok() {
            return Err(Completion { slot, status: refusal, buf });
        }
        let step = match command {
            Command::Read(_) | Command::Write { .. } | Command::WriteAtomic(_) => Step::Transfer,
            Command::Discard(_) | Command::WriteZeroes { .. } => {
                Step::Zero(shared.zeroing(command))
            }
            Command::Flush => Step::Sync,
            Command::CompareAndWrite(_) | Command::Barrier => {
                unreachable!("{command:?} cannot get here")
            }
        };
        Ok(Flight { slot, command, buf, progress: 0, step, repeats: 0 })
    }

    /// The system call to make now.
    pub(super) fn operation(&self, shared: &Shared) -> Operation {
        let range = self.command.range().unwrap_or(Range::new(0, 0));
        let offset = range.lba * BLOCK_BYTES as u64 + self.progress;
        let left = u64::from(range.blocks) * BLOCK_BYTES as u64 - self.progress;
        let (at, bytes) = (self.progress as usize, left as usize);
        match (self.step, self.command) {
            (Step::Transfer, Command::Read(_)) => Operation::Read { offset, at, bytes },
            (Step::Transfer, _) => {
                let dsync = self.is_forced() && !shared.refused_dsync.load(Ordering::Relaxed);
                Operation::Write { offset, at, bytes, dsync }
            }
            (Step::Zero(Zeroing::Write), _) => {
                Operation::WriteZeroes { offset, bytes: ZEROES.0.len().min(bytes) }
            }
            (Step::Zero(Zeroing::Punch), _) => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Operation::Allocate { mode, offset, bytes: left }
            }
            (Step::Zero(Zeroing::ZeroRange), _) => {
                let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                Operation::Allocate { mode, offset, bytes: left }
            }
            (Step::Sync, _) => Operation::Sync,
        }
    }

    /// Takes the call's result: not negative, or minus an error number. Returns how the request
    /// ended, or `None` when it takes another call.
    pub(super) fn advance(&mut self, result: i32, shared: &Shared) -> Option<Status> {
        if result < 0 {
            return self.fall_back(Errno::from_raw_os_error(-result), shared);
        }
        let range_bytes =
            self.command.range().map_or(0, |range| u64::from(range.blocks) * BLOCK_BYTES as u64);
        match self.step {
            Step::Sync => return Some(Status::Ok),
            Step::Zero(Zeroing::Punch | Zeroing::ZeroRange) => self.progress = range_bytes,
            Step::Transfer | Step::Zero(Zeroing::Write) => {
                // The next call must be aligned again, so what ends within a granule is repeated.
                let granule = shared.alignment.offset as u64;
                let end = self.progress + result as u64;
                let end = if end < range_bytes { end / granule * granule } else { end };
                if end == self.progress {
                    // The file became shorter beneath us.
                    return Some(Status::MediaError);
                }
                self.progress = end;
            }
        }
        if self.progress < range_bytes {
            return None;
        }
        let synced = self.step == Step::Transfer && !shared.refused_dsync.load(Ordering::Relaxed);
        if self.is_forced() && !synced {
            self.step = Step::Sync;
            return None;
        }
        Some(Status::Ok)
    }

    /// Whether the data must be durable before the reply.
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
            (Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL, Step::Zero(zeroing))
                if zeroing != Zeroing::Write =>
            {
                shared.refused_zeroing.fetch_or(zeroing as u8, Ordering::Relaxed);
                self.step = Step::Zero(shared.zeroing(self.command));
                None
            }
            (Errno::OPNOTSUPP, Step::Transfer)
                if self.is_forced() && !shared.refused_dsync.swap(true, Ordering::Relaxed) =>
            {
                None
            }
            _ => Some(status_of(errno)),
        }
    }
}

impl Shared {
    /// The best way to carry out a zeroing command that the file has not refused.
    fn zeroing(&self, command: Command) -> Zeroing {
        let refused = self.refused_zeroing.load(Ordering::Relaxed);
        let preferred = match command {
            Command::Discard(_) => [Zeroing::Punch, Zeroing::ZeroRange],
            _ => [Zeroing::ZeroRange, Zeroing::Punch],
        };
        let allowed = preferred.into_iter().find(|zeroing| *zeroing as u8 & refused == 0);
        allowed.unwrap_or(Zeroing::Write)
    }

    /// Panics unless the submission is what the contract and this volume's granularity promise.
    fn assert_aligned(&self, submission: &Submission) {
        let Submission { command, buf, .. } = submission;
        if let Some(range) = command.range() {
            let granule = (self.alignment.offset / BLOCK_BYTES) as u64;
            assert!(range.fits(self.geometry.blocks), "{command:?} is outside the file");
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

/// What an error number of the file means to whoever sent the request.
fn status_of(errno: Errno) -> Status {
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
