//! The NVMe controller without a transport: everything between a submission and its completion,
//! except for the data of reads and writes (Base 2.0, NVM 1.0).
//!
//! All workers of a server share one [`Fabric`]: subsystems with their namespaces and hosts, the
//! controllers that hosts have created, and the discovery service. A transport binding, such as
//! NVMe over TCP, passes a connection's first command to [`Fabric::connect`]. It gets a [`Queue`],
//! which it owns:
//!
//! 1. [`Queue::begin`] parses a submission and returns what to do with it, a [`SubmissionStep`].
//! 2. Commands for devices are carried out like all requests, and [`Queue::complete`] turns their
//!    outcome into a [`CommandResult`]. The controller's own commands go to [`Queue::execute`],
//!    with their payload.
//! 3. [`Queue::seal`] turns an answer into a completion entry.
//! 4. [`Fabric::poll`] returns the [`Action`]s for this worker: event requests to complete,
//!    connections to close. [`Environment::wake`] tells when to poll.
//! 5. Dropping the queue tells the fabric that the connection is gone. A connection that moves to
//!    another worker takes its queue along ([`Queue::detach`], [`Fabric::claim`]). A whole
//!    controller moves to another process as an [`ExportedController`].
//!
//! A queue keeps a snapshot of what its controller may reach, and an atomic generation says when to
//! fetch another. So reads and writes touch nothing that other workers write. Everything else goes
//! through one [`TryLock`](contract::TryLock), at which no worker waits: a worker that finds it
//! closed gets [`LockBusy`], and tries again when [`Environment::wake`] has said so.
//!
//! Deliberately left out: transports, devices, clocks and randomness; files that store
//! configuration or reservations.

mod admin;
pub mod auth;
mod auth_commands;
mod auth_jobs;
mod binding;
mod call;
mod changed;
mod changes;
mod config;
mod connect;
mod controller;
mod controllers;
mod counts;
mod data;
mod discovery;
mod entrance;
mod errors;
mod events;
mod export;
mod exported;
mod fabric;
mod feature_commands;
mod features;
mod fences;
mod generations;
mod handover;
mod identify;
mod import;
mod inventory;
mod io;
mod link;
mod logs;
mod mail;
mod migration;
mod nqn;
pub mod psk;
mod queue;
mod record;
mod refusal;
mod report;
mod reservation;
mod reservation_commands;
mod reservation_transfer;
mod reservations;
mod state;

pub use binding::{
    Action, CloseReason, CommandResult, DeviceRequest, ExecutionOutcome, FusedPart, Origin,
    QueueAddress, SubmissionStep,
};
pub(crate) use call::PAYLOAD_BYTES_MAX;
pub use config::{
    ANA_GROUPS_MAX, Config, Host, HostId, Hosts, Identifiers, Limits, NQN_BYTES_MAX, Namespace,
    Nqn, Port, PortId, Referral, Refusal, Security, Subsystem,
};
pub use counts::QueueCounts;
pub use entrance::{Environment, LockBusy};
pub use export::{ExportError, HeldCommands};
pub use exported::{EXPORT_QUEUES_MAX, ExportedController};
pub use fabric::{Fabric, psks};
pub use fences::Withdrawal;
pub use import::ImportError;
pub use queue::Queue;
pub use record::ControllerKind;
pub use report::{ControllerInfo, QueueInfo, StoredReservation};
pub use reservation::Registrant;
