//! The NVMe fabric of a server: the parts of its configuration that hosts see, and their names.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use contract::{Geometry, NamespaceId, TenantId};
use io::{Endpoint, Waker};
use proto::nvme::auth::{Methods, Secret};
use proto::nvme::psk::TlsKey;
use proto::nvme::{
    self, Environment, Fabric, Host, Hosts, Identifiers, Namespace, Nqn, Port, PortId, Subsystem,
};
use wire::nvme::{AddressFamily, AnaState};

use crate::config::{Config, ConfigLocation, Mistakes, ServerNamespace, exports, methods_of};
use crate::listen::{ListenAt, Protocol};
use crate::machine::machine_id;

/// The size in bytes of the logical blocks of every NVMe namespace. Devices with larger blocks
/// report these as physical blocks.
const BLOCK_BYTES: u32 = 512;

/// The interval between attempts to take the fabric's lock while the thread that holds it is not
/// running.
const LOCKED_PERIOD: Duration = Duration::from_micros(20);

/// The inputs from which the configuration of the NVMe fabric is derived.
pub(crate) struct FabricInputs<'a> {
    pub(crate) config: &'a Config,
    /// The listeners of all protocols.
    pub(crate) listeners: Vec<FabricListener<'a>>,
    /// `true` if the NVMe fabric exists already. It is then configured even if no listener speaks
    /// NVMe now.
    pub(crate) is_made: bool,
    pub(crate) spaces: &'a [ServerNamespace],
    /// The geometries of the devices, by device index.
    pub(crate) geometries: &'a [Geometry],
    pub(crate) workers: usize,
}

/// A listener with its address, from which the fabric derives a port.
pub(crate) struct FabricListener<'a> {
    pub(crate) at: &'a ListenAt,
    /// The address that the listener is bound to, or is to be bound to.
    pub(crate) endpoint: &'a Endpoint,
}

/// The handles that wake the workers and the fabric's helper threads. Empty until these run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakers(Arc<Sleepers>);

#[derive(Debug, Default)]
struct Sleepers {
    workers: OnceLock<Vec<Waker>>,
    calculator: OnceLock<Thread>,
    keeper: OnceLock<Thread>,
}

impl Wakers {
    /// Sets the handles of the workers, once these run.
    pub(crate) fn set(&self, wakers: Vec<Waker>) {
        self.0.workers.set(wakers).expect("workers start once");
    }

    /// Starts the thread that computes authentications, so that no worker has to. It starts with
    /// the server, whatever listens: a fabric may later be made by a thread of low priority, which
    /// the new thread would inherit.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(crate) fn start_calculator(
        &self,
        fabric: Arc<OnceLock<Arc<Fabric>>>,
    ) -> Result<(), String> {
        let compute = move || {
            if let Some(fabric) = fabric.get() {
                while fabric.compute() {}
            }
        };
        start(&self.0.calculator, "nvme-auth", compute)
    }

    /// Starts the thread that stores reservations when one has changed. It calls `keep` whenever it
    /// is woken. Like the computing thread, it has to start with the server, to inherit the normal
    /// priority.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(crate) fn start_keeper(&self, keep: impl Fn() + Send + 'static) -> Result<(), String> {
        start(&self.0.keeper, "nvme-keep", keep)
    }
}

/// Starts a thread that calls `body` whenever the thread is unparked, and puts the thread's handle
/// into `slot`.
fn start(
    slot: &OnceLock<Thread>,
    name: &str,
    body: impl Fn() + Send + 'static,
) -> Result<(), String> {
    let body = move || {
        loop {
            thread::park();
            body();
        }
    };
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(body);
    let thread = spawned.map_err(|e| format!("cannot start a thread: {e}"))?.thread().clone();
    slot.set(thread).expect("a server starts once");
    Ok(())
}

impl Environment for Wakers {
    fn wake(&self, worker: u16) {
        if let Some(waker) = self.0.workers.get().and_then(|wakers| wakers.get(usize::from(worker)))
        {
            waker.wake();
        }
    }

