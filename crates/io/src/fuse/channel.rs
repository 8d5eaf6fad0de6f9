//! The channel of a file system to the kernel: requests come and replies leave by `/dev/fuse`,
//! through a thread's ring.
//!
//! Each read of the device takes one request. A reader waits until the device is readable and reads
//! then, as two linked entries; while other requests are in service, further readers read without
//! waiting. The data of a write lies in a buffer of its own, aligned to a page, and goes to a
//! device without a copy.

// UNSAFETY: submission entries carry pointers to heads and buffers that the channel holds
// meanwhile.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use contract::{Buf, Slot, SlotTable};
use io_uring::{opcode, squeue, types};

use crate::{Owner, Ring, RingEvent};

/// Number of the first bytes of a message that do not lie in its buffer: the headers of a write.
pub const HEAD_BYTES: usize = 80;

/// Size in bytes of a buffer that holds the data of the largest write, and so the body of any
/// message.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Bytes of the longest head of a reply.
const REPLY_HEAD_BYTES: usize = 160;

/// Maximum number of reads of the device at a time.
const READERS: usize = 4;

/// Bit in the user data of completions of replies. The user data of a read is the reader's number.
const REPLY: u64 = 1 << 32;

/// User data of completions of waits that have failed. The ring does not report waits that
/// succeeded.
const WAIT: u64 = 1 << 33;

/// A request of the kernel.
#[derive(Debug)]
pub struct FuseRequest {
    /// The first bytes of the message.
    pub head: [u8; HEAD_BYTES],
    /// The bytes of the whole message, at most [`HEAD_BYTES`] more than the buffer has.
    pub bytes: usize,
    /// The bytes of the message behind the head.
    pub buf: Buf,
}

impl FuseRequest {
    /// Returns the message in two parts: the head, and the bytes behind it.
    pub fn parts(&self) -> (&[u8], &[u8]) {
        let head = self.bytes.min(HEAD_BYTES);
        (&self.head[..head], &self.buf.bytes()[..self.bytes - head])
    }
}

/// The memory into which a request is read, and the state of the read.
struct Reader {
    head: Box<[u8; HEAD_BYTES]>,
    vectors: Box<[libc::iovec; 2]>,
    buf: Option<Buf>,
    /// `true` if the kernel may write the head and the buffer.
    is_reading: bool,
}

/// A reply that the kernel has not taken yet.
struct UnsentReply {
    head: [u8; REPLY_HEAD_BYTES],
    vectors: [libc::iovec; 2],
    body: Option<Buf>,
}

/// The channel of a mounted file system. It only writes entries and drains its inbox; the outer
/// loop enters the kernel.
///
/// A channel that is dropped with entries at the kernel leaks their buffers.
pub struct Channel {
    ring: Ring,
    owner: Owner,
    file: OwnedFd,
    readers: [Reader; READERS],
    replies: SlotTable<UnsentReply>,
    /// Requests that `poll` has returned and that have no reply yet. With the replies that have not
    /// left and the readers at work: `in_service + replies + readers ≤ depth`.
    in_service: usize,
    depth: usize,
    events: Vec<RingEvent>,
    /// `true` once the file system is not mounted any more, or the kernel has refused a message.
    has_ended: bool,
    failure: Option<io::Error>,
}

impl Channel {
    /// Returns the channel of the file system that was mounted with this descriptor of `/dev/fuse`,
    /// for the calling thread. Completions come to `owner` of the thread's ring. At most `depth`
    /// requests are in service.
    pub fn open(file: OwnedFd, ring: &Ring, owner: Owner, depth: usize) -> Channel {
        // A request without a reply, and notifications, need places as well.
        let most = depth + READERS;
        ring.expect(owner, most + 2 * READERS);
        let none = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Channel {
            ring: ring.clone(),
            owner,
            file,
            readers: std::array::from_fn(|_| Reader {
                head: Box::new([0; HEAD_BYTES]),
                vectors: Box::new([none; 2]),
                buf: None,
                is_reading: false,
            }),
            replies: SlotTable::new(most),
            in_service: 0,
            depth,
            events: Vec::with_capacity(most + 2 * READERS),
            has_ended: false,
            failure: None,
        }
    }

