//! The interface of the Linux kernel to programs that serve a file system through `/dev/fuse`
//! (`linux/fuse.h`, version 7.31 and later): the heads and bodies of requests and replies.
//!
//! All numbers have the byte order of the machine. In each structure, the number before a field is
//! its byte offset, which is asserted.
//!
//! This module deliberately leaves out character devices (CUSE), mappings (DAX), pass-through and
//! security contexts, and what a program does with a request.

use zerocopy::native_endian::{I32, I64, U16, U32, U64};

/// The path of the device.
pub const DEVICE_PATH: &str = "/dev/fuse";

/// The major version of the interface.
pub const MAJOR: u32 = 7;

/// The smallest minor version that these layouts describe.
pub const MINOR_MIN: u32 = 31;

/// The largest minor version that these layouts describe.
pub const MINOR_MAX: u32 = 39;

/// The node that every file system has.
pub const ROOT: u64 = 1;

/// The largest request without the data of a write, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// Names, and variable parts of replies, are padded to this many bytes.
pub const ALIGN: usize = 8;

/// Capabilities, in the 64 bits of `flags` and `flags2` of an INIT.
pub mod capability {
    /// Reads of a file may be in flight at the same time.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// Writes may be larger than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// Cached pages are dropped when size or time of change have changed.
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    /// Directories are read together with the attributes of their entries.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// The kernel chooses whether it needs the attributes.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Direct requests of one file may be in flight at the same time.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// The kernel keeps written pages and writes them later.
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    /// Look-ups and reads of one directory may be in flight at the same time.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// Access control lists are the file system's.
    pub const POSIX_ACL: u64 = 1 << 20;
    /// The reply of INIT says how many pages a request may have.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// The targets of symbolic links are cached.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// The file system clears set-user and set-group bits on writes, truncation and change of owner.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// The request and reply of INIT have `flags2`.
    pub const INIT_EXT: u64 = 1 << 30;
    /// Files that bypass the page cache may be mapped.
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// Flags of an opened file, in [`OpenOut::open_flags`].
pub mod open_flag {
    /// Reads and writes bypass the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Cached pages stay valid.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// The entries of a directory may be cached.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// A close need not be told of by FLUSH.
    pub const NO_FLUSH: u32 = 1 << 5;
    /// Direct writes of one file may be in flight at the same time.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Fields that a SETATTR changes, in [`SetAttrIn::valid`].
pub mod set {
    /// The mode.
    pub const MODE: u32 = 1 << 0;
    /// The owner.
    pub const UID: u32 = 1 << 1;
    /// The group.
    pub const GID: u32 = 1 << 2;
    /// The size.
    pub const SIZE: u32 = 1 << 3;
    /// The time of the last access.
    pub const ATIME: u32 = 1 << 4;
    /// The time of the last change of contents.
    pub const MTIME: u32 = 1 << 5;
    /// The handle is one.
    pub const HANDLE: u32 = 1 << 6;
    /// The time of the last access is now.
    pub const ATIME_NOW: u32 = 1 << 7;
    /// The time of the last change of contents is now.
    pub const MTIME_NOW: u32 = 1 << 8;
    /// The time of the last change of attributes.
    pub const CTIME: u32 = 1 << 10;
    /// Set-user and set-group bits are to be cleared.
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flag of [`GetAttrIn::flags`]: the handle is one.
pub const GETATTR_HANDLE: u32 = 1;

/// Flag of [`WriteIn::write_flags`]: the data comes from the page cache.
pub const WRITE_CACHE: u32 = 1;

/// Flag of [`WriteIn::write_flags`]: set-user and set-group bits are to be cleared.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// Flag of [`FsyncIn::flags`]: data alone, and what is needed to read it.
pub const FSYNC_DATA: u32 = 1;

open_number! {
    /// The operation of a request.
    pub struct Opcode(u32) {
        /// Looks a name up in a directory.
        LOOKUP = 1,
        /// Gives references to a node back; has no reply.
        FORGET = 2,
        /// Reads attributes.
        GETATTR = 3,
        /// Changes attributes.
        SETATTR = 4,
        /// Reads the target of a symbolic link.
        READLINK = 5,
        /// Makes a symbolic link.
        SYMLINK = 6,
        /// Makes a file, device, pipe or socket.
        MKNOD = 8,
        /// Makes a directory.
        MKDIR = 9,
        /// Removes a name of a file.
        UNLINK = 10,
        /// Removes an empty directory.
        RMDIR = 11,
        /// Changes a name.
        RENAME = 12,
        /// Gives a file another name.
        LINK = 13,
        /// Opens a file.
        OPEN = 14,
        /// Reads data.
        READ = 15,
        /// Writes data.
        WRITE = 16,
        /// Reads the sizes of the file system.
        STATFS = 17,
        /// Closes a file for the last time.
        RELEASE = 18,
        /// Makes a file durable.
        FSYNC = 20,
        /// Sets an extended attribute.
        SETXATTR = 21,
        /// Reads an extended attribute.
        GETXATTR = 22,
        /// Lists the names of extended attributes.
        LISTXATTR = 23,
        /// Removes an extended attribute.
        REMOVEXATTR = 24,
        /// Tells of one close of a file.
        FLUSH = 25,
        /// Agrees on version and capabilities.
        INIT = 26,
        /// Opens a directory.
        OPENDIR = 27,
        /// Reads entries of a directory.
        READDIR = 28,
        /// Closes a directory.
        RELEASEDIR = 29,
        /// Makes a directory durable.
        FSYNCDIR = 30,
        /// Asks for a lock.
        GETLK = 31,
        /// Takes or gives back a lock.
        SETLK = 32,
        /// Takes or gives back a lock, and waits for it.
        SETLKW = 33,
        /// Checks a permission.
        ACCESS = 34,
        /// Makes a file and opens it.
        CREATE = 35,
        /// Tells that nobody waits for a request any more.
        INTERRUPT = 36,
        /// Asks for the place of a block on a block device.
        BMAP = 37,
        /// Ends the file system.
        DESTROY = 38,
        /// A command of the file system's own.
        IOCTL = 39,
        /// Asks whether a file is ready.
        POLL = 40,
        /// Gives references to many nodes back; has no reply.
        BATCH_FORGET = 42,
        /// Reserves or frees space.
        FALLOCATE = 43,
        /// Reads entries of a directory with their attributes.
        READDIRPLUS = 44,
        /// Changes a name, with flags.
        RENAME2 = 45,
        /// Finds data or a hole.
        LSEEK = 46,
        /// Copies data between two files.
        COPY_FILE_RANGE = 47,
        /// Makes the whole file system durable.
        SYNCFS = 50,
        /// Makes a file without a name.
        TMPFILE = 51,
        /// Reads attributes in the form of statx(2).
        STATX = 52,
    }
}

open_number! {
    /// A number of an error, as Linux has it.
    pub struct Errno(i32) {
        /// The operation is not permitted.
        PERM = 1,
        /// There is no such file.
        NOENT = 2,
        /// The device has failed.
        IO = 5,
        /// The argument is too long.
        TOO_BIG = 7,
        /// Try again.
        AGAIN = 11,
        /// There is no memory.
        NOMEM = 12,
        /// The permission is missing.
        ACCES = 13,
        /// The device or file is in use.
        BUSY = 16,
        /// The name is taken.
        EXIST = 17,
        /// Not on one device.
        XDEV = 18,
        /// Not a directory.
        NOTDIR = 20,
        /// A directory.
        ISDIR = 21,
        /// The argument is not valid.
        INVAL = 22,
        /// The file is too large.
        FBIG = 27,
        /// There is no space.
        NOSPC = 28,
        /// Changes are refused.
        ROFS = 30,
        /// There are too many links.
        MLINK = 31,
        /// The result does not fit.
        RANGE = 34,
        /// The name is too long.
        NAMETOOLONG = 36,
        /// The operation is not known.
        NOSYS = 38,
        /// The directory is not empty.
        NOTEMPTY = 39,
        /// There is no such attribute, or no data.
        NODATA = 61,
        /// The versions do not agree.
        PROTO = 71,
        /// Not supported here.
        OPNOTSUPP = 95,
        /// The file is gone.
        STALE = 116,
    }
}

layout! {
    /// The head of a request.
    pub struct InHeader: 40 {
        /// Bytes of the whole request.
        [0] len: U32,
        /// An [`Opcode`].
        [4] opcode: U32,
        /// The request's number, which its reply repeats.
        [8] unique: U64,
        /// The node.
        [16] node: U64,
        /// The user of the caller.
        [24] uid: U32,
        /// The group of the caller.
        [28] gid: U32,
        /// The process of the caller.
        [32] pid: U32,
        /// Length of the extensions behind the body, in units of eight bytes.
        [36] extension_len: U16,
        /// Not used.
        [38] padding: U16,
    }
}

layout! {
    /// The head of a reply.
    pub struct OutHeader: 16 {
        /// Bytes of the whole reply.
        [0] len: U32,
        /// Zero, or a negated [`Errno`].
        [4] error: I32,
        /// The request's number.
        [8] unique: U64,
    }
}

layout! {
    /// The attributes of a node.
    pub struct Attr: 88 {
        /// Number of the inode.
        [0] ino: U64,
        /// Size in bytes.
        [8] size: U64,
        /// Space in blocks of 512 bytes.
        [16] blocks: U64,
        /// Time of the last access, in seconds.
        [24] atime: U64,
        /// Time of the last change of contents.
        [32] mtime: U64,
        /// Time of the last change of attributes.
        [40] ctime: U64,
        /// Nanoseconds of `atime`.
        [48] atime_ns: U32,
        /// Nanoseconds of `mtime`.
        [52] mtime_ns: U32,
        /// Nanoseconds of `ctime`.
        [56] ctime_ns: U32,
        /// Type and permissions.
        [60] mode: U32,
        /// Number of names.
        [64] links: U32,
        /// Owner.
        [68] uid: U32,
        /// Group.
        [72] gid: U32,
        /// Number of the device that the node is.
        [76] rdev: U32,
        /// Best size of a request.
        [80] block_bytes: U32,
        /// Flags of the node.
        [84] flags: U32,
    }
}

layout! {
    /// The request of INIT, as far as it is understood here.
    pub struct InitIn: 16 {
        /// The kernel's major version.
        [0] major: U32,
        /// The kernel's minor version.
        [4] minor: U32,
        /// The largest read-ahead in bytes.
        [8] readahead_max: U32,
        /// The kernel's lower 32 [`capability`] bits.
        [12] flags: U32,
    }
}

layout! {
    /// The reply of INIT.
    pub struct InitOut: 64 {
        /// The major version.
        [0] major: U32,
        /// The minor version.
        [4] minor: U32,
        /// The largest read-ahead in bytes.
        [8] readahead_max: U32,
        /// The agreed lower 32 [`capability`] bits.
        [12] flags: U32,
        /// Requests without a waiter that may be in flight.
        [16] background_max: U16,
        /// Number of these from which the kernel is told to wait.
        [18] congestion: U16,
        /// The largest write in bytes.
        [20] write_max: U32,
        /// Granularity of times in nanoseconds.
        [24] time_granularity_ns: U32,
        /// Pages of the largest request.
        [28] pages_max: U16,
        /// Not used here.
        [30] map_alignment: U16,
        /// The agreed upper 32 [`capability`] bits.
        [32] flags2: U32,
        /// Not used.
        [36] unused: [U32; 7],
    }
}

layout! {
    /// The reply that names a node.
    pub struct EntryOut: 128 {
        /// The node; zero for a name that is known not to exist.
        [0] node: U64,
        /// The generation: together with the node, a name for ever.
        [8] generation: U64,
        /// Seconds for which the name may be cached.
        [16] entry_valid: U64,
        /// Seconds for which the attributes may be cached.
        [24] attr_valid: U64,
        /// Nanoseconds of `entry_valid`.
        [32] entry_valid_ns: U32,
        /// Nanoseconds of `attr_valid`.
        [36] attr_valid_ns: U32,
        /// The attributes.
        [40] attr: Attr,
    }
}

layout! {
    /// The reply of GETATTR and SETATTR.
    pub struct AttrOut: 104 {
        /// Seconds for which the attributes may be cached.
        [0] attr_valid: U64,
        /// Nanoseconds of `attr_valid`.
        [8] attr_valid_ns: U32,
        /// Not used.
        [12] padding: U32,
        /// The attributes.
        [16] attr: Attr,
    }
}

layout! {
    /// References to a node that the kernel gives back.
    pub struct ForgetOne: 16 {
        /// The node.
        [0] node: U64,
        /// Number of references.
        [8] lookups: U64,
    }
}

layout! {
    /// The body of BATCH_FORGET, before its [`ForgetOne`]s.
    pub struct BatchForgetIn: 8 {
        /// Number of nodes.
        [0] count: U32,
        /// Not used.
        [4] padding: U32,
    }
}

layout! {
    /// The body of GETATTR.
    pub struct GetAttrIn: 16 {
        /// Flags.
        [0] flags: U32,
        /// Not used.
        [4] padding: U32,
        /// The handle.
        [8] handle: U64,
    }
}

layout! {
    /// The body of MKNOD, before the name.
    pub struct MknodIn: 16 {
        /// Type and permissions.
        [0] mode: U32,
        /// Number of the device.
        [4] rdev: U32,
        /// The caller's mask, which the kernel has applied.
        [8] umask: U32,
        /// Not used.
        [12] padding: U32,
    }
}

layout! {
    /// The body of MKDIR, before the name.
    pub struct MkdirIn: 8 {
        /// Permissions.
        [0] mode: U32,
        /// The caller's mask, which the kernel has applied.
        [4] umask: U32,
    }
}

layout! {
    /// The body of RENAME2, before the two names.
    pub struct Rename2In: 16 {
        /// The directory of the new name.
        [0] new_directory: U64,
        /// Flags of renameat2(2).
        [8] flags: U32,
        /// Not used.
        [12] padding: U32,
    }
}

layout! {
    /// The body of SETATTR.
    pub struct SetAttrIn: 88 {
        /// Of [`set`].
        [0] valid: U32,
        /// Not used.
        [4] padding: U32,
        /// The handle.
        [8] handle: U64,
        /// Size in bytes.
        [16] size: U64,
        /// The owner of locks.
        [24] lock_owner: U64,
        /// Time of the last access, in seconds.
        [32] atime: U64,
        /// Time of the last change of contents.
        [40] mtime: U64,
        /// Time of the last change of attributes.
        [48] ctime: U64,
        /// Nanoseconds of `atime`.
        [56] atime_ns: U32,
        /// Nanoseconds of `mtime`.
        [60] mtime_ns: U32,
        /// Nanoseconds of `ctime`.
        [64] ctime_ns: U32,
        /// Type and permissions.
        [68] mode: U32,
        /// Not used.
        [72] unused: U32,
        /// Owner.
        [76] uid: U32,
        /// Group.
        [80] gid: U32,
        /// Not used.
        [84] unused_2: U32,
    }
}

layout! {
    /// The body of OPEN and OPENDIR.
    pub struct OpenIn: 8 {
        /// Flags of open(2).
        [0] flags: U32,
        /// Flags of the interface.
        [4] open_flags: U32,
    }
}

layout! {
    /// The body of CREATE and TMPFILE, before the name.
    pub struct CreateIn: 16 {
        /// Flags of open(2).
        [0] flags: U32,
        /// Type and permissions.
        [4] mode: U32,
        /// The caller's mask, which the kernel has applied.
        [8] umask: U32,
        /// Flags of the interface.
        [12] open_flags: U32,
    }
}

layout! {
    /// The reply of OPEN and OPENDIR, and the second part of that of CREATE.
    pub struct OpenOut: 16 {
        /// The handle, of the program's choice.
        [0] handle: U64,
        /// Of [`open_flag`].
        [8] open_flags: U32,
        /// Not used.
        [12] padding: U32,
    }
}

layout! {
    /// The body of RELEASE and RELEASEDIR.
    pub struct ReleaseIn: 24 {
        /// The handle.
        [0] handle: U64,
        /// Flags of open(2).
        [8] flags: U32,
        /// Flags of the close.
        [12] release_flags: U32,
        /// The owner of locks.
        [16] lock_owner: U64,
    }
}

layout! {
    /// The body of FLUSH.
    pub struct FlushIn: 24 {
        /// The handle.
        [0] handle: U64,
        /// Not used.
        [8] unused: U32,
        /// Not used.
        [12] padding: U32,
        /// The owner of locks.
        [16] lock_owner: U64,
    }
}

layout! {
    /// The body of READ, READDIR and READDIRPLUS.
    pub struct ReadIn: 40 {
        /// The handle.
        [0] handle: U64,
        /// First byte, or the cookie of an entry.
        [8] offset: U64,
        /// Bytes.
        [16] size: U32,
        /// Flags of the read.
        [20] read_flags: U32,
        /// The owner of locks.
        [24] lock_owner: U64,
        /// Flags of open(2).
        [32] flags: U32,
        /// Not used.
        [36] padding: U32,
    }
}

layout! {
    /// The body of WRITE, before the data.
    pub struct WriteIn: 40 {
        /// The handle.
        [0] handle: U64,
        /// First byte.
        [8] offset: U64,
        /// Bytes.
        [16] size: U32,
        /// Flags of the write.
        [20] write_flags: U32,
        /// The owner of locks.
        [24] lock_owner: U64,
        /// Flags of open(2).
        [32] flags: U32,
        /// Not used.
        [36] padding: U32,
    }
}

layout! {
    /// The reply of WRITE and COPY_FILE_RANGE, and of GETXATTR and LISTXATTR to a question for the
    /// size.
    pub struct SizeOut: 8 {
        /// Bytes.
        [0] size: U32,
        /// Not used.
        [4] padding: U32,
    }
}

layout! {
    /// The reply of STATFS.
    pub struct StatfsOut: 80 {
        /// Size in units of `fragment_bytes`.
        [0] blocks: U64,
        /// Free blocks.
        [8] free: U64,
        /// Free blocks for users other than root.
        [16] available: U64,
        /// Number of files that there can be.
        [24] files: U64,
        /// Number of further files.
        [32] files_free: U64,
        /// Best size of a request.
        [40] block_bytes: U32,
        /// The longest name in bytes.
        [44] name_max: U32,
        /// Bytes of a block.
        [48] fragment_bytes: U32,
        /// Not used.
        [52] padding: U32,
        /// Not used.
        [56] spare: [U32; 6],
    }
}

layout! {
    /// The body of FSYNC and FSYNCDIR.
    pub struct FsyncIn: 16 {
        /// The handle.
        [0] handle: U64,
        /// Flags.
        [8] flags: U32,
        /// Not used.
        [12] padding: U32,
    }
}

layout! {
    /// The body of SETXATTR, before the name and the value.
    pub struct SetXattrIn: 8 {
        /// Bytes of the value.
        [0] size: U32,
        /// Flags of setxattr(2).
        [4] flags: U32,
    }
}

layout! {
    /// The body of GETXATTR, before the name, and of LISTXATTR.
    pub struct GetXattrIn: 8 {
        /// Bytes that the caller has room for; zero asks for the size.
        [0] size: U32,
        /// Not used.
        [4] padding: U32,
    }
}

layout! {
    /// The body of ACCESS.
    pub struct AccessIn: 8 {
        /// Permissions, as access(2) has them.
        [0] mask: U32,
        /// Not used.
        [4] padding: U32,
    }
}

layout! {
    /// The body of FALLOCATE.
    pub struct FallocateIn: 32 {
        /// The handle.
        [0] handle: U64,
        /// First byte.
        [8] offset: U64,
        /// Bytes.
        [16] length: U64,
        /// Flags of fallocate(2).
        [24] mode: U32,
        /// Not used.
        [28] padding: U32,
    }
}

layout! {
    /// The body of LSEEK.
    pub struct LseekIn: 24 {
        /// The handle.
        [0] handle: U64,
        /// The byte from which to look.
        [8] offset: U64,
        /// The object of the search, as lseek(2) numbers it.
        [16] whence: U32,
        /// Not used.
        [20] padding: U32,
    }
}

layout! {
    /// The body of COPY_FILE_RANGE.
    pub struct CopyIn: 56 {
        /// The handle of the source.
        [0] handle: U64,
        /// First byte of the source.
        [8] offset: U64,
        /// The node of the target.
        [16] target: U64,
        /// The handle of the target.
        [24] target_handle: U64,
        /// First byte of the target.
        [32] target_offset: U64,
        /// Bytes.
        [40] length: U64,
        /// Flags of copy_file_range(2).
        [48] flags: U64,
    }
}

layout! {
    /// An entry of a directory, before its name.
    pub struct DirEntry: 24 {
        /// Number of the inode.
        [0] ino: U64,
        /// The cookie from which to go on behind the entry.
        [8] next: U64,
        /// Bytes of the name.
        [16] name_len: U32,
        /// The type: the upper four bits of a mode.
        [20] kind: U32,
    }
}

layout! {
    /// The notification that attributes, or a range of data, of a node have changed.
    pub struct InvalInodeOut: 24 {
        /// The node.
        [0] node: U64,
        /// First byte; negative for attributes alone.
        [8] offset: I64,
        /// Bytes; zero for all that follow.
        [16] length: I64,
    }
}

/// Code of the notification with an [`InvalInodeOut`], in the place of an error.
pub const NOTIFY_INVAL_INODE: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of a write lies behind this many bytes.
    #[test]
    fn the_data_of_a_write_begins_at_80() {
        assert_eq!(size_of::<InHeader>() + size_of::<WriteIn>(), 80);
    }

    #[test]
    fn an_entry_with_attributes_is_an_entry_behind_a_node() {
        assert_eq!(size_of::<EntryOut>() + size_of::<DirEntry>(), 152);
        assert!(size_of::<DirEntry>().is_multiple_of(ALIGN));
    }
}
