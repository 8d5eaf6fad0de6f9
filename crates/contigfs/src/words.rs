//! The words in which a caller and the file system talk: operations, replies, attributes.
//!
//! Names and numbers are POSIX's and Linux's. An operation is a value, so that it can be recorded,
//! repeated, and applied to a model. Deliberately left out: what an operation does.

use alloc::vec::Vec;

use crate::errno::Errno;

/// Number of an inode. The root directory is [`ROOT`].
pub type Ino = u32;

/// Number of the root directory's inode.
pub const ROOT: Ino = 1;

/// Maximum length of a name in bytes.
pub const NAME_MAX: usize = 255;

/// Maximum length of a symbolic link's target in bytes.
pub const TARGET_MAX: usize = 4095;

/// Maximum number of names of a file.
pub const LINK_MAX: u32 = 65_000;

/// The file's type in a mode.
pub const S_IFMT: u32 = 0o170_000;
/// Type of a socket.
pub const S_IFSOCK: u32 = 0o140_000;
/// Type of a symbolic link.
pub const S_IFLNK: u32 = 0o120_000;
/// Type of a regular file.
pub const S_IFREG: u32 = 0o100_000;
/// Type of a block device.
pub const S_IFBLK: u32 = 0o060_000;
/// Type of a directory.
pub const S_IFDIR: u32 = 0o040_000;
/// Type of a character device.
pub const S_IFCHR: u32 = 0o020_000;
/// Type of a named pipe.
pub const S_IFIFO: u32 = 0o010_000;
/// Set user id on execution.
pub const S_ISUID: u32 = 0o4000;
/// Set group id on execution; for a directory, new files take its group.
pub const S_ISGID: u32 = 0o2000;
/// Execution by the group.
pub const S_IXGRP: u32 = 0o0010;

/// A point of time: seconds and nanoseconds since the beginning of 1970, in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below 10⁹.
    pub nanos: u32,
}

/// The user and groups of the process that requests an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller<'a> {
    /// User identifier (UID) of the requesting process.
    pub uid: u32,
    /// Group identifier (GID) of the requesting process.
    pub gid: u32,
    /// Supplementary group identifiers of the requesting process; none if the caller of the file
    /// system does not know them.
    pub groups: &'a [u32],
}

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Number of the inode.
    pub ino: Ino,
    /// Generation of the inode, which distinguishes successive inodes of the same number.
    pub generation: u32,
    /// File type and permission bits, as in `st_mode` of stat(2).
    pub mode: u32,
    /// Number of names; for a directory, 2 and its subdirectories.
    pub nlink: u32,
    /// User identifier (UID) of the inode's owner.
    pub uid: u32,
    /// Group identifier (GID) of the inode.
    pub gid: u32,
    /// Number of a device, for device nodes.
    pub rdev: u32,
    /// Bytes; of a directory, those of its pages; of a symbolic link, those of its target.
    pub size: u64,
    /// Units of 512 bytes as far as the size tells: holes are counted.
    pub blocks: u64,
    /// Last access, as set by a caller. Reads do not change it.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
    /// Time of the inode's creation.
    pub birth: Time,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// The time is set to this value.
    To(Time),
}

/// The attributes to change; `None` keeps one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChange {
    /// Permissions; the type in it is ignored.
    pub mode: Option<u32>,
    /// New owner as a user identifier (UID); `None` keeps the owner.
    pub uid: Option<u32>,
    /// New group as a group identifier (GID); `None` keeps the group.
    pub gid: Option<u32>,
    /// The size of a regular file.
    pub size: Option<u64>,
    /// New time of the last access; `None` keeps the time.
    pub atime: Option<SetTime>,
    /// Last change of the content.
    pub mtime: Option<SetTime>,
    /// Last change of attributes; the time of the call if `None`.
    pub ctime: Option<Time>,
}

/// The treatment of a name that exists where another is renamed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// A rename replaces the target name if it exists (the default of rename(2)).
    Replace,
    /// An existing name is an error.
    NoReplace,
    /// A rename exchanges two existing names (`RENAME_EXCHANGE`).
    Exchange,
}

/// The treatment of an extended attribute that exists or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// The attribute is made or replaced.
    Any,
    /// Fails if the attribute exists (`XATTR_CREATE`).
    Create,
    /// Fails if the attribute does not exist (`XATTR_REPLACE`).
    Replace,
}

/// The object of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// The first byte of data at or after the offset.
    Data,
    /// The first byte of a hole at or after the offset. The end of the file is a hole.
    Hole,
}

