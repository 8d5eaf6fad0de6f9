//! The ports of the admin API: a running server, as the API sees it.

use std::sync::Arc;
use std::time::Duration;

use super::devices::Recalibrator;
use super::drain::{Drain, DrainServer};
use super::inventory::{
    AddDevice, AddListener, HostPatch, HostStatus, Hosts, ListenerStatus, Listeners,
    NamespacePatch, NamespaceStatus, Namespaces, NewNamespace, NewSubsystem, OpenedDevice,
    RemoveListener, RemoveNamespace, RemovedListener, SetAna, SubsystemPatch, SubsystemStatus,
    Subsystems,
};
use super::problem::{Code, Problem};
use super::settings::{DevicePatch, DeviceSettings};
use super::state::{ImportState, Imported, ServerState};
use crate::info::Admission;
use crate::registry::TenantChange;

/// The parts of the server that the API needs, except tenants.
pub trait ServerParts: Send + Sync {
    /// Returns the processor that a worker is pinned to; `None` if it is not pinned.
    fn cpu(&self, worker: usize) -> Option<usize>;

    /// Returns the inventory of the server; `None` if it does not change.
    fn inventory(&self) -> Option<Arc<dyn Inventory>> {
        None
    }

    /// Returns the recalibrator of the devices; `None` without recalibration.
    fn recalibrator(&self) -> Option<Arc<dyn Recalibrator>> {
        None
    }
}

/// The changeable inventory of a running server, except tenants. Methods may block until workers
/// have applied a change. A method that fails returns the reason, and has changed nothing.
#[allow(clippy::missing_errors_doc, reason = "it is said once for all of them")]
pub trait Inventory: Send + Sync {
    /// Returns `true` if changes of the inventory survive a restart of the server.
    fn keeps_changes(&self) -> bool {
        true
    }

    /// Returns all namespaces.
    fn namespaces(&self) -> Result<Namespaces, Problem>;

    /// Returns a namespace, by its name or number.
    fn namespace(&self, name: &str) -> Result<NamespaceStatus, Problem>;

    /// Adds a namespace, which reads as zeroes.
    fn add_namespace(&self, namespace: &NewNamespace) -> Result<NamespaceStatus, Problem>;

    /// Changes the size, the name or the write protection of a namespace.
    fn set_namespace(&self, name: &str, to: &NamespacePatch) -> Result<NamespaceStatus, Problem>;

    /// Removes a namespace, which frees its blocks.
    fn remove_namespace(&self, name: &str, how: RemoveNamespace) -> Result<(), Problem>;

    /// Opens a device, for new namespaces.
    fn add_device(&self, device: &AddDevice) -> Result<OpenedDevice, Problem>;

    /// Returns the settings of all devices.
    fn device_settings(&self) -> Vec<DeviceSettings>;

    /// Changes the settings of a device.
    fn set_device(&self, name: &str, to: &DevicePatch) -> Result<DeviceSettings, Problem>;

    /// Closes an unused device.
    fn remove_device(&self, name: &str) -> Result<(), Problem>;

    /// Returns all subsystems.
    fn subsystems(&self) -> Result<Subsystems, Problem>;

    /// Returns a subsystem.
    fn subsystem(&self, nqn: &str) -> Result<SubsystemStatus, Problem>;

    /// Adds a subsystem.
    fn add_subsystem(&self, subsystem: &NewSubsystem) -> Result<SubsystemStatus, Problem>;

    /// Changes a subsystem.
    fn set_subsystem(&self, nqn: &str, to: &SubsystemPatch) -> Result<SubsystemStatus, Problem>;

    /// Removes a subsystem, and ends the connections of its hosts.
    fn remove_subsystem(&self, nqn: &str) -> Result<(), Problem>;

    /// Returns all registered hosts.
    fn hosts(&self) -> Result<Hosts, Problem>;

    /// Returns a registered host.
    fn host(&self, nqn: &str) -> Result<HostStatus, Problem> {
        let mut hosts = self.hosts()?.hosts;
        if let Some(n) = hosts.iter().position(|host| host.nqn == nqn) {
            return Ok(hosts.swap_remove(n));
        }
        let known = hosts.into_iter().map(|host| host.nqn).collect();
        Err(Problem::unknown(Code::NoHost, "host", nqn, known))
    }

    /// Changes the registration of a host, or registers it.
    fn set_host(&self, nqn: &str, to: &HostPatch) -> Result<HostStatus, Problem>;

    /// Removes the registration of a host.
    fn remove_host(&self, nqn: &str) -> Result<(), Problem>;

    /// Returns all listeners.
    fn listeners(&self) -> Result<Listeners, Problem>;

    /// Returns a listener, by its number or address.
    fn listener(&self, name: &str) -> Result<ListenerStatus, Problem>;

    /// Opens a listener; returns it with its actual address.
    fn add_listener(&self, listener: &AddListener) -> Result<ListenerStatus, Problem>;

    /// Closes a listener. Its connections stay, or end as in a drain.
    fn remove_listener(
        &self,
        listener: &str,
        how: RemoveListener,
    ) -> Result<RemovedListener, Problem>;

    /// Returns pairs of a listener's index and its number, for the listeners whose number is not
    /// the index plus one.
    fn listener_numbers(&self) -> Vec<(u16, u16)> {
        Vec::new()
    }

    /// Sets the ANA state of namespaces through a listener.
    fn set_ana(&self, listener: &str, to: &SetAna) -> Result<ListenerStatus, Problem>;

    /// Drains a listener: it refuses new connections, and its connections end. Each ends when its
    /// requests in flight have ended, or after `limit`.
    fn drain_listener(&self, listener: &str, limit: Duration) -> Result<ListenerStatus, Problem>;

    /// Resumes a listener, which accepts connections again.
    fn resume_listener(&self, listener: &str) -> Result<ListenerStatus, Problem>;

    /// Returns the devices, namespaces, tenants, subsystems, hosts, listeners and access rules of
    /// the server as one document.
    fn state(&self) -> Result<ServerState, Problem>;

    /// Changes the server to match a document, as far as possible. Returns the changes, and the
    /// differences that remain.
    fn import_state(&self, asked: &ImportState) -> Result<Imported, Problem>;

    /// Drains the server: it refuses new connections, and ends when all requests in flight have
    /// ended, or at the deadline.
    fn drain_server(&self, how: DrainServer) -> Result<Drain, Problem>;

    /// Returns the state of the server's drain.
    fn drain_of_server(&self) -> Result<Drain, Problem>;

    /// Removes a tenant, unless something names it, and stores the change. Both happen in one step,
    /// so that nothing comes to name the tenant meanwhile.
    fn remove_tenant(&self, name: &str) -> Result<(), Problem>;

    /// Makes changes of tenants, all or none, as [`Tenants::apply`](crate::Tenants::apply) does,
    /// and stores them.
    fn change_tenants(&self, changes: &[TenantChange]) -> Result<(), Problem>;

    /// Adds or changes one tenant and stores the change, or does neither.
    fn change_tenant(&self, change: &TenantChange) -> Result<Admission, Problem>;
}
