//! The configuration of a server: one TOML file, or the command line
//! (docs/reference/configuration.md).

mod admin;
mod authentication;

use std::collections::BTreeMap;
use std::time::Duration;

use contract::{ListenerId, NamespaceId, TenantId};
use flash::Spec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spec::{AccessRule, Clients, Device, Host, Listener, Mistake, Namespace, Subsystem, Tenant};
use worker::{AccessRules, AccessScope, Limits, PeerPattern, PeerRule};

pub(crate) use self::admin::AdminConfig;
use self::authentication::AuthenticationConfig;
pub(crate) use self::authentication::methods_of;
use crate::listen::{DEFAULT_URL, ListenAt, NUMBER_MAX};
use crate::worker_count::WorkerCountRange;

pub mod effective;
pub mod exposure;
mod kept_model;
mod mistake;
mod mistakes;
mod namespace;
mod ranges;
mod reading;
pub mod schema;

pub(crate) use kept_model::KeptModel;
pub use mistakes::Mistakes;
pub(crate) use namespace::{DeviceCapacity, ServerNamespace, exports, table};
pub(crate) use spec::ConfigLocation;

/// The spec of the default device, for a configuration without devices.
pub(crate) const DEFAULT_DEVICE: &str = "file:./nearflash-data/volume0?size=1GiB";

/// The URL of the stand-in for a listener whose URL is invalid. References to the listener stay
/// valid.
const NOWHERE: &str = "nvme-tcp://127.0.0.1:0";

/// A configuration file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Number of worker threads: a number, or `MIN..MAX` in quotes for as many as the load needs.
    #[schemars(with = "Option<crate::worker_count::Written>")]
    pub(crate) workers: Option<WorkerCountRange>,
    /// Processors that the workers are pinned to, one each, in this order. An empty list pins none.
    pub(crate) cpus: Option<Vec<usize>>,
    /// Address of the admin API, or the table `[admin]` with its address and files.
    /// By default a Unix socket of the server's user.
    #[serde(default)]
    #[schemars(with = "Option<admin::Written>")]
    pub(crate) admin: AdminConfig,
    /// State file, which keeps changes made while the server runs, or `none`.
    /// By default `NAME.state` beside the configuration file, or in the service manager's directory
    /// for states; none if there is no configuration file.
    pub state: Option<String>,
    /// Devices that the server exports. By default one file of 1 GiB.
    #[serde(default)]
    pub(crate) device: Vec<Device>,
    /// Addresses that the server listens on. By default port 7420 of loopback.
    #[serde(default)]
    pub(crate) listen: Vec<Listener>,
    /// Namespaces: the ranges of devices that clients see. By default each device is one.
    #[serde(default)]
    pub(crate) namespace: Vec<Namespace>,
    /// Rules that say which clients may connect and what they may do. By default all may do all.
    #[serde(default)]
    pub(crate) access: Vec<AccessRule>,
    /// Tenants, to which requests are charged, with their SLOs.
    #[serde(default)]
    pub tenant: Vec<Tenant>,
    /// Subsystems that NVMe hosts can connect to.
    #[serde(default)]
    pub(crate) subsystem: Vec<Subsystem>,
    /// NVMe hosts that have keys or a tenant of their own.
    #[serde(default)]
    pub(crate) host: Vec<Host>,
    /// Methods by which NVMe hosts may authenticate. By default all that the server has.
    #[serde(default)]
    pub(crate) authentication: AuthenticationConfig,
    /// Limits of each worker; `connections` and `tenants` are limits of the whole server.
    /// By default each key has its own value.
    #[serde(default)]
    limits: spec::Limits,
    /// `true` if all listeners, namespaces and subsystems are listed: an empty list means none, not
    /// the default ones.
    #[serde(skip)]
    pub(crate) is_settled: bool,
    /// The facts about devices that earlier servers kept.
    #[serde(skip)]
    pub(crate) known: KnownDevices,
}

/// The facts about devices that the state file keeps, by the devices' names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KnownDevices {
    /// Texts of the models that operators gave to devices while the server ran, by device.
    pub(crate) named_models: BTreeMap<String, String>,
    /// Models that a recalibration measured, which replace the configured models, by device.
    pub(crate) measured_models: BTreeMap<String, KeptModel>,
    /// Identities of the disks that served earlier, by device.
    pub(crate) disks: BTreeMap<String, String>,
}

