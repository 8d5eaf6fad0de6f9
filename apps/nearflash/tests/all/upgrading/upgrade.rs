//! Tests that a new process takes over from the running one: a verifying load notices nothing but
//! pauses. A process that does not own a connection may be killed at any step without harm to the
//! connection.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use crate::support::{
    Answer, Launch, PATIENCE, SLOW_MODEL, Server, ServerFolder, V1, V2, each, nearflash, now,
    pattern, result, v1_head, verifying, wait_until,
};
use contract::{Command, Hello, Range, Status};
use control::admin::{Code, NewTenant, WorkerState};
use rustix::process::{Pid, Signal};

/// The servers that these tests start in a [`ServerFolder`].
trait Servers {
    fn device(&self) -> String;
    /// Returns a server of this place that is not started.
    fn launch(&self) -> Launch;
    fn start(&self) -> Server;
    /// Starts a server that takes over from the running one (`--upgrade`).
    fn take_over(&self) -> Server;
}

impl Servers for ServerFolder {
    fn device(&self) -> String {
        self.file("device")
    }

    fn launch(&self) -> Launch {
        self.crewed(Launch::device(&self.device()))
    }

    fn start(&self) -> Server {
        self.launch().start()
    }

    fn take_over(&self) -> Server {
        self.launch().with("--upgrade").start()
    }
}

/// Returns the number of connections that the server's log says it has taken over.
fn told(server: &Server) -> u64 {
    server.await_log("took over");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("took over")).expect("it was awaited");
    println!("{line}");
    let mut numbers =
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
    numbers.next().expect("it says how many")
}

/// Asserts that a load still runs on the connections `peers` that it had before. Ends the load, and
/// asserts that it had no error.
fn nobody_noticed(place: &ServerFolder, mut load: Child, peers: &[String]) {
    let now = place.peers();
    assert!(load.try_wait().unwrap().is_none(), "it has ended by itself");
    assert_eq!(now, peers, "nobody has connected again");
    let result = result(load);
    assert_eq!((&result["errors"], &result["verify_failures"]), (&0.into(), &0.into()));
}

/// Takes a running load of this many connections over twice, and checks that it notices nothing.
fn take_over_twice(words: &str, connections: usize) {
    let place = ServerFolder::in_memory();
    let mut old = place.start();
    let (target, words) = words.split_once(' ').unwrap_or((words, ""));
    let load = verifying(&format!("reflex://{}{target}", old.address()), words);
    let peers = place.await_peers(connections, connections);
    let first = place.take_over();
    assert_eq!(first.address(), old.address());
    let count = told(&first);
    assert_eq!(count, peers.len() as u64);
    assert!(old.wait().success(), "the older one ends in order");
    // And once more, from the one that took over.
    let mut first = first;
    let second = place.take_over();
    assert_eq!(told(&second), count);
    assert!(first.wait().success());
    nobody_noticed(&place, load, &peers);
}

#[test]
fn a_verifying_load_notices_nothing() {
    take_over_twice(" --connections 8 --queue-depth 8", 8);
}

#[test]
fn a_load_of_large_requests_with_checksums_notices_nothing() {
    take_over_twice(" --connections 2 --queue-depth 4 --block-size 64KiB --checksums", 2);
}

#[test]
fn a_load_of_version_1_notices_nothing() {
    take_over_twice("?v=1 --connections 4 --queue-depth 16", 4);
}

/// Clients of both protocol versions that have written something. Those of version 2 have names for
/// their connections, so that fences know them.
struct Clients {
    named: Vec<V2>,
    old: V1,
}

const WRITTEN: Range = Range::new(64, 8);

impl Clients {
    fn connect(server: &Server) -> Clients {
        let hello = |n: u32| Hello { client: 77, connection: n, ..Hello::default() };
        let named = (0..3).map(|n| V2::hello(server.address(), hello(n)).unwrap());
        let mut clients = Clients { named: named.collect(), old: V1::connect(server.address()) };
        clients.old.set(1, 0, &pattern(0, 8, 1));
        clients.old.expect_written(1, 0);
        let write = Command::Write { range: WRITTEN, fua: false };
        assert!(clients.named[0].call(write, &pattern(WRITTEN.lba, 8, 2)).0.is_ok());
        clients
    }

