//! Requests of the kernel in the words of the file system, and its answers in the words of the
//! kernel.

use std::time::Duration;

use contigfs::{
    Answer, Attributes, Change, Errno, Ino, Operation, RenameHow, S_ISGID, S_ISUID, S_IXGRP, Seek,
    SetHow, SetTime, Statistics, Time,
};
use contract::Status;
use proto::fuse::{self, Changes, Entry, Head, Opened, Sizes, TimeOr};
use rustix::fs::OFlags;
use wire::fuse::open_flag;

/// Time for which the kernel may keep names and attributes. Nobody changes them but by the kernel.
pub(super) const CACHED: Duration = Duration::from_secs(60);

/// Bytes of a page of the file system.
const PAGE_BYTES: u32 = 4096;

/// Permissions of open(2) in its flags: write only, and read and write.
const WRITES: [u32; 2] = [1, 2];
const ACCESS_MODE: u32 = 3;

/// The form of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Success without a body.
    Done,
    /// A reply with the node that a name refers to (`fuse_entry_out`).
    Entry,
    /// A file that was made and opened; it may be written by the handle.
    Created { write: bool },
    /// A reply with attributes of a node.
    Attributes,
    /// A reply with bytes, such as the target of a symbolic link, of any length.
    Bytes,
    /// Bytes, if the caller has room for so many; zero asks for their number.
    Xattr { room: u32 },
    /// A reply with an offset in a file.
    Offset,
    /// Sizes of the file system.
    Statistics,
    /// A reply with the handle of an opened file.
    Opened { write: bool },
    /// A reply with the handle of an opened directory.
    OpenedDirectory,
}

/// A request that the file system carries out alone.
pub(super) struct Asked<'a> {
    pub(super) operation: Operation<'a>,
    pub(super) form: Form,
}

/// Returns the number of an inode of ours.
///
/// # Errors
/// `ESTALE` if there is none with such a number.
pub(super) fn ino(node: u64) -> Result<Ino, Errno> {
    Ino::try_from(node).map_err(|_| Errno::STALE)
}

/// Returns `true` if flags of open(2) ask for writing.
fn writes(flags: u32) -> bool {
    WRITES.contains(&(flags & ACCESS_MODE))
}

/// Returns `true` if a write with these flags of open(2) is to be durable before its reply. The kernel
/// syncs after other writes; but one past its cache, for which its caller does not wait, is answered
/// with our reply.
pub(super) fn syncs(flags: u32) -> bool {
    OFlags::from_bits_retain(flags).contains(OFlags::DIRECT | OFlags::DSYNC)
}

/// Returns the handle of an opened file: it says whether the file may be written.
fn handle(write: bool) -> u64 {
    u64::from(write)
}

/// Returns `true` if the file with this handle was opened for writing.
fn may_write(handle: u64) -> bool {
    handle & 1 != 0
}

/// Returns the operation for a request; `None` if more than the file system has a part in it.
///
/// # Errors
/// Says why the request is refused.
pub(super) fn asked<'a>(
    node: u64,
    operation: &fuse::Operation<'a>,
) -> Result<Option<Asked<'a>>, Errno> {
    use fuse::Operation as O;
    let at = ino(node)?;
    let asked = |operation, form| Ok(Some(Asked { operation, form }));
    match *operation {
        O::Lookup(name) => asked(Operation::Lookup { parent: at, name }, Form::Entry),
        O::GetAttr { .. } => asked(Operation::Attributes { ino: at }, Form::Attributes),
        O::ReadLink => asked(Operation::ReadLink { ino: at }, Form::Bytes),
        O::Open { flags } => {
            let write = writes(flags);
            asked(Operation::Open { ino: at, write }, Form::Opened { write })
        }
        O::OpenDir { .. } => {
            asked(Operation::Open { ino: at, write: false }, Form::OpenedDirectory)
        }
        O::Release { handle } => {
            asked(Operation::Release { ino: at, write: may_write(handle) }, Form::Done)
        }
        O::ReleaseDir { .. } => asked(Operation::Release { ino: at, write: false }, Form::Done),
        O::FsyncDir { .. } => asked(Operation::Fsync { ino: at }, Form::Done),
        O::StatFs => asked(Operation::Statistics, Form::Statistics),
        O::Fallocate { offset, length, mode, .. } => {
            asked(allocate(at, offset, length, mode)?, Form::Done)
        }
        O::Seek { offset, whence, .. } => {
            let what = match whence {
                3 => Seek::Data,
                4 => Seek::Hole,
                _ => return Err(Errno::INVAL),
            };
            asked(Operation::Seek { ino: at, offset, what }, Form::Offset)
        }
        _ => match tree(at, operation)? {
            Some(found) => Ok(Some(found)),
            None => xattr(at, operation),
        },
    }
}

