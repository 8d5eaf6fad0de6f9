//! The hand-over of a volume in service to another process, which does not read the map again.
//!
//! The map's places and heats are in [memory](MapMemory) that both processes have. The rest is
//! small. A process writes the rest when the volume is at rest: nothing is in flight or staged, and
//! the collector has gone back to the begin of its batch.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use contract::Chores;
use wire::superblock::SuperblockPage;

use crate::checkpoint::{CheckpointMark, Checkpointer};
use crate::chores::Tally;
use crate::command::Settings;
use crate::field_codec::FieldCodec;
use crate::geometry::Geometry;
use crate::layout::{PAGE_BYTES, Superblock};
use crate::store::{Clock, Store};
use crate::table::MapMemory;
use crate::volume::Volume;

/// The version of the bytes and the memory by which a volume is handed over.
pub const FORMAT: u32 = 1;

/// The progress of a volume that comes to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestProgress {
    /// Something is in progress.
    Awaited,
    /// Nothing is in progress.
    Reached,
    /// The volume takes no writes any more, or is being closed: only a restart can deal with it.
    Never,
}

impl Volume {
    /// Returns the numbers of places and heats in the map, for [`share`](Volume::share).
    pub fn memory_sizes(&self) -> (usize, usize) {
        self.store.map.memory_sizes()
    }

    /// Moves the map to memory that another process may have as well.
    ///
    /// # Panics
    /// Panics if the memory has other [sizes](Volume::memory_sizes).
    pub fn share(&mut self, memory: MapMemory) {
        self.store.map.move_to(memory);
    }

    /// Does what brings a volume to rest that gets no requests, in place of
    /// [`advance`](Volume::advance). With [`RestProgress::Reached`], no command is left if the
    /// caller has completed all.
    pub fn come_to_rest(&mut self) -> RestProgress {
        let Volume { store, collector, checkpointer, .. } = self;
        if store.read_only || store.flusher.has_failed() || checkpointer.is_closing() {
            return RestProgress::Never;
        }
        let is_held = checkpointer.hold(store);
        store.settle();
        store.close_batches(true);
        while !store.is_quiet() {
            // A batch may need a segment that waits for a flush.
            let free = store.segments.free();
            store.advance_emptied();
            store.begin_flush();
            if store.segments.free() == free {
                break;
            }
            store.close_batches(true);
        }
        let is_sent = store.commands.is_empty() && store.replies.is_empty();
        if !(is_held && is_sent && store.is_quiet()) || collector.is_reading() {
            return RestProgress::Awaited;
        }
        collector.rewind();
        RestProgress::Reached
    }

    /// Lets the volume go on after [`come_to_rest`](Volume::come_to_rest).
    pub fn go_on(&mut self) {
        self.checkpointer.release();
    }

    /// Returns the state of a volume at rest, but for the memory of its map.
    pub fn hand_over(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        let mut block = vec![0; PAGE_BYTES];
        self.checkpointer.superblock(&self.store, false).encode(&mut block);
        bytes.extend_from_slice(&block);
        self.scribe(&mut FieldCodec::Writes(&mut bytes));
        bytes
    }

    fn scribe(&mut self, scribe: &mut FieldCodec<'_>) {
        let Volume { store, collector, checkpointer, .. } = self;
        store.hand_over(scribe);
        checkpointer.hand_over(store, scribe);
        collector.hand_over(store, scribe);
    }
}

/// The place of a volume that another process will hand over.
pub struct AwaitedVolume {
    geometry: Geometry,
    settings: Settings,
    tally: Arc<Tally>,
}

impl AwaitedVolume {
    /// Returns the place of a volume of this geometry.
    pub fn new(geometry: Geometry, settings: Settings) -> AwaitedVolume {
        AwaitedVolume { geometry, settings, tally: Arc::new(Tally::new(&geometry)) }
    }

    /// Returns the sizes of the volume.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the counters of the background work that the volume will do.
    pub fn chores(&self) -> Arc<dyn Chores> {
        self.tally.clone()
    }

    /// Returns the volume with the state that [`hand_over`](Volume::hand_over) has returned, and
    /// with the memory of its map. The memory is not touched. Returns `None` if the state is of
    /// another [`FORMAT`] or another volume, or contradicts itself.
    pub fn receive(&self, state: &[u8], memory: MapMemory) -> Option<Volume> {
        let (format, rest) = state.split_first_chunk()?;
        let (block, rest) = rest.split_at_checked(PAGE_BYTES)?;
        let SuperblockPage::Sound(block) = Superblock::decode(block) else { return None };
        let is_it = Geometry::of(&block) == Some(self.geometry);
        if u32::from_le_bytes(*format) != FORMAT || !is_it {
            return None;
        }
        let clock = Clock {
            next_stamp: block.next_stamp.get(),
            session: block.session.get(),
            opened: 0,
            written: block.written.get(),
        };
        let mut store = Store::new(self.geometry, self.settings, clock);
        store.map.adopt(memory);
        let checkpointer = Checkpointer::new(CheckpointMark::of(&block), block.generation.get());
        let mut volume = Volume::with_tally(store, checkpointer, self.tally.clone());
        let mut scribe = FieldCodec::Reads(rest);
        volume.scribe(&mut scribe);
        matches!(scribe, FieldCodec::Reads([])).then_some(volume)
    }
}
