//! The set-up of a conformance check: two queues to one volume, a model of the volume's expected
//! content, and the requests in flight.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use contract::{
    BLOCK_BYTES, Buf, COMMIT_PAGE_BYTES, Command, Completion, Device, Geometry, Instant, Range,
    Slot, SlotTable, Status, Submission,
};

use super::bench::Bench;

/// The expected content of the volume: the mark of each block, by block address. A block without a
/// mark is zero.
type Model = BTreeMap<u64, u64>;

pub(super) struct Rig<'a, B: Bench> {
    bench: &'a mut B,
    queues: [B::Queue; 2],
    flights: SlotTable<Flight>,
    model: Model,
    now: Instant,
    name: &'static str,
    rooms: [usize; 2],
    done: Vec<Completion>,
}

struct Flight {
    queue: usize,
    command: Command,
    /// The index and size of the buffer that was lent to the device, by which the returned buffer
    /// is recognized.
    lent: Option<(u32, usize)>,
    /// The page numbers of a commit; empty for every other command.
    pages: Vec<u64>,
    /// The mark that the blocks hold once a write has succeeded. It has no effect for commands that
    /// write no data.
    mark: Option<u64>,
    outcome: Option<RequestResult>,
}

/// The end of a request: its status, and the data of a read.
pub(super) struct RequestResult {
    pub(super) status: Status,
    pub(super) data: Vec<u8>,
}

impl<'a, B: Bench> Rig<'a, B> {
    pub(super) fn new(bench: &'a mut B, blocks: u64, name: &'static str) -> Self {
        let queues = bench.fresh(blocks);
        let rooms = [queues[0].room(), queues[1].room()];
        let now = bench.pass(Some(Instant::ZERO));
        Rig {
            bench,
            queues,
            flights: SlotTable::new(4096),
            model: Model::new(),
            now,
            name,
            rooms,
            done: Vec::new(),
        }
    }

    pub(super) fn geometry(&self) -> Geometry {
        assert_eq!(self.queues[0].geometry(), self.queues[1].geometry(), "{}", self.name);
        self.queues[0].geometry()
    }

    pub(super) fn keeps_data(&self) -> bool {
        self.bench.keeps_data()
    }

    pub(super) fn room(&self, queue: usize) -> usize {
        self.queues[queue].room()
    }

    /// Submits a command to the queue with this index. The data of a write are filled with the
    /// pattern of `mark`. Returns the slot of the request.
    pub(super) fn submit(&mut self, queue: usize, command: Command, mark: u64) -> Slot {
        let buf = self.lend(command);
        self.submit_with(queue, command, buf, Some(mark))
    }

    /// Submits a compare-and-write that expects the pattern of `old` and writes that of `new`.
    pub(super) fn swap(&mut self, queue: usize, range: Range, old: u64, new: u64) -> Slot {
        let command = Command::CompareAndWrite(range);
        let mut buf = self.lend(command);
        let payload = buf.as_mut().expect("a payload needs a buffer").bytes_mut();
        fill(range, old, payload);
        fill(range, new, &mut payload[range.bytes()..]);
        self.submit_with(queue, command, buf, Some(new))
    }

    /// Submits a commit of the pages with these numbers, all filled with the pattern of `mark`.
    pub(super) fn commit(&mut self, queue: usize, pages: &[u64], mark: u64) -> Slot {
        let command = Command::Commit { pages: pages.len() as u16 };
        let mut buf = self.lend(command);
        let payload = buf.as_mut().expect("a payload needs a buffer").bytes_mut();
        let (list, data) = payload.split_at_mut(COMMIT_PAGE_BYTES);
        let places = list.chunks_exact_mut(8).zip(data.chunks_exact_mut(COMMIT_PAGE_BYTES));
        for (page, (number, bytes)) in pages.iter().zip(places) {
            number.copy_from_slice(&page.to_le_bytes());
            fill(page_range(*page), mark, bytes);
        }
        let slot = self.submit_with(queue, command, buf, Some(mark));
        self.flights.get(slot).pages = pages.to_vec();
        slot
    }

