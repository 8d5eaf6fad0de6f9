//! The table of segments: states, live pages, wear, and the choice of victims.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec;
use core::cmp::Reverse;

use crate::field_codec::FieldCodec;
use crate::policy::VictimRule;
use crate::report::Wear;

/// Stands for no segment in the list of closed segments.
const NONE: u32 = u32::MAX;

/// Maximum difference of wear. Beyond it the least worn closed segment is collected, although all
/// its pages may be live.
const WEAR_SPREAD_MAX: u32 = 64;

/// The use of a segment now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The segment holds nothing. The state ends when a log opens it.
    Free,
    /// A log appends to the segment. The state ends when the log opens another one.
    Open,
    /// No log appends to the segment any more. The state ends when it becomes a victim.
    Closed,
    /// The segment's live pages are being moved. The state ends with the last live page.
    Victim,
    /// The segment has no live pages. The state ends after a flush, the last read and a discard.
    Emptied,
    /// The segment has live pages that cannot be found. The state never ends.
    Stuck,
}

/// The state of a segment and its counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) state: State,
    pub(crate) stream: u8,
    /// Number of live pages.
    pub(crate) valid: u32,
    /// Number of pins of hosts' reads in flight, of pages of their other reads, and of pages that
    /// were moved from the segment and are in flight, and one while the collector reads the
    /// segment. Until it is zero, the segment must not be written again.
    pub(crate) reads: u32,
    /// Number of times the segment was opened.
    pub(crate) wear: u32,
    pub(crate) life: u64,
    /// Number of pages of the segment that its batches take.
    pub(crate) fill: u32,
    /// Stamp of the segment's last batch; zero if it has none.
    pub(crate) last: u64,
    /// Stamp of the segment's last batch with records, which must be in a checkpoint before the
    /// segment is reused; zero if it has none.
    pub(crate) records: u64,
    /// Number of pages that hosts had written to the volume when the segment was closed.
    pub(crate) closed_at: u64,
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Segment {
    fn hand_over(&mut self, scribe: &mut FieldCodec<'_>) {
        const STATES: [State; 6] =
            [State::Free, State::Open, State::Closed, State::Victim, State::Emptied, State::Stuck];
        let mut state = self.state as u8;
        scribe.u8(&mut state);
        match STATES.get(usize::from(state)) {
            Some(state) => self.state = *state,
            None => scribe.check(false),
        }
        scribe.u8(&mut self.stream);
        for field in [
            &mut self.valid,
            &mut self.reads,
            &mut self.wear,
            &mut self.fill,
            &mut self.prev,
            &mut self.next,
        ] {
            scribe.u32(field);
        }
        for field in [&mut self.life, &mut self.last, &mut self.records, &mut self.closed_at] {
            scribe.u64(field);
        }
    }
}

/// The segments of a volume, with the state and the number of live pages of each.
pub(crate) struct Segments {
    table: Box<[Segment]>,
    /// Wear and index of each free segment, the least worn first.
    free: BinaryHeap<Reverse<(u32, u32)>>,
    oldest: u32,
    newest: u32,
    closed: u32,
    /// Number of segments being collected: victims and emptied ones.
    victims: u32,
    wear_max: u32,
    /// The number of live pages from which on a segment is not chosen for garbage collection,
    /// unless it is chosen for its wear.
    dense: u32,
    /// The greatest stamp of a batch in a segment that was closed.
    closed_below: u64,
    /// The bounds of the last search that found no victim; `None` after a change that may have made
    /// one.
    barren: Option<(u64, u64)>,
}

impl Segments {
    /// Returns a table of `count` segments that each hold at most `dense` data pages.
    pub(crate) fn new(count: u32, dense: u32) -> Segments {
        let empty = Segment {
            state: State::Free,
            stream: 0,
            valid: 0,
            reads: 0,
            wear: 0,
            life: 0,
            fill: 0,
            last: 0,
            records: 0,
            closed_at: 0,
            prev: NONE,
            next: NONE,
        };
        Segments {
            table: vec![empty; count as usize].into(),
            free: BinaryHeap::with_capacity(count as usize),
            oldest: NONE,
            newest: NONE,
            closed: 0,
            victims: 0,
            wear_max: 0,
            dense,
            closed_below: 0,
            barren: None,
        }
    }

    pub(crate) fn at(&self, segment: u32) -> &Segment {
        &self.table[segment as usize]
    }

