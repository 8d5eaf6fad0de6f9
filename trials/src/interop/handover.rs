//! A new process takes over under a load that verifies: no request is lost, none is answered
//! wrongly, and no connection stays behind. `cargo xtask takeover` measures what a take-over costs.

use super::context::{Context, Verdict};
use crate::bench::takeover::{Crowd, check};

/// Takes over connections of protocol reflex.
pub(super) fn reflex(context: &Context) -> Result<Verdict, String> {
    take_over(context, Crowd::Reflex { connections: 50 })
}

/// Takes over controllers of NVMe hosts.
pub(super) fn nvme(context: &Context) -> Result<Verdict, String> {
    take_over(context, Crowd::Nvme { controllers: 6, queues: 3 })
}

/// Takes over connections of an NBD client.
pub(super) fn nbd(context: &Context) -> Result<Verdict, String> {
    take_over(context, Crowd::Nbd { connections: 16 })
}

fn take_over(context: &Context, crowd: Crowd) -> Result<Verdict, String> {
    check(&context.nearflash, &context.folder, crowd).map(Verdict::Passed)
}
