//! The words in which a caller and the file system talk: operations, replies, attributes.
//!
//! Names and numbers are POSIX's and Linux's. An operation is a value, so that it can be recorded,
//! repeated, and applied to a model. Deliberately left out: what an operation does.

use alloc::vec::Vec;

use crate::errno::Errno;

/// Number of an inode. The root directory is [`ROOT`].
pub type Ino = u32;

/// The root directory.
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

/// The process that asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller<'a> {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Further groups, if the caller of the file system knows them.
    pub groups: &'a [u32],
}

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The inode.
    pub ino: Ino,
    /// Tells two uses of the same number apart.
    pub generation: u32,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names; for a directory, 2 and its subdirectories.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The owner's group.
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
    /// Creation.
    pub birth: Time,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// The given time.
    To(Time),
}

/// The attributes to change; `None` keeps one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permissions; the type in it is ignored.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The owner's group.
    pub gid: Option<u32>,
    /// The size of a regular file.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the content.
    pub mtime: Option<SetTime>,
    /// Last change of attributes; the time of the call if `None`.
    pub ctime: Option<Time>,
}

/// The treatment of a name that exists where another is renamed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameHow {
    /// The name is replaced if it exists.
    Replace,
    /// An existing name is an error.
    NoReplace,
    /// Both names exist and change places.
    Exchange,
}

/// The treatment of an extended attribute that exists or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetHow {
    /// The attribute is made or replaced.
    Any,
    /// An existing attribute is an error.
    Create,
    /// A missing attribute is an error.
    Replace,
}

/// The object of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The first byte of data at or after the offset.
    Data,
    /// The first byte of a hole at or after the offset. The end of the file is a hole.
    Hole,
}

