//! The plan that a server derives from its configuration before it opens devices and ports. A check
//! stops after the plan and a start begins with it, so both find the same mistakes, and all at
//! once.
//!
//! The plan leaves out what only a start can know: whether another process uses a device or a port,
//! and the size of a block device.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use contract::{Device, Geometry, NamespaceId};
use control::Tenants;
use dataplane::{DeviceFiles, DeviceTable, Volume};
use flash::{Null, Source, Spec};
use io::{Clock, Endpoint};
use worker::{Fences, Limits, Listeners, SharedState};

use super::clash;
use crate::audit::AuditFile;
use crate::config::{
    AdminConfig, Config, ConfigLocation, DeviceCapacity, Mistakes, ServerNamespace, table,
};
use crate::credentials::CredentialFiles;
use crate::fabric::{self, FabricListener};
use crate::interface::Interface;
use crate::listen::{ListenAt, NUMBER_MAX, url};
use crate::tenancy;
use crate::worker_count::WorkerCountRange;

/// The settings of the command line that are not in the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommandLineSettings {
    /// `true` if the operator allows access to everybody from everywhere.
    pub(crate) insecure: bool,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) interface: Interface,
    /// `true` if device files are enlarged where a namespace needs more blocks, as changes at run
    /// time do.
    pub(crate) grows: bool,
}

/// The plan of a server, derived from its configuration.
pub(super) struct StartupPlan {
    pub(super) listen: Vec<ListenAt>,
    pub(super) size: WorkerCountRange,
    pub(super) limits: Limits,
    pub(super) specs: Vec<Spec>,
    /// The clock of all workers and the control plane.
    pub(super) clock: Clock,
    pub(super) tenants: Tenants,
}

impl StartupPlan {
    /// Derives the plan from a configuration: from the file (`base`), and with the changes since.
    ///
    /// # Errors
    /// All mistakes of the configuration.
    pub(super) fn of(
        base: &Config,
        config: &Config,
        beside: CommandLineSettings,
    ) -> Result<StartupPlan, Mistakes> {
        Mistakes::collect(|mistakes| {
            // The others have a way out, and say that they take it when they do.
            if beside.interface == Interface::IoUring
                && let Err(error) = beside.interface.choose()
            {
                mistakes.add(None, error);
            }
            let listen = config.listeners_or(mistakes);
            check_exposure(config, &listen, beside.insecure, mistakes);
            clash::check(config, &listen, beside.metrics, mistakes);
            check_admin(&config.admin, mistakes);
            let size = crew_size(config, mistakes);
            check_packets(config, &listen, (size, beside.insecure), mistakes);
            let limits = config.limits_or(mistakes);
            check_names(config, mistakes);
            let specs = config.specs_or(mistakes);
            let blocks = foresee(config, &specs, mistakes);
            let needs = tenancy::TenancyInputs {
                base,
                config,
                listen: &listen,
                specs: &specs,
                workers: size.most,
                tenants_max: limits.tenants,
            };
            let clock = Clock::start();
            let tenants = tenancy::tenants(&needs, clock_of(clock), mistakes);
            let room = |(room, spec): (DeviceCapacity, &Spec)| {
                let grows = beside.grows && is_file(spec, room.blocks);
                DeviceCapacity { grows, files: DeviceFiles::foreseen(spec), ..room }
            };
            let rooms: Vec<DeviceCapacity> = rooms(&blocks).zip(&specs).map(room).collect();
            let (_, spaces) = parts_or(base, config, &listen, &rooms, &tenants, mistakes);
            check_scratch(base, config, &spaces, mistakes);
            let geometry = |blocks: &u64| Null::new(*blocks).geometry();
            let geometries: Vec<Geometry> = blocks.iter().map(geometry).collect();
            let plan = fabric::FabricInputs {
                config,
                listeners: listen.iter().map(entrance).collect(),
                is_made: false,
                spaces: &spaces,
                geometries: &geometries,
                workers: size.most,
            };
            plan.config_or(|name| tenants.find(name), mistakes);
            StartupPlan { listen, size, limits, specs, clock, tenants }
        })
    }
}

/// Returns a listener at its configured address, from which the NVMe fabric derives a port.
fn entrance(at: &ListenAt) -> FabricListener<'_> {
    FabricListener { at, endpoint: &at.endpoint }
}

/// Reports listeners that other machines can reach, unless access rules or the operator admit
/// clients.
fn check_exposure(config: &Config, listen: &[ListenAt], insecure: bool, mistakes: &mut Mistakes) {
    if config.has_access_rules() || insecure {
        return;
    }
    for at in listen.iter().filter(|at| at.endpoint.is_exposed()) {
        let what = format!(
            "{} is reachable from other machines and no [[access]] rule says who may come in; add one to \
             the configuration, or let everybody in with --insecure",
            at.endpoint
        );
        mistakes.add(config.place_of_listener(at.number), what);
    }
}

