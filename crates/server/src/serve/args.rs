//! The command line of `nearflash serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use flash::{Source, Spec, size_text};

use super::draft::CommandLineSettings;
use crate::admin::AdminAddresses;
use crate::config::{Config, DEFAULT_DEVICE, Mistakes};
use crate::interface::Interface;
use crate::listen::DEFAULT_URL;
use crate::log;
use crate::worker_count::WorkerCountRange;

/// Export devices over TCP and Unix sockets
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Configuration file (TOML); the options below override it
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Device to export: null:SIZE, mem:SIZE, file:PATH[?size=SIZE], sim:MODEL or ftl:MEMBER;
    /// repeatable
    #[arg(long, value_name = "SPEC")]
    pub(super) device: Vec<String>,
    /// URL to listen on: reflex://HOST:PORT[?namespace=N],
    /// reflex+unix:PATH[?namespace=N&mode=MODE], nvme-tcp://HOST:PORT[?tls=required],
    /// nbd://HOST:PORT or nbd+unix:PATH; with TLS reflexs://HOST:PORT?certificate=FILE&key=FILE, or
    /// nbds:// likewise; in packets reflex+udp://HOST:PORT[?key=FILE], in frames of Ethernet
    /// reflex+eth://INTERFACE?key=FILE; repeatable
    #[arg(long, value_name = "URL")]
    pub(super) listen: Vec<String>,
    /// Number of workers, or MIN..MAX for as many as the load needs [default: 1]
    #[arg(long, value_name = "N")]
    pub(super) workers: Option<WorkerCountRange>,
    /// Processors to pin the workers to, such as 0,2
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(super) cpus: Option<Vec<usize>>,
    /// Device model of every --device: a file, a or cloud
    #[arg(long, value_name = "FILE")]
    pub(super) model: Option<String>,
    /// Serve first come, first served: keep no promise and limit nobody
    #[arg(long)]
    pub(super) no_scheduler: bool,
    /// State file for live changes, or none [default: beside the configuration file; none without
    /// one]
    #[arg(long, value_name = "FILE")]
    pub(super) state: Option<String>,
    /// Start once with the previous state file, because the current one is broken
    #[arg(long, conflicts_with = "check")]
    pub(super) previous_state: bool,
    /// Serve a device although its disk is not the one that it had before; from now on it is
    #[arg(long, value_name = "DEVICE")]
    pub(super) accept_disk: Vec<String>,
    /// Take over the listeners and connections of the running server instead of binding
    #[arg(long, conflicts_with = "previous_state")]
    pub(super) upgrade: bool,
    /// Path of the upgrade socket, or none [default: beside the admin API's socket]
    #[arg(long, value_name = "PATH")]
    pub(super) upgrade_socket: Option<String>,
    /// Check the configuration and exit, without touching devices
    #[arg(long)]
    pub(super) check: bool,
    /// Interface to the kernel; auto falls back to epoll if io_uring is refused
    #[arg(long, value_enum, value_name = "WAY", default_value = "auto")]
    pub(super) interface: Interface,
    /// Address of the admin API: path of a socket, http://127.0.0.1:PORT, https://ADDRESS:PORT
    /// (which needs `[admin]` in the configuration), both as PATH,https://…, or none [default: a
    /// socket of this user's]
    #[arg(long, value_name = "WHERE", env = "NEARFLASH_ADMIN")]
    pub(super) admin: Option<AdminAddresses>,
    /// Address of loopback that serves metrics, such as 127.0.0.1:9420
    #[arg(long, value_name = "ADDRESS")]
    pub(super) metrics: Option<SocketAddr>,
    /// Number of tenants with metrics of their own; the others are summed
    #[arg(long, value_name = "N", default_value_t = control::metrics::TENANTS_DEFAULT)]
    pub(super) metrics_tenants: usize,
    /// Format of the log, on standard error
    #[arg(long, value_enum, value_name = "FORM", default_value_t)]
    pub(super) log_format: log::Form,
    /// Log filter: a level, or levels by crate, such as warn,nearflash_worker=debug
    #[arg(long, value_name = "FILTER", env = "NEARFLASH_LOG", default_value = "warn")]
    pub(super) log: String,
    /// Let everybody in on every address, without an access rule
    #[arg(long)]
    pub(super) insecure: bool,
    /// Allow core dumps and debuggers, which see keys and data
    #[arg(long)]
    pub(super) core_dumps: bool,
    /// Microseconds for which an idle worker looks for work before it sleeps
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 50)]
    pub(super) spin: u64,
    /// Accepted without effect: zero-copy sends were slower, and were removed
    #[arg(long)]
    pub(super) zero_copy_send: bool,
    /// Congestion control of connections, by its kernel name [default: cubic on loopback, else the
    /// system's]
    #[arg(long, value_name = "NAME")]
    pub(super) congestion: Option<String>,
}