    fn random(&self, bytes: &mut [u8]) {
        io::random(bytes);
    }

    fn give_way(&self) {
        // To yield would not do: who yields may still come before a thread of low priority.
        thread::sleep(LOCKED_PERIOD);
    }

    fn keep(&self) {
        if let Some(keeper) = self.0.keeper.get() {
            keeper.unpark();
        }
    }

    fn compute(&self) {
        if let Some(calculator) = self.0.calculator.get() {
            calculator.unpark();
        }
    }
}

/// Parses the key of a host's entry; `None` without one, or if it is no key, which `mistaken` is
/// told.
fn secret<K, E: std::fmt::Display>(
    key: &'static str,
    text: &Option<spec::Secret>,
    parse: impl Fn(&str) -> Result<K, E>,
    mistaken: &mut impl FnMut(&'static str, String),
) -> Option<K> {
    let parsed = text.as_ref().map(|text| parse(&text.0)).transpose();
    parsed.unwrap_or_else(|error| {
        mistaken(key, format!("its {key} is {error}"));
        None
    })
}

impl FabricInputs<'_> {
    /// Returns the fabric's configuration; `None` if no listener ever spoke NVMe. `tenant` returns
    /// the tenant of a name.
    ///
    /// # Errors
    /// All mistakes of the configuration. They are reported even without an NVMe listener, since
    /// one may be added later.
    pub(crate) fn config(
        &self,
        tenant: impl Fn(&str) -> Option<TenantId>,
    ) -> Result<Option<nvme::Config>, Mistakes> {
        let config = Mistakes::collect(|mistakes| self.config_or(tenant, mistakes))?;
        let speaks = |one: &FabricListener<'_>| one.at.protocol == Protocol::NvmeTcp;
        let is_wanted = self.is_made || self.listeners.iter().any(speaks);
        Ok(is_wanted.then_some(config))
    }

    /// Returns the fabric's configuration without its mistaken parts, and adds the mistakes to
    /// `mistakes`. `tenant` returns the tenant of a name.
    pub(crate) fn config_or(
        &self,
        tenant: impl Fn(&str) -> Option<TenantId>,
        mistakes: &mut Mistakes,
    ) -> nvme::Config {
        let before = mistakes.len();
        let methods = self.config.authentication.methods();
        let methods =
            mistakes.take(ConfigLocation::Key("authentication"), methods).unwrap_or_default();
        let hosts = self.hosts(&tenant, &methods, mistakes);
        let mut all = nvme::Config {
            workers: self.workers as u16,
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
            ports: self.ports(),
            methods,
            ..nvme::Config::default()
        };
        let mut subsystems: Vec<Subsystem> = Vec::new();
        for (n, config) in self.config.named_subsystems().iter().enumerate() {
            let mut mistaken = |key, error: String| {
                let what = format!("subsystem {}: {error}", n + 1);
                mistakes.add(config.nth.key("subsystem", key), what);
            };
            let Some(made) = self.subsystem(config, &tenant, &mut mistaken) else { continue };
            if subsystems.iter().any(|other| other.nqn == made.nqn) {
                let error = format!(
                    "nqn {:?} is that of another; expected one that no other subsystem has",
                    made.nqn
                );
                mistaken("nqn", error);
                continue;
            }
            // Alone, so that what is wrong with it is known to be.
            all.subsystems = vec![made];
            if let Err(refusal) = Fabric::check(&all) {
                mistaken("", refusal.to_string());
            }
            subsystems.append(&mut all.subsystems);
        }
        (all.subsystems, all.hosts) = (subsystems, hosts);
        if mistakes.len() == before
            && let Err(refusal) = Fabric::check(&all)
        {
            mistakes.add(ConfigLocation::Key("subsystem"), format!("[[subsystem]]: {refusal}"));
        }
        all
    }

    /// Returns the configured NVMe hosts, with their keys and tenants. `methods` are those of hosts
    /// that have no lists of their own. Mistakes name the host and never a key.
    fn hosts(
        &self,
        tenant: impl Fn(&str) -> Option<TenantId>,
        methods: &Methods,
        mistakes: &mut Mistakes,
    ) -> Vec<Host> {
        let mut hosts: Vec<Host> = Vec::new();
        let mut names = HashSet::new();
        for config in &self.config.host {
            let mut mistaken = |key, error: String| {
                let what = format!("host {:?}: {error}", config.nqn);
                mistakes.add(config.nth.key("host", key), what);
            };
            let key = secret("key", &config.key, Secret::parse, &mut mistaken);
            let former_key = secret("former_key", &config.former_key, Secret::parse, &mut mistaken);
            let own = &config.controller_key;
            let controller_key = secret("controller_key", own, Secret::parse, &mut mistaken);
            let tls_key = secret("tls_key", &config.tls_key, TlsKey::parse, &mut mistaken);
            let former = &config.former_tls_key;
            let former_tls_key = secret("former_tls_key", former, TlsKey::parse, &mut mistaken);
            let found = config.tenant.as_deref().map(&tenant);
            if let (Some(None), Some(name)) = (found, &config.tenant) {
                mistaken("tenant", format!("there is no tenant {name:?}"));
            }
            let nqn = match Nqn::new(&config.nqn) {
                Ok(nqn) => nqn,
                Err(error) => {
                    mistaken("nqn", error.to_string());
                    continue;
                }
            };
            if !names.insert(config.nqn.as_str()) {
                let error = "another has this nqn; expected one that no other host has";
                mistaken("nqn", error.to_owned());
            }
            let (tenant, methods) = (found.flatten(), methods_of(config, methods));
            hosts.push(Host {
                nqn,
                tenant,
                key,
                former_key,
                controller_key,
                methods,
                tls_key,
                former_tls_key,
            });
        }
        hosts
    }

    fn ports(&self) -> Vec<Port> {
        let ports = self.listeners.iter().filter(|one| one.at.protocol == Protocol::NvmeTcp);
        ports
            .filter_map(|open| {
                let address = open.at.advertised.or_else(|| open.endpoint.internet())?;
                let family = match address.ip() {
                    IpAddr::V4(_) => AddressFamily::IPV4,
                    IpAddr::V6(_) => AddressFamily::IPV6,
                };
                Some(Port {
                    id: PortId(open.at.id.place()),
                    family,
                    address: address.ip().to_string(),
                    service: address.port().to_string(),
                    security: open.at.security(),
                })
            })
            .collect()
    }

    /// Returns a subsystem without its invalid parts; `None` if it has no name. `mistaken` takes a
    /// key and its mistake.
    fn subsystem(
        &self,
        config: &spec::Subsystem,
        tenant: impl Fn(&str) -> Option<TenantId>,
        mistaken: &mut impl FnMut(&'static str, String),
    ) -> Option<Subsystem> {
        let Some(name) = config.nqn.clone() else {
            mistaken("", "it needs an nqn, as it is not the first".to_owned());
            return None;
        };
        let exported = exports(config, self.spaces).unwrap_or_else(|error| {
            mistaken("namespaces", error);
            Vec::new()
        });
        let mut namespaces = Vec::new();
        for (nsid, id) in exported {
            match self.namespace(&name, nsid, NamespaceId(id)) {
                Ok(namespace) => namespaces.push(namespace),
                Err(error) => mistaken("namespaces", error),
            }
        }
        let hosts = config.hosts.as_ref().map(|names| {
            let mut known = Vec::new();
            for name in names {
                match Nqn::new(name) {
                    Ok(nqn) => known.push(nqn),
                    Err(error) => mistaken("hosts", error.to_string()),
                }
            }
            Hosts::Only(known)
        });
        let found = config.tenant.as_deref().map(tenant);
        if let (Some(None), Some(name)) = (found, &config.tenant) {
            mistaken("tenant", format!("there is no tenant {name:?}"));
        }
        let ana = self.ana(config, mistaken);
        let nqn = match Nqn::new(&name) {
            Ok(nqn) => nqn,
            Err(error) => {
                mistaken("nqn", error.to_string());
                return None;
            }
        };
        Some(Subsystem {
            serial: hex(&digest(&[machine_id(), &name])[..10]),
            hosts: hosts.unwrap_or(Hosts::Any),
            ports: Vec::new(),
            namespaces,
            ana,
            tenant: found.flatten(),
            must_authenticate: config.authenticate,
            nqn,
        })
    }

    /// Returns a subsystem's configured ANA states: for each, the port of the listener, the
    /// namespace group, and the state of that group through the listener.
    fn ana(
        &self,
        config: &spec::Subsystem,
        mistaken: &mut impl FnMut(&'static str, String),
    ) -> Vec<(PortId, u32, AnaState)> {
        let each = config.ana.iter().filter_map(|ana| {
            match self.listeners.iter().find(|open| open.at.number == ana.listener) {
                Some(open) if open.at.protocol == Protocol::NvmeTcp => {
                    Some((PortId(open.at.id.place()), ana.group, ana_state(ana.state)))
                }
                _ => {
                    mistaken("ana", format!("ana: listener {} is none of NVMe's", ana.listener));
                    None
                }
            }
        });
        each.collect()
    }

    fn namespace(&self, subsystem: &str, nsid: u32, id: NamespaceId) -> Result<Namespace, String> {
        let found = self.spaces.binary_search_by_key(&id, |space| space.number);
        let found = found.map_err(|_| format!("there is no namespace {}", id.0))?;
        let space = &self.spaces[found];
        let namespace = space.place;
        let geometry = Geometry {
            blocks: namespace.blocks,
            read_only: namespace.read_only || self.geometries[namespace.device].read_only,
            ..self.geometries[namespace.device]
        };
        // The same for the same namespace of the same machine, and of no other.
        let uuid = space.uuid.unwrap_or_else(|| derived_uuid(subsystem, nsid, id.0));
        Ok(Namespace {
            nsid,
            id,
            geometry,
            block_bytes: BLOCK_BYTES,
            identifiers: Identifiers { uuid, ..Identifiers::default() },
            ana_group: 1,
            hosts: Hosts::Any,
            tenant: None,
        })
    }
}

/// Converts a configured ANA state to the type of the NVMe protocol.
fn ana_state(state: spec::AnaState) -> AnaState {
    match state {
        spec::AnaState::Optimized => AnaState::OPTIMIZED,
        spec::AnaState::NonOptimized => AnaState::NON_OPTIMIZED,
        spec::AnaState::Inaccessible => AnaState::INACCESSIBLE,
        spec::AnaState::PersistentLoss => AnaState::PERSISTENT_LOSS,
        spec::AnaState::Change => AnaState::CHANGE,
    }
}

/// Returns the UUID of a namespace that has no configured one, derived from its subsystem, its
/// numbers and this machine's identifier.
pub(crate) fn derived_uuid(subsystem: &str, nsid: u32, number: u16) -> [u8; 16] {
    uuid_of(&[machine_id(), subsystem, &nsid.to_string(), &number.to_string()])
}

/// Returns a UUID derived from these words (RFC 9562, version 8).
pub(crate) fn uuid_of(words: &[&str]) -> [u8; 16] {
    let mut uuid = digest(words);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// Returns a digest of the words: FNV-1a with 128 bits. The digest keeps no secrets.
fn digest(words: &[&str]) -> [u8; 16] {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in words.iter().flat_map(|word| word.bytes().chain([0])) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    }
    hash.to_be_bytes()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_tell_words_apart() {
        assert_eq!(digest(&["a", "b"]), digest(&["a", "b"]));
        assert_ne!(digest(&["a", "b"]), digest(&["ab"]));
        assert_ne!(digest(&["a", "b"]), digest(&["a", "c"]));
        // FNV-1a of "a", whose value is published, goes on with a zero byte here.
        assert_eq!(hex(&[0x0f, 0xa0]), "0fa0");
    }
}
