//! The table of the API's operations. The router and the OpenAPI document come from it.
//!
//! A row has the method, the path and the bodies (tied together in `resource`), an identifier and a
//! summary for the document, the status of success, the failures, and the function that performs
//! the operation; where they are not the usual ones, also the maxima of the body and of the time.
//! Failures of the input, of unknown names and of changes follow from the row
//! (`openapi`).

mod activity;
mod batch;
mod dashboard;
mod devices;
mod inventory;
mod tenants;
mod workers;

use std::time::Duration;

pub(crate) use activity::TRACE_SECONDS_MAX;
use axum::http::Method;
use axum::routing::get as on_get;

use self::inventory::{DynInventory, configured};
use super::dashboard::{History, Model, StandingList};
use super::devices::{Recalibration, SetRecalibration, StartRecalibration};
use super::drain::{Drain, DrainServer};
use super::input::{Body, Patch, Query};
use super::inventory::{
    DrainListener, HostStatus, Hosts, ListenerStatus, Listeners, NamespaceStatus, Namespaces,
    RemoveListener, RemoveNamespace, SetAna, SubsystemStatus, Subsystems,
};
use super::model::{
    ChangeTenants, Check, DeviceStatus, Devices, NewTenant, TenantPatch, TenantStatus, Tenants,
    Worker, Workers,
};
use super::operation::{AnswerSchema, Call, Operation, StatusMeaning};
use super::ports::Inventory;
use super::problem::Problem;
use super::resource::{Document, Request};
use super::scrape;
use super::settings::DevicePatch;
use super::state::{ImportState, ServerState};
use super::violations::Violations;
use super::watch::{Flows, Stages};
use super::workers::{Connection, Connections, DEADLINE_MS_MAX, EndConnection, MoveTo, SetWorker};
use crate::metrics;

pub use batch::in_batch;

/// Returns the table of the API's operations.
pub(super) fn operations() -> Vec<Operation> {
    let parts =
        [of_tenants(), of_activity(), of_devices(), of_namespaces(), of_nvme(), of_listeners()];
    parts.into_iter().flatten().chain(of_workers()).chain(of_state()).collect()
}

fn of_tenants() -> Vec<Operation> {
    vec![
        get::<Tenants>(
            "list_tenants",
            "Lists all tenants, with their measurements of the last second.",
        )
        .by(tenants::list),
        send::<NewTenant>("add_tenant", "Adds a tenant.")
            .answers(201, "")
            .fails(&[
                (409, "The name is taken, the SLO does not fit, or the table is full"),
                (422, "The device is not there, or its model is not, or does not know the percentile"),
            ])
            .by(tenants::add),
        send::<ChangeTenants>(
            "change_tenants",
            "Adds, changes and removes tenants: all changes, or none.",
        )
        .takes_bytes(batch::BODY_BYTES_MAX)
        .fails(&[
            (400, "A change makes no sense, or there are too many; the message says which"),
            (404, "A tenant is not there"),
            (
                409,
                "A name is taken, an SLO does not fit, something names a tenant that is to go, or \
                 the table is full",
            ),
            (422, "A device is not there, or its model is not, or does not know the percentile"),
        ])
        .by(batch::change_tenants),
        get::<TenantStatus>("get_tenant", "Returns one tenant.").by(tenants::get),
        send::<TenantPatch>(
            "set_tenant",
            "Changes the SLO of a tenant. If the new SLO is refused, the old one stands.",
        )
        .fails(&[
            (409, "The SLO does not fit"),
            (422, "The device has no model, or one without the percentile"),
        ])
        .by(tenants::set),
        delete::<TenantStatus>(
            "remove_tenant",
            "Removes a tenant. Its rate is free at once; its requests in flight are still answered.",
        )
        .fails(&[(409, "The configuration names it")])
        .by(tenants::remove),
        send::<Check>(
            "check_tenant",
            "Checks whether an SLO would be admitted, and reports remedies if not. Changes nothing.",
        )
        .fails(&[(404, ""), (422, "The device is not there")])
        .by(tenants::check),
        get::<Stages>(
            "get_stages",
            "Returns the time per stage of a tenant's reads since the tenant was added.",
        )
        .by(tenants::stages),
    ]
}

