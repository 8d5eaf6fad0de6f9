//! The checks of the code itself: format, lints, tidy, tests, interleavings, the simulated world,
//! fuzzing, docs.

use std::time::Duration;

use super::{Outcome, Step};
use crate::manifest::Manifest;
use crate::{runs, tidy};
use xtask::shell;

/// In the order in which they run: what fails soonest comes first.
pub(super) const STEPS: &[Step] = &[
    Step { name: "format", needs: &[], run: format },
    Step { name: "clippy", needs: &[], run: clippy },
    Step { name: "tidy", needs: &[], run: tidy_step },
    Step { name: "tests", needs: &[], run: tests },
    Step { name: "doc tests", needs: &[], run: doc_tests },
    Step { name: "interleavings", needs: &[], run: interleavings },
    Step { name: "simulated world", needs: &[], run: sim_smoke },
    Step { name: "fuzz smoke", needs: &[], run: fuzz_smoke },
    Step { name: "documentation", needs: &[], run: documentation },
];

/// No step of these is expected to need a third of this on two cores that do nothing else. The tests, which
/// build nearly everything, need the most.
const LIMIT: Duration = Duration::from_secs(2700);

/// The interleavings take less than a second; the rest is for building them on a busy machine.
const INTERLEAVINGS_LIMIT: Duration = Duration::from_secs(180);

/// Seeds of the simulated world that every change has to pass.
const SIM_SEEDS: u64 = 1000;

/// Seconds for each fuzz target.
const FUZZ_SECONDS: &str = "5";

fn format() -> Result<Outcome, String> {
    check(&["fmt", "--all", "--check"], &[])
}

fn clippy() -> Result<Outcome, String> {
    check(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])
}

fn documentation() -> Result<Outcome, String> {
    let words = ["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"];
    check(&words, &[("RUSTDOCFLAGS", "-D warnings")])
}

fn tidy_step() -> Result<Outcome, String> {
    let findings = tidy::findings()?;
    if findings.is_empty() { Ok(Outcome::Passed) } else { Err(findings.join("\n")) }
}

fn tests() -> Result<Outcome, String> {
    let words = ["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--"];
    counted_twice(&words)
}

fn doc_tests() -> Result<Outcome, String> {
    counted(&["test", "--workspace", "--doc"], &[])
}

/// What workers share without locks, in every order. A directory of its own, because another flag of
/// the compiler would build everything else anew.
fn interleavings() -> Result<Outcome, String> {
    let words = ["test", "--release", "--package", "nearflash-qos", "--test", "loom"];
    let environment = [("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")];
    match counted_within(&words, &environment, INTERLEAVINGS_LIMIT)? {
        // Without the flag there is no test in it.
        Outcome::Counted { passed: 0, failed: 0, output, .. } => Err(output),
        outcome => Ok(outcome),
    }
}

fn sim_smoke() -> Result<Outcome, String> {
    match runs::sim_arguments(&Manifest::load()?, 1, SIM_SEEDS) {
        None => Ok(Outcome::Skipped("there is no program for it yet".to_owned())),
        Some(arguments) => {
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let ran = shell::capture(&mut shell::cargo(&words), LIMIT)?;
            if !ran.ok {
                return Err(ran.output);
            }
            for line in ran.output.lines().filter(|line| line.contains("seeds passed")) {
                println!("    {line}");
            }
            Ok(Outcome::Passed)
        }
    }
}

fn fuzz_smoke() -> Result<Outcome, String> {
    let manifest = Manifest::load()?;
    let targets = runs::fuzz_targets(&manifest);
    if targets.is_empty() {
        return Ok(Outcome::Skipped("there is no fuzz target yet".to_owned()));
    }
    let (mut passed, mut failed, mut output) = (0, 0, String::new());
    for (package, program) in targets {
        let words = ["test", "--release", "--package", package, "--test", program, runs::FUZZ];
        match counted(&words, &[("FUZZ_SECONDS", FUZZ_SECONDS)])? {
            Outcome::Counted { passed: p, failed: f, output: o, .. } => {
                (passed, failed) = (passed + p, failed + f);
                output.push_str(&o);
            }
            _ => unreachable!("tests are counted"),
        }
    }
    Ok(Outcome::Counted { passed, failed, ignored: 0, output })
}

