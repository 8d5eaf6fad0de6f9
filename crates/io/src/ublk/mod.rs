//! Block devices of the kernel that a program serves (`ublk_drv`): the control device, the queues
//! of a device, and the protection of a program against waiting for its own device.
//!
//! This module deliberately leaves out the meaning and the service of requests.
//! docs/adr/0034-attach.md has the choice of the data path.

mod control;
mod guard;
mod queue;

pub use control::{ControlDevice, is_there};
pub use guard::{ExclusiveHold, guard_memory};
pub use queue::{BlockArrival, BlockQueue, RequestNeed};
