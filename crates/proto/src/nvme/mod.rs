//! The NVMe controller, without a transport: everything between a submission and its completion but
//! the data of reads and writes (Base 2.0, NVM 1.0).
//!
//! All workers of a server share one [`Fabric`]: subsystems with their namespaces and hosts, the
//! controllers that hosts have made, the discovery service. A binding (such as NVMe over TCP) hands a
//! connection's first command to [`Fabric::connect`] and gets a [`Queue`], which it owns:
//!
//! 1. [`Queue::begin`] looks at a submission and says what to do with it ([`Step`]);
//! 2. commands for devices go the way of all requests, and [`Queue::complete`] makes an [`Answer`] of
//!    their outcome; the controller's own go to [`Queue::execute`], with their payload;
//! 3. [`Queue::seal`] makes the completion entry of an answer;
//! 4. [`Fabric::poll`] says what the controllers want of this worker ([`Action`]): event requests that
//!    end, connections to close. The fabric's waker tells when to look;
//! 5. dropping the queue tells the fabric that the connection is gone; one that moves to another worker
//!    [departs](Queue::depart) and [lands](Fabric::land); a whole controller goes to another process as an
//!    [`Emigrant`].
//!
//! The way of a read or write takes no lock: a queue keeps a snapshot of what its controller may
//! reach, and one atomic number says when to take another. Everything else goes through one lock
//! with short critical sections.
//!
//! What is deliberately not here: transports, devices, clocks and chance; files that keep
//! configuration or reservations.

mod admin;
mod arriving;
pub mod auth;
mod auth_commands;
mod bequest;
mod config;
mod connect;
mod controller;
mod counts;
mod data;
mod discovery;
mod emigrant;
mod errors;
mod events;
mod fabric;
mod features;
mod fences;
mod identify;
mod io;
mod leaving;
mod link;
mod list;
mod live;
mod logs;
mod queue;
mod reservation;
mod reservation_commands;
mod seam;
mod state;
mod transit;

pub use arriving::Unwelcome;
pub use config::{
    ANA_GROUPS_MAX, Config, Host, HostId, Hosts, Identifiers, Limits, NQN_BYTES_MAX, Namespace,
    Nqn, Port, PortId, Referral, Refusal, Subsystem,
};
pub use controller::Kind;
pub use counts::Sum;
pub use emigrant::{EMIGRANT_QUEUES_MAX, Emigrant};
pub use fabric::{Fabric, Surroundings};
pub use fences::Withdrawal;
pub use leaving::{Held, Unready};
pub use list::{ControllerInfo, NamespaceInfo, QueueInfo, Reserved, SubsystemInfo};
pub(crate) use queue::PAYLOAD_BYTES_MAX;
pub use queue::Queue;
pub use reservation::Registrant;
pub use seam::{Action, Answer, CloseReason, Fused, Io, Outcome, Place, Step};
