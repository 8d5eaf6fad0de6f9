//! NBD in the world: clients that keep some connections to one export, as the kernel's client and
//! QEMU do.
//!
//! Deliberately left out: the other commands and options of the protocol, and its upper limits,
//! which have tests of their own.

mod line;
mod peer;

use contract::ListenerId;

pub(crate) use peer::{Habits, Lapses, NbdPeer};

/// The listener that clients dial.
pub(crate) const LISTENER: ListenerId = ListenerId(2);
