//! Live changes of a device's settings: its features beyond the paper, its recalibration policy and
//! its model.

use control::admin::{Code, DeviceSettings, Problem, SetDevice};
use qos::DeviceModel;

use super::world::World;
use super::{Inner, Live};
use crate::config::{Config, DeviceConfig};
use crate::tenancy;

impl Live {
    /// Returns the settings of all devices.
    pub(super) fn told_settings(&self) -> Vec<DeviceSettings> {
        let devices = self.seen().world.config.all_devices();
        devices.iter().map(DeviceConfig::settings).collect()
    }

    /// Says other things of a device.
    pub(super) fn change_device(
        &self,
        name: &str,
        to: &SetDevice,
    ) -> Result<DeviceSettings, Problem> {
        let recalibrations = self.recalibrations();
        let held = to.model.as_ref().and(recalibrations.as_ref());
        let _models = held.map(|held| held.hold_models(name)).transpose()?;
        let mut inner = self.lock_for_change()?;
        inner.check_thawed()?;
        let before = find(&inner.world.config, name)?;
        check_fixed(&before, to)?;
        let after = before.set(to);
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
                None => tenancy::text_of(self.ground.tenants.registry().configured_model(name)?),
            };
            changes.named_models.insert(name.to_owned(), text);
        }
        changes.devices.insert(name.to_owned(), Some(after.clone()));
        let world = World::of(inner.base.with(&changes), &self.ground, &inner.open, true);
        let world = world.map_err(|error| Problem::new(Code::Invalid, error))?;
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
        self.adopt(&mut inner, world);
        tracing::info!(device = name, to = ?to, "device changed");
        Ok(after.settings())
    }

    /// Checks that a device supports these settings. Returns its new model, if it gets one.
    fn check_device(
        &self,
        inner: &Inner,
        after: &DeviceConfig,
        to: &SetDevice,
    ) -> Result<Option<DeviceModel>, Problem> {
        let invalid = |error| Problem::new(Code::Invalid, error);
        let name = after.name.as_str();
        let has_model = self.ground.tenants.registry().configured_model(name).is_ok();
        tenancy::check_switches(after, has_model).map_err(invalid)?;
        if let Some(scratch) = to.recalibrate_scratch.as_deref().filter(|name| !name.is_empty()) {
            self.find_scratch(&inner.world, name, scratch)?;
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

    /// Has a device trust another model, if all fits that is promised there; the model that was
    /// configured before, and the one that it had.
    fn exchange_model(
        &self,
        name: &str,
        to: &SetDevice,
        model: DeviceModel,
    ) -> Result<(DeviceModel, DeviceModel), Problem> {
        let (tenants, now) = (&self.ground.tenants, self.ground.tenants.now());
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
        let before = (registry.configured_model(name)?.clone(), registry.model(name)?.clone());
        registry.configure_model(name, model, now)?;
        Ok(before)
    }

    /// A model that could not be kept is not used.
    fn put_model_back(&self, name: &str, (configured, had): (DeviceModel, DeviceModel)) {
        let (tenants, now) = (&self.ground.tenants, self.ground.tenants.now());
        let mut registry = tenants.registry();
        let back = registry.configure_model(name, configured, now);
        if let Err(refusal) = back.and_then(|()| registry.set_model(name, had, now)) {
            tracing::error!(%refusal, device = name, "the device's previous model cannot be restored");
        }
    }

    /// Has a device do what is said of it now; its model aside.
    fn follow_device(&self, before: &DeviceConfig, after: &DeviceConfig) {
        let (tenants, now) = (&self.ground.tenants, self.ground.tenants.now());
        let (from, to) = (before.switches(), after.switches());
        if let Err(refusal) = tenants.registry().set_switches(&after.name, from, to, now) {
            tracing::error!(%refusal, "a checked change of a device was refused");
        }
        if let Some(recalibrations) = self.recalibrations() {
            recalibrations.device_changes(after);
        }
    }

    /// Takes what another configuration says of devices that it has as well, if it can be: where it
    /// cannot, why.
    pub(super) fn take_settings(
        &self,
        inner: &Inner,
        base: &Config,
        known: &DeviceConfig,
        new: &DeviceConfig,
    ) -> Result<(), String> {
        if !new.is_same_device(known) {
            return Err(format!("device {:?} would be another", new.name));
        }
        let has_model = self.ground.tenants.registry().configured_model(&new.name).is_ok();
        tenancy::check_switches(new, has_model)?;
        check_named(inner, base, new)?;
        let recalibrations = self.recalibrations();
        let cleared = recalibrations.map_or(Ok(()), |probing| probing.clear_for_device(new));
        cleared.map_err(|problem| format!("device {:?}: {}", new.name, problem.message))
    }

    /// Another configuration was taken: has the devices that were there `before` do what it says.
    pub(super) fn follow_devices(&self, before: &[DeviceConfig], after: &[DeviceConfig]) {
        for was in before {
            let now = after.iter().find(|now| now.name == was.name && *now != was);
            now.iter().for_each(|now| self.follow_device(was, now));
        }
    }
}

fn find(config: &Config, name: &str) -> Result<DeviceConfig, Problem> {
    let found = config.all_devices().into_iter().find(|device| device.name == name);
    found.ok_or_else(|| Problem::unknown(Code::NoDevice, "device", name, config.device_names()))
}

/// Checks that another configuration has the namespace that recalibrations of a device may
/// overwrite.
fn check_named(inner: &Inner, base: &Config, new: &DeviceConfig) -> Result<(), String> {
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

/// # Errors
/// Something is to be another that stays as long as the device is there.
fn check_fixed(device: &DeviceConfig, to: &SetDevice) -> Result<(), Problem> {
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
