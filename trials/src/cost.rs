//! `cargo xtask cost`: counts the instructions that scheduling costs, for each request.
//!
//! A worker serves a load twice: once with the scheduler that promises nothing, and once with the
//! token scheduler (`crates/lab/examples/cost`), under an instruction counter. The counts of two
//! lengths of each run are subtracted, which leaves what requests cost, without start and end. The
//! shares are those of a worker with sockets, over a ring and loopback, as far as it runs in user
//! space: what the kernel executes for the requests is not counted. Rows over a network in memory
//! show the worker alone.
//!
//! A second table counts the instructions of a request over NVMe/TCP, of hosts in memory, a third
//! those of operations on a registry of ten thousand tenants, and a fourth those of a request to a
//! volume of flash translation (`crates/ftl/examples/volume_cost.rs`), beside those of the same
//! request to its member.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::Args;

use xtask::shell;

/// Options of `cargo xtask cost`.
#[derive(Args)]
pub(crate) struct CostOptions {
    /// Requests of the shorter run; the longer run has twice as many
    #[arg(long, default_value_t = 40_000)]
    requests: u64,
    /// Measure only requests to a volume of flash translation
    #[arg(long)]
    volume: bool,
}

/// The number of tenants and the network of each row, with the largest share in per cent of the
/// worker's instructions that scheduling may cost. Rows without sockets have no limit.
const ROWS: [(u64, &str, Option<f64>); 4] = [
    (4, "sockets", Some(2.0)),
    (2_500, "sockets", Some(8.0)),
    (4, "memory", None),
    (2_500, "memory", None),
];

/// The loads over NVMe/TCP: argument of the example, label, and bytes of a request.
const NVME: [(&str, &str, u64); 5] = [
    ("nvme-read", "reads", 4096),
    ("nvme-read-flow", "reads, the host uses flow control", 4096),
    ("nvme-read", "reads", 512),
    ("nvme-write", "writes", 4096),
    ("nvme-write-flow", "writes, the host uses flow control", 4096),
];

/// Number of repeated measurements of rows whose results vary from run to run; odd.
const REPETITIONS: usize = 5;

/// The operations on a registry of [`TENANTS`] tenants: argument of the example, label, number of
/// operations in a run, and the most instructions of one. The limits are 1 ms and 10 ms at two
/// instructions a nanosecond.
const ASKED: [(&str, &str, u64, f64); 4] = [
    ("register", "a tenant comes and goes", 200, 2e6),
    ("change", "a tenant changes its SLO", 200, 2e6),
    ("check", "what would have to give for most of the device", 5, 2e7),
    ("adjust", "the correction changes the price of writes", 5, 2e7),
];
const TENANTS: u64 = 10_000;

/// The requests to a volume: their kind, the most instructions of one beside those of the member
/// and of its data, and `true` if its data are read by the volume and copied.
const VOLUME: [(&str, f64, bool); 2] = [("reads", 150.0, false), ("writes", 900.0, true)];

/// Number of requests in flight at a volume in each row.
const IN_FLIGHT: [u64; 3] = [1, 32, 128];

/// Measures and prints the tables. Prints a note instead if valgrind is missing.
pub(crate) fn run(options: &CostOptions) -> Result<(), String> {
    if !shell::has_program("valgrind") {
        println!("left out: the cost of requests: valgrind is not installed");
        return Ok(());
    }
    if options.volume {
        return volume(options.requests);
    }
    build()?;
    println!("instructions a request (callgrind, full null: load, 4 KiB reads, one worker)\n");
    println!("| tenants | network | pass-through | token scheduler | scheduling | at most |");
    println!("|---|---|---|---|---|---|");
    for (tenants, network, most) in ROWS {
        let pass = of_a_request(&["pass", network], tenants, options.requests)?;
        let token = of_a_request(&["token", network], tenants, options.requests)?;
        let (more, share) = (token - pass, 100.0 * (token - pass) / token);
        let most = match most {
            None => String::new(),
            Some(most) if share <= most => format!("{most} %"),
            Some(most) => format!("{most} %, missed"),
        };
        println!(
            "| {tenants} | {network} | {pass:.0} | {token:.0} | {more:.0}, {share:.1} % | {most} |"
        );
    }
    println!("\ninstructions a request over NVMe/TCP in memory, four queues of 32 requests\n");
    println!("| what | bytes | instructions |");
    println!("|---|---|---|");
    for (what, words, bytes) in NVME {
        let each = of_a_request(&[what], bytes, options.requests)?;
        println!("| {words} | {bytes} | {each:.0} |");
    }
    println!("\ninstructions of the control plane, {TENANTS} tenants, half of them with an SLO\n");
    println!("| what | instructions | at most |");
    println!("|---|---|---|");
    for (what, words, times, most) in ASKED {
        let each = of_a_request(&[what], TENANTS, times)?;
        let verdict = if each <= most { "" } else { ", missed" };
        println!("| {words} | {each:.0} | {most:.0}{verdict} |");
    }
    volume(options.requests)
}

