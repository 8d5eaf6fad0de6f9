//! `cargo xtask way`: lists the files of this repository that execute instructions in one read.
//!
//! The load of `cargo xtask cost` runs under callgrind, which counts instructions by source line,
//! and inlined code in the file that contains it. Two lengths of the run are subtracted, which
//! leaves what reads execute, without start and end. A turn serves a full batch of 64 reads: a file
//! that executes less than one instruction a read belongs to the turn rather than to the read, and
//! is left out.
//!
//! Deliberately left out: the standard library, other people's crates, and the load's own code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs, process};

use clap::{Args, ValueEnum};

use crate::cost;
use xtask::shell;

/// Options of `cargo xtask way`.
#[derive(Args)]
pub(crate) struct ReadPathOptions {
    /// Network of the worker; a network of memory executes nothing of `crates/io`
    #[arg(long, value_enum, default_value_t = Network::Sockets)]
    network: Network,
    /// Reads of the shorter run; the longer one has twice as many
    #[arg(long, default_value_t = 40_000)]
    reads: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Network {
    Sockets,
    Memory,
}

/// Number of tenants of the load, each with one connection.
const TENANTS: u64 = 4;

/// The minimum number of instructions for each read at which the table lists a file.
const LEAST: f64 = 1.0;

/// The targets: the maximum number of listed files, and the maximum number of lines of each.
const FILES_MAX: usize = 14;
const LINES_MAX: usize = 500;

/// Instructions by source file, by its path in the repository.
type Counts = BTreeMap<String, i64>;

/// Measures and prints the table. Prints a note instead if valgrind is missing.
pub(crate) fn run(options: &ReadPathOptions) -> Result<(), String> {
    if !shell::has_program("valgrind") {
        println!("left out: the way of a read: valgrind is not installed");
        return Ok(());
    }
    cost::build()?;
    let network = match options.network {
        Network::Sockets => "sockets",
        Network::Memory => "memory",
    };
    let short = counts(network, options.reads)?;
    let long = counts(network, 2 * options.reads)?;
    println!("files of ours in one read ({network}, {TENANTS} connections, full batches)\n");
    println!("| file | lines | instructions a read |");
    println!("|---|---|---|");
    let mut way = way(&short, &long, options.reads);
    way.sort_by(|a, b| b.1.total_cmp(&a.1));
    let lines = |file: &str| fs::read_to_string(shell::root().join(file)).unwrap_or_default();
    let mut longer = 0;
    for (file, each) in &way {
        let lines = lines(file).lines().count();
        longer += usize::from(lines > LINES_MAX);
        println!("| {file} | {lines} | {each:.1} |");
    }
    let sum: f64 = way.iter().map(|(_, each)| each).sum();
    println!("\n{} files (aim: {FILES_MAX}), {sum:.0} instructions a read", way.len());
    println!("{longer} of them longer than {LINES_MAX} lines (aim: 0)");
    Ok(())
}

/// Runs the load with this many reads, and returns the instructions of each source file.
fn counts(network: &str, reads: u64) -> Result<Counts, String> {
    let profile = env::temp_dir().join(format!("nearflash-way-{}", process::id()));
    let counted = cost::counted(&["token", network], TENANTS, reads, &profile);
    let text = fs::read_to_string(&profile).map_err(|error| error.to_string());
    let _gone = fs::remove_file(&profile);
    counted?;
    Ok(by_file(&text?, |path| ours(&shell::root(), path)))
}

/// Returns a file's path in the repository; `None` unless it is a source file of a crate of ours.
fn ours(root: &Path, path: &str) -> Option<String> {
    let path = path.strip_prefix(&format!("{}/", root.display())).unwrap_or(path);
    let is_source = path.starts_with("crates/") && path.contains("/src/");
    (is_source && root.join(path).exists()).then(|| path.to_owned())
}

/// Adds up a profile of callgrind by file. Lines of costs belong to the last file that was named.
/// The line behind `calls=` has the cost of the callee and is left out; the callee's file may be
/// named before it.
fn by_file(profile: &str, ours: impl Fn(&str) -> Option<String>) -> Counts {
    let (mut names, mut counts) = (BTreeMap::new(), Counts::new());
    let mut file = None;
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        let words = ["fl=", "fi=", "fe=", "cfl=", "cfi="];
        let named = words.iter().find_map(|word| line.strip_prefix(word));
        if let Some(named) = named {
            // `(7) path` gives a number, `(7)` refers to it.
            let (number, path) = named.split_once(' ').unwrap_or((named, ""));
            if !path.is_empty() {
                names.insert(number, ours(path));
            }
            if !line.starts_with('c') {
                file = names.get(number).cloned().flatten();
            }
        } else if line.starts_with("calls=") {
            lines.next();
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            && let Some(file) = &file
        {
            let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse::<i64>().ok());
            *counts.entry(file.clone()).or_default() += cost.unwrap_or(0);
        }
    }
    counts
}

/// Returns the files with their instructions for each read, from the difference of two runs: `long`
/// has `reads` reads more than `short`. Files below [`LEAST`] are left out.
fn way(short: &Counts, long: &Counts, reads: u64) -> Vec<(String, f64)> {
    let of = |counts: &Counts, file: &String| counts.get(file).copied().unwrap_or(0);
    let files: BTreeSet<&String> = short.keys().chain(long.keys()).collect();
    let each = |file: &String| (of(long, file) - of(short, file)) as f64 / reads as f64;
    let each = files.into_iter().map(|file| (file.clone(), each(file)));
    each.filter(|(_, each)| *each >= LEAST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_added_up_by_file_without_what_is_called() {
        let profile = "events: Ir\nfl=(1) crates/a/src/lib.rs\nfn=(1) f\n10 5\n+1 2\nfi=(2) /std.rs\n\
                       7 100\nfe=(1)\n* 3\ncfi=(3) crates/b/src/b.rs\ncfn=(2)\ncalls=1 2\n12 1000\n-3 1\n\
                       fl=(3)\nfn=(3) g\n1 4\ntotals: 115\n";
        let ours = |path: &str| path.starts_with("crates/").then(|| path.to_owned());
        let counts = by_file(profile, ours);
        assert_eq!(counts["crates/a/src/lib.rs"], 11);
        assert_eq!(counts["crates/b/src/b.rs"], 4);
        assert_eq!(counts.len(), 2);
    }

    #[test]
    fn what_a_turn_executes_once_is_not_on_the_way() {
        let counts = |read: i64, turn: i64| {
            Counts::from([("read".to_owned(), read), ("turn".to_owned(), turn)])
        };
        let found = way(&counts(1_000, 40), &counts(2_500, 90), 100);
        assert_eq!(found, [("read".to_owned(), 15.0)]);
    }
}
