//! The checks of the code itself: format, lints, tidy, tests, interleavings, the simulated world,
//! fuzzing, docs.

use std::process::Command;
use std::thread;
use std::time::Duration;

use super::floor;
use super::programs::{self, TestProgram, built};
use super::step::{Counts, Lane, List, Outcome, Run, Step};
use crate::runs::FUZZ;
use crate::{lists, tidy};
use xtask::shell;

/// The steps in the order in which they run: the check that fails soonest comes first.
#[rustfmt::skip]
pub(super) const STEPS: &[Step] = &[
    Step { name: "format", list: List::Short, lane: Lane::Alone, needs: &[], run: format },
    Step { name: "clippy", list: List::Short, lane: Lane::Alone, needs: &[], run: clippy },
    Step { name: "tidy", list: List::Short, lane: Lane::Alone, needs: &[], run: tidy_step },
    Step { name: "build", list: List::Short, lane: Lane::Alone, needs: &[], run: build },
    Step { name: "tests", list: List::Short, lane: Lane::Alone, needs: &[], run: tests },
    Step { name: "tests over epoll", list: List::Short, lane: Lane::Alone, needs: &[], run: epoll },
    Step { name: "doc tests", list: List::Short, lane: Lane::Alone, needs: &[], run: doc_tests },
    Step { name: "slow tests", list: List::Full, lane: Lane::Alone, needs: &[], run: slow_tests },
    Step { name: "interleavings", list: List::Short, lane: Lane::Right, needs: &[], run: interleavings },
    Step { name: "fuzz smoke", list: List::Short, lane: Lane::Left, needs: &[], run: fuzz_smoke },
    Step { name: "simulated world", list: List::Short, lane: Lane::Right, needs: &[], run: worlds },
    Step { name: "documentation", list: List::Full, lane: Lane::Right, needs: &[], run: documentation },
    Step { name: "figures", list: List::Full, lane: Lane::Right, needs: &[], run: figures },
];

/// The time limit of one command of a step: three times the longest duration on two idle cores.
const LIMIT: Duration = Duration::from_secs(2700);

/// Number of seeds of the simulated world in a short run. The first seed is derived from the
/// commit.
const WORLDS: u64 = 300;

/// Number of seeds of the simulated world in a full run, from 1 on. They are enough to reach every
/// coverage mark.
pub(super) const ALL_WORLDS: u64 = 1000;

/// Seconds that each fuzz target runs in a step.
const FUZZ_SECONDS: &str = "5";

/// The folders of the packages with fuzz targets, and that of the program's package.
const FUZZED: [&str; 3] = ["crates/proto", "crates/packets", "crates/contigfs"];
pub(super) const APP: &str = "apps/nearflash";

/// The parts of the names of end-to-end tests that a short run repeats over epoll. A full run
/// repeats all.
const SOCKETS: &[&str] = &["serving::requests::", "serving::unix_sockets::"];

/// Number of end-to-end tests that run at the same time. They mostly wait for programs, so it takes
/// more of them than processors to keep the processors busy.
const AT_ONCE: &str = "4";

/// The environment variable by which servers of the end-to-end tests use epoll in place of
/// io_uring.
const EPOLL: (&str, &str) = ("NEARFLASH_TEST_INTERFACE", "epoll");

fn format(_: &Run) -> Result<Outcome, String> {
    check(&["fmt", "--all", "--check"], &[])
}

fn clippy(_: &Run) -> Result<Outcome, String> {
    check(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])
}

pub(super) fn documentation(_: &Run) -> Result<Outcome, String> {
    let words = ["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"];
    // Private items are documented too, so links to them lead somewhere.
    check(&words, &[("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")])
}

fn tidy_step(_: &Run) -> Result<Outcome, String> {
    let mut findings = tidy::findings()?;
    findings.extend(floor::has_only_risen().err());
    if findings.is_empty() { Ok(Outcome::Passed) } else { Err(findings.join("\n")) }
}

/// Builds all programs and tests of the workspace, once for all steps.
fn build(_: &Run) -> Result<Outcome, String> {
    built().map(|_| Outcome::Passed)
}

/// Runs all tests that belong to no other step. The end-to-end tests, which mostly wait for
/// programs, run at the same time as those of the crates.
fn tests(_: &Run) -> Result<Outcome, String> {
    let (programs, crates): (Vec<_>, Vec<_>) =
        built()?.tests.iter().partition(|program| program.package == APP);
    let mut counts = Counts::default();
    let waiting = ["--test-threads", AT_ONCE];
    thread::scope(|scope| {
        let beside = scope.spawn(|| (run_all(&programs, &waiting), shell::cpu_seconds()));
        counts.add(run_all(&crates, &[])?);
        let (ran, cpu_seconds) = beside.join().expect("a runner of tests does not panic");
        shell::count_cpu_seconds(cpu_seconds);
        counts.add(ran?);
        Ok(Outcome::Counted(counts))
    })
}

