//! The model: every request of the good clients, its outcome, and so the data that a read may
//! return.
//!
//! A read may return a block as some request wrote it, under two conditions. That request must have
//! been able to write by then. And no request that surely came after it was surely carried out
//! before the read began.
//!
//! *Surely after* means submitted after the first request's end, or behind a barrier of the same
//! stream. *Surely carried out* means acknowledged, or seen by an earlier read. A request that
//! ended without an answer may be carried out at any time; one that failed, until its end. So an
//! acknowledged write that is lost, or overwritten by an older copy of another, shows at the next
//! read.
//!
//! A request of a client without identity can be tied to its connection. Once a server has been
//! told of that connection's end, no device may begin the request, and what had begun ends; so from
//! then on it is known what may still be carried out.
//!
//! A flush that was acknowledged is one that a device has begun since the flush was submitted, and
//! has carried out. So it covers what was acknowledged before, on whatever connection.

use std::collections::HashMap;

use contract::{BLOCK_BYTES, Command, Range, Status};

use crate::marks::{Mark, Marks};
use crate::noticed_ends::{ClientEnd, NoticedEnds};
use crate::stamp::{self, Content};

/// A moment in the order of all events.
pub(crate) type Tick = u64;

/// The path of a request: client, connection, stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lane {
    pub(crate) client: usize,
    pub(crate) link: usize,
    pub(crate) stream: u8,
}

/// A request of a good client.
#[derive(Clone, Debug)]
pub(crate) struct RequestRecord {
    pub(crate) lane: Lane,
    pub(crate) command: Command,
    /// The number of barriers that were sent before the request on the same lane.
    epoch: u32,
    start: Tick,
    /// The time of the end; `Tick::MAX` while the request may still be carried out.
    end: Tick,
    pub(crate) status: Option<Status>,
    /// The request's submissions to devices, and their completions.
    device: DeviceTimes,
    /// The connection to which the request is tied, because it is not sent again on another one;
    /// `None` for other requests.
    near: Option<ClientEnd>,
}

/// The times of a request at a device, for the first and the last of its copies.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceTimes {
    submitted: Option<(Tick, Tick)>,
    completed: Option<(Tick, Tick)>,
    copies: u32,
    /// The number of copies and pieces of the request that a device has accepted and not completed.
    inside: u32,
}

/// A write to one block, as the model records it.
#[derive(Clone, Copy, Debug)]
struct BlockWrite {
    op: u32,
    /// The time at which the write was surely carried out.
    known: Tick,
}

/// The model of a volume.
#[derive(Debug)]
pub(crate) struct Ledger {
    tick: Tick,
    pub(crate) records: Vec<RequestRecord>,
    blocks: HashMap<u64, Vec<BlockWrite>>,
    /// Compare-and-writes: the request, the block, and the expected content.
    compares: Vec<(u32, u64, Content)>,
    /// Barriers by lane, with the status of each.
    barriers: HashMap<Lane, Vec<Option<Status>>>,
    /// The connections of which a server has noticed the end.
    partings: NoticedEnds,
    /// Requests that were lost with the connection to which they are tied. Such a request may still
    /// be carried out.
    lost: Vec<u32>,
    /// The latest time at which a flush began that a device has completed.
    flushed: Tick,
    /// `true` if a device has answered a command with an error of the medium.
    has_media_errors: bool,
    marks: Marks,
}

impl Ledger {
    pub(crate) fn new(marks: Marks, partings: NoticedEnds) -> Self {
        Ledger {
            tick: 0,
            records: Vec::new(),
            blocks: HashMap::new(),
            compares: Vec::new(),
            barriers: HashMap::new(),
            partings,
            lost: Vec::new(),
            flushed: 0,
            has_media_errors: false,
            marks,
        }
    }

    /// Notes that a device answered a command with an error of the medium.
    pub(crate) fn media_failed(&mut self) {
        self.has_media_errors = true;
    }

    pub(crate) fn has_media_errors(&self) -> bool {
        self.has_media_errors
    }

