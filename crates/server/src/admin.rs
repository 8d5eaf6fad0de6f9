//! The admin API of a server: its sockets, its audit log and its credentials.
#![deny(clippy::print_stderr, clippy::print_stdout, reason = "a server outlives who reads that")]

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use contract::ServerEvent;
use control::admin::{
    AdminAddress, AdminListener, Caller, Credentials, EndpointHandle, Inventory, Journal, Outcome,
    Recalibrator, Record, Router, ServerParts, router, start_audited,
};
use control::{Tenants, WorkerCommands};
use io::{Listener, TcpOptions, UnixPath};
use serde_json::{Map, Value, json};

use crate::audit::AuditFile;
use crate::config::AdminConfig;
use crate::credentials::CredentialFiles;
use crate::live::{LiveConfig, ReloadReport};
use crate::log;
use crate::recalibrate::Recalibrations;
use crate::upgrade::{Role, Socket, Successor};

mod address;

use address::default_socket;
pub use address::where_to_look;
pub(crate) use address::{AdminAddresses, default_place, needs, tls_place};

/// The steps of `nice` by which the priority of threads that answer operators is below the
/// workers'. When both want a processor, a worker gets about ten times the time of an answering
/// thread.
const STEPS: u8 = 10;

/// The permissions of the admin API's Unix socket: only the server's user, and root, may connect.
const MODE: u32 = 0o600;

/// A running admin API or metrics endpoint. Dropping it removes the file of its Unix socket, if it
/// has one.
#[derive(Debug)]
pub(crate) struct OpenEndpoint {
    listener: Listener,
    role: Role,
    wanted: String,
    pub(crate) running: EndpointHandle,
}

impl OpenEndpoint {
    /// Returns the listening socket, with its purpose and its configured address, for the
    /// successor.
    pub(crate) fn socket(&self) -> Socket {
        Socket::of(&self.listener, self.role, self.wanted.clone())
    }
}

/// The parts of a running server that the admin API shows and changes.
pub(crate) struct RunningServer {
    /// The sender of commands to the workers.
    pub(crate) commands: WorkerCommands,
    /// The processors to which the workers are pinned, in worker order; `None` if they are not
    /// pinned.
    pub(crate) cpus: Option<Vec<usize>>,
    pub(crate) live: Arc<LiveConfig>,
    /// The recalibrations of the server's devices, which operators start, watch and cancel.
    pub(crate) recalibrations: Arc<Recalibrations>,
}

impl ServerParts for RunningServer {
    fn cpu(&self, worker: usize) -> Option<usize> {
        self.cpus.as_ref().map(|cpus| cpus[worker])
    }

    fn inventory(&self) -> Option<Arc<dyn Inventory>> {
        Some(self.live.clone())
    }

    fn recalibrator(&self) -> Option<Arc<dyn Recalibrator>> {
        Some(self.recalibrations.clone())
    }
}

/// The parts of the admin API that last as long as the server: its configured addresses, its audit
/// log and its credentials.
pub(crate) struct AdminState {
    wanted: Option<AdminAddresses>,
    audit: Option<Arc<AuditFile>>,
    /// The certificate and the operators' tokens for `https://`, with the files that they were read
    /// from; `None` if the configuration names no such files.
    credentials: Option<(Arc<Credentials>, CredentialFiles)>,
}

impl AdminState {
    /// Opens the audit log, and reads the certificate, key and tokens that the configuration names.
    ///
    /// # Errors
    /// A file cannot be opened or read, or an `https://` address lacks one of its files.
    pub(crate) fn open(config: &AdminConfig) -> Result<AdminState, String> {
        let audit = config.audit.as_deref().map(AuditFile::open).transpose()?;
        let credentials = match CredentialFiles::of(config)? {
            Some(files) => Some((Arc::new(files.read()?), files)),
            None => None,
        };
        Ok(AdminState { wanted: config.listen.clone(), audit, credentials })
    }

    /// Returns the configured addresses of the admin API.
    pub(crate) fn wanted(&self) -> Option<&AdminAddresses> {
        self.wanted.as_ref()
    }

    fn journal(&self) -> Option<Arc<dyn Journal>> {
        self.audit.clone().map(|audit| Arc::new(CountedAuditLog(audit)) as Arc<dyn Journal>)
    }

