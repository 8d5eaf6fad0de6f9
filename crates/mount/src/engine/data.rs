//! Reads and writes of data.
//!
//! A file lies at a multiple of a page. So the pages of a range are those of the device, and only a
//! range that begins or ends within a page costs more than its own command: a read takes whole
//! pages and gives a part of them, and a write reads the pages at its ends first, unless what they
//! have beside the written bytes lies behind the end of the file, where all is zero.

use contigfs::{
    AttributeChange, AwaitedEvent, Caller, DataPlacement, Errno, Ino, Operation, Reply,
};
use contract::{Buf, Command, Device, REQUEST_BYTES_MAX, Slot, SlotTable, Status};
use proto::fuse::{ReplyMessage, Request};

use super::core::Core;
use super::task::{EdgePage, PAGE_BYTES, Task, WaitingRequest, pages};
use super::translate::{failed, ino, without_privileges};
use crate::gates::FileAccess;
use crate::kernel::Kernel;

/// Parts of the largest read: one that begins within a page has a page more than a request may.
const PARTS: usize = 2;

/// The state of a read request until its reply.
#[derive(Debug)]
struct ReadJob {
    unique: u64,
    ino: Ino,
    /// First byte in the file.
    offset: u64,
    /// Bytes: asked for, then to be replied.
    bytes: usize,
    /// Bytes before the range in its first page.
    skip: usize,
    parts: [Option<Buf>; PARTS],
    /// Parts that the device has.
    pending: u32,
    failed: Option<Errno>,
}

/// The state of a write request until its reply.
#[derive(Debug)]
struct WriteJob {
    unique: u64,
    ino: Ino,
    /// First byte in the file.
    offset: u64,
    /// Bytes of the write.
    bytes: usize,
    /// Offset on the device of the first byte; valid once the file system has chosen the place.
    at: u64,
    /// Bytes that are written: `done ≤ bytes`.
    done: usize,
    /// The bits by which a program runs as another user or group are to be cleared first.
    kill_suidgid: bool,
    /// The reply waits until the data and the attributes are durable.
    syncs: bool,
    /// The data, from `data_at` on.
    buf: Option<Buf>,
    /// Place of the first byte that is not written yet, in the buffer.
    data_at: usize,
    /// Bytes of the file before the write.
    file_bytes: u64,
    /// Bytes that the command in preparation writes.
    leg: usize,
    /// Pages that are being read.
    edges: u32,
    failed: Option<Errno>,
}

/// The reads and writes in service.
#[derive(Debug)]
pub(super) struct DataRequests {
    reads: SlotTable<ReadJob>,
    writes: SlotTable<WriteJob>,
}

impl WriteJob {
    fn pass(&self) -> FileAccess {
        let is_whole = |at: u64| at.is_multiple_of(PAGE_BYTES as u64);
        match is_whole(self.offset) && is_whole(self.offset + self.bytes as u64) {
            true => FileAccess::Shared,
            false => FileAccess::Alone,
        }
    }

    /// Returns the bytes before the write in its first page.
    fn before(&self) -> usize {
        ((self.offset + self.done as u64) % PAGE_BYTES as u64) as usize
    }

    /// Moves the data to its offset in the pages that the next command writes, and zeroes the
    /// remainder of these pages. Returns the pages that hold other bytes of the file, and so must
    /// be read first.
    fn prepare(&mut self) -> [Option<EdgePage>; 2] {
        let (before, left) = (self.before(), self.bytes - self.done);
        self.leg = left.min(REQUEST_BYTES_MAX - before);
        let start = self.offset + self.done as u64;
        let end = start + self.leg as u64;
        let after = (before + self.leg).next_multiple_of(PAGE_BYTES) - before - self.leg;
        let buf = self.buf.as_mut().expect("the write has its data");
        let used = (self.data_at + left).max(before + left.max(self.leg + after));
        let bytes = buf.prefix_mut(used);
        if self.data_at != before {
            bytes.copy_within(self.data_at..self.data_at + left, before);
            self.data_at = before;
        }
        bytes[..before].fill(0);
        // What lies behind the command's pages is written next, and begins with a page.
        if after > 0 {
            bytes[before + self.leg..before + self.leg + after].fill(0);
        }
        let has_head = before > 0 && start - (before as u64) < self.file_bytes;
        let has_tail = after > 0 && end < self.file_bytes;
        match (has_head, has_tail) {
            (true, true) if before + self.leg + after == PAGE_BYTES => [Some(EdgePage::Both), None],
            (head, tail) => [head.then_some(EdgePage::Head), tail.then_some(EdgePage::Tail)],
        }
    }

