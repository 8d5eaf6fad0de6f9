//! The kernel's side of a queue: requests by tag, and the driver that gives them to a process.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use client::block::{Arrival, BlockOperation, BlockRequest, Driver, Need};
use contract::Buf;

/// The holder of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestHolder {
    /// The kernel holds the request until a process serves the device.
    Waiting,
    /// The process that serves the device.
    Served,
    /// A process, which has called the kernel about the request. The call takes effect with the
    /// next system call.
    Said,
}

/// A request to the block device, which the kernel holds until a process has completed it.
#[derive(Clone)]
pub(super) struct HeldRequest {
    pub(super) request: BlockRequest,
    /// The data to write, or the room for the data of a read.
    pub(super) data: Vec<u8>,
    stage: RequestHolder,
    /// The number of processes that were given the request.
    pub(super) given: u32,
}

impl fmt::Debug for HeldRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeldRequest { request, data, stage, given } = self;
        write!(f, "{request:?}, {} bytes, {stage:?}, given {given} times", data.len())
    }
}

/// A call of the process to the kernel: to copy a write's data into a buffer, or to complete a
/// request with a result.
#[derive(Debug)]
enum KernelCall {
    Ask(u16, Buf),
    Complete(u16, i32, Option<Buf>),
}

/// A completed request: its tag, the request with its data, and the result.
pub(super) type CompletedRequest = (u16, HeldRequest, i32);

/// The kernel's side of a queue.
#[derive(Debug)]
pub(super) struct Kernel {
    requests: Vec<Option<HeldRequest>>,
    /// Calls of the process that the next system call brings to the kernel.
    calls: Vec<KernelCall>,
    /// Tags of writes and buffers into which their data was copied, for the process to poll.
    copied: Vec<(u16, Buf)>,
    freed: Vec<Buf>,
    /// `true` once every queue of the present process has had a connection, so that the kernel may
    /// pass requests to the process.
    pub(super) gives: bool,
}

impl Kernel {
    pub(super) fn new(depth: u16) -> Kernel {
        Kernel {
            requests: (0..depth).map(|_| None).collect(),
            calls: Vec::new(),
            copied: Vec::new(),
            freed: Vec::new(),
            gives: false,
        }
    }

    /// Returns a free tag for a request; `None` if the queue is full.
    pub(super) fn free_tag(&self) -> Option<u16> {
        self.requests.iter().position(Option::is_none).map(|tag| tag as u16)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.requests.iter().flatten().count()
    }

    /// Adds a request to the block device under a free tag, with the data of a write or the buffer
    /// of a read.
    pub(super) fn add(&mut self, tag: u16, request: BlockRequest, data: Vec<u8>) {
        let held = HeldRequest { request, data, stage: RequestHolder::Waiting, given: 0 };
        let before = self.requests[usize::from(tag)].replace(held);
        assert!(before.is_none(), "a tag names one request");
    }

    /// Returns `true` if the process's next poll would find a request, data or a free buffer.
    pub(super) fn has_events(&self) -> bool {
        let waits = |held: &HeldRequest| held.stage == RequestHolder::Waiting;
        let gives = self.gives && self.requests.iter().flatten().any(waits);
        gives || !self.copied.is_empty() || !self.freed.is_empty()
    }

    /// Returns `true` if the process has completed requests that no system call has passed to the
    /// kernel yet.
    pub(super) fn has_answers(&self) -> bool {
        self.calls.iter().any(|call| matches!(call, KernelCall::Complete(..)))
    }

    /// Carries out the calls of the process, as a system call does. Returns the completed requests.
    pub(super) fn hear(&mut self) -> Vec<CompletedRequest> {
        let mut ended = Vec::new();
        for call in std::mem::take(&mut self.calls) {
            match call {
                KernelCall::Ask(tag, mut buf) => {
                    let held = self.held(tag);
                    held.stage = RequestHolder::Served;
                    buf.prefix_mut(held.data.len()).copy_from_slice(&held.data);
                    self.copied.push((tag, buf));
                }
                KernelCall::Complete(tag, result, buf) => {
                    let mut held = self.requests[usize::from(tag)].take().expect("it was said of");
                    if held.request.operation == BlockOperation::Read && result > 0 {
                        let buf = buf.as_ref().expect("a read's data is in its buffer");
                        let bytes = held.data.len();
                        held.data.copy_from_slice(&buf.bytes()[..bytes]);
                    }
                    self.freed.extend(buf);
                    ended.push((tag, held, result));
                }
            }
        }
        ended
    }

