//! The queue of C: `nf_open` to `nf_close`.

// UNSAFETY: takes pointers of the caller, and lends the caller's memory to the library.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::ptr::NonNull;
use std::thread::ThreadId;
use std::time::Duration;

use nearflash::{Command, Error, Event, Info, Range, Registered, Wait, Waker};

use crate::abi::{
    Done, NF_BARRIER, NF_COMPARE_AND_WRITE, NF_DISCARD, NF_FLUSH, NF_FUA, NF_READ, NF_WRITE,
    NF_WRITE_ATOMIC, NF_WRITE_ZEROES, Notice, Op, Options, Promise, Properties, Slo,
};
use crate::failure::{Failure, errno_of_status, told};
use crate::guard::{DEAD, Process, borrow, caught, check_thread, options, place, text};

/// Size of a block in bytes.
const BLOCK_BYTES: u64 = 512;

/// The largest request in bytes.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of notices that wait for the program; the oldest is dropped.
const NOTICES_MAX: usize = 16;

/// The longest sleep of a wait for an answer.
const NAP: Duration = Duration::from_secs(1);

/// A queue behind a C handle.
#[derive(Debug)]
pub struct Queue {
    process: Process,
    thread: ThreadId,
    waker: Waker,
    inner: RefCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    queue: nearflash::Queue,
    is_dead: bool,
    /// Number of connections of the queue.
    connections: usize,
    /// The caller's names of the requests in flight, by the tickets' indices.
    tags: Vec<u64>,
    /// The maker's number of the buffer that was lent to the queue last.
    number: u32,
    done: Vec<nearflash::Done>,
    /// Requests that have ended and that the caller has not taken.
    ended: VecDeque<Done>,
    notices: VecDeque<Notice>,
    info: Option<Result<Info, Error>>,
    tenant: Option<Result<Registered, Error>>,
}

impl Inner {
    /// Polls the queue once, and keeps the ended requests, answers and notices until the caller
    /// takes them.
    fn poll(&mut self, wait: Wait) {
        self.queue.poll(&mut self.done, wait);
        for done in self.done.drain(..) {
            let tag = self.tags[done.ticket.index()];
            self.ended.push_back(Done { tag, result: -errno_of_status(done.status), reserved: 0 });
        }
        while let Some(event) = self.queue.event() {
            match event {
                Event::Info { info, .. } => self.info = Some(info),
                Event::Tenant(outcome) => self.tenant = Some(outcome),
                Event::Notice(notice) => {
                    if self.notices.len() == NOTICES_MAX {
                        self.notices.pop_front();
                    }
                    let read_percent = notice.read_percent.into();
                    self.notices.push_back(Notice { iops: notice.iops, read_percent });
                }
                _ => {}
            }
        }
    }

    /// Waits for the answer to a request about the tenant, and stores its figures in `promise`.
    fn await_tenant(&mut self, promise: Option<&mut Promise>) -> Result<c_int, Failure> {
        let outcome = loop {
            match self.tenant.take() {
                Some(outcome) => break outcome,
                None => self.poll(Wait::Sleep(NAP)),
            }
        };
        promised(outcome, promise)
    }

    fn submit(&mut self, op: &Op) -> Result<(), Failure> {
        const FULL: Failure = Failure::new(libc::EAGAIN, c"the queue is full");
        if self.queue.room() == 0 {
            return Err(FULL);
        }
        let command = command_of(op)?;
        if usize::from(op.connection) > self.connections || op.stream > 7 {
            return Err(Failure::invalid(c"no such connection or stream"));
        }
        let bytes = command.buffer_bytes();
        let buf = match NonNull::new(op.data.cast::<u8>()) {
            _ if bytes == 0 => None,
            None => return Err(Failure::invalid(c"a request has no data")),
            Some(start) => {
                self.number = self.number.wrapping_add(1);
                // SAFETY: the header asks for so many bytes that stay mapped until the request has
                // come back, that nobody changes, and for a read that nobody else touches.
                Some(unsafe { io::lend(start, bytes, self.number) })
            }
        };
        let link = usize::from(op.connection).checked_sub(1);
        let stream = op.stream as u8;
        let op_of_ours = nearflash::Op { link, stream, ..nearflash::Op::new(command, buf) };
        let ticket = self.queue.submit(op_of_ours).map_err(|_| FULL)?;
        self.tags[ticket.index()] = op.tag;
        Ok(())
    }
}

/// Returns the C result of a request about a tenant, and stores the figures of the promise or
/// refusal in `promise`.
pub(crate) fn promised(
    outcome: Result<Registered, Error>,
    promise: Option<&mut Promise>,
) -> Result<c_int, Failure> {
    let figures = match &outcome {
        Ok(figures) => Some(*figures),
        Err(Error::Refused(refused)) => Some(refused.figures),
        Err(_) => None,
    };
    if let (Some(promise), Some(Registered { tokens_needed, tokens_free })) = (promise, figures) {
        *promise = Promise { tokens_needed, tokens_free };
    }
    outcome.map(|_| 0).map_err(Failure::from)
}

