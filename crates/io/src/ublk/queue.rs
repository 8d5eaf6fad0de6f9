//! A queue of a block device, served through a thread's ring.
//!
//! Each tag of the queue has one command at the driver or one request at the program. The driver
//! copies a write's data into memory that the program provides when it asks for the data, and a
//! read's data from memory named in the completion.

// UNSAFETY: maps memory that the kernel writes, and names buffers to the kernel in entries.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;

use contract::{BLOCK_BYTES, Buf};
use io_uring::{opcode, types};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use wire::ublk::{
    DESCRIPTORS_STRIDE, IoCode, IoCommand, IoDescriptor, Operation, RESULT_ABORT,
    RESULT_NEED_GET_DATA, RESULT_OK,
};
use zerocopy::IntoBytes;

use super::guard::open_device;
use crate::{Error, Owner, Ring, RingEvent};

/// The page size, to which the mapping is rounded.
const PAGE: usize = 4096;

/// A request that the driver has passed to the program.
#[derive(Debug)]
pub struct BlockArrival {
    /// The request's tag, which identifies it until its completion.
    pub tag: u16,
    /// The driver's description of the request.
    pub descriptor: IoDescriptor,
    /// The next need of the request.
    pub need: RequestNeed,
}

/// The step that a request of the kernel needs next.
#[derive(Debug)]
pub enum RequestNeed {
    /// The request is a write, and needs a buffer for its data, to be supplied with
    /// [`BlockQueue::ask`].
    Memory,
    /// The request is ready to be served. A write has its data in the buffer.
    Service(Option<Buf>),
}

/// The holder of a tag.
#[derive(Debug)]
enum TagState {
    /// The driver has the tag, until there is a request.
    Fetching,
    /// The driver has the tag, and copies a write's data into the buffer.
    Asking(Buf),
    /// The program has the tag's request.
    Served,
    /// The device was stopped, so the tag is unused.
    Ended,
}

/// A queue of a block device. Like a worker's device queue, it only writes entries and drains its
/// inbox; the outer loop enters the kernel.
pub struct BlockQueue {
    ring: Ring,
    owner: Owner,
    file: Arc<File>,
    number: u16,
    descriptors: Descriptors,
    tags: Vec<TagState>,
    /// Number of tags that have not ended.
    open: usize,
    /// Buffers of completed reads. They are reusable once the kernel has consumed the ring entries
    /// that refer to them.
    leaving: Vec<Buf>,
    events: Vec<RingEvent>,
    /// The first error number with which the driver refused a command; `None` if it refused none.
    failure: Option<i32>,
}

/// The descriptions of a queue's requests, in memory that the kernel writes.
struct Descriptors {
    base: *const IoDescriptor,
    bytes: usize,
}

impl BlockQueue {
    /// Opens the file of a device, through which one process at a time serves its queues.
    ///
    /// # Errors
    /// Fails if another process serves the device.
    pub fn file(device: u32) -> Result<Arc<File>, Error> {
        let opened = open_device(device);
        let named = |e| Error::system(format!("cannot open /dev/ublkc{device}"), e);
        opened.map(Arc::new).map_err(named)
    }

    /// Returns queue `number`, with `depth` tags, of the device that `file` serves, for the calling
    /// thread. Completions come to `owner` of the thread's ring. All tags wait for requests.
    ///
    /// # Errors
    /// Fails if the kernel's memory cannot be mapped.
    pub fn open(
        file: &Arc<File>,
        ring: &Ring,
        owner: Owner,
        number: u16,
        depth: u16,
    ) -> Result<BlockQueue, Error> {
        let mut queue = BlockQueue {
            ring: ring.clone(),
            owner,
            file: Arc::clone(file),
            number,
            descriptors: Descriptors::map(file, number, depth)?,
            tags: (0..depth).map(|_| TagState::Fetching).collect(),
            open: usize::from(depth),
            leaving: Vec::with_capacity(usize::from(depth)),
            events: Vec::with_capacity(usize::from(depth)),
            failure: None,
        };
        ring.expect(owner, usize::from(depth));
        for tag in 0..depth {
            queue.push(IoCode::FETCH, tag, 0, ptr::null());
        }
        Ok(queue)
    }

    /// Appends the new requests to `arrivals`, and the buffers of completed reads to `freed`.
    ///
    /// # Panics
    /// Panics if the driver completes a command that it does not have.
    pub fn poll(&mut self, arrivals: &mut Vec<BlockArrival>, freed: &mut Vec<Buf>) {
        if !self.leaving.is_empty() && self.ring.has_submitted_all() {
            freed.append(&mut self.leaving);
        }
        let mut events = std::mem::take(&mut self.events);
        self.ring.drain(self.owner, &mut events);
        for event in events.drain(..) {
            self.take(event, arrivals);
        }
        self.events = events;
    }

