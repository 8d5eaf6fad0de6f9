//! Tests of `nearflash bench`: its output for people and for programs.

use std::process::{Command, Output, Stdio};

use crate::support::{
    Launch, PATIENCE, Server, await_load, free_port, long_enough, verifying, wait_until,
};
use serde_json::Value;

fn bench(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.arg("bench").args(words.split_whitespace()).stdin(Stdio::null());
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it is text")
}

/// Runs a `bench` that must succeed, and returns its output in JSON. It takes half a second, or as
/// long as it takes to have requests of each kind.
fn json(words: &str) -> Value {
    let is_mixed = words.contains("--read-percent 50");
    long_enough(|seconds| {
        let output = bench(&format!("{words} --json --warmup 0.1 --seconds {seconds}"));
        let said = text(&output.stdout);
        assert!(output.status.success(), "{words}: {said}{}", text(&output.stderr));
        assert_eq!(said.lines().count(), 1, "exactly one object: {said}");
        let result: Value = serde_json::from_str(&said).expect("it is JSON");
        let has = |side: &str| result[side]["count"].as_u64() > Some(0);
        let is_whole = has("read") && (!is_mixed || has("write"));
        (result, is_whole)
    })
}

fn url(server: &Server) -> String {
    format!("reflex://{}", server.address())
}

#[test]
fn local_devices_and_servers_are_measured_alike() {
    let server = Launch::device("mem:16MiB").start();
    for target in ["mem:16MiB".to_owned(), url(&server), format!("{}?v=1", url(&server))] {
        let result = json(&format!("{target} --read-percent 50 --queue-depth 8 --connections 2"));
        assert_eq!(result["errors"], 0);
        for side in ["read", "write"] {
            let side = &result[side];
            assert!(side["count"].as_u64().unwrap() > 0, "{target}: {result}");
            let iops = side["iops"].as_f64().unwrap();
            assert!((side["bytes_per_s"].as_f64().unwrap() / iops - 4096.0).abs() < 0.01);
            let latency = |name: &str| side["latency_us"][name].as_f64().unwrap();
            let order = ["min", "p50", "p95", "p99", "p999", "max"].map(latency);
            assert!(order.is_sorted() && order[0] > 0.0, "{target}: {result}");
        }
    }
}

/// Checks that a command ends quietly if the reader of its output closes it early, as in `nearflash
/// bench … | head -1`.
#[test]
fn a_command_whose_output_nobody_reads_ends_quietly() {
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&config, "[[device]]\nname = \"d\"\nspec = \"mem:1MiB\"\n").unwrap();
    let config = config.path().to_str().unwrap();
    let commands: [&[&str]; 6] = [
        &["bench", "mem:1MiB", "--warmup", "0", "--seconds", "0.1"],
        &["bench", "mem:1MiB", "--warmup", "0", "--seconds", "0.1", "--json"],
        &["config", "schema"],
        &["config", "check", config],
        &["config", "show", config],
        &["completions", "bash"],
    ];
    for words in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
        let output = command.args(words).stdin(Stdio::null()).stdout(writer).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.as_str()), (Some(128 + 13), ""), "{words:?}");
        // Nor need anybody read what goes wrong.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
        let both = command.args(words).stdin(Stdio::null()).stdout(writer.try_clone().unwrap());
        assert_eq!(both.stderr(writer).status().unwrap().code(), Some(128 + 13), "{words:?}");
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    let output = command.args(["config", "schema"]).stdout(full).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.starts_with("nearflash: cannot write to standard output: "), "{said}");
}

#[test]
fn verified_traffic_of_every_shape_finds_nothing_wrong() {
    let server = Launch::device("mem:16MiB").start();
    for shape in [
        "--block-size 512 --queue-depth 16",
        "--block-size 1536 --pattern zipf:0.99 --queue-depth 4",
        "--block-size 64KiB --queue-depth 4 --connections 3 --checksums",
        "--block-size 1MiB --queue-depth 2",
        "--threads 2 --connections 4 --pattern sequential --fua",
        "--rate 2000 --arrival constant --queue-depth 8",
    ] {
        let result = json(&format!("{} --verify --read-percent 50 {shape}", url(&server)));
        assert_eq!(result["verify_failures"], 0, "{shape}: {result}");
        assert!(result["read"]["count"].as_u64().unwrap() > 0, "{shape}: {result}");
        assert!(result["write"]["count"].as_u64().unwrap() > 0, "{shape}: {result}");
    }
}

