//! The words of the admin API about namespaces, subsystems, hosts and listeners, as they stand in
//! JSON.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A namespace: a range of a device that clients and hosts use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Namespace {
    /// Its number on the server, by which clients of protocol `reflex` name it.
    pub number: u16,
    /// What operators call it.
    pub name: String,
    /// The device that it lies on.
    pub device: String,
    /// Where on it, in bytes.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// Whether nobody may write to it.
    pub read_only: bool,
    /// The subsystems in which NVMe hosts find it.
    pub subsystems: Vec<Exported>,
}

/// A subsystem's name for a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exported {
    /// The subsystem.
    pub subsystem: String,
    /// The namespace's number there.
    pub nsid: u32,
}

/// All namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Namespaces {
    /// By number.
    pub namespaces: Vec<Namespace>,
}

/// What is to be another about a namespace; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetNamespace {
    /// The size in bytes: a multiple of 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Whether it may be smaller than it is, which loses what lies behind its new end.
    #[serde(default)]
    pub shrink: bool,
    /// What operators call it from now on: letters, digits, `-`, `_` and `.`, not digits alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether nobody may write to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// A namespace to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddNamespace {
    /// What operators call it: letters, digits, `-`, `_` and `.`, not digits alone.
    pub name: String,
    /// Its size in bytes: a multiple of 512.
    pub bytes: u64,
    /// The device that it lies on; the first unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Whether nobody may write to it.
    #[serde(default)]
    pub read_only: bool,
    /// The subsystems in which hosts find it; those that have all namespaces unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystems: Option<Vec<String>>,
}

/// How to remove a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveNamespace {
    /// Whether it may go although a listener leads to it.
    #[serde(default)]
    pub force: bool,
}

/// A subsystem of NVMe: namespaces under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Subsystem {
    /// Its qualified name.
    pub nqn: String,
    /// The hosts that may connect; `null` for all.
    pub hosts: Option<Vec<String>>,
    /// The tenant that its I/O is charged to; `null` for whomever the connection belongs to.
    pub tenant: Option<String>,
    /// Whether hosts without a key are refused.
    pub authenticate: bool,
    /// Its namespaces.
    pub namespaces: Vec<Contained>,
    /// How groups of its namespaces are reached, where that is not `optimized`.
    pub ana: Vec<Ana>,
    /// The hosts that are connected.
    pub controllers: Vec<Controller>,
}

/// A namespace in a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Contained {
    /// The namespace's number there.
    pub nsid: u32,
    /// The server's.
    pub number: u16,
    /// What operators call it.
    pub name: String,
}

/// How a group of a subsystem's namespaces is reached through a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ana {
    /// The subsystem.
    pub subsystem: String,
    /// The listener's number.
    pub listener: u16,
    /// The group.
    pub group: u32,
    /// The state.
    pub state: AnaState,
}

/// A host that is connected to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Controller {
    /// The controller's identifier.
    pub cntlid: u16,
    /// The host.
    pub host: String,
    /// The number of the listener that it came by.
    pub listener: u16,
    /// Its I/O queues.
    pub queues: usize,
}

/// All subsystems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Subsystems {
    /// In the order in which they were made.
    pub subsystems: Vec<Subsystem>,
}

/// A subsystem to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddSubsystem {
    /// Its qualified name.
    pub nqn: String,
    /// The hosts that may connect; all unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Its namespaces, by name or number; all unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// The tenant that its I/O is charged to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether hosts without a key are refused.
    #[serde(default)]
    pub authenticate: bool,
}

/// What is to be another about a subsystem; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSubsystem {
    /// The tenant that its I/O is charged to; empty: whomever the connection belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether hosts without a key are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticate: Option<bool>,
    /// These hosts may connect besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// These hosts may not connect any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Whether all hosts may connect.
    #[serde(default)]
    pub allow_all: bool,
    /// These namespaces, by name or number, are in it besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attach: Vec<String>,
    /// These namespaces are in it no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detach: Vec<String>,
}

