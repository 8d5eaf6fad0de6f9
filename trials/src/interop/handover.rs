//! A new process takes over under a load that verifies: nothing is lost, nothing is wrong, nobody stays
//! behind. What it costs is measured by `cargo xtask takeover`.

use super::context::{Context, Verdict};
use crate::bench::takeover::{Crowd, check};

/// Connections of protocol reflex.
pub(super) fn reflex(context: &Context) -> Result<Verdict, String> {
    take_over(context, Crowd::Reflex { connections: 50 })
}

/// Controllers of NVMe hosts.
pub(super) fn nvme(context: &Context) -> Result<Verdict, String> {
    take_over(context, Crowd::Nvme { controllers: 6, queues: 3 })
}

fn take_over(context: &Context, crowd: Crowd) -> Result<Verdict, String> {
    check(&context.nearflash, &context.folder, crowd).map(Verdict::Passed)
}