fn of_activity() -> Vec<Operation> {
    let trace = Operation::new(
        Method::GET,
        "/v1/trace",
        "get_trace",
        "Traces some requests, and returns them in the trace-event format of Chrome.",
    );
    let scrape = Operation::new(
        Method::GET,
        "/metrics",
        "scrape",
        "Returns the metrics for Prometheus: text in the format of OpenMetrics \
         (docs/reference/metrics.md).",
    );
    vec![
        get::<StandingList>(
            "get_standing",
            "Lists the first tenants of an order, with their standings.",
        )
        .fails(&[(400, "There is no such order, or the limit is no number")])
        .by(dashboard::standing),
        get::<History>(
            "get_history",
            "Returns the figures of the last five minutes, second by second, or of the last day, \
             minute by minute.",
        )
        .by(dashboard::history),
        get::<Violations>(
            "get_violations",
            "Returns the latest violations of promises, at most 500, the latest first.",
        )
        .by(dashboard::violations),
        get::<Flows>("get_flows", "Returns the server's activity in the last second.")
            .by(activity::flows),
        trace
            .describes(
                "It costs workers time, so a token has to be one that may change things, and the \
                 audit log has a line of it.",
            )
            .answers(200, "Trace events in JSON")
            .fails(&[(409, "Somebody else traces")])
            .by_handler::<Query<activity::TraceQuery>>(
                AnswerSchema::Nothing,
                Some(on_get(activity::get_trace)),
            ),
        scrape
            .answers(200, "The metrics")
            .fails(&[(400, "What stands behind the question mark makes no sense")])
            .fails(&[(503, "There is no thread for it")])
            .by_handler::<Query<scrape::ScrapeQuery>>(
                AnswerSchema::Text(metrics::CONTENT_TYPE),
                None,
            ),
    ]
}

fn of_devices() -> Vec<Operation> {
    let mut rows = vec![
        get::<Devices>(
            "list_devices",
            "Lists all devices, with their current rate and the tenant whose latency bound limits \
             the rate.",
        )
        .by(devices::list),
        add(
            "add_device",
            "Opens a device. The device persists after a restart of the server, and can have \
             namespaces.",
            &[
                (409, "The name is taken, or there are as many as can be"),
                (422, "It cannot be opened"),
            ],
            Inventory::add_device,
        ),
        get::<DeviceStatus>("get_device", "Returns one device.").by(devices::get),
        of_inventory(delete::<DeviceStatus>(
            "remove_device",
            "Closes a device that has no namespace and no tenant, and that is not being measured.",
        ))
        .fails(&[(409, "Something is on it"), (422, "It is not there")])
        .by(|call, ()| call.make(Inventory::remove_device)),
    ];
    rows.extend(put_and_patch::<DevicePatch>(
        "set_device",
        "Changes the settings of a device while it is in use.",
        &[
            (404, "There is no such namespace"),
            (
                409,
                "It cannot change while the server runs, or what tenants are promised does not fit",
            ),
            (422, "There is no such device, or it has no model"),
        ],
        |call, to| call.change(inventory::settings, |it, name| it.set_device(name, to)),
    ));
    rows.extend(of_models());
    rows
}

fn of_models() -> [Operation; 6] {
    let no_model = (422, "There is no such device, or it has no model");
    let none = (501, "");
    [
        get::<Model>("get_model", "Returns the model of a device.")
            .fails(&[no_model])
            .by(devices::model),
        delete::<Model>("reset_model", "Restores the model that the configuration names.")
            .fails(&[(409, "It is being measured, or another process takes over"), no_model, none])
            .by(devices::reset_model),
        get::<Recalibration>("get_recalibration", "Returns the last recalibration of a device.")
            .fails(&[(404, "There was none since the server started"), none])
            .by(devices::recalibration),
        send::<StartRecalibration>(
            "start_recalibration",
            "Starts a recalibration of a device beside its tenants. Its probes spend only spare \
             tokens.",
        )
        .answers(202, "")
        .fails(&[
            (404, "There is no such namespace"),
            (409, "It is being measured already, or another process takes over"),
            no_model,
            none,
        ])
        .by(devices::recalibrate),
        send::<SetRecalibration>(
            "accept_recalibration",
            "Accepts a model that was held back, since not all tenants fit into it. Each tenant \
             gets its part of the device's rate.",
        )
        .fails(&[(404, "Nothing is held back"), (409, "Another process takes over"), none])
        .by(devices::accept_recalibration),
        delete::<Recalibration>(
            "cancel_recalibration",
            "Ends a recalibration, or discards a model that is not in use.",
        )
        .fails(&[(404, "There is nothing to end"), none])
        .by(devices::cancel_recalibration),
    ]
}

