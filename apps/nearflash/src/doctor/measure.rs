//! Findings from measurements of latencies on this machine (`lab::machine`).

use lab::machine::{self, Latencies};

use super::finding::{Finding, Grade};

pub(crate) fn all() -> Result<Vec<Finding>, String> {
    let round_trip =
        machine::round_trip().map_err(|error| format!("cannot measure loopback: {error}"))?;
    let wake_up = graded(
        latencies("wake-up of a thread", machine::wake_up(), ""),
        100,
        "a worker that sleeps answers that much later: let it spin longer (serve --spin), and keep \
         deep idle states off",
    );
    let timers = graded(
        latencies("timers", machine::timer(), " late"),
        200,
        "rounds of the scheduler start that much late while a worker sleeps: let it spin longer",
    );
    let (loopback, _) = latencies("loopback round trip", round_trip, "");
    let rate = machine::copying();
    let copies = Finding::good("memory copies", format!("{rate:.1} GB/s on one core"));
    Ok(vec![wake_up, loopback, timers, copies])
}

/// Returns a good finding about these latencies, and their 95th percentile in microseconds.
fn latencies(name: &'static str, of: Latencies, late: &str) -> (Finding, u128) {
    let Latencies { median_us, p95_us } = of;
    (Finding::good(name, format!("{median_us} µs{late}, 95 % within {p95_us} µs")), p95_us)
}

fn graded((finding, p95_us): (Finding, u128), most_us: u128, advice: &str) -> Finding {
    if p95_us > most_us { finding.graded(Grade::Advice, advice) } else { finding }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_measured() {
        let findings = all().unwrap();
        assert_eq!(findings.len(), 4);
        assert!(findings.iter().all(|finding| finding.found.contains(' ')));
    }
}
