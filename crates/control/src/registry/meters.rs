//! The counters and traces that workers write and the registry reads.

use std::sync::Arc;

use contract::{Meters, TenantId, TenantMeter, TenantReading, Traces};

/// The counters and the traces of all workers.
#[derive(Debug)]
pub(crate) struct WorkerMeters {
    meters: Vec<Arc<Meters>>,
    traces: Vec<Arc<Traces>>,
}

impl WorkerMeters {
    /// Returns counters of `workers` workers for at most `tenants_max` tenants.
    pub(super) fn new(workers: usize, tenants_max: usize) -> WorkerMeters {
        WorkerMeters {
            meters: (0..workers).map(|_| Arc::new(Meters::new(tenants_max))).collect(),
            traces: (0..workers).map(|_| Arc::default()).collect(),
        }
    }

    /// Returns the counters by worker.
    pub(super) fn all(&self) -> &[Arc<Meters>] {
        &self.meters
    }

    /// Returns the traces by worker.
    pub(crate) fn traces(&self) -> &[Arc<Traces>] {
        &self.traces
    }

    /// Returns a tenant's counters, by worker.
    fn of(&self, tenant: TenantId) -> impl Iterator<Item = &TenantMeter> {
        let meters = self.meters.iter();
        meters.map(move |meters| meters.get(tenant).expect("as many meters as numbers"))
    }

    /// Returns a tenant's counters, summed over all workers.
    pub(super) fn reading(&self, tenant: TenantId) -> TenantReading {
        let mut reading = TenantReading::default();
        self.of(tenant).for_each(|meter| meter.add_to(&mut reading));
        reading
    }

    /// Returns the number of connections that belong to a tenant or hold a handle on it.
    pub(crate) fn connections(&self, tenant: TenantId) -> u32 {
        self.of(tenant).map(TenantMeter::connections).sum()
    }

    /// Returns the number of workers that have connections of a tenant.
    pub(super) fn workers_of(&self, tenant: TenantId) -> usize {
        self.of(tenant).filter(|meter| meter.connections() > 0).count()
    }

    /// Returns the number of a tenant's requests that are admitted and not yet answered.
    pub(super) fn in_flight(&self, tenant: TenantId) -> u32 {
        self.of(tenant).map(TenantMeter::in_flight).sum()
    }

    /// Returns the number of answers about a tenant that workers have processed. The number wraps.
    pub(super) fn answers(&self, tenant: TenantId) -> u32 {
        self.of(tenant).map(TenantMeter::answers).fold(0, u32::wrapping_add)
    }

    /// Returns `true` if every worker has begun this epoch of a number, and has no request in
    /// flight of an earlier one.
    pub(super) fn has_left(&self, tenant: TenantId, epoch: u32) -> bool {
        // In this order: the count after the end of the epoch includes all requests admitted
        // before.
        self.of(tenant).all(|meter| meter.epoch() == epoch && meter.in_flight() == 0)
    }

    /// Returns `true` if every worker applies the first `changes` namespace changes.
    pub(super) fn have_placed(&self, changes: u64) -> bool {
        self.meters.iter().all(|meters| meters.placed() == changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_left_when_every_worker_has_ended_its_epoch() {
        let meters = WorkerMeters::new(2, 4);
        let tenant = TenantId(3);
        assert!(meters.has_left(tenant, 0) && !meters.has_left(tenant, 1));
        for (n, worker) in meters.all().iter().enumerate() {
            assert!(!meters.has_left(tenant, 1), "{n} workers");
            worker.get(tenant).unwrap().end_epoch();
        }
        assert!(meters.has_left(tenant, 1));
        assert_eq!((meters.connections(tenant), meters.workers_of(tenant)), (0, 0));
    }
}
