//! The reasons for which a volume cannot be created or opened. Each message says what to do.

use core::fmt;

use contract::Status;

use crate::layout::{VERSION, VERSION_THIN};

/// The reason why a volume was not created or opened. Members are named by their index, from zero.
/// Unless a member [failed](Error::Failed), the members are as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The geometry is not supported: no members or too many, segments below 8 pages, or less than
    /// 2 % of spare space.
    Shape,
    /// The members hold too few segments for the spare space.
    TooSmall,
    /// The volume would have more pages than the map can name.
    TooLarge,
    /// A thin volume shall have no pages, or more than the map can name.
    VirtualSize,
    /// The member at the index already belongs to a volume.
    InUse(usize),
    /// The member at the index belongs to no volume.
    NoVolume(usize),
    /// Both copies of the superblock of the member at the index are damaged.
    Damaged(usize),
    /// The member at the index has a format of an unknown version, the second value.
    Version(usize, u16),
    /// The member at the index belongs to another volume than member 0.
    Foreign(usize),
    /// The member that was named at the first index belongs at the second one.
    Order(usize, usize),
    /// The volume has not as many members as were named: first the number that was named, then that
    /// of the volume.
    Count(usize, usize),
    /// The member at the index is smaller than the volume on it.
    Shrunk(usize),
    /// The page with this index of the checkpoint is damaged.
    Checkpoint(u32),
    /// A durable batch of this segment is damaged, and a later one is sound.
    Batch(u32),
    /// The member at the index failed to read, write or flush, with the given status.
    Failed(usize, Status),
    /// The log since the checkpoint is longer than this version ever makes it.
    Log,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Shape => f.write_str(
                "a volume needs 1 to 32 members, segments of at least 8 pages and at least 2 % of \
                 spare space; choose other sizes",
            ),
            Error::TooSmall => f.write_str(
                "the members are too small for this segment size and spare space; add members, or \
                 choose smaller segments or more spare space",
            ),
            Error::TooLarge => {
                f.write_str("a volume has at most 16 TiB of members; create several volumes")
            }
            Error::VirtualSize => f.write_str(
                "a thin volume has at least 4 KiB and at most 4 MiB less than 16 TiB; choose another \
                 size",
            ),
            Error::InUse(member) => write!(
                f,
                "member {member} already belongs to a volume; open that volume, or erase the first \
                 8 KiB of the member to give it up"
            ),
            Error::NoVolume(member) => write!(
                f,
                "member {member} holds no volume; check its path, or create a volume on it"
            ),
            Error::Damaged(member) => write!(
                f,
                "both copies of the superblock of member {member} are damaged; restore its first \
                 8 KiB from a copy of the member"
            ),
            Error::Version(member, version) => write!(
                f,
                "member {member} has format version {version}, and this program reads versions \
                 {VERSION} and {VERSION_THIN}; use the program that wrote it"
            ),
            Error::Foreign(member) => write!(
                f,
                "member {member} belongs to another volume than member 0; name the members of one \
                 volume"
            ),
            Error::Order(member, other) => write!(
                f,
                "member {member} is member {other} of its volume; name the members in their order"
            ),
            Error::Count(given, has) => {
                write!(f, "{given} members were named, and the volume has {has}; name all of them")
            }
            Error::Shrunk(member) => write!(
                f,
                "member {member} is smaller than the volume on it; give it its old size back"
            ),
            Error::Checkpoint(page) => write!(
                f,
                "page {page} of the checkpoint is damaged; restore the volume from a copy"
            ),
            Error::Batch(segment) => write!(
                f,
                "a batch in segment {segment} is damaged that the checkpoint does not have; restore \
                 the volume from a copy"
            ),
            Error::Failed(member, status) => {
                write!(f, "member {member} fails ({status}); replace it or try again")
            }
            Error::Log => f.write_str(
                "the log since the checkpoint is longer than this version writes; use the program \
                 that wrote it",
            ),
        }
    }
}

impl core::error::Error for Error {}
