//! Extended attributes: records of name and value in up to two pages of the pool.
//!
//! | bytes | field of a record |
//! |---|---|
//! | 0 | bytes of the name |
//! | 1–2 | bytes of the value |
//! | 3… | name, value |

use alloc::vec::Vec;

use super::answer::OperationOutcome;
use crate::errno::Errno;
use crate::layout::PageUse;
use crate::pool::BLOB_BYTES_MAX;
use crate::state::State;
use crate::words::{AwaitedEvent, Ino, NAME_MAX, OperationResult, Time, XattrMode};

/// Bytes of a record before its name.
const HEAD_BYTES: usize = 3;

/// Returns the records as pairs of name and value. Ends at a record that is cut.
fn records(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let (head, after) = rest.split_at_checked(HEAD_BYTES)?;
        let (name, after) = after.split_at_checked(usize::from(head[0]))?;
        let length = usize::from(u16::from_le_bytes([head[1], head[2]]));
        let (value, after) = after.split_at_checked(length)?;
        rest = after;
        Some((name, value))
    })
}

/// Returns `true` if the bytes are whole records of different names.
pub(crate) fn are_records(bytes: &[u8]) -> bool {
    let (mut names, mut length) = (Vec::new(), 0);
    for (name, value) in records(bytes) {
        length += HEAD_BYTES + name.len() + value.len();
        names.push(name);
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    length == bytes.len() && names.len() == count && names.first() != Some(&&[][..])
}

fn push(bytes: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    bytes.push(name.len() as u8);
    bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(value);
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name.len() {
        0 => Err(Errno::INVAL),
        1..=NAME_MAX if name.contains(&0) => Err(Errno::INVAL),
        1..=NAME_MAX => Ok(()),
        _ => Err(Errno::RANGE),
    }
}

pub(super) fn get(state: &State, ino: Ino, name: &[u8]) -> OperationOutcome {
    state.find(ino)?;
    let bytes = state.pool.read_blob(ino, PageUse::Xattrs);
    let value = records(&bytes).find(|(has, _)| *has == name).map(|(_, value)| value.to_vec());
    Ok((OperationResult::Bytes(value.ok_or(Errno::NODATA)?), AwaitedEvent::Now))
}

pub(super) fn list(state: &State, ino: Ino) -> OperationOutcome {
    state.find(ino)?;
    let bytes = state.pool.read_blob(ino, PageUse::Xattrs);
    let mut names = Vec::new();
    for (name, _) in records(&bytes) {
        names.extend_from_slice(name);
        names.push(0);
    }
    Ok((OperationResult::Bytes(names), AwaitedEvent::Now))
}

pub(super) fn set(
    state: &mut State,
    now: Time,
    ino: Ino,
    (name, value): (&[u8], &[u8]),
    how: XattrMode,
) -> OperationOutcome {
    state.find(ino)?;
    check_name(name)?;
    let bytes = state.pool.read_blob(ino, PageUse::Xattrs);
    match (how, records(&bytes).any(|(has, _)| has == name)) {
        (XattrMode::Create, true) => return Err(Errno::EXIST.into()),
        (XattrMode::Replace, false) => return Err(Errno::NODATA.into()),
        _ => {}
    }
    if HEAD_BYTES + name.len() + value.len() > BLOB_BYTES_MAX {
        return Err(Errno::NOSPC.into());
    }
    let mut changed = Vec::with_capacity(bytes.len() + HEAD_BYTES + name.len() + value.len());
    for (has, value) in records(&bytes).filter(|(has, _)| *has != name) {
        push(&mut changed, has, value);
    }
    push(&mut changed, name, value);
    if changed.len() > BLOB_BYTES_MAX {
        return Err(Errno::NOSPC.into());
    }
    store(state, now, ino, &changed)
}

pub(super) fn remove(state: &mut State, now: Time, ino: Ino, name: &[u8]) -> OperationOutcome {
    state.find(ino)?;
    let bytes = state.pool.read_blob(ino, PageUse::Xattrs);
    if !records(&bytes).any(|(has, _)| has == name) {
        return Err(Errno::NODATA.into());
    }
    let mut changed = Vec::with_capacity(bytes.len());
    for (has, value) in records(&bytes).filter(|(has, _)| *has != name) {
        push(&mut changed, has, value);
    }
    store(state, now, ino, &changed)
}

fn store(state: &mut State, now: Time, ino: Ino, bytes: &[u8]) -> OperationOutcome {
    state.begin()?;
    let growth = state.pool.blob_growth(ino, PageUse::Xattrs, bytes.len());
    if growth > 0 {
        state.check_room()?;
    }
    if growth > state.pool.pages_free() as usize {
        return Err(state.starve());
    }
    state.write_blob(ino, PageUse::Xattrs, bytes);
    state.table.at(ino).times.ctime = now.into();
    let commit = state.dirty(ino);
    Ok((OperationResult::Done, AwaitedEvent::Commit(commit)))
}
