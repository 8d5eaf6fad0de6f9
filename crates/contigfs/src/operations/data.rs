//! The place of data: reads, writes, sizes, and moves to larger places.
//!
//! Data beyond the size of a file read as zeroes when the file grows. So an inode is flagged, and
//! the flag durable, before data lie beyond its size; a place is the inode's, and durable, before
//! data lie in it; and what was cut off is discarded before the file grows again.

use super::answer::OperationOutcome;
use crate::buddy::{FileSpace, order_for};
use crate::chores::{FollowUp, Owner};
use crate::errno::Errno;
use crate::layout::{CHUNK_BYTES, FLAG_EXTENDING, PAGE_BYTES};
use crate::state::{MoveStage, State, StopReason, discard};
use crate::words::{
    AwaitedEvent, ChoreWork, DataPlacement, Ino, Move, OperationResult, S_IFDIR, S_IFMT, S_IFREG,
    SeekTarget, Time,
};

/// Factor for the space of a file that grows by writes: the new place has this many times the
/// file's size.
const GENEROSITY: u64 = 4;

/// Growth beyond the size leaves all but this share of the free chunks.
const GENEROUS_SHARE: u32 = 8;

/// Growth leaves this share of all chunks to new files.
const NEW_FILES_SHARE: u32 = 16;

/// A range of a file: the offset of its first byte, and the number of bytes.
type Range = (u64, u64);

/// Checks that a file of this size could have a place.
pub(super) fn check_size(state: &State, size: u64) -> Result<(), Errno> {
    let most = CHUNK_BYTES << state.space.chunks().ilog2();
    if size > most { Err(Errno::FBIG) } else { Ok(()) }
}

/// Checks that an inode is a regular file.
fn regular(state: &State, ino: Ino) -> Result<(), Errno> {
    match state.find(ino)?.mode.get() & S_IFMT {
        S_IFREG => Ok(()),
        S_IFDIR => Err(Errno::ISDIR),
        _ => Err(Errno::INVAL),
    }
}

/// Returns the end of a range that may be written.
fn end_of(state: &State, (offset, bytes): Range) -> Result<u64, Errno> {
    let end = offset.checked_add(bytes).ok_or(Errno::FBIG)?;
    check_size(state, end)?;
    Ok(end)
}

/// Returns the number of pages that a range touches.
fn pages_of((offset, bytes): Range) -> u64 {
    (offset + bytes).div_ceil(PAGE_BYTES as u64) - offset / PAGE_BYTES as u64
}

fn size_of(state: &State, ino: Ino) -> u64 {
    state.table.get(ino).map_or(0, |record| record.size.get())
}

fn place_of(state: &State, ino: Ino) -> FileSpace {
    state.place(ino).expect("a regular file has a place")
}

/// Sets the flag that a file's data may extend beyond its size. Returns the number of the commit
/// with the flag.
fn claim(state: &mut State, ino: Ino) -> u64 {
    let record = state.table.at(ino);
    record.flags = (record.flags.get() | FLAG_EXTENDING).into();
    let commit = state.dirty(ino);
    state.claims.insert(ino, commit);
    commit
}

/// Handles a move of a file's data that is in progress: the operation has to wait for the move, or
/// the caller has to copy the data.
fn step_move(state: &mut State, ino: Ino) -> Result<(), StopReason> {
    match state.moves.get(&ino) {
        None | Some(MoveStage::Leaving | MoveStage::Left) => return Ok(()),
        Some(MoveStage::Copying(_) | MoveStage::Landing) => {
            return Err(StopReason::Again(AwaitedEvent::Moved { ino }));
        }
        Some(MoveStage::Claiming(_)) => {}
    }
    if state.outcome(AwaitedEvent::Moved { ino }).is_none() {
        return Err(StopReason::Again(AwaitedEvent::Moved { ino }));
    }
    let bytes = size_of(state, ino).next_multiple_of(PAGE_BYTES as u64);
    let pages = bytes / PAGE_BYTES as u64;
    if state.room.promise(pages, true).is_err() {
        let stop = state.starve();
        if matches!(stop, StopReason::Refused(_)) {
            state.begin()?;
            state.leave(ino);
        }
        return Err(stop);
    }
    state.moves.insert(ino, MoveStage::Copying(pages));
    let other = state.table.get(ino).and_then(|record| FileSpace::of(record.other));
    let other = other.expect("a move has another place");
    let from = place_of(state, ino);
    Err(StopReason::Move(Move { ino, from: state.base(from), to: state.base(other), bytes }))
}