    /// Returns the bytes of the pages that the command in preparation writes.
    fn cover(&self) -> usize {
        (self.before() + self.leg).next_multiple_of(PAGE_BYTES)
    }

    /// Returns the first byte of these pages on the device.
    fn cover_at(&self) -> u64 {
        self.at + self.done as u64 - self.before() as u64
    }

    /// Takes a page in that was read.
    fn patch(&mut self, edge: EdgePage, page: &[u8]) {
        let (before, cover) = (self.before(), self.cover());
        let end = before + self.leg;
        let buf = self.buf.as_mut().expect("the write has its data");
        let bytes = buf.prefix_mut(cover);
        if edge != EdgePage::Tail {
            bytes[..before].copy_from_slice(&page[..before]);
        }
        if edge != EdgePage::Head {
            let within = PAGE_BYTES - (cover - end);
            bytes[end..].copy_from_slice(&page[within..PAGE_BYTES]);
        }
    }
}

impl DataRequests {
    /// Returns the jobs of so many requests.
    pub(super) fn new(depth: usize) -> DataRequests {
        DataRequests { reads: SlotTable::new(depth), writes: SlotTable::new(depth) }
    }

    /// Returns `true` if no request is in service.
    pub(super) fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    /// Starts a read.
    pub(super) fn start_read<K: Kernel, D: Device>(
        &mut self,
        core: &mut Core<K, D>,
        request: &Request<'_>,
        offset: u64,
        bytes: u32,
    ) {
        let unique = request.unique;
        let bytes = bytes as usize;
        let at = match ino(request.node) {
            Ok(at) if bytes <= REQUEST_BYTES_MAX => at,
            Ok(_) => return core.refuse(unique, Errno::INVAL),
            Err(why) => return core.refuse(unique, why),
        };
        let slot = self.reads.insert_with(|| ReadJob {
            unique,
            ino: at,
            offset,
            bytes,
            skip: 0,
            parts: [None, None],
            pending: 0,
            failed: None,
        });
        if core.gates.enter(at, FileAccess::Shared, WaitingRequest::Read(slot)).is_some() {
            self.place_read(core, slot);
        }
    }

