//! What a worker counts (`contract::Meters`), and which requests it looks at more closely.
//!
//! For each request: whose it was, of which namespace, how much it carried, and how long a read took.
//! What turns can add up they tell once in a while. Where the time of a request went is looked at for one
//! in 64, by chance, so that no pattern of the load falls into step with it; such a one is counted for its
//! protocol, too. What is deliberately not here: a clock (`watch.rs` has one).

use contract::{
    COUNTED, CoarseBucket, Command, Completion, ConnId, Device, Gauges, Instant, Kind, Mailbox,
    Meters, NamespaceId, Protocol, Scheduler, Session, Stage, Status, TenantId, Transport,
};

use crate::inflight::InFlight;
use crate::worker::Worker;

/// One request in so many is looked at.
pub(crate) const SAMPLED_ONE_IN: u32 = 64;

/// What turns add up is told once in so many that do something, and by the first that does nothing:
/// before a worker sleeps.
const TOLD_TURNS: u32 = 16;

/// Picks one in so many by chance.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// How many are left out before the next.
    left: usize,
    /// At most so many are left out.
    most: u32,
    /// Where chance stands: the same for every worker that ever starts.
    state: u32,
}

impl Sampler {
    /// Picks one in so many.
    pub(crate) fn new(one_in: u32) -> Sampler {
        Sampler { left: 0, most: 2 * one_in - 1, state: 0x9e37_79b9 }
    }

    /// So many more have come: the place of the first of them that is picked. What lies behind it
    /// has to be asked about again.
    #[inline]
    pub(crate) fn skip(&mut self, come: usize) -> Option<usize> {
        if self.left >= come {
            self.left -= come;
            return None;
        }
        let place = self.left;
        // Xorshift with the shifts of Marsaglia (2003).
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        self.left = (self.state % self.most) as usize;
        Some(place)
    }
}

/// What is counted of a request when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    tenant: TenantId,
    namespace: NamespaceId,
    command: Command,
    received_at: Instant,
}

impl Ended {
    #[inline]
    pub(crate) fn of(entry: &InFlight) -> Ended {
        let InFlight { tenant, namespace, command, received_at, .. } = *entry;
        Ended { tenant, namespace, command, received_at }
    }
}

/// Whom a request that is looked at is counted for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picked {
    tenant: TenantId,
    namespace: NamespaceId,
    /// `None`: its connection is gone.
    protocol: Option<Protocol>,
    kind: Kind,
}

impl Picked {
    /// It spent so many nanoseconds in each of these stages.
    #[inline]
    pub(crate) fn count<const N: usize>(self, meters: &Meters, times: [(Stage, u64); N]) {
        let times = times.map(|(stage, nanos)| (stage, CoarseBucket::of(nanos)));
        let tenant = meters.get(self.tenant).expect("tenants' numbers lie below the maximum");
        times.iter().for_each(|(stage, time)| tenant.sample(self.kind, *stage, *time));
        let namespace = meters.namespace(self.namespace).map(|meter| &meter.work);
        let protocol = self.protocol.map(|protocol| meters.protocol(protocol));
        for work in [namespace, protocol].into_iter().flatten() {
            times.iter().for_each(|(stage, time)| work.stages.sample(self.kind, *stage, *time));
        }
    }
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// A request is not in flight any more, and is answered with a status unless nobody waits for
    /// the answer. (Reads that were carried out go the way of `tally.rs`.)
    #[inline(always)]
    pub(crate) fn count_end(&mut self, ended: &Ended, answer: Option<Status>) {
        match answer {
            Some(Status::Ok) if COUNTED => self.count_other(ended),
            Some(Status::Ok) | None => {}
            Some(status) => self.count_failure(ended.tenant, status),
        }
        self.meter(ended.tenant).retire(1);
    }

    /// A request that is no read was carried out, and is answered now.
    #[inline(never)]
    fn count_other(&self, ended: &Ended) {
        let (kind, bytes) = (ended.command.kind(), ended.command.payload_bytes());
        let nanos = self.now.since(ended.received_at).as_nanos() as u64;
        self.meter(ended.tenant).record(kind, bytes, nanos);
        if let Some(namespace) = self.line.meters.namespace(ended.namespace) {
            namespace.work.record(kind, bytes);
        }
    }

