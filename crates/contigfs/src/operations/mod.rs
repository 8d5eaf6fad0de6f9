//! The operations: each checks all that could refuse it, and then changes the state.

mod answer;
mod attributes;
pub(crate) mod data;
mod rename;
mod tree;
mod xattrs;

pub(crate) use answer::attributes_of;
pub(crate) use attributes::statistics;
pub(crate) use xattrs::are_records;

use answer::OperationOutcome;

use crate::state::{State, StopReason};
use crate::words::{Applied, AwaitedEvent, Caller, Operation, OperationResult, Reply, Time};

/// Applies an operation to the file system's state in memory.
pub(crate) fn apply(
    state: &mut State,
    now: Time,
    caller: &Caller,
    operation: Operation,
) -> Applied {
    match perform(state, now, caller, operation) {
        Ok((answer, until)) => Ok(Reply::Answer(answer, until)),
        Err(StopReason::Again(until)) => Ok(Reply::Again(until)),
        Err(StopReason::Move(order)) => Ok(Reply::Move(order)),
        Err(StopReason::Refused(errno)) => Err(errno),
    }
}

fn perform(
    state: &mut State,
    now: Time,
    caller: &Caller,
    operation: Operation,
) -> OperationOutcome {
    use Operation as O;
    match operation {
        O::Lookup { parent, name } => tree::lookup(state, parent, name),
        O::Attributes { ino } => attributes::get(state, ino),
        O::Change { ino, change } => attributes::change(state, now, ino, &change),
        O::Make { parent, name, mode, rdev } => {
            tree::make(state, now, caller, (parent, name), mode, rdev)
        }
        O::Symlink { parent, name, target } => {
            tree::symlink(state, now, caller, (parent, name), target)
        }
        O::ReadLink { ino } => tree::read_link(state, ino),
        O::Link { ino, parent, name } => tree::link(state, now, ino, (parent, name)),
        O::Unlink { parent, name } => tree::unlink(state, now, (parent, name)),
        O::RemoveDirectory { parent, name } => tree::remove_directory(state, now, (parent, name)),
        O::Rename { parent, name, to_parent, to_name, how } => {
            rename::rename(state, now, (parent, name), (to_parent, to_name), how)
        }
        O::Open { ino, write } => data::open(state, ino, write),
        O::Release { ino, write } => data::release(state, ino, write),
        O::Fsync { ino } => data::fsync(state, ino),
        O::GetXattr { ino, name } => xattrs::get(state, ino, name),
        O::SetXattr { ino, name, value, how } => xattrs::set(state, now, ino, (name, value), how),
        O::ListXattrs { ino } => xattrs::list(state, ino),
        O::RemoveXattr { ino, name } => xattrs::remove(state, now, ino, name),
        O::Allocate { ino, offset, bytes, keep_size } => {
            data::allocate(state, now, ino, (offset, bytes), keep_size)
        }
        O::Zero { ino, offset, bytes, keep_size } => {
            data::zero(state, now, ino, (offset, bytes), keep_size)
        }
        O::Seek { ino, offset, what } => data::seek(state, ino, offset, what),
        O::Statistics => {
            Ok((OperationResult::Statistics(attributes::statistics(state)), AwaitedEvent::Now))
        }
    }
}