/// Abandons a move of a file that was requested but not begun: a truncated file needs no larger
/// place, and must not wait for a copy that may fail. A write that still has to grow the file
/// requests the move again.
fn give_up_move(state: &mut State, ino: Ino) {
    let is_claimed = matches!(state.moves.get(&ino), Some(MoveStage::Claiming(_)));
    if is_claimed && state.outcome(AwaitedEvent::Moved { ino }).is_some() {
        state.leave(ino);
    }
}

/// Waits for the end of the writes of a file that are under way. They change pages whose rest is to
/// be cleared, and set the size when they end.
fn quieten(state: &mut State, ino: Ino) -> Result<(), StopReason> {
    let Some(hold) = state.holds.get_mut(&ino).filter(|hold| hold.writes > 0) else {
        return Ok(());
    };
    hold.is_awaited = true;
    Err(StopReason::Again(AwaitedEvent::Quiet { ino }))
}

/// Enlarges a file's place for `bytes` bytes. Returns the number of the commit if the place has
/// changed.
fn grow(state: &mut State, ino: Ino, bytes: u64, wanted: u64) -> Result<Option<u64>, StopReason> {
    let place = place_of(state, ino);
    if bytes <= place.bytes() {
        return Ok(None);
    }
    let least = order_for(bytes).ok_or(Errno::FBIG)?;
    let chunks_free = state.space.chunks_free();
    let generous = (chunks_free / GENEROUS_SHARE).checked_ilog2().unwrap_or(0) as u8;
    let most = order_for(wanted).unwrap_or(crate::layout::ORDER_MAX).min(generous).max(least);
    let kept = state.space.chunks() / NEW_FILES_SHARE;
    let takes = |more: u32| more.saturating_add(kept);
    let reach = state.space.reach(place, most);
    if reach >= least && takes((1 << least) - place.chunks()) <= chunks_free {
        let place = state.space.grow(place, reach);
        state.table.at(ino).place = FileSpace::record(Some(place));
        return Ok(Some(claim(state, ino)));
    }
    match state.moves.get(&ino) {
        Some(MoveStage::Left) => {
            state.reclaim_all();
            state.begin()?;
        }
        Some(_) => return Err(StopReason::Again(AwaitedEvent::Moved { ino })),
        None => {}
    }
    if takes(1 << least) > state.space.chunks_free() {
        return Err(state.starve());
    }
    let Some(new) = state.space.take_between(least, most) else { return Err(state.starve()) };
    let record = state.table.at(ino);
    if record.size.get() == 0 && record.flags.get() & FLAG_EXTENDING == 0 {
        record.place = FileSpace::record(Some(new));
        let commit = claim(state, ino);
        state.chores.after(commit, FollowUp::Free(place));
        return Ok(Some(commit));
    }
    record.other = FileSpace::record(Some(new));
    let commit = claim(state, ino);
    state.moves.insert(ino, MoveStage::Claiming(commit));
    Err(StopReason::Again(AwaitedEvent::Moved { ino }))
}