    /// Returns the number of connections that answer a read. Asserts that the answers are right.
    fn alive(&mut self) -> usize {
        let named = self.named.iter_mut().map(alive).filter(|alive| *alive).count();
        self.old.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let asked = self.old.stream.write_all(&v1_head(0, 5, 0, 8));
        let mut answer = vec![0; 24 + 4096];
        let old = asked.and_then(|()| self.old.stream.read_exact(&mut answer));
        if let Err(error) = &old {
            let timed_out = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            assert!(!timed_out, "neither an answer nor an end");
        } else {
            assert_eq!(answer[24..], pattern(0, 8, 1));
        }
        named + usize::from(old.is_ok())
    }
}

fn alive(client: &mut V2) -> bool {
    let bytes = client.encode(9, 0, 0, Command::Read(WRITTEN), &[]);
    if client.stream.write_all(&bytes).is_err() {
        return false;
    }
    match client.try_answer(PATIENCE) {
        Some(Answer::Done { tag: 9, status: Status::Ok, data }) => {
            assert_eq!(data, pattern(WRITTEN.lba, 8, 2));
            true
        }
        Some(Answer::End) => false,
        Some(Answer::Notice(_)) => alive(client),
        other => panic!("{other:?}"),
    }
}

/// Asserts that acknowledged writes are there for a client that connects under the name of an
/// earlier one, and that no fence holds its requests.
fn is_served(server: &Server) {
    let hello = Hello { client: 77, connection: 0, ..Hello::default() };
    let mut again = V2::hello(server.address(), hello).unwrap();
    assert!(alive(&mut again));
    let mut compare = pattern(WRITTEN.lba, 8, 2);
    compare.extend(pattern(WRITTEN.lba, 8, 3));
    let exchange = Command::CompareAndWrite(WRITTEN);
    assert!(again.call(exchange, &compare).0.is_ok(), "nothing is held any more");
    let write = Command::Write { range: WRITTEN, fua: false };
    assert!(again.call(write, &pattern(WRITTEN.lba, 8, 2)).0.is_ok());
}

/// A stand-in, in a table of cases, for a number of connections that only the log tells: those that
/// the older process had given to the newer one when it waited at its step.
const GIVEN: usize = usize::MAX;

/// Returns the number of connections that the older process had given to the newer one when it
/// waited at its step, as its log says.
fn stayed_with(server: &Server) -> usize {
    let log = server.log();
    let (_, rest) = log.split_once("stays at").expect("it was awaited");
    let number = rest.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    number.expect("it says how many").0.parse().expect("a number")
}

/// Starts a process that takes over (`--upgrade`), and does not wait until it serves.
fn begin(launch: Launch) -> crate::support::StartingServer {
    launch.with("--upgrade").begin()
}

#[test]
fn the_older_goes_on_if_the_newer_is_killed() {
    // With how many of the four connections; `GIVEN`: without those that it was given.
    let cases = [
        ("predecessor:hello", 4),
        ("predecessor:prepare", 4),
        ("predecessor:ready", 4),
        ("predecessor:still", 4),
        ("predecessor:parcel", 4),
        ("predecessor:taken", 4),
        ("predecessor:yours", GIVEN),
        ("predecessor:given", 0),
        ("successor:hello", 4),
        ("successor:inventory", 4),
        ("successor:prepare", 4),
        ("successor:ready", 4),
        ("successor:still", 4),
        ("successor:taken", 4),
        ("successor:commit", 0),
    ];
    each(8, &cases, |&(at, survive)| {
        let place = ServerFolder::in_memory();
        let old = place.staying_as("predecessor", place.launch(), at).start();
        let mut clients = Clients::connect(&old);
        let new = place.staying_as("successor", place.launch(), at);
        let mut new = begin(new);
        let stays = format!("stays at {at} ");
        wait_until(&stays, PATIENCE, || old.log().contains(&stays) || new.log().contains(&stays));
        let survive = if survive == GIVEN { 4 - stayed_with(&old) } else { survive };
        new.kill();
        place.go_on();
        old.await_log("this server goes on");
        assert_eq!(clients.alive(), survive, "{at}: {}", old.log());
        is_served(&old);
        wait_until("those that survive", PATIENCE, || place.peers().len() == survive);
        drop(old);
    });
}

