//! `nearflash device set`.

use control::admin::{Automatic, Client, DevicePatch, Promises};

use super::{Common, Failure};

/// The arguments of `nearflash device set`.
#[derive(clap::Args, Debug)]
pub(crate) struct Set {
    /// Name of the device
    name: String,
    /// Device model: a file on the server's machine (read again), a or cloud
    #[arg(long, value_name = "FILE")]
    model: Option<String>,
    /// Correct the device model by measured delays, or keep it as it is
    #[arg(long, value_name = "BOOL")]
    correct_online: Option<bool>,
    /// Bound the requests at the device by the strictest latency, or lift the bound
    #[arg(long, value_name = "BOOL")]
    bound_depth: Option<bool>,
    /// Refuse at once requests that would miss their latency, or queue them
    #[arg(long, value_name = "BOOL")]
    fail_fast: Option<bool>,
    /// Promise latencies in windows of 1,000 reads or 10 s, or on average
    #[arg(long, value_name = "BOOL")]
    promise_windows: Option<bool>,
    /// When the server measures a drifted device by itself
    #[arg(long, value_parser = ["off", "idle"], value_name = "WHEN")]
    recalibrate: Option<String>,
    /// Seconds for which the device must have been idle before that
    #[arg(long, value_name = "SECONDS")]
    recalibrate_idle_seconds: Option<u32>,
    /// Namespace that this may overwrite, or `none`: ALL DATA IN IT IS LOST
    #[arg(long, value_name = "NAMESPACE")]
    recalibrate_scratch: Option<String>,
}

impl Set {
    pub(super) fn run(&self, common: &Common, client: &mut Client) -> Result<(), Failure> {
        let scratch = self.recalibrate_scratch.clone();
        let to = DevicePatch {
            model: self.model.clone(),
            correct_online: self.correct_online,
            bound_depth: self.bound_depth,
            fail_fast: self.fail_fast,
            promises: self.promise_windows.map(Promises::held),
            recalibrate: self.recalibrate.as_deref().map(|when| match when {
                "idle" => Automatic::Idle,
                _ => Automatic::Off,
            }),
            recalibrate_idle_seconds: self.recalibrate_idle_seconds,
            recalibrate_scratch: scratch
                .map(|name| if name == "none" { String::new() } else { name }),
            ..DevicePatch::default()
        };
        if to == DevicePatch::default() {
            let text = "nothing to change: name --model, --correct-online, --bound-depth, --fail-fast, \
                        --promise-windows, --recalibrate, --recalibrate-idle-seconds or --recalibrate-scratch";
            return Err(text.to_owned().into());
        }
        let set = client.send_to(&self.name, &to)?;
        common.print(&set, |set| {
            let mut lines = vec![format!("changed {}", set.name)];
            lines.extend(set.lines());
            lines.join("\n")
        });
        Ok(())
    }
}
