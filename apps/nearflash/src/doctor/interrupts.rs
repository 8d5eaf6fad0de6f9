//! Checks of the processors that handle a device's interrupts, beside those of the server's workers.

use super::finding::{Finding, Grade};
use super::machine::{Cpus, Machine, show_cpus};
use super::servers::Server;

/// Parts of the names of interrupts that do not come with requests, but with admin commands and
/// changes of state.
const RARE: [&str; 5] = ["-config", "-event", "async", "admin", "-control"];

/// The folders, below a device's folder in `/sys`, that list interrupt numbers: the device's own,
/// those of its bus device, or those of its controller.
const PLACES: [&str; 3] = ["device/msi_irqs", "device/../msi_irqs", "device/device/msi_irqs"];

/// An interrupt, and the processors that handle it.
struct Interrupt {
    number: String,
    cpus: Cpus,
}

/// Checks the interrupts of the device whose folder is `folder`, below `/sys`. Returns `None` if no
/// interrupt comes with requests.
pub(super) fn of(
    machine: &Machine,
    name: &str,
    folder: &str,
    servers: &[Server],
) -> Option<Finding> {
    let all = interrupts(machine, folder);
    let taken: Cpus = all.iter().flat_map(|one| one.cpus.iter().copied()).collect();
    if taken.is_empty() {
        return None;
    }
    let workers: Cpus = servers.iter().flat_map(|server| server.cpus.iter().copied()).collect();
    let processors = machine.processors().len();
    let at = match workers.is_empty() {
        true => "no server runs".to_owned(),
        false => format!("workers on {}", show_cpus(&workers)),
    };
    let found = format!("{} on processors {}; {at}", all.len(), show_cpus(&taken));
    let finding = Finding::good(format!("{name} interrupts"), found);
    let wanted = if workers.is_empty() { processors } else { workers.len() };
    let each: Vec<&str> = all.iter().map(|one| &*one.number).collect();
    let spread = format!(
        "echo CPU > /proc/irq/N/smp_affinity_list for N = {}, one to each of the workers' processors \
         (the kernel refuses that where it spreads them itself, as for NVMe disks)",
        each.join(", ")
    );
    Some(if !workers.is_empty() && workers.is_disjoint(&taken) {
        let why = "what arrives is handled on other processors than the workers', so its data crosses \
                   from cache to cache";
        finding.graded(Grade::Advice, format!("{why}: {spread}"))
    } else if taken.len() == 1 && wanted > 1 && all.len() > 1 {
        let why = "one processor takes them all, and is the first to be full";
        finding.graded(Grade::Advice, format!("{why}: {spread}"))
    } else {
        finding
    })
}

/// Returns the processors that handle the interrupts of the device whose folder is `folder`, as far
/// as these come with requests.
pub(super) fn processors(machine: &Machine, folder: &str) -> Cpus {
    interrupts(machine, folder).into_iter().flat_map(|one| one.cpus).collect()
}

fn interrupts(machine: &Machine, folder: &str) -> Vec<Interrupt> {
    let numbers = numbers(machine, folder).into_iter();
    numbers.filter_map(|number| look_at(machine, number)).collect()
}

/// Returns the sorted interrupt numbers of the device at `folder`; for a disk of several
/// controllers, those of all controllers.
fn numbers(machine: &Machine, folder: &str) -> Vec<String> {
    let mut places: Vec<String> = PLACES.iter().map(|place| format!("{folder}/{place}")).collect();
    for name in machine.list(&format!("{folder}/device")) {
        let digits = name.strip_prefix("nvme").unwrap_or_default();
        if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            places.push(format!("{folder}/device/{name}/device/msi_irqs"));
        }
    }
    let lists = places.iter().map(|place| machine.list(place));
    let mut all: Vec<String> = lists.flatten().collect();
    all.sort_by_key(|number| number.parse::<u32>().unwrap_or(u32::MAX));
    all.dedup();
    all
}

