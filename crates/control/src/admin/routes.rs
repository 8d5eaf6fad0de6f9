//! The router of the admin API, and the resources of tenants, devices and workers.

use std::slice;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch};
use axum::{Json, Router};
use contract::Promise;
use serde::de::DeserializeOwned;

use super::audit::Note;
use super::batch;
use super::blocking::blocking;
use super::devices::Recalibrator;
use super::extract::Path;
use super::inventory_routes::Inventory;
use super::model::{
    AddTenant, Admitted, ChangeTenant, Check, Device, Devices, Drift, SetNamed, SetTenant,
    Strictest, Tenant, Tenants, Verdict, Worker, Workers,
};
use super::openapi;
use super::problem::{Code, Failure, Problem};
use super::workers::WorkerState;
use crate::info;
use crate::registry::TenantChange;

/// Maximum size of a request's body in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The parts of the server that the API needs, except tenants. Called on the API's thread.
pub trait ServerParts: Send + Sync {
    /// Returns the processor that a worker is pinned to.
    fn cpu(&self, worker: usize) -> Option<usize>;

    /// Returns the inventory of the server; `None` if it does not change.
    fn inventory(&self) -> Option<Arc<dyn Inventory>> {
        None
    }

    /// Returns the recalibrator of the devices; `None` without recalibration.
    fn recalibrator(&self) -> Option<Arc<dyn Recalibrator>> {
        None
    }
}

/// The state that every handler receives.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) tenants: crate::Tenants,
    pub(super) commands: crate::WorkerCommands,
    pub(super) parts: Arc<dyn ServerParts>,
}

/// Returns the router of the API, without time limits and without authentication.
pub fn router(
    tenants: crate::Tenants,
    commands: crate::WorkerCommands,
    parts: Arc<dyn ServerParts>,
) -> Router {
    let warned = middleware::from_fn_with_state(parts.clone(), super::warning::warn);
    let inventory = super::inventory_routes::routes().merge(super::settings::routes());
    let inventory = inventory.route_layer(warned);
    Router::new()
        .route(
            "/v1/tenants",
            get(list_tenants)
                .post(add_tenant)
                .merge(patch(batch::change_tenants).layer(batch::limit())),
        )
        // A tenant may be named `check`: only POST is the check.
        .route(
            "/v1/tenants/{name}",
            get(get_tenant).put(set_tenant).delete(remove_tenant).post(check_tenant),
        )
        .route("/v1/devices", get(list_devices))
        .route("/v1/workers", get(list_workers))
        .merge(super::workers::routes())
        .merge(super::drain::routes())
        .merge(super::listeners::routes())
        .merge(super::devices::routes())
        .merge(inventory)
        .merge(super::watch::watch_router(tenants.clone()))
        .merge(super::dashboard::dashboard_router(tenants.clone()))
        .route("/openapi.json", get(async || Json(openapi::document())))
        .fallback(async || {
            Problem::new(Code::NotFound, "there is no such resource; /openapi.json lists them all")
        })
        .method_not_allowed_fallback(async || {
            let message = "the resource has no such method; /openapi.json lists what it has";
            Problem::new(Code::NoMethod, message)
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Api { tenants, commands, parts })
        .merge(super::pages::pages_router())
}

/// A JSON body, whose errors are JSON, too.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Ok(Body(Json::from_request(request, state).await?.0))
    }
}

/// Adds or changes a tenant and stores the change if the server stores changes, or does neither.
/// Runs where nobody can cancel it, so that no change stays incomplete.
fn make(api: &Api, wanted: &TenantChange) -> Result<info::Admission, Problem> {
    let done = match api.parts.inventory() {
        Some(inventory) => inventory.change_tenant(wanted),
        None => match api.tenants.apply(slice::from_ref(wanted)) {
            Ok(()) => api.tenants.registry().admission_of(wanted.name()).map_err(Problem::from),
            Err((_, refusal)) => Err(refusal.into()),
        },
    };
    done.map_err(|problem| with_ways(api, wanted, problem))
}

