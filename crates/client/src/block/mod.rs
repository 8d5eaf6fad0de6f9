//! Requests of an operating system's block device as commands for a server, and the server's
//! statuses as errors of a block device.
//!
//! This module knows no operating system: a [`Driver`] gives the requests.

mod engine;

use core::time::Duration;

use contract::{BLOCK_BYTES, Command, Instant, NamespaceInfo, REQUEST_BYTES_MAX, Range, Status};

pub use engine::{Arrival, Driver, Engine, Need, News, Terms, classes};

/// Maximum number of blocks in one discard or write of zeroes: 1 GiB.
pub const RANGE_BLOCKS_MAX: u32 = 1 << 21;

/// The operation of a block device's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOperation {
    /// Reads the sectors of the range.
    Read,
    /// Writes the sectors of the range.
    Write,
    /// Makes completed writes durable.
    Flush,
    /// Discards the sectors of the range, whose content may be lost.
    Discard,
    /// Writes zeroes to the sectors.
    WriteZeroes,
}

/// A request of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// The operation that the request asks for.
    pub operation: BlockOperation,
    /// First sector of 512 bytes.
    pub sector: u64,
    /// Number of sectors of 512 bytes.
    pub sectors: u32,
    /// `true` if the request is to be durable before its completion.
    pub is_durable: bool,
}

/// The reason that a block device's request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// The server, or the connection to it, has failed (`EIO`).
    Io,
    /// The server's device has no space left (`ENOSPC`).
    NoSpace,
    /// The operation is not supported; the operating system has another way.
    Unsupported,
    /// The request is malformed.
    Invalid,
    /// The device is read-only.
    ReadOnly,
}

impl BlockError {
    /// Returns Linux's number of the error (`errno(3)`).
    pub const fn errno(self) -> i32 {
        match self {
            BlockError::Io => 5,
            BlockError::Invalid => 22,
            BlockError::NoSpace => 28,
            BlockError::ReadOnly => 30,
            BlockError::Unsupported => 95,
        }
    }
}

impl BlockRequest {
    /// Returns the number of bytes that the request carries to the server or back.
    pub const fn data_bytes(self) -> usize {
        match self.operation {
            BlockOperation::Read | BlockOperation::Write => self.sectors as usize * BLOCK_BYTES,
            BlockOperation::Flush | BlockOperation::Discard | BlockOperation::WriteZeroes => 0,
        }
    }

    /// Returns the request as a command for the server.
    ///
    /// # Errors
    /// [`BlockError::Invalid`] for no sectors, or for more than one request can have;
    /// [`BlockError::ReadOnly`] for a change of a device that is `read_only`.
    pub fn command(self, read_only: bool) -> Result<Command, BlockError> {
        let range = Range::new(self.sector, self.sectors);
        let fua = self.is_durable;
        let most = match self.operation {
            BlockOperation::Flush => return Ok(Command::Flush),
            BlockOperation::Read | BlockOperation::Write => REQUEST_BYTES_MAX / BLOCK_BYTES,
            BlockOperation::Discard | BlockOperation::WriteZeroes => RANGE_BLOCKS_MAX as usize,
        };
        if range.blocks == 0 || range.blocks as usize > most || range.end().is_none() {
            return Err(BlockError::Invalid);
        }
        if read_only && self.operation != BlockOperation::Read {
            return Err(BlockError::ReadOnly);
        }
        Ok(match self.operation {
            BlockOperation::Read => Command::Read(range),
            BlockOperation::Write => Command::Write { range, fua },
            BlockOperation::Discard => Command::Discard(range),
            BlockOperation::WriteZeroes => Command::WriteZeroes { range, fua },
            BlockOperation::Flush => unreachable!("a flush has no range"),
        })
    }
}

/// Returns the error of a request that ended with `status`; `None` for success.
pub const fn block_error(status: Status) -> Option<BlockError> {
    Some(match status {
        Status::Ok => return None,
        Status::Unsupported => BlockError::Unsupported,
        Status::Invalid | Status::BadLength | Status::AtomicTooLarge => BlockError::Invalid,
        Status::NoSpace => BlockError::NoSpace,
        Status::ReadOnly => BlockError::ReadOnly,
        _ => BlockError::Io,
    })
}

/// Returns `true` if a request that ended with `status` must be sent again: the server was busy or
/// stopping, it stopped so often that the initiator gave the request up although the server
/// `is_reached`, or it refused the connection for the moment. A request is not sent again once
/// `fail_after` has passed since it came. Repeating is safe: when the server has answered the hello
/// of a later connection, no request of an earlier one is at the device (docs/adr/0003-fences.md).
pub fn is_repeated(
    status: Status,
    is_reached: bool,
    came_at: Instant,
    now: Instant,
    fail_after: Duration,
) -> bool {
    let is_passing = match status {
        Status::Retry => true,
        Status::ConnectionLost => is_reached,
        // A hello that was refused: the server may be about to know the tenant again.
        Status::Denied | Status::NoTenant | Status::NoNamespace => !is_reached,
        _ => false,
    };
    is_passing && now.since(came_at) < fail_after
}

/// The size and the limits of a block device over a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockForm {
    /// Size in sectors of 512 bytes.
    pub sectors: u64,
    /// Base-2 logarithm of the size of a physical block in bytes, at most 12 (4 KiB).
    pub physical_shift: u8,
    /// `true` if the device refuses changes.
    pub is_read_only: bool,
}

