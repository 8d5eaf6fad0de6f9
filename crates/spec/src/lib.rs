//! The specification of a server: what an operator asks for, as one struct for each kind of object.
//!
//! A [`Tenant`], [`Device`], [`Namespace`], [`Subsystem`], [`Host`], [`Listener`], [`AccessRule`]
//! and [`Limits`] are the entries of a configuration file and of the state file, and all code that
//! works on specifications uses these structs. [`diff`](fn@diff) computes the difference of two
//! lists of such objects, and [`over`] applies it; a start, a reload, a live change and a hand-over
//! use both.
//!
//! This crate deliberately leaves out files, sockets and the state of a running server: it only
//! computes with values.
#![forbid(unsafe_code)]

mod access;
mod device;
mod diff;
mod host;
mod limits;
mod listener;
mod methods;
mod namespace;
mod place;
mod subsystem;
mod tenant;
mod text;

pub use access::{AccessRule, Clients};
pub use device::{Automatic, Device, Promises, Switches};
pub use diff::{ChangedValues, diff, over};
pub use host::{Host, Secret};
pub use limits::Limits;
pub use listener::Listener;
pub use methods::{GroupName, HashName, named_methods};
pub use namespace::Namespace;
pub use place::{ConfigLocation, Mistake, TablePosition};
pub use subsystem::{Ana, AnaState, Exported, Subsystem};
pub use tenant::Tenant;
pub use text::{check_name, check_nqn, size_in_blocks};
