//! Requests of the kernel.

use core::time::Duration;

use wire::fuse::{
    AccessIn, BatchForgetIn, CopyIn, CreateIn, Errno, FSYNC_DATA, FallocateIn, FlushIn, ForgetOne,
    FsyncIn, GETATTR_HANDLE, GetAttrIn, GetXattrIn, InHeader, InitIn, LseekIn, MkdirIn, MknodIn,
    Opcode, OpenIn, ReadIn, ReleaseIn, Rename2In, SetAttrIn, SetXattrIn, WRITE_CACHE,
    WRITE_KILL_SUIDGID, WriteIn, capability, set,
};
use zerocopy::native_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Bytes of a write's heads, behind which its data lies.
pub const HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// The longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A request of the kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Request<'a> {
    /// The request's number, which its reply repeats.
    pub unique: u64,
    /// The node that the request is about.
    pub node: u64,
    /// The process that has asked.
    pub caller: Caller,
    /// The operation that is asked for.
    pub operation: Operation<'a>,
}

/// The process on whose behalf the kernel asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The process.
    pub pid: u32,
}

/// A request that cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The number of the request; `None` if it has no reply.
    pub unique: Option<u64>,
    /// The error to reply with.
    pub errno: Errno,
}

/// A moment, as time since 1970. Moments before that are kept as the kernel gives them: seconds are
/// a signed number in 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds, below a second.
    pub nanoseconds: u32,
}

impl Time {
    /// Returns the moment that lies so long after 1970.
    #[must_use]
    pub fn since_1970(since: Duration) -> Time {
        Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOr {
    /// The time at which the request is served.
    Now,
    /// A given time.
    At(Time),
}

/// The attributes that a request changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The permissions.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size in bytes.
    pub size: Option<u64>,
    /// The time of the last access.
    pub atime: Option<TimeOr>,
    /// The time of the last change of contents.
    pub mtime: Option<TimeOr>,
    /// The time of the last change of attributes.
    pub ctime: Option<Time>,
    /// `true` if set-user and set-group bits are to be cleared.
    pub kill_suidgid: bool,
}

/// The kernel's first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The kernel's major version.
    pub major: u32,
    /// The kernel's minor version.
    pub minor: u32,
    /// The largest read-ahead in bytes.
    pub readahead_max: u32,
    /// The kernel's capabilities, of [`capability`].
    pub capabilities: u64,
}

