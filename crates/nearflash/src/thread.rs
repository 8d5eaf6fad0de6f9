//! The client's thread: its queue, between the program's line of requests and their answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{Address, Done, Op};
use contract::{Buf, BufPool, Command, SizeClass, Status};

use crate::answer::AnswerSender;
use crate::engine::{Event, Wait};
use crate::line::RequestQueue;
use crate::options::Options;
use crate::queue::{Queue, memory};
use crate::tenancy::{Notice, TenantRequest};
use crate::{Error, Info, Registered};

/// The route of a request: a connection and a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// Index of the connection; `None` for the least loaded one.
    pub(crate) link: Option<usize>,
    pub(crate) stream: u8,
}

/// A request that a task has sent to the client's thread.
#[derive(Debug)]
pub(crate) enum Request {
    /// A request about data. The answer is the data that was read, or empty.
    Data { command: Command, route: Route, payload: Vec<u8>, promise: AnswerSender<Vec<u8>> },
    /// A request for the namespace's properties.
    Info(AnswerSender<Info>),
    /// A request about the client's tenant.
    Tenant { wish: TenantRequest, promise: AnswerSender<Registered> },
}

impl Request {
    fn buffer_bytes(&self) -> usize {
        match self {
            Request::Data { command, .. } => command.buffer_bytes(),
            Request::Info(_) | Request::Tenant { .. } => 0,
        }
    }
}

/// The receiver of the answer to a request in flight.
#[derive(Debug)]
enum PendingAnswer {
    Data(AnswerSender<Vec<u8>>),
    Info(AnswerSender<Info>),
}

/// Maximum number of notices that wait for the program. Beyond it the oldest is dropped.
const NOTICES_MAX: usize = 16;

/// The queue of notices from the client's thread to the program.
pub(crate) type Notices = Mutex<VecDeque<Notice>>;

/// The buffers of a client: 25 MiB of address space, of which only the used part is resident.
const CLASSES: [SizeClass; 4] = [
    SizeClass { bytes: 4 << 10, count: 256 },
    SizeClass { bytes: 64 << 10, count: 64 },
    SizeClass { bytes: 1 << 20, count: 16 },
    SizeClass { bytes: 2 << 20, count: 2 },
];

/// Pools of ended clients. Buffers live as long as the process, so later clients reuse them.
static IDLE_POOLS: Mutex<Vec<BufPool>> = Mutex::new(Vec::new());

fn take_pool() -> Result<BufPool, Error> {
    match IDLE_POOLS.lock().expect("no holder panics").pop() {
        Some(pool) => Ok(pool),
        None => memory(&CLASSES),
    }
}

/// Runs the client until its line is closed. `opened` receives the queue's waker when the first
/// connection is ready, or the reason if it cannot be made.
pub(crate) fn run(
    address: &Address,
    options: &Options,
    line: &Arc<RequestQueue<Request>>,
    notices: &Arc<Notices>,
    opened: AnswerSender<io::Waker>,
) {
    let _closing = QueueCloser(line.clone());
    let made = Queue::to(address, options).and_then(|queue| Ok((queue, take_pool()?)));
    match made {
        Ok((queue, pool)) => ClientThread {
            queue,
            pool,
            line: line.clone(),
            notices: notices.clone(),
            opened: Some(opened),
            tenant: None,
            waiting: (0..options.in_flight_max).map(|_| None).collect(),
        }
        .run(options.in_flight_max),
        Err(error) => opened.keep(Err(error)),
    }
}

/// Closes the line on drop, also when its holder panics.
#[derive(Debug)]
pub(crate) struct QueueCloser(pub(crate) Arc<RequestQueue<Request>>);

