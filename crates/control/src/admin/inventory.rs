//! The JSON bodies of the admin API for namespaces, subsystems, hosts and listeners.

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
pub use spec::{
    AnaState, Device as AddDevice, GroupName, HashName, Listener as AddListener, Secret,
};

/// A namespace: a range of a device that clients and hosts use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Namespace")]
pub struct NamespaceStatus {
    /// Number of the namespace on the server, by which clients of protocol `reflex` name it.
    pub number: u16,
    /// The operators' name of the namespace.
    pub name: String,
    /// The device of the namespace.
    pub device: String,
    /// Offset on the device in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// `true` if all writes are refused.
    pub read_only: bool,
    /// The UUID of the namespace; absent if it has another one in each subsystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The subsystems that contain the namespace.
    pub subsystems: Vec<Exported>,
}

/// A namespace's membership in a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exported {
    /// Qualified name of the subsystem.
    pub subsystem: String,
    /// Namespace identifier in the subsystem.
    pub nsid: u32,
}

/// The list of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Namespaces {
    /// The namespaces, ordered by number.
    pub namespaces: Vec<NamespaceStatus>,
}

/// A change of a namespace; omitted members keep their value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetNamespace")]
pub struct NamespacePatch {
    /// Size in bytes: a multiple of 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 512), extend("multipleOf" = 512))]
    pub bytes: Option<u64>,
    /// `true` if the namespace may become smaller, which loses the data after its new end.
    #[serde(default)]
    pub shrink: bool,
    /// New name for operators: letters, digits, `-`, `_` and `.`, not digits alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `true` to refuse all writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// A namespace to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AddNamespace")]
pub struct NewNamespace {
    /// Name for operators: letters, digits, `-`, `_` and `.`, not digits alone.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Size in bytes: a multiple of 512.
    #[schemars(range(min = 512), extend("multipleOf" = 512))]
    pub bytes: u64,
    /// The device of the namespace; the first device by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// `true` to refuse all writes.
    #[serde(default)]
    pub read_only: bool,
    /// The UUID by which NVMe hosts know the namespace: 32 hexadecimal digits, with or without
    /// hyphens. By default the server chooses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The subsystems that contain the namespace; by default, the subsystems that have all
    /// namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystems: Option<Vec<String>>,
}

/// The parameters of a removal of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveNamespace {
    /// `true` to remove the namespace even if a listener leads to it.
    #[serde(default)]
    pub force: bool,
    /// `true` to give the space of the namespace back: to the file system, the disk or memory. All
    /// data in it is lost. By default the blocks stay as they are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discard: bool,
}

/// An NVMe subsystem: namespaces under a qualified name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Subsystem")]
pub struct SubsystemStatus {
    /// Qualified name of the subsystem.
    pub nqn: String,
    /// The hosts that may connect; `null` for all.
    pub hosts: Option<Vec<String>>,
    /// The tenant that the subsystem's I/O is charged to; `null` for the tenant of the connection.
    pub tenant: Option<String>,
    /// `true` if hosts without a key are refused.
    pub authenticate: bool,
    /// The namespaces of the subsystem.
    pub namespaces: Vec<Contained>,
    /// The ANA states of namespace groups, except `optimized`.
    pub ana: Vec<Ana>,
    /// The controllers of connected hosts.
    pub controllers: Vec<Controller>,
}

/// A namespace in a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Contained {
    /// Namespace identifier in the subsystem.
    pub nsid: u32,
    /// Number of the namespace on the server.
    pub number: u16,
    /// The operators' name of the namespace.
    pub name: String,
}

/// The ANA state of a namespace group of a subsystem through a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ana {
    /// Qualified name of the subsystem.
    pub subsystem: String,
    /// Number of the listener.
    pub listener: u16,
    /// Identifier of the group.
    pub group: u32,
    /// The state.
    pub state: AnaState,
}

/// A controller: the association of a host with a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Controller {
    /// Identifier of the controller.
    pub cntlid: u16,
    /// Qualified name of the host.
    pub host: String,
    /// Number of the listener that accepted the host.
    pub listener: u16,
    /// Number of I/O queues.
    pub queues: usize,
}