/// Reports settings that the transport of packets does not support.
fn check_packets(
    config: &Config,
    listen: &[ListenAt],
    (size, insecure): (WorkerCountRange, bool),
    mistakes: &mut Mistakes,
) {
    let packets = listen.iter().filter(|at| at.endpoint.is_of_packets());
    for (n, at) in packets.enumerate() {
        let url = url(at.protocol, &at.endpoint);
        let place = config.place_of_listener(at.number);
        if size.least < size.most {
            let what = format!(
                "{url}: {size} workers; expected a fixed number, as associations stay with theirs"
            );
            mistakes.add(place, what);
        }
        let is_open = matches!(at.endpoint, Endpoint::Ethernet(_)) && at.packet_key.is_none();
        if is_open && !insecure {
            let what = format!(
                "{url}: whoever is in the segment can read and forge frames; seal them with a key \
                 (key=FILE), or go without with --insecure"
            );
            mistakes.add(place, what);
        }
        if n > 0 {
            let what = format!("{url}: another listener receives packets; expected one at most");
            mistakes.add(place, what);
        }
    }
}

/// Checks the files of the admin API: the audit log, and those for `https://`.
fn check_admin(admin: &AdminConfig, mistakes: &mut Mistakes) {
    if let Some(audit) = &admin.audit {
        mistakes.take(ConfigLocation::In("admin", "audit"), AuditFile::foresee(audit));
    }
    let Some(files) =
        mistakes.take(ConfigLocation::In("admin", "listen"), CredentialFiles::of(admin))
    else {
        return;
    };
    let Some(Err(error)) = files.map(|files| files.read()) else { return };
    let named =
        [("certificate", &admin.certificate), ("key", &admin.key), ("tokens", &admin.tokens)];
    let is_named = |path: &Option<PathBuf>| {
        path.as_ref().is_some_and(|path| error.contains(&path.display().to_string()))
    };
    let found = named.into_iter().find(|(_, path)| is_named(path));
    mistakes.add(ConfigLocation::In("admin", found.map_or("tokens", |(key, _)| key)), error);
}

fn crew_size(config: &Config, mistakes: &mut Mistakes) -> WorkerCountRange {
    let size = match (config.workers, config.pinned()) {
        (Some(size), _) => Ok(size),
        (None, cpus) => WorkerCountRange::fixed(cpus.map_or(1, Vec::len)),
    };
    let size = mistakes.take(ConfigLocation::Key("cpus"), size);
    let size = size.unwrap_or_else(|| WorkerCountRange::fixed(1).expect("one can be"));
    let Some(cpus) = config.pinned() else { return size };
    if cpus.len() < size.most {
        let what = format!(
            "cpus has {}; expected at least {}, as many as there are workers",
            cpus.len(),
            size.most
        );
        mistakes.add(ConfigLocation::Key("cpus"), what);
    }
    for cpu in cpus.iter().take(size.most) {
        if let Err(error) = io::check_cpu(*cpu) {
            mistakes.add(ConfigLocation::Key("cpus"), format!("cpus: {error}"));
        }
    }
    size
}

/// Checks that devices have distinct names and are not too many.
fn check_names(config: &Config, mistakes: &mut Mistakes) {
    for (n, device) in config.device.iter().enumerate() {
        if config.device[..n].iter().any(|other| other.name == device.name) {
            let what = format!(
                "device {:?}: another has this name; expected one that no other device has",
                device.name
            );
            mistakes.add(device.nth.key("device", "name"), what);
        }
    }
    if let Some(device) = config.device.get(DeviceTable::MAX) {
        let what =
            format!("{} devices; expected at most {}", config.device.len(), DeviceTable::MAX);
        mistakes.add(device.nth.entry("device"), what);
    }
}

/// Returns the sizes of devices in blocks, or [`Volume::UNKNOWN_BLOCKS`] where a size is known only
/// once the device is open. Reports a file that two devices use.
fn foresee(config: &Config, specs: &[Spec], mistakes: &mut Mistakes) -> Vec<u64> {
    let devices = config.all_devices();
    let file = |spec: &Spec| {
        spec.source.path().map(|path| std::fs::canonicalize(path).unwrap_or(path.into()))
    };
    for (n, spec) in specs.iter().enumerate() {
        let mut before = specs[..n].iter().zip(&devices);
        let same = before.find(|(other, _)| file(spec).is_some() && file(other) == file(spec));
        if let Some((_, other)) = same {
            let what = format!(
                "device {:?}: device {:?} has this file; expected another",
                devices[n].name, other.name
            );
            mistakes.add(devices[n].nth.key("device", "spec"), what);
        }
    }
    let blocks = |(device, spec): (&spec::Device, &Spec)| {
        let foreseen = Volume::foresee_blocks(spec);
        let foreseen = foreseen.map_err(|error| format!("device {:?}: {error}", device.name));
        let blocks = mistakes.take(device.nth.key("device", "spec"), foreseen);
        blocks.unwrap_or(Volume::UNKNOWN_BLOCKS)
    };
    devices.iter().zip(specs).map(blocks).collect()
}

