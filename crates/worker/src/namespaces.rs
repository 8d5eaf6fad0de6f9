//! A worker's namespaces, and how they change while it serves (docs/adr/0005-mailbox.md).
//!
//! Each worker has a table of its own, so a request looks up a namespace without a lock. A change
//! comes as a message. Requests that were admitted before and that it forbids are answered with a
//! status when their turn comes; those that a device has already are carried out, and the worker
//! says when the last of them has ended: then the blocks can be used for something else.

use contract::{
    Device, Mailbox, Meters, Namespace, NamespaceId, Scheduler, Session, Slot, Status, Transport,
};

use crate::inflight::InFlight;
use crate::worker::Worker;

/// All namespaces of a server.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    /// By number less one.
    table: Vec<Option<Namespace>>,
}

impl Namespaces {
    /// The largest number.
    pub const NUMBER_MAX: u16 = 1024;

    /// These, numbered from 1 in their order.
    pub fn new(table: Vec<Namespace>) -> Self {
        (1..).map(NamespaceId).zip(table).collect()
    }

    /// The namespace of this number.
    pub fn find(&self, id: NamespaceId) -> Option<&Namespace> {
        self.table.get(usize::from(id.0).checked_sub(1)?)?.as_ref()
    }

    /// Says on which device each of them lies.
    pub(crate) fn tell_places(&self, meters: &Meters) {
        for (number, namespace) in self.iter() {
            if let Some(meter) = meters.namespace(number) {
                meter.set_device(namespace.device);
            }
        }
    }

    /// The largest number that one has.
    pub fn last(&self) -> u16 {
        self.table.iter().rposition(Option::is_some).map_or(0, |at| at as u16 + 1)
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = (NamespaceId, &Namespace)> {
        let numbered = (1..).map(NamespaceId).zip(&self.table);
        numbered.filter_map(|(number, namespace)| Some((number, namespace.as_ref()?)))
    }

    /// Puts a namespace in its place, or takes it away.
    ///
    /// # Panics
    /// When the number is zero or larger than [`Namespaces::NUMBER_MAX`].
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

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// A namespace is another one from now on, or none.
    pub(crate) fn place(&mut self, change: u64, number: NamespaceId, namespace: Option<Namespace>) {
        self.namespaces.set(number, namespace);
        if let (Some(meter), Some(namespace)) = (self.line.meters.namespace(number), namespace) {
            meter.set_device(namespace.device);
        }
        for entry in self.in_flight.iter_mut().filter(|entry| entry.namespace == number) {
            if entry.verdict.is_ok() {
                entry.verdict = verdict(entry, namespace.as_ref());
            }
        }
        self.placing = Some(change);
    }

    /// Says that the last change holds, if no device has requests any more that it forbids. Looks at
    /// all that is in flight, in turns that follow a change until this is so.
    pub(crate) fn settle_places(&mut self) {
        let Some(change) = self.placing else { return };
        let mut entries = self.in_flight.iter();
        if !entries.any(|(_, entry)| !entry.verdict.is_ok() && entry.submitted_at.is_some()) {
            self.line.meters.set_placed(change);
            self.placing = None;
        }
    }

    /// Answers a request that a change of its namespace forbids: it goes to no device.
    pub(crate) fn withhold(&mut self, n: usize, slot: Slot) {
        let verdict = self.in_flight.get(slot).verdict;
        self.refund(n, slot);
        self.end(slot, verdict, None);
    }
}

/// What becomes of a request that was admitted before its namespace was this.
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
