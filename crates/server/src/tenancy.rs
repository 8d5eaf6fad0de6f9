//! The tenants and devices of a configuration, as they are registered with the control plane.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use contract::{Chores, Promise, TenantId};
use control::{
    Batch, Clock, DeviceSetup, Origin, Refusal, Switches, TenantChange, TenantRegistry, Tenants,
};
use dataplane::Volume;
use flash::sim_flash::Preset;
use flash::{Source, Spec};
use qos::{DeviceModel, ModelFile};
use spec::Tenant;
use worker::{DefaultTenant, ListenerBinding};

use crate::config::{Config, ConfigLocation, Mistakes};
use crate::listen::ListenAt;

/// The inputs from which the tenants and devices are registered.
pub(crate) struct TenancyInputs<'a> {
    /// The configuration without live changes.
    pub(crate) base: &'a Config,
    /// The configuration with the changes.
    pub(crate) config: &'a Config,
    pub(crate) listen: &'a [ListenAt],
    /// The specs of the devices, in their order.
    pub(crate) specs: &'a [Spec],
    pub(crate) workers: usize,
    /// The largest number of tenants.
    pub(crate) tenants_max: usize,
}

/// Creates the tenants of a server: the configured ones with their live changes, and the default
/// tenant if clients can belong to it. A tenant whose promise is refused becomes best effort. The
/// refusal is a mistake, unless the spec or model of a device could not be read.
pub(crate) fn tenants(needs: &TenancyInputs<'_>, clock: Clock, mistakes: &mut Mistakes) -> Tenants {
    let TenancyInputs { base, config, listen, .. } = needs;
    let (devices, are_known) = setups(config, needs.specs, mistakes);
    let tenants = Tenants::new(devices, needs.workers, needs.tenants_max, clock);
    let now = tenants.now();
    let mut registry = tenants.registry();
    use_measured_models(config, &mut registry, now);
    let said: HashSet<&str> = base.tenant.iter().map(|said| said.name.as_str()).collect();
    for tenant in &config.tenant {
        if registry.find(&tenant.name).is_some() {
            let what = format!(
                "tenant {:?}: another has this name; expected one that no other tenant has",
                tenant.name
            );
            mistakes.add(tenant.nth.key("tenant", "name"), what);
            continue;
        }
        let configured =
            said.contains(tenant.name.as_str()) || tenant.name == TenantRegistry::DEFAULT;
        let origin = if configured { Origin::Configured } else { Origin::Operator };
        let registered = register_again(&mut registry, &tenant.name, now, |registry| {
            register(registry, tenant, origin, now)
        });
        if let Err(refusal) = registered {
            if are_known || matches!(refusal, Refusal::NoDevice { .. }) {
                let what = format!("tenant {:?}: {refusal}", tenant.name);
                mistakes.add(tenant.nth.key("tenant", key_of(&refusal)), what);
            }
            // Whoever names it is right.
            let promise = Promise::default();
            let plain = Tenant { promise, device: None, ..tenant.clone() };
            let _ = register(&mut registry, &plain, origin, now);
        }
    }
    // Whoever comes by a listener without a tenant, let in by a rule without one.
    let by_default = !config.has_access_rules() || config.rule_tenants().any(|(_, t)| t.is_none());
    let default = (by_default && listen.iter().any(|at| at.tenant.is_none()))
        .then(|| (TenantRegistry::DEFAULT, NO_OTHER.to_owned(), true, None));
    // Those may go while the server runs.
    let of_listeners = listen.iter().filter_map(|at| {
        Some((at.tenant.as_deref()?, by(at), false, config.place_of_listener(at.number)))
    });
    let of_rules = config.rule_tenants().filter_map(|(n, name)| {
        let place = ConfigLocation::Entry("access", n - 1, Some("tenant"));
        Some((name?, format!("access rule {n}"), true, Some(place)))
    });
    for (name, by, stays, place) in default.into_iter().chain(of_rules).chain(of_listeners) {
        // A file without tenants is of the time before there were any: its names are best effort.
        let is_made = name == TenantRegistry::DEFAULT || base.tenant.is_empty();
        if registry.find(name).is_none() {
            if !is_made {
                let known = registry.names().collect::<Vec<_>>().join(", ");
                let what = format!("{by}: there is no tenant {name:?}; there are: {known}");
                mistakes.add(place, what);
                continue;
            }
            let made = registry.register(name, Promise::default(), None, Origin::Configured, now);
            let made = made.map_err(|refusal| format!("{by}: {refusal}"));
            if mistakes.take(place, made).is_none() {
                continue;
            }
        }
        let tenant = registry.find(name).expect("it was just made");
        if stays {
            registry.pin(tenant, &by);
        }
    }
    drop(registry);
    tenants
}

/// Returns the configuration key of a tenant that a refusal is about; empty if it is about no
/// single key.
fn key_of(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NoDevice { .. } => "device",
        Refusal::NoModel { .. } | Refusal::TooTight { .. } => "latency_us",
        Refusal::NotMeasured { .. } => "percentile",
        _ => "",
    }
}

