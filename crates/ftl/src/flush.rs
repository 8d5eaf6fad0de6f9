//! Rounds of flushes: a round flushes every member once, for all requests that came before it
//! began.

use alloc::collections::VecDeque;

use contract::Slot;

use crate::field_codec::FieldCodec;

/// The flushes of a volume. Rounds are numbered: `done ≤ begun ≤ wanted ≤ begun + 1`.
pub(crate) struct Flusher {
    wanted: u64,
    begun: u64,
    done: u64,
    /// Number of members whose flush the present round waits for.
    outstanding: u16,
    /// `true` after a member failed to flush: no data becomes durable any more.
    failed: bool,
    /// The stamp below which all batches will be durable when the present round of flushes ends.
    floor: u64,
    /// The stamp below which all batches are durable.
    pub(crate) durable_below: u64,
    waiters: VecDeque<(u64, Slot)>,
}

impl Flusher {
    pub(crate) fn new(durable_below: u64, waiters: usize) -> Flusher {
        Flusher {
            wanted: 0,
            begun: 0,
            done: 0,
            outstanding: 0,
            failed: false,
            floor: 0,
            durable_below,
            waiters: VecDeque::with_capacity(waiters),
        }
    }

    /// Requests a round of flushes that makes everything completed until now durable, and returns
    /// the round's number.
    pub(crate) fn ask(&mut self) -> u64 {
        self.wanted = self.begun + 1;
        self.wanted
    }

    /// Returns the number of the round of flushes that would make everything completed until now
    /// durable, without requesting the round.
    pub(crate) fn next(&self) -> u64 {
        self.begun + 1
    }

    /// Returns the number of the last round that has ended.
    pub(crate) fn last(&self) -> u64 {
        self.done
    }

    /// Requests the round of flushes with this number, unless the round has begun.
    pub(crate) fn want(&mut self, round: u64) {
        if round > self.begun {
            self.ask();
        }
    }

    pub(crate) fn is_done(&self, round: u64) -> bool {
        self.done >= round
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    pub(crate) fn has_room(&self) -> bool {
        self.waiters.len() < self.waiters.capacity()
    }

    /// Makes the request in `slot` wait for the end of the next round.
    pub(crate) fn wait(&mut self, slot: Slot) {
        let round = self.ask();
        self.waiters.push_back((round, slot));
    }

    /// Returns `true` if a round is wanted and none is in progress.
    #[inline]
    pub(crate) fn may_begin(&self) -> bool {
        !self.failed && self.outstanding == 0 && self.wanted > self.begun
    }

    /// Begins a round if one is wanted and none is in progress; returns `true` if so. The caller
    /// flushes each member. The batches with stamps below `floor` are durable when the round ends.
    pub(crate) fn begin(&mut self, members: u16, floor: u64) -> bool {
        if !self.may_begin() {
            return false;
        }
        (self.begun, self.outstanding, self.floor) = (self.wanted, members, floor);
        true
    }

    /// Notes the end of a member's flush, and whether it succeeded.
    pub(crate) fn end(&mut self, ok: bool) {
        self.outstanding -= 1;
        self.failed |= !ok;
        if self.outstanding == 0 && !self.failed {
            (self.done, self.durable_below) = (self.begun, self.floor);
        }
    }

    /// Writes or reads the numbers of the rounds. No round is in progress, and no request waits.
    pub(crate) fn hand_over(&mut self, scribe: &mut FieldCodec<'_>) {
        for field in [&mut self.wanted, &mut self.begun, &mut self.done, &mut self.durable_below] {
            scribe.u64(field);
        }
    }

    /// Removes a request whose round has ended and returns it, with `true` if its data is durable.
    pub(crate) fn pop(&mut self) -> Option<(Slot, bool)> {
        let (round, _) = *self.waiters.front()?;
        let over = self.failed || self.done >= round;
        over.then(|| self.waiters.pop_front().map(|(_, slot)| (slot, !self.failed))).flatten()
    }
}
