//! A queue with its jobs, in its own thread. No Python code runs here.

// UNSAFETY: lends the memory of jobs, which the table keeps until their requests have ended.
#![allow(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use nearflash::{Done, Error, Event, Info, Op, Options, Status, Wait};

use crate::failure::Failure;
use crate::job::Job;

/// The number of the first job of every queue, which opens it.
pub(crate) const OPENING: u64 = 0;

/// The longest sleep between two checks for Python's signals.
const NAP: Duration = Duration::from_millis(50);

/// The end of a job.
pub(crate) enum Ended {
    /// The ended job, with its memory and its result.
    Job(Job),
    /// The queue is open. The protocol's version 1 has no properties.
    Opened(Option<Info>),
    /// The queue could not be opened.
    Failed(Failure),
}

/// The state of a queue on its way to be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Dialling,
    Asking,
    Over,
}

/// A queue and its jobs.
pub(crate) struct Inner {
    pub(crate) queue: nearflash::Queue,
    opening: Opening,
    jobs: HashMap<u64, Job>,
    /// The name of the next job.
    next: u64,
    /// Jobs with requests to send, in the order of the calls.
    line: VecDeque<u64>,
    /// The job and the range of the requests in flight, by the tickets' indices.
    tickets: Vec<(u64, usize)>,
    /// The next buffer's number.
    number: u32,
    done: Vec<Done>,
    ended: VecDeque<(u64, Ended)>,
    /// Jobs that ended after their callers had left. Their memory is released by a thread that is
    /// attached to the interpreter.
    pub(crate) left: Vec<Job>,
}

impl Inner {
    pub(crate) fn connect(url: &str, options: &Options) -> Result<Inner, Error> {
        Ok(Inner {
            queue: nearflash::Queue::connect(url, options)?,
            opening: Opening::Dialling,
            jobs: HashMap::new(),
            next: OPENING + 1,
            line: VecDeque::new(),
            tickets: vec![(0, 0); options.in_flight_max],
            number: 0,
            done: Vec::with_capacity(options.in_flight_max),
            ended: VecDeque::new(),
            left: Vec::new(),
        })
    }

    /// Adds a job, and returns its number. Its first requests are submitted, and sent by the next
    /// poll.
    pub(crate) fn start(&mut self, job: Job) -> u64 {
        let name = self.next;
        self.next += 1;
        if job.is_over() {
            self.ended.push_back((name, Ended::Job(job))); // a job of no ranges
            return name;
        }
        self.jobs.insert(name, job);
        self.line.push_back(name);
        self.submit();
        name
    }

    /// Submits requests while there is room for them.
    fn submit(&mut self) {
        while self.queue.room() > 0
            && let Some(name) = self.line.front()
        {
            // A job that has failed may end while it stands in the line.
            let Some(piece) = self.jobs.get_mut(name).and_then(Job::piece) else {
                self.line.pop_front();
                continue;
            };
            let bytes = piece.command.buffer_bytes();
            let job = &self.jobs[name];
            let buf = job.segments[piece.segment].memory.as_ref().map(|memory| {
                self.number = self.number.wrapping_add(1);
                // SAFETY: the job, and with it the memory, stays in the table until all its
                // requests have ended; `close` keeps it longer if the kernel does.
                unsafe { memory.lend(piece.from, bytes, self.number) }
            });
            let submitted = self.queue.submit(Op::new(piece.command, buf));
            let ticket = submitted.expect("there is room");
            self.tickets[ticket.index()] = (*name, piece.segment);
        }
    }

    /// Sends the submitted requests, and processes the ended ones; waits for a while if `waits`.
    pub(crate) fn poll(&mut self, waits: bool) {
        let wait = if waits { Wait::Sleep(NAP) } else { Wait::No };
        self.queue.poll(&mut self.done, wait);
        let mut done = std::mem::take(&mut self.done);
        for done in done.drain(..) {
            self.finish(&done);
        }
        self.done = done;
        let mut is_new = !self.line.is_empty();
        self.submit();
        while let Some(event) = self.queue.event() {
            is_new |= self.open(event);
        }
        // An event loop may not come back before an answer does.
        if is_new {
            self.queue.kick();
        }
    }

    fn finish(&mut self, done: &Done) {
        let (name, segment) = self.tickets[done.ticket.index()];
        let job = self.jobs.get_mut(&name).expect("a job stays until all its requests have ended");
        if job.end(segment, done.status) && !self.line.contains(&name) {
            self.line.push_back(name);
        }
        if !job.is_over() {
            return;
        }
        let job = self.jobs.remove(&name).expect("it was just there");
        if job.is_abandoned {
            self.left.push(job);
        } else {
            self.ended.push_back((name, Ended::Job(job)));
        }
    }

    /// Continues to open the queue. Returns `true` if there is something to send.
    fn open(&mut self, event: Event) -> bool {
        let ended = match (self.opening, event) {
            (Opening::Dialling, Event::Connected { .. }) => match self.queue.info() {
                Ok(_) => {
                    self.opening = Opening::Asking;
                    return true;
                }
                Err(error) => Ended::Failed(error.into()),
            },
            (Opening::Dialling, Event::Lost { why, .. }) => Ended::Failed(why.into()),
            (Opening::Asking, Event::Info { info: Ok(info), .. }) => Ended::Opened(Some(info)),
            (
                Opening::Asking,
                Event::Info { info: Err(Error::Failed(Status::Unsupported)), .. },
            ) => Ended::Opened(None),
            (Opening::Asking, Event::Info { info: Err(error), .. }) => Ended::Failed(error.into()),
            _ => return false,
        };
        self.opening = Opening::Over;
        self.ended.push_back((OPENING, ended));
        false
    }

    /// Removes and returns the end of a job, if it has ended.
    pub(crate) fn take(&mut self, name: u64) -> Option<Ended> {
        let index = self.ended.iter().position(|(ended, _)| *ended == name)?;
        self.ended.remove(index).map(|(_, ended)| ended)
    }

    /// Removes and returns the ends of all jobs that have ended.
    pub(crate) fn take_all(&mut self) -> VecDeque<(u64, Ended)> {
        std::mem::take(&mut self.ended)
    }

    /// Gives up the answer of a job, and its requests that were not submitted. Its memory stays
    /// until the others have ended.
    pub(crate) fn abandon(&mut self, name: u64) {
        if let Some(job) = self.jobs.get_mut(&name) {
            job.is_abandoned = true;
            job.stop();
            self.line.retain(|other| *other != name);
            if job.is_over() {
                self.left.extend(self.jobs.remove(&name));
            }
        } else if let Some(Ended::Job(job)) = self.take(name) {
            self.left.push(job);
        }
    }

    /// Closes the queue, and returns the objects to be dropped by a thread that is attached to the
    /// interpreter.
    pub(crate) fn close(self) -> Vec<Job> {
        let Inner { queue, jobs, mut done, ended, mut left, .. } = self;
        let ended = ended.into_iter().filter_map(|(_, ended)| match ended {
            Ended::Job(job) => Some(job),
            _ => None,
        });
        left.extend(ended);
        if queue.close(&mut done) {
            left.extend(jobs.into_values());
        } else {
            std::mem::forget(jobs); // the kernel may still use the memory
        }
        left
    }

    /// Drops the queue in a forked child, without touching the connections, which are the parent's.
    pub(crate) fn leave_to_parent(self) {
        let Inner { queue, jobs, ended, left, .. } = self;
        queue.leave_to_parent();
        // Exports belong to both processes; a leak of the child's side costs it nothing more.
        std::mem::forget((jobs, ended, left));
    }
}
