//! Ports for servers that are killed and started again, and the connections that came to them.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a free port outside the kernel's ephemeral range, which connections cannot take while
/// the server that uses the port is being restarted.
pub(crate) fn free_port() -> Result<u16, String> {
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
    Ok(far_ends(port)?.len())
}

/// Returns the far ends of the open connections that came to a port of this machine.
pub(super) fn far_ends(port: u16) -> Result<BTreeSet<String>, String> {
    let text = std::fs::read_to_string("/proc/net/tcp").map_err(|error| error.to_string())?;
    let own = format!(":{port:04X}");
    let far_end = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, far, state) = (words.next()?, words.next()?, words.next()?);
        // 01 is ESTABLISHED.
        (local.ends_with(&own) && state == "01").then(|| far.to_owned())
    };
    Ok(text.lines().filter_map(far_end).collect())
}