/// Returns the interrupt of this number with its processors; `None` if it does not come with
/// requests.
fn look_at(machine: &Machine, number: String) -> Option<Interrupt> {
    let folder = format!("proc/irq/{number}");
    let names = machine.list(&folder);
    let name = names.iter().find(|name| machine.is_folder(&format!("{folder}/{name}")))?;
    let is_admin_queue = name.starts_with("nvme") && name.ends_with("q0");
    if is_admin_queue || RARE.iter().any(|rare| name.contains(rare)) {
        return None;
    }
    let list = |file: &str| machine.cpus(&format!("{folder}/{file}"));
    let cpus = list("effective_affinity_list").or_else(|| list("smp_affinity_list"))?;
    Some(Interrupt { number, cpus })
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;

    const CARD: &str = "sys/class/net/eth0";

    /// Returns the grade and text of the finding on a network card with two queues and a rare
    /// interrupt. `first` and `second` are the processors of the queues' interrupts, `workers`
    /// those of the server's workers.
    fn found(first: &str, second: &str, workers: &str) -> Option<(Grade, String)> {
        let mut files = vec![
            ("sys/class/net/eth0/device/msi_irqs/40", "msix"),
            ("sys/class/net/eth0/device/msi_irqs/41", "msix"),
            ("sys/class/net/eth0/device/msi_irqs/42", "msix"),
            ("sys/class/net/eth0/device/msi_irqs/43", "msix"),
            ("proc/irq/40/virtio3-config/x", ""),
            ("proc/irq/40/smp_affinity_list", "7"),
            ("proc/irq/41/eth0-rx-0/x", ""),
            ("proc/irq/41/effective_affinity_list", first),
            ("proc/irq/41/smp_affinity_list", "0-3"),
            ("proc/irq/42/eth0-rx-1/x", ""),
            ("proc/irq/42/smp_affinity_list", second),
            // One that nobody waits for.
            ("proc/irq/43/smp_affinity_list", "6"),
            ("sys/devices/system/cpu/cpu0/online", "1"),
            ("sys/devices/system/cpu/cpu1/online", "1"),
        ];
        if !workers.is_empty() {
            files.push(("proc/7/cmdline", "nearflash\0serve"));
            files.push(("proc/7/task/8/comm", "worker-0"));
        }
        let status = format!("Cpus_allowed_list:\t{workers}");
        files.push(("proc/7/task/8/status", &status));
        let (_folder, machine) = machine(&files);
        let servers = super::super::servers::find(&machine);
        of(&machine, "eth0", CARD, &servers).map(|finding| (finding.grade, finding.found))
    }

    #[test]
    fn interrupts_beside_the_workers_are_found() {
        let said = "2 on processors 0-1; workers on 1".to_owned();
        assert_eq!(found("0", "1", "1"), Some((Grade::Good, said)));
        let said = "2 on processors 0,2; workers on 1".to_owned();
        assert_eq!(found("0", "2", "1"), Some((Grade::Advice, said)), "none at a worker");
        let said = "2 on processors 1; workers on 0-1".to_owned();
        assert_eq!(found("1", "1", "0-1"), Some((Grade::Advice, said)), "all at one");
        let said = "2 on processors 0; no server runs".to_owned();
        assert_eq!(found("0", "0", ""), Some((Grade::Advice, said)));
    }

    #[test]
    fn a_disks_interrupts_are_those_of_its_controllers() {
        let (_folder, machine) = machine(&[
            ("sys/block/nvme0n1/device/nvme0/device/msi_irqs/50", "msix"),
            ("sys/block/nvme0n1/device/nvme1/device/msi_irqs/60", "msix"),
            ("sys/block/nvme0n1/device/nvme0n1/device/msi_irqs/70", "msix"),
            ("sys/block/nvme1n1/device/device/msi_irqs/9", "msix"),
            ("sys/block/nvme1n1/device/device/msi_irqs/80", "msix"),
        ]);
        assert_eq!(numbers(&machine, "sys/block/nvme0n1"), ["50", "60"]);
        assert_eq!(numbers(&machine, "sys/block/nvme1n1"), ["9", "80"]);
        assert!(of(&machine, "nvme1n1", "sys/block/nvme1n1", &[]).is_none(), "nobody says who");
    }
}