#[test]
fn the_newer_serves_what_it_has_if_the_older_is_killed() {
    let cases = [
        ("predecessor:still", 0),
        ("predecessor:parcel", 0),
        ("predecessor:taken", 0),
        ("predecessor:yours", GIVEN),
        ("predecessor:given", 4),
        ("predecessor:commit", 4),
        ("predecessor:committed", 4),
        ("predecessor:rest", 4),
        ("successor:still", 0),
        ("successor:commit", 4),
        ("successor:committed", 4),
    ];
    each(8, &cases, |&(at, survive)| {
        let place = ServerFolder::in_memory();
        let mut old = place.staying_as("predecessor", place.launch(), at).start();
        let mut clients = Clients::connect(&old);
        let new = place.staying_as("successor", place.launch(), at);
        let new = begin(new);
        let stays = format!("stays at {at} ");
        wait_until(&stays, PATIENCE, || old.log().contains(&stays) || new.log().contains(&stays));
        let survive = if survive == GIVEN { stayed_with(&old) } else { survive };
        old.kill();
        place.go_on();
        let new = new.await_ready();
        assert_eq!(clients.alive(), survive, "{at}: {}", new.log());
        is_served(&new);
        wait_until("those that survive", PATIENCE, || place.peers().len() == survive);
    });
}

/// Checks that the newer process serves if the older one is killed before it has handed anything
/// over, as after a crash.
#[test]
fn before_it_has_anything_the_newer_serves_in_the_place_of_the_older() {
    let cases = ["predecessor:hello", "predecessor:prepare", "predecessor:ready"];
    each(8, &cases, |&at| {
        let place = ServerFolder::in_memory();
        let mut old = place.staying(place.launch(), at).start();
        drop(Clients::connect(&old));
        let new = begin(place.launch());
        old.await_log("stays at");
        old.kill();
        let new = new.await_ready();
        new.await_log("as after a crash");
        is_served(&new);
    });
}

/// Checks that the older process serves again if the newer one is killed before it has reported
/// that it has everything.
#[test]
fn the_older_serves_again_if_the_newer_is_killed_before_it_is_over() {
    let cases = ["predecessor:committed", "predecessor:rest"];
    each(8, &cases, |&at| {
        let place = ServerFolder::in_memory();
        let data = place.path("data.sock");
        let listen = format!("reflex+unix:{}", data.display());
        let launch =
            || place.crewed(Launch::new(&["--device", &place.device(), "--listen", &listen]));
        let mut old = place.staying(launch(), at).start();
        let new = begin(launch());
        old.await_log(&format!("stays at {at} "));
        let mut new = new.await_ready();
        new.kill();
        place.go_on();
        old.await_log("as after a crash");
        wait_until("somebody who serves", PATIENCE, || UnixStream::connect(&data).is_ok());
        assert!(old.runs());
    });
}

/// Checks that a process that finds the socket of a killed server takes its place. A server that
/// has never run is not taken for one that was killed.
#[test]
fn who_finds_the_socket_of_a_killed_server_serves() {
    let place = ServerFolder::in_memory();
    let mut old = place.start();
    drop(Clients::connect(&old));
    old.kill();
    is_served(&place.take_over());
}

