//! A volume as a device: the device port above, the device ports of the volume's members below.
//!
//! Requests become requests of the volume in whole pages; the volume's commands become submissions
//! to the members. A read of pages that lie side by side on a member goes there at once.
//! Collection, checkpoints and flushes continue in `kick` and `poll`, as far as they need no
//! completion of a member.
//!
//! This module deliberately leaves out requests finer than a page and comparisons (a decorator adds
//! them), and opening a volume.

mod flight;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use contract::{
    BLOCK_BYTES, Buf, BufPool, Command as Asked, Completion, Device, Geometry as Seen, Instant,
    Range, SizeClass, Slot, SlotTable, Status, Submission,
};

use crate::command::{
    Command, CommandToken, MemberOperation, REQUESTS_MAX, ReadDestination, Request, VolumeBusy,
};
use crate::geometry::Geometry;
use crate::hand_over::RestProgress;
use crate::layout::PAGE_BYTES;
use crate::reads::{PinnedPages, ReadRun};
use crate::volume::Volume;
use flight::{RequestInFlight, RequestStep};

/// Number of blocks of a page.
const PAGE_BLOCKS: u64 = (PAGE_BYTES / BLOCK_BYTES) as u64;

/// Maximum number of requests in flight.
const DEPTH: usize = 512;

/// Number of waiting writes from which on the volume is short of space, if it has no free segment
/// for them.
const BACKLOG: usize = DEPTH / 16;

/// Maximum number of commands at the members at a time.
const SENT_MAX: usize = 1024;

const _: () = assert!(DEPTH <= REQUESTS_MAX);

/// A submission at a member.
#[derive(Debug)]
enum MemberSubmission {
    /// A command of the volume.
    Command(CommandInFlight),
    /// A request for pages that lie side by side: its slot, and the segment that it reads.
    Read(Slot, PinnedPages),
}

/// A command of the volume at a member.
#[derive(Debug)]
struct CommandInFlight {
    token: CommandToken,
    pages: usize,
    /// The destination of a read's data; `None` for other commands.
    into: Option<ReadDestination>,
    /// `true` if the command uses the request's own buffer.
    lends: bool,
}

/// A volume and queues to its members, as a device that takes whole pages.
///
/// Nothing is allocated after [`new`](Queue::new). Writes wait here in order while the volume has
/// no room for them; reads and flushes pass them.
pub struct Queue<D> {
    volume: Volume,
    members: Box<[D]>,
    /// Maximum number of pages of a piece of a request.
    piece_pages_max: u32,
    flights: SlotTable<RequestInFlight>,
    /// Reads and flushes that the volume has not accepted yet, oldest first.
    readers: VecDeque<Slot>,
    /// Writes and discards that the volume has not accepted yet, oldest first.
    writers: VecDeque<Slot>,
    sent: SlotTable<MemberSubmission>,
    /// Number of commands of the volume at the members.
    errands: usize,
    /// A command that waits for a buffer or for room at its member.
    held: Option<Command>,
    /// `true` if the volume may have work to do: since it last had none, a request came that was
    /// not passed to a member, or a command or the last read of an emptied segment ended.
    is_stirred: bool,
    pool: BufPool,
    /// Completions of ended requests, for the next poll.
    ended: Vec<Completion>,
    done: Vec<Completion>,
}

impl<D: Device> Queue<D> {
    /// Maximum number of requests in flight.
    pub const DEPTH: usize = DEPTH;

    /// Returns the sizes and numbers of buffers that a queue to a volume of this geometry needs.
    /// The buffers must be zero, and aligned as the members require.
    pub fn classes(geometry: &Geometry) -> [SizeClass; 3] {
        let batch = (geometry.batch_pages_max() as usize + 2) * PAGE_BYTES;
        let streams = usize::from(geometry.streams);
        [
            SizeClass { bytes: PAGE_BYTES, count: 256 },
            SizeClass { bytes: batch.min(32 * PAGE_BYTES), count: 8 },
            SizeClass { bytes: batch.max(32 * PAGE_BYTES), count: streams + 2 },
        ]
    }

