//! The resources of namespaces, subsystems, hosts and listeners. Their methods call the
//! [`Inventory`], on a thread that may block.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use serde::Serialize;

use super::audit::Note;
use super::blocking::blocking;
use super::drain::{Drain, DrainServer};
use super::extract::{Path, Query};
use super::inventory::{
    AddDevice, AddListener, AddNamespace, AddSubsystem, DrainListener, Host, Hosts, Listener,
    Listeners, Namespace, Namespaces, OpenedDevice, RemoveListener, RemoveNamespace,
    RemovedListener, SetAna, SetHost, SetNamespace, SetSubsystem, Subsystem, Subsystems,
};
use super::problem::{Code, Failure, Problem};
use super::routes::{Api, Body};
use super::settings::{DeviceSettings, SetDevice};
use super::workers::DEADLINE_MS_MAX;
use crate::info::Admission;
use crate::registry::TenantChange;

/// The changeable inventory of a running server, except tenants. Methods may block until workers
/// have applied a change. Each reports the reason if it does not do what was asked; then nothing
/// has changed.
#[allow(clippy::missing_errors_doc, reason = "it is said once for all of them")]
pub trait Inventory: Send + Sync {
    /// Returns `true` if changes persist after a restart of the server.
    fn keeps_changes(&self) -> bool {
        true
    }

    /// Returns all namespaces.
    fn namespaces(&self) -> Result<Namespaces, Problem>;

    /// Returns a namespace, by its name or number.
    fn namespace(&self, name: &str) -> Result<Namespace, Problem>;

    /// Adds a namespace, which reads as zeroes.
    fn add_namespace(&self, namespace: &AddNamespace) -> Result<Namespace, Problem>;

    /// Changes the size, the name or the write protection of a namespace.
    fn set_namespace(&self, name: &str, to: &SetNamespace) -> Result<Namespace, Problem>;

    /// Removes a namespace, which frees its blocks.
    fn remove_namespace(&self, name: &str, how: RemoveNamespace) -> Result<(), Problem>;

    /// Opens a device.
    fn add_device(&self, device: &AddDevice) -> Result<OpenedDevice, Problem>;

    /// Returns the settings of all devices.
    fn device_settings(&self) -> Vec<DeviceSettings>;

    /// Changes the settings of a device.
    fn set_device(&self, name: &str, to: &SetDevice) -> Result<DeviceSettings, Problem>;

    /// Closes an unused device.
    fn remove_device(&self, name: &str) -> Result<(), Problem>;

    /// Returns all subsystems.
    fn subsystems(&self) -> Result<Subsystems, Problem>;

    /// Returns a subsystem.
    fn subsystem(&self, nqn: &str) -> Result<Subsystem, Problem>;

    /// Adds a subsystem.
    fn add_subsystem(&self, subsystem: &AddSubsystem) -> Result<Subsystem, Problem>;

    /// Changes a subsystem.
    fn set_subsystem(&self, nqn: &str, to: &SetSubsystem) -> Result<Subsystem, Problem>;

    /// Removes a subsystem, and ends the connections of its hosts.
    fn remove_subsystem(&self, nqn: &str) -> Result<(), Problem>;

    /// Returns all registered hosts.
    fn hosts(&self) -> Result<Hosts, Problem>;

    /// Returns a registered host.
    fn host(&self, nqn: &str) -> Result<Host, Problem> {
        let mut hosts = self.hosts()?.hosts;
        if let Some(n) = hosts.iter().position(|host| host.nqn == nqn) {
            return Ok(hosts.swap_remove(n));
        }
        let known = hosts.into_iter().map(|host| host.nqn).collect();
        Err(Problem::unknown(Code::NoHost, "host", nqn, known))
    }

    /// Changes the registration of a host, or registers it.
    fn set_host(&self, nqn: &str, to: &SetHost) -> Result<Host, Problem>;

    /// Removes the registration of a host.
    fn remove_host(&self, nqn: &str) -> Result<(), Problem>;

    /// Returns all listeners.
    fn listeners(&self) -> Result<Listeners, Problem>;

    /// Returns a listener, by its number or address.
    fn listener(&self, name: &str) -> Result<Listener, Problem>;

    /// Opens a listener; returns it with its actual address.
    fn add_listener(&self, listener: &AddListener) -> Result<Listener, Problem>;

    /// Closes a listener. Its connections stay, or end as in a drain.
    fn remove_listener(
        &self,
        listener: &str,
        how: RemoveListener,
    ) -> Result<RemovedListener, Problem>;

