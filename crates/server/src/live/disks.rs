//! Devices that are opened and closed at run time.
//!
//! A new device is opened by this process, then by each worker between two of its turns, and is
//! only then stored: it is not used before it has a namespace. If a worker cannot open it, all
//! steps are undone. A device to be removed has no namespace and no tenant; workers close it when
//! no request is on its way to it.

use std::sync::Arc;

use contract::BLOCK_BYTES;
use control::Refusal;
use control::admin::{Code, OpenedDevice, Problem};
use dataplane::{DeviceOrder, DeviceTable, ONE_WORKER, OpenDevice, Volume};
use flash::{Source, Spec};
use spec::diff;

use super::LiveState;
use super::reconciler::Reconciler;
use crate::config::Config;
use crate::storage_epoch;
use crate::tenancy;

/// Stores the identity of the disk that serves each device, if any has changed, so that the next
/// start can compare.
pub(super) fn keep_identities(places: &DeviceTable, inner: &mut LiveState) {
    let mut changes = inner.changes.clone();
    let names = inner.world.config.device_names();
    changes.disks.retain(|name, _| names.contains(name));
    for name in names {
        match places.find(&name).and_then(|disk| disk.volume.disk()) {
            Some(found) => changes.disks.insert(name, found),
            None => changes.disks.remove(&name),
        };
    }
    if changes.disks == inner.changes.disks {
        return;
    }
    if let Err(problem) = inner.keep(changes) {
        let error = problem.message;
        tracing::warn!(
            error,
            "the identities of disks are not kept: the next start cannot compare"
        );
    }
}

/// Opens and closes the devices of a server.
pub(super) struct Devices<'a>(pub(super) &'a Reconciler);

