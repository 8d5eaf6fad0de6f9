//! Live changes of a device's settings: its features beyond the paper, its recalibration policy and
//! its model.

use std::sync::MutexGuard;

use control::admin::{Code, DevicePatch, DeviceSettings, Problem};
use qos::DeviceModel;
use spec::{Device, diff};

use super::LiveState;
use super::disks::Devices;
use super::models::find_scratch;
use crate::config::Config;
use crate::tenancy;

impl Devices<'_> {
    /// Returns the settings of all devices.
    pub(super) fn told_settings(&self) -> Vec<DeviceSettings> {
        let devices = self.0.seen().world.config.all_devices();
        devices.iter().map(settings).collect()
    }

    /// Changes the settings of a device.
    pub(super) fn set<'a>(
        &self,
        lock: impl FnOnce() -> Result<MutexGuard<'a, LiveState>, Problem>,
        name: &str,
        to: &DevicePatch,
    ) -> Result<DeviceSettings, Problem> {
        let recalibrations = self.0.recalibrations();
        let held = to.model.as_ref().and(recalibrations.as_ref());
        let _models = held.map(|held| held.hold_models(name)).transpose()?;
        let mut inner = lock()?;
        let before = find(&inner.world.config, name)?;
        check_fixed(&before, to)?;
        let after = set(&before, to);
        let model = self.check_device(&inner, &after, to)?;
        let mut changes = inner.changes.clone();
        if model.is_some() {
            // What was measured took the place of another.
            changes.models.remove(name);
        }
        if after.model.is_some() {
            // From now on the model is named here, and maybe nowhere else.
            let text = match &model {
                Some(model) => tenancy::text_of(model),
                None => tenancy::text_of(
                    self.0.ground.tenants.registry().devices().configured_model(name)?,
                ),
            };
            changes.named_models.insert(name.to_owned(), text);
        }
        changes.devices.insert(name.to_owned(), Some(after.clone()));
        let world = self.0.world(&inner, &changes, &inner.open)?;
        if let Some(recalibrations) = &recalibrations {
            recalibrations.clear_for_device(&after)?;
        }
        let before_models = model.map(|model| self.exchange_model(name, to, model)).transpose()?;
        if let Err(problem) = inner.keep(changes) {
            if let Some(before) = before_models {
                self.put_model_back(name, before);
            }
            return Err(problem);
        }
        self.follow_device(&before, &after);
        if let Some(held) = held {
            held.model_changes(name);
        }
        self.0.adopt(&mut inner, world);
        tracing::info!(device = name, to = ?to, "device changed");
        Ok(settings(&after))
    }

    /// Checks that a device supports these settings. Returns its new model, if it gets one.
    fn check_device(
        &self,
        inner: &LiveState,
        after: &Device,
        to: &DevicePatch,
    ) -> Result<Option<DeviceModel>, Problem> {
        let invalid = |error| Problem::new(Code::Invalid, error);
        let name = after.name.as_str();
        let has_model = self.0.ground.tenants.registry().devices().configured_model(name).is_ok();
        after.check_switches(has_model).map_err(invalid)?;
        if let Some(scratch) = to.recalibrate_scratch.as_deref().filter(|name| !name.is_empty()) {
            find_scratch(&self.0.ground.tenants, &inner.world, name, scratch)?;
        }
        let Some(named) = &to.model else { return Ok(None) };
        if !has_model {
            let message = format!(
                "device {name:?} has no model, and gets none while it serves: everybody may spend as much \
                 as they like there. Remove it and add it again with one, or restart the server"
            );
            return Err(Problem::new(Code::Fixed, message));
        }
        tenancy::model(named).map(Some).map_err(invalid)
    }

    /// Makes a device use another model, if all promises on it still fit. Returns the model that
    /// was configured before, and the one that was in use.
    fn exchange_model(
        &self,
        name: &str,
        to: &DevicePatch,
        model: DeviceModel,
    ) -> Result<(DeviceModel, DeviceModel), Problem> {
        let (tenants, now) = (&self.0.ground.tenants, self.0.ground.tenants.now());
        // One lock, so that nobody is promised anything in between.
        let mut registry = tenants.registry();
        let displaced = registry.displaced(name, &model)?;
        if !displaced.is_empty() {
            let message = format!(
                "what is promised on device {name:?} does not fit into the model {:?}; it would without \
                 the promises of {}",
                to.model.as_deref().unwrap_or_default(),
                displaced.join(", ")
            );
            return Err(Problem::new(Code::TooMuch, message));
        }
        let before = (
            registry.devices().configured_model(name)?.clone(),
            registry.devices().model(name)?.clone(),
        );
        registry.configure_model(name, model, now)?;
        Ok(before)
    }

    /// Restores the former model of a device after the new one could not be stored.
    fn put_model_back(&self, name: &str, (configured, had): (DeviceModel, DeviceModel)) {
        let (tenants, now) = (&self.0.ground.tenants, self.0.ground.tenants.now());
        let mut registry = tenants.registry();
        let back = registry.configure_model(name, configured, now);
        if let Err(refusal) = back.and_then(|()| registry.set_model(name, had, now)) {
            tracing::error!(%refusal, device = name, "the device's previous model cannot be restored");
        }
    }

    /// Applies changed settings to a device, except its model.
    fn follow_device(&self, before: &Device, after: &Device) {
        let (tenants, now) = (&self.0.ground.tenants, self.0.ground.tenants.now());
        let (from, to) = (before.switches(), after.switches());
        if let Err(refusal) = tenants.registry().set_switches(&after.name, from, to, now) {
            tracing::error!(%refusal, "a checked change of a device was refused");
        }
        if let Some(recalibrations) = self.0.recalibrations() {
            recalibrations.device_changes(after);
        }
    }

    /// Checks that a device supports the settings of another configuration, and ends recalibration
    /// probes that these forbid. Fails with the reason.
    pub(super) fn take_settings(
        &self,
        inner: &LiveState,
        base: &Config,
        known: &Device,
        new: &Device,
    ) -> Result<(), String> {
        if !new.is_same_device(known) {
            return Err(format!("device {:?} would be another", new.name));
        }
        let has_model =
            self.0.ground.tenants.registry().devices().configured_model(&new.name).is_ok();
        new.check_switches(has_model)?;
        check_named(inner, base, new)?;
        let recalibrations = self.0.recalibrations();
        let cleared = recalibrations.map_or(Ok(()), |probing| probing.clear_for_device(new));
        cleared.map_err(|problem| format!("device {:?}: {}", new.name, problem.message))
    }

    /// Applies the changed settings of a new configuration to the devices that were in the old one.
    pub(super) fn follow_devices(&self, before: &[Device], after: &[Device]) {
        let different = diff(before, after, |device| device.name.clone());
        for was in before {
            if let Some(Some(now)) = different.get(&was.name) {
                self.follow_device(was, now);
            }
        }
    }
}