/// Measures and prints the table of requests to a volume.
fn volume(requests: u64) -> Result<(), String> {
    build_example("nearflash-ftl", "volume_cost")?;
    println!("\ninstructions of a request of 4 KiB to a volume of flash translation\n");
    println!(
        "| requests | in flight | member alone | volume | checksum and copies | more | at most |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (kind, most, has_data) in VOLUME {
        for in_flight in IN_FLIGHT {
            let each = |what| {
                let run = |times| {
                    let program = "volume_cost";
                    instructions_of(
                        program,
                        &[what, kind],
                        in_flight,
                        times,
                        Path::new("/dev/null"),
                    )
                };
                Ok::<f64, String>((run(2 * requests)? - run(requests)?) as f64 / requests as f64)
            };
            let (member, volume) = (each("member")?, each("volume")?);
            let data = if has_data { each("data")? } else { 0.0 };
            let more = volume - member - data;
            let verdict = if more <= most { "" } else { ", missed" };
            println!(
                "| {kind} | {in_flight} | {member:.0} | {volume:.0} | {data:.0} | {more:.0} | \
                 {most:.0}{verdict} |"
            );
        }
    }
    Ok(())
}

/// Builds the program that makes the load, `crates/lab/examples/cost`.
pub(crate) fn build() -> Result<(), String> {
    build_example("nearflash-lab", "cost")
}

/// Builds an example of a package as it is measured.
fn build_example(package: &str, example: &str) -> Result<(), String> {
    let words = ["build", "--profile", "dist", "--package", package, "--example", example];
    let built = shell::capture(&mut shell::cargo(&words), Duration::from_secs(1200))?;
    if built.ok { Ok(()) } else { Err(built.output) }
}

/// Returns the instructions of one request or operation: the difference of two runs of different
/// lengths. Over real sockets the grouping of requests into turns varies, so the result is the
/// median of several differences.
fn of_a_request(words: &[&str], number: u64, times: u64) -> Result<f64, String> {
    let repetitions = if words.contains(&"sockets") { REPETITIONS } else { 1 };
    let difference = |_| {
        let short = instructions(words, number, times)?;
        let long = instructions(words, number, 2 * times)?;
        Ok((long - short) as f64 / times as f64)
    };
    let mut each = (0..repetitions).map(difference).collect::<Result<Vec<f64>, String>>()?;
    each.sort_by(f64::total_cmp);
    Ok(each[each.len() / 2])
}

/// Returns the instructions of one run of the example with these words.
fn instructions(words: &[&str], tenants: u64, times: u64) -> Result<i64, String> {
    counted(words, tenants, times, Path::new("/dev/null"))
}

/// Runs the example under callgrind, which writes its counts by source line into `profile`. Returns
/// the instructions of the whole run.
pub(crate) fn counted(
    words: &[&str],
    tenants: u64,
    times: u64,
    profile: &Path,
) -> Result<i64, String> {
    instructions_of("cost", words, tenants, times, profile)
}

/// Runs an example under callgrind with these words and two numbers. Returns the instructions of
/// its functions whose names begin with `counted` or `asked`.
fn instructions_of(
    example: &str,
    words: &[&str],
    number: u64,
    times: u64,
    profile: &Path,
) -> Result<i64, String> {
    let program = shell::root().join("target/dist/examples").join(example);
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind");
    command.arg(format!("--callgrind-out-file={}", profile.display()));
    // The functions of the program inside of which it is all about.
    for function in ["counted", "asked"] {
        command.arg(format!("--toggle-collect={example}::{function}*"));
    }
    command.arg(program).args(words).args([number.to_string(), times.to_string()]);
    let ran = shell::capture(&mut command, Duration::from_secs(300))?;
    let line = ran.output.lines().find_map(|line| line.split_once("Collected : "));
    match line.and_then(|(_, count)| count.trim().parse().ok()) {
        Some(count) if ran.ok => Ok(count),
        _ => Err(format!("callgrind counted nothing:\n{}", ran.output)),
    }
}