    /// Returns a device over a volume in service and queues to its members, in their order. `pool`
    /// has the buffers of [`classes`](Queue::classes).
    ///
    /// # Panics
    /// Panics if there is not one queue for each member, or all buffers are too small.
    pub fn new(volume: Volume, members: Vec<D>, pool: BufPool) -> Queue<D> {
        let geometry = volume.geometry();
        assert_eq!(members.len(), usize::from(geometry.members), "a queue for each member");
        let least = (geometry.batch_pages_max() as usize + 2) * PAGE_BYTES;
        assert!(pool.largest() >= least, "a batch has a buffer");
        Queue {
            piece_pages_max: geometry.batch_pages_max(),
            volume,
            members: members.into(),
            flights: SlotTable::new(DEPTH),
            readers: VecDeque::with_capacity(DEPTH),
            writers: VecDeque::with_capacity(DEPTH),
            sent: SlotTable::new(SENT_MAX),
            errands: 0,
            held: None,
            is_stirred: true,
            pool,
            ended: Vec::with_capacity(DEPTH),
            done: Vec::with_capacity(SENT_MAX),
        }
    }

    /// Returns the volume behind the device.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Returns `true` if nothing is in flight, neither here nor at a member.
    pub fn is_at_rest(&self) -> bool {
        self.flights.is_empty() && self.sent.is_empty() && self.held.is_none()
    }

    /// Returns the volume if the queue [is at rest](Queue::is_at_rest), and `None` otherwise.
    pub fn into_volume(self) -> Option<Volume> {
        self.is_at_rest().then_some(self.volume)
    }

    /// Processes the members' completions without beginning requests or background work. Returns
    /// `true` once no member has a command. The volume keeps the commands that it has not sent, for
    /// the next queue or for its [close](crate::close).
    ///
    /// A queue without requests in flight is [at rest](Queue::is_at_rest) then.
    pub fn quiesce(&mut self, now: Instant) -> bool {
        if let Some(command) = self.held.take() {
            self.volume.store.commands.push_front(command);
        }
        self.is_stirred = true;
        self.members.iter_mut().for_each(|member| member.kick(now));
        let mut ended = core::mem::take(&mut self.ended);
        self.take_in(now, &mut ended);
        self.ended = ended;
        self.sent.is_empty()
    }

    /// Lets the requests in flight end, and then brings the volume to [rest](RestProgress). The
    /// caller submits no requests meanwhile, and lets the queue [go on](Queue::go_on) afterwards.
    pub fn come_to_rest(&mut self, now: Instant) -> RestProgress {
        self.is_stirred = true;
        let mut ended = core::mem::take(&mut self.ended);
        self.take_in(now, &mut ended);
        self.ended = ended;
        if !self.flights.is_empty() {
            self.pump(now);
        }
        let mut rest = RestProgress::Awaited;
        while self.flights.is_empty() {
            rest = self.volume.come_to_rest();
            if !self.send(now) {
                break;
            }
        }
        self.members.iter_mut().for_each(|member| member.kick(now));
        match rest {
            RestProgress::Reached if !self.is_at_rest() || !self.ended.is_empty() => {
                RestProgress::Awaited
            }
            rest => rest,
        }
    }

    /// Lets the volume go on after [`come_to_rest`](Queue::come_to_rest).
    pub fn go_on(&mut self) {
        self.is_stirred = true;
        self.volume.go_on();
    }

    /// Returns the state of the volume of a queue that has [come to rest](Queue::come_to_rest), for
    /// another process.
    pub fn hand_over(&mut self) -> Vec<u8> {
        self.volume.hand_over()
    }

    /// Returns the number of requests that are at a member as they are.
    fn passed(&self) -> usize {
        self.sent.len() - self.errands
    }

