//! Tests of a new process that takes over under a load that verifies its reads: no request is lost
//! or answered wrongly, and no connection stays behind. `cargo xtask takeover` measures what a
//! take-over costs.

use super::context::{Context, Verdict};
use crate::bench::takeover::{Crowd, check};

/// Tests the take-over of connections of protocol `reflex`.
pub(super) fn reflex(context: &Context) -> Result<Verdict, String> {
    take_over(context, Crowd::Reflex { connections: 50 })
}

/// Tests the take-over of controllers of NVMe hosts.
pub(super) fn nvme(context: &Context) -> Result<Verdict, String> {
    take_over(context, Crowd::Nvme { controllers: 6, queues: 3 })
}

/// Tests the take-over of connections of an NBD client.
pub(super) fn nbd(context: &Context) -> Result<Verdict, String> {
    take_over(context, Crowd::Nbd { connections: 16 })
}

fn take_over(context: &Context, crowd: Crowd) -> Result<Verdict, String> {
    check(&context.nearflash, &context.folder, crowd).map(Verdict::Passed)
}
