//! The places of entries and keys in the file that they come from.

/// A mistake in an object: the key that is wrong (empty for the whole object), and what was
/// expected instead.
pub type Mistake = (&'static str, String);

/// The position of an entry among the entries of its table, from 0; `None` if the entry does not
/// come from a file. All positions compare equal, so entries that differ in position alone are
/// equal.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct TablePosition(pub Option<usize>);

impl PartialEq for TablePosition {
    fn eq(&self, _: &TablePosition) -> bool {
        true
    }
}

/// The place of a mistake in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigLocation {
    /// A line, from 1.
    Line(usize),
    /// A key of the top level, or a table that is not repeated.
    Key(&'static str),
    /// A key of a table that is not repeated.
    In(&'static str, &'static str),
    /// An entry of a repeated table, from 0, and perhaps one of the entry's keys.
    Entry(&'static str, usize, Option<&'static str>),
}

impl TablePosition {
    /// Returns the place of a key of this entry of `table`; `None` if the entry does not come from
    /// a file. If the entry lacks the key, the place means the entry.
    pub fn key(self, table: &'static str, key: &'static str) -> Option<ConfigLocation> {
        self.0.map(|n| ConfigLocation::Entry(table, n, Some(key)))
    }

    /// Returns the place of this entry of `table`; `None` if the entry does not come from a file.
    pub fn entry(self, table: &'static str) -> Option<ConfigLocation> {
        self.0.map(|n| ConfigLocation::Entry(table, n, None))
    }
}
