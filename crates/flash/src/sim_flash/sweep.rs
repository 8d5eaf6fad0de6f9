//! Open-loop sweeps of a model in virtual time, as in Figures 1 and 3 of the paper.
//!
//! This module deliberately leaves out queues of requests before the device, and any fitting.

use alloc::vec::Vec;

use super::engine::{Engine, unit};
use super::model::Model;
use crate::Rng;

/// An offered load: requests of equal size at random addresses and random times (Poisson).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Offered load in requests per second.
    pub iops: f64,
    /// Share of reads, from 0 to 1.
    pub reads: f64,
    /// Number of requests; the first fifth is not measured.
    pub requests: usize,
    /// Size of a request in pages of 4 KiB.
    pub pages: u64,
    /// Seed of the random decisions.
    pub seed: u64,
}

/// The measured outcome of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SweepResult {
    /// Mean latency of reads in microseconds.
    pub read_mean_us: f64,
    /// 95th percentile of the latency of reads in microseconds.
    pub read_p95_us: f64,
    /// Mean latency of writes in microseconds. A write that is still blocked when the last request
    /// arrives does not count.
    pub write_mean_us: f64,
    /// 95th percentile of the latency of writes in microseconds.
    pub write_p95_us: f64,
    /// Completed requests per second.
    pub iops: f64,
}

const DEVICE_PAGES: u64 = 1 << 24;

/// Offers a load to a fresh device of this model and age.
pub fn offer(model: &Model, age: f64, load: Load) -> SweepResult {
    let mut engine = Engine::new(model.clone(), DEVICE_PAGES, age, load.seed);
    let owner = engine.add_owner(load.requests);
    let mut chance = Rng::new(load.seed ^ 0x5eed);
    let mean_ns = 1e9 / load.iops;
    let mut clock = 0.0;
    let mut arrived = alloc::vec![0_u64; load.requests];
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let mut last = 0;
    for n in 0..load.requests {
        clock -= libm::log(1.0 - unit(&mut chance)) * mean_ns;
        let now = clock as u64;
        arrived[n] = now;
        let page = chance.within(0..=DEVICE_PAGES - load.pages);
        let measured = n >= load.requests / 5;
        if unit(&mut chance) < load.reads {
            let done = engine.read(now, page, load.pages);
            last = last.max(done);
            if measured {
                reads.push(done - now);
            }
        } else if let Some(done) = engine.write(now, page, load.pages, owner, n as u32) {
            last = last.max(done);
            if measured {
                writes.push(done - now);
            }
        }
        engine.take_admitted(now, owner, |(done, ticket)| {
            last = last.max(done);
            if ticket as usize >= load.requests / 5 {
                writes.push(done - arrived[ticket as usize]);
            }
        });
    }
    let (read_mean_us, read_p95_us) = summary(&mut reads);
    let (write_mean_us, write_p95_us) = summary(&mut writes);
    let iops = load.requests as f64 * 1e9 / last as f64;
    SweepResult { read_mean_us, read_p95_us, write_mean_us, write_p95_us, iops }
}

fn summary(latencies: &mut [u64]) -> (f64, f64) {
    if latencies.is_empty() {
        return (0.0, 0.0);
    }
    let mean = latencies.iter().sum::<u64>() as f64 / latencies.len() as f64;
    let rank = (latencies.len() * 95).div_ceil(100) - 1;
    let (_, p95, _) = latencies.select_nth_unstable(rank);
    (mean / 1e3, *p95 as f64 / 1e3)
}

/// Returns the load at which reads reach a 95th percentile of `p95_us`, in requests per second, to
/// within 0.5 %. The search halves the interval from half to twice `load.iops`.
pub fn iops_at(model: &Model, age: f64, p95_us: f64, load: Load) -> f64 {
    let (mut low, mut high) = (load.iops / 2.0, load.iops * 2.0);
    while high / low > 1.01 {
        let iops = libm::sqrt(low * high);
        if offer(model, age, Load { iops, ..load }).read_p95_us > p95_us {
            high = iops;
        } else {
            low = iops;
        }
    }
    libm::sqrt(low * high)
}