/// Notes that a move has yet to copy this many bytes. The pages that were copied are taken from the
/// volume's space, and promised no more.
///
/// # Panics
/// Panics if the caller was not asked for a move of the file.
pub(crate) fn copied(state: &mut State, ino: Ino, left: u64) {
    let Some(MoveStage::Copying(promised)) = state.moves.get_mut(&ino) else {
        panic!("no move of the file was asked for")
    };
    let left = (left / PAGE_BYTES as u64).min(*promised);
    let ended = core::mem::replace(promised, left) - left;
    state.end_promise(ended);
}

/// Ends a move of a file's data.
///
/// # Panics
/// Panics if the caller was not asked for one.
pub(crate) fn moved(state: &mut State, ino: Ino, succeeded: bool) {
    copied(state, ino, 0);
    if state.begin().is_err() {
        return;
    }
    if !succeeded {
        state.leave(ino);
        return;
    }
    let record = state.table.at(ino);
    (record.place, record.other) = (record.other, record.place);
    let commit = claim(state, ino);
    state.moves.insert(ino, MoveStage::Landing);
    state.chores.after(commit, FollowUp::Landed(ino));
}

/// Changes the size of a regular file, within an operation that has begun. Returns `true` if
/// something was cut off.
pub(super) fn set_size(
    state: &mut State,
    now: Time,
    ino: Ino,
    size: u64,
) -> Result<bool, StopReason> {
    let old = size_of(state, ino);
    if size <= old {
        give_up_move(state, ino);
    }
    step_move(state, ino)?;
    if size < old {
        quieten(state, ino)?;
    }
    if size > old {
        if state.chores.has(ino) {
            return Err(StopReason::Again(AwaitedEvent::Clean {
                commit: state.ledger.durable(),
                ino,
            }));
        }
        grow(state, ino, size, size)?;
    }
    let place = place_of(state, ino);
    let record = state.table.at(ino);
    let was_extending = record.flags.get() & FLAG_EXTENDING != 0;
    record.size = size.into();
    (record.times.mtime, record.times.ctime) = (now.into(), now.into());
    if size < old {
        let commit = claim(state, ino);
        let end = if was_extending { place.bytes() } else { old };
        for work in clearing(state, place, size, end) {
            state.chores.after(commit, FollowUp::Work(Owner::Inode(ino), work));
        }
    }
    Ok(size < old)
}

/// Returns the work that turns a range of a place into zeroes.
fn clearing(
    state: &State,
    place: FileSpace,
    from: u64,
    to: u64,
) -> impl Iterator<Item = ChoreWork> + use<> {
    const PAGE: u64 = PAGE_BYTES as u64;
    let base = state.base(place);
    let zero = |from: u64, to: u64| {
        (from < to).then(|| ChoreWork::Zero { at: base + from, bytes: to - from })
    };
    let (first, last) = (from.next_multiple_of(PAGE), to - to % PAGE);
    let works = if first > last {
        // Both ends lie in one page.
        [zero(from, to), None, None]
    } else {
        [zero(from, first), discard(&state.geometry, place, first, last), zero(last, to)]
    };
    works.into_iter().flatten()
}

/// Returns the place of bytes to be read: fewer than asked for where the file ends.
pub(crate) fn place_read(
    state: &State,
    ino: Ino,
    (offset, bytes): Range,
) -> Result<DataPlacement, Errno> {
    regular(state, ino)?;
    let left = size_of(state, ino).saturating_sub(offset);
    let at = state.base(place_of(state, ino)) + if left > 0 { offset } else { 0 };
    Ok(DataPlacement::At { at, bytes: bytes.min(left) })
}

/// Returns the place in virtual space to which bytes are to be written, or the step that must come
/// first.
pub(crate) fn place_write(
    state: &mut State,
    ino: Ino,
    range: Range,
) -> Result<DataPlacement, Errno> {
    match locate(state, ino, range) {
        Ok(at) => Ok(DataPlacement::At { at, bytes: range.1 }),
        Err(StopReason::Again(until)) => Ok(DataPlacement::Again(until)),
        Err(StopReason::Move(order)) => Ok(DataPlacement::Move(order)),
        Err(StopReason::Refused(errno)) => Err(errno),
    }
}

