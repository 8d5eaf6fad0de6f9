//! The shares of best-effort tenants in the tokens that SLOs leave.

use contract::{Instant, Promise, Share, TenantId};
use qos::Portion;

use super::TenantRegistry;
use crate::info::Refusal;
use crate::totals::TOKEN;

impl TenantRegistry {
    /// Checks whether a device can promise this: an SLO needs a model with its percentile, a share
    /// other than the default needs a model.
    pub(super) fn check_promise(&self, device: usize, promise: Promise) -> Result<(), Refusal> {
        let share = match promise {
            Promise::LatencyCritical(slo) => return self.check_model(device, slo),
            Promise::BestEffort(share) => share,
        };
        let device = &self.devices[device];
        if share != Share::default() && !device.has_model {
            return Err(Refusal::Invalid(format!(
                "weight and cap_tokens share out the tokens of a device model, and device {:?} has \
                 none; measure one with `nearflash calibrate` and name it with `model` or `--model`",
                device.name
            )));
        }
        share.check().map_err(Refusal::Invalid)
    }

    /// Sets the share of a tenant on each device that has a model. The share was checked.
    pub(super) fn put_share(&mut self, tenant: TenantId, share: Share, now: Instant) {
        let Share { weight, cap_tokens } = share;
        let portion = Portion { weight, cap: cap_tokens.map(|tokens| tokens * TOKEN) };
        for device in self.devices.iter_mut().filter(|device| device.has_model) {
            let set = device.registry.set_portion(tenant, portion, now);
            assert!(set.is_ok(), "a tenant is known to every device, and the share was checked");
        }
    }

    /// Returns the share that a tenant has, or had when it was last best effort.
    pub(super) fn share_of(&self, tenant: TenantId) -> Share {
        let Portion { weight, cap } =
            self.devices[self.entry(tenant).device].registry.portion(tenant);
        Share { weight, cap_tokens: cap.map(|units| units / TOKEN) }
    }
}
