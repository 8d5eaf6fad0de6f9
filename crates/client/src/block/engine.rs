//! The engine of one queue of a block device: requests that the operating system gives go to the
//! server, and answers go back.

use core::time::Duration;
use std::collections::VecDeque;

use contract::{Buf, BufPool, Dial, Instant, NamespaceId, SizeClass, Status, TurnOutcome};

use super::{BlockError, BlockOperation, BlockRequest, block_error, is_repeated};
use crate::{Done, Initiator, Loss, Op, Report};

/// A request that the operating system has given.
#[derive(Debug)]
pub struct Arrival {
    /// The request's tag, which identifies the request until its completion.
    pub tag: u16,
    /// The request; an error is its outcome.
    pub request: Result<BlockRequest, BlockError>,
    /// The next need of the request.
    pub need: Need,
}

/// The step that a request of the block device needs next: a buffer for its data, or service.
#[derive(Debug)]
pub enum Need {
    /// Memory for the data of a write, by [`Driver::ask`].
    Memory,
    /// The request can be served now. A write comes with its data in the buffer.
    Service(Option<Buf>),
}

/// The operating system's end of a queue of a block device.
pub trait Driver {
    /// Appends the requests that have come to `arrivals`, and the buffers of reads that are free
    /// again to `freed`.
    fn poll(&mut self, arrivals: &mut Vec<Arrival>, freed: &mut Vec<Buf>);

    /// Asks the driver to copy the data of a write into `buf`. The driver then delivers the request
    /// again, with its data.
    fn ask(&mut self, tag: u16, buf: Buf);

    /// Completes a request: with the bytes that were read or written, zero for what has no data, or
    /// minus an error number. A read that succeeds has its data in `buf`, which a later
    /// [`poll`](Driver::poll) frees.
    fn complete(&mut self, tag: u16, result: i32, buf: Option<Buf>);

    /// Returns `true` once the device was stopped and the operating system holds no command of this
    /// queue any more.
    fn has_ended(&self) -> bool;

    /// Returns the first error number with which the operating system refused a command; `None` if
    /// it refused none.
    fn failure(&self) -> Option<i32>;
}

/// An event of a queue beside the ends of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The queue has a connection. The requests that it had in flight on an earlier connection have
    /// ended.
    Connected,
    /// The queue has lost its connection to the server, or could not establish one.
    Lost(Loss),
    /// A flush failed, because acknowledged changes were lost with the server's machine.
    WritesLost,
}

/// The pause before a request is made again that the server could not serve for the moment.
const PAUSE: Duration = Duration::from_millis(20);

/// The sizes of a queue's buffers beside one of 4 KiB for each request. Buffers that are never used
/// take no physical memory. Requests wait for buffers in the order in which they came.
const LARGER: [SizeClass; 2] =
    [SizeClass { bytes: 64 << 10, count: 32 }, SizeClass { bytes: 1 << 20, count: 8 }];

/// Returns the sizes of the buffers of a queue with `depth` requests.
#[must_use]
pub fn classes(depth: u16) -> Vec<SizeClass> {
    let small = SizeClass { bytes: 4096, count: usize::from(depth) };
    [&[small], &LARGER[..]].concat()
}

/// The namespace of a block device, whether changes are refused, and how long requests wait for an
/// absent server.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The namespace; `None` for the server's default.
    pub namespace: Option<NamespaceId>,
    /// `true` if changes are refused.
    pub is_read_only: bool,
    /// Time for which requests wait for an absent server.
    pub fail_after: Duration,
}

/// A request that the kernel waits for.
#[derive(Clone, Copy, Debug)]
struct HeldRequest {
    request: Result<BlockRequest, BlockError>,
    came_at: Instant,
}