    /// Processes the members' completions. Requests that were passed to a member unchanged are
    /// appended to `done`. Returns `true` if there was a completion.
    fn take_in(&mut self, now: Instant, done: &mut Vec<Completion>) -> bool {
        if self.errands == 0 {
            return self.take_in_reads(now, done);
        }
        let mut landed = core::mem::take(&mut self.done);
        for member in &mut self.members {
            member.poll(now, &mut landed);
        }
        let any = !landed.is_empty();
        for Completion { slot, status, buf } in landed.drain(..) {
            match self.sent.remove(slot) {
                MemberSubmission::Command(errand) => {
                    self.errands -= 1;
                    self.is_stirred = true;
                    self.land(&errand, status, buf);
                }
                MemberSubmission::Read(slot, pin) => {
                    pin.end(&mut self.volume.store);
                    // The segment may be one that waits for the end of its reads.
                    self.is_stirred |= self.volume.store.has_emptied();
                    done.push(Completion { slot, status, buf });
                }
            }
        }
        self.done = landed;
        any
    }

    /// Processes the members' completions while all are of requests that were passed unchanged:
    /// they are put into `done` at once.
    fn take_in_reads(&mut self, now: Instant, done: &mut Vec<Completion>) -> bool {
        let before = done.len();
        for member in &mut self.members {
            member.poll(now, done);
        }
        for completion in &mut done[before..] {
            let (slot, pin) = self.sent.discard(completion.slot, |sent| match sent {
                MemberSubmission::Read(slot, pin) => (*slot, *pin),
                MemberSubmission::Command(_) => unreachable!("no command is at a member"),
            });
            pin.end(&mut self.volume.store);
            completion.slot = slot;
        }
        let any = done.len() > before;
        self.is_stirred |= any && self.volume.store.has_emptied();
        any
    }

    /// Passes waiting requests to the volume, as many as it accepts.
    fn admit(&mut self) {
        while let Some(&slot) = self.readers.front() {
            if self.begin(slot).is_err() {
                break;
            }
            self.readers.pop_front();
        }
        while let Some(&slot) = self.writers.front() {
            if self.begin(slot).is_err() {
                break;
            }
            self.writers.pop_front();
        }
    }

    /// Passes the next step of a request to the volume; fails if the volume has no room for it.
    fn begin(&mut self, slot: Slot) -> Result<(), VolumeBusy> {
        let flight = self.flights.get(slot);
        let (page, pages) = flight.piece(self.piece_pages_max);
        let request = match flight.step() {
            RequestStep::Read => Request::Read { page, pages },
            RequestStep::Discard => Request::Discard { page, pages },
            RequestStep::Flush => Request::Flush,
            RequestStep::Commit => {
                let (pages, data) = flight.commit();
                Request::Commit { pages, data }
            }
            RequestStep::Write { fua, atomic } => {
                let data = flight.data(pages);
                Request::Write { page, pages, data, fua, atomic }
            }
        };
        self.volume.submit(slot, request)
    }

    /// Processes the volume's replies. Returns `true` if there were any.
    fn reap(&mut self) -> bool {
        // Behind the held command there may be one that zeroes a part of what was read.
        if self.held.is_some() {
            return false;
        }
        let mut any = false;
        while let Some(reply) = self.volume.reply() {
            any = true;
            let flight = self.flights.get(reply.slot);
            if flight.advance(self.piece_pages_max, reply.status) {
                let waits =
                    if flight.step().is_write() { &mut self.writers } else { &mut self.readers };
                // Before the others: they came later.
                waits.push_front(reply.slot);
                continue;
            }
            let RequestInFlight { slot, status, buf, .. } = self.flights.remove(reply.slot);
            self.ended.push(Completion { slot, status, buf });
        }
        any
    }

    /// Sends the volume's commands to the members. Returns `true` if there were any.
    fn send(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(command) = self.held.take().or_else(|| self.volume.command()) {
            if !self.issue(now, command) {
                self.held = Some(command);
                break;
            }
            any = true;
        }
        any
    }

