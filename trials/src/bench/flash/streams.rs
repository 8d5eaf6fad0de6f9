//! The rows of sequential requests of 1 MiB to a volume of flash translation over a file, beside
//! those to such a file itself.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::load::on_core;
use super::setup::Setup;
use crate::bench::packets::judge::{Bound, ComparedSide, Comparison, ratio};
use crate::bench::process::Server;

/// Bytes of the file below each side, and those that requests go to.
const MEMBER: &str = "1GiB";
const SPAN: u64 = 768 << 20;

/// A comparison: the name of its load, the share of reads in per cent, and its target.
const LOADS: [(&str, &str, f64); 2] = [("write", "0", 0.95), ("read", "100", 0.97)];

/// Measures writes and then reads on a disk, and again in memory, where no disk hides the cost.
pub(super) fn measure(setup: &mut Setup) -> Result<Vec<Comparison>, String> {
    let mut measured = Vec::new();
    for place in ["disk", "memory"] {
        let folder = if place == "disk" { &setup.disk } else { &setup.memory };
        let [bare, below] = ["bare", "below"].map(|name| folder.path(name).display().to_string());
        let volume = setup.volume(&below, &format!("?size={MEMBER}"))?;
        let servers = [setup.serve(&format!("file:{bare}?size={MEMBER}"))?, setup.serve(&volume)?];
        for server in &servers {
            // From here on nothing is written for the first time.
            load(setup, server, "0", SPAN as f64 / 1e9)?;
        }
        for (name, reads, target) in LOADS {
            let mut sides = ["file:", "ftl:file:"].map(|name| ComparedSide::new(name.to_owned()));
            for _ in 0..setup.rounds {
                for (side, server) in sides.iter_mut().zip(&servers) {
                    side.add(load(setup, server, reads, setup.seconds));
                }
            }
            let what = format!("{name}s of 1 MiB on {place}, ftl:file: beside file:");
            let judged = vec![ratio(what, &sides[1], &sides[0], Bound::AtLeast(target))];
            let about = format!("{name}s of 1 MiB in order, 4 in flight, on {place}");
            measured.push(Comparison {
                name: "stream",
                about,
                unit: "MB/s",
                sides: sides.into(),
                judged,
            });
        }
        drop(servers);
        for file in [bare, below] {
            std::fs::remove_file(&file).map_err(|error| format!("{file}: {error}"))?;
        }
    }
    Ok(measured)
}

/// Runs a load against a server. Returns its rate in MB/s, and the time that others took.
fn load(setup: &Setup, server: &Server, reads: &str, seconds: f64) -> Result<(f64, f64), String> {
    let mut command: Command = setup.nearflash();
    command.args(["bench", &format!("{}?v=2", server.address), "--json", "--spin"]);
    command.args(["--pattern", "sequential", "--read-percent", reads]);
    command.args(["--block-size", "1048576", "--connections", "1", "--queue-depth", "4"]);
    command.args(["--span", &SPAN.to_string(), "--warmup", "0.2"]);
    command.args(["--seconds", &seconds.to_string()]).stdin(Stdio::null());
    on_core(&[server.id()], move || {
        let ran = command.output().map_err(|error| format!("nearflash bench: {error}"))?;
        let said = String::from_utf8_lossy(&ran.stdout);
        let result: Option<Value> = serde_json::from_str(said.trim()).ok();
        match result.filter(|result| result["errors"].as_u64() == Some(0)) {
            Some(result) => result["iops"]
                .as_f64()
                .map(|rate| rate * 1.048_576)
                .ok_or_else(|| format!("no rate in {result}")),
            None => Err(format!("{said}{}", String::from_utf8_lossy(&ran.stderr))),
        }
    })
}