/// Serves the requests of one queue.
#[derive(Debug)]
pub struct Engine<T, Q> {
    terms: Terms,
    queue: Q,
    initiator: Initiator<T>,
    pool: BufPool,
    /// The requests, by their tags.
    held: Vec<Option<HeldRequest>>,
    /// The tags of the requests at the initiator, by the index of the request's ticket.
    tags: Vec<u16>,
    /// Requests that wait for a buffer, oldest first.
    waiting: VecDeque<u16>,
    /// Requests to send to the server again, each with the time to do so, its tag and its buffer;
    /// earliest first.
    again: VecDeque<(Instant, u16, Option<Buf>)>,
    news: Vec<News>,
    arrivals: Vec<Arrival>,
    freed: Vec<Buf>,
    done: Vec<Done>,
}

impl<T: Dial, Q: Driver> Engine<T, Q> {
    /// Returns the engine of a queue with `depth` requests. The initiator has one connection, and
    /// room for `depth` requests.
    pub fn new(depth: u16, terms: Terms, queue: Q, initiator: Initiator<T>, pool: BufPool) -> Self {
        let depth = usize::from(depth);
        Engine {
            terms,
            queue,
            initiator,
            pool,
            held: vec![None; depth],
            tags: vec![0; depth],
            waiting: VecDeque::with_capacity(depth),
            again: VecDeque::with_capacity(depth),
            news: Vec::new(),
            arrivals: Vec::with_capacity(depth),
            freed: Vec::with_capacity(depth),
            done: Vec::with_capacity(depth),
        }
    }

    /// Takes a turn. Returns `None` once the device was stopped, or once the driver has refused a
    /// command.
    pub fn turn(&mut self, now: Instant) -> Option<TurnOutcome> {
        let (mut arrivals, mut freed) =
            (std::mem::take(&mut self.arrivals), std::mem::take(&mut self.freed));
        self.queue.poll(&mut arrivals, &mut freed);
        let mut progressed = !arrivals.is_empty() || !freed.is_empty();
        freed.drain(..).for_each(|buf| self.pool.give(buf));
        arrivals.drain(..).for_each(|arrival| self.arrive(now, arrival));
        (self.arrivals, self.freed) = (arrivals, freed);
        let mut done = std::mem::take(&mut self.done);
        progressed |= self.initiator.turn(now, &mut done);
        done.drain(..).for_each(|ended| self.end(now, ended));
        self.done = done;
        self.report();
        self.repeat(now);
        self.supply(now);
        self.initiator.flush(now);
        // A command that the driver refused leaves its request with nobody.
        if self.queue.has_ended() || self.queue.failure().is_some() {
            return None;
        }
        let again = self.again.front().map(|(due, ..)| *due);
        let wake_at = [again, self.initiator.wake_at()].into_iter().flatten().min();
        Some(TurnOutcome { progressed, wake_at })
    }

    /// Returns the error number with which the driver refused a command; `None` if it refused none.
    pub fn failure(&self) -> Option<i32> {
        self.queue.failure()
    }

    /// Begins to close the connections. To be called once [`turn`](Engine::turn) has returned
    /// `None`.
    pub fn close(&mut self) {
        self.initiator.close();
    }

    fn arrive(&mut self, now: Instant, arrival: Arrival) {
        let Arrival { tag, request, need } = arrival;
        match need {
            Need::Memory => {
                self.held[usize::from(tag)] = Some(HeldRequest { request, came_at: now });
                self.waiting.push_back(tag);
            }
            // A write, with the data that it has waited for: less than was asked for if the kernel
            // could not copy all. It makes another request of the rest.
            Need::Service(Some(buf)) => {
                let came_at = self.held[usize::from(tag)].map_or(now, |held| held.came_at);
                self.held[usize::from(tag)] = Some(HeldRequest { request, came_at });
                self.start(now, tag, Some(buf));
            }
            Need::Service(None) => {
                self.held[usize::from(tag)] = Some(HeldRequest { request, came_at: now });
                match request {
                    Ok(request) if request.data_bytes() > 0 => self.waiting.push_back(tag),
                    _ => self.start(now, tag, None),
                }
            }
        }
    }