/// Checks that a new process that was given up serves nothing. It was suspended for so long that
/// the old one gave it up. It then finds the end of the old one's messages in the middle of one
/// that did not fit into the socket, and must not take that for the end of the old process.
#[test]
fn who_was_given_up_serves_nothing() {
    let place = ServerFolder::in_memory();
    let old = place.start();
    let mut clients = Clients::connect(&old);
    let mut large = V1::connect(old.address());
    large.send(&v1_head(1, 7, 4096, 2048));
    large.send(&vec![9; 900 << 10]);
    let mut new = begin(place.staying(place.launch(), "successor:ready"));
    wait_until("the stay", PATIENCE, || new.log().contains("stays at"));
    new.suspend();
    wait_until("the end of its patience", 3 * PATIENCE, || old.log().contains("goes on"));
    place.go_on();
    new.resume();
    assert!(!new.wait().success(), "{}", new.log());
    assert_eq!(clients.alive(), 4, "{}", old.log());
    large.send(&vec![9; 124 << 10]);
    large.expect_written(7, 4096);
    large.set(1, 0, &pattern(0, 8, 1));
    large.expect_written(1, 0);
    is_served(&old);
}

/// Checks that a process that was given up after its last step is ended. It may not learn that it
/// was given up, and would serve connections that the older process has taken back.
#[test]
fn who_was_given_up_behind_the_last_step_is_ended() {
    is_ended_standing_still("successor:commit", "was ended", 0);
}

/// Checks that a process that was given up with some of the connections is ended: until then, names
/// of connections, exclusive requests and upgrades are held up.
#[test]
fn who_was_given_up_with_some_of_the_connections_is_ended() {
    is_ended_standing_still("successor:yours", "is ended", 200);
}

/// Suspends a new process at this step until the old one goes on, with `others` further
/// connections. Asserts that the old one logs `said` and that the new process is ended.
fn is_ended_standing_still(step: &str, said: &str, others: usize) {
    let place = ServerFolder::new();
    let old = place.start();
    let mut clients = Clients::connect(&old);
    let _others: Vec<V1> = (0..others).map(|_| V1::connect(old.address())).collect();
    let mut new = begin(place.staying(place.launch(), step));
    wait_until("the stay", PATIENCE, || new.log().contains("stays at"));
    new.suspend();
    wait_until("the end of its patience", 3 * PATIENCE, || old.log().contains("goes on"));
    assert!(old.log().contains(said), "{}", old.log());
    assert!(!new.wait().success(), "it was not waked: {}", new.log());
    let (kept, all) = (place.peers().len(), 4 + others);
    let some_stayed = others > 0;
    assert!(kept < all && (kept > 0) == some_stayed, "{kept} of {all}: {}", old.log());
    assert!(some_stayed || clients.alive() == 0, "they had been given to it: {}", old.log());
    is_served(&old);
    let tenant =
        NewTenant { name: "late".to_owned(), slo: None, share: None, device: None, note: None };
    place.client().send(&tenant).unwrap();
    assert!(place.client().tenants().unwrap().iter().any(|tenant| tenant.name == "late"));
    is_served(&place.take_over());
}

/// Checks that a process that is told to reload before it serves does so afterwards: a program that
/// rotates logs does not know which process serves.
#[test]
fn who_is_told_to_reload_before_it_serves_does_so_afterwards() {
    let place = ServerFolder::new();
    place.configure_disk("");
    let mut old = place.configured().start();
    let told = place.path("told");
    let stays = format!("successor:hello:{},successor:ready", told.display());
    let new = begin(place.staying(place.configured(), &stays));
    wait_until("the first stay", PATIENCE, || new.log().contains("stays at successor:hello"));
    new.hang_up();
    std::fs::write(told, "").unwrap();
    wait_until("the second stay", PATIENCE, || new.log().contains("stays at successor:ready"));
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(20));
        assert!(!new.log().contains("is reloaded"), "it serves nothing yet: {}", new.log());
    }
    place.go_on();
    let new = new.await_ready();
    assert!(old.wait().success());
    new.await_log("the configuration is reloaded");
}

