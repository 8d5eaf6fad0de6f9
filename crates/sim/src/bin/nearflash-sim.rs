//! Runs the simulated worlds of some seeds: `nearflash-sim --seed N [--count M] [--trace]`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nearflash_sim::{Arena, Mark, Marks, Outcome, Sabotage, World};

/// The number of seeds from which on every mark must have been reached.
const SEEDS_FOR_MARKS: u64 = 1000;

/// Runs simulated worlds and checks them.
#[derive(Parser)]
struct Options {
    /// The first seed.
    #[arg(long)]
    seed: u64,
    /// The number of consecutive seeds.
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Break a promise of the server, to show that the checkers notice: controllers, fences, locks,
    /// moves, streams or reuse.
    #[arg(long, value_parser = sabotage, default_value = "none")]
    sabotage: Sabotage,
    /// Print what happens.
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (marks, mut arena) = (Marks::default(), Arena::default());
    let mut total = Outcome::default();
    for seed in options.seed..options.seed + options.count {
        let run = || {
            let world = World::new(seed, options.sabotage, &mut arena, &marks, options.trace);
            world.run(&mut arena)
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(outcome) => add(&mut total, outcome),
            Err(_) => {
                eprintln!("seed {seed} failed; replay it with: cargo xtask sim --seed {seed}");
                return ExitCode::FAILURE;
            }
        }
    }
    print(options.count, &total, &marks);
    let missing: Vec<_> = marks.missing().map(|(mark, _)| mark).collect();
    if options.count >= SEEDS_FOR_MARKS && !missing.is_empty() {
        eprintln!("never reached: {missing:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn sabotage(name: &str) -> Result<Sabotage, String> {
    Ok(match name {
        "none" => Sabotage::None,
        "controllers" => Sabotage::UnfencedControllers,
        "fences" => Sabotage::SeparateFences,
        "locks" => Sabotage::SeparateLocks,
        "moves" => Sabotage::DoubledMoves,
        "reuse" => Sabotage::EarlyReuse,
        "streams" => Sabotage::ScatteredStreams,
        _ => {
            return Err("expected controllers, fences, locks, moves, streams or reuse".to_owned());
        }
    })
}

fn add(total: &mut Outcome, outcome: Outcome) {
    total.steps += outcome.steps;
    total.requests += outcome.requests;
    total.elapsed += outcome.elapsed;
}

fn print(seeds: u64, total: &Outcome, marks: &Marks) {
    let elapsed = Duration::from_millis(total.elapsed.as_millis() as u64);
    println!(
        "{seeds} seeds passed: {} steps, {} requests, {elapsed:?} of virtual time",
        total.steps, total.requests
    );
    for &(mark, meaning) in Mark::ALL {
        println!("{:>10}  {meaning}", marks.count(mark));
    }
}
