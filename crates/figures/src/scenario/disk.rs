//! The device of a stage: simulated flash, or a volume of flash translation over simulated flash.

use std::sync::Arc;

use contract::{
    BLOCK_BYTES, Buf, BufPool, Chores, Command, Completion, Device, Instant, Range, SizeClass,
    Slot, Submission,
};
use flash::Rng;
use flash::sim_flash::{Model, SimQueue, SimVolume};
use ftl::layout::PAGE_BYTES;
use ftl::{DeviceMedia, Policy, Report, Settings, Shape};

use super::memory::bufs;

/// The size of simulated flash without translation, in 512-byte blocks: 32 GiB.
const PLAIN_BLOCKS: u64 = 1 << 26;
const PAGE_BLOCKS: u64 = (PAGE_BYTES / BLOCK_BYTES) as u64;
/// The approximate number of segments of a volume of flash translation.
const SEGMENTS: u64 = 512;
/// The number of page writes in flight while a volume is filled before the stage begins.
const DEPTH: usize = 128;
/// The mean number of times that each page of a volume is overwritten before the stage begins.
const OVERWRITES: u64 = 2;

/// The parameters of flash translation over the simulated flash of a stage.
#[derive(Clone, Copy, Debug)]
pub struct Translation {
    /// The size of the simulated flash below, in pages of 4 KiB.
    pub pages: u64,
    /// The spare space: how many thousandths more pages the flash has than hosts see.
    pub spare_per_mille: u32,
}

/// A worker's queue to the device of a stage.
pub(crate) enum DiskQueue {
    /// Simulated flash without flash translation.
    Plain(SimQueue),
    /// Flash translation over simulated flash.
    Translated(AgedVolume),
}

contract::variants!(each, DiskQueue: Plain, Translated);

impl Device for DiskQueue {
    contract::device_by!(each);
}

/// A queue to a volume that was filled and overwritten before the stage began. The clock of the
/// flash is ahead of the stage's by the time that this took.
pub(crate) struct AgedVolume {
    queue: Box<ftl::Queue<SimQueue>>,
    ahead: u64,
}

impl AgedVolume {
    fn later(&self, now: Instant) -> Instant {
        Instant::from_nanos(now.as_nanos() + self.ahead)
    }
}

impl Device for AgedVolume {
    fn geometry(&self) -> contract::Geometry {
        self.queue.geometry()
    }

    fn room(&self) -> usize {
        self.queue.room()
    }

    fn submit(&mut self, now: Instant, submission: Submission) {
        self.queue.submit(self.later(now), submission);
    }

    fn kick(&mut self, now: Instant) {
        self.queue.kick(self.later(now));
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        self.queue.poll(self.later(now), done);
    }

    fn wake_at(&self) -> Option<Instant> {
        let at = self.queue.wake_at()?.as_nanos();
        Some(Instant::from_nanos(at.saturating_sub(self.ahead)))
    }
}

/// The simulated device of a stage, which opens a queue for each worker.
pub(crate) struct Disk {
    pub(crate) flash: SimVolume,
    /// The queue to a translated volume until its one worker opens it; `None` without translation.
    aged: Option<AgedVolume>,
    chores: Option<Arc<dyn Chores>>,
    pub(crate) blocks: u64,
    /// The time of the next charge for the device's chores, in nanoseconds; `u64::MAX` if the
    /// device has none.
    pub(crate) charge_at: u64,
}

impl Disk {
    /// Creates simulated flash of this model, with a volume of flash translation over it if
    /// `translation` is given. The volume is overwritten in random order, so that it collects
    /// garbage from the start.
    pub(crate) fn new(model: Model, translation: Option<Translation>, seed: u64) -> Disk {
        let Some(translation) = translation else {
            let flash = SimVolume::forgetful(model, PLAIN_BLOCKS, 1.0, seed);
            let (blocks, charge_at) = (PLAIN_BLOCKS, u64::MAX);
            return Disk { flash, aged: None, chores: None, blocks, charge_at };
        };
        let flash = SimVolume::new(model, translation.pages * PAGE_BLOCKS, 1.0, seed);
        let mut queue = Box::new(open(&flash, translation));
        let chores = queue.volume().chores();
        let blocks = queue.geometry().blocks;
        let ahead = age(&mut queue, seed);
        let aged = Some(AgedVolume { queue, ahead });
        Disk { flash, aged, chores: Some(chores), blocks, charge_at: 0 }
    }

