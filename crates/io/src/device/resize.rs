//! Changes of a volume's size while queues to it are open, and zeroing of its ranges.
//!
//! This module deliberately leaves out shrinking a file that is in use. Space behind a namespace's
//! end is freed by zeroing it.

use std::sync::atomic::Ordering;

use contract::BLOCK_BYTES;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::file::FileVolume;
use super::flight::ZEROES;
use crate::Error;

/// Number of bytes that are freed in one call: a call keeps the file from everybody else.
const FREED_BYTES: u64 = 64 << 20;

impl FileVolume {
    /// Returns whether the volume can be enlarged: it is a file, and not opened for reading only.
    pub fn can_grow(&self) -> bool {
        !self.shared.is_block_device && !self.shared.geometry.read_only
    }

    /// Enlarges the file to `blocks` blocks, sparsely and durably, if it has fewer. From then on
    /// queues take requests for the new blocks.
    ///
    /// # Errors
    /// Fails if the volume is a block device, the size is no whole number of granules, or the file
    /// system refuses.
    pub fn grow(&self, blocks: u64) -> Result<(), Error> {
        if blocks <= self.shared.blocks() {
            return Ok(());
        }
        if self.shared.is_block_device {
            return Err(Error::new("a block device has the size that it has"));
        }
        let bytes = blocks * BLOCK_BYTES as u64;
        if !bytes.is_multiple_of(self.granularity_bytes() as u64) {
            let granule = self.granularity_bytes();
            return Err(Error::new(format!("its size must be a multiple of {granule} bytes")));
        }
        let file = &self.shared.file;
        let failed = |errno| Error::system("cannot make the file larger", errno);
        let before = rustix::fs::fstat(file).map_err(failed)?.st_size as u64;
        let grown = rustix::fs::ftruncate(file, bytes).and_then(|()| rustix::fs::fsync(file));
        if let Err(errno) = grown {
            // It may be larger, though not durably so.
            let _ = rustix::fs::ftruncate(file, before); // what is said of the first failure holds
            return Err(failed(errno));
        }
        self.shared.blocks.fetch_max(blocks, Ordering::AcqRel);
        Ok(())
    }

    /// Shrinks the file to `blocks` blocks, durably, if it has more, to undo a
    /// [growth](FileVolume::grow) that was not used. No request behind the new end may be in
    /// flight.
    ///
    /// # Errors
    /// Fails if the volume is a block device, or the file system refuses.
    pub fn cut(&self, blocks: u64) -> Result<(), Error> {
        if blocks >= self.shared.blocks() {
            return Ok(());
        }
        if self.shared.is_block_device {
            return Err(Error::new("a block device has the size that it has"));
        }
        let failed = |errno| Error::system("cannot make the file smaller again", errno);
        rustix::fs::ftruncate(&self.shared.file, blocks * BLOCK_BYTES as u64).map_err(failed)?;
        self.shared.blocks.fetch_min(blocks, Ordering::AcqRel);
        rustix::fs::fsync(&self.shared.file).map_err(failed)
    }

    /// Zeroes `blocks` blocks from `first` on, durably; a file frees the space. The range is of
    /// whole granules, and no request in it may be in flight.
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn blank(&self, first: u64, blocks: u64) -> Result<(), Error> {
        if blocks == 0 {
            return Ok(());
        }
        let (offset, bytes) = (first * BLOCK_BYTES as u64, blocks * BLOCK_BYTES as u64);
        self.zero(offset, bytes)
            .and_then(|()| rustix::fs::fsync(&self.shared.file))
            .map_err(|errno| Error::system("cannot make a range of the device blank", errno))
    }

    /// Zeroes `blocks` blocks from `first` on, durably, and frees the space. Unlike
    /// [`blank`](Self::blank) it writes nothing. No request in the range may be in flight.
    ///
    /// # Errors
    /// Fails if the file system or the disk cannot free space in this way.
    pub fn free(&self, first: u64, blocks: u64) -> Result<(), Error> {
        if blocks == 0 {
            return Ok(());
        }
        let (first, end) = (first * BLOCK_BYTES as u64, (first + blocks) * BLOCK_BYTES as u64);
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // In pieces, between which the requests of other namespaces get their turns.
        let mut pieces = (first..end).step_by(FREED_BYTES as usize);
        pieces
            .try_for_each(|at| {
                let bytes = FREED_BYTES.min(end - at);
                rustix::fs::fallocate(&self.shared.file, mode, at, bytes)
            })
            .and_then(|()| rustix::fs::fsync(&self.shared.file))
            .map_err(|errno| Error::system("cannot free a range of the device", errno))
    }

    fn zero(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
        let keep = FallocateFlags::KEEP_SIZE;
        let modes = match self.shared.is_block_device {
            // A hole in one need not read as zeroes.
            true => &[FallocateFlags::ZERO_RANGE][..],
            false => &[FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE],
        };
        for mode in modes {
            match rustix::fs::fallocate(&self.shared.file, *mode | keep, offset, bytes) {
                Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::INVAL) => {}
                other => return other,
            }
        }
        let end = offset + bytes;
        let mut at = offset;
        while at < end {
            let piece = (end - at).min(ZEROES.0.len() as u64) as usize;
            at += rustix::io::pwrite(&self.shared.file, &ZEROES.0[..piece], at)? as u64;
        }
        Ok(())
    }
}
