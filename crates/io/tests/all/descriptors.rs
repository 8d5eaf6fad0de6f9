//! A test with too few descriptors: new connections wait until there are some again, and old ones
//! are served meanwhile. It runs in a process of its own, because the limit holds for the whole
//! process.

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use contract::{ListenerId, NetEvent};
use nearflash_io::{
    Clock, EpollSockets, Listener, Network, Reactor, Sockets, SocketsConfig, TcpOptions,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The environment variable that is set in the process that runs the test.
const ALONE: &str = "NEARFLASH_DESCRIPTORS_ALONE";

#[test]
fn arrivals_wait_for_descriptors() {
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", "descriptors::arrivals_wait_for_descriptors", "--nocapture"]);
        let ran = alone.env(ALONE, "").output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    // At the start, because a ring keeps the limit that held when its accept was queued.
    let limit = Rlimit { current: Some(64), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    wait_for_descriptors::<Sockets>();
    wait_for_descriptors::<EpollSockets>();
}

fn wait_for_descriptors<N: Network>() {
    let reactor = N::Reactor::new().unwrap();
    let config = SocketsConfig {
        connections_max: 16,
        receive_buffers: 8,
        receive_buffer_bytes: 4096,
        frames_max: 16,
        ..SocketsConfig::default()
    };
    let mut sockets = N::new(&reactor, config).unwrap();
    let clock = Clock::start();
    let options = TcpOptions::default();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let address = listener.endpoint().internet().expect("a port");
    sockets.listen(ListenerId(0), listener).unwrap();
    // Turns for so long at least, and until so many connections have opened and bytes come; how many
    // did, and in how many turns.
    let mut turn_for = |time: Duration, expected: (usize, usize)| {
        let (end, patience) = (clock.now() + time, clock.now() + Duration::from_secs(60));
        let (mut opened, mut bytes, mut turns) = (0, 0, 0);
        let is_over = |came| match came >= expected {
            true => clock.now() >= end,
            false => clock.now() >= patience,
        };
        while !is_over((opened, bytes)) {
            let mut events = Vec::new();
            sockets.poll(clock.now(), &mut events, 64);
            for event in events {
                match event {
                    NetEvent::Opened { .. } => opened += 1,
                    NetEvent::Received { buf, len, .. } => {
                        bytes += len;
                        sockets.give(buf);
                    }
                    other => panic!("{other:?}"),
                }
            }
            sockets.kick(clock.now());
            let latest = clock.now() + Duration::from_millis(50);
            let due = sockets.wake_at().map_or(latest, |at| at.min(latest));
            reactor.enter(Some(Some(due.since(clock.now()))));
            turns += 1;
        }
        (opened, bytes, turns)
    };
    let mut first = TcpStream::connect(address).unwrap();
    assert_eq!(turn_for(Duration::ZERO, (1, 0)).0, 1);
    // These wait in the kernel; then there is no descriptor for them.
    let _more: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    first.write_all(b"hello").unwrap();
    let starved = turn_for(Duration::from_millis(350), (0, 5));
    drop(hoard);
    assert_eq!((starved.0, starved.1), (0, 5), "nobody new, and the old one is served");
    // Epoll spins for the last part of a millisecond before each of the tries; a loop that never
    // slept would take a million turns.
    assert!(starved.2 < 100_000, "{} turns: it looked again and again", starved.2);
    assert_eq!(turn_for(Duration::ZERO, (3, 0)).0, 3, "now they come");
}
