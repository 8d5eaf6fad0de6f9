//! `nearflash device set`, and what was said of a device in words.

use clap::ValueEnum;
use control::admin::{Automatic, Client, DeviceSettings, SetDevice};

use super::{Common, Failure};

/// What `nearflash device set` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Set {
    /// Its name
    name: String,
    /// Its device model: a file of the server's machine, which is read again, a or cloud
    #[arg(long, value_name = "FILE")]
    model: Option<String>,
    /// Correct its model by measured delays, or do not
    #[arg(long, value_name = "BOOL")]
    correct_online: Option<bool>,
    /// Have no more requests at it at a time than the strictest latency allows, or leave that to it
    #[arg(long, value_name = "BOOL")]
    bound_depth: Option<bool>,
    /// Refuse requests that would miss their latency at once, or let them wait
    #[arg(long, value_name = "BOOL")]
    fail_fast: Option<bool>,
    /// When it is measured anew by itself, once it has drifted from its model
    #[arg(long, value_enum, value_name = "WHEN")]
    recalibrate: Option<When>,
    /// For how many seconds it must have had little to do for that
    #[arg(long, value_name = "SECONDS")]
    recalibrate_idle_seconds: Option<u32>,
    /// The namespace that this may overwrite, ALL DATA IN WHICH IS LOST, or `none`
    #[arg(long, value_name = "NAMESPACE")]
    recalibrate_scratch: Option<String>,
}

/// When a device is measured by itself.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum When {
    /// Never
    Off,
    /// When it has little to do
    Idle,
}

impl Set {
    pub(super) fn run(&self, common: &Common, client: &mut Client) -> Result<(), Failure> {
        let none_is_empty = |name: &String| match name.as_str() {
            "none" => String::new(),
            name => name.to_owned(),
        };
        let to = SetDevice {
            model: self.model.clone(),
            correct_online: self.correct_online,
            bound_depth: self.bound_depth,
            fail_fast: self.fail_fast,
            recalibrate: self.recalibrate.map(|when| match when {
                When::Off => Automatic::Off,
                When::Idle => Automatic::Idle,
            }),
            recalibrate_idle_seconds: self.recalibrate_idle_seconds,
            recalibrate_scratch: self.recalibrate_scratch.as_ref().map(none_is_empty),
            ..SetDevice::default()
        };
        if to == SetDevice::default() {
            let text = "nothing to change: name --model, --correct-online, --bound-depth, --fail-fast, \
                        --recalibrate, --recalibrate-idle-seconds or --recalibrate-scratch";
            return Err(text.to_owned().into());
        }
        let set = client.set_device(&self.name, &to)?;
        common.print(&set, |set| {
            let mut lines = vec![format!("changed {}", set.name)];
            lines.extend(lines_of(set));
            lines.join("\n")
        });
        Ok(())
    }
}

/// What was said of a device, beside its name.
pub(super) fn lines_of(set: &DeviceSettings) -> Vec<String> {
    let switches = [
        ("correct_online", set.correct_online),
        ("bound_depth", set.bound_depth),
        ("fail_fast", set.fail_fast),
    ];
    let on: Vec<&str> = switches.iter().filter_map(|(name, on)| on.then_some(*name)).collect();
    let mut lines = vec![format!("  spec          {}", set.spec)];
    lines.extend(set.model.as_ref().map(|model| format!("  model of      {model}")));
    if !on.is_empty() {
        lines.push(format!("  does          {}", on.join(", ")));
    }
    if set.recalibrate == Automatic::Idle {
        let mut line = format!(
            "  recalibrates  by itself, after {} s with little to do",
            set.recalibrate_idle_seconds
        );
        if let Some(scratch) = &set.recalibrate_scratch {
            line += &format!(", overwriting namespace {scratch}");
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_stands_in_lines() {
        let mut set = DeviceSettings {
            name: "fast".to_owned(),
            spec: "null:1GiB".to_owned(),
            model: Some("a".to_owned()),
            correct_online: true,
            bound_depth: false,
            fail_fast: true,
            recalibrate: Automatic::Idle,
            recalibrate_idle_seconds: 60,
            recalibrate_scratch: Some("x".to_owned()),
        };
        assert_eq!(
            lines_of(&set),
            [
                "  spec          null:1GiB",
                "  model of      a",
                "  does          correct_online, fail_fast",
                "  recalibrates  by itself, after 60 s with little to do, overwriting namespace x",
            ]
        );
        (set.model, set.correct_online, set.fail_fast) = (None, false, false);
        set.recalibrate = Automatic::Off;
        assert_eq!(lines_of(&set), ["  spec          null:1GiB"]);
    }
}
