//! The reasons for which a file system cannot be created or mounted. Each sentence says what to do;
//! nothing was written.

use alloc::string::String;
use core::fmt;

use contract::Status;

use crate::layout::VERSION;

/// The reason why a file system was not created or mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The volume's size or the requested sizes are unsuitable for a file system.
    Shape,
    /// The volume already has a file system.
    InUse,
    /// The volume has no file system.
    Nothing,
    /// Both copies of the superblock are damaged.
    Damaged,
    /// The file system was written by another version.
    Version(u16),
    /// The volume has fewer pages than the file system: those it has, and those it needs.
    Shrunk(u64, u64),
    /// Commits of the volume are too small: pages that it takes, and pages that are needed.
    Commits(usize, usize),
    /// The metadata contradict themselves: the number of faults, and the first.
    Inconsistent(u64, String),
    /// The volume failed to read, commit or discard.
    Failed(Status),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Shape => f.write_str(
                "these sizes make no file system on this volume; choose at least 64 inodes and 16 \
                 pages of metadata, and fewer than the virtual space holds",
            ),
            Error::InUse => f.write_str(
                "the volume already has a file system; mount it, or erase the first 8 KiB of the \
                 volume to give it up",
            ),
            Error::Nothing => f.write_str(
                "the volume has no file system; check its name, or make a file system on it",
            ),
            Error::Damaged => f.write_str(
                "both copies of the superblock are damaged; restore the first 8 KiB from a copy of \
                 the volume",
            ),
            Error::Version(version) => write!(
                f,
                "the file system has format version {version}, and this program reads version \
                 {VERSION}; use the program that wrote it",
            ),
            Error::Shrunk(has, needs) => write!(
                f,
                "the volume has {has} pages, and the file system needs {needs}; give the volume \
                 its old size back",
            ),
            Error::Commits(has, needs) => write!(
                f,
                "the volume commits {has} pages at once, and the file system needs {needs}; use a \
                 volume with flash translation",
            ),
            Error::Inconsistent(faults, first) => write!(
                f,
                "the metadata have {faults} faults, of which the first is: {first}; check the file \
                 system, and restore the volume from a copy",
            ),
            Error::Failed(status) => {
                write!(f, "the volume fails ({status}); see to it, or try again")
            }
        }
    }
}

impl core::error::Error for Error {}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        Error::Failed(status)
    }
}