/// The operation of a request. Names have 1 to 255 bytes, and are neither `.` nor `..`.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Agrees on version and capabilities.
    Init(Greeting),
    /// Ends the file system; the last request.
    Destroy,
    /// Looks a name up in the node.
    Lookup(&'a [u8]),
    /// Gives references back; has no reply.
    Forget(Forgets<'a>),
    /// Reads attributes.
    GetAttr {
        /// The handle by which the caller has the file open.
        handle: Option<u64>,
    },
    /// Changes attributes.
    SetAttr {
        /// The new values.
        changes: Changes,
        /// The handle by which the caller has the file open.
        handle: Option<u64>,
    },
    /// Reads the target of a symbolic link.
    ReadLink,
    /// Makes a symbolic link.
    Symlink {
        /// The name.
        name: &'a [u8],
        /// The target, of at least one byte.
        target: &'a [u8],
    },
    /// Makes a file, device, pipe or socket.
    MkNod {
        /// The name.
        name: &'a [u8],
        /// Type and permissions.
        mode: u32,
        /// Number of the device.
        rdev: u32,
    },
    /// Makes a directory.
    MkDir {
        /// The name.
        name: &'a [u8],
        /// Permissions.
        mode: u32,
    },
    /// Removes a name of a file.
    Unlink(&'a [u8]),
    /// Removes an empty directory.
    RmDir(&'a [u8]),
    /// Changes a name.
    Rename {
        /// The name in the node.
        name: &'a [u8],
        /// The directory of the new name.
        new_directory: u64,
        /// The new name.
        new_name: &'a [u8],
        /// Flags of renameat2(2).
        flags: u32,
    },
    /// Gives the file `target` another name in the node.
    Link {
        /// The file.
        target: u64,
        /// The name.
        name: &'a [u8],
    },
    /// Opens a file.
    Open {
        /// Flags of open(2).
        flags: u32,
    },
    /// Makes a file and opens it.
    Create {
        /// The name.
        name: &'a [u8],
        /// Flags of open(2).
        flags: u32,
        /// Type and permissions.
        mode: u32,
    },
    /// Reads data.
    Read {
        /// The handle.
        handle: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u32,
    },
    /// Writes data, which lies behind the first [`HEAD_BYTES`] of the message.
    Write {
        /// The handle.
        handle: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u32,
        /// `true` if the data comes from the page cache, and the handle is a guess.
        from_cache: bool,
        /// `true` if set-user and set-group bits are to be cleared.
        kill_suidgid: bool,
        /// Flags of open(2).
        flags: u32,
    },
    /// Reads the sizes of the file system.
    StatFs,
    /// Tells of one close of a file.
    Flush {
        /// The handle.
        handle: u64,
    },
    /// Closes a file for the last time.
    Release {
        /// The handle.
        handle: u64,
    },
    /// Makes a file durable.
    Fsync {
        /// The handle.
        handle: u64,
        /// `true` for data alone, and what is needed to read it.
        data_only: bool,
    },
    /// Makes the whole file system durable.
    SyncFs,
    /// Sets an extended attribute.
    SetXattr {
        /// The name.
        name: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// Flags of setxattr(2).
        flags: u32,
    },
    /// Reads an extended attribute.
    GetXattr {
        /// The name.
        name: &'a [u8],
        /// Bytes that the caller has room for; zero asks for the size.
        bytes: u32,
    },
    /// Lists the names of extended attributes.
    ListXattr {
        /// Bytes that the caller has room for; zero asks for the size.
        bytes: u32,
    },
    /// Removes an extended attribute.
    RemoveXattr(&'a [u8]),
    /// Opens a directory.
    OpenDir {
        /// Flags of open(2).
        flags: u32,
    },
    /// Reads entries of a directory.
    ReadDir {
        /// The handle.
        handle: u64,
        /// The cookie from which to go on.
        cookie: u64,
        /// Room for entries in bytes.
        bytes: u32,
        /// `true` if the entries come with attributes, and with a reference to each node.
        with_attributes: bool,
    },
    /// Closes a directory.
    ReleaseDir {
        /// The handle.
        handle: u64,
    },
    /// Makes a directory durable.
    FsyncDir {
        /// The handle.
        handle: u64,
        /// `true` for data alone, and what is needed to read it.
        data_only: bool,
    },
    /// Checks a permission.
    Access {
        /// Permissions, as access(2) has them.
        mask: u32,
    },
    /// Tells that nobody waits for a request any more.
    Interrupt,
    /// Reserves or frees space.
    Fallocate {
        /// The handle.
        handle: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Flags of fallocate(2).
        mode: u32,
    },
    /// Finds data or a hole.
    Seek {
        /// The handle.
        handle: u64,
        /// The byte from which to look.
        offset: u64,
        /// The object of the search, as lseek(2) numbers it.
        whence: u32,
    },
    /// Copies data from the node to another one.
    Copy {
        /// First byte of the source.
        offset: u64,
        /// The node of the target.
        target: u64,
        /// First byte of the target.
        target_offset: u64,
        /// Bytes.
        length: u64,
    },
    /// An operation that is not served: locks, commands, readiness, and what is not known.
    Other(Opcode),
}

/// References that the kernel gives back: pairs of a node and their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forgets<'a> {
    one: Option<(u64, u64)>,
    more: &'a [ForgetOne],
}

impl Forgets<'_> {
    /// Returns each node with the number of references.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let more = self.more.iter().map(|one| (one.node.get(), one.lookups.get()));
        self.one.into_iter().chain(more)
    }
}

/// Returns `true` if the message that begins with these bytes is a write, whose data lies behind the
/// first [`HEAD_BYTES`].
#[must_use]
pub fn is_write(head: &[u8]) -> bool {
    InHeader::ref_from_prefix(head)
        .is_ok_and(|(header, _)| Opcode(header.opcode.get()) == Opcode::WRITE)
}

/// Parses one message. Of a write, `bytes` has the first [`HEAD_BYTES`], and `behind` is the number
/// of bytes that follow them elsewhere; it is zero for all other messages.
///
/// # Errors
/// Says how to reply to a message that is not well formed.
pub fn parse(bytes: &[u8], behind: usize) -> Result<Request<'_>, Mistake> {
    let unframed = Mistake { unique: None, errno: Errno::INVAL };
    let (header, body) = InHeader::ref_from_prefix(bytes).map_err(|_| unframed)?;
    let (unique, opcode) = (header.unique.get(), Opcode(header.opcode.get()));
    let has_reply = opcode != Opcode::FORGET && opcode != Opcode::BATCH_FORGET;
    let refused = |errno| Mistake { unique: has_reply.then_some(unique), errno };
    let len = bytes.len().checked_add(behind);
    if len != Some(header.len.get() as usize) {
        return Err(refused(Errno::INVAL));
    }
    let extension = usize::from(header.extension_len.get()) * 8;
    let body = body.len().checked_sub(extension).map(|end| &body[..end]);
    let body = Body(body.ok_or_else(|| refused(Errno::INVAL))?);
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

/// The rest of a message's body.
#[derive(Clone, Copy)]
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    /// Takes a structure off the beginning.
    fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(&mut self) -> Result<&'a T, Errno> {
        let (value, rest) = T::ref_from_prefix(self.0).map_err(|_| Errno::INVAL)?;
        self.0 = rest;
        Ok(value)
    }

    /// Takes the bytes before the next zero off the beginning, and the zero.
    fn text(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let (text, rest) = (&self.0[..end], &self.0[end + 1..]);
        self.0 = rest;
        Ok(text)
    }

    /// Takes a name of a file off the beginning.
    fn name(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.text()?;
        match name {
            b"" | b"." | b".." => Err(Errno::INVAL),
            _ if name.contains(&b'/') => Err(Errno::INVAL),
            _ if name.len() > NAME_BYTES_MAX => Err(Errno::NAMETOOLONG),
            _ => Ok(name),
        }
    }

    /// Takes the name of an extended attribute off the beginning.
    fn attribute(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.text()?;
        match name.len() {
            1..=NAME_BYTES_MAX => Ok(name),
            _ => Err(Errno::RANGE),
        }
    }
}

