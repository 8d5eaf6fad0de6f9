//! Models that took the place of those which the configuration names, and the namespaces that may be
//! written to for the sake of one.

use std::sync::{Arc, MutexGuard, Weak};

use control::admin::{Code, Problem};
use qos::{DeviceModel, ModelFile};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::namespaces::find;
use super::world::World;
use super::{Changes, Inner, Live};
use crate::config::Space;
use crate::recalibrate::Recalibrations;

/// A model that was measured while a server ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptModel {
    /// The model in the format of a model file.
    model: String,
    /// The SHA-256 of the model that the configuration named, as a model file: if it names another
    /// one, that counts.
    over: String,
}

impl KeptModel {
    fn of(model: &DeviceModel, configured: &DeviceModel) -> KeptModel {
        let model = ModelFile::of("", "beside tenants", model).to_toml();
        KeptModel { model, over: digest(configured) }
    }

    /// The model, if the configuration still names the one that it took the place of.
    ///
    /// # Errors
    /// Why it is not used.
    pub(crate) fn over(&self, configured: &DeviceModel) -> Result<DeviceModel, String> {
        if self.over != digest(configured) {
            return Err("the configuration names another model now".to_owned());
        }
        let file = ModelFile::parse(&self.model).map_err(|error| error.to_string())?;
        file.model().map_err(|error| error.to_string())
    }
}

fn digest(model: &DeviceModel) -> String {
    let text = ModelFile::of("", "", model).to_toml();
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Live {
    /// Sets the recalibrations, which must know of changes to namespaces.
    pub(crate) fn set_recalibrations(&self, recalibrations: &Arc<Recalibrations>) {
        // It has a handle on this.
        let _ = self.recalibrations.set(Arc::downgrade(recalibrations));
    }

    pub(super) fn recalibrations(&self) -> Option<Arc<Recalibrations>> {
        self.recalibrations.get().and_then(Weak::upgrade)
    }

    /// Keeps a model for a device, or goes back to the configuration's, for an operator.
    pub(crate) fn keep_model(
        &self,
        device: &str,
        model: Option<&DeviceModel>,
    ) -> Result<(), Problem> {
        self.keep_model_in(device, model, self.lock_for_change()?)
    }

    /// Keeps a model for a device when other changes let it, however long that is.
    pub(crate) fn keep_model_at_last(
        &self,
        device: &str,
        model: &DeviceModel,
    ) -> Result<(), Problem> {
        self.keep_model_in(device, Some(model), self.lock())
    }

    fn keep_model_in(
        &self,
        device: &str,
        model: Option<&DeviceModel>,
        mut inner: MutexGuard<'_, Inner>,
    ) -> Result<(), Problem> {
        let kept = match model {
            None => None,
            Some(model) => {
                let registry = self.ground.tenants.registry();
                Some(KeptModel::of(model, registry.configured_model(device)?))
            }
        };
        let mut changes: Changes = inner.changes.clone();
        match kept {
            Some(kept) => changes.models.insert(device.to_owned(), kept),
            None => changes.models.remove(device),
        };
        inner.keep(changes)?;
        inner.refresh_config();
        self.show(&inner);
        Ok(())
    }

    /// Shows the namespace that a device may be written to in, by name or number, while it stays as
    /// it is; `None` where none is named.
    ///
    /// # Errors
    /// Fails if there is no such namespace, or it is none that can be given away.
    pub(crate) fn with_scratch<T>(
        &self,
        device: &str,
        name: Option<&str>,
        then: impl FnOnce(Option<&Space>) -> T,
    ) -> Result<T, Problem> {
        let inner = self.lock_for_change()?;
        inner.check_thawed()?;
        let Some(name) = name else { return Ok(then(None)) };
        Ok(then(Some(self.find_scratch(&inner.world, device, name)?)))
    }

    /// A namespace that a device may be written to in, by name or number.
    ///
    /// # Errors
    /// As [`with_scratch`](Live::with_scratch).
    pub(super) fn find_scratch<'a>(
        &self,
        world: &'a World,
        device: &str,
        name: &str,
    ) -> Result<&'a Space, Problem> {
        let space = find(world, name)?;
        let invalid = |why: String| {
            let message = format!("namespace {:?} cannot be scratch: {why}", space.name);
            Err(Problem::new(Code::Invalid, message))
        };
        let (at, _) = self.ground.tenants.registry().shared(device)?;
        if space.place.device != at {
            return invalid(format!("it is not on device {device:?}"));
        }
        if space.place.read_only {
            return invalid("it is read-only".to_owned());
        }
        if space.place.blocks < 16 {
            return invalid("it is smaller than two pages of 4 KiB".to_owned());
        }
        let shares = |other: &&Space| {
            let (a, b) = (&other.place, &space.place);
            let meets = a.first < b.first + b.blocks && b.first < a.first + a.blocks;
            other.number != space.number && a.device == b.device && meets
        };
        if let Some(other) = world.spaces.iter().find(shares) {
            return invalid(format!("it shares blocks with namespace {:?}", other.name));
        }
        Ok(space)
    }
}
