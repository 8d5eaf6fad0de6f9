//! The configuration of a server: one TOML file, or the command line
//! (docs/reference/configuration.md).

mod admin;
mod authentication;

use std::collections::BTreeMap;
use std::time::Duration;

use contract::{BLOCK_BYTES, NamespaceId, Promise, Rights, Share, Slo, TenantId};
use control::{Refusal, Switches, TenantInfo};
use flash::{Spec, parse_size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use worker::{Access, Limits, Rule, Scope, Who};

pub(crate) use self::admin::AdminConfig;
use self::authentication::AuthenticationConfig;
use crate::crew_size::CrewSize;
use crate::live::KeptModel;

mod device;
mod effective;
mod exposure;
mod listener;
mod mistake;
mod mistakes;
mod namespace;
mod ranges;
mod reading;
mod schema;
mod subsystem;

pub use mistakes::Mistakes;
pub(crate) use mistakes::{Nth, Place};
pub(crate) use namespace::{NamespaceConfig, Room, Space, check_name, table, uuid_text};
#[cfg(test)]
pub(crate) use schema::SMALLEST;
pub(crate) use subsystem::{AnaConfig, AnaWord, Exported, HiddenText, HostConfig, SubsystemConfig};

/// The spec of the device that a server exports if its configuration has none.
pub(crate) const DEFAULT_DEVICE: &str = "file:./nearflash-data/volume0?size=1GiB";

/// A configuration file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Number of worker threads: a number, or `MIN..MAX` in quotes for as many as the load needs.
    #[schemars(with = "Option<crate::crew_size::Written>")]
    pub(crate) workers: Option<CrewSize>,
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
    pub(crate) device: Vec<DeviceConfig>,
    /// Addresses that the server listens on. By default port 7420 of loopback.
    #[serde(default)]
    pub(crate) listen: Vec<ListenConfig>,
    /// Namespaces: the ranges of devices that clients see. By default each device is one.
    #[serde(default)]
    pub(crate) namespace: Vec<NamespaceConfig>,
    /// Rules that say which clients may connect and what they may do. By default all may do all.
    #[serde(default)]
    access: Vec<AccessConfig>,
    /// Tenants, to which requests are charged, with their SLOs.
    #[serde(default)]
    pub tenant: Vec<TenantConfig>,
    /// Subsystems that NVMe hosts can connect to.
    #[serde(default)]
    pub(crate) subsystem: Vec<SubsystemConfig>,
    /// NVMe hosts that have keys or a tenant of their own.
    #[serde(default)]
    pub(crate) host: Vec<HostConfig>,
    /// Methods by which NVMe hosts may authenticate. By default all that the server has.
    #[serde(default)]
    pub(crate) authentication: AuthenticationConfig,
    /// Limits of each worker; `connections` and `tenants` are limits of the whole server.
    /// By default each key has its own value.
    #[serde(default)]
    limits: LimitsConfig,
    /// `true` if all listeners, namespaces and subsystems are listed: an empty list means none, not
    /// the default ones.
    #[serde(skip)]
    pub(crate) is_settled: bool,
    /// Texts of the models that operators named while the server ran, by device.
    #[serde(skip)]
    pub(crate) named_models: BTreeMap<String, String>,
    /// Measured models that replace the named ones, by device.
    #[serde(skip)]
    pub(crate) measured_models: BTreeMap<String, KeptModel>,
}

/// A device that the server exports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeviceConfig {
    /// Name of the device, by which namespaces and tenants refer to it.
    pub(crate) name: String,
    /// A device spec (docs/reference/devices.md).
    pub(crate) spec: String,
    /// Device model: a file, `a` or `cloud` (docs/reference/device-models.md).
    /// By default `sim:a` and `sim:cloud` have their own model, and other devices have none.
    pub(crate) model: Option<String>,
    /// Corrects the device model by measured delays.
    #[serde(default)]
    correct_online: bool,
    /// Limits the requests in flight at the device to what the strictest latency objective allows.
    #[serde(default)]
    bound_depth: bool,
    /// Refuses requests that would miss their latency objective at once.
    #[serde(default)]
    fail_fast: bool,
    /// Automatic recalibration of a device that differs from its model: `off`, or `idle` for when
    /// the device is idle.
    #[serde(default)]
    recalibrate: Recalibrate,
    /// Seconds of little load after which the device counts as idle.
    recalibrate_idle_seconds: Option<u32>,
    /// Namespace, by name or number, that a recalibration may overwrite.
    /// A recalibration without one only reads.
    pub(crate) recalibrate_scratch: Option<String>,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub(crate) nth: Nth,
}

