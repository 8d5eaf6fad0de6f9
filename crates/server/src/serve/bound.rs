//! All listening sockets of a server: for clients, operators, scrapes of metrics, and successor
//! processes.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use contract::ListenerId;
use control::Tenants;
use control::admin::{EndpointHandle, scrape_router};
use io::{Endpoint, Listener, TcpOptions};

use super::args::Args;
use crate::admin::{self, AdminState, OpenEndpoint, RunningServer};
use crate::host_keys::HostKeys;
use crate::listen::ListenAt;
use crate::live::OpenListener;
use crate::upgrade::{InheritedSockets, Role, Socket, Successor, open_socket, socket_path};

/// The longest time that an ending server waits until the last answers of an API were sent.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// The open listeners of clients, of the admin API and of upgrades. The files of Unix sockets are
/// removed on drop, unless another process gets the listeners.
pub(super) struct BoundSockets {
    listeners: Vec<(ListenerId, Listener)>,
    open: Vec<OpenListener>,
    urls: Vec<String>,
    apis: Vec<OpenEndpoint>,
    upgrade: Option<Listener>,
    /// The sockets that are passed to a successor.
    sockets: Vec<Arc<Socket>>,
}

impl BoundSockets {
    /// Binds the clients' listeners for `workers` workers, or adopts the sockets that the
    /// predecessor passed, or that this process retained when it restarted itself.
    pub(super) fn bind(
        listen_at: &[ListenAt],
        (tcp, workers, keys): (&TcpOptions, usize, &HostKeys),
        mut successor: Option<&mut Successor>,
    ) -> Result<BoundSockets, String> {
        let (mut listeners, mut urls, mut open) = (Vec::new(), Vec::new(), Vec::new());
        let mut inherited = InheritedSockets::take()?;
        for at in listen_at {
            let passed = match successor.as_mut() {
                Some(successor) => successor.listener(at)?,
                None => inherited.listener(at)?,
            };
            let mut listener = match passed {
                None => at.bind(tcp, workers, keys),
                Some(listener) => at.secure(listener, keys),
            }?;
            listener.widen(workers).map_err(|error| error.to_string())?;
            if let Some(warning) = at.exposure(listener.endpoint()) {
                tracing::warn!("{warning}");
            }
            urls.push(at.url_at(listener.endpoint()));
            open.push(OpenListener::of(&listener, at.clone()));
            listeners.push((at.id, listener));
        }
        if listen_at.iter().any(|at| matches!(at.endpoint, Endpoint::Ethernet(_))) {
            // Threads that are started from now on have no rights to the network's cards either.
            io::give_up_card_rights().map_err(|error| error.to_string())?;
        }
        let (sockets, apis) = (Vec::new(), Vec::new());
        Ok(BoundSockets { listeners, open, urls, sockets, apis, upgrade: None })
    }

    /// Returns the URLs at which clients connect.
    pub(super) fn urls(&self) -> String {
        self.urls.join(" ")
    }

    /// Takes the open listeners, once, as the initial state for live changes.
    pub(super) fn take_open(&mut self) -> Vec<OpenListener> {
        std::mem::take(&mut self.open)
    }

    /// Takes the listeners of clients, once.
    pub(super) fn take_listeners(&mut self) -> Vec<(ListenerId, Listener)> {
        std::mem::take(&mut self.listeners)
    }

    /// Opens the admin API, the metrics endpoint and the upgrade socket. The APIs of a successor
    /// accept no connections until it serves.
    pub(super) fn open_apis(
        &mut self,
        args: &Args,
        admin: &AdminState,
        tenants: &Tenants,
        crew: RunningServer,
        mut successor: Option<&mut Successor>,
    ) -> Result<(), String> {
        // One for all addresses: they scrape one at a time.
        let scraped = scrape_router(tenants.clone(), args.metrics_tenants);
        let wanted = admin.wanted();
        self.apis.extend(admin.serve(tenants, crew, &scraped, successor.as_deref_mut())?);
        let has_admin = !self.apis.is_empty();
        if let Some(address) = args.metrics {
            self.apis.push(admin::open_metrics(address, scraped, successor.as_deref_mut())?);
        }
        for api in &self.apis {
            self.sockets.push(Arc::new(api.socket()));
        }
        let told = args.upgrade_socket.as_deref();
        let place = socket_path(told, wanted).filter(|_| told.is_some() || has_admin);
        let Some(place) = place else { return Ok(()) };
        match open_upgrade(&place, successor) {
            Ok((listener, socket)) => {
                self.sockets.push(Arc::new(socket));
                self.upgrade = Some(listener);
            }
            Err(error) if told.is_some() => return Err(error),
            Err(error) => {
                tracing::warn!(error, "this server cannot be upgraded while it runs");
            }
        }
        Ok(())
    }

    /// Returns the handles that make the admin APIs accept or pause.
    pub(super) fn apis(&self) -> Vec<EndpointHandle> {
        self.apis.iter().map(|api| api.running.clone()).collect()
    }

    /// Waits until the answers to changes were sent, since idle workers end sooner than the API
    /// answers the order to drain.
    pub(super) fn let_answers_leave(&self) {
        self.apis.iter().for_each(|api| api.running.await_answers(ANSWER_MAX));
    }

    /// Returns a copy of the upgrade socket, for the thread that accepts there; `None` if the
    /// server has none.
    pub(super) fn upgrade(&self) -> Result<Option<UnixListener>, String> {
        let socket = self.upgrade.as_ref().map(Listener::try_clone).transpose();
        let socket = socket.map_err(|error| format!("too few descriptors: {error}"))?;
        Ok(socket.map(UnixListener::from))
    }

    /// Takes the sockets that are passed to a successor, once.
    pub(super) fn take_sockets(&mut self) -> Vec<Arc<Socket>> {
        std::mem::take(&mut self.sockets)
    }
}

fn open_upgrade(
    place: &Path,
    successor: Option<&mut Successor>,
) -> Result<(Listener, Socket), String> {
    let wanted = place.display().to_string();
    let passed = successor
        .map(|successor| successor.socket(|role| *role == Role::Upgrade, &wanted))
        .transpose()?;
    let listener = passed.flatten().map_or_else(|| open_socket(place), Ok)?;
    let socket = Socket::of(&listener, Role::Upgrade, wanted);
    Ok((listener, socket))
}
