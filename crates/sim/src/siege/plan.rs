//! The choices of a siege's seed: the server, the attackers and their neighbours.

use std::time::Duration;

use contract::{SizeClass, Slo};
use flash::{Delay, Faults, Rng};
use worker::Limits;

use super::attacker::AttackKind;
use crate::disk::{self, Lateness};
use crate::network::{HostSizes, Impairments};
use crate::plan::{ControlPlanePlan, WorkerPlan, any};
use crate::tenants::TENANTS;

/// The blocks of the volume, which is one namespace.
pub(super) const VOLUME_BLOCKS: u64 = 4096;
/// The number of blocks in an attacker's large request, which fills the largest buffer.
pub(super) const LARGE_BLOCKS: u32 = 128;
/// The promise to the neighbour that has one.
pub(super) const PROMISE: Slo = Slo::new(1_000, 1_000, 90);

/// An attacking tenant.
#[derive(Clone, Debug)]
pub(super) struct AttackerPlan {
    pub(super) connections: usize,
    /// The weight of each behaviour of connections, in the order of [`AttackKind::ALL`].
    pub(super) weights: [u64; AttackKind::ALL.len()],
    /// The share of connections that the attacker closes itself, from 0 to 1.
    pub(super) leaves: f64,
    /// The time at which the attack begins.
    pub(super) begins: Duration,
}

/// A tenant beside the attackers.
#[derive(Clone, Debug)]
pub(super) struct NeighbourPlan {
    pub(super) is_promised: bool,
    pub(super) connections: usize,
    pub(super) period: Duration,
    /// The share of writes among its requests, from 0 to 1.
    pub(super) writes: f64,
    /// The two sizes of its requests, in blocks.
    pub(super) blocks: [u32; 2],
}

/// The choices of a seed.
#[derive(Clone, Debug)]
pub(super) struct SiegePlan {
    pub(super) impairments: Impairments,
    pub(super) workers: Vec<WorkerPlan>,
    pub(super) raiders: Vec<AttackerPlan>,
    pub(super) neighbours: Vec<NeighbourPlan>,
    pub(super) control_plane: ControlPlanePlan,
    pub(super) lasts: Duration,
}

impl SiegePlan {
    pub(super) fn new(seed: u64) -> SiegePlan {
        let chance = &mut Rng::new(seed ^ 0x51e6_e000_0000);
        let workers = chance.within(1..=2) as usize;
        let impairments = impairments(chance);
        let workers = (0..workers).map(|number| worker(chance, number)).collect();
        let raiders = (0..any(chance, &[1, 1, 1, 2])).map(|_| raider(chance)).collect();
        let neighbours = neighbours(chance);
        let tokens = any(chance, &[None, Some(20_000_000)]);
        SiegePlan {
            impairments,
            workers,
            raiders,
            neighbours,
            control_plane: ControlPlanePlan { tokens, seed: chance.number(), stays: None },
            lasts: Duration::from_millis(any(chance, &[3_000, 5_000])),
        }
    }
}

fn impairments(chance: &mut Rng) -> Impairments {
    Impairments {
        latency: 20_000..=25_000,
        hiccups: 0.0,
        segment: any(chance, &[1460..=1460, 4096..=65_536]),
        piece: 65_536..=65_536,
        window: any(chance, &[16_384..=16_384, 65_536..=65_536, 262_144..=262_144]),
        half_open: 0.0,
        failed_dials: 0.0,
        timeout: 1_000_000_000..=1_000_000_000,
    }
}

fn worker(chance: &mut Rng, number: usize) -> WorkerPlan {
    let in_flight = any(chance, &[96, 256]);
    let limits = Limits {
        in_flight,
        tenants: TENANTS,
        in_flight_of_connection: any(chance, &[16, 64]),
        unsent_of_connection: any(chance, &[64 << 10, 256 << 10]),
        direct_min: any(chance, &[4 << 10, 32 << 10]),
        carried: any(chance, &[256 << 10, 2 << 20]),
        ..Limits::default()
    };
    let pool = vec![
        SizeClass { bytes: 4 << 10, count: any(chance, &[32, 128]) },
        SizeClass { bytes: 16 << 10, count: 16 },
        SizeClass { bytes: 64 << 10, count: 8 },
    ];
    WorkerPlan {
        number,
        limits,
        pool,
        scratch: 1,
        queue_max: in_flight,
        receive_buffers: SizeClass { bytes: 4 << 10, count: any(chance, &[8, 64]) },
        sizes: HostSizes { connections_max: 256, frames_max: 2 * in_flight + 64 },
        disk: disk::Habits {
            depth: 256,
            granularity_bytes: 512,
            lateness: Lateness { usual: 80_000..=90_000, rare: 80_000..=90_000, share: 0.0 },
            delay: Delay { min: Duration::ZERO, max: Duration::ZERO },
            faults: Faults::default(),
        },
    }
}

/// Chooses an attacker, whose connections have one behaviour alone or any mix of them.
fn raider(chance: &mut Rng) -> AttackerPlan {
    let alone = chance.happens(0.25).then(|| chance.within(0..=AttackKind::ALL.len() as u64 - 1));
    let weights = std::array::from_fn(|n| match alone {
        Some(one) => u64::from(one == n as u64),
        None => any(chance, &[0, 0, 1, 4]),
    });
    let is_nothing = weights.iter().all(|weight| *weight == 0);
    AttackerPlan {
        connections: any(chance, &[8, 24, 60]),
        // Half payloads and unread replies, as many of each.
        weights: if is_nothing { [1, 1, 0, 0, 0, 0, 0] } else { weights },
        leaves: any(chance, &[0.0, 0.3, 0.9]),
        begins: Duration::from_millis(200),
    }
}

fn neighbours(chance: &mut Rng) -> Vec<NeighbourPlan> {
    let one = |chance: &mut Rng, is_promised, period, writes| NeighbourPlan {
        is_promised,
        connections: any(chance, &[1, 2]),
        period: Duration::from_micros(period),
        writes,
        blocks: if is_promised { [8, 8] } else { [8, any(chance, &[8, 32])] },
    };
    vec![one(chance, true, 2_500, 0.0), one(chance, false, 5_000, 0.0), {
        one(chance, false, 7_000, 0.3)
    }]
}
