//! The submissions that a device has accepted and not yet carried out.

use alloc::collections::VecDeque;
use contract::Submission;

/// Submissions in order of arrival, the started ones first. At most `depth`.
///
/// `0 ≤ started ≤ entries.len() ≤ depth`.
#[derive(Debug)]
pub(crate) struct Inbox {
    entries: VecDeque<Submission>,
    started: usize,
    depth: usize,
}

impl Inbox {
    pub(crate) fn new(depth: usize) -> Self {
        Inbox { entries: VecDeque::with_capacity(depth), started: 0, depth }
    }

    pub(crate) fn room(&self) -> usize {
        self.depth - self.entries.len()
    }

    pub(crate) fn push(&mut self, submission: Submission) {
        assert!(self.room() > 0, "more submissions than the device has room for");
        self.entries.push_back(submission);
    }

    /// Starts all submissions that have arrived.
    pub(crate) fn kick(&mut self) {
        self.started = self.entries.len();
    }

    /// Removes and returns the oldest started submission; `None` if there is none.
    pub(crate) fn pop(&mut self) -> Option<Submission> {
        self.started = self.started.checked_sub(1)?;
        self.entries.pop_front()
    }

    /// Returns `true` if a started submission is still here.
    pub(crate) fn has_started(&self) -> bool {
        self.started > 0
    }
}

/// Asserts the preconditions of `Device` for a submission to a device of `blocks` blocks: its range
/// is on the device, and its buffer is large enough.
pub(crate) fn assert_valid(submission: &Submission, blocks: u64) {
    let Submission { slot, command, buf } = submission;
    let fits = command.range().is_none_or(|range| range.fits(blocks));
    assert!(fits, "{slot:?}: {command:?} does not lie within {blocks} blocks");
    let capacity = buf.as_ref().map_or(0, |buf| buf.capacity());
    assert!(capacity >= command.buffer_bytes(), "{slot:?}: {capacity} bytes for {command:?}");
}
