//! The kernel's block devices that a program serves (`ublk_drv`): the control device, the queues of a
//! device, and what keeps a program from waiting for its own device.
//!
//! This module knows neither the requests that a device takes nor how they are served. The way of
//! data is chosen in docs/adr/0034-attach.md.

mod control;
mod guard;
mod queue;

pub use control::{Control, is_there};
pub use guard::{Hold, guard_memory};
pub use queue::{Arrival, BlockQueue, Need};
