//! A volume in memory, shared by the queues of several workers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use contract::{
    BLOCK_BYTES, Command, Completion, Device, Geometry, Instant, REQUEST_BYTES_MAX, Range, Status,
    Submission,
};
use spin::RwLock;

use crate::inbox::{Inbox, assert_valid};

/// Size of a chunk in bytes. A chunk is allocated on the first write to one of its blocks.
const CHUNK_BYTES: usize = 64 << 10;
const CHUNK_BLOCKS: u64 = (CHUNK_BYTES / BLOCK_BYTES) as u64;
/// Number of locks of a volume; chunk `n` is under lock `n % SHARDS`.
const SHARDS: usize = 1024;

/// A volume whose data lives in this process. The volume is sparse: a write allocates memory in
/// chunks of 64 KiB, and a discard of a whole chunk frees its memory. Unwritten blocks read as
/// zero.
///
/// A clone is another handle to the same data. A request within one aligned range of 64 KiB is
/// atomic towards all others. A request that spans several chunks is not, unless [`ExclusiveQueue`]
/// is around the queues. A request holds a spin lock for the time of one copy of at most 64 KiB.
///
/// [`ExclusiveQueue`]: crate::ExclusiveQueue
#[derive(Clone, Debug)]
pub struct MemVolume {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    blocks: u64,
    shards: Box<[Shard]>,
}

/// The chunks under one lock, by chunk number. Each shard has its own cache line, so that one
/// worker's locks do not slow the locks of another.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard {
    chunks: RwLock<BTreeMap<u64, Box<[u8]>>>,
}

impl MemVolume {
    /// Returns a volume of `blocks` blocks, all zero.
    pub fn new(blocks: u64) -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        MemVolume { shared: Arc::new(Shared { blocks, shards }) }
    }

    /// Opens a queue of [`MemQueue::DEPTH`] requests to the volume.
    pub fn open_queue(&self) -> MemQueue {
        self.open_queue_of(MemQueue::DEPTH)
    }

    /// Opens a queue of `depth` requests to the volume.
    pub fn open_queue_of(&self, depth: usize) -> MemQueue {
        MemQueue { volume: self.clone(), inbox: Inbox::new(depth) }
    }

    /// Returns the number of bytes of memory that the data takes now.
    pub fn resident_bytes(&self) -> usize {
        let chunks = self.shared.shards.iter().map(|shard| shard.chunks.read().len());
        chunks.sum::<usize>() * CHUNK_BYTES
    }

    fn shard(&self, chunk: u64) -> &RwLock<BTreeMap<u64, Box<[u8]>>> {
        &self.shared.shards[(chunk % SHARDS as u64) as usize].chunks
    }

    /// Reads without a queue, for tests and tools.
    pub fn read_now(&self, range: Range, data: &mut [u8]) {
        for piece in pieces(range) {
            let target = &mut data[piece.data..][..piece.bytes];
            match self.shard(piece.chunk).read().get(&piece.chunk) {
                Some(chunk) => target.copy_from_slice(&chunk[piece.offset..][..piece.bytes]),
                None => target.fill(0),
            }
        }
    }

    /// Zeroes a range of any length without a queue, and frees its memory.
    pub fn zero_now(&self, first: u64, blocks: u64) {
        let (mut at, end) = (first, first + blocks);
        while at < end {
            let piece = (end - at).min(u64::from(u32::MAX - u32::MAX % CHUNK_BLOCKS as u32));
            self.zero(Range::new(at, piece as u32));
            at += piece;
        }
    }

    /// Carries out a command on the data. Returns [`Status::Unsupported`] for compares and commits.
    pub(crate) fn carry_out(&self, command: Command, buf: Option<&mut contract::Buf>) -> Status {
        let bytes = command.buffer_bytes();
        match (command, buf) {
            (Command::Read(range), Some(buf)) => self.read_now(range, buf.prefix_mut(bytes)),
            (Command::Write { range, .. } | Command::WriteAtomic(range), Some(buf)) => {
                self.write(range, &buf.bytes()[..bytes]);
            }
            (Command::Discard(range) | Command::WriteZeroes { range, .. }, _) => {
                self.zero(range);
            }
            (Command::Flush, _) => {}
            (Command::Compare(_) | Command::CompareAndWrite(_) | Command::Commit { .. }, _) => {
                return Status::Unsupported;
            }
            (Command::Read(_) | Command::Write { .. } | Command::WriteAtomic(_), None)
            | (Command::Barrier, _) => unreachable!("{command:?} cannot reach a device like that"),
        }
        Status::Ok
    }

    fn write(&self, range: Range, data: &[u8]) {
        for piece in pieces(range) {
            let source = &data[piece.data..][..piece.bytes];
            let mut chunks = self.shard(piece.chunk).write();
            let chunk = chunks.entry(piece.chunk);
            let chunk = chunk.or_insert_with(|| vec![0; CHUNK_BYTES].into_boxed_slice());
            chunk[piece.offset..][..piece.bytes].copy_from_slice(source);
        }
    }

    fn zero(&self, range: Range) {
        let end = range.lba + u64::from(range.blocks);
        let whole = range.lba.div_ceil(CHUNK_BLOCKS)..end / CHUNK_BLOCKS;
        if whole.end.saturating_sub(whole.start) > SHARDS as u64 {
            for shard in &self.shared.shards {
                shard.chunks.write().retain(|chunk, _| !whole.contains(chunk));
            }
            let head = (whole.start * CHUNK_BLOCKS - range.lba) as u32;
            let tail = (end - whole.end * CHUNK_BLOCKS) as u32;
            self.zero_each(Range::new(range.lba, head));
            self.zero_each(Range::new(end - u64::from(tail), tail));
        } else {
            self.zero_each(range);
        }
    }

    fn zero_each(&self, range: Range) {
        for piece in pieces(range) {
            let mut chunks = self.shard(piece.chunk).write();
            if piece.bytes == CHUNK_BYTES {
                chunks.remove(&piece.chunk);
            } else if let Some(chunk) = chunks.get_mut(&piece.chunk) {
                chunk[piece.offset..][..piece.bytes].fill(0);
            }
        }
    }
}

