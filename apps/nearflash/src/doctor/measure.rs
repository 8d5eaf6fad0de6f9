//! What this machine does when it is asked, in a fraction of a second each: the parts of a remote
//! read's latency that no setting shows.
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use super::{Finding, Grade};

/// Samples of each latency.
const SAMPLES: usize = 1000;

/// Bytes of each copy: more than caches hold.
const COPY_BYTES: usize = 64 << 20;

pub(crate) fn all() -> Result<Vec<Finding>, String> {
    let failed = |error: std::io::Error| format!("cannot measure loopback: {error}");
    Ok(vec![wake_up(), round_trip().map_err(failed)?, timer(), copying()])
}

/// How long a sleeping thread takes to see what another one sent it.
fn wake_up() -> Finding {
    let (send, receive) = sync_channel::<Instant>(0);
    let sleeper = thread::spawn(move || receive.iter().map(|sent| sent.elapsed()).collect());
    for _ in 0..SAMPLES / 4 {
        thread::sleep(Duration::from_micros(200));
        if send.send(Instant::now()).is_err() {
            break;
        }
    }
    drop(send);
    let waits: Vec<Duration> = sleeper.join().expect("it only receives");
    let (median, p95) = summary(waits);
    graded(
        Finding::good("wake-up of a thread", format!("{median} µs, 95 % within {p95} µs")),
        p95 > 100,
        "a worker that sleeps answers that much later: let it spin longer (serve --spin), and keep \
         deep idle states off",
    )
}

/// How long 64 bytes take there and back over loopback, between threads that block.
fn round_trip() -> std::io::Result<Finding> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    }
    let echo = thread::spawn(move || {
        let mut bytes = [0; 64];
        while server.read_exact(&mut bytes).and_then(|()| server.write_all(&bytes)).is_ok() {}
    });
    let mut bytes = [7; 64];
    let mut times = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let start = Instant::now();
        client.write_all(&bytes)?;
        client.read_exact(&mut bytes)?;
        times.push(start.elapsed());
    }
    drop(client);
    echo.join().expect("it only echoes");
    let (median, p95) = summary(times);
    Ok(Finding::good("loopback round trip", format!("{median} µs, 95 % within {p95} µs")))
}

/// How much too late a thread wakes that asked for 100 µs.
fn timer() -> Finding {
    const ASKED: Duration = Duration::from_micros(100);
    let late = (0..SAMPLES / 4).map(|_| {
        let start = Instant::now();
        thread::sleep(ASKED);
        start.elapsed().saturating_sub(ASKED)
    });
    let (median, p95) = summary(late.collect());
    graded(
        Finding::good("timers", format!("{median} µs late, 95 % within {p95} µs")),
        p95 > 200,
        "rounds of the scheduler start that much late while a worker sleeps: let it spin longer",
    )
}

fn copying() -> Finding {
    let source = vec![1_u8; COPY_BYTES];
    let mut target = vec![0_u8; COPY_BYTES];
    let start = Instant::now();
    const TIMES: usize = 4;
    for _ in 0..TIMES {
        target.copy_from_slice(&source);
        std::hint::black_box(&mut target);
    }
    let rate = (TIMES * COPY_BYTES) as f64 / start.elapsed().as_secs_f64() / 1e9;
    Finding::good("memory copies", format!("{rate:.1} GB/s on one core"))
}

fn graded(finding: Finding, poor: bool, advice: &str) -> Finding {
    if poor { finding.graded(Grade::Advice, advice) } else { finding }
}

/// Median and 95th percentile in whole microseconds.
fn summary(mut times: Vec<Duration>) -> (u128, u128) {
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).map_or(0, Duration::as_micros);
    (at(50), at(95))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_measured() {
        let findings = all().unwrap();
        assert_eq!(findings.len(), 4);
        assert!(findings.iter().all(|finding| finding.found.contains(' ')));
    }

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times = (0..100).rev().map(Duration::from_micros).collect();
        assert_eq!(summary(times), (50, 95));
        assert_eq!(summary(Vec::new()), (0, 0));
    }
}
