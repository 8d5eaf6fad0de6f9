//! The network cards that a running server's listeners use, with the cards' drivers, queues, nodes
//! of memory, and interrupts beside the server's workers.
//!
//! Sockets come from `/proc`, so the cards are those of the routes now, whatever a configuration
//! says. Deliberately not here: sockets of AF_XDP, which `/proc` does not list, and listeners on
//! loopback, which use no card.

use std::net::IpAddr;

use ::io::listening::{ListeningAddress, interface_to, interfaces_with, listening};

use super::finding::{Card, Finding, Grade};
use super::machine::{Cpus, Machine, show_cpus};
use super::servers::Server;
use super::{interrupts, network};

/// Describes the cards that the servers' listeners use.
pub(super) fn all(machine: &Machine, servers: &[Server]) -> Vec<Finding> {
    servers.iter().flat_map(|server| of_server(machine, server)).collect()
}

fn of_server(machine: &Machine, server: &Server) -> Vec<Finding> {
    let Some(links) = machine.links(&format!("proc/{}/fd", server.pid)) else {
        let subject = format!("listeners of process {}", server.pid);
        return vec![Finding::good(subject, "this user may not look at its sockets; root may")];
    };
    let places = listening(&links, |table| net(machine, server.pid, table));
    let cards = places.iter().flat_map(|place| {
        let (listener, interfaces) = match place {
            ListeningAddress::Address(protocol, address) => {
                (format!("{protocol} {address}"), interfaces(machine, server.pid, address.ip()))
            }
            ListeningAddress::Packets(index) => ("ether".to_owned(), with_index(machine, *index)),
        };
        interfaces.into_iter().map(move |interface| (listener.clone(), interface))
    });
    cards.map(|(listener, interface)| told(card(machine, server, listener, interface))).collect()
}

/// Returns a table of a process's network; empty if it cannot be read.
fn net(machine: &Machine, pid: u32, table: &str) -> String {
    machine.read(&format!("proc/{pid}/net/{table}")).unwrap_or_default()
}

/// Returns the interfaces that lead to a local address: of an unspecified one, all that have
/// hardware and are not down.
fn interfaces(machine: &Machine, pid: u32, address: IpAddr) -> Vec<String> {
    match address {
        _ if address.is_unspecified() => network::cards(machine),
        IpAddr::V4(address) => Vec::from_iter(interface_to(address, &net(machine, pid, "route"))),
        IpAddr::V6(address) => interfaces_with(address, &net(machine, pid, "if_inet6")),
    }
}

fn with_index(machine: &Machine, index: u64) -> Vec<String> {
    let mut names = machine.list("sys/class/net");
    names.retain(|name| machine.number(&format!("sys/class/net/{name}/ifindex")) == Some(index));
    names
}

fn card(machine: &Machine, server: &Server, listener: String, interface: String) -> Card {
    let folder = format!("sys/class/net/{interface}");
    let queues = machine.list(&format!("{folder}/queues"));
    let taken = interrupts::processors(machine, &folder);
    let shared: Cpus = taken.intersection(&server.cpus).copied().collect();
    Card {
        listener,
        driver: machine.link_name(&format!("{folder}/device/driver")),
        queues: queues.iter().filter(|queue| queue.starts_with("rx-")).count(),
        node: machine.number(&format!("{folder}/device/numa_node")),
        interrupts: show_cpus(&taken),
        workers: show_cpus(&server.cpus),
        shared: show_cpus(&shared),
        interface,
    }
}

