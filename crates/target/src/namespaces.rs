//! Namespaces: ranges of devices' blocks under a name of their own.

use contract::{Meters, NamespaceId, Range};

/// A range of a device's blocks that requests can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The device, in the order of configuration.
    pub device: usize,
    /// Its first block on the device.
    pub first: u64,
    /// Its size in blocks.
    pub blocks: u64,
    /// Whether nobody may write to it.
    pub read_only: bool,
}

impl Namespace {
    /// Where a range of the namespace lies on its device; `None` when it is not within the
    /// namespace.
    pub fn translate(&self, range: Range) -> Option<u64> {
        range.fits(self.blocks).then(|| self.first + range.lba)
    }
}

/// All namespaces of a server; the first is number 1.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    table: Vec<Namespace>,
}

impl Namespaces {
    /// These, numbered from 1 in their order.
    pub fn new(table: Vec<Namespace>) -> Self {
        assert!(table.len() < usize::from(u16::MAX), "a namespace's number has 16 bits");
        Namespaces { table }
    }

    /// The namespace of this number.
    pub fn find(&self, id: NamespaceId) -> Option<&Namespace> {
        self.table.get(usize::from(id.0).checked_sub(1)?)
    }

    /// Says on which device each of them lies.
    pub(crate) fn tell_places(&self, meters: &Meters) {
        for (n, namespace) in self.table.iter().enumerate() {
            if let Some(meter) = meters.namespace(NamespaceId(n as u16 + 1)) {
                meter.set_device(namespace.device);
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_moved_or_refused() {
        let namespace = Namespace { device: 0, first: 100, blocks: 8, read_only: false };
        assert_eq!(namespace.translate(Range::new(0, 8)), Some(100));
        assert_eq!(namespace.translate(Range::new(7, 1)), Some(107));
        assert_eq!(namespace.translate(Range::new(7, 2)), None);
        assert_eq!(namespace.translate(Range::new(u64::MAX, 1)), None);
    }

    #[test]
    fn numbers_start_at_one() {
        let one = Namespace { device: 0, first: 0, blocks: 1, read_only: false };
        let namespaces = Namespaces::new(vec![one]);
        assert_eq!(namespaces.find(NamespaceId(0)), None);
        assert_eq!(namespaces.find(NamespaceId(1)), Some(&one));
        assert_eq!(namespaces.find(NamespaceId(2)), None);
    }
}
