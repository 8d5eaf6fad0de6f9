//! Tests of killing either process of a take-over at each of its steps, while loads of both
//! protocols write and verify their reads. The kill of a process that had no connection does no
//! harm. If the process that had them was killed, clients connect again, and every acknowledged
//! write is there (docs/adr/0009-upgrade.md, docs/adr/0015-moving-controllers.md).

use std::process::Child;

use crate::support::{
    Launch, PATIENCE, Server, ServerFolder, StartingServer, each, verifying, wait_until,
};
use serde_json::Value;

const SUBSYSTEM: &str = "nqn.2026-11.io.nearflash:tests";

/// Number of cases that the tests run at the same time.
const SIDE_BY_SIDE: usize = 5;

/// Options of the two loads. Their rates are limited, so that many cases can run at the same time.
/// Requests that come while connections are paused are in flight when a process is killed.
const REFLEX: &str = "--namespace 2 --connections 4 --queue-depth 8 --rate 800";
const NVME: &str = "--connections 3 --queue-depth 8 --rate 800";

/// Maximum number of failed requests of the `reflex` load and of the NVMe load when the process
/// that has their connections is killed. Protocol `reflex` repeats what can be repeated. An NVMe
/// host reports that the outcome of its requests in flight is unknown.
const UNKNOWN: [u64; 2] = [0, 3 * 8];

/// Number of connections of both loads together, the NVMe host's admin queue included.
const CONNECTIONS: usize = 4 + (1 + 3);

/// Number of connections that carry requests: all but the host's admin queue.
const CARRIERS: usize = 4 + 3;

trait Servers {
    /// Returns a server of two namespaces, one for each load, which waits at step `at` of a
    /// take-over if the step is one of its side, `own`. It is not started.
    fn launch(&self, own: &str, at: &str) -> Launch;
    /// Starts both loads, and waits until all their connections are open. Returns the loads and the
    /// addresses of their connections.
    fn load(&self, server: &Server) -> (Vec<Child>, Vec<String>);
}

impl Servers for ServerFolder {
    fn launch(&self, own: &str, at: &str) -> Launch {
        let mut text = String::new();
        for name in ["one", "other"] {
            let file = self.file(name);
            text += &format!("[[device]]\nname = \"{name}\"\nspec = \"{file}\"\n");
        }
        text += &format!(
            "[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n[[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n\
             [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n"
        );
        self.staying_as(own, self.crewed(Launch::config(&text)), at)
    }

    fn load(&self, server: &Server) -> (Vec<Child>, Vec<String>) {
        let nvme = format!("nvme-tcp://{}/{SUBSYSTEM}?nsid=1", server.listener(1));
        let reflex = format!("reflex://{}", server.address());
        let loads = vec![verifying(&reflex, REFLEX), verifying(&nvme, NVME)];
        (loads, self.await_peers(CONNECTIONS, CARRIERS))
    }
}

/// Starts the process that takes over, and waits until one of the two processes waits at step `at`.
fn take_over(place: &ServerFolder, old: &Server, at: &str) -> StartingServer {
    let new = place.launch("successor", at).with("--upgrade").begin();
    let stays = format!("stays at {at} ");
    wait_until(&stays, PATIENCE, || old.log().contains(&stays) || new.log().contains(&stays));
    new
}

/// Ends the loads when one process is left. If `kept`, asserts that they had no error and that no
/// client has connected again. Otherwise asserts that at most [`UNKNOWN`] requests have failed.
fn end(place: &ServerFolder, loads: Vec<Child>, peers: &[String], kept: bool, at: &str) {
    wait_until(&format!("all connections after {at}"), PATIENCE, || {
        place.peers().len() == CONNECTIONS
    });
    let now = place.peers();
    assert!(!kept || now == peers, "{at}: somebody has connected again: {peers:?} {now:?}");
    for (mut load, unknown) in loads.into_iter().zip(UNKNOWN) {
        assert!(load.try_wait().unwrap().is_none(), "{at}: the load has ended by itself");
        let output = load.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let result: Value = serde_json::from_str(&said).expect("it is JSON");
        assert_eq!(result["verify_failures"], 0, "{at}: {said}");
        let errors = result["errors"].as_u64().unwrap();
        assert!(errors <= if kept { 0 } else { unknown }, "{at}: {said}");
        for side in ["read", "write"] {
            assert!(result[side]["count"].as_u64().unwrap() > 0, "{at}: {result}");
        }
    }
}

/// Kills the newer process while one of the two waits at step `at`. `kept` is `true` if the older
/// process had all connections.
fn kill_the_newer(at: &str, kept: bool) {
    let place = ServerFolder::in_memory();
    let old = place.launch("predecessor", at).start();
    let (loads, peers) = place.load(&old);
    let mut new = take_over(&place, &old, at);
    new.kill();
    place.go_on();
    old.await_log("this server goes on");
    end(&place, loads, &peers, kept, at);
}

/// Kills the older process while one of the two waits at step `at`. `kept` is `true` if the newer
/// process had all connections.
fn kill_the_older(at: &str, kept: bool) {
    let place = ServerFolder::in_memory();
    let mut old = place.launch("predecessor", at).start();
    let (loads, peers) = place.load(&old);
    let new = take_over(&place, &old, at);
    old.kill();
    place.go_on();
    let _new = new.await_ready();
    end(&place, loads, &peers, kept, at);
}

#[test]
fn a_newer_process_that_owns_nothing_does_no_harm_under_load() {
    each(
        SIDE_BY_SIDE,
        &[
            ("predecessor:hello", true),
            ("predecessor:prepare", true),
            ("predecessor:ready", true),
            ("predecessor:still", true),
            ("predecessor:parcel", true),
            ("predecessor:taken", true),
            ("successor:inventory", true),
            ("successor:ready", true),
            ("successor:still", true),
            ("successor:taken", true),
        ],
        |(at, kept)| kill_the_newer(at, *kept),
    );
}

#[test]
fn what_a_newer_process_owned_comes_back_to_the_older_under_load() {
    each(
        SIDE_BY_SIDE,
        &[
            ("predecessor:yours", false),
            ("predecessor:controller", false),
            ("predecessor:leaves", false),
            ("predecessor:given", false),
            ("successor:controller", false),
            ("successor:commit", false),
        ],
        |(at, kept)| kill_the_newer(at, *kept),
    );
}

#[test]
fn an_older_process_that_owns_nothing_does_no_harm_under_load() {
    each(
        SIDE_BY_SIDE,
        &[
            ("predecessor:given", true),
            ("predecessor:commit", true),
            ("predecessor:committed", true),
            ("predecessor:rest", true),
            ("successor:commit", true),
            ("successor:committed", true),
        ],
        |(at, kept)| kill_the_older(at, *kept),
    );
}

#[test]
fn what_an_older_process_owned_comes_to_the_newer_under_load() {
    each(
        SIDE_BY_SIDE,
        &[
            ("predecessor:still", false),
            ("predecessor:parcel", false),
            ("predecessor:taken", false),
            ("predecessor:yours", false),
            ("predecessor:controller", false),
            ("predecessor:leaves", false),
            ("successor:still", false),
        ],
        |(at, kept)| kill_the_older(at, *kept),
    );
}
