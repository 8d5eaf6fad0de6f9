//! The options of `cargo xtask bench`, and the settings that they give to all measurements of a
//! run.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::flash::FlashOptions;
use super::link::Link;
use super::packets::PacketsOptions;
use super::servers::Yardstick;

/// The program that makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// The load generator of `nearflash bench`.
    Nearflash,
    /// The example `hammer`, which checks only lengths of replies. It keeps up with every server,
    /// but has no open loop.
    Hammer,
}

/// Options of `cargo xtask bench`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchOptions {
    #[command(subcommand)]
    pub(crate) other: Option<OtherBench>,
    /// Measure only the rows whose names contain one of these. `ops`, alone or with names of tests,
    /// measures the cost of operating a server instead.
    pub(crate) rows: Vec<String>,
    /// Take fewer and shorter measurements: an impression, not a result.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure for this many seconds each time.
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
    /// Measure each side this many times.
    #[arg(long)]
    pub(crate) repetitions: Option<usize>,
    /// Make the load with this client.
    #[arg(long, value_enum, default_value = "nearflash")]
    pub(crate) client: Client,
    /// Measure this yardstick in the place of the server (to try the bench itself).
    #[arg(long, value_enum)]
    pub(crate) stand_in: Option<Yardstick>,
    /// Compare each row's rate or latency with that of this other build of the server, in place of
    /// the row's yardstick.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "stand_in")]
    pub(crate) before: Option<PathBuf>,
    /// Put a cable between two network namespaces in the place of loopback (as root).
    #[arg(long)]
    pub(crate) veth: bool,
    /// Write the table, with the machine and the command lines, to this markdown file.
    #[arg(short, long)]
    pub(crate) output: Option<PathBuf>,
}

/// The measurements that have a table of their own.
#[derive(Subcommand)]
pub(crate) enum OtherBench {
    /// Measure packets beside TCP between two network namespaces (as root)
    Packets(PacketsOptions),
    /// Measure flash translation and mounted file systems beside what they stand on
    Flash(FlashOptions),
}

/// The settings that all measurements of a run share.
pub(crate) struct Settings {
    pub(crate) client: Client,
    pub(crate) stand_in: Option<Yardstick>,
    /// The other build of the server that every row is compared with.
    pub(crate) before: Option<&'static Path>,
    pub(crate) seconds: u64,
    pub(crate) repetitions: usize,
    pub(crate) quick: bool,
    pub(crate) link: Link,
}
