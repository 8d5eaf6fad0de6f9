//! Directory entries and their inodes: lookup, make, link, unlink.

use super::answer::{OperationOutcome, directory, entry};
use crate::buddy::FileSpace;
use crate::entries::is_name;
use crate::errno::Errno;
use crate::layout::{CONTENT_BYTES, FLAG_EXTENDING, InodeRecord, PageUse};
use crate::names::FoundName;
use crate::pool::BLOB_PAGES_MAX;
use crate::state::{State, StopReason};
use crate::words::{
    AwaitedEvent, Caller, Ino, LINK_MAX, NAME_MAX, OperationResult, S_IFBLK, S_IFCHR, S_IFDIR,
    S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, S_ISGID, S_IXGRP, TARGET_MAX, Time,
};

/// A directory and a name.
pub(super) type DirectoryAndName<'a> = (Ino, &'a [u8]);

/// Checks that a directory exists, and that a name is valid for an entry of the directory.
pub(super) fn check_name(state: &State, (parent, name): DirectoryAndName) -> Result<(), Errno> {
    let record = directory(state, parent)?;
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    if matches!(name, b"." | b"..") {
        return Err(Errno::EXIST);
    }
    if !is_name(name) {
        return Err(Errno::INVAL);
    }
    if record.nlink.get() == 0 {
        return Err(Errno::NOENT);
    }
    Ok(())
}

/// Looks a name up for an operation that removes the name.
pub(super) fn find(state: &State, (parent, name): DirectoryAndName) -> Result<FoundName, Errno> {
    match check_name(state, (parent, name)) {
        Err(Errno::EXIST) => Err(Errno::INVAL),
        other => other,
    }?;
    state.names.find(&state.pool, parent, name).ok_or(Errno::NOENT)
}

pub(super) fn lookup(state: &mut State, parent: Ino, name: &[u8]) -> OperationOutcome {
    let record = directory(state, parent)?;
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    let ino = match name {
        b"." => parent,
        b".." => record.parent.get(),
        _ => state.names.find(&state.pool, parent, name).ok_or(Errno::NOENT)?.ino,
    };
    entry(state, ino, AwaitedEvent::Now)
}

/// Checks that a name is free, and that there is space for it and for `pages` pages more.
fn check_free(state: &mut State, at: DirectoryAndName, pages: usize) -> Result<(), StopReason> {
    check_name(state, at)?;
    if state.names.find(&state.pool, at.0, at.1).is_some() {
        return Err(Errno::EXIST.into());
    }
    state.check_room()?;
    let more = usize::from(!state.names.has_room(at.0, at.1));
    if (state.pool.pages_free() as usize) < pages + more {
        return Err(state.starve());
    }
    Ok(())
}

/// Adds a name, and changes the times of its directory. Returns the commit.
fn add_name(state: &mut State, now: Time, (parent, name): DirectoryAndName, ino: Ino) -> u64 {
    let (record, of) = (*state.table.at(parent), *state.table.at(ino));
    let touched = state.names.insert(&mut state.pool, (parent, &record), name, (ino, &of));
    state.dirty_entry(parent, touched);
    touch_directory(state, now, parent)
}

/// Removes a name, and changes the times of its directory. Returns the commit.
pub(super) fn remove_name(state: &mut State, now: Time, parent: Ino, found: FoundName) -> u64 {
    let touched = state.names.remove(&mut state.pool, parent, found.place);
    state.dirty_entry(parent, touched);
    touch_directory(state, now, parent)
}

/// Notes a change of a directory's content. Returns the commit.
pub(super) fn touch_directory(state: &mut State, now: Time, ino: Ino) -> u64 {
    let record = state.table.at(ino);
    (record.times.mtime, record.times.ctime) = (now.into(), now.into());
    state.dirty(ino)
}

/// Takes one name from an inode. Returns the commit.
pub(super) fn drop_link(state: &mut State, now: Time, ino: Ino, links: u32) -> u64 {
    let record = state.table.at(ino);
    record.nlink = (record.nlink.get() - links).into();
    record.times.ctime = now.into();
    state.dirty(ino)
}

/// Fills the record of a new inode. A directory with the set-group bit gives its group on, and the
/// bit to directories.
fn fill(record: &mut InodeRecord, now: Time, caller: &Caller, parent: &InodeRecord, mode: u32) {
    let (mut mode, mut gid) = (mode, caller.gid);
    let is_directory = mode & S_IFMT == S_IFDIR;
    if parent.mode.get() & S_ISGID != 0 {
        gid = parent.gid.get();
        let is_member = gid == caller.gid || caller.groups.contains(&gid) || caller.uid == 0;
        if is_directory {
            mode |= S_ISGID;
        } else if mode & S_ISGID != 0 && mode & S_IXGRP != 0 && !is_member {
            mode &= !S_ISGID;
        }
    }
    record.mode = mode.into();
    record.uid = caller.uid.into();
    record.gid = gid.into();
    record.nlink = (1 + u32::from(is_directory)).into();
    record.times.atime = now.into();
    record.times.mtime = now.into();
    record.times.ctime = now.into();
    record.times.birth = now.into();
}