/// The part of a range of blocks that lies in a single chunk of memory.
struct Piece {
    chunk: u64,
    /// Offset in the chunk in bytes.
    offset: usize,
    /// Offset in the request's data in bytes.
    data: usize,
    bytes: usize,
}

fn pieces(range: Range) -> impl Iterator<Item = Piece> {
    let end = range.lba + u64::from(range.blocks);
    let mut lba = range.lba;
    core::iter::from_fn(move || {
        (lba < end).then(|| {
            let chunk = lba / CHUNK_BLOCKS;
            let stop = end.min((chunk + 1) * CHUNK_BLOCKS);
            let piece = Piece {
                chunk,
                offset: (lba % CHUNK_BLOCKS) as usize * BLOCK_BYTES,
                data: (lba - range.lba) as usize * BLOCK_BYTES,
                bytes: (stop - lba) as usize * BLOCK_BYTES,
            };
            lba = stop;
            piece
        })
    })
}

/// A worker's queue to a [`MemVolume`]. The poll after a kick carries out the requests in order.
#[derive(Debug)]
pub struct MemQueue {
    volume: MemVolume,
    inbox: Inbox,
}

impl MemQueue {
    /// The default number of requests in flight.
    pub const DEPTH: usize = 1024;
}

impl Device for MemQueue {
    fn geometry(&self) -> Geometry {
        Geometry {
            atomic_blocks_max: (REQUEST_BYTES_MAX / BLOCK_BYTES) as u32,
            ..Geometry::new(self.volume.shared.blocks, BLOCK_BYTES as u32)
        }
    }

    fn room(&self) -> usize {
        self.inbox.room()
    }

    fn submit(&mut self, _now: Instant, submission: Submission) {
        assert_valid(&submission, self.volume.shared.blocks);
        self.inbox.push(submission);
    }

    fn kick(&mut self, _now: Instant) {
        self.inbox.kick();
    }

    fn poll(&mut self, _now: Instant, done: &mut Vec<Completion>) {
        while let Some(Submission { slot, command, mut buf }) = self.inbox.pop() {
            let status = self.volume.carry_out(command, buf.as_mut());
            done.push(Completion { slot, status, buf });
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.inbox.has_started().then_some(Instant::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, HeapBench};

    #[test]
    fn conforms() {
        conformance::run(&mut HeapBench::new(|blocks| {
            let volume = MemVolume::new(blocks);
            [volume.open_queue(), volume.open_queue()]
        }));
    }

    #[test]
    fn memory_follows_the_data() {
        let volume = MemVolume::new(1 << 32);
        assert_eq!(volume.resident_bytes(), 0);
        volume.write(Range::new(127, 2), &[1; 1024]);
        assert_eq!(volume.resident_bytes(), 2 * CHUNK_BYTES);
        volume.zero(Range::new(128, 128));
        assert_eq!(volume.resident_bytes(), CHUNK_BYTES);
        let mut data = [9; 1024];
        volume.read_now(Range::new(127, 2), &mut data);
        assert_eq!((data[0], data[511], data[512], data[1023]), (1, 1, 0, 0));
    }

    #[test]
    fn a_huge_discard_spares_its_neighbours() {
        let volume = MemVolume::new(1 << 34);
        let (first, last) = (1000, 3_000_000_000);
        for lba in [first - 1, first, 200_000_000, last - 1, last] {
            volume.write(Range::new(lba, 1), &[7; 512]);
        }
        volume.zero(Range::new(first, (last - first) as u32));
        let mut data = [0; 512];
        for (lba, byte) in [(first - 1, 7), (first, 0), (200_000_000, 0), (last - 1, 0), (last, 7)]
        {
            volume.read_now(Range::new(lba, 1), &mut data);
            assert_eq!(data, [byte; 512], "block {lba}");
        }
        assert_eq!(volume.resident_bytes(), 2 * CHUNK_BYTES);
        volume.write(Range::new(1 << 33, 1), &[7; 512]);
        volume.zero_now(first, (1 << 33) + CHUNK_BLOCKS - first);
        assert_eq!(volume.resident_bytes(), CHUNK_BYTES, "only what was before it is left");
    }

    #[test]
    fn threads_see_whole_blocks_of_four_kibibytes() {
        let volume = MemVolume::new(64);
        std::thread::scope(|scope| {
            for mark in 1..=2_u8 {
                let volume = volume.clone();
                scope.spawn(move || {
                    for _ in 0..2000 {
                        volume.write(Range::new(8, 8), &[mark; 4096]);
                    }
                });
            }
            let mut data = [0; 4096];
            for _ in 0..2000 {
                volume.read_now(Range::new(8, 8), &mut data);
                assert!(data.iter().all(|&byte| byte == data[0]), "a torn block");
            }
        });
    }
}