impl Config {
    /// Sets the model of every configured device, or of the default device if none is configured.
    /// `model` is a file or the name of a built-in model.
    pub(crate) fn set_model(&mut self, model: &str) {
        if self.device.is_empty() {
            self.device.push(Device::from_argument((0, &DEFAULT_DEVICE.to_owned())));
        }
        self.device.iter_mut().for_each(|device| device.model = Some(model.to_owned()));
    }

    /// Returns the devices, or the default device if none is configured.
    pub(crate) fn all_devices(&self) -> Vec<Device> {
        match self.device.is_empty() {
            true => vec![Device::from_argument((0, &DEFAULT_DEVICE.to_owned()))],
            false => self.device.clone(),
        }
    }

    /// Returns the specs of the devices, in their order.
    ///
    /// # Errors
    /// Fails with all specs that are invalid.
    pub fn specs(&self) -> Result<Vec<Spec>, Mistakes> {
        Mistakes::collect(|mistakes| self.specs_or(mistakes))
    }

    /// Returns the specs of the devices, in their order. An invalid spec adds to `mistakes`, and a
    /// large device stands in for it.
    pub(crate) fn specs_or(&self, mistakes: &mut Mistakes) -> Vec<Spec> {
        let spec = |device: &Device| {
            let parsed = device.validate().map_err(|(_, error)| error);
            mistakes.take(device.nth.key("device", "spec"), parsed).unwrap_or_else(stand_in)
        };
        self.all_devices().iter().map(spec).collect()
    }

    /// Returns `true` if there is an access rule.
    pub(crate) fn has_access_rules(&self) -> bool {
        !self.access.is_empty()
    }

    /// Returns the numbers of the namespaces that access rules name.
    pub(crate) fn ruled_namespaces(&self) -> impl Iterator<Item = u16> {
        let lists = self.access.iter().filter_map(|rule| rule.namespaces.as_ref());
        lists.flatten().copied()
    }

    /// Returns the tenant of each access rule, with the rule's number from 1; `None` stands for the
    /// listener's or the default tenant.
    pub(crate) fn rule_tenants(&self) -> impl Iterator<Item = (usize, Option<&str>)> {
        let rules = self.access.iter().enumerate();
        rules.map(|(n, rule)| (n + 1, rule.tenant_name()))
    }

    /// Returns the access rules; without any rule everybody may do everything. `is_known` returns
    /// `true` for namespaces that exist, `find` the tenant of a name. Invalid rules add to
    /// `mistakes` and are left out.
    pub(crate) fn access(
        &self,
        is_known: impl Fn(NamespaceId) -> bool,
        find: impl Fn(&str) -> Option<TenantId>,
        mistakes: &mut Mistakes,
    ) -> AccessRules {
        if self.access.is_empty() {
            return AccessRules::open_to_all();
        }
        let rule = |(n, config): (usize, &AccessRule)| {
            let tenant = config.tenant_name().and_then(&find).unwrap_or(TenantId::DEFAULT);
            let rule = rule(config, &is_known, tenant).map_err(|(key, error)| {
                mistakes
                    .add(config.nth.key("access", key), format!("access rule {}: {error}", n + 1));
            });
            rule.ok()
        };
        let rules: Vec<PeerRule> = self.access.iter().enumerate().filter_map(rule).collect();
        AccessRules::new(rules)
    }

    /// Returns the limits of each worker.
    ///
    /// # Errors
    /// Fails with all limits that are invalid.
    pub(crate) fn limits(&self) -> Result<Limits, Mistakes> {
        Mistakes::collect(|mistakes| self.limits_or(mistakes))
    }

