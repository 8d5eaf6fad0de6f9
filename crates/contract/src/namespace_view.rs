//! Removals of namespaces, and the connections' knowledge of them: after a number is reused,
//! clients that meant the removed namespace must not reach the new one
//! (docs/adr/0028-numbers-that-come-again.md).

use alloc::vec::Vec;

use crate::NamespaceId;

/// The removals of namespaces in the life of a server, counted. A process that takes over a server
/// continues the count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceRemovals {
    count: u64,
    /// For each number, by number less one: the count of all removals after its namespace was last
    /// removed; 0 if it never was.
    last: Vec<u64>,
}

impl NamespaceRemovals {
    /// Returns the number of removals so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the count of all removals right after a namespace of this number was last removed; 0
    /// if none ever was.
    pub fn last_of(&self, number: NamespaceId) -> u64 {
        let index = usize::from(number.0).wrapping_sub(1);
        self.last.get(index).copied().unwrap_or(0)
    }

    /// Counts the removal of the namespace with this number.
    pub fn note(&mut self, number: NamespaceId) {
        self.count += 1;
        let index = usize::from(number.0) - 1;
        if index >= self.last.len() {
            self.last.resize(index + 1, 0);
        }
        self.last[index] = self.count;
    }

    /// Returns the numbers whose namespace was removed, each with the count of all removals at that
    /// time.
    pub fn iter(&self) -> impl Iterator<Item = (NamespaceId, u64)> {
        let all = (1..).map(NamespaceId).zip(self.last.iter().copied());
        all.filter(|(_, count)| *count > 0)
    }

    /// Returns the removals from the counts of another process: `last` has each removed number with
    /// the count at that time. Returns `None` if the counts contradict each other.
    pub fn from_parts(count: u64, last: &[(u16, u64)]) -> Option<NamespaceRemovals> {
        let mut removals = NamespaceRemovals { count, last: Vec::new() };
        for (number, after) in last {
            let index = usize::from(*number).checked_sub(1)?;
            if *after == 0 || *after > count {
                return None;
            }
            if index >= removals.last.len() {
                removals.last.resize(index + 1, 0);
            }
            removals.last[index] = *after;
        }
        Some(removals)
    }
}

/// A connection's knowledge of namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    /// The namespace of requests that name none.
    pub namespace: NamespaceId,
    /// The number of removals that the connection's peer knows of: those before the connection
    /// opened.
    pub removals: u64,
    /// The number of removals before the requests that the connection brought along were admitted.
    pub admitted: u64,
    /// `true` if the session itself refuses requests to namespaces that its peer cannot know of.
    /// Then the relevant removals are those before its oldest request that is not admitted yet.
    pub follows: bool,
    /// Reused numbers that the peer has asked about, each with the count of all removals when the
    /// earlier namespace was removed; the newest last.
    learned: Vec<(NamespaceId, u64)>,
}

impl NamespaceView {
    /// Maximum number of reused numbers that a connection learns of.
    pub const LEARNED_MAX: usize = 64;

    /// Returns the knowledge of a connection that opens after so many removals.
    pub fn new(namespace: NamespaceId, removals: u64) -> NamespaceView {
        NamespaceView {
            namespace,
            removals,
            admitted: removals,
            follows: false,
            learned: Vec::new(),
        }
    }

    /// Returns `true` if the peer means the namespace that has the number now. `removed` is the
    /// count of all removals when the number last became free.
    #[inline]
    pub fn covers(&self, number: NamespaceId, removed: u64) -> bool {
        removed <= self.removals || self.has_learned(number, removed)
    }

    #[cold]
    fn has_learned(&self, number: NamespaceId, removed: u64) -> bool {
        self.learned.contains(&(number, removed))
    }

    /// Records that the peer has learned which namespace has the number now. If there is no room,
    /// the oldest record is dropped.
    pub fn learn(&mut self, number: NamespaceId, removed: u64) {
        if self.covers(number, removed) {
            return;
        }
        self.learned.retain(|(known, _)| *known != number);
        if self.learned.len() == Self::LEARNED_MAX {
            self.learned.remove(0);
        }
        self.learned.push((number, removed));
    }

    /// Returns the knowledge of a connection that moves, whose admitted requests were admitted
    /// before so many removals.
    pub fn at_departure(self, admitted: u64) -> NamespaceView {
        NamespaceView { admitted, ..self }
    }

    /// Returns the reused namespace numbers whose new meaning the peer has learned since the
    /// connection opened.
    pub fn learned(&self) -> &[(NamespaceId, u64)] {
        &self.learned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn n(number: u16) -> NamespaceId {
        NamespaceId(number)
    }

    #[test]
    fn removals_are_counted_by_number() {
        let mut removals = NamespaceRemovals::default();
        [3, 1, 3].into_iter().for_each(|number| removals.note(n(number)));
        assert_eq!((removals.count(), removals.last_of(n(3)), removals.last_of(n(2))), (3, 3, 0));
        let parts: Vec<(u16, u64)> = removals.iter().map(|(number, at)| (number.0, at)).collect();
        assert_eq!(parts, [(1, 2), (3, 3)]);
        assert_eq!(NamespaceRemovals::from_parts(3, &parts), Some(removals));
        for bad in [(0, 1), (1, 0), (1, 4)] {
            assert_eq!(NamespaceRemovals::from_parts(3, &[bad]), None);
        }
        assert_eq!(NamespaceRemovals::default().last_of(n(0)), 0);
    }

    #[test]
    fn what_was_removed_before_is_known_and_what_was_asked_about() {
        let mut view = NamespaceView::new(n(1), 5);
        assert!(view.covers(n(7), 0) && view.covers(n(7), 5) && !view.covers(n(7), 6));
        view.learn(n(7), 6);
        assert!(view.covers(n(7), 6) && !view.covers(n(8), 6) && !view.covers(n(7), 9));
        view.learn(n(7), 9);
        assert_eq!(view.learned(), [(n(7), 9)]);
        view.learn(n(9), 2);
        assert_eq!(view.learned().len(), 1, "it came after that");
        let most = NamespaceView::LEARNED_MAX as u16;
        (100..100 + most).for_each(|number| view.learn(n(number), 10));
        assert_eq!(view.learned().len(), NamespaceView::LEARNED_MAX);
        assert!(!view.covers(n(7), 9) && view.covers(n(100), 10));
    }
}
