//! A blocking client of the admin API.

use std::fmt;
use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio_rustls::rustls::pki_types::ServerName;

use super::AdminAddress;
use super::inventory::{DrainListener, ListenerStatus};
use super::model::{TenantStatus, Tenants, Workers};
use super::operations::TRACE_SECONDS_MAX;
use super::problem::{Code, Failure, Problem};
use super::resource::{Document, Request};
use super::tls::ClientCredentials;
use super::warning::WARNING;
use super::workers::{Connection, Connections, EndConnection, HasMoved, MoveTo, SetWorker};
use crate::commands::WorkerState;

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
            ClientError::Broken(why) => write!(
                f,
                "the server's answer makes no sense: {why}\nis that its admin API? It is where \
                 `--admin` or `admin` of the server's configuration says, and never at a port that \
                 serves volumes"
            ),
        }
    }
}

impl std::error::Error for ClientError {}

/// A handle to the admin API of a server. Connects on first use.
pub struct Client {
    address: AdminAddress,
    /// The credentials for a server on another machine.
    pass: Option<ClientCredentials>,
    runtime: Runtime,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// The warning in the last answer; `None` if it had none.
    warning: Option<String>,
    /// Maximum time to wait for an answer.
    patience: Duration,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Client {
    /// Returns a client of the API at `address`, without credentials. It connects with its first
    /// request.
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
    pub fn with_pass(
        address: AdminAddress,
        pass: Option<ClientCredentials>,
    ) -> Result<Client, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unreachable(&address, error))?;
        Ok(Client { address, pass, runtime, sender: None, warning: None, patience: PATIENCE })
    }

    /// Waits so much longer for each answer from now on.
    pub fn wait_longer(&mut self, more: Duration) {
        self.patience = PATIENCE + more;
    }

    /// Reads the document of type `T`, whose path has no name, such as the list of tenants.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes; so do all other methods.
    pub fn read<T: Document>(&mut self) -> Result<T, ClientError> {
        self.get("")
    }

    /// Reads the document of type `T` about the resource of this name.
    ///
    /// # Errors
    /// Fails if there is nothing of this name.
    pub fn get<T: Document>(&mut self, name: &str) -> Result<T, ClientError> {
        self.call(Method::GET, &path_of(T::PATH, name), None::<&()>)
    }

    /// Sends a request whose path has no name, such as the addition of a resource.
    ///
    /// # Errors
    /// Fails if the server refuses the request; then nothing has changed.
    pub fn send<R: Request>(&mut self, request: &R) -> Result<R::Answer, ClientError> {
        self.send_to("", request)
    }

    /// Sends a request, such as a change, to the resource of this name.
    ///
    /// # Errors
    /// Fails if the server refuses the request; then nothing has changed.
    pub fn send_to<R: Request>(
        &mut self,
        name: &str,
        request: &R,
    ) -> Result<R::Answer, ClientError> {
        let path = path_of(R::PATH, name);
        match R::METHOD {
            Method::DELETE => {
                let path = format!("{path}?{}", query_of(request)?);
                self.call(Method::DELETE, &path, None::<&()>)
            }
            method => self.call(method, &path, Some(request)),
        }
    }

    /// Removes the resource that a document describes.
    ///
    /// # Errors
    /// Fails if there is nothing of this name, or it is in use.
    pub fn delete<T: Document>(&mut self, name: &str) -> Result<(), ClientError> {
        self.call(Method::DELETE, &path_of(T::PATH, name), None::<&()>)
    }

    /// Asks the server for its tenants.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn tenants(&mut self) -> Result<Vec<TenantStatus>, ClientError> {
        Ok(self.tenant_list()?.tenants)
    }

    /// Asks the server for its tenants, with the verdict on a machine whose workers wait for
    /// processors.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn tenant_list(&mut self) -> Result<Tenants, ClientError> {
        self.read()
    }

    /// Asks the server for its workers.
    ///
    /// # Errors
    /// Fails as [`ClientError`] describes.
    pub fn workers(&mut self) -> Result<Workers, ClientError> {
        self.read()
    }

    /// Asks the server for the connections of all its workers.
    ///
    /// # Errors
    /// Fails if a worker does not answer.
    pub fn connections(&mut self) -> Result<Connections, ClientError> {
        self.read()
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
        self.send_to(id, &EndConnection { deadline_ms: Some(deadline_ms) })
    }

    /// Moves a connection, named by its listed identifier, to another worker.
    ///
    /// # Errors
    /// Fails if the connection stays at its worker; the message has the reason.
    pub fn move_connection(&mut self, id: &str, to: usize) -> Result<HasMoved, ClientError> {
        self.send_to(id, &MoveTo { to })
    }

    /// Activates a worker, or retires it: it moves its connections away and parks.
    ///
    /// # Errors
    /// Fails if there is no worker of this number, or it listens.
    pub fn set_worker(&mut self, number: usize, state: WorkerState) -> Result<(), ClientError> {
        self.send_to(&number.to_string(), &SetWorker { state, deadline_ms: None })
    }

    /// Drains a listener: it refuses new connections, and its connections end.
    ///
    /// # Errors
    /// Fails if there is no listener of this name.
    pub fn drain_listener(
        &mut self,
        name: &str,
        deadline_ms: u64,
    ) -> Result<ListenerStatus, ClientError> {
        self.send_to(name, &DrainListener { deadline_ms: Some(deadline_ms) })
    }

    /// Resumes a listener, which accepts connections again.
    ///
    /// # Errors
    /// Fails if there is no listener of this name.
    pub fn resume_listener(&mut self, name: &str) -> Result<ListenerStatus, ClientError> {
        let path = path_of("/v1/listeners/{name}/resume", name);
        self.call(Method::POST, &path, None::<&()>)
    }

    /// Traces one request in `one_in` for `seconds`. Returns trace events in JSON. Traces that are
    /// longer than the server's maximum are made of several.
    ///
    /// # Errors
    /// Fails if another trace is running.
    pub fn trace(&mut self, seconds: f64, one_in: u32) -> Result<serde_json::Value, ClientError> {
        let mut all = self.trace_once(seconds.min(TRACE_SECONDS_MAX), one_in)?;
        let mut left = seconds - TRACE_SECONDS_MAX;
        while left > 0.0 {
            let mut piece = self.trace_once(left.min(TRACE_SECONDS_MAX), one_in)?;
            let (all, piece) = (&mut all["traceEvents"], &mut piece["traceEvents"]);
            if let (Some(all), Some(more)) = (all.as_array_mut(), piece.as_array_mut()) {
                all.append(more);
            }
            left -= TRACE_SECONDS_MAX;
        }
        Ok(all)
    }

    fn trace_once(&mut self, seconds: f64, one_in: u32) -> Result<serde_json::Value, ClientError> {
        let path = format!("/v1/trace?seconds={seconds}&one_in={one_in}");
        let trace: serde_json::Value = self.call(Method::GET, &path, None::<&()>)?;
        let broken = || ClientError::Broken("the server's answer is no trace".to_owned());
        trace["traceEvents"].is_array().then_some(()).ok_or_else(broken)?;
        Ok(trace)
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

    /// Returns the warning in the last answer, for example that the change is not stored; `None` if
    /// it had none.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let (address, pass, sender) = (&self.address, self.pass.as_ref(), &mut self.sender);
        let patience = self.patience;
        let answer = self.runtime.block_on(async {
            let exchange = exchange((address, pass), sender, method, path, body);
            tokio::time::timeout(patience, exchange)
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
    /// Returns the error code of the server's refusal; `None` for any other error.
    pub fn code(&self) -> Option<Code> {
        match self {
            ClientError::Refused(problem) => Some(problem.code),
            _ => None,
        }
    }
}

/// Returns a path with this name in place of the part in braces.
fn path_of(path: &str, name: &str) -> String {
    match (path.find('{'), path.find('}')) {
        (Some(from), Some(to)) => {
            let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
            format!("{}{name}{}", &path[..from], &path[to + 1..])
        }
        _ => path.to_owned(),
    }
}

/// Returns the members of a request as the query of a URL. They must be numbers and truth values.
fn query_of(request: &impl Serialize) -> Result<String, ClientError> {
    let members = serde_json::to_value(request).map_err(|e| ClientError::Broken(e.to_string()))?;
    let members = members.as_object().into_iter().flatten();
    let members = members.filter(|(_, value)| !value.is_null());
    Ok(members.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&"))
}

fn unreachable(address: &AdminAddress, error: io::Error) -> ClientError {
    ClientError::Unreachable { address: address.clone(), error }
}

/// The status, body and warning of a server's answer to a request.
struct RawResponse {
    status: StatusCode,
    warning: Option<String>,
    body: Bytes,
}

/// Sends a request and receives its answer, over a new connection unless the last one is still
/// open.
async fn exchange(
    (address, pass): (&AdminAddress, Option<&ClientCredentials>),
    sender: &mut Option<SendRequest<Full<Bytes>>>,
    method: Method,
    path: &str,
    body: Option<&impl Serialize>,
) -> Result<RawResponse, ClientError> {
    let broken = |error: hyper::Error| ClientError::Broken(error.to_string());
    let host = match address {
        AdminAddress::Unix(_) | AdminAddress::Tcp(_) => "localhost".to_owned(),
        AdminAddress::Tls { .. } => address.to_string().replacen("https://", "", 1),
    };
    let mut builder = hyper::Request::builder().method(method).uri(path).header(HOST, host);
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
    let again = (request.method() == Method::GET).then(|| request.clone());
    let response = match (open.send_request(request).await, again) {
        // A process that has just handed over may take a connection and end before it answers: the
        // connection then ends, or is reset.
        (Err(_), Some(query)) => {
            open = connect(address, pass).await?;
            open.send_request(query).await
        }
        (sent, _) => sent,
    };
    let response = response.map_err(broken)?;
    let status = response.status();
    let warning = response.headers().get(WARNING).and_then(|text| text.to_str().ok());
    let warning = warning.map(str::to_owned);
    let answer = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let answer = answer.map_err(|e| ClientError::Broken(e.to_string()))?.to_bytes();
    *sender = Some(open);
    Ok(RawResponse { status, warning, body: answer })
}

async fn connect(
    address: &AdminAddress,
    pass: Option<&ClientCredentials>,
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

/// Begins HTTP/1.1 on a connected stream.
async fn shake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, ClientError> {
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|error| ClientError::Broken(error.to_string()))?;
    tokio::spawn(connection);
    Ok(sender)
}
