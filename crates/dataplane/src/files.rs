//! The files of a device, of which namespaces can be (docs/adr/0047-files-as-namespaces.md).
//!
//! A file of contiguous space is a range of its volume. The file system is read once, before a
//! worker serves the device. Nothing changes it afterwards: the volume is locked by this process,
//! and no namespace may write beside the files.

use std::sync::Arc;

use contigfs::{FileSystem, NoExtent, Pages, Settings};
use contract::{BLOCK_BYTES, COMMIT_PAGE_BYTES};
use flash::{Source, Spec};

/// The files of a device.
#[derive(Clone, Debug)]
pub enum DeviceFiles {
    /// The device is not open yet, and may have files.
    Unseen,
    /// Namespaces cannot be files of this device, for this reason: for example, the device has no
    /// file system.
    Absent(String),
    /// The device has a file system that could not be read, for this reason.
    Unread(String),
    /// The file system of the device, as it was read when the device was opened.
    Read(Arc<FileSystem>),
}

impl DeviceFiles {
    /// Returns the files of a device that is not open.
    pub fn foreseen(spec: &Spec) -> DeviceFiles {
        match &spec.source {
            Source::Ftl { wishes, .. } if wishes.ignores_files => DeviceFiles::Absent(
                "the files of its device do not count by the option `ftl.files=ignore`; leave the \
                 option out"
                    .to_owned(),
            ),
            Source::Ftl { .. } => DeviceFiles::Unseen,
            _ => DeviceFiles::Absent(
                "its device can have no file system of contiguous files; name an `ftl:` device, or \
                 give the namespace `offset` and `size`"
                    .to_owned(),
            ),
        }
    }

    /// Returns `true` if the device has a file system, as far as that is known.
    pub fn are_there(&self) -> bool {
        matches!(self, DeviceFiles::Unread(_) | DeviceFiles::Read(_))
    }

    /// Returns the blocks of the file at a path, as the first and their number; `None` if the
    /// device is not open yet.
    ///
    /// # Errors
    /// Says why the file cannot be a namespace, and what to do.
    pub fn blocks(&self, path: &str) -> Result<Option<(u64, u64)>, String> {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        if contigfs::parts(path).is_none() {
            return Err(NoExtent::Path.to_string());
        }
        let system = match self {
            DeviceFiles::Unseen => return Ok(None),
            DeviceFiles::Absent(why) | DeviceFiles::Unread(why) => return Err(why.clone()),
            DeviceFiles::Read(system) => system,
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

/// Looks whether the volume of a device that was just opened has a file system. Two pages are read
/// for that. Other devices have no `pages` to look at.
pub(crate) fn look(spec: &Spec, pages: Option<impl Pages>) -> DeviceFiles {
    let foreseen = DeviceFiles::foreseen(spec);
    let (DeviceFiles::Unseen, Some(mut pages)) = (&foreseen, pages) else { return foreseen };
    let mut page = vec![0; COMMIT_PAGE_BYTES];
    // One that cannot be read is none: a file system needs only the other one.
    let mut is_one = |at| pages.read(at, &mut page).is_ok() && contigfs::is_superblock(&page);
    match is_one(0) || is_one(1) {
        true => DeviceFiles::Unread(
            "the files of its device were not read when the server opened it; start the server \
             with the namespace in its configuration file"
                .to_owned(),
        ),
        false => DeviceFiles::Absent(
            "the volume of its device has no file system; make one with `nearflash fs create`, or \
             give the namespace `offset` and `size`"
                .to_owned(),
        ),
    }
}

/// Reads the file system of a volume, whose commits have so many pages at most.
pub(crate) fn read(mut pages: impl Pages, commit_pages_max: usize) -> DeviceFiles {
    let mut seed = [0; 8];
    io::random(&mut seed);
    let seed = u64::from_ne_bytes(seed);
    match contigfs::mount(&mut pages, &Settings { commit_pages_max, seed, read_only: true }) {
        Ok(system) => DeviceFiles::Read(Arc::new(system)),
        Err(error) => DeviceFiles::Unread(error.to_string()),
    }
}