fn locate(state: &mut State, ino: Ino, range: Range) -> Result<u64, StopReason> {
    regular(state, ino)?;
    let end = end_of(state, range)?;
    if state.ledger.has_failed() {
        return Err(Errno::ROFS.into());
    }
    step_move(state, ino)?;
    if state.holds.get(&ino).is_some_and(|hold| hold.is_awaited) {
        return Err(StopReason::Again(AwaitedEvent::Quiet { ino }));
    }
    let durable = state.ledger.durable();
    if state.chores.has(ino) {
        return Err(StopReason::Again(AwaitedEvent::Clean { commit: durable, ino }));
    }
    if let Some(commit) = state.claims.get(&ino).filter(|commit| **commit > durable) {
        return Err(StopReason::Again(AwaitedEvent::Commit(*commit)));
    }
    let place = place_of(state, ino);
    let grows = end > size_of(state, ino).next_multiple_of(PAGE_BYTES as u64);
    if state.room.check(pages_of(range), grows).is_err() {
        return Err(state.starve());
    }
    let record = state.find(ino)?;
    let extends = end > record.size.get() && record.flags.get() & FLAG_EXTENDING == 0;
    if end > place.bytes() {
        state.begin()?;
        if let Some(commit) = grow(state, ino, end, end.saturating_mul(GENEROSITY))? {
            return Err(StopReason::Again(AwaitedEvent::Commit(commit)));
        }
    } else if extends {
        state.begin()?;
        return Err(StopReason::Again(AwaitedEvent::Commit(claim(state, ino))));
    }
    state.room.promise(pages_of(range), grows)?;
    state.hold(ino, |hold| hold.writes += 1);
    Ok(state.base(place) + range.0)
}

/// Ends a write. What a failed write may have left beyond the size is cleared.
///
/// # Panics
/// Panics if no write of the file is under way.
pub(crate) fn wrote(
    state: &mut State,
    now: Time,
    ino: Ino,
    (offset, bytes): Range,
    succeeded: bool,
) {
    let (end, size) = (offset + bytes, size_of(state, ino));
    state.end_promise(pages_of((offset, bytes)));
    if succeeded {
        let record = state.table.at(ino);
        record.size = size.max(end).into();
        (record.times.mtime, record.times.ctime) = (now.into(), now.into());
        state.dirty_lazily(ino);
    } else if end > size && !state.ledger.has_failed() {
        let place = place_of(state, ino);
        for work in clearing(state, place, size.max(offset), end) {
            state.work_now(ino, work);
        }
    }
    state.hold(ino, |hold| {
        hold.writes = hold.writes.checked_sub(1).expect("a write is under way");
        hold.is_awaited &= hold.writes > 0;
    });
}

pub(super) fn open(state: &mut State, ino: Ino, write: bool) -> OperationOutcome {
    state.find(ino)?;
    state.hold(ino, |hold| {
        hold.opens += 1;
        hold.writers += u32::from(write);
    });
    Ok((OperationResult::Done, AwaitedEvent::Now))
}

/// Ends an opening. With the last writer, size and times are committed, and the flag goes.
pub(super) fn release(state: &mut State, ino: Ino, write: bool) -> OperationOutcome {
    let Some(hold) = state.holds.get(&ino).copied() else { return Err(Errno::INVAL.into()) };
    if hold.opens == 0 || write && hold.writers == 0 {
        return Err(Errno::INVAL.into());
    }
    let is_last = write && hold.writers == 1 && hold.writes == 0;
    let page = state.geometry.inode(ino).0;
    let quiet = !state.chores.has(ino) && !state.moves.contains_key(&ino);
    let record = state.find(ino)?;
    let flags = record.flags.get();
    let flagged = flags & FLAG_EXTENDING != 0 && quiet;
    let lives = record.nlink.get() > 0;
    if is_last && lives && (flagged || state.ledger.is_lazy(page)) && state.begin().is_ok() {
        if flagged {
            state.table.at(ino).flags = (flags & !FLAG_EXTENDING).into();
        }
        state.dirty(ino);
    }
    state.hold(ino, |hold| {
        hold.opens -= 1;
        hold.writers -= u32::from(write);
    });
    Ok((OperationResult::Done, AwaitedEvent::Now))
}

