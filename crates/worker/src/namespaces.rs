//! A worker's namespaces, and their changes while it serves (docs/adr/0005-mailbox.md).
//!
//! Each worker has a table of its own, so a request looks up a namespace without a lock. A change
//! comes as a message. Requests that were admitted before a change that forbids them are answered
//! with a status when their turn comes. Those in a device are carried out, and the worker reports
//! the end of the last one: then the blocks can be used for something else.

use std::sync::Arc;

use contract::{
    Meters, NAMESPACES_MAX, Namespace, NamespaceId, NamespaceRemovals, NamespaceView, Status,
};

use crate::requests::InFlightRequest;

/// The namespaces of a server, as one of its workers knows them.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    /// The namespaces; number `n` is at index `n − 1`.
    table: Vec<NamespaceRecord>,
    /// The number of removals of namespaces that have happened.
    removals: u64,
}

/// The table entry of one namespace number: the namespace that has the number now, and the last
/// removal of a namespace with the number.
#[derive(Clone, Debug, Default)]
struct NamespaceRecord {
    namespace: Option<Namespace>,
    /// The ordinal of the removal that last freed the number, among all removals; 0 if there was
    /// none.
    removed: u64,
    /// The name of the namespace, or of the last one that had the number.
    name: Arc<str>,
}

impl Namespaces {
    /// The largest number that a namespace may have.
    pub const NUMBER_MAX: u16 = NAMESPACES_MAX as u16;

    /// Returns a table of these namespaces, numbered from 1 and named `ns1`, `ns2` and so on.
    pub fn new(table: Vec<Namespace>) -> Self {
        let named = |(n, namespace)| (NamespaceId(n), format!("ns{n}").into(), namespace);
        (1..).zip(table).map(named).collect()
    }

    /// Returns the table of a server in which these removals of namespaces have happened.
    pub fn after(mut self, removals: &NamespaceRemovals) -> Self {
        self.removals = removals.count();
        for (number, removed) in removals.iter() {
            self.entry(number).removed = removed;
        }
        self
    }

    /// Returns the namespace of this number; `None` if the number has none.
    pub fn find(&self, id: NamespaceId) -> Option<&Namespace> {
        self.table.get(usize::from(id.0).checked_sub(1)?)?.namespace.as_ref()
    }

    /// Returns the namespace with this number if a connection that knows of the removals in `view`
    /// still means the same namespace. Returns `None` if that namespace was removed.
    #[inline]
    pub(crate) fn find_for(&self, id: NamespaceId, view: &NamespaceView) -> Option<&Namespace> {
        let numbered = self.table.get(usize::from(id.0).checked_sub(1)?)?;
        numbered.namespace.as_ref().filter(|_| view.covers(id, numbered.removed))
    }

    /// Returns the namespace that had this number after the first `removals` removals, if that
    /// namespace still exists.
    pub(crate) fn find_as_of(&self, id: NamespaceId, removals: u64) -> Option<&Namespace> {
        self.find(id).filter(|_| self.removed(id) <= removals)
    }

    /// Returns the ordinal of the removal that last freed a number, among all removals; 0 if there
    /// was none.
    pub(crate) fn removed(&self, id: NamespaceId) -> u64 {
        let numbered = self.table.get(usize::from(id.0).wrapping_sub(1));
        numbered.map_or(0, |numbered| numbered.removed)
    }

    /// Returns the number of removals of namespaces that have happened.
    pub(crate) fn removals(&self) -> u64 {
        self.removals
    }

    /// Returns the number that `name` stands for: the number itself if `name` is one, even if no
    /// namespace has it, or else the number of the namespace with this name. Returns `None` for an
    /// unknown name.
    pub(crate) fn named(&self, name: &str) -> Option<NamespaceId> {
        if let Ok(number) = name.parse() {
            return Some(NamespaceId(number));
        }
        self.names().find(|(_, own)| ***own == *name).map(|(number, _)| number)
    }

    /// Returns the names of all namespaces, by number.
    pub(crate) fn names(&self) -> impl Iterator<Item = (NamespaceId, &Arc<str>)> {
        self.iter().map(|(number, _)| (number, &self.table[usize::from(number.0) - 1].name))
    }

    /// Tells the meters the device of each namespace.
    pub(crate) fn tell_places(&self, meters: &Meters) {
        for (number, namespace) in self.iter() {
            if let Some(meter) = meters.know_namespace(number) {
                meter.set_device(namespace.device);
            }
        }
    }

    /// Returns the largest number that a namespace has; zero without namespaces.
    pub fn last(&self) -> u16 {
        let last = self.table.iter().rposition(|numbered| numbered.namespace.is_some());
        last.map_or(0, |at| at as u16 + 1)
    }

