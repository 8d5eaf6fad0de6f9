//! The nouns of a run: steps, and how they end.

use xtask::needs::Need;

/// The extent of a run.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// True for the run that has everything.
    pub(super) is_full: bool,
    /// A number made of the commit, from which chance starts.
    pub(super) seed: u64,
}

/// The runs that have a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// Every run.
    Short,
    /// Short runs alone: a full one has all that this step chooses from.
    OnlyShort,
    /// Full runs alone.
    Full,
}

/// The place of a step beside others.
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
    /// The runs that have it.
    pub(super) list: List,
    /// The place beside other steps.
    pub(super) lane: Lane,
    /// Programs it needs beyond Rust: installed where that can be, else the step is skipped.
    pub(super) needs: &'static [Need],
    /// Runs it. An error is a failure; its text is shown whole.
    pub(super) run: fn(&Run) -> Result<Outcome, String>,
}

/// The end of a step that ran to its end.
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
    /// Everything that was written, shown whole when a test failed.
    pub(super) output: String,
}

impl Counts {
    /// Adds those of another run.
    pub(super) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
        self.output.push_str(&other.output);
    }
}
