//! Counters of the packets that the workers of this process exchange with clients
//! (docs/adr/0035-udp.md).
//!
//! Each worker writes its own counters, and a reader adds them up. Most servers have no packets, so
//! the counters are a table of the process, as those of [`Happening`](crate::Happening) are.

use core::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of workers whose packets are counted apart.
const WORKERS_MAX: usize = 64;

/// Number of counters that each worker has, as in [`PacketReading`].
const COUNTERS: usize = 9;

/// The counters of a worker's packets, in total. All but the associations only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketReading {
    /// Packets that arrived from clients.
    pub received: u64,
    /// Packets that were sent to clients.
    pub sent: u64,
    /// Pieces of messages that were sent again, because their packets were lost or refused.
    pub resent: u64,
    /// Packets that could not be parsed, or whose checksum was wrong.
    pub malformed: u64,
    /// Packets of no association, with a wrong cookie, or from an unknown address.
    pub unknown: u64,
    /// Packets that had arrived before.
    pub repeated: u64,
    /// Packets that were not acknowledged because there was no room for them.
    pub no_room: u64,
    /// Packets of strangers that were dropped because too many came.
    pub too_many: u64,
    /// Current number of associations with clients.
    pub associations: u64,
}

impl PacketReading {
    fn as_array(self) -> [u64; COUNTERS] {
        let PacketReading { received, sent, resent, .. } = self;
        let PacketReading { malformed, unknown, repeated, no_room, too_many, .. } = self;
        let all = [received, sent, resent, malformed, unknown, repeated, no_room, too_many];
        core::array::from_fn(|n| all.get(n).copied().unwrap_or(self.associations))
    }

    /// Returns the counters summed over all workers of this process.
    pub fn of_process() -> PacketReading {
        let sum = |n: usize| METERS.iter().map(|meter| meter.0[n].load(Ordering::Relaxed)).sum();
        let [received, sent, resent, malformed, unknown, repeated, no_room, too_many, associations] =
            core::array::from_fn(sum);
        PacketReading {
            received,
            sent,
            resent,
            malformed,
            unknown,
            repeated,
            no_room,
            too_many,
            associations,
        }
    }

    /// Worker: stores its totals as the counters of worker `worker`.
    pub fn tell(self, worker: usize) {
        let meter = &METERS[worker % WORKERS_MAX];
        let all = meter.0.iter().zip(self.as_array());
        all.for_each(|(counter, count)| counter.store(count, Ordering::Relaxed));
    }
}

/// The counters of one worker.
#[repr(align(128))]
struct PacketMeter([AtomicU64; COUNTERS]);

static METERS: [PacketMeter; WORKERS_MAX] =
    [const { PacketMeter([const { AtomicU64::new(0) }; COUNTERS]) }; WORKERS_MAX];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_workers_add_up() {
        let one = PacketReading {
            received: 1,
            sent: 2,
            resent: 3,
            malformed: 4,
            unknown: 5,
            repeated: 6,
            no_room: 7,
            too_many: 8,
            associations: 9,
        };
        one.tell(0);
        PacketReading { received: 10, associations: 1, ..one }.tell(1);
        one.tell(0);
        let all = PacketReading::of_process();
        assert_eq!((all.received, all.sent, all.resent, all.associations), (11, 4, 6, 10));
        assert_eq!([all.malformed, all.unknown, all.repeated], [8, 10, 12]);
        assert_eq!([all.no_room, all.too_many], [14, 16]);
    }
}