pub(super) fn make(
    state: &mut State,
    now: Time,
    caller: &Caller,
    at: DirectoryAndName,
    mode: u32,
    rdev: u32,
) -> OperationOutcome {
    let kind = mode & S_IFMT;
    if ![S_IFREG, S_IFDIR, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK].contains(&kind) {
        return Err(Errno::INVAL.into());
    }
    state.begin()?;
    check_free(state, at, 0)?;
    if state.table.inodes_free() == 0 {
        return Err(state.starve());
    }
    let order = state.geometry.order;
    let place = if kind == S_IFREG { state.space.take_between(0, order) } else { None };
    if kind == S_IFREG && place.is_none() {
        return Err(state.starve());
    }
    let parent = *directory(state, at.0)?;
    let (ino, record) = state.table.take().expect("a number is free");
    fill(record, now, caller, &parent, kind | mode & 0o7777);
    record.place = FileSpace::record(place);
    match kind {
        S_IFREG => record.flags = FLAG_EXTENDING.into(),
        S_IFDIR => record.parent = at.0.into(),
        S_IFCHR | S_IFBLK => record.rdev = rdev.into(),
        _ => {}
    }
    state.dirty(ino);
    let commit = add_name(state, now, at, ino);
    if kind == S_IFREG {
        state.claims.insert(ino, commit);
    }
    if kind == S_IFDIR {
        let record = state.table.at(at.0);
        record.nlink = (record.nlink.get() + 1).into();
    }
    entry(state, ino, AwaitedEvent::Commit(commit))
}

pub(super) fn symlink(
    state: &mut State,
    now: Time,
    caller: &Caller,
    at: DirectoryAndName,
    target: &[u8],
) -> OperationOutcome {
    if target.is_empty() {
        return Err(Errno::NOENT.into());
    }
    if target.len() > TARGET_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    const { assert!(TARGET_MAX <= BLOB_PAGES_MAX * CONTENT_BYTES) };
    state.begin()?;
    check_free(state, at, target.len().div_ceil(CONTENT_BYTES))?;
    let parent = *directory(state, at.0)?;
    let Some((ino, record)) = state.table.take() else { return Err(state.starve()) };
    fill(record, now, caller, &parent, S_IFLNK | 0o777);
    record.size = (target.len() as u64).into();
    state.write_blob(ino, PageUse::Target, target);
    state.dirty(ino);
    let commit = add_name(state, now, at, ino);
    entry(state, ino, AwaitedEvent::Commit(commit))
}

pub(super) fn read_link(state: &State, ino: Ino) -> OperationOutcome {
    state.find(ino)?;
    if state.kind(ino) != S_IFLNK {
        return Err(Errno::INVAL.into());
    }
    Ok((OperationResult::Bytes(state.pool.read_blob(ino, PageUse::Target)), AwaitedEvent::Now))
}

pub(super) fn link(
    state: &mut State,
    now: Time,
    ino: Ino,
    at: DirectoryAndName,
) -> OperationOutcome {
    let record = state.find(ino)?;
    if record.mode.get() & S_IFMT == S_IFDIR {
        return Err(Errno::PERM.into());
    }
    let nlink = record.nlink.get();
    state.begin()?;
    check_free(state, at, 0)?;
    match nlink {
        0 => return Err(Errno::NOENT.into()),
        LINK_MAX.. => return Err(Errno::MLINK.into()),
        _ => {}
    }
    let record = state.table.at(ino);
    record.nlink = (nlink + 1).into();
    record.times.ctime = now.into();
    state.dirty(ino);
    let commit = add_name(state, now, at, ino);
    entry(state, ino, AwaitedEvent::Commit(commit))
}

pub(super) fn unlink(state: &mut State, now: Time, at: DirectoryAndName) -> OperationOutcome {
    let found = find(state, at)?;
    if state.kind(found.ino) == S_IFDIR {
        return Err(Errno::ISDIR.into());
    }
    state.begin()?;
    remove_name(state, now, at.0, found);
    let commit = drop_link(state, now, found.ino, 1);
    state.abandon(found.ino);
    Ok((OperationResult::Done, AwaitedEvent::Commit(commit)))
}

pub(super) fn remove_directory(
    state: &mut State,
    now: Time,
    at: DirectoryAndName,
) -> OperationOutcome {
    if at.1 == b".." {
        return Err(Errno::NOTEMPTY.into());
    }
    let found = find(state, at)?;
    directory(state, found.ino)?;
    if state.names.count(found.ino) > 0 {
        return Err(Errno::NOTEMPTY.into());
    }
    state.begin()?;
    remove_name(state, now, at.0, found);
    drop_link(state, now, at.0, 1);
    let commit = drop_link(state, now, found.ino, 2);
    state.abandon(found.ino);
    Ok((OperationResult::Done, AwaitedEvent::Commit(commit)))
}
