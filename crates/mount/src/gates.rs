//! The order of the requests of one file: a write that ends within a page changes the page in
//! memory, and the end of a move gives the file another place. Others of the file wait meanwhile,
//! in their order.

use std::collections::{HashMap, VecDeque};

use contigfs::Ino;

/// The way in which a request uses a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileAccess {
    /// Beside others: reads, and writes of whole pages.
    Shared,
    /// The request runs while no other request of the file runs.
    Alone,
}

/// The gates of all files that are in use. `T` names a request.
#[derive(Debug)]
pub(crate) struct Gates<T> {
    gates: HashMap<Ino, Gate<T>>,
}

#[derive(Debug)]
struct Gate<T> {
    /// Number of requests of the file that are running.
    inside: u32,
    /// `true` if the one that is inside is alone.
    is_alone: bool,
    waiting: VecDeque<(FileAccess, T)>,
}

impl<T> Gate<T> {
    fn admits(&self, pass: FileAccess) -> bool {
        match pass {
            FileAccess::Shared => !self.is_alone,
            FileAccess::Alone => self.inside == 0,
        }
    }

    fn enter(&mut self, pass: FileAccess) {
        self.inside += 1;
        self.is_alone = pass == FileAccess::Alone;
    }
}

impl<T> Gates<T> {
    /// Returns gates without requests.
    pub(crate) fn new() -> Self {
        Gates { gates: HashMap::new() }
    }

    /// Admits a request of a file and returns it, or queues it until it may run beside the running
    /// requests of the file.
    pub(crate) fn enter(&mut self, ino: Ino, pass: FileAccess, request: T) -> Option<T> {
        let gate = self.gates.entry(ino).or_insert_with(|| Gate {
            inside: 0,
            is_alone: false,
            waiting: VecDeque::new(),
        });
        if gate.waiting.is_empty() && gate.admits(pass) {
            gate.enter(pass);
            return Some(request);
        }
        gate.waiting.push_back((pass, request));
        None
    }

    /// Ends a request of a file, and appends the queued requests that may run now to `admitted`.
    pub(crate) fn leave(&mut self, ino: Ino, admitted: &mut VecDeque<T>) {
        let gate = self.gates.get_mut(&ino).expect("a request was inside");
        gate.inside -= 1;
        gate.is_alone &= gate.inside > 0;
        while gate.waiting.front().is_some_and(|(pass, _)| gate.admits(*pass)) {
            let (pass, request) = gate.waiting.pop_front().expect("it was just seen");
            gate.enter(pass);
            admitted.push_back(request);
        }
        if gate.inside == 0 {
            self.gates.remove(&ino);
        }
    }

    /// Returns `true` if no request is inside, or waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.gates.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_wants_to_be_alone_waits_and_others_behind_it() {
        let mut gates = Gates::new();
        let mut admitted = VecDeque::new();
        assert_eq!(gates.enter(5, FileAccess::Shared, 'a'), Some('a'));
        assert_eq!(gates.enter(5, FileAccess::Shared, 'b'), Some('b'));
        assert_eq!(gates.enter(5, FileAccess::Alone, 'c'), None);
        assert_eq!(gates.enter(5, FileAccess::Shared, 'd'), None, "behind c");
        assert_eq!(gates.enter(6, FileAccess::Alone, 'x'), Some('x'), "another file");
        gates.leave(5, &mut admitted);
        assert!(admitted.is_empty());
        gates.leave(5, &mut admitted);
        assert_eq!(admitted, ['c']);
        assert_eq!(gates.enter(5, FileAccess::Shared, 'e'), None);
        gates.leave(5, &mut admitted);
        assert_eq!(admitted, ['c', 'd', 'e']);
        gates.leave(5, &mut admitted);
        gates.leave(5, &mut admitted);
        assert!(!gates.is_idle());
        gates.leave(6, &mut admitted);
        assert!(gates.is_idle());
    }
}
