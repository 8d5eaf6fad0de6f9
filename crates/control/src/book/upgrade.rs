//! What another process that takes over needs of the book: that it stays as it is, and names.

use contract::{Member, TenantId};

use super::{Book, Origin};
use crate::words::{Refusal, State};

impl Book {
    /// Who made a tenant, if there is one of this number.
    pub fn origin(&self, tenant: TenantId) -> Option<Origin> {
        self.entries.get(tenant.0 as usize)?.as_ref().map(|entry| entry.origin)
    }

    /// Lets no tenant be made, changed or ended by anybody but its own end, or again.
    pub fn freeze(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
    }

    /// # Errors
    /// That nothing changes now.
    pub(crate) fn check_thawed(&self) -> Result<(), Refusal> {
        if self.is_frozen { Err(Refusal::Upgrading) } else { Ok(()) }
    }

    /// What a tenant is called that is not leaving; of an epoch, if it is still that one.
    pub fn name_of(&self, tenant: TenantId, epoch: Option<u32>) -> Option<&str> {
        let n = tenant.0 as usize;
        let is_it = epoch.is_none_or(|epoch| self.epochs.get(n) == Some(&epoch));
        let entry = self.entries.get(n)?.as_ref();
        let active = entry.filter(|entry| is_it && entry.state == State::Active);
        active.map(|entry| entry.name.as_str())
    }

    /// The tenant of a name, in the epoch of its number.
    pub fn member(&self, name: &str) -> Option<Member> {
        let tenant = self.find(name)?;
        Some(Member { tenant, epoch: self.epochs[tenant.0 as usize] })
    }
}
