//! Tests of connections that move between the workers of a running server. A load that verifies its
//! reads notices nothing but pauses.

use crate::support::{
    Launch, PATIENCE, Server, ServerFolder, V1, V2, await_load, faultless, loading, now, pattern,
    v1_head, verifying, wait_until,
};
use control::admin::{Client, ClientError, Code, WorkerState};

const SUBSYSTEM: &str = "nqn.2026-11.io.nearflash:tests";

/// The number of moves during one load. `cargo xtask bench ops` measures how long moves pause a
/// connection.
const MOVES: usize = 60;

trait Servers {
    fn start(&self) -> Server;
    /// Starts the server with a subsystem and a listener for NVMe hosts alone.
    fn start_nvme(&self) -> Server;
}

impl Servers for ServerFolder {
    fn start(&self) -> Server {
        self.crewed(Launch::device("mem:16MiB")).start()
    }

    fn start_nvme(&self) -> Server {
        let text = format!(
            "[[device]]\nname = \"mem\"\nspec = \"mem:16MiB\"\n\
             [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n\
             [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n"
        );
        self.crewed(Launch::config(&text)).start()
    }
}

/// Moves all connections to the other worker and back, until `moves` moves have succeeded.
fn move_all(client: &mut Client, moves: usize) {
    let (mut moved, end) = (0, now() + PATIENCE);
    while moved < moves {
        assert!(now() < end, "only {moved} moves");
        for connection in client.connections().unwrap().connections {
            match client.move_connection(&connection.id, 1 - connection.worker) {
                Ok(there) => {
                    assert_eq!(there.worker, 1 - connection.worker);
                    moved += 1;
                }
                // What looked around at first may have ended meanwhile, or the machine be too slow
                // for a while.
                Err(ClientError::Refused(problem)) => {
                    let known = matches!(problem.code, Code::NoConnection | Code::InUse);
                    assert!(known, "{problem:?}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// Moves all connections of a verifying load to the other worker and back, and checks that the load
/// has no error.
fn load_and_move(place: &ServerFolder, url: &str, words: &str) {
    let bench = verifying(url, words);
    await_load(&place.socket());
    move_all(&mut place.client(), MOVES);
    let result = faultless(bench);
    for side in ["read", "write"] {
        assert!(result[side]["count"].as_u64().unwrap() > 0, "{words}: {result}");
    }
}

#[test]
fn a_verifying_load_notices_nothing_but_pauses() {
    for words in [
        " --connections 4 --queue-depth 16",
        " --connections 2 --queue-depth 4 --block-size 64KiB --checksums",
        "?v=1 --connections 2 --queue-depth 32",
    ] {
        let place = ServerFolder::new();
        let server = place.start();
        let (target, words) = words.split_once(' ').unwrap_or((words, ""));
        load_and_move(&place, &format!("reflex://{}{target}", server.address()), words);
    }
}

#[test]
fn an_nvme_host_notices_nothing_but_pauses_on_its_admin_queue_and_the_others() {
    for (query, words) in [
        ("", "--connections 3 --queue-depth 8"),
        ("?in_capsule=false", "--connections 2 --queue-depth 16 --block-size 64KiB"),
        ("?digests=both", "--connections 2 --queue-depth 4 --block-size 16KiB"),
    ] {
        let place = ServerFolder::new();
        let server = place.start_nvme();
        let url = format!("nvme-tcp://{}/{SUBSYSTEM}{query}", server.address());
        load_and_move(&place, &url, words);
    }
}

#[test]
fn a_worker_with_nvme_hosts_is_retired_under_load() {
    let place = ServerFolder::new().of_workers("1..2");
    let server = place.start_nvme();
    let mut client = place.client();
    let of_each = |client: &mut Client| -> Vec<usize> {
        client.workers().unwrap().workers.iter().map(|worker| worker.connections).collect()
    };
    let url = format!("nvme-tcp://{}/{SUBSYSTEM}", server.address());
    let bench = verifying(&url, "--connections 5 --queue-depth 8");
    wait_until("all queues", PATIENCE, || of_each(&mut client) == [6, 0]);
    client.set_worker(1, WorkerState::Active).unwrap();
    wait_until("half of them", PATIENCE, || of_each(&mut client) == [3, 3]);
    client.set_worker(1, WorkerState::Parked).unwrap();
    wait_until("all of them", PATIENCE, || of_each(&mut client)[1] == 0);
    let is_parked =
        |client: &mut Client| client.workers().unwrap().workers[1].state == WorkerState::Parked;
    wait_until("a worker that rests", PATIENCE, || is_parked(&mut client));
    faultless(bench);
}

/// Checks that a server with `--workers 1..2` adds its second worker for a load, and retires it
/// after the load.
#[test]
#[ignore = "full: a load is one only where the machine has processors for it"]
fn a_worker_is_added_for_a_load_and_retired_behind_it() {
    let place = ServerFolder::new().of_workers("1..2");
    let server = place.start();
    let url = format!("reflex://{}", server.address());
    let mut client = place.client();
    let mut second = || {
        let worker = client.workers().unwrap().workers.swap_remove(1);
        (worker.state, worker.connections)
    };
    assert_eq!(second().0, WorkerState::Parked);
    // One verifies; others only read.
    let reading = || loading(&url, "--connections 4 --queue-depth 32");
    let loads = [verifying(&url, "--connections 8 --queue-depth 32"), reading(), reading()];
    wait_until("a second worker for the load", 3 * PATIENCE, || {
        let (state, connections) = second();
        state == WorkerState::Active && connections > 0
    });
    loads.into_iter().for_each(|load| drop(faultless(load)));
    let light = verifying(&url, "--connections 4 --queue-depth 1 --rate 200");
    wait_until("its part of the connections", PATIENCE, || second().1 > 0);
    wait_until("a worker that rests", 2 * PATIENCE, || second() == (WorkerState::Parked, 0));
    faultless(light);
}

#[test]
fn half_a_message_moves_along() {
    let place = ServerFolder::new();
    let server = place.start();
    let mut client = place.client();
    let other = |client: &mut Client| {
        let of = &client.connections().unwrap().connections[0];
        let moved = client.move_connection(&of.id, 1 - of.worker).unwrap();
        assert_eq!(client.connections().unwrap().connections[0].id, moved.id);
    };
    let mut v1 = V1::connect(server.address());
    wait_until("the connection", PATIENCE, || client.connections().unwrap().connections.len() == 1);
    let payload = pattern(0, 8, 3);
    let whole = [&v1_head(1, 7, 0, 8)[..], &payload[..], &v1_head(0, 8, 0, 8)[..]].concat();
    for piece in whole.chunks(700) {
        v1.send(piece);
        other(&mut client);
    }
    v1.expect_written(7, 0);
    assert_eq!(v1.expect_data(8, 0, 8), payload);
}

#[test]
fn workers_are_added_and_retired_under_load() {
    let place = ServerFolder::new().of_workers("1..2");
    let server = place.start();
    let mut client = place.client();
    let state = |client: &mut Client| client.workers().unwrap().workers[1].state;
    let of_each = |client: &mut Client| -> Vec<usize> {
        client.workers().unwrap().workers.iter().map(|worker| worker.connections).collect()
    };
    assert_eq!(state(&mut client), WorkerState::Parked);
    let mut clients: Vec<V2> =
        (0..6).map(|_| V2::hello(server.address(), Default::default()).unwrap()).collect();
    assert_eq!(of_each(&mut client), [6, 0], "nobody goes where a worker rests");
    client.set_worker(1, WorkerState::Active).unwrap();
    wait_until("half of them", PATIENCE, || of_each(&mut client) == [3, 3]);
    let read = contract::Command::Read(contract::Range::new(0, 8));
    clients.iter_mut().for_each(|v2| assert!(v2.call(read, &[]).0.is_ok()));
    client.set_worker(1, WorkerState::Parked).unwrap();
    wait_until("all of them", PATIENCE, || of_each(&mut client) == [6, 0]);
    wait_until("a worker that rests", PATIENCE, || state(&mut client) == WorkerState::Parked);
    clients.iter_mut().for_each(|v2| assert!(v2.call(read, &[]).0.is_ok()));
    let refused = client.set_worker(0, WorkerState::Parked).unwrap_err();
    assert!(refused.to_string().contains("listens"), "{refused}");
}
