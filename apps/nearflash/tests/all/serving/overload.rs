//! Tests of overload: too many connections, too many requests, and silent clients. The server stays
//! within its bounds and goes on serving all others.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::v1_head as head;
use crate::support::{Launch, PATIENCE, PoliteClient, Server, V1, V2, now};
use contract::{Command, Range};

fn server(limits: &str) -> Server {
    let device = "[[device]]\nname = \"m\"\nspec = \"mem:64MiB\"";
    Launch::config(&format!("{device}\n[limits]\n{limits}")).log("info").start()
}

/// Sends reads of `blocks` blocks and receives none of the replies. Stops when the server takes no
/// request for half a second, when it ends the connection, or after `most` requests.
fn pipeline_without_reading(v1: &mut V1, blocks: u32, most: u64) {
    v1.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    for handle in 1..=most {
        match v1.stream.write_all(&head(0, handle, 1024, blocks)) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return,
            // This thread was held up for longer than that.
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                return;
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// Checks that the server ends a client that never reads once the time limit has passed, uses
/// bounded memory, and goes on serving others.
fn a_client_that_never_reads(blocks: u32) {
    let server = server("stuck_seconds = 3");
    let polite = PoliteClient::start(server.address());
    let before = server.resident_kib();
    let mut rude = V1::connect(server.address());
    pipeline_without_reading(&mut rude, blocks, 200_000);
    let grown = server.resident_kib().saturating_sub(before);
    assert!(grown < 160 << 10, "{grown} KiB for one client");
    server.await_log("replies were not read for too long");
    // All that still comes is what was on its way.
    rude.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = vec![0; 1 << 20];
    while matches!(rude.stream.read(&mut rest), Ok(n) if n > 0) {}
    polite.dismiss();
}

#[test]
fn a_client_that_never_reads_replies_of_4_kib_is_ended() {
    a_client_that_never_reads(8);
}

#[test]
fn a_client_that_never_reads_replies_of_64_kib_is_ended() {
    a_client_that_never_reads(128);
}

#[test]
fn a_client_that_never_reads_replies_of_1_mib_is_ended() {
    a_client_that_never_reads(2048);
}

/// Checks that a client that needs only small buffers does not wait while other clients want more
/// large buffers than there are.
#[test]
fn clients_that_hold_all_large_buffers_do_not_hold_up_small_requests() {
    let server = server("stuck_seconds = 30");
    let polite = PoliteClient::start(server.address());
    let readers: Vec<V1> = (0..6)
        .map(|_| {
            let mut rude = V1::connect(server.address());
            (1..=100).for_each(|handle| rude.get(handle, 1024, 2048));
            rude
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    polite.is_served();
    drop(readers);
    // The same with payloads that do not come.
    let writers: Vec<V1> = (0..20)
        .map(|_| {
            let mut rude = V1::connect(server.address());
            rude.send(&head(1, 1, 1024, 2048));
            rude.send(&[1; 1000]);
            rude
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    polite.is_served();
    drop(writers);
    // Those who hold nothing get them when they are free again.
    let mut v2 = V2::connect(server.address());
    v2.write_blocks(4096, &vec![5; 1 << 20], false);
    polite.dismiss();
}

/// Checks that a busy writer is not taken for a stuck client. Acknowledgements of writes are heads
/// without data, and a client that reads them is not stuck, however busy it is when the server
/// looks.
#[test]
fn a_busy_writer_is_not_taken_for_a_stuck_one() {
    let server = server("stuck_seconds = 2");
    let mut v1 = V1::connect(server.address());
    let mut acknowledged = V1 { stream: v1.stream.try_clone().unwrap() };
    let message = [&head(1, 1, 0, 8)[..], &[7; 4096]].concat();
    let batch = message.repeat(16);
    let (sender, batches) = std::sync::mpsc::sync_channel(64);
    let writer = std::thread::spawn(move || {
        let end = now() + Duration::from_secs(6);
        while now() < end {
            v1.send(&batch);
            sender.send(()).expect("the acknowledgements are read");
        }
    });
    let expected = head(1, 1, 0, 0).repeat(16);
    for () in batches {
        assert_eq!(acknowledged.receive(16 * 24), expected);
    }
    writer.join().expect("the server took everything");
}

/// Checks that busy clients alone do not shorten the time limit for a message. The limit is shorter
/// if the worker is short of memory.
#[test]
fn a_slow_sender_is_not_cut_because_others_are_busy() {
    let server = server("stuck_seconds = 20");
    let address = server.address();
    let busy: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(move || {
                let mut v1 = V1::connect(address);
                let batch: Vec<u8> = (1..=256).flat_map(|n| head(0, n, 0, 1)).collect();
                let end = now() + Duration::from_secs(6);
                while now() < end {
                    v1.send(&batch);
                    v1.receive(256 * (24 + 512));
                }
            })
        })
        .collect();
    let mut slow = V1::connect(address);
    slow.send(&head(1, 1, 64, 8));
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(500));
        slow.send(&[5; 256]);
    }
    slow.send(&[5; 4096 - 2560]);
    slow.expect_written(1, 64);
    busy.into_iter().for_each(|client| client.join().unwrap());
}

#[test]
fn the_smallest_limits_slow_down_but_do_not_stop() {
    let limits = "unsent_of_connection = \"512\"\nin_flight_of_connection = 1\nin_flight = 2";
    let server = server(limits);
    let polite = PoliteClient::start(server.address());
    // More acknowledgements and data than the limits and the kernel's buffers hold.
    let mut v1 = V1::connect(server.address());
    let mut acknowledged = V1 { stream: v1.stream.try_clone().unwrap() };
    let writer = std::thread::spawn(move || {
        for _ in 0..2000 {
            v1.send(&[&head(1, 1, 256, 1)[..], &[7; 512], &head(0, 2, 256, 128)].concat());
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..2000 {
        acknowledged.expect_written(1, 256);
        acknowledged.expect_data(2, 256, 128);
    }
    writer.join().expect("the server took everything");
    polite.dismiss();
}

#[test]
fn ten_thousand_connections_opened_and_dropped_do_no_harm() {
    let server = server("stuck_seconds = 30");
    let polite = PoliteClient::start(server.address());
    let mut after_first = 0;
    for batch in 0..50 {
        let conns: Vec<TcpStream> = (0..200)
            .map(|n| {
                let mut stream = TcpStream::connect_timeout(&server.address(), PATIENCE).unwrap();
                if n % 2 == 0 {
                    stream.write_all(&head(0, 1, 0, 8)[..n % 25]).unwrap();
                }
                stream
            })
            .collect();
        for (n, stream) in conns.into_iter().enumerate() {
            // Every other one with a reset, so that the ports are free again at once.
            let v1 = V1 { stream };
            if n % 4 != 3 { v1.reset() } else { drop(v1) }
        }
        if batch == 4 {
            after_first = server.resident_kib();
        }
    }
    polite.is_served();
    // A page of each of the 4 096 receive buffers may have been touched for the first time: they
    // are shared, and there are no more of them.
    let shared = 4096 * 4;
    let grown = server.resident_kib().saturating_sub(after_first);
    assert!(grown < shared + (8 << 10), "{grown} KiB for connections that are gone");
    polite.dismiss();
}

#[test]
fn too_few_descriptors_leave_the_server_serving() {
    let server = Launch::device("mem:8MiB").descriptors(100).start();
    let polite = PoliteClient::start(server.address());
    let mut held: Vec<V1> = Vec::new();
    let mut refused = 0;
    for _ in 0..120 {
        let mut v1 = V1::connect(server.address());
        let served = v1.stream.write_all(&head(0, 1, 64, 1)).is_ok() && {
            let mut reply = [0; 24 + 512];
            v1.stream.read_exact(&mut reply).is_ok()
        };
        if served { held.push(v1) } else { refused += 1 }
    }
    assert!(held.len() >= 8 && refused > 0, "{} held, {refused} refused", held.len());
    server.await_log("connection refused");
    // Those it has go on being served, and places that become free are given again.
    for v1 in &mut held {
        v1.get(2, 64, 1);
        v1.expect_data(2, 64, 1);
    }
    held.truncate(2);
    crate::support::wait_until("a free place is given again", PATIENCE, || {
        let mut v1 = V1::connect(server.address());
        v1.stream.write_all(&head(0, 3, 64, 1)).is_ok()
            && v1.stream.read_exact(&mut [0; 24]).is_ok()
    });
    polite.dismiss();
}

#[test]
fn connections_are_spread_evenly_over_workers() {
    let mut server = Launch::device("mem:8MiB").with("--workers").with("2").log("info").start();
    let mut conns: Vec<V2> = (0..10).map(|_| V2::connect(server.address())).collect();
    for v2 in &mut conns {
        v2.read_blocks(0, 8);
    }
    server.terminate();
    for worker in [0, 1] {
        server.await_log(&format!("draining worker={worker} connections=5"));
    }
    drop(conns);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn an_idle_server_uses_no_processor_time() {
    let server = server("");
    let conns: Vec<V2> = (0..50).map(|_| V2::connect(server.address())).collect();
    std::thread::sleep(Duration::from_millis(500));
    let before = server.processor_time();
    std::thread::sleep(Duration::from_secs(3));
    let used = server.processor_time() - before;
    let most = Duration::from_millis(60); // 2 % of a core
    assert!(used <= most, "{used:?} in 3 s with {} idle connections", conns.len());
}

#[test]
fn an_idle_connection_costs_less_than_16_kib() {
    let server = server("");
    // What the shared pools take when they are used for the first time is not the connections'.
    let mut first = V2::connect(server.address());
    (0..64).for_each(|n| drop(first.read_blocks(n * 8, 8)));
    let before = server.resident_kib();
    let mut conns: Vec<V2> = (0..3000).map(|_| V2::connect(server.address())).collect();
    for v2 in conns.iter_mut().step_by(100) {
        v2.call(Command::Read(Range::new(0, 8)), &[]);
    }
    let grown = server.resident_kib().saturating_sub(before);
    let each = grown as f64 / conns.len() as f64;
    println!("{each:.2} KiB a connection");
    assert!(each <= 16.0, "{each:.1} KiB a connection");
}
