//! The files of a device, of which namespaces can be (docs/adr/0047-files-as-namespaces.md).
//!
//! A file of contiguous space is a range of its volume. The file system is read once, before a
//! worker serves the device. Nothing changes it afterwards: the volume is locked by this process,
//! and no namespace may write beside the files.

use std::sync::Arc;

use contigfs::FileSystem;
use contract::BLOCK_BYTES;

/// The files of a device.
#[derive(Clone, Debug)]
pub enum Files {
    /// The device is not open yet, and may have files.
    Unseen,
    /// The files are not known, for this reason.
    Unread(String),
    /// The file system as it was read.
    Read(Arc<FileSystem>),
}

impl Files {
    /// Returns the files of a device whose file system nobody has asked for when it was opened.
    pub(crate) fn unread() -> Files {
        Files::Unread(
            "the files of its device were not read when the server opened it; start the server \
             with the namespace in its configuration file"
                .to_owned(),
        )
    }

    /// Returns `true` if the file system was read.
    pub fn are_read(&self) -> bool {
        matches!(self, Files::Read(_))
    }

    /// Returns the blocks of the file at a path, as the first and their number; `None` if the
    /// device is not open yet.
    ///
    /// # Errors
    /// Says why the file cannot be a namespace, and what to do.
    pub fn blocks(&self, path: &str) -> Result<Option<(u64, u64)>, String> {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let system = match self {
            Files::Unseen => return Ok(None),
            Files::Unread(why) => return Err(why.clone()),
            Files::Read(system) => system,
        };
        let extent = system.extent(path).map_err(|why| why.to_string())?;
        if !extent.bytes.is_multiple_of(BLOCK) {
            let next = extent.bytes.next_multiple_of(BLOCK);
            return Err(format!(
                "the file has {} bytes, and a namespace has blocks of {BLOCK}; mount the file \
                 system and make the file {next} bytes long (`truncate --size {next}`)",
                extent.bytes
            ));
        }
        Ok(Some((extent.at / BLOCK, extent.bytes / BLOCK)))
    }
}
