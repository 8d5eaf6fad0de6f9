//! The recommended settings of a machine, with reasons.

use super::finding::{Finding, Grade};
use super::machine::Machine;
use super::{disks, listeners, network, power, processors, servers, service};

/// Bytes of the largest request, which a connection must be able to have in flight.
const LARGEST: u64 = 1 << 20;

pub(crate) fn all(machine: &Machine) -> Vec<Finding> {
    let servers = servers::find(machine);
    let mut findings = processors::all(machine);
    findings.extend(service::all(machine, &servers));
    findings.extend(tcp(machine));
    findings.extend(network::all(machine, &servers));
    findings.extend(listeners::all(machine, &servers));
    findings.extend(disks::all(machine, &servers));
    findings.extend(power::all(machine));
    findings.extend(interrupt_balancing(machine));
    findings
}

fn tcp(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    let largest = |file: &str, name: &str, setting: &str| {
        let bytes = machine.last_number(file)?;
        let finding = Finding::good(name, format!("up to {} KiB", bytes >> 10));
        Some(match bytes >= 4 * LARGEST {
            true => finding,
            false => finding.graded(
                Grade::Advice,
                format!(
                    "less than a few of the largest requests: sysctl -w {setting}=\"4096 131072 {}\"",
                    6 * LARGEST
                ),
            ),
        })
    };
    findings.extend(largest(
        "proc/sys/net/ipv4/tcp_rmem",
        "TCP receive buffer",
        "net.ipv4.tcp_rmem",
    ));
    findings.extend(largest("proc/sys/net/ipv4/tcp_wmem", "TCP send buffer", "net.ipv4.tcp_wmem"));
    let backlog = "proc/sys/net/core/somaxconn";
    if let Some(found) = machine.number(backlog) {
        let finding = Finding::good("listen backlog", found.to_string());
        findings.push(match found {
            4096.. => finding,
            _ => finding
                .graded(Grade::Advice, "many clients that connect at once are turned away")
                .with_fix(backlog, "4096"),
        });
    }
    let idle = "proc/sys/net/ipv4/tcp_slow_start_after_idle";
    if let Some(found) = machine.number(idle) {
        let finding = Finding::good("slow start after idle", found.to_string());
        findings.push(match found {
            0 => finding,
            _ => finding
                .graded(
                    Grade::Advice,
                    "a connection that paused sends its next large replies in small steps",
                )
                .with_fix(idle, "0"),
        });
    }
    findings
}

fn interrupt_balancing(machine: &Machine) -> Option<Finding> {
    let running = machine.list("proc").into_iter().any(|entry| {
        entry.parse::<u32>().is_ok()
            && machine.read(&format!("proc/{entry}/comm")).as_deref() == Some("irqbalance")
    });
    let finding = Finding::good("irqbalance", if running { "runs" } else { "does not run" });
    Some(match running {
        false => finding,
        true => finding.graded(
            Grade::Advice,
            "it moves interrupts away from the workers that wait for them: systemctl disable --now \
             irqbalance, then spread those of the network card over the workers' processors",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;

    fn of<'a>(findings: &'a [Finding], subject: &str) -> &'a Finding {
        findings.iter().find(|finding| finding.subject == subject).expect(subject)
    }

    #[test]
    fn an_untuned_machine_is_advised() {
        let (_folder, machine) = machine(&[
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state2/latency", "133\n"),
            ("sys/devices/system/cpu/cpu1/online", "1\n"),
            ("proc/sys/net/core/somaxconn", "128\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t1048576\n"),
            ("proc/self/limits", "Limit Soft Hard\nMax open files 1024 4096 files\n"),
            ("proc/77/comm", "irqbalance\n"),
            ("sys/class/net/eth0/device/vendor", "x"),
            ("sys/class/net/eth0/mtu", "1500\n"),
            ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n"),
            ("sys/class/net/lo/mtu", "65536\n"),
            ("sys/block/nvme0n1/device/model", "x"),
            ("sys/block/nvme0n1/queue/rotational", "0\n"),
            ("sys/block/nvme0n1/queue/scheduler", "none [mq-deadline] kyber\n"),
        ]);
        let findings = all(&machine);
        assert!(findings.iter().all(|finding| finding.grade == Grade::Advice), "{findings:#?}");
        assert_eq!(of(&findings, "idle states").found, "wake within 133 µs");
        assert_eq!(of(&findings, "open files, this shell (no server runs)").found, "at most 4096");
        assert!(of(&findings, "eth0 queues").advice.contains("combined 2"));
        let fix = of(&findings, "nvme0n1 I/O scheduler").fix.clone().unwrap();
        assert_eq!(fix.file, "sys/block/nvme0n1/queue/scheduler");
        assert!(!findings.iter().any(|finding| finding.subject.starts_with("lo ")));
    }

    #[test]
    fn a_tuned_machine_is_left_alone() {
        let (_folder, machine) = machine(&[
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state2/latency", "133\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "1\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n"),
            ("proc/sys/net/core/somaxconn", "4096\n"),
            ("proc/sys/net/ipv4/tcp_slow_start_after_idle", "0\n"),
            ("sys/block/nvme0n1/device/model", "x"),
            ("sys/block/nvme0n1/queue/scheduler", "[none] mq-deadline\n"),
            ("sys/class/net/eth0/device/vendor", "x"),
            ("sys/class/net/eth0/mtu", "9000\n"),
        ]);
        let findings = all(&machine);
        assert!(findings.iter().all(|finding| finding.grade == Grade::Good), "{findings:#?}");
        assert_eq!(findings.len(), 7);
    }

    #[test]
    fn a_machine_that_says_nothing_is_no_error() {
        let (_folder, machine) = machine(&[]);
        assert_eq!(all(&machine).len(), 1);
    }
}
