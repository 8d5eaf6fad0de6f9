//! Tests of controller resets, path cuts, server kills and silent hosts. Programs on the host must
//! notice nothing, and the server must keep nothing of a host that is gone.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::super::{Context, Verdict};
use super::target::ADDRESSES;
use super::verify::load;
use super::{HostAndServer, NQN, Plan, SOON, provide};

/// The fio options of one round of load: 4 s of writing on any machine, then verification.
pub(super) const STEADY: &str = "--size=32m --io_size=8m --rate=2m";

/// The options of `nvme connect` with which hosts notice failures and reconnect quickly.
pub(super) const QUICK_HOST: &str = "--keep-alive-tmo=2 --reconnect-delay=1 --ctrl-loss-tmo=300";

/// Starts a server with this device, and a host that notices failures quickly, under load. Returns
/// both, and the load's output file.
fn under_load<'a>(
    context: &'a Context,
    device: &str,
) -> Result<(HostAndServer<'a>, PathBuf), String> {
    let mut pair = HostAndServer::start(context, &[device])?;
    pair.connect(QUICK_HOST)?;
    let load = pair.start_load(&load("io_uring", "randwrite", STEADY))?;
    Ok((pair, load))
}

/// Resets the controller from the host under load.
pub(in super::super) fn reset(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let (mut pair, load) = under_load(context, "mem:64MiB")?;
    for _ in 0..3 {
        pair.must("nvme reset /dev/nvme0")?;
        pair.await_paths(1)?;
    }
    pair.pass(&load, "three resets, and fio read back all it wrote".to_owned())
}

/// Cuts one of two paths under load, restores it, then cuts the other. Each path is a network card
/// of the guest and a listener of the server.
pub(in super::super) fn path_cut(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let plan = Plan { devices: &["mem:64MiB"], listeners: 2, options: "", more: "" };
    let mut pair = HostAndServer::of(context, &plan)?;
    pair.must("ip link set eth1 up && ip addr replace 10.0.3.15/24 dev eth1")?;
    pair.connect(QUICK_HOST)?;
    let second = pair.at(1);
    pair.must(&format!("nvme connect {second} -n {NQN} -i 1 {QUICK_HOST}"))?;
    pair.await_paths(2)?;
    pair.says("nvme list-subsys", &[ADDRESSES[0], ADDRESSES[1]])?;
    let load = pair.start_load(&load("libaio", "randwrite", STEADY))?;
    for card in ["eth1", "eth0"] {
        // Remove the address as well, so that no traffic takes another way.
        pair.must(&format!("ip link set {card} down"))?;
        await_cut(&mut pair)?;
        pair.must(&format!(
            "ip link set {card} up; ip route replace default via {} dev eth0",
            ADDRESSES[0]
        ))?;
        pair.await_paths(2)?;
    }
    pair.end_load(&load)?;
    pair.must("nvme disconnect-all && ip link set eth1 down")?;
    pair.end()?;
    Ok(Verdict::Passed("each path cut once under load, no error seen, both back".to_owned()))
}

/// Waits until the host has noticed that one of its two paths is gone, and has since written over
/// the other one.
fn await_cut(pair: &mut HostAndServer) -> Result<(), String> {
    pair.must(
        // A busy machine may cut the other path for a moment, too.
        "found=\n\
         for n in $(seq 600); do \
           [ $(grep -l live /sys/class/nvme/nvme*/state | wc -l) -eq 1 ] && found=1 && break; \
           sleep 0.1; \
         done\n\
         [ \"$found\" ] || exit 1\n\
         count() { cat /sys/block/nvme*/stat | awk '{ s += $7 } END { print s }'; }\n\
         before=$(count)\n\
         for n in $(seq 600); do [ $(count) -gt $before ] && exit 0; sleep 0.1; done; exit 1",
    )?;
    Ok(())
}

/// Kills the server under load, and starts it again with its file.
pub(in super::super) fn target_killed(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let (mut pair, load) = under_load(context, &context.volume())?;
    let kills = if context.quick { 1 } else { 2 };
    for _ in 0..kills {
        pair.target.kill();
        thread::sleep(Duration::from_millis(500));
        pair.target.restart()?;
        pair.await_paths(1)?;
        thread::sleep(Duration::from_secs(1));
    }
    pair.end_load(&load)?;
    pair.says("dmesg", &["reconnect"])?;
    pair.disconnect()?;
    pair.end()?;
    Ok(Verdict::Passed(format!("{kills} kills, and fio read back all it wrote")))
}

/// Freezes the host's machine. Its controller must end when the keep-alive timeout is over, and the
/// host must reconnect when it wakes.
pub(in super::super) fn keep_alive(context: &Context) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let (mut pair, load) = under_load(context, "mem:64MiB")?;
    if pair.target.connections()? != 2 {
        return Err("an admin queue and one I/O queue are two connections".to_owned());
    }
    pair.guest.freeze(true)?;
    let cleaned = await_silence(&pair);
    pair.guest.freeze(false)?;
    let seconds = cleaned?;
    pair.await_paths(1)?;
    let text =
        format!("a frozen host with a timeout of 2 s was gone after {seconds:.1} s, and came back");
    pair.pass(&load, text)
}

/// Waits until the server has ended all connections of its first listener. Returns the seconds that
/// this took.
fn await_silence(pair: &HostAndServer) -> Result<f64, String> {
    let started = Instant::now();
    while pair.target.connections()? > 0 {
        if started.elapsed() > SOON {
            return Err("the server kept the connections of a host that was silent".to_owned());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(started.elapsed().as_secs_f64())
}