    fn advance(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    /// Returns the number that the next submitted request gets.
    pub(crate) fn next(&self) -> u32 {
        self.records.len() as u32
    }

    /// Records a submitted request, and returns its number.
    pub(crate) fn submit(&mut self, lane: Lane, command: Command) -> u32 {
        self.settle();
        let op = self.next();
        let start = self.advance();
        let barriers = self.barriers.entry(lane).or_default();
        let epoch = barriers.len() as u32;
        if command == Command::Barrier {
            barriers.push(None);
        }
        if let (Some(range), true) = (command.range(), writes(command)) {
            for lba in range.lba..range.lba + u64::from(range.blocks) {
                self.blocks.entry(lba).or_default().push(BlockWrite { op, known: Tick::MAX });
            }
        }
        let device = DeviceTimes::default();
        let end = Tick::MAX;
        let (status, near) = (None, None);
        self.records.push(RequestRecord { lane, command, epoch, start, end, status, device, near });
        op
    }

    /// Ties a request to the connection on which it is sent.
    pub(crate) fn tie(&mut self, op: u32, near: ClientEnd) {
        self.records[op as usize].near = Some(near);
    }

    /// Ends lost writes that can no longer be carried out: a server has been told of the end of
    /// their connection, and no device has anything of them.
    fn settle(&mut self) {
        let (records, partings) = (&self.records, &self.partings);
        let is_over = |&op: &u32| {
            let RequestRecord { near, device, .. } = &records[op as usize];
            device.inside == 0 && near.is_some_and(|near| partings.has(near))
        };
        let (over, open): (Vec<u32>, Vec<u32>) = self.lost.iter().copied().partition(is_over);
        self.lost = open;
        for op in over {
            let now = self.advance();
            self.records[op as usize].end = now;
            let DeviceTimes { submitted, .. } = self.records[op as usize].device;
            self.marks.hit(match submitted {
                None => Mark::LostUnbegun,
                Some(_) => Mark::LostBegun,
            });
        }
    }

    /// Records the end of a request; `data` is what a successful read returned.
    pub(crate) fn done(&mut self, op: u32, status: Status, data: Option<&[u8]>) {
        let now = self.advance();
        let record = &mut self.records[op as usize];
        assert!(record.status.is_none(), "request {op} ended twice: {record:?}, then {status}");
        record.status = Some(status);
        if status != Status::ConnectionLost {
            record.end = now;
        }
        let RequestRecord { command, epoch, lane, start, device, near, .. } = *record;
        // The pieces of other changes have no stamps, so nobody knows where they are.
        let is_stamped = matches!(command, Command::Write { .. });
        if status == Status::ConnectionLost && near.is_some() && is_stamped {
            self.lost.push(op);
        }
        if command == Command::Flush && status.is_ok() {
            assert!(self.flushed > start, "no device was flushed for {}", self.name(Some(op)));
        }
        if status.is_ok() && device.copies > 1 {
            self.marks.hit(Mark::OutlivedAcknowledgement);
        }
        match (command, command.range()) {
            (Command::Barrier, _) => {
                let barriers = self.barriers.get_mut(&lane).expect("it was submitted");
                barriers[epoch as usize] = Some(status);
            }
            (Command::Read(range), _) if status.is_ok() => {
                if let Some(data) = data {
                    self.check_read(op, range, data);
                }
            }
            (_, Some(range)) if status.is_ok() => {
                for lba in range.lba..range.lba + u64::from(range.blocks) {
                    let entries = self.blocks.get_mut(&lba).expect("it was submitted");
                    let entry = entries.iter_mut().rev().find(|entry| entry.op == op);
                    let entry = entry.expect("it was submitted");
                    entry.known = entry.known.min(now);
                }
            }
            _ => {}
        }
    }

    fn check_read(&mut self, op: u32, range: Range, data: &[u8]) {
        self.marks.hit(Mark::ReadChecked);
        let start = self.records[op as usize].start;
        for (n, block) in data.chunks_exact(BLOCK_BYTES).enumerate() {
            self.check_block(Some(op), start, range.lba + n as u64, block);
        }
    }

    /// Checks the contents of the volume once nothing is in flight.
    pub(crate) fn check_final(&mut self, range: Range, data: &[u8]) {
        let now = self.advance();
        for (n, block) in data.chunks_exact(BLOCK_BYTES).enumerate() {
            self.check_block(None, now, range.lba + n as u64, block);
        }
    }

    /// Checks a block that a read, which began at `start`, has returned.
    fn check_block(&mut self, reader: Option<u32>, start: Tick, lba: u64, block: &[u8]) {
        let content = match stamp::read(lba, block) {
            Ok(content) => content,
            Err(what) => panic!("{what}; read by {}", self.name(reader)),
        };
        let empty = Vec::new();
        let entries = self.blocks.get(&lba).unwrap_or(&empty);
        if entries.is_empty() && content == Content::Zero {
            return;
        }
        let candidates: Vec<u32> = entries
            .iter()
            .filter(|entry| self.content(entry.op) == content && self.may_have_written(entry.op))
            .map(|entry| entry.op)
            .collect();
        let good = |&op: &u32| self.superseder(entries, reader, start, Some(op)).is_none();
        let fitting: Vec<u32> = candidates.iter().copied().filter(good).collect();
        let pristine =
            content == Content::Zero && self.superseder(entries, reader, start, None).is_none();
        if fitting.is_empty() && !pristine {
            let latest = candidates.last().copied();
            let superseder = self.superseder(entries, reader, start, latest);
            panic!(
                "block {lba}: read by {} holds {content:?} of {}, but {} had been carried out",
                self.name(reader),
                self.name(latest),
                superseder.map_or("nothing".to_owned(), |op| self.name(Some(op))),
            );
        }
        if fitting.len() > 1 || entries.iter().any(|entry| self.races(entry.op, start)) {
            self.marks.hit(Mark::ReadOfRacing);
        }
        if let ([op], false) = (&fitting[..], pristine) {
            let (op, now) = (*op, self.tick);
            let entries = self.blocks.get_mut(&lba).expect("it was looked at");
            let entry = entries.iter_mut().find(|entry| entry.op == op).expect("it fits");
            entry.known = entry.known.min(now);
        }
    }

    /// Returns a write that surely came after `op` and was surely carried out before the read.
    /// `None` for `op` means the initial blocks.
    fn superseder(
        &self,
        entries: &[BlockWrite],
        reader: Option<u32>,
        start: Tick,
        op: Option<u32>,
    ) -> Option<u32> {
        let later = entries.iter().rev().find(|entry| {
            let is_later = op.is_none_or(|op| op != entry.op && self.precedes(op, entry.op));
            let ordered = || {
                let acknowledged = self.records[entry.op as usize].status == Some(Status::Ok);
                acknowledged && reader.is_some_and(|reader| self.is_ordered(entry.op, reader))
            };
            is_later && (entry.known < start || ordered())
        });
        later.map(|entry| entry.op)
    }

    /// Returns `true` if `first` had surely ended before `second` could begin. For requests behind
    /// a barrier this is sure only if they were sent once; see [`Ledger::check_order`].
    fn precedes(&self, first: u32, second: u32) -> bool {
        let (a, b) = (&self.records[first as usize], &self.records[second as usize]);
        // A later copy of a request that was sent again may come after requests behind the barrier.
        let starts_after = |(_, last)| b.device.submitted.is_some_and(|(first, _)| last < first);
        let once = b.device.copies == 1 && a.device.submitted.is_none_or(starts_after);
        a.end < b.start || (once && a.end < Tick::MAX && self.is_ordered(first, second))
    }

    /// Returns `true` if a barrier of their stream lies between the two requests.
    fn is_ordered(&self, first: u32, second: u32) -> bool {
        let (a, b) = (&self.records[first as usize], &self.records[second as usize]);
        a.lane == b.lane
            && first < second
            && self.barriers.get(&a.lane).is_some_and(|barriers| {
                let between = &barriers[a.epoch as usize..b.epoch as usize];
                between.contains(&Some(Status::Ok))
            })
    }

    fn races(&self, op: u32, start: Tick) -> bool {
        let record = &self.records[op as usize];
        record.end > start && record.end < Tick::MAX
    }

    fn content(&self, op: u32) -> Content {
        match self.records[op as usize].command {
            Command::Discard(_) | Command::WriteZeroes { .. } => Content::Zero,
            _ => Content::By(op),
        }
    }

    /// Returns `true` if the status of the request does not rule out that the request has changed
    /// data.
    fn may_have_written(&self, op: u32) -> bool {
        match self.records[op as usize].status {
            None => true,
            // Only parts of a discard or a write of zeroes end before the request does.
            Some(Status::Retry) => self.content(op) == Content::Zero,
            Some(Status::Ok | Status::ConnectionLost | Status::MediaError | Status::NoSpace) => {
                true
            }
            Some(_) => false,
        }
    }

    /// Records that the next request compares the block with `expected`.
    pub(crate) fn compare(&mut self, lba: u64, expected: Content) {
        self.compares.push((self.next(), lba, expected));
    }

    /// Checks a block that only compare-and-writes change, once nothing is in flight. The
    /// expectations of the winners must lead from its present content back to the beginning, past
    /// every winner. So exactly one of several requests with the same expectation has won.
    pub(crate) fn check_chain(&self, lba: u64, last: Content) {
        let here = || self.compares.iter().filter(|(_, at, _)| *at == lba);
        let mut successor = HashMap::new();
        let mut at = last;
        while let Content::By(op) = at {
            let found = here().find(|(other, ..)| *other == op);
            let &(_, _, expected) = found.expect("only these were written there");
            let name = self.name(Some(op));
            let before = successor.insert(expected, op);
            assert!(before.is_none(), "block {lba}: {expected:?} was replaced twice, by {name}");
            assert!(self.may_have_written(op), "block {lba}: {name} failed and has won");
            at = expected;
        }
        for &(op, _, expected) in here() {
            let record = &self.records[op as usize];
            let name = self.name(Some(op));
            match record.status {
                Some(Status::Ok) => {
                    let won = successor.get(&expected) == Some(&op);
                    assert!(
                        won,
                        "block {lba}: {name} won, but {expected:?} was replaced otherwise"
                    );
                }
                Some(Status::CompareFailed) => {
                    let known = match expected {
                        Content::Zero => true,
                        Content::By(other) => self.records[other as usize].end < record.start,
                    };
                    let next = successor.get(&expected).map(|&op| self.records[op as usize].start);
                    let replaced = next.is_some_and(|start| start < record.end);
                    assert!(!known || replaced, "block {lba}: {name} failed without a winner");
                }
                _ => {}
            }
        }
    }

    fn name(&self, op: Option<u32>) -> String {
        let Some(op) = op else { return "nobody in particular".to_owned() };
        let RequestRecord { lane, command, start, end, status, device, .. } =
            &self.records[op as usize];
        let Lane { client, link, stream } = lane;
        let copies = device.copies;
        let end = if *end == Tick::MAX { "open".to_owned() } else { end.to_string() };
        format!(
            "request {op} (client {client} link {link} stream {stream}, {command:?}, ticks \
             {start}..{end}, {status:?}, {copies} copies at devices)"
        )
    }

    /// Records that a device has accepted a copy of a stamped write, or a piece of one, from the
    /// block `lba` on.
    pub(crate) fn submitted(&mut self, op: u32, lba: u64, fua: bool) {
        let now = self.advance();
        let RequestRecord { command, near, .. } = self.records[op as usize];
        let is_gone = near.is_some_and(|near| self.partings.has(near));
        assert!(!is_gone, "{} begins after the end of its connection", self.name(Some(op)));
        if let Command::Write { fua: true, .. } = command {
            assert!(fua, "the device is not told that {} is to be durable", self.name(Some(op)));
        }
        let device = &mut self.records[op as usize].device;
        device.inside += 1;
        if command.range().is_none_or(|range| range.lba == lba) {
            device.copies += 1;
            if device.copies == 2 {
                self.marks.hit(Mark::Reissued);
            }
        }
        device.submitted = Some((device.submitted.map_or(now, |(first, _)| first), now));
    }

    /// Records that a device has ended a copy of a stamped write.
    pub(crate) fn completed(&mut self, op: u32) {
        let now = self.advance();
        let device = &mut self.records[op as usize].device;
        device.inside -= 1;
        device.completed = Some((device.completed.map_or(now, |(first, _)| first), now));
    }

    /// Records that a device has begun a flush, and returns the time.
    pub(crate) fn flush_begins(&mut self) -> Tick {
        self.advance()
    }

    /// Records that a device has completed the flush that began at the time `began`.
    pub(crate) fn flushed(&mut self, began: Tick) {
        self.flushed = self.flushed.max(began);
    }

    /// Checks at the end that every request has ended, and that devices saw no request behind a
    /// barrier before all requests before the barrier had completed. After a lost connection this
    /// holds for the last copies only: on the first connection the earlier request may have ended
    /// because it was refused as busy.
    pub(crate) fn check_order(&self) {
        let mut lanes: HashMap<Lane, Vec<u32>> = HashMap::new();
        for (op, record) in self.records.iter().enumerate() {
            assert!(record.status.is_some(), "{} never ended", self.name(Some(op as u32)));
            let seen = record.device.submitted.is_some() || record.command == Command::Barrier;
            if record.status == Some(Status::Ok) && seen {
                lanes.entry(record.lane).or_default().push(op as u32);
            }
        }
        for ops in lanes.values() {
            // The latest first and last completion of the requests before the last barrier.
            let (mut before, mut since) = ((None, (0, 0)), (None, (0, 0)));
            for &op in ops {
                let RequestRecord { command, device, .. } = &self.records[op as usize];
                if *command == Command::Barrier {
                    before = merged(before, since);
                    since = (None, (0, 0));
                    continue;
                }
                let submitted = device.submitted.expect("a device saw it");
                if let (Some(earlier), (first, last)) = before {
                    self.marks.hit(Mark::BarrierOrdered);
                    assert!(
                        last < submitted.1 && (device.copies > 1 || first < submitted.0),
                        "{} was submitted before {} had ended, across a barrier",
                        self.name(Some(op)),
                        self.name(Some(earlier)),
                    );
                }
                let completed = device.completed.expect("it was acknowledged");
                since = merged(since, (Some(op), completed));
            }
        }
    }
}

/// Returns the later of two groups of completions, with the request that is the latest.
fn merged(
    a: (Option<u32>, (Tick, Tick)),
    b: (Option<u32>, (Tick, Tick)),
) -> (Option<u32>, (Tick, Tick)) {
    let op = if b.1.1 >= a.1.1 { b.0.or(a.0) } else { a.0 };
    (op, (a.1.0.max(b.1.0), a.1.1.max(b.1.1)))
}

fn writes(command: Command) -> bool {
    command.kind() == contract::IoKind::Write
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: Lane = Lane { client: 0, link: 0, stream: 0 };
    const RANGE: Range = Range::new(3, 1);
    const WRITE: Command = Command::Write { range: RANGE, fua: false };

    fn ledger() -> Ledger {
        Ledger::new(Marks::default(), NoticedEnds::default())
    }

    fn read(ledger: &mut Ledger, writer: Option<u32>) {
        let op = ledger.submit(LANE, Command::Read(RANGE));
        let mut data = [0; BLOCK_BYTES];
        if let Some(writer) = writer {
            stamp::fill(writer, 3, &mut data);
        }
        ledger.done(op, Status::Ok, Some(&data));
    }

    fn write(ledger: &mut Ledger, status: Status) -> u32 {
        let op = ledger.submit(LANE, WRITE);
        ledger.done(op, status, None);
        op
    }

    #[test]
    #[should_panic(expected = "had been carried out")]
    fn a_lost_write_is_caught() {
        let mut ledger = ledger();
        let first = write(&mut ledger, Status::Ok);
        write(&mut ledger, Status::Ok);
        read(&mut ledger, Some(first));
    }

    #[test]
    #[should_panic(expected = "had been carried out")]
    fn forgotten_data_is_caught() {
        let mut ledger = ledger();
        write(&mut ledger, Status::Ok);
        read(&mut ledger, None);
    }

    #[test]
    #[should_panic(expected = "had been carried out")]
    fn what_was_seen_stays_seen() {
        let mut ledger = ledger();
        let first = write(&mut ledger, Status::Ok);
        let second = write(&mut ledger, Status::ConnectionLost);
        read(&mut ledger, Some(first));
        read(&mut ledger, Some(second));
        read(&mut ledger, Some(first));
    }

    #[test]
    #[should_panic(expected = "ended twice")]
    fn a_second_answer_is_caught() {
        let mut ledger = ledger();
        let op = write(&mut ledger, Status::Ok);
        ledger.done(op, Status::Ok, None);
    }

    #[test]
    #[should_panic(expected = "across a barrier")]
    fn overtaking_a_barrier_is_caught() {
        let mut ledger = ledger();
        let first = ledger.submit(LANE, WRITE);
        let barrier = ledger.submit(LANE, Command::Barrier);
        let second = ledger.submit(LANE, WRITE);
        ledger.submitted(second, 3, false);
        ledger.submitted(first, 3, false);
        ledger.completed(first);
        ledger.completed(second);
        for op in [first, barrier, second] {
            ledger.done(op, Status::Ok, None);
        }
        ledger.check_order();
    }

    fn compare(ledger: &mut Ledger, expected: Content, status: Status) -> u32 {
        ledger.compare(3, expected);
        let op = ledger.submit(LANE, Command::CompareAndWrite(RANGE));
        ledger.done(op, status, None);
        op
    }

    #[test]
    #[should_panic(expected = "was replaced otherwise")]
    fn two_winners_are_caught() {
        let mut ledger = ledger();
        let first = compare(&mut ledger, Content::Zero, Status::Ok);
        compare(&mut ledger, Content::Zero, Status::Ok);
        ledger.check_chain(3, Content::By(first));
    }

    #[test]
    #[should_panic(expected = "without a winner")]
    fn a_loser_without_a_winner_is_caught() {
        let mut ledger = ledger();
        compare(&mut ledger, Content::Zero, Status::CompareFailed);
        ledger.check_chain(3, Content::Zero);
    }

    #[test]
    fn a_chain_of_winners() {
        let mut ledger = ledger();
        let first = compare(&mut ledger, Content::Zero, Status::Ok);
        let second = compare(&mut ledger, Content::By(first), Status::ConnectionLost);
        compare(&mut ledger, Content::By(first), Status::CompareFailed);
        ledger.check_chain(3, Content::By(second));
    }

    #[test]
    fn writes_that_race_may_be_seen_in_either_order() {
        let mut ledger = ledger();
        let (a, b) = (ledger.submit(LANE, WRITE), ledger.submit(LANE, WRITE));
        read(&mut ledger, None);
        read(&mut ledger, Some(b));
        read(&mut ledger, Some(a));
        ledger.done(b, Status::Ok, None);
        ledger.done(a, Status::Ok, None);
        read(&mut ledger, Some(b));
        read(&mut ledger, Some(b));
    }

    #[test]
    fn a_write_without_an_answer_may_land_later() {
        let mut ledger = ledger();
        let lost = write(&mut ledger, Status::ConnectionLost);
        let second = write(&mut ledger, Status::Ok);
        read(&mut ledger, Some(second));
        read(&mut ledger, Some(lost));
    }

    const NEAR: ClientEnd = (7, contract::ConnId { index: 1, generation: 0 });

    fn parted() -> (Ledger, NoticedEnds, u32) {
        let partings = NoticedEnds::default();
        let mut ledger = Ledger::new(Marks::default(), partings.clone());
        let op = ledger.submit(LANE, WRITE);
        ledger.tie(op, NEAR);
        (ledger, partings, op)
    }

    #[test]
    #[should_panic(expected = "after the end of its connection")]
    fn a_write_that_begins_after_its_connection_is_caught() {
        let (mut ledger, partings, op) = parted();
        ledger.done(op, Status::ConnectionLost, None);
        partings.notice(NEAR);
        ledger.submitted(op, 3, false);
    }

    #[test]
    #[should_panic(expected = "had been carried out")]
    fn a_write_that_no_device_has_lands_no_more() {
        let (mut ledger, partings, op) = parted();
        ledger.submitted(op, 3, false);
        ledger.done(op, Status::ConnectionLost, None);
        partings.notice(NEAR);
        let racing = write(&mut ledger, Status::Ok);
        read(&mut ledger, Some(racing));
        read(&mut ledger, Some(op)); // the device had it all the time
        ledger.completed(op);
        let later = write(&mut ledger, Status::Ok);
        read(&mut ledger, Some(later));
        read(&mut ledger, Some(op));
    }

    #[test]
    #[should_panic(expected = "no device was flushed")]
    fn a_flush_that_reached_no_device_is_caught() {
        let mut ledger = ledger();
        let began = ledger.flush_begins();
        let op = ledger.submit(LANE, Command::Flush);
        ledger.flushed(began);
        ledger.done(op, Status::Ok, None);
    }
}
