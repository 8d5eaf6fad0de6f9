//! Measured models that replace the configured ones, and the namespaces that probes may overwrite.

use std::sync::MutexGuard;

use control::Tenants;
use control::admin::{Code, Problem};
use qos::DeviceModel;

use super::namespaces::find;
use super::world::ServerSnapshot;
use super::{Changes, LiveConfig, LiveState};
use crate::config::{KeptModel, ServerNamespace};
use crate::recalibrate::ModelStore;

impl ModelStore for LiveConfig {
    fn keep_model(&self, device: &str, model: Option<&DeviceModel>) -> Result<(), Problem> {
        self.keep_model_in(device, model, self.lock_for_change()?)
    }

    fn keep_model_at_last(&self, device: &str, model: Option<&DeviceModel>) -> Result<(), Problem> {
        self.keep_model_in(device, model, self.lock())
    }

    fn show_scratch(
        &self,
        device: &str,
        name: Option<&str>,
        then: &mut dyn FnMut(Option<&ServerNamespace>),
    ) -> Result<(), Problem> {
        let inner = self.lock_for_change()?;
        inner.check_thawed()?;
        let tenants = &self.reconciler.ground.tenants;
        let find = |name| find_scratch(tenants, &inner.world, device, name);
        then(name.map(find).transpose()?);
        Ok(())
    }
}

impl LiveConfig {
    fn keep_model_in(
        &self,
        device: &str,
        model: Option<&DeviceModel>,
        mut inner: MutexGuard<'_, LiveState>,
    ) -> Result<(), Problem> {
        let kept = match model {
            None => None,
            Some(model) => {
                let registry = self.reconciler.ground.tenants.registry();
                Some(KeptModel::of(model, registry.devices().configured_model(device)?))
            }
        };
        let mut changes: Changes = inner.changes.clone();
        match kept {
            Some(kept) => changes.models.insert(device.to_owned(), kept),
            None => changes.models.remove(device),
        };
        inner.keep(changes)?;
        inner.refresh_config();
        self.reconciler.show(&inner);
        Ok(())
    }
}

/// Finds the scratch namespace of a device, by name or number.
///
/// # Errors
/// Fails if there is no such namespace, or probes cannot overwrite it.
pub(super) fn find_scratch<'a>(
    tenants: &Tenants,
    world: &'a ServerSnapshot,
    device: &str,
    name: &str,
) -> Result<&'a ServerNamespace, Problem> {
    let space = find(world, name)?;
    let invalid = |why: String| {
        let message = format!("namespace {:?} cannot be scratch: {why}", space.name);
        Err(Problem::new(Code::Invalid, message))
    };
    let (at, _) = tenants.registry().devices().shared(device)?;
    if space.place.device != at {
        return invalid(format!("it is not on device {device:?}"));
    }
    if space.place.read_only {
        return invalid("it is read-only".to_owned());
    }
    if space.place.blocks < 16 {
        return invalid("it is smaller than two pages of 4 KiB".to_owned());
    }
    let shares = |other: &&ServerNamespace| {
        let (a, b) = (&other.place, &space.place);
        let meets = a.first < b.first + b.blocks && b.first < a.first + a.blocks;
        other.number != space.number && a.device == b.device && meets
    };
    if let Some(other) = world.spaces.iter().find(shares) {
        return invalid(format!("it shares blocks with namespace {:?}", other.name));
    }
    Ok(space)
}
