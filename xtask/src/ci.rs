//! `cargo xtask ci`: every check in order, a table of times, and the count of tests.
//!
//! A step never passes by not running: what cannot run is named with its reason.

pub(crate) mod end_to_end;
mod steps;

use std::time::Instant;

use clap::Args;
use xtask::needs::{self, Need};

/// Options of `cargo xtask ci`.
#[derive(Args)]
pub(crate) struct CiOptions {
    /// Only the steps whose name contains this.
    #[arg(long)]
    only: Option<String>,
}

/// A named check.
pub(crate) struct Step {
    /// What the table calls it.
    pub(crate) name: &'static str,
    /// Programs it needs beyond Rust: installed where that can be, else the step is skipped.
    pub(crate) needs: &'static [Need],
    /// Runs it. An error is a failure; its text is shown whole.
    pub(crate) run: fn() -> Result<Outcome, String>,
}

/// What a step that ran to its end found.
pub(crate) enum Outcome {
    /// A single check that passed.
    Passed,
    /// A step of many tests.
    Counted {
        /// Tests that passed.
        passed: u64,
        /// Tests that failed.
        failed: u64,
        /// Tests that say of themselves that they are not to run here.
        ignored: u64,
        /// What it wrote, shown whole when one failed.
        output: String,
    },
    /// It could not run here, and why.
    Skipped(String),
}

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: Vec<String>,
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    seconds: f64,
    result: String,
}

/// Runs all checks.
pub(crate) fn run(options: &CiOptions) -> Result<(), String> {
    let mut tally = Tally::default();
    let all = steps::STEPS.iter().chain(end_to_end::STEPS);
    let only = options.only.as_deref();
    let chosen = all.filter(|step| only.is_none_or(|word| step.name.contains(word)));
    for step in chosen {
        println!("==> {}", step.name);
        let started = Instant::now();
        let outcome = match needs::provide(step.needs) {
            Ok(()) => (step.run)(),
            Err(reason) => Ok(Outcome::Skipped(reason)),
        };
        tally.add(step.name, started.elapsed().as_secs_f64(), outcome);
    }
    tally.print();
    tally.verdict()
}

impl Tally {
    fn add(&mut self, name: &'static str, seconds: f64, outcome: Result<Outcome, String>) {
        let result = match outcome {
            Ok(Outcome::Passed) => {
                self.passed += 1;
                "passed".to_owned()
            }
            Ok(Outcome::Counted { passed, failed, ignored, output }) => {
                self.passed += passed;
                self.failed += failed;
                if failed > 0 {
                    println!("{output}");
                }
                let ignored = if ignored > 0 { format!(", {ignored} ignored") } else { "".into() };
                format!("{passed} passed, {failed} failed{ignored}")
            }
            Ok(Outcome::Skipped(reason)) => {
                println!("skipped: {name}: {reason}");
                self.skipped.push(format!("{name}: {reason}"));
                "skipped".to_owned()
            }
            Err(output) => {
                self.failed += 1;
                println!("{output}");
                "FAILED".to_owned()
            }
        };
        println!("    {result} in {seconds:.1} s");
        self.rows.push(Row { name, seconds, result });
    }

    fn print(&self) {
        println!("\n{:<28}{:>9}  result", "step", "seconds");
        for row in &self.rows {
            println!("{:<28}{:>9.1}  {}", row.name, row.seconds, row.result);
        }
        let total: f64 = self.rows.iter().map(|row| row.seconds).sum();
        println!("{:<28}{:>9.1}", "together", total);
        for reason in &self.skipped {
            println!("skipped: {reason}");
        }
    }

    /// The last line of all, and whether the checks hold.
    fn verdict(&self) -> Result<(), String> {
        use std::io::Write;
        let failed = self.failed > 0 || self.passed == 0;
        let why = if self.passed == 0 { "nothing ran" } else { "a check failed, see above" };
        if failed {
            eprintln!("{why}");
        }
        println!("{} passed, {} failed", self.passed, self.failed);
        // The count is the last line, so a failure says nothing after it.
        let flushed = std::io::stdout().flush();
        if failed || flushed.is_err() {
            std::process::exit(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_add_up() {
        let mut tally = Tally::default();
        tally.add("one", 1.0, Ok(Outcome::Passed));
        let counted = Outcome::Counted { passed: 5, failed: 2, ignored: 1, output: "".into() };
        tally.add("many", 2.0, Ok(counted));
        tally.add("none", 0.0, Ok(Outcome::Skipped("no kernel".into())));
        tally.add("bad", 0.0, Err("why".into()));
        assert_eq!((tally.passed, tally.failed), (6, 3));
        assert_eq!(tally.skipped, ["none: no kernel"]);
        assert_eq!(tally.rows[1].result, "5 passed, 2 failed, 1 ignored");
    }
}