/// The list of subsystems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subsystems {
    /// The subsystems, in order of creation.
    pub subsystems: Vec<SubsystemStatus>,
}

/// A subsystem to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AddSubsystem")]
pub struct NewSubsystem {
    /// Qualified name of the subsystem.
    pub nqn: String,
    /// The hosts that may connect; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// The namespaces of the subsystem, by name or number; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// The tenant that the subsystem's I/O is charged to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `true` to refuse hosts without a key.
    #[serde(default)]
    pub authenticate: bool,
}

/// A change of a subsystem; omitted members keep their value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetSubsystem")]
pub struct SubsystemPatch {
    /// The tenant that the subsystem's I/O is charged to; empty for the tenant of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `true` to refuse hosts without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticate: Option<bool>,
    /// Hosts that may connect from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Hosts that may not connect any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// `true` to let all hosts connect.
    #[serde(default)]
    pub allow_all: bool,
    /// Namespaces to add, by name or number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attach: Vec<String>,
    /// Namespaces to remove, by name or number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detach: Vec<String>,
}

/// A registered host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Host")]
pub struct HostStatus {
    /// Qualified name of the host.
    pub nqn: String,
    /// The tenant that the host's I/O is charged to.
    pub tenant: Option<String>,
    /// `true` if the host has a key, and so must authenticate. The key itself is never shown.
    pub has_key: bool,
    /// `true` if the host may also use the key that it had before.
    #[serde(default)]
    pub overlaps: bool,
    /// `true` if the server can authenticate to the host.
    pub has_controller_key: bool,
    /// The hashes that the host may authenticate with; all of the configuration if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hashes: Vec<HashName>,
    /// The groups that the host may authenticate with; all of the configuration if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupName>,
    /// The state of the host's key for TLS. The key itself is never shown.
    #[serde(default)]
    pub tls_key: KeyState,
}

/// The state of a host's key for TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KeyState {
    /// The host has no key.
    #[default]
    None,
    /// The host has a key.
    Known,
    /// The host has a key, and may also use the one before.
    Overlaps,
}

impl KeyState {
    /// Returns the state in words.
    pub fn text(self) -> &'static str {
        match self {
            KeyState::None => "none",
            KeyState::Known => "known",
            KeyState::Overlaps => "known, and the one before it",
        }
    }
}

impl HostStatus {
    /// Returns in words whether the host has a key, and whether its previous key is still accepted.
    pub fn key_text(&self) -> &'static str {
        let state = match (self.has_key, self.overlaps) {
            (false, _) => KeyState::None,
            (true, false) => KeyState::Known,
            (true, true) => KeyState::Overlaps,
        };
        state.text()
    }

    /// Returns in words the methods by which the host may authenticate. All hashes and groups are
    /// all of the configuration.
    pub fn methods_text(&self) -> String {
        let text = |one: &str, many: &str, names: &[&str]| match names {
            [] => format!("all {many}"),
            [name] => format!("{one} {name}"),
            names => format!("{many} {}", names.join(", ")),
        };
        let hashes: Vec<&str> = self.hashes.iter().map(|hash| hash.name()).collect();
        let groups: Vec<&str> = self.groups.iter().map(|group| group.name()).collect();
        text("hash", "hashes", &hashes) + ", " + &text("group", "groups", &groups)
    }
}

/// The list of registered hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hosts {
    /// The hosts, in order of registration.
    pub hosts: Vec<HostStatus>,
}

/// A registration of a host. Omitted members keep their value; empty members are removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetHost")]
pub struct HostPatch {
    /// The tenant that the host's I/O is charged to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The host's key, `DHHC-1:…`.
    #[schemars(with = "Option<String>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
    /// The key with which the server authenticates to the host.
    #[schemars(with = "Option<String>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_key: Option<Secret>,
    /// `true`: with a new key, the key before goes on. `false`: it ends. A new key ends it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<bool>,
    /// The hashes that the host may authenticate with, the preferred one first; empty for all of
    /// the configuration. They hold from the host's next authentication on.
    #[serde(default, deserialize_with = "listed", skip_serializing_if = "Option::is_none")]
    pub hashes: Option<Vec<HashName>>,
    /// The groups that the host may authenticate with, as `hashes`.
    #[serde(default, deserialize_with = "listed", skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupName>>,
    /// The host's key for TLS, `NVMeTLSkey-1:…`.
    #[schemars(with = "Option<String>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<Secret>,
    /// `true`: with a new TLS key, the one before goes on. `false`: it ends. A new key ends it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_overlap: Option<bool>,
}

