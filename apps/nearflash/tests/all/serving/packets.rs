//! Clients over UDP: both versions of the protocol, the bench, and what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::{Launch, PATIENCE, Place, Server, wait_until};
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

/// Where each client's connections are: workers by the client's address.
fn workers_of(place: &Place) -> BTreeMap<String, BTreeSet<usize>> {
    let mut found = BTreeMap::<String, BTreeSet<usize>>::new();
    for one in place.client().connections().unwrap().connections {
        assert_eq!(one.transport, "udp");
        found.entry(one.peer).or_default().insert(one.worker);
    }
    found
}

/// The value of the series that begins with these words.
fn metric(place: &Place, words: &str) -> f64 {
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(words));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {words:?}: {text}"))
}

#[test]
fn each_association_stays_with_one_of_several_workers() {
    const CLIENTS: usize = 24;
    let place = Place::in_memory();
    let server = place.crewed(launch()).start();
    let url = packets(&server);
    let options = Options { connections: 3, ..Options::default() };
    let connect = |_| Client::connect(&url, options.clone()).unwrap();
    let clients: Vec<Client> = (0..CLIENTS).map(connect).collect();
    let write = |round: u64| {
        for (n, client) in clients.iter().enumerate() {
            let data = vec![n as u8 + round as u8; 256 << 10];
            client.write(512 * n as u64, &data).unwrap();
            assert!(client.read(512 * n as u64, data.len()).unwrap() == data);
        }
    };
    write(1);
    let mut before = BTreeMap::new();
    wait_until("all connections", PATIENCE, || {
        before = workers_of(&place);
        before.len() == CLIENTS
    });
    assert!(before.values().all(|workers| workers.len() == 1), "{before:?}");
    // All of them came to one worker by chance once in eight million runs.
    let used: BTreeSet<usize> = before.values().flatten().copied().collect();
    assert_eq!(used.len(), 2, "{before:?}");
    write(2);
    assert_eq!(workers_of(&place), before);
    wait_until("the associations in the metrics", PATIENCE, || {
        metric(&place, "nearflash_packets_associations ") == CLIENTS as f64
    });
    let [sent, received] =
        ["sent", "received"].map(|way| metric(&place, &format!("nearflash_packets_{way}_total ")));
    assert!(sent > 100.0 && received > 100.0, "{sent} {received}");
    // Each client tells the worker that has its association.
    drop(clients);
    wait_until("the end of all connections", PATIENCE, || workers_of(&place).is_empty());
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
    let error = start(&["--workers", "1..2"]);
    assert!(error.contains("1..2 workers; expected a fixed number"), "{error}");
    let error = start(&["--listen", "reflex+udp://127.0.0.1:0"]);
    assert!(error.contains("another listener receives packets"), "{error}");
    let error = start(&["--interface", "epoll"]);
    assert!(error.contains("expected io_uring"), "{error}");
}
