//! The shares of best-effort tenants in the tokens that SLOs leave.

use contract::{Instant, Slo};

use super::{Origin, TenantRegistry};
use crate::info::{Admission, Refusal, Share};

impl TenantRegistry {
    /// Changes the share of a best-effort tenant on each device that has a model. New tenants have
    /// the [default](Share::default).
    ///
    /// # Errors
    /// Fails if there is no such tenant, if it has an SLO, if the share is invalid, or if its device
    /// has no model.
    pub fn set_share(&mut self, name: &str, share: Share, now: Instant) -> Result<(), Refusal> {
        let tenant = self.known(name)?;
        let entry = self.entry(tenant);
        self.check_share(entry.slo, share, entry.device)?;
        let portion = share.portion()?;
        for device in self.devices.iter_mut().filter(|device| device.has_model) {
            let set = device.registry.set_portion(tenant, portion, now);
            assert!(set.is_ok(), "a tenant is known to every device, and the share was checked");
        }
        Ok(())
    }

    /// Checks whether a tenant of this SLO can have a share of a device's rest.
    fn check_share(&self, slo: Option<Slo>, share: Share, device: usize) -> Result<(), Refusal> {
        let invalid = |why: String| Err(Refusal::Invalid(why));
        if slo.is_some() {
            let why =
                "weight and cap_tokens are of best effort, and the tenant is promised a latency";
            return invalid(why.to_owned());
        }
        let device = &self.devices[device];
        if !device.has_model {
            return invalid(format!(
                "weight and cap_tokens share out the tokens of a device model, and device {:?} has \
                 none; measure one with `nearflash calibrate` and name it with `model` or `--model`",
                device.name
            ));
        }
        share.portion().map(drop)
    }

    /// [Registers](TenantRegistry::register) a tenant and sets its share: both or neither.
    ///
    /// # Errors
    /// Fails with the errors of both operations.
    pub fn register_sharing(
        &mut self,
        name: &str,
        slo: Option<Slo>,
        share: Option<Share>,
        device: Option<&str>,
        origin: Origin,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        if let Some(share) = share {
            self.check_share(slo, share, self.device(device)?)?;
        }
        let admission = self.register(name, slo, device, origin, now)?;
        if let Some(share) = share {
            self.set_share(name, share, now)?;
        }
        Ok(admission)
    }

    /// [Changes](TenantRegistry::change) a tenant's SLO and its share: both or neither.
    ///
    /// # Errors
    /// Fails with the errors of both operations; then the old values stand.
    pub fn change_sharing(
        &mut self,
        name: &str,
        slo: Option<Slo>,
        share: Option<Share>,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        if let Some(share) = share {
            self.check_share(slo, share, self.entry(self.known(name)?).device)?;
        }
        let admission = self.change(name, slo, now)?;
        if let Some(share) = share {
            self.set_share(name, share, now)?;
        }
        Ok(admission)
    }
}