/// Returns the operation for a request that changes names.
fn tree<'a>(at: Ino, operation: &fuse::Operation<'a>) -> Result<Option<Asked<'a>>, Errno> {
    use fuse::Operation as O;
    let (operation, form) = match *operation {
        O::MkNod { name, mode, rdev } => {
            (Operation::Make { parent: at, name, mode, rdev }, Form::Entry)
        }
        O::MkDir { name, mode } => {
            let mode = contigfs::S_IFDIR | mode & 0o7777;
            (Operation::Make { parent: at, name, mode, rdev: 0 }, Form::Entry)
        }
        O::Create { name, mode, flags } => {
            let form = Form::Created { write: writes(flags) };
            (Operation::Make { parent: at, name, mode, rdev: 0 }, form)
        }
        O::Symlink { name, target } => {
            (Operation::Symlink { parent: at, name, target }, Form::Entry)
        }
        O::Link { target, name } => {
            (Operation::Link { ino: ino(target)?, parent: at, name }, Form::Entry)
        }
        O::Unlink(name) => (Operation::Unlink { parent: at, name }, Form::Done),
        O::RmDir(name) => (Operation::RemoveDirectory { parent: at, name }, Form::Done),
        O::Rename { name, new_directory, new_name, flags } => {
            let how = match flags {
                0 => RenameHow::Replace,
                1 => RenameHow::NoReplace,
                2 => RenameHow::Exchange,
                _ => return Err(Errno::INVAL),
            };
            let to_parent = ino(new_directory)?;
            (Operation::Rename { parent: at, name, to_parent, to_name: new_name, how }, Form::Done)
        }
        _ => return Ok(None),
    };
    Ok(Some(Asked { operation, form }))
}

/// Returns the operation for a request about extended attributes. Access control lists have names
/// that begin with `system.`, and are not kept.
fn xattr<'a>(at: Ino, operation: &fuse::Operation<'a>) -> Result<Option<Asked<'a>>, Errno> {
    use fuse::Operation as O;
    let kept = |name: &'a [u8]| match name.starts_with(b"system.") {
        true => Err(Errno::OPNOTSUPP),
        false => Ok(name),
    };
    let (operation, form) = match *operation {
        O::SetXattr { name, value, flags } => {
            let how = match flags {
                0 => SetHow::Any,
                1 => SetHow::Create,
                2 => SetHow::Replace,
                _ => return Err(Errno::INVAL),
            };
            (Operation::SetXattr { ino: at, name: kept(name)?, value, how }, Form::Done)
        }
        O::GetXattr { name, bytes } => {
            (Operation::GetXattr { ino: at, name: kept(name)? }, Form::Xattr { room: bytes })
        }
        O::ListXattr { bytes } => (Operation::ListXattrs { ino: at }, Form::Xattr { room: bytes }),
        O::RemoveXattr(name) => (Operation::RemoveXattr { ino: at, name: kept(name)? }, Form::Done),
        _ => return Ok(None),
    };
    Ok(Some(Asked { operation, form }))
}