    /// Submits a compare of the range with the pattern of `mark`.
    pub(super) fn compare(&mut self, queue: usize, range: Range, mark: u64) -> Slot {
        let command = Command::Compare(range);
        let mut buf = self.lend(command);
        fill(range, mark, buf.as_mut().expect("a payload needs a buffer").bytes_mut());
        self.submit_with(queue, command, buf, None)
    }

    fn lend(&mut self, command: Command) -> Option<Buf> {
        let bytes = command.buffer_bytes();
        (bytes > 0).then(|| {
            let mut buf = self.bench.pool().take(bytes).expect("the bench's pool is too small");
            buf.bytes_mut().fill(0xa5);
            buf
        })
    }

    fn submit_with(
        &mut self,
        queue: usize,
        command: Command,
        mut buf: Option<Buf>,
        mark: Option<u64>,
    ) -> Slot {
        if let (Some(mark), Some(buf)) = (mark, &mut buf) {
            match command {
                Command::Write { range, .. } | Command::WriteAtomic(range) => {
                    fill(range, mark, buf.bytes_mut());
                }
                _ => {}
            }
        }
        let lent = buf.as_ref().map(|buf| (buf.index(), buf.capacity()));
        let flight = Flight { queue, command, lent, pages: Vec::new(), mark, outcome: None };
        let slot = self.flights.insert(flight).unwrap_or_else(|_| panic!("too many in flight"));
        assert!(self.queues[queue].room() > 0, "{}: no room for {command:?}", self.name);
        self.queues[queue].submit(self.now, Submission { slot, command, buf });
        slot
    }

    /// Runs one turn: kicks the queues, advances the world, polls the queues.
    pub(super) fn turn(&mut self) {
        for queue in &mut self.queues {
            queue.kick(self.now);
        }
        let wake_at = self.queues.iter().filter_map(|queue| queue.wake_at()).min();
        self.now = self.bench.pass(wake_at);
        for queue in 0..2 {
            self.queues[queue].poll(self.now, &mut self.done);
            for completion in core::mem::take(&mut self.done) {
                self.take(queue, completion);
            }
        }
    }

    fn take(&mut self, queue: usize, completion: Completion) {
        let Completion { slot, status, buf } = completion;
        let name = self.name;
        let flight = self.flights.find(slot);
        let flight = flight.unwrap_or_else(|| panic!("{name}: {slot:?} completed unasked"));
        assert!(flight.outcome.is_none(), "{name}: {:?} completed twice", flight.command);
        assert_eq!(flight.queue, queue, "{name}: {:?} came by the other queue", flight.command);
        let back = buf.as_ref().map(|buf| (buf.index(), buf.capacity()));
        assert_eq!(back, flight.lent, "{name}: {:?} lost its buffer", flight.command);
        let mut data = Vec::new();
        if let Some(buf) = buf {
            if status.is_ok() {
                data.extend_from_slice(&buf.bytes()[..flight.command.reply_bytes()]);
            }
            self.bench.pool().give(buf);
        }
        flight.outcome = Some(RequestResult { status, data });
    }

    /// Waits for a request and returns its outcome. Applies a successful write to the model.
    pub(super) fn wait(&mut self, slot: Slot) -> RequestResult {
        let mut turns = 0;
        while self.flights.get(slot).outcome.is_none() {
            let command = self.flights.get(slot).command;
            assert!(turns < self.bench.turns_max(), "{}: {command:?} never completed", self.name);
            self.turn();
            turns += 1;
        }
        let flight = self.flights.remove(slot);
        let outcome = flight.outcome.expect("it was just seen");
        if outcome.status.is_ok() && self.bench.keeps_data() {
            self.remember(flight.command, flight.mark);
            for page in flight.pages {
                let range = page_range(page);
                self.remember(Command::Write { range, fua: true }, flight.mark);
            }
        }
        outcome
    }