    /// Opens a worker's queue to the device.
    ///
    /// # Panics
    /// Panics if a second worker opens a queue to a translated volume.
    pub(crate) fn open_queue(&mut self) -> DiskQueue {
        match self.chores {
            None => DiskQueue::Plain(self.flash.open_queue()),
            Some(_) => DiskQueue::Translated(self.aged.take().expect("one worker serves it")),
        }
    }

    /// Returns the interface to the device's garbage collection; `None` without flash translation.
    pub(crate) fn chores(&self) -> Option<&Arc<dyn Chores>> {
        self.chores.as_ref()
    }
}

impl DiskQueue {
    /// Returns the counters of the translated volume; `None` without flash translation.
    pub(crate) fn report(&self) -> Option<Report> {
        match self {
            DiskQueue::Plain(_) => None,
            DiskQueue::Translated(aged) => Some(aged.queue.volume().report()),
        }
    }
}

/// Creates a volume of flash translation on the simulated flash, and opens a queue to it.
fn open(flash: &SimVolume, translation: Translation) -> ftl::Queue<SimQueue> {
    let buf = bufs(SizeClass { bytes: 1 << 20, count: 1 }).next().expect("one was asked for");
    let mut media = DeviceMedia::new(vec![flash.open_queue()], buf);
    let policy = Policy::HEAT3;
    let shape = Shape {
        uuid: *b"a staged volume!",
        segment_pages: (1 << (translation.pages / SEGMENTS).max(64).ilog2()) as u32,
        spare_per_mille: translation.spare_per_mille,
        policy,
        virtual_pages: None,
    };
    ftl::create(&mut media, &shape).expect("a possible volume");
    let (volume, _) = ftl::open(&mut media, Settings::new(policy)).expect("it was created");
    let classes = ftl::Queue::<SimQueue>::classes(&volume.geometry());
    let pool = BufPool::new(classes.into_iter().flat_map(bufs));
    let (members, _) = media.into_parts();
    ftl::Queue::new(volume, members, pool)
}

/// Writes each page of a volume once, then pages at random, until the volume is at rest. Returns
/// the flash's time at its end, in nanoseconds.
fn age(queue: &mut ftl::Queue<SimQueue>, seed: u64) -> u64 {
    let mut free: Vec<Buf> = bufs(SizeClass { bytes: PAGE_BYTES, count: DEPTH }).collect();
    let pages = queue.geometry().blocks / PAGE_BLOCKS;
    let mut chance = Rng::new(seed ^ 0xa9ed);
    let mut ended = Vec::new();
    // Behind the time that creating and opening the volume took.
    let (mut written, mut now) = (0, Instant::from_nanos(1_000_000_000_000));
    loop {
        while written < pages * (1 + OVERWRITES) && queue.room() > 0 {
            let Some(buf) = free.pop() else { break };
            let page = if written < pages { written } else { chance.within(0..=pages - 1) };
            let range = Range::new(page * PAGE_BLOCKS, PAGE_BLOCKS as u32);
            let (slot, command) =
                (Slot::from_bits(buf.index()), Command::Write { range, fua: false });
            queue.submit(now, Submission { slot, command, buf: Some(buf) });
            written += 1;
        }
        queue.kick(now);
        let Some(at) = queue.wake_at() else { return now.as_nanos() };
        now = at.max(now);
        queue.poll(now, &mut ended);
        for Completion { status, buf, .. } in ended.drain(..) {
            assert!(status.is_ok(), "simulated flash does not fail");
            free.extend(buf);
        }
    }
}