/// Makes devices use the models that earlier recalibrations measured.
fn use_measured_models(config: &Config, registry: &mut TenantRegistry, now: contract::Instant) {
    for (device, kept) in &config.known.measured_models {
        let Ok(configured) = registry.devices().configured_model(device) else { continue };
        let set = kept.over(configured).and_then(|model| {
            registry.set_model(device, model, now).map_err(|refusal| refusal.to_string())
        });
        if let Err(why) = set {
            tracing::warn!(device, why, "the measured model is not used");
        }
    }
}

/// Registers a tenant according to its specification.
///
/// # Errors
/// Fails if the promise is not admitted, or there is no room for the tenant.
pub(crate) fn register(
    registry: &mut TenantRegistry,
    tenant: &Tenant,
    origin: Origin,
    now: contract::Instant,
) -> Result<(), control::Refusal> {
    let mut batch = Batch::default();
    batch.add(registry, &TenantChange::Add(tenant.clone()), origin, now)?;
    batch.end(registry, now);
    Ok(())
}

/// Registers a tenant again at a restart. A promise that had been kept although it did not fit into
/// the measured model is kept again.
pub(crate) fn register_again<T>(
    registry: &mut TenantRegistry,
    tenant: &str,
    now: contract::Instant,
    register: impl Fn(&mut TenantRegistry) -> Result<T, control::Refusal>,
) -> Result<T, control::Refusal> {
    register(registry).or_else(|refusal| {
        let measured = registry.devices().remodelled();
        let registered = by_configured_models(registry, &measured, now, register);
        let why = refusal.to_string();
        if registered.is_some() {
            tracing::warn!(
                tenant,
                why,
                "its promise does not fit into the measured model: it gets its share of what there is \
                 (docs/explanation/recalibration.md)"
            );
        }
        registered.ok_or(refusal)
    })
}

/// Calls `what` while devices use their configured models in place of their measured models.
/// Returns `None` if `what` fails with these models, too.
fn by_configured_models<T>(
    registry: &mut TenantRegistry,
    measured: &[(String, DeviceModel)],
    now: contract::Instant,
    what: impl FnOnce(&mut TenantRegistry) -> Result<T, control::Refusal>,
) -> Option<T> {
    for (device, _) in measured {
        let configured = registry.devices().configured_model(device).ok()?.clone();
        registry.set_model(device, configured, now).ok()?;
    }
    let done = what(registry);
    for (device, model) in measured {
        if registry.set_model(device, model.clone(), now).is_err() {
            tracing::warn!(device, "the measured model is not used");
        }
    }
    done.ok()
}

/// The reason why the default tenant cannot be removed.
const NO_OTHER: &str = "whoever belongs to no other tenant";

/// Describes a listener that names a tenant, for messages about the tenant.
pub(crate) fn by(at: &ListenAt) -> String {
    format!("the listener {}", at.endpoint)
}

/// Returns the protocol, the namespace and the tenant to which a listener leads its clients.
///
/// # Errors
/// The tenant does not exist, or a client has registered it and may remove it.
pub(crate) fn lead(at: &ListenAt, registry: &TenantRegistry) -> Result<ListenerBinding, String> {
    let name = at.tenant.as_deref().unwrap_or(TenantRegistry::DEFAULT);
    let tenant = match (registry.find(name), at.tenant.is_some()) {
        (Some(tenant), _) => tenant,
        (None, false) => TenantId::DEFAULT,
        (None, true) => {
            let known = registry.names().collect::<Vec<_>>().join(", ");
            return Err(format!("{}: there is no tenant {name:?}; there are: {known}", by(at)));
        }
    };
    if let Some(Origin::Client(_)) = registry.origin(tenant) {
        return Err(format!("{}: a client has made the tenant {name:?}, and may end it", by(at)));
    }
    let stands = Some(DefaultTenant { tenant, name: name.to_owned() });
    Ok(ListenerBinding { protocol: at.protocol, namespace: at.namespace, stands })
}

/// Creates the default tenant, if it does not exist and clients of a new listener may belong to it.
///
/// # Errors
/// Fails if there is no room for it.
pub(crate) fn make_default(
    at: &ListenAt,
    config: &Config,
    tenants: &Tenants,
) -> Result<(), String> {
    let by_default = !config.has_access_rules() || config.rule_tenants().any(|(_, t)| t.is_none());
    let (now, mut registry) = (tenants.now(), tenants.registry());
    if !by_default || at.tenant.is_some() || registry.find(TenantRegistry::DEFAULT).is_some() {
        return Ok(());
    }
    let (name, origin) = (TenantRegistry::DEFAULT, Origin::Configured);
    let made = registry.register(name, Promise::default(), None, origin, now);
    made.map_err(|refusal| format!("{}: {refusal}", by(at)))?;
    let tenant = registry.find(TenantRegistry::DEFAULT).expect("it was just made");
    registry.pin(tenant, NO_OTHER);
    Ok(())
}