    /// Sends a command to its member; returns `false` if it has to wait.
    fn issue(&mut self, now: Instant, Command { token, member, op }: Command) -> bool {
        if let MemberOperation::Zero { slot, first, pages } = op {
            self.flights.get(slot).zero(first as usize, pages as usize);
            return true;
        }
        let device = &mut self.members[usize::from(member)];
        if self.sent.room() == 0 || device.room() == 0 {
            return false;
        }
        let (mut lends, mut taken_by, mut count) = (false, None, 0);
        let (command, buf) = match op {
            MemberOperation::Flush | MemberOperation::Zero { .. } => (Asked::Flush, None),
            MemberOperation::Discard { at, pages } => (Asked::Discard(range(at, pages)), None),
            MemberOperation::Write { at, pages } => {
                let bytes = self.volume.bytes(token);
                let Some(mut buf) = self.pool.take(bytes.len()) else { return false };
                buf.prefix_mut(bytes.len()).copy_from_slice(bytes);
                (Asked::Write { range: range(at, pages), fua: false }, Some(buf))
            }
            MemberOperation::Read { at, pages, into } => {
                let own = match into {
                    ReadDestination::Host(slot, 0) => self.flights.get(slot).lend(pages),
                    _ => None,
                };
                lends = own.is_some();
                (taken_by, count) = (Some(into), pages as usize);
                let Some(buf) = own.or_else(|| self.pool.take(count * PAGE_BYTES)) else {
                    return false;
                };
                (Asked::Read(range(at, pages)), Some(buf))
            }
        };
        let errand = CommandInFlight { token, pages: count, into: taken_by, lends };
        let slot = self.sent.insert_with(|| MemberSubmission::Command(errand));
        self.errands += 1;
        device.submit(now, Submission { slot, command, buf });
        true
    }

    /// Returns the member that a read goes to as it is, with the request's own buffer, and the slot
    /// and the command there. Returns `None` if the pages do not lie side by side, or if commands
    /// wait, which such reads could hold up for ever.
    #[inline(always)]
    fn pass(&mut self, slot: Slot, command: Asked) -> Option<(&mut D, Slot, Asked)> {
        let Asked::Read(asked) = command else { return None };
        if self.held.is_some() {
            return None;
        }
        let (page, pages) = whole_pages(asked);
        let ReadRun { member, at, pin } = ReadRun::begin(&mut self.volume.store, page, pages)?;
        let device = &mut self.members[usize::from(member)];
        if self.sent.room() == 0 || device.room() == 0 {
            pin.end(&mut self.volume.store);
            return None;
        }
        let slot = self.sent.insert_with(|| MemberSubmission::Read(slot, pin));
        Some((device, slot, Asked::Read(range(at, pages))))
    }

    /// Lets a request wait until the volume accepts it, or ends it if it is refused.
    #[inline(never)]
    fn queue_up(&mut self, Submission { slot, command, buf }: Submission) {
        if let Some(status) = self.refusal(command) {
            self.ended.push(Completion { slot, status, buf });
            return;
        }
        self.is_stirred = true;
        // It panics if there are more submissions than the device has room for.
        let inner = self.flights.insert_with(|| RequestInFlight::new(slot, command, buf));
        let is_write = self.flights.get(inner).step().is_write();
        let waits = if is_write { &mut self.writers } else { &mut self.readers };
        waits.push_back(inner);
    }

    /// Processes the completion of a command of the volume.
    fn land(&mut self, errand: &CommandInFlight, status: Status, buf: Option<Buf>) {
        let CommandInFlight { token, pages, into, lends } = *errand;
        let bytes = pages * PAGE_BYTES;
        match (into, buf) {
            (Some(ReadDestination::Host(slot, _)), Some(buf)) if lends => {
                self.flights.get(slot).buf = Some(buf);
            }
            (into, Some(buf)) => {
                match into {
                    _ if !status.is_ok() => {}
                    Some(ReadDestination::Host(slot, first)) => {
                        self.flights.get(slot).fill(first as usize, &buf.bytes()[..bytes]);
                    }
                    Some(ReadDestination::Volume) => {
                        self.volume.bytes_mut(token)[..bytes]
                            .copy_from_slice(&buf.bytes()[..bytes]);
                    }
                    None => {}
                }
                self.pool.give(buf);
            }
            (_, None) => {}
        }
        self.volume.complete(token, status);
    }

