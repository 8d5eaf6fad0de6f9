//! A test of other people's NBD servers, nbdkit and QEMU's, which `nearflash bench` loads and
//! verifies.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::super::{Context, Verdict};
use super::exports::run;
use xtask::needs::{self, Need};

const NEEDS: &[Need] = &[
    Need { program: "nbdkit", package: "nbdkit" },
    Need { program: "qemu-nbd", package: "qemu-utils" },
];

/// The size in bytes of each server's export.
const BYTES: u64 = 64 << 20;

/// Loads the servers one after the other, and checks that the load found no error.
pub(in super::super) fn bench(context: &Context) -> Result<Verdict, String> {
    if let Err(why) = needs::provide(NEEDS) {
        return Ok(Verdict::Skipped(why));
    }
    let place = |name: &str| context.folder.join(name).display().to_string();
    let (socket, image) = (place("other.sock"), place("image"));
    let file = fs::File::create(&image);
    file.and_then(|file| file.set_len(BYTES)).map_err(|error| format!("{image}: {error}"))?;
    let size = BYTES.to_string();
    let servers: [&[&str]; 3] = [
        &["nbdkit", "-f", "-U", &socket, "memory", &size],
        &["nbdkit", "-f", "--no-sr", "-U", &socket, "memory", &size],
        &["qemu-nbd", "-k", &socket, "-f", "raw", "-t", "-e", "8", "--discard=unmap", &image],
    ];
    for words in servers {
        let mut command = Command::new(words[0]);
        let mut server =
            command.args(&words[1..]).spawn().map_err(|error| format!("{}: {error}", words[0]))?;
        let outcome = load(context, &socket);
        // It may have ended by itself.
        let _killed = server.kill();
        let _reaped = server.wait();
        let _removed = fs::remove_file(&socket);
        outcome.map_err(|error| format!("{}: {error}", words.join(" ")))?;
    }
    Ok(Verdict::Passed("nbdkit with structured and simple replies, and qemu-nbd".to_owned()))
}

fn load(context: &Context, socket: &str) -> Result<(), String> {
    for _ in 0..200 {
        if Path::new(socket).exists() {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let program = context.nearflash.display().to_string();
    let url = format!("nbd+unix:{socket}");
    for size in ["4KiB", "256KiB"] {
        run(&[
            &program,
            "bench",
            &url,
            "--verify",
            "--read-percent",
            "50",
            "--connections",
            "2",
            "--queue-depth",
            "8",
            "--block-size",
            size,
            "--warmup",
            "0",
            "--seconds",
            "2",
        ])?;
    }
    Ok(())
}
