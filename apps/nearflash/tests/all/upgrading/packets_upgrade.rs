//! Tests of take-overs and restarts of servers that receive packets: clients connect again to the
//! successor, and repeat unanswered requests (docs/adr/0003-fences.md).

use std::net::SocketAddr;
use std::process::Child;

use crate::support::{
    Launch, Operator, PATIENCE, Server, ServerFolder, faultless, verifying, wait_until,
};
use nearflash::{Options, blocking::Client};

/// Returns a server that receives packets over UDP at this address. It is not started.
fn launch(place: &ServerFolder, at: SocketAddr, workers: &str) -> Launch {
    let (device, url, admin) = (place.file("device"), format!("reflex+udp://{at}"), place.admin());
    let words = ["--device", &device, "--listen", &url, "--workers", workers, "--admin", &admin];
    Launch::new(&words).with("--interface").with("io_uring")
}

/// Starts a verifying load, and waits until its connections carry requests.
fn load(place: &ServerFolder, server: &Server) -> Child {
    let url = format!("reflex+udp://{}", server.address());
    let load = verifying(&url, "--connections 8 --queue-depth 8");
    await_load(place);
    load
}

/// Waits until all eight connections of the load carry requests, at the old server or the new one.
fn await_load(place: &ServerFolder) {
    place.await_peers(8, 8);
}

fn free() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[test]
fn clients_over_packets_connect_to_the_successor_and_repeat() {
    let place = ServerFolder::in_memory();
    let mut server = launch(&place, free(), "2").start();
    let load = load(&place, &server);
    // The successors have more sockets than their predecessor had, and fewer.
    for workers in ["3", "1", "2"] {
        let newer = launch(&place, free(), workers).with("--upgrade").start();
        assert_eq!(newer.address(), server.address());
        assert!(server.wait().success(), "the older one ends in order");
        await_load(&place);
        server = newer;
    }
    faultless(load);
}

#[test]
fn sealed_clients_find_the_successor_and_the_next_after_a_kill() {
    let place = ServerFolder::in_memory();
    let key = place.key_file("packet.key", "5c");
    let (device, admin) = (place.file("device"), place.admin());
    let launch = |at: SocketAddr| {
        let url = format!("reflex+udp://{at}?key={key}");
        let words = ["--device", &device, "--listen", &url, "--workers", "2", "--admin", &admin];
        Launch::new(&words).with("--interface").with("io_uring")
    };
    let mut first = launch(free()).start();
    let at = first.address();
    let load =
        verifying(&format!("reflex+udp://{at}?key={key}"), "--connections 8 --queue-depth 8");
    await_load(&place);
    let mut second = launch(free()).with("--upgrade").start();
    assert!(first.wait().success());
    await_load(&place);
    second.kill();
    let _third = launch(at).start();
    wait_until("the load at the next server", PATIENCE, || place.peers().len() == 8);
    await_load(&place);
    faultless(load);
}

#[test]
fn an_idle_client_over_packets_finds_the_successor() {
    let place = ServerFolder::in_memory();
    let mut server = launch(&place, free(), "2").start();
    let url = format!("reflex+udp://{}", server.address());
    let client = Client::connect(&url, Options::default()).unwrap();
    let data = vec![7; 1 << 20];
    client.write(8, &data).unwrap();
    let _newer = launch(&place, free(), "2").with("--upgrade").start();
    assert!(server.wait().success());
    assert!(client.read(8, data.len()).unwrap() == data);
}

#[test]
fn a_killed_servers_clients_over_packets_find_the_next() {
    let place = ServerFolder::in_memory();
    let mut server = launch(&place, free(), "2").start();
    let at = server.address();
    let load = load(&place, &server);
    server.kill();
    let _next = launch(&place, at, "2").start();
    wait_until("the load at the next server", PATIENCE, || place.peers().len() == 8);
    await_load(&place);
    faultless(load);
}
