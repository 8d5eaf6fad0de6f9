//! An attached volume over packets, behind a network that loses, reorders and corrupts them.
//!
//! Server and client are in network namespaces of one guest, which are joined by a bridge in a third.
//! The weather is the kernel's `netem` at both ports of the bridge, where frames of UDP and raw
//! frames pass alike.

use super::super::guest::{Guest, LATER, SOON};
use super::super::{Context, Verdict};
use super::bed::provide;
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

/// The weather at a port of the bridge: one packet of 20 passes the others, which are all delayed.
const WEATHER: &str = "netem limit 10000 delay 500us loss 1% reorder 5% corrupt 0.1%";

/// A script that makes the network. The cards segment nothing, so that each packet meets the weather
/// alone and as a whole, behind its checksum.
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
set -e -x
date +%s
mkfs.ext4 -q -F /dev/ublkb0
mkdir -p /mnt/volume
mount /dev/ublkb0 /mnt/volume
cp /usr/bin/fio /mnt/volume/program
date +%s
fio --name=files --directory=/mnt/volume --nrfiles=4 --filesize=8m --rw=randrw --rwmixread=40 \\
    --bsrange=4k-1m --blockalign=4k --ioengine=libaio --iodepth=8 --direct=1 --io_size=24m \\
    --verify=crc32c --verify_fatal=1 --output-format=terse
date +%s
sha256sum /mnt/volume/* >/run/sums
umount /mnt/volume
fsck.ext4 -f -n /dev/ublkb0
echo 3 >/proc/sys/vm/drop_caches
mount -o ro /dev/ublkb0 /mnt/volume
sha256sum --quiet --check /run/sums
cmp /usr/bin/fio /mnt/volume/program
umount /mnt/volume
dmesg | grep -i -E 'i/o error|ext4-fs error|buffer error' && exit 1
exit 0
";

/// Works with a file system on a volume that is attached over packets, in bad weather.
pub(in super::super) fn packets_loss(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(NEEDS) {
        return Ok(skipped);
    }
    let (qemu, kernel) = context.tools()?;
    let mut guest = context.standby.take(qemu, kernel)?;
    let mut told = Vec::new();
    let ethernet = (
        "reflex+eth://card?via=packet".to_owned(),
        format!("reflex+eth://card/{SERVER_MAC}?via=packet"),
    );
    let udp = format!("reflex+udp://{SERVER_IP}:7420?window=64");
    for (listener, url) in [(udp.clone(), udp), ethernet] {
        let counts = work(context, &mut guest, &listener, &url)?;
        told.push(format!("{}: {counts}", url.split(':').next().unwrap_or_default()));
    }
    context.standby.give(guest)?;
    Ok(Verdict::Passed(format!("no wrong byte; {}", told.join("; "))))
}

/// Serves at `listener`, attaches the volume at `url`, and works on it. Returns the counts of the
/// weather.
fn work(context: &Context, guest: &mut Guest, listener: &str, url: &str) -> Result<String, String> {
    let program = context.nearflash.display();
    let within = |name: &str| format!("nsenter --net=/run/netns/{name}");
    guest.must(&network(), SOON)?;
    let serve = format!(
        "echo $$ >/run/server; exec {} {program} serve --device mem:96MiB --admin none --insecure \
         --metrics 127.0.0.1:9420 --listen '{listener}'",
        within("server")
    );
    guest.serve(&serve, SOON)?;
    let attach = format!("exec {} {program} attach '{url}' --dev 0 --queues 2", within("client"));
    guest.serve(&attach, SOON)?;
    guest.must(WORK, LATER)?;
    let said = guest.must(
        &format!(
            "tc -n way -s qdisc; {} busybox wget -qO- \
        http://127.0.0.1:9420/metrics | grep ^nearflash_packets; for name in client server; do \
        ip netns exec $name cat /proc/net/snmp; done",
            within("server")
        ),
        SOON,
    )?;
    guest.must(&format!("{program} attach detach 0"), SOON)?;
    guest.must(
        "kill -TERM $(cat /run/server)
        for n in $(seq 400); do [ -e /proc/$(cat /run/server) ] || break; sleep 0.05; done
        for name in client server way; do ip netns del $name; done
        for n in $(seq 400); do rmmod ublk_drv && exit 0; sleep 0.05; done; exit 1",
        SOON,
    )?;
    println!("{said}");
    Ok(String::new())
}