    /// Returns pairs of the workers' identifier of a listener and its number, for listeners whose
    /// number is not the identifier plus one.
    fn listener_numbers(&self) -> Vec<(u16, u16)> {
        Vec::new()
    }

    /// Sets the ANA state of namespaces through a listener.
    fn set_ana(&self, listener: &str, to: &SetAna) -> Result<Listener, Problem>;

    /// Drains a listener: it refuses new connections, and its connections end. Each ends when its
    /// requests in flight have ended, or after `limit`.
    fn drain_listener(&self, listener: &str, limit: Duration) -> Result<Listener, Problem>;

    /// Resumes a listener, which accepts connections again.
    fn resume_listener(&self, listener: &str) -> Result<Listener, Problem>;

    /// Drains the server: it refuses new connections, and ends when all requests in flight have
    /// ended, or at the deadline.
    fn drain_server(&self, how: DrainServer) -> Result<Drain, Problem>;

    /// Returns the state of the server's drain.
    fn drain_of_server(&self) -> Result<Drain, Problem>;

    /// Removes a tenant, unless something names it, and stores the change. Both happen in one step,
    /// so that nothing comes to name the tenant meanwhile.
    fn remove_tenant(&self, name: &str) -> Result<(), Problem>;

    /// Makes changes of tenants, all or none, as [`Tenants::apply`](crate::Tenants::apply) does,
    /// and stores them.
    fn change_tenants(&self, changes: &[TenantChange]) -> Result<(), Problem>;

    /// Adds or changes one tenant and stores the change, or does neither.
    fn change_tenant(&self, change: &TenantChange) -> Result<Admission, Problem>;
}

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/v1/namespaces", get(list_namespaces).post(add_namespace))
        .route(
            "/v1/namespaces/{name}",
            get(get_namespace).put(set_namespace).delete(remove_namespace),
        )
        .route("/v1/devices", post(add_device))
        .route("/v1/devices/{name}", delete(remove_device))
        .route("/v1/subsystems", get(list_subsystems).post(add_subsystem))
        .route(
            "/v1/subsystems/{name}",
            get(get_subsystem).put(set_subsystem).delete(remove_subsystem),
        )
        .route("/v1/hosts", get(list_hosts))
        .route("/v1/hosts/{name}", get(get_host).put(set_host).delete(remove_host))
        .route("/v1/listeners", get(list_listeners).post(add_listener))
        .route("/v1/listeners/{name}", get(get_listener).delete(remove_listener))
        .route("/v1/listeners/{name}/ana", put(set_ana))
        .route("/v1/listeners/{name}/drain", post(drain_listener))
        .route("/v1/listeners/{name}/resume", post(resume_listener))
}

/// Runs an operation of the inventory, which may block.
pub(super) async fn ask<T: Send + 'static>(
    api: Api,
    what: impl FnOnce(&dyn Inventory) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let Some(inventory): Option<Arc<dyn Inventory>> = api.parts.inventory() else {
        return Err(Problem::new(Code::Unsupported, "this server has nothing of this kind"));
    };
    blocking(move || what(&*inventory)).await
}

/// Makes a change of the inventory, and notes the values before and after.
pub(super) async fn change<B: Serialize, T: Serialize + Send + 'static>(
    api: Api,
    note: Note,
    before: impl FnOnce(&dyn Inventory) -> Option<B> + Send + 'static,
    what: impl FnOnce(&dyn Inventory) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    ask(api, move |inventory| {
        if let Some(before) = before(inventory) {
            note.before(&before);
        }
        noted(&note, what(inventory), |done| note.after(done))
    })
    .await
}

/// Notes the outcome of a change, also when the request no longer waits for it.
fn noted<T>(note: &Note, done: Result<T, Problem>, after: impl FnOnce(&T)) -> Result<T, Problem> {
    if let Ok(done) = &done {
        after(done);
    }
    note.ended(done.as_ref().err().map(|problem| problem.code));
    done
}

/// Returns no value before, for additions.
fn nothing(_: &dyn Inventory) -> Option<()> {
    None
}

/// Returns the configured part of a subsystem.
fn said(mut subsystem: Subsystem) -> Subsystem {
    subsystem.controllers.clear();
    subsystem
}

fn known_host(inventory: &dyn Inventory, nqn: &str) -> Option<Host> {
    inventory.host(nqn).ok()
}

/// A host after a change, and which of its keys were given. The keys themselves are secret.
#[derive(Serialize)]
struct Noted {
    #[serde(flatten)]
    host: Host,
    key_given: bool,
    controller_key_given: bool,
}

