//! Checks of network cards: frame sizes, queues, offloads, interrupts, nodes of memory and the link.

use ::io::Offloads;

use super::finding::{Finding, Grade};
use super::machine::Machine;
use super::servers::Server;
use super::{interrupts, nodes, power};

/// The MTU of jumbo frames, in bytes.
const JUMBO: u64 = 9000;

/// Checks the network interfaces that have hardware and are not down.
pub(super) fn all(machine: &Machine, servers: &[Server]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in cards(machine) {
        findings.extend(frames(machine, &name));
        findings.extend(queues(machine, &name));
        findings.extend((machine.offloads)(&name).and_then(|found| offloads(&name, found)));
        let folder = format!("sys/class/net/{name}");
        findings.extend(interrupts::of(machine, &name, &folder, servers));
        findings.extend(nodes::of(machine, &name, servers));
        findings.extend(power::link(machine, &name, &format!("{folder}/device")));
    }
    findings
}

/// Returns the names of the network interfaces that have hardware and are not down.
pub(super) fn cards(machine: &Machine) -> Vec<String> {
    let mut names = machine.list("sys/class/net");
    names.retain(|name| {
        let of = |file: &str| format!("sys/class/net/{name}/{file}");
        machine.has(&of("device")) && machine.read(&of("operstate")).as_deref() != Some("down")
    });
    names
}

fn frames(machine: &Machine, name: &str) -> Option<Finding> {
    let mtu = machine.number(&format!("sys/class/net/{name}/mtu"))?;
    let finding = Finding::good(format!("{name} MTU"), mtu.to_string());
    Some(match mtu {
        JUMBO.. => finding,
        _ => finding.graded(
            Grade::Advice,
            format!(
                "jumbo frames carry a block of 4 KiB whole (3 to 12 % more requests): ip link set \
                 {name} mtu {JUMBO}, when every machine and switch on the path has them"
            ),
        ),
    })
}

fn queues(machine: &Machine, name: &str) -> Option<Finding> {
    let queues = machine.list(&format!("sys/class/net/{name}/queues"));
    let receive = queues.iter().filter(|queue| queue.starts_with("rx-")).count();
    let processors = machine.processors().len();
    if receive == 0 {
        return None;
    }
    let found = format!("{receive} to receive, {processors} processors");
    let finding = Finding::good(format!("{name} queues"), found);
    Some(match receive >= processors.min(8) {
        true => finding,
        false => finding.graded(
            Grade::Advice,
            format!(
                "interrupts of all connections go to few processors: ethtool -L {name} combined \
                 {processors}, and serve with as many workers as there are queues"
            ),
        ),
    })
}

/// Checks the segmentation offloads of the card `name`. Segments are best cut and joined by the
/// card, or in the kernel as late (sending) and as early (receiving) as possible. LRO is bad: it
/// joins segments irreversibly, and delays them. Returns `None` if no offload can be read.
fn offloads(name: &str, found: Offloads) -> Option<Finding> {
    let each = [
        ("TSO", "tso", found.tso, true),
        ("GSO", "gso", found.gso, true),
        ("GRO", "gro", found.gro, true),
        ("LRO", "lro", found.lro, false),
    ];
    let told = each.iter().filter_map(|(shown, _, is_on, _)| {
        Some(format!("{shown} {}", if (*is_on)? { "on" } else { "off" }))
    });
    let told = told.collect::<Vec<_>>().join(", ");
    let wrong = each.iter().filter(|(_, _, is_on, wanted)| is_on.is_some_and(|on| on != *wanted));
    let words =
        wrong.map(|(_, word, _, wanted)| format!("{word} {}", if *wanted { "on" } else { "off" }));
    let words = words.collect::<Vec<_>>().join(" ");
    if told.is_empty() {
        return None;
    }
    let finding = Finding::good(format!("{name} offloads"), told);
    Some(match words.is_empty() {
        true => finding,
        false => finding.graded(
            Grade::Advice,
            format!(
                "the kernel handles each frame of a large block by itself, or, with LRO, waits for \
                 more of them: ethtool -K {name} {words} (what the card cannot do stays off)"
            ),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn offloads_that_are_off_are_named() {
        let found = |tso, gso, gro, lro| offloads("eth0", Offloads { tso, gso, gro, lro });
        let (on, off) = (Some(true), Some(false));
        let good = found(on, on, on, off).unwrap();
        assert_eq!((good.grade, &*good.found), (Grade::Good, "TSO on, GSO on, GRO on, LRO off"));
        let bad = found(off, on, off, on).unwrap();
        assert_eq!(bad.grade, Grade::Advice);
        assert!(bad.advice.contains("ethtool -K eth0 tso on gro on lro off"), "{}", bad.advice);
        let some = found(None, on, None, None).unwrap();
        assert_eq!((some.grade, &*some.found), (Grade::Good, "GSO on"));
        assert_eq!(found(None, None, None, None), None);
    }

    #[test]
    fn only_cards_in_use_are_looked_at() {
        let (_folder, mut machine) = machine(&[
            ("sys/class/net/eth0/device/vendor", "x"),
            ("sys/class/net/eth0/operstate", "up"),
            ("sys/class/net/eth0/mtu", "9000"),
            ("sys/class/net/eth1/device/vendor", "x"),
            ("sys/class/net/eth1/operstate", "down"),
            ("sys/class/net/eth1/mtu", "1500"),
            ("sys/class/net/lo/mtu", "65536"),
        ]);
        machine.offloads = |_| Some(Offloads { gro: Some(false), ..Offloads::default() });
        let found = all(&machine, &[]);
        let subjects: Vec<&str> = found.iter().map(|finding| &*finding.subject).collect();
        assert_eq!(subjects, ["eth0 MTU", "eth0 offloads"]);
        assert_eq!(found[1].grade, Grade::Advice);
    }
}