    /// Starts the admin API at its configured address, or at the default one if possible. Only a
    /// configured address has to be available. The API of a successor accepts no connections until
    /// the take-over.
    pub(crate) fn serve(
        &self,
        tenants: &Tenants,
        crew: RunningServer,
        scraped: &Router,
        mut successor: Option<&mut Successor>,
    ) -> Result<Vec<OpenEndpoint>, String> {
        let commands = crew.commands.clone();
        let site: Arc<dyn ServerParts> = Arc::new(crew);
        // The same by all addresses, so that what is done one at a time is.
        let router = router(tenants.clone(), commands, site).merge(scraped.clone());
        match &self.wanted {
            Some(AdminAddresses::Nowhere) => {
                warn_of_none("as it was told");
                Ok(Vec::new())
            }
            Some(AdminAddresses::At(each)) => {
                let opened = each.iter();
                let open =
                    |address| self.open_at(address, router.clone(), successor.as_deref_mut());
                opened.map(open).collect()
            }
            None => Ok(self.open_default(router, successor).into_iter().collect()),
        }
    }

    fn open_default(
        &self,
        router: Router,
        successor: Option<&mut Successor>,
    ) -> Option<OpenEndpoint> {
        let Some(path) = default_socket() else {
            warn_of_none("because neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR is set");
            return None;
        };
        let address = AdminAddress::Unix(path.clone());
        let opened = make_parent(&path).and_then(|()| self.open_at(&address, router, successor));
        opened
            .map_err(|error| {
                log::say(format_args!(
                    "warning: {error}; serving without an admin API (choose a place for it with \
                     --admin)"
                ));
            })
            .ok()
    }

    fn open_at(
        &self,
        address: &AdminAddress,
        router: Router,
        successor: Option<&mut Successor>,
    ) -> Result<OpenEndpoint, String> {
        let (wanted, is_held) = (address.to_string(), successor.is_some());
        let passed = successor
            .map(|successor| successor.socket(|role| *role == Role::Admin, &wanted))
            .transpose()?;
        let bind = || match address {
            AdminAddress::Unix(path) => {
                let path = UnixPath::new(path).map_err(|e| e.to_string())?;
                Listener::bind_unix(&path, MODE).map_err(|e| e.to_string())
            }
            AdminAddress::Tcp(at) => bind_tcp(*at),
            AdminAddress::Tls { .. } => bind_tcp(tls_place(address)?),
        };
        let listener = passed.flatten().map_or_else(bind, Ok)?;
        let fail =
            |error: std::io::Error| format!("cannot start the admin API at {address}: {error}");
        let socket: OwnedFd = listener.try_clone().map_err(fail)?;
        let admin_listener = match address {
            AdminAddress::Unix(_) => {
                AdminListener::Unix(socket.into(), rustix::process::geteuid().as_raw())
            }
            AdminAddress::Tcp(_) => AdminListener::Tcp(socket.into()),
            AdminAddress::Tls { .. } => {
                let (credentials, _) = self.credentials.as_ref().ok_or_else(|| needs(address))?;
                AdminListener::Tls(socket.into(), credentials.clone())
            }
        };
        let running = start_audited(router, admin_listener, is_held, self.journal(), give_way)
            .map_err(fail)?;
        Ok(OpenEndpoint { listener, role: Role::Admin, wanted, running })
    }

    /// Carries out a reload that a signal asked for, with an audit record. The audit log is opened
    /// again first, and nothing is reloaded while it takes no records. Certificates and tokens are
    /// read again.
    ///
    /// # Errors
    /// Nothing was reloaded, for the reason returned.
    pub(crate) fn reload(
        &self,
        about: &str,
        reload: impl FnOnce() -> Result<ReloadReport, String>,
    ) -> Result<ReloadReport, String> {
        if let Some(audit) = &self.audit {
            audit.reopen()?;
            audit.ready()?;
        }
        // Looked at before and taken behind, so that a reload happens or does not.
        let usable = match &self.credentials {
            Some((_, files)) => files.read().map(drop),
            None => Ok(()),
        };
        let mut reloaded = usable.and_then(|()| reload());
        if let (Ok(done), Some((credentials, files))) = (&mut reloaded, &self.credentials)
            && let Err(error) = files.renew(credentials)
        {
            done.later.push(format!("[admin] ({error})"));
        }
        let outcome = if reloaded.is_ok() { Outcome::Done } else { Outcome::Refused };
        let who = Caller::Signal { signal: "SIGHUP" };
        let mut record = Record::beside_http(who, "RELOAD", about, outcome);
        if let Ok(ReloadReport { later, overruled, unread }) = &reloaded {
            let lists = [("needs_restart", later), ("overruled", overruled), ("unread", unread)];
            let lists = lists.into_iter();
            let lists = lists.filter(|(_, list)| !list.is_empty());
            let lists: Map<String, Value> =
                lists.map(|(name, list)| (name.to_owned(), json!(list))).collect();
            record.after = (!lists.is_empty()).then_some(Value::Object(lists));
        }
        self.keep(&record);
        reloaded
    }

