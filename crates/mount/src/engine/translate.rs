//! Requests of the kernel in the words of the file system, and its answers in the words of the
//! kernel.

use std::time::Duration;

use contigfs::{
    AttributeChange, Attributes, Errno, Ino, Operation, OperationResult, RenameMode, S_ISGID,
    S_ISUID, S_IXGRP, SeekTarget, SetTime, Statistics, Time, XattrMode,
};
use contract::Status;
use proto::fuse::{
    self, AttributeChanges, FileSystemSizes, NodeEntry, OpenReply, ReplyMessage, TimeStampUpdate,
};
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
pub(super) enum ReplyForm {
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
pub(super) struct MetadataRequest<'a> {
    pub(super) operation: Operation<'a>,
    pub(super) form: ReplyForm,
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

/// Returns `true` if a write with these flags of open(2) is to be durable before its reply. The
/// kernel syncs after other writes; but one past its cache, for which its caller does not wait, is
/// answered with our reply.
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
) -> Result<Option<MetadataRequest<'a>>, Errno> {
    use fuse::Operation as O;
    let at = ino(node)?;
    let asked = |operation, form| Ok(Some(MetadataRequest { operation, form }));
    match *operation {
        O::Lookup(name) => asked(Operation::Lookup { parent: at, name }, ReplyForm::Entry),
        O::GetAttr { .. } => asked(Operation::Attributes { ino: at }, ReplyForm::Attributes),
        O::ReadLink => asked(Operation::ReadLink { ino: at }, ReplyForm::Bytes),
        O::Open { flags } => {
            let write = writes(flags);
            asked(Operation::Open { ino: at, write }, ReplyForm::Opened { write })
        }
        O::OpenDir { .. } => {
            asked(Operation::Open { ino: at, write: false }, ReplyForm::OpenedDirectory)
        }
        O::Release { handle } => {
            asked(Operation::Release { ino: at, write: may_write(handle) }, ReplyForm::Done)
        }
        O::ReleaseDir { .. } => {
            asked(Operation::Release { ino: at, write: false }, ReplyForm::Done)
        }
        O::FsyncDir { .. } => asked(Operation::Fsync { ino: at }, ReplyForm::Done),
        O::StatFs => asked(Operation::Statistics, ReplyForm::Statistics),
        O::Fallocate { offset, length, mode, .. } => {
            asked(allocate(at, offset, length, mode)?, ReplyForm::Done)
        }
        O::Seek { offset, whence, .. } => {
            let what = match whence {
                3 => SeekTarget::Data,
                4 => SeekTarget::Hole,
                _ => return Err(Errno::INVAL),
            };
            asked(Operation::Seek { ino: at, offset, what }, ReplyForm::Offset)
        }
        _ => match tree(at, operation)? {
            Some(found) => Ok(Some(found)),
            None => xattr(at, operation),
        },
    }
}

/// Returns the operation for a request that changes names.
fn tree<'a>(
    at: Ino,
    operation: &fuse::Operation<'a>,
) -> Result<Option<MetadataRequest<'a>>, Errno> {
    use fuse::Operation as O;
    let (operation, form) = match *operation {
        O::MkNod { name, mode, rdev } => {
            (Operation::Make { parent: at, name, mode, rdev }, ReplyForm::Entry)
        }
        O::MkDir { name, mode } => {
            let mode = contigfs::S_IFDIR | mode & 0o7777;
            (Operation::Make { parent: at, name, mode, rdev: 0 }, ReplyForm::Entry)
        }
        O::Create { name, mode, flags } => {
            let form = ReplyForm::Created { write: writes(flags) };
            (Operation::Make { parent: at, name, mode, rdev: 0 }, form)
        }
        O::Symlink { name, target } => {
            (Operation::Symlink { parent: at, name, target }, ReplyForm::Entry)
        }
        O::Link { target, name } => {
            (Operation::Link { ino: ino(target)?, parent: at, name }, ReplyForm::Entry)
        }
        O::Unlink(name) => (Operation::Unlink { parent: at, name }, ReplyForm::Done),
        O::RmDir(name) => (Operation::RemoveDirectory { parent: at, name }, ReplyForm::Done),
        O::Rename { name, new_directory, new_name, flags } => {
            let how = match flags {
                0 => RenameMode::Replace,
                1 => RenameMode::NoReplace,
                2 => RenameMode::Exchange,
                _ => return Err(Errno::INVAL),
            };
            let to_parent = ino(new_directory)?;
            (
                Operation::Rename { parent: at, name, to_parent, to_name: new_name, how },
                ReplyForm::Done,
            )
        }
        _ => return Ok(None),
    };
    Ok(Some(MetadataRequest { operation, form }))
}

