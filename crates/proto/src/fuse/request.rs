//! Requests that the kernel sends to the program of a file system, parsed from messages of FUSE.

use core::time::Duration;

use wire::fuse::{
    AccessIn, BatchForgetIn, CopyIn, CreateIn, Errno, FSYNC_DATA, FallocateIn, FlushIn, ForgetOne,
    FsyncIn, GETATTR_HANDLE, GetAttrIn, GetXattrIn, InHeader, InitIn, LseekIn, MkdirIn, MknodIn,
    Opcode, OpenIn, ReadIn, ReleaseIn, Rename2In, SetAttrIn, SetXattrIn, WRITE_CACHE,
    WRITE_KILL_SUIDGID, WriteIn, capability, set,
};
use zerocopy::native_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The size in bytes of the heads of a write, which its data follows.
pub const HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// The longest name of a file or an extended attribute, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A parsed request of the kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Request<'a> {
    /// The request's number, which its reply repeats.
    pub unique: u64,
    /// The number of the inode that the request is about.
    pub node: u64,
    /// The process on whose behalf the kernel asks.
    pub caller: Caller,
    /// The operation that is asked for.
    pub operation: Operation<'a>,
}

/// The process on whose behalf the kernel asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user number that the process uses for file access.
    pub uid: u32,
    /// The group number that the process uses for file access.
    pub gid: u32,
    /// The number of the process; zero if it has none here.
    pub pid: u32,
}

/// A request that cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedRequest {
    /// The number of the request; `None` if it has no reply.
    pub unique: Option<u64>,
    /// The error number to reply with.
    pub errno: Errno,
}

/// A moment, as the time since the beginning of 1970 in UTC. Earlier moments have negative seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after the whole second, below 1 000 000 000.
    pub nanoseconds: u32,
}

impl Time {
    /// Returns the moment that is `since` after the beginning of 1970.
    #[must_use]
    pub fn since_1970(since: Duration) -> Time {
        Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
    }
}

/// A time stamp that a request sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeStampUpdate {
    /// The time at which the request is served.
    Now,
    /// The given moment.
    At(Time),
}

/// The new values of attributes that a request changes; `None` leaves an attribute as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChanges {
    /// The permissions, in the lowest 12 bits.
    pub mode: Option<u32>,
    /// The user number of the new owner.
    pub uid: Option<u32>,
    /// The number of the new group.
    pub gid: Option<u32>,
    /// The new size in bytes.
    pub size: Option<u64>,
    /// The new time of the last access.
    pub atime: Option<TimeStampUpdate>,
    /// The new time of the last change of the contents.
    pub mtime: Option<TimeStampUpdate>,
    /// The new time of the last change of the attributes.
    pub ctime: Option<Time>,
    /// `true` if set-user and set-group bits are to be cleared.
    pub kill_suidgid: bool,
}

/// The kernel's first request, which proposes a version and capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionProposal {
    /// The kernel's major version.
    pub major: u32,
    /// The kernel's minor version.
    pub minor: u32,
    /// The largest read-ahead that the kernel proposes, in bytes.
    pub readahead_max: u32,
    /// The kernel's capabilities, as bits of [`capability`].
    pub capabilities: u64,
}

