//! `cargo xtask ci`: every check in order, a table of times, and the count of tests.
//!
//! The short run is the gate of every change. `--full` has what takes longer, and
//! `cargo xtask soak` what takes hours. A step never passes by not running: what cannot run is
//! named with its reason, and fails the run unless `xtask/skips.toml` allows it. No test is tried
//! twice.

mod end_to_end;
mod failures;
mod floor;
mod programs;
mod python;
mod skips;
mod slices;
mod step;
mod steps;

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Instant;

use clap::Args;
use floor::Floor;
use skips::Skips;
use step::{Counts, Lane, List, Outcome, Run, Step};
use xtask::needs;
use xtask::shell;

/// Options of `cargo xtask ci`.
#[derive(Args)]
pub(crate) struct CiOptions {
    /// Run only the step of this name, or else all whose names contain it
    #[arg(long)]
    only: Option<String>,
    /// Run everything, at full length: both kernels, all browser tests, packages as shipped
    #[arg(long)]
    full: bool,
}

/// A step that has run, with its times and its outcome.
struct FinishedStep {
    name: &'static str,
    seconds: f64,
    /// Processor seconds of the step and of all programs that it started.
    cpu_seconds: f64,
    outcome: Result<Outcome, String>,
}

struct Tally {
    passed: u64,
    failed: u64,
    skipped: Vec<String>,
    /// A line for each failure, printed once more at the end of the run.
    failures: Vec<String>,
    rows: Vec<Row>,
    floor: Floor,
    skips: Skips,
    is_full: bool,
}

struct Row {
    name: &'static str,
    seconds: f64,
    cpu_seconds: f64,
    result: String,
}

/// Runs the chosen steps, and prints a table of their times and the counts of tests.
pub(crate) fn run(options: &CiOptions) -> Result<(), String> {
    let started = Instant::now();
    let run = Run { is_full: options.full, seed: slices::seed_of_commit() };
    let mut tally = Tally::new(Floor::load()?, Skips::load()?, run.is_full);
    let chosen: Vec<Step> = steps().filter(|step| is_chosen(step, options)).copied().collect();
    for step in chosen.iter().filter(|step| step.lane == Lane::Alone) {
        println!("==> {}", step.name);
        tally.add(perform(step, &run));
    }
    side_by_side(&chosen, &run, &mut tally);
    tally.print(started.elapsed().as_secs_f64());
    tally.verdict()
}

/// Returns the steps of all lists, in the order of the lists; a run chooses from them.
fn steps() -> impl Iterator<Item = &'static Step> {
    steps::STEPS.iter().chain(end_to_end::STEPS)
}

/// Returns `true` if the run that these options describe includes the step. A step whose exact name
/// `--only` gives is included in short and in full runs.
fn is_chosen(step: &Step, options: &CiOptions) -> bool {
    match (&options.only, step.list) {
        (Some(word), _) if steps().any(|step| step.name == word) => step.name == word,
        (Some(word), _) => step.name.contains(word.as_str()),
        (None, List::Short) => true,
        (None, List::OnlyShort) => !options.full,
        (None, List::Full) => options.full,
    }
}

/// Runs the chosen steps of the two lanes: the lanes at the same time, the steps of each in order,
/// and then those that may run in either. Adds every result to `tally`.
fn side_by_side(chosen: &[Step], run: &Run, tally: &mut Tally) {
    let (sender, receiver) = mpsc::channel();
    let of = |lane: Lane| chosen.iter().filter(move |step| step.lane == lane);
    let either = Mutex::new(of(Lane::Either));
    let next_of_either = || either.lock().expect("nobody panics with it").next();
    thread::scope(|scope| {
        for lane in [Lane::Left, Lane::Right] {
            let sender = sender.clone();
            scope.spawn(move || {
                for step in of(lane).chain(std::iter::from_fn(next_of_either)) {
                    let done = perform(step, run);
                    // The receiver lives as long as this scope.
                    sender.send(done).expect("somebody counts");
                }
            });
        }
        drop(sender);
        for done in receiver {
            println!("==> {}", done.name);
            tally.add(done);
        }
    });
}

fn perform(step: &Step, run: &Run) -> FinishedStep {
    let (started, before) = (Instant::now(), shell::cpu_seconds());
    let outcome = match needs::provide(step.needs) {
        Ok(()) => (step.run)(run),
        Err(reason) => Ok(Outcome::Skipped(reason)),
    };
    let cpu_seconds = shell::cpu_seconds() - before;
    FinishedStep { name: step.name, seconds: started.elapsed().as_secs_f64(), cpu_seconds, outcome }
}

impl Tally {
    fn new(floor: Floor, skips: Skips, is_full: bool) -> Tally {
        let (skipped, failures, rows) = (Vec::new(), Vec::new(), Vec::new());
        Tally { passed: 0, failed: 0, skipped, failures, rows, floor, skips, is_full }
    }

    fn add(&mut self, done: FinishedStep) {
        let name = done.name;
        let result = match done.outcome {
            Ok(Outcome::Passed) => {
                self.passed += 1;
                "passed".to_owned()
            }
            Ok(Outcome::Counted(counts)) => self.add_counts(name, counts),
            Ok(Outcome::Skipped(reason)) => {
                self.skip(name, &reason);
                "skipped".to_owned()
            }
            Err(output) => {
                self.fail(name, &output);
                "FAILED".to_owned()
            }
        };
        println!("    {result} in {:.1} s, {:.1} s of processors", done.seconds, done.cpu_seconds);
        let (seconds, cpu_seconds) = (done.seconds, done.cpu_seconds);
        self.rows.push(Row { name, seconds, cpu_seconds, result });
    }

