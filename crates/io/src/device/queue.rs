//! A worker's queue to a file, through the worker's ring.

// UNSAFETY: submission entries carry pointers into buffers that this queue holds meanwhile.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd};

use contract::{Completion, Device, Geometry, Instant, Slot, SlotTable, Submission};
use io_uring::{opcode, squeue, types};
use rustix::io::ReadWriteFlags;

use super::file::FileVolume;
use super::flight::{FileOperation, FileRequest, TargetFile, ZEROES};
use super::journal::HEADER_BYTES;
use crate::{Owner, Ring, RingEvent};

/// The number of bytes after which calls that copy at once wait for the next poll, so that the
/// worker gets on with other things.
const MADE_BYTES_MAX: usize = 1 << 20;

/// A queue to a [`FileVolume`] on the worker's ring. It only writes entries and drains its inbox;
/// `Ring::enter` submits them. Buffers must come from [`carve`](crate::carve) (their alignment is
/// checked), ranges must be whole granules.
///
/// A queue that is dropped with requests in flight leaks their buffers, since the kernel may still
/// use them.
pub struct FileQueue {
    volume: FileVolume,
    ring: Ring,
    owner: Owner,
    /// The file's place in the ring's table of registered files.
    place: FileRegistration,
    flights: SlotTable<FileRequest>,
    refused: Vec<Completion>,
    /// Results of system calls that were made at once.
    made: Vec<(Slot, i32)>,
    /// The number of bytes that such calls have copied since the last poll.
    made_bytes: usize,
    /// Atomic writes that wait for a slot of the journal, and requests that wait for the next poll,
    /// oldest first.
    waiting: VecDeque<Slot>,
    events: Vec<RingEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileRegistration {
    /// The file is not registered yet.
    Unknown,
    /// The file's index in the table. A request by the index need not count the file's users.
    Registered(i32),
    /// The ring has no table of registered files.
    Nowhere,
}

impl FileQueue {
    /// Maximum number of requests in flight.
    pub const DEPTH: usize = 256;

    /// Returns a queue of [`FileQueue::DEPTH`] requests to `volume` on the calling thread's ring,
    /// as its `owner`: one of `Owner::device(n)` that is not otherwise used on this ring.
    pub fn open(volume: &FileVolume, ring: &Ring, owner: Owner) -> FileQueue {
        let depth = FileQueue::DEPTH;
        ring.expect(owner, depth);
        FileQueue {
            volume: volume.clone(),
            ring: ring.clone(),
            owner,
            place: FileRegistration::Unknown,
            flights: SlotTable::new(depth),
            refused: Vec::with_capacity(depth),
            made: Vec::with_capacity(depth),
            made_bytes: 0,
            waiting: VecDeque::with_capacity(depth),
            events: Vec::with_capacity(depth),
        }
    }

    /// Takes the result of a system call of the request in `slot`: the request ends, or makes the
    /// next one.
    fn advance(&mut self, slot: Slot, result: i32, done: &mut Vec<Completion>) {
        match self.flights.get(slot).advance(result, &self.volume.shared) {
            None => self.push(slot),
            Some(status) => {
                let flight = self.flights.remove(slot);
                done.push(flight.complete(status, &self.volume.shared));
            }
        }
    }

