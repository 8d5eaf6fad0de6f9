//! The project's chores: `cargo xtask ci`, `soak`, `tidy`, `bench`, `takeover`, `siege`, `cost`,
//! `sim`, `figures`, `fuzz`, `fio-engine`, `interop`, `package`.
//!
//! Nothing here is shipped. `bench`, `takeover`, `siege`, `cost`, `fio-engine` and `interop` belong
//! to the package `trials`, which is built when one of them is asked for. What a chore needs beyond
//! Rust it installs (as root, on Debian) or names.

#![allow(clippy::disallowed_methods, reason = "chores measure how long they take")]

mod ci;
mod lists;
mod manifest;
mod package;
mod runs;
mod soak;
mod tidy;
mod trials;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The chores of nearflash.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Options {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Runs the checks of every change; the last line is `N passed, M failed`.
    Ci(ci::CiOptions),
    /// Runs what takes hours, and writes a page of it.
    Soak(soak::SoakOptions),
    /// Checks the rules of the code that no compiler knows.
    Tidy(tidy::TidyOptions),
    /// Replays the simulated world.
    Sim(runs::SimOptions),
    /// Makes the figures in virtual time, and their page.
    Figures(runs::FiguresOptions),
    /// Fuzzes the sessions.
    Fuzz(runs::FuzzOptions),
    /// Measures the server beside its yardsticks.
    #[command(disable_help_flag = true)]
    Bench(trials::TrialArgs),
    /// Measures how a new process takes over connections under load.
    #[command(disable_help_flag = true)]
    Takeover(trials::TrialArgs),
    /// Attacks a server with connections of one tenant, and times the reads of others.
    #[command(disable_help_flag = true)]
    Siege(trials::TrialArgs),
    /// Counts what scheduling costs in instructions.
    #[command(disable_help_flag = true)]
    Cost(trials::TrialArgs),
    /// Lists the files that execute instructions in one read.
    #[command(disable_help_flag = true)]
    Way(trials::TrialArgs),
    /// Builds the engine for fio, and compares it with the program's own load.
    #[command(disable_help_flag = true)]
    FioEngine(trials::TrialArgs),
    /// Cuts power, kills servers, boots other kernels: ours among other people's programs.
    #[command(disable_help_flag = true)]
    Interop(trials::TrialArgs),
    /// Makes the portable program and packages of it.
    Package(package::PackageOptions),
}

fn main() -> ExitCode {
    xtask::exit_code(match Options::parse().chore {
        Chore::Ci(options) => ci::run(&options),
        Chore::Soak(options) => soak::run(&options),
        Chore::Tidy(options) => tidy::run(&options),
        Chore::Sim(options) => runs::sim(&options),
        Chore::Figures(options) => runs::figures(&options),
        Chore::Fuzz(options) => runs::fuzz(&options),
        Chore::Bench(options) => trials::run("bench", &options),
        Chore::Takeover(options) => trials::run("takeover", &options),
        Chore::Siege(options) => trials::run("siege", &options),
        Chore::Cost(options) => trials::run("cost", &options),
        Chore::Way(options) => trials::run("way", &options),
        Chore::FioEngine(options) => trials::run("fio-engine", &options),
        Chore::Interop(options) => trials::run("interop", &options),
        Chore::Package(options) => package::run(&options),
    })
}