/// Maximum time for the answer to a removal of a namespace, which may give its space back: that may
/// take a disk minutes. The server goes on with it afterwards, and logs how it ends. A connection
/// lasts longer.
pub const GIVE_BACK_MAX: Duration = Duration::from_secs(240);

fn of_namespaces() -> Vec<Operation> {
    let mut rows = vec![
        list::<Namespaces>("list_namespaces", "Lists all namespaces.", Inventory::namespaces),
        add(
            "add_namespace",
            "Adds a namespace, which reads as zeroes. Connected hosts are notified.",
            &[
                (404, ""),
                (409, "The name is taken, or there is no room"),
                (422, "The device is not there"),
            ],
            Inventory::add_namespace,
        ),
        one::<NamespaceStatus>("get_namespace", "Returns one namespace.", Inventory::namespace),
        of_inventory(send::<RemoveNamespace>(
            "remove_namespace",
            "Removes a namespace. Connected hosts are notified.",
        ))
        .answers(204, "")
        .takes(GIVE_BACK_MAX)
        .fails(&[(409, "A listener leads to it")])
        .by(|call, Query(how)| {
            call.change(Inventory::namespace, |it, name| it.remove_namespace(name, how))
        }),
    ];
    rows.extend(put_and_patch(
        "set_namespace",
        "Changes the size, the name or the write protection of a namespace. Connected hosts are \
         notified. After the answer to a write protection, no write to the namespace is at a \
         device.",
        &[(409, "There is no room, data would be lost, or the name is taken")],
        |call, to| call.change(Inventory::namespace, |it, name| it.set_namespace(name, to)),
    ));
    rows
}

fn of_nvme() -> Vec<Operation> {
    let mut rows = vec![
        list::<Subsystems>(
            "list_subsystems",
            "Lists all subsystems, with their connected hosts.",
            Inventory::subsystems,
        ),
        add(
            "add_subsystem",
            "Adds a subsystem. Discovery controllers are notified.",
            &[(404, ""), (409, "The name is taken")],
            Inventory::add_subsystem,
        ),
        one::<SubsystemStatus>("get_subsystem", "Returns one subsystem.", Inventory::subsystem),
        of_inventory(delete::<SubsystemStatus>(
            "remove_subsystem",
            "Removes a subsystem; the connections of its hosts end.",
        ))
        .by(|call, ()| call.change(configured, Inventory::remove_subsystem)),
        list::<Hosts>(
            "list_hosts",
            "Lists all registered hosts, without their keys.",
            Inventory::hosts,
        ),
        one::<HostStatus>(
            "get_host",
            "Returns a registered host, without its keys.",
            Inventory::host,
        ),
        of_inventory(delete::<HostStatus>("remove_host", "Removes the registration of a host."))
            .by(|call, ()| call.change(Inventory::host, Inventory::remove_host)),
    ];
    rows.extend(put_and_patch(
        "set_subsystem",
        "Changes a subsystem: the hosts that may connect, its namespaces, the tenant that is \
         charged.",
        &[],
        inventory::set_subsystem,
    ));
    rows.extend(put_and_patch(
        "set_host",
        "Registers a host, or changes its tenant and its keys.",
        &[],
        inventory::set_host,
    ));
    rows
}

fn of_listeners() -> Vec<Operation> {
    let mut rows = vec![
        list::<Listeners>("list_listeners", "Lists all listeners.", Inventory::listeners),
        add(
            "add_listener",
            "Opens a listener, which persists after a restart of the server.",
            &[
                (409, "There are as many as can be"),
                (422, "The system does not let it listen there"),
            ],
            Inventory::add_listener,
        ),
        one::<ListenerStatus>("get_listener", "Returns one listener.", Inventory::listener),
        of_inventory(send::<RemoveListener>(
            "remove_listener",
            "Closes a listener. Its connections stay, unless a drain is requested.",
        ))
        .by(|call, Query(mut how): Query<RemoveListener>| {
            how.drain_ms = how.drain_ms.map(|limit| limit.min(DEADLINE_MS_MAX));
            call.change(Inventory::listener, |it, name| it.remove_listener(name, how))
        }),
        of_inventory(send::<SetAna>(
            "set_ana",
            "Sets the ANA state of namespaces through a listener. Connected hosts are notified.",
        ))
        .by(|call, Body(to)| call.change(Inventory::listener, |it, name| it.set_ana(name, &to))),
        of_inventory(send::<DrainListener>(
            "drain_listener",
            "Drains a listener: it refuses new connections, and its connections end. The drain \
             lasts until the listener is resumed or the server restarts.",
        ))
        .by(|call, Body(how)| inventory::drain_listener(call, &how)),
        of_inventory(Operation::new(
            Method::POST,
            "/v1/listeners/{name}/resume",
            "resume_listener",
            "Resumes a listener, which accepts connections again.",
        ))
        .by(|call, ()| call.change(Inventory::listener, Inventory::resume_listener)),
    ];
    rows.extend(put_and_patch(
        "set_listener",
        "Opens or drains a listener.",
        &[(409, "It cannot change while it is open")],
        inventory::set_listener,
    ));
    rows
}

