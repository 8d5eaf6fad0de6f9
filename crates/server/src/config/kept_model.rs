//! A measured device model that replaces the model of the configuration.

use qos::{DeviceModel, ModelFile};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A model that was measured while a server ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptModel {
    /// The model in the format of a model file.
    model: String,
    /// The SHA-256 of the configured model at the time of the measurement. If the configuration
    /// names another model, that one is used.
    over: String,
}

impl KeptModel {
    /// Returns the form in which a measured model is kept, to replace the model that is configured
    /// now.
    pub(crate) fn of(model: &DeviceModel, configured: &DeviceModel) -> KeptModel {
        let model = ModelFile::of("", "beside tenants", model).to_toml();
        KeptModel { model, over: digest(configured) }
    }

    /// Returns the measured model, if the configuration still names the model that it replaced.
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
