//! Tests of what watches a running server: metrics at a port of their own, traces of requests, and
//! `top`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};

use crate::support::{Launch, PATIENCE, Server, free_port, wait_until};
use serde_json::Value;

/// A server under load, with an admin API and a port for metrics.
struct WatchedServer {
    folder: tempfile::TempDir,
    metrics: SocketAddr,
    server: Server,
    loads: Vec<Child>,
}

impl Drop for WatchedServer {
    fn drop(&mut self) {
        for load in &mut self.loads {
            let _ = load.kill(); // it may have ended
            let _ = load.wait();
        }
    }
}

fn program() -> Process {
    let mut program = Process::new(env!("CARGO_BIN_EXE_nearflash"));
    program.stdin(Stdio::null()).env_remove("NEARFLASH_ADMIN");
    program
}

impl WatchedServer {
    fn start() -> WatchedServer {
        let launch = Launch::device("mem:16MiB");
        WatchedServer::under(launch, |server| vec![format!("reflex://{}", server.address())])
    }

    /// Starts a server, and a `nearflash bench` for each of the lines of options that `loads`
    /// returns.
    fn under(launch: Launch, loads: impl Fn(&Server) -> Vec<String>) -> WatchedServer {
        let folder = tempfile::tempdir().unwrap();
        let (socket, metrics) = (folder.path().join("admin.sock"), free_port());
        let words = ["--workers", "1", "--admin", socket.to_str().unwrap(), "--metrics"];
        let launch = words.into_iter().fold(launch, Launch::with);
        let server = launch.with(&metrics.to_string()).start();
        let start = |words: String| {
            let mut bench = program();
            bench.arg("bench").args(words.split_whitespace()).args(["--rate", "2000"]);
            bench.args(["--read-percent", "50", "--warmup", "0.1", "--seconds", "60"]);
            bench.stdout(Stdio::null()).spawn().expect("the program starts")
        };
        let loads = loads(&server).into_iter().map(start).collect();
        WatchedServer { folder, metrics, server, loads }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    /// Runs a command against the server's admin socket, which must succeed, and returns its
    /// output.
    fn run(&self, words: &[&str]) -> String {
        let mut command = program();
        let output = command.args(words).arg("--admin").arg(self.socket()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Sends a request to the server's port for metrics, and returns the whole answer.
    fn ask(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        let host = self.metrics;
        write!(stream, "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Returns the present value of a series; `None` if the metrics lack it.
    fn metric(&self, series: &str) -> Option<f64> {
        value(&self.ask("GET", "/metrics"), series)
    }
}

/// Returns the value of a series in the text of the metrics; `None` if the text lacks it.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series))?;
    line.trim().parse().ok()
}

#[test]
fn a_port_of_loopback_has_metrics_and_nothing_else() {
    let watched = WatchedServer::start();
    let reads = "nearflash_tenant_requests_total{tenant=\"default\",op=\"read\"}";
    wait_until("reads that are counted", PATIENCE, || watched.metric(reads).unwrap_or(0.0) > 100.0);
    let connections = "nearflash_worker_connections{worker=\"0\",protocol=\"reflex\"}";
    wait_until("a connection that is counted", PATIENCE, || {
        watched.metric(connections).is_some_and(|count| count > 0.0)
    });
    let text = watched.ask("GET", "/metrics");
    assert!(text.contains("content-type: application/openmetrics-text"), "{text}");
    assert!(text.contains("# EOF\n"), "{text}");
    assert!(watched.ask("GET", "/metrics?tenants=0").contains("tenant=\"\\\"rest\\\"\""));
    for (method, path, status) in
        [("GET", "/v1/tenants", 404), ("POST", "/metrics", 405), ("GET", "/metrics?tenants=x", 400)]
    {
        let answer = watched.ask(method, path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{method} {path}: {answer}");
    }
    let (code, said) = Launch::device("null:1MiB").with("--metrics").with("0.0.0.0:0").fail();
    assert!(code != 0 && said.contains("not on loopback"), "{code}: {said}");
}

#[test]
fn the_time_that_workers_wait_for_processors_is_told() {
    if !Path::new("/proc/thread-self/schedstat").exists() {
        return println!("SKIPPED: this kernel does not count for how long threads wait");
    }
    let watched = WatchedServer::start();
    let text = watched.ask("GET", "/metrics");
    assert!(text.contains("# TYPE nearflash_worker_waited_seconds counter"), "{text}");
    let list = watched.run(&["worker", "list"]);
    assert!(list.contains("WAITED"), "{list}");
    let top = watched.run(&["top", "--once"]);
    assert!(top.contains("WAITED"), "{top}");
}

#[test]
fn some_requests_are_traced_on_their_whole_way() {
    let watched = WatchedServer::start();
    let file = watched.folder.path().join("trace.json");
    let path = file.to_str().unwrap();
    let mut requests = Vec::new();
    wait_until("requests that are traced", PATIENCE, || {
        let words = ["trace", "--seconds", "0.5", "--sample", "1/20", "--output", path];
        let said = watched.run(&words);
        let trace: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap().clone();
        requests = events.into_iter().filter(|event| event["cat"] == "request").collect();
        let begun = requests.iter().filter(|event| event["args"]["tenant"] == "default").count();
        assert!(said.starts_with(&format!("{begun} requests are in ")), "{said}");
        begun >= 10
    });
    // One that was answered has a bar, and nine below it, one behind the other.
    let of = |id: &Value| -> Vec<&Value> {
        requests.iter().filter(|event| event["id"] == *id).collect()
    };
    let whole = requests.iter().map(|event| of(&event["id"])).find(|events| events.len() == 20);
    let whole = whole.expect("one that was traced to its end");
    let stages = whole[1..19].chunks(2);
    let mut at = whole[0]["ts"].as_f64().unwrap();
    for stage in stages {
        assert_eq!((&stage[0]["ph"], &stage[1]["ph"]), (&"b".into(), &"e".into()));
        assert_eq!(stage[0]["name"], stage[1]["name"]);
        assert_eq!(stage[0]["ts"].as_f64().unwrap(), at, "{whole:?}");
        at = stage[1]["ts"].as_f64().unwrap();
    }
    assert_eq!(whole[19]["ts"].as_f64().unwrap(), at);
    assert_eq!(whole[0]["args"]["bytes"], 4096);
    // Nobody is traced any more, and the server goes on.
    let table = watched.run(&["top", "--once"]);
    assert!(
        table.contains("default") && table.contains("16.0 MiB") || table.contains("WORKER"),
        "{table}"
    );
    assert!(!watched.server.log().contains("panicked"));
}

#[test]
fn where_the_time_goes_is_told_of_everybody() {
    // Each request is 3 ms at the device.
    let config = "[[device]]\nname = \"slow\"\nspec = \"mem:16MiB?delay=3ms\"\n\
         [[namespace]]\ndevice = \"slow\"\nsize = \"8MiB\"\n\
         [[namespace]]\ndevice = \"slow\"\noffset = \"8MiB\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n[[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.io.nearflash:tests\"\n";
    let watched = WatchedServer::under(Launch::config(config), |server| {
        let nvme = format!("nvme-tcp://{}/nqn.2026-11.io.nearflash:tests", server.listener(1));
        let reflex = format!("reflex://{}", server.listener(0));
        vec![format!("{nvme}?nsid=1"), format!("{reflex} --namespace 2")]
    });
    let everybody = [
        ("tenant", "default"),
        ("class", "best-effort"),
        ("namespace", "1"),
        ("namespace", "2"),
        ("device", "slow"),
        ("worker", "0"),
        ("protocol", "reflex"),
        ("protocol", "nvme-tcp"),
    ];
    let sampled = |text: &str, (of, who): (&str, &str), op: &str, stage: &str| {
        let labels = format!("{of}=\"{who}\",op=\"{op}\",stage=\"{stage}\"");
        value(text, &format!("nearflash_{of}_stage_seconds_count{{{labels}}}")).unwrap_or(0.0)
    };
    let mut text = String::new();
    wait_until("samples of everybody", PATIENCE, || {
        text = watched.ask("GET", "/metrics");
        everybody.into_iter().all(|of| {
            let is_known = |op| sampled(&text, of, op, "device") >= 20.0;
            is_known("read") && is_known("other") && sampled(&text, of, "read", "reply") >= 1.0
        })
    });
    for (of, who) in everybody {
        for op in ["read", "other"] {
            let within = |stage: &str, edge: &str| {
                let labels = format!("{of}=\"{who}\",op=\"{op}\",stage=\"{stage}\"");
                let family = format!("nearflash_{of}_stage_seconds_bucket");
                value(&text, &format!("{family}{{le=\"{edge}\",{labels}}}"))
                    .unwrap_or_else(|| panic!("no {family} of {labels}: {text}"))
            };
            let all = within("device", "+Inf");
            assert_eq!(within("device", "0.002097152"), 0.0, "{of} {who} {op}: all were longer");
            // Nobody is limited, so most are submitted in the turn in which they came.
            // (Some may be counted while the counters are read.)
            let queued = within("scheduler", "+Inf");
            assert!((queued - all).abs() < 4.0, "{of} {who} {op}: {queued} and {all}");
            assert!(within("scheduler", "0.002097152") > all / 2.0, "{of} {who} {op}");
        }
        assert_eq!(sampled(&text, (of, who), "other", "reply"), 0.0, "{of} {who}: of reads alone");
        let carried = |what: &str, op: &str| {
            let labels = format!("{{{of}=\"{who}\",op=\"{op}\"}}");
            value(&text, &format!("nearflash_{of}_{what}_total{labels}")).unwrap_or(0.0)
        };
        for op in ["read", "write"] {
            let requests = carried("requests", op);
            assert!(requests > 0.0, "{of} {who} {op}");
            let mean = carried("bytes", op) / requests;
            assert!((3_000.0..5_500.0).contains(&mean), "{of} {who} {op}: {mean} bytes a request");
        }
    }
    // Each protocol has a namespace to itself, of which it is known exactly what was done.
    let reads = |of: &str, who: &str| {
        let series = format!("nearflash_{of}_requests_total{{{of}=\"{who}\",op=\"read\"}}");
        value(&text, &series).unwrap()
    };
    for (protocol, namespace) in [("nvme-tcp", "1"), ("reflex", "2")] {
        let ratio = reads("protocol", protocol) / reads("namespace", namespace);
        assert!((0.5..2.0).contains(&ratio), "{protocol}: estimated {ratio} times too many");
    }
    assert_eq!(reads("worker", "0"), reads("namespace", "1") + reads("namespace", "2"));
    assert_eq!(reads("worker", "0"), reads("device", "slow"));
    // A table shows the samples of its own second, and a starved machine may have none in one.
    let mut table = String::new();
    wait_until("a table with latencies", PATIENCE, || {
        table = watched.run(&["top", "--once"]);
        table.contains("≤ ")
    });
    assert!(table.contains("AT DEVICE"), "{table}");
}

#[test]
fn the_price_of_collection_is_watched() {
    let spec = "ftl:mem:32MiB?ftl.spare=20%";
    let device = format!("[[device]]\nname = \"flash\"\nspec = \"{spec}\"\nmodel = \"cloud\"\n");
    let watched = WatchedServer::under(Launch::config(&device), |server| {
        vec![format!("reflex://{} --block-size 64KiB", server.address())]
    });
    let of = |series: &str| watched.metric(series).unwrap_or(0.0);
    let [charged, promised] = ["charged", "promised"]
        .map(|what| format!("nearflash_device_write_tax{{device=\"flash\",what=\"{what}\"}}"));
    wait_until("a tax on writes", PATIENCE, || of(&charged) > 0.0);
    assert!(of(&promised) > 10.0 && of(&charged) <= of(&promised));
    let taxed = "nearflash_device_tokens_total{device=\"flash\",flow=\"taxed\"}";
    wait_until("tokens of the tax", PATIENCE, || of(taxed) > 0.0);
    assert!(of("nearflash_device_chore_pages_total{device=\"flash\",op=\"written\"}") > 0.0);
    assert!(of("nearflash_device_free_ratio{device=\"flash\"}") > 0.0);
}
