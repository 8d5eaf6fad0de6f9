//! The best that kernel TCP can do: a responder that does nothing else.
//!
//! The responder parses nothing but the length of requests, which is the same for all and known
//! from the options. It answers each from one fixed buffer behind a header that repeats the
//! request's own (for reads: the very 24 bytes that came; for writes: with a length of zero), so
//! that any client of protocol `reflex` version 1 can drive it. All replies that are ready for a
//! connection leave in one system call. It has one thread, which spins, and no checks, no storage
//! and no fairness: it is a yardstick.

// UNSAFETY: vectors of pointers for sendmsg, and the rings of io_uring.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a yardstick reads the clock for its own report")]

mod epoll;
mod outbox;
mod report;
mod ring;
#[path = "../yardstick/mod.rs"]
mod yardstick;

use std::net::SocketAddr;

use clap::{Parser, ValueEnum};
use yardstick::{HEAD_BYTES, Op, SocketOptions};

/// The way to ask the kernel for events.
#[derive(Clone, Copy, ValueEnum)]
enum Interface {
    Epoll,
    IoUring,
}

/// A responder that answers every request of a known length from a fixed buffer.
#[derive(Parser)]
struct Options {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:7421")]
    listen: SocketAddr,
    /// The way to ask the kernel for events.
    #[arg(long, value_enum, default_value = "epoll")]
    interface: Interface,
    /// The kind of the requests.
    #[arg(long, value_enum, default_value = "read")]
    op: Op,
    /// Bytes of data of each request.
    #[arg(long, default_value_t = 1024)]
    block_size: usize,
    /// The most bytes in one send; 0 sends all there is (up to 512 replies).
    #[arg(long, default_value_t = 0)]
    send_cap: usize,
    /// The core to stay on.
    #[arg(long)]
    cpu: Option<usize>,
    /// Sleep while there is nothing to do.
    #[arg(long)]
    park: bool,
    #[command(flatten)]
    socket: SocketOptions,
}

impl Options {
    fn request_bytes(&self) -> usize {
        HEAD_BYTES + if self.op == Op::Write { self.block_size } else { 0 }
    }

    /// Returns the bytes of a reply behind its header.
    fn body_bytes(&self) -> usize {
        if self.op == Op::Read { self.block_size } else { 0 }
    }

    fn send_cap(&self) -> usize {
        if self.send_cap == 0 { usize::MAX } else { self.send_cap }
    }
}

fn main() -> std::io::Result<()> {
    let options = Options::parse();
    yardstick::pin(options.cpu)?;
    let listener = yardstick::listen(options.listen, &options.socket)?;
    match options.interface {
        Interface::Epoll => epoll::serve(&options, listener),
        Interface::IoUring => ring::serve(&options, listener),
    }
}
