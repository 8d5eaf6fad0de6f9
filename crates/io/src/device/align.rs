//! The alignment that direct I/O needs on a file.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, StatxFlags, statx};

/// The alignments that direct I/O needs, in bytes; both are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// The alignment of the buffer's address.
    pub(super) memory: usize,
    /// The alignment of the file offset and of the length.
    pub(super) offset: usize,
}

/// The alignment for buffered I/O: any address, but whole sectors of 512 bytes.
pub(super) const BUFFERED: Alignment = Alignment { memory: 1, offset: 512 };

/// Returns the alignment that direct I/O on this descriptor (opened with `O_DIRECT`) needs, or
/// `None` if the file system accepts the flag without support. The alignment is found by trial if
/// the kernel or the file system does not report it.
pub(super) fn of(file: &OwnedFd) -> Option<Alignment> {
    let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let told = told.filter(|told| told.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    match told {
        Some(told) if told.stx_dio_offset_align == 0 => None,
        Some(told) => Some(Alignment {
            memory: told.stx_dio_mem_align as usize,
            offset: (told.stx_dio_offset_align as usize).max(512),
        }),
        None => [512, 4096]
            .into_iter()
            .find(|&bytes| reads(file, bytes))
            .map(|bytes| Alignment { memory: bytes, offset: bytes }),
    }
}

/// Returns `true` if a direct read of `bytes` bytes works at an offset and an address aligned to
/// `bytes`, but to nothing larger.
fn reads(file: &OwnedFd, bytes: usize) -> bool {
    let mut memory = vec![0_u8; 4 * bytes];
    // The first multiple of `bytes` that is no multiple of twice that.
    let skip = memory.as_ptr().align_offset(2 * bytes) + bytes;
    rustix::io::pread(file, &mut memory[skip..skip + bytes], bytes as u64).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};

    #[test]
    fn a_trial_finds_what_statx_tells_or_less() {
        let path = std::env::temp_dir().join(format!("nearflash-align-{}", std::process::id()));
        std::fs::write(&path, [0; 16384]).unwrap();
        let file = rustix::fs::open(&path, OFlags::RDWR | OFlags::DIRECT, Mode::empty());
        std::fs::remove_file(&path).unwrap();
        let Ok(file) = file else { return };
        if let Some(alignment) = of(&file) {
            assert!(alignment.offset.is_power_of_two() && alignment.memory.is_power_of_two());
            assert!(reads(&file, alignment.offset.max(alignment.memory)));
        }
    }
}
