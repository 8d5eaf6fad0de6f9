//! NVMe/TCP in the world: the fabric of its server, and hosts that connect to it.
//!
//! Deliberately left out: discovery, authentication, reservations and changes of the fabric, which
//! have tests of their own.

mod controllers;
mod host;
mod line;
mod work;

pub(crate) use controllers::{Controllers, LISTENER, PORT};
pub(crate) use host::{ENTRIES, Habits, Lapses, NvmeHost};
