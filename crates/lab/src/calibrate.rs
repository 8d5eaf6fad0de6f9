//! `nearflash calibrate`: measures the rates of a device at several tail latencies and the prices
//! of requests, and writes them as a device model (docs/explanation/calibration.md).
//!
//! `qos::calibrate` chooses the loads and evaluates the results. This module has the command line,
//! the loads, the progress bar and the files. Exit codes: 0, a model was written; 1, the device
//! could not be measured, or no model fits; 2, invalid command line; 130, interrupted.

mod calibration_device;
mod findings;
mod live;
mod output;
mod picture;
mod precondition;
mod real_time;
mod stop;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dataplane::Volume;
use flash::{Source, Spec};
use io::Clock;
use qos::calibrate::{Calibration, CalibrationPlan, RunLengths};
use signal_hook::consts::{SIGINT, SIGTERM};

use calibration_device::CalibrationDevice;
use findings::Findings;
use live::CalibrationProgress;
use output::check_writable;
use stop::CalibrationError;

/// The minimum size of a device to measure: on a smaller one, requests collide.
const DEVICE_BYTES_MIN: u64 = 16 << 20;

/// The exit code after an interrupt.
const INTERRUPTED: u8 = 130;

/// Measure a device and write its device model
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Device to measure: `sim:a`, `file:/dev/disk/by-id/NAME`, `file:PATH?size=1GiB`
    #[arg(value_name = "SPEC")]
    spec: String,
    /// File for the device model (`disk.toml`); a plot goes beside it (`disk.svg`)
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Allow writes to overwrite a file or block device. Without this option only reads are
    /// measured, which is not enough for a model
    #[arg(long)]
    allow_writes: bool,
    /// Write the whole device first, in order and then at random, so that it is as slow as in use
    #[arg(long, requires = "allow_writes")]
    precondition: bool,
    /// Latencies to find rates for (`500us,2ms`)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_latency)]
    latency: Vec<u32>,
    /// Shares of reads of the mixes, in per cent; reads alone are always measured
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u8).range(0..=99)
    )]
    reads: Vec<u8>,
    /// Measure two latencies and three mixes, no sizes and no p99
    #[arg(long)]
    quick: bool,
    /// Measure simulated flash in real time, too, as other devices always are
    #[arg(long)]
    real_time: bool,
    /// The longest run in real time; short ones take a sixth of it
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_run_seconds)]
    run_seconds: f64,
    /// Number of threads that make load in real time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Name of the device in the model [default: its spec]
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Seed of random choices
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Runs the command, and returns its exit code.
pub fn main(args: &Args) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CalibrationError::Usage(text)) => {
            errln!("error: {text}\n\nFor more information, try 'nearflash calibrate --help'.");
            ExitCode::from(2)
        }
        Err(CalibrationError::Failed(text)) => {
            errln!("error: {text}");
            ExitCode::FAILURE
        }
        Err(CalibrationError::Interrupted) => {
            errln!("interrupted: no device model was written");
            ExitCode::from(INTERRUPTED)
        }
    }
}

fn run(args: &Args) -> Result<(), CalibrationError> {
    let spec: Spec = args.spec.parse().map_err(|e| CalibrationError::Usage(format!("{e}")))?;
    let plot = args.output.with_extension("svg");
    if plot == args.output {
        return Err(CalibrationError::Usage(
            "the plot goes to a .svg: name the model otherwise".to_owned(),
        ));
    }
    let writes = may_write(args, &spec);
    let course = course(args, &spec, writes);
    for path in [&args.output, &plot] {
        check_writable(path)?;
    }
    let interrupted = interrupted()?;
    let is_stopped = || interrupted.load(Ordering::Relaxed);
    let latency_us_max = course.latencies_us.iter().max().copied().unwrap_or(0);
    let mut bed = open(args, &spec, latency_us_max)?;
    if args.precondition {
        precondition::run(bed.volume(), &is_stopped)?;
    }
    if !writes {
        errln!("note: without --allow-writes only reads are measured: there will be no write cost");
    }
    let clock = Clock::start();
    let mut calibration = Calibration::new(course);
    let live = CalibrationProgress::new(&args.spec);
    while let Some(offer) = calibration.next_offer() {
        live.show(&calibration, &offer);
        let outcome = bed.offer(&offer, &is_stopped)?;
        calibration.take(offer, outcome);
    }
    live.finish();
    let findings = Findings {
        calibration: &calibration,
        device: args.name.as_deref().unwrap_or(&args.spec),
        spec: &args.spec,
        is_virtual: bed.is_virtual(),
        seed: args.seed,
        requests: bed.requests(),
        took: clock.now().since(contract::Instant::ZERO),
        writes,
    };
    findings.write(&args.output, &plot, args.json)
}

/// Returns true if writes are allowed. Devices private to this process may always be written to.
fn may_write(args: &Args, spec: &Spec) -> bool {
    args.allow_writes || !matches!(spec.source, Source::File { .. })
}

fn is_virtual(args: &Args, spec: &Spec) -> bool {
    matches!(spec.source, Source::Sim { .. }) && !args.real_time
}