#[test]
fn who_has_no_room_for_all_is_refused() {
    let place = ServerFolder::in_memory().of_workers("1..4");
    let old = place.start();
    let mut clients: Vec<V1> = (0..150).map(|_| V1::connect(old.address())).collect();
    wait_until("connections", PATIENCE, || place.peers().len() == clients.len());
    let (code, said) = place.launch().descriptors(200).with("--upgrade").fail();
    assert!(code == 1 && said.contains("150 connections") && said.contains("ulimit"), "{said}");
    for client in &mut clients {
        client.get(1, 0, 8);
        client.expect_data(1, 0, 8);
    }
}

#[test]
fn who_is_told_to_stop_meanwhile_does_not_take_back_what_it_gave() {
    let place = ServerFolder::in_memory().of_workers("1");
    let mut old = place.staying(place.launch(), "predecessor:yours").start();
    let mut clients = Clients::connect(&old);
    let new = begin(place.launch());
    old.await_log("stays at predecessor:yours");
    old.terminate();
    place.go_on();
    let new = new.await_ready();
    let status = old.wait();
    assert!(status.success(), "{status}: {}", old.log());
    assert!(clients.alive() >= 1, "{}", new.log());
    is_served(&new);
}

#[test]
fn what_operators_changed_is_not_lost_by_another_state_file() {
    let place = ServerFolder::in_memory();
    let state = |name: &str| place.path(name).display().to_string();
    let with_state = |name: &str| place.launch().with("--state").with(&state(name));
    let old = with_state("state").start();
    let tenant =
        NewTenant { name: "late".to_owned(), slo: None, share: None, device: None, note: None };
    place.client().send(&tenant).unwrap();
    for launch in [place.launch(), with_state("other")] {
        let (code, said) = launch.with("--upgrade").fail();
        assert!(code == 1 && said.contains("--state"), "{said}");
        old.await_log("this server goes on");
    }
    // The same file by another way.
    std::os::unix::fs::symlink(place.path("."), place.path("link")).unwrap();
    let new = with_state("link/state").with("--upgrade").start();
    let tenants = place.client().tenants().unwrap();
    assert!(tenants.iter().any(|tenant| tenant.name == "late"), "{}", new.log());
}

#[test]
fn who_would_end_with_the_older_process_is_refused() {
    let place = ServerFolder::in_memory();
    let watched = place.launch().after(&[], "export NOTIFY_SOCKET=/nonexistent/notify").start();
    let (code, said) = place.launch().with("--upgrade").fail();
    assert!(code == 1 && said.contains("systemctl reload"), "{said}");
    drop(watched);
    let contain = ["unshare", "--pid", "--fork", "--kill-child"];
    if !Process::new(contain[0]).args(&contain[1..]).arg("true").status().unwrap().success() {
        println!("left out: this user may not have a container's process numbers");
        return;
    }
    let place = ServerFolder::in_memory();
    let first = place.launch().after(&contain, "true").start();
    let mut clients = Clients::connect(&first);
    let (code, said) = place.launch().with("--upgrade").fail();
    assert!(code == 1 && said.contains("restart the container"), "{said}");
    assert_eq!(clients.alive(), 4);
}

#[test]
fn files_of_sockets_follow_the_new_configuration() {
    let place = ServerFolder::in_memory();
    let path = |name: &str| place.path(name);
    let launch = |mode: &str, admin: &str| {
        let listen = format!("reflex+unix:{}?mode={mode}", path("data").display());
        let (admin, upgrade) = (path(admin), path("upgrade"));
        let words = ["--device", &place.device(), "--listen", &listen, "--admin"];
        let launch = Launch::new(&words).with(admin.to_str().unwrap());
        launch.with("--upgrade-socket").with(upgrade.to_str().unwrap())
    };
    let mode = || std::fs::metadata(path("data")).unwrap().permissions().mode() & 0o777;
    let mut old = launch("666", "before").start();
    assert_eq!(mode(), 0o666);
    let new = launch("660", "after").with("--upgrade").start();
    assert_eq!(mode(), 0o660);
    assert!(old.wait().success());
    let there = ["before", "after", "upgrade", "data"].map(|name| path(name).exists());
    assert_eq!(there, [false, true, true, true], "{}", new.log());
}