/// Returns the command that a request of C asks for; fails if the request is invalid.
fn command_of(op: &Op) -> Result<Command, Failure> {
    const TOO_LARGE: Failure =
        Failure::new(libc::EMSGSIZE, c"larger than one request can be (1 MiB)");
    let may_be_durable = matches!(op.code, NF_WRITE | NF_WRITE_ZEROES);
    if op.flags & !NF_FUA != 0 || (op.flags != 0 && !may_be_durable) {
        return Err(Failure::invalid(c"unknown flag of a request"));
    }
    match op.code {
        NF_FLUSH => return Ok(Command::Flush),
        NF_BARRIER => return Ok(Command::Barrier),
        _ if op.bytes == 0 || !(op.bytes | op.offset).is_multiple_of(BLOCK_BYTES) => {
            return Err(Failure::invalid(c"not a whole number of blocks of 512 bytes"));
        }
        _ if op.bytes > REQUEST_BYTES_MAX => return Err(TOO_LARGE),
        _ => {}
    }
    let range = Range::new(op.offset / BLOCK_BYTES, (op.bytes / BLOCK_BYTES) as u32);
    let fua = op.flags & NF_FUA != 0;
    match op.code {
        NF_READ => Ok(Command::Read(range)),
        NF_WRITE => Ok(Command::Write { range, fua }),
        NF_DISCARD => Ok(Command::Discard(range)),
        NF_WRITE_ZEROES => Ok(Command::WriteZeroes { range, fua }),
        NF_COMPARE_AND_WRITE => Ok(Command::CompareAndWrite(range)),
        NF_WRITE_ATOMIC => Ok(Command::WriteAtomic(range)),
        _ => Err(Failure::invalid(c"unknown code of a request")),
    }
}

/// Calls `f` with the queue, if the queue is alive and belongs to this process and this thread.
///
/// # Safety
/// The handle is null, or came from `nf_open` and was not closed.
unsafe fn on(handle: *const Queue, f: impl FnOnce(&mut Inner) -> Result<c_int, Failure>) -> c_int {
    const BUSY: Failure = Failure::new(libc::EBUSY, c"a call is under way on the queue");
    // SAFETY: the caller promised a live handle, which is shared and never changed as a whole.
    let found = unsafe { borrow(handle) };
    let call = |queue: &Queue| {
        queue.process.check()?;
        check_thread(queue.thread)?;
        let mut inner = queue.inner.try_borrow_mut().map_err(|_| BUSY)?;
        if inner.is_dead {
            return Err(DEAD);
        }
        let mut is_dead = false;
        let result = caught(|| f(&mut inner), || is_dead = true);
        inner.is_dead = is_dead;
        result
    };
    told(found.and_then(call))
}

/// Opens a queue to the server at `url`.
///
/// # Safety
/// The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_open(
    url: *const c_char,
    options: *const Options,
    queue: *mut *mut Queue,
) -> c_int {
    let open = || {
        // SAFETY: the caller promised it.
        let (url, wanted, queue) = unsafe { (text(url)?, self::options(options)?, place(queue)?) };
        let process = Process::this();
        let made = nearflash::Queue::connect(url, &wanted)?;
        let inner = Inner {
            is_dead: false,
            connections: wanted.connections,
            tags: vec![0; wanted.in_flight_max],
            number: 0,
            done: Vec::with_capacity(wanted.in_flight_max),
            ended: VecDeque::with_capacity(wanted.in_flight_max),
            notices: VecDeque::with_capacity(NOTICES_MAX),
            info: None,
            tenant: None,
            queue: made,
        };
        let waker = inner.queue.waker();
        let thread = std::thread::current().id();
        *queue = Box::into_raw(Box::new(Queue { process, thread, waker, inner: inner.into() }));
        Ok(0)
    };
    told(caught(open, || {}))
}

/// Returns a file descriptor by which event loops wait for the queue.
///
/// # Safety
/// The handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_fd(queue: *mut Queue) -> c_int {
    use std::os::fd::AsRawFd;
    // SAFETY: the caller promised an open handle.
    unsafe { on(queue, |inner| Ok(inner.queue.fd()?.as_raw_fd())) }
}

/// Submits requests in order, up to the first one that is refused, and sends them. Returns the
/// number of submitted requests, or the failure if it is zero.
///
/// # Safety
/// The handle is null or open; `ops` leads to `count` requests, whose memory stays as the header
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_submit(queue: *mut Queue, ops: *const Op, count: u32) -> c_int {
    let submit = |inner: &mut Inner| {
        if count == 0 {
            return Ok(0);
        }
        let count = count.min(i32::MAX as u32) as usize;
        // SAFETY: the caller promised so many requests.
        let ops = unsafe { borrow(ops).map(|first| std::slice::from_raw_parts(first, count)) }?;
        let mut taken = 0;
        for op in ops {
            match inner.submit(op) {
                Ok(()) => taken += 1,
                Err(failure) if taken == 0 => return Err(failure),
                Err(_) => break,
            }
        }
        inner.queue.kick();
        Ok(taken)
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(queue, submit) }
}

