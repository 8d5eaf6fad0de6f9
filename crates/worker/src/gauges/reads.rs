//! The figures shared by reads that end one after another: their tenant, the latency of reads that
//! arrived together, and their number in a namespace.
//!
//! Most reads that end in a turn arrived together and belong to one tenant and one namespace. So a
//! tenant's counters are written for the first read of a row and once for the rest, and a
//! namespace's once in some turns. A single read costs no more than without rows. Deliberately not
//! here: the counters (`contract::Meters`).

use contract::{Instant, LatencyBucket, Meters, NamespaceId, TenantId};

/// A row of reads that ended one after another, of one tenant and one namespace, and arrived
/// together. The meters have counted the first of them, and not yet the others.
#[derive(Debug)]
pub(crate) struct ReadRow {
    /// The tenant of these reads.
    tenant: TenantId,
    /// The namespace of these reads.
    namespace: NamespaceId,
    /// The time at which all of these reads had arrived.
    received_at: Instant,
    /// The bucket of the reads' latency.
    latency: LatencyBucket,
    ended: u32,
    ended_bytes: u64,
    /// Reads of the namespace that the tenants' meters have counted, but not yet the namespace's
    /// meter.
    reads: u32,
    bytes: u64,
}

impl Default for ReadRow {
    fn default() -> Self {
        ReadRow {
            tenant: TenantId::DEFAULT,
            namespace: NamespaceId(0),
            received_at: Instant::ZERO,
            latency: LatencyBucket::FIRST,
            ended: 0,
            ended_bytes: 0,
            reads: 0,
            bytes: 0,
        }
    }
}

impl ReadRow {
    /// Begins a turn. Requests that arrive in a turn and end in it take no time.
    pub(crate) fn begin_turn(&mut self, now: Instant) {
        debug_assert!(self.ended == 0, "a turn settles what ended in it");
        (self.received_at, self.latency) = (now, LatencyBucket::FIRST);
    }