#[test]
fn the_way_to_the_kernel_may_be_another() {
    if std::env::var_os("NEARFLASH_TEST_INTERFACE").is_some() {
        return; // which says it for all servers
    }
    for (before, after) in [("epoll", "auto"), ("auto", "epoll")] {
        let place = ServerFolder::in_memory().of_workers("1");
        let by = |way: &str| place.launch().with("--interface").with(way);
        let mut old = by(before).start();
        let url = format!("reflex://{}", old.address());
        let load = verifying(&url, "--connections 8 --queue-depth 4");
        wait_until("connections", PATIENCE, || place.peers().len() == 8);
        let new = by(after).with("--upgrade").start();
        assert_eq!(told(&new), 8, "{}", old.log());
        assert!(old.wait().success());
        let result = result(load);
        assert_eq!((&result["errors"], &result["verify_failures"]), (&0.into(), &0.into()));
        assert_eq!(Clients::connect(&new).alive(), 4);
    }
}

/// Measures the duration of a take-over of 1 000 connections, which docs/adr/0009-upgrade.md tells.
#[test]
fn a_thousand_connections_move_under_load() {
    let place = ServerFolder::in_memory();
    let mut old = place.start();
    let url = format!("reflex://{}", old.address());
    let load = verifying(&url, "--connections 1000 --queue-depth 1 --threads 1");
    wait_until("connections", PATIENCE, || place.peers().len() == 1000);
    let peers = place.peers();
    let new = place.take_over();
    assert_eq!(told(&new), 1000, "{}", old.log());
    assert!(old.wait().success());
    nobody_noticed(&place, load, &peers);
}

#[test]
fn half_a_message_and_clients_tenants_move_along() {
    let place = ServerFolder::in_memory();
    let mut old = place.start();
    let mut v1 = V1::connect(old.address());
    let payload = pattern(0, 8, 3);
    let whole = [&v1_head(1, 7, 0, 8)[..], &payload[..], &v1_head(0, 8, 0, 8)[..]].concat();
    v1.send(&whole[..1000]);
    let mut v2 = V2::connect(old.address());
    let handle = v2.register("mine", None).unwrap().tenant;
    assert_ne!(handle, 0);
    let mut silent = V1::connect(old.address());
    let mut new = place.take_over();
    assert!(old.wait().success());
    v1.send(&whole[1000..2000]);
    let newest = place.take_over();
    assert!(new.wait().success());
    v1.send(&whole[2000..]);
    v1.expect_written(7, 0);
    assert_eq!(v1.expect_data(8, 0, 8), payload);
    silent.get(1, 0, 8);
    assert_eq!(silent.expect_data(1, 0, 8), payload);
    let tenants = place.client().tenants().unwrap();
    assert!(tenants.iter().any(|tenant| tenant.name == "mine" && tenant.connections == 1));
    assert!(v2.unregister(handle).is_ok(), "{}", newest.log());
}

#[test]
fn what_cannot_be_taken_over_goes_on() {
    let place = ServerFolder::in_memory();
    let old = place.start();
    let mut clients = Clients::connect(&old);
    let refused = |launch: Launch, words: &str| {
        let (code, said) = launch.with("--upgrade").fail();
        assert!(code == 1 && said.contains(words), "{said}");
    };
    let admin = place.socket();
    let with_admin = |launch: Launch| launch.with("--admin").with(admin.to_str().unwrap());
    let other = format!("{}-other", place.path("device").display());
    refused(
        with_admin(Launch::device(&format!("file:{other}?size=1MiB"))),
        "in this configuration",
    );
    let listens = ["--device", &place.device(), "--listen", "reflex://127.0.0.1:1"];
    refused(with_admin(Launch::new(&listens)), "this configuration does not");
    refused(Launch::device(&place.device()).with("--admin").with("/nonexistent/x"), "no server");
    assert_eq!(clients.alive(), 4);
    let memory = ServerFolder::in_memory();
    let words = ["--admin", memory.socket().to_str().unwrap()].map(str::to_owned);
    let launch = || words.iter().fold(Launch::device("mem:1MiB"), |launch, word| launch.with(word));
    let _server = launch().start();
    refused(launch(), "memory of the process");
}

