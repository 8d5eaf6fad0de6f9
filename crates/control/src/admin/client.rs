//! A blocking client of the admin API.

use std::fmt;
use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio_rustls::rustls::pki_types::ServerName;

use super::AdminAddress;
use super::dashboard::Model;
use super::devices::{Recalibration, SetRecalibration, StartRecalibration};
use super::drain::{Drain, DrainServer};
use super::inventory::{
    AddDevice, AddListener, AddNamespace, AddSubsystem, DrainListener, Host, Hosts, Listener,
    Listeners, Namespace, Namespaces, OpenedDevice, RemoveListener, RemoveNamespace,
    RemovedListener, SetAna, SetHost, SetNamespace, SetSubsystem, Subsystem, Subsystems,
};
use super::listeners::SetListener;
use super::model::{
    AddTenant, Admitted, ChangeTenants, ChangedTenants, Check, Device, Devices, SetTenant, Tenant,
    Tenants, Verdict, Worker, Workers,
};
use super::problem::{Code, Failure, Problem};
use super::settings::{DeviceSettings, SetDevice};
use super::tls::Pass;
use super::warning::WARNING;
use super::watch::{Flows, Stages};
use super::workers::{Connection, Connections, HasMoved, MoveTo, SetWorker, WorkerState};

/// Maximum time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Maximum size of an answer in bytes: more than ten times the list of 10 000 tenants.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The reason that a request has no good answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The server cannot be reached.
    Unreachable {
        /// The address of the server.
        address: AdminAddress,
        /// The error of the system.
        error: io::Error,
    },
    /// The credentials for a server on another machine are missing or invalid.
    Pass(String),
    /// The server refused the request.
    Refused(Problem),
    /// The answer is not from an admin API, or incomplete.
    Broken(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Unreachable { address, error } => {
                let hint = match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        "the socket is for the user who runs the server, and for root"
                    }
                    io::ErrorKind::InvalidData
                        if error.to_string().contains("CaUsedAsEndEntity") =>
                    {
                        "a certificate that signs itself has to say CA:FALSE to be a server's \
                         (docs/how-to/operate-from-elsewhere.md)"
                    }
                    io::ErrorKind::InvalidData => {
                        "what answers has no certificate of this name that --admin-ca vouches for"
                    }
                    _ => {
                        "is a server running? start it with `nearflash serve`, or say with --admin \
                         where its admin API is"
                    }
                };
                write!(f, "no answer from {address}: {error}\n{hint}")
            }
            ClientError::Pass(why) => f.write_str(why),
            ClientError::Refused(problem) => f.write_str(&problem.message),
            ClientError::Broken(why) => write!(f, "the server's answer makes no sense: {why}"),
        }
    }
}

impl std::error::Error for ClientError {}