pub(super) fn fsync(state: &mut State, ino: Ino) -> OperationOutcome {
    state.find(ino)?;
    if state.ledger.has_lost() {
        return Err(StopReason::Refused(Errno::IO));
    }
    if state.ledger.is_lazy(state.geometry.inode(ino).0) {
        state.begin()?;
        state.dirty(ino);
    }
    Ok((OperationResult::Done, AwaitedEvent::Commit(state.ledger.last())))
}

pub(super) fn allocate(
    state: &mut State,
    now: Time,
    ino: Ino,
    range: Range,
    keep_size: bool,
) -> OperationOutcome {
    regular(state, ino)?;
    let end = end_of(state, range)?;
    state.begin()?;
    step_move(state, ino)?;
    let commit = grow(state, ino, end, end)?;
    if !keep_size && end > size_of(state, ino) {
        set_size(state, now, ino, end)?;
        return Ok((OperationResult::Done, AwaitedEvent::Commit(state.dirty(ino))));
    }
    Ok((OperationResult::Done, commit.map_or(AwaitedEvent::Now, AwaitedEvent::Commit)))
}

pub(super) fn zero(
    state: &mut State,
    now: Time,
    ino: Ino,
    range: Range,
    keep_size: bool,
) -> OperationOutcome {
    regular(state, ino)?;
    let end = range.0.checked_add(range.1).ok_or(Errno::FBIG)?;
    if !keep_size {
        check_size(state, end)?;
    }
    state.begin()?;
    step_move(state, ino)?;
    quieten(state, ino)?;
    if state.chores.has(ino) {
        let commit = state.ledger.durable();
        return Err(StopReason::Again(AwaitedEvent::Clean { commit, ino }));
    }
    let size = size_of(state, ino);
    let mut commit = state.ledger.durable();
    if !keep_size && end > size {
        set_size(state, now, ino, end)?;
        commit = state.dirty(ino);
    } else {
        let record = state.table.at(ino);
        (record.times.mtime, record.times.ctime) = (now.into(), now.into());
        state.dirty_lazily(ino);
    }
    let place = place_of(state, ino);
    // Beyond the size there are zeroes: the last page goes whole.
    let end = if end < size { end } else { size.next_multiple_of(PAGE_BYTES as u64) };
    if range.0 < end {
        for work in clearing(state, place, range.0, end) {
            state.work_now(ino, work);
        }
    }
    Ok((OperationResult::Done, AwaitedEvent::Clean { commit, ino }))
}

pub(super) fn seek(state: &State, ino: Ino, offset: u64, what: SeekTarget) -> OperationOutcome {
    regular(state, ino)?;
    let size = size_of(state, ino);
    if offset >= size {
        return Err(Errno::NXIO.into());
    }
    let at = match what {
        SeekTarget::Data => offset,
        SeekTarget::Hole => size,
    };
    Ok((OperationResult::Offset(at), AwaitedEvent::Now))
}

/// Completes the moves and truncations of an inode that were interrupted when the file system was
/// last used.
pub(crate) fn recover(state: &mut State, ino: Ino) {
    let record = *state.table.at(ino);
    if record.other.order_next != 0 {
        state.leave(ino);
    }
    if record.nlink.get() == 0 {
        state.abandon(ino);
        return;
    }
    let Some(place) = FileSpace::of(record.place) else { return };
    for work in clearing(state, place, record.size.get(), place.bytes()) {
        state.work_now(ino, work);
    }
    if !state.chores.has(ino) {
        state.settle(ino);
    }
}