/// A host of which more is known than its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// Its qualified name.
    pub nqn: String,
    /// The tenant that its I/O is charged to.
    pub tenant: Option<String>,
    /// Whether it has a key, and so has to prove who it is. The key itself is never told.
    pub has_key: bool,
    /// Whether the server can prove to it who it is.
    pub has_controller_key: bool,
}

/// All hosts of which more is known than their name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hosts {
    /// In the order in which they became known.
    pub hosts: Vec<Host>,
}

/// What is to be known of a host; what is not named stays, what is empty goes.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetHost {
    /// The tenant that its I/O is charged to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its key, `DHHC-1:…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The key by which the server proves to it who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_key: Option<String>,
}

impl std::fmt::Debug for SetHost {
    /// Keys are secret, in logs too.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SetHost").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Listener {
    /// Its number, from 1: its place in the configuration unless that says another, or one that was free
    /// when it was added.
    pub number: u16,
    /// Its address.
    pub url: String,
    /// Whether it lets people in.
    pub state: ListenerState,
    /// Connections that came by it, where it is drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<usize>,
    /// How namespaces are reached through it, where that is not `optimized`.
    pub ana: Vec<Ana>,
}

/// A device to be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddDevice {
    /// What namespaces and tenants call it: letters, digits, `-`, `_` and `.`, not digits alone.
    pub name: String,
    /// What it is, as in the configuration: `file:PATH[?size=SIZE]`, for instance.
    pub spec: String,
    /// Its device model: a file of the server's machine, `a` or `cloud`. Without one nothing can be
    /// promised on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether its model is corrected by measured delays.
    #[serde(default)]
    pub correct_online: bool,
    /// Whether no more requests are at it at a time than the strictest latency allows.
    #[serde(default)]
    pub bound_depth: bool,
    /// Whether requests that would miss their latency are refused at once.
    #[serde(default)]
    pub fail_fast: bool,
}

/// A device that was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenedDevice {
    /// What namespaces and tenants call it.
    pub name: String,
    /// What it is.
    pub spec: String,
    /// Its size.
    pub bytes: u64,
    /// Whether there is a model for it; without one nothing can be promised.
    pub has_model: bool,
}

/// A listener to be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddListener {
    /// Where to listen, and for whom, as in the configuration: `reflex://HOST:PORT[?…]`,
    /// `reflex+unix:PATH[?…]` or `nvme-tcp://HOST:PORT[?…]`. Port 0 takes a free one.
    pub url: String,
}

/// How to close a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveListener {
    /// Has the connections end that came by it: each when what it has in flight has ended, and all of
    /// them after so many milliseconds. They stay unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
}

/// A listener that was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovedListener {
    /// The number that it had.
    pub number: u16,
    /// Where it was.
    pub removed: String,
    /// Connections that came by it and are there; `null`: a worker did not say.
    pub connections: Option<usize>,
}

/// Whether a listener lets people in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ListenerState {
    /// It does.
    #[default]
    Open,
    /// It turns everybody away, and some that came by it are still there.
    Draining,
    /// It turns everybody away, and nobody is there that came by it.
    Drained,
}

/// How a listener is to be drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainListener {
    /// How long, in milliseconds, connections may have requests in flight before they end all the same; ten
    /// seconds unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// All listeners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Listeners {
    /// By number.
    pub listeners: Vec<Listener>,
}

/// How namespaces are to be reached through a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAna {
    /// The state.
    pub state: AnaState,
    /// The subsystem; all unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
    /// The group; 1 unless told, to which all namespaces belong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}

/// The states of asymmetric namespace access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AnaState {
    /// The best way.
    Optimized,
    /// A way that hosts take when there is no better one.
    NonOptimized,
    /// No way, for now.
    Inaccessible,
    /// No way, for good.
    PersistentLoss,
    /// No way while something changes.
    Change,
}