#[test]
fn nothing_changes_meanwhile_and_everything_after_it_failed() {
    let place = ServerFolder::in_memory();
    let old = place.start();
    let mut one = V2::connect(old.address());
    let mut new = begin(place.staying(place.launch(), "successor:prepare"));
    wait_until("the stay", PATIENCE, || new.log().contains("stays at"));
    let tenant =
        NewTenant { name: "late".to_owned(), slo: None, share: None, device: None, note: None };
    let refused = place.client().send(&tenant).unwrap_err();
    assert_eq!(refused.code(), Some(Code::Busy));
    let mut client = place.client();
    let listed = client.connections().unwrap().connections.remove(0);
    let (id, other) = (listed.id.as_str(), 1 - listed.worker);
    for refused in [
        client.end_connection(id, 0).unwrap_err(),
        client.move_connection(id, other).unwrap_err(),
        client.set_worker(1, WorkerState::Parked).unwrap_err(),
    ] {
        assert_eq!(refused.code(), Some(Code::Busy), "{refused}");
        assert!(refused.to_string().contains("a new process is taking over"), "{refused}");
    }
    let mut v2 = V2::connect(old.address());
    assert_eq!(v2.register("late", None).unwrap_err().0, Status::Retry);
    new.kill();
    old.await_log("this server goes on");
    place.client().send(&tenant).unwrap();
    assert_eq!(one.read_blocks(0, 8).len(), 4096, "it is where it was");
    place.client().end_connection(id, 0).unwrap();
}

#[test]
fn the_command_returns_when_the_new_server_serves_and_says_its_number() {
    let place = ServerFolder::in_memory();
    let notified = place.path("notify");
    let manager = UnixDatagram::bind(&notified).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut old = place.start();
    let mut clients = Clients::connect(&old);
    let run = || {
        let mut command = nearflash(&[]);
        command.args(["upgrade", "--device", &place.device(), "--workers", "2", "--admin"]);
        command.arg(place.socket()).args(["--listen", "reflex://127.0.0.1:0"]);
        command.env("NOTIFY_SOCKET", &notified);
        let mut command = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The new server keeps it, and must not mind that nobody reads it.
        drop(command.stderr.take());
        command.wait_with_output().unwrap()
    };
    let output = run();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("ready reflex://"));
    let mut words = [0; 256];
    let length = manager.recv(&mut words).unwrap();
    let words = String::from_utf8_lossy(&words[..length]).into_owned();
    let number = words.lines().find_map(|line| line.strip_prefix("MAINPID="));
    let pid = Pid::from_raw(number.expect("it says so").parse().unwrap()).unwrap();
    assert!(words.contains("READY=1"), "{words}");
    assert!(old.wait().success());
    assert_eq!(clients.alive(), 4);
    // It has much to say of a reload without a configuration file.
    for _ in 0..3 {
        rustix::process::kill_process(pid, Signal::HUP).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(clients.alive(), 4);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    wait_until("its end", PATIENCE, || rustix::process::test_kill_process(pid).is_err());
    assert!(!run().status.success(), "there is nobody to take over from");
}

#[test]
fn unix_sockets_are_the_new_ones_and_go_with_it() {
    let place = ServerFolder::in_memory();
    let data = place.path("data.sock");
    let listen = format!("reflex+unix:{}", data.display());
    let launch = || {
        let words = ["--device", &place.device(), "--listen", &listen];
        Launch::new(&words).with("--admin").with(place.socket().to_str().unwrap())
    };
    let mut old = launch().start();
    let mut stream = UnixStream::connect(&data).unwrap();
    let mut new = launch().with("--upgrade").start();
    assert!(old.wait().success());
    for stream in [&mut stream, &mut UnixStream::connect(&data).unwrap()] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&v1_head(0, 3, 0, 8)).unwrap();
        stream.read_exact(&mut [0; 24 + 4096]).unwrap();
    }
    new.terminate();
    assert!(new.wait().success());
    assert!(!data.exists() && !place.socket().exists());
}

