//! The registry's part in a hand-over to another process: freezing changes, and resolving names.

use contract::{Member, TenantId};

use super::TenantRegistry;
use crate::info::{Origin, Refusal, State};

impl TenantRegistry {
    /// Returns the origin of a tenant, if the number is in use.
    pub fn origin(&self, tenant: TenantId) -> Option<Origin> {
        self.entries.get(tenant.0 as usize)?.as_ref().map(|entry| entry.origin)
    }

    /// Freezes or unfreezes the registry. While frozen, tenants only end by themselves.
    pub fn freeze(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
    }

    /// Checks that the registry is not frozen.
    ///
    /// # Errors
    /// Fails if the registry is frozen.
    pub(crate) fn check_thawed(&self) -> Result<(), Refusal> {
        if self.is_frozen { Err(Refusal::Upgrading) } else { Ok(()) }
    }

    /// Returns the name of a tenant that is not leaving. With an epoch, only if it is the current
    /// one.
    pub fn name_of(&self, tenant: TenantId, epoch: Option<u32>) -> Option<&str> {
        let n = tenant.0 as usize;
        let is_it = epoch.is_none_or(|epoch| self.epochs.get(n) == Some(&epoch));
        let entry = self.entries.get(n)?.as_ref();
        let active = entry.filter(|entry| is_it && entry.state == State::Active);
        active.map(|entry| entry.name.as_str())
    }

    /// Returns the tenant of a name, in the current epoch of its number.
    pub fn member(&self, name: &str) -> Option<Member> {
        let tenant = self.find(name)?;
        Some(Member { tenant, epoch: self.epochs[tenant.0 as usize] })
    }
}
