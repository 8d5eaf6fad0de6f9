//! Helpers of the end-to-end tests: the real program as a child process, clients of both versions
//! over plain sockets, and a polite client that must be served well whatever else goes on.
//!
//! Every wait is bounded, and every child is ended by its id. With
//! `NEARFLASH_TEST_INTERFACE=epoll`, the servers use epoll instead of io_uring.
#![allow(dead_code, unused_imports, reason = "each test program uses its part")]
#![allow(unreachable_pub, reason = "nothing reaches out of a test program")]

mod browser;
mod dice;
mod load;
mod nbd;
mod nvme;
mod operator;
mod operators;
mod place;
mod polite;
mod process;
mod server;
mod v1;
mod v2;

pub(crate) use browser::Browser;
pub(crate) use dice::{Rng, kills};
pub(crate) use load::{
    await_load, faultless, loading, long_enough, parsed, refusal, result, survive_a_kill, verify,
    verifying,
};
pub(crate) use nbd::Nbd;
pub(crate) use nvme::{NvmeQueue, host_nqn, words};
pub(crate) use operator::{Operator, complaint, nearflash};
pub(crate) use operators::{ANN, BOB, OperatorFiles};
pub(crate) use place::{
    RunningServer, SUBSYSTEM, ServerFolder, open_folder, subsystem, write_with,
};
pub(crate) use polite::PoliteClient;
pub(crate) use process::KilledOnDrop;
pub(crate) use server::{Launch, Server, StartingServer};
pub(crate) use v1::{V1, head as v1_head};
pub(crate) use v2::{Answer, V2};

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Time limit for waiting for anything that works, on a very busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a port of loopback at which nobody listens. The kernel never gives such a port to a
/// socket that asks for any port. So no other test gets the port between two servers of this one,
/// and a test that probes it cannot connect to itself.
pub(crate) fn free_port() -> SocketAddr {
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 20_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = (std::process::id() % 400) as u16 * 50;
    loop {
        let place = own.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let address = SocketAddr::from(([127, 0, 0, 1], FIRST + place));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Returns the time of the wall clock.
#[allow(clippy::disallowed_methods, reason = "these tests watch a real program in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until `done` returns `true`. Fails the test if that takes longer than `limit`.
pub(crate) fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let end = now() + limit;
    while !done() {
        assert!(now() < end, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs `case` for each of the cases, `side_by_side` of them at the same time, since most of a case
/// is waiting.
pub(crate) fn each<C: Sync>(side_by_side: usize, cases: &[C], case: impl Fn(&C) + Sync) {
    for some in cases.chunks(side_by_side) {
        std::thread::scope(|scope| {
            for one in some {
                scope.spawn(|| case(one));
            }
        });
    }
}

/// Returns `count` blocks of 512 bytes from block `lba` on, each of which contains its address and
/// the version.
pub(crate) fn pattern(lba: u64, count: u32, version: u8) -> Vec<u8> {
    let block = |lba: u64| {
        let mut bytes = vec![version; 512];
        bytes[..8].copy_from_slice(&lba.to_le_bytes());
        bytes
    };
    (lba..lba + u64::from(count)).flat_map(block).collect()
}

/// The model of a device with 4 000 tokens a second at 500 µs, 6 000 at 2 ms and 8 000 at most; a
/// write costs ten tokens.
pub(crate) const SLOW_MODEL: &str = r#"
format = 1
device = "a slow one"
measured = "never"

[prices]
write = 10
read_only_read = 1

[rates]
max = 8000
p95 = [
    { latency_us = 500, mixed = 4000, read_only = 4000 },
    { latency_us = 2000, mixed = 6000, read_only = 6000 },
]
"#;
