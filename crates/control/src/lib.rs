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
mod commands;
mod compliance;
mod controller;
mod flows;
mod history;
mod info;
mod mailboxes;
mod measured;
mod memory_trim;
pub mod metrics;
mod registry;
pub mod sizing;
mod standing;
mod starvation;
mod tenants;
mod totals;
mod traces;
mod views;
mod violations;
mod work;

pub use commands::{
    CommandRefused, ConnectionInfo, GIVEN_AT_ONCE, HANDED_AT_ONCE, MoveResult, WorkerCommands,
    WorkerInfo, WorkerState,
};
pub use compliance::{BURST, Compliance};
pub use controller::{
    GRACE, MemoryReturn, NOTICE_PERIOD, WINDOW, WaitTimeReader, WorkerController,
};
pub use flows::{DeviceFlow, NamespaceFlow, TokenFlow, WorkerFlow, WorkerWindow};
pub use info::{
    Admission, ChoreInfo, DeviceInfo, Origin, Refusal, State, TenantInfo, UPGRADING, Verdict, Ways,
};
pub use mailboxes::{Wake, WorkerMailbox};
pub use measured::Measured;
pub use registry::holdings::HeldTokens;
pub use registry::proposed_promises::foresee;
pub use registry::{Activity, Batch, DeviceSetup, Devices, TenantChange, TenantRegistry};
pub use spec::Switches;
pub use standing::{Standing, tail_share};
pub use starvation::Starvation;
pub use tenants::{Clock, Tenants};
pub use totals::{TenantTotals, seconds_of};
pub use work::Work;
