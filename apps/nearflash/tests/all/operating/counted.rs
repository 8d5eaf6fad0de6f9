//! Tests of the counters that operators set alarms on: the tests provoke events, and read the
//! counters from the metrics.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::support::{Launch, Operator, PATIENCE, Server, V1, V2, now, wait_until};
use contract::{Command, Range, Status};
use control::admin::{AdminAddress, Client};

const TOKEN: &str = "right";

/// A server with two listeners and a low limit of connections. It admits only clients with a token.
struct LimitedServer {
    folder: tempfile::TempDir,
    server: Server,
}

impl Operator for LimitedServer {
    fn admin(&self) -> String {
        self.path("admin.sock").display().to_string()
    }
}

impl LimitedServer {
    fn start() -> LimitedServer {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let config = format!(
            "[admin]\nlisten = \"{}\"\naudit = \"{}\"\n\
             [limits]\nconnections = 8\nstuck_seconds = 1\n\
             [[device]]\nname = \"disk\"\nspec = \"mem:1MiB\"\n\
             [[access]]\ntoken = \"{TOKEN}\"\nrights = \"read\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n\
             [[listen]]\nurl = \"reflex://127.0.0.1:0\"\n",
            path("admin.sock"),
            path("audit.log")
        );
        std::fs::write(path("nearflash.toml"), config).unwrap();
        let words = ["--config", &path("nearflash.toml"), "--state", "none", "--workers", "2"];
        let launch = Launch::new(&words).after(&[], "unset NEARFLASH_ADMIN");
        LimitedServer { server: launch.start(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn client(&self) -> Client {
        Client::new(AdminAddress::Unix(self.path("admin.sock"))).unwrap()
    }

    fn let_in(&self) -> V2 {
        V2::with_token(self.server.listener(0), TOKEN).unwrap()
    }

    /// Returns the sum of all series of the counter `nearflash_NAME_total` whose labels contain
    /// `labels`.
    fn count(&self, name: &str, labels: &str) -> u64 {
        let mut stream = UnixStream::connect(self.path("admin.sock")).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let name = format!("nearflash_{name}_total");
        let series = text.lines().filter(|line| {
            let rest = line.strip_prefix(&name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
        });
        let values = series.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
        values.sum()
    }

    fn ended(&self, cause: &str) -> u64 {
        self.count("worker_connections_ended", &format!("cause=\"{cause}\""))
    }

    fn await_end(&self, cause: &str) {
        wait_until(cause, PATIENCE, || self.ended(cause) == 1);
    }
}

#[test]
fn ends_of_connections_are_counted_by_cause() {
    let place = LimitedServer::start();
    let address = place.server.listener(0);
    drop(place.let_in());
    place.await_end("peer");
    let mut v2 = place.let_in();
    assert_eq!(v2.call(Command::Read(Range::new(0, 8)), &[]).0, Status::Ok);
    v2.reset();
    place.await_end("network");
    let mut garbage = V1::connect(address);
    garbage.send(&[0xff; 24]);
    garbage.expect_end(PATIENCE);
    place.await_end("protocol_error");
    let mut stranger = V1::connect(address);
    stranger.get(1, 0, 8);
    stranger.expect_end(PATIENCE);
    place.await_end("failed_request");
    let mut half = V1::connect(address);
    half.send(&[24, 0, 0]);
    half.expect_end(PATIENCE);
    place.await_end("stuck");
    assert_eq!(V2::with_token(address, "wrong").err(), Some(Status::Denied));
    place.await_end("not_let_in");
    assert_eq!(place.count("authentications", "credential=\"token\",outcome=\"failed\""), 1);

    let _here = place.let_in();
    let one = place.client().connections().unwrap().connections.swap_remove(0);
    let moved = place.client().move_connection(&one.id, 1 - one.worker).unwrap();
    place.client().move_connection(&one.id, 1 - one.worker).unwrap_err();
    let moves = |outcome: &str| place.count("worker_moves", &format!("outcome=\"{outcome}\""));
    wait_until("moves", PATIENCE, || ["left", "arrived", "stayed"].map(moves) == [1; 3]);
    place.told(&["conn", "end", &moved.id]);
    place.await_end("ordered");
    let _there = V2::with_token(place.server.listener(1), TOKEN).unwrap();
    place.client().drain_listener("2", 1_000).unwrap();
    place.await_end("drained");
    V1::connect(place.server.listener(1)).expect_end(PATIENCE);
    let refused =
        |reason: &str| place.count("connections_refused", &format!("reason=\"{reason}\""));
    assert_eq!((refused("drained"), refused("full")), (1, 0));
    let _all: Vec<V2> = (0..8).map(|_| place.let_in()).collect();
    V1::connect(address).expect_end(PATIENCE);
    assert_eq!((refused("drained"), refused("full")), (1, 1));
}

#[test]
fn what_happens_to_the_process_is_counted() {
    let place = LimitedServer::start();
    let address = place.server.listener(0);
    let is = |name: &str, outcome: &str| place.count(name, &format!("outcome=\"{outcome}\""));
    place.told(&["tenant", "add", "gold"]);
    assert_eq!((is("audit_records", "kept"), is("audit_records", "owed")), (1, 0));
    place.server.hang_up();
    wait_until("a reload", PATIENCE, || is("reloads", "done") == 1);
    std::fs::write(place.path("nearflash.toml"), "nonsense").unwrap();
    place.server.hang_up();
    wait_until("a reload that is refused", PATIENCE, || is("reloads", "refused") == 1);
    drop(UnixStream::connect(place.path("admin.sock.upgrade")).unwrap());
    wait_until("an upgrade that fails", PATIENCE, || is("upgrades", "failed") == 1);
    assert_eq!((is("upgrades", "done"), is("reloads", "done")), (0, 1));
    // More warnings than are written of a place.
    for _ in 0..40 {
        let mut garbage = V1::connect(address);
        garbage.send(&[0xff; 24]);
        garbage.expect_end(PATIENCE);
    }
    assert!(place.count("log_left_out", "") > 0);
    // Of two workers, each of which looks late after 32 and forgets one a second.
    let (begun, mut guesses) = (now(), 0);
    while guesses < 1000 && guesses <= 70 + 2 * begun.elapsed().as_secs() {
        assert_eq!(V2::with_token(address, "wrong").err(), Some(Status::Denied));
        guesses += 1;
        if is("authentications", "delayed") > 0 {
            return;
        }
    }
    panic!("none of {guesses} wrong tokens was looked at late");
}