    /// Runs all work that needs no further completion of a member. Returns `false` if there was
    /// none: all was done before, and nothing happened since.
    #[inline]
    fn pump(&mut self, now: Instant) -> bool {
        // A held command waits for its member's room, of which nothing tells.
        let may_have_work = self.is_stirred || self.held.is_some();
        if may_have_work {
            self.work(now);
        }
        may_have_work
    }

    /// Lets the volume, its members and waiting requests go on, as long as one gives another work.
    fn work(&mut self, now: Instant) {
        loop {
            self.admit();
            let changed = self.volume.advance();
            let sent = self.send(now);
            let reaped = self.reap();
            // Commands that left, and replies, make room for waiting requests and in the logs.
            let waits = !self.readers.is_empty() || !self.writers.is_empty();
            let may_go_on = waits || self.volume.is_busy();
            if !(changed || (sent || reaped) && may_go_on) {
                break;
            }
        }
        self.is_stirred = false;
        self.volume.publish(self.writers.len() >= BACKLOG);
    }

    /// Returns the status with which a command is refused; `None` if it is served.
    fn refusal(&self, command: Asked) -> Option<Status> {
        match command {
            Asked::WriteAtomic(range) => {
                let most = u64::from(self.volume.geometry().batch_pages_max()) * PAGE_BLOCKS;
                (u64::from(range.blocks) > most).then_some(Status::AtomicTooLarge)
            }
            Asked::Commit { pages: 0 } => Some(Status::BadLength),
            Asked::Commit { pages } => {
                let most = self.volume.geometry().commit_pages_max();
                (pages > most).then_some(Status::AtomicTooLarge)
            }
            Asked::Compare(_) | Asked::CompareAndWrite(_) => Some(Status::Unsupported),
            _ => None,
        }
    }
}

/// Returns the first page and the number of pages of a range.
///
/// # Panics
/// Panics if the range is not made of whole pages.
fn whole_pages(range: Range) -> (u32, u32) {
    let whole = (range.lba | u64::from(range.blocks)).is_multiple_of(PAGE_BLOCKS);
    assert!(whole, "{range:?} is not made of whole pages");
    ((range.lba / PAGE_BLOCKS) as u32, range.blocks / PAGE_BLOCKS as u32)
}

/// Returns the range of pages of a member.
fn range(at: u64, pages: u32) -> Range {
    Range::new(at * PAGE_BLOCKS, pages * PAGE_BLOCKS as u32)
}

impl<D: Device> Device for Queue<D> {
    fn geometry(&self) -> Seen {
        let geometry = self.volume.geometry();
        let members = || self.members.iter().map(|member| member.geometry());
        let most = u64::from(geometry.batch_pages_max()) * PAGE_BLOCKS;
        let coarsest = members().map(|member| member.physical_block_bytes).max().unwrap_or(0);
        Seen {
            blocks: u64::from(geometry.pages) * PAGE_BLOCKS,
            physical_block_bytes: coarsest.max(PAGE_BYTES as u32),
            atomic_blocks_max: most as u32,
            commit_pages_max: geometry.commit_pages_max(),
            writes_whole: true,
            volatile_cache: members().any(|member| member.volatile_cache),
            read_only: false,
        }
    }

    fn room(&self) -> usize {
        self.flights.room().saturating_sub(self.ended.len() + self.passed())
    }

    #[inline]
    fn submit(&mut self, now: Instant, Submission { slot, command, buf }: Submission) {
        match self.pass(slot, command) {
            Some((member, slot, command)) => member.submit(now, Submission { slot, command, buf }),
            None => self.queue_up(Submission { slot, command, buf }),
        }
    }

    fn kick(&mut self, now: Instant) {
        self.pump(now);
        self.members.iter_mut().for_each(|member| member.kick(now));
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        if self.take_in(now, done) && self.pump(now) {
            self.members.iter_mut().for_each(|member| member.kick(now));
        }
        if !self.ended.is_empty() {
            done.append(&mut self.ended);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let own = (!self.ended.is_empty()).then_some(Instant::ZERO);
        let members = self.members.iter().filter_map(|member| member.wake_at());
        own.into_iter().chain(members).min()
    }
}

#[cfg(test)]
mod tests;
