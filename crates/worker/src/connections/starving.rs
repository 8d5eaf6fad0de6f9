//! Connections that wait for a resource of the worker: a queue (line) for each tenant. The tenants
//! take turns, so that no connection waits behind those of another tenant.

use std::collections::VecDeque;

use contract::{ConnId, TenantId};

/// The queues of a worker's waiting connections, one for each tenant.
#[derive(Debug, Default)]
pub(crate) struct StarvingConnections {
    /// The queues by tenant; some of the connections may be closed.
    lines: Vec<VecDeque<ConnId>>,
    /// Tenants whose queues are not empty, each once. The front tenant has the next turn.
    turns: VecDeque<TenantId>,
}

impl StarvingConnections {
    /// Returns the number of tenants with waiting connections.
    #[inline]
    pub(crate) fn tenants(&self) -> usize {
        self.turns.len()
    }

    /// Puts a connection at the end of its tenant's queue. Before the queue gets longer than
    /// `most`, connections for which `stands` is `false` are removed.
    pub(crate) fn push(
        &mut self,
        tenant: TenantId,
        id: ConnId,
        most: usize,
        stands: impl Fn(ConnId) -> bool,
    ) {
        let line = self.line_of(tenant);
        if line.len() >= most {
            line.retain(|id| stands(*id));
        }
        line.push_back(id);
    }

    /// Puts a connection that was just taken back to the front of its tenant's queue.
    pub(crate) fn push_first(&mut self, tenant: TenantId, id: ConnId) {
        self.line_of(tenant).push_front(id);
    }

    /// Takes the first connection of the tenant whose turn it is, and gives the turn to the next
    /// tenant. Returns `None` if no connection waits.
    pub(crate) fn take(&mut self) -> Option<ConnId> {
        let tenant = self.turns.pop_front()?;
        let line = &mut self.lines[tenant.0 as usize];
        let first = line.pop_front();
        if !line.is_empty() {
            self.turns.push_back(tenant);
        }
        first
    }

    /// Returns the queue of a tenant for a push. A tenant whose queue is empty gets a place in
    /// `turns`.
    fn line_of(&mut self, tenant: TenantId) -> &mut VecDeque<ConnId> {
        let index = tenant.0 as usize;
        if self.lines.len() <= index {
            self.lines.resize_with(index + 1, VecDeque::new);
        }
        let line = &mut self.lines[index];
        if line.is_empty() {
            self.turns.push_back(tenant);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_take_turns_and_keep_their_own_order() {
        let conn = |index| ConnId { index, generation: 1 };
        let mut starving = StarvingConnections::default();
        for (tenant, index) in [(0, 0), (0, 1), (2, 2), (0, 3)] {
            starving.push(TenantId(tenant), conn(index), 8, |_| true);
        }
        assert_eq!(starving.take(), Some(conn(0)));
        starving.push_first(TenantId(0), conn(0));
        let order: Vec<u32> = std::iter::from_fn(|| starving.take()).map(|id| id.index).collect();
        assert_eq!(order, [2, 0, 1, 3]);
        assert_eq!(starving.tenants(), 0);
    }

    #[test]
    fn connections_that_are_gone_do_not_make_a_line_long() {
        let conn = |index| ConnId { index, generation: 1 };
        let mut starving = StarvingConnections::default();
        for index in 0..1_000 {
            starving.push(TenantId(3), conn(index), 8, |id| id.index == 0);
        }
        assert!(starving.lines[3].len() <= 8);
        assert_eq!(starving.take(), Some(conn(0)), "who stayed is still the first");
    }
}