/// Waits for ended requests, for at most `wait_ns` nanoseconds (negative for any time), and stores
/// up to `max` of them. Returns their number.
///
/// # Safety
/// The handle is null or open; `done` leads to places for `max` requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_poll(
    queue: *mut Queue,
    done: *mut Done,
    max: u32,
    wait_ns: i64,
) -> c_int {
    let poll = |inner: &mut Inner| {
        if max == 0 || done.is_null() {
            return Err(Failure::invalid(c"there is no place for what has ended"));
        }
        let wait = match wait_ns {
            0 => Wait::No,
            _ if !inner.ended.is_empty() => Wait::No,
            limit if limit < 0 => Wait::Sleep(Duration::MAX),
            limit => Wait::Sleep(Duration::from_nanos(limit.unsigned_abs())),
        };
        inner.poll(wait);
        let count = inner.ended.len().min(max.min(i32::MAX as u32) as usize);
        for (n, ended) in inner.ended.drain(..count).enumerate() {
            // SAFETY: the caller promised `max` places.
            unsafe { done.add(n).write(ended) };
        }
        Ok(count as c_int)
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(queue, poll) }
}

/// Wakes a thread that waits in `nf_poll`.
///
/// # Safety
/// The handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_wake(queue: *mut Queue) -> c_int {
    // SAFETY: the caller promised an open handle; only its constant fields are used here.
    let found = unsafe { borrow(queue.cast_const()) };
    told(found.and_then(|queue| {
        queue.process.check()?;
        queue.waker.wake();
        Ok(0)
    }))
}

/// Asks the server for the namespace's properties, and stores them.
///
/// # Safety
/// The handle is null or open; `properties` is null or a place for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_info(queue: *mut Queue, properties: *mut Properties) -> c_int {
    let ask = |inner: &mut Inner| {
        // SAFETY: the caller promised it.
        let properties = unsafe { place(properties) }?;
        inner.queue.info()?;
        let info = loop {
            match inner.info.take() {
                Some(info) => break info?,
                None => inner.poll(Wait::Sleep(NAP)),
            }
        };
        *properties = info.into();
        Ok(0)
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(queue, ask) }
}

/// Registers a tenant at the server, waits for the answer, and stores its figures.
///
/// # Safety
/// The handle is null or open; the other pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_register_tenant(
    queue: *mut Queue,
    name: *const c_char,
    slo: *const Slo,
    promise: *mut Promise,
) -> c_int {
    let register = |inner: &mut Inner| {
        // SAFETY: the caller promised it.
        let (name, slo, promise) = unsafe { (text(name)?, *borrow(slo)?, promise.as_mut()) };
        inner.queue.register(name, slo.into())?;
        inner.await_tenant(promise)
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(queue, register) }
}

/// Changes the SLO of the tenant that the queue has registered, waits for the answer, and stores
/// its figures.
///
/// # Safety
/// The handle is null or open; the other pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_renegotiate(
    queue: *mut Queue,
    slo: *const Slo,
    promise: *mut Promise,
) -> c_int {
    let change = |inner: &mut Inner| {
        // SAFETY: the caller promised it.
        let (slo, promise) = unsafe { (*borrow(slo)?, promise.as_mut()) };
        inner.queue.renegotiate(slo.into())?;
        inner.await_tenant(promise)
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(queue, change) }
}

/// Stores the oldest notice and returns 1; returns 0 if there is none.
///
/// # Safety
/// The handle is null or open; `notice` is null or a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_next_notice(queue: *mut Queue, notice: *mut Notice) -> c_int {
    let next = |inner: &mut Inner| {
        // SAFETY: the caller promised it.
        let notice = unsafe { place(notice) }?;
        match inner.notices.pop_front() {
            Some(oldest) => *notice = oldest,
            None => return Ok(0),
        }
        Ok(1)
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(queue, next) }
}

/// Closes the queue.
///
/// # Safety
/// The handle is null or open, and nobody uses it again unless the call fails with `EPERM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_close(queue: *mut Queue) -> c_int {
    const HELD: Failure =
        Failure::new(libc::EBUSY, c"closed, but the kernel still has memory of requests");
    if queue.is_null() {
        return 0;
    }
    // SAFETY: the caller promised an open handle.
    if let Err(failure) = unsafe { borrow(queue.cast_const()) }.and_then(|q| check_thread(q.thread))
    {
        return told(Err(failure));
    }
    // SAFETY: the handle came from a box, and nobody uses it again.
    let Queue { process, inner, .. } = *unsafe { Box::from_raw(queue) };
    let Inner { queue, mut done, .. } = inner.into_inner();
    let close = || {
        if process.check().is_err() {
            queue.leave_to_parent();
            return Ok(0);
        }
        if queue.close(&mut done) { Ok(0) } else { Err(HELD) }
    };
    told(caught(close, || {}))
}
