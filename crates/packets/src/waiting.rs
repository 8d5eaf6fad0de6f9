//! Frames that wait for their batch to leave, where a measurement asks for another rule than ours.

use alloc::collections::VecDeque;

use contract::{ConnId, Frame, Instant};

use crate::batch::{Adaptive, Batch};

/// The frames of a transport that wait, and the rule by which they leave.
pub(crate) struct WaitingFrames {
    rule: Batch,
    /// The frames with the times at which they were queued, oldest first.
    frames: VecDeque<(Instant, ConnId, Frame)>,
    /// Number of frames without an answer. A request is a frame, and so is its reply.
    outstanding: u32,
}

impl WaitingFrames {
    /// Returns an empty queue for at most `max` frames.
    pub(crate) fn new(rule: Batch, max: usize) -> WaitingFrames {
        WaitingFrames { rule, frames: VecDeque::with_capacity(max), outstanding: 0 }
    }

    /// Queues a frame.
    pub(crate) fn push(&mut self, now: Instant, conn: ConnId, frame: Frame) {
        self.outstanding += 1;
        let outstanding = self.outstanding;
        if let Some(adaptive) = self.adaptive() {
            adaptive.queued(outstanding);
        }
        self.frames.push_back((now, conn, frame));
    }

    /// Notes the answer to a frame, of so many bytes. The reply to a write is small; that is as
    /// good, since Tyche's rule compares intervals with each other.
    pub(crate) fn answered(&mut self, bytes: u32) {
        self.outstanding = self.outstanding.saturating_sub(1);
        if let Some(adaptive) = self.adaptive() {
            adaptive.completed(bytes);
        }
    }

    /// Ends an interval of the rule that is over.
    pub(crate) fn advance(&mut self, now: Instant) {
        if let Some(adaptive) = self.adaptive() {
            adaptive.advance(now);
        }
    }

    /// Returns the number of frames in the batches that leave at `now`.
    pub(crate) fn due(&self, now: Instant) -> usize {
        let (all, mut due) = (self.frames.len(), 0);
        while let Some(&(first, ..)) = self.frames.get(due) {
            let rest = all - due;
            if !self.rule.leaves(now, rest as u32, first, true) {
                break;
            }
            due += self.level().map_or(rest, |level| rest.min(level as usize));
        }
        due
    }

    /// Takes the next frame, whether its batch leaves or not.
    pub(crate) fn take(&mut self) -> Option<(ConnId, Frame)> {
        self.frames.pop_front().map(|(_, conn, frame)| (conn, frame))
    }

    /// Returns the number of requests with which a batch leaves; `None` if the rule counts none.
    pub(crate) fn level(&self) -> Option<u32> {
        match &self.rule {
            Batch::Never => Some(1),
            Batch::Turn => None,
            Batch::Static(level) => Some(*level),
            Batch::Adaptive(adaptive) => Some(adaptive.level()),
        }
    }

    /// Returns the number of waiting frames.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns when the first frame leaves at the latest; `None` if nothing waits.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let (first, ..) = self.frames.front()?;
        self.rule.leaves_by(*first)
    }

    fn adaptive(&mut self) -> Option<&mut Adaptive> {
        match &mut self.rule {
            Batch::Adaptive(adaptive) => Some(adaptive),
            _ => None,
        }
    }
}
