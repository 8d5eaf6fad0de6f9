//! Tests of live changes by an operator while hosts do I/O: hosts receive notices and see no other
//! effect.

use super::super::{Context, Verdict};
use super::failures::{QUICK_HOST, STEADY};
use super::verify::load;
use super::{HostAndServer, NQN, Plan, provide};

/// Resizes, adds and removes namespaces under load.
pub(in super::super) fn namespaces(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    // A file, because the server knows that new space of a file is blank.
    let device = format!("file:{}?size=96MiB", context.folder.join("volume").display());
    let more = "[[namespace]]\ndevice = \"d0\"\nsize = \"40MiB\"\n";
    let mut pair =
        HostAndServer::of(context, &Plan { devices: &[&device], listeners: 1, options: "", more })?;
    pair.connect("")?;
    let load = pair.start_load(&load("io_uring", "randwrite", STEADY))?;
    // No rescan is needed: the server sends a notice.
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
    pair.pass(&load, "grown, shrunk, added, removed; the host knew at once".to_owned())
}

/// Makes one of two paths inaccessible under load and optimized again, and then the other one.
pub(in super::super) fn access_states(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let plan = Plan { devices: &["mem:64MiB"], listeners: 2, options: "", more: "" };
    let mut pair = HostAndServer::of(context, &plan)?;
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

/// Denies a host that is writing. Its controller must end, and its attempts to reconnect must fail
/// until it is allowed again.
pub(in super::super) fn hosts(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let host = "nqn.2026-11.io.nearflash:denied";
    let more = format!("hosts = [\"{host}\"]\n");
    let plan = Plan { devices: &["mem:64MiB"], listeners: 1, options: "", more: &more };
    let mut pair = HostAndServer::of(context, &plan)?;
    // The host retries every second, for a long time.
    let own = format!("--hostnqn={host} --reconnect-delay=1 --ctrl-loss-tmo=600");
    pair.connect(&own)?;
    pair.must(
        "(while dd if=/dev/zero of=/dev/nvme0n1 bs=4k count=64 oflag=direct; do :; done) \
             >/run/denied 2>&1 & sleep 1; [ -s /run/denied ]",
    )?;
    pair.target.operate(&["subsystem", "deny", NQN, host])?;
    let is_in = "grep -q live /sys/class/nvme/nvme*/state 2>/dev/null";
    await_in(&mut pair, &format!("! {is_in}"))?;
    for _ in 0..10 {
        pair.must(&format!("sleep 0.5; ! {is_in}"))?;
        let shown = pair.target.operate(&["subsystem", "show", NQN])?;
        if shown.contains(&format!("{host} is connected")) {
            return Err(format!("it was let in again:\n{shown}"));
        }
    }
    let state = pair.must("cat /sys/class/nvme/nvme*/state 2>/dev/null || echo gone")?;
    pair.must("nvme disconnect-all; true")?;
    pair.refused(&own)?;
    pair.target.operate(&["subsystem", "allow", NQN, host])?;
    pair.connect(&own)?;
    pair.must("dd if=/dev/nvme0n1 of=/dev/null bs=4k count=64 iflag=direct status=none")?;
    pair.disconnect()?;
    pair.end()?;
    let state = state.trim();
    Ok(Verdict::Passed(format!("cut off and kept out (its controller: {state}), then let in")))
}

/// Waits until a shell condition holds in the guest.
fn await_in(pair: &mut HostAndServer, condition: &str) -> Result<(), String> {
    pair.must(&format!("for n in $(seq 600); do {condition} && exit 0; sleep 0.1; done; exit 1"))?;
    Ok(())
}
