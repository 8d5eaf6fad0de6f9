//! `[[device]]`: the devices that a server exports.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Mistake, TablePosition};

/// A device that the server exports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AddDevice")]
pub struct Device {
    /// Name of the device, by which namespaces and tenants refer to it.
    pub name: String,
    /// A device spec (docs/reference/devices.md).
    pub spec: String,
    /// Device model: a file, `a` or `cloud` (docs/reference/device-models.md).
    /// By default `sim:a` and `sim:cloud` have their own model, and other devices have none.
    pub model: Option<String>,
    /// Corrects the device model by measured delays.
    #[serde(default)]
    pub correct_online: bool,
    /// Limits the requests in flight at the device to what the strictest latency objective allows.
    #[serde(default)]
    pub bound_depth: bool,
    /// Refuses requests that would miss their latency objective at once.
    #[serde(default)]
    pub fail_fast: bool,
    /// The extent for which promised percentiles hold: `in-windows` of 1 000 reads (95th
    /// percentile) and of 10 s (99th), for which a part of the rate is kept back. By default
    /// `on-average`.
    #[serde(default, skip_serializing_if = "Promises::are_on_average")]
    pub promises: Promises,
    /// Automatic recalibration of a device that differs from its model: `off`, or `idle` for when
    /// the device is idle.
    #[serde(default)]
    pub recalibrate: Automatic,
    /// Seconds of little load after which the device counts as idle.
    pub recalibrate_idle_seconds: Option<u32>,
    /// Namespace, by name or number, that a recalibration may overwrite.
    /// A recalibration without one only reads.
    pub recalibrate_scratch: Option<String>,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub nth: TablePosition,
}

/// The start condition of automatic recalibration, after a drift from the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Automatic {
    /// No automatic recalibration.
    #[default]
    Off,
    /// After a period of low load.
    Idle,
}

/// The extent for which the percentiles that a device promises hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Promises {
    /// Over all reads of a tenant.
    #[default]
    OnAverage,
    /// In each of its windows: of 1 000 reads in a row for the 95th percentile, and of 10 s for the
    /// 99th.
    InWindows,
}

impl Promises {
    /// Returns the extent of promises that hold in windows (`true`), or on average.
    pub fn held(in_windows: bool) -> Promises {
        if in_windows { Promises::InWindows } else { Promises::OnAverage }
    }

    /// Returns `true` if promises hold over all reads.
    pub fn are_on_average(&self) -> bool {
        *self == Promises::OnAverage
    }
}

/// Features of a device's scheduling beyond the paper (docs/explanation/scheduler.md, "Beyond the
/// paper"). All of them need a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// `true` to correct the device's rate and price of writes by measured delays.
    pub correct_online: bool,
    /// `true` to limit the requests at the device to what the strictest latency bound allows.
    pub bound_depth: bool,
    /// `true` to refuse at once requests that would miss their latency bound.
    pub fail_fast: bool,
    /// The extent for which promised percentiles hold.
    pub promises: Promises,
}

impl Switches {
    /// Returns the key of a feature that is on; `None` if all are off.
    pub fn any(&self) -> Option<&'static str> {
        let each = [
            ("correct_online", self.correct_online),
            ("bound_depth", self.bound_depth),
            ("fail_fast", self.fail_fast),
            ("promises", !self.promises.are_on_average()),
        ];
        each.into_iter().find_map(|(name, on)| on.then_some(name))
    }
}

impl Device {
    /// The default of [`idle_after`](Self::idle_after): a minute.
    pub const IDLE_AFTER: Duration = Duration::from_secs(60);

    /// Returns a device without a model, whose features are all off.
    pub fn new(name: String, spec: String) -> Device {
        Device {
            name,
            spec,
            model: None,
            correct_online: false,
            bound_depth: false,
            fail_fast: false,
            promises: Promises::OnAverage,
            recalibrate: Automatic::Off,
            recalibrate_idle_seconds: None,
            recalibrate_scratch: None,
            nth: TablePosition::default(),
        }
    }

    /// Returns the device that a command line names at position `n`. Its name is `device` and the
    /// position.
    pub fn from_argument((n, spec): (usize, &String)) -> Device {
        Device::new(format!("device{n}"), spec.clone())
    }

    /// Returns `true` if the device is recalibrated automatically when it has drifted and is idle.
    pub fn recalibrates_by_itself(&self) -> bool {
        self.recalibrate == Automatic::Idle
    }

    /// Returns the time of little load after which the device counts as idle.
    pub fn idle_after(&self) -> Duration {
        let told = self.recalibrate_idle_seconds;
        told.map_or(Device::IDLE_AFTER, |seconds| Duration::from_secs(seconds.into()))
    }

    /// Returns the optional features of the device's scheduler.
    pub fn switches(&self) -> Switches {
        let Device { correct_online, bound_depth, fail_fast, promises, .. } = *self;
        Switches { correct_online, bound_depth, fail_fast, promises }
    }

    /// Returns `true` if two devices have equal names, specs and models. Other settings may differ.
    pub fn is_same_device(&self, other: &Device) -> bool {
        (&self.name, &self.spec, &self.model) == (&other.name, &other.spec, &other.model)
    }

    /// Parses the device's spec.
    ///
    /// # Errors
    /// Fails if the text is no device spec.
    pub fn validate(&self) -> Result<flash::Spec, Mistake> {
        let parsed = self.spec.parse();
        parsed.map_err(|error| {
            ("spec", format!("device {:?}: spec {:?}: {error}", self.name, self.spec))
        })
    }

    /// Checks that a device with or without a model supports its settings.
    ///
    /// # Errors
    /// Fails if a setting needs a model and the device has none.
    pub fn check_switches(&self, has_model: bool) -> Result<(), String> {
        let by_itself = self.recalibrates_by_itself().then_some("recalibrate");
        match self.switches().any().or(by_itself) {
            Some(switch) if !has_model => Err(format!(
                "device {:?}: {switch} needs a device model, and it has none; measure one with \
                 `nearflash calibrate` and name it with `model`",
                self.name
            )),
            _ => Ok(()),
        }
    }
}