/// Returns the setups of the devices, and `true` if all their specs and models could be read.
fn setups(config: &Config, specs: &[Spec], mistakes: &mut Mistakes) -> (Vec<DeviceSetup>, bool) {
    let mut are_known = true;
    let each = config.all_devices();
    let setups = each.iter().zip(specs).map(|(device, spec)| {
        are_known &= device.spec.parse::<Spec>().is_ok();
        let key = if device.model.is_some() { "model" } else { "" };
        let read = config.known.named_models.get(&device.name);
        let made = mistakes.take(device.nth.key("device", key), setup_again(device, spec, read));
        are_known &= made.is_some();
        made.unwrap_or_else(|| DeviceSetup {
            name: device.name.clone(),
            model: None,
            switches: Switches::default(),
        })
    });
    (setups.collect(), are_known)
}

/// Makes the registry account for the background work of devices, such as garbage collection.
/// `named` has the devices with their names, in the order of their indices.
///
/// # Errors
/// The promises on a device do not fit beside its work.
pub(crate) fn expect_chores(tenants: &Tenants, named: &[(String, Volume)]) -> Result<(), String> {
    let chores = named.iter().map(|(name, volume)| (name, volume.chores()));
    for (place, (name, chores)) in chores.enumerate() {
        if let Some(chores) = chores {
            expect_of(tenants, (place, name), chores)?;
        }
    }
    Ok(())
}

fn expect_of(
    tenants: &Tenants,
    (place, name): (usize, &str),
    chores: Arc<dyn Chores>,
) -> Result<(), String> {
    let mut registry = tenants.registry();
    registry.expect_chores(place, chores, tenants.now());
    let device = registry.devices().infos().into_iter().find(|device| device.name == name);
    let Some((device, most)) = device.and_then(|device| Some((device.clone(), device.tokens?)))
    else {
        return Ok(());
    };
    let (promised, taxes) = (device.tokens_promised, device.chores.and_then(|work| work.taxes));
    match taxes {
        Some([_, tax]) if promised > most => Err(format!(
            "device {name:?}: the SLOs of its tenants need {promised} tokens a second, with {} for \
             each write of 4 KiB that its collection may cost, and it makes {most}; ask for fewer \
             writes, or make the volume with more spare space",
            tax / 100
        )),
        _ => Ok(()),
    }
}

/// Returns the setup with which a device is registered, and reads its model.
pub(crate) fn setup(device: &spec::Device, spec: &Spec) -> Result<DeviceSetup, String> {
    setup_again(device, spec, None)
}

/// Returns the setup with which a device is registered. If its model file cannot be read, the model
/// is that of the text `read`, as it was last read.
fn setup_again(
    device: &spec::Device,
    spec: &Spec,
    read: Option<&String>,
) -> Result<DeviceSetup, String> {
    let model = match &device.model {
        Some(named) => Some(model(named).or_else(|why| {
            let known = read.and_then(|text| ModelFile::parse(text).ok()?.model().ok());
            let name = &device.name;
            known
                .inspect(|_| {
                    tracing::warn!(
                        device = name,
                        "{why}; the device keeps the model as it was last read"
                    )
                })
                .ok_or(why)
        })?),
        None => preset(spec),
    };
    device.check_switches(model.is_some())?;
    Ok(DeviceSetup { name: device.name.clone(), model, switches: device.switches() })
}

/// Returns a model as the text of a model file.
pub(crate) fn text_of(model: &DeviceModel) -> String {
    ModelFile::of("", "as it was named", model).to_toml()
}

/// Returns the model of this name: a published model, or one from a file.
///
/// # Errors
/// The model cannot be read.
pub(crate) fn model(named: &str) -> Result<DeviceModel, String> {
    match named {
        "a" => Ok(DeviceModel::device_a()),
        "cloud" => Ok(DeviceModel::cloud()),
        path => {
            let say = |error: &dyn std::fmt::Display| {
                format!("device model {path:?}: {error}; expected a file, `a` or `cloud`")
            };
            let text = fs::read_to_string(Path::new(path)).map_err(|error| say(&error))?;
            let file = ModelFile::parse(&text).map_err(|error| say(&error))?;
            file.model().map_err(|error| say(&error))
        }
    }
}

/// Returns the model of a simulated device that behaves like a published one; `None` for other
/// devices.
fn preset(spec: &Spec) -> Option<DeviceModel> {
    let (model, slow) = match spec.source {
        Source::Sim { preset: Preset::A, slow, .. } => (DeviceModel::device_a(), slow),
        Source::Sim { preset: Preset::Cloud, slow, .. } => (DeviceModel::cloud(), slow),
        Source::Sim { preset: Preset::Small, slow, .. } => (DeviceModel::small(), slow),
        _ => return None,
    };
    Some(model.slowed(slow))
}
