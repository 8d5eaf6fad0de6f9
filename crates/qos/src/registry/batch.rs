//! Many changes of tenants in a row.
//!
//! Where tenants were promised more than the device makes, each has its part of that, so a change of one
//! changes what all have. That is looked at once for all changes of a row.

use contract::Instant;

use super::Registry;

/// When the parts of all are worked out that changes of some have made others.
#[derive(Debug, Default)]
pub(super) struct Grants {
    when: When,
    /// How often that was done.
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
    /// The same, and one has needed it.
    Owed,
}

impl Grants {
    /// Whether what has to be worked out now is so later.
    pub(super) fn put_off(&mut self) -> bool {
        if self.when != When::AtOnce {
            self.when = When::Owed;
        }
        self.when == When::Owed
    }

    /// It is done.
    pub(super) fn count(&mut self) {
        #[cfg(test)]
        {
            self.rounds += 1;
        }
    }
}

impl Registry {
    /// Several changes follow one another: what the others have because of them they have with
    /// [`end_row`](Registry::end_row). Until then the rates of all may add up to more than the device
    /// makes, where what tenants were promised does.
    pub fn begin_row(&mut self) {
        self.grants.when = When::Later;
    }

    /// The last of them is made. Costs what a single change does.
    pub fn end_row(&mut self, now: Instant) {
        if core::mem::take(&mut self.grants.when) != When::Owed {
            return;
        }
        self.settle(now.as_nanos());
        let share = self.lower_share(now.as_nanos());
        self.grant_all(now);
        self.raise_share(share, now.as_nanos());
    }
}