/// The operation of a request on its node. Names of files and attributes have 1 to 255 bytes, and
/// names of files are neither `.` nor `..`.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Agrees on version and capabilities.
    Init(SessionProposal),
    /// Ends the file system. No request follows.
    Destroy,
    /// Looks up a name in the directory that the request is about.
    Lookup(&'a [u8]),
    /// Gives back references to nodes. The request has no reply.
    Forget(ForgottenNodes<'a>),
    /// Reads the attributes of the node.
    GetAttr {
        /// The handle by which the caller has the file open; `None` if the kernel gives none.
        handle: Option<u64>,
    },
    /// Changes attributes of the node.
    SetAttr {
        /// The attributes to change, with their new values.
        changes: AttributeChanges,
        /// The handle by which the caller has the file open; `None` if the kernel gives none.
        handle: Option<u64>,
    },
    /// Reads the target of a symbolic link.
    ReadLink,
    /// Makes a symbolic link in the directory that the request is about.
    Symlink {
        /// The name of the new link.
        name: &'a [u8],
        /// The target, of at least one byte.
        target: &'a [u8],
    },
    /// Makes a file, device, pipe or socket in the directory that the request is about.
    MkNod {
        /// The name of the new file.
        name: &'a [u8],
        /// The type and permissions of the new file, as `st_mode` of stat(2).
        mode: u32,
        /// The device number, if a device is made.
        rdev: u32,
    },
    /// Makes a directory in the directory that the request is about.
    MkDir {
        /// The name of the new directory.
        name: &'a [u8],
        /// The permissions of the new directory.
        mode: u32,
    },
    /// Removes this name of a file from the directory.
    Unlink(&'a [u8]),
    /// Removes the empty directory of this name from the directory.
    RmDir(&'a [u8]),
    /// Gives a file or directory another name, perhaps in another directory.
    Rename {
        /// The old name, in the directory that the request is about.
        name: &'a [u8],
        /// The number of the node of the directory that gets the new name.
        new_directory: u64,
        /// The new name.
        new_name: &'a [u8],
        /// Flags of renameat2(2).
        flags: u32,
    },
    /// Gives the file `target` another name, in the directory that the request is about.
    Link {
        /// The number of the file's node.
        target: u64,
        /// The further name of the file.
        name: &'a [u8],
    },
    /// Opens the file that the request is about.
    Open {
        /// The flags of open(2) with which the caller opens or has opened the file.
        flags: u32,
    },
    /// Makes a file in the directory that the request is about, and opens it.
    Create {
        /// The name of the new file.
        name: &'a [u8],
        /// The flags of open(2) with which the caller opens or has opened the file.
        flags: u32,
        /// The type and permissions of the new file, as `st_mode` of stat(2).
        mode: u32,
    },
    /// Reads data of an open file.
    Read {
        /// The handle by which the file or directory is open.
        handle: u64,
        /// The offset of the first byte in the file.
        offset: u64,
        /// The number of bytes to read.
        bytes: u32,
    },
    /// Writes data, which lies behind the first [`HEAD_BYTES`] of the message.
    Write {
        /// The handle by which the file or directory is open.
        handle: u64,
        /// The offset of the first byte in the file.
        offset: u64,
        /// The number of bytes to write.
        bytes: u32,
        /// `true` if the kernel writes back its page cache, so that the handle is perhaps not the
        /// writer's.
        from_cache: bool,
        /// `true` if set-user and set-group bits are to be cleared.
        kill_suidgid: bool,
        /// The flags of open(2) with which the caller opens or has opened the file.
        flags: u32,
    },
    /// Reads the sizes of the file system.
    StatFs,
    /// Says that one descriptor of the open file was closed.
    Flush {
        /// The handle by which the file or directory is open.
        handle: u64,
    },
    /// Ends the use of a handle, after the last descriptor of the file was closed.
    Release {
        /// The handle by which the file or directory is open.
        handle: u64,
    },
    /// Makes the changes of an open file durable.
    Fsync {
        /// The handle by which the file or directory is open.
        handle: u64,
        /// `true` if only data and the metadata needed to read it must be durable, as for
        /// fdatasync(2).
        data_only: bool,
    },
    /// Makes all changes of the file system durable.
    SyncFs,
    /// Sets an extended attribute of the node.
    SetXattr {
        /// The name of the extended attribute.
        name: &'a [u8],
        /// The new value of the extended attribute.
        value: &'a [u8],
        /// Flags of setxattr(2).
        flags: u32,
    },
    /// Reads an extended attribute of the node.
    GetXattr {
        /// The name of the extended attribute.
        name: &'a [u8],
        /// The number of bytes that the caller has room for. Zero asks for the size instead.
        bytes: u32,
    },
    /// Lists the names of the node's extended attributes.
    ListXattr {
        /// The number of bytes that the caller has room for. Zero asks for the size instead.
        bytes: u32,
    },
    /// Removes the extended attribute of this name from the node.
    RemoveXattr(&'a [u8]),
    /// Opens the directory that the request is about.
    OpenDir {
        /// The flags of open(2) with which the caller opens or has opened the file.
        flags: u32,
    },
    /// Reads entries of a directory.
    ReadDir {
        /// The handle by which the file or directory is open.
        handle: u64,
        /// The position of the first entry to return: zero, or that which the entry before it has
        /// named.
        cookie: u64,
        /// The room for entries in the reply, in bytes.
        bytes: u32,
        /// `true` if the entries come with attributes, and with a reference to each node.
        with_attributes: bool,
    },
    /// Ends the use of a directory's handle, after its last descriptor was closed.
    ReleaseDir {
        /// The handle by which the file or directory is open.
        handle: u64,
    },
    /// Makes the changes of an open directory durable.
    FsyncDir {
        /// The handle by which the file or directory is open.
        handle: u64,
        /// `true` if only data and the metadata needed to read it must be durable, as for
        /// fdatasync(2).
        data_only: bool,
    },
    /// Checks whether the caller has these permissions on the node.
    Access {
        /// The permissions to check, as bits of access(2).
        mask: u32,
    },
    /// Says that the caller of an earlier request was interrupted. Which request, is not parsed.
    Interrupt,
    /// Reserves or frees space of a range of the file.
    Fallocate {
        /// The handle by which the file or directory is open.
        handle: u64,
        /// The offset of the first byte in the file.
        offset: u64,
        /// The length of the range in bytes.
        length: u64,
        /// Flags of fallocate(2).
        mode: u32,
    },
    /// Finds the next data or hole in the file.
    Seek {
        /// The handle by which the file or directory is open.
        handle: u64,
        /// The offset of the byte from which on to search.
        offset: u64,
        /// The object of the search: `SEEK_DATA` or `SEEK_HOLE` of lseek(2).
        whence: u32,
    },
    /// Copies data from the file that the request is about to another file.
    Copy {
        /// The offset of the first byte in the source.
        offset: u64,
        /// The number of the target's node.
        target: u64,
        /// The offset of the first byte in the target.
        target_offset: u64,
        /// The number of bytes to copy.
        length: u64,
    },
    /// An operation that the program does not serve, such as locks, ioctl and poll, or does not
    /// know.
    Other(Opcode),
}

/// The references that the kernel gives back: for each node, their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForgottenNodes<'a> {
    one: Option<(u64, u64)>,
    more: &'a [ForgetOne],
}

impl ForgottenNodes<'_> {
    /// Returns each node's number with the number of references to it that the kernel gives back.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let more = self.more.iter().map(|one| (one.node.get(), one.lookups.get()));
        self.one.into_iter().chain(more)
    }
}

/// Returns `true` if the message that begins with these bytes is a write, whose data lies behind
/// the first [`HEAD_BYTES`].
#[must_use]
pub fn is_write(head: &[u8]) -> bool {
    InHeader::ref_from_prefix(head)
        .is_ok_and(|(header, _)| Opcode(header.opcode.get()) == Opcode::WRITE)
}

/// Parses one message. Of a write, `bytes` has the first [`HEAD_BYTES`], and `behind` is the number
/// of bytes that follow them elsewhere; it is zero for all other messages.
///
/// # Errors
/// Returns how to reply to a malformed message.
pub fn parse(bytes: &[u8], behind: usize) -> Result<Request<'_>, MalformedRequest> {
    let unframed = MalformedRequest { unique: None, errno: Errno::INVAL };
    let (header, body) = InHeader::ref_from_prefix(bytes).map_err(|_| unframed)?;
    let (unique, opcode) = (header.unique.get(), Opcode(header.opcode.get()));
    let has_reply = opcode != Opcode::FORGET && opcode != Opcode::BATCH_FORGET;
    let refused = |errno| MalformedRequest { unique: has_reply.then_some(unique), errno };
    let len = bytes.len().checked_add(behind);
    if len != Some(header.len.get() as usize) {
        return Err(refused(Errno::INVAL));
    }
    let extension = usize::from(header.extension_len.get()) * 8;
    let body = body.len().checked_sub(extension).map(|end| &body[..end]);
    let body = BodyReader(body.ok_or_else(|| refused(Errno::INVAL))?);
    let node = header.node.get();
    let parsed = match opcode {
        Opcode::WRITE => write(body, behind),
        _ if behind > 0 => Err(Errno::INVAL),
        Opcode::FORGET | Opcode::BATCH_FORGET | Opcode::INIT | Opcode::DESTROY => {
            session(opcode, node, body)
        }
        _ => named(opcode, body).unwrap_or_else(|| of_file(opcode, body)),
    };
    let caller = Caller { uid: header.uid.get(), gid: header.gid.get(), pid: header.pid.get() };
    let operation = parsed.map_err(refused)?;
    Ok(Request { unique, node, caller, operation })
}

