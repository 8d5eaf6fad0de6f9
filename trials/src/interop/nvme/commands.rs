//! Tests of everyday commands of `nvme-cli` (discover, connect, list, disconnect), and of each I/O
//! command alone.

use super::super::{Context, Verdict};
use super::target::ADDRESSES;
use super::{HostAndServer, NQN, Plan, SOON, provide};

/// The qualified name of every discovery subsystem.
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Checks that discovery shows the subsystems that the host may use and no others, and that the
/// host can connect to every path.
pub(in super::super) fn discover(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let secret = "nqn.2026-11.io.nearflash:others";
    let more = format!(
        "namespaces = [1]\n[[subsystem]]\nnqn = \"{secret}\"\nnamespaces = [2]\n\
         hosts = [\"nqn.2026-11.io.nearflash:elsewhere\"]\n"
    );
    let plan =
        Plan { devices: &["mem:64MiB", "mem:32MiB"], listeners: 2, options: "", more: &more };
    let mut pair = HostAndServer::of(context, &plan)?;
    let at = pair.at(0);
    let found = pair.says(&format!("nvme discover {at}"), &[NQN, DISCOVERY])?;
    let records = found.matches("trtype:").count();
    if records != 4 || found.contains(secret) {
        return Err(format!("not the two subsystems at two ports each:\n{found}"));
    }
    pair.must(&format!("nvme connect-all {at} -i 1"))?;
    pair.await_paths(2)?;
    pair.says("nvme list-subsys", &[NQN, ADDRESSES[0], "live"])?;
    pair.says("nvme list", &["n1 ", "nearflash"])?;
    pair.must("nvme disconnect-all")?;
    persist(&mut pair, &at)?;
    pair.end()?;
    Ok(Verdict::Passed("two paths found and connected; another host's subsystem unseen".to_owned()))
}

/// Opens a persistent discovery controller at the address options `at`, as hosts do that wait for
/// notices.
fn persist(pair: &mut HostAndServer, at: &str) -> Result<(), String> {
    pair.says(&format!("nvme discover {at} --persistent --keep-alive-tmo=5"), &[NQN])?;
    pair.await_paths(1)?;
    pair.says("cat /sys/class/nvme/nvme0/subsysnqn", &[DISCOVERY])?;
    pair.says("nvme discover --device=nvme0", &[NQN])?;
    pair.must("nvme disconnect-all")?;
    Ok(())
}

/// Connects, checks the list of devices and disconnects, twice.
pub(in super::super) fn connect(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let mut pair = HostAndServer::start(context, &["mem:64MiB", "mem:32MiB"])?;
    pair.connect("")?;
    // The kernel scans namespaces in parallel and names them in the order in which the scans end.
    let sizes = pair.must(
        "for n in /sys/block/nvme0n[12]; do echo $(cat $n/nsid) $(cat $n/size); done | sort",
    )?;
    if sizes.lines().ne(["1 131072", "2 65536"]) {
        return Err(format!("namespaces of 64 and 32 MiB have so many blocks of 512:\n{sizes}"));
    }
    pair.says("nvme list", &["/dev/nvme0n1", "/dev/nvme0n2", "nearflash"])?;
    pair.says("nvme list-subsys", &[NQN, "tcp", "live"])?;
    pair.says("nvme list-ns /dev/nvme0", &["0x1", "0x2"])?;
    let controller = &["nearflash", "mdts      : 8", "cntrltype : 1", "anagrpmax : 32", NQN];
    pair.says("nvme id-ctrl /dev/nvme0", controller)?;
    pair.says("nvme id-ns /dev/nvme0 -n 1", &["nsze    : 0x20000", "anagrpid: 1", "lbads:9"])?;
    pair.says("nvme id-ns /dev/nvme0 -n 2", &["nsze    : 0x10000"])?;
    pair.says("nvme ns-descs /dev/nvme0 -n 1", &["uuid", "csi"])?;
    pair.must("nvme cmdset-ind-id-ns /dev/nvme0 -n 1 && nvme nvm-id-ctrl /dev/nvme0")?;
    pair.says("nvme list-ctrl /dev/nvme0", &["num of ctrls present: 1"])?;
    for feature in [7, 0x0b, 0x0f] {
        pair.must(&format!("nvme get-feature /dev/nvme0 -f {feature} -H"))?;
    }
    for property in [0, 8, 0x14, 0x1c] {
        pair.must(&format!("nvme get-property /dev/nvme0 -o {property} -H"))?;
    }
    pair.must("nvme ns-rescan /dev/nvme0")?;
    pair.disconnect()?;
    pair.connect("--nr-write-queues=1 --nr-poll-queues=1")?;
    pair.must("nvme disconnect -d nvme0")?;
    pair.end()?;
    Ok(Verdict::Passed("listed, identified, disconnected by name and by device".to_owned()))
}