    pub(crate) fn at_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.table[segment as usize]
    }

    pub(crate) fn all(&self) -> &[Segment] {
        &self.table
    }

    /// Returns the number of free segments.
    pub(crate) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Returns the number of segments that are being collected.
    pub(crate) fn victims(&self) -> u32 {
        self.victims
    }

    pub(crate) fn set_state(&mut self, segment: u32, state: State) {
        let entry = &mut self.table[segment as usize];
        let counts = |state| matches!(state, State::Victim | State::Emptied);
        self.victims += u32::from(counts(state));
        self.victims -= u32::from(counts(entry.state));
        entry.state = state;
    }

    /// Adds an empty segment to the free ones.
    pub(crate) fn release(&mut self, segment: u32) {
        let entry = &mut self.table[segment as usize];
        assert!(entry.valid == 0 && entry.reads == 0, "a segment in use is not released");
        let wear = entry.wear;
        self.set_state(segment, State::Free);
        self.wear_max = self.wear_max.max(wear);
        self.free.push(Reverse((wear, segment)));
    }

    /// Opens the least worn free segment for `stream`, with the number `life`. Returns its index;
    /// `None` if no segment is free.
    pub(crate) fn open(&mut self, stream: u8, life: u64) -> Option<u32> {
        let Reverse((_, segment)) = self.free.pop()?;
        let entry = &mut self.table[segment as usize];
        assert!(entry.state == State::Free && entry.valid == 0, "only free segments are opened");
        let (wear, prev, next) = (entry.wear + 1, NONE, NONE);
        *entry = Segment { state: State::Open, stream, life, wear, prev, next, ..*entry };
        (entry.last, entry.records, entry.fill) = (0, 0, 0);
        self.wear_max = self.wear_max.max(wear);
        Some(segment)
    }

    /// Closes a segment, which may then become a victim; `written` is the number of pages that
    /// hosts have written.
    pub(crate) fn close(&mut self, segment: u32, written: u64) {
        let newest = self.newest;
        let entry = &mut self.table[segment as usize];
        entry.state = State::Closed;
        entry.closed_at = written;
        self.closed_below = self.closed_below.max(entry.last + 1);
        self.barren = None;
        // A volume that is opened brings worn segments along.
        self.wear_max = self.wear_max.max(entry.wear);
        (entry.prev, entry.next) = (newest, NONE);
        match newest {
            NONE => self.oldest = segment,
            other => self.table[other as usize].next = segment,
        }
        self.newest = segment;
        self.closed += 1;
    }

    /// Removes a segment from the list of closed segments, and sets the segment's state.
    pub(crate) fn take(&mut self, segment: u32, state: State) {
        let entry = &mut self.table[segment as usize];
        assert!(entry.state == State::Closed, "only closed segments are victims");
        let (prev, next) = (entry.prev, entry.next);
        self.set_state(segment, state);
        match prev {
            NONE => self.oldest = next,
            other => self.table[other as usize].next = next,
        }
        match next {
            NONE => self.newest = prev,
            other => self.table[other as usize].prev = prev,
        }
        self.closed -= 1;
    }

    /// Notes that a page of the segment is not live any more. Returns the segment.
    pub(crate) fn lose_page(&mut self, segment: u32) -> &Segment {
        let entry = &mut self.table[segment as usize];
        entry.valid -= 1;
        if entry.valid == 0 || entry.valid + 1 == self.dense {
            self.barren = None;
        }
        entry
    }

    /// Returns `true` if a segment that was closed may [wait for a flush](Segments::victim). After
    /// a flush that covers all batches, none does.
    pub(crate) fn waits_for_flush(&self, durable_below: u64) -> bool {
        self.closed_below > durable_below
    }

    /// Returns the closed segment to collect next by the rule `victims`, or `None` if none would
    /// yield space. Segments with records from stamp `horizon` on wait for a checkpoint. Segments
    /// with batches from stamp `durable_below` on wait for a flush: a loss of power may undo an
    /// atomic batch, and a moved page of it would survive.
    ///
    /// The list of closed segments is scanned: about a nanosecond for each, once for as many writes
    /// as a segment has pages (docs/adr/0025-flash-translation.md). A search that found nothing is
    /// repeated only after a change.
    pub(crate) fn victim(
        &mut self,
        victims: VictimRule,
        written: u64,
        bounds: (u64, u64),
    ) -> Option<u32> {
        if self.barren == Some(bounds) {
            return None;
        }
        let victim = self.search(victims, written, bounds);
        self.barren = victim.is_none().then_some(bounds);
        victim
    }

    fn search(
        &self,
        victims: VictimRule,
        written: u64,
        (horizon, durable_below): (u64, u64),
    ) -> Option<u32> {
        let dense = self.dense;
        let window = match victims {
            VictimRule::GreedyWindow { percent } => {
                (self.closed as usize * usize::from(percent) / 100).max(1)
            }
            VictimRule::AgeBenefit => self.closed as usize,
        };
        let mut best: Option<(f64, u32)> = None;
        let mut least: Option<(u32, u32)> = None;
        let mut seen = 0;
        let mut next = self.oldest;
        while next != NONE && (seen < window || best.is_none()) {
            let (segment, entry) = (next, &self.table[next as usize]);
            next = entry.next;
            seen += 1;
            let waits_for_checkpoint = entry.records >= horizon && entry.records > 0;
            if waits_for_checkpoint || (entry.last >= durable_below && entry.valid > 0) {
                continue;
            }
            if least.is_none_or(|(wear, _)| entry.wear < wear) {
                least = Some((entry.wear, segment));
            }
            if entry.valid >= dense {
                continue;
            }
            let score = match victims {
                VictimRule::GreedyWindow { .. } => -f64::from(entry.valid),
                VictimRule::AgeBenefit if entry.valid == 0 => f64::INFINITY,
                VictimRule::AgeBenefit => {
                    let age = (written - entry.closed_at.min(written) + 1) as f64;
                    f64::from(dense - entry.valid) / f64::from(entry.valid) * age
                }
            };
            if best.is_none_or(|(other, _)| score > other) {
                best = Some((score, segment));
            }
        }
        match (best, least) {
            (Some(_), Some((wear, segment))) if self.wear_max - wear > WEAR_SPREAD_MAX => {
                Some(segment)
            }
            (best, _) => best.map(|(_, segment)| segment),
        }
    }

    /// Writes or reads the table.
    pub(crate) fn hand_over(&mut self, scribe: &mut FieldCodec<'_>) {
        let count = self.table.len() as u32;
        scribe.same(count.into());
        for entry in &mut self.table {
            entry.hand_over(scribe);
            let known = |at: u32| at < count || at == NONE;
            scribe.check(known(entry.prev) && known(entry.next));
        }
        for field in [&mut self.oldest, &mut self.newest, &mut self.closed, &mut self.wear_max] {
            scribe.u32(field);
        }
        scribe.check(self.oldest < count || self.oldest == NONE);
        scribe.check(self.newest < count || self.newest == NONE);
        scribe.u64(&mut self.closed_below);
        if !scribe.reads() {
            return;
        }
        self.barren = None;
        self.free.clear();
        let free = (0..).zip(&self.table).filter(|(_, entry)| entry.state == State::Free);
        self.free.extend(free.map(|(segment, entry)| Reverse((entry.wear, segment))));
        let is_victim = |entry: &&Segment| matches!(entry.state, State::Victim | State::Emptied);
        self.victims = self.table.iter().filter(is_victim).count() as u32;
    }

    /// Returns the least, the greatest and the sum of the segments' wear.
    pub(crate) fn wear(&self) -> Wear {
        let wear = |segment: &Segment| segment.wear;
        Wear {
            least: self.table.iter().map(wear).min().unwrap_or(0),
            sum: self.table.iter().map(|segment| u64::from(segment.wear)).sum(),
            greatest: self.table.iter().map(wear).max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_no_flush_covers_is_no_victim_while_it_has_live_pages() {
        let mut segments = Segments::new(2, 7);
        for (segment, valid, last) in [(0, 6, 40), (1, 2, 50)] {
            (segments.at_mut(segment).last, segments.at_mut(segment).valid) = (last, valid);
            segments.close(segment, 1);
        }
        let victim = |segments: &mut Segments, durable_below| {
            segments.victim(VictimRule::AgeBenefit, 1, (u64::MAX, durable_below))
        };
        assert_eq!([41, 51].map(|bound| victim(&mut segments, bound)), [Some(0), Some(1)]);
        assert_eq!(victim(&mut segments, 40), None);
        assert!(segments.waits_for_flush(50) && !segments.waits_for_flush(51));
        assert_eq!([1, 0].map(|valid| segments.lose_page(1).valid == valid), [true, true]);
        assert_eq!(victim(&mut segments, 40), Some(1));
    }

    /// A search without success is not repeated until a segment is closed, or gets its first space,
    /// or the bounds move.
    #[test]
    fn a_search_for_a_victim_is_repeated_only_after_a_change() {
        let mut segments = Segments::new(3, 7);
        for segment in 0..3 {
            (segments.at_mut(segment).valid, segments.at_mut(segment).last) = (8, 40);
        }
        (0..2).for_each(|segment| segments.close(segment, 1));
        let victim = |segments: &mut Segments, durable_below| {
            segments.victim(VictimRule::AgeBenefit, 1, (u64::MAX, durable_below))
        };
        assert_eq!(victim(&mut segments, 41), None);
        // Behind the table's back: only the memory of the search can say that there is none.
        segments.at_mut(0).valid = 3;
        assert_eq!(victim(&mut segments, 41), None);
        assert_eq!(victim(&mut segments, 42), Some(0), "with other bounds");
        segments.at_mut(0).valid = 8;
        assert_eq!(victim(&mut segments, 41), None);
        assert_eq!([7, 6].map(|valid| segments.lose_page(1).valid == valid), [true, true]);
        assert_eq!(victim(&mut segments, 41), Some(1), "with the first space");
        segments.at_mut(1).valid = 8;
        assert_eq!(victim(&mut segments, 41), None);
        segments.at_mut(2).valid = 2;
        segments.close(2, 1);
        assert_eq!(victim(&mut segments, 41), Some(2), "with another segment");
    }

    #[test]
    fn worn_segments_of_an_opened_volume_are_compared_by_their_benefit() {
        let mut segments = Segments::new(3, 7);
        for (segment, valid) in [(0, 6), (1, 2), (2, 4)] {
            (segments.at_mut(segment).wear, segments.at_mut(segment).valid) = (50, valid);
            segments.close(segment, 1);
        }
        assert_eq!(segments.victim(VictimRule::AgeBenefit, 1, (u64::MAX, u64::MAX)), Some(1));
    }
}