impl BlockForm {
    /// Returns the size and the limits of a device over the namespace. `read_only` makes it
    /// read-only even if the client may write.
    ///
    /// # Errors
    /// [`Status::Denied`] if the client may not read.
    pub fn of(info: &NamespaceInfo, read_only: bool) -> Result<BlockForm, Status> {
        if !info.rights.read {
            return Err(Status::Denied);
        }
        let physical = info.physical_block_bytes.clamp(BLOCK_BYTES as u32, 4096);
        Ok(BlockForm {
            sectors: info.blocks,
            physical_shift: physical.ilog2() as u8,
            is_read_only: read_only || !info.rights.write,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{NamespaceId, Rights};

    fn request(operation: BlockOperation, sectors: u32) -> BlockRequest {
        BlockRequest { operation, sector: 8, sectors, is_durable: true }
    }

    #[test]
    fn each_operation_has_its_command() {
        let range = Range::new(8, 16);
        let cases = [
            (BlockOperation::Read, Command::Read(range), 8192),
            (BlockOperation::Write, Command::Write { range, fua: true }, 8192),
            (BlockOperation::Discard, Command::Discard(range), 0),
            (BlockOperation::WriteZeroes, Command::WriteZeroes { range, fua: true }, 0),
        ];
        for (operation, command, bytes) in cases {
            assert_eq!(request(operation, 16).command(false), Ok(command));
            assert_eq!(request(operation, 16).data_bytes(), bytes);
        }
        assert_eq!(request(BlockOperation::Flush, 0).command(true), Ok(Command::Flush));
    }

    #[test]
    fn what_no_request_can_have_is_invalid() {
        let invalid = Err(BlockError::Invalid);
        assert_eq!(request(BlockOperation::Read, 0).command(false), invalid);
        assert_eq!(request(BlockOperation::Read, 2049).command(false), invalid);
        assert!(request(BlockOperation::Read, 2048).command(false).is_ok());
        assert!(request(BlockOperation::Discard, RANGE_BLOCKS_MAX).command(false).is_ok());
        assert_eq!(request(BlockOperation::Discard, RANGE_BLOCKS_MAX + 1).command(false), invalid);
        let beyond = BlockRequest { sector: u64::MAX, ..request(BlockOperation::Read, 8) };
        assert_eq!(beyond.command(false), invalid);
    }

    #[test]
    fn a_read_only_device_is_only_read() {
        for operation in
            [BlockOperation::Write, BlockOperation::Discard, BlockOperation::WriteZeroes]
        {
            assert_eq!(request(operation, 8).command(true), Err(BlockError::ReadOnly));
        }
        assert!(request(BlockOperation::Read, 8).command(true).is_ok());
    }

    #[test]
    fn statuses_have_errors_of_block_devices() {
        assert_eq!(block_error(Status::Ok), None);
        assert_eq!(block_error(Status::NoSpace).map(BlockError::errno), Some(28));
        assert_eq!(block_error(Status::Unsupported).map(BlockError::errno), Some(95));
        for status in Status::ALL.into_iter().filter(|status| !status.is_ok()) {
            assert!(block_error(status).is_some(), "{status}");
        }
    }

    #[test]
    fn what_passes_is_repeated_for_a_time() {
        let (came, limit) = (Instant::from_nanos(5), Duration::from_secs(1));
        let soon = came + Duration::from_millis(999);
        let late = came + limit;
        assert!(is_repeated(Status::Retry, false, came, soon, limit));
        assert!(!is_repeated(Status::Retry, true, came, late, limit));
        assert!(is_repeated(Status::ConnectionLost, true, came, soon, limit));
        assert!(!is_repeated(Status::ConnectionLost, false, came, soon, limit), "nobody is there");
        assert!(!is_repeated(Status::MediaError, true, came, soon, limit));
        assert!(is_repeated(Status::NoTenant, false, came, soon, limit), "of the hello");
        assert!(!is_repeated(Status::NoTenant, false, came, late, limit));
        assert!(!is_repeated(Status::Denied, true, came, soon, limit), "of the request");
    }

    #[test]
    fn a_device_has_the_form_of_its_namespace() {
        let info = NamespaceInfo {
            namespace: NamespaceId(1),
            blocks: 1000,
            physical_block_bytes: 65536,
            atomic_blocks_max: 0,
            rights: Rights { read: true, write: true },
            volatile_cache: true,
        };
        let form = BlockForm::of(&info, false).unwrap();
        assert_eq!((form.sectors, form.physical_shift), (1000, 12));
        assert!(!form.is_read_only && BlockForm::of(&info, true).unwrap().is_read_only);
        let fine = NamespaceInfo { physical_block_bytes: 0, ..info };
        assert_eq!(BlockForm::of(&fine, false).unwrap().physical_shift, 9);
        let reader = NamespaceInfo { rights: Rights { read: true, write: false }, ..info };
        assert!(BlockForm::of(&reader, false).unwrap().is_read_only);
        let nobody = NamespaceInfo { rights: Rights { read: false, write: true }, ..info };
        assert_eq!(BlockForm::of(&nobody, false), Err(Status::Denied));
    }
}
