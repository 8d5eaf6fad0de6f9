//! Rings of tenants that a round visits, linked through one table: a tenant is in at most one ring,
//! enters and leaves in constant time, and the rings together allocate nothing.

use alloc::boxed::Box;

const NONE: u32 = u32::MAX;

/// The previous and the next tenant of each tenant in the circular list that the tenant is in.
#[derive(Debug)]
pub(crate) struct Links {
    /// The tenants before and behind each tenant in its ring; [`NONE`] for a tenant in no ring.
    of: Box<[(u32, u32)]>,
}

/// A ring of tenants; a round starts at its head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    head: u32,
    pub(crate) len: u32,
}

impl Links {
    pub(crate) fn new(tenants: usize) -> Links {
        Links { of: alloc::vec![(NONE, NONE); tenants].into() }
    }

    /// Returns the tenant that follows `tenant` in its ring.
    pub(crate) fn behind(&self, tenant: u32) -> u32 {
        self.of[tenant as usize].1
    }
}

impl Ring {
    pub(crate) const EMPTY: Ring = Ring { head: NONE, len: 0 };

    pub(crate) fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// Makes the next round start with this member.
    pub(crate) fn start_at(&mut self, tenant: u32) {
        self.head = tenant;
    }

    /// Adds a tenant at the end, just before the head.
    pub(crate) fn push(&mut self, links: &mut Links, tenant: u32) {
        assert!(links.of[tenant as usize] == (NONE, NONE), "tenant {tenant} is in a ring already");
        if self.head == NONE {
            links.of[tenant as usize] = (tenant, tenant);
            self.head = tenant;
        } else {
            let last = links.of[self.head as usize].0;
            links.of[tenant as usize] = (last, self.head);
            links.of[last as usize].1 = tenant;
            links.of[self.head as usize].0 = tenant;
        }
        self.len += 1;
    }

    /// Removes a member; if it was the head, its successor becomes the head.
    pub(crate) fn remove(&mut self, links: &mut Links, tenant: u32) {
        let (before, behind) = links.of[tenant as usize];
        assert!(before != NONE, "tenant {tenant} is in no ring");
        links.of[before as usize].1 = behind;
        links.of[behind as usize].0 = before;
        links.of[tenant as usize] = (NONE, NONE);
        if self.head == tenant {
            self.head = if behind == tenant { NONE } else { behind };
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn members(ring: &Ring, links: &Links) -> Vec<u32> {
        let mut found = vec![];
        let Some(mut at) = ring.head() else { return found };
        for _ in 0..ring.len {
            found.push(at);
            at = links.behind(at);
        }
        assert_eq!(Some(at), ring.head());
        found
    }

    #[test]
    fn enters_at_the_end_and_leaves_anywhere() {
        let mut links = Links::new(4);
        let mut ring = Ring::EMPTY;
        for tenant in [2, 0, 3] {
            ring.push(&mut links, tenant);
        }
        assert_eq!(members(&ring, &links), [2, 0, 3]);
        ring.start_at(0);
        ring.push(&mut links, 1);
        assert_eq!(members(&ring, &links), [0, 3, 2, 1]);
        ring.remove(&mut links, 0);
        ring.remove(&mut links, 2);
        assert_eq!(members(&ring, &links), [3, 1]);
        ring.remove(&mut links, 3);
        ring.remove(&mut links, 1);
        assert_eq!(members(&ring, &links), [0; 0]);
    }
}
