//! The time at which the parts of all tenants are worked out anew.
//!
//! On a device that makes less than tenants were promised, each has a part of that, so a change of
//! one tenant changes the parts of all. A row of changes works the parts out once, with its last
//! change.

/// When the parts of all tenants are worked out, and whether that is due.
#[derive(Debug, Default)]
pub(super) struct Grants {
    when: When,
    /// The number of times that the parts were worked out.
    #[cfg(test)]
    pub(super) rounds: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum When {
    /// With each change.
    #[default]
    AtOnce,
    /// With the last change of a row, if any needs it.
    Later,
    /// With the last change of a row: one has needed it.
    Owed,
}

impl Grants {
    /// Puts the work off until the end of the row. Returns `false` outside of a row.
    pub(super) fn put_off(&mut self) -> bool {
        if self.when != When::AtOnce {
            self.when = When::Owed;
        }
        self.when == When::Owed
    }

    /// Begins a row of changes.
    pub(super) fn begin_row(&mut self) {
        self.when = When::Later;
    }

    /// Ends a row of changes. Returns `true` if work was put off.
    pub(super) fn end_row(&mut self) -> bool {
        core::mem::take(&mut self.when) == When::Owed
    }

    /// Counts that the parts were worked out.
    pub(super) fn count(&mut self) {
        #[cfg(test)]
        {
            self.rounds += 1;
        }
    }
}
