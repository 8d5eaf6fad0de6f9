//! The port by which recalibrations reach the configuration of the server.

use control::admin::Problem;
use qos::DeviceModel;

use crate::config::ServerNamespace;

/// The part of a server that stores models and knows where probes may write.
pub(crate) trait ModelStore: Send + Sync {
    /// Stores an operator's choice of a device's model; `None` returns the device to the configured
    /// model.
    fn keep_model(&self, device: &str, model: Option<&DeviceModel>) -> Result<(), Problem>;

    /// Stores a device's model like [`keep_model`](ModelStore::keep_model), but waits for other
    /// changes without a time limit.
    fn keep_model_at_last(&self, device: &str, model: Option<&DeviceModel>) -> Result<(), Problem>;

    /// Calls `then` with the scratch namespace of a device, given by name or number, while the
    /// namespace cannot change. `None` stands for no scratch namespace. Calls `then` once, unless
    /// the namespace is not found.
    ///
    /// # Errors
    /// Fails if there is no such namespace, or probes cannot overwrite it.
    fn show_scratch(
        &self,
        device: &str,
        name: Option<&str>,
        then: &mut dyn FnMut(Option<&ServerNamespace>),
    ) -> Result<(), Problem>;
}

impl dyn ModelStore {
    /// Returns the result of `then` for the namespace that
    /// [`show_scratch`](ModelStore::show_scratch) finds.
    pub(super) fn with_scratch<T>(
        &self,
        device: &str,
        name: Option<&str>,
        then: impl FnOnce(Option<&ServerNamespace>) -> T,
    ) -> Result<T, Problem> {
        let (mut then, mut told) = (Some(then), None);
        self.show_scratch(device, name, &mut |space| told = then.take().map(|then| then(space)))?;
        Ok(told.expect("it was shown"))
    }
}
