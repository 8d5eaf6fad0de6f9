//! The responder of this yardstick over io_uring: multishot receives into provided buffers, and one
//! `io_uring_enter` a turn.

// UNSAFETY: io_uring is memory shared with the kernel.

use std::alloc::Layout;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd, Fixed};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};

use crate::Options;
use crate::outbox::Outbox;
use crate::report::Report;
use crate::yardstick::Counter;

/// Number of buffers provided to the kernel; a power of two.
const BUFFERS: u16 = 256;

/// Bytes of each buffer.
const BUFFER_BYTES: usize = 16 << 10;

/// Number of entries of the submission queue; the completion queue has four times as many.
const ENTRIES: u32 = 4096;

/// Maximum number of connections. Each has one of the ring's registered descriptors.
const CONNECTIONS_MAX: u32 = 16_384;

/// Purposes of a completion, in the lower half of its user data. The upper half is the connection's
/// index.
const ACCEPT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

struct Connection {
    socket: OwnedFd,
    counter: Counter,
    outbox: Outbox,
    sending: bool,
    receiving: bool,
    closed: bool,
}

struct Server<'a> {
    options: &'a Options,
    ring: IoUring,
    provided: Provided,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    /// Indices of connections that may have something to send.
    touched: Vec<u32>,
    body: Vec<u8>,
}

/// Serves the listener's connections until the process is killed, or a system call fails.
pub(crate) fn serve(options: &Options, listener: TcpListener) -> std::io::Result<()> {
    let ring = IoUring::builder()
        .setup_defer_taskrun()
        .setup_single_issuer()
        .setup_cqsize(4 * ENTRIES)
        .build(ENTRIES)?;
    ring.submitter().register_ring_fd()?;
    ring.submitter().register_files_sparse(CONNECTIONS_MAX)?;
    let provided = Provided::new(&ring)?;
    let report = Report::new(|| enter(&ring, 0, 0))?;
    let body = vec![0; options.body_bytes()];
    let (connections, touched) = (Vec::new(), Vec::new());
    let server = Server { options, ring, provided, listener, connections, touched, body };
    server.run(report)
}