    /// Returns the limits of each worker. An invalid limit adds to `mistakes` and keeps its
    /// default.
    pub(crate) fn limits_or(&self, mistakes: &mut Mistakes) -> Limits {
        let mut limits = Limits::default();
        let config = &self.limits;
        let mut number = |key: &'static str, told: Option<usize>| {
            let checked = ranges::check("limits", key, told? as u64);
            mistakes.take(ConfigLocation::In("limits", key), checked)
        };
        let mut set = |key, told, limit: &mut usize| {
            *limit = number(key, told).map_or(*limit, |n| n as usize);
        };
        set("in_flight", config.in_flight, &mut limits.in_flight);
        set("tenants", config.tenants, &mut limits.tenants);
        let told = config.in_flight_of_connection;
        set("in_flight_of_connection", told, &mut limits.in_flight_of_connection);
        if let Some(seconds) = number("stuck_seconds", config.stuck_seconds) {
            limits.stuck = Duration::from_secs(seconds);
            limits.stuck_under_pressure = limits.stuck_under_pressure.min(limits.stuck);
        }
        if let Some(seconds) = number("drain_seconds", config.drain_seconds) {
            limits.drain = Duration::from_secs(seconds);
        }
        number("connections", config.connections);
        let mut bytes = |key: &'static str, told: &Option<String>, limit: &mut usize| {
            let Some(text) = told else { return };
            let bytes = spec::Limits::bytes(key, text).map_err(|(_, error)| error);
            *limit = mistakes.take(ConfigLocation::In("limits", key), bytes).unwrap_or(*limit);
        };
        bytes(
            "unsent_of_connection",
            &config.unsent_of_connection,
            &mut limits.unsent_of_connection,
        );
        bytes("carried", &config.carried, &mut limits.carried);
        limits
    }

    /// Returns the processors that workers are pinned to; `None` if workers are not pinned.
    pub(crate) fn pinned(&self) -> Option<&Vec<usize>> {
        self.cpus.as_ref().filter(|cpus| !cpus.is_empty())
    }

    /// Returns the maximum number of connections of all workers together.
    pub(crate) fn connections_max(&self) -> usize {
        self.limits.connections.unwrap_or(65_536)
    }

    /// Returns the NVMe subsystems with their NQNs, or one subsystem of all namespaces if none is
    /// configured. The server itself names the first one if it has no NQN.
    pub(crate) fn named_subsystems(&self) -> Vec<Subsystem> {
        self.subsystems_named(crate::machine::own_name)
    }

    /// Returns `true` if the server itself names the first subsystem, since the configuration gives
    /// no NQN for it.
    pub(crate) fn leaves_name(&self) -> bool {
        self.subsystem.first().is_none_or(|first| first.nqn.is_none())
    }

    /// Returns the NVMe subsystems with their NQNs, or one subsystem of all namespaces if none is
    /// configured. `own` returns the NQN of the first one if it has none.
    pub(crate) fn subsystems_named(&self, own: impl FnOnce() -> String) -> Vec<Subsystem> {
        let mut all = match self.subsystem.is_empty() && !self.is_settled {
            true => vec![Subsystem::default()],
            false => self.subsystem.clone(),
        };
        if let Some(first) = all.first_mut() {
            first.nqn.get_or_insert_with(own);
        }
        all
    }

    /// Returns the listeners, sorted by number.
    ///
    /// # Errors
    /// Fails with all URLs and numbers that are invalid.
    pub(crate) fn listeners(&self) -> Result<Vec<ListenAt>, Mistakes> {
        Mistakes::collect(|mistakes| self.listeners_or(mistakes))
    }

    /// Returns the listeners, sorted by number. An invalid URL or number adds to `mistakes`; a
    /// loopback listener stands in for an invalid URL.
    pub(crate) fn listeners_or(&self, mistakes: &mut Mistakes) -> Vec<ListenAt> {
        let mut all: Vec<ListenAt> = Vec::new();
        for (config, position) in self.numbered_listeners(&[]).iter().zip(1..) {
            let number = config.number.expect("it was numbered");
            let parsed =
                ListenAt::parse(&config.url).map_err(|error| format!("listen {position}: {error}"));
            let at = mistakes.take(config.nth.key("listen", "url"), parsed);
            let at = at.unwrap_or_else(|| ListenAt::parse(NOWHERE).expect("it is a URL"));
            let of_number = config.nth.key("listen", "number");
            if let Err((_, error)) = config.validate() {
                mistakes.add(of_number, format!("listen {position}: {error}"));
            } else if let Some(other) = all.iter().find(|other| other.number == number) {
                let other = &other.endpoint;
                mistakes.add(
                    of_number,
                    format!(
                        "listen {position}: number {number} is that of {other}; expected one that no \
                         other listener has"
                    ),
                );
            } else {
                all.push(ListenAt { number, id: ListenerId::new(number - 1, 0), ..at });
            }
        }
        all.sort_by_key(|at| at.number);
        all
    }

    /// Returns the place of a listener's URL in the configuration file; `None` if no entry has this
    /// number.
    pub(crate) fn place_of_listener(&self, number: u16) -> Option<ConfigLocation> {
        let found = self.listen.iter().find(|one| one.number == Some(number))?;
        found.nth.key("listen", "url")
    }

    /// Returns the listeners with their numbers, in their order, or the default listener if none is
    /// configured. A listener without a number gets its position as its number. If another listener
    /// has that number, or it is among the numbers `added` while servers ran, the listener gets the
    /// next free number after all positions.
    pub(crate) fn numbered_listeners(&self, added: &[u16]) -> Vec<Listener> {
        let mut all = match self.listen.is_empty() && !self.is_settled {
            true => vec![Listener::from_argument(DEFAULT_URL)],
            false => self.listen.clone(),
        };
        let mut taken: Vec<u16> = added.to_vec();
        taken.extend(all.iter().filter_map(|one| one.number));
        let mut behind = all.len() as u16;
        for (one, place) in all.iter_mut().zip(1..).filter(|(one, _)| one.number.is_none()) {
            let mut number = place;
            while taken.contains(&number) {
                behind = behind.saturating_add(1);
                number = behind;
                if behind > NUMBER_MAX {
                    break;
                }
            }
            one.number = Some(number);
        }
        all
    }

    /// Returns the configuration that applies once a server that runs with `old` has reloaded this
    /// one, and the names of the changed parts that need a restart.
    pub(crate) fn live_over(&self, old: &Config) -> (Config, Vec<String>) {
        let parts = [
            ("workers", self.workers == old.workers),
            ("cpus", self.pinned() == old.pinned()),
            ("[admin]", self.admin == old.admin),
            ("state", self.state == old.state),
            ("[[access]]", self.access == old.access),
            ("[limits]", self.limits == old.limits),
        ];
        let later = parts.iter().filter(|(_, same)| !same).map(|(name, _)| (*name).to_owned());
        let mut taken = old.clone();
        taken.device = self.device.clone();
        taken.listen = self.listen.clone();
        taken.tenant = self.tenant.clone();
        taken.namespace = self.namespace.clone();
        taken.subsystem = self.subsystem.clone();
        taken.host = self.host.clone();
        taken.authentication = self.authentication.clone();
        (taken, later.collect())
    }
}

