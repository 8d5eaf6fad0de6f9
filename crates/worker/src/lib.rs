//! The server's worker: one thread's connections, requests and devices, from the first byte of a
//! request to the last of its reply, in two steps that run to completion (paper §3.1).
//!
//! [`Worker`] joins the parts. The parts know the network, the devices and the scheduler only by
//! their ports, so the simulated world runs the same code. Deliberately not here: system calls,
//! threads, a clock, and the meaning of any protocol's bytes.
//!
//! The parts, from the bottom up: `requests` and `connections` are tables, `lanes` are the devices
//! with their schedulers, `gauges` count. `frontend` joins the connections, their requests and the
//! network; `engine` puts the lanes behind them. Above the engine, `reader` and what it uses
//! (`payload`, `invitations`, `direct`, `tenancy`) turn bytes into requests, and `migration`,
//! `arrival`, `drains` and `housekeeping` look after connections.
#![forbid(unsafe_code)]

mod access;
mod arrival;
mod connections;
mod direct;
mod drains;
mod engine;
mod frontend;
mod gauges;
mod housekeeping;
mod invitations;
mod lanes;
mod limits;
mod line;
mod listeners;
mod migration;
mod namespaces;
mod parts;
mod payload;
mod reader;
mod rebalance;
mod requests;
mod sessions;
mod tenancy;
mod worker;

pub use access::{AccessRules, AccessScope, DefaultTenant, Grant, PeerPattern, PeerRule};
pub use connections::{FenceName, Fences, HeldHellos, NameReservation};
pub use contract::Namespace;
pub use gauges::{ResourceUse, TraceClock};
pub use lanes::DeviceLane;
pub use limits::Limits;
pub use line::ControlPlaneLink;
pub use listeners::{ListenerBinding, Listeners};
pub use namespaces::Namespaces;
pub use parts::SharedState;
pub use sessions::{FnSessionFactory, SessionFactory, UnpackError};
pub use worker::Worker;
