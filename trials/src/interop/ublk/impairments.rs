//! An attached volume over packets, behind a network that loses, reorders and corrupts them.
//!
//! Server and client are in network namespaces of one guest, which are joined by a bridge in a
//! third. The impairments is the kernel's `netem` at both ports of the bridge, where frames of UDP
//! and raw frames pass alike.

use super::super::guest::{Guest, LATER, SOON};
use super::super::{Context, Verdict};
use super::fixture::provide;
use xtask::needs::Need;

/// The programs that the test needs in the guest beside fio.
const NEEDS: &[Need] = &[
    Need { program: "mkfs.ext4", package: "e2fsprogs" },
    Need { program: "tc", package: "iproute2" },
    Need { program: "ethtool", package: "ethtool" },
];

/// The addresses of the card of the server's namespace.
const SERVER_MAC: &str = "02:00:00:00:00:01";
const SERVER_IP: &str = "10.9.0.1";

/// The simulated network faults at a port of the bridge (`tc netem`): one packet of 20 overtakes
/// the others, which are all delayed.
const WEATHER: &str = "netem limit 10000 delay 500us loss 1% reorder 5% corrupt 0.1%";

/// A script that makes the network. Segmentation offload is off, so that each packet meets the
/// network faults alone and as a whole, after its checksum was computed.
fn network() -> String {
    let mut script = "
set -e
modprobe -a veth bridge sch_netem ublk_drv ext4
dmesg --clear
ip netns add way
ip -n way link add bridge type bridge
ip -n way link set bridge up
"
    .to_owned();
    for (name, number) in [("server", 1), ("client", 2)] {
        script.push_str(&format!(
            "ip netns add {name}
ip -n way link add {name} type veth peer name card netns {name}
ip -n {name} link set card address 02:00:00:00:00:0{number}
nsenter --net=/run/netns/{name} ethtool -K card tso off gso off sg off tx off >/dev/null
ip -n {name} addr add 10.9.0.{number}/24 dev card
ip -n {name} link set card up
ip -n {name} link set lo up
ip -n way link set {name} master bridge up
tc -n way qdisc add dev {name} root {WEATHER}
"
        ));
    }
    script
}

/// A script that works on a file system on the device, and checks it.
const WORK: &str = "
set -e
mkfs.ext4 -q -F /dev/ublkb0
mkdir -p /mnt/volume
mount /dev/ublkb0 /mnt/volume
cp /usr/bin/fio /mnt/volume/program
fio --name=files --directory=/mnt/volume --nrfiles=4 --filesize=6m --rw=randrw --rwmixread=40 \\
    --bsrange=4k-1m --blockalign=4k --ioengine=libaio --iodepth=8 --direct=1 --io_size=18m \\
    --verify=crc32c --verify_fatal=1 --output-format=terse
sha256sum /mnt/volume/program /mnt/volume/files.* >/run/sums
umount /mnt/volume
fsck.ext4 -f -n /dev/ublkb0
echo 3 >/proc/sys/vm/drop_caches
mount -o ro /dev/ublkb0 /mnt/volume
sha256sum --quiet --check /run/sums
cmp /usr/bin/fio /mnt/volume/program
umount /mnt/volume
dmesg | grep -i -E 'i/o error|ext4-fs error' && exit 1
exit 0
";

/// A script that prints the counts of the network faults, each by its name. `netem` counts a packet
/// that passed others as requeued, and does not count those that it corrupted: the kernel finds
/// them by the checksum of UDP, and the server by its own in frames of Ethernet.
const COUNTS: &str = r#"
for name in server client; do
    tc -n way -s qdisc show dev $name |
        sed -n "s/.*(dropped \([0-9]*\), .* requeues \([0-9]*\)).*/lost $name \1\nreordered $name \2/p"
    nsenter --net=/run/netns/$name awk -v name=$name \
        '/^Udp: [0-9]/ { print "corrupted", name, $8 }' /proc/net/snmp
done
nsenter --net=/run/netns/server busybox wget -qO- http://127.0.0.1:9420/metrics | sed -n '
s/^nearflash_packets_resent_pieces_total.* \([0-9]*\)$/resent server \1/p
s/^nearflash_packets_refused_total.*reason="malformed".* \([0-9]*\)$/refused server \1/p'
"#;

/// A transport under test, and the counts that prove its network faults.
struct ImpairedTransport {
    name: &'static str,
    listener: String,
    url: String,
    counts: &'static [Count],
}