/// The dashboard in a browser. One test at a time: each has a browser and a server of its own.
pub(super) fn dashboard() -> Result<Outcome, String> {
    let words =
        ["test", "--package", "nearflash-cli", "--test", "all", "dashboard::", "--", "--ignored"];
    let outcome = counted_twice(&[&words[..], &["--test-threads", "1"]].concat())?;
    println!("    pictures of it are in target/ui");
    Ok(outcome)
}

/// One run of cargo that is one check.
fn check(words: &[&str], environment: &[(&str, &str)]) -> Result<Outcome, String> {
    let mut command = shell::cargo(words);
    command.envs(environment.iter().copied());
    let ran = shell::capture(&mut command, LIMIT)?;
    if ran.ok { Ok(Outcome::Passed) } else { Err(ran.output) }
}

/// As many failures as a busy machine explains; more are not tried again.
const TRIED_AGAIN: usize = 4;

/// One run of `cargo test`, and another of a few tests that failed in it. Many hold a server to real
/// time, which a machine that runs others beside it, or is itself one of many, does not always keep:
/// what fails alone too has failed, what does not is named.
fn counted_twice(words: &[&str]) -> Result<Outcome, String> {
    let first = counted(words, &[])?;
    let Outcome::Counted { passed, failed, ignored, output } = first else { return Ok(first) };
    let names = failures(&output);
    if names.is_empty() || names.len() > TRIED_AGAIN || names.len() as u64 != failed {
        return Ok(Outcome::Counted { passed, failed, ignored, output });
    }
    println!("{output}");
    let again = [words, &["--exact", "--test-threads", "1"], &names].concat();
    let second = counted(&again, &[])?;
    let Outcome::Counted { passed: alone, failed: still, output, .. } = second else {
        return Ok(second);
    };
    let still = still.max(failed.saturating_sub(alone));
    println!("    failed beside others and were tried again alone: {}", names.join(", "));
    Ok(Outcome::Counted { passed: passed + failed - still, failed: still, ignored, output })
}

/// The tests that failed, by name.
fn failures(output: &str) -> Vec<&str> {
    let lines = output.lines();
    lines.filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect()
}

/// One run of `cargo test`.
fn counted(words: &[&str], environment: &[(&str, &str)]) -> Result<Outcome, String> {
    counted_within(words, environment, LIMIT)
}

fn counted_within(
    words: &[&str],
    environment: &[(&str, &str)],
    limit: Duration,
) -> Result<Outcome, String> {
    let mut all = words.to_vec();
    // What follows `--` is for the tests.
    all.insert(1, "--no-fail-fast");
    let mut command = shell::cargo(&all);
    command.envs(environment.iter().copied());
    let ran = shell::capture(&mut command, limit)?;
    let (passed, mut failed, ignored) = count(&ran.output);
    // A crash or a compile error leaves no count of its own.
    if !ran.ok && failed == 0 {
        failed = 1;
    }
    Ok(Outcome::Counted { passed, failed, ignored, output: ran.output })
}

/// Passed, failed and ignored tests over all `test result` lines.
fn count(output: &str) -> (u64, u64, u64) {
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for line in output.lines() {
        let Some(rest) = line.trim_start().strip_prefix("test result: ") else { continue };
        let counts = rest.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split("; ") {
            let (number, word) = part.split_once(' ').unwrap_or(("", ""));
            let number: u64 = number.parse().unwrap_or(0);
            match word {
                "passed" => passed += number,
                "failed" => failed += number,
                "ignored" => ignored += number,
                _ => {}
            }
        }
    }
    (passed, failed, ignored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_results_are_summed() {
        let output = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; in 0.00s\n\
            error: x\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out\n";
        assert_eq!(count(output), (13, 2, 1));
        assert_eq!(count("error: could not compile"), (0, 0, 0));
    }

    #[test]
    fn failures_are_named() {
        let output = "test a ... ok\ntest b::c ... FAILED\ntest d ... ignored, x\n\
            failures:\n    b::c\ntest result: FAILED. 1 passed; 1 failed; 1 ignored";
        assert_eq!(failures(output), ["b::c"]);
    }
}
