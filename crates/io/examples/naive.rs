//! The server that one writes first: one event loop, one system call to receive a request, one for
//! its payload, one to the file, one to reply. It has no batches and no coalescing; the file is
//! read and written in the loop itself. It stands in for the paper's server of libaio and libevent,
//! and is kinder than that one: with the file on tmpfs nothing blocks and nothing has to be waited
//! for.
//!
//! With simulated flash in the place of the file, requests are started one by one and the loop goes on;
//! it sleeps until a socket or the flash has something, as it would on libaio's event descriptor.
//!
//! The server speaks protocol `reflex` version 1. Sectors behind the end of the file wrap around,
//! so that a small file can stand for a large device.

#[path = "yardstick/mod.rs"]
mod yardstick;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use clap::Parser;
use contract::{
    Buf, BufPool, Command, Completion, Device, Range, SizeClass, SlotTable, Submission,
};
use flash::sim_flash::{SimQueue, SimVolume};
use flash::{Source, Spec};
use nearflash_io::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use yardstick::{HEAD_BYTES, Head, Op, SECTOR_BYTES, SocketOptions};

/// The listener's user data in epoll's events. Events of connections carry their index.
const LISTENER: u64 = u64::MAX;

/// Sectors of the largest request, which is 1 MiB.
const SECTORS_MAX: usize = 2048;

/// A server without any batching.
#[derive(Parser)]
struct Options {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:7422")]
    listen: SocketAddr,
    /// The file to serve: made anew, and gone from its folder as soon as it is open.
    #[arg(long, default_value = "/dev/shm/nearflash-naive")]
    file: PathBuf,
    /// Bytes of the file.
    #[arg(long, default_value_t = 64 << 20)]
    size: u64,
    /// mem:SIZE for a file of this size, or simulated flash such as sim:a?size=64MiB
    #[arg(long)]
    device: Option<Spec>,
    /// The core to stay on.
    #[arg(long)]
    cpu: Option<usize>,
    #[command(flatten)]
    socket: SocketOptions,
}

struct Connection {
    stream: TcpStream,
    /// The request that is being received: its header, and its payload once the header is complete.
    input: Vec<u8>,
    /// Bytes of `input` that were received: `0 ≤ have ≤ input.len()`.
    have: usize,
    /// The rest of the last reply, which the socket has not accepted.
    output: Vec<u8>,
    /// `true` if the connection waits for room in the socket instead of a request.
    is_full: bool,
}

struct Server {
    options: Options,
    file: File,
    flash: Option<Flash>,
    listener: TcpListener,
    epoll: rustix::fd::OwnedFd,
    connections: Vec<Option<Connection>>,
}

fn main() -> std::io::Result<()> {
    let mut options = Options::parse();
    let flash = match options.device.as_ref().map(|spec| &spec.source) {
        None => None,
        Some(Source::Mem { bytes }) => {
            options.size = *bytes;
            None
        }
        Some(Source::Sim { preset, bytes, age, slow }) => {
            options.size = *bytes;
            let (model, blocks) = (preset.model().slowed(*slow), bytes / SECTOR_BYTES as u64);
            Some(Flash::new(&SimVolume::new(model, blocks, *age, 0)))
        }
        Some(_) => return Err(std::io::Error::other("--device takes mem: and sim: alone")),
    };
    yardstick::pin(options.cpu)?;
    // The flash's completions are timers here, and the default would make them up to 50 µs late.
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    let mut open = File::options();
    let file = open.read(true).write(true).create(true).truncate(true).open(&options.file)?;
    std::fs::remove_file(&options.file)?;
    file.set_len(options.size)?;
    let listener = yardstick::listen(options.listen, &options.socket)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let name = epoll::EventData::new_u64(LISTENER);
    epoll::add(&epoll, &listener, name, epoll::EventFlags::IN)?;
    let connections = Vec::new();
    Server { options, file, flash, listener, epoll, connections }.run()
}