fn of_workers() -> [Operation; 9] {
    let silent = (408, "The worker did not answer in time");
    [
        get::<Workers>("list_workers", "Lists all workers.").by(workers::list),
        get::<Worker>("get_worker", "Returns one worker.")
            .fails(&[(400, "That is no number")])
            .by(workers::get),
        send::<SetWorker>(
            "set_worker",
            "Activates a worker, or retires it. The sizing does not change the number of workers \
             for a minute.",
        )
        .answers(204, "")
        .fails(&[
            (400, "The body makes no sense"),
            (409, "It is the one that listens, or another process takes over"),
        ])
        .by(workers::set),
        get::<Connections>("list_connections", "Lists the connections of all workers.")
            .fails(&[(408, "A worker did not answer in time")])
            .by(workers::connections),
        get::<Connection>("get_connection", "Returns one connection.")
            .fails(&[(400, "The name makes no sense"), silent])
            .by(workers::connection),
        send::<EndConnection>(
            "end_connection",
            "Ends a connection. The connection accepts no more requests, and ends when its \
             requests in flight have ended, or at the deadline. Returns without waiting for the \
             end. The client may connect again.",
        )
        .answers(200, "Its end has begun")
        .fails(&[
            (400, "The name makes no sense"),
            silent,
            (409, "Too many are ending already, or another process takes over"),
        ])
        .by(workers::end_connection),
        send::<MoveTo>(
            "move_connection",
            "Moves a connection to another worker while it is in use. The client notices only a \
             pause.",
        )
        .fails(&[
            (400, "The name or the body makes no sense"),
            (408, "A worker did not answer in time"),
            (409, "It stays where it is; the message says why"),
        ])
        .by(workers::move_connection),
        of_inventory(get::<Drain>("get_drain", "Returns the state of the server's drain."))
            .by(|call, ()| call.inventory()?.drain_of_server()),
        of_inventory(send::<DrainServer>(
            "drain_server",
            "Drains the server. The server refuses new connections and requests, and ends when \
             its requests in flight have ended, or at the deadline. Returns without waiting for \
             the end. A drain cannot be cancelled. Another request changes the deadline.",
        ))
        .answers(202, "It drains")
        .fails(&[(400, "The body makes no sense")])
        .by(|call, Body(DrainServer { deadline_ms })| {
            let deadline_ms = deadline_ms.map(|limit| limit.min(DEADLINE_MS_MAX));
            let how = DrainServer { deadline_ms };
            call.change(|it, _| it.drain_of_server(), |it, _| it.drain_server(how))
        }),
    ]
}

/// Maximum size of a document to import, in bytes: 65 000 namespaces in JSON.
const DOCUMENT_BYTES_MAX: usize = 32 << 20;

fn of_state() -> [Operation; 2] {
    [
        of_inventory(get::<ServerState>(
            "export_state",
            "Returns the state of the server as one document, without keys and tokens.",
        ))
        .by(|call, ()| call.inventory()?.state()),
        of_inventory(send::<ImportState>(
            "import_state",
            "Brings the server to the state of a document, as far as possible, or returns what \
             would change.",
        ))
        .takes_bytes(DOCUMENT_BYTES_MAX)
        .fails(&[
            (400, "The document makes no sense"),
            (409, "There is no room, or another process takes over"),
            (422, "A device or a listener cannot be opened"),
        ])
        .by(|call, Body(asked)| call.make(|inventory, _| inventory.import_state(&asked))),
    ]
}

/// The beginnings of the paths below which changes may decide where data lies on devices.
const PLACES: [&str; 3] = ["/v1/namespaces", "/v1/devices", "/v1/state"];