    /// Queues the next system call of the request in `slot`, or lets the request wait for a slot of
    /// the journal or for the next poll.
    fn push(&mut self, slot: Slot) {
        let shared = &self.volume.shared;
        let flight = self.flights.get(slot);
        let is_put_off = shared.is_in_memory && self.made_bytes >= MADE_BYTES_MAX;
        if is_put_off || !flight.is_ready(shared) {
            self.waiting.push_back(slot);
            return;
        }
        let call = flight.call(shared);
        if shared.is_in_memory
            && let Some(result) = make(shared.target(call.target), call.operation, flight)
        {
            self.made.push((slot, result));
            self.made_bytes += result.max(0) as usize;
            return;
        }
        if self.place == FileRegistration::Unknown {
            // Late, because the sockets make the table.
            self.place = match self
                .ring
                .register_device_file(self.owner, Some(shared.target(TargetFile::Data)))
            {
                Some(place) => FileRegistration::Registered(place as i32),
                None => FileRegistration::Nowhere,
            };
        }
        let entry = match (call.target, self.place) {
            (TargetFile::Data, FileRegistration::Registered(place)) => {
                let entry = entry(&self.ring, types::Fd(place), call.operation, flight);
                entry.flags(squeue::Flags::FIXED_FILE)
            }
            _ => {
                let fd = types::Fd(shared.target(call.target).as_raw_fd());
                entry(&self.ring, fd, call.operation, flight)
            }
        };
        // SAFETY: the entry points into the flight's buffer or header, or at a static. Those stay
        // in `flights`, untouched, until the completion; their memory is never unmapped, also when
        // the queue is dropped before. The file stays open while a queue to it exists, and the
        // kernel holds it for what is in flight.
        unsafe { self.ring.push(self.owner, u64::from(slot.to_bits()), entry) };
    }
}

/// Makes a transfer or a sync of a file in memory at once, and returns its result as the ring does;
/// `None` for another call. The kernel has no way to begin a transfer of such a file without
/// waiting for its end, so the ring would hand it to a thread of the same core.
fn make(file: BorrowedFd<'_>, operation: FileOperation, flight: &mut FileRequest) -> Option<i32> {
    let made = match operation {
        FileOperation::Read { offset, at, bytes } => {
            let buf = flight.buf.as_mut().expect("a read has a buffer");
            rustix::io::pread(file, &mut buf.prefix_mut(at + bytes)[at..], offset)
        }
        FileOperation::Write { offset, at, bytes, .. } => {
            let buf = flight.buf.as_ref().expect("a write has a buffer");
            rustix::io::pwrite(file, &buf.bytes()[at..at + bytes], offset)
        }
        FileOperation::Sync => rustix::fs::fdatasync(file).map(|()| 0),
        _ => return None,
    };
    Some(made.map_or_else(|errno| -errno.raw_os_error(), |count| count as i32))
}

fn entry(
    ring: &Ring,
    fd: types::Fd,
    operation: FileOperation,
    flight: &mut FileRequest,
) -> squeue::Entry {
    match operation {
        FileOperation::Read { offset, at, bytes } => {
            let buf = flight.buf.as_mut().expect("a read has a buffer");
            let target = &mut buf.prefix_mut(at + bytes)[at..];
            let (pointer, len) = (target.as_mut_ptr(), bytes as u32);
            if ring.has_registered(target) {
                opcode::ReadFixed::new(fd, pointer, len, 0).offset(offset).build()
            } else {
                opcode::Read::new(fd, pointer, len).offset(offset).build()
            }
        }
        FileOperation::Write { offset, at, bytes, dsync } => {
            let buf = flight.buf.as_ref().expect("a write has a buffer");
            let source = &buf.bytes()[at..at + bytes];
            let (pointer, len) = (source.as_ptr(), bytes as u32);
            let flags = if dsync { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            let flags = flags.bits() as i32;
            if ring.has_registered(source) {
                opcode::WriteFixed::new(fd, pointer, len, 0).offset(offset).rw_flags(flags).build()
            } else {
                opcode::Write::new(fd, pointer, len).offset(offset).rw_flags(flags).build()
            }
        }
        FileOperation::WriteHeader { offset, dsync } => {
            let header = flight.journal_header()[..HEADER_BYTES].as_ptr();
            let flags = if dsync { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            let entry = opcode::Write::new(fd, header, HEADER_BYTES as u32).offset(offset);
            entry.rw_flags(flags.bits() as i32).build()
        }
        FileOperation::WriteZeroes { offset, bytes } => {
            opcode::Write::new(fd, ZEROES.0.as_ptr(), bytes as u32).offset(offset).build()
        }
        FileOperation::Allocate { mode, offset, bytes } => {
            opcode::Fallocate::new(fd, bytes).offset(offset).mode(mode.bits() as i32).build()
        }
        FileOperation::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
    }
}

impl Device for FileQueue {
    fn geometry(&self) -> Geometry {
        self.volume.geometry()
    }

    fn room(&self) -> usize {
        self.flights.room() - self.refused.len()
    }

    fn submit(&mut self, _now: Instant, submission: Submission) {
        assert!(self.room() > 0, "more submissions than the device has room for");
        match FileRequest::start(submission, &self.volume.shared) {
            Ok(flight) => {
                let slot = self.flights.insert(flight).expect("room was checked");
                self.push(slot);
            }
            Err(refused) => self.refused.push(refused),
        }
    }

    /// Does nothing: the outer loop enters the kernel once a turn for all queued entries.
    fn kick(&mut self, _now: Instant) {}

    fn poll(&mut self, _now: Instant, done: &mut Vec<Completion>) {
        done.append(&mut self.refused);
        let mut events = std::mem::take(&mut self.events);
        self.ring.drain(self.owner, &mut events);
        for event in events.drain(..) {
            self.advance(Slot::from_bits(event.data as u32), event.result, done);
        }
        self.events = events;
        self.made_bytes = 0;
        // Each request makes a few calls at most.
        while let Some((slot, result)) = self.made.pop() {
            self.advance(slot, result, done);
        }
        for _ in 0..self.waiting.len() {
            let slot = self.waiting.pop_front().expect("it was just counted");
            self.push(slot);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let due = !self.refused.is_empty() || !self.made.is_empty() || !self.waiting.is_empty();
        let ready = due || self.ring.has_events(self.owner);
        ready.then_some(Instant::ZERO)
    }
}

impl Drop for FileQueue {
    /// Removes the file from the ring's table, which would keep it open and locked.
    fn drop(&mut self) {
        if let FileRegistration::Registered(_) = self.place {
            self.ring.register_device_file(self.owner, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::FileOptions;
    use crate::{Network, Reactor, Sockets, SocketsConfig};
    use contract::{Command, Range, SizeClass, Status};
    use std::path::Path;
    use std::time::Duration;

    fn flush(queue: &mut FileQueue) -> Status {
        let slot = SlotTable::new(1).insert(()).unwrap();
        queue.submit(Instant::ZERO, Submission { slot, command: Command::Flush, buf: None });
        let mut done = Vec::new();
        while done.is_empty() {
            queue.ring.enter(Some(Some(Duration::from_millis(10))));
            queue.poll(Instant::ZERO, &mut done);
        }
        done[0].status
    }

    /// A file in memory is read and written within the call that asks for it: the ring would hand
    /// it to a thread.
    #[test]
    fn a_file_in_memory_needs_no_entry_of_the_ring() {
        let path = Path::new("/dev/shm").join(format!("nearflash-made-{}", std::process::id()));
        let options = FileOptions { journal: false, ..FileOptions::default() };
        let volume = FileVolume::open(&path, Some(8192), options).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(volume.shared.is_in_memory);
        let ring = Ring::new().unwrap();
        let mut queue = FileQueue::open(&volume, &ring, Owner::device(0));
        let arena = crate::carve(&[SizeClass { bytes: 4096, count: 1 }]).unwrap();
        let mut buf = arena.bufs.into_iter().next().unwrap();
        buf.prefix_mut(4096).fill(7);
        let range = Range::new(8, 8);
        let slot = SlotTable::new(1).insert(()).unwrap();
        let mut done = Vec::new();
        for command in [
            Command::Write { range, fua: true },
            Command::Write { range: Range::new(0, 8), fua: false },
            Command::Read(range),
            Command::Flush,
        ] {
            let lent = (command.buffer_bytes() > 0).then_some(buf);
            queue.submit(Instant::ZERO, Submission { slot, command, buf: lent });
            assert_eq!(queue.wake_at(), Some(Instant::ZERO));
            queue.poll(Instant::ZERO, &mut done);
            let ended = done.pop().expect("it has ended");
            assert_eq!(ended.status, Status::Ok, "{command:?}");
            let Some(back) = ended.buf else { break };
            buf = back;
            if command == Command::Read(range) {
                assert!(buf.bytes()[..4096].iter().all(|byte| *byte == 7));
            }
            buf.prefix_mut(4096)[..100].fill(9);
        }
        assert_eq!(queue.wake_at(), None);
    }

    #[test]
    fn the_file_is_registered_where_the_ring_has_a_table() {
        let path = std::env::temp_dir().join(format!("nearflash-place-{}", std::process::id()));
        let options = FileOptions { journal: false, ..FileOptions::default() };
        let volume = FileVolume::open(&path, Some(4096), options).unwrap();
        std::fs::remove_file(&path).unwrap();
        let bare = Ring::new().unwrap();
        let mut queue = FileQueue::open(&volume, &bare, Owner::device(0));
        assert_eq!((flush(&mut queue), queue.place), (Status::Ok, FileRegistration::Nowhere));
        let shared = Ring::new().unwrap();
        let config = SocketsConfig { connections_max: 10, ..SocketsConfig::default() };
        let _sockets = Sockets::new(&shared, config).unwrap();
        let mut queue = FileQueue::open(&volume, &shared, Owner::device(1));
        assert_eq!(
            (flush(&mut queue), queue.place),
            (Status::Ok, FileRegistration::Registered(11))
        );
    }
}
