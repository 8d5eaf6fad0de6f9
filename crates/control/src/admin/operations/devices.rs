//! The functions of the API's operations on devices, their models and their recalibrations.

use crate::admin::dashboard::Model;
use crate::admin::devices::{Recalibration, SetRecalibration, StartRecalibration};
use crate::admin::input::Body;
use crate::admin::model::{DeviceStatus, Devices, Drift, Strictest};
use crate::admin::operation::{Api, Call};
use crate::admin::problem::{Code, Problem};
use crate::info::{self, Refusal};

pub(super) fn list(call: &Call, (): ()) -> Result<Devices, Problem> {
    Ok(Devices { devices: shown_devices(&call.api) })
}

pub(super) fn get(call: &Call, (): ()) -> Result<DeviceStatus, Problem> {
    let devices = shown_devices(&call.api);
    let known = devices.iter().map(|device| device.name.clone()).collect();
    let found = devices.into_iter().find(|device| device.name == call.name);
    found.ok_or_else(|| Refusal::NoDevice { name: call.name.clone(), known }.into())
}

pub(super) fn model(call: &Call, (): ()) -> Result<Model, Problem> {
    Ok(call.api.tenants.registry().devices().model(&call.name)?.into())
}

pub(super) fn reset_model(call: &Call, (): ()) -> Result<(), Problem> {
    call.recalibrator()?.reset_model(&call.name)
}

pub(super) fn recalibration(call: &Call, (): ()) -> Result<Recalibration, Problem> {
    let last = call.recalibrator()?.recalibration(&call.name)?;
    last.ok_or_else(|| {
        let message = format!("device {:?} was not measured since the server started", call.name);
        Problem::new(Code::NotFound, message)
    })
}

pub(super) fn recalibrate(
    call: &Call,
    Body(how): Body<StartRecalibration>,
) -> Result<Recalibration, Problem> {
    call.note.after(&how);
    call.recalibrator()?.start(&call.name, &how)
}

pub(super) fn accept_recalibration(
    call: &Call,
    Body(to): Body<SetRecalibration>,
) -> Result<Recalibration, Problem> {
    if !to.accept {
        let message = "expected `accept` to be true; DELETE forgets what was found";
        return Err(Problem::new(Code::Invalid, message));
    }
    let used = call.recalibrator()?.accept(&call.name)?;
    call.note.after(&used.found);
    Ok(used)
}

pub(super) fn cancel_recalibration(call: &Call, (): ()) -> Result<(), Problem> {
    call.recalibrator()?.cancel(&call.name)
}

/// Returns the state of all devices in the form of the API.
fn shown_devices(api: &Api) -> Vec<DeviceStatus> {
    let now = api.tenants.now();
    // One lock, so that both lists describe the same moment.
    let (devices, tenants) = {
        let registry = api.tenants.registry();
        (registry.devices().infos(), registry.list())
    };
    let strictest = |device: &info::DeviceInfo| {
        let latency_us = device.latency_us?;
        let whose = tenants.iter().find(|tenant| {
            let promised = tenant.state == info::State::Active && tenant.device == device.name;
            promised && tenant.promise.slo().is_some_and(|slo| slo.latency_us == latency_us)
        })?;
        Some(Strictest { latency_us, tenant: whose.name.clone() })
    };
    let said =
        api.parts.inventory().map(|inventory| inventory.device_settings()).unwrap_or_default();
    let said_of = |name: &str| said.iter().find(|one| one.name == name).cloned();
    let each = devices.iter().map(|device| DeviceStatus {
        settings: said_of(&device.name),
        name: device.name.clone(),
        has_model: device.has_model,
        tokens: device.tokens,
        tokens_promised: device.tokens_promised,
        tokens_left: device.tokens_left,
        tokens_headroom: device.tokens_headroom,
        strictest: strictest(device),
        correction: device.correction.map(Into::into),
        drift: device.drift.map(|drift| Drift::at(drift, now)),
        recalibrated: device.is_remodelled,
    });
    each.collect()
}