    /// Reads from the place on the device that the file system returns for the range.
    pub(super) fn place_read<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>, slot: Slot) {
        let job = self.reads.get(slot);
        let placed = core.fs.place_read(job.ino, job.offset, job.bytes as u64);
        match placed {
            Ok(DataPlacement::At { at, bytes }) => {
                job.bytes = bytes as usize;
                job.skip = (at % PAGE_BYTES as u64) as usize;
                let (start, skip) = (at - job.skip as u64, job.skip);
                match job.bytes {
                    0 => self.end_read(core, slot),
                    bytes => self.submit_read(core, slot, start, skip + bytes),
                }
            }
            Ok(_) => self.fail_read(core, slot, Errno::IO),
            Err(why) => self.fail_read(core, slot, why),
        }
    }

    fn submit_read<K: Kernel, D: Device>(
        &mut self,
        core: &mut Core<K, D>,
        slot: Slot,
        at: u64,
        bytes: usize,
    ) {
        let cover = bytes.next_multiple_of(PAGE_BYTES);
        let first = cover.min(REQUEST_BYTES_MAX);
        self.reads.get(slot).pending = if cover > first { 2 } else { 1 };
        let buf = core.take(cover);
        let command = Command::Read(pages(at, first));
        core.disk.submit(core.now, command, Some(buf), Task::Read(slot, 0));
        if cover > first {
            let buf = core.take(cover - first);
            let command = Command::Read(pages(at + first as u64, cover - first));
            core.disk.submit(core.now, command, Some(buf), Task::Read(slot, 1));
        }
    }

    pub(super) fn read_ended<K: Kernel, D: Device>(
        &mut self,
        core: &mut Core<K, D>,
        slot: Slot,
        part: usize,
        status: Status,
        buf: Option<Buf>,
    ) {
        let job = self.reads.get(slot);
        job.parts[part] = buf;
        job.pending -= 1;
        if !status.is_ok() {
            job.failed = Some(failed(status));
        }
        if job.pending == 0 {
            self.end_read(core, slot);
        }
    }

    fn fail_read<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>, slot: Slot, why: Errno) {
        self.reads.get(slot).failed = Some(why);
        self.end_read(core, slot);
    }

    fn end_read<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>, slot: Slot) {
        let ReadJob { unique, ino, bytes, skip, parts, failed, .. } = self.reads.remove(slot);
        core.gates.leave(ino, &mut core.waits.admitted);
        let [mut first, second] = parts;
        if let Some(second) = second {
            if let Some(first) = &mut first {
                let target = &mut first.prefix_mut(skip + bytes)[REQUEST_BYTES_MAX..];
                target.copy_from_slice(&second.bytes()[..target.len()]);
            }
            core.pool.give(second);
        }
        match (failed, first) {
            (None, Some(buf)) => {
                let head = ReplyMessage::data(unique, bytes);
                core.kernel.reply(head.bytes(), Some((buf, skip..skip + bytes)));
            }
            (None, None) => core.send(&ReplyMessage::data(unique, 0)),
            (Some(why), first) => {
                first.into_iter().for_each(|buf| core.pool.give(buf));
                core.refuse(unique, why);
            }
        }
    }

    /// Starts a write, whose data `buf` has at its beginning.
    pub(super) fn start_write<K: Kernel, D: Device>(
        &mut self,
        core: &mut Core<K, D>,
        request: &Request<'_>,
        (offset, bytes): (u64, u32),
        kill_suidgid: bool,
        syncs: bool,
        buf: Buf,
    ) {
        let unique = request.unique;
        let at = match ino(request.node) {
            Ok(at) if bytes > 0 => at,
            other => {
                core.pool.give(buf);
                return match other {
                    Ok(_) => core.send(&ReplyMessage::size(unique, 0)),
                    Err(why) => core.refuse(unique, why),
                };
            }
        };
        let slot = self.writes.insert_with(|| WriteJob {
            unique,
            ino: at,
            offset,
            bytes: bytes as usize,
            at: 0,
            done: 0,
            kill_suidgid,
            syncs,
            buf: Some(buf),
            data_at: 0,
            file_bytes: 0,
            leg: 0,
            edges: 0,
            failed: None,
        });
        self.enter_write(core, slot);
    }

    /// Has a write enter the gate of its file.
    pub(super) fn enter_write<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>, slot: Slot) {
        let job = self.writes.get(slot);
        let (ino, pass) = (job.ino, job.pass());
        if std::mem::take(&mut job.kill_suidgid)
            && let Some(until) = kill_suidgid(core, ino)
        {
            job.kill_suidgid = true;
            return core.waits.again.push((until, WaitingRequest::Write(slot)));
        }
        if core.gates.enter(ino, pass, WaitingRequest::Write(slot)).is_some() {
            self.place_write(core, slot);
        }
    }

    /// Writes to the place on the device that the file system returns for the range. Waits if the
    /// file system has no place yet, and lets other requests of the file run meanwhile.
    pub(super) fn place_write<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>, slot: Slot) {
        let job = self.writes.get(slot);
        let ino = job.ino;
        let placed = core.fs.place_write(ino, job.offset, job.bytes as u64);
        core.waits.has_news = true;
        match placed {
            Ok(DataPlacement::At { at, .. }) => {
                job.at = at;
                job.file_bytes = core.attributes(ino).map_or(0, |of| of.size);
                return self.prepare_write(core, slot);
            }
            Ok(DataPlacement::Again(until)) => {
                core.waits.again.push((until, WaitingRequest::Write(slot)))
            }
            Ok(DataPlacement::Move(order)) => core.ask_move(order, WaitingRequest::Write(slot)),
            Err(why) => self.refuse_write(core, slot, why),
        }
        core.gates.leave(ino, &mut core.waits.admitted);
    }

    /// Refuses a write that has no place.
    pub(super) fn refuse_write<K: Kernel, D: Device>(
        &mut self,
        core: &mut Core<K, D>,
        slot: Slot,
        why: Errno,
    ) {
        let job = self.writes.remove(slot);
        job.buf.into_iter().for_each(|buf| core.pool.give(buf));
        core.refuse(job.unique, why);
    }

    /// Prepares the next device command of a write, and reads the pages of which the write changes
    /// only a part.
    fn prepare_write<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>, slot: Slot) {
        let job = self.writes.get(slot);
        let edges = job.prepare();
        let (at, cover) = (job.cover_at(), job.cover());
        job.edges = edges.iter().flatten().count() as u32;
        if job.edges == 0 {
            return self.submit_write(core, slot);
        }
        for edge in edges.into_iter().flatten() {
            let page = if edge == EdgePage::Tail { at + (cover - PAGE_BYTES) as u64 } else { at };
            let buf = core.take(PAGE_BYTES);
            let command = Command::Read(pages(page, PAGE_BYTES));
            core.disk.submit(core.now, command, Some(buf), Task::Edge(slot, edge));
        }
    }

    pub(super) fn edge_ended<K: Kernel, D: Device>(
        &mut self,
        core: &mut Core<K, D>,
        slot: Slot,
        edge: EdgePage,
        status: Status,
        buf: Option<Buf>,
    ) {
        let job = self.writes.get(slot);
        let buf = buf.expect("a read brings its buffer back");
        match status {
            Status::Ok => job.patch(edge, buf.bytes()),
            status => job.failed = Some(failed(status)),
        }
        job.edges -= 1;
        let is_last = job.edges == 0;
        let has_failed = job.failed.is_some();
        core.pool.give(buf);
        match (is_last, has_failed) {
            (false, _) => {}
            (true, true) => self.end_write(core, slot),
            (true, false) => self.submit_write(core, slot),
        }
    }

    fn submit_write<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>, slot: Slot) {
        let job = self.writes.get(slot);
        let range = pages(job.cover_at(), job.cover());
        let buf = job.buf.take();
        let command = Command::Write { range, fua: false };
        core.disk.submit(core.now, command, buf, Task::Write(slot));
    }

    pub(super) fn write_ended<K: Kernel, D: Device>(
        &mut self,
        core: &mut Core<K, D>,
        slot: Slot,
        status: Status,
        buf: Option<Buf>,
    ) {
        core.written.note();
        let job = self.writes.get(slot);
        job.buf = buf;
        if !status.is_ok() {
            job.failed = Some(failed(status));
            return self.end_write(core, slot);
        }
        job.data_at = job.before() + job.leg;
        job.done += job.leg;
        match job.done == job.bytes {
            true => self.end_write(core, slot),
            false => self.prepare_write(core, slot),
        }
    }

    fn end_write<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>, slot: Slot) {
        let job = self.writes.remove(slot);
        let is_good = job.failed.is_none();
        core.fs.wrote(core.wall, job.ino, job.offset, job.bytes as u64, is_good);
        core.waits.has_news = true;
        core.gates.leave(job.ino, &mut core.waits.admitted);
        job.buf.into_iter().for_each(|buf| core.pool.give(buf));
        match job.failed {
            None => {
                let until = if job.syncs { sync(core, job.ino) } else { Ok(AwaitedEvent::Now) };
                let head = ReplyMessage::size(job.unique, job.bytes as u32);
                core.send_after(until, job.unique, head);
            }
            Some(why) => core.refuse(job.unique, why),
        }
    }
}

