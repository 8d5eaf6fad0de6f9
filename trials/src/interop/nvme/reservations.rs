//! A test of two hosts that share a namespace and compete for it with reservations.

use std::fs;

use super::super::{Context, Verdict};
use super::{HostAndServer, NQN, Plan, provide};

/// A script that sets up two hosts in one kernel, each on its own listener. Without multipath each
/// controller has a device of its own, `$a` and `$b`.
const HOSTS: &str = "
set -e
connect() {
    nvme connect -t tcp -a 10.0.2.2 -s $3 -n NQN -i 1 --hostid=$2 \\
        --hostnqn=nqn.2026-11.io.nearflash:$1
}
connect_one() { connect one 11111111-1111-4111-8111-111111111111 FIRST; }
connect_two() { connect two 22222222-2222-4222-8222-222222222222 SECOND; }
controller_of() { grep -l :$1 /sys/class/nvme/*/hostnqn | cut -d / -f 5; }
device_of() {
    for n in $(seq 400); do
        c=$(controller_of $1)
        [ -n \"$c\" ] && [ -b /dev/${c}n1 ] && echo /dev/${c}n1 && return 0
        sleep 0.05
    done
    return 1
}
writes() { dd if=/dev/zero of=$1 bs=4k count=1 oflag=direct status=none; }
reads() { dd if=$1 of=/dev/null bs=4k count=1 iflag=direct status=none; }
refused() { if \"$@\"; then echo \"was let: $*\"; exit 1; fi; }
conflict() { if \"$@\" >/run/said 2>&1; then echo \"was let: $*\"; exit 1; fi; cat /run/said; \
             grep -qi conflict /run/said; }
registered() { [ $(nvme resv-report $a --eds -o json | grep -c '\"rkey\"') -eq $1 ]; }
";

/// A script that looks up the devices of both hosts.
const DEVICES: &str = "a=$(device_of one); b=$(device_of two)\n";

/// Pairs of a description and a shell command that state the access of each host, step by step.
const STEPS: &[(&str, &str)] = &[
    ("nobody has a reservation", "writes $a; writes $b; registered 0"),
    ("who is not registered cannot acquire", "conflict nvme resv-acquire $a -c 0xa -t 1 -a 0"),
    (
        "both register, once",
        "nvme resv-register $a -k 0xa -r 0; nvme resv-register $b -k 0xb -r 0; registered 2; \
         conflict nvme resv-register $a -k 0xc -r 0",
    ),
    (
        "write exclusive: others read",
        "nvme resv-acquire $a -c 0xa -t 1 -a 0; writes $a; reads $b; refused writes $b; \
         conflict nvme resv-acquire $b -c 0xb -t 1 -a 0",
    ),
    (
        "only with the right key, and only its own",
        "conflict nvme resv-release $a -c 0xbad -t 1 -a 0; nvme resv-release $b -c 0xb -t 1 -a 0; \
         refused writes $b; nvme resv-release $a -c 0xa -t 1 -a 0; writes $b",
    ),
    (
        "exclusive access: others not even read",
        "nvme resv-acquire $b -c 0xb -t 2 -a 0; refused reads $a; refused writes $a; writes $b",
    ),
    (
        "preempted: the other is registered no more",
        "nvme resv-acquire $a -c 0xa -p 0xb -t 2 -a 1; writes $a; refused reads $b; registered 1; \
         conflict nvme resv-release $b -c 0xb -t 2 -a 0",
    ),
    (
        "registrants only: who registers may write",
        "nvme resv-release $a -c 0xa -t 2 -a 0; nvme resv-acquire $a -c 0xa -t 3 -a 0; \
         refused writes $b; nvme resv-register $b -k 0xb -r 0; writes $b; writes $a",
    ),
    (
        "a new key, and the old one is worth nothing",
        "nvme resv-register $a -c 0xa -k 0xaa -r 2; conflict nvme resv-release $a -c 0xa -t 3 -a 0",
    ),
];

/// Configuration of a device with so few tokens that writes of a host with a deep queue wait
/// seconds for theirs. The second host is charged as a tenant of its own, so reads of the first
/// host do not wait behind its writes.
const SLOW: &str = "
[[device]]
name = \"slow\"
spec = \"mem:8MiB\"
model = \"MODEL\"
[[tenant]]
name = \"two\"
device = \"slow\"
[[host]]
nqn = \"nqn.2026-11.io.nearflash:two\"
tenant = \"two\"
";

/// The device model of [`SLOW`], with 4 000 tokens a second. A write of 64 KiB costs 160 tokens.
const MODEL: &str = "
format = 1
device = \"a slow one\"
measured = \"never\"

[prices]
write = 10
read_only_read = 1

[rates]
max = 4000
p95 = [
    { latency_us = 500, mixed = 2000, read_only = 2000 },
    { latency_us = 2000, mixed = 3000, read_only = 3000 },
]
";

/// A script in which the second host writes with 32 requests in flight while the first preempts it
/// and aborts its commands. After the preemption is answered, none of these writes may land,
/// neither those that waited for tokens nor those at the device.
const AMID_WRITES: &str = "
set -x
a=${a%1}2; b=${b%1}2
contents() { dd if=$a bs=64k count=64 iflag=direct status=none | md5sum; }
empty=$(contents)
nvme resv-register $a -k 0xa -r 0
nvme resv-register $b -k 0xb -r 0
nvme resv-acquire $b -c 0xb -t 1 -a 0
fio --name=amid --filename=$b --direct=1 --ioengine=libaio --rw=randwrite --bs=64k --iodepth=32 \
    --size=4m --time_based --runtime=300 --output=/run/fio >/run/said 2>&1 &
load=$!
for n in $(seq 200); do [ \"$(contents)\" != \"$empty\" ] && break; sleep 0.1; done
sleep 1
kill -0 $load
nvme resv-acquire $a -c 0xa -p 0xb -t 1 -a 2
before=$(contents)
[ \"$before\" != \"$empty\" ]
wait $load && exit 1
cat /run/fio
grep -q 'err=' /run/fio /run/said
sleep 4
[ \"$(contents)\" = \"$before\" ]
registered 1
refused writes $b
nvme resv-release $a -c 0xa -a 1
";

/// A script in which the host that has the reservation reconnects and still has it.
const AGAIN: &str = "
set -x
nvme disconnect -d $(controller_of one)
for n in $(seq 200); do [ -z \"$(controller_of one)\" ] && break; sleep 0.05; done
connect_one
a=$(device_of one)
registered 2
nvme resv-report $a --eds
nvme resv-register $b -c 0xb -r 1
refused writes $b
writes $a
nvme resv-release $a -c 0xaa -a 1
registered 0
writes $b
";

/// Runs all steps: the hosts register, acquire, conflict, preempt (also amid writes), release and
/// report. The reservation must outlive a connection.
pub(in super::super) fn two_hosts(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let model = context.folder.join("slow.toml");
    fs::write(&model, MODEL).map_err(|error| format!("{}: {error}", model.display()))?;
    let slow = SLOW.replace("MODEL", &model.display().to_string());
    let plan = Plan { devices: &["mem:64MiB"], listeners: 2, options: "", more: &slow };
    let mut pair = HostAndServer::of(context, &plan)?;
    reload(&mut pair, "multipath=N")?;
    let [first, second] = [0, 1].map(|n| pair.target.ports[n].to_string());
    let hosts = HOSTS.replace("NQN", NQN).replace("FIRST", &first).replace("SECOND", &second);
    pair.must(&format!("{hosts}connect_one; connect_two; {DEVICES}"))?;
    let last = [("preempted amid its writes", AMID_WRITES), ("held over a connection", AGAIN)];
    let all = STEPS.iter().chain(&last);
    for (what, step) in all {
        let done = pair.must(&format!("{hosts}{DEVICES}{step}"));
        done.map_err(|error| format!("{what}: {error}"))?;
    }
    pair.must("nvme disconnect-all")?;
    reload(&mut pair, "")?;
    pair.end()?;
    Ok(Verdict::Passed(format!("{} steps of two hosts", STEPS.len() + last.len())))
}

/// Reloads the guest's NVMe driver with this option.
fn reload(pair: &mut HostAndServer, option: &str) -> Result<(), String> {
    pair.must(&format!(
        "modprobe -r nvme_tcp nvme nvme_fabrics nvme_core && modprobe nvme_core {option} && \
         modprobe -a nvme nvme_tcp"
    ))?;
    Ok(())
}
