//! `cargo xtask bench flash`: measures flash translation and mounted file systems beside what they
//! stand on, in one run.
//!
//! Servers run on core 0 and the load on core 1. The sides of a row are measured in turns, and a
//! ratio is of the medians of one run. A row whose cores the machine took is not decided.

mod idle;
mod load;
mod mounted;
mod names;
mod setup;
mod streams;

use std::path::PathBuf;

use clap::Args;

use super::packets::judge::Comparison;
use super::packets::table;
use super::{machine, process, servers};
use setup::Setup;
use xtask::{page, shell};

/// Options of `cargo xtask bench flash`.
#[derive(Args)]
pub(crate) struct FlashOptions {
    /// Measure each side this many times
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Measure for this many seconds each time
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Measure only the rows whose names contain one of these
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// Put the files of the rows that need a disk into this folder [default: the target folder]
    #[arg(long, value_name = "FOLDER")]
    disk: Option<PathBuf>,
    /// Measure this program [default: it is built as it is shipped]
    #[arg(long, value_name = "PATH")]
    nearflash: Option<PathBuf>,
    /// Write the table, with the machine and the command lines, to this Markdown file
    #[arg(short, long)]
    output: Option<PathBuf>,
}

/// A row of the table: its name, `true` if it needs root, and its measurement.
type Row = (&'static str, bool, fn(&mut Setup) -> Result<Vec<Comparison>, String>);

/// All rows, in the order of the table.
const ROWS: [Row; 4] = [
    ("stream", false, streams::measure),
    ("mount", true, mounted::measure),
    ("names", true, names::measure),
    ("idle", true, idle::measure),
];

/// Measures the chosen rows, and prints their figures and the verdicts. Fails if there is no such
/// row or a server does not start; a missed target is no failure.
pub(super) fn run(options: &FlashOptions) -> Result<(), String> {
    let is_chosen = |row: &&Row| {
        options.only.is_empty() || options.only.iter().any(|word| row.0.contains(word.as_str()))
    };
    let chosen: Vec<&Row> = ROWS.iter().filter(is_chosen).collect();
    if chosen.is_empty() {
        return Err(format!("no such row; there are: {}", ROWS.map(|row| row.0).join(", ")));
    }
    build(options)?;
    process::raise_descriptor_limit()?;
    let machine = machine::describe();
    println!("{machine}\n");
    let program = options.nearflash.clone().unwrap_or_else(|| servers::built("nearflash"));
    let disk = options.disk.clone().unwrap_or_else(|| shell::root().join("target"));
    let mut setup = Setup::new(program, &disk, options.rounds.max(1), options.seconds)?;
    let mut measured = Vec::new();
    for (name, needs_root, measure) in chosen {
        if *needs_root && !shell::is_root() {
            println!("left out: {name}: only root can mount file systems");
            continue;
        }
        println!("measuring {name} …");
        measured.extend(measure(&mut setup)?);
    }
    let text = table::markdown(&measured, "side");
    println!("\n{text}");
    if let Some(path) = &options.output {
        let document = document(&machine.to_string(), &text, &setup.commands());
        page::write(path, &document)?;
    }
    Ok(())
}

/// Builds the program and the yardstick as they are shipped.
fn build(options: &FlashOptions) -> Result<(), String> {
    let base = ["build", "--profile", "dist", "--package"];
    if options.nearflash.is_none() {
        shell::show(&mut shell::cargo(&[&base[..], &["nearflash-cli"]].concat()))?;
    }
    let example = ["nearflash-io", "--example", "fuse_null"];
    shell::show(&mut shell::cargo(&[&base[..], &example].concat()))
}

/// Returns a page of results in Markdown: the machine, the tables and the command lines.
fn document(machine: &str, table: &str, commands: &str) -> String {
    format!(
        "# Flash translation and mounted files beside what they stand on\n\nMade by `cargo xtask \
         bench flash`: servers on core 0, the load on core 1, all sides of a row in turns\nin one \
         run.\n\n```text\n{machine}\n```\n\n{table}\nThe command lines:\n\n```sh\n{commands}```\n"
    )
}