    /// Appends the requests that have come to `messages`, and the buffers of replies that have left
    /// to `freed`. Readers without a buffer take one from `supply`, of at least
    /// [`MESSAGE_BYTES_MAX`] bytes.
    pub fn poll(
        &mut self,
        messages: &mut Vec<FuseRequest>,
        freed: &mut Vec<Buf>,
        mut supply: impl FnMut() -> Option<Buf>,
    ) {
        let before = messages.len();
        let mut events = std::mem::take(&mut self.events);
        self.ring.drain(self.owner, &mut events);
        for event in events.drain(..) {
            match event.data {
                // The read that is linked to the wait says what there is.
                WAIT => {}
                data if data & REPLY != 0 => {
                    let leaving = self.replies.remove(Slot::from_bits(data as u32));
                    freed.extend(leaving.body);
                    self.note_reply(event.result);
                }
                reader => self.take(reader as usize, event.result, messages),
            }
        }
        self.events = events;
        let has_more = messages.len() > before;
        let wanted = readers(has_more, self.in_service, self.replies.len(), self.depth);
        self.read(wanted, &mut supply);
    }

    fn take(&mut self, number: usize, result: i32, messages: &mut Vec<FuseRequest>) {
        let reader = &mut self.readers[number];
        reader.is_reading = false;
        match result {
            1.. => {
                let buf = reader.buf.take().expect("a reader has a buffer");
                messages.push(FuseRequest { head: *reader.head, bytes: result as usize, buf });
                self.in_service += 1;
            }
            _ => match -result {
                // The last two: the wait, or whoever has asked, was interrupted.
                libc::EAGAIN | libc::EINTR | libc::ENOENT | libc::ECANCELED => {}
                libc::ENODEV | libc::ECONNABORTED => self.has_ended = true,
                errno => self.fail(errno),
            },
        }
    }

    fn note_reply(&mut self, result: i32) {
        match -result {
            // Whoever has asked does not wait any more, or the file system is not mounted.
            ..=0 | libc::ENOENT | libc::ENODEV | libc::ECONNABORTED => {}
            errno => self.fail(errno),
        }
    }

    fn fail(&mut self, errno: i32) {
        self.has_ended = true;
        self.failure.get_or_insert_with(|| io::Error::from_raw_os_error(errno));
    }

    /// Starts reads until `wanted` readers read, of which the first waits for a request.
    fn read(&mut self, wanted: usize, supply: &mut impl FnMut() -> Option<Buf>) {
        if self.has_ended {
            return;
        }
        let mut reading = self.readers.iter().filter(|reader| reader.is_reading).count();
        for number in 0..READERS {
            let reader = &mut self.readers[number];
            if reading >= wanted || reader.is_reading {
                continue;
            }
            if reader.buf.is_none() {
                reader.buf = supply();
            }
            if reader.buf.is_none() {
                return;
            }
            self.push_read(number, reading == 0);
            reading += 1;
        }
    }

    fn push_read(&mut self, number: usize, waits: bool) {
        let fd = types::Fd(self.file.as_raw_fd());
        let reader = &mut self.readers[number];
        let buf = reader.buf.as_mut().expect("a reader has a buffer");
        let rest = buf.prefix_mut(MESSAGE_BYTES_MAX);
        *reader.vectors = [
            libc::iovec { iov_base: reader.head.as_mut_ptr().cast(), iov_len: HEAD_BYTES },
            libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
        ];
        reader.is_reading = true;
        if waits {
            let flags = squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS;
            let wait = opcode::PollAdd::new(fd, libc::POLLIN as u32).build().flags(flags);
            // SAFETY: the entry points to nothing.
            unsafe { self.ring.push(self.owner, WAIT, wait) };
        }
        let read = opcode::Readv::new(fd, reader.vectors.as_ptr(), 2).build();
        // SAFETY: the entry points to vectors on the heap, and these to a head on the heap and to a
        // buffer that `readers` holds, untouched, until the completion. `Drop` leaks all three
        // where there was none.
        unsafe { self.ring.push(self.owner, number as u64, read) };
    }

