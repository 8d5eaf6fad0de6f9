//! `nearflash subsystem …`, `nearflash host …` and `nearflash listener …`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use control::admin::{
    AddListener, AnaState, Client, HostPatch, HostStatus, Hosts, ListenerState, ListenerStatus,
    Listeners, NewSubsystem, RemoveListener, RemovedListener, Secret, SetAna, SubsystemPatch,
    SubsystemStatus, Subsystems,
};
use server::credentials::read_key;

use super::table::{Side, facts, rows_or};
use super::{Common, Failure};

/// Add, change, remove and show NVMe subsystems of a running server
#[derive(Debug, Subcommand)]
pub(crate) enum SubsystemCommand {
    /// Add a subsystem
    Add {
        /// Qualified name: nqn.…
        nqn: String,
        /// Namespace, by name or number; repeatable [default: all]
        #[arg(long, value_name = "NAME")]
        namespace: Vec<String>,
        /// Host that may connect, by its qualified name; repeatable [default: all]
        #[arg(long, value_name = "NQN")]
        host: Vec<String>,
        /// Tenant that pays for the I/O
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Refuse hosts without a key
        #[arg(long)]
        authenticate: bool,
    },
    /// Change a subsystem's tenant, and whether hosts need keys
    Set {
        /// Qualified name
        nqn: String,
        /// Tenant that pays for the I/O; `none`: the connection's tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Refuse hosts without a key, or admit them
        #[arg(long, value_name = "BOOL")]
        authenticate: Option<bool>,
    },
    /// Allow a host to connect. After the first `allow`, only allowed hosts may connect
    Allow {
        /// Qualified name of the subsystem
        nqn: String,
        /// Qualified name of the host, or `all`
        host: String,
    },
    /// Deny a host. Its connections end
    Deny {
        /// Qualified name of the subsystem
        nqn: String,
        /// Qualified name of the host
        host: String,
    },
    /// Attach a namespace to a subsystem
    Attach {
        /// Qualified name of the subsystem
        nqn: String,
        /// Name or number of the namespace
        namespace: String,
    },
    /// Detach a namespace from a subsystem
    Detach {
        /// Qualified name of the subsystem
        nqn: String,
        /// Name or number of the namespace
        namespace: String,
    },
    /// Remove a subsystem. The connections of its hosts end
    Rm {
        /// Qualified name
        nqn: String,
    },
    /// Show a subsystem: its hosts, controllers and namespaces
    Show {
        /// Qualified name
        nqn: String,
    },
    /// List all subsystems
    List,
}