/// Returns the table row of the GET of a document.
fn get<T: Document>(id: &str, summary: &'static str) -> Operation {
    Operation::new(Method::GET, T::PATH, id, summary)
}

/// Returns the table row of the DELETE of a resource, without a query.
fn delete<T: Document>(id: &str, summary: &'static str) -> Operation {
    Operation::new(Method::DELETE, T::PATH, id, summary).answers(204, "")
}

/// Returns the table row of a request with a body or, for DELETE, a query.
fn send<R: Request>(id: &str, summary: &'static str) -> Operation {
    Operation::new(R::METHOD, R::PATH, id, summary)
}

/// Adds to a row the failure of a server without an inventory and, if the change may place data,
/// the warning of a server that does not store changes.
fn of_inventory(row: Operation) -> Operation {
    let places = PLACES.iter().any(|place| row.path.starts_with(place));
    let row = if places && row.method != Method::GET { row.places_data() } else { row };
    row.fails(&[(501, "")])
}

/// Returns the table row of the GET that lists all objects of one kind in the inventory.
fn list<T: Document + 'static>(
    id: &str,
    summary: &'static str,
    ask: fn(&DynInventory) -> Result<T, Problem>,
) -> Operation {
    of_inventory(get::<T>(id, summary)).by(move |call, ()| ask(&*call.inventory()?))
}

/// Returns the table row of the GET of one object of the inventory, by the name in the path.
fn one<T: Document + 'static>(
    id: &str,
    summary: &'static str,
    ask: fn(&DynInventory, &str) -> Result<T, Problem>,
) -> Operation {
    of_inventory(get::<T>(id, summary)).by(move |call, ()| ask(&*call.inventory()?, &call.name))
}

/// Returns the table row of a request that adds an object to the inventory.
fn add<R: Request>(
    id: &str,
    summary: &'static str,
    failures: &[StatusMeaning],
    add: fn(&DynInventory, &R) -> Result<R::Answer, Problem>,
) -> Operation {
    of_inventory(send::<R>(id, summary))
        .answers(201, "")
        .fails(failures)
        .by(move |call, Body(body)| call.make(|inventory, _| add(inventory, &body)))
}

/// Returns the table rows of a PUT that keeps omitted members, and of the PATCH that changes the
/// same members.
fn put_and_patch<R: Request>(
    id: &str,
    summary: &'static str,
    failures: &[StatusMeaning],
    set: fn(&Call, &R) -> Result<R::Answer, Problem>,
) -> [Operation; 2] {
    let row = |method, id: &str| {
        of_inventory(Operation::new(method, R::PATH, id, summary)).fails(failures)
    };
    [
        row(Method::PUT, id).by(move |call, Body(to)| set(call, &to)),
        row(Method::PATCH, &id.replacen("set", "patch", 1))
            .describes(
                "Takes a JSON merge patch (RFC 7386). `null` removes a member, as an empty text \
                 does in a PUT.",
            )
            .by(move |call, Patch(to)| set(call, &to)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::resource::{DOCUMENTS, REQUESTS};
    use super::super::time_limit::REQUEST_MAX;
    use super::*;
    use std::collections::BTreeSet;

    /// Tests that each document and each request of the client has exactly one row in the server's
    /// table.
    #[test]
    fn each_document_and_each_request_has_one_row() {
        let rows = operations();
        let known: BTreeSet<(&str, &str)> =
            rows.iter().map(|row| (row.method.as_str(), row.path)).collect();
        assert_eq!(known.len(), rows.len(), "a method of a path has two rows");
        let ids: BTreeSet<&str> = rows.iter().map(|row| &*row.id).collect();
        assert_eq!(ids.len(), rows.len(), "two rows have one identifier");
        for (method, path) in DOCUMENTS.iter().chain(REQUESTS) {
            assert!(known.contains(&(method.as_str(), *path)), "{method} {path} has no row");
        }
        let served = rows.iter().filter(|row| row.handler.is_some()).count();
        assert_eq!(served, rows.len() - 1, "only /metrics has a router of its own");
    }

    #[test]
    fn only_what_gives_space_back_has_long() {
        for row in operations() {
            let most = if row.id == "remove_namespace" { GIVE_BACK_MAX } else { REQUEST_MAX };
            assert_eq!(row.time_max, most, "{}", row.id);
        }
    }
}
