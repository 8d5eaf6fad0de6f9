//! Namespaces: named ranges of devices' blocks.

use crate::Range;

/// The number of a namespace on the whole server. The first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceId(pub u16);

/// A range of a device's blocks that requests can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The device, in the order of configuration.
    pub device: usize,
    /// First block on the device.
    pub first: u64,
    /// Size of the namespace in blocks of 512 bytes.
    pub blocks: u64,
    /// `true` if all writes are refused.
    pub read_only: bool,
}

impl Namespace {
    /// Returns the address on the device of a range of the namespace; `None` if the range does not
    /// lie within the namespace.
    pub fn translate(&self, range: Range) -> Option<u64> {
        range.fits(self.blocks).then(|| self.first + range.lba)
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
}
