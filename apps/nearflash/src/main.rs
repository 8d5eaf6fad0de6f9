//! `nearflash`: shares NVMe flash over an ordinary network. This program is wiring only.
#![forbid(unsafe_code)]
#![deny(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "whoever reads standard output may be gone: see `lab::print`"
)]

#[macro_use]
extern crate lab;

mod doctor;
mod operate;
mod pages;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lab::print;
use server::{log, serve, upgrade};

#[derive(Debug, Parser)]
#[command(name = "nearflash", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Export devices over TCP and Unix sockets
    Serve(serve::Args),
    /// Start a new server that takes over the running server's listeners and connections
    Upgrade(upgrade::Args),
    /// Print the `nvme connect` lines that mount volumes on a Linux host, or run them
    Connect(attach::connect::Args),
    /// Attach a volume as a block device of this machine (ublk), and serve it until it is detached
    Attach(Box<attach::Args>),
    #[command(flatten)]
    Files(mount::Command),
    #[command(flatten)]
    Lab(lab::command::Command),
    /// Add, change, remove and show tenants of a running server
    Tenant(operate::TenantArgs),
    /// Check and show configuration files
    Config(operate::ConfigArgs),
    /// Export and import the state of a server
    State(operate::StateArgs),
    /// Add, change, remove and show namespaces of a running server
    Namespace(operate::NamespaceArgs),
    /// Add, change, remove and show NVMe subsystems of a running server
    Subsystem(operate::SubsystemArgs),
    /// Register, change, remove and show NVMe hosts: their tenants and keys
    Host(operate::HostArgs),
    /// Open, close, drain and show listeners of a running server
    Listener(operate::ListenerArgs),
    /// Add, change, remove, show and recalibrate devices of a running server
    Device(operate::DeviceArgs),
    /// Show, add, drain and retire workers of a running server
    Worker(operate::WorkerArgs),
    /// Show, move and end connections of a running server
    Conn(operate::ConnArgs),
    /// Drain a running server: refuse new connections, and end when requests in flight have ended
    Drain(operate::DrainArgs),
    /// Tell why a tenant of a running server is slow, and what to do
    Why(operate::WhyArgs),
    /// Watch tenants, devices, workers and namespaces of a running server
    Top(top::Args),
    /// Trace single requests through a running server, for Perfetto and Chrome
    Trace(lab::trace::Args),
    /// Check this machine's settings, and say what to change
    Doctor(doctor::Args),
    /// Print completions for a shell
    Completions(pages::CompletionArgs),
    /// Write manual pages
    Man(pages::ManArgs),
}

fn main() -> ExitCode {
    let cli: Cli = log::parsed();
    let (form, filter) =
        if let Command::Serve(args) = &cli.command { args.log() } else { (log::Form::Text, None) };
    let result = log::start(form, filter).and_then(|()| {
        keep_secrets(&cli.command);
        print::run(|| run(cli.command))
    });
    result.unwrap_or_else(|error| {
        log::say(error);
        ExitCode::FAILURE
    })
}

/// Protects the memory of this process from being read or dumped: servers hold keys and data,
/// commands hold tokens and often keys.
fn keep_secrets(command: &Command) {
    let may_be_seen = matches!(command, Command::Serve(args) if args.allows_core_dumps());
    if !may_be_seen && let Err(error) = io::keep_memory_secret() {
        tracing::warn!("{error}");
    }
}

fn run(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::Serve(args) => serve::run(args),
        Command::Upgrade(args) => upgrade::run(&args),
        Command::Lab(command) => command.run(),
        Command::Connect(args) => {
            attach::connect::run(&args, &|line| outln!("{line}"), &|warning| {
                errln!("nearflash: warning: {warning}")
            })
        }
        Command::Attach(args) => attach::run(&args, &|line| outln!("{line}")),
        Command::Files(command) => command.run(&|line| outln!("{line}")),
        Command::Tenant(args) => operate::tenant(&args),
        Command::Config(args) => operate::config(&args),
        Command::State(args) => operate::state(&args),
        Command::Namespace(args) => operate::namespace(&args),
        Command::Subsystem(args) => operate::subsystem(&args),
        Command::Host(args) => operate::host(&args),
        Command::Listener(args) => operate::listener(&args),
        Command::Device(args) => operate::device(&args),
        Command::Worker(args) => operate::worker(&args),
        Command::Conn(args) => operate::conn(&args),
        Command::Drain(args) => operate::drain(&args),
        Command::Why(args) => operate::why(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => lab::trace::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => pages::completions(&args),
        Command::Man(args) => pages::man(&args),
    }
}