    /// Opens the audit log again by its path, and records that this process has taken over from its
    /// predecessor. The predecessor may have rotated the log since this process opened it.
    pub(crate) fn has_taken_over(&self, about: &str) {
        if let Some(Err(error)) = self.audit.as_ref().map(|audit| audit.reopen()) {
            tracing::error!(
                error,
                "the audit log cannot be opened again; records go to the file of the start"
            );
        }
        let (uid, pid) = (rustix::process::geteuid().as_raw(), std::process::id());
        let who = Caller::Process { uid, pid: i32::try_from(pid).ok() };
        ServerEvent::UpgradeDone.count();
        self.keep(&Record::beside_http(who, "UPGRADE", about, Outcome::Done));
    }

    /// Returns the audit log, if there is one.
    pub(crate) fn audit(&self) -> Option<Arc<AuditFile>> {
        self.audit.clone()
    }

    /// Writes the pending lines of the audit log before the process ends.
    pub(crate) fn settle(&self) {
        if let Some(audit) = &self.audit
            && let Err(error) = audit.ready()
        {
            tracing::error!(error, "records of changes are lost with this process");
        }
    }

    fn keep(&self, record: &Record) {
        if let Err(why) = record.keep(self.journal().as_deref()) {
            tracing::error!("{} is done, but its record is not kept yet: {why}", record.method);
        }
    }
}

/// An audit log that also counts, for the metrics, the records that were kept and those that are
/// pending because they could not be written.
struct CountedAuditLog(Arc<AuditFile>);

impl Journal for CountedAuditLog {
    fn ready(&self) -> Result<(), String> {
        self.0.ready()
    }

    fn keep(&self, record: &Record) -> Result<(), String> {
        let kept = self.0.keep(record);
        match (&kept, record.outcome) {
            (Ok(()), _) => ServerEvent::AuditKept.count(),
            (Err(_), Outcome::Done | Outcome::Unknown) => ServerEvent::AuditOwed.count(),
            // Of what was refused nobody owes a record.
            (Err(_), Outcome::Refused | Outcome::Failed) => {}
        }
        kept
    }
}

/// Warns that the server has no admin API, and says how to change that.
fn warn_of_none(why: &str) {
    tracing::warn!(
        "serving without an admin API, {why}: no command can show, change or upgrade this server; \
         give it one by --admin PATH, or `listen` in [admin] of the configuration"
    );
}

/// Lowers the priority of the calling thread, which answers operators, and of the threads that it
/// starts, below the workers'. Such a thread holds nothing that a worker waits for, except the lock
/// of an NVMe fabric, for which workers sleep (`Wakers::give_way`).
fn give_way() {
    if let Err(error) = io::lower_priority(STEPS) {
        tracing::warn!(%error, "threads that answer operators keep the workers' priority and may delay requests");
    }
}

fn bind_tcp(at: SocketAddr) -> Result<Listener, String> {
    Listener::bind(at, &TcpOptions::default())
        .map_err(|error| format!("cannot start the admin API: {error}"))
}

/// Starts the metrics endpoint at a loopback address. With `successor`, the endpoint takes the
/// predecessor's socket, and accepts no connections until the take-over.
pub(crate) fn open_metrics(
    address: SocketAddr,
    scraped: Router,
    successor: Option<&mut Successor>,
) -> Result<OpenEndpoint, String> {
    if !address.ip().is_loopback() {
        return Err(format!(
            "metrics are for this machine, and {address} is not on loopback: expected an address such \
             as 127.0.0.1:9420"
        ));
    }
    let (wanted, is_held) = (address.to_string(), successor.is_some());
    let passed = successor
        .map(|successor| successor.socket(|role| *role == Role::Metrics, &wanted))
        .transpose()?;
    let bind = || Listener::bind(address, &TcpOptions::default());
    let fail =
        |error: &dyn std::fmt::Display| format!("cannot offer metrics at {address}: {error}");
    let listener = passed.flatten().map_or_else(bind, Ok).map_err(|error| fail(&error))?;
    let socket = listener.try_clone().map_err(|error| fail(&error))?;
    let running =
        start_audited(scraped, AdminListener::Tcp(socket.into()), is_held, None, give_way)
            .map_err(|error| fail(&error))?;
    Ok(OpenEndpoint { listener, role: Role::Metrics, wanted, running })
}

fn make_parent(path: &std::path::Path) -> Result<(), String> {
    let directory = path.parent().expect("it is a file in a directory");
    std::fs::create_dir_all(directory)
        .map_err(|error| format!("cannot make {}: {error}", directory.display()))
}