/// Returns the operation for an fallocate(2) with these flags.
fn allocate(at: Ino, offset: u64, bytes: u64, mode: u32) -> Result<Operation<'static>, Errno> {
    const KEEP_SIZE: u32 = 1;
    const PUNCH_HOLE: u32 = 2;
    const ZERO_RANGE: u32 = 16;
    let keep_size = mode & KEEP_SIZE != 0;
    match mode & !KEEP_SIZE {
        0 => Ok(Operation::Allocate { ino: at, offset, bytes, keep_size }),
        PUNCH_HOLE if keep_size => Ok(Operation::Zero { ino: at, offset, bytes, keep_size }),
        ZERO_RANGE => Ok(Operation::Zero { ino: at, offset, bytes, keep_size }),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Returns the permissions without the bits by which programs run as another user or group.
pub(super) fn without_privileges(mode: u32) -> u32 {
    let group = if mode & S_IXGRP != 0 { S_ISGID } else { 0 };
    mode & !(S_ISUID | group) & 0o7777
}

/// Returns the change of attributes that the kernel asks for. `mode` is the mode of the inode.
pub(super) fn change(changes: &Changes, mode: u32) -> Change {
    let time = |time: TimeOr| match time {
        TimeOr::Now => SetTime::Now,
        TimeOr::At(time) => SetTime::To(from_kernel(time)),
    };
    let kept = changes.mode.unwrap_or(mode);
    Change {
        mode: if changes.kill_suidgid { Some(without_privileges(kept)) } else { changes.mode },
        uid: changes.uid,
        gid: changes.gid,
        size: changes.size,
        atime: changes.atime.map(time),
        mtime: changes.mtime.map(time),
        ctime: changes.ctime.map(from_kernel),
    }
}

fn from_kernel(time: fuse::Time) -> Time {
    Time { seconds: time.seconds, nanos: time.nanoseconds }
}

fn to_kernel(time: Time) -> fuse::Time {
    fuse::Time { seconds: time.seconds, nanoseconds: time.nanos }
}

/// Converts attributes to the kernel's structure.
fn attributes(of: &Attributes) -> fuse::Attributes {
    fuse::Attributes {
        ino: u64::from(of.ino),
        size: of.size,
        blocks: of.blocks,
        atime: to_kernel(of.atime),
        mtime: to_kernel(of.mtime),
        ctime: to_kernel(of.ctime),
        mode: of.mode,
        links: of.nlink,
        uid: of.uid,
        gid: of.gid,
        rdev: of.rdev,
    }
}

/// Converts an inode's attributes to the kernel's structure of a directory entry.
pub(super) fn entry(of: &Attributes) -> Entry {
    Entry {
        generation: u64::from(of.generation),
        attributes: attributes(of),
        name_cached: CACHED,
        attributes_cached: CACHED,
    }
}

/// The form of a reply to the kernel: its encoded message, or a body that follows a head.
pub(super) enum Said {
    /// A reply without data.
    Head(Head),
    /// The data of a reply that has no fixed structure.
    Bytes(Vec<u8>),
}

/// Encodes the file system's answer to a request as the reply to the kernel.
///
/// # Errors
/// `ERANGE` if the caller has too little room.
pub(super) fn said(unique: u64, form: Form, answer: Answer) -> Result<Said, Errno> {
    let opened = |write| Opened { handle: handle(write), flags: file_flags() };
    Ok(Said::Head(match (form, answer) {
        (Form::Created { write }, Answer::Entry(of)) => {
            Head::created(unique, &entry(&of), opened(write))
        }
        (_, Answer::Entry(of)) => Head::entry(unique, &entry(&of)),
        (Form::Opened { write }, _) => Head::opened(unique, opened(write)),
        (Form::OpenedDirectory, _) => {
            let flags = open_flag::CACHE_DIR | open_flag::KEEP_CACHE;
            Head::opened(unique, Opened { handle: 0, flags })
        }
        (_, Answer::Attributes(of)) => Head::attributes(unique, &attributes(&of), CACHED),
        (Form::Xattr { room: 0 }, Answer::Bytes(bytes)) => Head::size(unique, bytes.len() as u32),
        (Form::Xattr { room }, Answer::Bytes(bytes)) if bytes.len() > room as usize => {
            return Err(Errno::RANGE);
        }
        (_, Answer::Bytes(bytes)) => return Ok(Said::Bytes(bytes)),
        (_, Answer::Offset(offset)) => Head::place(unique, offset),
        (_, Answer::Statistics(counts)) => Head::sizes(unique, &sizes(&counts)),
        (_, Answer::Done) => Head::done(unique),
    }))
}

/// Returns the flags by which the kernel may keep the pages of an opened file in its cache: the
/// kernel alone writes the file. The kernel need not report a close.
fn file_flags() -> u32 {
    open_flag::KEEP_CACHE | open_flag::NO_FLUSH | open_flag::PARALLEL_DIRECT_WRITES
}

fn sizes(counts: &Statistics) -> Sizes {
    Sizes {
        block_bytes: PAGE_BYTES,
        blocks: counts.pages,
        free: counts.pages_free,
        files: counts.inodes,
        files_free: counts.inodes_free,
    }
}

/// Converts an error of the file system to the kernel's error number.
pub(super) fn errno(errno: Errno) -> wire::fuse::Errno {
    wire::fuse::Errno(errno.0)
}

/// Returns the error for a command of the device that has failed.
pub(super) fn failed(status: Status) -> Errno {
    match status {
        Status::NoSpace => Errno::NOSPC,
        Status::ReadOnly => Errno::ROFS,
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_open_tell_whether_it_writes() {
        assert!(!writes(0) && writes(1) && writes(2) && writes(0o101) && !writes(0o100_000));
        assert!(may_write(handle(true)) && !may_write(handle(false)));
    }

    #[test]
    fn allocations_are_told_apart() {
        let wanted = Operation::Allocate { ino: 2, offset: 0, bytes: 9, keep_size: true };
        assert_eq!(allocate(2, 0, 9, 1), Ok(wanted));
        let wanted = Operation::Zero { ino: 2, offset: 0, bytes: 9, keep_size: true };
        assert_eq!(allocate(2, 0, 9, 3), Ok(wanted));
        assert_eq!(allocate(2, 0, 9, 2), Err(Errno::OPNOTSUPP), "a hole keeps the size");
        assert_eq!(allocate(2, 0, 9, 8), Err(Errno::OPNOTSUPP), "no collapse");
    }

    #[test]
    fn a_change_clears_the_bits_of_other_users() {
        let changes = Changes { size: Some(0), kill_suidgid: true, ..Changes::default() };
        assert_eq!(change(&changes, 0o106_755).mode, Some(0o755));
        assert_eq!(change(&changes, 0o102_745).mode, Some(0o2745), "a group that cannot run it");
        let changes = Changes { kill_suidgid: false, ..changes };
        assert_eq!(change(&changes, 0o106_755).mode, None);
    }

    #[test]
    fn too_little_room_is_an_error() {
        let bytes = Answer::Bytes(vec![0; 9]);
        assert_eq!(said(1, Form::Xattr { room: 8 }, bytes.clone()).err(), Some(Errno::RANGE));
        assert!(matches!(said(1, Form::Xattr { room: 9 }, bytes), Ok(Said::Bytes(_))));
    }
}
