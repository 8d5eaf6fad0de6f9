//! A device model that was measured, and takes the place of the one that the configuration names.

use qos::{DeviceModel, ModelFile};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

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
    /// Returns a model as it is kept instead of the configured one.
    pub(crate) fn of(model: &DeviceModel, configured: &DeviceModel) -> KeptModel {
        let model = ModelFile::of("", "beside tenants", model).to_toml();
        KeptModel { model, over: digest(configured) }
    }

    /// Returns the model, if the configuration still names the model that it has replaced.
    ///
    /// # Errors
    /// Fails with the reason why it is not used.
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
