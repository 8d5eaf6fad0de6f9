//! `nearflash bench`: makes load on a server or a local device, and reports the results.
//!
//! The load itself is `client::load`. This module has the command line, the threads, the progress
//! bar, the log of latencies and the exit code (0: success, 1: errors or verification failures, 2:
//! invalid command line).

mod arguments;
mod block_server;
mod job;
mod live;
mod log;
mod nbd;
mod nvme;
mod plan;
mod problem;
mod survey;
mod target;
mod threads;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use client::load::Tally;

use crate::report::Report;
pub use arguments::Arguments;
use live::BenchProgress;
use log::Log;
use plan::Plan;
use problem::Problem;
pub(crate) use threads::connect;

/// Runs the command, and returns its exit code.
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

/// Runs `nearflash bench` with these command-line words inside this process, for other commands of
/// the program. Returns the report, or the reason of the failure.
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

/// The environment variable with which a load ends when its standard input ends. It is for tests;
/// rates still count the seconds of the option.
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
    let mut live = BenchProgress::new(plan.warmup, plan.seconds);
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