#[test]
fn a_device_that_keeps_nothing_fails_verification() {
    let server = Launch::device("null:1MiB").start();
    let words = "--verify --read-percent 50 --warmup 0 --seconds 2";
    let output = bench(&format!("{} {words}", url(&server)));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("sectors failed verification"), "{said}");
    assert!(said.contains("zeroes, although write"), "{said}");
}

#[test]
fn an_open_loop_sends_at_its_rate() {
    let server = Launch::device("null:1GiB").start();
    for arrival in ["poisson", "constant"] {
        let words = format!("{} --rate 4000 --arrival {arrival} --queue-depth 64", url(&server));
        // A machine that is busy with other things may not keep up for a while.
        wait_until(&format!("4000 {arrival} requests a second"), PATIENCE, || {
            (3_200.0..4_800.0).contains(&json(&words)["iops"].as_f64().unwrap())
        });
    }
}

#[test]
fn the_probe_is_measured_beside_the_load() {
    let server = Launch::device("null:1GiB").start();
    let result = json(&format!("{} --queue-depth 16 --probe", url(&server)));
    assert!(result["probe"]["count"].as_u64().unwrap() > 0, "{result}");
}

#[test]
fn errors_of_the_device_are_counted() {
    let server = Launch::device("mem:1MiB?fail_reads=0.5").start();
    let output = bench(&format!("{} --json --warmup 0 --seconds 2", url(&server)));
    assert_eq!(output.status.code(), Some(1));
    let result: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert!(result["errors"].as_u64().unwrap() > 0 && result["read"]["count"].as_u64() > Some(0));
}

#[test]
fn a_server_that_is_not_there_is_told_with_a_way_out() {
    let output = bench("reflex://127.0.0.1:1");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("start it with `nearflash serve`"), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_command_line_without_sense_is_refused() {
    for words in [
        "",
        "null:1GiB --no-such-flag",
        "null:1GiB --read-percent 101",
        "null:1GiB --block-size 1000",
        "null:1GiB --pattern zigzag",
        "null:1GiB --span 2GiB",
        "null:1TiB --verify",
        "http://localhost",
        "null:1GiB --seconds 0",
    ] {
        let output = bench(words);
        assert_eq!(output.status.code(), Some(2), "{words}: {}", text(&output.stderr));
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{words}");
    }
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let spec = format!("file:{}?size=16MiB", directory.path().join("volume").display());
    let listen = format!("reflex://{}", free_port());
    let launch = || Launch::new(&["--device", &spec, "--listen", &listen]);
    let socket = directory.path().join("admin.sock");
    let launch = || launch().with("--admin").with(socket.to_str().unwrap());
    let mut server = launch().start();
    let load = verifying(&listen, "--queue-depth 8 --connections 2");
    await_load(&socket);
    server.kill();
    let _next = launch().start();
    await_load(&socket);
    let output = load.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "acknowledged writes survive, the rest is sent again: {said}");
    assert!(said.contains("dialling again"), "{said}");
    let result: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!((&result["errors"], &result["verify_failures"]), (&0.into(), &0.into()));
}

#[test]
fn the_log_of_latencies_can_be_read() {
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    let file = tempfile::NamedTempFile::new().unwrap();
    let result = json(&format!("mem:16MiB --hdr {}", file.path().display()));
    let text = std::fs::read(file.path()).unwrap();
    let mut count = 0;
    for entry in IntervalLogIterator::new(&text) {
        if let LogEntry::Interval(line) = entry.expect("the log is sound") {
            use base64::Engine;
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(line.encoded_histogram())
                .expect("it is base64");
            let histogram: hdrhistogram::Histogram<u64> =
                Deserializer::new().deserialize(&mut &bytes[..]).expect("it is a histogram");
            count += histogram.len();
        }
    }
    assert!(count >= result["read"]["count"].as_u64().unwrap());
}
