//! A worker's namespaces, and how they change while it serves (docs/adr/0005-mailbox.md).
//!
//! Each worker has a table of its own, so a request looks up a namespace without a lock. A change
//! comes as a message. Requests that were admitted before and that it forbids are answered with a
//! status when their turn comes; those that a device has already are carried out, and the worker
//! says when the last of them has ended: then the blocks can be used for something else.

use contract::{Meters, Namespace, NamespaceId, Status};

use crate::requests::InFlight;

/// All namespaces of a server.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    /// The namespaces, by number less one.
    table: Vec<Option<Namespace>>,
}

impl Namespaces {
    /// The largest number.
    pub const NUMBER_MAX: u16 = 1024;

    /// Makes a table of these, numbered from 1 in their order.
    pub fn new(table: Vec<Namespace>) -> Self {
        (1..).map(NamespaceId).zip(table).collect()
    }

    /// Returns the namespace of this number.
    pub fn find(&self, id: NamespaceId) -> Option<&Namespace> {
        self.table.get(usize::from(id.0).checked_sub(1)?)?.as_ref()
    }

    /// Tells the meters on which device each namespace lies.
    pub(crate) fn tell_places(&self, meters: &Meters) {
        for (number, namespace) in self.iter() {
            if let Some(meter) = meters.namespace(number) {
                meter.set_device(namespace.device);
            }
        }
    }

    /// Returns the largest number that a namespace has.
    pub fn last(&self) -> u16 {
        self.table.iter().rposition(Option::is_some).map_or(0, |at| at as u16 + 1)
    }

    /// Returns all namespaces, by number.
    pub fn iter(&self) -> impl Iterator<Item = (NamespaceId, &Namespace)> {
        let numbered = (1..).map(NamespaceId).zip(&self.table);
        numbered.filter_map(|(number, namespace)| Some((number, namespace.as_ref()?)))
    }

    /// Puts a namespace in its place, or takes it away.
    ///
    /// # Panics
    /// Panics if the number is zero or larger than [`Namespaces::NUMBER_MAX`].
    pub fn set(&mut self, number: NamespaceId, namespace: Option<Namespace>) {
        assert!((1..=Self::NUMBER_MAX).contains(&number.0), "{number:?} numbers no namespace");
        let index = usize::from(number.0) - 1;
        if index >= self.table.len() {
            self.table.resize(index + 1, None);
        }
        self.table[index] = namespace;
    }
}

impl FromIterator<(NamespaceId, Namespace)> for Namespaces {
    fn from_iter<I: IntoIterator<Item = (NamespaceId, Namespace)>>(all: I) -> Self {
        let mut namespaces = Namespaces::default();
        all.into_iter().for_each(|(number, namespace)| namespaces.set(number, Some(namespace)));
        namespaces
    }
}

/// Returns the verdict on a request that was admitted before its namespace was this.
pub(crate) fn verdict(entry: &InFlight, namespace: Option<&Namespace>) -> Status {
    let Some(namespace) = namespace else { return Status::NoNamespace };
    match entry.command.range() {
        _ if usize::from(entry.device) != namespace.device => Status::NoNamespace,
        Some(range) if namespace.translate(range) != Some(entry.lba) => Status::OutOfRange,
        _ if namespace.read_only && entry.command.kind() == contract::Kind::Write => {
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
        namespaces.set(NamespaceId(5), Some(one));
        assert_eq!((namespaces.find(NamespaceId(3)), namespaces.last()), (None, 5));
        namespaces.set(NamespaceId(5), None);
        assert_eq!((namespaces.iter().count(), namespaces.last()), (1, 1));
    }
}