fn created<T: Serialize>(made: T) -> Response {
    (StatusCode::CREATED, Json(made)).into_response()
}

/// Lists all namespaces.
#[utoipa::path(
    get,
    path = "/v1/namespaces",
    responses(
        (status = 200, body = Namespaces),
        (status = 501, body = Failure),
    )
)]
async fn list_namespaces(State(api): State<Api>) -> Result<Json<Namespaces>, Problem> {
    ask(api, |inventory| inventory.namespaces()).await.map(Json)
}

/// Adds a namespace, which reads as zeroes. Connected hosts are notified.
#[utoipa::path(
    post,
    path = "/v1/namespaces",
    request_body = AddNamespace,
    responses(
        (status = 201, body = Namespace),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 409, description = "The name is taken, or there is no room", body = Failure),
        (status = 422, description = "The device is not there", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn add_namespace(
    State(api): State<Api>,
    note: Note,
    Body(body): Body<AddNamespace>,
) -> Result<Response, Problem> {
    change(api, note, nothing, move |inventory| inventory.add_namespace(&body)).await.map(created)
}

/// Returns one namespace.
#[utoipa::path(
    get,
    path = "/v1/namespaces/{name}",
    params(("name" = String, Path, description = "The namespace's name or number")),
    responses(
        (status = 200, body = Namespace),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn get_namespace(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Namespace>, Problem> {
    ask(api, move |inventory| inventory.namespace(&name)).await.map(Json)
}

/// Changes the size, the name or the write protection of a namespace. Connected hosts are notified.
/// After the answer to a write protection, no write to the namespace is at a device.
#[utoipa::path(
    put,
    path = "/v1/namespaces/{name}",
    params(("name" = String, Path, description = "The namespace's name or number")),
    request_body = SetNamespace,
    responses(
        (status = 200, body = Namespace),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 409, description = "There is no room, data would be lost, or the name is taken", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn set_namespace(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
    Body(body): Body<SetNamespace>,
) -> Result<Json<Namespace>, Problem> {
    let known = name.clone();
    let before = move |inventory: &dyn Inventory| inventory.namespace(&known).ok();
    change(api, note, before, move |inventory| inventory.set_namespace(&name, &body))
        .await
        .map(Json)
}

/// Removes a namespace. Connected hosts are notified.
#[utoipa::path(
    delete,
    path = "/v1/namespaces/{name}",
    params(("name" = String, Path, description = "The namespace's name or number"), RemoveNamespace),
    responses(
        (status = 204),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 409, description = "A listener leads to it", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn remove_namespace(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
    Query(how): Query<RemoveNamespace>,
) -> Result<StatusCode, Problem> {
    let known = name.clone();
    let before = move |inventory: &dyn Inventory| inventory.namespace(&known).ok();
    change(api, note, before, move |inventory| inventory.remove_namespace(&name, how))
        .await
        .map(|()| StatusCode::NO_CONTENT)
}

/// Opens a device. The device persists after a restart of the server, and can have namespaces.
#[utoipa::path(
    post,
    path = "/v1/devices",
    request_body = AddDevice,
    responses(
        (status = 201, body = OpenedDevice),
        (status = 400, body = Failure),
        (status = 409, description = "The name is taken, or there are as many as can be", body = Failure),
        (status = 422, description = "It cannot be opened", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn add_device(
    State(api): State<Api>,
    note: Note,
    Body(body): Body<AddDevice>,
) -> Result<Response, Problem> {
    change(api, note, nothing, move |inventory| inventory.add_device(&body)).await.map(created)
}

/// Closes a device that has no namespace and no tenant, and that is not being measured.
#[utoipa::path(
    delete,
    path = "/v1/devices/{name}",
    params(("name" = String, Path, description = "The device's name")),
    responses(
        (status = 204),
        (status = 409, description = "Something is on it", body = Failure),
        (status = 422, description = "It is not there", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn remove_device(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    change(api, note, nothing, move |inventory| inventory.remove_device(&name))
        .await
        .map(|()| StatusCode::NO_CONTENT)
}

/// Lists all subsystems, with their connected hosts.
#[utoipa::path(
    get,
    path = "/v1/subsystems",
    responses(
        (status = 200, body = Subsystems),
        (status = 501, body = Failure),
    )
)]
async fn list_subsystems(State(api): State<Api>) -> Result<Json<Subsystems>, Problem> {
    ask(api, |inventory| inventory.subsystems()).await.map(Json)
}

/// Adds a subsystem. Discovery controllers are notified.
#[utoipa::path(
    post,
    path = "/v1/subsystems",
    request_body = AddSubsystem,
    responses(
        (status = 201, body = Subsystem),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 409, description = "The name is taken", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn add_subsystem(
    State(api): State<Api>,
    note: Note,
    Body(body): Body<AddSubsystem>,
) -> Result<Response, Problem> {
    change(api, note, nothing, move |inventory| inventory.add_subsystem(&body)).await.map(created)
}

/// Returns one subsystem.
#[utoipa::path(
    get,
    path = "/v1/subsystems/{name}",
    params(("name" = String, Path, description = "The subsystem's qualified name")),
    responses(
        (status = 200, body = Subsystem),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn get_subsystem(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Subsystem>, Problem> {
    ask(api, move |inventory| inventory.subsystem(&name)).await.map(Json)
}

/// Changes a subsystem: the hosts that may connect, its namespaces, the tenant that is charged.
#[utoipa::path(
    put,
    path = "/v1/subsystems/{name}",
    params(("name" = String, Path, description = "The subsystem's qualified name")),
    request_body = SetSubsystem,
    responses(
        (status = 200, body = Subsystem),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn set_subsystem(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
    Body(body): Body<SetSubsystem>,
) -> Result<Json<Subsystem>, Problem> {
    ask(api, move |inventory| {
        if let Ok(before) = inventory.subsystem(&name) {
            note.before(&said(before));
        }
        noted(&note, inventory.set_subsystem(&name, &body), |now| note.after(&said(now.clone())))
    })
    .await
    .map(Json)
}

/// Removes a subsystem; the connections of its hosts end.
#[utoipa::path(
    delete,
    path = "/v1/subsystems/{name}",
    params(("name" = String, Path, description = "The subsystem's qualified name")),
    responses(
        (status = 204),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn remove_subsystem(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let known = name.clone();
    let before = move |inventory: &dyn Inventory| inventory.subsystem(&known).ok().map(said);
    change(api, note, before, move |inventory| inventory.remove_subsystem(&name))
        .await
        .map(|()| StatusCode::NO_CONTENT)
}

/// Lists all registered hosts, without their keys.
#[utoipa::path(
    get,
    path = "/v1/hosts",
    responses(
        (status = 200, body = Hosts),
        (status = 501, body = Failure),
    )
)]
async fn list_hosts(State(api): State<Api>) -> Result<Json<Hosts>, Problem> {
    ask(api, |inventory| inventory.hosts()).await.map(Json)
}

/// Returns a registered host, without its keys.
#[utoipa::path(
    get,
    path = "/v1/hosts/{name}",
    params(("name" = String, Path, description = "The host's qualified name")),
    responses(
        (status = 200, body = Host),
        (status = 404, body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn get_host(State(api): State<Api>, Path(name): Path<String>) -> Result<Json<Host>, Problem> {
    ask(api, move |inventory| inventory.host(&name)).await.map(Json)
}

/// Registers a host, or changes its tenant and its keys.
#[utoipa::path(
    put,
    path = "/v1/hosts/{name}",
    params(("name" = String, Path, description = "The host's qualified name")),
    request_body = SetHost,
    responses(
        (status = 200, body = Host),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn set_host(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
    Body(body): Body<SetHost>,
) -> Result<Json<Host>, Problem> {
    ask(api, move |inventory| {
        if let Some(before) = known_host(inventory, &name) {
            note.before(&before);
        }
        noted(&note, inventory.set_host(&name, &body), |host| {
            let (key_given, controller_key_given) =
                (body.key.is_some(), body.controller_key.is_some());
            note.after(&Noted { host: host.clone(), key_given, controller_key_given });
        })
    })
    .await
    .map(Json)
}

/// Removes the registration of a host.
#[utoipa::path(
    delete,
    path = "/v1/hosts/{name}",
    params(("name" = String, Path, description = "The host's qualified name")),
    responses(
        (status = 204),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn remove_host(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let known = name.clone();
    let before = move |inventory: &dyn Inventory| known_host(inventory, &known);
    change(api, note, before, move |inventory| inventory.remove_host(&name))
        .await
        .map(|()| StatusCode::NO_CONTENT)
}

/// Lists all listeners.
#[utoipa::path(
    get,
    path = "/v1/listeners",
    responses(
        (status = 200, body = Listeners),
        (status = 501, body = Failure),
    )
)]
async fn list_listeners(State(api): State<Api>) -> Result<Json<Listeners>, Problem> {
    ask(api, |inventory| inventory.listeners()).await.map(Json)
}

/// Opens a listener, which persists after a restart of the server.
#[utoipa::path(
    post,
    path = "/v1/listeners",
    request_body = AddListener,
    responses(
        (status = 201, body = Listener),
        (status = 400, body = Failure),
        (status = 409, description = "There are as many as can be", body = Failure),
        (status = 422, description = "The system does not let it listen there", body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn add_listener(
    State(api): State<Api>,
    note: Note,
    Body(body): Body<AddListener>,
) -> Result<Response, Problem> {
    change(api, note, nothing, move |inventory| inventory.add_listener(&body)).await.map(created)
}

/// Returns one listener.
#[utoipa::path(
    get,
    path = "/v1/listeners/{name}",
    params(("name" = String, Path, description = "The listener's number or address")),
    responses(
        (status = 200, body = Listener),
        (status = 404, body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn get_listener(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Listener>, Problem> {
    ask(api, move |inventory| inventory.listener(&name)).await.map(Json)
}

/// Closes a listener. Its connections stay, unless a drain is requested.
#[utoipa::path(
    delete,
    path = "/v1/listeners/{name}",
    params(("name" = String, Path, description = "The listener's number or address"), RemoveListener),
    responses(
        (status = 200, body = RemovedListener),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn remove_listener(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
    Query(mut how): Query<RemoveListener>,
) -> Result<Json<RemovedListener>, Problem> {
    let known = name.clone();
    let before = move |inventory: &dyn Inventory| known_listener(inventory, &known);
    how.drain_ms = how.drain_ms.map(|limit| limit.min(DEADLINE_MS_MAX));
    change(api, note, before, move |inventory| inventory.remove_listener(&name, how))
        .await
        .map(Json)
}

/// Sets the ANA state of namespaces through a listener. Connected hosts are notified.
#[utoipa::path(
    put,
    path = "/v1/listeners/{name}/ana",
    params(("name" = String, Path, description = "The listener's number or address")),
    request_body = SetAna,
    responses(
        (status = 200, body = Listener),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn set_ana(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
    Body(body): Body<SetAna>,
) -> Result<Json<Listener>, Problem> {
    let known = name.clone();
    let before = move |inventory: &dyn Inventory| known_listener(inventory, &known);
    change(api, note, before, move |inventory| inventory.set_ana(&name, &body)).await.map(Json)
}

fn known_listener(inventory: &dyn Inventory, name: &str) -> Option<Listener> {
    inventory.listener(name).ok()
}

/// Drains a listener: it refuses new connections, and its connections end. The drain lasts until
/// the listener is resumed or the server restarts.
#[utoipa::path(
    post,
    path = "/v1/listeners/{name}/drain",
    params(("name" = String, Path, description = "The listener's number or address")),
    request_body = DrainListener,
    responses(
        (status = 200, body = Listener),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn drain_listener(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
    Body(how): Body<DrainListener>,
) -> Result<Json<Listener>, Problem> {
    let known = name.clone();
    let before = move |inventory: &dyn Inventory| known_listener(inventory, &known);
    let limit = Duration::from_millis(how.deadline_ms.unwrap_or(10_000).min(DEADLINE_MS_MAX));
    change(api, note, before, move |inventory| inventory.drain_listener(&name, limit))
        .await
        .map(Json)
}

/// Resumes a listener, which accepts connections again.
#[utoipa::path(
    post,
    path = "/v1/listeners/{name}/resume",
    params(("name" = String, Path, description = "The listener's number or address")),
    responses(
        (status = 200, body = Listener),
        (status = 404, body = Failure),
        (status = 501, body = Failure),
    )
)]
async fn resume_listener(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
) -> Result<Json<Listener>, Problem> {
    let known = name.clone();
    let before = move |inventory: &dyn Inventory| known_listener(inventory, &known);
    change(api, note, before, move |inventory| inventory.resume_listener(&name)).await.map(Json)
}

/// The OpenAPI document of this module.
pub(super) mod documented {
    use super::*;
    use utoipa::OpenApi;

    #[derive(OpenApi)]
    #[openapi(paths(
        list_namespaces,
        add_namespace,
        get_namespace,
        set_namespace,
        remove_namespace,
        add_device,
        remove_device,
        list_subsystems,
        add_subsystem,
        get_subsystem,
        set_subsystem,
        remove_subsystem,
        list_hosts,
        get_host,
        set_host,
        remove_host,
        list_listeners,
        add_listener,
        get_listener,
        remove_listener,
        set_ana,
        drain_listener,
        resume_listener,
    ))]
    pub(in crate::admin) struct Document;
}