/// Returns the operation for a request about extended attributes. Access control lists have names
/// that begin with `system.`, and are not kept.
fn xattr<'a>(
    at: Ino,
    operation: &fuse::Operation<'a>,
) -> Result<Option<MetadataRequest<'a>>, Errno> {
    use fuse::Operation as O;
    let kept = |name: &'a [u8]| match name.starts_with(b"system.") {
        true => Err(Errno::OPNOTSUPP),
        false => Ok(name),
    };
    let (operation, form) = match *operation {
        O::SetXattr { name, value, flags } => {
            let how = match flags {
                0 => XattrMode::Any,
                1 => XattrMode::Create,
                2 => XattrMode::Replace,
                _ => return Err(Errno::INVAL),
            };
            (Operation::SetXattr { ino: at, name: kept(name)?, value, how }, ReplyForm::Done)
        }
        O::GetXattr { name, bytes } => {
            (Operation::GetXattr { ino: at, name: kept(name)? }, ReplyForm::Xattr { room: bytes })
        }
        O::ListXattr { bytes } => {
            (Operation::ListXattrs { ino: at }, ReplyForm::Xattr { room: bytes })
        }
        O::RemoveXattr(name) => {
            (Operation::RemoveXattr { ino: at, name: kept(name)? }, ReplyForm::Done)
        }
        _ => return Ok(None),
    };
    Ok(Some(MetadataRequest { operation, form }))
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
pub(super) fn change(changes: &AttributeChanges, mode: u32) -> AttributeChange {
    let time = |time: TimeStampUpdate| match time {
        TimeStampUpdate::Now => SetTime::Now,
        TimeStampUpdate::At(time) => SetTime::To(from_kernel(time)),
    };
    let kept = changes.mode.unwrap_or(mode);
    AttributeChange {
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
pub(super) fn entry(of: &Attributes) -> NodeEntry {
    NodeEntry {
        generation: u64::from(of.generation),
        attributes: attributes(of),
        name_cached: CACHED,
        attributes_cached: CACHED,
    }
}

/// The form of a reply to the kernel: its encoded message, or a body that follows a head.
pub(super) enum EncodedReply {
    /// A reply without data.
    Head(ReplyMessage),
    /// The data of a reply that has no fixed structure.
    Bytes(Vec<u8>),
}

/// Encodes the file system's answer to a request as the reply to the kernel.
///
/// # Errors
/// `ERANGE` if the caller has too little room.
pub(super) fn said(
    unique: u64,
    form: ReplyForm,
    answer: OperationResult,
) -> Result<EncodedReply, Errno> {
    let opened = |write| OpenReply { handle: handle(write), flags: file_flags() };
    Ok(EncodedReply::Head(match (form, answer) {
        (ReplyForm::Created { write }, OperationResult::Entry(of)) => {
            ReplyMessage::created(unique, &entry(&of), opened(write))
        }
        (_, OperationResult::Entry(of)) => ReplyMessage::entry(unique, &entry(&of)),
        (ReplyForm::Opened { write }, _) => ReplyMessage::opened(unique, opened(write)),
        (ReplyForm::OpenedDirectory, _) => {
            let flags = open_flag::CACHE_DIR | open_flag::KEEP_CACHE;
            ReplyMessage::opened(unique, OpenReply { handle: 0, flags })
        }
        (_, OperationResult::Attributes(of)) => {
            ReplyMessage::attributes(unique, &attributes(&of), CACHED)
        }
        (ReplyForm::Xattr { room: 0 }, OperationResult::Bytes(bytes)) => {
            ReplyMessage::size(unique, bytes.len() as u32)
        }
        (ReplyForm::Xattr { room }, OperationResult::Bytes(bytes))
            if bytes.len() > room as usize =>
        {
            return Err(Errno::RANGE);
        }
        (_, OperationResult::Bytes(bytes)) => return Ok(EncodedReply::Bytes(bytes)),
        (_, OperationResult::Offset(offset)) => ReplyMessage::place(unique, offset),
        (_, OperationResult::Statistics(counts)) => ReplyMessage::sizes(unique, &sizes(&counts)),
        (_, OperationResult::Done) => ReplyMessage::done(unique),
    }))
}

/// Returns the flags by which the kernel may keep the pages of an opened file in its cache: the
/// kernel alone writes the file. The kernel need not report a close.
fn file_flags() -> u32 {
    open_flag::KEEP_CACHE | open_flag::NO_FLUSH | open_flag::PARALLEL_DIRECT_WRITES
}

fn sizes(counts: &Statistics) -> FileSystemSizes {
    FileSystemSizes {
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
        let changes =
            AttributeChanges { size: Some(0), kill_suidgid: true, ..AttributeChanges::default() };
        assert_eq!(change(&changes, 0o106_755).mode, Some(0o755));
        assert_eq!(change(&changes, 0o102_745).mode, Some(0o2745), "a group that cannot run it");
        let changes = AttributeChanges { kill_suidgid: false, ..changes };
        assert_eq!(change(&changes, 0o106_755).mode, None);
    }

    #[test]
    fn too_little_room_is_an_error() {
        let bytes = OperationResult::Bytes(vec![0; 9]);
        assert_eq!(said(1, ReplyForm::Xattr { room: 8 }, bytes.clone()).err(), Some(Errno::RANGE));
        assert!(matches!(said(1, ReplyForm::Xattr { room: 9 }, bytes), Ok(EncodedReply::Bytes(_))));
    }
}
