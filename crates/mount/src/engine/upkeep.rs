//! Work for the file system beside requests: commits, chores, moves, and the end.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use contigfs::{AwaitedEvent, Chore, ChoreWork, Errno, Move};
use contract::{Buf, COMMIT_PAGE_BYTES, Command, Device, Instant, REQUEST_BYTES_MAX, Status};
use dataplane::fill_commit;

use super::core::Core;
use super::task::{PAGE_BYTES, Task, UpkeepCommand, WaitingRequest, pages};
use super::translate::failed;
use crate::gates::FileAccess;
use crate::kernel::Kernel;

/// The longest time for which a change that nobody waits for stays in memory alone.
const FLUSH_PERIOD: Duration = Duration::from_secs(1);

/// The time after which a commit is tried again for which the volume had no space.
const COMMIT_AGAIN: Duration = Duration::from_millis(100);

/// The number of times that a commit is retried: space of discarded data becomes free meanwhile.
const COMMITS_AGAIN: u32 = 50;

/// Discards at the device at a time: requests do not wait behind them.
const DISCARDS_MAX: u32 = 8;

/// Pages of the largest discard.
const DISCARD_PAGES_MAX: u64 = 1 << 18;

/// A move of a file's data.
#[derive(Debug)]
struct MoveInProgress {
    order: Move,
    copied: u64,
    /// The request that waits for the move.
    waiting: WaitingRequest,
    failed: Option<Errno>,
}

/// The stage of a mounted file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountStage {
    /// The kernel has requests.
    Serving,
    /// The file system is not mounted any more, and changes go to the device.
    Closing,
    /// The last flush is at the device.
    Flushing,
    /// The last flush has ended and the engine is done. `is_durable` is `false` if that flush
    /// failed.
    Closed { is_durable: bool },
}

/// The commit that is being written to the device.
#[derive(Debug)]
struct CommitInProgress {
    pages: u16,
    /// The number of tries for which there was no space.
    full: u32,
    /// The payload of a commit for which the device had no space, with the time of the next
    /// attempt; `None` if none waits.
    waiting: Option<(Instant, Buf)>,
}

/// The work of the file system itself that is under way: its commit, its zeroes, discards and
/// moves, and the last flush.
#[derive(Debug)]
pub(super) struct Upkeep {
    pub(super) stage: MountStage,
    /// The time at which changes in memory are committed; `None` without such changes.
    flush_at: Option<Instant>,
    /// `true` from that time until all commits were taken that had changes then.
    is_due: bool,
    /// The last of these commits.
    last_due: AwaitedEvent,
    /// The discards of chores that have not ended: their number, and whether all have succeeded.
    discards: HashMap<u64, (u32, bool)>,
    /// Ranges of pages that wait to be discarded, each with the number of the chore that needs the
    /// discard.
    cuts: VecDeque<(u64, Range<u64>)>,
    /// Number of discards that the device is carrying out.
    cutting: u32,
    /// Chores that are carried out and not durable: the number of each, and that of its last write.
    /// The file system frees no space before they are durable.
    cleared: Vec<(u64, u64)>,
    /// `true` while a flush of these chores is under way.
    is_covering: bool,
    /// Moves, of which the first is under way.
    moves: VecDeque<MoveInProgress>,
    /// The commit that is being written, with its number; `None` if there is none.
    commit: Option<(u64, CommitInProgress)>,
}

impl Upkeep {
    /// Returns the upkeep of a file system at rest.
    pub(super) fn new() -> Upkeep {
        Upkeep {
            stage: MountStage::Serving,
            flush_at: None,
            is_due: false,
            last_due: AwaitedEvent::Now,
            discards: HashMap::new(),
            cuts: VecDeque::new(),
            cutting: 0,
            cleared: Vec::new(),
            is_covering: false,
            moves: VecDeque::new(),
            commit: None,
        }
    }