/// The condition under which a device that has drifted is recalibrated automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Recalibrate {
    #[default]
    Off,
    Idle,
}

impl DeviceConfig {
    /// The default of [`idle_after`](Self::idle_after).
    pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(60);

    /// Returns `true` if the device is recalibrated automatically when it has drifted and is idle.
    pub(crate) fn recalibrates_by_itself(&self) -> bool {
        self.recalibrate == Recalibrate::Idle
    }

    /// Returns the time of little load after which the device counts as idle.
    pub(crate) fn idle_after(&self) -> Duration {
        let told = self.recalibrate_idle_seconds;
        told.map_or(DeviceConfig::IDLE_AFTER, |seconds| Duration::from_secs(seconds.into()))
    }

    /// Returns the `n`-th device of a command line.
    pub(crate) fn from_argument((n, spec): (usize, &String)) -> Self {
        DeviceConfig::new(format!("device{n}"), spec.clone(), None, Switches::default())
    }

    /// Returns a device that is never recalibrated automatically.
    pub(crate) fn new(
        name: String,
        spec: String,
        model: Option<String>,
        switches: Switches,
    ) -> Self {
        let Switches { correct_online, bound_depth, fail_fast } = switches;
        DeviceConfig {
            name,
            spec,
            model,
            correct_online,
            bound_depth,
            fail_fast,
            recalibrate: Recalibrate::Off,
            recalibrate_idle_seconds: None,
            recalibrate_scratch: None,
            nth: Nth::default(),
        }
    }

    /// Returns the optional features of the device's scheduler.
    pub(crate) fn switches(&self) -> Switches {
        let DeviceConfig { correct_online, bound_depth, fail_fast, .. } = *self;
        Switches { correct_online, bound_depth, fail_fast }
    }
}

/// A listener: an address at which clients connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListenConfig {
    /// URL of the listener: protocol, address and options (docs/reference/configuration.md).
    pub(crate) url: String,
    /// Number of the listener, by which operators and `ana` refer to it.
    /// By default its position among the listeners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u16>,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub(crate) nth: Nth,
}

impl ListenConfig {
    /// Returns a listener of a command line.
    pub(crate) fn from_argument(url: &str) -> ListenConfig {
        ListenConfig { url: url.to_owned(), number: None, nth: Nth::default() }
    }
}

/// A rule that says what some clients may do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AccessConfig {
    /// Clients at these addresses: `ADDRESS/PREFIX`, or `anyone`.
    /// Each rule has exactly one of `from`, `token` and `uid`; required if the other two are absent.
    from: Option<String>,
    /// Clients that present this token; required if `from` and `uid` are absent.
    token: Option<String>,
    /// Clients of this user of the server's machine; required if `from` and `token` are absent.
    uid: Option<u32>,
    /// Name of the tenant that the clients belong to. An empty name means the listener's tenant, or
    /// `default` if the listener has none.
    #[serde(default)]
    tenant: String,
    /// Numbers of the namespaces that the rule holds for. By default all.
    namespaces: Option<Vec<u16>>,
    /// Rights that the rule grants: `read`, `write` or `read-write`.
    rights: String,
    /// Allows the clients to register tenants of their own, and to change these.
    #[serde(default)]
    register: bool,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub(crate) nth: Nth,
}

/// The default percentage of reads.
const READ_PERCENT: u8 = 100;

