//! An operator changes the server while hosts work on it: they are told, and notice nothing else.

use super::super::{Context, Verdict};
use super::failures::{QUICK_HOST, STEADY};
use super::verify::load;
use super::{NQN, Pair, Plan, provide};

/// Namespaces grow, shrink, come and go under load.
pub(in super::super) fn namespaces(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    // A file: of what lies behind a namespace there, the server knows that it is blank.
    let device = format!("file:{}?size=96MiB", context.folder.join("volume").display());
    let more = "[[namespace]]\ndevice = \"d0\"\nsize = \"40MiB\"\n";
    let mut pair = Pair::of(context, &Plan { devices: &[&device], listeners: 1, more })?;
    pair.connect("")?;
    let load = pair.start_load(&load("io_uring", "randwrite", STEADY))?;
    // Without a rescan: the server says that something has changed.
    for (size, blocks) in [("48MiB", 98304), ("64MiB", 131_072), ("44MiB", 90112)] {
        pair.target.operate(&["namespace", "resize", "1", size, "--shrink"])?;
        await_in(&mut pair, &format!("[ $(cat /sys/block/nvme0n1/size) -eq {blocks} ]"))?;
    }
    pair.target.operate(&["namespace", "add", "extra", "8MiB", "--device", "d0"])?;
    await_in(&mut pair, "[ -b /dev/nvme0n2 ]")?;
    pair.must("dd if=/dev/urandom of=/dev/nvme0n2 bs=64k count=128 oflag=direct status=none")?;
    pair.says("nvme list-ns /dev/nvme0", &["0x2"])?;
    pair.target.operate(&["namespace", "rm", "extra"])?;
    await_in(&mut pair, "[ ! -e /dev/nvme0n2 ]")?;
    pair.end_load(&load)?;
    pair.disconnect()?;
    pair.end()?;
    Ok(Verdict::Passed("grown, shrunk, added, removed; the host knew at once".to_owned()))
}

/// One of two paths becomes inaccessible and good again, and then the other, under load.
pub(in super::super) fn access_states(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let plan = Plan { devices: &["mem:64MiB"], listeners: 2, more: "" };
    let mut pair = Pair::of(context, &plan)?;
    let ports = pair.target.ports.clone();
    pair.connect(QUICK_HOST)?;
    let other = ports[1];
    pair.must(&format!("nvme connect -t tcp -a 10.0.2.2 -s {other} -n {NQN} -i 1 {QUICK_HOST}"))?;
    pair.await_paths(2)?;
    let load = pair.start_load(&load("libaio", "randwrite", STEADY))?;
    for port in &ports {
        let listener = format!("nvme-tcp://127.0.0.1:{port}");
        for state in ["inaccessible", "non-optimized", "optimized"] {
            pair.target.operate(&["listener", "ana", &listener, state])?;
            let path = format!("grep -l trsvcid={port} /sys/class/nvme/nvme*/address");
            let told = format!(
                "c=$({path} | cut -d / -f 5); \
                 [ $(cat /sys/class/nvme/$c/nvme*n1/ana_state) = {state} ]"
            );
            await_in(&mut pair, &told)?;
        }
    }
    pair.end_load(&load)?;
    pair.must("nvme disconnect-all")?;
    pair.end()?;
    Ok(Verdict::Passed("each path inaccessible once under load, no error seen".to_owned()))
}

/// Waits until this is so in the guest.
fn await_in(pair: &mut Pair, condition: &str) -> Result<(), String> {
    pair.must(&format!("for n in $(seq 600); do {condition} && exit 0; sleep 0.1; done; exit 1"))?;
    Ok(())
}