/// Makes a change of a tenant where it may block, and notes the outcome, also when the request no
/// longer waits for it.
async fn change<T: Send + 'static>(
    note: Note,
    what: impl FnOnce(&Note) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    blocking(move || {
        let done = what(&note);
        note.ended(done.as_ref().err().map(|problem| problem.code));
        done
    })
    .await
}

/// Returns the configured part of a tenant.
fn promise_of(tenant: &info::TenantInfo) -> SetTenant {
    let shown = Tenant::from(tenant.clone());
    SetTenant { slo: shown.slo, share: Some(shown.share) }
}

/// Converts a change of a tenant to the registry's form.
fn meant(change: ChangeTenant) -> Result<TenantChange, Problem> {
    TenantChange::try_from(change).map_err(|why| Problem::new(Code::Invalid, why))
}

/// Lists all tenants, with their measurements of the last second.
#[utoipa::path(get, path = "/v1/tenants", responses((status = 200, body = Tenants)))]
async fn list_tenants(State(api): State<Api>) -> Json<Tenants> {
    Json(Tenants { tenants: api.tenants.list().into_iter().map(Tenant::from).collect() })
}

/// Adds a tenant.
#[utoipa::path(
    post,
    path = "/v1/tenants",
    request_body = AddTenant,
    responses(
        (status = 201, body = Admitted),
        (status = 400, body = Failure),
        (status = 409, description = "The name is taken, the SLO does not fit, or the table is full",
         body = Failure),
        (status = 422, description = "The device is not there, or its model is not, or does not know the percentile", body = Failure),
    )
)]
async fn add_tenant(
    State(api): State<Api>,
    note: Note,
    Body(wanted): Body<AddTenant>,
) -> Result<Response, Problem> {
    let meant = meant(ChangeTenant::Add(wanted.clone()))?;
    let admission = change(note, move |note| {
        let admission = make(&api, &meant)?;
        tracing::info!(tenant = wanted.name, tokens = admission.tokens_needed, "tenant added");
        note.after(&wanted);
        Ok(admission)
    });
    Ok((StatusCode::CREATED, Json(Admitted::from(admission.await?))).into_response())
}

/// Adds the remedies, as a check finds them, if the rate does not suffice.
fn with_ways(api: &Api, wanted: &TenantChange, problem: Problem) -> Problem {
    if !matches!(problem.code, Code::TooMuch | Code::TooTight) {
        return problem;
    }
    let checked = match wanted {
        TenantChange::Add(tenant) => match tenant.promise.slo() {
            Some(slo) => api.tenants.check(slo, tenant.device.as_deref()),
            None => return problem,
        },
        TenantChange::Set { name, to: Promise::LatencyCritical(slo) } => {
            api.tenants.check_change(name, *slo)
        }
        _ => return problem,
    };
    match checked {
        Ok(info::Verdict::Refused { refusal, ways }) => Problem::refused(refusal, ways),
        _ => problem,
    }
}

/// Returns one tenant.
#[utoipa::path(
    get,
    path = "/v1/tenants/{name}",
    params(("name" = String, Path, description = "The tenant's name")),
    responses((status = 200, body = Tenant), (status = 404, body = Failure))
)]
async fn get_tenant(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Tenant>, Problem> {
    match api.tenants.get(&name) {
        Some(info) => Ok(Json(info.into())),
        None => Err(api.tenants.registry().no_tenant(&name).into()),
    }
}

/// Changes the SLO of a tenant. If the new SLO is refused, the old one stands.
#[utoipa::path(
    put,
    path = "/v1/tenants/{name}",
    params(("name" = String, Path, description = "The tenant's name")),
    request_body = SetTenant,
    responses(
        (status = 200, body = Admitted),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 409, description = "The SLO does not fit", body = Failure),
        (status = 422, description = "The device has no model, or one without the percentile", body = Failure),
    )
)]
async fn set_tenant(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
    Body(wanted): Body<SetTenant>,
) -> Result<Json<Admitted>, Problem> {
    let SetTenant { slo, share } = wanted;
    let meant = meant(ChangeTenant::Set(SetNamed { name: name.clone(), slo, share }))?;
    let admission = change(note, move |note| {
        let before = api.tenants.get(&name);
        let admission = make(&api, &meant)?;
        note.before(&before.as_ref().map(promise_of));
        note.after(&api.tenants.get(&name).as_ref().map(promise_of));
        tracing::info!(tenant = name, tokens = admission.tokens_needed, "tenant changed");
        Ok(admission)
    });
    Ok(Json(admission.await?.into()))
}

