//! `nearflash bench`: makes load on a server or a local device, and says how it went.
//!
//! The load itself is `client::load`; here are its command line, its threads, the progress bar, the
//! log of latencies and the exit code (0: all went well, 1: errors or verification failures,
//! 2: the command line makes no sense).

mod live;
mod log;
mod nvme;
mod plan;
mod survey;
mod target;
mod threads;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use client::load::{Arrival, Pattern, Tally};

use crate::report::Report;
use live::Live;
use log::Log;
use plan::{Plan, Problem};
use target::Target;
pub(crate) use threads::{End, connect};

/// Makes load on a server or a local device and measures it.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// `reflex://HOST:PORT` or `reflex+unix:PATH` (with `?v=1` for version 1 of the protocol; the
    /// default is `?v=2`), `nvme-tcp://HOST:PORT/NQN` (with `?nsid=N`, `digests=header|data|both`,
    /// `in_capsule=false`, `host=NQN`) or a device such as `null:1GiB`, `mem:1GiB`, `sim:a` or
    /// `file:PATH?size=1GiB`
    target: Target,
    /// Share of reads among the requests, 0 to 100
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 100,
        value_parser = clap::value_parser!(u8).range(0..=100)
    )]
    read_percent: u8,
    /// Bytes of a request (`4KiB`): a multiple of 512, at most 1MiB
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = plan::parse_block_size)]
    block_size: usize,
    /// Requests in flight on each connection; with --rate, the maximum of unanswered requests
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    queue_depth: u32,
    /// Number of connections over all threads [default: one for each thread]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65536))]
    connections: Option<u32>,
    /// Number of threads that make load
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Open loop: requests a second over all connections. Latency counts from when a request was
    /// meant to be sent. Without this option the loop is closed: each ended request is followed by
    /// the next
    #[arg(long, value_name = "IOPS", value_parser = plan::parse_rate)]
    rate: Option<f64>,
    /// Distribution of the arrivals of an open loop
    #[arg(long, value_enum, default_value_t = ArrivalName::Poisson)]
    arrival: ArrivalName,
    /// Pattern of addresses: `random`, `sequential` or `zipf:THETA` (`zipf:0.99`)
    #[arg(long, default_value = "random", value_parser = plan::parse_pattern)]
    pattern: Pattern,
    /// Use only the first bytes of the target (`64MiB`) [default: all]
    #[arg(long, value_name = "BYTES", value_parser = plan::parse_size)]
    span: Option<u64>,
    /// Seconds to measure
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = plan::parse_seconds)]
    seconds: Duration,
    /// Seconds to warm up, which are not measured
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = plan::parse_warmup)]
    warmup: Duration,
    /// Verify: write blocks that say where they belong, and check what is read. This overwrites the
    /// span
    #[arg(long)]
    verify: bool,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
    /// Write a log of latencies in the HdrHistogram format, one line a second
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Number of the namespace [default: the server's]
    #[arg(long, value_name = "NUMBER")]
    namespace: Option<u16>,
    /// Token to present; others on this machine can see it in `ps`
    #[arg(long)]
    token: Option<String>,
    /// Tenant that pays for the requests
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Seed of random choices, to repeat the same requests
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Make writes durable before they are acknowledged
    #[arg(long)]
    fua: bool,
    /// Ask for checksums of payloads
    #[arg(long)]
    checksums: bool,
    /// Probe: measure a read every millisecond on a connection of its own
    #[arg(long)]
    probe: bool,
    /// Never sleep: lowest latency, at the cost of a core for each thread
    #[arg(long)]
    spin: bool,
    #[command(flatten)]
    nvme: nvme::Keys,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ArrivalName {
    /// Independent of each other
    Poisson,
    /// Evenly spaced, reads and writes evenly mixed
    Constant,
}

impl From<ArrivalName> for Arrival {
    fn from(name: ArrivalName) -> Arrival {
        match name {
            ArrivalName::Poisson => Arrival::Poisson,
            ArrivalName::Constant => Arrival::Constant,
        }
    }
}

/// Runs the command; the exit code says how it went.
pub fn main(arguments: &Arguments) -> ExitCode {
    match run(arguments) {
        Ok(report) => {
            if arguments.json {
                outln!("{}", report.json());
            } else {
                out!("{}", report.table());
            }
            if report.is_good() { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(Problem::Usage(text)) => {
            errln!("error: {text}\n\nFor more information, try 'nearflash bench --help'.");
            ExitCode::from(2)
        }
        Err(Problem::Failed(text)) => {
            errln!("error: {text}");
            ExitCode::from(1)
        }
    }
}

/// Measures as the command with these words would, for other commands of this program.
pub(crate) fn measure<'a>(words: impl Iterator<Item = &'a &'a str>) -> Result<Report, String> {
    let arguments = Words::try_parse_from(words).map_err(|error| error.to_string())?.arguments;
    run(&arguments).map_err(|problem| match problem {
        Problem::Usage(text) | Problem::Failed(text) => text,
    })
}

#[derive(Debug, Parser)]
struct Words {
    #[command(flatten)]
    arguments: Arguments,
}

/// With this in the environment the load ends when standard input does. For tests whose load lasts
/// for as long as something else; its rates count the seconds that were meant all the same.
const STOP: &str = "NEARFLASH_BENCH_STOP";

fn run(arguments: &Arguments) -> Result<Report, Problem> {
    let plan = Plan::new(arguments)?;
    let mut log = match &arguments.hdr {
        None => None,
        Some(path) => Some(Log::create(path)?),
    };
    let crew = threads::start(&plan)?;
    if std::env::var_os(STOP).is_some() {
        let stop = crew.stopper();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink()); // nothing but its end counts
            stop();
        });
    }
    let mut live = Live::new(plan.warmup, plan.seconds);
    let mut total = Tally::new();
    let mut second = Tally::new();
    loop {
        let finished = crew.wait(Duration::from_millis(200));
        crew.collect(&mut second);
        for note in crew.notes() {
            live.note(&note);
        }
        if let Some(log) = &mut log {
            log.add(&second)?;
        }
        live.show(&second);
        total.add(&second);
        second.reset();
        if finished {
            break;
        }
    }
    live.finish();
    if let Some(log) = log {
        log.finish()?;
    }
    let end = crew.join()?;
    Ok(Report::new(
        &plan.headline,
        arguments.block_size,
        plan.seconds,
        total,
        end,
        plan.probe.is_some(),
    ))
}