/// A handle to the admin API of a server. Connects on first use.
pub struct Client {
    address: AdminAddress,
    /// The credentials for a server on another machine.
    pass: Option<Pass>,
    runtime: Runtime,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// The warning of the last answer.
    warning: Option<String>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Client {
    /// Returns a client of the API at `address`.
    ///
    /// # Errors
    /// Fails if the system has no free descriptor.
    pub fn new(address: AdminAddress) -> Result<Client, ClientError> {
        Client::with_pass(address, None)
    }

    /// Returns a client of the API at `address`, with credentials, which a server on another
    /// machine requires.
    ///
    /// # Errors
    /// Fails if the system has no free descriptor.
    pub fn with_pass(address: AdminAddress, pass: Option<Pass>) -> Result<Client, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unreachable(&address, error))?;
        Ok(Client { address, pass, runtime, sender: None, warning: None })
    }

    /// Returns all tenants.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes; so do all other methods.
    pub fn tenants(&mut self) -> Result<Vec<Tenant>, ClientError> {
        Ok(self.get::<Tenants>("/v1/tenants")?.tenants)
    }

    /// Returns one tenant.
    ///
    /// # Errors
    /// Fails if there is no tenant of this name.
    pub fn tenant(&mut self, name: &str) -> Result<Tenant, ClientError> {
        self.get(&path_of(name))
    }

    /// Adds a tenant.
    ///
    /// # Errors
    /// Fails if the server refuses the tenant.
    pub fn add_tenant(&mut self, tenant: &AddTenant) -> Result<Admitted, ClientError> {
        self.call(Method::POST, "/v1/tenants", Some(tenant))
    }

    /// Changes the SLO of a tenant, and its share of spare tokens unless the share is `None`.
    ///
    /// # Errors
    /// Fails if the server refuses the change; then the old SLO stands.
    pub fn set_tenant(&mut self, name: &str, to: &SetTenant) -> Result<Admitted, ClientError> {
        self.call(Method::PUT, &path_of(name), Some(to))
    }

    /// Adds, changes and removes tenants: all changes, or none.
    ///
    /// # Errors
    /// Fails if the server refuses a change; the message names it.
    pub fn change_tenants(
        &mut self,
        changes: &ChangeTenants,
    ) -> Result<ChangedTenants, ClientError> {
        self.call(Method::PATCH, "/v1/tenants", Some(changes))
    }

    /// Removes a tenant.
    ///
    /// # Errors
    /// Fails if there is no tenant of this name, or the configuration names it.
    pub fn remove_tenant(&mut self, name: &str) -> Result<(), ClientError> {
        self.call(Method::DELETE, &path_of(name), None::<&()>)
    }

    /// Checks whether an SLO would be admitted.
    ///
    /// # Errors
    /// Fails if the question is invalid.
    pub fn check(&mut self, question: &Check) -> Result<Verdict, ClientError> {
        self.call(Method::POST, "/v1/tenants/check", Some(question))
    }

    /// Returns all devices.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn devices(&mut self) -> Result<Devices, ClientError> {
        self.get("/v1/devices")
    }

    /// Returns one device.
    ///
    /// # Errors
    /// Fails if there is no device of this name.
    pub fn device(&mut self, name: &str) -> Result<Device, ClientError> {
        self.get(&path_to("devices", name))
    }

    /// Opens a device.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn add_device(&mut self, device: &AddDevice) -> Result<OpenedDevice, ClientError> {
        self.call(Method::POST, "/v1/devices", Some(device))
    }

    /// Closes a device.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn remove_device(&mut self, name: &str) -> Result<(), ClientError> {
        self.call(Method::DELETE, &path_to("devices", name), None::<&()>)
    }

    /// Returns the model of a device.
    ///
    /// # Errors
    /// Fails if there is no such device, or it has no model.
    pub fn model(&mut self, device: &str) -> Result<Model, ClientError> {
        self.get(&format!("{}/model", path_to("devices", device)))
    }

    /// Restores the model that the configuration names.
    ///
    /// # Errors
    /// Fails if the change cannot be stored, or the device is being measured.
    pub fn reset_model(&mut self, device: &str) -> Result<(), ClientError> {
        let path = format!("{}/model", path_to("devices", device));
        self.call(Method::DELETE, &path, None::<&()>)
    }

    /// Starts a recalibration of a device.
    ///
    /// # Errors
    /// Fails if the server refuses the recalibration.
    pub fn recalibrate(
        &mut self,
        device: &str,
        how: &StartRecalibration,
    ) -> Result<Recalibration, ClientError> {
        self.call(Method::POST, &recalibration_of(device), Some(how))
    }

    /// Returns the state of a device's last recalibration.
    ///
    /// # Errors
    /// Fails if the device has not been recalibrated.
    pub fn recalibration(&mut self, device: &str) -> Result<Recalibration, ClientError> {
        self.get(&recalibration_of(device))
    }

    /// Accepts the result of a recalibration although not all tenants fit into it.
    ///
    /// # Errors
    /// Fails if no result is held back.
    pub fn accept_recalibration(&mut self, device: &str) -> Result<Recalibration, ClientError> {
        let to = SetRecalibration { accept: true };
        self.call(Method::PUT, &recalibration_of(device), Some(&to))
    }

    /// Ends a recalibration, or discards its result.
    ///
    /// # Errors
    /// Fails if the device has no recalibration to end or discard.
    pub fn cancel_recalibration(&mut self, device: &str) -> Result<(), ClientError> {
        self.call(Method::DELETE, &recalibration_of(device), None::<&()>)
    }

    /// Returns all workers.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn workers(&mut self) -> Result<Workers, ClientError> {
        self.get("/v1/workers")
    }

    /// Returns one worker.
    ///
    /// # Errors
    /// Fails if there is no worker of this number.
    pub fn worker(&mut self, number: usize) -> Result<Worker, ClientError> {
        self.get(&format!("/v1/workers/{number}"))
    }

    /// Activates a worker, or retires it: it moves its connections away and parks.
    ///
    /// # Errors
    /// Fails if there is no worker of this number, or it listens.
    pub fn set_worker(&mut self, number: usize, state: WorkerState) -> Result<(), ClientError> {
        let to = SetWorker { state, deadline_ms: None };
        self.call(Method::PUT, &format!("/v1/workers/{number}"), Some(&to))
    }

    /// Retires a worker with a deadline, at which connections end that cannot move.
    ///
    /// # Errors
    /// Fails as [`set_worker`](Client::set_worker) does.
    pub fn drain_worker(&mut self, number: usize, deadline_ms: u64) -> Result<(), ClientError> {
        let to = SetWorker { state: WorkerState::Parked, deadline_ms: Some(deadline_ms) };
        self.call(Method::PUT, &format!("/v1/workers/{number}"), Some(&to))
    }

    /// Drains the server, which ends afterwards. With `None`, the configuration gives the deadline.
    ///
    /// # Errors
    /// Fails if another process takes over.
    pub fn drain_server(&mut self, deadline_ms: Option<u64>) -> Result<Drain, ClientError> {
        self.call(Method::POST, "/v1/drain", Some(&DrainServer { deadline_ms }))
    }

    /// Returns the state of the server's drain.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn drain(&mut self) -> Result<Drain, ClientError> {
        self.get("/v1/drain")
    }

    /// Returns the connections of all workers.
    ///
    /// # Errors
    /// Fails if a worker does not answer.
    pub fn connections(&mut self) -> Result<Connections, ClientError> {
        self.get("/v1/connections")
    }

    /// Returns one connection, by its listed identifier.
    ///
    /// # Errors
    /// Fails if there is no connection of this identifier (any more).
    pub fn connection(&mut self, id: &str) -> Result<Connection, ClientError> {
        self.get(&path_to("connections", id))
    }

    /// Ends a connection: when its requests in flight have ended, or at the deadline. Returns the
    /// ending connection.
    ///
    /// # Errors
    /// Fails if there is no connection of this identifier (any more).
    pub fn end_connection(
        &mut self,
        id: &str,
        deadline_ms: u64,
    ) -> Result<Connection, ClientError> {
        let path = format!("{}?deadline_ms={deadline_ms}", path_to("connections", id));
        self.call(Method::DELETE, &path, None::<&()>)
    }

    /// Moves a connection, named by its listed identifier, to another worker.
    ///
    /// # Errors
    /// Fails if the connection stays at its worker; the message has the reason.
    pub fn move_connection(&mut self, id: &str, to: usize) -> Result<HasMoved, ClientError> {
        let id = utf8_percent_encode(id, NON_ALPHANUMERIC);
        self.call(Method::POST, &format!("/v1/connections/{id}/move"), Some(&MoveTo { to }))
    }

    /// Returns all namespaces.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn namespaces(&mut self) -> Result<Namespaces, ClientError> {
        self.get("/v1/namespaces")
    }

    /// Returns one namespace, by its name or number.
    ///
    /// # Errors
    /// Fails if there is no such namespace.
    pub fn namespace(&mut self, name: &str) -> Result<Namespace, ClientError> {
        self.get(&path_to("namespaces", name))
    }

    /// Changes the settings of a device.
    ///
    /// # Errors
    /// Fails if a setting is invalid, or cannot change while the server runs.
    pub fn set_device(
        &mut self,
        name: &str,
        to: &SetDevice,
    ) -> Result<DeviceSettings, ClientError> {
        self.call(Method::PUT, &path_to("devices", name), Some(to))
    }

    /// Adds a namespace.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn add_namespace(&mut self, namespace: &AddNamespace) -> Result<Namespace, ClientError> {
        self.call(Method::POST, "/v1/namespaces", Some(namespace))
    }

    /// Changes a namespace: grows it, or shrinks it if permitted, sets its write protection, or
    /// renames it.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn set_namespace(
        &mut self,
        name: &str,
        to: &SetNamespace,
    ) -> Result<Namespace, ClientError> {
        self.call(Method::PUT, &path_to("namespaces", name), Some(to))
    }

    /// Removes a namespace.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn remove_namespace(
        &mut self,
        name: &str,
        how: RemoveNamespace,
    ) -> Result<(), ClientError> {
        let path = format!("{}?force={}", path_to("namespaces", name), how.force);
        self.call(Method::DELETE, &path, None::<&()>)
    }

    /// Returns all subsystems.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn subsystems(&mut self) -> Result<Subsystems, ClientError> {
        self.get("/v1/subsystems")
    }

    /// Returns one subsystem.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn subsystem(&mut self, nqn: &str) -> Result<Subsystem, ClientError> {
        self.get(&path_to("subsystems", nqn))
    }

    /// Adds a subsystem.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn add_subsystem(&mut self, subsystem: &AddSubsystem) -> Result<Subsystem, ClientError> {
        self.call(Method::POST, "/v1/subsystems", Some(subsystem))
    }

    /// Changes a subsystem.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn set_subsystem(
        &mut self,
        nqn: &str,
        to: &SetSubsystem,
    ) -> Result<Subsystem, ClientError> {
        self.call(Method::PUT, &path_to("subsystems", nqn), Some(to))
    }

    /// Removes a subsystem.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn remove_subsystem(&mut self, nqn: &str) -> Result<(), ClientError> {
        self.call(Method::DELETE, &path_to("subsystems", nqn), None::<&()>)
    }

    /// Returns all registered hosts.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn hosts(&mut self) -> Result<Hosts, ClientError> {
        self.get("/v1/hosts")
    }

    /// Returns one registered host.
    ///
    /// # Errors
    /// Fails if the host is not registered.
    pub fn host(&mut self, nqn: &str) -> Result<Host, ClientError> {
        self.get(&path_to("hosts", nqn))
    }

    /// Registers a host, or changes its registration.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn set_host(&mut self, nqn: &str, to: &SetHost) -> Result<Host, ClientError> {
        self.call(Method::PUT, &path_to("hosts", nqn), Some(to))
    }

    /// Removes the registration of a host.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn remove_host(&mut self, nqn: &str) -> Result<(), ClientError> {
        self.call(Method::DELETE, &path_to("hosts", nqn), None::<&()>)
    }

    /// Returns all listeners.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn listeners(&mut self) -> Result<Listeners, ClientError> {
        self.get("/v1/listeners")
    }

    /// Opens a listener.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn add_listener(&mut self, listener: &AddListener) -> Result<Listener, ClientError> {
        self.call(Method::POST, "/v1/listeners", Some(listener))
    }

    /// Returns one listener, by its number or address.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn listener(&mut self, name: &str) -> Result<Listener, ClientError> {
        self.get(&path_to("listeners", name))
    }

    /// Closes a listener.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn remove_listener(
        &mut self,
        name: &str,
        how: RemoveListener,
    ) -> Result<RemovedListener, ClientError> {
        let query = how.drain_ms.map_or(String::new(), |limit| format!("?drain_ms={limit}"));
        let path = format!("{}{query}", path_to("listeners", name));
        self.call(Method::DELETE, &path, None::<&()>)
    }

    /// Changes a listener's settings, for example whether it accepts connections.
    ///
    /// # Errors
    /// Fails if there is no listener of this number or address, or a setting cannot change.
    pub fn set_listener(&mut self, name: &str, to: &SetListener) -> Result<Listener, ClientError> {
        self.call(Method::PUT, &path_to("listeners", name), Some(to))
    }

    /// Drains a listener: it refuses new connections, and its connections end.
    ///
    /// # Errors
    /// Fails if there is no listener of this name.
    pub fn drain_listener(
        &mut self,
        listener: &str,
        deadline_ms: u64,
    ) -> Result<Listener, ClientError> {
        let path = format!("{}/drain", path_to("listeners", listener));
        self.call(Method::POST, &path, Some(&DrainListener { deadline_ms: Some(deadline_ms) }))
    }

    /// Resumes a listener, which accepts connections again.
    ///
    /// # Errors
    /// Fails if there is no listener of this name.
    pub fn resume_listener(&mut self, listener: &str) -> Result<Listener, ClientError> {
        let path = format!("{}/resume", path_to("listeners", listener));
        self.call(Method::POST, &path, None::<&()>)
    }

    /// Sets the ANA state of namespaces through a listener.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn set_ana(&mut self, listener: &str, to: &SetAna) -> Result<Listener, ClientError> {
        let path = format!("{}/ana", path_to("listeners", listener));
        self.call(Method::PUT, &path, Some(to))
    }

    /// Returns the activity of devices, workers and namespaces in the last second.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn flows(&mut self) -> Result<Flows, ClientError> {
        self.get("/v1/flows")
    }

    /// Returns the time per stage of a tenant's reads.
    ///
    /// # Errors
    /// Fails if there is no tenant of this name.
    pub fn stages(&mut self, name: &str) -> Result<Stages, ClientError> {
        self.get(&format!("{}/stages", path_to("tenants", name)))
    }

    /// Traces one request in `one_in` for `seconds`, at most five seconds. Returns trace events in
    /// JSON.
    ///
    /// # Errors
    /// Fails if another trace is running.
    pub fn trace(&mut self, seconds: f64, one_in: u32) -> Result<serde_json::Value, ClientError> {
        self.get(&format!("/v1/trace?seconds={seconds}&one_in={one_in}"))
    }

    /// Returns the HTTP status of the answer to a request without a body, whatever the answer says.
    ///
    /// # Errors
    /// Fails if no server answers, or the method is invalid.
    pub fn status(&mut self, method: &str, path: &str) -> Result<u16, ClientError> {
        let broken = |_| ClientError::Broken(format!("{method:?} is no method"));
        let method = Method::from_bytes(method.as_bytes()).map_err(broken)?;
        self.ask(method, path, None::<&()>).map(|(status, _)| status.as_u16())
    }

    /// Returns the warning of the last answer, for example that the change is not stored.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path, None::<&()>)
    }

    fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let (address, pass, sender) = (&self.address, self.pass.as_ref(), &mut self.sender);
        let answer = self.runtime.block_on(async {
            let exchange = exchange((address, pass), sender, method, path, body);
            tokio::time::timeout(PATIENCE, exchange)
                .await
                .map_err(|_| unreachable(address, io::ErrorKind::TimedOut.into()))?
        })?;
        self.warning = answer.warning;
        Ok((answer.status, answer.body))
    }

    fn call<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let (status, answer) = self.ask(method, path, body)?;
        let broken = |error: serde_json::Error| ClientError::Broken(error.to_string());
        match status {
            // No content stands for the unit value.
            StatusCode::NO_CONTENT => serde_json::from_str("null").map_err(broken),
            status if status.is_success() => serde_json::from_slice(&answer).map_err(broken),
            status => match serde_json::from_slice::<Failure>(&answer) {
                Ok(failure) => Err(ClientError::Refused(failure.error)),
                Err(_) => Err(ClientError::Broken(format!("HTTP status {status}"))),
            },
        }
    }
}

