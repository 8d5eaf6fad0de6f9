//! What reads that end one behind the other have in common: how long those took that came together,
//! and how many there were of a namespace.
//!
//! Most reads that end in a turn came together, and are of one namespace. So their latency is put
//! into its bucket once, and the namespace's counters are written once in some turns. What is deliberately not
//! here: the counters of tenants, which are as many as the requests (`contract::Meter`).

use contract::{Instant, LatencyBucket, Meters, NamespaceId};

/// Reads of one namespace that its meter has not been told of.
#[derive(Debug)]
pub(crate) struct Tally {
    /// When the last of them had come,
    received_at: Instant,
    /// and where its latency is counted.
    latency: LatencyBucket,
    /// The namespace of these:
    namespace: NamespaceId,
    reads: u32,
    bytes: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            received_at: Instant::ZERO,
            latency: LatencyBucket::FIRST,
            namespace: NamespaceId(0),
            reads: 0,
            bytes: 0,
        }
    }
}

impl Tally {
    /// A turn begins: what comes in it, and is carried out in it, takes no time.
    pub(crate) fn begin_turn(&mut self, now: Instant) {
        (self.received_at, self.latency) = (now, LatencyBucket::FIRST);
    }

    /// A read of so many bytes of this namespace was carried out in the turn at `now`; its last byte
    /// had come at `received_at`. Where its latency is counted.
    #[inline]
    pub(crate) fn add(
        &mut self,
        meters: &Meters,
        now: Instant,
        (namespace, received_at): (NamespaceId, Instant),
        bytes: usize,
    ) -> LatencyBucket {
        if self.namespace != namespace || self.received_at != received_at {
            self.turn_to(meters, now, namespace, received_at);
        }
        self.reads += 1;
        self.bytes += bytes as u64;
        self.latency
    }

    /// The next read is another's, or came at another time, than the one before.
    #[inline(never)]
    fn turn_to(
        &mut self,
        meters: &Meters,
        now: Instant,
        namespace: NamespaceId,
        received_at: Instant,
    ) {
        if self.namespace != namespace {
            self.tell(meters);
            self.namespace = namespace;
        }
        let nanos = now.as_nanos().saturating_sub(received_at.as_nanos());
        (self.received_at, self.latency) = (received_at, LatencyBucket::of(nanos));
    }

    /// Tells the namespace's meter what was added up.
    #[cold]
    pub(crate) fn tell(&mut self, meters: &Meters) {
        if let Some(meter) = meters.namespace(self.namespace) {
            meter.record_reads(self.reads, self.bytes);
        }
        (self.reads, self.bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use contract::NamespaceReading;

    use super::*;

    #[test]
    fn reads_are_timed_by_when_they_came_and_not_by_which_came_before() {
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        let bucket = |us: u64| LatencyBucket::of(us * 1_000);
        let mut tally = Tally::default();
        tally.begin_turn(at(1_000));
        let came = [1_000, 900, 900, 400, 1_000, 2_000];
        let meters = Meters::new(1);
        let time =
            |tally: &mut Tally, now, us| tally.add(&meters, at(now), (NamespaceId(1), at(us)), 512);
        let timed = came.map(|us| time(&mut tally, 1_000, us));
        assert_eq!(timed, [0, 100, 100, 600, 0, 0].map(bucket));
        // The same moment is longer ago in the next turn.
        assert_eq!(time(&mut tally, 1_000, 400), bucket(600));
        tally.begin_turn(at(1_500));
        assert_eq!(time(&mut tally, 1_500, 400), bucket(1_100));
        assert_eq!(time(&mut tally, 1_500, 1_500), bucket(0));
    }

    #[test]
    fn each_namespace_gets_its_own() {
        let meters = Meters::new(1);
        let mut tally = Tally::default();
        // Numbers that are not counted are no harm.
        for (namespace, blocks) in [(1, 8), (1, 1), (7, 2), (u16::MAX, 4), (1, 16), (0, 1)] {
            let came = (NamespaceId(namespace), Instant::ZERO);
            tally.add(&meters, Instant::ZERO, came, 512 * blocks);
        }
        tally.tell(&meters);
        let told = [1, 7].map(|namespace| {
            let mut reading = NamespaceReading::default();
            meters.namespace(NamespaceId(namespace)).unwrap().add_to(&mut reading);
            (reading.requests[0], reading.bytes[0])
        });
        assert_eq!(told, [(3, 25 * 512), (1, 2 * 512)]);
    }
}
