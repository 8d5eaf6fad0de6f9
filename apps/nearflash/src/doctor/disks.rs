//! Checks of disks: the kernel's settings on the way from a request to the drive.

use super::finding::{Finding, Grade};
use super::interrupts;
use super::machine::Machine;
use super::servers::Server;

/// Checks all block devices that have hardware and do not rotate.
pub(super) fn all(machine: &Machine, servers: &[Server]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in machine.list("sys/block") {
        let folder = format!("sys/block/{name}");
        let turns = machine.number(&format!("{folder}/queue/rotational")) == Some(1);
        if machine.has(&format!("{folder}/device")) && !turns {
            findings.extend(disk(machine, &name));
            findings.extend(interrupts::of(machine, &name, &folder, servers));
        }
    }
    findings
}

fn disk(machine: &Machine, name: &str) -> Vec<Finding> {
    let of = |file: &str| format!("sys/block/{name}/queue/{file}");
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
