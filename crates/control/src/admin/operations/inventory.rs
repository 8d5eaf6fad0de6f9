//! The functions of the API's operations on the server's inventory that do more than call the port,
//! and the notes of changes for the audit log.

use std::time::Duration;

use serde::Serialize;

use crate::admin::inventory::{
    DrainListener, HostPatch, HostStatus, ListenerState, ListenerStatus, SubsystemPatch,
    SubsystemStatus,
};
use crate::admin::listeners::ListenerPatch;
use crate::admin::operation::Call;
use crate::admin::ports::Inventory;
use crate::admin::problem::Problem;
use crate::admin::settings::DeviceSettings;
use crate::admin::workers::DEADLINE_MS_MAX;

/// The inventory, as the functions of the table receive it.
pub(super) type DynInventory = dyn Inventory;

impl Call {
    /// Makes a change of the inventory, and notes the value after it for the audit log.
    pub(super) fn make<T: Serialize>(
        &self,
        make: impl FnOnce(&DynInventory, &str) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let made = make(&*self.inventory()?, &self.name)?;
        self.note.after(&made);
        Ok(made)
    }

    /// Makes a change of the inventory, and notes the values before and after it for the audit log.
    pub(super) fn change<B: Serialize, T: Serialize>(
        &self,
        known: impl FnOnce(&DynInventory, &str) -> Result<B, Problem>,
        change: impl FnOnce(&DynInventory, &str) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if let Ok(before) = known(&*self.inventory()?, &self.name) {
            self.note.before(&before);
        }
        self.make(change)
    }
}

/// Returns the settings of a device; `None` if there is no such device.
pub(super) fn settings(
    inventory: &DynInventory,
    name: &str,
) -> Result<Option<DeviceSettings>, Problem> {
    Ok(inventory.device_settings().into_iter().find(|device| device.name == name))
}

/// Returns a subsystem for the audit log: as configured, without its connected controllers.
pub(super) fn configured(inventory: &DynInventory, nqn: &str) -> Result<SubsystemStatus, Problem> {
    inventory.subsystem(nqn).map(without_controllers)
}

fn without_controllers(subsystem: SubsystemStatus) -> SubsystemStatus {
    SubsystemStatus { controllers: Vec::new(), ..subsystem }
}

pub(super) fn set_subsystem(call: &Call, to: &SubsystemPatch) -> Result<SubsystemStatus, Problem> {
    let changed = call.change(configured, |inventory, nqn| inventory.set_subsystem(nqn, to))?;
    call.note.after(&without_controllers(changed.clone()));
    Ok(changed)
}

/// A host after a change, and which of its keys were given. The keys themselves are secret.
#[derive(Serialize)]
struct HostNote {
    #[serde(flatten)]
    host: HostStatus,
    key_given: bool,
    controller_key_given: bool,
    tls_key_given: bool,
}

pub(super) fn set_host(call: &Call, to: &HostPatch) -> Result<HostStatus, Problem> {
    let host = call.change(Inventory::host, |inventory, nqn| inventory.set_host(nqn, to))?;
    let (key_given, controller_key_given) = (to.key.is_some(), to.controller_key.is_some());
    let (host_now, tls_key_given) = (host.clone(), to.tls_key.is_some());
    call.note.after(&HostNote { host: host_now, key_given, controller_key_given, tls_key_given });
    Ok(host)
}

pub(super) fn set_listener(call: &Call, to: &ListenerPatch) -> Result<ListenerStatus, Problem> {
    call.change(Inventory::listener, |inventory, name| {
        let listener = inventory.listener(name)?;
        to.check_fixed(&listener)?;
        match to.state {
            None => Ok(listener),
            Some(ListenerState::Open) => inventory.resume_listener(name),
            Some(_) => inventory.drain_listener(name, limit_of(to.deadline_ms)),
        }
    })
}

pub(super) fn drain_listener(call: &Call, how: &DrainListener) -> Result<ListenerStatus, Problem> {
    let limit = limit_of(how.deadline_ms);
    call.change(Inventory::listener, |inventory, name| inventory.drain_listener(name, limit))
}

/// Returns the time limit of a listener's drain: `deadline_ms` or, without one, 10 s, and at most
/// [`DEADLINE_MS_MAX`].
fn limit_of(deadline_ms: Option<u64>) -> Duration {
    Duration::from_millis(deadline_ms.unwrap_or(10_000).min(DEADLINE_MS_MAX))
}