/// Returns the settings of a device as the admin API shows them.
fn settings(device: &Device) -> DeviceSettings {
    DeviceSettings {
        name: device.name.clone(),
        spec: device.spec.clone(),
        model: device.model.clone(),
        correct_online: device.correct_online,
        bound_depth: device.bound_depth,
        fail_fast: device.fail_fast,
        promises: device.promises,
        recalibrate: device.recalibrate,
        recalibrate_idle_seconds: device.idle_after().as_secs() as u32,
        recalibrate_scratch: device.recalibrate_scratch.clone(),
    }
}

/// Returns the device with the settings of `to`; absent settings stay as they are.
fn set(device: &Device, to: &DevicePatch) -> Device {
    let scratch = match to.recalibrate_scratch.as_deref() {
        None => device.recalibrate_scratch.clone(),
        Some("") => None,
        Some(name) => Some(name.to_owned()),
    };
    Device {
        model: to.model.clone().or_else(|| device.model.clone()),
        correct_online: to.correct_online.unwrap_or(device.correct_online),
        bound_depth: to.bound_depth.unwrap_or(device.bound_depth),
        fail_fast: to.fail_fast.unwrap_or(device.fail_fast),
        promises: to.promises.unwrap_or(device.promises),
        recalibrate: to.recalibrate.unwrap_or(device.recalibrate),
        recalibrate_idle_seconds: to.recalibrate_idle_seconds.or(device.recalibrate_idle_seconds),
        recalibrate_scratch: scratch,
        ..device.clone()
    }
}

