//! Clients over UDP: both versions of the protocol, the bench, and what is refused.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::{Launch, PATIENCE, Server, wait_until};
use nearflash::{Error, Options, blocking::Client};

/// A server that receives packets and accepts streams at free ports of loopback.
fn launch() -> Launch {
    Launch::new(&[
        "--device",
        "mem:16MiB",
        "--listen",
        "reflex+udp://127.0.0.1:0",
        "--listen",
        "reflex://127.0.0.1:0",
        "--interface",
        "io_uring",
    ])
}

fn packets(server: &Server) -> String {
    format!("reflex+udp://{}", server.listener(0))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn packets_and_streams_lead_to_the_same_data() {
    let server = launch().start();
    let (packets, streams) = (packets(&server), format!("reflex://{}", server.listener(1)));
    let data: Vec<u8> = (0..3 << 20).map(|n: u32| (n / 7) as u8).collect();
    let first = Client::connect(&packets, Options::default()).unwrap();
    first.write(8, &data).unwrap();
    for url in [packets.clone(), format!("{packets}?v=1"), streams] {
        let client = Client::connect(&url, Options::default()).unwrap();
        assert!(client.read(8, data.len()).unwrap() == data, "{url}: other data came back");
    }
}

#[test]
fn bench_verifies_over_packets() {
    let server = launch().start();
    let url = packets(&server);
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
    command.args(["bench", &url, "--queue-depth", "8", "--connections", "200"]);
    command.args(["--seconds", "0.3", "--warmup", "0", "--read-percent", "50", "--verify"]);
    let ran = command.args(["--span", "1MiB"]).stdin(Stdio::null()).output().expect("it starts");
    assert!(ran.status.success(), "{}", said(&ran));
}

#[test]
fn a_server_that_ended_is_noticed() {
    let server = launch().start();
    let url = packets(&server);
    drop(server);
    let options = Options { outage_max: Duration::from_millis(100), ..Options::default() };
    // The kernel takes a killed server's ring apart a moment later.
    wait_until("nobody is there", PATIENCE, || {
        let error = Client::connect(&url, options.clone()).unwrap_err();
        matches!(&error, Error::Connect(why) if why.contains("refused"))
    });
}

#[test]
fn what_packets_cannot_do_is_refused_with_the_reason() {
    let start = |further: &[&str]| {
        let first = ["--device", "null:1MiB", "--listen", "reflex+udp://127.0.0.1:0"];
        Launch::new(&[&first[..], further].concat()).fail().1
    };
    let error = start(&["--workers", "2"]);
    assert!(error.contains("2 workers; expected one"), "{error}");
    let error = start(&["--listen", "reflex+udp://127.0.0.1:0"]);
    assert!(error.contains("another listener receives packets"), "{error}");
    let error = start(&["--interface", "epoll"]);
    assert!(error.contains("expected io_uring"), "{error}");
}
