//! The router of the admin API.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use axum::{Json, Router};

use super::openapi;
use super::operation::{Api, BODY_BYTES_MAX};
use super::operations::operations;
use super::pages;
use super::ports::ServerParts;
use super::problem::{Code, Problem};

/// Returns the router of the API, without time limits and without authentication.
pub fn router(
    tenants: crate::Tenants,
    commands: crate::WorkerCommands,
    parts: Arc<dyn ServerParts>,
) -> Router {
    let mut router = Router::new();
    for operation in operations() {
        let Some(handler) = operation.handler else { continue };
        if operation.path == "/v1/tenants/{name}" {
            // A tenant may be named `check`: only POST is the check.
            router = router.route("/v1/tenants/check", handler.clone());
        }
        router = router.route(operation.path, handler);
    }
    router
        .route("/openapi.json", get(async || Json(openapi::document())))
        .fallback(async || {
            Problem::new(Code::NotFound, "there is no such resource; /openapi.json lists them all")
        })
        .method_not_allowed_fallback(async || {
            let message = "the resource has no such method; /openapi.json lists what it has";
            Problem::new(Code::NoMethod, message)
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Api { tenants, commands, parts, tracing: Arc::default() })
        .merge(pages::pages_router())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::inventory::*;
    use crate::admin::{DevicePatch, DeviceSettings, Drain, DrainServer, Inventory};
    use crate::admin::{ImportState, Imported, ServerState};
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
            namespace(&str) -> NamespaceStatus;
            add_namespace(&NewNamespace) -> NamespaceStatus;
            set_namespace(&str, &NamespacePatch) -> NamespaceStatus;
            remove_namespace(&str, RemoveNamespace) -> ();
            add_device(&AddDevice) -> OpenedDevice;
            set_device(&str, &DevicePatch) -> DeviceSettings;
            remove_device(&str) -> ();
            subsystems() -> Subsystems;
            subsystem(&str) -> SubsystemStatus;
            add_subsystem(&NewSubsystem) -> SubsystemStatus;
            set_subsystem(&str, &SubsystemPatch) -> SubsystemStatus;
            remove_subsystem(&str) -> ();
            hosts() -> Hosts;
            set_host(&str, &HostPatch) -> HostStatus;
            remove_host(&str) -> ();
            listeners() -> Listeners;
            listener(&str) -> ListenerStatus;
            add_listener(&AddListener) -> ListenerStatus;
            remove_listener(&str, RemoveListener) -> RemovedListener;
            set_ana(&str, &SetAna) -> ListenerStatus;
            drain_listener(&str, Duration) -> ListenerStatus;
            resume_listener(&str) -> ListenerStatus;
            state() -> ServerState;
            import_state(&ImportState) -> Imported;
            drain_server(DrainServer) -> Drain;
            drain_of_server() -> Drain;
            remove_tenant(&str) -> ();
            change_tenants(&[crate::TenantChange]) -> ();
        }

        fn device_settings(&self) -> Vec<DeviceSettings> {
            Vec::new()
        }

        fn change_tenant(&self, change: &crate::TenantChange) -> Result<crate::Admission, Problem> {
            let (now, mut begun) = (contract::Instant::ZERO, crate::Batch::default());
            let origin = crate::Origin::Operator;
            begun.add(&mut self.tenants.registry(), change, origin, now)?;
            self.begins.send(()).unwrap();
            self.fails.lock().unwrap().recv().unwrap();
            begun.undo(&mut self.tenants.registry(), now);
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
