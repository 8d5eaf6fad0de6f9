//! The operations of the admin API on a running server.

use std::time::Duration;

use control::admin::{
    self, AddDevice, AddListener, DevicePatch, DeviceSettings, Drain, DrainServer, HostPatch,
    HostStatus, Hosts, ImportState, Imported, Inventory, ListenerStatus, NamespacePatch,
    NamespaceStatus, NewNamespace, NewSubsystem, OpenedDevice, Problem, RemoveListener,
    RemoveNamespace, RemovedListener, ServerState, SetAna, SubsystemPatch, SubsystemStatus,
};
use control::{Admission, TenantChange};

use super::LiveConfig;
use super::disks::Devices;
use super::drain::Drains;
use super::import::Import;
use super::listeners::Listeners;
use super::namespaces::Namespaces;
use super::open::find;
use super::subsystems::Subsystems;
use super::tenants::Tenants;

/// The blocks of a removed namespace that are being given back. No other namespace may use the
/// blocks until the value is dropped.
struct FreedBlocksGuard<'a> {
    live: &'a LiveConfig,
    place: worker::Namespace,
}

impl Drop for FreedBlocksGuard<'_> {
    fn drop(&mut self) {
        self.live.lock().freeing.retain(|other| *other != self.place);
    }
}

impl Inventory for LiveConfig {
    fn keeps_changes(&self) -> bool {
        self.keeps_changes
    }

    fn namespaces(&self) -> Result<admin::Namespaces, Problem> {
        Ok(Namespaces(&self.reconciler).told())
    }

    fn namespace(&self, name: &str) -> Result<NamespaceStatus, Problem> {
        Namespaces(&self.reconciler).told_one(name)
    }

    fn add_namespace(&self, namespace: &NewNamespace) -> Result<NamespaceStatus, Problem> {
        Namespaces(&self.reconciler).add(&mut *self.begin()?, namespace)
    }

    fn set_namespace(&self, name: &str, to: &NamespacePatch) -> Result<NamespaceStatus, Problem> {
        Namespaces(&self.reconciler).set_to(&mut *self.begin()?, name, to)
    }

    fn remove_namespace(&self, name: &str, how: RemoveNamespace) -> Result<(), Problem> {
        let namespaces = Namespaces(&self.reconciler);
        let Some(place) = namespaces.remove(&mut *self.begin()?, name, how)? else { return Ok(()) };
        // A disk may take minutes for it, and others change the configuration meanwhile.
        let _freeing = FreedBlocksGuard { live: self, place };
        namespaces.give_back(name, &place).inspect_err(|problem| {
            tracing::warn!(namespace = name, %problem.message, "blocks were not given back");
        })
    }

    fn add_device(&self, device: &AddDevice) -> Result<OpenedDevice, Problem> {
        Devices(&self.reconciler).open(&mut *self.lock_thawed()?, device)
    }

    fn device_settings(&self) -> Vec<DeviceSettings> {
        Devices(&self.reconciler).told_settings()
    }

    fn set_device(&self, name: &str, to: &DevicePatch) -> Result<DeviceSettings, Problem> {
        Devices(&self.reconciler).set(|| self.lock_thawed(), name, to)
    }

    fn remove_device(&self, name: &str) -> Result<(), Problem> {
        Devices(&self.reconciler).close(&mut *self.lock_thawed()?, name)
    }

    fn subsystems(&self) -> Result<admin::Subsystems, Problem> {
        Subsystems(&self.reconciler).told()
    }

    fn subsystem(&self, nqn: &str) -> Result<SubsystemStatus, Problem> {
        Subsystems(&self.reconciler).told_one(nqn)
    }

    fn add_subsystem(&self, subsystem: &NewSubsystem) -> Result<SubsystemStatus, Problem> {
        Subsystems(&self.reconciler).add(&mut *self.begin()?, subsystem)
    }

    fn set_subsystem(&self, nqn: &str, to: &SubsystemPatch) -> Result<SubsystemStatus, Problem> {
        Subsystems(&self.reconciler).set(&mut *self.begin()?, nqn, to)
    }

