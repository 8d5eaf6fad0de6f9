//! The types of a run: steps and their outcomes.

use xtask::needs::Need;

/// The extent of a run.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// `true` for a full run.
    pub(super) is_full: bool,
    /// A number derived from the commit, which seeds random choices.
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

/// The other steps beside which a step may run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// The step runs with no other step beside it.
    Alone,
    /// Runs beside those of [`Lane::Right`]; each keeps one processor busy.
    Left,
    /// Runs beside those of [`Lane::Left`].
    Right,
}

/// A named check.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// The name in the table.
    pub(super) name: &'static str,
    /// The kinds of runs that include the step.
    pub(super) list: List,
    /// The other steps beside which the step may run.
    pub(super) lane: Lane,
    /// Programs beyond Rust that the step needs: installed if possible; otherwise the step is
    /// skipped.
    pub(super) needs: &'static [Need],
    /// Runs the step. An error is a failure, whose text is shown whole.
    pub(super) run: fn(&Run) -> Result<Outcome, String>,
}

/// The outcome of a step that was not interrupted by an error.
pub(super) enum Outcome {
    /// A single check that passed.
    Passed,
    /// A step of many tests.
    Counted(Counts),
    /// The reason for which the step could not run here.
    Skipped(String),
}

/// The tests of a step.
#[derive(Default)]
pub(super) struct Counts {
    /// Tests that passed.
    pub(super) passed: u64,
    /// Tests that failed.
    pub(super) failed: u64,
    /// Tests that could not run here, with the reasons.
    pub(super) skipped: Vec<String>,
    /// The whole output, shown if a test failed.
    pub(super) output: String,
}

impl Counts {
    /// Adds the counts of another run.
    pub(super) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
        self.output.push_str(&other.output);
    }
}
