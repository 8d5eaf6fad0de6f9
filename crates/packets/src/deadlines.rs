//! The next deadline of each association in an indexed binary heap.

use alloc::vec::Vec;

use contract::Instant;

/// The heap position of an association without a deadline.
const ABSENT: u32 = u32::MAX;

/// The deadlines of a fixed number of associations, at most one for each.
pub(crate) struct Deadlines {
    /// The heap of deadlines and places of associations: no entry at position n is earlier than its
    /// parent, at position (n − 1) / 2.
    heap: Vec<(Instant, u32)>,
    /// The position of each association in the heap, by its place; [`ABSENT`] without a deadline.
    positions: Vec<u32>,
}

impl Deadlines {
    pub(crate) fn new(max: usize) -> Deadlines {
        Deadlines { heap: Vec::with_capacity(max), positions: alloc::vec![ABSENT; max] }
    }

    /// Returns the earliest deadline and the place of its association; `None` if there is no
    /// deadline.
    pub(crate) fn first(&self) -> Option<(Instant, u32)> {
        self.heap.first().copied()
    }

    /// Sets the deadline of the association at a place, or removes it.
    pub(crate) fn set(&mut self, place: u32, deadline: Option<Instant>) {
        let position = self.positions[place as usize];
        match (deadline, position) {
            (None, ABSENT) => {}
            (None, _) => self.remove(position as usize),
            (Some(at), ABSENT) => {
                self.heap.push((at, place));
                let last = self.heap.len() - 1;
                self.positions[place as usize] = last as u32;
                self.rise(last);
            }
            (Some(at), _) => {
                self.heap[position as usize].0 = at;
                self.settle(position as usize);
            }
        }
    }

    fn remove(&mut self, position: usize) {
        let (_, place) = self.heap.swap_remove(position);
        self.positions[place as usize] = ABSENT;
        if position < self.heap.len() {
            self.positions[self.heap[position].1 as usize] = position as u32;
            self.settle(position);
        }
    }

    fn settle(&mut self, position: usize) {
        let place = self.heap[position].1;
        self.rise(position);
        self.sink(self.positions[place as usize] as usize);
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.heap[at].0 < self.heap[(at - 1) / 2].0 {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let time = |n: usize| self.heap.get(n).map(|entry| entry.0);
            let least =
                if time(right).is_some() && time(right) < time(left) { right } else { left };
            if time(least).is_none_or(|least| least >= self.heap[at].0) {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for n in [a, b] {
            self.positions[self.heap[n].1 as usize] = n as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn the_first_is_the_earliest(
            steps in proptest::collection::vec((0u32..12, proptest::option::of(0u64..50)), 0..200),
        ) {
            let mut deadlines = Deadlines::new(12);
            let mut model = [None; 12];
            for (place, at) in steps {
                let at = at.map(Instant::from_nanos);
                deadlines.set(place, at);
                model[place as usize] = at;
                let first = model.iter().flatten().min();
                assert_eq!(deadlines.first().map(|(at, _)| at).as_ref(), first);
                if let Some((at, place)) = deadlines.first() {
                    assert_eq!(model[place as usize], Some(at));
                }
            }
        }
    }
}
