//! The simulated world: the real worker and the real initiator between a simulated network and the
//! devices of `flash`, on one virtual clock, from one seed.
//!
//! A seed chooses sizes, impairments, habits and faults; [`Mark`] lists the branches that worlds
//! should reach. A [`World`] runs to its end and panics on any violation:
//!
//! - a request answered twice or never, also one that a process passed on to its successor,
//! - a read that shows what it must not, or an acknowledged write that is lost,
//! - a barrier overtaken, two winners of one comparison, or a torn atomic write,
//! - a flush that no device has carried out since it was asked for,
//! - a write of an NBD client that begins after the server has noticed the end of its connection,
//! - a buffer or slot that does not come back, or a world that does not come to rest.
//!
//! A [`WorldKind`] of worlds has NVMe hosts, clients of NBD, or attached volumes, beside the
//! clients of `reflex`. In worlds of packets, clients of `reflex` are alone, over real endpoints of
//! packets. A seed has one of each kind.
//!
//! A [siege](besiege) has no faults, but tenants that hold all they can get, and checks that nobody
//! else waits for it.
//!
//! [`Sabotage`] breaks a promise of the server on purpose, so that the tests can show that the
//! checkers notice.
//!
//! Deliberately left out: real time, threads, system calls, and the loss of power, since the
//! durability of acknowledged writes needs a real kernel. A server that is killed loses its
//! connections and what no device has begun; what a device has begun ends, as the kernel sees to it
//! before a process is gone.
#![forbid(unsafe_code)]

mod agenda;
mod arena;
mod attach;
mod control_plane;
mod disk;
mod good;
mod hostile;
mod kinds;
mod layout;
mod ledger;
mod mailbox;
mod marks;
mod nbd;
mod network;
mod noticed_ends;
mod nvme;
mod plan;
mod port;
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
pub use plan::{Sabotage, WorldKind};
pub use siege::{SiegeReport, besiege};
pub use world::{World, WorldTotals};
