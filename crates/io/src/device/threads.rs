//! A worker's queue to a file, through a few threads: for machines where io_uring is forbidden.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use contract::{Completion, Device, Geometry, Instant, Submission};
use rustix::io::{Errno, ReadWriteFlags};

use super::file::{FileVolume, Shared};
use super::flight::{FileCall, FileOperation, FileRequest, ZEROES};
use super::journal::HEADER_BYTES;
use crate::{Error, Waker};

/// Pause of a thread between two attempts to take a slot of the journal.
const JOURNAL_WAIT: Duration = Duration::from_micros(200);

/// A queue to a [`FileVolume`] whose system calls are made by threads of its own. It is slower than
/// a ring by two thread switches a request, and otherwise equal.
#[derive(Debug)]
pub struct ThreadedQueue {
    volume: FileVolume,
    desk: Arc<PoolQueue>,
    threads: Vec<JoinHandle<()>>,
    /// Submitted requests, which the next kick gives to the threads.
    submitted: Vec<FileRequest>,
    refused: Vec<Completion>,
    /// Requests that were submitted and not completed.
    outstanding: usize,
}

/// Requests and completions between the worker and the pool's threads.
#[derive(Debug, Default)]
struct PoolQueue {
    state: Mutex<State>,
    /// Signalled when there is work, or when the threads must end.
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<FileRequest>,
    done: Vec<Completion>,
    closed: bool,
}

impl PoolQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a thread of the device panicked")
    }
}

impl ThreadedQueue {
    /// Maximum number of requests in flight.
    pub const DEPTH: usize = 256;
    /// The default number of threads.
    pub const THREADS: usize = 8;

    /// Returns a queue of [`ThreadedQueue::DEPTH`] requests to `volume`, carried out by `threads`
    /// threads that end with it. Each completion wakes the worker of `waker`.
    ///
    /// # Errors
    /// Fails if the system refuses a thread.
    pub fn open(volume: &FileVolume, threads: usize, waker: Waker) -> Result<ThreadedQueue, Error> {
        assert!(threads > 0, "somebody must do the work");
        let depth = ThreadedQueue::DEPTH;
        let desk = Arc::new(PoolQueue::default());
        desk.lock().waiting.reserve(depth);
        desk.lock().done.reserve(depth);
        let mut queue = ThreadedQueue {
            volume: volume.clone(),
            desk,
            threads: Vec::with_capacity(threads),
            submitted: Vec::with_capacity(depth),
            refused: Vec::with_capacity(depth),
            outstanding: 0,
        };
        for number in 0..threads {
            let (volume, desk, waker) = (volume.clone(), queue.desk.clone(), waker.clone());
            let thread = std::thread::Builder::new()
                .name(format!("file-{number}"))
                .spawn(move || serve(&volume.shared, &desk, &waker))
                .map_err(|e| Error::system("cannot start a thread for a file device", e))?;
            queue.threads.push(thread);
        }
        Ok(queue)
    }
}

/// Runs one of the threads: takes and carries out requests until the queue is closed.
fn serve(shared: &Shared, desk: &PoolQueue, waker: &Waker) {
    loop {
        let mut state = desk.lock();
        let mut flight = loop {
            if state.closed {
                return;
            }
            match state.waiting.pop_front() {
                Some(flight) => break flight,
                None => state = desk.work.wait(state).expect("a thread of the device panicked"),
            }
        };
        drop(state);
        while !flight.is_ready(shared) {
            // Whoever has the journal's slots is in a call of its own, and ends.
            std::thread::sleep(JOURNAL_WAIT);
        }
        let status = loop {
            let result = match make(flight.call(shared), &mut flight, shared) {
                Ok(count) => count as i32,
                Err(errno) => -errno.raw_os_error(),
            };
            if let Some(status) = flight.advance(result, shared) {
                break status;
            }
        };
        desk.lock().done.push(flight.complete(status, shared));
        waker.wake();
    }
}

/// Makes a system call of a request and waits for it. Returns the number of bytes that it moved,
/// which is zero for calls that move none.
pub(super) fn make(
    call: FileCall,
    flight: &mut FileRequest,
    shared: &Shared,
) -> Result<usize, Errno> {
    let file = shared.target(call.target);
    match call.operation {
        FileOperation::Read { offset, at, bytes } => {
            let buf = flight.buf.as_mut().expect("a read has a buffer");
            rustix::io::pread(file, &mut buf.prefix_mut(at + bytes)[at..], offset)
        }
        FileOperation::Write { offset, at, bytes, dsync } => {
            let buf = flight.buf.as_ref().expect("a write has a buffer");
            write(file, &buf.bytes()[at..at + bytes], offset, dsync)
        }
        FileOperation::WriteHeader { offset, dsync } => {
            write(file, &flight.journal_header()[..HEADER_BYTES], offset, dsync)
        }
        FileOperation::WriteZeroes { offset, bytes } => {
            rustix::io::pwrite(file, &ZEROES.0[..bytes], offset)
        }
        FileOperation::Allocate { mode, offset, bytes } => {
            rustix::fs::fallocate(file, mode, offset, bytes).map(|()| 0)
        }
        FileOperation::Sync => rustix::fs::fdatasync(file).map(|()| 0),
    }
}

fn write(file: BorrowedFd<'_>, data: &[u8], offset: u64, dsync: bool) -> Result<usize, Errno> {
    if dsync {
        let data = [std::io::IoSlice::new(data)];
        rustix::io::pwritev2(file, &data, offset, ReadWriteFlags::DSYNC)
    } else {
        rustix::io::pwrite(file, data, offset)
    }
}

impl Device for ThreadedQueue {
    fn geometry(&self) -> Geometry {
        self.volume.geometry()
    }

    fn room(&self) -> usize {
        Self::DEPTH - self.outstanding
    }

    fn submit(&mut self, _now: Instant, submission: Submission) {
        assert!(self.room() > 0, "more submissions than the device has room for");
        self.outstanding += 1;
        match FileRequest::start(submission, &self.volume.shared) {
            Ok(flight) => self.submitted.push(flight),
            Err(refused) => self.refused.push(refused),
        }
    }

    fn kick(&mut self, _now: Instant) {
        if !self.submitted.is_empty() {
            self.desk.lock().waiting.extend(self.submitted.drain(..));
            self.desk.work.notify_all();
        }
    }

    fn poll(&mut self, _now: Instant, done: &mut Vec<Completion>) {
        let before = done.len();
        done.append(&mut self.refused);
        if self.outstanding > 0 {
            done.append(&mut self.desk.lock().done);
        }
        self.outstanding -= done.len() - before;
    }

    fn wake_at(&self) -> Option<Instant> {
        (!self.refused.is_empty()).then_some(Instant::ZERO)
    }
}

impl Drop for ThreadedQueue {
    /// Waits for the system calls in progress; requests that were not begun are dropped.
    fn drop(&mut self) {
        if let Ok(mut state) = self.desk.state.lock() {
            state.closed = true;
        }
        self.desk.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
