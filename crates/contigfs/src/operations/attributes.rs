//! Attributes of inodes, and counts of the file system.

use super::answer::{OperationOutcome, attributes_of};
use super::data;
use crate::errno::Errno;
use crate::state::State;
use crate::words::{
    AttributeChange, AwaitedEvent, Ino, OperationResult, S_IFDIR, S_IFMT, S_IFREG, S_ISGID,
    S_ISUID, S_IXGRP, SetTime, Statistics, Time,
};

pub(super) fn get(state: &State, ino: Ino) -> OperationOutcome {
    Ok((OperationResult::Attributes(attributes_of(ino, state.find(ino)?)), AwaitedEvent::Now))
}

/// Changes attributes. The set-id bits of a file that gets another owner go, unless the same change
/// sets permissions.
pub(super) fn change(
    state: &mut State,
    now: Time,
    ino: Ino,
    change: &AttributeChange,
) -> OperationOutcome {
    state.find(ino)?;
    if let Some(size) = change.size {
        match state.kind(ino) {
            S_IFREG => data::check_size(state, size)?,
            S_IFDIR => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
    }
    state.begin()?;
    let mut is_cut = false;
    if let Some(size) = change.size {
        is_cut = data::set_size(state, now, ino, size)?;
    }
    let record = state.table.at(ino);
    let mode = record.mode.get();
    if let Some(permissions) = change.mode {
        record.mode = (mode & S_IFMT | permissions & 0o7777).into();
    } else if (change.uid.is_some() || change.gid.is_some()) && mode & S_IFMT != S_IFDIR {
        let group = if mode & S_IXGRP != 0 { S_ISGID } else { 0 };
        record.mode = (mode & !(S_ISUID | group)).into();
    }
    record.uid = change.uid.unwrap_or(record.uid.get()).into();
    record.gid = change.gid.unwrap_or(record.gid.get()).into();
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    if let Some(set) = change.atime {
        record.times.atime = time(set).into();
    }
    if let Some(set) = change.mtime {
        record.times.mtime = time(set).into();
    }
    record.times.ctime = change.ctime.unwrap_or(now).into();
    let attributes = attributes_of(ino, record);
    let commit = state.dirty(ino);
    let until =
        if is_cut { AwaitedEvent::Clean { commit, ino } } else { AwaitedEvent::Commit(commit) };
    Ok((OperationResult::Attributes(attributes), until))
}

pub(crate) fn statistics(state: &State) -> Statistics {
    Statistics {
        pages: state.room.pages,
        pages_free: state.room.pages_free,
        inodes: u64::from(state.table.inodes() - 1),
        inodes_free: u64::from(state.table.inodes_free()),
        pool_pages: u64::from(state.pool.pages()),
        pool_pages_free: u64::from(state.pool.pages_free()),
        chunks: u64::from(state.space.chunks()),
        chunks_free: u64::from(state.space.chunks_free()),
    }
}
