//! Counters of the packets that the workers of this process exchange with clients
//! (docs/adr/0035-udp.md).
//!
//! Each worker writes its own counters, and a reader adds them up. Most servers have no packets, so
//! the counters are a table of the process, as those of [`ServerEvent`](crate::ServerEvent) are.

use core::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of workers whose packets are counted apart.
const WORKERS_MAX: usize = 64;

/// Number of counters that each worker has, as in [`PacketReading`].
const COUNTERS: usize = 11 + 2 * PacketReading::LANES_MAX;

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
    /// Number of packets that were dropped without acknowledgement because the receiver had no room
    /// for their contents.
    pub no_room: u64,
    /// Packets of strangers that were dropped because too many came.
    pub too_many: u64,
    /// Current number of associations with clients.
    pub associations: u64,
    /// Times that a path was left, since the client was silent there and not elsewhere.
    pub paths_left: u64,
    /// Times that a further path, or one that had been left, was proven.
    pub paths_proven: u64,
    /// The packets of each lane, in their order in the listener's URL.
    pub lanes: [LaneReading; PacketReading::LANES_MAX],
}

/// The counters of the packets that one lane has carried, in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneReading {
    /// Packets that arrived from clients.
    pub received: u64,
    /// Packets that were sent to clients.
    pub sent: u64,
}

impl PacketReading {
    /// Maximum number of lanes of a listener.
    pub const LANES_MAX: usize = 4;

    /// Returns the counters in the order of the table. A worker does this in every turn, so there
    /// is no loop.
    fn as_array(&self) -> [u64; COUNTERS] {
        let [a, b, c, d] = &self.lanes;
        [
            self.received,
            self.sent,
            self.resent,
            self.malformed,
            self.unknown,
            self.repeated,
            self.no_room,
            self.too_many,
            self.associations,
            self.paths_left,
            self.paths_proven,
            a.received,
            a.sent,
            b.received,
            b.sent,
            c.received,
            c.sent,
            d.received,
            d.sent,
        ]
    }

    /// Returns the counters summed over all workers of this process.
    pub fn of_process() -> PacketReading {
        let sum = |n: usize| METERS.iter().map(|meter| meter.0[n].load(Ordering::Relaxed)).sum();
        let all: [u64; COUNTERS] = core::array::from_fn(sum);
        let [received, sent, resent, malformed, unknown, repeated, no_room, too_many, rest @ ..] =
            all;
        let [associations, paths_left, paths_proven, lanes @ ..] = rest;
        let lane = |n: usize| LaneReading { received: lanes[2 * n], sent: lanes[2 * n + 1] };
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
            paths_left,
            paths_proven,
            lanes: core::array::from_fn(lane),
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
            paths_left: 10,
            paths_proven: 11,
            lanes: core::array::from_fn(|n| LaneReading { received: n as u64, sent: 2 }),
        };
        one.tell(0);
        PacketReading { received: 10, associations: 1, ..one }.tell(1);
        one.tell(0);
        let all = PacketReading::of_process();
        assert_eq!((all.received, all.sent, all.resent, all.associations), (11, 4, 6, 10));
        assert_eq!([all.malformed, all.unknown, all.repeated], [8, 10, 12]);
        assert_eq!([all.no_room, all.too_many], [14, 16]);
        assert_eq!([all.paths_left, all.paths_proven], [20, 22]);
        assert_eq!(all.lanes.map(|lane| (lane.received, lane.sent)), [0, 2, 4, 6].map(|n| (n, 4)));
    }
}
