//! Prints figures of the virtual world as Markdown: `nearflash-figures [--quick] [--seed N] [NAME…]`.

use std::process::ExitCode;

use clap::Parser;
use nearflash_sim::figures::{ALL, Options};

/// Makes the figures that need no real machine.
#[derive(Parser)]
struct Arguments {
    /// Which; all unless told.
    names: Vec<String>,
    /// Where chance starts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Shorter runs, with fewer points.
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    let Arguments { names, seed, quick } = Arguments::parse();
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|(known, _)| known != name)) {
        let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        eprintln!("there is no figure {unknown}; there are {}", known.join(", "));
        return ExitCode::FAILURE;
    }
    for (name, make) in ALL {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            println!("{}", make(&Options { seed, quick }).to_markdown());
        }
    }
    ExitCode::SUCCESS
}
