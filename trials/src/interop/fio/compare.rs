//! A comparison of the engine with `nearflash bench`: both load one server with a null device, in
//! turns, on the same two processors.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::bench::process::{Server, cpu_nanos};
use xtask::shell;

/// The seconds of one measurement, as fio and the bench take them.
const SECONDS: &str = "3";

/// The time limit of one measurement.
const LIMIT: Duration = Duration::from_secs(60);

/// The numbers of the processors of the server and of the load, as `taskset` takes them.
const SERVER: &str = "0";
const LOAD: &str = "1";

/// The figures of one measurement, or the medians of several: requests a second, mean latency, and
/// the server's processor time for a request.
#[derive(Clone, Copy)]
struct Figure {
    rate: f64,
    mean_us: f64,
    server_nanos: f64,
}

/// Measures both sides in `rounds` rounds, and prints the medians and their ratios.
pub(super) fn compare(nearflash: &Path, engine: &Path, rounds: usize) -> Result<(), String> {
    let mut serve = pinned(SERVER);
    serve.arg(nearflash).args(["serve", "--admin", "none", "--device", "null:1GiB"]);
    let server =
        Server::start_with(serve.args(["--listen", "reflex://127.0.0.1:0"]), Stdio::null())?;
    let sides = [("4 x 32", "4", "32"), ("1 x 1", "1", "1")];
    let mut found: Vec<[Vec<Figure>; 2]> = vec![Default::default(); sides.len()];
    for _ in 0..rounds {
        for ((_, connections, depth), found) in sides.iter().zip(&mut found) {
            found[0].push(bench(nearflash, &server, connections, depth)?);
            found[1].push(fio(engine, &server, connections, depth)?);
        }
    }
    println!("4 KiB reads from null:, medians of {rounds} rounds of {SECONDS} s");
    println!("{:<8}{:<8}{:>12}{:>12}{:>22}", "", "", "reads/s", "mean us", "server ns a request");
    for ((name, ..), [bench, fio]) in sides.iter().zip(&found) {
        let (bench, fio) = (medians(bench), medians(fio));
        for (side, figure) in [("bench", bench), ("fio", fio)] {
            let Figure { rate, mean_us, server_nanos } = figure;
            println!("{name:<8}{side:<8}{rate:>12.0}{mean_us:>12.2}{server_nanos:>22.0}");
        }
        let ratio = |of: fn(Figure) -> f64| of(fio) / of(bench);
        let (rate, nanos) = (ratio(|it| it.rate), ratio(|it| it.server_nanos));
        println!("{name:<8}{:<8}{rate:>12.3}{:>12}{nanos:>22.3}", "ratio", "");
    }
    Ok(())
}

fn pinned(processor: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", processor]);
    command
}

fn medians(all: &[Figure]) -> Figure {
    let median = |of: fn(&Figure) -> f64| {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Figure {
        rate: median(|it| it.rate),
        mean_us: median(|it| it.mean_us),
        server_nanos: median(|it| it.server_nanos),
    }
}

fn bench(nearflash: &Path, server: &Server, links: &str, depth: &str) -> Result<Figure, String> {
    let mut command = pinned(LOAD);
    command.arg(nearflash).args(["bench", address(server), "--json", "--warmup", "0"]);
    command.args(["--seconds", SECONDS, "--connections", links, "--queue-depth", depth, "--spin"]);
    let (said, nanos) = measured(&mut command, server)?;
    let read = &said["read"];
    figure(&read["iops"], &read["latency_us"]["mean"], 1.0, &read["count"], nanos)
}

fn fio(engine: &Path, server: &Server, links: &str, depth: &str) -> Result<Figure, String> {
    let mut command = pinned(LOAD);
    let (links, depth) = (links.parse().unwrap_or(1), depth.parse().unwrap_or(1));
    let all: u32 = links * depth;
    // As `bench` does, fio refills before it has run dry. Its default is to fill up at once.
    let half = all.div_ceil(2);
    command.args(["fio", "--name=fio", "--rw=randread", "--bs=4k", "--norandommap"]);
    command.arg(format!("--ioengine=external:{}", engine.display()));
    command.arg(format!("--url={}", address(server))).arg(format!("--connections={links}"));
    command.arg(format!("--iodepth={all}")).arg(format!("--iodepth_batch_submit={half}"));
    command.arg(format!("--iodepth_batch_complete_max={all}")).arg("--spin=1000000");
    command.arg(format!("--iodepth_low={}", all / 2));
    command.args(["--time_based", "--output-format=json"]).arg(format!("--runtime={SECONDS}"));
    let (said, nanos) = measured(&mut command, server)?;
    let read = &said["jobs"][0]["read"];
    figure(&read["iops"], &read["lat_ns"]["mean"], 1e-3, &read["total_ios"], nanos)
}

fn address(server: &Server) -> &str {
    server.address.split(' ').next().unwrap_or_default()
}

/// Runs a load. Returns the JSON that it printed, and the server's processor time meanwhile in
/// nanoseconds.
fn measured(command: &mut Command, server: &Server) -> Result<(Value, f64), String> {
    let time = || cpu_nanos(server.id()).ok_or("the server is gone");
    let before = time()?;
    let ran = shell::capture(command, LIMIT)?;
    let nanos = (time()? - before) as f64;
    let object = ran.output.find('{').map(|start| &ran.output[start..]);
    let said = object.and_then(|text| {
        serde_json::Deserializer::from_str(text).into_iter::<Value>().next()?.ok()
    });
    said.filter(|_| ran.ok).map(|said| (said, nanos)).ok_or(ran.output)
}

fn figure(
    rate: &Value,
    mean: &Value,
    scale: f64,
    count: &Value,
    nanos: f64,
) -> Result<Figure, String> {
    match (rate.as_f64(), mean.as_f64(), count.as_f64()) {
        (Some(rate), Some(mean), Some(count)) if count > 0.0 => {
            Ok(Figure { rate, mean_us: mean * scale, server_nanos: nanos / count })
        }
        _ => Err("a load has printed no figures".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_each_figure() {
        let of = |rate| Figure { rate, mean_us: 10.0 - rate, server_nanos: 1.0 };
        let median = medians(&[of(3.0), of(1.0), of(2.0)]);
        assert_eq!((median.rate, median.mean_us), (2.0, 8.0));
        let read = serde_json::json!({"a": 5.0, "b": 2000.0, "c": 10});
        let found = figure(&read["a"], &read["b"], 1e-3, &read["c"], 50.0).unwrap();
        assert_eq!((found.mean_us, found.server_nanos), (2.0, 5.0));
        assert!(figure(&read["a"], &read["b"], 1.0, &read["none"], 50.0).is_err());
    }
}
