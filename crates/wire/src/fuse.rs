//! The interface of the Linux kernel to programs that serve a file system through `/dev/fuse`
//! (`linux/fuse.h`, version 7.31 and later): the heads and bodies of requests and replies.
//!
//! All numbers have the byte order of the machine. In each structure, the number before a field is
//! its byte offset, which is asserted.
//!
//! This module deliberately leaves out character devices (CUSE), mappings (DAX), pass-through and
//! security contexts, and what a program does with a request.

use zerocopy::native_endian::{I32, I64, U16, U32, U64};

/// The path of the device through which the kernel and the program of a file system talk.
pub const DEVICE_PATH: &str = "/dev/fuse";

/// The major version of the interface that these layouts describe.
pub const MAJOR: u32 = 7;

/// The smallest minor version that these layouts describe.
pub const MINOR_MIN: u32 = 31;

/// The largest minor version that these layouts describe.
pub const MINOR_MAX: u32 = 39;

/// The number of the root directory's node, which every file system has.
pub const ROOT: u64 = 1;

/// The size of a page in bytes, in which requests with data are counted.
pub const PAGE_BYTES: usize = 4096;

/// Entries of a directory in a reply are padded with zeroes to a multiple of this many bytes.
pub const ALIGN: usize = 8;

/// Capabilities of the kernel and the program: `flags` of an INIT are the lower 32 bits, `flags2`
/// the upper ones.
pub mod capability {
    /// Reads of a file may be in flight at the same time.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// Writes may be larger than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// Directories are read together with the attributes of their entries.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// The kernel chooses for each read of a directory whether it needs the attributes of entries.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Direct requests of one file may be in flight at the same time.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// The kernel keeps written pages in its cache, and writes them to the program later.
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    /// Look-ups and reads of one directory may be in flight at the same time.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The file system stores access control lists, which the kernel checks.
    pub const POSIX_ACL: u64 = 1 << 20;
    /// The reply of INIT says how many pages a request may have.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// The kernel caches the targets of symbolic links.
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
    /// The kernel keeps cached pages of the file when it is opened.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// The kernel may cache the entries of the directory.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// The kernel sends no FLUSH when the file is closed.
    pub const NO_FLUSH: u32 = 1 << 5;
    /// Direct writes of one file may be in flight at the same time.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Bits of [`SetAttrIn::valid`]: the attributes that a SETATTR changes, and how.
pub mod set {
    /// The permissions change to `mode`.
    pub const MODE: u32 = 1 << 0;
    /// The owner changes to `uid`.
    pub const UID: u32 = 1 << 1;
    /// The group changes to `gid`.
    pub const GID: u32 = 1 << 2;
    /// The size changes to `size`.
    pub const SIZE: u32 = 1 << 3;
    /// The time of the last access changes to `atime`, or to now with `ATIME_NOW`.
    pub const ATIME: u32 = 1 << 4;
    /// The time of the last change of contents changes to `mtime`, or to now with `MTIME_NOW`.
    pub const MTIME: u32 = 1 << 5;
    /// The field `handle` is valid.
    pub const HANDLE: u32 = 1 << 6;
    /// The time of the last access changes to the time of the request.
    pub const ATIME_NOW: u32 = 1 << 7;
    /// The time of the last change of contents changes to the time of the request.
    pub const MTIME_NOW: u32 = 1 << 8;
    /// The time of the last change of attributes changes to `ctime`.
    pub const CTIME: u32 = 1 << 10;
    /// Set-user and set-group bits are to be cleared.
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flag of [`GetAttrIn::flags`]: the field `handle` is valid.
pub const GETATTR_HANDLE: u32 = 1;

/// Flag of [`WriteIn::write_flags`]: the data comes from the page cache.
pub const WRITE_CACHE: u32 = 1;

/// Flag of [`WriteIn::write_flags`]: set-user and set-group bits are to be cleared.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// Flag of [`FsyncIn::flags`]: only data, and the metadata needed to read it, must be durable.
pub const FSYNC_DATA: u32 = 1;

open_number! {
    /// The operation of a request of the kernel.
    pub struct Opcode(u32) {
        /// Looks up a name in a directory.
        LOOKUP = 1,
        /// Gives back references to a node; has no reply.
        FORGET = 2,
        /// Reads the attributes of a node.
        GETATTR = 3,
        /// Changes attributes of a node.
        SETATTR = 4,
        /// Reads the target of a symbolic link.
        READLINK = 5,
        /// Makes a symbolic link.
        SYMLINK = 6,
        /// Makes a file, device, pipe or socket.
        MKNOD = 8,
        /// Makes a directory.
        MKDIR = 9,
        /// Removes a name of a file from a directory.
        UNLINK = 10,
        /// Removes an empty directory.
        RMDIR = 11,
        /// Changes the name of a file or directory, or moves it to another directory.
        RENAME = 12,
        /// Gives a file another name.
        LINK = 13,
        /// Opens a file.
        OPEN = 14,
        /// Reads data of an open file.
        READ = 15,
        /// Writes data to an open file.
        WRITE = 16,
        /// Reads the sizes of the file system.
        STATFS = 17,
        /// Ends the use of a handle, after the last descriptor of the file was closed.
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
        /// Says that one descriptor of an open file was closed.
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
        /// Asks which lock of a file, if any, conflicts with a given one.
        GETLK = 31,
        /// Takes or gives back a lock of a file. Fails if another process holds it.
        SETLK = 32,
        /// Takes or gives back a lock of a file. Waits if another process holds it.
        SETLKW = 33,
        /// Checks whether the caller has certain permissions on a node.
        ACCESS = 34,
        /// Makes a file and opens it.
        CREATE = 35,
        /// Says that the caller of an earlier request was interrupted.
        INTERRUPT = 36,
        /// Asks for the place of a block on a block device.
        BMAP = 37,
        /// Ends the file system.
        DESTROY = 38,
        /// Passes a command of ioctl(2) on to the file system.
        IOCTL = 39,
        /// Asks whether a file is ready to be read or written, as poll(2) does.
        POLL = 40,
        /// Gives back references to many nodes; has no reply.
        BATCH_FORGET = 42,
        /// Reserves or frees space of a range of a file, as fallocate(2) does.
        FALLOCATE = 43,
        /// Reads entries of a directory with their attributes.
        READDIRPLUS = 44,
        /// Changes a name like RENAME, with the flags of renameat2(2).
        RENAME2 = 45,
        /// Finds the next data or hole in a file.
        LSEEK = 46,
        /// Copies data between two files.
        COPY_FILE_RANGE = 47,
        /// Makes all changes of the file system durable.
        SYNCFS = 50,
        /// Makes a file without a name and opens it.
        TMPFILE = 51,
        /// Reads attributes in the form of statx(2).
        STATX = 52,
    }
}

open_number! {
    /// The number of an error on Linux; negated in a reply.
    pub struct Errno(i32) {
        /// The operation is not permitted.
        PERM = 1,
        /// There is no such file.
        NOENT = 2,
        /// The device has failed.
        IO = 5,
        /// The arguments, or a value, are too long.
        TOO_BIG = 7,
        /// The operation cannot be done now, and may be tried again.
        AGAIN = 11,
        /// Not enough memory is free.
        NOMEM = 12,
        /// The caller has no permission for the operation.
        ACCES = 13,
        /// The device or file is in use.
        BUSY = 16,
        /// The name is taken.
        EXIST = 17,
        /// The two paths are not on one file system.
        XDEV = 18,
        /// The path is not a directory.
        NOTDIR = 20,
        /// The path is a directory.
        ISDIR = 21,
        /// The argument is not valid.
        INVAL = 22,
        /// The file is too large.
        FBIG = 27,
        /// No space is left on the file system.
        NOSPC = 28,
        /// The file system may only be read.
        ROFS = 30,
        /// There are too many links.
        MLINK = 31,
        /// The result does not fit into the caller's buffer.
        RANGE = 34,
        /// The name is too long.
        NAMETOOLONG = 36,
        /// The operation is not known.
        NOSYS = 38,
        /// The directory is not empty.
        NOTEMPTY = 39,
        /// There is no such attribute, or no data.
        NODATA = 61,
        /// The protocol is broken, or its version is not supported.
        PROTO = 71,
        /// The operation is not supported on this file.
        OPNOTSUPP = 95,
        /// The file that the handle or number names does not exist any more.
        STALE = 116,
    }
}

layout! {
    /// The head of each request of the kernel; the operation's body follows.
    pub struct InHeader: 40 {
        /// The size of the whole request in bytes.
        [0] len: U32,
        /// An [`Opcode`].
        [4] opcode: U32,
        /// The request's number, which its reply repeats.
        [8] unique: U64,
        /// The number of the node that the request is about.
        [16] node: U64,
        /// The user number of the calling process.
        [24] uid: U32,
        /// The group number of the calling process.
        [28] gid: U32,
        /// The number of the calling process.
        [32] pid: U32,
        /// Length of the extensions behind the body, in units of eight bytes.
        [36] extension_len: U16,
        /// Padding bytes without a meaning.
        [38] padding: U16,
    }
}

layout! {
    /// The head of each reply and notification; its body follows.
    pub struct OutHeader: 16 {
        /// The size of the whole reply in bytes.
        [0] len: U32,
        /// Zero, or a negated [`Errno`].
        [4] error: I32,
        /// The number of the request that is answered; zero in a notification.
        [8] unique: U64,
    }
}

layout! {
    /// The attributes of a node.
    pub struct Attr: 88 {
        /// The number of the inode.
        [0] ino: U64,
        /// The size of the contents in bytes.
        [8] size: U64,
        /// The space that the node takes, in blocks of 512 bytes.
        [16] blocks: U64,
        /// The time of the last access, in seconds since 1970.
        [24] atime: U64,
        /// The time of the last change of contents, in seconds since 1970.
        [32] mtime: U64,
        /// The time of the last change of attributes, in seconds since 1970.
        [40] ctime: U64,
        /// The nanoseconds after `atime`, below 10⁹.
        [48] atime_ns: U32,
        /// The nanoseconds after `mtime`, below 10⁹.
        [52] mtime_ns: U32,
        /// The nanoseconds after `ctime`, below 10⁹.
        [56] ctime_ns: U32,
        /// The type and permissions of the node, as `st_mode` of stat(2).
        [60] mode: U32,
        /// The number of names (hard links) of the node.
        [64] links: U32,
        /// The user number of the owner.
        [68] uid: U32,
        /// The number of the group.
        [72] gid: U32,
        /// The device number, if the node is a device.
        [76] rdev: U32,
        /// The best size of a request in bytes.
        [80] block_bytes: U32,
        /// Flags of the node (`FUSE_ATTR_…`).
        [84] flags: U32,
    }
}

layout! {
    /// The body of an INIT request, with the fields that this implementation interprets.
    pub struct InitIn: 16 {
        /// The kernel's major version.
        [0] major: U32,
        /// The kernel's minor version.
        [4] minor: U32,
        /// The largest read-ahead that the kernel proposes, in bytes.
        [8] readahead_max: U32,
        /// The kernel's lower 32 [`capability`] bits.
        [12] flags: U32,
    }
}

layout! {
    /// The reply of INIT.
    pub struct InitOut: 64 {
        /// The program's major version.
        [0] major: U32,
        /// The minor version that both ends use.
        [4] minor: U32,
        /// The largest read-ahead that the kernel may do, in bytes.
        [8] readahead_max: U32,
        /// The agreed lower 32 [`capability`] bits.
        [12] flags: U32,
        /// The most requests that may be in flight with no process waiting, such as read-ahead.
        [16] background_max: U16,
        /// The number of such requests in flight from which on the kernel starts fewer of them.
        [18] congestion: U16,
        /// The largest write in bytes.
        [20] write_max: U32,
        /// The granularity of the file system's time stamps, in nanoseconds.
        [24] time_granularity_ns: U32,
        /// The most pages of data in one request.
        [28] pages_max: U16,
        /// Not used here.
        [30] map_alignment: U16,
        /// The agreed upper 32 [`capability`] bits.
        [32] flags2: U32,
        /// Fields of the interface that this implementation does not use.
        [36] unused: [U32; 7],
    }
}

layout! {
    /// The reply of LOOKUP and of the requests that make a node.
    pub struct EntryOut: 128 {
        /// The number of the node; zero if no such name exists, which the kernel may cache.
        [0] node: U64,
        /// The generation of the node's number. The two together never name another node.
        [8] generation: U64,
        /// Seconds for which the kernel may cache the name.
        [16] entry_valid: U64,
        /// Seconds for which the kernel may cache the attributes.
        [24] attr_valid: U64,
        /// Nanoseconds to add to `entry_valid`.
        [32] entry_valid_ns: U32,
        /// Nanoseconds to add to `attr_valid`.
        [36] attr_valid_ns: U32,
        /// The attributes of the node.
        [40] attr: Attr,
    }
}

layout! {
    /// The reply of GETATTR and SETATTR.
    pub struct AttrOut: 104 {
        /// Seconds for which the kernel may cache the attributes.
        [0] attr_valid: U64,
        /// Nanoseconds to add to `attr_valid`.
        [8] attr_valid_ns: U32,
        /// Padding bytes without a meaning.
        [12] padding: U32,
        /// The attributes of the node.
        [16] attr: Attr,
    }
}

layout! {
    /// References to a node that the kernel gives back.
    pub struct ForgetOne: 16 {
        /// The number of the node.
        [0] node: U64,
        /// The number of references that are given back.
        [8] lookups: U64,
    }
}

layout! {
    /// The body of BATCH_FORGET, before its [`ForgetOne`]s.
    pub struct BatchForgetIn: 8 {
        /// The number of [`ForgetOne`]s that follow.
        [0] count: U32,
        /// Padding bytes without a meaning.
        [4] padding: U32,
    }
}

layout! {
    /// The body of GETATTR.
    pub struct GetAttrIn: 16 {
        /// [`GETATTR_HANDLE`], or zero.
        [0] flags: U32,
        /// Padding bytes without a meaning.
        [4] padding: U32,
        /// The handle by which the file or directory is open.
        [8] handle: U64,
    }
}

layout! {
    /// The body of MKNOD, before the name.
    pub struct MknodIn: 16 {
        /// The type and permissions of the node, as `st_mode` of stat(2).
        [0] mode: U32,
        /// The device number, if a device is made.
        [4] rdev: U32,
        /// The caller's mask of permissions (umask), which the kernel has applied to `mode`.
        [8] umask: U32,
        /// Padding bytes without a meaning.
        [12] padding: U32,
    }
}

layout! {
    /// The body of MKDIR, before the name.
    pub struct MkdirIn: 8 {
        /// The permissions of the new directory.
        [0] mode: U32,
        /// The caller's mask of permissions (umask), which the kernel has applied to `mode`.
        [4] umask: U32,
    }
}

layout! {
    /// The body of RENAME2, before the two names.
    pub struct Rename2In: 16 {
        /// The number of the node of the directory that gets the new name.
        [0] new_directory: U64,
        /// Flags of renameat2(2).
        [8] flags: U32,
        /// Padding bytes without a meaning.
        [12] padding: U32,
    }
}

layout! {
    /// The body of SETATTR.
    pub struct SetAttrIn: 88 {
        /// The attributes to change: bits of [`set`].
        [0] valid: U32,
        /// Padding bytes without a meaning.
        [4] padding: U32,
        /// The handle by which the file or directory is open.
        [8] handle: U64,
        /// The new size in bytes.
        [16] size: U64,
        /// The kernel's number for the owner of file locks.
        [24] lock_owner: U64,
        /// The time of the last access, in seconds since 1970.
        [32] atime: U64,
        /// The time of the last change of contents, in seconds since 1970.
        [40] mtime: U64,
        /// The time of the last change of attributes, in seconds since 1970.
        [48] ctime: U64,
        /// The nanoseconds after `atime`, below 10⁹.
        [56] atime_ns: U32,
        /// The nanoseconds after `mtime`, below 10⁹.
        [60] mtime_ns: U32,
        /// The nanoseconds after `ctime`, below 10⁹.
        [64] ctime_ns: U32,
        /// The type and permissions of the node, as `st_mode` of stat(2).
        [68] mode: U32,
        /// Fields of the interface that this implementation does not use.
        [72] unused: U32,
        /// The user number of the owner.
        [76] uid: U32,
        /// The number of the group.
        [80] gid: U32,
        /// Fields of the interface that this implementation does not use.
        [84] unused_2: U32,
    }
}

layout! {
    /// The body of OPEN and OPENDIR.
    pub struct OpenIn: 8 {
        /// The flags of open(2) with which the caller has opened the file.
        [0] flags: U32,
        /// Flags of the FUSE interface for this open (`FUSE_OPEN_…`).
        [4] open_flags: U32,
    }
}

layout! {
    /// The body of CREATE and TMPFILE, before the name.
    pub struct CreateIn: 16 {
        /// The flags of open(2) with which the caller has opened the file.
        [0] flags: U32,
        /// The type and permissions of the node, as `st_mode` of stat(2).
        [4] mode: U32,
        /// The caller's mask of permissions (umask), which the kernel has applied to `mode`.
        [8] umask: U32,
        /// Flags of the FUSE interface for this open (`FUSE_OPEN_…`).
        [12] open_flags: U32,
    }
}

layout! {
    /// The reply of OPEN and OPENDIR, and the second part of that of CREATE.
    pub struct OpenOut: 16 {
        /// The handle, chosen by the program, that names the open file in later requests.
        [0] handle: U64,
        /// The kernel's use of the file: bits of [`open_flag`].
        [8] open_flags: U32,
        /// Padding bytes without a meaning.
        [12] padding: U32,
    }
}

layout! {
    /// The body of RELEASE and RELEASEDIR.
    pub struct ReleaseIn: 24 {
        /// The handle by which the file or directory is open.
        [0] handle: U64,
        /// The flags of open(2) with which the caller has opened the file.
        [8] flags: U32,
        /// Flags of the FUSE interface for this close (`FUSE_RELEASE_…`).
        [12] release_flags: U32,
        /// The kernel's number for the owner of file locks.
        [16] lock_owner: U64,
    }
}

layout! {
    /// The body of FLUSH.
    pub struct FlushIn: 24 {
        /// The handle by which the file or directory is open.
        [0] handle: U64,
        /// Fields of the interface that this implementation does not use.
        [8] unused: U32,
        /// Padding bytes without a meaning.
        [12] padding: U32,
        /// The kernel's number for the owner of file locks.
        [16] lock_owner: U64,
    }
}

layout! {
    /// The body of READ, READDIR and READDIRPLUS.
    pub struct ReadIn: 40 {
        /// The handle by which the file or directory is open.
        [0] handle: U64,
        /// The offset of the first byte, or in a directory the position of the first entry.
        [8] offset: U64,
        /// The number of bytes to read, or the room for entries in bytes.
        [16] size: U32,
        /// Flags of the FUSE interface for this read (`FUSE_READ_…`).
        [20] read_flags: U32,
        /// The kernel's number for the owner of file locks.
        [24] lock_owner: U64,
        /// The flags of open(2) with which the caller has opened the file.
        [32] flags: U32,
        /// Padding bytes without a meaning.
        [36] padding: U32,
    }
}

layout! {
    /// The body of WRITE, before the data.
    pub struct WriteIn: 40 {
        /// The handle by which the file or directory is open.
        [0] handle: U64,
        /// The offset of the first byte in the file.
        [8] offset: U64,
        /// The number of bytes to write.
        [16] size: U32,
        /// Flags of the FUSE interface for this write: [`WRITE_CACHE`], [`WRITE_KILL_SUIDGID`].
        [20] write_flags: U32,
        /// The kernel's number for the owner of file locks.
        [24] lock_owner: U64,
        /// The flags of open(2) with which the caller has opened the file.
        [32] flags: U32,
        /// Padding bytes without a meaning.
        [36] padding: U32,
    }
}

layout! {
    /// The reply of WRITE and COPY_FILE_RANGE, and of GETXATTR and LISTXATTR to a question for the
    /// size.
    pub struct SizeOut: 8 {
        /// The number of bytes that were written or copied, or that the caller needs room for.
        [0] size: U32,
        /// Padding bytes without a meaning.
        [4] padding: U32,
    }
}

layout! {
    /// The reply of STATFS.
    pub struct StatfsOut: 80 {
        /// The size of the file system in blocks of `fragment_bytes` bytes.
        [0] blocks: U64,
        /// The number of free blocks.
        [8] free: U64,
        /// The number of free blocks for users other than root.
        [16] available: U64,
        /// The most files that the file system can have.
        [24] files: U64,
        /// The number of files that can still be made.
        [32] files_free: U64,
        /// The best size of a request in bytes.
        [40] block_bytes: U32,
        /// The longest name in bytes.
        [44] name_max: U32,
        /// The size of a block in bytes.
        [48] fragment_bytes: U32,
        /// Padding bytes without a meaning.
        [52] padding: U32,
        /// Reserved bytes, which neither end uses.
        [56] spare: [U32; 6],
    }
}

layout! {
    /// The body of FSYNC and FSYNCDIR.
    pub struct FsyncIn: 16 {
        /// The handle by which the file or directory is open.
        [0] handle: U64,
        /// [`FSYNC_DATA`], or zero.
        [8] flags: U32,
        /// Padding bytes without a meaning.
        [12] padding: U32,
    }
}

layout! {
    /// The body of SETXATTR, before the name and the value.
    pub struct SetXattrIn: 8 {
        /// The size of the value in bytes.
        [0] size: U32,
        /// Flags of setxattr(2).
        [4] flags: U32,
    }
}

layout! {
    /// The body of GETXATTR, before the name, and of LISTXATTR.
    pub struct GetXattrIn: 8 {
        /// The number of bytes that the caller has room for. Zero asks for the size instead.
        [0] size: U32,
        /// Padding bytes without a meaning.
        [4] padding: U32,
    }
}

layout! {
    /// The body of ACCESS.
    pub struct AccessIn: 8 {
        /// The permissions to check, as bits of access(2).
        [0] mask: U32,
        /// Padding bytes without a meaning.
        [4] padding: U32,
    }
}

layout! {
    /// The body of FALLOCATE.
    pub struct FallocateIn: 32 {
        /// The handle by which the file or directory is open.
        [0] handle: U64,
        /// The offset of the first byte in the file.
        [8] offset: U64,
        /// The length of the range in bytes.
        [16] length: U64,
        /// Flags of fallocate(2).
        [24] mode: U32,
        /// Padding bytes without a meaning.
        [28] padding: U32,
    }
}

layout! {
    /// The body of LSEEK.
    pub struct LseekIn: 24 {
        /// The handle by which the file or directory is open.
        [0] handle: U64,
        /// The offset of the byte from which on to search.
        [8] offset: U64,
        /// The object of the search: `SEEK_DATA` or `SEEK_HOLE` of lseek(2).
        [16] whence: U32,
        /// Padding bytes without a meaning.
        [20] padding: U32,
    }
}

layout! {
    /// The body of COPY_FILE_RANGE.
    pub struct CopyIn: 56 {
        /// The handle of the source.
        [0] handle: U64,
        /// The offset of the first byte in the source.
        [8] offset: U64,
        /// The number of the target's node.
        [16] target: U64,
        /// The handle of the target.
        [24] target_handle: U64,
        /// The offset of the first byte in the target.
        [32] target_offset: U64,
        /// The number of bytes to copy.
        [40] length: U64,
        /// Flags of copy_file_range(2).
        [48] flags: U64,
    }
}

layout! {
    /// An entry of a directory, before its name.
    pub struct DirEntry: 24 {
        /// The number of the inode.
        [0] ino: U64,
        /// The position of the next entry, which the kernel passes as `offset` of its next read.
        [8] next: U64,
        /// The length of the name in bytes.
        [16] name_len: U32,
        /// The type of the inode: bits 15:12 of its mode, shifted down.
        [20] kind: U32,
    }
}

layout! {
    /// The notification that attributes, or a range of data, of a node have changed.
    pub struct InvalInodeOut: 24 {
        /// The number of the node.
        [0] node: U64,
        /// The offset of the first byte that has changed; negative if only attributes have.
        [8] offset: I64,
        /// The number of bytes that have changed; zero for all that follow.
        [16] length: I64,
    }
}

/// The code of the notification with an [`InvalInodeOut`], which stands in [`OutHeader::error`].
pub const NOTIFY_INVAL_INODE: i32 = 2;

// The data of a write lie behind 80 bytes of heads.
const _: () = assert!(size_of::<InHeader>() + size_of::<WriteIn>() == 80);

// An entry with attributes is an entry behind a node.
const _: () = assert!(size_of::<EntryOut>() + size_of::<DirEntry>() == 152);
const _: () = assert!(size_of::<DirEntry>().is_multiple_of(ALIGN));
