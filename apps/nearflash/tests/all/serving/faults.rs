//! Tests of clients and servers that are cut off or told to stop: acknowledged writes are kept,
//! requests in flight get their reply or are not carried out, and other clients notice nothing.

use std::io::Write;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use crate::support::v1_head as head;
use crate::support::{
    Answer, Launch, PATIENCE, PoliteClient, Server, ServerFolder, V1, V2, now, pattern, wait_until,
};
use contract::{Command, Notice, Range, Status};
use control::admin::{AdminAddress, Client};

/// The configuration of two namespaces: the first for the polite client, the second for the load.
const TWO_NAMESPACES: &str = r#"
[[device]]
name = "m"
spec = "mem:64MiB"
[[namespace]]
device = "m"
size = "16MiB"
[[namespace]]
device = "m"
offset = "16MiB"
"#;

#[test]
fn a_reset_in_the_middle_of_a_payload_leaves_the_old_data() {
    let server = Launch::device("mem:8MiB").start();
    let polite = PoliteClient::start(server.address());
    let mut witness = V2::connect(server.address());
    let old = pattern(4096, 2048, 1);
    witness.write_blocks(4096, &old, false);
    let new = pattern(4096, 2048, 2);
    for cut in [0, 1, 511, 4096, 65_537, (1 << 20) - 1] {
        let mut v1 = V1::connect(server.address());
        v1.send(&head(1, 1, 4096, 2048));
        v1.send(&new[..cut]);
        std::thread::sleep(Duration::from_millis(20));
        v1.reset();
        let mut v2 = V2::connect(server.address());
        let range = Range::new(4096, 2048);
        let message = v2.encode(1, 0, 0, Command::Write { range, fua: true }, &new);
        v2.send_bytes(&message[..40 + cut]);
        std::thread::sleep(Duration::from_millis(20));
        v2.reset();
        assert!(witness.read_blocks(4096, 2048) == old, "cut after {cut} bytes");
    }
    // One that arrived whole and was reset before its reply may have been done: whole or not at
    // all.
    let mut v1 = V1::connect(server.address());
    v1.set(1, 4096, &new);
    v1.reset();
    std::thread::sleep(Duration::from_millis(50));
    let found = witness.read_blocks(4096, 2048);
    assert!(found == old || found == new, "half of it");
    polite.dismiss();
}

