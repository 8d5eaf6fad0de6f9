//! Measures how much memory a server needs for an idle connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::process::{self, Server};

/// Opens `count` connections that each read one block and then are idle. Returns the server's
/// private memory for each of them, in bytes.
pub(crate) fn bytes_per_connection(server: &Server, count: usize) -> Result<f64, String> {
    let address = server.address.trim_start_matches("reflex://").to_owned();
    let failed = |error: std::io::Error| format!("connecting to {address}: {error}");
    // Open one connection first, so that the pools' first pages count for none of the others.
    let mut connections = Vec::with_capacity(count + 1);
    connections.push(served(&address).map_err(failed)?);
    let before = memory(server)?;
    for _ in 0..count {
        connections.push(served(&address).map_err(failed)?);
    }
    let after = memory(server)?;
    Ok(after.saturating_sub(before) as f64 / count as f64)
}

fn memory(server: &Server) -> Result<u64, String> {
    std::thread::sleep(Duration::from_millis(500));
    process::private_bytes(server.id()).ok_or("the server is gone".to_owned())
}

/// Opens a connection and reads one block of 512 bytes over it, in protocol version 1.
pub(crate) fn served(address: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut request = [0; 24];
    (request[0], request[4], request[20]) = (24, 1, 1);
    stream.write_all(&request)?;
    let mut reply = [0; 24 + 512];
    stream.read_exact(&mut reply)?;
    Ok(stream)
}
