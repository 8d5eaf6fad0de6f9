//! Tests of clients over UDP: both versions of the protocol, the bench, and requests that are
//! refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::{Launch, PATIENCE, Server, ServerFolder, wait_until};
use nearflash::{Error, Options, blocking::Client};

/// Returns a server with a listener for packets over UDP and one for TCP at free local ports. It is
/// not started.
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
fn bench_verifies_over_a_link_with_a_rate_under_each_rule_of_batches() {
    for rule in ["never", "8", "tyche", "turn"] {
        let link = format!("rate=1Gbit,frame=4500,batch={rule}");
        let server = launch().after(&[], &format!("export {LINK}={link}")).start();
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
        command.args(["bench", &packets(&server), "--queue-depth", "4", "--connections", "5"]);
        command.args(["--seconds", "0.3", "--warmup", "0", "--read-percent", "50", "--verify"]);
        command.args(["--span", "1MiB"]).env(LINK, link).stdin(Stdio::null());
        let ran = command.output().expect("it starts");
        assert!(ran.status.success(), "{rule}: {}", said(&ran));
        server.await_log("slowed down for a measurement");
    }
    let (code, said) = launch().after(&[], &format!("export {LINK}=rate=fast")).fail();
    assert!(code != 0 && said.contains("expected rate=NGbit"), "{said}");
}

/// The environment variable that gives packets the rate of a link.
const LINK: &str = "NEARFLASH_PACKET_LINK";

#[test]
fn sealed_packets_are_for_those_with_the_key() {
    let place = ServerFolder::in_memory();
    let (own, other) = (place.key_file("own.key", "1f"), place.key_file("other.key", "2e"));
    let listen = format!("reflex+udp://127.0.0.1:0?key={own}");
    let words = ["--device", "mem:16MiB", "--listen", &listen, "--interface", "io_uring"];
    let server = Launch::new(&words).start();
    let (plain, sealed) = (packets(&server), format!("{}?key={own}", packets(&server)));
    let bench = |url: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearflash"));
        command.args(["bench", url, "--queue-depth", "8", "--connections", "50", "--verify"]);
        command.args(["--seconds", "0.3", "--warmup", "0", "--read-percent", "50"]);
        command.args(["--span", "1MiB"]).stdin(Stdio::null()).output().expect("it starts")
    };
    let ran = bench(&sealed);
    assert!(ran.status.success(), "{}", said(&ran));
    let data: Vec<u8> = (0..3 << 20).map(|n: u32| (n / 5) as u8).collect();
    let client = Client::connect(&sealed, Options::default()).unwrap();
    client.write(8, &data).unwrap();
    assert!(client.read(8, data.len()).unwrap() == data);
    let options = Options { outage_max: Duration::from_millis(100), ..Options::default() };
    for (url, words) in [
        (plain.clone(), "takes sealed packets alone; name its key by ?key=FILE"),
        (format!("{plain}?key={other}"), "has another key than the file that ?key= names"),
    ] {
        let error = Client::connect(&url, options.clone()).unwrap_err();
        assert!(matches!(&error, Error::Connect(why) if why.contains(words)), "{error}");
        let ran = bench(&url);
        assert!(!ran.status.success() && said(&ran).contains(words), "{}", said(&ran));
    }
    let open = launch().start();
    let error = Client::connect(&format!("{}?key={own}", packets(&open)), options).unwrap_err();
    assert!(matches!(&error, Error::Connect(why) if why.contains("has no key")), "{error}");
}

#[test]
fn a_key_that_others_can_read_or_that_is_none_is_refused() {
    let place = ServerFolder::in_memory();
    let path = place.key_file("packet.key", "1f");
    let listen = format!("reflex+udp://127.0.0.1:0?key={path}");
    let fail = || Launch::new(&["--device", "null:1MiB", "--listen", &listen]).fail().1;
    let connect = || {
        let url = format!("reflex+udp://127.0.0.1:9?key={path}");
        Client::connect(&url, Options::default()).unwrap_err().to_string()
    };
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    for error in [fail(), connect()] {
        assert!(error.contains("permissions 644"), "{error}");
    }
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, "a password").unwrap();
    for error in [fail(), connect()] {
        assert!(error.contains("openssl rand -hex 32"), "{error}");
        assert!(!error.contains("password"), "{error}");
    }
}

/// Returns the workers that have connections of each client, by the client's address and port.
fn workers_of(place: &ServerFolder) -> BTreeMap<String, BTreeSet<usize>> {
    let mut found = BTreeMap::<String, BTreeSet<usize>>::new();
    for one in place.client().connections().unwrap().connections {
        assert_eq!(one.transport, "udp");
        found.entry(one.peer).or_default().insert(one.worker);
    }
    found
}

/// Returns the value of the first series of the server's metrics whose line begins with these
/// words.
fn metric(place: &ServerFolder, words: &str) -> f64 {
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
    let place = ServerFolder::in_memory();
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
