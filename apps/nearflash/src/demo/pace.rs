//! How fast a device this machine can drive, server, network and clients together.

use std::time::Duration;

use client::load::Tally;

use super::tenants::{DEVICE_TOKENS, TENANTS, Tenant};
use crate::child::Server;
use crate::crowd::{Crowd, Member, Times};

/// How many times slower a device may be made.
const PACES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// What the machine itself may add to the latency of a request, as a share of what is promised.
const ADDED_MOST: f64 = 0.15;

const TIMES: Times =
    Times { warmup: Duration::from_millis(200), measured: Duration::from_millis(500) };

/// The smallest slow-down at which this machine serves what the tenants of Figure 5 get from no
/// device at all, quickly enough that the device decides what is seen. A machine that is too busy
/// for any gets the largest.
pub(crate) fn find() -> Result<u32, String> {
    let server = Server::start(&words())?;
    for slow in PACES {
        let members: Vec<Member> = TENANTS.iter().map(|tenant| member(tenant, slow)).collect();
        let crowd = Crowd::start(server.address(), members, 1 << 28, TIMES, u64::from(slow))?;
        if keeps_up(&crowd.finish()?, slow) {
            server.stop()?;
            return Ok(slow);
        }
    }
    server.stop()?;
    Ok(PACES[PACES.len() - 1])
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

/// Whether all requests were served, as quickly as it takes.
fn keeps_up(tallies: &[Tally], slow: u32) -> bool {
    TENANTS.iter().zip(tallies).all(|(tenant, tally)| {
        let rate = member(tenant, slow).rate.expect("each has a rate");
        let enough = tally.count() as f64 >= 0.97 * rate * TIMES.measured.as_secs_f64();
        let p95 = tally.read.latency.value_at_quantile(0.95) as f64;
        let quick =
            tenant.slo(slow).is_none_or(|slo| p95 <= ADDED_MOST * slo.p95.as_nanos() as f64);
        enough && quick
    })
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