/// A tenant and its SLO; best effort without a latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Name of the tenant. `default` is the tenant of all clients without another one.
    pub(crate) name: String,
    /// Promised tail latency of reads, in microseconds; 0 makes the tenant best effort.
    #[serde(default)]
    latency_us: u32,
    /// Percentile of reads for which the promised latency holds.
    percentile: Option<f64>,
    /// Promised requests a second; required with a latency.
    #[serde(default)]
    iops: u32,
    /// Percentage of reads among the promised requests.
    read_percent: Option<u8>,
    /// Bytes of a typical request; 0 means 4096.
    #[serde(default)]
    request_bytes: u32,
    /// Device that the promise holds for. By default the first.
    pub(crate) device: Option<String>,
    /// Best effort only: weight of the tenant's share of the tokens that promises leave.
    weight: Option<u32>,
    /// Best effort only: most tokens a second that the tenant gets. By default unlimited.
    cap_tokens: Option<u64>,
    /// The position of the entry in its file.
    #[serde(skip)]
    pub(crate) nth: Nth,
}

impl TenantConfig {
    /// Returns the tenant's SLO; `None` for best effort.
    pub fn slo(&self) -> Option<Slo> {
        let or = |n: u32, default: u32| if n == 0 { default } else { n };
        let tenths = self.percentile.map_or(0.0, |percentile| (percentile * 10.0).round());
        (self.latency_us > 0).then(|| Slo {
            latency_us: self.latency_us,
            percentile_tenths: or(tenths as u32, Slo::PERCENTILE_TENTHS.into()) as u16,
            iops: self.iops,
            read_percent: self.read_percent.unwrap_or(READ_PERCENT),
            request_bytes: or(self.request_bytes, Slo::REQUEST_BYTES),
        })
    }

    /// Returns the promise to the tenant.
    ///
    /// # Errors
    /// Fails if the tenant has both an SLO and a share.
    pub(crate) fn promise(&self) -> Result<Promise, Refusal> {
        let promise = Promise::of(self.slo(), self.share());
        let promise = promise.map_err(|why| Refusal::Invalid(why.to_owned()))?;
        Ok(promise.over(Share::default()))
    }

    /// Returns the configuration of a tenant as it is now.
    pub(crate) fn of(info: &TenantInfo) -> TenantConfig {
        let slo = info.promise.slo();
        let share = Some(info.promise.share()).filter(|share| *share != Share::default());
        TenantConfig {
            name: info.name.clone(),
            latency_us: slo.map_or(0, |slo| slo.latency_us),
            percentile: slo.map(|slo| f64::from(slo.percentile_tenths) / 10.0),
            iops: slo.map_or(0, |slo| slo.iops),
            read_percent: slo.map(|slo| slo.read_percent),
            request_bytes: slo.map_or(0, |slo| slo.request_bytes),
            device: Some(info.device.clone()),
            weight: share.map(|share| share.weight),
            cap_tokens: share.and_then(|share| share.cap_tokens),
            nth: Nth::default(),
        }
    }

    /// Returns `true` if both tenants have the same promise and device once the defaults are filled
    /// in. `first` is the first device, which is the default one.
    pub(crate) fn means_the_same(&self, other: &TenantConfig, first: Option<&str>) -> bool {
        let device = |one: &TenantConfig| one.device.clone().or(first.map(str::to_owned));
        (self.promise(), device(self)) == (other.promise(), device(other))
    }

    /// Fills in the defaults of absent keys.
    fn say_defaults(&mut self) {
        if self.latency_us == 0 {
            self.weight.get_or_insert(Share::default().weight);
            return;
        }
        self.percentile.get_or_insert(95.0);
        self.read_percent.get_or_insert(READ_PERCENT);
        if self.request_bytes == 0 {
            self.request_bytes = Slo::REQUEST_BYTES;
        }
    }

    /// Returns the tenant's share of the tokens that promises leave; `None` if none is configured.
    fn share(&self) -> Option<Share> {
        let (weight, cap_tokens) = (self.weight, self.cap_tokens);
        let weight_or_one = weight.unwrap_or(Share::default().weight);
        (weight.is_some() || cap_tokens.is_some())
            .then_some(Share { weight: weight_or_one, cap_tokens })
    }
}

