//! A device that tenants share: its setup, its registry, and what the log was told of its drift.

use std::time::Duration;

use contract::Instant;
use qos::{DeviceModel, Drift, Registry};
use spec::Switches;

/// The setup of a device that tenants share.
#[derive(Clone, Debug)]
pub struct DeviceSetup {
    /// Name of the device.
    pub name: String,
    /// The model with rates and prices. Without a model, the device admits no SLO and limits no
    /// tenant.
    pub model: Option<DeviceModel>,
    /// Features of its scheduling beyond the paper.
    pub switches: Switches,
}

/// Minimum time between two log messages about one device's drift.
const TOLD_PERIOD: Duration = Duration::from_secs(30);

/// The last log message about a device's drift.
#[derive(Debug, Default)]
struct DriftTold {
    kind: Kind,
    at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Unknown,
    Fits,
    Slower,
    Faster,
}

impl Kind {
    fn of(drift: Drift) -> Kind {
        match drift {
            Drift::Unknown(_) => Kind::Unknown,
            Drift::Fits { .. } => Kind::Fits,
            Drift::Drifted { ratio, .. } if ratio < 1.0 => Kind::Slower,
            Drift::Drifted { .. } => Kind::Faster,
        }
    }
}

/// A device, with the registry of its tenants.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) has_model: bool,
    /// `true` once the device was removed; its place is not reused.
    pub(super) is_gone: bool,
    /// The configured model; `None` without one.
    pub(super) configured: Option<DeviceModel>,
    told: DriftTold,
    pub(crate) registry: Registry,
}

impl Device {
    pub(super) fn new(setup: DeviceSetup, tenants_max: usize) -> Device {
        let Switches { correct_online, bound_depth, fail_fast } = setup.switches;
        let has_model = setup.model.is_some();
        let configured = setup.model.clone();
        let model = setup.model.unwrap_or_else(DeviceModel::unlimited);
        let mut registry = Registry::new(model, tenants_max);
        registry.watch_drift(has_model, Instant::ZERO);
        registry.correct_online(correct_online, Instant::ZERO);
        registry.bound_depth(bound_depth, Instant::ZERO);
        registry.fail_fast(fail_fast);
        let told = DriftTold::default();
        Device { name: setup.name, has_model, is_gone: false, configured, told, registry }
    }

    /// Logs the begin and the end of a device's drift from its model.
    pub(super) fn tell_drift(&mut self, now: Instant) {
        let Some(drift) = self.registry.drift() else { return };
        let kind = Kind::of(drift);
        let is_recent = self.told.at.is_some_and(|at| now.since(at) < TOLD_PERIOD);
        if kind == self.told.kind || is_recent {
            return;
        }
        let before = std::mem::replace(&mut self.told.kind, kind);
        let device = self.name.as_str();
        match drift {
            Drift::Drifted { ratio, .. } => tracing::warn!(
                device,
                percent_of_model = (ratio * 100.0).round(),
                "the device has drifted from its model: at the latency that its reads have it \
                 serves another rate (docs/explanation/recalibration.md)"
            ),
            Drift::Fits { .. } if matches!(before, Kind::Slower | Kind::Faster) => {
                tracing::info!(device, "the device fits its model again");
            }
            _ => return,
        }
        self.told.at = Some(now);
    }
}