/// An operation. Permissions were checked by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Finds a name. Counts a lookup of the inode, as all answers with an [`Answer::Entry`].
    Lookup {
        /// The directory.
        parent: Ino,
        /// The name.
        name: &'a [u8],
    },
    /// Returns the attributes.
    Attributes {
        /// The inode.
        ino: Ino,
    },
    /// Changes attributes.
    Change {
        /// The inode.
        ino: Ino,
        /// The new values.
        change: Change,
    },
    /// Makes a file, directory, pipe, socket or device node.
    Make {
        /// The directory.
        parent: Ino,
        /// The name.
        name: &'a [u8],
        /// Type and permissions.
        mode: u32,
        /// Number of a device, for device nodes.
        rdev: u32,
    },
    /// Makes a symbolic link.
    Symlink {
        /// The directory.
        parent: Ino,
        /// The name.
        name: &'a [u8],
        /// The path that the link names.
        target: &'a [u8],
    },
    /// Returns the target of a symbolic link.
    ReadLink {
        /// The symbolic link.
        ino: Ino,
    },
    /// Gives a file one more name.
    Link {
        /// The file.
        ino: Ino,
        /// The directory.
        parent: Ino,
        /// The name.
        name: &'a [u8],
    },
    /// Removes a name of anything but a directory.
    Unlink {
        /// The directory.
        parent: Ino,
        /// The name.
        name: &'a [u8],
    },
    /// Removes an empty directory.
    RemoveDirectory {
        /// The directory that has the name.
        parent: Ino,
        /// The name.
        name: &'a [u8],
    },
    /// Moves a name.
    Rename {
        /// The directory that has the name.
        parent: Ino,
        /// The name.
        name: &'a [u8],
        /// The directory that gets it.
        to_parent: Ino,
        /// The name there.
        to_name: &'a [u8],
        /// The treatment of a name that exists there.
        how: RenameHow,
    },
    /// Opens a file or directory. The inode stays until it is released as often.
    Open {
        /// The inode.
        ino: Ino,
        /// `true` if the file may be written through this handle.
        write: bool,
    },
    /// Ends an opening. Sizes and times that were not committed are, soon.
    Release {
        /// The inode.
        ino: Ino,
        /// The word of the opening.
        write: bool,
    },
    /// Commits size and times. The data itself is flushed by the caller, before.
    Fsync {
        /// The inode.
        ino: Ino,
    },
    /// Returns the value of an extended attribute.
    GetXattr {
        /// The inode.
        ino: Ino,
        /// The attribute's name, with its space (`user.`).
        name: &'a [u8],
    },
    /// Sets an extended attribute.
    SetXattr {
        /// The inode.
        ino: Ino,
        /// The attribute's name.
        name: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// The treatment of an attribute that exists or does not.
        how: SetHow,
    },
    /// Returns the names of all extended attributes, each with a zero behind it.
    ListXattrs {
        /// The inode.
        ino: Ino,
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// The inode.
        ino: Ino,
        /// The attribute's name.
        name: &'a [u8],
    },
    /// Makes the file's place large enough for a range. Physical space is not reserved.
    Allocate {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
        /// `true` if the size stays.
        keep_size: bool,
    },
    /// Turns a range into zeroes; with `keep_size` and whole pages, that is a hole. The size never
    /// shrinks.
    Zero {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
        /// `true` if the size stays (a hole is punched so).
        keep_size: bool,
    },
    /// Finds data or a hole. All bytes before the size count as data.
    Seek {
        /// The file.
        ino: Ino,
        /// First byte to look at.
        offset: u64,
        /// The object.
        what: Seek,
    },
    /// Returns counts of the file system.
    Statistics,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing to tell.
    Done,
    /// The inode of a name. The caller [forgets](crate::FileSystem::forget) it as often as it was
    /// told.
    Entry(Attributes),
    /// Attributes.
    Attributes(Attributes),
    /// A target, a value or a list of names.
    Bytes(Vec<u8>),
    /// An offset in a file.
    Offset(u64),
    /// Counts.
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
    /// Free inodes.
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
pub enum Until {
    /// No event.
    Now,
    /// The end of a commit, by its number.
    Commit(u64),
    /// The end of a commit, and of all chores for an inode.
    Clean {
        /// The commit's number.
        commit: u64,
        /// The inode.
        ino: Ino,
    },
    /// The next step of a move of a file's data.
    Moved {
        /// The file.
        ino: Ino,
    },
    /// The end of all writes of a file that are under way.
    Quiet {
        /// The file.
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
    /// The operation was carried out in memory. Its answer may be given after the event.
    Answer(Answer, Until),
    /// Nothing was carried out. The same operation is to be applied again after the event.
    Again(Until),
    /// Nothing was carried out. The caller is to move the file's data, and to apply the same
    /// operation again.
    Move(Move),
}

/// The place of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The bytes lie in virtual space from `at` on. For a write, the caller tells its
    /// [end](crate::FileSystem::wrote).
    At {
        /// First byte, in virtual space.
        at: u64,
        /// Number of bytes: fewer than asked for where a file that is read ends.
        bytes: u64,
    },
    /// The call is to be made again after the event.
    Again(Until),
    /// The caller is to move the file's data, and to make the call again.
    Move(Move),
}

/// A move of a file's data to a larger place. The caller copies the bytes in any steps, and calls
/// [`FileSystem::moved`](crate::FileSystem::moved). No write of the file is under way meanwhile;
/// reads go to the old place, and end before that call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The file.
    pub ino: Ino,
    /// First byte of the old place, in virtual space.
    pub from: u64,
    /// First byte of the new place, in virtual space.
    pub to: u64,
    /// Number of bytes to copy; a multiple of the page.
    pub bytes: u64,
}

/// Work on the data that the caller is to do, in any order, before it tells its
/// [end](crate::FileSystem::chore_ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chore {
    /// The chore's number.
    pub number: u64,
    /// The work.
    pub work: Work,
}

/// The work of a chore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Discards pages: reads of them give zeroes.
    Discard {
        /// First page, in virtual space.
        page: u64,
        /// Number of pages.
        pages: u64,
    },
    /// Writes zeroes within one page, which other bytes of it survive.
    Zero {
        /// First byte, in virtual space.
        at: u64,
        /// Number of bytes, less than a page.
        bytes: u64,
    },
}

/// Pages to be written all or none, and durably.
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
    /// The inode.
    pub ino: Ino,
    /// The type, as in a mode.
    pub kind: u32,
    /// The name.
    pub name: &'a [u8],
    /// The cookie with which reading goes on behind this entry. It stays valid when names are
    /// added or removed.
    pub cookie: u64,
    /// The attributes of the inode.
    pub attributes: Attributes,
}

/// The outcome of an operation.
pub type Applied = Result<Reply, Errno>;