impl ClientError {
    /// Returns the error code, if the server refused the request.
    pub fn code(&self) -> Option<Code> {
        match self {
            ClientError::Refused(problem) => Some(problem.code),
            _ => None,
        }
    }
}

fn path_of(tenant: &str) -> String {
    path_to("tenants", tenant)
}

fn recalibration_of(device: &str) -> String {
    format!("{}/recalibration", path_to("devices", device))
}

fn path_to(kind: &str, name: &str) -> String {
    format!("/v1/{kind}/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

fn unreachable(address: &AdminAddress, error: io::Error) -> ClientError {
    ClientError::Unreachable { address: address.clone(), error }
}

/// A server's answer to a request.
struct Answer {
    status: StatusCode,
    warning: Option<String>,
    body: Bytes,
}

/// Sends a request and receives its answer, over a new connection unless the last one is still
/// open.
async fn exchange(
    (address, pass): (&AdminAddress, Option<&Pass>),
    sender: &mut Option<SendRequest<Full<Bytes>>>,
    method: Method,
    path: &str,
    body: Option<&impl Serialize>,
) -> Result<Answer, ClientError> {
    let broken = |error: hyper::Error| ClientError::Broken(error.to_string());
    let host = match address {
        AdminAddress::Unix(_) | AdminAddress::Tcp(_) => "localhost".to_owned(),
        AdminAddress::Tls { .. } => address.to_string().replacen("https://", "", 1),
    };
    let mut builder = Request::builder().method(method).uri(path).header(HOST, host);
    if let Some(pass) = pass.filter(|_| matches!(address, AdminAddress::Tls { .. })) {
        builder = builder.header(AUTHORIZATION, pass.authorization());
    }
    let mut bytes = Bytes::new();
    if let Some(body) = body {
        builder = builder.header(CONTENT_TYPE, "application/json");
        let text = serde_json::to_vec(body).map_err(|e| ClientError::Broken(e.to_string()))?;
        bytes = Bytes::from(text);
    }
    let request = builder.body(Full::new(bytes)).map_err(|e| ClientError::Broken(e.to_string()))?;
    let mut open = match sender.take() {
        Some(open) if !open.is_closed() => open,
        _ => connect(address, pass).await?,
    };
    open.ready().await.map_err(broken)?;
    let response = open.send_request(request).await.map_err(broken)?;
    let status = response.status();
    let warning = response.headers().get(WARNING).and_then(|text| text.to_str().ok());
    let warning = warning.map(str::to_owned);
    let answer = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let answer = answer.map_err(|e| ClientError::Broken(e.to_string()))?.to_bytes();
    *sender = Some(open);
    Ok(Answer { status, warning, body: answer })
}

async fn connect(
    address: &AdminAddress,
    pass: Option<&Pass>,
) -> Result<SendRequest<Full<Bytes>>, ClientError> {
    let fail = |error| unreachable(address, error);
    match address {
        AdminAddress::Unix(path) => shake(UnixStream::connect(path).await.map_err(fail)?).await,
        AdminAddress::Tcp(at) => shake(TcpStream::connect(at).await.map_err(fail)?).await,
        AdminAddress::Tls { host, port } => {
            let missing = || format!("{address} needs --admin-ca and --admin-token");
            let pass = pass.ok_or_else(|| ClientError::Pass(missing()))?;
            let name = ServerName::try_from(host.clone());
            let name = name.map_err(|error| ClientError::Pass(format!("{address}: {error}")))?;
            let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(fail)?;
            shake(pass.connector().connect(name, stream).await.map_err(fail)?).await
        }
    }
}

/// Starts HTTP on a connection.
async fn shake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, ClientError> {
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|error| ClientError::Broken(error.to_string()))?;
    tokio::spawn(connection);
    Ok(sender)
}