/// Runs test programs one after another, with the arguments `words`. Fuzz targets are left out,
/// since they have a step of their own.
fn run_all(programs: &[&TestProgram], words: &[&str]) -> Result<Counts, String> {
    let mut counts = Counts::default();
    for program in programs {
        let is_fuzzed = FUZZED.contains(&program.package.as_str());
        let skip: &[&str] = if is_fuzzed { &["--skip", FUZZ] } else { &[] };
        counts.add(program.run(&[words, skip].concat(), &[])?);
    }
    Ok(counts)
}

fn epoll(run: &Run) -> Result<Outcome, String> {
    // Tests of the choice itself choose by themselves.
    let words = if run.is_full { &["--skip", "serving::interface::"] } else { SOCKETS };
    let words = [words, &["--test-threads", AT_ONCE]].concat();
    built()?.integration(APP)?.run(&words, &[EPOLL]).map(Outcome::Counted)
}

fn doc_tests(_: &Run) -> Result<Outcome, String> {
    let words = ["test", "--no-fail-fast", "--workspace", "--doc"];
    let ran = shell::capture(&mut shell::cargo(&words), LIMIT)?;
    Ok(Outcome::Counted(programs::counts(ran.ok, ran.output)))
}

/// Runs the ignored tests of the list `full`, one at a time.
fn slow_tests(_: &Run) -> Result<Outcome, String> {
    let names = lists::names("full", "")?;
    let mut words: Vec<&str> = names.iter().map(String::as_str).collect();
    words.extend(["--ignored", "--test-threads", "1"]);
    let mut counts = Counts::default();
    for program in built()?.tests.iter().filter(|_| !names.is_empty()) {
        counts.add(program.run(&words, &[])?);
    }
    if counts.passed + counts.failed < names.len() as u64 {
        return Err(format!("not all of these ran: {}\n{}", names.join(", "), counts.output));
    }
    Ok(Outcome::Counted(counts))
}

/// Tests the state that workers share without locks in every interleaving of their steps. Only the
/// schedulers and the model checker are rebuilt for this.
fn interleavings(_: &Run) -> Result<Outcome, String> {
    let words = ["test", "--package", "nearflash-qos", "--features", "loom", "--test", "loom"];
    let ran = shell::capture(&mut shell::cargo(&words), LIMIT)?;
    Ok(Outcome::Counted(programs::counts(ran.ok, ran.output)))
}

fn worlds(run: &Run) -> Result<Outcome, String> {
    match run.is_full {
        true => some_worlds(1, ALL_WORLDS),
        false => some_worlds(run.seed % (1 << 40), WORLDS),
    }
}

/// Runs the simulated worlds of `count` consecutive seeds from `seed` on. Each world is a test, and
/// all must pass.
pub(super) fn some_worlds(seed: u64, count: u64) -> Result<Outcome, String> {
    let mut command = Command::new(built()?.path("nearflash-sim")?);
    command.args(["--seed", &seed.to_string(), "--count", &count.to_string()]);
    let ran = shell::capture(&mut command, LIMIT)?;
    if !ran.ok {
        return Err(ran.output);
    }
    println!("    {count} seeds from {seed}");
    Ok(Outcome::Passed)
}

fn fuzz_smoke(_: &Run) -> Result<Outcome, String> {
    let mut counts = Counts::default();
    for package in FUZZED {
        let program = built()?.integration(package)?;
        counts.add(program.run(&[FUZZ], &[("FUZZ_SECONDS", FUZZ_SECONDS)])?);
    }
    Ok(Outcome::Counted(counts))
}

/// Makes the figures in virtual time and their pictures, with the shorter runs of `--quick`.
fn figures(_: &Run) -> Result<Outcome, String> {
    let mut command = Command::new(built()?.path("nearflash-figures")?);
    let ran = shell::capture(command.arg("--quick"), LIMIT)?;
    if ran.ok { Ok(Outcome::Passed) } else { Err(ran.output) }
}

/// Runs cargo with the arguments `words` and these variables of the environment. Its success is one
/// passed check; its failure is the error, with its output.
fn check(words: &[&str], environment: &[(&str, &str)]) -> Result<Outcome, String> {
    let mut command = shell::cargo(words);
    command.envs(environment.iter().copied());
    let ran = shell::capture(&mut command, LIMIT)?;
    if ran.ok { Ok(Outcome::Passed) } else { Err(ran.output) }
}