/// Returns the finding on a card in use.
fn told(card: Card) -> Finding {
    let Card { listener, interface, queues, interrupts, workers, shared, .. } = &card;
    let driver = card.driver.as_deref().unwrap_or("no hardware");
    let node = card.node.map_or(String::new(), |node| format!(", memory node {node}"));
    let beside = match (interrupts.is_empty(), shared.is_empty()) {
        (true, _) => "no interrupts of its own".to_owned(),
        (false, true) => format!("interrupts on {interrupts}, none at a worker ({workers})"),
        (false, false) => {
            format!("interrupts on {interrupts}, at workers on {shared} of {workers}")
        }
    };
    let found = format!("{driver}, {queues} queues{node}; {beside}");
    let finding = Finding::good(format!("{listener} at {interface}"), found);
    let is_apart = !interrupts.is_empty() && !workers.is_empty() && shared.is_empty();
    let advice = format!("what arrives crosses from cache to cache: see `{interface} interrupts`");
    let finding = if is_apart { finding.graded(Grade::Advice, advice) } else { finding };
    Finding { card: Some(card), ..finding }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;
    use std::os::unix::fs::symlink;

    /// The files of a machine with two cards and a server that listens at addresses of both, at all
    /// addresses, at loopback, over UDP, and for packets of the second card.
    const FILES: [(&str, &str); 20] = [
        ("sys/class/net/eth0/device/numa_node", "0"),
        ("sys/class/net/eth0/queues/rx-0/x", ""),
        ("sys/class/net/eth0/queues/rx-1/x", ""),
        ("sys/class/net/eth0/queues/tx-0/x", ""),
        ("sys/class/net/eth0/ifindex", "2"),
        ("sys/class/net/eth0/device/msi_irqs/41", "msix"),
        ("proc/irq/41/eth0-rx-0/x", ""),
        ("proc/irq/41/smp_affinity_list", "0-1"),
        ("sys/class/net/eth1/device/msi_irqs/51", "msix"),
        ("sys/class/net/eth1/queues/rx-0/x", ""),
        ("sys/class/net/eth1/ifindex", "3"),
        ("proc/irq/51/eth1-rx-0/x", ""),
        ("proc/irq/51/smp_affinity_list", "5"),
        ("proc/7/cmdline", "nearflash\0serve"),
        ("proc/7/task/8/comm", "worker-0"),
        ("proc/7/task/8/status", "Cpus_allowed_list:\t1-2"),
        (
            "proc/7/net/tcp",
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n\
             0: 0100000A:1144 00000000:0000 0A 0:0 00:0 0 0 0 900 1\n\
             1: 0100007F:1EC7 00000000:0000 0A 0:0 00:0 0 0 0 901 1\n\
             2: 0100000A:1144 0200000A:9999 01 0:0 00:0 0 0 0 902 1\n\
             3: 0100000A:0016 00000000:0000 0A 0:0 00:0 0 0 0 77 1\n",
        ),
        (
            "proc/7/net/udp6",
            "  sl  local_address remote_address st\n\
             0: 000000FD000000000000000002000000:1144 0:0 07 0:0 00:0 0 0 0 903 1\n",
        ),
        (
            "proc/7/net/packet",
            "sk RefCnt Type Proto Iface R Rmem User Inode\n0 3 3 88b5 3 1 0 0 904\n",
        ),
        (
            "proc/7/net/route",
            "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
             eth1 00000000 0100000B 3 0 0 0 00000000 0 0 0\n\
             eth0 0000000A 00000000 1 0 0 0 00FFFFFF 0 0 0\n",
        ),
    ];

    fn place(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let (folder, machine) = machine(files);
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("proc/7/fd")).unwrap();
        for inode in [900, 901, 902, 903, 904, 905] {
            symlink(format!("socket:[{inode}]"), at(&format!("proc/7/fd/{inode}"))).unwrap();
        }
        symlink("../../../bus/virtio_net", at("sys/class/net/eth0/device/driver")).unwrap();
        (folder, machine)
    }

    fn found(machine: &Machine) -> Vec<Finding> {
        all(machine, &super::super::servers::find(machine))
    }

    #[test]
    fn each_listener_is_told_with_its_card() {
        let inet6 = ("proc/7/net/if_inet6", "fd000000000000000000000000000002 04 40 00 82 eth1\n");
        let (_folder, machine) = place(&[&FILES[..], &[inet6]].concat());
        let told = found(&machine);
        let texts: Vec<(Grade, &str, &str)> =
            told.iter().map(|one| (one.grade, &*one.subject, &*one.found)).collect();
        let second = "no hardware, 1 queues; interrupts on 5, none at a worker (1-2)";
        assert_eq!(
            texts,
            [
                (
                    Grade::Good,
                    "tcp 10.0.0.1:4420 at eth0",
                    "virtio_net, 2 queues, memory node 0; interrupts on 0-1, at workers on 1 of 1-2"
                ),
                (Grade::Advice, "udp [fd00::2]:4420 at eth1", second),
                (Grade::Advice, "ether at eth1", second),
            ]
        );
        let json = serde_json::to_value(&told[0]).unwrap();
        let card = &json["card"];
        assert_eq!((&card["interface"], &card["driver"]), (&"eth0".into(), &"virtio_net".into()));
        assert_eq!((&card["queues"], &card["node"]), (&2.into(), &0.into()));
        assert_eq!((&card["interrupts"], &card["shared"]), (&"0-1".into(), &"1".into()));
    }

    #[test]
    fn a_listener_at_all_addresses_uses_all_cards() {
        let mut files = FILES.to_vec();
        let any = "head\n0: 00000000:1144 00000000:0000 0A 0:0 00:0 0 0 0 905 1\n";
        files.retain(|(file, _)| !["tcp", "udp6", "packet"].iter().any(|end| file.ends_with(end)));
        files.push(("proc/7/net/tcp", any));
        let (_folder, machine) = place(&files);
        let told = found(&machine);
        let subjects: Vec<&str> = told.iter().map(|one| &*one.subject).collect();
        assert_eq!(subjects, ["tcp 0.0.0.0:4420 at eth0", "tcp 0.0.0.0:4420 at eth1"]);
    }

    #[test]
    fn who_may_not_look_is_told_so() {
        let (_folder, machine) = machine(&FILES);
        let told = found(&machine);
        assert!(told.len() == 1 && told[0].found.contains("root may"), "{told:?}");
        assert_eq!((told[0].grade, &told[0].card), (Grade::Good, &None));
    }
}