    fn add_counts(&mut self, name: &'static str, counts: Counts) -> String {
        self.passed += counts.passed;
        self.failed += counts.failed;
        if counts.failed > 0 {
            self.tell(name, &counts.output);
        }
        let mut result = format!("{} passed, {} failed", counts.passed, counts.failed);
        if !counts.skipped.is_empty() {
            result.push_str(&format!(", {} skipped", counts.skipped.len()));
        }
        for reason in &counts.skipped {
            self.skip(name, reason);
        }
        // A test that is skipped is there; whether it may be is another question.
        let known = counts.passed + counts.failed + counts.skipped.len() as u64;
        if let Some(trouble) = self.floor.trouble(name, self.is_full, known) {
            self.fail(name, &trouble);
            result.push_str(", fewer than the floor");
        }
        result
    }

    fn skip(&mut self, name: &str, reason: &str) {
        let line = format!("{name}: {}", reason.trim().replace('\n', " "));
        println!("skipped: {line}");
        if !self.skips.allow(&line) {
            self.fail(name, &format!("xtask/skips.toml does not allow to skip this: {line}"));
        }
        self.skipped.push(line);
    }

    fn fail(&mut self, name: &str, output: &str) {
        self.failed += 1;
        self.tell(name, output);
    }

    /// Prints the output of a step that failed, and keeps a line of each failure for the end of the
    /// run.
    fn tell(&mut self, name: &str, output: &str) {
        println!("{output}");
        let found = failures::failures(output).into_iter();
        self.failures.extend(found.map(|failure| format!("{name}: {failure}")));
    }

    fn print(&self, seconds: f64) {
        println!("\n{:<22}{:>9}{:>13}  result", "step", "seconds", "of processors");
        for row in &self.rows {
            let Row { name, seconds, cpu_seconds, result } = row;
            println!("{name:<22}{seconds:>9.1}{cpu_seconds:>13.1}  {result}");
        }
        let cpu_seconds: f64 = self.rows.iter().map(|row| row.cpu_seconds).sum();
        println!("{:<22}{seconds:>9.1}{cpu_seconds:>13.1}", "together");
        for reason in &self.skipped {
            println!("skipped: {reason}");
        }
        for failure in &self.failures {
            println!("failed: {failure}");
        }
    }

    /// Prints the numbers of passed and failed checks as the last line of the output. If a check
    /// failed or none passed, the process ends with exit code 1.
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

    fn tally() -> Tally {
        let floor = Floor::parse("many = 8\nfew = 9\n").unwrap();
        let skips =
            Skips::parse("[[allowed]]\nskip = \"no kernel\"\nbecause = \"a test\"\n").unwrap();
        Tally::new(floor, skips, false)
    }

    fn done(name: &'static str, outcome: Result<Outcome, String>) -> FinishedStep {
        FinishedStep { name, seconds: 1.0, cpu_seconds: 2.0, outcome }
    }

    fn counted(passed: u64, failed: u64, skipped: &[&str]) -> Result<Outcome, String> {
        let skipped = skipped.iter().map(|reason| (*reason).to_owned()).collect();
        Ok(Outcome::Counted(Counts { passed, failed, skipped, output: "".into() }))
    }

    #[test]
    fn outcomes_add_up() {
        let mut tally = tally();
        tally.add(done("one", Ok(Outcome::Passed)));
        tally.add(done("many", counted(5, 2, &["a: no kernel"])));
        tally.add(done("none", Ok(Outcome::Skipped("no kernel".into()))));
        tally.add(done("bad", Err("why".into())));
        assert_eq!((tally.passed, tally.failed), (6, 3));
        assert_eq!(tally.skipped, ["many: a: no kernel", "none: no kernel"]);
        assert_eq!(tally.rows[1].result, "5 passed, 2 failed, 1 skipped");
        assert_eq!(tally.failures, ["bad: why"]);
    }

    #[test]
    fn a_skip_that_nobody_allows_fails() {
        let mut tally = tally();
        tally.add(done("none", Ok(Outcome::Skipped("no time".into()))));
        assert_eq!((tally.passed, tally.failed), (0, 1));
    }

    #[test]
    fn fewer_tests_than_the_floor_fail() {
        let mut tally = tally();
        tally.add(done("few", counted(8, 0, &[])));
        assert_eq!((tally.passed, tally.failed), (8, 1));
    }

    #[test]
    fn short_runs_leave_out_what_only_full_ones_have() {
        let names = |full, only: Option<&str>| {
            let options = CiOptions { only: only.map(str::to_owned), full };
            steps()
                .filter(|step| is_chosen(step, &options))
                .map(|step| step.name)
                .collect::<Vec<_>>()
        };
        assert!(!names(false, None).contains(&"documentation"));
        assert!(names(true, None).contains(&"documentation"));
        assert!(names(false, None).contains(&"slice") && !names(true, None).contains(&"slice"));
        assert_eq!(names(false, Some("documentation")), ["documentation"]);
        // A whole name is that step alone, though "slow tests" contains it.
        assert_eq!(names(false, Some("tests")), ["tests"]);
    }
}