impl Drop for QueueCloser {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The client's thread at work: it serves the program's requests with a queue.
struct ClientThread {
    queue: Queue,
    pool: BufPool,
    line: Arc<RequestQueue<Request>>,
    notices: Arc<Notices>,
    /// The receiver of the queue's waker; `None` once the first connection was made or has failed.
    opened: Option<AnswerSender<io::Waker>>,
    /// The receiver of the answer to the tenant request in progress; `None` if there is none.
    tenant: Option<AnswerSender<Registered>>,
    /// The receivers of answers to requests in flight, by their tickets' indices.
    waiting: Vec<Option<PendingAnswer>>,
}

impl ClientThread {
    fn run(mut self, in_flight_max: usize) {
        let mut done = Vec::with_capacity(in_flight_max);
        loop {
            self.queue.poll(&mut done, Wait::Sleep(Duration::MAX));
            for done in done.drain(..) {
                self.finish(done);
            }
            let mut is_unreachable = false;
            while let Some(event) = self.queue.event() {
                is_unreachable |= self.take(event);
            }
            if is_unreachable || self.line.is_closed() {
                break;
            }
            self.take_requests();
        }
        let ClientThread { queue, mut pool, .. } = self;
        queue.close(&mut done);
        done.into_iter().filter_map(|done| done.buf).for_each(|buf| pool.give(buf));
        if pool.is_whole() {
            IDLE_POOLS.lock().expect("no holder panics").push(pool);
        }
    }

    /// Handles an event of the queue. Returns `true` if the first connection could not be made.
    fn take(&mut self, event: Event) -> bool {
        match event {
            Event::Connected { .. } => {
                if let Some(opened) = self.opened.take() {
                    opened.keep(Ok(self.queue.waker()));
                }
            }
            Event::Lost { why, .. } => {
                if let Some(opened) = self.opened.take() {
                    opened.keep(Err(why));
                    return true;
                }
            }
            Event::Info { ticket, info } => {
                let Some(PendingAnswer::Info(promise)) = self.waiting[ticket.index()].take() else {
                    unreachable!("only questions are answered so")
                };
                promise.keep(info);
            }
            Event::Tenant(outcome) => {
                self.tenant.take().expect("somebody asked").keep(outcome);
            }
            Event::Notice(notice) => {
                let mut notices = self.notices.lock().expect("no holder panics");
                if notices.len() == NOTICES_MAX {
                    notices.pop_front();
                }
                notices.push_back(notice);
            }
        }
        false
    }

    /// Submits requests from the queue, while fewer than the maximum are in flight and a buffer for
    /// the next one is free.
    fn take_requests(&mut self) {
        while self.queue.room() > 0 {
            let mut buf = None;
            let (pool, busy) = (&mut self.pool, self.tenant.is_some());
            let next = self.line.pop_if(|request| {
                if busy && matches!(request, Request::Tenant { .. }) {
                    return false;
                }
                let bytes = request.buffer_bytes();
                if bytes > 0 {
                    buf = pool.take(bytes);
                }
                bytes == 0 || buf.is_some()
            });
            let Some(request) = next else { break };
            self.submit(request, buf);
        }
    }

    fn submit(&mut self, request: Request, mut buf: Option<Buf>) {
        let (ticket, waiting) = match request {
            Request::Data { command, route, payload, promise } => {
                if let Some(buf) = &mut buf
                    && !payload.is_empty()
                {
                    buf.prefix_mut(payload.len()).copy_from_slice(&payload);
                }
                let Route { link, stream } = route;
                let op = Op { link, stream, ..Op::new(command, buf) };
                (self.queue.submit(op).expect("there is room"), PendingAnswer::Data(promise))
            }
            Request::Info(promise) => {
                (self.queue.info().expect("there is room"), PendingAnswer::Info(promise))
            }
            Request::Tenant { wish, promise } => {
                match self.queue.begin(wish) {
                    Ok(()) => self.tenant = Some(promise),
                    Err(error) => promise.keep(Err(error)),
                }
                return;
            }
        };
        let before = self.waiting[ticket.index()].replace(waiting);
        assert!(before.is_none(), "a ticket's index names one request");
    }

    fn finish(&mut self, done: Done) {
        let Some(PendingAnswer::Data(promise)) = self.waiting[done.ticket.index()].take() else {
            unreachable!("only requests about data end so")
        };
        let mut data = Vec::new();
        if let Some(buf) = done.buf {
            if done.status.is_ok() {
                data.extend_from_slice(&buf.bytes()[..done.command.reply_bytes()]);
            }
            self.pool.give(buf);
        }
        promise.keep(match done.status {
            Status::Ok => Ok(data),
            status => Err(status.into()),
        });
    }
}