/// The name of a count, and the ends that have it.
type Count = (&'static str, &'static [&'static str]);

const ENDS: [&str; 2] = ["server", "client"];

/// Returns both transports of packets. The delay of packets that wait for others would close a
/// window that follows the delay, so the window is fixed.
fn roads() -> [ImpairedTransport; 2] {
    let udp = format!("reflex+udp://{SERVER_IP}:7420?window=64");
    let options = "via=packet&window=64";
    [
        ImpairedTransport {
            name: "UDP",
            listener: udp.clone(),
            url: udp,
            counts: &[
                ("lost", &ENDS),
                ("reordered", &ENDS),
                ("corrupted", &ENDS),
                ("resent", &["server"]),
            ],
        },
        ImpairedTransport {
            name: "Ethernet",
            listener: format!("reflex+eth://card?{options}"),
            url: format!("reflex+eth://card/{SERVER_MAC}?{options}"),
            counts: &[
                ("lost", &ENDS),
                ("reordered", &ENDS),
                ("refused", &["server"]),
                ("resent", &["server"]),
            ],
        },
    ]
}

/// Works with a file system on a volume that is attached over packets, across a network with
/// faults.
pub(in super::super) fn packets_loss(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(NEEDS) {
        return Ok(skipped);
    }
    let (qemu, kernel) = context.tools()?;
    let mut guest = context.standby.take(qemu, kernel)?;
    let mut told = Vec::new();
    for road in roads() {
        told.push(format!("{}: {}", road.name, work(context, &mut guest, &road)?));
    }
    context.standby.give(guest)?;
    Ok(Verdict::Passed(format!("no wrong byte; {}", told.join("; "))))
}

/// Serves at one end of the network, attaches the volume at the other, and works on it. Returns the
/// counts of the network faults.
fn work(context: &Context, guest: &mut Guest, road: &ImpairedTransport) -> Result<String, String> {
    let program = context.nearflash.display();
    let ImpairedTransport { listener, url, .. } = road;
    guest.must(&network(), SOON)?;
    let serve = format!(
        "echo $$ >/run/server; exec nsenter --net=/run/netns/server {program} serve \
         --device mem:64MiB --admin none --insecure --metrics 127.0.0.1:9420 \
         --listen '{listener}'"
    );
    guest.serve(&serve, SOON)?;
    let attach =
        format!("exec nsenter --net=/run/netns/client {program} attach '{url}' --dev 0 --queues 2");
    guest.serve(&attach, SOON)?;
    guest.must(WORK, LATER)?;
    let counts = judge(&guest.must(COUNTS, SOON)?, road.counts)?;
    guest.must(&format!("{program} attach detach 0"), SOON)?;
    guest.must(
        "server=$(cat /run/server); kill -TERM $server\n\
         for n in $(seq 400); do [ -e /proc/$server ] || break; sleep 0.05; done\n\
         for name in client server way; do ip netns del $name; done\n\
         for n in $(seq 400); do rmmod ublk_drv && exit 0; sleep 0.05; done; exit 1",
        SOON,
    )?;
    Ok(counts)
}

/// Checks that each count of `wanted` is there and above zero, at each of its ends. Returns the
/// counts in words.
fn judge(said: &str, wanted: &[Count]) -> Result<String, String> {
    let mut told = Vec::new();
    for (name, ends) in wanted {
        let mut sum = 0;
        for end in *ends {
            let head = format!("{name} {end} ");
            let of_end = said.lines().filter_map(|line| line.strip_prefix(&head));
            let count: u64 = of_end.filter_map(|count| count.parse::<u64>().ok()).sum();
            if count == 0 {
                return Err(format!("no impairments: nothing was {name} at the {end}:\n{said}"));
            }
            sum += count;
        }
        told.push(format!("{sum} {name}"));
    }
    Ok(told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weather_that_did_not_happen_is_an_error() {
        let said = "lost server 3\nlost client 4\nresent server 5\nreordered server 0\n";
        let of = |name: &'static str, ends: &'static [&'static str]| judge(said, &[(name, ends)]);
        assert_eq!(of("lost", &ENDS).as_deref(), Ok("7 lost"));
        assert_eq!(of("resent", &["server"]).as_deref(), Ok("5 resent"));
        assert!(of("reordered", &["server"]).is_err() && of("corrupted", &ENDS).is_err());
        assert!(of("resent", &ENDS).is_err(), "the other end has not said it");
    }
}
