//! Blocking reads and writes of a file, for work before a device serves and after.

use contract::{Buf, REQUEST_BYTES_MAX, SizeClass, Status};
use rustix::io::Errno;

use super::file::FileVolume;
use super::flight::status_of;
use crate::{Error, carve};

/// A file or block device with blocking reads and writes. Offsets and lengths are multiples of
/// [`FileVolume::granularity_bytes`].
#[derive(Debug)]
pub struct BlockingVolume {
    volume: FileVolume,
    buf: Buf,
}

impl BlockingVolume {
    /// Returns blocking access to a volume.
    ///
    /// # Errors
    /// Fails if the system has no memory for a buffer.
    pub fn new(volume: &FileVolume) -> Result<BlockingVolume, Error> {
        let arena = carve(&[SizeClass { bytes: REQUEST_BYTES_MAX, count: 1 }])?;
        let buf = arena.bufs.into_iter().next().expect("one was asked for");
        Ok(BlockingVolume { volume: volume.clone(), buf })
    }

    /// Returns the volume that is read and written.
    pub fn volume(&self) -> &FileVolume {
        &self.volume
    }

    /// Fills `into` with the file's bytes from byte `offset` on. Bytes behind the end of the file
    /// are zero.
    ///
    /// # Errors
    /// Returns the status with which a request of a device would end.
    pub fn read(&mut self, mut offset: u64, into: &mut [u8]) -> Result<(), Status> {
        let file = &self.volume.shared.file;
        for piece in into.chunks_mut(REQUEST_BYTES_MAX) {
            let mut done = 0;
            while done < piece.len() {
                let rest = &mut self.buf.prefix_mut(piece.len())[done..];
                match rustix::io::pread(file, &mut *rest, offset + done as u64) {
                    Ok(0) => {
                        rest.fill(0);
                        break;
                    }
                    Ok(count) => done += count,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(status_of(errno)),
                }
            }
            piece.copy_from_slice(&self.buf.bytes()[..piece.len()]);
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes `from` to the file at byte `offset`.
    ///
    /// # Errors
    /// Returns the status with which a request of a device would end.
    pub fn write(&mut self, mut offset: u64, from: &[u8]) -> Result<(), Status> {
        let file = &self.volume.shared.file;
        for piece in from.chunks(REQUEST_BYTES_MAX) {
            self.buf.prefix_mut(piece.len()).copy_from_slice(piece);
            let mut done = 0;
            while done < piece.len() {
                let rest = &self.buf.bytes()[done..piece.len()];
                match rustix::io::pwrite(file, rest, offset + done as u64) {
                    Ok(count) => done += count,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(status_of(errno)),
                }
            }
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes everything that was written durable.
    ///
    /// # Errors
    /// Returns the status with which a request of a device would end.
    pub fn sync(&mut self) -> Result<(), Status> {
        rustix::fs::fdatasync(&self.volume.shared.file).map_err(status_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::FileOptions;

    #[test]
    fn what_was_written_is_read_back() {
        let name = format!("nearflash-blocking-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let options = FileOptions { journal: false, ..FileOptions::default() };
        let bytes = 4 << 20;
        let volume = FileVolume::open(&path, Some(bytes), options).unwrap();
        let mut blocking = BlockingVolume::new(&volume).unwrap();
        let data: Vec<u8> = (0..3 << 19).map(|at| (at / 4096) as u8).collect();
        blocking.write(8192, &data).unwrap();
        blocking.sync().unwrap();
        let mut read = vec![1; data.len() + 4096];
        blocking.read(8192, &mut read).unwrap();
        assert!(read[..data.len()] == data && read[data.len()..].iter().all(|byte| *byte == 0));
        std::fs::remove_file(path).unwrap();
    }
}