    /// Adds a tenant's read of so many bytes of this namespace. It ended in the turn at `now`, and
    /// its last byte arrived at `received_at`.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        meters: &Meters,
        now: Instant,
        (tenant, namespace, received_at): (TenantId, NamespaceId, Instant),
        bytes: usize,
    ) {
        if self.namespace != namespace || self.received_at != received_at {
            self.turn_to(meters, now, namespace, received_at);
        }
        if self.tenant == tenant {
            self.ended_bytes += bytes as u64;
            self.ended += 1;
            return;
        }
        self.settle(meters);
        self.tenant = tenant;
        self.count(meters, 1, bytes as u64);
    }

    /// Adds the row to the tenant's meter, no later than in the turn in which the reads ended.
    #[inline]
    pub(crate) fn settle(&mut self, meters: &Meters) {
        if self.ended > 0 {
            self.end_row(meters);
        }
    }

    /// Ends the row of reads of one tenant.
    // Cold, as what is off the way of most requests: what it needs is made ready there.
    #[cold]
    fn end_row(&mut self, meters: &Meters) {
        self.count(meters, self.ended, self.ended_bytes);
        (self.ended, self.ended_bytes) = (0, 0);
    }

    /// Adds `reads` successful reads with `bytes` bytes in total to the tenant's counters.
    #[inline(always)]
    fn count(&mut self, meters: &Meters, reads: u32, bytes: u64) {
        let meter = meters.get(self.tenant).expect("tenants' numbers lie below the maximum");
        meter.record_reads(reads, bytes, self.latency);
        meter.retire(reads);
        self.reads += reads;
        self.bytes += bytes;
    }

    /// Begins a row of another namespace or time, after the earlier reads were counted.
    #[cold]
    fn turn_to(
        &mut self,
        meters: &Meters,
        now: Instant,
        namespace: NamespaceId,
        received_at: Instant,
    ) {
        self.settle(meters);
        if self.namespace != namespace {
            self.tell(meters);
            self.namespace = namespace;
        }
        let nanos = now.as_nanos().saturating_sub(received_at.as_nanos());
        (self.received_at, self.latency) = (received_at, LatencyBucket::of(nanos));
    }

    /// Adds the counted reads to the namespace's meter.
    #[cold]
    pub(crate) fn tell(&mut self, meters: &Meters) {
        if let Some(meter) = meters.namespace(self.namespace) {
            meter.work.record_reads(self.reads, self.bytes);
        }
        (self.reads, self.bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use contract::{IoKind, TenantReading};

    use super::*;

    /// Meters of three tenants, each with so many requests in flight.
    fn meters(in_flight: u32) -> Meters {
        let meters = Meters::new(3);
        for tenant in (0..3).map(TenantId) {
            (0..in_flight).for_each(|_| meters.get(tenant).unwrap().admit());
        }
        meters
    }

    fn reading(meters: &Meters, tenant: u32) -> TenantReading {
        let mut reading = TenantReading::default();
        meters.get(TenantId(tenant)).unwrap().add_to(&mut reading);
        reading
    }

    #[test]
    fn reads_are_timed_by_when_they_came_and_not_by_which_came_before() {
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        let meters = meters(20);
        let mut row = ReadRow::default();
        // Each with the latency in µs that it is to be counted with.
        let mut take = |now: u64, came: &[(u64, u64)]| {
            row.begin_turn(at(now));
            for (came, latency) in came {
                let came = (TenantId(0), NamespaceId(1), at(*came));
                row.add(&meters, at(now), came, 512);
                meters.get(TenantId(1)).unwrap().record(IoKind::Read, 512, latency * 1_000);
            }
            row.settle(&meters);
            assert_eq!(reading(&meters, 0).reads, reading(&meters, 1).reads);
        };
        take(1_000, &[(1_000, 0), (900, 100), (900, 100), (400, 600), (1_000, 0), (2_000, 0)]);
        // The same moment is longer ago in the next turn.
        take(1_500, &[(400, 1_100), (1_500, 0)]);
    }

    #[test]
    fn each_tenant_gets_its_own_when_anothers_follows_or_the_turn_ends() {
        let meters = meters(4);
        let mut row = ReadRow::default();
        let told = |tenant| {
            let TenantReading { in_flight, read_bytes, .. } = reading(&meters, tenant);
            (in_flight, read_bytes)
        };
        for (tenant, bytes) in [(1, 512), (1, 512), (2, 4096), (1, 512)] {
            let came = (TenantId(tenant), NamespaceId(1), Instant::ZERO);
            row.add(&meters, Instant::ZERO, came, bytes);
        }
        assert_eq!([0, 1, 2].map(told), [(4, 0), (1, 1536), (3, 4096)]);
        let came = (TenantId(1), NamespaceId(1), Instant::ZERO);
        row.add(&meters, Instant::ZERO, came, 4096);
        row.settle(&meters);
        row.settle(&meters);
        assert_eq!([0, 1, 2].map(told), [(4, 0), (0, 5632), (3, 4096)]);
    }

    #[test]
    fn each_namespace_gets_its_own() {
        let meters = meters(9);
        let mut row = ReadRow::default();
        // Numbers that are not counted are no harm.
        for (namespace, blocks) in [(1, 8), (1, 1), (7, 2), (u16::MAX, 4), (1, 16), (0, 1)] {
            let came = (TenantId(0), NamespaceId(namespace), Instant::ZERO);
            row.add(&meters, Instant::ZERO, came, 512 * blocks);
        }
        row.settle(&meters);
        row.tell(&meters);
        let told = [1, 7].map(|namespace| {
            let reading = meters.namespace(NamespaceId(namespace)).unwrap().work.read();
            (reading.requests[0], reading.bytes[0])
        });
        assert_eq!(told, [(3, 25 * 512), (1, 2 * 512)]);
        assert_eq!(reading(&meters, 0).read_bytes, 32 * 512);
    }
}