    /// Returns all namespaces, by number.
    pub fn iter(&self) -> impl Iterator<Item = (NamespaceId, &Namespace)> {
        let numbered = (1..).map(NamespaceId).zip(&self.table);
        numbered.filter_map(|(number, numbered)| Some((number, numbered.namespace.as_ref()?)))
    }

    /// Assigns a number to the namespace with this name, or frees the number if `namespace` is
    /// `None`.
    ///
    /// # Panics
    /// Panics if the number is zero or larger than [`Namespaces::NUMBER_MAX`].
    pub fn set(&mut self, number: NamespaceId, namespace: Option<Namespace>, name: Arc<str>) {
        if namespace.is_none() {
            self.removals += 1;
        }
        let removals = self.removals;
        let numbered = self.entry(number);
        numbered.namespace = namespace;
        numbered.name = name;
        if namespace.is_none() {
            numbered.removed = removals;
        }
    }

    fn entry(&mut self, number: NamespaceId) -> &mut NamespaceRecord {
        assert!((1..=Self::NUMBER_MAX).contains(&number.0), "{number:?} numbers no namespace");
        let index = usize::from(number.0) - 1;
        if index >= self.table.len() {
            self.table.resize(index + 1, NamespaceRecord::default());
        }
        &mut self.table[index]
    }
}

impl FromIterator<(NamespaceId, Arc<str>, Namespace)> for Namespaces {
    fn from_iter<I: IntoIterator<Item = (NamespaceId, Arc<str>, Namespace)>>(all: I) -> Self {
        let mut namespaces = Namespaces::default();
        for (number, name, namespace) in all {
            namespaces.set(number, Some(namespace), name);
        }
        namespaces
    }
}

/// Returns the status for a request that was admitted before its namespace changed to this one. It
/// is [`Status::Ok`] if the request may still go to its device.
pub(crate) fn verdict(entry: &InFlightRequest, namespace: Option<&Namespace>) -> Status {
    let Some(namespace) = namespace else { return Status::NoNamespace };
    match entry.command.range() {
        _ if usize::from(entry.device) != namespace.device => Status::NoNamespace,
        Some(range) if namespace.translate(range) != Some(entry.lba) => Status::OutOfRange,
        _ if namespace.read_only && entry.command.kind() == contract::IoKind::Write => {
            Status::ReadOnly
        }
        _ => Status::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_start_at_one() {
        let one = Namespace { device: 0, first: 0, blocks: 1, read_only: false };
        let mut namespaces = Namespaces::new(vec![one]);
        assert_eq!(namespaces.find(NamespaceId(0)), None);
        assert_eq!(namespaces.find(NamespaceId(1)), Some(&one));
        assert_eq!(namespaces.find(NamespaceId(2)), None);
        namespaces.set(NamespaceId(5), Some(one), "five".into());
        assert_eq!(namespaces.named("five"), Some(NamespaceId(5)));
        assert_eq!(namespaces.named("ns1"), Some(NamespaceId(1)));
        assert_eq!((namespaces.named("5"), namespaces.named("six")), (Some(NamespaceId(5)), None));
        assert_eq!(namespaces.names().count(), 2);
        assert_eq!((namespaces.find(NamespaceId(3)), namespaces.last()), (None, 5));
        namespaces.set(NamespaceId(5), None, "five".into());
        assert_eq!(namespaces.named("five"), None);
        assert_eq!((namespaces.iter().count(), namespaces.last()), (1, 1));
    }

    #[test]
    fn a_number_given_again_is_for_whoever_came_after_the_removal() {
        let one = Namespace { device: 0, first: 0, blocks: 1, read_only: false };
        let (first, second) = (NamespaceId(1), NamespaceId(2));
        let mut namespaces = Namespaces::new(vec![one]);
        let old = NamespaceView::new(first, namespaces.removals());
        let mut removals = NamespaceRemovals::default();
        for (number, namespace) in [(first, None), (first, Some(one)), (second, Some(one))] {
            namespaces.set(number, namespace, "name".into());
            if namespace.is_none() {
                removals.note(number);
            }
        }
        let new = NamespaceView::new(first, namespaces.removals());
        let continued = Namespaces::new(vec![one, one]).after(&removals);
        for namespaces in [&namespaces, &continued] {
            assert_eq!(namespaces.find_for(first, &old), None);
            assert_eq!(namespaces.find_for(second, &old), Some(&one), "the number is a new one");
            assert_eq!(namespaces.find_for(first, &new), Some(&one));
            assert_eq!(namespaces.find_as_of(first, 0), None);
            assert_eq!((namespaces.removals(), namespaces.removed(first)), (1, 1));
        }
    }
}