    fn remove_subsystem(&self, nqn: &str) -> Result<(), Problem> {
        Subsystems(&self.reconciler).remove(&mut *self.begin()?, nqn)
    }

    fn hosts(&self) -> Result<Hosts, Problem> {
        Ok(Subsystems(&self.reconciler).told_hosts())
    }

    fn set_host(&self, nqn: &str, to: &HostPatch) -> Result<HostStatus, Problem> {
        Subsystems(&self.reconciler).set_host(&mut *self.begin()?, nqn, to)
    }

    fn remove_host(&self, nqn: &str) -> Result<(), Problem> {
        Subsystems(&self.reconciler).remove_host(&mut *self.begin()?, nqn)
    }

    fn listeners(&self) -> Result<admin::Listeners, Problem> {
        Ok(Listeners(&self.reconciler).told())
    }

    fn listener(&self, name: &str) -> Result<ListenerStatus, Problem> {
        Listeners(&self.reconciler).told_one(name)
    }

    fn add_listener(&self, listener: &AddListener) -> Result<ListenerStatus, Problem> {
        Listeners(&self.reconciler).open(&mut *self.lock_thawed()?, listener)
    }

    fn remove_listener(
        &self,
        listener: &str,
        how: RemoveListener,
    ) -> Result<RemovedListener, Problem> {
        let listeners = Listeners(&self.reconciler);
        let gone = listeners.close(&mut *self.lock_thawed()?, listener, how)?;
        let connections =
            listeners.counts_of().map(|counts| counts[usize::from(gone.at.id.place())]);
        Ok(RemovedListener { number: gone.at.number, removed: gone.url(), connections })
    }

    fn listener_numbers(&self) -> Vec<(u16, u16)> {
        self.reconciler.seen().numbers_of_others()
    }

    fn set_ana(&self, listener: &str, to: &SetAna) -> Result<ListenerStatus, Problem> {
        Listeners(&self.reconciler).set_ana(&mut *self.begin()?, listener, to)
    }

    fn drain_listener(&self, listener: &str, limit: Duration) -> Result<ListenerStatus, Problem> {
        self.reconciler.gate()?;
        let id = find(&self.lock_thawed()?.open, listener)?.at.id;
        let listeners = Listeners(&self.reconciler);
        listeners.drain(id, limit)?;
        tracing::info!(listener, limit_ms = limit.as_millis() as u64, "drained");
        listeners.told_one(listener)
    }

    fn resume_listener(&self, listener: &str) -> Result<ListenerStatus, Problem> {
        self.reconciler.gate()?;
        let id = find(&self.lock_thawed()?.open, listener)?.at.id;
        let listeners = Listeners(&self.reconciler);
        listeners.resume(id)?;
        tracing::info!(listener, "the listener accepts connections again");
        listeners.told_one(listener)
    }

    fn state(&self) -> Result<ServerState, Problem> {
        Import::export(&*self.lock_for_change()?)
    }

    fn import_state(&self, asked: &ImportState) -> Result<Imported, Problem> {
        let mut inner = self.begin()?;
        self.reconciler.check_stays()?;
        Import(&self.reconciler).take(&mut inner, asked)
    }

    fn drain_server(&self, how: DrainServer) -> Result<Drain, Problem> {
        self.drains.begin(&self.reconciler, how)
    }

    fn drain_of_server(&self) -> Result<Drain, Problem> {
        Drains::told(&self.reconciler)
    }

    fn remove_tenant(&self, name: &str) -> Result<(), Problem> {
        Tenants(&self.reconciler).end(&mut *self.lock_thawed()?, name)
    }

    fn change_tenants(&self, changes: &[TenantChange]) -> Result<(), Problem> {
        Tenants(&self.reconciler).change_together(&mut *self.lock_thawed()?, changes)
    }

    fn change_tenant(&self, change: &TenantChange) -> Result<Admission, Problem> {
        Tenants(&self.reconciler).change(&mut *self.lock_thawed()?, change)
    }
}