    /// Returns the time at which there is something to do; `None` for never.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let again = self.commit.as_ref().and_then(|(_, commit)| commit.waiting.as_ref());
        [self.flush_at, again.map(|(at, _)| *at)].into_iter().flatten().min()
    }

    /// Starts the commits, chores and moves that are due. Returns `true` if anything was started.
    pub(super) fn start<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>) -> bool {
        self.keep_time(core);
        let mut progressed = self.end_chores(core);
        progressed |= self.commit_again(core);
        progressed |= self.start_commit(core);
        while let Some(chore) = core.fs.take_chore() {
            progressed = true;
            self.start_chore(core, chore);
        }
        progressed |= self.cut(core);
        for (order, waiting) in std::mem::take(&mut core.asked) {
            progressed = true;
            self.start_move(core, order, waiting);
        }
        progressed
    }

    /// Starts the next commit, if none is under way, and somebody waits for it, or it is full, or
    /// its time has come: changes that nobody waits for share a commit. Returns `true` if one was
    /// started.
    fn start_commit<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>) -> bool {
        if self.commit.is_some() {
            return false;
        }
        let is_wanted = self.is_due || self.stage != MountStage::Serving;
        if !is_wanted && !core.is_awaited() && !core.fs.has_full_commit() {
            return false;
        }
        let Some(commit) = core.fs.take_commit() else {
            self.is_due = false;
            return self.cover(core);
        };
        self.is_due &= core.fs.is_to_be_taken(self.last_due);
        let count = commit.pages.len();
        let mut buf = core.take((1 + count) * COMMIT_PAGE_BYTES);
        fill_commit(&mut buf, &commit.pages);
        let pages = count as u16;
        self.commit = Some((commit.number, CommitInProgress { pages, full: 0, waiting: None }));
        self.submit_commit(core, commit.number, pages, buf);
        true
    }

    /// Flushes chores that no commit is going to make durable. Returns `true` if a flush was
    /// started.
    fn cover<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>) -> bool {
        if self.cleared.is_empty() || std::mem::replace(&mut self.is_covering, true) {
            return false;
        }
        let deed = UpkeepCommand::Cover { written: core.written.last() };
        submit(core, Command::Flush, None, deed);
        true
    }

    /// Ends the chores that a flush or a commit has made durable. Returns `true` if there was one.
    fn end_chores<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>) -> bool {
        let before = self.cleared.len();
        let written = core.written;
        for (number, _) in self.cleared.extract_if(.., |(_, last)| written.has(*last)) {
            core.waits.has_news = true;
            core.fs.chore_ended(number, true);
        }
        self.cleared.len() < before
    }

    /// Takes the end of a chore in, which succeeded or failed.
    fn note_chore<K: Kernel, D: Device>(
        &mut self,
        core: &mut Core<K, D>,
        number: u64,
        is_good: bool,
    ) {
        match is_good {
            true => self.cleared.push((number, core.written.last())),
            false => core.fs.chore_ended(number, false),
        }
    }

    fn submit_commit<K: Kernel, D: Device>(
        &self,
        core: &mut Core<K, D>,
        number: u64,
        pages: u16,
        buf: Buf,
    ) {
        let deed = UpkeepCommand::Commit { number, written: core.written.last() };
        submit(core, Command::Commit { pages }, Some(buf), deed);
    }

    /// Tries a commit again for which the volume had no space. Returns `true` if there is one.
    fn commit_again<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>) -> bool {
        let Some((number, commit)) = &mut self.commit else { return false };
        let Some((_, buf)) = commit.waiting.take_if(|(at, _)| *at <= core.now) else {
            return false;
        };
        let (number, pages) = (*number, commit.pages);
        self.submit_commit(core, number, pages, buf);
        true
    }

    /// Keeps the payload of a commit for a later attempt, because the device had no space. Returns
    /// the payload if no attempts are left.
    fn keep_commit(&mut self, now: Instant, buf: Buf) -> Option<Buf> {
        let (_, commit) = self.commit.as_mut().expect("a commit is under way");
        if commit.full == COMMITS_AGAIN {
            return Some(buf);
        }
        commit.full += 1;
        commit.waiting = Some((now + COMMIT_AGAIN, buf));
        None
    }

    /// Schedules a commit of the changes that are in memory.
    fn keep_time<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>) {
        match self.flush_at {
            _ if core.fs.is_idle() => self.flush_at = None,
            None => self.flush_at = Some(core.now + FLUSH_PERIOD),
            Some(due) if due <= core.now => {
                self.flush_at = Some(core.now + FLUSH_PERIOD);
                self.is_due = true;
                core.fs.flush_attributes();
                self.last_due = core.fs.last_commit();
            }
            Some(_) => {}
        }
    }

    fn start_chore<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>, chore: Chore) {
        match chore.work {
            ChoreWork::Discard { page, pages: count } => {
                let discards = count.div_ceil(DISCARD_PAGES_MAX) as u32;
                self.discards.insert(chore.number, (discards, true));
                self.cuts.push_back((chore.number, page..page + count));
            }
            ChoreWork::Zero { at, .. } => {
                let buf = core.take(PAGE_BYTES);
                let range = pages(at - at % PAGE_BYTES as u64, PAGE_BYTES);
                submit(core, Command::Read(range), Some(buf), UpkeepCommand::Zero(chore));
            }
        }
    }

    /// Submits waiting discards, up to the maximum number at the device. Returns `true` if any was
    /// submitted.
    fn cut<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>) -> bool {
        let before = self.cutting;
        while self.cutting < DISCARDS_MAX
            && let Some((number, left)) = self.cuts.front_mut()
        {
            let (number, start) = (*number, left.start);
            let count = (left.end - start).min(DISCARD_PAGES_MAX);
            left.start += count;
            if left.is_empty() {
                self.cuts.pop_front();
            }
            self.cutting += 1;
            let range = pages(start * PAGE_BYTES as u64, count as usize * PAGE_BYTES);
            submit(core, Command::Discard(range), None, UpkeepCommand::Discard(number));
        }
        self.cutting > before
    }

    /// Takes the end of a command in.
    pub(super) fn ended<K: Kernel, D: Device>(
        &mut self,
        core: &mut Core<K, D>,
        task: UpkeepCommand,
        status: Status,
        buf: Option<Buf>,
    ) {
        let is_good = status.is_ok();
        if !is_good {
            tracing::error!("the volume fails to carry out {task:?}: {status}");
        }
        core.waits.has_news = true;
        let buf = match (task, buf) {
            (UpkeepCommand::Zero(chore), Some(buf)) if is_good => {
                return self.zero(core, &chore, buf);
            }
            (UpkeepCommand::Copy, Some(buf)) if is_good => return self.write_copy(core, buf),
            (task @ UpkeepCommand::Commit { .. }, Some(buf)) if status == Status::NoSpace => {
                let Some(buf) = self.keep_commit(core.now, buf) else { return };
                self.note_end(core, task, status);
                Some(buf)
            }
            (task, buf) => {
                self.note_end(core, task, status);
                buf
            }
        };
        buf.into_iter().for_each(|buf| core.pool.give(buf));
    }

    fn note_end<K: Kernel, D: Device>(
        &mut self,
        core: &mut Core<K, D>,
        task: UpkeepCommand,
        status: Status,
    ) {
        let is_good = status.is_ok();
        match task {
            UpkeepCommand::Commit { number, written } => {
                self.commit = None;
                if is_good {
                    core.written.note_durable(written);
                }
                core.fs.commit_ended(number, is_good);
            }
            UpkeepCommand::Discard(number) => {
                self.cutting -= 1;
                let (left, all_good) =
                    self.discards.get_mut(&number).expect("the chore is under way");
                *left -= 1;
                *all_good &= is_good;
                if let (0, all_good) = (*left, *all_good) {
                    // Only a flush makes it last.
                    core.written.note();
                    self.discards.remove(&number);
                    self.note_chore(core, number, all_good);
                }
            }
            UpkeepCommand::Zero(chore) => self.note_chore(core, chore.number, is_good),
            UpkeepCommand::Zeroed(number) => {
                core.written.note();
                self.note_chore(core, number, is_good);
            }
            UpkeepCommand::Cover { written } => {
                self.is_covering = false;
                match is_good {
                    true => core.written.note_durable(written),
                    false => self.cleared.drain(..).for_each(|(number, _)| {
                        core.fs.chore_ended(number, false);
                    }),
                }
            }
            UpkeepCommand::Copy | UpkeepCommand::Copied | UpkeepCommand::Move => {
                self.copy_ended(core, &task, status)
            }
            UpkeepCommand::Last => self.stage = MountStage::Closed { is_durable: is_good },
        }
    }

    /// Writes zeroes into a part of a page that was read, unless the part is zero already, since a
    /// write to a hole would take space.
    fn zero<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>, chore: &Chore, mut buf: Buf) {
        let ChoreWork::Zero { at, bytes } = chore.work else {
            unreachable!("the chore writes zeroes")
        };
        let within = (at % PAGE_BYTES as u64) as usize;
        let part = &mut buf.prefix_mut(PAGE_BYTES)[within..within + bytes as usize];
        if part.iter().all(|byte| *byte == 0) {
            core.pool.give(buf);
            return self.note_chore(core, chore.number, true);
        }
        part.fill(0);
        let range = pages(at - within as u64, PAGE_BYTES);
        let command = Command::Write { range, fua: false };
        submit(core, command, Some(buf), UpkeepCommand::Zeroed(chore.number));
    }

    /// Starts a move, for which a request waits.
    fn start_move<K: Kernel, D: Device>(
        &mut self,
        core: &mut Core<K, D>,
        order: Move,
        waiting: WaitingRequest,
    ) {
        self.moves.push_back(MoveInProgress { order, copied: 0, waiting, failed: None });
        if self.moves.len() == 1 {
            self.begin_move(core);
        }
    }

    /// Begins to copy. Reads go on from the old place; the file system places no writes meanwhile.
    fn begin_move<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>) {
        if !self.moves.is_empty() {
            self.copy_next(core);
        }
    }

    /// Copies the next part of a file that moves.
    fn copy_next<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>) {
        let moving = self.moves.front().expect("a move is under way");
        let left = moving.order.bytes - moving.copied;
        if left == 0 {
            return submit(core, Command::Flush, None, UpkeepCommand::Move);
        }
        let bytes = left.min(REQUEST_BYTES_MAX as u64) as usize;
        let range = pages(moving.order.from + moving.copied, bytes);
        let buf = core.take(bytes);
        submit(core, Command::Read(range), Some(buf), UpkeepCommand::Copy);
    }

    fn write_copy<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>, buf: Buf) {
        let moving = self.moves.front_mut().expect("a move is under way");
        let left = moving.order.bytes - moving.copied;
        let bytes = left.min(REQUEST_BYTES_MAX as u64) as usize;
        let range = pages(moving.order.to + moving.copied, bytes);
        moving.copied += bytes as u64;
        submit(core, Command::Write { range, fua: false }, Some(buf), UpkeepCommand::Copied);
    }

    fn copy_ended<K: Kernel, D: Device>(
        &mut self,
        core: &mut Core<K, D>,
        task: &UpkeepCommand,
        status: Status,
    ) {
        let moving = self.moves.front_mut().expect("a move is under way");
        if !status.is_ok() {
            moving.failed = Some(failed(status));
        }
        let ino = moving.order.ino;
        if moving.failed.is_none() && !matches!(task, UpkeepCommand::Move) {
            core.fs.copied(ino, moving.order.bytes - moving.copied);
            return self.copy_next(core);
        }
        // Reads of the old place end before it is discarded.
        if core.gates.enter(ino, FileAccess::Alone, WaitingRequest::Move).is_some() {
            self.end_move(core);
        }
    }

    /// Ends a move of a file's data, which holds the exclusive turn of the file, and continues the
    /// request that waits for the move.
    pub(super) fn end_move<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>) {
        let moving = self.moves.pop_front().expect("a move is under way");
        core.fs.moved(moving.order.ino, moving.failed.is_none());
        core.gates.leave(moving.order.ino, &mut core.waits.admitted);
        match moving.failed {
            None => core.waits.again.push((AwaitedEvent::Now, moving.waiting)),
            // Another try would fail the same way, and write the copy once more.
            Some(why) => core.waits.refused.push((moving.waiting, why)),
        }
        self.begin_move(core);
    }

    /// Flushes once the file system is not mounted any more, no request is in service, and all
    /// changes are on the device.
    pub(super) fn close<K: Kernel, D: Device>(&mut self, core: &mut Core<K, D>) {
        if self.stage != MountStage::Closing || !core.is_idle() || !self.moves.is_empty() {
            return;
        }
        core.fs.flush_attributes();
        if core.fs.is_idle() && core.disk.is_idle() {
            self.stage = MountStage::Flushing;
            submit(core, Command::Flush, None, UpkeepCommand::Last);
        }
    }
}

fn submit<K: Kernel, D: Device>(
    core: &mut Core<K, D>,
    command: Command,
    buf: Option<Buf>,
    deed: UpkeepCommand,
) {
    core.disk.submit(core.now, command, buf, Task::Upkeep(deed));
}