impl SubsystemCommand {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let client = &mut common.client()?;
        let set = |client: &mut Client, nqn: &str, to: SubsystemPatch| -> Result<(), Failure> {
            let changed = client.send_to(nqn, &to)?;
            common.print(&changed, |one| format!("changed {}", one.nqn));
            Ok(())
        };
        let one = |name: &String| vec![name.clone()];
        match self {
            SubsystemCommand::Add { nqn, namespace, host, tenant, authenticate } => {
                let some = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
                let made = client.send(&NewSubsystem {
                    nqn: nqn.clone(),
                    hosts: some(host),
                    namespaces: some(namespace),
                    tenant: tenant.clone(),
                    authenticate: *authenticate,
                })?;
                common.print(&made, |one| format!("added {}", one.nqn));
            }
            SubsystemCommand::Set { nqn, tenant, authenticate } => {
                if tenant.is_none() && authenticate.is_none() {
                    let text = "nothing to change: name --tenant or --authenticate";
                    return Err(text.to_owned().into());
                }
                let tenant = tenant.as_ref().map(none_is_empty);
                let to =
                    SubsystemPatch { tenant, authenticate: *authenticate, ..Default::default() };
                set(client, nqn, to)?;
            }
            SubsystemCommand::Allow { nqn, host } if host == "all" => {
                set(client, nqn, SubsystemPatch { allow_all: true, ..Default::default() })?;
            }
            SubsystemCommand::Allow { nqn, host } => {
                set(client, nqn, SubsystemPatch { allow: one(host), ..Default::default() })?;
            }
            SubsystemCommand::Deny { nqn, host } => {
                set(client, nqn, SubsystemPatch { deny: one(host), ..Default::default() })?;
            }
            SubsystemCommand::Attach { nqn, namespace } => {
                set(client, nqn, SubsystemPatch { attach: one(namespace), ..Default::default() })?;
            }
            SubsystemCommand::Detach { nqn, namespace } => {
                set(client, nqn, SubsystemPatch { detach: one(namespace), ..Default::default() })?;
            }
            SubsystemCommand::Rm { nqn } => {
                client.delete::<SubsystemStatus>(nqn)?;
                common.removed(nqn);
            }
            SubsystemCommand::Show { nqn } => common.print(&client.get(nqn)?, show),
            SubsystemCommand::List => {
                common.print(&client.read::<Subsystems>()?, |all| list(&all.subsystems))
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the empty string for `none`, as the admin API expects, and any other name unchanged.
fn none_is_empty(name: &String) -> String {
    if name == "none" { String::new() } else { name.clone() }
}

fn list(subsystems: &[SubsystemStatus]) -> String {
    use Side::{Left, Right};
    rows_or(
        "there is no subsystem",
        [
            ("SUBSYSTEM", Left),
            ("NAMESPACES", Right),
            ("HOSTS", Right),
            ("CONNECTED", Right),
            ("TENANT", Left),
            ("KEYS", Left),
        ],
        subsystems,
        |one| {
            [
                one.nqn.clone(),
                one.namespaces.len().to_string(),
                one.hosts.as_ref().map_or("all".to_owned(), |hosts| hosts.len().to_string()),
                one.controllers.len().to_string(),
                one.tenant.clone().unwrap_or_else(|| "-".to_owned()),
                if one.authenticate { "needed" } else { "where known" }.to_owned(),
            ]
        },
    )
}

fn show(one: &SubsystemStatus) -> String {
    let mut lines = vec![one.nqn.clone()];
    for namespace in &one.namespaces {
        let (nsid, name) = (namespace.nsid, &namespace.name);
        lines.push(format!("  namespace {nsid}: {name} ({})", namespace.number));
    }
    match &one.hosts {
        None => lines.push("  every host may connect".to_owned()),
        Some(hosts) => lines.extend(hosts.iter().map(|host| format!("  {host} may connect"))),
    }
    for ana in &one.ana {
        let state = word(ana.state);
        lines.push(format!("  group {} is {state} by listener {}", ana.group, ana.listener));
    }
    for own in &one.controllers {
        let (host, listener, queues) = (&own.host, own.listener, own.queues);
        lines.push(format!("  {host} is connected by listener {listener}, {queues} I/O queues"));
    }
    lines.join("\n")
}

/// Register, change, remove and show NVMe hosts: their tenants and keys
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Register an NVMe host: its tenant and its authentication key
    Add {
        /// Qualified name: nqn.…
        nqn: String,
        /// Tenant that pays for the I/O
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// File with the host's key, DHHC-1:…; `-` for standard input
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// Change a host's tenant, and the methods by which it may authenticate
    Set {
        /// Qualified name
        nqn: String,
        /// Tenant that pays for the I/O; `none`: the subsystem's tenant
        #[arg(long, value_name = "NAME", required_unless_present_any = ["hashes", "groups"])]
        tenant: Option<String>,
        /// Hashes for authentication: sha512,sha384; `all`: those of the configuration
        #[arg(long, value_name = "LIST")]
        hashes: Option<String>,
        /// Groups for authentication: ffdhe4096,none; `all`: those of the configuration
        #[arg(long, value_name = "LIST")]
        groups: Option<String>,
    },
    /// Replace a host's key. The host proves the new key with its next connection
    Key {
        /// Qualified name
        nqn: String,
        /// File with the key, DHHC-1:…; `-` for standard input
        #[arg(required_unless_present_any = ["none", "end_overlap"])]
        file: Option<PathBuf>,
        /// Replace the key by which the server proves itself to the host
        #[arg(long)]
        controller: bool,
        /// Remove the key
        #[arg(long, conflicts_with = "file")]
        none: bool,
        /// Replace the key for TLS, NVMeTLSkey-1:…
        #[arg(long, conflicts_with = "controller")]
        tls: bool,
        /// Accept the key before, too, until `--end-overlap` or the next key
        #[arg(long, conflicts_with_all = ["controller", "none"])]
        overlap: bool,
        /// Accept the key before no more
        #[arg(long, conflicts_with_all = ["file", "none", "controller", "overlap"])]
        end_overlap: bool,
    },
    /// Remove a host's entry: its tenant and its keys
    Rm {
        /// Qualified name
        nqn: String,
    },
    /// Show a host's entry without its keys
    Show {
        /// Qualified name
        nqn: String,
    },
    /// List all registered hosts without their keys
    List,
}

impl HostCommand {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let client = &mut common.client()?;
        let set = |client: &mut Client, nqn: &str, to: HostPatch, what: &str| {
            let host = client.send_to(nqn, &to)?;
            common.print(&host, |host| format!("{what} {}", host.nqn));
            Ok::<(), Failure>(())
        };
        match self {
            HostCommand::Add { nqn, tenant, key } => {
                if client.read::<Hosts>()?.hosts.iter().any(|host| host.nqn == *nqn) {
                    let text =
                        format!("host {nqn:?} is known already; change it with `set` or `key`");
                    return Err(text.into());
                }
                let key = key.as_deref().map(read_key).transpose()?.map(Secret);
                let to = HostPatch { tenant: tenant.clone(), key, ..Default::default() };
                set(client, nqn, to, "added")?;
            }
            HostCommand::Set { nqn, tenant, hashes, groups } => {
                let tenant = tenant.as_ref().map(none_is_empty);
                let to = HostPatch { tenant, ..Default::default() };
                let to = to.with_methods(hashes.as_deref(), groups.as_deref())?;
                set(client, nqn, to, "changed")?;
            }
            HostCommand::Key { nqn, file, controller, none, tls, overlap, end_overlap } => {
                let key = file
                    .as_deref()
                    .map(read_key)
                    .transpose()?
                    .or(none.then(String::new))
                    .map(Secret);
                let overlap = (*overlap || *end_overlap).then_some(*overlap);
                let to = HostPatch::of_key(key, overlap, *tls, *controller);
                set(client, nqn, to, "changed the key of")?;
            }
            HostCommand::Rm { nqn } => {
                client.delete::<HostStatus>(nqn)?;
                common.removed(nqn);
            }
            HostCommand::Show { nqn } => common.print(&client.get(nqn)?, show_host),
            HostCommand::List => {
                common.print(&client.read::<Hosts>()?, |all| list_hosts(&all.hosts))
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show_host(host: &HostStatus) -> String {
    let has = |has: bool| if has { "known" } else { "none" }.to_owned();
    facts(
        &format!("host {}", host.nqn),
        &[
            ("tenant", host.tenant.clone().unwrap_or_else(|| "the subsystem's".to_owned())),
            ("key", host.key_text().to_owned()),
            ("controller's key", has(host.has_controller_key)),
            ("authenticates by", host.methods_text()),
            ("key for TLS", host.tls_key.text().to_owned()),
        ],
    )
}

fn list_hosts(hosts: &[HostStatus]) -> String {
    use Side::Left;
    rows_or(
        "no host is known",
        [("HOST", Left), ("TENANT", Left), ("KEY", Left), ("CONTROLLER'S KEY", Left)],
        hosts,
        |host| {
            let has = |has: bool| if has { "yes" } else { "-" }.to_owned();
            let tenant = host.tenant.clone().unwrap_or_else(|| "-".to_owned());
            [host.nqn.clone(), tenant, has(host.has_key), has(host.has_controller_key)]
        },
    )
}

/// Open, close, drain and show listeners of a running server
#[derive(Debug, Subcommand)]
pub(crate) enum ListenerCommand {
    /// Open a listener. It is there again after a restart
    Add {
        /// URL to listen on: reflex://HOST:PORT[?namespace=N&tenant=NAME], reflex+unix:PATH[?…],
        /// nvme-tcp://HOST:PORT[?…], nbd://HOST:PORT[?…] or nbd+unix:PATH[?…]; port 0 takes a free port
        url: String,
    },
    /// Close a listener. Its connections stay, unless --drain is given
    Rm {
        /// Number or address of the listener
        listener: String,
        /// End the listener's connections, each when its requests in flight have ended
        #[arg(long)]
        drain: bool,
        /// Deadline in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "drain")]
        deadline: u64,
    },
    /// Set how hosts reach namespaces through a listener (ANA state). Connected hosts are told
    Ana {
        /// Number or address of the listener
        listener: String,
        /// ANA state
        #[arg(value_enum)]
        state: State,
        /// Subsystem [default: all]
        #[arg(long, value_name = "NQN")]
        subsystem: Option<String>,
        /// ANA group; all namespaces are in group 1 [default: 1]
        #[arg(long, value_name = "N")]
        group: Option<u32>,
    },
    /// Drain a listener: refuse new connections, and end existing ones when their requests in
    /// flight have ended
    Drain {
        /// Number or address of the listener
        listener: String,
        /// Deadline in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 10)]
        deadline: u64,
    },
    /// Resume a drained listener: accept connections again
    Resume {
        /// Number or address of the listener
        listener: String,
    },
    /// Show one listener
    Show {
        /// Number or address of the listener
        listener: String,
    },
    /// List all listeners
    List,
}

/// States of asymmetric namespace access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum State {
    /// Optimized: the best path
    Optimized,
    /// Non-optimized: taken if there is no better path
    NonOptimized,
    /// Inaccessible for now
    Inaccessible,
    /// Inaccessible for good
    PersistentLoss,
    /// Inaccessible while the state changes
    Change,
}

impl From<State> for AnaState {
    fn from(state: State) -> AnaState {
        match state {
            State::Optimized => AnaState::Optimized,
            State::NonOptimized => AnaState::NonOptimized,
            State::Inaccessible => AnaState::Inaccessible,
            State::PersistentLoss => AnaState::PersistentLoss,
            State::Change => AnaState::Change,
        }
    }
}

fn word(state: AnaState) -> &'static str {
    match state {
        AnaState::Optimized => "optimized",
        AnaState::NonOptimized => "non-optimized",
        AnaState::Inaccessible => "inaccessible",
        AnaState::PersistentLoss => "persistent-loss",
        AnaState::Change => "change",
    }
}

impl ListenerCommand {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let client = &mut common.client()?;
        match self {
            ListenerCommand::Add { url } => {
                let made = client.send(&AddListener::from_argument(url))?;
                common
                    .print(&made, |one| format!("listens at {} (number {})", one.url, one.number));
            }
            ListenerCommand::Rm { listener, drain, deadline } => {
                let drain_ms = drain.then(|| deadline.saturating_mul(1_000));
                let gone = client.send_to(listener, &RemoveListener { drain_ms })?;
                common.print(&gone, |gone| removed(gone, *drain));
            }
            ListenerCommand::Ana { listener, state, subsystem, group } => {
                let (subsystem, group) = (subsystem.clone(), *group);
                let state = AnaState::from(*state);
                let now = client.send_to(listener, &SetAna { state, subsystem, group })?;
                common.print(&now, |now| format!("{} is {}", now.url, word(state)));
            }
            ListenerCommand::Drain { listener, deadline } => {
                let now = client.drain_listener(listener, deadline.saturating_mul(1_000))?;
                common.print(&now, |now| match now.connections {
                    Some(0) => format!("{} is drained", now.url),
                    Some(n) => format!("{} is draining: {n} connections are left", now.url),
                    None => format!("{} is draining", now.url),
                });
            }
            ListenerCommand::Resume { listener } => {
                let now = client.resume_listener(listener)?;
                common.print(&now, |now| format!("{} lets people in", now.url));
            }
            ListenerCommand::Show { listener: at } => common.print(&client.get(at)?, show_listener),
            ListenerCommand::List => {
                common.print(&client.read::<Listeners>()?, |all| list_listeners(&all.listeners))
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn removed(gone: &RemovedListener, drains: bool) -> String {
    let connections = match (gone.connections, drains) {
        (Some(0) | None, _) => return format!("removed {}", gone.removed),
        (Some(1), false) => "1 connection that came by it stays".to_owned(),
        (Some(n), false) => format!("{n} connections that came by it stay"),
        (Some(1), true) => "1 connection that came by it is ending".to_owned(),
        (Some(n), true) => format!("{n} connections that came by it are ending"),
    };
    format!("removed {}; {connections}", gone.removed)
}

fn show_listener(listener: &ListenerStatus) -> String {
    facts(
        &format!("listener {}", listener.number),
        &[
            ("address", listener.url.clone()),
            ("state", standing(listener)),
            ("access", access(listener)),
        ],
    )
}

/// Returns the state of a listener and, while it drains, the number of its connections.
fn standing(listener: &ListenerStatus) -> String {
    match (listener.state, listener.connections) {
        (ListenerState::Open, _) => "open".to_owned(),
        (ListenerState::Draining, Some(n)) => format!("draining ({n} left)"),
        (ListenerState::Draining, None) => "draining".to_owned(),
        (ListenerState::Drained, _) => "drained".to_owned(),
    }
}

/// Returns the ANA states in which the listener shows namespaces, one for each subsystem that has a
/// state of its own.
fn access(listener: &ListenerStatus) -> String {
    let ana = listener.ana.iter();
    let ana = ana.map(|ana| format!("{} of {}", word(ana.state), ana.subsystem));
    let ana = ana.collect::<Vec<_>>().join(", ");
    if ana.is_empty() { "optimized".to_owned() } else { ana }
}

fn list_listeners(listeners: &[ListenerStatus]) -> String {
    use Side::{Left, Right};
    rows_or(
        "there is no listener",
        [("NUMBER", Right), ("ADDRESS", Left), ("STATE", Left), ("ACCESS", Left)],
        listeners,
        |listener| {
            let (state, access) = (standing(listener), access(listener));
            [listener.number.to_string(), listener.url.clone(), state, access]
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::admin::{Ana, Contained, Controller};

    fn one() -> SubsystemStatus {
        let nqn = "nqn.x".to_owned();
        SubsystemStatus {
            hosts: Some(vec!["nqn.h".to_owned()]),
            tenant: None,
            authenticate: true,
            namespaces: vec![Contained { nsid: 1, number: 2, name: "logs".to_owned() }],
            ana: vec![Ana {
                subsystem: nqn.clone(),
                listener: 2,
                group: 1,
                state: AnaState::Inaccessible,
            }],
            controllers: vec![Controller {
                cntlid: 7,
                host: "nqn.h".to_owned(),
                listener: 1,
                queues: 4,
            }],
            nqn,
        }
    }

    #[test]
    fn subsystems_stand_in_columns_and_lines() {
        assert_eq!(
            list(&[one()]),
            "SUBSYSTEM  NAMESPACES  HOSTS  CONNECTED  TENANT  KEYS\n\
             nqn.x               1      1          1  -       needed"
        );
        assert_eq!(
            show(&one()),
            "nqn.x\n  namespace 1: logs (2)\n  nqn.h may connect\n  group 1 is inaccessible by \
             listener 2\n  nqn.h is connected by listener 1, 4 I/O queues"
        );
    }

    #[test]
    fn keys_are_not_shown() {
        let host = HostStatus {
            nqn: "nqn.h".to_owned(),
            tenant: Some("gold".to_owned()),
            has_key: true,
            overlaps: false,
            has_controller_key: false,
            hashes: Vec::new(),
            groups: vec![control::admin::GroupName::None],
            tls_key: Default::default(),
        };
        assert_eq!(
            show_host(&host),
            "host nqn.h\n  tenant            gold\n  key               known\n  \
             controller's key  none\n  authenticates by  all hashes, group none\n  \
             key for TLS       none"
        );
        assert_eq!(
            list_hosts(std::slice::from_ref(&host)),
            "HOST   TENANT  KEY  CONTROLLER'S KEY\nnqn.h  gold    yes  -"
        );
        assert!(show_host(&HostStatus { overlaps: true, ..host }).contains("the one before"));
    }
}
