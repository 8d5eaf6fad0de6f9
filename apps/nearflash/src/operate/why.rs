//! `nearflash why`: the diagnosis of a tenant that is slow.

use std::process::ExitCode;
use std::time::Duration;

use control::admin::{DeviceStatus, Diagnosis, Evidence, Flows, Stages, TenantStatus, Violations};
use lab::report::{number_text, time_text};

use super::table::facts;
use super::{Common, Failure};

/// The arguments of `nearflash why`.
#[derive(clap::Args, Debug)]
pub(crate) struct WhyCommand {
    /// Name of the tenant
    tenant: String,
    /// Time to watch the tenant's reads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

impl WhyCommand {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let client = &mut common.client()?;
        let before: Stages = client.get(&self.tenant)?;
        std::thread::sleep(Duration::from_secs(self.seconds));
        let tenant = &client.get::<TenantStatus>(&self.tenant)?;
        let device = &client.get::<DeviceStatus>(&tenant.device)?;
        let stages = &client.get::<Stages>(&self.tenant)?.since(&before);
        let flows = &client.read::<Flows>()?;
        let violations = &client.read::<Violations>()?.violations;
        let seen = Evidence { tenant, device, flows, stages, violations };
        common.print(&seen.diagnose(), |found| text(found, self.seconds));
        Ok(ExitCode::SUCCESS)
    }
}

fn text(found: &Diagnosis, seconds: u64) -> String {
    let tail = |us: Option<f64>| us.map_or("-".to_owned(), |us| time_text(us * 1e3));
    let (reads, p95) = (number_text(found.reads as f64), tail(found.p95_us));
    let reads = format!("{reads} in {seconds} s, p95 at most {p95}, {} sampled", found.sampled);
    let mut lines = vec![("reads", reads)];
    lines.extend(found.stages.iter().filter(|_| found.sampled > 0).map(|stage| {
        let (share, p95) = (format!("{:.0} %", stage.percent), tail(stage.p95_us));
        (stage.stage.as_str(), format!("{share:>5} of the time, p95 at most {p95}"))
    }));
    lines.extend(found.broken.iter().map(|broken| ("broken", broken.clone())));
    lines.extend(found.advice.iter().map(|advice| ("try", advice.clone())));
    facts(&format!("tenant {}: {}", found.tenant, found.verdict), &lines)
}
