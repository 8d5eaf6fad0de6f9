//! The common part of operations: their results, and answers about an inode.

use crate::errno::Errno;
use crate::layout::InodeRecord;
use crate::state::{State, StopReason};
use crate::words::{Attributes, AwaitedEvent, Ino, OperationResult, S_IFDIR};

/// The result of an operation before it is a reply.
pub(super) type OperationOutcome = Result<(OperationResult, AwaitedEvent), StopReason>;

/// Returns the attributes in a record.
pub(crate) fn attributes_of(ino: Ino, record: &InodeRecord) -> Attributes {
    Attributes {
        ino,
        generation: record.generation.get(),
        mode: record.mode.get(),
        nlink: record.nlink.get(),
        uid: record.uid.get(),
        gid: record.gid.get(),
        rdev: record.rdev.get(),
        size: record.size.get(),
        blocks: record.size.get().div_ceil(512),
        atime: record.times.atime.into(),
        mtime: record.times.mtime.into(),
        ctime: record.times.ctime.into(),
        birth: record.times.birth.into(),
    }
}

/// Answers with an inode's entry, and counts the lookup.
pub(super) fn entry(state: &mut State, ino: Ino, until: AwaitedEvent) -> OperationOutcome {
    state.hold(ino, |hold| hold.lookups += 1);
    Ok((OperationResult::Entry(attributes_of(ino, state.find(ino)?)), until))
}

/// Returns the record of a directory.
pub(super) fn directory(state: &State, ino: Ino) -> Result<&InodeRecord, Errno> {
    let record = state.find(ino)?;
    let is_directory = state.kind(ino) == S_IFDIR;
    if is_directory { Ok(record) } else { Err(Errno::NOTDIR) }
}
