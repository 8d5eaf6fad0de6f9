//! `cargo xtask bench packets`: measures packets beside TCP, in one run, between two network
//! namespaces with a virtual cable.
//!
//! The server runs on core 0 and the client on core 1. The sides of a row are measured in turns,
//! and a ratio is of the medians of one run. veth runs the receiver's part of the network on the
//! sender's core. A row whose cores the machine took is not decided.

mod beside;
mod fixture;
pub(crate) mod forge;
mod forged;
mod idle;
pub(super) mod judge;
mod loads;
pub(super) mod table;
mod transport;
mod upgrade;
pub(super) mod watch;

use std::path::PathBuf;

use clap::Args;

use super::link::Link;
use super::{machine, process, secrets, servers};
use fixture::Cable;
use judge::Comparison;
use loads::Load;
use xtask::{page, shell};

/// Options of `cargo xtask bench packets`.
#[derive(Args)]
pub(crate) struct PacketsOptions {
    /// Measure each side this many times
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Measure for this many seconds each time
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Measure only the rows whose names contain one of these
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// Let the cable carry frames of this many bytes
    #[arg(long, default_value_t = 9000)]
    mtu: u32,
    /// Measure this program [default: it is built as it is shipped]
    #[arg(long, value_name = "PATH")]
    nearflash: Option<PathBuf>,
    /// Write the table, with the machine and the command lines, to this Markdown file
    #[arg(short, long)]
    output: Option<PathBuf>,
}

/// A row of the table: its name, and its measurement.
struct Row {
    name: &'static str,
    kind: Kind,
}

enum Kind {
    /// A load over several transports.
    Load(Load),
    /// The cost of a listener of packets for connections over TCP.
    Beside,
    /// The share that idle connections take.
    Idle,
    /// The effect of forged packets on reads.
    Forged,
    /// The pause of clients in an upgrade.
    Upgrade,
}

/// Returns all rows, in the order of the table.
fn rows() -> Vec<Row> {
    let loads = loads::all().into_iter();
    let mut rows: Vec<Row> =
        loads.map(|load| Row { name: load.name, kind: Kind::Load(load) }).collect();
    rows.push(Row { name: "beside", kind: Kind::Beside });
    rows.push(Row { name: "idle", kind: Kind::Idle });
    rows.push(Row { name: "forged", kind: Kind::Forged });
    rows.push(Row { name: "upgrade", kind: Kind::Upgrade });
    rows
}

/// Measures the chosen rows, and prints their figures and the verdicts. Fails if there is no such
/// row or a server does not start; a missed target is no failure.
pub(super) fn run(options: &PacketsOptions) -> Result<(), String> {
    let mut chosen: Vec<Row> = rows();
    chosen.retain(|row| is_chosen(options, row.name));
    if chosen.is_empty() {
        let names: Vec<&str> = rows().iter().map(|row| row.name).collect();
        return Err(format!("no such row; there are: {}", names.join(", ")));
    }
    if !shell::is_root() {
        let (may, need_root): (Vec<Row>, Vec<Row>) =
            chosen.into_iter().partition(|row| matches!(row.kind, Kind::Upgrade));
        for row in need_root {
            println!("left out: {}: only root can make network namespaces", row.name);
        }
        if may.is_empty() {
            return Ok(());
        }
        chosen = may;
    }
    let program = match &options.nearflash {
        Some(path) => {
            path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?
        }
        None => build()?,
    };
    process::raise_descriptor_limit()?;
    let machine = machine::describe();
    println!("{machine}\n");
    let key = secrets::packet_key()?;
    let link = match shell::is_root() {
        true => Link::veth_of_frames(options.mtu)?,
        false => Link::Loopback,
    };
    let mut bed = Cable::new(program, link, key, options.rounds.max(1), options.seconds)?;
    let mut measured = Vec::new();
    for row in &chosen {
        println!("measuring {} …", row.name);
        measured.extend(measure(&mut bed, row));
    }
    let text = table::markdown(&measured, "transport");
    println!("\n{text}");
    if let Some(path) = &options.output {
        let document = table::document(&machine.to_string(), options.mtu, &text, bed.commands());
        page::write(path, &document)?;
    }
    Ok(())
}

fn is_chosen(options: &PacketsOptions, name: &str) -> bool {
    options.only.is_empty() || options.only.iter().any(|word| name.contains(word.as_str()))
}

fn measure(bed: &mut Cable, row: &Row) -> Vec<Comparison> {
    match &row.kind {
        Kind::Load(load) => vec![load.measure(bed)],
        Kind::Beside => beside::measure(bed),
        Kind::Idle => idle::measure(bed),
        Kind::Forged => forged::measure(bed),
        Kind::Upgrade => upgrade::measure(bed),
    }
}

/// Builds the program as it is shipped, and returns its path.
fn build() -> Result<PathBuf, String> {
    let words = ["build", "--profile", "dist", "--package", "nearflash-cli"];
    shell::show(&mut shell::cargo(&words))?;
    Ok(servers::built("nearflash"))
}
