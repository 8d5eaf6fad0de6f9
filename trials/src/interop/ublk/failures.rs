//! Tests of kills and upgrades of the server, kills of the process that serves a device, and a
//! server that stays away.

use std::thread;
use std::time::Duration;

use super::super::chance::Rng;
use super::super::guest::SOON;
use super::super::{Context, Verdict};
use super::fixture::{UblkSetup, UblkTransport, provide};

/// The command of a round of load: some seconds of writing on any machine, then verification.
const ROUND: &str = "fio --name=load --filename=/dev/ublkb0 --rw=randwrite --bsrange=4k-128k \
     --size=32m --io_size=8m --rate=4m --iodepth=16 --ioengine=libaio --direct=1 --fsync=64 \
     --verify=crc32c --verify_fatal=1 --output-format=terse --output=/run/fio";

/// The command that prints the identifier of the process that serves the device.
const PROCESS: &str = r#"sed -n 's/.*"process": \([0-9]*\).*/\1/p' /run/nearflash-attach/0.json"#;

/// Kills the server of a volume that is attached over streams.
pub(in super::super) fn server_killed(context: &Context) -> Result<Verdict, String> {
    kill_server(context, UblkTransport::Streams)
}

/// Kills the process of a volume that is attached over streams.
pub(in super::super) fn process_killed(context: &Context) -> Result<Verdict, String> {
    kill_process(context, UblkTransport::Streams)
}

/// Upgrades the server of a volume that is attached over streams.
pub(in super::super) fn server_upgraded(context: &Context) -> Result<Verdict, String> {
    upgrade_server(context, UblkTransport::Streams)
}

/// Has the server of a volume stay away that is attached over streams.
pub(in super::super) fn server_away(context: &Context) -> Result<Verdict, String> {
    leave(context, UblkTransport::Streams)
}

/// Kills the server, and then the process, of a volume that is attached over packets.
pub(in super::super) fn packets_killed(context: &Context) -> Result<Verdict, String> {
    both(context, [kill_server, kill_process])
}

/// Upgrades the server of a volume that is attached over packets, and has it stay away.
pub(in super::super) fn packets_away(context: &Context) -> Result<Verdict, String> {
    both(context, [upgrade_server, leave])
}

/// A test over a transport.
type TransportTest = fn(&Context, UblkTransport) -> Result<Verdict, String>;

/// Runs two tests over packets.
fn both(context: &Context, parts: [TransportTest; 2]) -> Result<Verdict, String> {
    let mut told = Vec::new();
    for part in parts {
        match part(context, UblkTransport::Packets)? {
            Verdict::Passed(text) => told.push(text),
            skipped => return Ok(skipped),
        }
    }
    Ok(Verdict::Passed(told.join("; ")))
}

/// Kills the server under load, and starts it again with its file.
fn kill_server(context: &Context, over: UblkTransport) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let mut bed = UblkSetup::over(context, over, &context.volume())?;
    bed.attached("")?;
    let load = bed.start_load(ROUND)?;
    let mut chance = Rng::new(context.seed ^ 44);
    let kills = context.kills.unwrap_or(3);
    for _ in 0..kills {
        thread::sleep(Duration::from_millis(chance.below(1000)));
        bed.kill_server();
        thread::sleep(Duration::from_millis(chance.below(500)));
        bed.serve()?;
        bed.await_writes(200)?;
    }
    bed.end_load(&load)?;
    bed.end()?;
    Ok(Verdict::Passed(format!("{kills} kills, and fio read back all it wrote")))
}

/// Upgrades the server under load. Connections over streams must move to each successor; those over
/// packets are dialled anew.
fn upgrade_server(context: &Context, over: UblkTransport) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let admin = context.folder.join("admin");
    let device = context.volume();
    let mut bed =
        UblkSetup::of(context, over, &["--admin", &admin.to_string_lossy(), "--device", &device])?;
    bed.attached("")?;
    let load = bed.start_load(ROUND)?;
    let mut chance = Rng::new(context.seed ^ 22);
    let upgrades = context.kills.unwrap_or(3);
    for _ in 0..upgrades {
        thread::sleep(Duration::from_millis(chance.below(1000)));
        bed.upgrade()?;
        bed.await_writes(200)?;
    }
    bed.end_load(&load)?;
    let said = bed.must(&format!("cat /proc/$({PROCESS})/fd/2"))?;
    let log = bed.server_log()?;
    let moves = log.lines().filter(|line| line.contains("took over") && line.contains("; 0 end"));
    let is_moved = !said.contains("no connection") && moves.count() as u64 == u64::from(upgrades);
    let moved = match over {
        UblkTransport::Streams => ", no new connection",
        UblkTransport::Packets => "",
    };
    if over == UblkTransport::Streams && !is_moved {
        return Err(format!("a connection did not move:\n{said}{log}"));
    }
    bed.end()?;
    Ok(Verdict::Passed(format!("{upgrades} upgrades{moved}, and fio read back all it wrote")))
}

/// Kills the process that serves the device under load, or asks it to end. A successor must take
/// the device over, by its number or by the command that attached it.
fn kill_process(context: &Context, over: UblkTransport) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let mut bed = UblkSetup::over(context, over, "mem:64MiB")?;
    bed.attached("")?;
    let load = bed.start_load(ROUND)?;
    let mut chance = Rng::new(context.seed ^ 88);
    let kills = context.kills.unwrap_or(4);
    for number in 0..kills {
        thread::sleep(Duration::from_millis(chance.below(1000)));
        let signal = if number % 4 == 2 { "TERM" } else { "KILL" };
        bed.must(&format!(
            "process=$({PROCESS}); kill -{signal} $process || exit 1\n\
             for n in $(seq 1000); do [ -e /proc/$process ] || exit 0; sleep 0.05; done; exit 1"
        ))?;
        match number % 2 {
            0 => bed.attached("")?,
            _ => {
                let recover = format!("exec {} attach recover 0", bed.path().display());
                bed.guest.serve(&recover, SOON)?;
            }
        }
        bed.await_writes(200)?;
    }
    bed.end_load(&load)?;
    bed.end()?;
    Ok(Verdict::Passed(format!("{kills} kills, and fio read back all it wrote")))
}

/// Lets a server stay away for longer than I/O waits. I/O must fail, and the device must serve
/// again once the server is back.
fn leave(context: &Context, over: UblkTransport) -> Result<Verdict, String> {
    if let Some(skipped) = provide(&[]) {
        return Ok(skipped);
    }
    let mut bed = UblkSetup::over(context, over, &context.volume())?;
    bed.attached("--fail-after 2")?;
    bed.must("dd if=/usr/bin/fio of=/dev/ublkb0 bs=64k count=16 oflag=direct 2>/dev/null")?;
    bed.kill_server();
    let away = "dd if=/dev/ublkb0 of=/dev/null bs=4k count=1 iflag=direct";
    bed.refused(away, "Input/output error")?;
    bed.serve()?;
    bed.must(&format!(
        "for n in $(seq 200); do {away} 2>/dev/null && break; sleep 0.1; done\n\
         echo 3 >/proc/sys/vm/drop_caches; cmp -n 1048576 /usr/bin/fio /dev/ublkb0"
    ))?;
    bed.end()?;
    Ok(Verdict::Passed(
        "an error after two seconds, and the data when the server is back".to_owned(),
    ))
}