    fn take(&mut self, event: RingEvent, arrivals: &mut Vec<BlockArrival>) {
        let tag = event.data as u16;
        let held = &mut self.tags[usize::from(tag)];
        let buf = match std::mem::replace(held, TagState::Served) {
            TagState::Fetching => None,
            TagState::Asking(buf) => Some(buf),
            TagState::Served | TagState::Ended => panic!("the driver has no command of tag {tag}"),
        };
        let need = match (event.result, buf) {
            (RESULT_OK, Some(buf))
                if self.descriptors.read(tag).operation() != Operation::WRITE =>
            {
                // The kernel could copy nothing, makes the write anew, and gave its tag away.
                self.leaving.push(buf);
                RequestNeed::Service(None)
            }
            (RESULT_OK, buf) => RequestNeed::Service(buf),
            (RESULT_NEED_GET_DATA, buf) => {
                self.leaving.extend(buf);
                RequestNeed::Memory
            }
            (result, buf) => {
                *held = TagState::Ended;
                self.open -= 1;
                if result != RESULT_ABORT && self.failure.is_none() {
                    self.failure = Some(-result);
                }
                self.leaving.extend(buf);
                return;
            }
        };
        let descriptor = self.descriptors.read(tag);
        arrivals.push(BlockArrival { tag, descriptor, need });
    }

    /// Asks for the data of a write, which the driver copies into `buf`. The request comes again.
    ///
    /// # Panics
    /// Panics if the buffer is too small for the data.
    pub fn ask(&mut self, tag: u16, buf: Buf) {
        let sectors = self.descriptors.read(tag).sectors.get() as usize;
        assert!(
            sectors * BLOCK_BYTES <= buf.capacity(),
            "the kernel's request is larger than agreed"
        );
        let bytes = buf.bytes().as_ptr();
        let before = std::mem::replace(&mut self.tags[usize::from(tag)], TagState::Asking(buf));
        assert!(matches!(before, TagState::Served), "the program has the request");
        self.push(IoCode::GET_DATA, tag, 0, bytes);
    }

    /// Completes a request with the number of bytes read or written, zero for a request without
    /// data, or a negated error number. A successful read has its data in `buf`, which a later
    /// [`poll`](BlockQueue::poll) returns. The tag then waits for its next request.
    ///
    /// # Panics
    /// Panics if the buffer of a read is missing or smaller than `result`.
    pub fn complete(&mut self, tag: u16, result: i32, buf: Option<Buf>) {
        let before = std::mem::replace(&mut self.tags[usize::from(tag)], TagState::Fetching);
        assert!(matches!(before, TagState::Served), "the program has the request");
        let is_read = self.descriptors.read(tag).operation() == Operation::READ;
        let address = match &buf {
            Some(buf) => buf.bytes().as_ptr(),
            // The driver wants an address for each read, and looks at that of a good one only.
            None if is_read => self.descriptors.base.cast(),
            None => ptr::null(),
        };
        let has_bytes = buf.as_ref().map_or(0, |buf| buf.capacity() as i32);
        assert!(!is_read || result <= has_bytes, "the data of a read is in its buffer");
        self.leaving.extend(buf);
        self.push(IoCode::COMMIT_AND_FETCH, tag, result, address);
    }

    /// Returns `true` once the device was stopped and the driver has no command of this queue.
    pub fn has_ended(&self) -> bool {
        self.open == 0
    }

    /// Returns `true` if the driver has cancelled some commands of this queue and not all. This is
    /// so for a moment when the device is stopped.
    pub fn is_cut(&self) -> bool {
        self.open > 0 && self.open < self.tags.len()
    }

    /// Returns the first error number with which the driver refused a command; `None` if it refused
    /// none.
    pub fn failure(&self) -> Option<i32> {
        self.failure
    }

    /// Returns `true` if a [`poll`](BlockQueue::poll) would find something.
    pub fn has_events(&self) -> bool {
        self.ring.has_events(self.owner)
    }

    fn push(&mut self, code: IoCode, tag: u16, result: i32, address: *const u8) {
        let command = IoCommand {
            queue: self.number.into(),
            tag: tag.into(),
            result: result.into(),
            address: (address.addr() as u64).into(),
        };
        let mut bytes = [0; size_of::<IoCommand>()];
        bytes.copy_from_slice(command.as_bytes());
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd16::new(fd, code.0).cmd(bytes).build();
        // SAFETY: the entry names a buffer of at least the request's size that `tags` holds until
        // the completion, or one in `leaving`, which the driver reads only while it takes the
        // entry; the buffer stays in `leaving` until that has happened. Memory of buffers is never
        // unmapped.
        unsafe { self.ring.push(self.owner, u64::from(tag), entry) };
    }
}

impl Descriptors {
    fn map(file: &File, queue: u16, depth: u16) -> Result<Descriptors, Error> {
        let bytes = (usize::from(depth) * size_of::<IoDescriptor>()).next_multiple_of(PAGE);
        let offset = u64::from(queue) * DESCRIPTORS_STRIDE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            let flags = MapFlags::SHARED | MapFlags::POPULATE;
            mmap(ptr::null_mut(), bytes, ProtFlags::READ, flags, file, offset)
        };
        let base = base.map_err(|e| Error::system("cannot map a queue of the block device", e))?;
        Ok(Descriptors { base: base.cast_const().cast(), bytes })
    }

    fn read(&self, tag: u16) -> IoDescriptor {
        assert!((usize::from(tag) + 1) * size_of::<IoDescriptor>() <= self.bytes);
        // SAFETY: the description lies in the mapping. The kernel writes it before it completes the
        // tag's command, and not while the program has the request; any bytes are a description.
        unsafe { ptr::read_volatile(self.base.add(usize::from(tag))) }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to it any more.
        let unmapped = unsafe { munmap(self.base.cast_mut().cast(), self.bytes) };
        unmapped.expect("a whole mapping can be unmapped");
    }
}
