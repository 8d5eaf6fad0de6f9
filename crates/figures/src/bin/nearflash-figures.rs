//! Prints figures of the virtual world as Markdown, or makes a page of them:
//! `nearflash-figures [--quick] [--seed N] [--page FILE] [NAME…]`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use nearflash_figures::{ALL, Options};

/// Makes the figures that need no real machine.
#[derive(Parser)]
struct Arguments {
    /// Names of the figures to make. By default all.
    names: Vec<String>,
    /// The seed of random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Shorter runs, with fewer points.
    #[arg(long)]
    quick: bool,
    /// Write them to this file, with a heading, instead of printing them.
    #[arg(long)]
    page: Option<PathBuf>,
}

const HEADING: &str = "# Figures in virtual time

Made by `cargo xtask figures`, and the same on every machine: real workers, sessions and schedulers, simulated flash and a virtual
clock, all from one seed. What is simulated, what it is charged for, and how to make these figures is in
[reproduce.md](../how-to/reproduce.md). Short runs of the same are tests (`crates/figures/tests/all/figures.rs`). What is marked MISSED is missed.

";

fn main() -> ExitCode {
    let Arguments { names, seed, quick, page } = Arguments::parse();
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|(known, _)| known != name)) {
        let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        eprintln!("there is no figure {unknown}; there are {}", known.join(", "));
        return ExitCode::FAILURE;
    }
    let mut text = HEADING.to_string();
    for (name, make) in ALL {
        if !names.is_empty() && names.iter().all(|wanted| wanted != name) {
            continue;
        }
        let figure = make(&Options { seed, quick }).to_markdown();
        match &page {
            None => println!("{figure}"),
            Some(_) => {
                eprintln!("{name}");
                let _ = writeln!(text, "{figure}");
            }
        }
    }
    if let Some(path) = page
        && let Err(error) = std::fs::write(&path, text.trim_end().to_string() + "\n")
    {
        eprintln!("cannot write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