type Parsed<'a> = Result<Operation<'a>, Errno>;

/// The part of a message's body that was not parsed yet.
#[derive(Clone, Copy)]
struct BodyReader<'a>(&'a [u8]);

impl<'a> BodyReader<'a> {
    /// Takes a structure off the beginning; `EINVAL` if the body is too short.
    fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(&mut self) -> Result<&'a T, Errno> {
        let (value, rest) = T::ref_from_prefix(self.0).map_err(|_| Errno::INVAL)?;
        self.0 = rest;
        Ok(value)
    }

    /// Takes a text that ends with a zero byte off the beginning, and returns it without the zero.
    fn text(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let (text, rest) = (&self.0[..end], &self.0[end + 1..]);
        self.0 = rest;
        Ok(text)
    }

    /// Takes the name of a file off the beginning, and checks its form and length.
    fn name(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.text()?;
        match name {
            b"" | b"." | b".." => Err(Errno::INVAL),
            _ if name.contains(&b'/') => Err(Errno::INVAL),
            _ if name.len() > NAME_BYTES_MAX => Err(Errno::NAMETOOLONG),
            _ => Ok(name),
        }
    }

    /// Takes the name of an extended attribute off the beginning, and checks its length.
    fn attribute(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.text()?;
        match name.len() {
            1..=NAME_BYTES_MAX => Ok(name),
            _ => Err(Errno::RANGE),
        }
    }
}

