//! The simulated world: the real worker and the real initiator between a simulated network and the
//! devices of `flash`, on one virtual clock, from one seed.
//!
//! A seed chooses sizes, weather, habits and faults; [`Mark`] lists the branches that worlds should
//! reach. A [`World`] runs to its end and panics on any violation:
//!
//! - a request answered twice or never,
//! - a read that shows what it must not, or an acknowledged write that is lost,
//! - a barrier overtaken, two winners of one comparison, or a torn atomic write,
//! - a buffer or slot that does not come back, or a world that does not come to rest.
//!
//! A [siege](besiege) has no faults, but tenants that hold all they can get, and checks that nobody
//! else waits for it.
//!
//! [`Sabotage`] breaks a promise of the server on purpose, so that the tests can show that the
//! checkers notice.
//!
//! Deliberately left out: real time, threads, system calls, and the crash of a server, since the
//! durability of acknowledged writes needs a real kernel.
#![forbid(unsafe_code)]

mod arena;
mod disk;
mod good;
mod hostile;
mod layout;
mod ledger;
mod mailbox;
mod marks;
mod network;
mod nvme;
mod office;
mod plan;
mod server;
mod siege;
mod site;
mod spoken;
mod stamp;
mod steady;
mod tenants;
mod world;

pub use arena::Arena;
pub use marks::{Mark, Marks};
pub use plan::Sabotage;
pub use siege::{Toll, besiege};
pub use world::{Outcome, World};
