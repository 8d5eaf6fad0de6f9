//! Tests of the Linux kernel's own NVMe/TCP host, in a guest, against a server on this machine.
//!
//! Each test starts a server of its own. The guest is passed from test to test
//! ([`Standby`](super::standby)), so a test must leave no controller behind. The output of the
//! guest stays in the folder of a test that failed.

pub(super) mod auth;
pub(super) mod commands;
pub(super) mod failures;
pub(super) mod file_systems;
pub(super) mod live;
mod pair;
pub(super) mod reservations;
mod target;
pub(super) mod tls;
pub(super) mod upgrade;
pub(super) mod verify;

use super::guest::{LATER, SOON};
use pair::{HostAndServer, provide};
use target::{NQN, Plan};
