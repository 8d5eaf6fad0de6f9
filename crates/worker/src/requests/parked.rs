//! Reads that a scheduler has released and that wait for buffers: a line for each tenant. The
//! tenants take turns, so that no tenant waits for the buffers of another.

use std::collections::VecDeque;

use contract::{Slot, SlotTable, TenantId};

use super::InFlightRequest;
use super::chain::SlotList;

/// The reads of a device that wait for buffers. A buffer that comes back ends the wait of one.
#[derive(Debug)]
pub(crate) struct ParkedReads {
    /// The lines by tenant; the read that has waited longest is in front.
    lines: Box<[SlotList]>,
    /// Tenants whose lines are not empty, each once. The front tenant has the next turn.
    turns: VecDeque<TenantId>,
}

impl ParkedReads {
    /// Creates lines for so many tenants.
    pub(crate) fn new(tenants_max: usize) -> ParkedReads {
        let lines = vec![SlotList::default(); tenants_max].into();
        ParkedReads { lines, turns: VecDeque::with_capacity(tenants_max) }
    }

    /// Returns the number of tenants with waiting reads.
    #[inline]
    pub(crate) fn tenants(&self) -> usize {
        self.turns.len()
    }

    /// Returns whether reads of this tenant wait.
    pub(crate) fn has(&self, tenant: TenantId) -> bool {
        self.lines.get(tenant.0 as usize).is_some_and(|line| !line.is_empty())
    }

    /// Puts a read at the end of its tenant's line.
    pub(crate) fn push(&mut self, table: &mut SlotTable<InFlightRequest>, slot: Slot) {
        let line = self.line_of(table, slot);
        line.push(table, slot);
    }

    /// Puts a read that was just taken back to the front of its tenant's line.
    pub(crate) fn push_first(&mut self, table: &mut SlotTable<InFlightRequest>, slot: Slot) {
        let line = self.line_of(table, slot);
        line.push_first(table, slot);
    }

    /// Takes the first read of the tenant whose turn it is, and gives the turn to the next tenant.
    /// Returns `None` if no read waits.
    pub(crate) fn take(&mut self, table: &mut SlotTable<InFlightRequest>) -> Option<Slot> {
        let tenant = self.turns.pop_front()?;
        let line = &mut self.lines[tenant.0 as usize];
        let first = line.pop(table).expect("its line is not empty");
        if !line.is_empty() {
            self.turns.push_back(tenant);
        }
        Some(first)
    }

    /// Moves the reads for which `is_meant` is true to `taken`, in the order of each line.
    pub(crate) fn withdraw(
        &mut self,
        table: &mut SlotTable<InFlightRequest>,
        is_meant: impl Fn(&InFlightRequest) -> bool,
        taken: &mut Vec<Slot>,
    ) {
        for tenant in &self.turns {
            let line = &mut self.lines[tenant.0 as usize];
            let mut next = line.front();
            while let Some(slot) = next {
                next = SlotList::behind(table, slot);
                if is_meant(table.get(slot)) {
                    line.remove(table, slot);
                    taken.push(slot);
                }
            }
        }
        let lines = &self.lines;
        self.turns.retain(|tenant| !lines[tenant.0 as usize].is_empty());
    }

    /// Returns the line of a read's tenant, and adds the tenant to the turns.
    fn line_of(&mut self, table: &mut SlotTable<InFlightRequest>, slot: Slot) -> &mut SlotList {
        let tenant = table.get(slot).tenant;
        let line = &mut self.lines[tenant.0 as usize];
        if line.is_empty() {
            self.turns.push_back(tenant);
        }
        line
    }
}