fn write(mut body: Body<'_>, behind: usize) -> Parsed<'static> {
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

/// Returns the offset, if the range has no byte behind the largest file.
fn checked_offset(offset: U64, bytes: u64) -> Result<u64, Errno> {
    let end = offset.get().checked_add(bytes).ok_or(Errno::FBIG)?;
    if i64::try_from(end).is_err() {
        return Err(Errno::FBIG);
    }
    Ok(offset.get())
}

/// Parses what concerns the session alone.
fn session(opcode: Opcode, node: u64, mut body: Body<'_>) -> Parsed<'_> {
    Ok(match opcode {
        Opcode::FORGET => {
            let lookups: &U64 = body.take()?;
            Operation::Forget(Forgets { one: Some((node, lookups.get())), more: &[] })
        }
        Opcode::BATCH_FORGET => {
            let batch: &BatchForgetIn = body.take()?;
            let count = batch.count.get() as usize;
            let more = <[ForgetOne]>::ref_from_prefix_with_elems(body.0, count);
            let (more, _) = more.map_err(|_| Errno::INVAL)?;
            Operation::Forget(Forgets { one: None, more })
        }
        Opcode::INIT => {
            let init: &InitIn = body.take()?;
            let lower = u64::from(init.flags.get());
            let upper = match lower & capability::INIT_EXT {
                0 => 0,
                _ => u64::from(body.take::<U32>()?.get()),
            };
            Operation::Init(Greeting {
                major: init.major.get(),
                minor: init.minor.get(),
                readahead_max: init.readahead_max.get(),
                capabilities: upper << 32 | lower,
            })
        }
        _ => Operation::Destroy,
    })
}

/// Parses an operation on a name; `None` if it is none.
fn named(opcode: Opcode, mut body: Body<'_>) -> Option<Parsed<'_>> {
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
    mut body: Body<'a>,
    operation: impl FnOnce(&T, &'a [u8]) -> Operation<'a>,
) -> Parsed<'a> {
    let made: &T = body.take()?;
    Ok(operation(made, body.name()?))
}

fn symlink(mut body: Body<'_>) -> Parsed<'_> {
    let (name, target) = (body.name()?, body.text()?);
    if target.is_empty() {
        return Err(Errno::NOENT);
    }
    Ok(Operation::Symlink { name, target })
}

fn rename<'a>(
    mut body: Body<'a>,
    head: impl FnOnce(&mut Body<'a>) -> Result<(u64, u32), Errno>,
) -> Parsed<'a> {
    let (new_directory, flags) = head(&mut body)?;
    Ok(Operation::Rename { name: body.name()?, new_directory, new_name: body.name()?, flags })
}

/// Parses an operation on a node or an open file.
fn of_file(opcode: Opcode, mut body: Body<'_>) -> Parsed<'_> {
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

/// Parses an operation on extended attributes; all others are not served.
fn attribute(opcode: Opcode, mut body: Body<'_>) -> Parsed<'_> {
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
        (true, _) => Ok(Some(TimeOr::Now)),
        (false, true) => at(seconds, nanoseconds).map(|time| Some(TimeOr::At(time))),
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
    let changes = Changes {
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