/// Limits on resources and times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitsConfig {
    /// Most requests in flight on a worker.
    in_flight: Option<usize>,
    /// Most tenants of the whole server, including tenants that are leaving.
    tenants: Option<usize>,
    /// Most requests in flight on one connection.
    in_flight_of_connection: Option<usize>,
    /// Bytes of unread replies of a connection at which the server stops reading from it.
    unsent_of_connection: Option<String>,
    /// Most bytes that a worker keeps of connections that it has stopped reading from. A connection
    /// that would exceed the limit is ended.
    carried: Option<String>,
    /// Most connections of all workers together. A lower limit of descriptors takes precedence.
    pub(crate) connections: Option<usize>,
    /// Seconds that a message may take to arrive, and that a client may take to read its replies.
    stuck_seconds: Option<usize>,
    /// Seconds that a drain waits for requests in flight.
    drain_seconds: Option<usize>,
}

impl Config {
    /// Gives every device this model.
    pub(crate) fn set_model(&mut self, model: &str) {
        if self.device.is_empty() {
            self.device.push(DeviceConfig::from_argument((0, &DEFAULT_DEVICE.to_owned())));
        }
        self.device.iter_mut().for_each(|device| device.model = Some(model.to_owned()));
    }

    /// Returns the devices, or the default device if none is configured.
    pub(crate) fn all_devices(&self) -> Vec<DeviceConfig> {
        match self.device.is_empty() {
            true => vec![DeviceConfig::from_argument((0, &DEFAULT_DEVICE.to_owned()))],
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
        let spec = |device: &DeviceConfig| {
            let parsed = device.spec.parse();
            let parsed = parsed.map_err(|error| {
                format!("device {:?}: spec {:?}: {error}", device.name, device.spec)
            });
            let place = device.nth.key("device", "spec");
            mistakes.take(place, parsed).unwrap_or_else(stand_in)
        };
        self.all_devices().iter().map(spec).collect()
    }

    /// Returns `true` if there is an access rule.
    pub(crate) fn has_access_rules(&self) -> bool {
        !self.access.is_empty()
    }

    /// Returns `true` if an access rule names this namespace.
    pub(crate) fn rules_name(&self, number: u16) -> bool {
        let lists = self.access.iter().filter_map(|rule| rule.namespaces.as_ref());
        lists.flatten().any(|named| *named == number)
    }

    /// Returns the number of each access rule, from 1, with the name of its tenant; `None` for the
    /// listener's or the default tenant.
    pub(crate) fn rule_tenants(&self) -> impl Iterator<Item = (usize, Option<&str>)> {
        let rules = self.access.iter().enumerate();
        rules.map(|(n, rule)| (n + 1, Some(rule.tenant.as_str()).filter(|name| !name.is_empty())))
    }

    /// Returns the access rules; without any rule everybody may do everything. `find` returns the
    /// tenant of a name. Invalid rules add to `mistakes` and are left out.
    pub(crate) fn access(
        &self,
        is_known: impl Fn(NamespaceId) -> bool,
        find: impl Fn(&str) -> Option<TenantId>,
        mistakes: &mut Mistakes,
    ) -> Access {
        if self.access.is_empty() {
            return Access::open_to_all();
        }
        let rule = |(n, config): (usize, &AccessConfig)| {
            let tenant = match config.tenant.as_str() {
                "" => Some(TenantId::DEFAULT),
                name => find(name),
            };
            let rule = config.rule(&is_known, tenant.unwrap_or(TenantId::DEFAULT));
            let rule = rule.map_err(|(key, error)| {
                mistakes
                    .add(config.nth.key("access", key), format!("access rule {}: {error}", n + 1));
            });
            rule.ok()
        };
        let rules: Vec<Rule> = self.access.iter().enumerate().filter_map(rule).collect();
        Access::new(rules)
    }

    /// Returns the limits of each worker.
    ///
    /// # Errors
    /// Fails with all limits that are invalid.
    pub(crate) fn limits(&self) -> Result<Limits, Mistakes> {
        Mistakes::collect(|mistakes| self.limits_or(mistakes))
    }

    /// Returns the limits of each worker. An invalid limit adds to `mistakes` and keeps its default.
    pub(crate) fn limits_or(&self, mistakes: &mut Mistakes) -> Limits {
        let mut limits = Limits::default();
        let config = &self.limits;
        let mut number = |key: &'static str, told: Option<usize>| {
            let checked = ranges::check("limits", key, told? as u64);
            mistakes.take(Place::In("limits", key), checked)
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
            let blocks = size_in_blocks(text).map_err(|error| format!("limits.{key}: {error}"));
            let blocks = mistakes.take(Place::In("limits", key), blocks);
            *limit = blocks.map_or(*limit, |blocks| blocks as usize * BLOCK_BYTES);
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

    /// Returns the most connections of all workers together.
    pub(crate) fn connections_max(&self) -> usize {
        self.limits.connections.unwrap_or(65_536)
    }
}

impl AccessConfig {
    /// Returns the rule that holds if none is configured: everybody may do everything.
    fn of_all() -> AccessConfig {
        AccessConfig {
            from: Some("anyone".to_owned()),
            token: None,
            uid: None,
            tenant: String::new(),
            namespaces: None,
            rights: "read-write".to_owned(),
            register: true,
            nth: Nth::default(),
        }
    }

    fn rule(
        &self,
        is_known: impl Fn(NamespaceId) -> bool,
        tenant: TenantId,
    ) -> Result<Rule, (&'static str, String)> {
        let who = match (&self.from, &self.token, self.uid) {
            (Some(from), None, None) => parse_network(from).map_err(|error| ("from", error))?,
            (None, Some(token), None) if (1..=64).contains(&token.len()) => {
                Who::Token(token.clone().into_bytes())
            }
            (None, Some(_), None) => {
                return Err(("token", "its token; expected 1 to 64 bytes".to_owned()));
            }
            (None, None, Some(uid)) => Who::User(uid),
            _ => {
                let error = "expected exactly one of `from`, `token` and `uid`".to_owned();
                return Err(("", error));
            }
        };
        let rights = match self.rights.as_str() {
            "read" => Rights { read: true, write: false },
            "write" => Rights { read: false, write: true },
            "read-write" => Rights::ALL,
            other => {
                let error = format!("rights {other:?}; expected read, write or read-write");
                return Err(("rights", error));
            }
        };
        let scope = match &self.namespaces {
            None => Scope::All(rights),
            Some(numbers) => {
                if let Some(n) = numbers.iter().find(|n| !is_known(NamespaceId(**n))) {
                    return Err(("namespaces", format!("there is no namespace {n}")));
                }
                Scope::Only(numbers.iter().map(|n| (NamespaceId(*n), rights)).collect())
            }
        };
        let register = self.register;
        Ok(Rule { who, tenant, tenant_name: self.tenant.clone(), register, scope })
    }
}

fn parse_network(text: &str) -> Result<Who, String> {
    const FORM: &str = "expected `anyone`, an address, or ADDRESS/PREFIX such as 10.0.0.0/8";
    if text == "anyone" {
        return Ok(Who::Anyone);
    }
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: std::net::IpAddr =
        address.parse().map_err(|_| format!("from = {text:?}: {FORM}"))?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.map_or(Some(bits), |p| p.parse().ok().filter(|p| *p <= bits));
    let prefix = prefix.ok_or_else(|| format!("from = {text:?}: {FORM}"))?;
    Ok(Who::Network { address, prefix })
}

/// Returns a stand-in for a device whose spec is invalid, with room for all namespaces.
fn stand_in() -> Spec {
    "null:1048576TiB".parse().expect("it is a spec")
}

fn size_in_blocks(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| format!("{text:?}: {error}"))?;
    Ok(bytes / BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::Peer;

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
        let spaces = config.spaces(&[Room { place: 0, blocks: 131_072, grows: false }]).unwrap();
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
        let error = config.spaces(&[Room { place: 0, blocks: 2048, grows: false }]).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("namespace 1") && error.contains("4096"), "{error}");
    }

    #[test]
    fn nothing_told_means_the_defaults() {
        let config = Config::default();
        assert_eq!(config.specs().unwrap().len(), 1);
        assert_eq!(config.listeners().unwrap()[0].endpoint.to_string(), "127.0.0.1:7420");
        assert_eq!(config.spaces(&[Room { place: 0, blocks: 8, grows: false }]).unwrap().len(), 1);
    }
}
