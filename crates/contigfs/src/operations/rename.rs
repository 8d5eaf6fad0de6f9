//! Moves of names.

use super::answer::{OperationOutcome, directory};
use super::tree::{DirectoryAndName, check_name, drop_link, find, remove_name, touch_directory};
use crate::errno::Errno;
use crate::names::FoundName;
use crate::state::State;
use crate::words::{AwaitedEvent, Ino, OperationResult, ROOT, RenameMode, S_IFDIR, Time};

pub(super) fn rename(
    state: &mut State,
    now: Time,
    from: DirectoryAndName,
    to: DirectoryAndName,
    how: RenameMode,
) -> OperationOutcome {
    let source = find(state, from)?;
    match check_name(state, to) {
        Err(Errno::EXIST) => Err(Errno::INVAL),
        other => other,
    }?;
    let target = state.names.find(&state.pool, to.0, to.1);
    match (how, target) {
        (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST.into()),
        (RenameMode::Exchange, None) => return Err(Errno::NOENT.into()),
        _ => {}
    }
    if is_within(state, to.0, source.ino) {
        return Err(Errno::INVAL.into());
    }
    let Some(target) = target else { return insert(state, now, (from.0, source), to) };
    if target.ino == source.ino {
        return Ok((OperationResult::Done, AwaitedEvent::Now));
    }
    if how == RenameMode::Exchange {
        if is_within(state, from.0, target.ino) {
            return Err(Errno::INVAL.into());
        }
        return exchange(state, now, (from.0, source), (to.0, target));
    }
    replace(state, now, (from.0, source), (to.0, target))
}

/// Returns `true` if `ino` is the directory `above`, or lies below it.
fn is_within(state: &State, ino: Ino, above: Ino) -> bool {
    let mut at = ino;
    // The tree is not deeper than it has inodes.
    for _ in 0..state.table.inodes() {
        if at == above {
            return true;
        }
        match state.table.get(at) {
            Some(record) if at != ROOT => at = record.parent.get(),
            _ => return false,
        }
    }
    false
}

/// Moves a directory entry to a name that does not exist.
fn insert(
    state: &mut State,
    now: Time,
    (from, source): (Ino, FoundName),
    to: DirectoryAndName,
) -> OperationOutcome {
    state.begin()?;
    if !state.names.has_room(to.0, to.1) && state.pool.pages_free() == 0 {
        return Err(state.starve());
    }
    let (record, of) = (*state.table.at(to.0), *state.table.at(source.ino));
    let touched = state.names.insert(&mut state.pool, (to.0, &record), to.1, (source.ino, &of));
    state.dirty_entry(to.0, touched);
    touch_directory(state, now, to.0);
    remove_name(state, now, from, source);
    let commit = arrive(state, now, source.ino, from, to.0);
    Ok((OperationResult::Done, AwaitedEvent::Commit(commit)))
}

/// Moves a directory entry to an existing name, which it replaces.
fn replace(
    state: &mut State,
    now: Time,
    (from, source): (Ino, FoundName),
    (to, target): (Ino, FoundName),
) -> OperationOutcome {
    let is_directory = state.kind(source.ino) == S_IFDIR;
    match (is_directory, state.kind(target.ino) == S_IFDIR) {
        (true, false) => return Err(Errno::NOTDIR.into()),
        (false, true) => return Err(Errno::ISDIR.into()),
        (true, true) if state.names.count(target.ino) > 0 => return Err(Errno::NOTEMPTY.into()),
        _ => {}
    }
    state.begin()?;
    let of = *state.table.at(source.ino);
    let touched = state.names.replace(&mut state.pool, to, target.place, (source.ino, &of));
    state.dirty_entry(to, touched);
    touch_directory(state, now, to);
    remove_name(state, now, from, source);
    arrive(state, now, source.ino, from, to);
    if is_directory {
        drop_link(state, now, to, 1);
    }
    let commit = drop_link(state, now, target.ino, 1 + u32::from(is_directory));
    state.abandon(target.ino);
    Ok((OperationResult::Done, AwaitedEvent::Commit(commit)))
}

fn exchange(
    state: &mut State,
    now: Time,
    (from, source): (Ino, FoundName),
    (to, target): (Ino, FoundName),
) -> OperationOutcome {
    state.begin()?;
    let (of_source, of_target) = (*state.table.at(source.ino), *state.table.at(target.ino));
    let here = (target.ino, &of_target);
    let touched = state.names.replace(&mut state.pool, from, source.place, here);
    state.dirty_entry(from, touched);
    let there = (source.ino, &of_source);
    let touched = state.names.replace(&mut state.pool, to, target.place, there);
    state.dirty_entry(to, touched);
    touch_directory(state, now, from);
    touch_directory(state, now, to);
    arrive(state, now, source.ino, from, to);
    let commit = arrive(state, now, target.ino, to, from);
    Ok((OperationResult::Done, AwaitedEvent::Commit(commit)))
}

/// Updates an inode whose entry was moved to another directory. Returns the number of the commit
/// with the change.
fn arrive(state: &mut State, now: Time, ino: Ino, from: Ino, to: Ino) -> u64 {
    let is_directory = directory(state, ino).is_ok();
    let record = state.table.at(ino);
    record.times.ctime = now.into();
    if is_directory {
        record.parent = to.into();
        if from != to {
            let left = state.table.at(from);
            left.nlink = (left.nlink.get() - 1).into();
            let joined = state.table.at(to);
            joined.nlink = (joined.nlink.get() + 1).into();
        }
    }
    state.dirty(ino)
}