fn find(config: &Config, name: &str) -> Result<Device, Problem> {
    let found = config.all_devices().into_iter().find(|device| device.name == name);
    found.ok_or_else(|| Problem::unknown(Code::NoDevice, "device", name, config.device_names()))
}

/// Checks that another configuration has the namespace that recalibrations of a device may
/// overwrite.
fn check_named(inner: &LiveState, base: &Config, new: &Device) -> Result<(), String> {
    let Some(scratch) = &new.recalibrate_scratch else { return Ok(()) };
    let said = base.numbered_namespaces().into_iter().map(|one| (one.number, one.name));
    let spaces = inner.world.spaces.iter();
    let there = spaces.map(|space| (Some(space.number.0), Some(space.name.clone())));
    let number = scratch.parse::<u16>().ok();
    let is_it = |(own, name): (Option<u16>, Option<String>)| {
        name.as_ref() == Some(scratch) || number.is_some() && own == number
    };
    match said.chain(there).any(is_it) {
        true => Ok(()),
        false => Err(format!("device {:?}: there is no namespace {scratch:?}", new.name)),
    }
}

/// Checks that a patch changes neither the name, nor the spec, nor whether the device has a model.
///
/// # Errors
/// The patch changes a setting that stays as long as the device is open.
fn check_fixed(device: &Device, to: &DevicePatch) -> Result<(), Problem> {
    let name = &device.name;
    let is_other = |told: &Option<String>, own: &str| told.as_deref().is_some_and(|t| t != own);
    let what = match (is_other(&to.name, name), is_other(&to.spec, &device.spec)) {
        (true, _) => format!("the name of device {name:?} stays"),
        (_, true) => format!("the spec of device {name:?} stays"),
        _ if to.model.as_deref() == Some("") => format!("device {name:?} keeps a model"),
        _ => return Ok(()),
    };
    let message = format!(
        "{what} while it serves: remove it and add it again (`nearflash device rm {name}`, `nearflash \
         device add`), or change the configuration and restart the server"
    );
    Err(Problem::new(Code::Fixed, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec::Automatic;

    #[test]
    fn what_is_not_named_stays() {
        let text = "[[device]]\nname = \"d\"\nspec = \"null:1MiB\"\nmodel = \"a\"\nfail_fast = true\n\
                    recalibrate_scratch = \"x\"\n";
        let device = Config::parse(text).unwrap().device.remove(0);
        assert_eq!(set(&device, &DevicePatch::default()), device);
        let to = DevicePatch {
            correct_online: Some(true),
            recalibrate: Some(Automatic::Idle),
            recalibrate_scratch: Some(String::new()),
            ..DevicePatch::default()
        };
        let after = set(&device, &to);
        assert!(after.is_same_device(&device) && after != device);
        let shown = settings(&after);
        assert!(shown.correct_online && shown.fail_fast && !shown.bound_depth);
        assert_eq!((shown.recalibrate, shown.recalibrate_idle_seconds), (Automatic::Idle, 60));
        assert_eq!((shown.recalibrate_scratch, shown.model.as_deref()), (None, Some("a")));
        let other = set(&device, &DevicePatch { model: Some("cloud".to_owned()), ..to });
        assert!(!other.is_same_device(&device));
    }
}
