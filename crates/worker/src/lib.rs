//! The server's worker: one thread's connections, requests and devices, from the first byte of a
//! request to the last of its reply, in two steps that run to completion (paper §3.1).
//!
//! [`Worker`] is the hub; it knows the network, the devices and the scheduler only by their ports,
//! so the simulated world runs the same code. What is deliberately not here: system calls, threads,
//! a clock, and the meaning of any protocol's bytes.
#![forbid(unsafe_code)]

mod access;
mod attaching;
mod awaited;
mod chain;
mod connection;
mod control;
mod direct;
mod drains;
mod ending;
mod fence;
mod guesses;
mod housekeeping;
mod inflight;
mod ingest;
mod landing;
mod limits;
mod lines;
mod listeners;
mod metering;
mod moving;
mod namespaces;
mod quota;
mod sessions;
mod tally;
mod tenancy;
mod watch;
mod worker;

pub use access::{Access, Grant, Rule, Scope, Stands, Who};
pub use contract::Namespace;
pub use fence::{Adopted, Fences, Hold, Key as FenceName};
pub use limits::Limits;
pub use listeners::{Lead, Listeners};
pub use namespaces::Namespaces;
pub use sessions::Sessions;
pub use tenancy::Line;
pub use watch::Watch;
pub use worker::{Attached, Load, Parts, Worker};
