//! Checks whether the workers of servers run at the node of memory (NUMA) that a network card is at.

use super::finding::{Finding, Grade};
use super::machine::{Cpus, Machine, show_cpus};
use super::servers::Server;

/// Checks that the network card `name` is on the NUMA node of the processors that workers are
/// pinned to. Returns `None` if the machine has one node, the card's node is unknown, or no server
/// has pinned its workers.
pub(super) fn of(machine: &Machine, name: &str, servers: &[Server]) -> Option<Finding> {
    let node = machine.number(&format!("sys/class/net/{name}/device/numa_node"))?;
    let near = machine.cpus(&format!("sys/devices/system/node/node{node}/cpulist"))?;
    let all = machine.processors().len();
    if near.len() >= all {
        return None;
    }
    let is_pinned = |server: &&Server| !server.cpus.is_empty() && server.cpus.len() < all;
    let workers: Cpus = servers.iter().filter(is_pinned).flat_map(|one| one.cpus.clone()).collect();
    if workers.is_empty() {
        return None;
    }
    let found = format!(
        "the card is at node {node} with processors {}; workers on {}",
        show_cpus(&near),
        show_cpus(&workers)
    );
    let finding = Finding::good(format!("{name} memory node"), found);
    Some(match workers.is_disjoint(&near) {
        false => finding,
        true => finding.graded(
            Grade::Advice,
            format!(
                "if clients come by this card, each of their bytes crosses from node to node: pin \
                 workers to its node (serve with --cpus, of {}), or serve by a card of theirs",
                show_cpus(&near)
            ),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;

    /// Returns the grade and text of the finding on a card at this node of a machine with two, whose
    /// server has workers on these processors.
    fn found(node: &str, workers: &str) -> Option<(Grade, String)> {
        let status = format!("Cpus_allowed_list:\t{workers}");
        let (_folder, machine) = machine(&[
            ("sys/class/net/eth0/device/numa_node", node),
            ("sys/devices/system/node/node0/cpulist", "0-1"),
            ("sys/devices/system/node/node1/cpulist", "2-3"),
            ("sys/devices/system/cpu/cpu0/online", "1"),
            ("sys/devices/system/cpu/cpu1/online", "1"),
            ("sys/devices/system/cpu/cpu2/online", "1"),
            ("sys/devices/system/cpu/cpu3/online", "1"),
            ("proc/7/cmdline", "nearflash\0serve"),
            ("proc/7/task/8/comm", "worker-0"),
            ("proc/7/task/8/status", &status),
        ]);
        let servers = super::super::servers::find(&machine);
        of(&machine, "eth0", &servers).map(|finding| (finding.grade, finding.found))
    }

    #[test]
    fn a_card_without_workers_at_its_node_is_found() {
        let said = |node, near, workers| {
            format!("the card is at node {node} with processors {near}; workers on {workers}")
        };
        assert_eq!(found("0", "2-3"), Some((Grade::Advice, said(0, "0-1", "2-3"))));
        assert_eq!(found("1", "2"), Some((Grade::Good, said(1, "2-3", "2"))));
        assert_eq!(found("1", "1-2"), Some((Grade::Good, said(1, "2-3", "1-2"))), "one is near");
        assert_eq!(found("1", "0-3"), None, "nothing is pinned");
        assert_eq!(found("-1", "0"), None, "the card's node is not told");
    }

    #[test]
    fn a_machine_with_one_node_has_nothing_to_say() {
        let (_folder, machine) = machine(&[
            ("sys/class/net/eth0/device/numa_node", "0"),
            ("sys/devices/system/node/node0/cpulist", "0-1"),
            ("sys/devices/system/cpu/cpu0/online", "1"),
            ("sys/devices/system/cpu/cpu1/online", "1"),
            ("proc/7/cmdline", "nearflash\0serve"),
            ("proc/7/task/8/comm", "worker-0"),
            ("proc/7/task/8/status", "Cpus_allowed_list:\t0"),
        ]);
        let servers = super::super::servers::find(&machine);
        assert_eq!(of(&machine, "eth0", &servers), None);
    }
}