/// Checks that the namespace that a recalibration may overwrite, if the file names one, exists or
/// has existed. A setting that was changed live is not checked, so it cannot stop a start.
fn check_scratch(
    base: &Config,
    config: &Config,
    spaces: &[ServerNamespace],
    mistakes: &mut Mistakes,
) {
    let said = base.numbered_namespaces();
    let said = said.iter().filter_map(|one| Some((one.number?, one.name.as_deref()?)));
    let known = spaces.iter().map(|space| (space.number.0, space.name.as_str()));
    let known: BTreeMap<u16, &str> = said.chain(known).collect();
    let counts = |said: &&spec::Device| {
        let mut devices = config.device.iter();
        devices
            .any(|one| one.name == said.name && one.recalibrate_scratch == said.recalibrate_scratch)
    };
    for device in base.device.iter().filter(counts) {
        let Some(scratch) = &device.recalibrate_scratch else { continue };
        let number = scratch.parse::<u16>().ok();
        if !known.iter().any(|(n, name)| *name == scratch || Some(*n) == number) {
            let known: Vec<&str> = known.values().copied().collect();
            let what = format!(
                "device {:?}: there is no namespace {scratch:?}; there are: {}",
                device.name,
                known.join(", ")
            );
            mistakes.add(device.nth.key("device", "recalibrate_scratch"), what);
        }
    }
}

/// Builds the parts that all workers share, over open devices.
///
/// # Errors
/// The configuration does not fit the devices.
pub(super) fn parts(
    base: &Config,
    config: &Config,
    listen: &[ListenAt],
    volumes: &[(String, Volume)],
    tenants: &Tenants,
) -> Result<SharedState, Mistakes> {
    let blocks: Vec<u64> = volumes.iter().map(|(_, volume)| volume.blocks()).collect();
    let files = volumes.iter().map(|(_, volume)| volume.files_on_it().clone());
    let room = |(room, files): (DeviceCapacity, DeviceFiles)| DeviceCapacity { files, ..room };
    let rooms: Vec<DeviceCapacity> = rooms(&blocks).zip(files).map(room).collect();
    Mistakes::collect(|mistakes| parts_or(base, config, listen, &rooms, tenants, mistakes).0)
}

/// Returns the room for namespaces on each device, given the devices' sizes in blocks. Their files
/// are not seen yet.
fn rooms(blocks: &[u64]) -> impl Iterator<Item = DeviceCapacity> {
    blocks
        .iter()
        .enumerate()
        .map(|(place, blocks)| DeviceCapacity { place, ..DeviceCapacity::of_blocks(*blocks) })
}

/// Returns `true` if a device is a file whose size is known before it is opened.
fn is_file(spec: &Spec, blocks: u64) -> bool {
    matches!(spec.source, Source::File { .. }) && blocks != Volume::UNKNOWN_BLOCKS
}

fn parts_or(
    base: &Config,
    config: &Config,
    listen: &[ListenAt],
    rooms: &[DeviceCapacity],
    tenants: &Tenants,
    mistakes: &mut Mistakes,
) -> (SharedState, Vec<ServerNamespace>) {
    let spaces = config.spaces_or(rooms, mistakes);
    let namespaces = table(&spaces);
    // What was removed since is no mistake of the configuration.
    let configured: Vec<u16> =
        base.numbered_namespaces().iter().filter_map(|namespace| namespace.number).collect();
    let is_known =
        |number: NamespaceId| namespaces.find(number).is_some() || configured.contains(&number.0);
    let listeners = Listeners::with_places(NUMBER_MAX);
    for at in listen {
        let place = config.place_of_listener(at.number);
        if !is_known(at.namespace) {
            let number = at.namespace.0;
            mistakes.add(place, format!("{}: there is no namespace {number}", at.endpoint));
        }
        // That there is no such tenant is known.
        if let Ok(lead) = tenancy::lead(at, &tenants.registry()) {
            assert!(listeners.set(at.id, lead).is_ok(), "each has a number of its own");
        }
    }
    let access = config.access(is_known, |name| tenants.find(name), mistakes);
    (
        SharedState {
            access,
            listeners,
            fences: Fences::default(),
            storage_epoch: 0.into(),
            namespaces,
        },
        spaces,
    )
}

/// Converts a clock to the control plane's form.
fn clock_of(clock: Clock) -> control::Clock {
    Arc::new(move || clock.now())
}

#[cfg(test)]
mod tests;
