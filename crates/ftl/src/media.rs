//! Access to the members of a volume that does not serve: blocking calls over any device, and the
//! orderly close of a volume.

use alloc::vec::Vec;
use core::time::Duration;

use contract::{
    BLOCK_BYTES, Buf, Command as Asked, Completion, Device, Instant, Range, SlotTable, Status,
    Submission,
};

use crate::command::{CommandToken, MemberOperation};
use crate::error::Error;
use crate::layout::PAGE_BYTES;
use crate::map::{POISONED, UNMAPPED};
use crate::open::Media;
use crate::reads::follows;
use crate::volume::Volume;

/// Number of blocks of a page.
const PAGE_BLOCKS: u64 = (PAGE_BYTES / BLOCK_BYTES) as u64;

/// Media over devices that complete requests by themselves when time passes, such as memory. The
/// clock is the media's own.
pub struct DeviceMedia<D> {
    members: Vec<D>,
    buf: Option<Buf>,
    slots: SlotTable<()>,
    done: Vec<Completion>,
    now: Instant,
}

impl<D: Device> DeviceMedia<D> {
    /// Returns media over devices without requests in flight. `buf` must hold at least a page.
    pub fn new(members: Vec<D>, buf: Buf) -> DeviceMedia<D> {
        assert!(buf.capacity() >= PAGE_BYTES, "a page has room");
        let (slots, done, now) = (SlotTable::new(1), Vec::new(), Instant::ZERO);
        DeviceMedia { members, buf: Some(buf), slots, done, now }
    }

    /// Returns the devices and the buffer.
    ///
    /// # Panics
    /// Panics if a device kept the buffer.
    pub fn into_parts(self) -> (Vec<D>, Buf) {
        (self.members, self.buf.expect("the buffer is back"))
    }

    fn carry_out(&mut self, member: usize, command: Asked) -> Result<(), Status> {
        let device = &mut self.members[member];
        let slot = self.slots.insert(()).expect("one at a time");
        let buf = if command.buffer_bytes() > 0 { self.buf.take() } else { None };
        device.submit(self.now, Submission { slot, command, buf });
        while self.done.is_empty() {
            device.kick(self.now);
            self.now = device.wake_at().unwrap_or(self.now).max(self.now + Duration::from_nanos(1));
            device.poll(self.now, &mut self.done);
        }
        let Completion { slot, status, buf } = self.done.pop().expect("it was just seen");
        self.slots.remove(slot);
        self.buf = self.buf.take().or(buf);
        if status.is_ok() { Ok(()) } else { Err(status) }
    }

    fn piece_bytes(&self) -> usize {
        let capacity = self.buf.as_ref().map_or(PAGE_BYTES, Buf::capacity);
        capacity / PAGE_BYTES * PAGE_BYTES
    }
}

fn range(at: u64, bytes: usize) -> Range {
    Range::new(at * PAGE_BLOCKS, (bytes / BLOCK_BYTES) as u32)
}

impl<D: Device> Media for DeviceMedia<D> {
    fn members(&self) -> usize {
        self.members.len()
    }

    fn pages(&self, member: usize) -> u64 {
        self.members[member].geometry().blocks / PAGE_BLOCKS
    }

    fn read(&mut self, member: usize, mut at: u64, into: &mut [u8]) -> Result<(), Status> {
        for piece in into.chunks_mut(self.piece_bytes()) {
            self.carry_out(member, Asked::Read(range(at, piece.len())))?;
            let buf = self.buf.as_ref().expect("the buffer is back");
            piece.copy_from_slice(&buf.bytes()[..piece.len()]);
            at += (piece.len() / PAGE_BYTES) as u64;
        }
        Ok(())
    }

    fn write(&mut self, member: usize, mut at: u64, from: &[u8]) -> Result<(), Status> {
        for piece in from.chunks(self.piece_bytes()) {
            let buf = self.buf.as_mut().expect("the buffer is back");
            buf.prefix_mut(piece.len()).copy_from_slice(piece);
            let range = range(at, piece.len());
            self.carry_out(member, Asked::Write { range, fua: false })?;
            at += (piece.len() / PAGE_BYTES) as u64;
        }
        Ok(())
    }

    fn flush(&mut self, member: usize) -> Result<(), Status> {
        self.carry_out(member, Asked::Flush)
    }
}

/// Reads whole pages of a volume that no queue serves, from page `page` on. Pages without data are
/// zeroes. The volume begins no work for that.
///
/// # Errors
/// A page is lost or lies beyond the volume, or a member fails.
pub fn read<M: Media>(
    media: &mut M,
    volume: &Volume,
    page: u64,
    into: &mut [u8],
) -> Result<(), Status> {
    let store = &volume.store;
    let end = page + (into.len() / PAGE_BYTES) as u64;
    if end > u64::from(store.geometry.pages) {
        return Err(Status::OutOfRange);
    }
    let (mut page, end, mut rest) = (page as u32, end as u32, into);
    while page < end {
        let place = store.map.place(page);
        let mut run = 1;
        while page + run < end && follows(store, place, run, page + run) {
            run += 1;
        }
        let (part, behind) = rest.split_at_mut(run as usize * PAGE_BYTES);
        match place {
            POISONED => return Err(Status::MediaError),
            UNMAPPED => part.fill(0),
            _ => {
                let (member, at) = store.locate(place);
                media.read(usize::from(member), at, part)?;
            }
        }
        (page, rest) = (page + run, behind);
    }
    Ok(())
}

/// Number of turns without a command after which a volume that closes is given up. A turn may end
/// with room for the work of the next one: a segment that was freed, or a batch that was closed.
const IDLE_MAX: u32 = 8;

/// Closes a volume in order, so that the next opening needs no recovery. Returns `false` if an
/// earlier failure of a member prevents that; the next opening then recovers.
///
/// # Errors
/// Fails if a member fails.
pub fn close<M: Media>(media: &mut M, mut volume: Volume) -> Result<bool, Error> {
    volume.close();
    let mut idle = 0;
    while idle < IDLE_MAX {
        volume.advance();
        if volume.is_closed() {
            return Ok(true);
        }
        idle += 1;
        while let Some(command) = volume.command() {
            idle = 0;
            let member = usize::from(command.member);
            let status = carry_out(media, &mut volume, member, command.token, command.op);
            let token = command.token;
            volume.complete(token, status.err().unwrap_or(Status::Ok));
            status.map_err(|status| Error::Failed(member, status))?;
        }
    }
    Ok(false)
}

fn carry_out<M: Media>(
    media: &mut M,
    volume: &mut Volume,
    member: usize,
    token: CommandToken,
    op: MemberOperation,
) -> Result<(), Status> {
    match op {
        MemberOperation::Read { at, pages, .. } => {
            let into = &mut volume.bytes_mut(token)[..pages as usize * PAGE_BYTES];
            media.read(member, at, into)
        }
        MemberOperation::Write { at, .. } => media.write(member, at, volume.bytes(token)),
        MemberOperation::Flush => media.flush(member),
        // A segment that is not discarded is as free as one that is.
        MemberOperation::Discard { .. } | MemberOperation::Zero { .. } => Ok(()),
    }
}
