//! The specification of a server: what an operator asks it to be, as one struct for each noun.
//!
//! A [`Tenant`], [`Device`], [`Namespace`], [`Subsystem`], [`Host`], [`Listener`], [`AccessRule`]
//! and [`Limits`] are written as the entries of a configuration file and of the state file, and
//! everything that derives from a specification takes these structs. [`diff`](fn@diff) compares two lists of
//! such objects, and [`over`] makes the difference; a start, a reload, a live change and a hand-over
//! all use both.
//!
//! This crate deliberately leaves out files, sockets and the state of a running server: it is
//! arithmetic on values.
#![forbid(unsafe_code)]

mod access;
mod device;
mod diff;
mod host;
mod limits;
mod listener;
mod namespace;
mod place;
mod subsystem;
mod tenant;
mod text;

pub use access::{AccessRule, Clients};
pub use device::{Automatic, Device, Switches};
pub use diff::{Changed, diff, over};
pub use host::{Host, Secret};
pub use limits::Limits;
pub use listener::Listener;
pub use namespace::Namespace;
pub use place::{Mistake, Nth, Place};
pub use subsystem::{Ana, AnaState, Exported, Subsystem};
pub use tenant::Tenant;
pub use text::{check_name, check_nqn, size_in_blocks};
