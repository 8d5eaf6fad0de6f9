//! The control plane: who the tenants are, what they were promised, and how they fare.
//!
//! [`Tenants`] is what an operator's tools and the configuration speak to: tenants by name, one
//! number for each that is valid on every device, one [`Registry`](qos::Registry) for each device.
//! Workers are spoken to through the messages of [`contract::Mailbox`] and the counters of
//! [`contract::Meters`] alone, so nothing here can hold one up (docs/adr/0005-mailbox.md).
//!
//! [`admin`] offers that to operators over HTTP, on a thread of its own.
//!
//! What is deliberately not here: files, devices, and a clock: whoever makes a [`Tenants`] hands one
//! in. The book behind it takes the time as an argument, so the simulated world runs it.
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
