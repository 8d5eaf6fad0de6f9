//! Measurements of the parts of a remote read's latency that no setting of a machine shows. Each
//! takes a fraction of a second.
#![allow(clippy::disallowed_methods, reason = "the module measures time")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

/// The number of samples of a round trip; other latencies take a quarter as many.
const SAMPLES: usize = 1000;

/// Bytes of each copy of memory: more than caches hold.
const COPY_BYTES: usize = 64 << 20;

/// The distribution of a measured latency, in whole microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// Median of the measured delays, in microseconds.
    pub median_us: u128,
    /// The 95th percentile of the measured delays, in microseconds.
    pub p95_us: u128,
}

impl Latencies {
    fn of(mut times: Vec<Duration>) -> Latencies {
        times.sort_unstable();
        let at =
            |percent: usize| times.get(times.len() * percent / 100).map_or(0, Duration::as_micros);
        Latencies { median_us: at(50), p95_us: at(95) }
    }
}

/// Measures the delay from a message of one thread until a second, sleeping thread receives the
/// message.
///
/// # Panics
/// Panics if no thread can be started.
pub fn wake_up() -> Latencies {
    let (send, receive) = sync_channel::<Instant>(0);
    let sleeper = thread::spawn(move || receive.iter().map(|sent| sent.elapsed()).collect());
    for _ in 0..SAMPLES / 4 {
        thread::sleep(Duration::from_micros(200));
        if send.send(Instant::now()).is_err() {
            break;
        }
    }
    drop(send);
    Latencies::of(sleeper.join().expect("it only receives"))
}

/// Measures the round trip of 64 bytes over a TCP connection of loopback, between threads that
/// block.
///
/// # Errors
/// Returns the error of a socket that cannot be opened, connected or used, or that stays silent.
///
/// # Panics
/// Panics if no thread can be started.
pub fn round_trip() -> std::io::Result<Latencies> {
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
    Ok(Latencies::of(times))
}

/// Measures by how much a thread wakes too late from a sleep of 100 µs.
pub fn timer() -> Latencies {
    const ASKED: Duration = Duration::from_micros(100);
    let late = (0..SAMPLES / 4).map(|_| {
        let start = Instant::now();
        thread::sleep(ASKED);
        start.elapsed().saturating_sub(ASKED)
    });
    Latencies::of(late.collect())
}

/// Measures the speed of copies of memory on one core, in gigabytes (10⁹ bytes) a second.
pub fn copying() -> f64 {
    let source = vec![1_u8; COPY_BYTES];
    let mut target = vec![0_u8; COPY_BYTES];
    let start = Instant::now();
    const TIMES: usize = 4;
    for _ in 0..TIMES {
        target.copy_from_slice(&source);
        std::hint::black_box(&mut target);
    }
    (TIMES * COPY_BYTES) as f64 / start.elapsed().as_secs_f64() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let of = |median_us, p95_us| Latencies { median_us, p95_us };
        let times = (0..100).rev().map(Duration::from_micros).collect();
        assert_eq!(Latencies::of(times), of(50, 95));
        assert_eq!(Latencies::of(Vec::new()), of(0, 0));
    }
}
