//! Ports for servers that are killed and started again, and the connections that came to them.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a free port outside the kernel's ephemeral range, which connections cannot take while
/// the server that uses the port is being restarted.
pub(super) fn free_port() -> Result<u16, String> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16;
    for _ in 0..100 {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        let port = 20_000 + number;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err("no free port from 20000 to 29999".to_owned())
}

/// Returns the number of open connections that came to a port of this machine.
pub(super) fn connections_to(port: u16) -> Result<usize, String> {
    let text = std::fs::read_to_string("/proc/net/tcp").map_err(|error| error.to_string())?;
    let own = format!(":{port:04X}");
    let is_own = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next(), words.nth(1));
        // 01 is ESTABLISHED.
        local.is_some_and(|local| local.ends_with(&own)) && state == Some("01")
    };
    Ok(text.lines().filter(is_own).count())
}
