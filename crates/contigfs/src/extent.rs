//! The place of a whole file in virtual space, for an owner that exports a file as a device.
//!
//! A file of contiguous space is a range: its first byte, and its size. The range holds as long as
//! nobody changes the file system, which is the caller's to see to.

use alloc::string::{String, ToString};
use core::fmt;

use crate::layout::InodeRecord;
use crate::system::FileSystem;
use crate::words::{Ino, ROOT, S_IFDIR, S_IFLNK, S_IFREG};

/// The range of virtual space that the bytes of a file have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in virtual space of the file's first byte.
    pub at: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// The reason for which a path names no range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoExtent {
    /// The text is no path from the root on.
    Path,
    /// No file or directory has this path.
    Missing(String),
    /// A component of the path is not a directory, but is followed by further components.
    NoDirectory(String),
    /// The path names a directory.
    Directory,
    /// The path, or one of its components, names a symbolic link, which is not followed.
    Link(String),
    /// The path names a device, a pipe or a socket.
    Special,
    /// The file has no bytes.
    Empty,
}

impl fmt::Display for NoExtent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoExtent::Path => f.write_str(
                "expected the path of a file from the root of the file system on, such as \
                 /vm/disk0.img, without empty parts, `.` and `..`",
            ),
            NoExtent::Missing(part) => write!(
                f,
                "there is no {part}; see what there is with `nearflash fs list`, or make a file with \
                 `nearflash fs allocate`",
            ),
            NoExtent::NoDirectory(part) => write!(f, "{part} is no directory; check the path"),
            NoExtent::Directory => f.write_str("it is a directory; name a file in it"),
            NoExtent::Link(part) => {
                write!(f, "{part} is a symbolic link; name the path that it leads to")
            }
            NoExtent::Special => {
                f.write_str("it is a device, a pipe or a socket; name a regular file")
            }
            NoExtent::Empty => f.write_str(
                "the file is empty; mount the file system and give it a size (`truncate`), or make \
                 another with `nearflash fs allocate`",
            ),
        }
    }
}

impl core::error::Error for NoExtent {}

/// Returns the parts of a path from the root on; `None` if it is none.
pub fn parts(path: &str) -> Option<impl Iterator<Item = &str> + Clone> {
    let parts = path.strip_prefix('/')?.split('/');
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    parts.clone().all(is_part).then_some(parts)
}

impl FileSystem {
    /// Returns the range of the file that a path names.
    ///
    /// # Errors
    /// The path names no regular file with bytes.
    pub fn extent(&self, path: &str) -> Result<Extent, NoExtent> {
        let (mut ino, mut kind, mut end) = (ROOT, S_IFDIR, 0);
        for part in parts(path).ok_or(NoExtent::Path)? {
            match kind {
                S_IFDIR => {}
                S_IFLNK => return Err(NoExtent::Link(path[..end].to_string())),
                _ => return Err(NoExtent::NoDirectory(path[..end].to_string())),
            }
            end += 1 + part.len();
            let found = self.state.names.find(&self.state.pool, ino, part.as_bytes());
            ino = found.ok_or_else(|| NoExtent::Missing(path[..end].to_string()))?.ino;
            kind = self.state.kind(ino);
        }
        match kind {
            S_IFREG => self.extent_of(ino).ok_or(NoExtent::Empty),
            S_IFDIR => Err(NoExtent::Directory),
            S_IFLNK => Err(NoExtent::Link(path.to_string())),
            _ => Err(NoExtent::Special),
        }
    }

    /// Returns the range of a regular file; `None` if it is none, or has no bytes.
    pub fn extent_of(&self, ino: Ino) -> Option<Extent> {
        let record: &InodeRecord = self.state.find(ino).ok()?;
        let bytes = record.size.get();
        let place = self.state.place(ino).filter(|_| self.state.kind(ino) == S_IFREG)?;
        (1..=place.bytes()).contains(&bytes).then(|| Extent { at: self.state.base(place), bytes })
    }
}