/// Removes a tenant. Its rate is free at once; its requests in flight are still answered.
#[utoipa::path(
    delete,
    path = "/v1/tenants/{name}",
    params(("name" = String, Path, description = "The tenant's name")),
    responses(
        (status = 204),
        (status = 404, body = Failure),
        (status = 409, description = "The configuration names it", body = Failure),
    )
)]
async fn remove_tenant(
    State(api): State<Api>,
    note: Note,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    change(note, move |note| {
        note.before(&api.tenants.get(&name).as_ref().map(promise_of));
        match api.parts.inventory() {
            None => api.tenants.unregister(&name)?,
            Some(inventory) => inventory.remove_tenant(&name)?,
        }
        tracing::info!(tenant = name, "tenant removed");
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Checks whether an SLO would be admitted, and reports remedies if not. Changes nothing.
#[utoipa::path(
    post,
    path = "/v1/tenants/check",
    request_body = Check,
    responses(
        (status = 200, body = Verdict),
        (status = 400, body = Failure),
        (status = 404, body = Failure),
        (status = 422, description = "The device is not there", body = Failure),
    )
)]
async fn check_tenant(
    State(api): State<Api>,
    Path(name): Path<String>,
    Body(question): Body<Check>,
) -> Result<Json<Verdict>, Problem> {
    if name != "check" {
        let message = "tenants are made by POST to /v1/tenants and changed by PUT";
        return Err(Problem::new(Code::NoMethod, message));
    }
    let slo = question.slo.to_contract().map_err(|why| Problem::new(Code::Invalid, why))?;
    let verdict = match (&question.tenant, question.device.as_deref()) {
        (None, device) => api.tenants.check(slo, device)?,
        (Some(tenant), None) => api.tenants.check_change(tenant, slo)?,
        (Some(_), Some(_)) => {
            let message = "a tenant stays on its device; name `tenant` or `device`";
            return Err(Problem::new(Code::Invalid, message));
        }
    };
    Ok(Json(match verdict {
        info::Verdict::Admitted { tokens_needed, tokens_left } => Verdict {
            admitted: true,
            tokens_needed: Some(tokens_needed),
            tokens_left: Some(tokens_left),
            refusal: None,
        },
        info::Verdict::Refused { refusal, ways } => {
            let problem = Problem::refused(refusal, ways);
            let shortage = problem.shortage.as_ref();
            Verdict {
                admitted: false,
                tokens_needed: shortage.map(|s| s.tokens_needed),
                tokens_left: shortage.map(|s| s.tokens_available),
                refusal: Some(problem),
            }
        }
    }))
}

/// Lists all devices, with their current rate and the tenant whose latency bound limits the rate.
#[utoipa::path(get, path = "/v1/devices", responses((status = 200, body = Devices)))]
async fn list_devices(State(api): State<Api>) -> Json<Devices> {
    Json(Devices { devices: shown_devices(&api) })
}

/// Returns the current devices as the API's type.
pub(super) fn shown_devices(api: &Api) -> Vec<Device> {
    let now = api.tenants.now();
    // One lock, so that both lists describe the same moment.
    let (devices, tenants) = {
        let registry = api.tenants.registry();
        (registry.device_infos(), registry.list())
    };
    let strictest = |device: &info::DeviceInfo| {
        let latency_us = device.latency_us?;
        let whose = tenants.iter().find(|tenant| {
            let promised = tenant.state == info::State::Active && tenant.device == device.name;
            promised && tenant.promise.slo().is_some_and(|slo| slo.latency_us == latency_us)
        })?;
        Some(Strictest { latency_us, tenant: whose.name.clone() })
    };
    let said =
        api.parts.inventory().map(|inventory| inventory.device_settings()).unwrap_or_default();
    let said_of = |name: &str| said.iter().find(|one| one.name == name).cloned();
    let each = devices.iter().map(|device| Device {
        settings: said_of(&device.name),
        name: device.name.clone(),
        has_model: device.has_model,
        tokens: device.tokens,
        tokens_promised: device.tokens_promised,
        tokens_left: device.tokens_left,
        strictest: strictest(device),
        correction: device.correction.map(Into::into),
        drift: device.drift.map(|drift| Drift::at(drift, now)),
        recalibrated: device.is_remodelled,
    });
    each.collect()
}

/// Returns the current workers as the API's type.
pub(super) fn shown_workers(api: &Api) -> Vec<Worker> {
    let each = api.commands.workers().into_iter().map(|info| Worker {
        number: info.number,
        cpu: api.parts.cpu(info.number),
        state: match info.state {
            crate::WorkerState::Active => WorkerState::Active,
            crate::WorkerState::Retiring => WorkerState::Retiring,
            crate::WorkerState::Parked => WorkerState::Parked,
        },
        connections: info.connections,
        busy_percent: (info.busy * 1_000.0).round() / 10.0,
        moved: info.moved,
        stayed: info.stayed,
        arrived: info.arrived,
        pause_us_max: info.pause_us_max,
    });
    each.collect()
}

/// Lists all workers.
#[utoipa::path(get, path = "/v1/workers", responses((status = 200, body = Workers)))]
async fn list_workers(State(api): State<Api>) -> Json<Workers> {
    Json(Workers { workers: shown_workers(&api) })
}

/// The OpenAPI document of this module.
pub(super) mod documented {
    use super::*;
    use utoipa::OpenApi;

    #[derive(OpenApi)]
    #[openapi(
        info(
            title = "nearflash admin API",
            description = "What a running server has and does: tenants, devices, namespaces, NVMe \
                           subsystems and hosts, listeners, workers and connections, to be shown and \
                           changed; what they did lately; metrics. A name in a path is \
                           percent-encoded. Beside what stands at each resource, any request can be \
                           answered with 400 (its path, query or body makes no sense), 403 (who asks \
                           is not let in), 405, 408 (it took too long), 413 (its body is too large) or \
                           500 (among others when a change cannot be kept), each with a body like that of \
                           a 404."
        ),
        paths(
            list_tenants,
            add_tenant,
            get_tenant,
            set_tenant,
            remove_tenant,
            check_tenant,
            list_devices,
            list_workers,
        )
    )]
    pub(in crate::admin) struct Document;
}