    fn remember(&mut self, command: Command, mark: Option<u64>) {
        let Some(range) = command.range() else { return };
        let lbas = range.lba..range.lba + u64::from(range.blocks);
        match command {
            Command::Write { .. } | Command::WriteAtomic(_) | Command::CompareAndWrite(_) => {
                let mark = mark.expect("what writes has a mark");
                self.model.extend(lbas.map(|lba| (lba, mark)));
            }
            Command::Discard(_) | Command::WriteZeroes { .. } => {
                self.model.retain(|lba, _| !lbas.contains(lba));
            }
            Command::Read(_)
            | Command::Compare(_)
            | Command::Flush
            | Command::Barrier
            | Command::Commit { .. } => {}
        }
    }

    /// Submits a command and waits for its success.
    pub(super) fn do_ok(&mut self, queue: usize, command: Command, mark: u64) {
        let slot = self.submit(queue, command, mark);
        self.wait_ok(slot);
    }

    /// Waits for a request that must succeed, and returns the data of a read.
    pub(super) fn wait_ok(&mut self, slot: Slot) -> Vec<u8> {
        let command = self.flights.get(slot).command;
        let outcome = self.wait(slot);
        assert_eq!(outcome.status, Status::Ok, "{}: {command:?}", self.name);
        outcome.data
    }

    /// Reads the range, and asserts that the data matches the model.
    pub(super) fn expect(&mut self, queue: usize, range: Range) {
        let slot = self.submit(queue, Command::Read(range), 0);
        let data = self.wait_ok(slot);
        let mut expected = vec![0; BLOCK_BYTES];
        for (place, block) in data.chunks(BLOCK_BYTES).enumerate() {
            let lba = range.lba + place as u64;
            let mark = self.model.get(&lba).copied();
            fill(Range::new(lba, 1), mark.unwrap_or(0), &mut expected);
            let name = self.name;
            assert!(
                block == expected,
                "{name}: block {lba} of {range:?} should hold mark {mark:?}, starts with {:?}",
                &block[..16]
            );
        }
    }

    /// Waits for all requests in flight. Asserts that no other completion arrives, and that every
    /// buffer is back.
    pub(super) fn come_to_rest(mut self) {
        let open: Vec<Slot> = self.flights.iter().map(|(slot, _)| slot).collect();
        for slot in open {
            self.wait(slot);
        }
        for _ in 0..16 {
            let wake_at = Some(self.now);
            self.now = self.bench.pass(wake_at);
            for queue in &mut self.queues {
                queue.kick(self.now);
                queue.poll(self.now, &mut self.done);
            }
        }
        let name = self.name;
        assert!(self.done.is_empty(), "{name}: {:?} completed unasked", self.done);
        assert!(self.bench.pool().is_whole(), "{name}: a buffer did not come back");
        let rooms = [self.queues[0].room(), self.queues[1].room()];
        assert_eq!(rooms, self.rooms, "{name}: room at rest");
    }
}

/// Returns the blocks of the page with this number, as a commit counts pages.
pub(super) fn page_range(page: u64) -> Range {
    let blocks = (COMMIT_PAGE_BYTES / BLOCK_BYTES) as u32;
    Range::new(page.wrapping_mul(blocks.into()), blocks)
}

/// Fills `data` with the bytes of a range that was written with `mark`. Each word encodes block,
/// position and mark, so that misplaced data never looks right. Mark zero is all zeroes.
fn fill(range: Range, mark: u64, data: &mut [u8]) {
    for (block, bytes) in data.chunks_mut(BLOCK_BYTES).take(range.blocks as usize).enumerate() {
        let lba = range.lba + block as u64;
        for (place, word) in bytes.chunks_mut(8).enumerate() {
            let value = match mark {
                0 => 0,
                _ => lba << 32 ^ (place as u64) << 24 ^ mark.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            };
            word.copy_from_slice(&value.to_le_bytes());
        }
    }
}
