//! The paper's protocol: its base version, and the versions with fewer threads.

use std::collections::VecDeque;
use std::io::Result;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};

use crate::datagram::{DatagramSocket, Head, Packet, pair};
use crate::stamps::{Point, stamp, stamp_at};
use crate::{DISK_BYTES, Measured, Options, Variant};

/// A queue between two threads, whose reader sleeps on an eventfd.
struct ThreadQueue<T> {
    queue: Mutex<VecDeque<T>>,
    bell: OwnedFd,
}

impl<T> ThreadQueue<T> {
    fn new() -> Result<Arc<ThreadQueue<T>>> {
        let bell = eventfd(0, EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(ThreadQueue { queue: Mutex::new(VecDeque::new()), bell }))
    }

    /// Queues a value, and wakes the reader.
    fn push(&self, value: T, wakes: Point) -> Result<()> {
        self.queue.lock().expect("no holder panics").push_back(value);
        stamp(wakes);
        rustix::io::write(&self.bell, &1u64.to_ne_bytes())?;
        Ok(())
    }

    /// Sleeps until a value comes.
    fn pop(&self, runs: Point) -> Result<T> {
        let mut count = [0; 8];
        rustix::io::read(&self.bell, &mut count)?;
        stamp(runs);
        let value = self.queue.lock().expect("no holder panics").pop_front();
        Ok(value.expect("the bell counts the values"))
    }
}

/// A request or completion, and its packets of data.
struct Message {
    head: Head,
    pages: Vec<Packet>,
}

/// A reply that the work queue sends.
struct Reply {
    head: Head,
    data: Vec<u8>,
}

/// Receives packets until a message is complete. Returns it, and when the kernel had its last
/// packet.
fn receive(line: &DatagramSocket) -> Result<(Message, u64)> {
    let mut pages = Vec::new();
    loop {
        let packet = line.receive()?;
        if !packet.head.is_data {
            return Ok((Message { head: packet.head, pages }, packet.at));
        }
        pages.push(packet);
    }
}

/// Starts a thread that serves one thing after the other, until something fails.
fn serve(options: &Options, end: usize, mut one: impl FnMut() -> Result<()> + Send + 'static) {
    let options = options.clone();
    std::thread::spawn(move || {
        let mut result = options.pin(end);
        while result.is_ok() {
            result = one();
        }
        eprintln!("a thread ended: {result:?}");
        std::process::exit(1)
    });
}

/// The target: its drive, and how a reply leaves.
struct Target {
    line: Arc<DatagramSocket>,
    disk: Vec<u8>,
    /// The queue of the thread that sends replies; `None` if the completion sends them.
    work: Option<Arc<ThreadQueue<Reply>>>,
}

impl Target {
    /// Carries out a request, and replies.
    fn handle(&mut self, message: Message) -> Result<()> {
        let Message { head, pages } = message;
        let (place, bytes) = (head.place as usize, head.bytes as usize);
        stamp(Point::ToDrive);
        let mut data = Vec::new();
        if head.is_write {
            for page in &pages {
                let at = place + page.head.at as usize;
                self.disk[at..at + page.data.len()].copy_from_slice(&page.data);
            }
        } else {
            data.extend_from_slice(&self.disk[place..place + bytes]);
        }
        stamp(Point::Done);
        let reply = Reply { head, data };
        match &self.work {
            Some(work) => work.push(reply, Point::WakesQueue),
            None => answer(&self.line, &reply),
        }
    }
}

fn answer(line: &DatagramSocket, reply: &Reply) -> Result<()> {
    line.send(&reply.data, reply.head, || stamp(Point::Replied))
}

fn start_target(options: &Options, line: DatagramSocket) -> Result<()> {
    let line = Arc::new(line);
    let work = if options.variant == Variant::Nowq { None } else { Some(ThreadQueue::new()?) };
    if let Some(work) = work.clone() {
        let line = line.clone();
        serve(options, 1, move || answer(&line, &work.pop(Point::Queue)?));
    }
    let mut target = Target { line: line.clone(), disk: vec![7; DISK_BYTES], work };
    if options.variant == Variant::Base {
        let arrived: Arc<ThreadQueue<Message>> = ThreadQueue::new()?;
        let to_block = arrived.clone();
        serve(options, 1, move || target.handle(arrived.pop(Point::Block)?));
        serve(options, 1, move || {
            let (message, at) = receive(&line)?;
            note(Point::AtTarget, at, Point::Received);
            to_block.push(message, Point::WakesBlock)
        });
    } else {
        serve(options, 1, move || {
            let (message, at) = receive(&line)?;
            note(Point::AtTarget, at, Point::Received);
            target.handle(message)
        });
    }
    Ok(())
}

fn note(kernel: Point, at: u64, thread: Point) {
    stamp_at(kernel, at);
    stamp(thread);
}

/// The request of the application, which its completion fills.
struct Request {
    data: Arc<Mutex<Vec<u8>>>,
    told: Arc<ThreadQueue<()>>,
}

impl Request {
    fn complete(&self, message: &Message) -> Result<()> {
        let mut data = self.data.lock().expect("no holder panics");
        for page in &message.pages {
            let at = page.head.at as usize;
            data[at..at + page.data.len()].copy_from_slice(&page.data);
        }
        drop(data);
        self.told.push((), Point::Complete)
    }
}

fn start_initiator(options: &Options, line: Arc<DatagramSocket>, request: Request) -> Result<()> {
    if options.variant == Variant::Base {
        let arrived: Arc<ThreadQueue<Message>> = ThreadQueue::new()?;
        let to_block = arrived.clone();
        serve(options, 0, move || request.complete(&arrived.pop(Point::End)?));
        serve(options, 0, move || {
            let (message, at) = receive(&line)?;
            note(Point::AtInitiator, at, Point::Back);
            to_block.push(message, Point::WakesEnd)
        });
    } else {
        serve(options, 0, move || {
            let (message, at) = receive(&line)?;
            note(Point::AtInitiator, at, Point::Back);
            request.complete(&message)
        });
    }
    Ok(())
}

/// Measures requests, one after the other.
pub(crate) fn run(options: &Options) -> Result<Measured> {
    let [initiator, target] = pair()?;
    start_target(options, target)?;
    let line = Arc::new(initiator);
    let (data, told) = (Arc::new(Mutex::new(vec![1; options.bytes])), ThreadQueue::new()?);
    start_initiator(options, line.clone(), Request { data: data.clone(), told: told.clone() })?;
    options.pin(0)?;
    let mut measured = Measured::new(options);
    for request in 0.. {
        let (bytes, place) = (options.bytes as u32, options.place(request));
        let head = Head { is_write: options.write, bytes, place, ..Head::default() };
        stamp(Point::Issued);
        let left = || stamp(Point::Left);
        if options.write {
            line.send(&data.lock().expect("no holder panics"), head, left)?;
        } else {
            line.send(&[], head, left)?;
        }
        told.pop(Point::Notified)?;
        if !measured.end() {
            break;
        }
    }
    Ok(measured)
}
