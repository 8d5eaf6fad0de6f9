//! Checks of all processors: frequencies, idle states and hyper-threads.

use std::collections::BTreeMap;

use super::finding::{Finding, Grade};
use super::machine::Machine;

/// The longest acceptable time that a processor takes to wake from an idle state, in microseconds.
const WAKE_US_MAX: u64 = 20;

pub(super) fn all(machine: &Machine) -> Vec<Finding> {
    let cpus = machine.processors();
    let mut findings = Vec::new();
    findings.extend(governors(machine, &cpus));
    findings.extend(idle_states(machine, &cpus));
    if machine.read("sys/devices/system/cpu/smt/active").as_deref() == Some("1") {
        findings.push(Finding::good("hyper-threads", "on").graded(
            Grade::Advice,
            "two workers on one core share it: pin workers to one thread of each core (serve --cpus)",
        ));
    }
    findings
}

fn governors(machine: &Machine, cpus: &[String]) -> Option<Finding> {
    let mut chosen: BTreeMap<String, usize> = BTreeMap::new();
    for cpu in cpus {
        let file = format!("sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor");
        if let Some(governor) = machine.read(&file) {
            *chosen.entry(governor).or_default() += 1;
        }
    }
    let all: usize = chosen.values().sum();
    let found: Vec<String> = match chosen.len() {
        0 => return None,
        1 => chosen.keys().cloned().collect(),
        _ => chosen.iter().map(|(name, count)| format!("{name} on {count} of {all}")).collect(),
    };
    let finding = Finding::good("frequency governor", found.join(", "));
    Some(match chosen.keys().all(|name| name == "performance") {
        true => finding,
        false => finding.graded(
            Grade::Advice,
            "a core that clocks down between requests answers the next one late: cpupower \
             frequency-set -g performance",
        ),
    })
}

/// Checks how long processors take to wake from their deepest enabled idle states. Returns `None`
/// if the kernel lists no states.
fn idle_states(machine: &Machine, cpus: &[String]) -> Option<Finding> {
    let deepest = |cpu: &String| {
        let folder = format!("sys/devices/system/cpu/{cpu}/cpuidle");
        let exits = machine.list(&folder).into_iter().filter_map(|state| {
            let latency = machine.number(&format!("{folder}/{state}/latency"))?;
            let is_off = machine.number(&format!("{folder}/{state}/disable")) == Some(1);
            (!is_off).then_some(latency)
        });
        exits.max()
    };
    let all: Vec<u64> = cpus.iter().filter_map(deepest).collect();
    let worst = all.iter().copied().max()?;
    let slow = all.iter().filter(|wake| **wake > WAKE_US_MAX).count();
    let found = match all.iter().all(|wake| *wake == worst) {
        true => format!("wake within {worst} µs"),
        false => {
            format!("wake within {worst} µs, {slow} of {} slower than {WAKE_US_MAX}", all.len())
        }
    };
    let finding = Finding::good("idle states", found);
    Some(match slow {
        0 => finding,
        _ => finding.graded(
            Grade::Advice,
            "the first request after a pause waits for that: cpupower idle-set -D 20, or let workers \
             spin longer (serve --spin)",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn one_processor_that_differs_is_found() {
        let (_folder, machine) = machine(&[
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "2"),
            ("sys/devices/system/cpu/cpu1/cpuidle/state1/latency", "2"),
            ("sys/devices/system/cpu/cpu1/cpuidle/state2/latency", "133"),
            ("sys/devices/system/cpu/cpuidle/current_driver", "x"),
        ]);
        let found = all(&machine);
        assert!(found.iter().all(|finding| finding.grade == Grade::Advice), "{found:#?}");
        assert_eq!(found[0].found, "performance on 1 of 2, powersave on 1 of 2");
        assert_eq!(found[1].found, "wake within 133 µs, 1 of 2 slower than 20");
    }
}
