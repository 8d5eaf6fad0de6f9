//! Tests of NBD clients in user space: libnbd, QEMU's tools, fio, and nbdkit as a relay.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::super::{Context, Verdict};
use super::exports::{BYTES, Exports, check_same, run};
use xtask::needs::{self, Need};

const COPIERS: &[Need] = &[
    Need { program: "nbdcopy", package: "libnbd-bin" },
    Need { program: "qemu-img", package: "qemu-utils" },
];

const RELAYS: &[Need] = &[
    Need { program: "nbdkit", package: "nbdkit" },
    Need { program: "fio", package: "fio" },
    Need { program: "nbdinfo", package: "libnbd-bin" },
    Need { program: "qemu-io", package: "qemu-utils" },
];

/// Copies images in and out of exports with the tools of libnbd and of QEMU.
pub(in super::super) fn copies(context: &Context) -> Result<Verdict, String> {
    if let Err(why) = needs::provide(COPIERS) {
        return Ok(Verdict::Skipped(why));
    }
    let exports = Exports::start(context)?;
    let list = run(&["nbdinfo", "--list", &exports.url("")])?;
    for line in ["export=\"first\":", "export=\"second\":", "can_multi_conn: true"] {
        if !list.contains(line) {
            return Err(format!("nbdinfo does not show {line}:\n{list}"));
        }
    }
    let size = run(&["nbdinfo", "--size", &exports.local_url()])?;
    if size.trim() != BYTES.to_string() {
        return Err(format!("the namespace has {BYTES} bytes, not {size}"));
    }
    let map = run(&["nbdinfo", "--map", &exports.local_url()])?;
    if map.split_whitespace().collect::<Vec<_>>() != ["0", &BYTES.to_string(), "0", "data"] {
        return Err(format!("the map is not one extent of data:\n{map}"));
    }
    let (first, second) = (exports.url("first"), exports.url("second"));
    let (image, copy) = (exports.image(context.seed)?, exports.path("copy"));
    run(&["nbdcopy", &image, &first])?;
    run(&["nbdcopy", &first, &copy])?;
    check_same(&image, &copy)?;
    run(&["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", &first, &second])?;
    run(&["qemu-img", "compare", "-f", "raw", "-F", "raw", &second, &image])?;
    run(&["nbdcopy", &exports.local_url(), &copy])?;
    check_same(&image, &copy)?;
    let mib = BYTES >> 20;
    Ok(Verdict::Passed(format!("{mib} MiB with nbdcopy over TCP and a socket, and with qemu-img")))
}

/// Writes patterns with QEMU, verifies with fio, and reads through nbdkit as a relay.
pub(in super::super) fn peers(context: &Context) -> Result<Verdict, String> {
    if let Err(why) = needs::provide(RELAYS) {
        return Ok(Verdict::Skipped(why));
    }
    let exports = Exports::start(context)?;
    let first = exports.url("first");
    patterns(&first)?;
    let uri = format!("--uri={first}");
    let seconds = if context.quick { "--runtime=2" } else { "--runtime=30" };
    let seed = format!("--randseed={}", context.seed);
    run(&[
        "fio",
        "--name=nbd",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bs=4k-1280k",
        "--bs_unaligned=0",
        "--blockalign=4k",
        "--iodepth=16",
        "--verify=crc32c",
        "--verify_state_save=0",
        "--size=32m",
        "--verify_fatal=1",
        "--loops=1000",
        "--time_based",
        seconds,
        &seed,
    ])?;
    relay(&exports)?;
    Ok(Verdict::Passed("patterns of qemu-io, fio with verify, and a relay by nbdkit".to_owned()))
}

/// Writes and reads patterns with QEMU: plain and forced writes, zeroes and discards, some larger
/// than one command.
fn patterns(url: &str) -> Result<(), String> {
    let said = run(&[
        "qemu-io",
        "-f",
        "raw",
        "-t",
        "none",
        "-c",
        "write -P 0xab 4k 5M",
        "-c",
        "write -f -P 0xcd 1M 4k",
        "-c",
        "read -P 0xab 4k 1020k",
        "-c",
        "read -P 0xcd 1M 4k",
        "-c",
        "write -z 2M 3M",
        "-c",
        "read -P 0 2M 3M",
        "-c",
        "discard 0 2M",
        "-c",
        "read -P 0 0 2M",
        "-c",
        "flush",
        url,
    ])?;
    match said.contains("verification failed") || said.contains("rror") {
        true => Err(format!("qemu-io:\n{said}")),
        false => Ok(()),
    }
}

/// Reads an export through nbdkit, which is a client of the server and a server to another client.
fn relay(exports: &Exports) -> Result<(), String> {
    let (socket, pid) = (exports.path("relay.sock"), exports.path("relay.pid"));
    let uri = format!("uri={}", exports.url("first"));
    let mut command = Command::new("nbdkit");
    command.args(["-f", "-U", &socket, "-P", &pid, "nbd", &uri]);
    let mut child = command.spawn().map_err(|error| format!("nbdkit: {error}"))?;
    let (through, direct) = (exports.path("through"), exports.path("direct"));
    let outcome = (|| {
        for _ in 0..100 {
            if fs::exists(&pid).unwrap_or(false) {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        run(&["nbdcopy", &format!("nbd+unix:///?socket={socket}"), &through])?;
        run(&["nbdcopy", &exports.url("first"), &direct])?;
        check_same(&through, &direct)
    })();
    // It may have ended by itself.
    let _killed = child.kill();
    let _reaped = child.wait();
    outcome
}