fn enter(ring: &IoUring, submit: u32, want: u32) -> std::io::Result<()> {
    let flags = EnterFlags::GETEVENTS.bits();
    // SAFETY: no argument beyond the counts; what the entries point to lives with the server.
    match unsafe { ring.submitter().enter::<libc::sigset_t>(submit, want, flags, None) } {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Server<'_> {
    fn run(mut self, mut report: Report) -> std::io::Result<()> {
        let accept = opcode::AcceptMulti::new(Fd(self.listener.as_raw_fd())).build();
        self.push(accept.user_data(ACCEPT));
        let mut done: Vec<cqueue::Entry> = Vec::with_capacity(4 * ENTRIES as usize);
        loop {
            let queue = self.ring.submission();
            let queued = queue.len() as u32;
            drop(queue);
            enter(&self.ring, queued, u32::from(self.options.park))?;
            done.extend(self.ring.completion());
            let mut requests = 0;
            for entry in done.drain(..) {
                requests += self.complete(&entry)?;
            }
            self.provided.publish();
            self.send_touched();
            report.turn(requests);
        }
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: sockets, outboxes and buffers live until their last completion has come: a
        // connection is dropped only when neither a receive nor a send of it is under way.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.ring.submit().expect("the ring takes its entries");
        }
    }

    /// Processes a completion; returns the number of requests that it completed.
    fn complete(&mut self, entry: &cqueue::Entry) -> std::io::Result<usize> {
        let (kind, index) = (entry.user_data() & 0xffff_ffff, (entry.user_data() >> 32) as u32);
        match kind {
            ACCEPT => self.accepted(entry.result())?,
            RECEIVE => return Ok(self.received(index, entry)),
            SEND => self.sent(index, entry.result()),
            other => panic!("a completion that nobody asked for: {other}"),
        }
        Ok(0)
    }

    fn accepted(&mut self, result: i32) -> std::io::Result<()> {
        if result < 0 {
            return Err(std::io::Error::from_raw_os_error(-result));
        }
        // SAFETY: the kernel has just made this descriptor for us.
        let socket = unsafe { OwnedFd::from_raw_fd(result) };
        self.options.socket.apply(&socket)?;
        let counter = Counter::new(self.options.request_bytes());
        let outbox = Outbox::default();
        let free = self.connections.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        self.ring.submitter().register_files_update(index as u32, &[socket.as_raw_fd()])?;
        let (sending, receiving, closed) = (false, true, false);
        self.connections[index] =
            Some(Connection { socket, counter, outbox, sending, receiving, closed });
        self.receive(index as u32);
        Ok(())
    }

    fn receive(&mut self, index: u32) {
        let connection = self.connections[index as usize].as_mut().expect("it is there");
        connection.receiving = true;
        let receive = opcode::RecvMulti::new(Fixed(index), 0).build();
        self.push(receive.user_data(u64::from(index) << 32 | RECEIVE));
    }

    fn received(&mut self, index: u32, entry: &cqueue::Entry) -> usize {
        let connection = self.connections[index as usize].as_mut().expect("it waits for this");
        let before = connection.outbox.ready.len();
        if let Some(buffer) = cqueue::buffer_select(entry.flags()) {
            let len = entry.result().max(0) as usize;
            let bytes = self.provided.bytes(buffer, len);
            if !connection.counter.take(bytes, &mut connection.outbox.ready) {
                // The receive that is under way ends with the stream.
                connection.closed = true;
                let both = rustix::net::Shutdown::Both;
                let _gone = rustix::net::shutdown(&connection.socket, both);
            }
            self.provided.give(buffer);
        }
        let requests = connection.outbox.ready.len() - before;
        let ended = entry.result() <= 0 && entry.result() != -libc::ENOBUFS;
        connection.closed |= ended;
        if !cqueue::more(entry.flags()) {
            connection.receiving = false;
            if !connection.closed {
                self.receive(index);
            }
        }
        self.touched.push(index);
        requests
    }

    fn sent(&mut self, index: u32, result: i32) {
        let connection = self.connections[index as usize].as_mut().expect("it waits for this");
        connection.sending = false;
        if result < 0 {
            connection.closed = true;
        } else {
            connection.outbox.sent(result as usize, &self.body);
        }
        self.touched.push(index);
    }

    fn send_touched(&mut self) {
        for place in 0..self.touched.len() {
            let index = self.touched[place];
            let Some(connection) = &mut self.connections[index as usize] else { continue };
            if connection.sending {
                continue;
            }
            if connection.closed {
                if !connection.receiving {
                    self.connections[index as usize] = None;
                    let emptied = self.ring.submitter().register_files_update(index, &[-1]);
                    emptied.expect("the place was filled");
                }
                continue;
            }
            if connection.outbox.is_empty() {
                continue;
            }
            connection.sending = true;
            let (op, cap) = (self.options.op, self.options.send_cap());
            let message = connection.outbox.lay_out(op, &self.body, cap);
            let send = opcode::SendMsg::new(Fixed(index), message).flags(libc::MSG_NOSIGNAL as u32);
            self.push(send.build().user_data(u64::from(index) << 32 | SEND));
        }
        self.touched.clear();
    }
}

/// The buffers that the kernel receives into.
struct Provided {
    entries: *mut BufRingEntry,
    memory: Vec<u8>,
    /// Number of buffers provided so far; the kernel sees them after `publish`.
    tail: u16,
}

impl Provided {
    fn new(ring: &IoUring) -> std::io::Result<Provided> {
        let bytes = usize::from(BUFFERS) * size_of::<BufRingEntry>();
        let layout = Layout::from_size_align(bytes, 4096).expect("a power of two");
        // SAFETY: the layout is not empty; a ring of zeroes is a ring without buffers.
        let entries = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<BufRingEntry>();
        assert!(!entries.is_null(), "out of memory");
        // SAFETY: the entries stay where they are until the process ends.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(entries as u64, BUFFERS, 0, 0)?;
        }
        let memory = vec![0; usize::from(BUFFERS) * BUFFER_BYTES];
        let mut provided = Provided { entries, memory, tail: 0 };
        (0..BUFFERS).for_each(|buffer| provided.give(buffer));
        provided.publish();
        Ok(provided)
    }

    fn bytes(&self, buffer: u16, len: usize) -> &[u8] {
        let start = usize::from(buffer) * BUFFER_BYTES;
        &self.memory[start..start + len]
    }

    fn give(&mut self, buffer: u16) {
        let place = usize::from(self.tail % BUFFERS);
        let start = usize::from(buffer) * BUFFER_BYTES;
        // SAFETY: `place` is within the ring, and the kernel does not read an entry behind the tail.
        let entry = unsafe { &mut *self.entries.add(place) };
        entry.set_addr(self.memory[start..].as_ptr() as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry's reserved field, and both sides access it
        // atomically.
        let tail = unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}