/// Has the attributes of a file committed that a write has changed, and returns the event. The
/// commit is yet to be submitted, so it makes the data durable, too.
fn sync<K: Kernel, D: Device>(core: &mut Core<K, D>, ino: Ino) -> Result<AwaitedEvent, Errno> {
    match core.fs.apply(core.wall, &Caller::default(), Operation::Fsync { ino })? {
        Reply::Answer(_, until) => Ok(until),
        _ => Err(Errno::IO),
    }
}

/// Clears the bits by which a program runs as another user or group. A file that is gone meanwhile
/// needs none. Returns the event after which to try again, if there is one to wait for.
fn kill_suidgid<K: Kernel, D: Device>(core: &mut Core<K, D>, ino: Ino) -> Option<AwaitedEvent> {
    let mode = core.attributes(ino).ok()?.mode;
    let kept = without_privileges(mode);
    if kept == mode & 0o7777 {
        return None;
    }
    let change = AttributeChange { mode: Some(kept), ..AttributeChange::default() };
    // The write that follows meets what refuses this change.
    let operation = Operation::Change { ino, change };
    match core.fs.apply(core.wall, &Caller::default(), operation) {
        Ok(Reply::Again(until)) => Some(until),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(offset: u64, bytes: usize, file_bytes: u64) -> WriteJob {
        let memory = vec![0xee; REQUEST_BYTES_MAX + 2 * PAGE_BYTES];
        let mut buf = Buf::new(Box::leak(memory.into_boxed_slice()), 0);
        for (n, byte) in buf.prefix_mut(bytes).iter_mut().enumerate() {
            *byte = (n % 251) as u8;
        }
        WriteJob {
            unique: 1,
            ino: 2,
            offset,
            bytes,
            at: (4 << 20) + offset,
            done: 0,
            kill_suidgid: false,
            syncs: false,
            buf: Some(buf),
            data_at: 0,
            file_bytes,
            leg: 0,
            edges: 0,
            failed: None,
        }
    }

    fn bytes(job: &WriteJob) -> &[u8] {
        &job.buf.as_ref().unwrap().bytes()[..job.cover()]
    }

    #[test]
    fn whole_pages_stay_where_they_are() {
        let mut whole = job(8192, 4096, 0);
        assert_eq!((whole.pass(), whole.prepare()), (FileAccess::Shared, [None, None]));
        assert_eq!((whole.cover_at(), whole.cover()), ((4 << 20) + 8192, 4096));
        assert_eq!(bytes(&whole)[4095], (4095 % 251) as u8);
    }

    #[test]
    fn what_lies_behind_the_file_is_zero() {
        let mut append = job(100, 10, 100);
        assert_eq!(
            (append.pass(), append.prepare()),
            (FileAccess::Alone, [Some(EdgePage::Head), None])
        );
        append.patch(EdgePage::Head, &[7; PAGE_BYTES]);
        assert_eq!(bytes(&append)[..100], [7; 100]);
        assert_eq!(bytes(&append)[100..110], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(bytes(&append)[110..].iter().all(|byte| *byte == 0));
        assert_eq!(job(4100, 10, 4096).prepare(), [None, None], "nothing to keep");
        assert_eq!(job(4096, 10, 4097).prepare(), [None, None], "all is overwritten");
    }

    #[test]
    fn what_the_file_has_beside_is_kept() {
        let mut within = job(100, 10, 111);
        assert_eq!(within.prepare(), [Some(EdgePage::Both), None]);
        within.patch(EdgePage::Both, &[7; PAGE_BYTES]);
        assert_eq!((bytes(&within)[99], bytes(&within)[109], bytes(&within)[110]), (7, 9, 7));
        let mut long = job(4000, 200, 5000);
        assert_eq!(long.prepare(), [Some(EdgePage::Head), Some(EdgePage::Tail)]);
        assert_eq!(long.cover(), 8192);
        long.patch(EdgePage::Tail, &[8; PAGE_BYTES]);
        long.patch(EdgePage::Head, &[7; PAGE_BYTES]);
        assert_eq!((bytes(&long)[3999], bytes(&long)[4000], bytes(&long)[4199]), (7, 0, 199));
        assert_eq!(bytes(&long)[4200..], [8; 8192 - 4200]);
    }

    #[test]
    fn the_largest_write_within_pages_takes_two_commands() {
        let mut large = job(100, REQUEST_BYTES_MAX, 0);
        assert_eq!(large.prepare(), [None, None]);
        assert_eq!((large.leg, large.cover()), (REQUEST_BYTES_MAX - 100, REQUEST_BYTES_MAX));
        let last = large.leg - 1;
        assert_eq!(bytes(&large)[REQUEST_BYTES_MAX - 1], (last % 251) as u8);
        large.data_at = large.before() + large.leg;
        large.done += large.leg;
        assert_eq!(large.prepare(), [None, None]);
        assert_eq!((large.leg, large.cover(), large.before()), (100, PAGE_BYTES, 0));
        assert_eq!(large.cover_at(), (4 << 20) + (REQUEST_BYTES_MAX as u64));
        assert_eq!(bytes(&large)[0], ((last + 1) % 251) as u8);
        assert_eq!(bytes(&large)[99], ((last + 100) % 251) as u8);
        assert_eq!(bytes(&large)[100], 0);
    }
}
