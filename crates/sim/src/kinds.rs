//! The random choices for worlds of another kind. They modify a plan of the first kind, whose own
//! choices so stay the same for each seed.

use std::time::Duration;

use client::Options;
use contract::{DIRECT_BYTES_MIN, SizeClass};
use flash::Rng;

use crate::marks::Mark;
use crate::network::PacketImpairments;
use crate::plan::{Plan, WorldEvent, WorldKind, any};
use crate::{attach, nbd};

impl Plan {
    /// Makes the random choices of a seed for a world of this kind.
    pub(crate) fn of(kind: WorldKind, seed: u64) -> Plan {
        let mut plan = Plan::new(seed);
        match kind {
            WorldKind::Hosts => {}
            WorldKind::Nbd => add_nbd(&mut plan, &mut Rng::new(seed ^ 0x004e_4264)),
            WorldKind::Attached => add_attached(&mut plan, &mut Rng::new(seed ^ 0x7562_6c6b)),
            WorldKind::Packets => turn_to_packets(&mut plan, &mut Rng::new(seed ^ 0x0075_6470)),
        }
        plan
    }

    /// Reduces the clients of `reflex`, raises the limits for others, and schedules kills of the
    /// server.
    fn make_room(&mut self, chance: &mut Rng) {
        self.clients.truncate(any(chance, &[0, 1, 2]));
        self.clients.iter_mut().for_each(|client| client.quota = client.quota.min(100));
        self.hostile = self.hostile.min(1);
        self.replace_hosts(chance);
    }

    /// Removes NVMe hosts, makes room for connections, and schedules kills of the server.
    fn replace_hosts(&mut self, chance: &mut Rng) {
        self.hosts.clear();
        for worker in &mut self.workers {
            worker.sizes.connections_max = 64;
        }
        let last = any(chance, &[3_000_000, 30_000_000, 1_000_000_000]);
        for _ in 0..any(chance, &[0, 0, 1, 3]) {
            let at = Duration::from_nanos(chance.within(0..=last));
            self.happenings.push((at, WorldEvent::Kill));
        }
        self.happenings.sort_by_key(|&(at, _)| at);
    }

    /// Gives workers buffers for requests of 1 MiB, and the device enough tokens to admit such
    /// requests.
    fn make_room_for_big_ones(&mut self) {
        for worker in &mut self.workers {
            match worker.pool.last_mut().filter(|class| class.bytes == 1 << 20) {
                Some(largest) => largest.count = largest.count.max(3),
                None => worker.pool.push(SizeClass { bytes: 1 << 20, count: 3 }),
            }
        }
        self.control_plane.tokens = self.control_plane.tokens.map(|tokens| tokens.max(100_000));
    }
}

fn add_nbd(plan: &mut Plan, chance: &mut Rng) {
    plan.make_room(chance);
    plan.control_plane.stays = Some(Mark::MovedTooEarly);
    let has_big = chance.happens(0.4);
    if has_big {
        plan.make_room_for_big_ones();
    }
    let think = any(chance, &[1_000, 50_000, 500_000]);
    let hot_blocks = any(chance, &[2, 8, 40, 96]);
    let quota = chance.within(40..=150) as u32;
    for _ in 0..chance.within(1..=3) {
        let lapses = nbd::Lapses {
            cuts: any(chance, &[0.0, 0.02, 0.1]),
            hangs_up: any(chance, &[0.0, 0.02, 0.1]),
            goodbyes: any(chance, &[0.0, 0.02]),
        };
        plan.nbd.push(nbd::Habits {
            connections: chance.within(1..=3) as usize,
            depth: any(chance, &[1, 4, 16, 40]),
            quota,
            reads: any(chance, &[0.2, 0.5, 0.8]),
            big: if has_big { 0.02 } else { 0.0 },
            hot_blocks,
            think: 0..=think,
            lapses,
            silence_max: Duration::from_millis(any(chance, &[1_000, 4_000])),
            backoff: 1_000_000..=any(chance, &[2_000_000, 100_000_000]),
            seed: chance.number(),
        });
    }
}

fn add_attached(plan: &mut Plan, chance: &mut Rng) {
    plan.make_room(chance);
    // Requests of attached volumes wait for tokens as long as it takes, which takes many steps.
    plan.control_plane.tokens = plan.control_plane.tokens.map(|tokens| tokens.max(100_000));
    let has_big = chance.happens(0.2);
    if has_big {
        plan.make_room_for_big_ones();
    }
    let think = any(chance, &[1_000, 50_000, 500_000]);
    let hot_blocks = any(chance, &[2, 8, 40, 96]);
    let big = if has_big { 0.02 } else { 0.0 };
    for number in 0..chance.within(1..=2) {
        let fail_after = any(chance, &[attach::PATIENCE, attach::PATIENCE, Duration::from_secs(1)]);
        let depth = any(chance, &[1, 4, 16, 40]);
        let quota = chance.within(30..=100) as u32;
        let reads = any(chance, &[0.2, 0.5]);
        let queues = any(chance, &[1, 1, 2, 3]);
        let queue = |queue| attach::Habits {
            options: Options {
                in_flight_max: depth,
                client: u128::from(2000 + 16 * number + queue),
                checksums: number == 1,
                direct_min: any(chance, &[1, 700, DIRECT_BYTES_MIN]),
                outage_max: fail_after,
                reissues_max: u8::MAX,
                silence_max: Duration::from_secs(any(chance, &[1, 4, 30])),
                seed: chance.number(),
                ..Options::default()
            },
            fail_after,
            quota,
            reads,
            big,
            hot_blocks,
            think: 0..=think,
            seed: chance.number(),
        };
        let queues = (0..queues).map(queue).collect();
        plan.attached.push(attach::Attachment { queues, deaths: deaths(chance) });
    }
}

fn turn_to_packets(plan: &mut Plan, chance: &mut Rng) {
    plan.replace_hosts(chance);
    plan.control_plane.stays = Some(Mark::MovedNoPackets);
    let base = any(chance, &[5_000, 20_000, 200_000]);
    plan.packets = Some(PacketImpairments {
        latency: base..=any(chance, &[base, 2 * base, 10 * base]),
        late: any(chance, &[0.0, 0.01, 0.2]),
        lost: any(chance, &[0.0, 0.001, 0.02, 0.1]),
        doubled: any(chance, &[0.0, 0.01, 0.2]),
        damaged: any(chance, &[0.0, 0.0, 0.01, 0.05]),
    });
}

/// Returns the deaths of a device's processes, each with the time of the successor.
fn deaths(chance: &mut Rng) -> Vec<(Duration, Duration)> {
    let life = any(chance, &[300_000, 3_000_000, 100_000_000]);
    let pause = any(chance, &[10_000, 2_000_000, 300_000_000]);
    let count = any(chance, &[0, 1, 4, 20]);
    let mut at = Duration::ZERO;
    let death = |_| {
        let death = at + Duration::from_nanos(chance.within(1..=life));
        at = death + Duration::from_nanos(chance.within(1..=pause));
        (death, at)
    };
    (0..count).map(death).collect()
}
