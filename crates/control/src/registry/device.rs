//! A device that tenants share: its setup, its registry, and the last log message about its drift.

use std::sync::Arc;
use std::time::Duration;

use contract::{Chores, Instant, Promise, Share, Slo, TenantId, Tokens};
use qos::{DeviceModel, Drift, FairShare, Percentile, RatePoint, Registry, Windows};
use spec::{Promises, Switches};

use crate::info::{ChoreInfo, DeviceInfo, Refusal};
use crate::totals::TOKEN;

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
const LOG_PERIOD: Duration = Duration::from_secs(30);

/// The last log message about a device's drift.
#[derive(Debug, Default)]
struct LastDriftLog {
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
pub(super) struct DeviceEntry {
    pub(super) name: String,
    pub(super) has_model: bool,
    /// `true` once the device was removed.
    pub(super) is_gone: bool,
    /// The token flows of the registries of earlier devices with this index.
    pub(super) made_before: Tokens,
    /// The configured model; `None` without one.
    pub(super) configured: Option<DeviceModel>,
    told: LastDriftLog,
    /// The interface to the device's background work, such as garbage collection; `None` if the
    /// device does none.
    chores: Option<Arc<dyn Chores>>,
    pub(super) registry: Registry,
}

impl DeviceEntry {
    pub(super) fn new(setup: DeviceSetup, tenants_max: usize) -> DeviceEntry {
        let Switches { correct_online, bound_depth, fail_fast, promises } = setup.switches;
        let has_model = setup.model.is_some();
        let configured = setup.model.clone();
        let model = setup.model.unwrap_or_else(DeviceModel::unlimited);
        let mut registry = Registry::new(model, tenants_max);
        registry.watch_drift(has_model, Instant::ZERO);
        registry.correct_online(correct_online, Instant::ZERO);
        registry.bound_depth(bound_depth, Instant::ZERO);
        registry.fail_fast(fail_fast);
        Windows::of(&mut registry).promise(promises == Promises::InWindows, Instant::ZERO);
        let told = LastDriftLog::default();
        DeviceEntry {
            name: setup.name,
            has_model,
            is_gone: false,
            made_before: Tokens::default(),
            configured,
            told,
            chores: None,
            registry,
        }
    }

    /// Returns the token flows of this registry and of the registries of earlier devices with this
    /// index.
    pub(super) fn made(&self) -> Tokens {
        Tokens::from(self.registry.totals()).after(self.made_before)
    }

    /// Returns the description of the device for operators.
    pub(super) fn info(&self) -> DeviceInfo {
        let registry = &self.registry;
        DeviceInfo {
            name: self.name.clone(),
            has_model: self.has_model,
            tokens: self.has_model.then(|| registry.device_rate() / TOKEN),
            tokens_promised: registry.promised().div_ceil(TOKEN),
            tokens_left: self.tokens_left(),
            tokens_headroom: Windows::headroom(registry) / TOKEN,
            latency_us: registry.latency_us_min(),
            correction: registry.is_corrected().then(|| registry.adjustment()),
            drift: registry.drift(),
            is_remodelled: self.is_remodelled(),
            chores: self.chores.as_ref().map(|chores| ChoreInfo {
                done: chores.done(),
                taxes: qos::Taxes::view(&self.registry).map(|view| [view.tax, view.promised_tax]),
            }),
        }
    }

    /// Watches the work that the device does of its own accord. With a model, its writes are taxed
    /// for it, and promises reckon with it.
    pub(super) fn expect_chores(&mut self, chores: Arc<dyn Chores>, now: Instant) {
        if self.has_model {
            self.registry.taxes().expect(chores.uniform(), chores.pages(), now);
        }
        self.chores = Some(chores);
    }

    /// Charges the tenants for the background work that the device has done since the last call.
    pub(super) fn charge_chores(&mut self, now: Instant) {
        if let Some(chores) = &self.chores {
            self.registry.taxes().charge(chores.done(), now);
        }
    }

    /// Returns the tokens per second that are not promised; `None` without a model.
    pub(crate) fn tokens_left(&self) -> Option<u64> {
        self.has_model.then(|| self.registry.left() / TOKEN)
    }

    /// Checks whether the device can promise this: an SLO needs a model with its percentile, a
    /// share other than the default needs a model.
    ///
    /// # Errors
    /// Fails with the reason.
    pub(super) fn check_promise(&self, promise: Promise) -> Result<(), Refusal> {
        let share = match promise {
            Promise::LatencyCritical(slo) => return self.check_slo(slo),
            Promise::BestEffort(share) => share,
        };
        if share != Share::default() && !self.has_model {
            return Err(Refusal::Invalid(format!(
                "weight and cap_tokens share out the tokens of a device model, and device {:?} has \
                 none; measure one with `nearflash calibrate` and name it with `model` or `--model`",
                self.name
            )));
        }
        share.check().map_err(Refusal::Invalid)
    }

