//! The paths of the API, tied to the documents and the bodies that belong there. Both sides use
//! these ties: the table of operations and the client.

use axum::http::Method;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::dashboard::{History, Model, StandingList};
use super::devices::{Recalibration, SetRecalibration, StartRecalibration};
use super::drain::{Drain, DrainServer};
use super::inventory::{
    AddDevice, AddListener, DrainListener, HostPatch, HostStatus, Hosts, ListenerStatus, Listeners,
    NamespacePatch, NamespaceStatus, Namespaces, NewNamespace, NewSubsystem, OpenedDevice,
    RemoveListener, RemoveNamespace, RemovedListener, SetAna, SubsystemPatch, SubsystemStatus,
    Subsystems,
};
use super::listeners::ListenerPatch;
use super::model::{
    Admitted, ChangeTenants, ChangedTenants, Check, DeviceStatus, Devices, NewTenant, TenantPatch,
    TenantStatus, Tenants, Verdict, Worker, Workers,
};
use super::settings::{DevicePatch, DeviceSettings};
use super::state::{ImportState, Imported, ServerState};
use super::violations::Violations;
use super::watch::{Flows, Stages};
use super::workers::{Connection, Connections, EndConnection, HasMoved, MoveTo, SetWorker};

/// A document of the API: the answer to a GET.
pub trait Document: Serialize + DeserializeOwned + JsonSchema {
    /// The path. A part in braces stands for a name.
    const PATH: &'static str;
}

/// The body of a request, or for DELETE its query.
pub trait Request: Serialize + DeserializeOwned + JsonSchema + Send + 'static {
    /// The method of the request.
    const METHOD: Method;

    /// The path. A part in braces stands for a name.
    const PATH: &'static str;

    /// The body of the answer.
    type Answer: Serialize + DeserializeOwned + JsonSchema;
}

macro_rules! documents {
    ($($document:ty: $path:literal,)+) => {
        $(impl Document for $document {
            const PATH: &'static str = $path;
        })+

        /// The method and the path of each document.
        #[cfg(test)]
        pub(super) const DOCUMENTS: &[(Method, &str)] = &[$((Method::GET, $path)),+];
    };
}

macro_rules! requests {
    ($($method:ident $path:literal: $body:ty => $answer:ty,)+) => {
        $(impl Request for $body {
            const METHOD: Method = Method::$method;
            const PATH: &'static str = $path;
            type Answer = $answer;
        })+

        /// The method and the path of each request.
        #[cfg(test)]
        pub(super) const REQUESTS: &[(Method, &str)] = &[$((Method::$method, $path)),+];
    };
}

documents! {
    Tenants: "/v1/tenants",
    TenantStatus: "/v1/tenants/{name}",
    Stages: "/v1/tenants/{name}/stages",
    StandingList: "/v1/standing",
    History: "/v1/history",
    Violations: "/v1/violations",
    Flows: "/v1/flows",
    Devices: "/v1/devices",
    DeviceStatus: "/v1/devices/{name}",
    Model: "/v1/devices/{name}/model",
    Recalibration: "/v1/devices/{name}/recalibration",
    Namespaces: "/v1/namespaces",
    NamespaceStatus: "/v1/namespaces/{name}",
    Subsystems: "/v1/subsystems",
    SubsystemStatus: "/v1/subsystems/{name}",
    Hosts: "/v1/hosts",
    HostStatus: "/v1/hosts/{name}",
    Listeners: "/v1/listeners",
    ListenerStatus: "/v1/listeners/{name}",
    Workers: "/v1/workers",
    Worker: "/v1/workers/{number}",
    Connections: "/v1/connections",
    Connection: "/v1/connections/{id}",
    Drain: "/v1/drain",
    ServerState: "/v1/state",
}

requests! {
    POST "/v1/tenants": NewTenant => Admitted,
    PATCH "/v1/tenants": ChangeTenants => ChangedTenants,
    PUT "/v1/tenants/{name}": TenantPatch => Admitted,
    POST "/v1/tenants/check": Check => Verdict,
    POST "/v1/devices": AddDevice => OpenedDevice,
    PUT "/v1/devices/{name}": DevicePatch => DeviceSettings,
    POST "/v1/devices/{name}/recalibration": StartRecalibration => Recalibration,
    PUT "/v1/devices/{name}/recalibration": SetRecalibration => Recalibration,
    POST "/v1/namespaces": NewNamespace => NamespaceStatus,
    PUT "/v1/namespaces/{name}": NamespacePatch => NamespaceStatus,
    DELETE "/v1/namespaces/{name}": RemoveNamespace => (),
    POST "/v1/subsystems": NewSubsystem => SubsystemStatus,
    PUT "/v1/subsystems/{name}": SubsystemPatch => SubsystemStatus,
    PUT "/v1/hosts/{name}": HostPatch => HostStatus,
    POST "/v1/listeners": AddListener => ListenerStatus,
    PUT "/v1/listeners/{name}": ListenerPatch => ListenerStatus,
    DELETE "/v1/listeners/{name}": RemoveListener => RemovedListener,
    PUT "/v1/listeners/{name}/ana": SetAna => ListenerStatus,
    POST "/v1/listeners/{name}/drain": DrainListener => ListenerStatus,
    PUT "/v1/workers/{number}": SetWorker => (),
    DELETE "/v1/connections/{id}": EndConnection => Connection,
    POST "/v1/connections/{id}/move": MoveTo => HasMoved,
    POST "/v1/drain": DrainServer => Drain,
    PUT "/v1/state": ImportState => Imported,
}