#[cfg(test)]
mod tests {
    use super::super::inventory::*;
    use super::super::{DeviceSettings, Drain, DrainServer, SetDevice};
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use axum::body::Body as HttpBody;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    /// An inventory whose disk is slow and then fails.
    struct SlowDisk {
        tenants: crate::Tenants,
        begins: Sender<()>,
        fails: Mutex<Receiver<()>>,
    }

    macro_rules! has_none {
        ($($name:ident($($what:ty),*) -> $told:ty;)*) => {
            $(fn $name(&self, $(_: $what),*) -> Result<$told, Problem> {
                Err(Problem::new(Code::Unsupported, "there is none here"))
            })*
        };
    }

    impl Inventory for SlowDisk {
        has_none! {
            namespaces() -> Namespaces;
            namespace(&str) -> Namespace;
            add_namespace(&AddNamespace) -> Namespace;
            set_namespace(&str, &SetNamespace) -> Namespace;
            remove_namespace(&str, RemoveNamespace) -> ();
            add_device(&AddDevice) -> OpenedDevice;
            set_device(&str, &SetDevice) -> DeviceSettings;
            remove_device(&str) -> ();
            subsystems() -> Subsystems;
            subsystem(&str) -> Subsystem;
            add_subsystem(&AddSubsystem) -> Subsystem;
            set_subsystem(&str, &SetSubsystem) -> Subsystem;
            remove_subsystem(&str) -> ();
            hosts() -> Hosts;
            set_host(&str, &SetHost) -> Host;
            remove_host(&str) -> ();
            listeners() -> Listeners;
            listener(&str) -> Listener;
            add_listener(&AddListener) -> Listener;
            remove_listener(&str, RemoveListener) -> RemovedListener;
            set_ana(&str, &SetAna) -> Listener;
            drain_listener(&str, Duration) -> Listener;
            resume_listener(&str) -> Listener;
            drain_server(DrainServer) -> Drain;
            drain_of_server() -> Drain;
            remove_tenant(&str) -> ();
            change_tenants(&[crate::TenantChange]) -> ();
        }