/// An operation. Permissions were checked by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Finds a name. Counts a lookup of the inode, as all answers with an
    /// [`OperationResult::Entry`].
    Lookup {
        /// Inode number of the directory that has, or gets, the entry.
        parent: Ino,
        /// Name of the directory entry, a single path component.
        name: &'a [u8],
    },
    /// Returns the attributes of an inode.
    Attributes {
        /// Number of the inode to operate on.
        ino: Ino,
    },
    /// Changes attributes of an inode.
    Change {
        /// Number of the inode to operate on.
        ino: Ino,
        /// The attributes to change, with their new values.
        change: AttributeChange,
    },
    /// Makes a file, directory, pipe, socket or device node.
    Make {
        /// Inode number of the directory that has, or gets, the entry.
        parent: Ino,
        /// Name of the directory entry, a single path component.
        name: &'a [u8],
        /// File type and permission bits, as in `st_mode` of stat(2).
        mode: u32,
        /// Number of a device, for device nodes.
        rdev: u32,
    },
    /// Makes a symbolic link.
    Symlink {
        /// Inode number of the directory that has, or gets, the entry.
        parent: Ino,
        /// Name of the directory entry, a single path component.
        name: &'a [u8],
        /// The path that the link names.
        target: &'a [u8],
    },
    /// Returns the target of a symbolic link.
    ReadLink {
        /// Inode number of the symbolic link.
        ino: Ino,
    },
    /// Gives a file an additional name (a hard link).
    Link {
        /// Inode number of the file.
        ino: Ino,
        /// Inode number of the directory that has, or gets, the entry.
        parent: Ino,
        /// Name of the directory entry, a single path component.
        name: &'a [u8],
    },
    /// Removes a name of anything but a directory.
    Unlink {
        /// Inode number of the directory that has, or gets, the entry.
        parent: Ino,
        /// Name of the directory entry, a single path component.
        name: &'a [u8],
    },
    /// Removes an empty directory.
    RemoveDirectory {
        /// Inode number of the directory that has the entry.
        parent: Ino,
        /// Name of the directory entry, a single path component.
        name: &'a [u8],
    },
    /// Moves or renames a directory entry.
    Rename {
        /// Inode number of the directory that has the entry.
        parent: Ino,
        /// Name of the directory entry, a single path component.
        name: &'a [u8],
        /// Inode number of the directory into which the entry is moved.
        to_parent: Ino,
        /// Name of the entry in that target directory.
        to_name: &'a [u8],
        /// The treatment of a name that exists there.
        how: RenameMode,
    },
    /// Opens a file or directory. The inode stays until it is released as often.
    Open {
        /// Number of the inode to operate on.
        ino: Ino,
        /// `true` if the file may be written through this handle.
        write: bool,
    },
    /// Ends an opening. Sizes and times that were not committed are, soon.
    Release {
        /// Number of the inode to operate on.
        ino: Ino,
        /// The value of `write` in the [`Open`](Operation::Open) that this operation ends.
        write: bool,
    },
    /// Commits size and times. The data itself is made durable by the caller: by a flush, or by a
    /// commit that is submitted after the writes have ended.
    Fsync {
        /// Number of the inode to operate on.
        ino: Ino,
    },
    /// Returns the value of an extended attribute.
    GetXattr {
        /// Number of the inode to operate on.
        ino: Ino,
        /// Name of the extended attribute, with its namespace (such as `user.`).
        name: &'a [u8],
    },
    /// Sets an extended attribute.
    SetXattr {
        /// Number of the inode to operate on.
        ino: Ino,
        /// Name of the extended attribute, with its namespace (such as `user.`).
        name: &'a [u8],
        /// New value of the extended attribute.
        value: &'a [u8],
        /// The treatment of an attribute that exists or does not.
        how: XattrMode,
    },
    /// Returns the names of all extended attributes, each with a zero behind it.
    ListXattrs {
        /// Number of the inode to operate on.
        ino: Ino,
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// Number of the inode to operate on.
        ino: Ino,
        /// Name of the extended attribute, with its namespace (such as `user.`).
        name: &'a [u8],
    },
    /// Makes the file's place large enough for a range. Physical space is not reserved.
    Allocate {
        /// Inode number of the file.
        ino: Ino,
        /// Offset in the file of the first byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// `true` to leave the file's size unchanged, as with `FALLOC_FL_KEEP_SIZE`.
        keep_size: bool,
    },
    /// Turns a range into zeroes; with `keep_size` and whole pages, that is a hole. The size never
    /// shrinks.
    Zero {
        /// Inode number of the file.
        ino: Ino,
        /// Offset in the file of the first byte of the range.
        offset: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// `true` to leave the file's size unchanged, as when a hole is punched.
        keep_size: bool,
    },
    /// Finds data or a hole. All bytes before the size count as data.
    Seek {
        /// Inode number of the file.
        ino: Ino,
        /// Offset in the file at which the search begins.
        offset: u64,
        /// The kind of position to look for: data or a hole.
        what: SeekTarget,
    },
    /// Returns statistics of the file system, such as its free space.
    Statistics,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationResult {
    /// The operation succeeded and has no result.
    Done,
    /// The inode of a name. The caller [forgets](crate::FileSystem::forget) the inode once for each
    /// time that it was returned.
    Entry(Attributes),
    /// The attributes of an inode.
    Attributes(Attributes),
    /// A target, a value or a list of names.
    Bytes(Vec<u8>),
    /// An offset in a file.
    Offset(u64),
    /// Statistics of the file system, such as its free space.
    Statistics(Statistics),
}

