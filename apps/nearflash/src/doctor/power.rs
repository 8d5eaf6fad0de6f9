//! Checks of links and disks that sleep between requests: PCIe ASPM, and autonomous power states of
//! NVMe controllers (APST).

use super::finding::{Finding, Grade};
use super::machine::Machine;

/// Checks the kernel's PCIe link policy, and each NVMe controller's power states and link.
pub(super) fn all(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(policy(machine));
    for name in machine.list("sys/class/nvme") {
        findings.extend(autonomous_states(machine, &name));
        findings.extend(link(machine, &name, &format!("sys/class/nvme/{name}/device")));
    }
    findings
}

fn policy(machine: &Machine) -> Option<Finding> {
    let file = "sys/module/pcie_aspm/parameters/policy";
    let found = machine.chosen(file)?;
    let finding = Finding::good("PCIe ASPM policy", &found);
    Some(match found.as_str() {
        // What the firmware chose is looked at link by link.
        "performance" | "default" => finding,
        _ => finding
            .graded(Grade::Advice, "links sleep between requests, and the next one waits for them")
            .with_fix(file, "performance"),
    })
}

/// Checks whether the PCIe link of the device in `folder` may enter power-saving states. Returns
/// `None` if the kernel does not say.
pub(super) fn link(machine: &Machine, name: &str, folder: &str) -> Option<Finding> {
    let deep = format!("{folder}/link/l1_aspm");
    let states = [("L0s", format!("{folder}/link/l0s_aspm")), ("L1", deep.clone())];
    let told: Vec<(&str, u64)> = states
        .iter()
        .filter_map(|(state, file)| machine.number(file).map(|is_on| (*state, is_on)))
        .collect();
    if told.is_empty() {
        return None;
    }
    let on: Vec<&str> = told.iter().filter(|(_, is_on)| *is_on != 0).map(|(s, _)| *s).collect();
    let found =
        if on.is_empty() { "never sleeps".to_owned() } else { format!("{} on", on.join(", ")) };
    let finding = Finding::good(format!("{name} PCIe link"), found);
    Some(match on.contains(&"L1") {
        true => finding
            .graded(Grade::Advice, "its way out of L1 takes microseconds that a request waits for")
            .with_fix(&deep, "0"),
        false => finding,
    })
}

/// Checks the latency tolerance within which the controller `name` may choose its power states
/// itself; zero disables that. Returns `None` for a controller without APST, for which there is no
/// file.
fn autonomous_states(machine: &Machine, name: &str) -> Option<Finding> {
    let file = format!("sys/class/nvme/{name}/power/pm_qos_latency_tolerance_us");
    let found = machine.read(&file)?;
    let finding = Finding::good(format!("{name} power states"), "only its working ones");
    if found == "0" {
        return Some(finding);
    }
    let found = match found.parse::<u64>() {
        Ok(most) => format!("may sleep where it wakes within {most} µs"),
        Err(_) => format!("may sleep ({found})"),
    };
    let advice = "the first request after a pause wakes it; for good: \
                  nvme_core.default_ps_max_latency_us=0 on the kernel's command line";
    Some(Finding { found, ..finding }.graded(Grade::Advice, advice).with_fix(&file, "0"))
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn what_sleeps_is_found_and_can_be_kept_awake() {
        let (_folder, machine) = machine(&[
            (
                "sys/module/pcie_aspm/parameters/policy",
                "default performance [powersave] powersupersave",
            ),
            ("sys/class/nvme/nvme0/power/pm_qos_latency_tolerance_us", "100000"),
            ("sys/class/nvme/nvme0/device/link/l1_aspm", "1"),
            ("sys/class/nvme/nvme1/power/pm_qos_latency_tolerance_us", "0"),
            ("sys/class/nvme/nvme1/device/link/l1_aspm", "0"),
            ("sys/class/nvme/nvme1/device/link/l0s_aspm", "1"),
        ]);
        let found = all(&machine);
        let told: Vec<_> = found
            .iter()
            .map(|one| (&*one.subject, &*one.found, one.fix.as_ref().map(|fix| &*fix.value)))
            .collect();
        let expected = [
            ("PCIe ASPM policy", "powersave", Some("performance")),
            ("nvme0 power states", "may sleep where it wakes within 100000 µs", Some("0")),
            ("nvme0 PCIe link", "L1 on", Some("0")),
            ("nvme1 power states", "only its working ones", None),
            ("nvme1 PCIe link", "L0s on", None),
        ];
        assert_eq!(told, expected);
    }
}