impl Devices<'_> {
    /// Opens a device, and stores it as a live change.
    pub(super) fn open(
        &self,
        inner: &mut LiveState,
        config: &spec::Device,
    ) -> Result<OpenedDevice, Problem> {
        if let Some(scratch) = &config.recalibrate_scratch {
            let message = format!(
                "device {:?}: there is no namespace {scratch:?} on it yet; name it with `nearflash device \
                 set` once it is there",
                config.name
            );
            return Err(Problem::new(Code::Invalid, message));
        }
        let disk = self.start_device(inner, config)?;
        let mut changes = inner.changes.clone();
        // What was measured was of another of this name.
        changes.models.remove(&config.name);
        changes.named_models.remove(&config.name);
        if config.model.is_some() {
            let registry = self.0.ground.tenants.registry();
            let model = registry.devices().configured_model(&config.name).map(tenancy::text_of);
            changes.named_models.extend(model.ok().map(|text| (config.name.clone(), text)));
        }
        changes.devices.insert(config.name.clone(), Some(config.clone()));
        changes.disks.remove(&config.name);
        changes.disks.extend(disk.volume.disk().map(|found| (config.name.clone(), found)));
        let world = self.0.world(inner, &changes, &inner.open);
        let kept = world.and_then(|world| inner.keep(changes).map(|()| world));
        match kept {
            Ok(world) => self.0.adopt(inner, world),
            Err(problem) => {
                self.stop_device(&disk);
                return Err(problem);
            }
        }
        tracing::info!(device = disk.name, spec = config.spec, "device opened");
        Ok(OpenedDevice {
            bytes: disk.volume.blocks() * BLOCK_BYTES as u64,
            has_model: self.0.ground.tenants.registry().devices().model(&config.name).is_ok(),
            spec: config.spec.clone(),
            name: config.name.clone(),
        })
    }

    /// Closes a device without namespaces and tenants, and stores its removal.
    pub(super) fn close(&self, inner: &mut LiveState, name: &str) -> Result<(), Problem> {
        let disk = self.find_device(inner, name)?;
        let others: Vec<_> =
            inner.world.config.device_names().into_iter().filter(|one| one != name).collect();
        if others.is_empty() {
            let message = format!("device {name:?} cannot be removed: it is the only one");
            return Err(Problem::new(Code::InUse, message));
        }
        if let Some(space) = inner.world.spaces.iter().find(|one| one.place.device == disk.place) {
            let namespace = &space.name;
            let message = format!(
                "device {name:?} cannot be removed: namespace {namespace:?} is on it; remove that with \
                 `nearflash namespace rm {namespace}` if nobody needs it"
            );
            return Err(Problem::new(Code::InUse, message));
        }
        inner.check_not_freeing(Some(disk.place))?;
        self.leave_device(&disk)?;
        let mut changes = inner.changes.clone();
        let is_configured = inner.base.all_devices().iter().any(|device| device.name == name);
        match is_configured {
            true => changes.devices.insert(name.to_owned(), None),
            false => changes.devices.remove(name),
        };
        changes.models.remove(name);
        changes.named_models.remove(name);
        changes.disks.remove(name);
        let world = self.0.world(inner, &changes, &inner.open);
        let kept = world.and_then(|world| inner.keep(changes).map(|()| world));
        match kept {
            Ok(world) => {
                self.device_is_gone(&disk, true);
                self.0.adopt(inner, world);
            }
            Err(problem) => {
                self.return_device(&disk);
                return Err(problem);
            }
        }
        tracing::info!(device = name, "device closed");
        Ok(())
    }

    fn find_device(&self, inner: &LiveState, name: &str) -> Result<OpenDevice, Problem> {
        let known = inner.world.config.device_names();
        let found = self.0.ground.places.find(name);
        found.ok_or_else(|| Problem::unknown(Code::NoDevice, "device", name, known))
    }

    /// Opens a device in this process and in all workers.
    fn start_device(
        &self,
        inner: &LiveState,
        config: &spec::Device,
    ) -> Result<OpenDevice, Problem> {
        self.0.gate()?;
        spec::check_name(&config.name).map_err(invalid)?;
        if inner.world.config.device_names().contains(&config.name) {
            let message = format!("there is a device {:?} already", config.name);
            return Err(Problem::new(Code::Taken, message));
        }
        let spec: Spec = config
            .spec
            .parse()
            .map_err(|error| invalid(format!("device {:?}: {error}", config.spec)))?;
        check_memory(&spec)?;
        if self.0.ground.workers > 1 && Volume::is_of_one_worker(&spec) {
            return Err(invalid(ONE_WORKER.to_owned()));
        }
        let setup = tenancy::setup(config, &spec).map_err(invalid)?;
        let Some(place) = self.0.ground.places.vacant() else {
            let message =
                format!("there are {} devices, which is as many as can be", DeviceTable::MAX);
            return Err(Problem::new(Code::TableFull, message));
        };
        let not_opened = |why| Problem::new(Code::NotOpened, why);
        let volume = Arc::new(Volume::open(&spec).map_err(not_opened)?);
        let (tenants, places) = (&self.0.ground.tenants, &self.0.ground.places);
        tenants.registry().add_device(setup, place, tenants.now())?;
        if let Some(chores) = volume.chores() {
            tenants.registry().expect_chores(place, chores, tenants.now());
        }
        places.put(place, &config.name, volume.clone());
        storage_epoch::begin(&self.0.ground.shared.storage_epoch, &volume);
        let disk = OpenDevice { place, name: config.name.clone(), volume };
        if let Err(problem) = self.order_device(place, Some(disk.volume.clone())) {
            self.stop_device(&disk);
            return Err(problem);
        }
        if let Some(recalibrations) = self.0.recalibrations() {
            recalibrations.device_comes(config);
        }
        Ok(disk)
    }

    /// Closes a device that was opened for a change that failed.
    fn stop_device(&self, disk: &OpenDevice) {
        let left = self.leave_device(disk);
        if let Err(problem) = &left {
            tracing::error!(error = problem.message, "a device that was not added is not closed");
            self.0.ground.tenants.registry().drop_device(disk.place);
        }
        self.device_is_gone(disk, left.is_ok());
    }

    /// Removes a device without namespaces and tenants from the registry, and orders all workers to
    /// close it. After an error, the device serves again.
    fn leave_device(&self, disk: &OpenDevice) -> Result<(), Problem> {
        if !self.0.wait_until(|| !self.0.has_older()) {
            let message = "the process before this one still has the device; try again";
            return Err(Problem::new(Code::Busy, message));
        }
        if let Some(recalibrations) = self.0.recalibrations() {
            recalibrations.device_leaves(&disk.name)?;
        }
        let tenants = &self.0.ground.tenants;
        let _ = self.0.wait_until(|| !tenants.registry().is_being_left(&disk.name)); // else it is refused
        let removed = tenants.registry().remove_device(&disk.name);
        if let Err(refusal) = removed {
            self.stays(disk);
            return Err(refusal.into());
        }
        if let Err(problem) = self.order_device(disk.place, None) {
            self.return_device(disk);
            let message = format!(
                "device {:?} cannot be removed: requests are still at it ({}); try again",
                disk.name, problem.message
            );
            return Err(Problem::new(Code::Busy, message));
        }
        Ok(())
    }

    /// Puts a device that was being closed back into service.
    fn return_device(&self, disk: &OpenDevice) {
        let order = DeviceOrder { place: disk.place, volume: Some(disk.volume.clone()) };
        let ordered = self.0.gate().map(|gate| gate.orders.keep_disk(&order, &gate.wakers));
        if let Err(problem) = ordered.and_then(|()| self.await_device(disk.place)) {
            let (device, error) = (&disk.name, problem.message);
            tracing::error!(device, error, "a worker cannot reach a device");
        }
        self.0.ground.tenants.registry().restore_device(disk.place);
        self.stays(disk);
    }

    fn stays(&self, disk: &OpenDevice) {
        if let Some(recalibrations) = self.0.recalibrations() {
            recalibrations.device_left(&disk.name, false);
        }
    }

    /// Removes a closed device from the table of devices. `is_left` means that no worker has it
    /// open any more.
    fn device_is_gone(&self, disk: &OpenDevice, is_left: bool) {
        self.0.ground.places.remove(disk.place, is_left);
        if let Some(recalibrations) = self.0.recalibrations() {
            recalibrations.device_left(&disk.name, true);
        }
    }

    /// Orders all workers to open a device with this volume, or to close it if `volume` is `None`,
    /// and waits until they have.
    fn order_device(&self, place: usize, volume: Option<Arc<Volume>>) -> Result<(), Problem> {
        let gate = self.0.gate()?;
        gate.orders.disk(&DeviceOrder { place, volume }, &gate.wakers);
        self.await_device(place)
    }

    fn await_device(&self, place: usize) -> Result<(), Problem> {
        let gate = self.0.gate()?;
        self.0.await_orders()?;
        match gate.orders.take_unopened(place) {
            Some(why) => Err(Problem::new(Code::NotOpened, why)),
            None => Ok(()),
        }
    }

    /// Opens the additional devices of another configuration, and names the differences that need a
    /// restart. Devices that the configuration lacks stay until they are unused.
    ///
    /// # Errors
    /// A device cannot be opened; then no device is.
    pub(super) fn open_devices(
        &self,
        inner: &LiveState,
        base: &mut Config,
    ) -> Result<(Vec<OpenDevice>, Vec<String>), Problem> {
        let (mut opened, mut later) = (Vec::new(), Vec::new());
        let before = inner.world.config.all_devices();
        let said = base.clone();
        let mut different = diff(&before, &base.device, |device| device.name.clone());
        // What operators have changed stays.
        different.retain(|name, _| !inner.changes.devices.contains_key(name));
        for device in base.device.iter_mut().filter(|device| different.contains_key(&device.name)) {
            match before.iter().find(|known| known.name == device.name) {
                Some(known) => {
                    if let Err(why) = self.take_settings(inner, &said, known, device) {
                        later.push(format!("[[device]] ({why})"));
                        *device = known.clone();
                    }
                }
                None => match self.start_device(inner, device) {
                    Ok(disk) => opened.push(disk),
                    Err(problem) => {
                        opened.iter().for_each(|disk| self.stop_device(disk));
                        return Err(problem);
                    }
                },
            }
        }
        // Until it is known whether they can go.
        let kept = base.all_devices();
        let gone = inner.base.all_devices().into_iter();
        let gone = gone.filter(|old| kept.iter().all(|device| device.name != old.name));
        let gone: Vec<spec::Device> = gone.collect();
        if !gone.is_empty() {
            base.device = kept;
            base.device.extend(gone);
        }
        Ok((opened, later))
    }

    /// Closes the devices that were opened for a configuration that was refused.
    pub(super) fn close_again(&self, opened: &[OpenDevice]) {
        opened.iter().for_each(|disk| self.stop_device(disk));
    }

    /// Closes the devices that the new configuration, with the devices `wanted`, no longer has.
    /// Returns, for each device that cannot be closed yet, the reason.
    pub(super) fn close_devices(
        &self,
        inner: &mut LiveState,
        wanted: &[spec::Device],
    ) -> Vec<String> {
        let mut later = Vec::new();
        let is_wanted = |name: &str| wanted.iter().any(|device| device.name == name);
        let all = inner.base.all_devices();
        for old in all.iter().filter(|old| !is_wanted(&old.name)) {
            // What was removed by a command is gone already.
            let Some(disk) = self.0.ground.places.find(&old.name) else {
                inner.base.device.retain(|device| device.name != old.name);
                continue;
            };
            let space = inner.world.spaces.iter().find(|one| one.place.device == disk.place);
            let done = match space {
                Some(space) => {
                    let by = format!("namespace {:?}", space.name);
                    Err(Refusal::DeviceInUse { name: old.name.clone(), by }.into())
                }
                None => self.leave_device(&disk),
            };
            match done {
                Ok(()) => {
                    self.device_is_gone(&disk, true);
                    inner.base.device.retain(|device| device.name != old.name);
                }
                Err(problem) => later.push(format!("[[device]] ({})", problem.message)),
            }
        }
        inner.refresh_config();
        later
    }
}

/// Fails if a device that is made of memory is larger than the memory that is available.
fn check_memory(spec: &Spec) -> Result<(), Problem> {
    let source = match &spec.source {
        Source::Ftl { member, .. } => member,
        other => other,
    };
    let (Source::Mem { bytes } | Source::Sim { bytes, .. }) = *source else { return Ok(()) };
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    match kib {
        Some(kib) if bytes > kib << 10 => {
            let message = format!("{bytes} bytes of memory; {} are available", kib << 10);
            Err(Problem::new(Code::NoRoom, message))
        }
        _ => Ok(()),
    }
}

fn invalid(error: String) -> Problem {
    Problem::new(Code::Invalid, error)
}
