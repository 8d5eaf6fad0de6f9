//! The settings of a device that an operator can change while the device is in use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use spec::{Automatic, Promises};

/// The settings of a device, from the configuration or changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceSettings {
    /// Name of the device.
    pub name: String,
    /// Spec of the device.
    pub spec: String,
    /// Name of the model; `null` for the model of the spec, or none.
    pub model: Option<String>,
    /// `true` if the model is corrected by measured delays.
    pub correct_online: bool,
    /// `true` if the requests at the device are limited to what the strictest latency bound allows.
    pub bound_depth: bool,
    /// `true` if requests that would miss their latency bound are refused at once.
    pub fail_fast: bool,
    /// Extent for which promised percentiles hold.
    #[serde(default)]
    pub promises: Promises,
    /// Start condition of automatic recalibration.
    pub recalibrate: Automatic,
    /// Period of low load before an automatic recalibration, in seconds.
    pub recalibrate_idle_seconds: u32,
    /// The scratch namespace that automatic recalibration may overwrite; `null`: the device is only
    /// read.
    pub recalibrate_scratch: Option<String>,
}

/// A change of a device's settings; omitted members keep their value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetDevice")]
pub struct DevicePatch {
    /// The model: a file on the server's machine, `a` or `cloud`. The same name reads the file
    /// again. The device must have a model, and the new model must fit all SLOs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `true` to correct the model by measured delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correct_online: Option<bool>,
    /// `true` to limit the requests at the device to what the strictest latency bound allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_depth: Option<bool>,
    /// `true` to refuse at once requests that would miss their latency bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<bool>,
    /// Extent for which promised percentiles hold. Present SLOs stay; if they leave no headroom,
    /// each gets a proportional part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promises: Option<Promises>,
    /// Start condition of automatic recalibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalibrate: Option<Automatic>,
    /// Period of low load before an automatic recalibration, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalibrate_idle_seconds: Option<u32>,
    /// The scratch namespace, by name or number, that automatic recalibration may overwrite: all
    /// its data is lost. Empty: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalibrate_scratch: Option<String>,
    /// Name of the device, which cannot change: any other name is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Spec of the device, which cannot change: any other spec is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
}

impl DeviceSettings {
    /// Returns the lines about a device's settings: its spec, and a line for each further setting in
    /// use.
    pub fn lines(&self) -> Vec<String> {
        let switches = [
            ("correct_online", self.correct_online),
            ("bound_depth", self.bound_depth),
            ("fail_fast", self.fail_fast),
        ];
        let on: Vec<&str> = switches.iter().filter_map(|(name, on)| on.then_some(*name)).collect();
        let mut lines = vec![format!("  spec          {}", self.spec)];
        lines.extend(self.model.as_ref().map(|model| format!("  model of      {model}")));
        if !on.is_empty() {
            lines.push(format!("  does          {}", on.join(", ")));
        }
        if self.promises == Promises::InWindows {
            let line =
                "  promises      in windows of 1,000 reads (95th percentile) and of 10 s (99th)";
            lines.push(line.to_owned());
        }
        if self.recalibrate == Automatic::Idle {
            let mut line = format!(
                "  recalibrates  by itself, after {} s with little to do",
                self.recalibrate_idle_seconds
            );
            if let Some(scratch) = &self.recalibrate_scratch {
                line += &format!(", overwriting namespace {scratch}");
            }
            lines.push(line);
        }
        lines
    }
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
            promises: Promises::InWindows,
            recalibrate: Automatic::Idle,
            recalibrate_idle_seconds: 60,
            recalibrate_scratch: Some("x".to_owned()),
        };
        assert_eq!(
            set.lines(),
            [
                "  spec          null:1GiB",
                "  model of      a",
                "  does          correct_online, fail_fast",
                "  promises      in windows of 1,000 reads (95th percentile) and of 10 s (99th)",
                "  recalibrates  by itself, after 60 s with little to do, overwriting namespace x",
            ]
        );
        (set.model, set.correct_online, set.fail_fast) = (None, false, false);
        (set.recalibrate, set.promises) = (Automatic::Off, Promises::OnAverage);
        assert_eq!(set.lines(), ["  spec          null:1GiB"]);
    }
}
