//! Peers over real sockets, in a process of their own. Each keeps its connection's requests in
//! flight, and sends the next ones when it has read the replies.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command};

use rustix::net::{AddressFamily, SocketType};

use crate::{address, hello, requests};

/// Bytes of the head of a reply, and of the body of the reply to a hello, in protocol version 2.
const REPLY_BYTES: usize = 24;
const HELLO_BODY_BYTES: usize = 24;

/// Starts this program again as the process of the peers.
pub(crate) fn start(server: SocketAddr, tenants: usize, requests: u64) -> Child {
    let own = std::env::current_exe().expect("a program");
    let mut command = Command::new(own);
    command.arg("peers").args([server.to_string(), tenants.to_string(), requests.to_string()]);
    command.spawn().expect("the peers start")
}

/// Sends at least `total` reads in all, `depth` at a time on each of `tenants` connections, each
/// batch when the previous one is answered.
pub(crate) fn run(server: &str, tenants: usize, depth: usize, total: u64) {
    io::raise_descriptor_limit();
    let server = server.parse().expect("the server's address");
    let mut peers: Vec<TcpStream> =
        (0..tenants as u32).map(|tenant| connect(tenant, server)).collect();
    let batch = requests(depth);
    let mut replies = vec![0; depth * (REPLY_BYTES + 4096)];
    for peer in &mut peers {
        peer.write_all(&hello()).expect("the server reads");
    }
    for peer in &mut peers {
        let reply = &mut replies[..REPLY_BYTES + HELLO_BODY_BYTES];
        peer.read_exact(reply).expect("the server answers");
    }
    for peer in &mut peers {
        peer.write_all(&batch).expect("the server reads");
    }
    let mut left = total.saturating_sub((tenants * depth) as u64);
    while left > 0 {
        for peer in &mut peers {
            peer.read_exact(&mut replies).expect("the server answers");
            if left > 0 {
                peer.write_all(&batch).expect("the server reads");
                left = left.saturating_sub(depth as u64);
            }
        }
    }
}

/// Connects to the server from the tenant's loopback address.
fn connect(tenant: u32, server: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    let socket = socket.expect("enough descriptors");
    let own = SocketAddr::new(address(tenant), 0);
    rustix::net::bind(&socket, &own).expect("all of 127.0.0.0/8 is ours");
    rustix::net::connect(&socket, &server).expect("the server listens");
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).expect("a TCP socket");
    stream
}