/// Checks that a tenant stays in deficit over a take-over: at 100 tokens a second, it has read 206
/// tokens beyond its limit of deficit.
#[test]
fn a_tenant_in_deficit_stays_there() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("model"), SLOW_MODEL).unwrap();
    let config = format!(
        "[[device]]\nname = \"disk\"\nspec = \"file:{}?size=16MiB\"\nmodel = \"{}\"\n\
         [[tenant]]\nname = \"gold\"\nlatency_us = 2000\niops = 100\n[[tenant]]\nname = \"bronze\"\n\
         [[listen]]\nurl = \"reflex://127.0.0.1:0?tenant=gold\"\n",
        path("device"),
        path("model")
    );
    let launch = || Launch::config(&config).with("--admin").with(&path("admin.sock"));
    let mut old = launch().start();
    let mut gold = V2::connect(old.address());
    // Before the read, while which a slow machine lets the tenant pay already.
    let spent_at = now();
    gold.read_blocks(0, 2048);
    let new = launch().with("--upgrade").start();
    assert_eq!(told(&new), 1);
    assert!(old.wait().success());
    gold.send(9, Command::Read(Range::new(0, 8)), &[]);
    let answer = loop {
        match gold.answer() {
            Answer::Notice(_) => {} // that it asks for more than it was promised
            other => break other,
        }
    };
    assert!(matches!(answer, Answer::Done { tag: 9, status: Status::Ok, .. }), "{answer:?}");
    let waited = now() - spent_at;
    assert!(waited.as_millis() >= 1_900, "it was let off its deficit: {waited:?}");
}

/// Checks that the new process is not asked again and again for a connection that it has refused.
#[test]
fn a_connection_that_is_refused_holds_nothing_up() {
    let place = ServerFolder::in_memory();
    let launch = |tenants: &[&str]| {
        let device = format!("[[device]]\nname = \"disk\"\nspec = \"{}\"\n", place.device());
        let text = tenants.iter().fold(device, |text, name| {
            format!(
                "{text}[[tenant]]\nname = \"{name}\"\n[[access]]\ntoken = \"{name}\"\n\
                 tenant = \"{name}\"\nrights = \"read-write\"\n"
            )
        });
        place.crewed(Launch::config(&text))
    };
    let mut old = launch(&["gold", "silver"]).start();
    let enter = |token| V2::with_token(old.address(), token).unwrap();
    let (mut gold, mut silver) = (enter("gold"), enter("silver"));
    let new = launch(&["silver"]).with("--upgrade").start();
    assert_eq!(told(&new), 1, "{}", old.log());
    assert!(old.wait().success());
    // A worker that the machine lets wait may offer it once more.
    let offers = old.log().matches("a connection stays").count();
    assert!((1..=3).contains(&offers), "{}", old.log());
    assert!(!alive(&mut gold), "it ends with the older process");
    assert_eq!(silver.read_blocks(0, 8).len(), 4096);
}

/// Checks that operators are told to try again at once while a new process waits just before it
/// serves.
#[test]
fn operators_are_answered_while_the_new_process_hesitates() {
    let place = ServerFolder::in_memory();
    let mut old = place.start();
    let mut clients = Clients::connect(&old);
    let new = begin(place.staying(place.launch(), "successor:commit"));
    new.await_log("stays at successor:commit");
    let tenant =
        NewTenant { name: "late".to_owned(), slo: None, share: None, device: None, note: None };
    let refused = place.client().send(&tenant).unwrap_err();
    assert_eq!(refused.code(), Some(Code::Busy));
    assert!(refused.to_string().contains("try again"), "{refused}");
    assert!(!new.log().contains("took over"), "{}", new.log());
    place.go_on();
    let new = new.await_ready();
    assert!(old.wait().success());
    assert_eq!(clients.alive(), 4);
    place.client().send(&tenant).unwrap();
    is_served(&new);
}
