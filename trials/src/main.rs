//! Trials that are too hard or too slow for a test: `cargo xtask interop`, `bench`, `takeover`,
//! `siege`, `cost`, `way` and `fio-engine` hand on to this program.
//!
//! It starts the workspace's programs as processes and depends on none of them, so other chores do
//! not have to build what only a trial needs.

#![allow(clippy::disallowed_methods, reason = "trials measure how long things take")]

mod bench;
mod certificate;
mod cost;
mod interop;
mod read_path;
mod siege;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Run the trials of nearflash
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Options {
    #[command(subcommand)]
    trial: Trial,
}

#[derive(Subcommand)]
enum Trial {
    /// Measure the server beside its yardsticks
    Bench(bench::BenchOptions),
    /// Measure how a new process takes over connections under load
    Takeover(bench::takeover::TakeoverOptions),
    /// Attack the server with connections of one tenant, and time the reads of others
    Siege(siege::SiegeOptions),
    /// Count the instructions that scheduling costs
    Cost(cost::CostOptions),
    /// Lists the files that execute instructions in one read.
    Way(read_path::ReadPathOptions),
    /// Builds the engine for fio, and compares it with the program's own load.
    FioEngine(interop::fio::EngineOptions),
    /// Send forged packets
    #[command(hide = true)]
    Forge(bench::packets::forge::ForgeOptions),
    /// Receive packets and throw them away
    #[command(hide = true)]
    Sink(bench::packets::forge::SinkOptions),
    /// Cuts power, kills servers, boots other kernels: ours among other people's programs.
    Interop(interop::InteropOptions),
}

fn main() -> ExitCode {
    xtask::exit_code(match Options::parse().trial {
        Trial::Bench(options) => bench::run(&options),
        Trial::Takeover(options) => bench::takeover::run(&options),
        Trial::Siege(options) => siege::run(&options),
        Trial::Cost(options) => cost::run(&options),
        Trial::Way(options) => read_path::run(&options),
        Trial::FioEngine(options) => interop::fio::build(&options),
        Trial::Forge(options) => bench::packets::forge::run(&options),
        Trial::Sink(options) => bench::packets::forge::sink(&options),
        Trial::Interop(options) => interop::run(&options),
    })
}