/// Reads a list of a patch. A removed member arrives as an empty text, and is the empty list.
fn listed<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    match serde_json::Value::deserialize(from)? {
        serde_json::Value::String(text) if text.is_empty() => Ok(Some(Vec::new())),
        value => serde_json::from_value(value).map(Some).map_err(D::Error::custom),
    }
}

impl HostPatch {
    /// Returns the patch that replaces one key of a host: the TLS key, or the controller's, or the
    /// host's own. `overlap` says whether the key before goes on.
    pub fn of_key(
        key: Option<Secret>,
        overlap: Option<bool>,
        is_tls: bool,
        is_controller: bool,
    ) -> HostPatch {
        match (is_tls, is_controller) {
            (true, _) => HostPatch { tls_key: key, tls_overlap: overlap, ..HostPatch::default() },
            (_, true) => HostPatch { controller_key: key, ..HostPatch::default() },
            (_, false) => HostPatch { key, overlap, ..HostPatch::default() },
        }
    }

    /// Returns the patch with the hashes and groups of two lists, such as `sha512,sha384`. The word
    /// `all` means all of the configuration.
    ///
    /// # Errors
    /// Fails for an unknown name.
    pub fn with_methods(
        self,
        hashes: Option<&str>,
        groups: Option<&str>,
    ) -> Result<HostPatch, String> {
        let hashes = hashes.map(spec::named_methods).transpose();
        let groups = groups.map(spec::named_methods).transpose();
        Ok(HostPatch {
            hashes: hashes.map_err(|error| format!("hash: {error}"))?,
            groups: groups.map_err(|error| format!("group: {error}"))?,
            ..self
        })
    }
}

/// A listener of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Listener")]
pub struct ListenerStatus {
    /// Number of the listener, from 1. By default, its position in the configuration, or a free
    /// number for a listener that was added later.
    pub number: u16,
    /// URL of the listener.
    pub url: String,
    /// State of the listener.
    pub state: ListenerState,
    /// Number of its connections, while it is drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<usize>,
    /// The ANA states through the listener, except `optimized`.
    pub ana: Vec<Ana>,
}

/// A device that was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenedDevice {
    /// Name of the device for namespaces and tenants.
    pub name: String,
    /// Spec of the device.
    pub spec: String,
    /// Size in bytes.
    pub bytes: u64,
    /// `true` if the device has a model. Without a model, the device admits no SLO.
    pub has_model: bool,
}

/// The parameters of a removal of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveListener {
    /// Time in milliseconds to drain the listener's connections: each ends when its requests in
    /// flight have ended, and all end after this time. By default, connections stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
}

/// A listener that was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovedListener {
    /// Number that the listener had.
    pub number: u16,
    /// URL that the listener had.
    pub removed: String,
    /// Number of its connections that are left; `null` if a worker did not answer.
    pub connections: Option<usize>,
}

/// The state of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ListenerState {
    /// The listener accepts connections.
    #[default]
    Open,
    /// The listener refuses connections, and some of its connections are left.
    Draining,
    /// The listener refuses connections, and none of its connections is left.
    Drained,
}

/// The parameters of a drain of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainListener {
    /// Time in milliseconds after which connections with requests in flight end in any case; ten
    /// seconds by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// The list of listeners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listeners {
    /// The listeners, ordered by number.
    pub listeners: Vec<ListenerStatus>,
}

/// A change of the ANA state of namespaces through a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAna {
    /// The new state.
    pub state: AnaState,
    /// Qualified name of the subsystem; all subsystems by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
    /// Identifier of the group; 1 by default, which contains all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}