    /// Ends the service of a request that gets no reply. Its buffer stays the caller's.
    pub fn ignore(&mut self) {
        self.in_service -= 1;
    }

    /// Replies to a request with a head, and with the bytes `range` of `body`, which a later
    /// [`poll`](Channel::poll) frees.
    ///
    /// # Panics
    /// Panics if no request is without a reply, or the head is too long.
    pub fn reply(&mut self, head: &[u8], body: Option<(Buf, std::ops::Range<usize>)>) {
        self.in_service = self.in_service.checked_sub(1).expect("a reply belongs to a request");
        let none = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let (body, range) = match body {
            Some((body, range)) => (Some(body), range),
            None => (None, 0..0),
        };
        let slot = self.replies.insert_with(|| UnsentReply {
            head: [0; REPLY_HEAD_BYTES],
            vectors: [none; 2],
            body,
        });
        let leaving = self.replies.get(slot);
        leaving.head[..head.len()].copy_from_slice(head);
        leaving.vectors[0] =
            libc::iovec { iov_base: leaving.head.as_mut_ptr().cast(), iov_len: head.len() };
        if let Some(body) = &leaving.body {
            let bytes = &body.bytes()[range];
            let (base, len) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
            leaving.vectors[1] = libc::iovec { iov_base: base, iov_len: len };
        }
        let count = 1 + u32::from(leaving.vectors[1].iov_len > 0);
        let fd = types::Fd(self.file.as_raw_fd());
        let write = opcode::Writev::new(fd, leaving.vectors.as_ptr(), count).build();
        // SAFETY: the entry points into the reply's place in `replies`, which is not moved, and to
        // its buffer. They stay there, untouched, until the completion; `Drop` leaks the table
        // where there was none.
        unsafe { self.ring.push(self.owner, REPLY | u64::from(slot.to_bits()), write) };
    }

    /// Returns `true` once the file system is not mounted any more, or the kernel has refused a
    /// message. No more requests come.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the number of requests without a reply.
    pub fn in_service(&self) -> usize {
        self.in_service
    }

    /// Returns `true` once all replies have left.
    pub fn has_sent_all(&self) -> bool {
        self.replies.is_empty()
    }

    /// Returns the error with which the kernel has refused a message of ours; `None` if it refused
    /// none.
    pub fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }

    /// Returns `true` if a [`poll`](Channel::poll) would find something.
    pub fn has_events(&self) -> bool {
        self.ring.has_events(self.owner)
    }
}

/// Returns the number of readers that there should be. A reply that has not left counts as a
/// request: it has a place and a buffer.
fn readers(has_more: bool, in_service: usize, leaving: usize, depth: usize) -> usize {
    // Where some have come there may be more; otherwise one reader waits.
    let wanted = if has_more { in_service.clamp(1, READERS) } else { 1 };
    wanted.min(depth.saturating_sub(in_service + leaving))
}

impl Drop for Channel {
    /// Leaks the memory that the kernel may still use.
    fn drop(&mut self) {
        for reader in &mut self.readers {
            if reader.is_reading {
                Box::leak(std::mem::replace(&mut reader.head, Box::new([0; HEAD_BYTES])));
                let none = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
                Box::leak(std::mem::replace(&mut reader.vectors, Box::new([none; 2])));
            }
        }
        if !self.replies.is_empty() {
            let replies = std::mem::replace(&mut self.replies, SlotTable::new(0));
            std::mem::forget(replies);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_have_not_left_count_as_requests() {
        assert_eq!([0, 1, 3, 9].map(|n| readers(true, n, 0, 48)), [1, 1, 3, READERS]);
        assert_eq!(readers(false, 9, 0, 48), 1);
        assert_eq!([(47, 0), (46, 1), (44, 1)].map(|(n, m)| readers(true, n, m, 48)), [1, 1, 3]);
        assert_eq!([(48, 0), (0, 48), (47, 4)].map(|(n, m)| readers(true, n, m, 48)), [0; 3]);
    }
}
