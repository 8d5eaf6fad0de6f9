//! What a server is told: one TOML file, or the command line (docs/configuration.md).

mod authentication;

use std::path::Path;
use std::time::Duration;

use contract::{BLOCK_BYTES, NamespaceId, Rights, Slo, TenantId};
use control::{Share, Switches};
use flash::{Spec, parse_size};
use serde::Deserialize;
use target::{Access, Limits, Namespace, Namespaces, Rule, Scope, Who};

use self::authentication::AuthenticationConfig;
use crate::admin::Wanted;
use crate::listen::{DEFAULT_URL, ListenAt};

/// The device that nothing else says otherwise.
pub(crate) const DEFAULT_DEVICE: &str = "file:./nearflash-data/volume0?size=1GiB";

/// A configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Threads that serve.
    pub(crate) workers: Option<usize>,
    /// The processors that they are pinned to, in their order.
    pub(crate) cpus: Option<Vec<usize>>,
    /// Where the admin API is; in the default place unless told.
    pub(crate) admin: Option<Wanted>,
    #[serde(default)]
    pub(crate) device: Vec<DeviceConfig>,
    #[serde(default)]
    pub(crate) listen: Vec<ListenConfig>,
    #[serde(default)]
    namespace: Vec<NamespaceConfig>,
    #[serde(default)]
    access: Vec<AccessConfig>,
    #[serde(default)]
    pub(crate) tenant: Vec<TenantConfig>,
    /// What hosts find over NVMe.
    #[serde(default)]
    pub(crate) subsystem: Vec<SubsystemConfig>,
    /// NVMe hosts of which more is known than their name.
    #[serde(default)]
    pub(crate) host: Vec<HostConfig>,
    /// How NVMe hosts may prove who they are.
    #[serde(default)]
    pub(crate) authentication: AuthenticationConfig,
    #[serde(default)]
    limits: LimitsConfig,
}

/// A subsystem of NVMe: namespaces under a name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubsystemConfig {
    /// Its qualified name; one with the machine's name unless told.
    pub(crate) nqn: Option<String>,
    /// The server's numbers of its namespaces, which are numbered from 1 in their order; all unless
    /// told.
    pub(crate) namespaces: Option<Vec<u16>>,
    /// The qualified names of hosts that may connect; all unless told.
    pub(crate) hosts: Option<Vec<String>>,
    /// The tenant that its I/O is charged to; whomever the connection belongs to unless told.
    pub(crate) tenant: Option<String>,
    /// Whether hosts without a key are refused.
    #[serde(default)]
    pub(crate) authenticate: bool,
}

/// An NVMe host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostConfig {
    /// Its qualified name.
    pub(crate) nqn: String,
    /// Its key: with one, it has to prove that it has it.
    pub(crate) key: Option<HiddenText>,
    /// The key by which we prove to it who we are, when it asks.
    pub(crate) controller_key: Option<HiddenText>,
    /// The tenant that its I/O is charged to; the subsystem's unless told.
    pub(crate) tenant: Option<String>,
}

/// A text that no log shows.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub(crate) struct HiddenText(pub(crate) String);

impl std::fmt::Debug for HiddenText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeviceConfig {
    /// What namespaces and tenants call it.
    pub(crate) name: String,
    /// A device spec (docs/devices.md).
    pub(crate) spec: String,
    /// Its device model: a file, `a` or `cloud` (docs/device-models.md).
    pub(crate) model: Option<String>,
    /// Whether its model is corrected by measured delays.
    #[serde(default)]
    correct_online: bool,
    /// Whether no more requests are at it at a time than the strictest latency allows.
    #[serde(default)]
    bound_depth: bool,
    /// Whether requests that would miss their latency are refused at once.
    #[serde(default)]
    fail_fast: bool,
}

impl DeviceConfig {
    /// The `n`-th device of a command line.
    pub(crate) fn from_argument((n, spec): (usize, &String)) -> Self {
        DeviceConfig {
            name: format!("device{n}"),
            spec: spec.clone(),
            model: None,
            correct_online: false,
            bound_depth: false,
            fail_fast: false,
        }
    }

