//! The kernel's own NVMe/TCP host, in a guest, against a server on this machine.
//!
//! The server is each test's own; the guest is handed on ([`Standby`](super::standby)), so a test
//! leaves no controller behind. What the guest wrote stays with a test that failed.

pub(super) mod auth;
pub(super) mod commands;
pub(super) mod failures;
pub(super) mod file_systems;
pub(super) mod live;
mod pair;
pub(super) mod reservations;
mod target;
pub(super) mod upgrade;
pub(super) mod verify;

use std::time::Duration;

use pair::{Pair, provide};
use target::{NQN, Plan};

/// What is waited for in the guest is quick, on a quiet machine.
const SOON: Duration = Duration::from_secs(120);

/// The same for what keeps an emulated processor busy.
const LATER: Duration = Duration::from_secs(400);
