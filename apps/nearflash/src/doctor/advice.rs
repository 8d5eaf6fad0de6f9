//! What a machine's settings should be, and why.

use super::machine::Machine;
use super::{Finding, Grade};

/// Bytes of the largest request, and so of what a connection may have under way.
const LARGEST: u64 = 1 << 20;

/// The MTU of jumbo frames.
const JUMBO: u64 = 9000;

pub(crate) fn all(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(processors(machine));
    findings.extend(limits(machine));
    findings.extend(tcp(machine));
    for name in machine.list("sys/class/net") {
        // Interfaces without a device are the kernel's own.
        if machine.has(&format!("sys/class/net/{name}/device")) {
            findings.extend(network_card(machine, &name));
        }
    }
    for name in machine.list("sys/block") {
        if machine.has(&format!("sys/block/{name}/device")) {
            findings.extend(disk(machine, &name));
        }
    }
    findings.extend(interrupt_balancing(machine));
    findings
}

fn processors(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    let governor = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    if let Some(found) = machine.read(governor) {
        let finding = Finding::good("frequency governor", &found);
        findings.push(match found.as_str() {
            "performance" => finding,
            _ => finding.graded(
                Grade::Advice,
                "a core that clocks down between requests answers the next one late: cpupower \
                 frequency-set -g performance",
            ),
        });
    }
    let folder = "sys/devices/system/cpu/cpu0/cpuidle";
    let exits = machine.list(folder).into_iter().filter_map(|state| {
        let latency = machine.number(&format!("{folder}/{state}/latency"))?;
        let off = machine.number(&format!("{folder}/{state}/disable")) == Some(1);
        (!off).then_some(latency)
    });
    if let Some(deepest) = exits.max() {
        let finding = Finding::good("idle states", format!("wake within {deepest} µs"));
        findings.push(match deepest {
            0..=20 => finding,
            _ => finding.graded(
                Grade::Advice,
                "the first request after a pause waits for that: cpupower idle-set -D 20, or let \
                 workers spin longer (serve --spin)",
            ),
        });
    }
    if let Some(mitigated) = machine.read("sys/devices/system/cpu/smt/active")
        && mitigated == "1"
    {
        findings.push(Finding::good("hyper-threads", "on").graded(
            Grade::Advice,
            "two workers on one core share it: pin workers to one thread of each core (serve --cpus)",
        ));
    }
    findings
}

fn limits(machine: &Machine) -> Vec<Finding> {
    let text = machine.read("proc/self/limits").unwrap_or_default();
    let hard = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().nth(1).map(str::to_owned)
    };
    let mut findings = Vec::new();
    if let Some(files) = hard("Max open files") {
        let few = files.parse::<u64>().is_ok_and(|files| files < 65_536);
        let finding = Finding::good("open files", format!("at most {files}"));
        findings.push(match few {
            false => finding,
            true => finding.graded(
                Grade::Advice,
                "each connection is one: LimitNOFILE=1048576 in the service, or ulimit -n",
            ),
        });
    }
    if let Some(locked) = hard("Max locked memory") {
        let little = locked.parse::<u64>().is_ok_and(|bytes| bytes < 256 << 20);
        let found = match locked.parse::<u64>() {
            Ok(bytes) => format!("at most {} MiB", bytes >> 20),
            Err(_) => locked,
        };
        let finding = Finding::good("locked memory", found);
        findings.push(match little {
            false => finding,
            true => finding.graded(
                Grade::Advice,
                "buffers stay unregistered, which costs the kernel's page look-ups on each request \
                 to a device: LimitMEMLOCK=infinity in the service, or ulimit -l",
            ),
        });
    }
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

fn network_card(machine: &Machine, name: &str) -> Vec<Finding> {
    let of = |file: &str| format!("sys/class/net/{name}/{file}");
    let mut findings = Vec::new();
    if let Some(mtu) = machine.number(&of("mtu")) {
        let finding = Finding::good(format!("{name} MTU"), mtu.to_string());
        findings.push(match mtu >= JUMBO {
            true => finding,
            false => finding.graded(
                Grade::Advice,
                format!(
                    "jumbo frames carry a block of 4 KiB whole (3 to 12 % more requests): ip link \
                     set {name} mtu {JUMBO}, when every machine and switch on the path has them"
                ),
            ),
        });
    }
    let queues = machine.list(&of("queues"));
    let receive = queues.iter().filter(|queue| queue.starts_with("rx-")).count();
    let processors = machine
        .list("sys/devices/system/cpu")
        .iter()
        .filter(|entry| entry.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok()))
        .count();
    if receive > 0 {
        let found = format!("{receive} to receive, {processors} processors");
        let finding = Finding::good(format!("{name} queues"), found);
        findings.push(match receive >= processors.min(8) {
            true => finding,
            false => finding.graded(
                Grade::Advice,
                format!(
                    "interrupts of all connections go to few processors: ethtool -L {name} \
                     combined {processors}, and serve with as many workers as there are queues"
                ),
            ),
        });
    }
    findings
}

fn disk(machine: &Machine, name: &str) -> Vec<Finding> {
    let of = |file: &str| format!("sys/block/{name}/queue/{file}");
    if machine.number(&of("rotational")) == Some(1) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let scheduler = of("scheduler");
    if let Some(found) = machine.chosen(&scheduler) {
        let finding = Finding::good(format!("{name} I/O scheduler"), &found);
        findings.push(match found.as_str() {
            "none" => finding,
            _ => finding
                .graded(
                    Grade::Advice,
                    "nearflash decides the order itself; a second queue adds latency",
                )
                .with_fix(&scheduler, "none"),
        });
    }
    let statistics = of("iostats");
    let throttle = of("wbt_lat_usec");
    if let Some(found) = machine.number(&throttle) {
        let finding = Finding::good(format!("{name} write-back throttle"), format!("{found} µs"));
        findings.push(match found {
            0 => finding,
            _ => finding
                .graded(Grade::Advice, "holds writes back that nearflash has already scheduled")
                .with_fix(&throttle, "0"),
        });
    }
    if let Some(1) = machine.number(&statistics) {
        findings.push(Finding::good(format!("{name} statistics"), "on").graded(
            Grade::Advice,
            "iostat needs them; without them a request costs a little less",
        ));
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
    use super::*;
    use std::fs;
    use std::path::Path;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine::at(Path::new(folder.path()));
        (folder, machine)
    }

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
        assert_eq!(of(&findings, "open files").found, "at most 4096");
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
