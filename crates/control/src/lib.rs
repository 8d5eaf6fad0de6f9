//! The control plane: tenants, their SLOs and their measurements.
//!
//! [`Tenants`] is the interface for operators' tools and for the configuration: tenants by name,
//! one number per tenant that is valid on every device, and one [`Registry`](qos::Registry) per
//! device. The control plane reaches workers only through the messages of [`contract::Mailbox`] and
//! the counters of [`contract::Meters`], so it never delays a worker (docs/adr/0005-mailbox.md).
//!
//! [`admin`] offers the control plane to operators over HTTP, on a thread of its own.
//!
//! This crate deliberately leaves out files, devices and the clock, which the maker of a
//! [`Tenants`] provides. The registry takes the time as an argument, so the simulated world can run
//! it.
#![forbid(unsafe_code)]

pub mod admin;
mod book;
mod compliance;
mod desk;
mod flows;
mod foreman;
mod history;
mod holdings;
mod looks;
mod measured;
pub mod metrics;
mod post;
pub mod sizing;
mod standing;
mod tally;
mod tenants;
mod traces;
mod words;
mod work;

pub use book::{Book, DeviceSetup, Origin, Switches, TenantChange, Undo};
pub use compliance::{BURST, Compliance};
pub use desk::{Desk, GRACE, NOTICE_PERIOD, WINDOW};
pub use flows::{DeviceFlow, NamespaceFlow, TokenFlow, WorkerFlow};
pub use foreman::{
    ConnectionInfo, Foreman, GIVEN_AT_ONCE, HANDED_AT_ONCE, Moved, OrderRefused, WorkerInfo,
    WorkerState,
};
pub use holdings::Held;
pub use measured::Measured;
pub use post::{PostBox, Wake};
pub use standing::{Standing, tail_share};
pub use tally::{Tally, seconds_of};
pub use tenants::{Clock, Tenants};
pub use words::{
    Admission, DeviceInfo, Refusal, Share, State, TenantInfo, UPGRADING, Verdict, Ways,
};
pub use work::Work;