impl Args {
    /// Returns the settings of the command line that have no counterpart in the configuration.
    pub(super) fn beside(&self) -> CommandLineSettings {
        let (insecure, metrics, interface) = (self.insecure, self.metrics, self.interface);
        CommandLineSettings { insecure, metrics, interface, grows: false }
    }

    /// Returns the configuration file's path, for the audit log; an empty text without a file.
    pub(super) fn about(&self) -> String {
        self.config.as_deref().map(|path| path.display().to_string()).unwrap_or_default()
    }

    /// Returns true if core dumps are allowed.
    pub fn allows_core_dumps(&self) -> bool {
        self.core_dumps
    }

    /// Returns the form and the filter of the log.
    pub fn log(&self) -> (log::Form, Option<&str>) {
        (self.log_format, Some(&self.log))
    }

    /// Returns true if the server is to take over from another.
    pub(crate) fn is_upgrade(&self) -> bool {
        self.upgrade
    }

    /// Returns true if the configuration is only to be checked.
    pub(crate) fn is_check(&self) -> bool {
        self.check
    }
}

/// Returns the file's configuration with the options of the command line.
pub(super) fn merge(args: &Args) -> Result<Config, String> {
    let mut config = match &args.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    if !args.device.is_empty() {
        config.device = args.device.iter().enumerate().map(spec::Device::from_argument).collect();
    }
    if !args.listen.is_empty() {
        config.listen = args.listen.iter().map(|url| spec::Listener::from_argument(url)).collect();
    }
    if let Some(model) = &args.model {
        config.set_model(model);
    }
    config.admin.listen = args.admin.clone().or(config.admin.listen);
    config.workers = args.workers.or(config.workers);
    config.cpus = args.cpus.clone().or(config.cpus);
    Ok(config)
}

/// Returns a notice of the default device that a server makes or serves, and of its address; `None`
/// if the configuration names a device.
pub(super) fn told_of_defaults(config: &Config) -> Option<String> {
    if !config.device.is_empty() {
        return None;
    }
    let spec: Spec = DEFAULT_DEVICE.parse().expect("it is a device");
    let Source::File { path, bytes: Some(bytes), .. } = spec.source else { return None };
    let path = std::path::absolute(path).ok()?;
    let (does, size) = match path.exists() {
        true => ("serves", String::new()),
        false => ("makes and serves", format!(", a file of {}", size_text(bytes))),
    };
    let at = match config.listen.is_empty() {
        true => format!(", to everybody on this machine at {DEFAULT_URL}"),
        false => String::new(),
    };
    Some(format!("no device is named: {does} {}{size}{at}; --device names another", path.display()))
}

/// Returns mistakes as text, with their lines in the configuration file where they are known.
pub(super) fn located(args: &Args, mistakes: &Mistakes) -> String {
    let Some(file) = &args.config else { return mistakes.told(None) };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    mistakes.told(Some((file, &text)))
}