fn write(mut body: BodyReader<'_>, behind: usize) -> Parsed<'static> {
    let write: &WriteIn = body.take()?;
    let bytes = write.size.get();
    if !body.0.is_empty() || bytes as usize != behind {
        return Err(Errno::INVAL);
    }
    let has = |flag| write.write_flags.get() & flag != 0;
    Ok(Operation::Write {
        handle: write.handle.get(),
        offset: checked_offset(write.offset, u64::from(bytes))?,
        bytes,
        from_cache: has(WRITE_CACHE),
        kill_suidgid: has(WRITE_KILL_SUIDGID),
        flags: write.flags.get(),
    })
}

/// Returns the offset; `EFBIG` if the range of `bytes` bytes there ends behind the largest file.
fn checked_offset(offset: U64, bytes: u64) -> Result<u64, Errno> {
    let end = offset.get().checked_add(bytes).ok_or(Errno::FBIG)?;
    if i64::try_from(end).is_err() {
        return Err(Errno::FBIG);
    }
    Ok(offset.get())
}

/// Parses the requests that begin and end the session or give references back.
fn session(opcode: Opcode, node: u64, mut body: BodyReader<'_>) -> Parsed<'_> {
    Ok(match opcode {
        Opcode::FORGET => {
            let lookups: &U64 = body.take()?;
            Operation::Forget(ForgottenNodes { one: Some((node, lookups.get())), more: &[] })
        }
        Opcode::BATCH_FORGET => {
            let batch: &BatchForgetIn = body.take()?;
            let count = batch.count.get() as usize;
            let more = <[ForgetOne]>::ref_from_prefix_with_elems(body.0, count);
            let (more, _) = more.map_err(|_| Errno::INVAL)?;
            Operation::Forget(ForgottenNodes { one: None, more })
        }
        Opcode::INIT => {
            let init: &InitIn = body.take()?;
            let lower = u64::from(init.flags.get());
            let upper = match lower & capability::INIT_EXT {
                0 => 0,
                _ => u64::from(body.take::<U32>()?.get()),
            };
            Operation::Init(SessionProposal {
                major: init.major.get(),
                minor: init.minor.get(),
                readahead_max: init.readahead_max.get(),
                capabilities: upper << 32 | lower,
            })
        }
        _ => Operation::Destroy,
    })
}

/// Parses an operation on a name of a file; `None` if this opcode is no such operation.
fn named(opcode: Opcode, mut body: BodyReader<'_>) -> Option<Parsed<'_>> {
    Some(match opcode {
        Opcode::LOOKUP => body.name().map(Operation::Lookup),
        Opcode::SYMLINK => symlink(body),
        Opcode::MKNOD => made(body, |made: &MknodIn, name| Operation::MkNod {
            name,
            mode: made.mode.get(),
            rdev: made.rdev.get(),
        }),
        Opcode::MKDIR => {
            made(body, |made: &MkdirIn, name| Operation::MkDir { name, mode: made.mode.get() })
        }
        Opcode::CREATE => made(body, |made: &CreateIn, name| Operation::Create {
            name,
            flags: made.flags.get(),
            mode: made.mode.get(),
        }),
        Opcode::LINK => {
            made(body, |target: &U64, name| Operation::Link { target: target.get(), name })
        }
        Opcode::UNLINK => body.name().map(Operation::Unlink),
        Opcode::RMDIR => body.name().map(Operation::RmDir),
        Opcode::RENAME => rename(body, |body| Ok((body.take::<U64>()?.get(), 0))),
        Opcode::RENAME2 => rename(body, |body| {
            let rename: &Rename2In = body.take()?;
            Ok((rename.new_directory.get(), rename.flags.get()))
        }),
        _ => return None,
    })
}

fn made<'a, T: FromBytes + KnownLayout + Immutable + Unaligned + 'a>(
    mut body: BodyReader<'a>,
    operation: impl FnOnce(&T, &'a [u8]) -> Operation<'a>,
) -> Parsed<'a> {
    let made: &T = body.take()?;
    Ok(operation(made, body.name()?))
}

fn symlink(mut body: BodyReader<'_>) -> Parsed<'_> {
    let (name, target) = (body.name()?, body.text()?);
    if target.is_empty() {
        return Err(Errno::NOENT);
    }
    Ok(Operation::Symlink { name, target })
}

fn rename<'a>(
    mut body: BodyReader<'a>,
    head: impl FnOnce(&mut BodyReader<'a>) -> Result<(u64, u32), Errno>,
) -> Parsed<'a> {
    let (new_directory, flags) = head(&mut body)?;
    Ok(Operation::Rename { name: body.name()?, new_directory, new_name: body.name()?, flags })
}

/// Parses an operation on a node or an open file.
fn of_file(opcode: Opcode, mut body: BodyReader<'_>) -> Parsed<'_> {
    Ok(match opcode {
        Opcode::GETATTR => {
            let asked: &GetAttrIn = body.take()?;
            let has_handle = asked.flags.get() & GETATTR_HANDLE != 0;
            Operation::GetAttr { handle: has_handle.then_some(asked.handle.get()) }
        }
        Opcode::SETATTR => set_attributes(body.take()?)?,
        Opcode::READLINK => Operation::ReadLink,
        Opcode::OPEN => Operation::Open { flags: body.take::<OpenIn>()?.flags.get() },
        Opcode::OPENDIR => Operation::OpenDir { flags: body.take::<OpenIn>()?.flags.get() },
        Opcode::READ => {
            let read: &ReadIn = body.take()?;
            let bytes = read.size.get();
            let offset = checked_offset(read.offset, 0)?;
            Operation::Read { handle: read.handle.get(), offset, bytes }
        }
        Opcode::READDIR | Opcode::READDIRPLUS => {
            let read: &ReadIn = body.take()?;
            Operation::ReadDir {
                handle: read.handle.get(),
                cookie: read.offset.get(),
                bytes: read.size.get(),
                with_attributes: opcode == Opcode::READDIRPLUS,
            }
        }
        Opcode::STATFS => Operation::StatFs,
        Opcode::FLUSH => Operation::Flush { handle: body.take::<FlushIn>()?.handle.get() },
        Opcode::RELEASE => Operation::Release { handle: body.take::<ReleaseIn>()?.handle.get() },
        Opcode::RELEASEDIR => {
            Operation::ReleaseDir { handle: body.take::<ReleaseIn>()?.handle.get() }
        }
        Opcode::FSYNC | Opcode::FSYNCDIR => {
            let sync: &FsyncIn = body.take()?;
            let (handle, data_only) = (sync.handle.get(), sync.flags.get() & FSYNC_DATA != 0);
            match opcode {
                Opcode::FSYNC => Operation::Fsync { handle, data_only },
                _ => Operation::FsyncDir { handle, data_only },
            }
        }
        Opcode::SYNCFS => Operation::SyncFs,
        Opcode::ACCESS => Operation::Access { mask: body.take::<AccessIn>()?.mask.get() },
        Opcode::INTERRUPT => Operation::Interrupt,
        Opcode::FALLOCATE => {
            let asked: &FallocateIn = body.take()?;
            let length = asked.length.get();
            Operation::Fallocate {
                handle: asked.handle.get(),
                offset: checked_offset(asked.offset, length)?,
                length,
                mode: asked.mode.get(),
            }
        }
        Opcode::LSEEK => {
            let asked: &LseekIn = body.take()?;
            Operation::Seek {
                handle: asked.handle.get(),
                offset: checked_offset(asked.offset, 0)?,
                whence: asked.whence.get(),
            }
        }
        Opcode::COPY_FILE_RANGE => copy(body.take()?)?,
        _ => return attribute(opcode, body),
    })
}

/// Parses an operation on extended attributes. All other opcodes become [`Operation::Other`].
fn attribute(opcode: Opcode, mut body: BodyReader<'_>) -> Parsed<'_> {
    Ok(match opcode {
        Opcode::SETXATTR => {
            let asked: &SetXattrIn = body.take()?;
            let name = body.attribute()?;
            let value = body.0.get(..asked.size.get() as usize).ok_or(Errno::INVAL)?;
            Operation::SetXattr { name, value, flags: asked.flags.get() }
        }
        Opcode::GETXATTR => {
            let bytes = body.take::<GetXattrIn>()?.size.get();
            Operation::GetXattr { name: body.attribute()?, bytes }
        }
        Opcode::LISTXATTR => Operation::ListXattr { bytes: body.take::<GetXattrIn>()?.size.get() },
        Opcode::REMOVEXATTR => Operation::RemoveXattr(body.attribute()?),
        other => Operation::Other(other),
    })
}

fn copy(asked: &CopyIn) -> Parsed<'static> {
    let length = asked.length.get();
    Ok(Operation::Copy {
        offset: checked_offset(asked.offset, length)?,
        target: asked.target.get(),
        target_offset: checked_offset(asked.target_offset, length)?,
        length,
    })
}

fn set_attributes(asked: &SetAttrIn) -> Parsed<'static> {
    let valid = asked.valid.get();
    let has = |flag: u32| valid & flag != 0;
    let at = |seconds: U64, nanoseconds: U32| match nanoseconds.get() {
        nanoseconds @ 0..1_000_000_000 => Ok(Time { seconds: seconds.get() as i64, nanoseconds }),
        _ => Err(Errno::INVAL),
    };
    let time = |flag, now, seconds, nanoseconds| match (has(now), has(flag)) {
        (true, _) => Ok(Some(TimeStampUpdate::Now)),
        (false, true) => at(seconds, nanoseconds).map(|time| Some(TimeStampUpdate::At(time))),
        (false, false) => Ok(None),
    };
    let size = match has(set::SIZE) {
        true => Some(checked_offset(asked.size, 0)?),
        false => None,
    };
    let ctime = match has(set::CTIME) {
        true => Some(at(asked.ctime, asked.ctime_ns)?),
        false => None,
    };
    let changes = AttributeChanges {
        mode: has(set::MODE).then_some(asked.mode.get() & 0o7777),
        uid: has(set::UID).then_some(asked.uid.get()),
        gid: has(set::GID).then_some(asked.gid.get()),
        size,
        atime: time(set::ATIME, set::ATIME_NOW, asked.atime, asked.atime_ns)?,
        mtime: time(set::MTIME, set::MTIME_NOW, asked.mtime, asked.mtime_ns)?,
        ctime,
        kill_suidgid: has(set::KILL_SUIDGID),
    };
    let handle = has(set::HANDLE).then_some(asked.handle.get());
    Ok(Operation::SetAttr { changes, handle })
}
