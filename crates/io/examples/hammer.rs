//! A client with minimal overhead: it keeps `queue_depth` requests of protocol `reflex` version 1
//! in flight on each connection and counts the bytes of the replies without parsing them (except
//! for the first header of each connection). It has one thread, which spins.

#![allow(clippy::disallowed_methods, reason = "a load generator reads the clock")]

#[path = "yardstick/mod.rs"]
mod yardstick;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::event::{Timespec, epoll};
use rustix::net::{RecvFlags, SendFlags};
use yardstick::{HEAD_BYTES, Op, SECTOR_BYTES, SocketOptions};

/// Keeps requests in flight and counts replies.
#[derive(Parser)]
struct Options {
    /// The server.
    #[arg(default_value = "127.0.0.1:7421")]
    server: SocketAddr,
    /// The kind of the requests.
    #[arg(long, value_enum, default_value = "read")]
    op: Op,
    /// Bytes of data of each request.
    #[arg(long, default_value_t = 1024)]
    block_size: usize,
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Requests in flight on each connection.
    #[arg(long, default_value_t = 1)]
    queue_depth: usize,
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Copy the replies out of the kernel, as real clients do, instead of discarding them there.
    #[arg(long)]
    copy: bool,
    /// The core to stay on.
    #[arg(long)]
    cpu: Option<usize>,
    #[command(flatten)]
    socket: SocketOptions,
}

struct Connection {
    stream: TcpStream,
    /// Received bytes of the reply that is incomplete.
    partial: usize,
    /// Bytes of requests that the socket has not accepted.
    unsent: usize,
}

struct Load {
    connections: Vec<Connection>,
    requests: Vec<u8>,
    request_bytes: usize,
    reply_bytes: usize,
    inbox: Vec<u8>,
    receive: RecvFlags,
}

fn main() -> std::io::Result<()> {
    let options = Options::parse();
    yardstick::pin(options.cpu)?;
    let data = options.block_size;
    let is_read = options.op == Op::Read;
    let sectors = (data / SECTOR_BYTES) as u32;
    let mut request = yardstick::head(options.op, 1, 0, sectors).to_vec();
    request.resize(HEAD_BYTES + if is_read { 0 } else { data }, 0);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut load = Load {
        connections: Vec::new(),
        requests: request.repeat(options.queue_depth),
        request_bytes: request.len(),
        reply_bytes: HEAD_BYTES + if is_read { data } else { 0 },
        inbox: vec![0; 1 << 20],
        receive: if options.copy { RecvFlags::empty() } else { RecvFlags::TRUNC },
    };
    for index in 0..options.connections {
        load.connect(&options, index as u64)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        let name = epoll::EventData::new_u64(index as u64);
        epoll::add(&epoll, &load.connections[index].stream, name, flags)?;
    }
    for index in 0..options.connections {
        load.connections[index].unsent = load.requests.len();
        load.send(index)?;
    }
    let (seconds, count) = load.run(&epoll, Duration::from_secs_f64(options.seconds))?;
    let rate = count as f64 / seconds;
    let in_flight = (options.connections * options.queue_depth) as f64;
    println!("requests_per_s {rate:.0} mean_us {:.2}", in_flight / rate * 1e6);
    Ok(())
}

impl Load {
    /// Opens a connection and checks that the server's first reply is for this client.
    fn connect(&mut self, options: &Options, index: u64) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(options.server)?;
        options.socket.apply(&stream)?;
        let handle = 0x0102_0304_0506_0700 + index;
        let sectors = (options.block_size / SECTOR_BYTES) as u32;
        let mut request = yardstick::head(options.op, handle, index, sectors).to_vec();
        request.resize(self.request_bytes, 0);
        stream.write_all(&request)?;
        let mut reply = vec![0; self.reply_bytes];
        stream.read_exact(&mut reply)?;
        let acknowledged = if options.op == Op::Read { sectors } else { 0 };
        let expected = yardstick::head(options.op, handle, index, acknowledged);
        assert!(reply[..HEAD_BYTES] == expected, "a reply to somebody else's request");
        stream.set_nonblocking(true)?;
        self.connections.push(Connection { stream, partial: 0, unsent: 0 });
        Ok(())
    }

    /// Runs the load for `time`. Returns the seconds and the number of replies behind the first
    /// fifth, which is for warming up.
    fn run(&mut self, epoll: impl rustix::fd::AsFd, time: Duration) -> std::io::Result<(f64, u64)> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1024);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let (begun, mut since, mut count, mut warm) = (Instant::now(), Instant::now(), 0, false);
        for turn in 0_u64.. {
            events.clear();
            epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&now))?;
            for event in &events {
                count += self.turn(event.data.u64() as usize)?;
            }
            if !turn.is_multiple_of(64) {
                continue;
            }
            if !warm && begun.elapsed() > time / 5 {
                (warm, count, since) = (true, 0, Instant::now());
            }
            if begun.elapsed() > time {
                break;
            }
        }
        Ok((since.elapsed().as_secs_f64(), count))
    }

    /// Receives replies on connection `index` and sends as many new requests. Returns the number of
    /// replies that became complete.
    fn turn(&mut self, index: usize) -> std::io::Result<u64> {
        let connection = &mut self.connections[index];
        let mut count = 0;
        loop {
            match rustix::net::recv(&connection.stream, &mut self.inbox[..], self.receive) {
                Ok((_, 0)) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok((_, len)) => {
                    connection.partial += len;
                    count += connection.partial / self.reply_bytes;
                    connection.partial %= self.reply_bytes;
                    if len < self.inbox.len() {
                        break;
                    }
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        connection.unsent += count * self.request_bytes;
        self.send(index)?;
        Ok(count as u64)
    }

    fn send(&mut self, index: usize) -> std::io::Result<()> {
        let connection = &mut self.connections[index];
        while connection.unsent > 0 {
            // Requests are alike, so the end of the buffer begins wherever the last send stopped.
            let rest = &self.requests[self.requests.len() - connection.unsent..];
            match rustix::net::send(&connection.stream, rest, SendFlags::NOSIGNAL) {
                Ok(len) => connection.unsent -= len,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