fn course(args: &Args, spec: &Spec, writes: bool) -> CalibrationPlan {
    let effort = match is_virtual(args, spec) {
        true => RunLengths::VIRTUAL,
        false => RunLengths {
            short_seconds_max: args.run_seconds / 6.0,
            long_seconds_max: args.run_seconds,
            ..RunLengths::REAL
        },
    };
    let or = |given: &[u32], quick: &[u32], usual: &[u32]| match (given.is_empty(), args.quick) {
        (false, _) => given.to_vec(),
        (true, true) => quick.to_vec(),
        (true, false) => usual.to_vec(),
    };
    let mut latencies_us = or(&args.latency, &[500, 2_000], &CalibrationPlan::LATENCIES_US);
    latencies_us.sort_unstable();
    latencies_us.dedup();
    let read_percents = match (writes, args.reads.is_empty(), args.quick) {
        (false, ..) => Vec::new(),
        (true, false, _) => args.reads.clone(),
        (true, true, true) => vec![99, 90, 50],
        (true, true, false) => CalibrationPlan::READ_PERCENTS.to_vec(),
    };
    let sizes = if args.quick || !writes { Vec::new() } else { CalibrationPlan::SIZES.to_vec() };
    let p99 = !args.quick;
    CalibrationPlan {
        latencies_us,
        p99,
        read_percents,
        sizes,
        effort,
        limit: CalibrationPlan::LIMIT,
    }
}

fn open(
    args: &Args,
    spec: &Spec,
    latency_us_max: u32,
) -> Result<CalibrationDevice, CalibrationError> {
    let too_small = |bytes: u64| {
        format!(
            "{} has {}, and calibration needs at least {}",
            args.spec,
            flash::size_text(bytes),
            flash::size_text(DEVICE_BYTES_MIN)
        )
    };
    let bed = match args.real_time {
        false => CalibrationDevice::open_virtual(spec, latency_us_max, args.seed),
        true => None,
    };
    if let Some(bed) = bed {
        return match bed.bytes() {
            bytes if bytes < DEVICE_BYTES_MIN => Err(CalibrationError::Usage(too_small(bytes))),
            _ => Ok(bed),
        };
    }
    let volume = Volume::open(spec).map_err(CalibrationError::Failed)?;
    if volume.bytes() < DEVICE_BYTES_MIN {
        return Err(CalibrationError::Usage(too_small(volume.bytes())));
    }
    Ok(CalibrationDevice::open_real(
        Arc::new(volume),
        args.threads as usize,
        latency_us_max,
        args.seed,
    )?)
}

/// Returns a flag that the first interrupt sets. The second one ends the process at once.
fn interrupted() -> Result<Arc<AtomicBool>, String> {
    let [flag, is_second] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let code = i32::from(INTERRUPTED);
    for signal in [SIGINT, SIGTERM] {
        // The flag comes first: a signal between two registrations is not lost.
        signal_hook::flag::register(signal, flag.clone())
            .and_then(|_| {
                let is_second = is_second.clone();
                signal_hook::flag::register_conditional_shutdown(signal, code, is_second)
            })
            .and_then(|_| signal_hook::flag::register(signal, is_second.clone()))
            .map_err(|error| format!("cannot wait for signals: {error}"))?;
    }
    Ok(flag)
}

/// Parses a latency like `500us` or `1.5ms` into microseconds.
fn parse_latency(text: &str) -> Result<u32, String> {
    let wrong = || "a latency from 10us to 1s, like 500us or 1.5ms".to_owned();
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let micros = match unit {
        "us" | "µs" => number,
        "ms" => number * 1e3,
        "s" => number * 1e6,
        _ => return Err(wrong()),
    };
    if (10.0..=1e6).contains(&micros) { Ok(micros.round() as u32) } else { Err(wrong()) }
}

fn parse_run_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3_600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.1 to 3600".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        let words = std::iter::once("calibrate").chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().args
    }

    fn course_of(line: &str) -> CalibrationPlan {
        let args = args(line);
        let spec = args.spec.parse().unwrap();
        course(&args, &spec, may_write(&args, &spec))
    }

    #[test]
    fn latencies_are_words() {
        assert_eq!(parse_latency("500us"), Ok(500));
        assert_eq!(parse_latency("1.5ms"), Ok(1_500));
        assert_eq!(parse_latency("1s"), Ok(1_000_000));
        for bad in ["", "500", "5us", "2s", "-1ms", "ms", "1e3us", "1..5ms"] {
            assert!(parse_latency(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_files_need_leave_to_be_written() {
        assert!(course_of("file:/dev/null -o x.toml").read_percents.is_empty());
        assert_eq!(course_of("file:x -o x.toml --allow-writes").read_percents.len(), 5);
        assert_eq!(course_of("mem:1GiB -o x.toml").effort.long_seconds_max, 10.0);
        assert_eq!(course_of("mem:1GiB -o x.toml --run-seconds 3").effort.short_seconds_max, 0.5);
        assert_eq!(course_of("sim:a -o x.toml").effort, RunLengths::VIRTUAL);
        assert_eq!(course_of("sim:a -o x.toml --real-time").effort.long_seconds_max, 10.0);
    }

    #[test]
    fn lists_replace_what_is_usual() {
        let course = course_of("sim:a -o x.toml --quick --latency 1ms,500us --reads 80");
        assert_eq!(course.latencies_us, [500, 1_000]);
        assert_eq!(course.read_percents, [80]);
        assert!(course.sizes.is_empty() && !course.p99);
    }
}
