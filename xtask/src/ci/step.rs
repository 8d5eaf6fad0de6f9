//! The steps of a run, their outcomes and the counts of their tests.

use xtask::needs::Need;

/// The extent of a run of `cargo xtask ci`, and the seed of its random choices.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// `true` for a full run, `false` for a short one.
    pub(super) is_full: bool,
    /// A number derived from the commit, which seeds random choices; 1 without a repository.
    pub(super) seed: u64,
}

/// The kinds of runs that include a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// Every run.
    Short,
    /// Short runs only; full runs have all the tests from which this step chooses.
    OnlyShort,
    /// Full runs only.
    Full,
}

/// The other steps that may run at the same time as a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// No other step runs at the same time.
    Alone,
    /// Steps of [`Lane::Right`] run at the same time; each lane keeps one processor busy.
    Left,
    /// Steps of [`Lane::Left`] run at the same time.
    Right,
    /// Runs in the lane that is done with its own steps first.
    Either,
}

/// A step of a run: a named check or a group of tests.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// The name of the step, in the table and for `--only`.
    pub(super) name: &'static str,
    /// The kinds of runs that include the step.
    pub(super) list: List,
    /// The other steps that may run at the same time.
    pub(super) lane: Lane,
    /// Programs beyond Rust that the step needs. Missing ones are installed; if that fails, the
    /// step is skipped.
    pub(super) needs: &'static [Need],
    /// The function that runs the step. Its error is a failure, whose text is printed whole.
    pub(super) run: fn(&Run) -> Result<Outcome, String>,
}

/// The outcome of a step that has returned no error.
pub(super) enum Outcome {
    /// A single check, which passed.
    Passed,
    /// Tests that have run, some of which may have failed.
    Counted(Counts),
    /// A step that could not run on this machine, with the reason.
    Skipped(String),
}

/// The numbers of a step's tests by their outcome.
#[derive(Default)]
pub(super) struct Counts {
    /// Number of tests that passed.
    pub(super) passed: u64,
    /// Number of tests that failed.
    pub(super) failed: u64,
    /// The reason of each test that could not run on this machine.
    pub(super) skipped: Vec<String>,
    /// The output of the tests, printed if one failed.
    pub(super) output: String,
}

impl Counts {
    /// Adds the counts and the output of other tests to these.
    pub(super) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
        self.output.push_str(&other.output);
    }
}