    /// A request of a tenant was not carried out.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_failure(&self, tenant: TenantId, status: Status) {
        self.meter(tenant).fail(status);
        self.line.meters.worker.fail(status);
    }

    /// A request was refused before it was admitted, which this tenant was to be charged for.
    #[cold]
    pub(crate) fn count_refusal(&self, charged: Result<TenantId, Status>, status: Status) {
        match charged {
            Ok(tenant) => self.count_failure(tenant, status),
            Err(_) => self.line.meters.worker.fail(status),
        }
    }

    /// Looks more closely at some of these requests, which the devices have ended since `polled`.
    pub(crate) fn look_at(&mut self, polled: Instant, ended: &[Completion]) {
        self.lap(contract::Part::Device);
        if !COUNTED {
            return;
        }
        let mut rest = ended;
        while let Some(place) = self.sampler.skip(rest.len()) {
            self.sample(&rest[place]);
            rest = &rest[place + 1..];
        }
        if self.laps.is_tracing {
            self.trace_ended(polled, ended);
        }
    }

    fn sample(&mut self, completion: &Completion) {
        let entry = self.in_flight.get(completion.slot);
        let InFlight { conn, tenant, namespace, command, .. } = *entry;
        let submitted_at = entry.submitted_at.expect("the device got it");
        let queued = submitted_at.since(entry.received_at).as_nanos() as u64;
        let delay = self.now.since(submitted_at).as_nanos() as u64;
        let kind = command.kind();
        let protocol = self.find(conn).map(|conn| conn.session.protocol());
        let picked = Picked { tenant, namespace, protocol, kind };
        picked.count(&self.line.meters, [(Stage::Scheduler, queued), (Stage::Device, delay)]);
        let Some(protocol) = protocol else { return };
        if completion.status.is_ok() {
            self.line.meters.protocol(protocol).record(kind, command.buffer_bytes());
        }
        if kind == Kind::Read {
            self.await_leaving(conn, picked);
        }
    }

    /// Looks more closely at some of the barriers that have ended, which no device has seen: who asks
    /// for them is the only one to divide them by.
    pub(crate) fn look_at_barrier(&mut self, conn: ConnId) {
        if !COUNTED || self.sampler.skip(1).is_none() {
            return;
        }
        let Some(protocol) = self.find(conn).map(|conn| conn.session.protocol()) else { return };
        self.line.meters.protocol(protocol).record(Kind::Other, 0);
    }

    /// The turn ends, whose replies had been written at `answered`.
    pub(crate) fn end_metering(&mut self, answered: Instant) {
        self.lap(contract::Part::Network);
        self.tally.settle(&self.line.meters);
        if self.awaits_leaving() {
            self.note_positions(answered);
        }
        self.untold += u32::from(self.progressed);
        if COUNTED && self.untold > 0 && (!self.progressed || self.untold >= TOLD_TURNS) {
            self.tell_meters();
        }
        self.end_laps();
    }

    /// Tells what the turns came to since the last time.
    pub(crate) fn tell_meters(&mut self) {
        let meters = &self.line.meters;
        self.tally.tell(meters);
        for (n, attached) in self.devices.iter().enumerate() {
            let meter = meters.device(n);
            meter.tell(attached.submitted, attached.scheduler.queued());
            meter.tell_tokens(attached.scheduler.tokens());
        }
        let load = self.load();
        let gauges = Gauges {
            protocols: if self.open_connections > 0 { self.protocols } else { [0; 2] },
            in_flight: load.in_flight as u32,
            buffers: load.buffers as u32,
            carried: load.carried as u32,
        };
        meters.worker.tell(std::mem::take(&mut self.untold), self.busy_nanos, gauges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_so_many_is_picked_and_never_in_step() {
        let mut sampler = Sampler::new(32);
        let mut picked = Vec::new();
        // Turns of 1 to 64 requests.
        let mut first = 0;
        for turn in 0..20_000 {
            let (mut place, end) = (first, first + 1 + turn % 64);
            while let Some(skipped) = sampler.skip(end - place) {
                picked.push(place + skipped);
                place += skipped + 1;
            }
            first = end;
        }
        let share = first as f64 / picked.len() as f64;
        assert!((31.0..33.0).contains(&share), "one in {share}");
        // Whatever the period of a load up to 64 requests, each of them is looked at.
        for period in 2..=64 {
            let mut seen = vec![0; period];
            picked.iter().for_each(|place| seen[place % period] += 1);
            let even = picked.len() as f64 / period as f64;
            let sound = seen.iter().all(|n| (0.7..1.3).contains(&(f64::from(*n) / even)));
            assert!(sound, "{period}: {seen:?}");
        }
    }
}
