//! `nearflash`: share NVMe flash over an ordinary network. This program is wiring only: it joins
//! the worker, the devices and the sockets, and speaks to the person at the terminal.
#![forbid(unsafe_code)]
#![deny(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "whoever reads standard output may be gone: see `lab::print`"
)]

#[macro_use]
extern crate lab;

mod connect;
mod doctor;
mod inspect;
mod operate;
mod pages;
mod reach;
mod top;
mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lab::{bench, calibrate, demo, print, reproduce};
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
    /// Start a new server that takes over from the running one, with its connections
    Upgrade(upgrade::Args),
    /// Measure a server or a local device
    Bench(bench::Arguments),
    /// Print the `nvme connect` lines that mount volumes on a Linux host, or run them
    Connect(connect::Args),
    /// Measure what a device can do, and write a device model
    Calibrate(calibrate::Args),
    /// Show what it does: four tenants on one drive, without and with promises
    Demo(demo::Args),
    /// Make, change, remove and show the tenants of a running server
    Tenant(operate::TenantArgs),
    /// Check and show configuration files
    Config(inspect::Args),
    /// Make, change, remove and show the namespaces of a running server
    Namespace(operate::NamespaceArgs),
    /// Make, change, remove and show the NVMe subsystems of a running server
    Subsystem(operate::SubsystemArgs),
    /// Say what is known of NVMe hosts: their tenants and keys
    Host(operate::HostArgs),
    /// Open and close listeners of a running server, show them, and say how namespaces are reached there
    Listener(operate::ListenerArgs),
    /// Open, change and close devices of a running server, show them, and measure them anew
    Device(operate::DeviceArgs),
    /// Show, add and retire the workers of a running server
    Worker(operate::WorkerArgs),
    /// Show the connections of a running server, and move them between workers
    Conn(operate::ConnArgs),
    /// Have a running server let nobody in any more, and end when nobody is connected
    Drain(operate::DrainArgs),
    /// Watch a running server: tenants against their SLOs, devices, workers
    Top(top::Args),
    /// Write down the way of some requests through a running server, for Perfetto and Chrome
    Trace(trace::Args),
    /// Look at this machine as a server of flash, and say what to change
    Doctor(doctor::Args),
    /// Make the figures and tables of the ReFlex paper anew, beside the paper's
    Reproduce(reproduce::Args),
    /// Print completions for a shell
    Completions(pages::CompletionArgs),
    /// Write manual pages
    Man(pages::ManArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (form, filter) = match &cli.command {
        Command::Serve(args) => args.log(),
        _ => (log::Form::Text, None),
    };
    let result = log::start(form, filter).and_then(|()| {
        keep_secrets(&cli.command);
        print::run(|| run(cli.command))
    });
    match result {
        Ok(code) => code,
        Err(error) => {
            log::say(error);
            ExitCode::FAILURE
        }
    }
}

/// Servers have keys and data in their memory, commands at least tokens, and many of them keys.
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
        Command::Demo(args) => demo::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Bench(arguments) => Ok(bench::main(&arguments)),
        Command::Connect(args) => connect::run(&args),
        Command::Calibrate(args) => Ok(calibrate::main(&args)),
        Command::Tenant(args) => operate::tenant(&args),
        Command::Config(args) => inspect::run(&args),
        Command::Namespace(args) => operate::namespace(&args),
        Command::Subsystem(args) => operate::subsystem(&args),
        Command::Host(args) => operate::host(&args),
        Command::Listener(args) => operate::listener(&args),
        Command::Device(args) => operate::device(&args),
        Command::Worker(args) => operate::worker(&args),
        Command::Conn(args) => operate::conn(&args),
        Command::Drain(args) => operate::drain(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => pages::completions(&args),
        Command::Man(args) => pages::man(&args),
    }
}