    /// Takes note of the end of the process: its calls since the last system call are forgotten,
    /// and every request waits again. Returns the memory of the process, and the number of
    /// completions that were forgotten.
    pub(super) fn bury(&mut self) -> (Vec<Buf>, u64) {
        self.gives = false;
        let mut bufs = std::mem::take(&mut self.freed);
        bufs.extend(self.copied.drain(..).map(|(_, buf)| buf));
        let mut forgotten = 0;
        for call in self.calls.drain(..) {
            match call {
                KernelCall::Ask(_, buf) => bufs.push(buf),
                KernelCall::Complete(_, _, buf) => {
                    forgotten += 1;
                    bufs.extend(buf);
                }
            }
        }
        self.requests.iter_mut().flatten().for_each(|held| held.stage = RequestHolder::Waiting);
        (bufs, forgotten)
    }

    fn held(&mut self, tag: u16) -> &mut HeldRequest {
        self.requests[usize::from(tag)].as_mut().expect("the tag names a request")
    }

    /// Records a call of the process about the request `tag`, for the next system call.
    fn say(&mut self, tag: u16, call: KernelCall) {
        let held = self.requests[usize::from(tag)].as_mut();
        let held = held.unwrap_or_else(|| panic!("{call:?}: nobody asked for it"));
        assert!(
            held.stage == RequestHolder::Served,
            "{call:?}: {:?} is answered twice",
            held.request
        );
        held.stage = RequestHolder::Said;
        self.calls.push(call);
    }
}

/// The driver of a queue's engine: the process's end of the simulated kernel.
#[derive(Clone, Debug)]
pub(super) struct KernelEnd(pub(super) Rc<RefCell<Kernel>>);

impl Driver for KernelEnd {
    fn poll(&mut self, arrivals: &mut Vec<Arrival>, freed: &mut Vec<Buf>) {
        let mut kernel = self.0.borrow_mut();
        freed.append(&mut kernel.freed);
        let copied = std::mem::take(&mut kernel.copied);
        for (tag, buf) in copied {
            let (request, need) = (Ok(kernel.held(tag).request), Need::Service(Some(buf)));
            arrivals.push(Arrival { tag, request, need });
        }
        if !kernel.gives {
            return;
        }
        for (tag, held) in kernel.requests.iter_mut().enumerate() {
            let Some(held) = held.as_mut().filter(|held| held.stage == RequestHolder::Waiting)
            else {
                continue;
            };
            held.stage = RequestHolder::Served;
            held.given += 1;
            let need = match held.request.operation {
                BlockOperation::Write => Need::Memory,
                _ => Need::Service(None),
            };
            arrivals.push(Arrival { tag: tag as u16, request: Ok(held.request), need });
        }
    }

    fn ask(&mut self, tag: u16, buf: Buf) {
        self.0.borrow_mut().say(tag, KernelCall::Ask(tag, buf));
    }

    fn complete(&mut self, tag: u16, result: i32, buf: Option<Buf>) {
        self.0.borrow_mut().say(tag, KernelCall::Complete(tag, result, buf));
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn failure(&self) -> Option<i32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> KernelEnd {
        let mut kernel = Kernel::new(2);
        kernel.gives = true;
        let request = BlockRequest {
            operation: BlockOperation::Flush,
            sector: 0,
            sectors: 0,
            is_durable: false,
        };
        kernel.add(1, request, Vec::new());
        KernelEnd(Rc::new(RefCell::new(kernel)))
    }

    fn polled(driver: &mut KernelEnd) -> usize {
        let mut arrivals = Vec::new();
        driver.poll(&mut arrivals, &mut Vec::new());
        arrivals.len()
    }

    #[test]
    fn what_nobody_heard_is_given_again() {
        let mut driver = kernel();
        assert_eq!((polled(&mut driver), polled(&mut driver)), (1, 0));
        driver.complete(1, 0, None);
        assert_eq!(driver.0.borrow_mut().bury().1, 1);
        assert_eq!(polled(&mut driver), 0, "nobody is there");
        driver.0.borrow_mut().gives = true;
        assert_eq!(polled(&mut driver), 1);
        driver.complete(1, 0, None);
        assert_eq!(driver.0.borrow_mut().hear()[0].1.given, 2);
    }

    #[test]
    #[should_panic(expected = "answered twice")]
    fn a_second_answer_is_caught() {
        let mut driver = kernel();
        polled(&mut driver);
        driver.complete(1, 0, None);
        driver.complete(1, 0, None);
    }
}
