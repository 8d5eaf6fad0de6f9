//! Runs the simulated worlds and sieges of some seeds:
//! `nearflash-sim --seed N [--count M] [--only worlds|nbd|attached|packets|sieges] [--trace]`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nearflash_sim::{Arena, Mark, Marks, Sabotage, World, WorldKind, WorldTotals, besiege};

/// The number of seeds from which on every mark must have been reached.
const SEEDS_FOR_MARKS: u64 = 1000;

/// Without `--only`, one seed in so many also has a siege.
const SIEGE_EVERY: u64 = 10;

/// Without `--only`, one seed of so many has a world of each other kind as well.
const OTHER_EVERY: u64 = 3;

/// Without `--only`, worlds of other kinds are those of the first so many seeds, all of which have
/// been run.
const OTHER_SEEDS: u64 = 2000;

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
    /// moves, reuse, streams, successors or tenants.
    #[arg(long, value_parser = sabotage, default_value = "none")]
    sabotage: Sabotage,
    /// Run one part alone.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Print what happens.
    #[arg(long)]
    trace: bool,
}

/// A part of what a seed runs.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The worlds with NVMe hosts, with faults, in which nothing may be lost.
    Worlds,
    /// The worlds with clients of NBD.
    Nbd,
    /// The worlds with attached volumes.
    Attached,
    /// The worlds with clients over packets.
    Packets,
    /// The sieges, in which nobody may wait for an attacker.
    Sieges,
}

/// The totals of a run.
#[derive(Default)]
struct Totals {
    worlds: WorldTotals,
    sieges: Sieges,
}

/// The totals of the sieges.
#[derive(Default)]
struct Sieges {
    steps: u64,
    reads: u64,
    elapsed: Duration,
    longest: Duration,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (marks, mut arena) = (Marks::default(), Arena::default());
    let mut totals = Totals::default();
    for seed in options.seed..options.seed + options.count {
        let run = || live(seed, &options, &mut arena, &marks, &mut totals);
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            eprintln!("seed {seed} failed; replay it with: cargo xtask sim --seed {seed}");
            return ExitCode::FAILURE;
        }
    }
    print(options.count, &totals, &marks);
    let missing: Vec<_> = marks.missing().map(|(mark, _)| mark).collect();
    let is_all = options.only.is_none() && options.count >= SEEDS_FOR_MARKS;
    if is_all && !missing.is_empty() {
        eprintln!("never reached: {missing:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Runs the world and the siege of a seed.
fn live(seed: u64, options: &Options, arena: &mut Arena, marks: &Marks, totals: &mut Totals) {
    let is_run = |part, every| match options.only {
        Some(only) => only == part,
        None => seed.is_multiple_of(every),
    };
    let kinds = [
        (Part::Worlds, WorldKind::Hosts, 1),
        (Part::Nbd, WorldKind::Nbd, OTHER_EVERY),
        (Part::Attached, WorldKind::Attached, OTHER_EVERY),
        (Part::Packets, WorldKind::Packets, OTHER_EVERY),
    ];
    for (part, kind, every) in kinds {
        if !is_run(part, every) {
            continue;
        }
        let seed = match (options.only, kind) {
            (_, WorldKind::Hosts) | (Some(_), _) => seed,
            (None, _) => 1 + seed % OTHER_SEEDS,
        };
        let world = World::new(kind, seed, options.sabotage, arena, marks, options.trace);
        let outcome = world.run(arena);
        let total = &mut totals.worlds;
        total.steps += outcome.steps;
        total.requests += outcome.requests;
        total.elapsed += outcome.elapsed;
    }
    if is_run(Part::Sieges, SIEGE_EVERY) {
        let report = besiege(seed, options.sabotage, arena, marks);
        let total = &mut totals.sieges;
        total.steps += report.steps;
        total.reads += report.reads;
        total.elapsed += report.elapsed;
        total.longest = total.longest.max(report.longest);
    }
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
        "successors" => Sabotage::StrangeSuccessors,
        "tenants" => Sabotage::OneTenant,
        _ => {
            let names = "controllers, fences, locks, moves, reuse, streams, successors or tenants";
            return Err(format!("expected {names}"));
        }
    })
}

fn print(seeds: u64, totals: &Totals, marks: &Marks) {
    let Totals { worlds, sieges } = totals;
    let elapsed = |time: Duration| Duration::from_millis(time.as_millis() as u64);
    println!(
        "{seeds} seeds passed: {} steps, {} requests, {:?} of virtual time",
        worlds.steps,
        worlds.requests,
        elapsed(worlds.elapsed)
    );
    println!(
        "sieges: {} steps, {} reads, {:?} of virtual time, the longest read took {:?}",
        sieges.steps,
        sieges.reads,
        elapsed(sieges.elapsed),
        sieges.longest
    );
    for &(mark, meaning) in Mark::ALL {
        println!("{:>10}  {meaning}", marks.count(mark));
    }
}