impl Server {
    fn run(mut self) -> std::io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        loop {
            events.clear();
            let mut limit = self.flash.as_ref().and_then(Flash::wait_limit);
            if limit.is_some() {
                // Waits for milliseconds are not fine enough: this one is for nanoseconds.
                let mut watched = [PollFd::new(&self.epoll, PollFlags::IN)];
                rustix::event::poll(&mut watched, limit.as_ref())?;
                limit = Some(Timespec { tv_sec: 0, tv_nsec: 0 });
            }
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), limit.as_ref())?;
            for event in &events {
                let index = event.data.u64();
                if index == LISTENER {
                    self.accept()?;
                } else if self.step(index as usize).is_err() {
                    self.connections[index as usize] = None;
                }
            }
            while let Some((index, reply)) = self.flash.as_mut().and_then(Flash::ended) {
                if self.reply(index, reply).is_err() {
                    self.connections[index] = None;
                }
            }
        }
    }

    fn accept(&mut self) -> std::io::Result<()> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(true)?;
        self.options.socket.apply(&stream)?;
        let index = yardstick::vacant(&mut self.connections);
        let name = epoll::EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &stream, name, epoll::EventFlags::IN)?;
        let input = vec![0; HEAD_BYTES];
        let connection = Connection { stream, input, have: 0, output: Vec::new(), is_full: false };
        self.connections[index] = Some(connection);
        Ok(())
    }

    /// Handles an event of connection `index`: sends the rest of a reply, or serves one request.
    fn step(&mut self, index: usize) -> std::io::Result<()> {
        if self.flash.as_ref().is_some_and(|flash| !flash.has_room()) {
            return Ok(()); // The socket keeps what it has, and is found again.
        }
        let Some(connection) = &mut self.connections[index] else { return Ok(()) };
        if !connection.output.is_empty() {
            let reply = std::mem::take(&mut connection.output);
            return self.reply(index, reply);
        }
        if !connection.fill()? {
            return Ok(());
        }
        let mut head: Head = connection.input[..HEAD_BYTES].try_into().expect("a whole header");
        let sectors = u32::from_le_bytes(head[20..24].try_into().expect("four bytes")) as usize;
        let lba = u64::from_le_bytes(head[12..20].try_into().expect("eight bytes"));
        let data = sectors * SECTOR_BYTES;
        if head[..4] != [HEAD_BYTES as u8, 0, head[2] & 1, 0] || sectors > SECTORS_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        let offset = lba.wrapping_mul(SECTOR_BYTES as u64) % (self.options.size - data as u64 + 1);
        let range = Range::new(offset / SECTOR_BYTES as u64, sectors as u32);
        if head[2] == Op::Read as u8 {
            if let Some(flash) = &mut self.flash {
                connection.next_request();
                flash.start(index, head, Command::Read(range), &[]);
                return Ok(());
            }
            let mut reply = vec![0; HEAD_BYTES + data];
            reply[..HEAD_BYTES].copy_from_slice(&head);
            self.file.read_exact_at(&mut reply[HEAD_BYTES..], offset)?;
            connection.next_request();
            return self.reply(index, reply);
        }
        connection.input.resize(HEAD_BYTES + data, 0);
        if connection.fill()? {
            if let Some(flash) = &mut self.flash {
                let write = Command::Write { range, fua: false };
                flash.start(index, head, write, &connection.input[HEAD_BYTES..]);
                connection.next_request();
                return Ok(());
            }
            self.file.write_all_at(&connection.input[HEAD_BYTES..], offset)?;
            connection.next_request();
            head[20..24].fill(0);
            return self.reply(index, head.to_vec());
        }
        Ok(())
    }

    fn reply(&mut self, index: usize, mut reply: Vec<u8>) -> std::io::Result<()> {
        let Some(connection) = &mut self.connections[index] else { return Ok(()) };
        if !connection.output.is_empty() {
            connection.output.append(&mut reply);
            return Ok(());
        }
        let sent = match connection.stream.write(&reply) {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        reply.drain(..sent);
        connection.output = reply;
        // Further requests wait until this reply has left.
        let waits = !connection.output.is_empty();
        let flags = if waits { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        if waits != connection.is_full {
            let name = epoll::EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &connection.stream, name, flags)?;
        }
        connection.is_full = waits;
        Ok(())
    }
}

/// Simulated flash and its requests in flight. (Requests of a closed connection would be answered
/// to the next one in its place; here connections stay to the end.)
struct Flash {
    queue: SimQueue,
    slots: SlotTable<(usize, Head, Command)>,
    bufs: BufPool,
    done: Vec<Completion>,
    clock: Clock,
}

impl Flash {
    fn new(volume: &SimVolume) -> Flash {
        let bytes = SECTORS_MAX * SECTOR_BYTES;
        let sizes = [SizeClass { bytes: 4096, count: 1024 }, SizeClass { bytes, count: 16 }];
        let bufs = sizes.iter().flat_map(|size| (0..size.count).map(|_| size.bytes));
        let leak = |(n, bytes): (usize, usize)| {
            Buf::new(Box::leak(vec![0; bytes].into_boxed_slice()), n as u32)
        };
        Flash {
            queue: volume.open_queue(),
            slots: SlotTable::new(1024),
            bufs: BufPool::new(bufs.enumerate().map(leak)),
            done: Vec::new(),
            clock: Clock::start(),
        }
    }

    fn has_room(&self) -> bool {
        self.slots.room() > 0 && self.queue.room() > 0 && self.bufs.has(SECTORS_MAX * SECTOR_BYTES)
    }

    fn start(&mut self, index: usize, head: Head, command: Command, payload: &[u8]) {
        let slot = self.slots.insert((index, head, command)).expect("there is room");
        let mut buf = self.bufs.take(command.buffer_bytes()).expect("there is room");
        buf.prefix_mut(payload.len()).copy_from_slice(payload);
        let now = self.clock.now();
        self.queue.submit(now, Submission { slot, command, buf: Some(buf) });
        self.queue.kick(now);
    }

    /// Returns the index of a connection and the reply to a request of it that the flash has ended;
    /// `None` if none has ended.
    fn ended(&mut self) -> Option<(usize, Vec<u8>)> {
        if self.done.is_empty() {
            self.queue.poll(self.clock.now(), &mut self.done);
        }
        let Completion { slot, buf, .. } = self.done.pop()?;
        let (index, mut head, command) = self.slots.remove(slot);
        let buf = buf.expect("it had one");
        let bytes = command.reply_bytes();
        if bytes == 0 {
            head[20..24].fill(0);
        }
        let mut reply = head.to_vec();
        reply.extend_from_slice(&buf.bytes()[..bytes]);
        self.bufs.give(buf);
        Some((index, reply))
    }

    fn wait_limit(&self) -> Option<Timespec> {
        let left = self.queue.wake_at()?.since(self.clock.now());
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() })
    }
}

impl Connection {
    /// Receives once if `input` is not filled; returns whether it is filled now.
    fn fill(&mut self) -> std::io::Result<bool> {
        if self.have < self.input.len() {
            match self.stream.read(&mut self.input[self.have..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.have += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.have == self.input.len())
    }

    fn next_request(&mut self) {
        self.have = 0;
        self.input.truncate(HEAD_BYTES);
    }
}
