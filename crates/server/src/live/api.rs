//! The server as its admin API sees it.

use std::time::Duration;

use control::admin::{
    AddDevice, AddListener, AddNamespace, AddSubsystem, DeviceSettings, Drain, DrainServer, Host,
    Hosts, Inventory, Listener, Listeners, Namespace, Namespaces, OpenedDevice, Problem,
    RemoveListener, RemoveNamespace, RemovedListener, SetAna, SetDevice, SetHost, SetNamespace,
    SetSubsystem, Subsystem, Subsystems,
};
use control::{Admission, TenantChange};

use super::Live;

impl Inventory for Live {
    fn keeps_changes(&self) -> bool {
        self.keeps_changes
    }

    fn namespaces(&self) -> Result<Namespaces, Problem> {
        Ok(self.told_namespaces())
    }

    fn namespace(&self, name: &str) -> Result<Namespace, Problem> {
        self.told_namespace(name)
    }

    fn add_namespace(&self, namespace: &AddNamespace) -> Result<Namespace, Problem> {
        self.make_namespace(namespace)
    }

    fn set_namespace(&self, name: &str, to: &SetNamespace) -> Result<Namespace, Problem> {
        self.change_namespace(name, to)
    }

    fn remove_namespace(&self, name: &str, how: RemoveNamespace) -> Result<(), Problem> {
        self.end_namespace(name, how)
    }

    fn add_device(&self, device: &AddDevice) -> Result<OpenedDevice, Problem> {
        self.open_device(device)
    }

    fn device_settings(&self) -> Vec<DeviceSettings> {
        self.told_settings()
    }

    fn set_device(&self, name: &str, to: &SetDevice) -> Result<DeviceSettings, Problem> {
        self.change_device(name, to)
    }

    fn remove_device(&self, name: &str) -> Result<(), Problem> {
        self.close_device(name)
    }

    fn subsystems(&self) -> Result<Subsystems, Problem> {
        self.told_subsystems()
    }

    fn subsystem(&self, nqn: &str) -> Result<Subsystem, Problem> {
        self.told_subsystem(nqn)
    }

    fn add_subsystem(&self, subsystem: &AddSubsystem) -> Result<Subsystem, Problem> {
        self.make_subsystem(subsystem)
    }

    fn set_subsystem(&self, nqn: &str, to: &SetSubsystem) -> Result<Subsystem, Problem> {
        self.change_subsystem(nqn, to)
    }

    fn remove_subsystem(&self, nqn: &str) -> Result<(), Problem> {
        self.end_subsystem(nqn)
    }

    fn hosts(&self) -> Result<Hosts, Problem> {
        Ok(self.told_hosts())
    }

    fn set_host(&self, nqn: &str, to: &SetHost) -> Result<Host, Problem> {
        self.change_host(nqn, to)
    }

    fn remove_host(&self, nqn: &str) -> Result<(), Problem> {
        self.end_host(nqn)
    }

    fn listeners(&self) -> Result<Listeners, Problem> {
        Ok(self.told_listeners())
    }

    fn listener(&self, name: &str) -> Result<Listener, Problem> {
        self.told_one(name)
    }

    fn add_listener(&self, listener: &AddListener) -> Result<Listener, Problem> {
        self.open_listener(listener)
    }

    fn remove_listener(
        &self,
        listener: &str,
        how: RemoveListener,
    ) -> Result<RemovedListener, Problem> {
        self.close_listener(listener, how)
    }

    fn listener_numbers(&self) -> Vec<(u16, u16)> {
        self.numbers_of_others()
    }

    fn set_ana(&self, listener: &str, to: &SetAna) -> Result<Listener, Problem> {
        self.change_ana(listener, to)
    }

    fn drain_listener(&self, listener: &str, limit: Duration) -> Result<Listener, Problem> {
        self.drain(listener, limit)
    }

    fn resume_listener(&self, listener: &str) -> Result<Listener, Problem> {
        self.resume(listener)
    }

    fn drain_server(&self, how: DrainServer) -> Result<Drain, Problem> {
        self.drain_all(how)
    }

    fn drain_of_server(&self) -> Result<Drain, Problem> {
        self.told_drain()
    }

    fn remove_tenant(&self, name: &str) -> Result<(), Problem> {
        self.end_tenant(name)
    }

    fn change_tenants(&self, changes: &[TenantChange]) -> Result<(), Problem> {
        self.change_tenants_now(changes)
    }

    fn change_tenant(&self, change: &TenantChange) -> Result<Admission, Problem> {
        self.change_tenant_now(change)
    }
}