    /// Gives free buffers to the requests that wait for one. Reads then start, and the data of
    /// writes is asked for.
    fn supply(&mut self, now: Instant) {
        while let Some(&tag) = self.waiting.front() {
            let held = self.held[usize::from(tag)].expect("what waits is held");
            let bytes = held.request.map_or(0, BlockRequest::data_bytes);
            let Some(buf) = self.pool.take(bytes.min(self.pool.largest())) else { return };
            self.waiting.pop_front();
            match held.request {
                Ok(BlockRequest { operation: BlockOperation::Read, .. }) => {
                    self.start(now, tag, Some(buf));
                }
                _ => self.queue.ask(tag, buf),
            }
        }
    }

    /// Submits a request to the initiator, or completes the request with an error.
    fn start(&mut self, now: Instant, tag: u16, buf: Option<Buf>) {
        let held = self.held[usize::from(tag)].expect("a request is held until it is completed");
        let command = held.request.and_then(|request| request.command(self.terms.is_read_only));
        match command {
            Err(error) => self.fail(tag, error, buf),
            Ok(command) => {
                let op = Op { namespace: self.terms.namespace, ..Op::new(command, buf) };
                let ticket = self.initiator.submit(now, op);
                let ticket = ticket.expect("there is room for each tag of the queue");
                self.tags[ticket.index()] = tag;
            }
        }
    }

    fn end(&mut self, now: Instant, done: Done) {
        let tag = self.tags[done.ticket.index()];
        let held = self.held[usize::from(tag)].expect("a request is held until it is completed");
        let Some(error) = block_error(done.status) else {
            let bytes = held.request.map_or(0, BlockRequest::data_bytes);
            let is_read = matches!(done.command, contract::Command::Read(_));
            self.complete(tag, bytes as i32, done.buf, is_read);
            return;
        };
        if done.status == Status::WritesLost {
            self.news.push(News::WritesLost);
        }
        let fail_after = self.terms.fail_after;
        let is_reached = self.initiator.is_connected(0);
        if is_repeated(done.status, is_reached, held.came_at, now, fail_after) {
            self.again.push_back((now + PAUSE, tag, done.buf));
        } else {
            self.fail(tag, error, done.buf);
        }
    }

    /// Submits the requests again whose pause before a repetition is over.
    fn repeat(&mut self, now: Instant) {
        while self.again.front().is_some_and(|(due, ..)| *due <= now) {
            let (_, tag, buf) = self.again.pop_front().expect("it was just seen");
            self.start(now, tag, buf);
        }
    }

    fn fail(&mut self, tag: u16, error: BlockError, buf: Option<Buf>) {
        self.complete(tag, -error.errno(), buf, false);
    }

    fn complete(&mut self, tag: u16, result: i32, buf: Option<Buf>, has_data: bool) {
        self.held[usize::from(tag)] = None;
        match buf {
            Some(buf) if has_data => self.queue.complete(tag, result, Some(buf)),
            buf => {
                buf.into_iter().for_each(|buf| self.pool.give(buf));
                self.queue.complete(tag, result, None);
            }
        }
    }

    /// Turns the initiator's reports about connections into news.
    fn report(&mut self) {
        for report in self.initiator.reports() {
            match report {
                Report::Connected { .. } => self.news.push(News::Connected),
                Report::Lost { why, .. } => self.news.push(News::Lost(why)),
                Report::Info(..)
                | Report::Tenant(..)
                | Report::Notice { .. }
                | Report::Pong(..) => {}
            }
        }
    }

    /// Takes the events since the last call, except the ends of requests.
    pub fn news(&mut self) -> impl Iterator<Item = News> + '_ {
        self.news.drain(..)
    }

    /// Ends the service, even with requests in flight. Returns the initiator, and the pool with the
    /// buffers that neither the initiator nor the operating system holds.
    pub fn into_parts(mut self) -> (Initiator<T>, BufPool) {
        for (_, _, buf) in self.again.drain(..) {
            buf.into_iter().for_each(|buf| self.pool.give(buf));
        }
        (self.initiator, self.pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_of_a_queue_has_a_small_buffer_and_some_have_the_largest() {
        let classes = classes(128);
        assert_eq!((classes[0].bytes, classes[0].count), (4096, 128));
        assert_eq!(classes.last().map(|class| class.bytes), Some(contract::REQUEST_BYTES_MAX));
    }
}
