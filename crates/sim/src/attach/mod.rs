//! Attached volumes in the world: the kernel's side of a block device, which outlives the process
//! that serves it, and the real engine of a queue over the real initiator.
//!
//! Each queue is a party with an engine of its own, as each has a thread. The process dies with all
//! its queues. Requests wait for the successor, which has the identity of its predecessor; it is
//! given requests, also those that were in flight, once every queue has a connection.
//!
//! Deliberately left out: the commands by which a device is made and taken off, and its record.

mod kernel;
mod queue;

pub(crate) use queue::{AttachedQueue, Attachment, Habits, PATIENCE, SuccessiveProcesses};