/// Does some I/O, and checks the contents of the log pages.
pub(in super::super) fn logs(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let mut pair = HostAndServer::start(context, &["mem:64MiB"])?;
    pair.connect("")?;
    let counts = "nvme smart-log /dev/nvme0 -o json | tr -d ' \",'";
    pair.must("dd if=/dev/zero of=/dev/nvme0n1 bs=64k count=64 oflag=direct status=none")?;
    pair.must("dd if=/dev/nvme0n1 of=/dev/null bs=64k count=64 iflag=direct status=none")?;
    let text = pair.must(counts)?;
    let count = |name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok())
    };
    // 64 writes of 128 blocks are 8192 blocks. Units are thousands of blocks, rounded up.
    let written = (count("host_write_commands"), count("data_units_written"));
    if written != (Some(64), Some(9)) || count("host_read_commands").is_none_or(|n| n < 64) {
        return Err(format!("not what was written and read:\n{text}"));
    }
    pair.must("! nvme read /dev/nvme0n1 -s 0x7fffffff -c 0 -z 512 -d /dev/null")?;
    pair.says(
        "nvme error-log /dev/nvme0 -e 4",
        &["error_count\t: 1", "LBA Out of Range", "nsid\t\t: 0x1"],
    )?;
    pair.says("nvme ana-log /dev/nvme0", &["ngrps", "optimized"])?;
    pair.says("nvme fw-log /dev/nvme0", &["frs1"])?;
    pair.says("nvme effects-log /dev/nvme0 -c 0", &["Identify", "Write"])?;
    pair.must("nvme changed-ns-list-log /dev/nvme0")?;
    pair.must("nvme supported-log-pages /dev/nvme0")?;
    pair.must("nvme fid-support-effects-log /dev/nvme0")?;
    pair.must("nvme resv-notif-log /dev/nvme0")?;
    // A log page that the controller does not support.
    pair.must("! nvme endurance-log /dev/nvme0 -g 1")?;
    pair.disconnect()?;
    pair.end()?;
    Ok(Verdict::Passed("health counts, errors, access states, effects, features".to_owned()))
}

/// A script that sends each I/O command on its own, bypassing the kernel's block layer.
const IO_COMMANDS: &str = "
set -e
d=/dev/nvme0n1
head -c 8192 /dev/urandom >/run/one
head -c 8192 /dev/urandom >/run/other
nvme write $d -s 8 -c 15 -z 8192 -d /run/one
nvme write $d -s 24 -c 15 -z 8192 -d /run/one -f
nvme read $d -s 8 -c 15 -z 8192 -d /run/back
cmp /run/one /run/back
nvme compare $d -s 8 -c 15 -z 8192 -d /run/one
! nvme compare $d -s 8 -c 15 -z 8192 -d /run/other
nvme verify $d -s 8 -c 15
nvme flush $d
nvme write-zeroes $d -s 8 -c 7
nvme read $d -s 8 -c 15 -z 8192 -d /run/back
head -c 4096 /dev/zero >/run/expected; tail -c 4096 /run/one >>/run/expected
cmp /run/expected /run/back
nvme write-zeroes $d -s 8 -c 7 --deac
nvme dsm $d -d -s 16,24 -b 8,16
nvme read $d -s 8 -c 31 -z 16384 -d /run/back
head -c 16384 /dev/zero | cmp - /run/back
! nvme write-uncor $d -s 0 -c 0
! nvme flush /dev/nvme0 -n 7
! nvme read $d -s 131071 -c 1 -z 1024 -d /run/back
blkdiscard -o 0 -l 1048576 $d
blkdiscard -z -o 0 -l 1048576 $d
";

/// Checks that data is read back and compared as it was written, and is gone after a discard.
pub(in super::super) fn io(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let mut pair = HostAndServer::start(context, &["mem:64MiB"])?;
    pair.connect("")?;
    pair.guest.must(IO_COMMANDS, SOON)?;
    pair.disconnect()?;
    pair.end()?;
    Ok(Verdict::Passed(
        "write, read, compare, verify, zero, discard, flush; errors told".to_owned(),
    ))
}