/// Counts of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Pages of the device that hold data or could.
    pub pages: u64,
    /// Pages of the device that are free.
    pub pages_free: u64,
    /// Maximum number of inodes.
    pub inodes: u64,
    /// Number of free inodes.
    pub inodes_free: u64,
    /// Maximum number of pages of metadata: directories, extended attributes, symbolic links.
    pub pool_pages: u64,
    /// Free pages of metadata.
    pub pool_pages_free: u64,
    /// Virtual space for files, in chunks of 4 MiB.
    pub chunks: u64,
    /// Free virtual space, in chunks of 4 MiB.
    pub chunks_free: u64,
}

/// The event after which an answer may be given, or a call be made again. See
/// [`FileSystem::outcome`](crate::FileSystem::outcome).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedEvent {
    /// No wait: the answer may be given at once.
    Now,
    /// The end of a commit, by its number.
    Commit(u64),
    /// The end of a commit, and of all chores for an inode.
    Clean {
        /// The commit's number.
        commit: u64,
        /// Number of the inode whose chores must end.
        ino: Ino,
    },
    /// The next step of a move of a file's data.
    Moved {
        /// Inode number of the file whose data moves.
        ino: Ino,
    },
    /// The end of all writes to a file that are in progress.
    Quiet {
        /// Inode number of the file whose writes must end.
        ino: Ino,
    },
    /// The end of one more commit or chore: space may have become free.
    Space {
        /// Number of commits and chores that had ended.
        seen: u64,
    },
}

/// The reply to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The operation was carried out in memory, and is durable after the event. A caller may answer
    /// before the end of a commit if nobody asked for a durable change.
    Answer(OperationResult, AwaitedEvent),
    /// Nothing was carried out. The same operation is to be applied again after the event.
    Again(AwaitedEvent),
    /// Nothing was carried out. The caller must first move the file's data to another place, and
    /// then apply the same operation again.
    Move(Move),
}

/// The place of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPlacement {
    /// The bytes lie in virtual space from `at` on. After a write, the caller reports its
    /// [end](crate::FileSystem::wrote).
    At {
        /// First byte, in virtual space.
        at: u64,
        /// Number of bytes: fewer than asked for where a file that is read ends.
        bytes: u64,
    },
    /// The call is to be made again after the event.
    Again(AwaitedEvent),
    /// The caller is to move the file's data, and to make the call again.
    Move(Move),
}

/// A move of a file's data to a larger place. The caller copies the bytes in any steps, and calls
/// [`FileSystem::moved`](crate::FileSystem::moved). No write of the file is under way meanwhile;
/// reads go to the old place, and end before that call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Inode number of the file whose data moves.
    pub ino: Ino,
    /// First byte of the old place, in virtual space.
    pub from: u64,
    /// First byte of the new place, in virtual space.
    pub to: u64,
    /// Number of bytes to copy; a multiple of the page.
    pub bytes: u64,
}

/// A discard or zeroing of released space. The caller carries out chores in any order, and reports
/// the [end](crate::FileSystem::chore_ended) of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chore {
    /// The number by which the caller reports the end of the chore.
    pub number: u64,
    /// The discard or zeroing to carry out.
    pub work: ChoreWork,
}

/// The work of a chore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoreWork {
    /// Discards pages: reads of them give zeroes.
    Discard {
        /// First page, in virtual space.
        page: u64,
        /// Number of pages.
        pages: u64,
    },
    /// Writes zeroes to a part of one page, and leaves the other bytes of the page unchanged.
    Zero {
        /// First byte, in virtual space.
        at: u64,
        /// Number of bytes, less than a page.
        bytes: u64,
    },
}

/// Pages to be written atomically (all of them or none), and durably.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The commit's number. Numbers rise by one.
    pub number: u64,
    /// Numbers of pages in virtual space, rising, and their contents.
    pub pages: Vec<(u64, Image)>,
}

/// The content of a page.
pub type Image = alloc::boxed::Box<[u8; crate::layout::PAGE_BYTES]>;

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryEntry<'a> {
    /// Number of the inode that the entry names.
    pub ino: Ino,
    /// The type, as in a mode.
    pub kind: u32,
    /// Name of the entry, a single path component.
    pub name: &'a [u8],
    /// The position behind this entry, from which a later call continues to read the directory. The
    /// position stays valid when names are added or removed.
    pub cookie: u64,
    /// The attributes of the inode.
    pub attributes: Attributes,
}

/// The outcome of an operation.
pub type Applied = Result<Reply, Errno>;
