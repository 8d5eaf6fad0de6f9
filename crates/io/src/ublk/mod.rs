//! The kernel's block devices that a program serves (`ublk_drv`): the control device, the queues of a
//! device, and what keeps a program from waiting for its own device.
//!
//! What is deliberately not here: which requests a device takes and how they are served. The choice
//! of how data is copied is docs/adr/0034-attach.md.

mod control;
mod guard;
mod queue;

pub use control::{Control, is_there};
pub use guard::{Hold, guard_memory};
pub use queue::{Arrival, BlockQueue, Need};