    /// What it does beyond the paper.
    pub(crate) fn switches(&self) -> Switches {
        let DeviceConfig { correct_online, bound_depth, fail_fast, .. } = *self;
        Switches { correct_online, bound_depth, fail_fast }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListenConfig {
    pub(crate) url: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamespaceConfig {
    device: String,
    /// Where it starts on the device; the start unless told.
    #[serde(default = "nothing")]
    offset: String,
    /// The rest of the device unless told.
    size: Option<String>,
    #[serde(default)]
    read_only: bool,
}

fn nothing() -> String {
    "0".to_owned()
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessConfig {
    /// `ADDRESS/PREFIX`, or `anyone`.
    from: Option<String>,
    token: Option<String>,
    uid: Option<u32>,
    /// The tenant's name; the default tenant unless told.
    #[serde(default)]
    tenant: String,
    /// All unless told.
    namespaces: Option<Vec<u16>>,
    /// `read`, `write` or `read-write`.
    rights: String,
    /// Whether they may register tenants of their own, and change theirs.
    #[serde(default)]
    register: bool,
}

/// A tenant and its SLO; best effort without a latency.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantConfig {
    pub(crate) name: String,
    /// The tail read latency that it is promised, in microseconds.
    #[serde(default)]
    latency_us: u32,
    /// Which percentile that bounds; 95 unless told.
    percentile: Option<f64>,
    /// Requests a second that it is promised.
    #[serde(default)]
    iops: u32,
    /// Share of reads among them; 100 unless told.
    read_percent: Option<u8>,
    /// Bytes of a typical request; 4096 unless told.
    #[serde(default)]
    request_bytes: u32,
    /// The device that the promise is about; the first unless told.
    pub(crate) device: Option<String>,
    /// Best effort: its part of the rest beside those of the others; 1 unless told.
    weight: Option<u32>,
    /// Best effort: tokens a second that it gets at most.
    cap_tokens: Option<u64>,
}

impl TenantConfig {
    /// What it is promised.
    pub(crate) fn slo(&self) -> Slo {
        let tenths = self.percentile.map_or(0.0, |percentile| (percentile * 10.0).round());
        Slo {
            latency_us: self.latency_us,
            percentile_tenths: tenths as u16,
            iops: self.iops,
            read_percent: self.read_percent.unwrap_or(100),
            request_bytes: self.request_bytes,
        }
    }

    /// What it gets of the rest; `None` where nothing is told of that.
    pub(crate) fn share(&self) -> Option<Share> {
        let (weight, cap_tokens) = (self.weight, self.cap_tokens);
        let weight_or_one = weight.unwrap_or(Share::default().weight);
        (weight.is_some() || cap_tokens.is_some())
            .then_some(Share { weight: weight_or_one, cap_tokens })
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsConfig {
    in_flight: Option<usize>,
    tenants: Option<usize>,
    in_flight_of_connection: Option<usize>,
    unsent_of_connection: Option<String>,
    carried: Option<String>,
    pub(crate) connections: Option<usize>,
    /// How long a message may take to arrive, and replies to be taken.
    stuck_seconds: Option<usize>,
    /// How long a drain waits for requests in flight.
    drain_seconds: Option<usize>,
}

impl Config {
    /// Reads and understands a file.
    pub(crate) fn read(path: &Path) -> Result<Config, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Config::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    pub(crate) fn parse(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// Gives every device this model.
    pub(crate) fn set_model(&mut self, model: &str) {
        if self.device.is_empty() {
            self.device.push(DeviceConfig::from_argument((0, &DEFAULT_DEVICE.to_owned())));
        }
        self.device.iter_mut().for_each(|device| device.model = Some(model.to_owned()));
    }

    /// The specs of the devices, in their order.
    pub(crate) fn specs(&self) -> Result<Vec<Spec>, String> {
        let parse = |text: &str| text.parse().map_err(|error| format!("device {text:?}: {error}"));
        match self.device.is_empty() {
            true => Ok(vec![parse(DEFAULT_DEVICE)?]),
            false => self.device.iter().map(|device| parse(&device.spec)).collect(),
        }
    }

    /// Where to listen.
    pub(crate) fn listeners(&self) -> Result<Vec<ListenAt>, String> {
        match self.listen.is_empty() {
            true => Ok(vec![ListenAt::parse(DEFAULT_URL)?]),
            false => self.listen.iter().map(|listen| ListenAt::parse(&listen.url)).collect(),
        }
    }

    /// The namespaces over devices of these sizes (in blocks); one for each device unless told.
    pub(crate) fn namespaces(&self, blocks: &[u64]) -> Result<Namespaces, String> {
        if self.namespace.is_empty() {
            let whole = |(device, blocks): (usize, &u64)| Namespace {
                device,
                first: 0,
                blocks: *blocks,
                read_only: false,
            };
            return Ok(Namespaces::new(blocks.iter().enumerate().map(whole).collect()));
        }
        let each = self.namespace.iter().enumerate();
        each.map(|(n, config)| {
            self.namespace(config, blocks).map_err(|e| format!("namespace {}: {e}", n + 1))
        })
        .collect::<Result<Vec<_>, _>>()
        .map(Namespaces::new)
    }

    fn namespace(&self, config: &NamespaceConfig, blocks: &[u64]) -> Result<Namespace, String> {
        let named = |device: &DeviceConfig| device.name == config.device;
        let device = self.device.iter().position(named).ok_or_else(|| {
            let names: Vec<&str> = self.device.iter().map(|d| d.name.as_str()).collect();
            format!("there is no device {:?}; there are: {}", config.device, names.join(", "))
        })?;
        let first = match config.offset.as_str() {
            "0" => 0,
            text => size_in_blocks(text)?,
        };
        let rest = blocks[device].saturating_sub(first);
        let size = config.size.as_deref().map_or(Ok(rest), size_in_blocks)?;
        if size == 0 || size > rest {
            return Err(format!(
                "its {} blocks of {BLOCK_BYTES} bytes from block {first} do not fit device {:?}, \
                 which has {}",
                size, config.device, blocks[device]
            ));
        }
        Ok(Namespace { device, first, blocks: size, read_only: config.read_only })
    }

    /// Whether there is any access rule.
    pub(crate) fn has_access_rules(&self) -> bool {
        !self.access.is_empty()
    }

    /// The names of the tenants that access rules are of, with the numbers of the rules; `None` for
    /// the listener's or the default tenant.
    pub(crate) fn rule_tenants(&self) -> impl Iterator<Item = (usize, Option<&str>)> {
        let rules = self.access.iter().enumerate();
        rules.map(|(n, rule)| (n + 1, Some(rule.tenant.as_str()).filter(|name| !name.is_empty())))
    }

    /// The names of the tenants that I/O over NVMe is charged to, with what names them.
    pub(crate) fn nvme_tenants(&self) -> impl Iterator<Item = (&str, String)> {
        let subsystems = self.subsystem.iter().enumerate().filter_map(|(n, subsystem)| {
            Some((subsystem.tenant.as_deref()?, format!("subsystem {}", n + 1)))
        });
        let hosts = self
            .host
            .iter()
            .filter_map(|host| Some((host.tenant.as_deref()?, format!("host {:?}", host.nqn))));
        subsystems.chain(hosts)
    }

    /// The access rules; everybody may do everything unless told. `find` knows all tenants.
    pub(crate) fn access(
        &self,
        namespaces: usize,
        find: impl Fn(&str) -> Option<TenantId>,
    ) -> Result<Access, String> {
        if self.access.is_empty() {
            return Ok(Access::open_to_all(namespaces));
        }
        let mut rules = Vec::new();
        for (n, config) in self.access.iter().enumerate() {
            let tenant = match config.tenant.as_str() {
                "" => TenantId::DEFAULT,
                name => find(name).expect("the tenants of all rules were made"),
            };
            let rule = config.rule(namespaces, tenant);
            rules.push(rule.map_err(|error| format!("access rule {}: {error}", n + 1))?);
        }
        Ok(Access::new(rules, namespaces))
    }

    /// The limits of each worker.
    pub(crate) fn limits(&self) -> Result<Limits, String> {
        let mut limits = Limits::default();
        let config = &self.limits;
        let within = |name: &str, n: usize, most: usize| match n {
            1.. if n <= most => Ok(n),
            _ => Err(format!("limits.{name} is {n}; expected a number from 1 to {most}")),
        };
        if let Some(n) = config.in_flight {
            limits.in_flight = within("in_flight", n, 65_536)?;
        }
        if let Some(n) = config.tenants {
            limits.tenants = within("tenants", n, 65_536)?;
        }
        if let Some(n) = config.in_flight_of_connection {
            limits.in_flight_of_connection = within("in_flight_of_connection", n, 65_536)?;
        }
        if let Some(n) = config.stuck_seconds {
            limits.stuck = Duration::from_secs(within("stuck_seconds", n, 3600)? as u64);
            limits.stuck_under_pressure = limits.stuck_under_pressure.min(limits.stuck);
        }
        if let Some(n) = config.drain_seconds {
            limits.drain = Duration::from_secs(within("drain_seconds", n, 3600)? as u64);
        }
        let bytes = |name: &str, text: &str| match size_in_blocks(text) {
            Ok(blocks) => Ok(blocks as usize * BLOCK_BYTES),
            Err(error) => Err(format!("limits.{name}: {error}")),
        };
        if let Some(text) = &config.unsent_of_connection {
            limits.unsent_of_connection = bytes("unsent_of_connection", text)?;
        }
        if let Some(text) = &config.carried {
            limits.carried = bytes("carried", text)?;
        }
        Ok(limits)
    }

    /// Connections over all workers.
    pub(crate) fn connections_max(&self) -> usize {
        self.limits.connections.unwrap_or(65_536)
    }
}

impl AccessConfig {
    fn rule(&self, namespaces: usize, tenant: TenantId) -> Result<Rule, String> {
        let who = match (&self.from, &self.token, self.uid) {
            (Some(from), None, None) => parse_network(from)?,
            (None, Some(token), None) if (1..=64).contains(&token.len()) => {
                Who::Token(token.clone().into_bytes())
            }
            (None, Some(_), None) => return Err("a token has 1 to 64 bytes".to_owned()),
            (None, None, Some(uid)) => Who::User(uid),
            _ => return Err("expected exactly one of `from`, `token` and `uid`".to_owned()),
        };
        let rights = match self.rights.as_str() {
            "read" => Rights { read: true, write: false },
            "write" => Rights { read: false, write: true },
            "read-write" => Rights::ALL,
            other => {
                return Err(format!("rights {other:?}; expected read, write or read-write"));
            }
        };
        let scope = match &self.namespaces {
            None => Scope::All(rights),
            Some(numbers) => {
                let known = 1..=namespaces;
                if let Some(n) = numbers.iter().find(|n| !known.contains(&usize::from(**n))) {
                    return Err(format!("there is no namespace {n}; there are {namespaces}"));
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
        let namespaces = config.namespaces(&[131_072]).unwrap();
        let second = namespaces.find(NamespaceId(2)).unwrap();
        assert_eq!((second.first, second.blocks, second.read_only), (32_768, 98_304, true));
        let access = config.access(2, |name| (name == "batch").then_some(TenantId(1))).unwrap();
        let peer = Peer::Internet("127.0.0.1:9".parse().unwrap());
        let grant = access.open(&peer, b"secret", "batch", None).unwrap();
        assert_eq!(grant.tenant, TenantId(1));
        assert_eq!(grant.rights(NamespaceId(2)), Rights::ALL);
        let limits = config.limits().unwrap();
        assert_eq!((limits.in_flight, limits.unsent_of_connection), (100, 1 << 20));
    }

    #[test]
    fn mistakes_name_their_place() {
        let error = Config::parse("workers = 1\nwokers = 2").unwrap_err();
        assert!(error.contains("line 2") && error.contains("wokers"), "{error}");
        let config =
            Config::parse("[[access]]\nfrom = \"10.0.0.0/40\"\nrights = \"read\"").unwrap();
        let error = config.access(1, |_| None).unwrap_err();
        assert!(error.contains("access rule 1") && error.contains("10.0.0.0/8"), "{error}");
        let config = Config::parse(
            "[[device]]\nname=\"a\"\nspec=\"mem:1MiB\"\n[[namespace]]\ndevice=\"a\"\nsize=\"2MiB\"",
        )
        .unwrap();
        let error = config.namespaces(&[2048]).unwrap_err();
        assert!(error.contains("namespace 1") && error.contains("4096"), "{error}");
    }

    #[test]
    fn nothing_told_means_the_defaults() {
        let config = Config::default();
        assert_eq!(config.specs().unwrap().len(), 1);
        assert_eq!(config.listeners().unwrap()[0].endpoint.to_string(), "127.0.0.1:7420");
        assert_eq!(config.namespaces(&[8, 16]).unwrap().len(), 2);
    }
}