        fn device_settings(&self) -> Vec<DeviceSettings> {
            Vec::new()
        }

        fn change_tenant(&self, change: &crate::TenantChange) -> Result<crate::Admission, Problem> {
            let (now, mut undo) = (contract::Instant::ZERO, crate::Undo::default());
            let origin = crate::Origin::Operator;
            self.tenants.registry().begin_change(change, origin, now, &mut undo)?;
            self.begins.send(()).unwrap();
            self.fails.lock().unwrap().recv().unwrap();
            self.tenants.registry().undo_batch(undo, now);
            Err(Problem::new(Code::Internal, "the disk is full"))
        }
    }

    struct OneSite(Arc<SlowDisk>);

    impl ServerParts for OneSite {
        fn cpu(&self, _: usize) -> Option<usize> {
            None
        }

        fn inventory(&self) -> Option<Arc<dyn Inventory>> {
            Some(self.0.clone())
        }
    }

    /// Tests that a request that takes too long is dropped, but never between a change and its
    /// reversal.
    #[test]
    fn a_tenant_is_not_half_changed_by_a_request_that_is_not_waited_for() {
        let device = crate::DeviceSetup {
            name: "disk".to_owned(),
            model: None,
            switches: crate::Switches::default(),
        };
        let clock = Arc::new(|| contract::Instant::ZERO);
        let tenants = crate::Tenants::new(vec![device], 1, 10, clock);
        let (controller, _) = crate::WorkerController::new(tenants.clone(), 1);
        let (begins, begun) = channel();
        let (fail, fails) = channel();
        let fails = Mutex::new(fails);
        let disk = Arc::new(SlowDisk { tenants: tenants.clone(), begins, fails });
        let service = router(tenants.clone(), controller.commands(), Arc::new(OneSite(disk)));
        let service = TowerToHyperService::new(service);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ask_and_go = |method: &str, path: &str, body: &'static str| {
            let request = axum::http::Request::builder()
                .method(method)
                .uri(path)
                .header("content-type", "application/json")
                .body(HttpBody::from(body))
                .unwrap();
            runtime.block_on(async {
                let asked = tokio::spawn(service.call(request));
                while begun.try_recv().is_err() {
                    assert!(!asked.is_finished(), "it was answered: {:?}", asked.await);
                    tokio::task::yield_now().await;
                }
                asked.abort();
                assert!(asked.await.unwrap_err().is_cancelled());
                fail.send(()).unwrap();
            });
        };
        let becomes = |is_so: &dyn Fn() -> bool| {
            let undone = async {
                while !is_so() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let limit = Duration::from_secs(20);
            runtime.block_on(async { tokio::time::timeout(limit, undone).await }).is_ok()
        };
        ask_and_go("POST", "/v1/tenants", r#"{"name": "late"}"#);
        assert!(becomes(&|| tenants.get("late").is_none()), "it was made and not kept");
    }
}
