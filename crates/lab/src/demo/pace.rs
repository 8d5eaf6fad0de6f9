//! The speed of the device that this machine can drive, with server, network and clients together.

use std::time::Duration;

use client::load::Tally;

use super::tenants::{DEVICE_TOKENS, TENANTS, Tenant};
use crate::child::Server;
use crate::crowd::{Crowd, Member, Times};

/// The factors by which a device can be slowed down.
const PACES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The most that the machine itself may add to the 95th percentile of latency, as a share of the
/// promised latency.
const ADDED_MOST: f64 = 0.15;

/// The most that the machine may add to the 99th percentile, which shows how long it keeps threads
/// from running. The drive's own 95th percentile is a tenth below the promise. If more than one
/// request in a hundred is delayed by half of the promise, the promise breaks under any scheduler.
const HELD_UP_MOST: f64 = 0.5;

/// Some stalls of a quiet virtual machine fit in.
const TIMES: Times =
    Times { warmup: Duration::from_millis(200), measured: Duration::from_millis(1_000) };

/// The speed of the device that this machine can drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// The factor by which the device must be slower than the paper's.
    pub(crate) slow: u32,
    /// The most that the machine itself adds to the 99th percentile of latency, in nanoseconds, if
    /// that was measured.
    pub(super) held_up_nanos: Option<f64>,
}

/// The smallest slow-down at which this machine serves what the tenants of Figure 5 get from no
/// device at all, quickly enough that the device decides what is seen. A machine that is too busy
/// for any gets the largest.
pub(crate) fn find() -> Result<Pace, String> {
    let server = Server::start(&words())?;
    let mut pace = Pace { slow: 1, held_up_nanos: None };
    for slow in PACES {
        let members: Vec<Member> = TENANTS.iter().map(|tenant| member(tenant, slow)).collect();
        let crowd = Crowd::start(server.address(), members, 1 << 28, TIMES, u64::from(slow))?;
        let tallies = crowd.finish()?;
        pace = Pace { slow, held_up_nanos: Some(added(&tallies, 0.99)) };
        if keeps_up(&tallies, slow) {
            break;
        }
    }
    server.stop()?;
    Ok(pace)
}

/// This quantile of the latency of reads of those who were promised one, the worst of them, in
/// nanoseconds.
fn added(tallies: &[Tally], quantile: f64) -> f64 {
    let promised = TENANTS.iter().zip(tallies).filter(|(tenant, _)| tenant.slo.is_some());
    let latency = |tally: &Tally| tally.read.latency.value_at_quantile(quantile) as f64;
    promised.map(|(_, tally)| latency(tally)).fold(0.0, f64::max)
}

fn words() -> Vec<String> {
    ["--device", "null:1GiB", "--listen", "reflex://127.0.0.1:0"].map(str::to_owned).to_vec()
}

/// A client that sends what the tenant will get: its promise, or its part of what is left.
fn member(tenant: &Tenant, slow: u32) -> Member {
    let member = tenant.member(slow, 1.0);
    let rate = member.rate.unwrap_or(best_effort_tokens() / tenant.tokens() / f64::from(slow));
    Member { tenant: String::new(), queue_depth: 512, rate: Some(rate), ..member }
}

/// Tokens a second that each best-effort tenant gets.
fn best_effort_tokens() -> f64 {
    let promised = |tenant: &Tenant| tenant.slo.map(|slo| slo.iops * tenant.tokens());
    let reserved: f64 = TENANTS.iter().filter_map(promised).sum();
    let others = TENANTS.iter().filter(|tenant| tenant.slo.is_none()).count();
    (DEVICE_TOKENS - reserved) / others as f64
}

/// Returns true if all requests were served quickly enough.
fn keeps_up(tallies: &[Tally], slow: u32) -> bool {
    let all = TENANTS.iter().zip(tallies).all(|(tenant, tally)| {
        let rate = member(tenant, slow).rate.expect("each has a rate");
        tally.count() as f64 >= 0.97 * rate * TIMES.measured.as_secs_f64()
    });
    let bounds = TENANTS.iter().filter_map(|tenant| tenant.slo(slow)).map(|slo| slo.p95);
    let bound = bounds.min().expect("some have one").as_nanos() as f64;
    all && added(tallies, 0.95) <= ADDED_MOST * bound
        && added(tallies, 0.99) <= HELD_UP_MOST * bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_scheduler_leaves_is_asked_for_too() {
        let iops = |n: usize| member(&TENANTS[n], 2).rate.unwrap();
        let all = [0, 1, 2, 3].map(|n| iops(n).round());
        assert_eq!(all, [60_000.0, 35_000.0, 17_931.0, 3_355.0]);
        assert!(!keeps_up(&[const { Tally::new }; 4].map(|new| new()), 1));
    }
}