#[test]
fn a_client_killed_in_the_middle_of_its_stream_is_forgotten() {
    let server = Launch::config(TWO_NAMESPACES).start();
    let polite = PoliteClient::start(server.address());
    for _ in 0..3 {
        let url = format!("reflex://{}", server.address());
        let mut client = Process::new(env!("CARGO_BIN_EXE_nearflash"))
            .args(["bench", &url, "--namespace", "2", "--read-percent", "50", "--seconds", "30"])
            .args(["--queue-depth", "32", "--connections", "4", "--block-size", "65536"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        std::thread::sleep(Duration::from_millis(700));
        assert!(client.try_wait().unwrap().is_none(), "the load ended by itself");
        client.kill().unwrap();
        client.wait().unwrap();
    }
    polite.dismiss();
}

#[test]
fn what_was_acknowledged_as_durable_survives_a_kill_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("file:{}?size=16MiB", folder.path().join("volume").display());
    for round in 1..=3u8 {
        let mut server = Launch::device(&spec).start();
        let mut v2 = V2::connect(server.address());
        // Writes with FUA, and plain ones with a flush behind them.
        for n in 0..8u64 {
            v2.write_blocks(n * 64, &pattern(n * 64, 64, round), true);
            v2.write_blocks(4096 + n * 8, &pattern(4096 + n * 8, 8, round), false);
        }
        assert_eq!(v2.call(Command::Flush, &[]).0, Status::Ok);
        assert_eq!(
            v2.call(Command::WriteAtomic(Range::new(9000, 16)), &pattern(9000, 16, round)).0,
            Status::Ok
        );
        // And more in flight, which may or may not be there.
        for n in 0..64u64 {
            let range = Range::new(16_384 + n * 128, 128);
            v2.send(n, Command::Write { range, fua: false }, &pattern(range.lba, 128, round));
        }
        server.kill();
        let server = Launch::device(&spec).start();
        let mut v2 = V2::connect(server.address());
        for n in 0..8u64 {
            assert!(v2.read_blocks(n * 64, 64) == pattern(n * 64, 64, round), "FUA write {n}");
            assert!(
                v2.read_blocks(4096 + n * 8, 8) == pattern(4096 + n * 8, 8, round),
                "write {n}"
            );
        }
        assert!(v2.read_blocks(9000, 16) == pattern(9000, 16, round), "atomic write");
    }
}

/// Starts a server whose device delays each request, with an admin API that shows requests in
/// flight. Returns the folder of its socket, too.
fn slow(delay: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin.sock");
    let launch = Launch::device(&format!("null:1GiB?delay={delay}")).with("--admin");
    (folder, launch.with(socket.to_str().unwrap()).log("info").start())
}

fn await_in_flight(folder: &tempfile::TempDir, count: u64) {
    let socket = folder.path().join("admin.sock");
    let mut client = Client::new(AdminAddress::Unix(socket)).unwrap();
    wait_until("requests in flight", PATIENCE, || {
        let all = client.connections().unwrap().connections;
        all.iter().map(|one| u64::from(one.in_flight)).sum::<u64>() == count
    });
}

#[test]
fn a_drain_answers_what_is_in_flight_and_says_so() {
    let (folder, mut server) = slow("6s");
    let mut v1 = V1::connect(server.address());
    let mut v2 = V2::connect(server.address());
    let mut idle = V2::connect(server.address());
    for handle in 1..=20 {
        v1.get(handle, handle * 8, 8);
    }
    for tag in 1..=20 {
        let range = Range::new(tag * 8, 8);
        v2.send(tag, Command::Write { range, fua: false }, &[1; 4096]);
    }
    await_in_flight(&folder, 40);
    server.terminate();
    assert_eq!(idle.answer(), Answer::Notice(Notice::Draining));
    assert_eq!(idle.answer(), Answer::End);
    for handle in 1..=20 {
        v1.expect_data(handle, handle * 8, 8);
    }
    v1.expect_end(PATIENCE);
    assert_eq!(v2.answer(), Answer::Notice(Notice::Draining));
    let mut tags: Vec<u64> = (0..20)
        .map(|_| match v2.answer() {
            Answer::Done { tag, status: Status::Ok, .. } => tag,
            other => panic!("{other:?}"),
        })
        .collect();
    tags.sort_unstable();
    assert!(tags.iter().copied().eq(1..=20), "{tags:?}");
    assert_eq!(v2.answer(), Answer::End);
    drop((v1, v2, idle));
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_draining_server_accepts_no_more() {
    let (folder, mut server) = slow("6s");
    let mut v1 = V1::connect(server.address());
    v1.get(1, 0, 8);
    await_in_flight(&folder, 1);
    server.terminate();
    server.await_log("draining worker=0");
    if let Ok(stream) = std::net::TcpStream::connect_timeout(&server.address(), PATIENCE) {
        let mut late = V1 { stream };
        let _ = late.stream.write_all(&head(0, 1, 0, 8)); // may be refused already
        late.expect_end(PATIENCE);
    }
    v1.expect_data(1, 0, 8);
    drop(v1);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_drain_is_not_held_up_by_a_client_that_does_nothing() {
    let limit = "[limits]\ndrain_seconds = 1";
    let device = "[[device]]\nname = \"m\"\nspec = \"mem:8MiB\"";
    let mut server = Launch::config(&format!("{device}\n{limit}")).start();
    let idle = V1::connect(server.address());
    let mut half = V1::connect(server.address());
    half.send(&head(1, 1, 0, 8));
    let mut rude = V1::connect(server.address());
    let reads: Vec<u8> = (1..=4000).flat_map(|n| head(0, n, 0, 8)).collect();
    rude.send(&reads);
    std::thread::sleep(Duration::from_millis(200));
    let started = now();
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
    // Without the limit it took ten seconds.
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
    drop((idle, half, rude));
}

#[test]
fn an_error_of_the_device_reaches_the_client_and_nobody_else() {
    let place = ServerFolder::new();
    let server = place.crewed(Launch::device("mem:8MiB?fail_reads=1")).start();
    let mut v2 = V2::connect(server.address());
    for _ in 0..10 {
        assert_eq!(v2.call(Command::Read(Range::new(0, 8)), &[]), (Status::MediaError, Vec::new()));
        v2.write_blocks(0, &[1; 4096], false);
    }
    // Version 1 cannot say it.
    let mut v1 = V1::connect(server.address());
    v1.get(1, 0, 8);
    v1.expect_end(PATIENCE);
    server.await_log("media error");
    v2.write_blocks(0, &[1; 4096], false);
    let errors = |error: &str| {
        place.metric(&format!(
            "nearflash_device_errors_total{{device=\"device0\",error=\"{error}\"}}"
        ))
    };
    wait_until("the errors of the device", PATIENCE, || errors("media") == 11.0);
    assert_eq!((errors("no_space"), errors("read_only")), (0.0, 0.0));
}

#[test]
fn a_full_disk_is_a_status_and_the_rest_goes_on() {
    // A file system of 4 MiB of its own, with a file on it that says it has 16.
    let folder = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size=4m none {}", folder.path().display());
    let spec = format!("file:{}?size=16MiB", folder.path().join("volume").display());
    let allowed = Process::new("unshare").args(["-m", "sh", "-c", &mount]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        return println!("SKIPPED: mounting a file system of our own needs root");
    }
    let server = Launch::device(&spec).after(&["unshare", "-m"], &mount).start();
    let mut v2 = V2::connect(server.address());
    v2.write_blocks(0, &pattern(0, 8, 1), true);
    let mut statuses = Vec::new();
    for lba in (2048..30_000).step_by(2048) {
        let range = Range::new(lba, 2048);
        statuses.push(v2.call(Command::Write { range, fua: true }, &pattern(lba, 2048, 2)).0);
    }
    assert!(statuses.contains(&Status::NoSpace), "{statuses:?}");
    assert!(statuses.iter().all(|s| [Status::Ok, Status::NoSpace].contains(s)), "{statuses:?}");
    // What is there can be read and written over, and space that is given back can be used.
    assert_eq!(v2.read_blocks(0, 8), pattern(0, 8, 1));
    v2.write_blocks(0, &pattern(0, 8, 3), true);
    assert_eq!(v2.read_blocks(0, 8), pattern(0, 8, 3));
    assert_eq!(v2.call(Command::Discard(Range::new(2048, 2048)), &[]).0, Status::Ok);
    v2.write_blocks(2048, &pattern(2048, 1024, 4), true);
}