/// Converts a configured access rule into the rule that workers check, for this tenant. An error
/// names the invalid key.
fn rule(
    config: &AccessRule,
    is_known: impl Fn(NamespaceId) -> bool,
    tenant: TenantId,
) -> Result<PeerRule, Mistake> {
    let who = match config.clients()? {
        Clients::Anyone => PeerPattern::Anyone,
        Clients::Network(address, prefix) => PeerPattern::Network { address, prefix },
        Clients::Token(token) => PeerPattern::Token(token.as_bytes().to_vec()),
        Clients::User(uid) => PeerPattern::User(uid),
    };
    let rights = config.granted()?;
    let scope = match &config.namespaces {
        None => AccessScope::All(rights),
        Some(numbers) => {
            if let Some(n) = numbers.iter().find(|n| !is_known(NamespaceId(**n))) {
                return Err(("namespaces", format!("there is no namespace {n}")));
            }
            AccessScope::Only(numbers.iter().map(|n| (NamespaceId(*n), rights)).collect())
        }
    };
    let register = config.register;
    Ok(PeerRule { who, tenant, tenant_name: config.tenant.clone(), register, scope })
}

/// Returns a stand-in for a device whose spec is invalid, with room for all namespaces.
fn stand_in() -> Spec {
    "null:1048576TiB".parse().expect("it is a spec")
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Peer, Rights};

    const FULL: &str = r#"
        workers = 2
        cpus = [0, 1]
        [[device]]
        name = "fast"
        spec = "mem:64MiB"
        [[listen]]
        url = "reflex://127.0.0.1:7420"
        [[namespace]]
        device = "fast"
        size = "16MiB"
        [[namespace]]
        device = "fast"
        offset = "16MiB"
        read_only = true
        [[access]]
        from = "127.0.0.0/8"
        rights = "read"
        [[access]]
        token = "secret"
        tenant = "batch"
        namespaces = [2]
        rights = "read-write"
        [limits]
        in_flight = 100
        unsent_of_connection = "1MiB"
    "#;

    #[test]
    fn a_full_file_is_understood() {
        let config = Config::parse(FULL).unwrap();
        let spaces = config.spaces(&[DeviceCapacity::of_blocks(131_072)]).unwrap();
        let namespaces = table(&spaces);
        let second = namespaces.find(NamespaceId(2)).unwrap();
        assert_eq!((second.first, second.blocks, second.read_only), (32_768, 98_304, true));
        let mut mistakes = Mistakes::default();
        let access = config.access(
            |number| namespaces.find(number).is_some(),
            |name| (name == "batch").then_some(TenantId(1)),
            &mut mistakes,
        );
        assert!(mistakes.is_empty(), "{mistakes}");
        let peer = Peer::Internet("127.0.0.1:9".parse().unwrap());
        let grant = access.open(&peer, b"secret", "batch", None).unwrap();
        assert_eq!(grant.tenant, TenantId(1));
        assert_eq!(grant.rights(NamespaceId(2)), Rights::ALL);
        let limits = config.limits().unwrap();
        assert_eq!((limits.in_flight, limits.unsent_of_connection), (100, 1 << 20));
    }

    #[test]
    fn mistakes_say_what_they_are_about() {
        let error = Config::parse("workers = 1\nwokers = 2").unwrap_err().to_string();
        assert!(error.contains("wokers"), "{error}");
        let config =
            Config::parse("[[access]]\nfrom = \"10.0.0.0/40\"\nrights = \"read\"").unwrap();
        let mut mistakes = Mistakes::default();
        config.access(|_| true, |_| None, &mut mistakes);
        let error = mistakes.to_string();
        assert!(error.contains("access rule 1") && error.contains("10.0.0.0/8"), "{error}");
        let config = Config::parse(
            "[[device]]\nname=\"a\"\nspec=\"mem:1MiB\"\n[[namespace]]\ndevice=\"a\"\nsize=\"2MiB\"",
        )
        .unwrap();
        let error = config.spaces(&[DeviceCapacity::of_blocks(2048)]).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("namespace 1") && error.contains("4096"), "{error}");
    }

    #[test]
    fn nothing_told_means_the_defaults() {
        let config = Config::default();
        assert_eq!(config.specs().unwrap().len(), 1);
        assert_eq!(config.listeners().unwrap()[0].endpoint.to_string(), "127.0.0.1:7420");
        assert_eq!(config.spaces(&[DeviceCapacity::of_blocks(8)]).unwrap().len(), 1);
    }

    fn numbers(text: &str, added: &[u16]) -> Vec<u16> {
        let config = Config::parse(text).unwrap();
        config.numbered_listeners(added).iter().filter_map(|one| one.number).collect()
    }

    const THREE: &str = "[[listen]]\nurl = \"reflex://127.0.0.1:1\"\n\
                         [[listen]]\nurl = \"reflex://127.0.0.1:2\"\n\
                         [[listen]]\nurl = \"reflex://127.0.0.1:3\"\n";

    #[test]
    fn a_number_is_told_or_its_place() {
        assert_eq!(numbers("", &[]), [1]);
        assert_eq!(numbers(THREE, &[]), [1, 2, 3]);
        assert_eq!(numbers(THREE, &[2, 4]), [1, 5, 3], "whoever was added keeps its number");
        let told = THREE.replacen("127.0.0.1:1\"", "127.0.0.1:1\"\nnumber = 3", 1);
        assert_eq!(numbers(&told, &[]), [3, 2, 4]);
        let order: Vec<u16> =
            Config::parse(&told).unwrap().listeners().unwrap().iter().map(|at| at.number).collect();
        assert_eq!(order, [2, 3, 4]);
    }

    #[test]
    fn a_number_that_cannot_be_is_explained() {
        for (number, word) in [("0", "from 1 to"), ("5000", "from 1 to 4096"), ("2", "that of")] {
            let text = THREE
                .replacen("127.0.0.1:1\"", &format!("127.0.0.1:1\"\nnumber = {number}"), 1)
                .replacen("127.0.0.1:2\"", "127.0.0.1:2\"\nnumber = 2", 1);
            let error = Config::parse(&text).unwrap().listeners().unwrap_err().to_string();
            assert!(error.starts_with("listen ") && error.contains(word), "{number}: {error}");
        }
    }

    #[test]
    fn what_cannot_change_is_named() {
        let old = Config::parse(FULL).unwrap();
        let mut new = old.clone();
        assert_eq!(new.live_over(&old).1, Vec::<String>::new());
        new.workers = Some(WorkerCountRange::fixed(3).unwrap());
        new.tenant.clear();
        new.access.clear();
        let (taken, later) = new.live_over(&old);
        assert_eq!(later, ["workers", "[[access]]"]);
        assert!(
            taken.tenant.is_empty() && taken.workers == old.workers && taken.has_access_rules()
        );
    }
}