    /// Checks whether the device has a model that gives rates for the latency of this SLO.
    ///
    /// # Errors
    /// Fails with the reason.
    pub(super) fn check_slo(&self, slo: Slo) -> Result<(), Refusal> {
        let model = self.model()?;
        match Percentile::from_tenths(slo.percentile_tenths) {
            Some(percentile) if model.points_at(percentile).is_empty() => {
                Err(Refusal::NotMeasured { device: self.name.clone(), percentile })
            }
            _ => Ok(()),
        }
    }

    /// Sets the share of a tenant, if the device has a model. The share was checked.
    pub(super) fn put_share(&mut self, tenant: TenantId, share: Share, now: Instant) {
        let Share { weight, cap_tokens } = share;
        let portion = FairShare { weight, cap: cap_tokens.map(|tokens| tokens * TOKEN) };
        if self.has_model {
            let set = self.registry.set_portion(tenant, portion, now);
            assert!(set.is_ok(), "a tenant is known to every device, and the share was checked");
        }
    }

    /// Returns the share that a tenant has, or had when it was last best effort.
    pub(super) fn share_of(&self, tenant: TenantId) -> Share {
        let FairShare { weight, cap } = self.registry.portion(tenant);
        Share { weight, cap_tokens: cap.map(|units| units / TOKEN) }
    }

    /// Returns the device's model.
    ///
    /// # Errors
    /// Fails if the device has no model.
    pub(super) fn model(&self) -> Result<&DeviceModel, Refusal> {
        match self.has_model {
            true => Ok(self.registry.model()),
            false => Err(Refusal::NoModel { device: self.name.clone() }),
        }
    }

    /// Returns `true` if the device exists and its model is not the configured one.
    pub(super) fn is_remodelled(&self) -> bool {
        let other = self.configured.as_ref().is_some_and(|model| model != self.registry.model());
        other && !self.is_gone
    }

    /// Returns the strictest latency bound in microseconds at p95; `None` without an SLO. For an
    /// SLO at p99, that is the p95 latency at which the model delivers no more than the SLO
    /// permits.
    pub(super) fn strictest_us(&self) -> Option<u32> {
        let model = self.registry.model();
        let at_p95 = self.registry.promises().map(|(_, promise)| match promise.percentile {
            Percentile::P95 => promise.latency_us,
            Percentile::P99 => {
                let slower = |row: &&RatePoint| row.mixed <= promise.limit;
                let row = model.points().iter().rev().find(slower);
                row.map_or(model.latency_us_min(), |row| row.latency_us).min(promise.latency_us)
            }
        });
        at_p95.min()
    }

    /// Switches features on and off. Features that stay on go on undisturbed.
    ///
    /// # Errors
    /// Fails if the device has no model, which all features need.
    pub(super) fn switch(
        &mut self,
        before: Switches,
        after: Switches,
        now: Instant,
    ) -> Result<(), Refusal> {
        if after.any().is_some() {
            self.model()?;
        }
        if after.correct_online != before.correct_online {
            self.registry.correct_online(after.correct_online, now);
        }
        if after.bound_depth != before.bound_depth {
            self.registry.bound_depth(after.bound_depth, now);
        }
        self.registry.fail_fast(after.fail_fast);
        if after.promises != before.promises {
            Windows::of(&mut self.registry).promise(after.promises == Promises::InWindows, now);
        }
        Ok(())
    }

    /// Corrects the device's model and bounds its depth by the measurements since the last call, if
    /// these features are [switched on](Switches) and their window is over. Also checks whether the
    /// device has drifted from its model. Returns `true` if prices have changed.
    pub(super) fn observe(&mut self, waited: Duration, now: Instant) -> bool {
        let before = self.registry.adjustment();
        let adjustment = self.registry.observe(waited, now);
        self.tell_drift(now);
        if adjustment == before {
            return false;
        }
        tracing::info!(
            device = self.name,
            rate_permille = adjustment.rate_permille,
            write_permille = adjustment.write_permille,
            "the device's model is corrected"
        );
        true
    }

    /// Logs the beginning and the end of a device's drift from its model.
    fn tell_drift(&mut self, now: Instant) {
        let Some(drift) = self.registry.drift() else { return };
        let kind = Kind::of(drift);
        let is_recent = self.told.at.is_some_and(|at| now.since(at) < LOG_PERIOD);
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
