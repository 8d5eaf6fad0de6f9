//! The responder of this yardstick over epoll, with edge-triggered events.

// UNSAFETY: one system call takes a vector of pointers.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use rustix::event::{Timespec, epoll};
use rustix::net::RecvFlags;

use crate::Options;
use crate::outbox::Outbox;
use crate::report::Report;
use crate::yardstick::{Counter, vacant};

/// The listener's user data in epoll's events. Events of connections carry their index.
const LISTENER: u64 = u64::MAX;

/// Maximum number of bytes that one call receives from a socket.
const RECEIVE_BYTES: usize = 512 << 10;

struct Connection {
    stream: TcpStream,
    counter: Counter,
    outbox: Outbox,
    /// `true` if the socket accepts no more bytes for now; an event (`EPOLLOUT`) ends that.
    full: bool,
}

struct Server<'a> {
    options: &'a Options,
    listener: TcpListener,
    epoll: rustix::fd::OwnedFd,
    connections: Vec<Option<Connection>>,
    body: Vec<u8>,
    inbox: Vec<u8>,
}

/// Serves the listener's connections until the process is killed, or a system call fails.
pub(crate) fn serve(options: &Options, listener: TcpListener) -> std::io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let name = epoll::EventData::new_u64(LISTENER);
    epoll::add(&epoll, &listener, name, epoll::EventFlags::IN)?;
    let mut server = Server {
        options,
        listener,
        epoll,
        connections: Vec::new(),
        body: vec![0; options.body_bytes()],
        inbox: vec![0; RECEIVE_BYTES],
    };
    let empty = Vec::with_capacity(1);
    let mut report = {
        let (epoll, mut events) = (&server.epoll, empty);
        Report::new(|| wait(epoll, &mut events, false))?
    };
    let mut events = Vec::with_capacity(1024);
    loop {
        wait(&server.epoll, &mut events, options.park)?;
        let requests = server.turn(&mut events)?;
        report.turn(requests);
    }
}

fn wait(
    epoll: &rustix::fd::OwnedFd,
    events: &mut Vec<epoll::Event>,
    park: bool,
) -> std::io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let timeout = if park { None } else { Some(&now) };
    events.clear();
    epoll::wait(epoll, rustix::buffer::spare_capacity(events), timeout)?;
    Ok(())
}

impl Server<'_> {
    /// Receives the requests that `events` announce and answers them; returns their number.
    fn turn(&mut self, events: &mut Vec<epoll::Event>) -> std::io::Result<usize> {
        let mut requests = 0;
        for event in events.iter() {
            match event.data.u64() {
                LISTENER => self.accept()?,
                index => requests += self.receive(index as usize, event.flags),
            }
        }
        // A cap below what is ready lets the client begin with the first part.
        while !events.is_empty() {
            events.retain(|event| {
                let index = event.data.u64();
                index != LISTENER && self.send(index as usize)
            });
        }
        Ok(requests)
    }

    fn accept(&mut self) -> std::io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            self.options.socket.apply(&stream)?;
            let index = vacant(&mut self.connections);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(index as u64), flags)?;
            let counter = Counter::new(self.options.request_bytes());
            let outbox = Outbox::default();
            self.connections[index] = Some(Connection { stream, counter, outbox, full: false });
        }
        Ok(())
    }

    fn receive(&mut self, index: usize, flags: epoll::EventFlags) -> usize {
        let Some(connection) = &mut self.connections[index] else { return 0 };
        if flags.contains(epoll::EventFlags::OUT) {
            connection.full = false;
        }
        if !flags.contains(epoll::EventFlags::IN) {
            return 0;
        }
        let before = connection.outbox.ready.len();
        loop {
            match rustix::net::recv(&connection.stream, &mut self.inbox[..], RecvFlags::empty()) {
                Ok((0, _)) => {
                    self.connections[index] = None;
                    return 0;
                }
                Ok((len, _)) => {
                    let bytes = &self.inbox[..len];
                    if !connection.counter.take(bytes, &mut connection.outbox.ready) {
                        self.connections[index] = None;
                        return 0;
                    }
                    if len < RECEIVE_BYTES {
                        return connection.outbox.ready.len() - before;
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return connection.outbox.ready.len() - before,
                Err(_) => {
                    self.connections[index] = None;
                    return 0;
                }
            }
        }
    }

    /// Sends once on connection `index`; returns whether more can be sent now.
    fn send(&mut self, index: usize) -> bool {
        let Some(connection) = &mut self.connections[index] else { return false };
        if connection.full || connection.outbox.is_empty() {
            return false;
        }
        let (op, cap) = (self.options.op, self.options.send_cap());
        let message = connection.outbox.lay_out(op, &self.body, cap);
        let wanted = message.msg_iovlen;
        // SAFETY: the message's pieces point into the outbox and the body, which outlive the call.
        let sent =
            unsafe { libc::sendmsg(connection.stream.as_raw_fd(), message, libc::MSG_NOSIGNAL) };
        if sent > 0 {
            connection.outbox.sent(sent as usize, &self.body);
            return !connection.outbox.is_empty();
        }
        assert!(wanted > 0, "an outbox that is not empty has something to send");
        let error = std::io::Error::last_os_error().kind();
        if error == std::io::ErrorKind::WouldBlock {
            connection.full = true;
        } else {
            self.connections[index] = None;
        }
        false
    }
}
