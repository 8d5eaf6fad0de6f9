//! A test that upgrades the server under load. The host must not notice
//! (docs/adr/0015-moving-controllers.md).

use std::thread;
use std::time::Duration;

use super::super::{Context, Verdict};
use super::failures::{QUICK_HOST, STEADY};
use super::verify::load;
use super::{HostAndServer, provide};

/// The options of `nvme connect` for an admin queue and three I/O queues, each a connection: more
/// queues than a guest with one processor opens for reads alone.
const QUEUES: &str = "--nr-write-queues=1 --nr-poll-queues=1";
const CONNECTIONS: usize = 4;

/// Words of kernel messages about lost connections and failed or slow requests.
const TROUBLE: &[&str] = &["reconnect", "reset", "recovery", "timeout", "error", "fail", "lost"];

/// Starts one successor after the other while fio writes and then verifies.
pub(in super::super) fn under_load(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let mut pair = HostAndServer::start(context, &[&context.volume()])?;
    pair.connect(&format!("{QUICK_HOST} {QUEUES}"))?;
    if pair.target.connections()? != CONNECTIONS {
        return Err(format!("not {CONNECTIONS} connections"));
    }
    let load = pair.start_load(&load("io_uring", "randwrite", STEADY))?;
    let upgrades = if context.quick { 2 } else { 5 };
    let wanted = format!("took over {CONNECTIONS} connections");
    for _ in 0..upgrades {
        let said = pair.target.upgrade()?;
        println!("    {said}");
        if !said.contains(&wanted) || !said.contains("; 0 end with the older process") {
            return Err(format!("not all connections went along: {said}"));
        }
        thread::sleep(Duration::from_secs(1));
    }
    pair.end_load(&load)?;
    pair.await_paths(1)?;
    let log = pair.must("dmesg")?;
    if let Some(line) = log.lines().find(|line| TROUBLE.iter().any(|word| line.contains(word))) {
        return Err(format!("the host has noticed: {line}\n{log}"));
    }
    pair.disconnect()?;
    pair.end()?;
    Ok(Verdict::Passed(format!(
        "{upgrades} upgrades, and fio read back all it wrote; the kernel has nothing to say of it"
    )))
}
